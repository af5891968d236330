/* Rings of events: threads that write while a trace ends, the oldest event that
 * is dropped, objects that are given back once. */

#include "base/trace.h"

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

typedef struct seen {
    size_t n_events;
    size_t n_objects;
    uint64_t lost;
    int64_t last;
    bool is_in_order;
    size_t stop_after; /* 0: never */
} seen;

static bool
see_event(void *data, size_t ring, uint64_t thread,
          const ad_trace_event *event)
{
    seen *self = data;
    (void)ring;
    (void)thread;
    self->is_in_order = self->is_in_order && event->nbytes > self->last;
    self->last = event->nbytes;
    self->n_events++;
    return self->n_events != self->stop_after;
}

static void
see_object(void *data, void *object)
{
    (void)object;
    ((seen *)data)->n_objects++;
}

static bool
collect(seen *out, uint64_t *dropped)
{
    ad_trace_visitor visitor = {see_event, see_object, out, 0, 0};
    out->is_in_order = true;
    out->last = -1;
    bool is_complete = ad_trace_collect(&visitor);
    out->lost = visitor.lost;
    *dropped = visitor.dropped;
    return is_complete;
}

static void
add(int64_t i)
{
    const ad_trace_event event = {
        .kind = AD_TRACE_COPY, .trace = ad_trace_number(), .nbytes = i};
    ad_trace_add(&event);
}

static void
test_a_full_ring_drops_the_oldest(void)
{
    seen found = {0};
    uint64_t dropped;
    add(1); /* off: not added */
    ad_trace_start(4);
    CHECK(ad_trace_is_on());
    for (int64_t i = 0; i < 10; i++) {
        add(i);
    }
    ad_trace_stop();
    add(11);
    CHECK(collect(&found, &dropped));
    CHECK_INT(found.n_events, 4);
    CHECK_INT(found.last, 9);
    CHECK_INT(dropped, 6);
    CHECK(found.is_in_order);
}

static void
test_an_event_of_the_trace_before_is_not_added(void)
{
    seen found = {0};
    uint64_t dropped;
    ad_trace_start(4);
    const ad_trace_event late = {.trace = ad_trace_number()};
    ad_trace_stop();
    CHECK(collect(&found, &dropped));
    ad_trace_start(4);
    ad_trace_add(&late);
    CHECK(ad_trace_begin(&late) == NULL);
    ad_trace_stop();
    CHECK(collect(&found, &dropped));
    CHECK_INT(found.n_events, 0);
}

static void
test_objects_are_kept_once(void)
{
    enum {
        N = 1000
    };
    static char objects[N][16];
    seen found = {0};
    uint64_t dropped;
    size_t n_taken = 0;
    ad_trace_start(8);
    for (int i = 0; i < 3 * N; i++) {
        ad_trace_event event = {
            .trace = ad_trace_number(), .nbytes = i, .from = objects[i % N]};
        ad_trace_ring *ring = ad_trace_begin(&event);
        CHECK(ring != NULL);
        n_taken += ad_trace_keep(ring, &event.from);
        CHECK(!ad_trace_keep(ring, &event.to)); /* NULL */
        CHECK(event.from == objects[i % N]);
        ad_trace_end(ring, &event);
    }
    ad_trace_stop();
    CHECK_INT(n_taken, N);
    found.stop_after = 2; /* all objects are given back nevertheless */
    CHECK(!collect(&found, &dropped));
    CHECK_INT(found.n_events, 2);
    CHECK_INT(found.n_objects, N);
    found = (seen){0};
    CHECK(collect(&found, &dropped));
    CHECK_INT(found.n_events + found.n_objects, 0);
}

static atomic_bool is_over;

static void *
write_on(void *unused)
{
    (void)unused;
    for (int64_t i = 0; !atomic_load(&is_over); i++) {
        add(i);
    }
    return NULL;
}

static void
test_threads_write_while_traces_begin_and_end(void)
{
    enum {
        N_THREADS = 3
    };
    pthread_t threads[N_THREADS];
    size_t n_events = 0;
    uint64_t dropped;
    atomic_store(&is_over, false);
    for (int i = 0; i < N_THREADS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, write_on, NULL), 0);
    }
    for (int i = 0; i < 200 || n_events == 0; i++) {
        seen found = {0};
        ad_trace_start(16);
        add(-1);
        ad_trace_stop();
        CHECK(collect(&found, &dropped));
        CHECK(found.n_events >= 1);
        CHECK(found.n_events <= (N_THREADS + 1) * 16);
        n_events += found.n_events - 1;
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void *
write_some(void *unused)
{
    (void)unused;
    for (int64_t i = 0; i < 5; i++) {
        add(i);
    }
    return NULL;
}

static void
test_events_of_a_thread_that_has_ended_stay(void)
{
    seen found = {0};
    uint64_t dropped;
    ad_trace_start(8);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, write_some, NULL), 0);
        pthread_join(thread, NULL);
    }
    ad_trace_stop();
    CHECK(collect(&found, &dropped));
    CHECK_INT(found.n_events, 15);
    CHECK_INT(dropped, 0);
}

static void
test_a_ring_grows_to_its_capacity(void)
{
    static const int64_t ns[] = {255, 256, 257, 512, 1000, 1001, 5000};
    for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
        seen found = {0};
        uint64_t dropped;
        ad_trace_start(1000);
        for (int64_t j = 0; j < ns[i]; j++) {
            add(j);
        }
        ad_trace_stop();
        CHECK(collect(&found, &dropped));
        CHECK_INT(found.n_events, ns[i] < 1000 ? ns[i] : 1000);
        CHECK_INT(found.n_events + dropped, ns[i]);
        CHECK_INT(found.last, ns[i] - 1);
        CHECK(found.is_in_order);
    }
}

static void
test_a_trace_that_was_not_collected_is_not_in_the_next_one(void)
{
    seen found = {0};
    uint64_t dropped;
    ad_trace_start(2);
    for (int64_t i = 0; i < 5; i++) {
        add(i);
    }
    ad_trace_stop();
    ad_trace_start(300);
    for (int64_t i = 0; i < 280; i++) {
        add(i);
    }
    ad_trace_stop();
    CHECK(collect(&found, &dropped));
    CHECK_INT(found.n_events, 280);
    CHECK_INT(dropped, 0);
    CHECK(found.is_in_order);
}

static void
test_events_without_memory_are_lost_and_not_dropped(void)
{
    seen found = {0};
    uint64_t dropped;
    ad_trace_start(1000);
    check_fail_nth(1);
    add(-1);
    check_fail_nth(0);
    for (int64_t i = 0; i < 256; i++) {
        add(i);
    }
    check_fail_nth(1); /* no room for more: what is there stays */
    add(1000);
    check_fail_nth(0);
    add(2000);
    ad_trace_stop();
    CHECK(collect(&found, &dropped));
    CHECK_INT(found.n_events, 257);
    CHECK_INT(found.last, 2000);
    CHECK_INT(found.lost, 2);
    CHECK_INT(dropped, 0);
    CHECK(found.is_in_order);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_a_full_ring_drops_the_oldest),
        CHECK_TEST(test_an_event_of_the_trace_before_is_not_added),
        CHECK_TEST(test_objects_are_kept_once),
        CHECK_TEST(test_threads_write_while_traces_begin_and_end),
        CHECK_TEST(test_events_of_a_thread_that_has_ended_stay),
        CHECK_TEST(test_a_ring_grows_to_its_capacity),
        CHECK_TEST(test_a_trace_that_was_not_collected_is_not_in_the_next_one),
        CHECK_TEST(test_events_without_memory_are_lost_and_not_dropped),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
