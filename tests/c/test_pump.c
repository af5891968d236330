/* Wakers, consumer queues and the pump: each way in which a stream ends, with
 * our consumer on this thread or a foreign one. */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#ifndef _WIN32
#include <sys/resource.h>
#endif

#include "async_ends.h"
#include "async/pump.h"
#include "base/os.h"

#define PATIENCE_MS 20000
#define SECOND INT64_C(1000000000) /* of ad_now() */

/* --- a source of batches ------------------------------------------------------- */

/* Returns `n` batches (-1: forever), the i-th of i + 1 rows, then fails with
 * `code` unless it is 0. */
typedef struct counter {
    ad_batch_source base;
    long n;
    long at;
    int code;
} counter;

static ad_async_pump_group group;

static atomic_bool is_held; /* next() waits */

static atomic_int live_sources;
static atomic_long n_given;

static ad_status
counter_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *err)
{
    counter *self = (counter *)base;
    while (atomic_load(&is_held)) {
        ad_sleep(SECOND / 1000);
    }
    *is_end = self->at == self->n;
    if (!*is_end) {
        *out = array_of(self->at % 100 + 1);
        self->at++;
        atomic_fetch_add(&n_given, 1);
        return AD_OK;
    }
    return self->code == 0 ? AD_OK
                           : ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                                     "the source is broken");
}

static const char *
counter_last_error(ad_batch_source *base, int *code)
{
    *code = ((counter *)base)->code;
    return "the source is broken, in full";
}

static void
counter_destroy(ad_batch_source *base)
{
    free(base);
    atomic_fetch_sub(&live_sources, 1);
}

static ad_array_stream *
stream_of(long n, int code)
{
    counter *source = calloc(1, sizeof(*source));
    ad_array_stream *stream;
    source->base = (ad_batch_source){.next = counter_next,
                                     .last_error = counter_last_error,
                                     .destroy = counter_destroy};
    source->n = n;
    source->code = code;
    atomic_store(&n_given, 0);
    atomic_fetch_add(&live_sources, 1);
    CHECK_INT(ad_array_stream_from_source(&source->base,
                                          ad_schema_primitive("l"),
                                          ARROW_DEVICE_CPU, &stream, NULL),
              AD_OK);
    return stream;
}

/* --- both ends -------------------------------------------------------------------- */

typedef struct ends {
    ad_consumer_queue *queue;
    ad_waker *done;
    ad_async_pump *pump;
} ends;

static void
start(ends *self, long n, int code, int64_t queue_size)
{
    ad_waker *waker;
    ad_async_producer *producer;
    ad_error err;
    CHECK_INT(ad_consumer_queue_new(queue_size, false, &self->queue, NULL),
              AD_OK);
    CHECK_INT(ad_waker_new(&waker, NULL), AD_OK);
    CHECK_INT(ad_waker_new(&self->done, NULL), AD_OK);
    const ad_async_producer_options options = {.wake =
                                                   ad_waker_callback(waker)};
    CHECK_INT(
        ad_async_producer_new(ad_async_consumer_handler(self->queue->consumer),
                              &options, &producer, NULL),
        AD_OK);
    CHECK_INT(ad_async_pump_start(&group, producer, waker, stream_of(n, code),
                                  self->done, &self->pump, &err),
              AD_OK);
    ad_waker_unref(waker);
}

/* Reads up to `n` batches, or all for -1. Returns how many, and the outcome.
 */
static long
read_up_to(ad_consumer_queue *queue, long n, ad_status *status, ad_error *err)
{
    ad_async_batch batch;
    ad_async_poll poll;
    long count = 0;
    *status = AD_OK;
    while (count != n) {
        *status = ad_consumer_queue_pop(queue, &batch, &poll, err);
        if (*status != AD_OK || poll == AD_ASYNC_END) {
            break;
        }
        if (poll == AD_ASYNC_PENDING) {
            ad_waker_wait(queue->waker, PATIENCE_MS);
            CHECK(ad_waker_clear(queue->waker));
            continue;
        }
        CHECK_INT(batch.array.length, count % 100 + 1);
        ad_async_batch_clear(&batch);
        count++;
    }
    return count;
}

static ad_status
wait_for_end(ends *self, ad_error *err)
{
    ad_status status = AD_OK;
    while (!ad_async_pump_is_over(self->pump, &status, err)) {
        ad_waker_wait(self->done, PATIENCE_MS);
        CHECK(ad_waker_clear(self->done));
    }
    return status;
}

static void
end(ends *self)
{
    ad_consumer_queue_unref(self->queue);
    ad_async_pump_unref(self->pump);
    ad_waker_unref(self->done);
}

/* Waits, since threads may drop their references a moment later. */
static void
check_all_gone(void)
{
    for (int i = 0; i < PATIENCE_MS && atomic_load(&live_sources) > 0; i++) {
        ad_sleep(SECOND / 1000);
    }
    CHECK_INT(atomic_load(&live_sources), 0);
    check_nothing_lives();
}

/* --- tests ---------------------------------------------------------------------------- */

static void
test_waker(void)
{
    ad_waker *waker;
    CHECK_INT(ad_waker_new(&waker, NULL), AD_OK);
    CHECK(!ad_waker_clear(waker));
    ad_waker_wait(waker, 1);
    ad_waker_wake(waker);
    ad_waker_wake(waker);
    ad_waker_wait(waker, -1);
    CHECK(ad_waker_clear(waker));
    CHECK(!ad_waker_clear(waker));
    ad_waker_unref(waker);
    ad_waker_unref(NULL);
}

#ifndef _WIN32

static void
test_no_more_files(void)
{
    struct rlimit before, none;
    ad_consumer_queue *queue;
    ad_error err;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    ad_status status = ad_consumer_queue_new(5, false, &queue, &err);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_INT(status, AD_ERR_EXCHANGE);
    CHECK_INT(err.code, EMFILE);
    CHECK_HAS(err.message, "no file descriptor for an async stream");
}

#endif

static void
test_whole_stream(void)
{
    static const long counts[] = {0, 1, 2, 1000};
    for (int i = 0; i < 4; i++) {
        for (int64_t queue_size = 1; queue_size <= 1024; queue_size *= 4) {
            ends self;
            ad_status status;
            ad_error err;
            start(&self, counts[i], 0, queue_size);
            CHECK_INT(read_up_to(self.queue, -1, &status, &err), counts[i]);
            CHECK_INT(status, AD_OK);
            CHECK_INT(wait_for_end(&self, &err), AD_OK);
            CHECK(consumer_is_released(self.queue->consumer));
            end(&self);
            check_all_gone();
        }
    }
}

/* on_error takes an errno; get_next of a foreign stream may return anything. */
static void
test_failure_without_errno(void)
{
    static const int codes[] = {-5, 4096, INT32_MIN};
    for (int i = 0; i < 3; i++) {
        ends self;
        ad_status status;
        ad_error err;
        start(&self, 2, codes[i], 4);
        CHECK_INT(read_up_to(self.queue, -1, &status, &err), 2);
        CHECK_INT(status, AD_ERR_EXCHANGE);
        CHECK_INT(err.code, EIO);
        CHECK_INT(wait_for_end(&self, &err), AD_ERR_EXCHANGE);
        CHECK_INT(err.code, codes[i]);
        end(&self);
        check_all_gone();
    }
}

static void
test_consumer_cancels(void)
{
    for (long at = 0; at < 20; at++) {
        ends self;
        ad_status status;
        ad_error err;
        start(&self, -1, 0, 4);
        CHECK_INT(read_up_to(self.queue, at, &status, &err), at);
        ad_async_consumer_cancel(self.queue->consumer);
        CHECK_INT(wait_for_end(&self, &err), AD_OK);
        end(&self);
        check_all_gone();
    }
}

/* A cancel must not result in on_error, even if the pump is stopped before it
 * has noticed the cancel. */
static void
test_stop_after_cancel_is_no_error(void)
{
    ends self;
    ad_status status;
    ad_error err;
    ad_async_error said;
    start(&self, -1, 0, 4);
    CHECK_INT(read_up_to(self.queue, 1, &status, &err), 1);
    atomic_store(&is_held, true);
    ad_async_consumer_cancel(self.queue->consumer);
    ad_async_pump_stop(self.pump);
    atomic_store(&is_held, false);
    CHECK_INT(wait_for_end(&self, &err), AD_OK);
    CHECK(!ad_async_consumer_error(self.queue->consumer, &said));
    end(&self);
    check_all_gone();
}

static void
test_closed_consumer(void)
{
    for (int i = 0; i < 20; i++) {
        ends self;
        ad_status status;
        ad_error err;
        start(&self, -1, 0, 1 + i % 5);
        CHECK_INT(read_up_to(self.queue, i % 4, &status, &err), i % 4);
        ad_consumer_queue_unref(self.queue);
        self.queue = NULL;
        CHECK_INT(wait_for_end(&self, &err), AD_OK);
        end(&self);
        check_all_gone();
    }
}

/* The pump is dropped before its outcome is read. */
static void
test_unref_of_running_pump(void)
{
    ends self;
    ad_status status;
    ad_error err;
    start(&self, 100, 0, 8);
    ad_async_pump_unref(self.pump);
    CHECK_INT(read_up_to(self.queue, -1, &status, &err), 100);
    CHECK_INT(status, AD_OK);
    ad_consumer_queue_unref(self.queue);
    ad_waker_unref(self.done);
    check_all_gone();
}

static void
test_no_memory(void)
{
    ad_consumer_queue *queue;
    ad_waker *waker;
    ad_async_producer *producer;
    ad_async_pump *pump;
    for (long n = 1; n <= 3; n++) {
        check_fail_nth(n);
        CHECK_INT(ad_consumer_queue_new(5, false, &queue, NULL),
                  AD_ERR_MEMORY);
    }
    CHECK_INT(ad_consumer_queue_new(5, false, &queue, NULL), AD_OK);
    CHECK_INT(ad_waker_new(&waker, NULL), AD_OK);
    const ad_async_producer_options options = {.wake =
                                                   ad_waker_callback(waker)};
    CHECK_INT(ad_async_producer_new(ad_async_consumer_handler(queue->consumer),
                                    &options, &producer, NULL),
              AD_OK);
    ad_array_stream *stream = stream_of(3, 0);
    check_fail_nth(1);
    CHECK_INT(ad_async_pump_start(&group, producer, waker, stream, NULL, &pump,
                                  NULL),
              AD_ERR_MEMORY);
    ad_array_stream_unref(stream);
    ad_async_producer_close(producer);
    ad_waker_unref(waker);
    ad_consumer_queue_unref(queue);
    check_all_gone();
}

/* The last test: afterwards no pump can start. */
static void
test_stop_all(void)
{
    ends some[4];
    ad_error err;
    for (int i = 0; i < 4; i++) {
        start(&some[i], -1, 0, 4);
    }
    int64_t deadline = ad_now();
    ad_async_pump_join_all(&group, deadline); /* past: it does not wait */
    deadline += SECOND;
    ad_async_pump_join_all(&group, deadline); /* the pumps do not end */
    CHECK(ad_now() >= deadline);
    ad_async_pump_stop_all(&group);
    ad_async_pump_join_all(&group, deadline + 60 * SECOND);
    for (int i = 0; i < 4; i++) {
        ad_status status;
        CHECK(ad_async_pump_is_over(some[i].pump, &status, &err));
        CHECK_INT(status, AD_OK);
        end(&some[i]);
    }
    check_all_gone();

    ad_consumer_queue *queue;
    ad_waker *waker;
    ad_async_producer *producer;
    ad_async_pump *pump;
    CHECK_INT(ad_consumer_queue_new(5, false, &queue, NULL), AD_OK);
    CHECK_INT(ad_waker_new(&waker, NULL), AD_OK);
    const ad_async_producer_options options = {.wake =
                                                   ad_waker_callback(waker)};
    CHECK_INT(ad_async_producer_new(ad_async_consumer_handler(queue->consumer),
                                    &options, &producer, NULL),
              AD_OK);
    ad_array_stream *stream = stream_of(3, 0);
    CHECK_INT(ad_async_pump_start(&group, producer, waker, stream, NULL, &pump,
                                  &err),
              AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "about to exit");
    ad_array_stream_unref(stream);
    ad_async_producer_close(producer);
    ad_waker_unref(waker);
    ad_consumer_queue_unref(queue);
    check_all_gone();
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_waker),
#ifndef _WIN32
        CHECK_TEST(test_no_more_files),
#endif
        CHECK_TEST(test_whole_stream),
        CHECK_TEST(test_failure_without_errno),
        CHECK_TEST(test_consumer_cancels),
        CHECK_TEST(test_stop_after_cancel_is_no_error),
        CHECK_TEST(test_closed_consumer),
        CHECK_TEST(test_unref_of_running_pump),
        CHECK_TEST(test_no_memory),
        CHECK_TEST(test_stop_all),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
