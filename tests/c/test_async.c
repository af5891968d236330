#define _GNU_SOURCE /* pthread_cond_clockwait */

/* Async streams on several threads: our two ends on two threads, and foreign
 * producers that free their struct as early as allowed, or earlier, as Arrow
 * C++ does. Also for ThreadSanitizer. */

#include "async_ends.h"
#include "async_pair.h"

static long
stream_through(int64_t queue_size, long n, pair_end end, ad_status expected)
{
    ad_array batch = array_of(3);
    pair pair = {.consumer_waker = WAKER,
                 .producer_waker = WAKER,
                 .batch = &batch,
                 .n_batches = n,
                 .end = end};
    ad_async_poll poll;
    ad_status status;
    pair_start(&pair, queue_size);
    long popped = pair_pop(&pair, -1, &poll, &status);
    CHECK_INT(status, expected);
    pair_join(&pair);
    CHECK_INT(pair.n_sent, n);
    ad_error fault;
    CHECK(!consumer_fault(pair.consumer, &fault));
    ad_async_consumer_close(pair.consumer);
    ad_array_clear(&batch);
    check_nothing_lives();
    return popped;
}

static void
test_streams(void)
{
    static const int64_t sizes[] = {1, 2, 3, 64, 1000};
    static const long counts[] = {0, 1, 2, 1000, 5000};
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 5; j++) {
            CHECK_INT(stream_through(sizes[i], counts[j], PAIR_FINISH, AD_OK),
                      counts[j]);
        }
    }
}

static void
test_errors_in_the_middle(void)
{
    for (long n = 0; n < 200; n += 7) {
        CHECK_INT(stream_through(4, n, PAIR_FAIL, AD_ERR_EXCHANGE), n);
        CHECK_INT(stream_through(4, n, PAIR_GIVE_UP, AD_ERR_EXCHANGE), n);
    }
}

static void *
cancel_soon(void *context)
{
    for (volatile int i = 0; i < 20000; i++) {
    }
    ad_async_consumer_cancel(context);
    ad_async_consumer_cancel(context);
    return NULL;
}

static void
test_cancel_from_other_threads(void)
{
    for (int round = 0; round < 100; round++) {
        ad_array batch = array_of(3);
        pair pair = {.consumer_waker = WAKER,
                     .producer_waker = WAKER,
                     .batch = &batch,
                     .n_batches = 1000000000};
        pthread_t threads[2];
        ad_async_poll poll;
        ad_status status;
        pair_start(&pair, 1 + round % 5);
        for (int i = 0; i < 2; i++) {
            CHECK_INT(
                pthread_create(&threads[i], NULL, cancel_soon, pair.consumer),
                0);
        }
        long popped = pair_pop(&pair, -1, &poll, &status);
        CHECK_INT(status, AD_OK);
        CHECK_INT(poll, AD_ASYNC_END);
        for (int i = 0; i < 2; i++) {
            CHECK_INT(pthread_join(threads[i], NULL), 0);
        }
        pair_join(&pair);
        CHECK_INT(popped, pair.n_sent);
        ad_async_consumer_close(pair.consumer);
        ad_array_clear(&batch);
        check_nothing_lives();
    }
}

static void
test_close_of_consumer_during_stream(void)
{
    for (int round = 0; round < 100; round++) {
        ad_array batch = array_of(3);
        pair pair = {.consumer_waker = WAKER,
                     .producer_waker = WAKER,
                     .batch = &batch,
                     .n_batches = 1000000000};
        ad_async_poll poll;
        ad_status status;
        pair_start(&pair, 1 + round % 5);
        (void)pair_pop(&pair, round % 20, &poll, &status);
        ad_async_consumer_close(pair.consumer);
        pair_join(&pair); /* the producer sees the cancel and ends */
        ad_array_clear(&batch);
        check_nothing_lives();
    }
}

/* --- foreign producers on a thread of their own ------------------------------- */

/* The struct is a separate allocation; its tasks share it in the imitation of
 * Arrow C++. */
typedef struct eager {
    struct ArrowAsyncProducer shown;
    atomic_long requested;
    atomic_bool is_cancelled;
    atomic_int refs;
} eager;

typedef struct eager_thread {
    struct ArrowAsyncDeviceStreamHandler *handler;
    bool is_like_arrow;
    long n_batches;
    pthread_t thread;
} eager_thread;

typedef struct eager_task {
    struct ArrowDeviceArray batch;
    eager *producer; /* or NULL */
} eager_task;

static void
eager_unref(eager *self)
{
    if (self != NULL && atomic_fetch_sub(&self->refs, 1) == 1) {
        memset(&self->shown, 0xdb, sizeof(self->shown));
        free(self);
    }
}

static void
eager_request(struct ArrowAsyncProducer *shown, int64_t n)
{
    eager *self = shown->private_data;
    CHECK(n > 0);
    atomic_fetch_add(&self->requested, n);
}

static void
eager_cancel(struct ArrowAsyncProducer *shown)
{
    eager *self = shown->private_data;
    atomic_store(&self->is_cancelled, true);
}

static int
eager_extract(struct ArrowAsyncTask *shown, struct ArrowDeviceArray *out)
{
    eager_task *task = shown->private_data;
    if (out != NULL) {
        *out = task->batch;
    } else {
        task->batch.array.release(&task->batch.array);
    }
    eager_unref(task->producer);
    free(task);
    return 0;
}

static void
eager_send(const eager_thread *self, eager *producer)
{
    eager_task *task = calloc(1, sizeof(*task));
    task->batch = batch_of(1);
    if (self->is_like_arrow) {
        atomic_fetch_add(&producer->refs, 1);
        task->producer = producer;
    }
    struct ArrowAsyncTask shown = {eager_extract, task};
    CHECK_INT(self->handler->on_next_task(self->handler, &shown, NULL), 0);
}

static void *
eager_run(void *context)
{
    eager_thread *self = context;
    struct ArrowAsyncDeviceStreamHandler *handler = self->handler;
    eager *producer = calloc(1, sizeof(*producer));
    producer->shown = (struct ArrowAsyncProducer){
        ARROW_DEVICE_CPU, eager_request, eager_cancel, NULL, producer};
    atomic_store(&producer->refs, 1);
    handler->producer = &producer->shown;
    struct ArrowSchema schema = tree_take_schema(tree_schema("l", "", 0));
    CHECK_INT(handler->on_schema(handler, &schema), 0);
    long sent = 0;
    while (sent < self->n_batches && !atomic_load(&producer->is_cancelled)) {
        if (sent < atomic_load(&producer->requested)) {
            eager_send(self, producer);
            sent++;
        } else if (self->is_like_arrow) {
            rest(0);
        }
    }
    if (self->is_like_arrow) {
        eager_unref(producer); /* before the end is sent */
    }
    CHECK_INT(handler->on_next_task(handler, NULL, NULL), 0);
    handler->release(handler);
    if (!self->is_like_arrow) {
        eager_unref(producer); /* after release, as specified */
    }
    return NULL;
}

static void
run_eager(int round, bool is_like_arrow)
{
    pair pair = {.consumer_waker = WAKER};
    ad_async_consumer_options options = {
        .queue_size = 1 + round % 4,
        .producer_outlives_tasks = !is_like_arrow && round % 2 == 0,
        .wake = {waker_wake, &pair.consumer_waker, NULL},
    };
    CHECK_INT(ad_async_consumer_new(&options, &pair.consumer, NULL), AD_OK);
    eager_thread producer = {
        .handler = ad_async_consumer_handler(pair.consumer),
        .is_like_arrow = is_like_arrow,
        .n_batches = 20 + round,
    };
    pthread_t canceller;
    CHECK_INT(pthread_create(&producer.thread, NULL, eager_run, &producer), 0);
    if (round % 3 == 0) {
        CHECK_INT(pthread_create(&canceller, NULL, cancel_soon, pair.consumer),
                  0);
    }
    ad_async_poll poll;
    ad_status status;
    long popped =
        pair_pop(&pair, round % 5 == 0 ? round % 20 : -1, &poll, &status);
    CHECK_INT(status, AD_OK);
    CHECK(round % 3 == 0 || round % 5 == 0 || popped == producer.n_batches);
    if (round % 3 == 0) {
        CHECK_INT(pthread_join(canceller, NULL), 0);
    }
    ad_async_consumer_close(pair.consumer);
    CHECK_INT(pthread_join(producer.thread, NULL), 0);
    check_nothing_lives();
}

static void
test_producer_that_frees_its_struct_after_release(void)
{
    for (int round = 0; round < 150; round++) {
        run_eager(round, false);
    }
}

static void
test_producer_that_frees_its_struct_before_the_end(void)
{
    for (int round = 0; round < 150; round++) {
        run_eager(round, true);
    }
}

/* A task that arrives while the consumer is closed is dropped and not
 * requested again, so the producer must be cancelled; otherwise it waits
 * forever. */
static void
test_close_of_consumer_while_task_arrives(void)
{
    for (int round = 0; round < 1000; round++) {
        ad_async_consumer_options options = {.queue_size = 1};
        ad_async_consumer *consumer;
        CHECK_INT(ad_async_consumer_new(&options, &consumer, NULL), AD_OK);
        eager_thread producer = {
            .handler = ad_async_consumer_handler(consumer),
            .is_like_arrow = true,
            .n_batches = 1000000000,
        };
        CHECK_INT(pthread_create(&producer.thread, NULL, eager_run, &producer),
                  0);
        ad_schema schema;
        ad_async_poll poll = AD_ASYNC_PENDING;
        while (poll == AD_ASYNC_PENDING) { /* the first task comes next */
            CHECK_INT(ad_async_consumer_schema(consumer, &schema, &poll, NULL),
                      AD_OK);
        }
        ad_schema_unref(schema);
        for (volatile int i = 0; i < round % 200; i++) {
        }
        ad_async_consumer_close(consumer);
        CHECK_INT(pthread_join(producer.thread, NULL), 0);
    }
    check_nothing_lives();
}

/* --- a producer that does not serialize its calls --------------------------- */

typedef struct wild {
    struct ArrowAsyncDeviceStreamHandler *handler;
    fake_producer *producer;
    atomic_int *ready;
} wild;

static void *
wild_run(void *context)
{
    wild *self = context;
    atomic_fetch_add(self->ready, 1);
    for (int i = 0; i < 500; i++) {
        (void)say_batch(self->producer, 1);
        if (i % 50 == 0) {
            (void)say_schema(self->producer, "l");
        }
    }
    say_error(self->producer, EIO, "wild");
    return NULL;
}

static void
test_calls_that_are_not_serialized(void)
{
    for (int round = 0; round < 20; round++) {
        ad_async_consumer_options options = {.queue_size = 1000};
        ad_async_consumer *consumer;
        CHECK_INT(ad_async_consumer_new(&options, &consumer, NULL), AD_OK);
        fake_producer producer;
        fake_producer_init(&producer, consumer);
        CHECK_INT(say_schema(&producer, "l"), 0);
        atomic_int ready = 0;
        wild shared = {producer.handler, &producer, &ready};
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            CHECK_INT(pthread_create(&threads[i], NULL, wild_run, &shared), 0);
        }
        ad_async_batch batch;
        ad_async_poll poll;
        while (ad_async_consumer_pop(consumer, &batch, &poll, NULL) == AD_OK) {
            if (poll == AD_ASYNC_READY) {
                ad_async_batch_clear(&batch);
            } else {
                CHECK_INT(poll, AD_ASYNC_PENDING);
                rest(1);
            }
        }
        for (int i = 0; i < 3; i++) {
            CHECK_INT(pthread_join(threads[i], NULL), 0);
        }
        ad_error err;
        CHECK(consumer_fault(consumer, &err));
        CHECK_HAS(err.message, "broke a rule");
        say_release(&producer);
        ad_async_consumer_close(consumer);
        check_nothing_lives();
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_streams),
        CHECK_TEST(test_errors_in_the_middle),
        CHECK_TEST(test_cancel_from_other_threads),
        CHECK_TEST(test_close_of_consumer_during_stream),
        CHECK_TEST(test_producer_that_frees_its_struct_after_release),
        CHECK_TEST(test_producer_that_frees_its_struct_before_the_end),
        CHECK_TEST(test_close_of_consumer_while_task_arrives),
        CHECK_TEST(test_calls_that_are_not_serialized),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
