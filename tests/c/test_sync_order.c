/* Which stream waits for what, and events that are joined. */
#include <pthread.h>

#include "base/wait.h"
#include "sync_events.h"

/* --- order --------------------------------------------------------------------- */

static void
test_order_waits_once_where_it_must(void)
{
    static const ad_stream legacy = {1};
    mock_reset();
    ad_sync *sync = record(IN_ORDER, legacy);
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, legacy), "a test", NULL),
              AD_OK);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, T), "a test", NULL), AD_OK);
    CHECK_INT(mock_count().waits, 1);
    CHECK_INT(mock_last_waiter(), T.handle);
    CHECK_INT(mock_count().stream_contexts, 0);
    CHECK_INT(ad_sync_wait(sync, "a test", NULL), AD_OK);
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, T), "a test", NULL), AD_OK);
    CHECK_INT(mock_count().waits, 1);
    ad_sync_unref(sync);
}

/* It may have been destroyed, and another one made at its address. */
static void
test_order_waits_on_a_stream_with_the_same_handle(void)
{
    mock_reset();
    ad_sync *sync = record(IN_ORDER, S);
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, S), "a test", NULL), AD_OK);
    CHECK_INT(mock_count().waits, 1);
    ad_sync_unref(sync);
}

static void
test_default_stream_of_another_device_waits(void)
{
    static const ad_stream legacy = {1};
    mock_reset();
    ad_sync *sync = record(IN_ORDER, legacy);
    CHECK_INT(ad_sync_order(sync, ON(IN_ORDER, 0, legacy), "a test", NULL),
              AD_OK);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(ad_sync_order(sync, ON(IN_ORDER, 1, legacy), "a test", NULL),
              AD_OK);
    CHECK_INT(mock_count().waits, 1);
    ad_sync_unref(sync);
}

static void *
order_on_2(void *sync)
{
    CHECK_INT(
        ad_sync_order(sync, ON_DATA(sync, ((ad_stream){2})), "a test", NULL),
        AD_OK);
    return NULL;
}

static void
test_per_thread_stream_is_another_one_elsewhere(void)
{
    pthread_t thread;
    mock_reset();
    ad_sync *sync = record(IN_ORDER, (ad_stream){2});
    CHECK_INT(
        ad_sync_order(sync, ON_DATA(sync, ((ad_stream){2})), "a test", NULL),
        AD_OK);
    CHECK_INT(mock_count().waits, 0);
    CHECK_INT(pthread_create(&thread, NULL, order_on_2, sync), 0);
    pthread_join(thread, NULL);
    CHECK_INT(mock_count().waits, 1);
    ad_sync_unref(sync);
}

static void
test_foreign_event(void)
{
    ad_sync *sync;
    bool done;
    void *event;
    ad_owner *keep = new_owner();
    mock_reset();
    mock_event foreign = {.at = UINT64_MAX};
    void *handle = &foreign;
    CHECK_INT(ad_sync_new(AD_SYNC_EVENT, (ad_device){IN_ORDER, 0}, &handle,
                          keep, &sync, NULL),
              AD_OK);
    CHECK_INT(keep->refs, 2);
    CHECK_INT(ad_sync_event(sync, &event, NULL), AD_OK);
    CHECK(event == &handle);
    CHECK_INT(ad_sync_query(sync, &done, NULL), AD_OK);
    CHECK(!done);
    CHECK_INT(mock_count().primary_contexts, 0); /* asking makes no context */
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, S), "a test", NULL), AD_OK);
    CHECK_INT(mock_count().stream_contexts, 1);
    CHECK_INT(mock_count().waits, 1);
    foreign.at = 0;
    CHECK_INT(ad_sync_query(sync, &done, NULL), AD_OK);
    CHECK(done);
    ad_sync_unref(sync);
    CHECK_INT(keep->refs, 1);
    CHECK_INT(mock_count().events_destroyed, 0);
    /* The address of nothing is a producer's mistake. */
    ad_error err;
    handle = NULL;
    CHECK_INT(ad_sync_new(AD_SYNC_EVENT, (ad_device){IN_ORDER, 0}, &handle,
                          keep, &sync, NULL),
              AD_OK);
    CHECK_INT(ad_sync_wait(sync, "a test", &err), AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "handle that is NULL");
    ad_sync_unref(sync);
    ad_owner_unref(keep);
}

static void
test_event_that_nobody_claims_is_carried(void)
{
    ad_sync *sync;
    ad_error err;
    void *event;
    int theirs;
    mock_reset();
    ad_device device = {CLAIMS, 0};
    CHECK_INT(ad_sync_new(AD_SYNC_EVENT, device, &theirs, NULL, &sync, NULL),
              AD_OK);
    CHECK(!ad_sync_can_wait(sync));
    CHECK_INT(ad_sync_event(sync, &event, NULL), AD_OK);
    CHECK(event == &theirs);
    CHECK_INT(ad_sync_wait(sync, "a test", &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    CHECK_HAS(err.message, "with which a test could wait");
    CHECK_INT(ad_sync_order(sync, ON_DATA(sync, S), "a test", &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "event");
    ad_sync_unref(sync);
    CHECK_INT(
        ad_sync_new(AD_SYNC_EVENT, device, MOCK_CLAIMED, NULL, &sync, NULL),
        AD_OK);
    CHECK(ad_sync_can_wait(sync));
    ad_sync_unref(sync);
}

static void
test_consumers_share_a_stream(void)
{
    ad_stream_ref first, second;
    mock_reset();
    ad_sync *sync = record(IN_ORDER, (ad_stream){2});
    CHECK_INT(ad_sync_stream(sync, &first, NULL), AD_OK);
    CHECK_INT(mock_last_waiter(), first.stream.handle);
    CHECK(first.stream.handle > 2);
    CHECK_INT(ad_sync_stream(sync, &second, NULL), AD_OK);
    CHECK_INT(mock_last_waiter(), first.stream.handle);
    CHECK_INT(second.stream.handle, first.stream.handle);
    CHECK_INT(mock_count().streams_created, 1);
    ad_sync_unref(sync);
}

/* A wait for others delays ready data wherever the two share a stream. */
static void
test_uses_of_ready_data_share_no_stream_with_waits(void)
{
    static const bool waits[AD_N_STREAM_USES] = {
        [AD_USE_AFTER] = true, [AD_USE_FREE] = true, [AD_USE_CONSUMER] = true};
    ad_stream_ref streams[AD_N_STREAM_USES];
    int n_streams = 0;
    mock_reset();
    for (int i = 0; i < AD_N_STREAM_USES; i++) {
        bool is_new = true;
        CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), i, &streams[i], NULL),
                  AD_OK);
        for (int j = 0; j < i; j++) {
            bool is_same =
                streams[i].stream.handle == streams[j].stream.handle;
            CHECK(!is_same || waits[i] == waits[j]);
            is_new &= !is_same;
        }
        n_streams += is_new;
    }
    CHECK_INT(n_streams, AD_N_OWN_STREAMS);
    CHECK(streams[AD_USE_READ].stream.handle !=
          streams[AD_USE_UPLOAD].stream.handle);
    CHECK(streams[AD_USE_AFTER].stream.handle !=
          streams[AD_USE_CONSUMER].stream.handle);
}

/* --- joining --------------------------------------------------------------------- */

/* The number of the per-thread stream is the same, the stream is not. */
static void
test_statements_of_two_threads_differ(void)
{
    ad_sync *here = NULL;
    ad_sync *there = NULL;
    const ad_device device = {10, 0}; /* ROCM, which has no backend here */
    const ad_stream_ref on = ad_stream_named(
        (ad_context){device, NULL}, (ad_stream){AD_STREAM_PER_THREAD}, NULL);
    mock_reset();
    CHECK_INT(ad_sync_pending(&on, &here, NULL), AD_OK);
    CHECK_INT(ad_sync_pending(&on, &there, NULL), AD_OK);
    CHECK(ad_sync_same(here, there));
    there->on.thread++;
    CHECK(!ad_sync_same(here, there));
    ad_sync_unref(here);
    ad_sync_unref(there);
}

static void
test_join(void)
{
    ad_sync *out;
    ad_stream_ref own;
    mock_reset();
    ad_sync *a = record(IN_ORDER, S);
    ad_sync *b = record(IN_ORDER, T);
    CHECK_INT(ad_sync_join((ad_sync *[]){NULL, a, a}, 3, &out, NULL), AD_OK);
    CHECK(out == a);
    ad_sync_unref(out);
    CHECK_INT(ad_sync_join((ad_sync *[]){a, NULL, b}, 3, &out, NULL), AD_OK);
    CHECK(out != a && out != b && out->is_own);
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_AFTER, &own, NULL),
              AD_OK);
    CHECK(ad_stream_equal(&out->on, &own));
    CHECK_INT(mock_count().waits, 2);
    CHECK_INT(mock_last_waiter(), own.stream.handle);
    ad_sync_unref(out);
    CHECK_INT(ad_sync_wait(a, "a test", NULL), AD_OK);
    CHECK_INT(ad_sync_join((ad_sync *[]){a, b}, 2, &out, NULL), AD_OK);
    CHECK(out == b);
    ad_sync_unref(out);
    ad_sync_unref(a);
    ad_sync_unref(b);
}

/* A stream of ours that waited would be a part of the graph from then on. */
static void
test_our_streams_stay_out_of_captures(void)
{
    ad_sync *out;
    ad_stream_ref shared;
    ad_error err;
    mock_reset();
    ad_sync *a = record(IN_ORDER, S);
    ad_sync *b;
    CHECK_INT(
        ad_sync_pending(ON(IN_ORDER, 0, ((ad_stream){MOCK_CAPTURED_STREAM})),
                        &b, NULL),
        AD_OK);
    CHECK(!ad_sync_is_captured(NULL));
    CHECK(!ad_sync_is_captured(a));
    CHECK(ad_sync_is_captured(b));
    CHECK_INT(ad_sync_join((ad_sync *[]){a, b}, 2, &out, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "capture");
    CHECK_INT(ad_sync_stream(b, &shared, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "capture");
    CHECK_INT(mock_count().waits, 0);
    /* The user's may join. */
    CHECK_INT(ad_sync_order(b, ON_DATA(b, T), "a test", NULL), AD_OK);
    CHECK_INT(mock_count().waits, 1);
    ad_sync_unref(a);
    ad_sync_unref(b);
}

/* The question alone would invalidate the graph. */
static void
test_captured_event_is_not_asked_about(void)
{
    ad_sync *sync;
    bool is_done;
    ad_error err;
    mock_reset();
    CHECK_INT(
        ad_sync_pending(ON(IN_ORDER, 0, ((ad_stream){MOCK_CAPTURED_STREAM})),
                        &sync, NULL),
        AD_OK);
    CHECK_INT(ad_sync_query(sync, &is_done, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "capture");
    CHECK_INT(ad_sync_query_soon(sync, &is_done, NULL), AD_ERR_EXCHANGE);
    CHECK_INT(ad_sync_wait(sync, "a test", &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "capture");
    CHECK_INT(ad_sync_wait_briefly(sync, NULL), AD_ERR_EXCHANGE);
    CHECK_INT(mock_count().queries, 0);
    CHECK_INT(mock_count().event_waits, 0);
    ad_sync_unref(sync);
}

/* A device was reset: its context is at the same address, its streams are
 * gone. */
static void
test_our_streams_are_made_anew(void)
{
    ad_stream_ref before, after, again, shared;
    mock_reset();
    ad_sync *sync = record(IN_ORDER, S);
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_WORK, &before, NULL),
              AD_OK);
    CHECK_INT(ad_sync_stream(sync, &shared, NULL), AD_OK);
    mock_lose_streams();
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_WORK, &after, NULL),
              AD_OK);
    CHECK_INT(ad_stream_own(CONTEXT(IN_ORDER, 0), AD_USE_WORK, &again, NULL),
              AD_OK);
    CHECK(after.stream.handle != before.stream.handle);
    CHECK_INT(again.stream.handle, after.stream.handle);
    before = shared;
    CHECK_INT(ad_sync_stream(sync, &shared, NULL), AD_OK);
    CHECK(shared.stream.handle != before.stream.handle);
    CHECK_INT(mock_count().streams_destroyed, 0);
    ad_sync_unref(sync);
}

static void
test_join_of_two_devices_is_refused(void)
{
    ad_sync *out;
    ad_sync *there;
    ad_error err;
    mock_reset();
    ad_sync *here = record(IN_ORDER, S);
    CHECK_INT(ad_sync_record(ON(IN_ORDER, 1, S), &there, NULL), AD_OK);
    CHECK_INT(ad_sync_join((ad_sync *[]){here, there}, 2, &out, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "device");
    CHECK_HAS(err.message, "cuda:0 and on cuda:1");
    ad_sync_unref(there);
    /* Pinned memory of the device is not another one. */
    CHECK_INT(ad_sync_record(ON(PINNED, 0, T), &there, NULL), AD_OK);
    CHECK_INT(ad_sync_join((ad_sync *[]){here, there}, 2, &out, &err), AD_OK);
    ad_sync_unref(out);
    ad_sync_unref(there);
    ad_sync_unref(here);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_order_waits_once_where_it_must),
        CHECK_TEST(test_order_waits_on_a_stream_with_the_same_handle),
        CHECK_TEST(test_per_thread_stream_is_another_one_elsewhere),
        CHECK_TEST(test_default_stream_of_another_device_waits),
        CHECK_TEST(test_foreign_event),
        CHECK_TEST(test_event_that_nobody_claims_is_carried),
        CHECK_TEST(test_consumers_share_a_stream),
        CHECK_TEST(test_uses_of_ready_data_share_no_stream_with_waits),
        CHECK_TEST(test_statements_of_two_threads_differ),
        CHECK_TEST(test_join),
        CHECK_TEST(test_our_streams_stay_out_of_captures),
        CHECK_TEST(test_captured_event_is_not_asked_about),
        CHECK_TEST(test_our_streams_are_made_anew),
        CHECK_TEST(test_join_of_two_devices_is_refused),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
