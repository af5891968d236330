/* The second edge: when memory goes back to its producer. */

#include "order/device_owner.h"

#include <pthread.h>

#include "base/owner.h"
#include "order/deferred_release.h"
#include "owners.h"
#include "trees.h"

static void
test_host_memory_is_not_wrapped(void)
{
    const int32_t types[] = {1, 7, BARE};
    mock_reset();
    for (int i = 0; i < 3; i++) {
        atomic_int released = 0;
        ad_owner *inner = tracked_new(&released);
        ad_owner *owner;
        CHECK_INT(ad_device_owner_new(inner, (ad_context){{types[i], 0}, NULL},
                                      NULL, &owner, NULL),
                  AD_OK);
        CHECK(owner == inner);
        record_on(owner, types[i], S);
        record_on(owner, IN_ORDER, S); /* an owner that is no device owner */
        ad_owner_unref(owner);
        CHECK_INT(released, 1);
    }
    ad_owner *none;
    CHECK_INT(
        ad_device_owner_new(NULL, CONTEXT(IN_ORDER, 0), NULL, &none, NULL),
        AD_OK);
    CHECK(none == NULL);
    record_on(NULL, IN_ORDER, S);
    CHECK_INT(mock_count().records, 0);
}

static void
test_wrapping_loads_no_runtime(void)
{
    mock_reset();
    ad_owner *owner = owner_of(CLAIMS, NULL);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().loads, 0);
}

static void
test_unused_memory_is_released_at_once(void)
{
    mock_reset();
    ad_owner_unref(owner_of(IN_ORDER, NULL));
    CHECK_INT(atomic_load(&n_released), 1);
    ad_owner *owner = owner_of(IN_ORDER, &P);
    record_on(owner, IN_ORDER, P);
    record_on(owner, PINNED, P); /* the same runtime, the same stream */
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().records, 0);
}

static void
test_without_runtime_the_release_is_believed(void)
{
    mock_reset();
    ad_owner *owner = owner_of(BROKEN, NULL);
    record_on(owner, BROKEN, S);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
}

static void
test_producers_stream_waits_for_the_others(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &P);
    record_on(owner, IN_ORDER, S);
    record_on(owner, IN_ORDER, T);
    record_on(owner, IN_ORDER, S);
    record_on(owner, IN_ORDER, P);
    ad_owner_unref(owner);
    /* Released, although nothing is complete: the stream waits, not we. */
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().records, 2);
    CHECK_INT(mock_count().waits, 2);
    CHECK_INT(mock_last_waiter(), P.handle);
    CHECK_INT(ad_deferred_count(), 0);
}

static void
test_unknown_producer_defers_release(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    record_on(owner, IN_ORDER, S);
    ad_owner_unref(owner);
    rest(30);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(ad_deferred_count(), 1);
    mock_finish();
    expect_soon(&n_released, 1);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(mock_count().context_waits, 0);
}

/* An owner that lies before the device owner around it. */
typedef struct in_front {
    ad_owner base;
    atomic_int *n_released;
} in_front;

static void
in_front_destroy(ad_owner *base)
{
    atomic_fetch_add(((in_front *)base)->n_released, 1);
    free(base);
}

static const ad_owner_ops in_front_ops = {.destroy = in_front_destroy};

static ad_owner *
both_in_one(ad_device device, ad_owner **inner)
{
    ad_owner *owner;
    atomic_store(&n_released, 0);
    CHECK_INT(ad_device_owner_alloc(sizeof(in_front), &in_front_ops,
                                    (ad_context){.device = device}, NULL,
                                    inner, &owner, NULL),
              AD_OK);
    ((in_front *)*inner)->n_released = &n_released;
    return owner;
}

static void
test_both_owners_in_one_allocation(void)
{
    ad_owner *inner;
    mock_reset();
    ad_owner *owner = both_in_one((ad_device){1, -1}, &inner);
    CHECK(owner == inner);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);

    owner = both_in_one((ad_device){IN_ORDER, 0}, &inner);
    CHECK(owner != inner);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);

    owner = both_in_one((ad_device){IN_ORDER, 0}, &inner);
    ad_owner_ref(inner); /* an event that lives in it */
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 0);
    ad_owner_unref(inner);
    CHECK_INT(atomic_load(&n_released), 1);
}

static void
test_deferred_owner_outlives_its_wrapper(void)
{
    ad_owner *inner;
    for (int instant = 0; instant < 2; instant++) {
        mock_reset();
        mock_set_instant(instant);
        ad_owner *owner = both_in_one((ad_device){IN_ORDER, 0}, &inner);
        for (uintptr_t i = 0; i < 4; i++) {
            record_on(owner, IN_ORDER, (ad_stream){S.handle + i});
        }
        ad_owner_unref(owner);
        CHECK_INT(atomic_load(&n_released), instant);
        mock_finish();
        expect_soon(&n_released, 1);
    }
}

static void
test_complete_work_is_released_at_once(void)
{
    mock_reset();
    mock_set_instant(true);
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    record_on(owner, IN_ORDER, S);
    record_on(owner, IN_ORDER, T);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().queries, 2);
}

static void
test_streams_without_order_do_not_order_a_release(void)
{
    mock_reset();
    ad_owner *owner = owner_of(QUEUES, &P);
    record_on(owner, QUEUES, P);
    ad_owner_unref(owner);
    rest(20);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(mock_count().waits, 0);
    mock_finish();
    expect_soon(&n_released, 1);
}

static void
test_dead_stream_waits_for_the_context(void)
{
    mock_reset();
    mock_set_waits_finish(false);
    ad_sync *tick;
    CHECK_INT(ad_sync_record(ON(IN_ORDER, 0, T), &tick, NULL), AD_OK);
    ad_owner *owner = owner_of(IN_ORDER, &P);
    record_on(owner, IN_ORDER, S);
    record_on(owner, IN_ORDER, (ad_stream){MOCK_DEAD_STREAM});
    ad_owner_unref(owner);
    mock_finish();
    rest(30);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(mock_count().context_waits, 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().context_waits, 1);
    ad_sync_unref(tick);
}

static void
test_dead_producer_defers_release(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &(ad_stream){MOCK_DEAD_STREAM});
    record_on(owner, IN_ORDER, S);
    ad_owner_unref(owner);
    rest(20);
    CHECK_INT(atomic_load(&n_released), 0);
    mock_finish();
    expect_soon(&n_released, 1);
    CHECK_INT(mock_count().context_waits, 0);
}

static void *
drop(void *owner)
{
    ad_owner_unref(owner);
    return NULL;
}

/* The legacy stream waits for all per-thread streams. */
static void
test_per_thread_stream_released_elsewhere(void)
{
    static const ad_stream per_thread = {2};
    const ad_stream *producers[] = {NULL, &P, &per_thread};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        mock_reset();
        ad_owner *owner = owner_of(IN_ORDER, producers[i]);
        record_on(owner, IN_ORDER, per_thread);
        CHECK_INT(pthread_create(&thread, NULL, drop, owner), 0);
        pthread_join(thread, NULL);
        CHECK_INT(mock_count().records, 1);
        CHECK_INT(mock_last_recorded(), AD_STREAM_LEGACY);
        mock_finish();
        expect_soon(&n_released, 1);
        CHECK_INT(mock_count().context_waits, 0);
    }
}

static void *
record_per_thread(void *owner)
{
    record_on(owner, IN_ORDER, (ad_stream){AD_STREAM_PER_THREAD});
    return NULL;
}

/* Nothing promises that the legacy stream waits for those of threads that have
 * ended. */
static void
test_per_thread_stream_of_an_ended_thread(void)
{
    pthread_t thread;
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &P);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(pthread_create(&thread, NULL, record_per_thread, owner), 0);
        pthread_join(thread, NULL);
    }
    ad_owner_unref(owner);
    mock_finish();
    rest(30);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(mock_count().records, 0);
    CHECK_INT(mock_count().context_waits, 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(atomic_load(&n_released), 1);
}

static void
test_per_thread_stream_released_here(void)
{
    static const ad_stream per_thread = {2};
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &per_thread);
    record_on(owner, IN_ORDER, per_thread);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().context_waits, 0);
}

static void
test_many_streams_order_a_release(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &P);
    for (uintptr_t i = 0; i < 100; i++) {
        record_on(owner, IN_ORDER, (ad_stream){0x1000 + i});
    }
    ad_owner_unref(owner);
    CHECK_INT(mock_count().records, 100);
    CHECK_INT(mock_count().waits, 100);
    CHECK_INT(atomic_load(&n_released), 1);
}

/* Where nobody can tell that a context is idle, each stream counts, and what
 * keeps it: the last one no less than the first. */
static void
test_many_streams_without_an_idle_context(void)
{
    atomic_int n_kept = 0;
    mock_reset();
    ad_owner *keep = tracked_new(&n_kept);
    ad_owner *owner = owner_of(QUEUES, NULL);
    for (uintptr_t i = 0; i < 100; i++) {
        CHECK_INT(
            ad_owner_record_stream(
                owner,
                ON_OF(CONTEXT(QUEUES, 0), ((ad_stream){0x1000 + i}), keep),
                NULL),
            AD_OK);
    }
    CHECK_INT(keep->refs, 101);
    ad_owner_unref(keep);
    ad_owner_unref(owner);
    CHECK_INT(mock_count().records, 100);
    rest(20);
    CHECK_INT(atomic_load(&n_released), 0);
    mock_finish();
    expect_soon(&n_released, 1);
    CHECK_INT(mock_count().context_waits, 0);
    CHECK_INT(n_kept, 1);
}

static ad_owner *unproven; /* on purpose: it is never released */

static void
test_stream_that_is_gone_without_an_idle_context(void)
{
    static atomic_int released;
    ad_owner *owner;
    mock_reset();
    unproven = tracked_new(&released);
    CHECK_INT(
        ad_device_owner_new(unproven, CONTEXT(QUEUES, 0), NULL, &owner, NULL),
        AD_OK);
    record_on(owner, QUEUES, S);
    record_on(owner, QUEUES, (ad_stream){MOCK_DEAD_STREAM});
    ad_owner_unref(owner);
    mock_finish();
    rest(30);
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
    CHECK_INT(released, 0);
    CHECK_INT(mock_count().context_waits, 0);
}

/* The producer's stream must not be drawn into a graph that uses the
 * memory. */
static void
test_stream_in_a_capture_orders_nothing(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &P);
    record_on(owner, IN_ORDER, (ad_stream){MOCK_CAPTURED_STREAM});
    ad_owner_unref(owner);
    rest(30);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(mock_count().records, 0);
    CHECK_INT(atomic_load(&n_released), 0);
    mock_end_capture();
    for (int i = 0; i < 20000 && mock_count().records == 0; i++) {
        rest(1);
    }
    mock_finish();
    expect_soon(&n_released, 1);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(mock_count().context_waits, 0);
}

/* The graph's user keeps the memory, and the stream may be destroyed. */
static void
test_stream_captured_from_the_start_is_not_waited_for(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    CHECK_INT(
        ad_owner_record_consumer(
            owner, ON(IN_ORDER, 0, ((ad_stream){MOCK_CAPTURED_STREAM})), NULL),
        AD_OK);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().records, 0);
}

/* The wait would invalidate the graph. */
static void
test_captured_producer_waits_for_nobody_outside(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &(ad_stream){MOCK_CAPTURED_STREAM});
    record_on(owner, IN_ORDER, S);
    ad_owner_unref(owner);
    CHECK_INT(mock_count().records, 1);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(atomic_load(&n_released), 0);
    mock_finish();
    expect_soon(&n_released, 1);
}

/* 1 is another stream in each context. */
static void
test_default_stream_of_another_context_is_not_the_producers(void)
{
    static const ad_stream legacy = {1};
    const ad_context other = {{IN_ORDER, 0}, (void *)0x7777};
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &legacy);
    record_on(owner, IN_ORDER, legacy);
    CHECK_INT(ad_owner_record_stream(owner, ON_OF(other, legacy, NULL), NULL),
              AD_OK);
    ad_owner_unref(owner);
    CHECK_INT(mock_count().records, 1);
    CHECK_INT(mock_count().waits, 1);
    CHECK_INT(atomic_load(&n_released), 1);
}

/* Each context in which no event could be recorded has to be idle. */
static void
test_streams_in_several_contexts(void)
{
    static const ad_stream dead = {MOCK_DEAD_STREAM};
    mock_reset();
    mock_set_waits_finish(false);
    ad_owner *owner = owner_of(IN_ORDER, &P);
    record_on(owner, IN_ORDER, S);
    record_on(owner, IN_ORDER, dead);
    CHECK_INT(ad_owner_record_stream(owner, ON(IN_ORDER, 1, dead), NULL),
              AD_OK);
    CHECK_INT(
        ad_owner_record_stream(owner, ON(IN_ORDER, 1, ((ad_stream){2})), NULL),
        AD_OK);
    CHECK_INT(
        ad_owner_record_stream(
            owner, ON_OF(((ad_context){{IN_ORDER, 0}, NULL}), T, NULL), NULL),
        AD_OK);
    long contexts = mock_count().stream_contexts;
    ad_owner_unref(owner);
    CHECK_INT(mock_count().stream_contexts, contexts + 1); /* T's */
    mock_finish();
    rest(20);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 1), NULL), AD_OK);
    CHECK_INT(atomic_load(&n_released), 1);
    CHECK_INT(mock_count().context_waits, 2);
    CHECK_INT(ad_deferred_count(), 0);
}

static void
test_groups_are_looked_into(void)
{
    ad_owner *group;
    ad_owner *outer;
    atomic_int n_host = 0;
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    ad_owner *host = tracked_new(&n_host);
    CHECK_INT(
        ad_owner_group_new((ad_owner *[]){NULL, host, owner}, 3, &group, NULL),
        AD_OK);
    CHECK_INT(ad_owner_group_new(&group, 1, &outer, NULL), AD_OK);
    record_on(outer, IN_ORDER, S);
    ad_owner_unref(group);
    ad_owner_unref(owner);
    ad_owner_unref(host);
    ad_owner_unref(outer);
    CHECK_INT(n_host, 1);
    CHECK_INT(mock_count().records, 1);
    mock_finish();
    expect_soon(&n_released, 1);
}

/* Takes over the owner. */
static ad_owner *
group_twice(ad_owner *owner)
{
    ad_owner *group;
    CHECK_INT(
        ad_owner_group_new((ad_owner *[]){owner, owner}, 2, &group, NULL),
        AD_OK);
    ad_owner_unref(owner);
    return group;
}

static void
test_owners_are_found_however_deep(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    for (int i = 0; i < 200; i++) { /* 2^200 ways */
        owner = group_twice(owner);
    }
    for (int i = 0; i < 1000000; i++) {
        ad_owner *outer;
        CHECK_INT(ad_owner_group_new(&owner, 1, &outer, NULL), AD_OK);
        ad_owner_unref(owner);
        owner = outer;
    }
    CHECK(ad_owner_records(owner));
    record_on(owner, IN_ORDER, S);
    ad_owner_record_unnamed(owner, (ad_device){IN_ORDER, 0}, NULL);
    ad_owner_unref(owner);
    CHECK_INT(mock_count().records, 2);
    CHECK_INT(atomic_load(&n_released), 0);
    mock_finish();
    expect_soon(&n_released, 1);
}

static void
test_without_memory_for_the_search_nothing_is_released_early(void)
{
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    for (int i = 0; i < 200; i++) {
        owner = group_twice(owner);
    }
    check_fail_nth(1);
    CHECK(!ad_owner_records(owner));
    check_fail_nth(1);
    CHECK_INT(ad_owner_record_stream(owner, ON(IN_ORDER, 0, S), NULL),
              AD_ERR_MEMORY);
    check_fail_nth(1);
    ad_owner_record_unnamed(owner, (ad_device){IN_ORDER, 0}, NULL);
    CHECK(check_failed_once());
    check_fail_nth(0);
    ad_owner_unref(owner);
    rest(30);
    CHECK_INT(atomic_load(&n_released), 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(mock_count().context_waits, 1);
    CHECK_INT(atomic_load(&n_released), 1);
}

/* A batch that was exported, with a use on S, and imported again. A consumer
 * may have placed a column of its own in it. */
static void
import_again(bool is_replaced, ad_array *out)
{
    ad_error err;
    ad_array first;
    struct ArrowDeviceArray *holder;
    tree_import(tree_wide_schema(2), tree_wide_array(2, 10), NULL, &first);
    record_on(first.memory.owner, IN_ORDER, S);
    ad_schema schema = ad_schema_ref(first.schema);
    CHECK_INT(ad_array_export(&first, &holder, &err), AD_OK);
    ad_array_clear(&first);
    if (is_replaced) {
        struct ArrowArray *column = holder->array.children[1];
        column->release(column);
        struct ArrowArray *other = tree_ints(10);
        *column = *other;
        free(other);
    }
    CHECK_INT(ad_array_import_as(schema, holder, out, &err), AD_OK);
    ad_array_holder_free(holder);
    ad_schema_unref(schema);
}

static void
test_use_of_an_own_export_is_recorded_where_it_is_released(void)
{
    ad_array array;
    mock_reset();
    import_again(false, &array);
    record_on(array.memory.owner, IN_ORDER, S);
    record_on(array.memory.owner, IN_ORDER, T);
    ad_array_clear(&array);
    CHECK_INT(mock_count().records, 2);
    CHECK_INT(ad_deferred_count(), 1);
    CHECK_INT(atomic_load(&live_arrays), 3);
    mock_finish();
    expect_soon(&live_arrays, 0);
    CHECK_INT(mock_count().records, 2);
    tree_check_all_gone();
}

static void
test_column_of_a_consumer_in_an_own_export_is_kept(void)
{
    ad_array array;
    mock_reset();
    import_again(true, &array);
    record_on(array.memory.owner, IN_ORDER, T);
    ad_array_clear(&array);
    rest(30);
    CHECK_INT(atomic_load(&live_arrays), 4);
    mock_set_instant(true); /* for the use of the first array */
    mock_finish();
    expect_soon(&live_arrays, 0);
    tree_check_all_gone();
}

static void
test_streams_objects_are_kept(void)
{
    atomic_int n_kept = 0;
    mock_reset();
    mock_set_instant(true);
    ad_owner *keep = tracked_new(&n_kept);
    ad_owner *owner = owner_of(IN_ORDER, NULL);
    for (uintptr_t i = 0; i < 4; i++) {
        CHECK_INT(
            ad_owner_record_stream(
                owner,
                ON_OF(CONTEXT(IN_ORDER, 0), ((ad_stream){S.handle + i}), keep),
                NULL),
            AD_OK);
    }
    CHECK_INT(keep->refs, 5);
    ad_owner_unref(keep);
    CHECK_INT(n_kept, 0);
    ad_owner_unref(owner);
    CHECK_INT(n_kept, 1);
}

/* --- failures ---------------------------------------------------------------- */

/* Whatever fails, memory goes back once, and not before its work is done. */
static void
story(int32_t type, const ad_stream *producer)
{
    ad_owner *owner = NULL;
    ad_stream_ref choice = {.kind = AD_REF_NONE};
    if (producer != NULL) {
        choice = ad_stream_named(CONTEXT(type, 0), P, NULL);
    }
    ad_owner *inner = tracked_new(&n_released);
    if (ad_device_owner_new(inner, CONTEXT(type, 0), &choice, &owner, NULL) !=
        AD_OK) {
        ad_owner_unref(inner);
        return;
    }
    for (uintptr_t i = 0; i < 4; i++) {
        if (ad_owner_record_stream(owner,
                                   ON(type, 0, ((ad_stream){S.handle + i})),
                                   NULL) != AD_OK) {
            break;
        }
    }
    ad_owner_unref(owner);
}

static void
test_every_call_may_fail(void)
{
    for (int with_producer = 0; with_producer < 2; with_producer++) {
        bool fails = true;
        for (long n = 1; fails; n++) {
            mock_reset();
            atomic_store(&n_released, 0);
            mock_fail_nth(n);
            story(IN_ORDER, with_producer ? &P : NULL);
            fails = mock_failed_once();
            mock_fail_nth(0);
            mock_finish();
            CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
            expect_soon(&n_released, 1);
        }
    }
}

static void
test_every_allocation_may_fail(void)
{
    bool fails = true;
    for (long n = 1; fails; n++) {
        mock_reset();
        /* nothing is deferred: the thread shares malloc */
        mock_set_instant(true);
        atomic_store(&n_released, 0);
        ad_stream_ref choice = {.kind = AD_REF_NONE};
        ad_owner *inner = tracked_new(&n_released);
        ad_owner *owner = NULL;
        check_fail_nth(n);
        if (ad_device_owner_new(inner, CONTEXT(IN_ORDER, 0), &choice, &owner,
                                NULL) == AD_OK) {
            for (uintptr_t i = 0; i < 4; i++) {
                ad_status status = ad_owner_record_stream(
                    owner, ON(IN_ORDER, 0, ((ad_stream){S.handle + i})), NULL);
                CHECK(status == AD_OK || status == AD_ERR_MEMORY);
            }
            inner = owner;
        }
        ad_owner_unref(inner);
        fails = check_failed_once();
        check_fail_nth(0);
        CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
        expect_soon(&n_released, 1);
    }
}

/* --- threads ------------------------------------------------------------------- */

static void *
record_and_drop(void *owner)
{
    for (uintptr_t i = 0; i < 50; i++) {
        record_on(owner, IN_ORDER, (ad_stream){0x1000 + i % 20});
    }
    ad_owner_unref(owner);
    return NULL;
}

static void
test_threads_record_each_stream(void)
{
    pthread_t threads[8];
    mock_reset();
    ad_owner *owner = owner_of(IN_ORDER, &P);
    for (int i = 0; i < 8; i++) {
        ad_owner_ref(owner);
        CHECK_INT(pthread_create(&threads[i], NULL, record_and_drop, owner),
                  0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(atomic_load(&n_released), 0);
    ad_owner_unref(owner);
    CHECK_INT(atomic_load(&n_released), 1);
    /* Two threads may both record a stream, which is then waited for twice. */
    const size_t n = mock_count().records;
    CHECK(n >= 20 && n <= 8 * 20);
    CHECK_INT(mock_count().waits, n);
}

static void
stop(void)
{
    ad_deferred_stop();
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_host_memory_is_not_wrapped),
        CHECK_TEST(test_wrapping_loads_no_runtime),
        CHECK_TEST(test_unused_memory_is_released_at_once),
        CHECK_TEST(test_without_runtime_the_release_is_believed),
        CHECK_TEST(test_producers_stream_waits_for_the_others),
        CHECK_TEST(test_unknown_producer_defers_release),
        CHECK_TEST(test_both_owners_in_one_allocation),
        CHECK_TEST(test_deferred_owner_outlives_its_wrapper),
        CHECK_TEST(test_complete_work_is_released_at_once),
        CHECK_TEST(test_streams_without_order_do_not_order_a_release),
        CHECK_TEST(test_dead_stream_waits_for_the_context),
        CHECK_TEST(test_dead_producer_defers_release),
        CHECK_TEST(test_per_thread_stream_released_elsewhere),
        CHECK_TEST(test_per_thread_stream_of_an_ended_thread),
        CHECK_TEST(test_per_thread_stream_released_here),
        CHECK_TEST(test_many_streams_order_a_release),
        CHECK_TEST(test_many_streams_without_an_idle_context),
        CHECK_TEST(test_stream_that_is_gone_without_an_idle_context),
        CHECK_TEST(test_stream_in_a_capture_orders_nothing),
        CHECK_TEST(test_stream_captured_from_the_start_is_not_waited_for),
        CHECK_TEST(test_captured_producer_waits_for_nobody_outside),
        CHECK_TEST(
            test_default_stream_of_another_context_is_not_the_producers),
        CHECK_TEST(test_streams_in_several_contexts),
        CHECK_TEST(test_groups_are_looked_into),
        CHECK_TEST(test_owners_are_found_however_deep),
        CHECK_TEST(
            test_without_memory_for_the_search_nothing_is_released_early),
        CHECK_TEST(test_use_of_an_own_export_is_recorded_where_it_is_released),
        CHECK_TEST(test_column_of_a_consumer_in_an_own_export_is_kept),
        CHECK_TEST(test_streams_objects_are_kept),
        CHECK_TEST(test_every_call_may_fail),
        CHECK_TEST(test_every_allocation_may_fail),
        CHECK_TEST(test_threads_record_each_stream),
        CHECK_TEST(stop),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
