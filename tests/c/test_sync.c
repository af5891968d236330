/* Who waits for what, on runtimes whose events complete when we say so. */

#include "order/sync.h"

#include <pthread.h>
#include <time.h>

#include "sync_events.h"
#include "base/wait.h"
#include "order/deferred_release.h"

/* --- events of our own ------------------------------------------------------ */

static void
test_nothing_to_wait_for(void)
{
    bool done = false;
    ad_sync *joined = (ad_sync *)&done;
    ad_stream_ref stream;
    CHECK(ad_sync_is_done(NULL));
    CHECK(ad_sync_can_wait(NULL));
    CHECK_INT(ad_sync_query(NULL, &done, NULL), AD_OK);
    CHECK(done);
    CHECK_INT(ad_sync_wait(NULL, "a test", NULL), AD_OK);
    CHECK_INT(ad_sync_order(NULL, ON(IN_ORDER, 0, S), "a test", NULL), AD_OK);
    CHECK_INT(ad_sync_join(&(ad_sync *){NULL}, 1, &joined, NULL), AD_OK);
    CHECK(joined == NULL);
    CHECK_INT(ad_sync_stream(NULL, &stream, NULL), AD_ERR_VALUE);
}

static void
test_event_is_passed_on_until_it_is_proven(void)
{
    void *event;
    bool done;
    mock_reset();
    ad_sync *sync = record(IN_ORDER, S);
    CHECK(!ad_sync_is_done(sync) && ad_sync_can_wait(sync));
    CHECK_INT(ad_sync_event(sync, &event, NULL), AD_OK);
    CHECK(event == &sync->event.handle && sync->event.handle != NULL);
    CHECK_INT(ad_sync_query(sync, &done, NULL), AD_OK);
    CHECK(!done && !ad_sync_is_done(sync));
    mock_finish();
    CHECK_INT(ad_sync_event(sync, &event, NULL), AD_OK);
    CHECK(event != NULL); /* complete, but nobody has proven it */
    CHECK_INT(ad_sync_query(sync, &done, NULL), AD_OK);
    CHECK(done && ad_sync_is_done(sync));
    long queries = mock_count().queries;
    CHECK_INT(ad_sync_query(sync, &done, NULL), AD_OK);
    CHECK(done);
    CHECK_INT(mock_count().queries, queries);
    ad_sync_unref(sync);
}

static void
test_event_that_is_an_address_goes_out_as_it_is(void)
{
    void *event;
    mock_reset();
    ad_sync *sync = record(QUEUES, S);
    CHECK_INT(ad_sync_event(sync, &event, NULL), AD_OK);
    CHECK(event == sync->event.handle);
    ad_sync_unref(sync);
    CHECK_INT(mock_count().events_destroyed, 1); /* not pooled */
}

static int n_begun;
static int n_ended;

static void *
begin(void)
{
    n_begun++;
    return &n_begun;
}

static void
end(void *saved)
{
    CHECK(saved == &n_begun);
    n_ended++;
}

static void
test_wait_blocks_between_the_hooks(void)
{
    mock_reset();
    ad_wait_set_hooks((ad_wait_hooks){.begin = begin, .end = end});
    ad_sync *sync = record(IN_ORDER, S);
    int begun = n_begun;
    CHECK_INT(ad_sync_wait(sync, "a test", NULL), AD_OK);
    CHECK(ad_sync_is_done(sync));
    CHECK_INT(n_begun, begun + 1);
    CHECK_INT(ad_sync_wait(sync, "a test", NULL), AD_OK);
    CHECK_INT(n_begun, begun + 1);
    CHECK_INT(mock_count().event_waits, 1);
    ad_sync_unref(sync);
    /* What is complete already is not worth giving anything up. */
    sync = record(IN_ORDER, S);
    mock_finish();
    CHECK_INT(ad_sync_wait(sync, "a test", NULL), AD_OK);
    CHECK_INT(n_begun, begun + 1);
    CHECK_INT(mock_count().event_waits, 1);
    ad_sync_unref(sync);
    CHECK_INT(n_begun, n_ended);
    ad_wait_set_hooks((ad_wait_hooks){.begin = NULL});
}

static void
test_pool_makes_no_event_when_warm(void)
{
    ad_sync *syncs[20];
    mock_reset();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            syncs[i] = record(IN_ORDER, S);
        }
        for (int i = 0; i < 20; i++) {
            ad_sync_unref(syncs[i]);
        }
    }
    CHECK(mock_count().events_created <= 20);
    CHECK_INT(mock_count().records, 60);
    CHECK_INT(mock_count().events_destroyed, 0);
}

static void
test_pool_is_bounded_and_of_one_context(void)
{
    enum {
        N = AD_EVENTS_PER_THREAD + AD_N_EVENT_POOLS * AD_EVENTS_PER_POOL + 40
    };
    static ad_sync *syncs[N];
    ad_sync *other;
    mock_reset();
    for (int i = 0; i < N; i++) {
        syncs[i] = record(IN_ORDER, S);
    }
    for (int i = 0; i < N; i++) {
        ad_sync_unref(syncs[i]);
    }
    CHECK_INT(mock_count().events_destroyed, 40);
    /* An event of device 0 is of no use on device 1; pinned memory is device
     * 0's. */
    long created = mock_count().events_created;
    CHECK_INT(ad_sync_record(ON(IN_ORDER, 1, S), &other, NULL), AD_OK);
    CHECK_INT(mock_count().events_created, created + 1);
    ad_sync_unref(other);
    CHECK_INT(ad_sync_record(ON(PINNED, 0, S), &other, NULL), AD_OK);
    CHECK_INT(mock_count().events_created, created + 1);
    ad_sync_unref(other);
}

static void
test_pooled_event_that_died_is_replaced(void)
{
    mock_reset();
    ad_sync_unref(record(IN_ORDER, S));
    long live = mock_live_events();
    mock_fail_nth(1);
    ad_sync *sync = record(IN_ORDER, S);
    CHECK(mock_failed_once());
    CHECK_INT(mock_count().events_destroyed, 1);
    CHECK_INT(mock_live_events(), live);
    ad_sync_unref(sync);
}

static void
wait_for_deferred(void)
{
    for (int i = 0; i < 10000 && ad_deferred_count() > 0; i++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    CHECK_INT(ad_deferred_count(), 0);
}

static void
test_event_that_was_not_recorded_is_kept_where_no_call_is_permitted(void)
{
    const ad_stream_ref *on = ON(IN_ORDER, 6, S); /* with an empty pool */
    ad_sync *sync;
    mock_reset();
    CHECK_INT(ad_sync_record(on, &sync, NULL), AD_OK);
    ad_sync_unref(sync);
    mock_set_refusing(true);
    CHECK_INT(ad_sync_record(on, &sync, NULL), AD_ERR_DEVICE);
    mock_set_refusing(false);
    wait_for_deferred();
    CHECK_INT(ad_sync_record(on, &sync, NULL), AD_OK);
    CHECK_INT(mock_count().events_created, 1);
    CHECK_INT(mock_count().events_destroyed, 0);
    ad_sync_unref(sync);
}

static void
test_event_is_destroyed_later_where_no_call_is_permitted(void)
{
    enum {
        N = AD_EVENTS_PER_THREAD + AD_N_EVENT_POOLS * AD_EVENTS_PER_POOL + 40
    };
    static ad_sync *syncs[N];
    mock_reset();
    for (int i = 0; i < N; i++) {
        syncs[i] = record(IN_ORDER, S);
    }
    const long live = mock_live_events();
    mock_set_refusing(true);
    for (int i = 0; i < N; i++) {
        ad_sync_unref(syncs[i]);
    }
    mock_set_refusing(false);
    wait_for_deferred();
    /* The thread of the deferred releases has taken some for itself. */
    CHECK(mock_live_events() <= live - 40 + AD_EVENTS_PER_THREAD);
}

/* --- pending work ------------------------------------------------------------ */

static void
test_pending_records_now(void)
{
    ad_sync *sync;
    ad_owner *queue = new_owner();
    mock_reset();
    CHECK_INT(
        ad_sync_pending(ON_OF(((ad_context){{IN_ORDER, 0}, NULL}), S, queue),
                        &sync, NULL),
        AD_OK);
    CHECK_INT(sync->kind, AD_SYNC_EVENT);
    CHECK(sync->is_own && sync->on.context.handle == (void *)0x1000);
    CHECK(sync->on.stream.handle == S.handle);
    CHECK_INT(mock_count().records, 1);
    CHECK_INT(mock_count().stream_contexts, 1);
    CHECK_INT(queue->refs, 2);
    ad_sync_unref(sync);
    CHECK_INT(queue->refs, 1);
    /* With the context known there is nothing to be asked. */
    CHECK_INT(ad_sync_pending(ON(IN_ORDER, 0, S), &sync, NULL), AD_OK);
    CHECK_INT(mock_count().stream_contexts, 1);
    ad_sync_unref(sync);
    ad_error err;
    CHECK_INT(ad_sync_pending(ON(IN_ORDER, 0, ((ad_stream){MOCK_DEAD_STREAM})),
                              &sync, &err),
              AD_ERR_DEVICE);
    CHECK_INT(err.code, 42);
    ad_owner_unref(queue);
}

/* On a device of which no other test has pooled an event. */
static ad_sync *
pending_somewhere(ad_stream stream)
{
    ad_sync *sync = NULL;
    CHECK_INT(ad_sync_pending(
                  ON_OF(((ad_context){{IN_ORDER, 5}, NULL}), stream, NULL),
                  &sync, NULL),
              AD_OK);
    return sync;
}

static void
test_context_is_guessed_and_the_record_proves_it(void)
{
    mock_reset();
    mock_set_guesses(true);
    /* Without an event in the pool, nothing is tried. */
    ad_sync_unref(pending_somewhere(S));
    CHECK_INT(mock_count().stream_contexts, 1);
    ad_sync *sync = pending_somewhere(S);
    CHECK_INT(mock_count().stream_contexts, 1);
    CHECK(sync->on.context.handle == (void *)0x1005);
    ad_sync_unref(sync);
    /* Where the guess was wrong, its event is as good as it was. */
    sync = pending_somewhere((ad_stream){MOCK_STRANGER});
    CHECK_INT(mock_count().stream_contexts, 2);
    CHECK(sync->on.context.handle == MOCK_STRANGE_CONTEXT);
    CHECK_INT(mock_count().events_created, 2);
    ad_sync_unref(sync);
    sync = pending_somewhere(T);
    CHECK_INT(mock_count().stream_contexts, 2);
    CHECK_INT(mock_count().events_created, 2);
    CHECK_INT(mock_count().events_destroyed, 0);
    CHECK_INT(mock_count().records, 5); /* one was in vain */
    ad_sync_unref(sync);
    mock_set_guesses(false);
}

static void
test_event_of_a_copy_is_taken_over(void)
{
    ad_sync *sync;
    ad_event event = {NULL};
    bool done;
    mock_reset();
    CHECK_INT(ad_backend_for(QUEUES)->event_record(CONTEXT(QUEUES, 0), S,
                                                   &event, NULL),
              AD_OK);
    CHECK_INT(ad_sync_adopt(ON(QUEUES, 0, S), event, &sync, NULL), AD_OK);
    CHECK(sync->is_own && sync->handle == event.handle);
    CHECK_INT(mock_count().records, 1);
    CHECK_INT(ad_sync_query(sync, &done, NULL), AD_OK);
    CHECK(!done);
    ad_sync_unref(sync);
    CHECK_INT(mock_count().events_destroyed, 1);
}

/* `sync` is a statement that only the same stream satisfies. */
static void
check_carried(ad_sync *sync, const char *message)
{
    ad_error err;
    ad_stream_ref stream;
    void *event;
    bool done;
    CHECK(!ad_sync_can_wait(sync));
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, S), "a test", &err), AD_OK);
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, T), "a test", &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    CHECK_HAS(err.message, "no runtime is loaded with which a test could");
    CHECK_HAS(err.message, message);
    CHECK_INT(ad_sync_wait(sync, "a test", &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    CHECK_INT(ad_sync_query(sync, &done, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    CHECK_INT(ad_sync_stream(sync, &stream, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    CHECK_INT(ad_sync_event(sync, &event, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    CHECK_HAS(err.message, "could record an event on it");
    CHECK(err.has_device);
}

static void
test_without_runtime_the_statement_is_carried(void)
{
    ad_sync *sync;
    ad_sync *same;
    ad_owner *queue = new_owner();
    mock_reset();
    /* A type without a backend. */
    CHECK_INT(ad_sync_pending(ON_OF(((ad_context){{7, 0}, NULL}), S, NULL),
                              &sync, NULL),
              AD_OK);
    CHECK_INT(sync->kind, AD_SYNC_STREAM);
    check_carried(sync, "no runtime");
    ad_sync_unref(sync);
    /* One whose library cannot be loaded says why. */
    ad_context context = {{BROKEN, 0}, NULL};
    CHECK_INT(ad_sync_pending(ON_OF(context, S, queue), &sync, NULL), AD_OK);
    CHECK_INT(ad_sync_pending(ON_OF(context, S, queue), &same, NULL), AD_OK);
    CHECK_INT(sync->kind, AD_SYNC_QUEUE);
    CHECK(sync->on.keep == queue);
    check_carried(sync, "libmock.so is not there");
    CHECK(ad_sync_same(sync, same));
    ad_sync *joined;
    CHECK_INT(ad_sync_join((ad_sync *[]){sync, same}, 2, &joined, NULL),
              AD_OK);
    CHECK(joined == sync);
    ad_sync_unref(joined);
    ad_sync_unref(same);
    CHECK_INT(ad_sync_pending(ON_OF(context, T, queue), &same, NULL), AD_OK);
    CHECK(!ad_sync_same(sync, same));
    ad_error err;
    CHECK_INT(ad_sync_join((ad_sync *[]){sync, same}, 2, &joined, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    ad_sync_unref(same);
    ad_sync_unref(sync);
    CHECK_INT(queue->refs, 1);
    ad_owner_unref(queue);
    CHECK_INT(mock_count().records, 0);
}

/* --- use_stream -------------------------------------------------------------------- */

static ad_stream_ref current;

/* What the Python layer would say inside of use_stream(). */
static bool
find_current(ad_device device, ad_stream_ref *out)
{
    *out = current;
    return ad_device_equal(device, (ad_device){IN_ORDER, 0});
}

static void
test_current_stream(void)
{
    ad_stream_ref choice;
    ad_stream_ref found;
    ad_stream_ref own;
    ad_device device = {IN_ORDER, 0};
    ad_owner *keep = new_owner();
    mock_reset();
    CHECK(!ad_stream_current(device, &choice));
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_WORK, &own, NULL),
              AD_OK);
    CHECK_INT(ad_stream_choose(CONTEXT(IN_ORDER, 0), NULL, AD_USE_WORK, &found,
                               NULL),
              AD_OK);
    CHECK(found.kind == AD_REF_OWN && ad_stream_equal(&found, &own));
    CHECK(found.keep == NULL);
    current = ad_stream_named((ad_context){device, NULL}, S, keep);
    ad_stream_set_current(find_current);
    CHECK(!ad_stream_current(device, &choice)); /* in no scope */
    ad_n_stream_scopes = 1;
    CHECK_INT(ad_stream_choose((ad_context){device, NULL}, NULL, AD_USE_WORK,
                               &found, NULL),
              AD_OK);
    CHECK(found.stream.handle == S.handle && found.keep == keep);
    CHECK(found.context.handle == (void *)0x1000);
    CHECK(ad_stream_current(device, &choice));
    CHECK(ad_stream_is_given(&choice) && choice.stream.handle == S.handle);
    CHECK(!ad_stream_current((ad_device){IN_ORDER, 1}, &choice));
    choice =
        ad_stream_named((ad_context){device, NULL}, (ad_stream){0x900}, NULL);
    CHECK_INT(ad_stream_choose((ad_context){device, NULL}, &choice,
                               AD_USE_WORK, &found, NULL),
              AD_OK);
    CHECK_INT(found.stream.handle, 0x900);
    ad_stream_set_current(NULL);
    ad_n_stream_scopes = 0;
    CHECK(!ad_stream_current(device, &choice));
    CHECK_INT(keep->refs, 1);
    ad_owner_unref(keep);
}

/* --- failures ------------------------------------------------------------------------ */

static ad_status
whole_story(int32_t type, ad_error *err)
{
    ad_sync *a = NULL;
    ad_sync *b = NULL;
    ad_sync *joined = NULL;
    ad_stream_ref stream;
    bool done;
    ad_context context = CONTEXT(type, 0);
    ad_context unknown = {context.device, NULL};
    ad_status status = ad_sync_pending(ON_OF(unknown, S, NULL), &a, err);
    if (status == AD_OK) {
        status = ad_sync_record(ON_OF(context, T, NULL), &b, err);
    }
    if (status == AD_OK) {
        status = ad_sync_join((ad_sync *[]){a, b}, 2, &joined, err);
    }
    if (status == AD_OK) {
        status = ad_sync_order(joined, ON_DATA(joined, S), "a test", err);
    }
    if (status == AD_OK) {
        status = ad_sync_stream(joined, &stream, err);
    }
    if (status == AD_OK) {
        status = ad_sync_query(joined, &done, err);
    }
    if (status == AD_OK) {
        status = ad_sync_wait(joined, "a test", err);
    }
    ad_sync_unref(joined);
    ad_sync_unref(b);
    ad_sync_unref(a);
    return status;
}

static void
test_every_call_may_fail(void)
{
    const int32_t types[] = {IN_ORDER, QUEUES};
    for (int i = 0; i < 2; i++) {
        int n_failures = 0;
        for (long n = 1;; n++) {
            ad_error err = {.status = AD_OK};
            mock_reset();
            mock_fail_nth(n);
            ad_status status = whole_story(types[i], &err);
            if (!mock_failed_once()) {
                CHECK_INT(status, AD_OK);
                break;
            }
            /* A pooled event that fails is replaced by another. */
            CHECK(status == AD_OK ||
                  (status == AD_ERR_DEVICE && err.status == AD_ERR_DEVICE &&
                   err.code == 42));
            n_failures += status != AD_OK;
        }
        CHECK(n_failures >= 7);
    }
}

static void
test_every_allocation_may_fail(void)
{
    int n_failures = 0;
    for (long n = 1;; n++) {
        ad_error err = {.status = AD_OK};
        mock_reset();
        check_fail_nth(n);
        ad_status status = whole_story(QUEUES, &err);
        bool has_failed = check_failed_once();
        check_fail_nth(0);
        if (!has_failed) {
            CHECK_INT(status, AD_OK);
            break;
        }
        CHECK(status == AD_OK || status == AD_ERR_MEMORY);
        n_failures += status == AD_ERR_MEMORY;
    }
    CHECK(n_failures >= 3);
}

/* --- threads --------------------------------------------------------------------------- */

static void *
record_often(void *unused)
{
    for (int i = 0; i < 400; i++) {
        bool done;
        ad_sync *a = record(IN_ORDER, S);
        ad_sync *b = record(IN_ORDER, T);
        ad_sync *joined;
        CHECK_INT(ad_sync_join((ad_sync *[]){a, b}, 2, &joined, NULL), AD_OK);
        CHECK_INT(ad_sync_query(joined, &done, NULL), AD_OK);
        CHECK(done);
        ad_sync_unref(a);
        ad_sync_unref(b);
        ad_sync_unref(joined);
    }
    return unused;
}

static void
test_threads_share_the_pool(void)
{
    pthread_t threads[8];
    mock_reset();
    mock_set_instant(true);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, record_often, NULL), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(mock_count().records, 8 * 400 * 3);
    CHECK(mock_count().events_created <= 8 * 3);
    CHECK(mock_count().streams_created - mock_count().streams_destroyed <= 1);
}

static void *
use_shared(void *sync)
{
    ad_stream_ref stream;
    for (int i = 0; i < 50; i++) {
        CHECK_INT(ad_sync_stream(sync, &stream, NULL), AD_OK);
    }
    return NULL;
}

static void
test_threads_make_each_stream_once(void)
{
    pthread_t threads[8];
    ad_sync *sync;
    mock_reset();
    CHECK_INT(ad_sync_record(ON(QUEUES, 1, S), &sync, NULL), AD_OK);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, use_shared, sync), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(mock_count().streams_created - mock_count().streams_destroyed,
              1);
    ad_sync_unref(sync);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_nothing_to_wait_for),
        CHECK_TEST(test_event_is_passed_on_until_it_is_proven),
        CHECK_TEST(test_event_that_is_an_address_goes_out_as_it_is),
        CHECK_TEST(test_wait_blocks_between_the_hooks),
        CHECK_TEST(test_pool_makes_no_event_when_warm),
        CHECK_TEST(test_pool_is_bounded_and_of_one_context),
        CHECK_TEST(test_pooled_event_that_died_is_replaced),
        CHECK_TEST(test_event_is_destroyed_later_where_no_call_is_permitted),
        CHECK_TEST(
            test_event_that_was_not_recorded_is_kept_where_no_call_is_permitted),
        CHECK_TEST(test_pending_records_now),
        CHECK_TEST(test_context_is_guessed_and_the_record_proves_it),
        CHECK_TEST(test_event_of_a_copy_is_taken_over),
        CHECK_TEST(test_without_runtime_the_statement_is_carried),
        CHECK_TEST(test_current_stream),
        CHECK_TEST(test_every_call_may_fail),
        CHECK_TEST(test_every_allocation_may_fail),
        CHECK_TEST(test_threads_share_the_pool),
        CHECK_TEST(test_threads_make_each_stream_once),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
