#define _GNU_SOURCE /* pthread_cond_clockwait */

/* The two ends of an async stream against Arrow C++, in both directions: the
 * command line selects the scenario. A hang ends with SIGALRM. */

#include <unistd.h>

#include "arrow_peer.h"
#include "async_ends.h"
#include "async_pair.h"

#define MANY 1000000000L

static char text[512];

/* --- Arrow C++ produces -------------------------------------------------------- */

typedef struct import {
    pair pair; /* only the consumer's half is used */
    void *arrow;
} import;

static void
import_start(import *self, int64_t queue_size, const arrow_script *script)
{
    ad_async_consumer_options options = {
        .queue_size = queue_size,
        .wake = {waker_wake, &self->pair.consumer_waker, NULL},
    };
    CHECK_INT(ad_async_consumer_new(&options, &self->pair.consumer, NULL),
              AD_OK);
    self->arrow = arrow_producer_start(
        ad_async_consumer_handler(self->pair.consumer), script);
}

static int64_t
first_value(const ad_array *batch)
{
    const struct ArrowArray *column = batch->node->children[0];
    return ((const int64_t *)column->buffers[1])[column->offset];
}

/* Pop up to n (-1: all) and check their values; AD_OK at the end. */
static long
import_pop(import *self, long n, int delay_ms, ad_status *status)
{
    long count = 0;
    ad_error err;
    while (count != n) {
        ad_async_batch batch;
        ad_async_poll poll;
        *status =
            ad_async_consumer_pop(self->pair.consumer, &batch, &poll, &err);
        if (*status != AD_OK) {
            snprintf(text, sizeof(text), "%s", err.message);
            return count;
        }
        if (poll == AD_ASYNC_END) {
            return count;
        }
        if (poll == AD_ASYNC_PENDING) {
            waker_wait(&self->pair.consumer_waker);
            continue;
        }
        CHECK_INT(batch.array.length, 2);
        CHECK_INT(first_value(&batch.array), count);
        ad_async_batch_clear(&batch);
        count++;
        if (delay_ms > 0) {
            rest(delay_ms);
        }
    }
    return count;
}

static void
import_all(int64_t queue_size, arrow_script script, int delay_ms)
{
    for (script.is_async = 0; script.is_async < 2; script.is_async++) {
import self = {.pair.consumer_waker = WAKER };
        ad_status status;
        char arrow_text[512];
        import_start(&self, queue_size, &script);
        long n = import_pop(&self, -1, delay_ms, &status);
        bool fails = script.fail_at >= 0;
        CHECK_INT(n, fails ? script.fail_at : script.n_batches);
        CHECK_INT(status, fails ? AD_ERR_EXCHANGE : AD_OK);
        if (fails) {
            CHECK_HAS(text, "the disk of Arrow C++ is gone");
        }
        (void)arrow_producer_join(self.arrow, arrow_text, 512);
        ad_error fault;
        CHECK(consumer_is_released(self.pair.consumer));
        CHECK(!consumer_fault(self.pair.consumer, &fault));
        ad_async_consumer_close(self.pair.consumer);
    }
}

static void
import_counts(void)
{
    static const int64_t sizes[] = {1, 5, 64};
    static const long counts[] = {0, 1, 1000};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            import_all(sizes[i], (arrow_script){counts[j], -1, 0, 0}, 0);
        }
    }
}

static void
import_error(void)
{
    for (long at = 0; at < 8; at++) {
        import_all(4, (arrow_script){MANY, at, 0, 0}, 0);
    }
}

static void
import_slow(void)
{
    import_all(4, (arrow_script){60, -1, 0, 0}, 2);
    import_all(4, (arrow_script){60, -1, 2, 0}, 0);
}

/* After n batches: cancel and read on, or drop. */
static void
import_partly(bool cancels)
{
    for (int round = 0; round < 60; round++) {
        arrow_script script = {MANY, -1, 0, round % 2};
import self = {.pair.consumer_waker = WAKER };
        ad_status status = AD_OK;
        import_start(&self, 1 + round % 7, &script);
        CHECK_INT(import_pop(&self, round % 10, 0, &status), round % 10);
        if (cancels) {
            ad_async_consumer_cancel(self.pair.consumer);
            ad_async_batch batch;
            ad_async_poll poll;
            while (true) {
                CHECK_INT(ad_async_consumer_pop(self.pair.consumer, &batch,
                                                &poll, NULL),
                          AD_OK);
                if (poll == AD_ASYNC_END) {
                    break;
                }
                if (poll == AD_ASYNC_PENDING) {
                    waker_wait(&self.pair.consumer_waker);
                } else {
                    ad_async_batch_clear(&batch);
                }
            }
        }
        ad_async_consumer_close(self.pair.consumer);
        CHECK(arrow_producer_join(self.arrow, text, sizeof(text)) != -2);
    }
}

static void
import_cancel(void)
{
    import_partly(true);
}

static void
import_drop(void)
{
    import_partly(false);
}

/* --- Arrow C++ consumes ---------------------------------------------------------- */

typedef struct export
{
    struct ArrowAsyncDeviceStreamHandler handler;
    void *arrow;
    ad_async_producer *producer;
    waker waker;
    long n_batches;
    long n_sent;
    int delay_ms;
    bool fails;
    atomic_bool is_stopped;
    pthread_t thread;
}
export;

static const struct ArrowSchema *
export_schema(ad_schema *out)
{
    struct ArrowSchema tree =
        tree_take_schema(tree_schema("+s", "", 1, tree_schema("l", "x", 0)));
    CHECK_INT(ad_schema_move(&tree, out, NULL), AD_OK);
    return out->node;
}

static int64_t numbers[2000]; /* each value is its index */

static void
export_batch(ad_schema schema, long number, ad_array *out)
{
    CHECK(number < 1999);
    numbers[number] = number;
    struct ArrowArray *column = tree_ints(2);
    column->buffers[1] = &numbers[number];
    struct ArrowDeviceArray batch =
        tree_take_array(tree_array(2, false, 1, 1, column), NULL);
    batch.device_type = ARROW_DEVICE_CPU;
    batch.device_id = -1;
    batch.array.null_count = column->null_count = 0;
    CHECK_INT(ad_array_import_as(schema, &batch, out, NULL), AD_OK);
}

/* One batch; false: stop. */
static bool
export_next(export *self, ad_schema schema)
{
    ad_array batch;
    export_batch(schema, self->n_sent, &batch);
    ad_async_poll poll = AD_ASYNC_PENDING;
    while (poll == AD_ASYNC_PENDING && !self->is_stopped) {
        CHECK_INT(
            ad_async_producer_send(self->producer, &batch, NULL, &poll, NULL),
            AD_OK);
        if (poll == AD_ASYNC_PENDING) {
            waker_wait(&self->waker);
        }
    }
    ad_array_clear(&batch);
    self->n_sent += poll == AD_ASYNC_READY;
    return poll == AD_ASYNC_READY;
}

static void *
export_run(void *context)
{
    export *self = context;
    ad_schema schema;
    ad_async_poll poll;
    export_schema(&schema);
    CHECK_INT(ad_async_producer_start(self->producer, schema, &poll, NULL),
              AD_OK);
    while (self->n_sent < self->n_batches && export_next(self, schema)) {
        if (self->delay_ms > 0) {
            rest(self->delay_ms);
        }
    }
    ad_status status;
    if (self->fails) {
        status = ad_async_producer_fail(self->producer, EIO,
                                        "the disk of arrowdev is gone", NULL,
                                        NULL, NULL);
    } else {
        status = ad_async_producer_finish(self->producer, NULL);
    }
    CHECK(status == AD_OK || status == AD_ERR_EXCHANGE);
    ad_async_producer_close(self->producer);
    ad_schema_unref(schema);
    return NULL;
}

static void
export_start(export *self, int queue_size)
{
    self->arrow = arrow_consumer_new(&self->handler, queue_size);
    ad_async_producer_options options = {
        .device_type = ARROW_DEVICE_CPU,
        .wake = {waker_wake, &self->waker, NULL},
    };
    CHECK_INT(
        ad_async_producer_new(&self->handler, &options, &self->producer, NULL),
        AD_OK);
    CHECK_INT(pthread_create(&self->thread, NULL, export_run, self), 0);
}

static void
export_end(export *self)
{
    CHECK_INT(pthread_join(self->thread, NULL), 0);
    arrow_consumer_drop(self->arrow);
}

static void
export_all(int queue_size, long n, int delay_ms, int arrow_delay_ms)
{
    export self = {.waker = WAKER, .n_batches = n, .delay_ms = delay_ms};
    export_start(&self, queue_size);
    CHECK_INT(arrow_consumer_read(self.arrow, -1, arrow_delay_ms, text,
                                  sizeof(text)),
              n);
    CHECK_STR(text, "");
    export_end(&self);
}

static void
export_counts(void)
{
    static const int sizes[] = {1, 5, 64};
    static const long counts[] = {0, 1, 1000};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            export_all(sizes[i], counts[j], 0, 0);
        }
    }
}

static void
export_slow(void)
{
    export_all(4, 60, 2, 0);
    export_all(4, 60, 0, 2);
}

/* How many batches arrive before the error is a race inside Arrow C++. */
static void
export_error(void)
{
    for (long n = 0; n < 8; n++) {
        export self = {.waker = WAKER, .n_batches = n, .fails = true};
        export_start(&self, 4);
        long read = arrow_consumer_read(self.arrow, -1, 0, text, sizeof(text));
        CHECK(read >= 0);
        CHECK(read <= n);
        CHECK_HAS(text, "the disk of arrowdev is gone");
        export_end(&self);
    }
}

/* Arrow C++ does not report that it was dropped: our side ends the stream. */
static void
export_drop(void)
{
    for (int n = 0; n < 20; n++) {
        export self = {.waker = WAKER, .n_batches = MANY};
        export_start(&self, 4);
        CHECK_INT(arrow_consumer_read(self.arrow, n, 0, text, sizeof(text)),
                  n);
        atomic_store(&self.is_stopped, true);
        waker_wake(&self.waker);
        export_end(&self);
    }
}

/* queue_size 0: Arrow C++ calls request(0), which is an error. */
static void
export_request_of_nothing(void)
{
    export self = {.waker = WAKER, .n_batches = MANY};
    export_start(&self, 0);
    CHECK_INT(arrow_consumer_read(self.arrow, -1, 0, text, sizeof(text)), 0);
    CHECK_HAS(text, "request was called with n = 0");
    export_end(&self);
}

int
main(int argc, char **argv)
{
    static const check_test scenarios[] = {
        CHECK_TEST(import_counts), CHECK_TEST(import_error),
        CHECK_TEST(import_slow),   CHECK_TEST(import_cancel),
        CHECK_TEST(import_drop),   CHECK_TEST(export_counts),
        CHECK_TEST(export_error),  CHECK_TEST(export_slow),
        CHECK_TEST(export_drop),   CHECK_TEST(export_request_of_nothing),
    };
    alarm(50);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
            return check_run(&scenarios[i], 1);
        }
    }
    return 2;
}
