/* Memory that arrowdev allocates on a device, and when it is freed. */

#include "order/device_owner.h"

#include "copy/session.h"
#include "order/deferred_release.h"
#include "order/streams.h"
#include "owners.h"

static void
test_memory_in_stream_order(void)
{
    void *data;
    ad_owner *owner;
    mock_reset();
    CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), ON(IN_ORDER, 0, S),
                                   100, &data, &owner, NULL),
              AD_OK);
    CHECK(data != NULL);
    record_on(owner, IN_ORDER, S);
    record_on(owner, IN_ORDER, T);
    ad_owner_unref(owner);
    CHECK_INT(mock_count().deallocations, 1);
    CHECK_INT(mock_count().waits, 1);
    CHECK_INT(mock_last_waiter(), S.handle);
}

/* No work of others is waited for on the stream that the memory was allocated
 * on. */
static void
test_own_memory_is_freed_on_a_stream_for_this(void)
{
    ad_stream_ref work, frees;
    void *data;
    ad_owner *owner;
    mock_reset();
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_WORK, &work, NULL),
              AD_OK);
    for (int used_by_others = 0; used_by_others < 2; used_by_others++) {
        mock_reset();
        CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), &work, 100, &data,
                                       &owner, NULL),
                  AD_OK);
        record_on(owner, IN_ORDER, work.stream);
        if (used_by_others) {
            record_on(owner, IN_ORDER, T);
        }
        ad_owner_unref(owner);
        CHECK_INT(mock_count().deallocations, 1);
        CHECK_INT(mock_count().waits, 2 * used_by_others);
    }
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_FREE, &frees, NULL),
              AD_OK);
    CHECK_INT(mock_last_waiter(), frees.stream.handle);
}

static void
test_memory_without_order_waits_for_its_stream(void)
{
    void *data;
    ad_owner *owner;
    mock_reset();
    CHECK_INT(ad_device_memory_new(CONTEXT(QUEUES, 0), ON(QUEUES, 0, S), 100,
                                   &data, &owner, NULL),
              AD_OK);
    ad_owner_unref(owner);
    rest(20);
    CHECK_INT(mock_count().deallocations, 0);
    CHECK_INT(mock_count().records, 1);
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
    CHECK_INT(mock_count().deallocations, 1);
}

static void
test_memory_of_nothing(void)
{
    int mark;
    void *data = &mark;
    ad_owner *owner = (ad_owner *)&mark;
    ad_error err;
    mock_reset();
    CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), ON(IN_ORDER, 0, S), 0,
                                   &data, &owner, &err),
              AD_OK);
    CHECK(data == NULL && owner == NULL);
    CHECK_INT(mock_count().allocations, 0);
    CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), ON(IN_ORDER, 0, S),
                                   -1, &data, &owner, &err),
              AD_ERR_VALUE);
    CHECK_INT(ad_device_memory_new(CONTEXT(BROKEN, 0), ON(BROKEN, 0, S), 8,
                                   &data, &owner, &err),
              AD_ERR_EXCHANGE);
    CHECK_INT(ad_device_memory_new(CONTEXT(7, 0), ON(7, 0, S), 8, &data,
                                   &owner, &err),
              AD_ERR_EXCHANGE);
}

static void
test_full_device_drains_deferred_releases(void)
{
    void *data;
    ad_owner *owner;
    ad_error err;
    mock_reset();
    ad_owner *deferred = owner_of(IN_ORDER, NULL);
    record_on(deferred, IN_ORDER, S);
    ad_owner_unref(deferred);
    CHECK_INT(ad_deferred_count(), 1);
    mock_fail_all(MOCK_ALLOCATE);
    CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), ON(IN_ORDER, 0, S), 8,
                                   &data, &owner, NULL),
              AD_OK);
    CHECK_INT(atomic_load(&n_released), 1);
    ad_owner_unref(owner);
    /* With nothing to be had there it is an error. */
    mock_set_waits_finish(false);
    CHECK_INT(ad_device_memory_new(CONTEXT(QUEUES, 0), ON(QUEUES, 0, S), 8,
                                   &data, &owner, NULL),
              AD_OK);
    ad_owner_unref(owner);
    CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), ON(IN_ORDER, 0, S), 8,
                                   &data, &owner, &err),
              AD_ERR_MEMORY);
    CHECK_HAS(err.message, "the mock is full");
    mock_set_waits_finish(true);
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
}

static void
test_memory_survives_failures(void)
{
    for (int kind = 0; kind < 2; kind++) {
        bool fails = true;
        for (long n = 1; fails; n++) {
            void *data;
            ad_owner *owner = NULL;
            mock_reset();
            mock_set_instant(true);
            long before = mock_live_memory();
            (kind == 0 ? mock_fail_nth : check_fail_nth)(n);
            ad_status status = ad_device_memory_new(
                CONTEXT(QUEUES, 0), ON(QUEUES, 0, S), 16, &data, &owner, NULL);
            CHECK((status == AD_OK) == (owner != NULL));
            ad_owner_unref(owner);
            fails = kind == 0 ? mock_failed_once() : check_failed_once();
            mock_fail_nth(0);
            check_fail_nth(0);
            CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
            /* No event, no proof: where a context cannot be waited for, the
             * memory is kept rather than given away. */
            long kept = mock_live_memory() - before;
            CHECK(kept == 0 || (kept == 1 && fails && owner != NULL));
        }
    }
}

static void
stop(void)
{
    ad_deferred_stop();
}

/* --- threads that may make no call ---------------------------------------- */

/* The thread of the deferred releases frees what was refused here. */
static void
wait_for_live_memory(long n)
{
    for (int i = 0;
         i < 10000 && (mock_live_memory() != n || ad_deferred_is_any()); i++) {
        rest(1);
    }
    CHECK_INT(mock_live_memory(), n);
}

static void
test_memory_is_freed_later_where_no_call_is_permitted(void)
{
    void *data;
    ad_owner *owner;
    mock_reset();
    CHECK_INT(ad_device_memory_new(CONTEXT(IN_ORDER, 0), ON(IN_ORDER, 0, S),
                                   100, &data, &owner, NULL),
              AD_OK);
    long before = mock_live_memory();
    mock_set_refusing(true);
    ad_owner_unref(owner);
    mock_set_refusing(false);
    wait_for_live_memory(before - 1);
}

/* Each buffer of the chain is freed once, and the bytes in use are counted
 * until then. */
static void
test_staging_is_freed_later_where_no_call_is_permitted(void)
{
    const int64_t third = ((int64_t)256 << 20) / 3; /* of the most */
    mock_reset();
    for (int i = 0; i < 2; i++) {
        ad_session session = {.backend = ad_backend_for(IN_ORDER),
                              .on = *ON(IN_ORDER, 0, S)};
        session.memory.device = AD_CPU;
        long before = mock_live_memory();
        for (int j = 0; j < 3; j++) {
            CHECK(ad_session_pinned(&session, third) != NULL);
        }
        mock_set_refusing(true);
        ad_owner_unref(ad_session_take_staging(&session));
        mock_set_refusing(false);
        wait_for_live_memory(before);
    }
    CHECK_INT(ad_deferred_count(), 0);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_memory_in_stream_order),
        CHECK_TEST(test_own_memory_is_freed_on_a_stream_for_this),
        CHECK_TEST(test_memory_without_order_waits_for_its_stream),
        CHECK_TEST(test_memory_of_nothing),
        CHECK_TEST(test_full_device_drains_deferred_releases),
        CHECK_TEST(test_memory_survives_failures),
        CHECK_TEST(test_memory_is_freed_later_where_no_call_is_permitted),
        CHECK_TEST(test_staging_is_freed_later_where_no_call_is_permitted),
        CHECK_TEST(stop),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
