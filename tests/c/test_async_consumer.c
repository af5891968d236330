/* The consumer of an async stream against a foreign producer: every legal
 * sequence, producers that break a rule or send invalid batches, and each
 * failed allocation. Threads are in test_async.c. */
#include "async_ends.h"

static atomic_int n_wakes;

static void
count_wake(void *context)
{
    CHECK(context == &n_wakes);
    atomic_fetch_add(&n_wakes, 1);
}

static ad_async_consumer *
consumer_of(int64_t queue_size)
{
    ad_async_consumer_options options = {
        .queue_size = queue_size,
        .wake = {count_wake, &n_wakes, NULL},
    };
    ad_async_consumer *self;
    atomic_store(&n_wakes, 0);
    CHECK_INT(ad_async_consumer_new(&options, &self, NULL), AD_OK);
    return self;
}

/* The same with a producer that has sent the schema int64. */
static ad_async_consumer *
consumer_with_schema(int64_t queue_size, fake_producer *producer)
{
    ad_async_consumer *self = consumer_of(queue_size);
    fake_producer_init(producer, self);
    CHECK_INT(say_schema(producer, "l"), 0);
    return self;
}

/* Releases the handler, closes the consumer, and checks that nothing leaks. */
static void
end_both(ad_async_consumer *consumer, fake_producer *producer)
{
    say_release(producer);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

/* Sets *batch if the result is AD_ASYNC_READY. */
static ad_async_poll
pop(ad_async_consumer *consumer, ad_async_batch *batch)
{
    ad_async_poll poll;
    ad_error err = {0};
    if (ad_async_consumer_pop(consumer, batch, &poll, &err) != AD_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return poll;
}

static void
expect_batch(ad_async_consumer *consumer, int64_t length)
{
    ad_async_batch batch;
    CHECK_INT(pop(consumer, &batch), AD_ASYNC_READY);
    CHECK_INT(batch.array.length, length);
    ad_async_batch_clear(&batch);
}

static void
expect_poll(ad_async_consumer *consumer, ad_async_poll expected)
{
    ad_async_batch batch;
    CHECK_INT(pop(consumer, &batch), expected);
}

/* Twice, since an error stays. */
static void
expect_failure(ad_async_consumer *consumer, ad_status status, const char *text)
{
    ad_async_batch batch;
    ad_async_poll poll;
    ad_error err = {0};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ad_async_consumer_pop(consumer, &batch, &poll, &err),
                  status);
        CHECK_HAS(err.message, text);
    }
}

static void
expect_fault(ad_async_consumer *consumer, const char *text)
{
    expect_failure(consumer, AD_ERR_EXCHANGE, text);
    ad_error err;
    CHECK(consumer_fault(consumer, &err));
    CHECK_HAS(err.message, "broke a rule");
}

/* --- legal ------------------------------------------------------------------- */

static void
test_whole_stream(void)
{
    ad_async_consumer *consumer = consumer_of(4);
    fake_producer producer;
    ad_schema schema;
    ad_async_poll poll;
    fake_producer_init(&producer, consumer);
    char *of_stream = blob_of("rows", "10");
    char *of_batch = blob_of("file", "a");
    producer.shown.additional_metadata = of_stream;
    CHECK_INT(ad_async_consumer_schema(consumer, &schema, &poll, NULL), AD_OK);
    CHECK_INT(poll, AD_ASYNC_PENDING);
    CHECK_INT(say_schema(&producer, "l"), 0);
    CHECK_INT(n_wakes, 1);
    CHECK_INT(producer.n_requested, 4);
    CHECK_INT(ad_async_consumer_schema(consumer, &schema, &poll, NULL), AD_OK);
    CHECK_INT(poll, AD_ASYNC_READY);
    CHECK_STR(schema.node->format, "l");
    ad_schema_unref(schema);
    CHECK_INT(ad_async_consumer_device_type(consumer), ARROW_DEVICE_CPU);
    CHECK_INT(say_task(&producer, batch_of(3), of_batch), 0);
    free(of_batch);
    ad_async_batch batch;
    CHECK_INT(ad_async_consumer_pop(consumer, &batch, &poll, NULL), AD_OK);
    CHECK_INT(poll, AD_ASYNC_READY);
    check_blob(batch.metadata, "file", "a");
    ad_async_batch_clear(&batch);
    CHECK_INT(say_batch(&producer, 4), 0);
    CHECK_INT(say_end(&producer), 0);
    say_release(&producer);
    free(of_stream);
    CHECK(consumer_is_released(consumer));
    expect_batch(consumer, 4);
    expect_poll(consumer, AD_ASYNC_END);
    expect_poll(consumer, AD_ASYNC_END);
    check_blob(ad_async_consumer_metadata(consumer), "rows", "10");
    ad_error err;
    CHECK(!consumer_fault(consumer, &err));
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

/* Arrow structs may be moved: the handler is where the producer put it. */
static void
test_moved_handler(void)
{
    ad_async_consumer *consumer = consumer_of(1);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    struct ArrowAsyncDeviceStreamHandler moved = *producer.handler;
    producer.handler->release = NULL;
    producer.handler->producer = NULL;
    producer.handler = &moved;
    CHECK_INT(say_schema(&producer, "l"), 0);
    CHECK_INT(producer.n_requested, 1);
    CHECK_INT(say_batch(&producer, 3), 0);
    expect_batch(consumer, 3);
    CHECK_INT(producer.n_requested, 2);
    CHECK_INT(say_end(&producer), 0);
    say_release(&producer);
    CHECK(moved.release == NULL);
    CHECK(consumer_is_released(consumer));
    expect_poll(consumer, AD_ASYNC_END);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_empty_stream(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(1, &producer);
    CHECK_INT(say_end(&producer), 0);
    expect_poll(consumer, AD_ASYNC_END);
    say_release(&producer);
    expect_poll(consumer, AD_ASYNC_END);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_requests_keep_the_queue_bounded(void)
{
    for (int64_t size = 1; size <= 9; size++) {
        ad_async_consumer *consumer = consumer_of(size);
        fake_producer producer;
        fake_producer_init(&producer, consumer);
        CHECK_INT(say_schema(&producer, "l"), 0);
        long sent = 0;
        for (int round = 0; round < 20; round++) {
            long popped = sent;
            while (sent < producer.n_requested) {
                CHECK_INT(say_batch(&producer, sent++), 0);
            }
            CHECK_INT(sent - popped, size); /* all that was popped */
            for (; popped < sent; popped++) {
                expect_batch(consumer, popped);
            }
            expect_poll(consumer, AD_ASYNC_PENDING);
        }
        say_end(&producer);
        say_release(&producer);
        ad_async_consumer_close(consumer);
    }
    check_nothing_lives();
}

static void
test_requests_of_half_a_queue(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(5, &producer);
    for (int i = 0; i < 12; i++) { /* the producer never waits for a request */
        CHECK_INT(say_batch(&producer, i), 0);
        expect_batch(consumer, i);
        CHECK_INT(producer.n_requests, 1 + (i + 1) / 3);
    }
    say_end(&producer);
    say_release(&producer);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

/* A producer of CPU data "should", but need not, send CPU memory only. */
static void
test_batch_of_an_accessible_type(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(2, &producer);
    ad_async_batch batch;
    ad_async_poll poll;
    struct ArrowDeviceArray pinned = batch_of(3);
    pinned.device_type = ARROW_DEVICE_CUDA_HOST;
    CHECK_INT(say_task(&producer, pinned, NULL), 0);
    CHECK_INT(ad_async_consumer_pop(consumer, &batch, &poll, NULL), AD_OK);
    CHECK_INT(poll, AD_ASYNC_READY);
    CHECK_INT(batch.array.memory.device.type, ARROW_DEVICE_CUDA_HOST);
    ad_async_batch_clear(&batch);
    say_end(&producer);
    say_release(&producer);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_one_wake_per_wait(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(8, &producer);
    CHECK_INT(n_wakes, 0);
    expect_poll(consumer, AD_ASYNC_PENDING);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(say_batch(&producer, i), 0);
    }
    CHECK_INT(n_wakes, 1);
    for (int i = 0; i < 8; i++) {
        expect_batch(consumer, i);
    }
    CHECK_INT(say_batch(&producer, 8), 0);
    CHECK_INT(n_wakes, 1);
    expect_batch(consumer, 8);
    expect_poll(consumer, AD_ASYNC_PENDING);
    say_end(&producer);
    CHECK_INT(n_wakes, 2);
    say_release(&producer);
    CHECK_INT(n_wakes, 2);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_cancel_of_a_producer_that_outlives_its_tasks(void)
{
    ad_async_consumer_options options = {.queue_size = 2,
                                         .producer_outlives_tasks = true};
    ad_async_consumer *consumer;
    CHECK_INT(ad_async_consumer_new(&options, &consumer, NULL), AD_OK);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    CHECK_INT(say_schema(&producer, "l"), 0);
    ad_async_consumer_cancel(consumer);
    CHECK_INT(producer.n_cancels, 1);
    say_release(&producer);
    ad_async_consumer_cancel(consumer);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_cancel_before_the_schema(void)
{
    ad_async_consumer *consumer = consumer_of(4);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    ad_async_consumer_cancel(consumer);
    CHECK_INT(producer.n_cancels, 0);
    CHECK_INT(say_schema(&producer, "l"), 0);
    CHECK_INT(producer.n_cancels, 1);
    CHECK_INT(producer.n_requests, 0);
    say_release(&producer);
    expect_poll(consumer, AD_ASYNC_END);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_cancel_after_the_end_touches_nothing(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(4, &producer);
    CHECK_INT(say_batch(&producer, 1), 0);
    CHECK_INT(say_end(&producer), 0);
    memset(&producer.shown, 0xdb, sizeof(producer.shown)); /* as Arrow C++ */
    ad_async_consumer_cancel(consumer);
    expect_batch(consumer, 1);
    end_both(consumer, &producer);
}

static void
test_close_drops_queued_tasks(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(4, &producer);
    CHECK_INT(say_batch(&producer, 1), 0);
    CHECK_INT(say_batch(&producer, 2), 0);
    ad_async_consumer_close(consumer);
    CHECK_INT(producer.n_cancels, 1);
    CHECK_INT(live_tasks, 0);
    CHECK_INT(say_batch(&producer, 3), 0); /* still requested */
    CHECK_INT(live_tasks, 0);
    CHECK_INT(say_end(&producer), 0);
    say_release(&producer);
    check_nothing_lives();
}

/* arrow-go writes the array without a look at the pointer. */
static void
test_unwanted_tasks_are_not_extracted_with_null(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(3, &producer);
    atomic_store(&n_null_extracts, 0);
    CHECK_INT(say_batch(&producer, 1), 0);
    CHECK_INT(say_batch(&producer, 2), 0);
    ad_async_consumer_close(consumer); /* drops the queue */
    CHECK_INT(live_tasks, 0);
    CHECK_INT(say_batch(&producer, 3), 0);
    CHECK_INT(live_tasks, 0);
    say_release(&producer);
    CHECK_INT(n_null_extracts, 0);
    check_nothing_lives();
}

static void
test_close_before_the_producer_begins(void)
{
    ad_async_consumer *consumer = consumer_of(4);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    ad_async_consumer_close(consumer);
    CHECK_INT(say_schema(&producer, "l"), 0);
    CHECK_INT(producer.n_cancels, 1);
    say_release(&producer);
    check_nothing_lives();
}

static void
test_release_of_unused_handler(void)
{
    ad_async_consumer *consumer = consumer_of(4);
    struct ArrowAsyncDeviceStreamHandler *handler =
        ad_async_consumer_handler(consumer);
    ad_async_consumer_cancel(consumer);
    handler->release(handler);
    CHECK(handler->release == NULL);
    ad_async_consumer_close(consumer);
}

static void
test_wake_owner_outlives_calls(void)
{
    atomic_int gone = 0;
    ad_owner *owner = tracked_new(&gone);
    ad_async_consumer_options options = {.queue_size = 2,
                                         .wake = {NULL, NULL, owner}};
    ad_async_consumer *consumer;
    CHECK_INT(ad_async_consumer_new(&options, &consumer, NULL), AD_OK);
    ad_owner_unref(owner);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    ad_async_consumer_close(consumer);
    CHECK_INT(gone, 0);
    say_release(&producer);
    CHECK_INT(gone, 1);
}

/* --- no memory ------------------------------------------------------------------- */

/* A stream of two batches and an error, where the n-th allocation of the
 * consumer fails. The test allocates before the failure is armed. */
static bool
run_without_memory(long n)
{
    char *blob = blob_of("k", "v");
    struct ArrowSchema schema = tree_take_schema(tree_schema("l", "", 0));
    struct ArrowAsyncTask tasks[2] = {fake_task_of(batch_of(1)),
                                      fake_task_of(batch_of(2))};
    ad_async_consumer_options options = {.queue_size = 2};
    ad_async_consumer *consumer = NULL;
    ad_async_batch batch;
    ad_async_poll poll;
    ad_error err = {0};
    fake_producer producer;
    int n_taken = 0;
    int code = ENOMEM;
    check_fail_nth(n);
    if (ad_async_consumer_new(&options, &consumer, &err) == AD_OK) {
        fake_producer_init(&producer, consumer);
        producer.shown.additional_metadata = blob;
        code = producer.handler->on_schema(producer.handler, &schema);
        for (; code == 0 && n_taken < 2; n_taken++) {
            code = producer.handler->on_next_task(producer.handler,
                                                  &tasks[n_taken], blob);
            if (code != 0) {
                break;
            }
        }
        if (code == 0) {
            producer.handler->on_error(producer.handler, EIO, "m", blob);
        }
        ad_status status;
        while ((status = ad_async_consumer_pop(consumer, &batch, &poll,
                                               &err)) == AD_OK) {
            CHECK_INT(poll, AD_ASYNC_READY);
            ad_async_batch_clear(&batch);
        }
        CHECK(status == AD_ERR_MEMORY || status == AD_ERR_EXCHANGE);
        say_release(&producer);
        ad_async_consumer_close(consumer);
    }
    bool has_failed = check_failed_once();
    check_fail_nth(0);
    CHECK(consumer != NULL || schema.release != NULL);
    if (schema.release != NULL) {
        schema.release(&schema);
    }
    for (; n_taken < 2; n_taken++) {
        (void)fake_extract(&tasks[n_taken], NULL);
    }
    free(blob);
    check_nothing_lives();
    return has_failed;
}

static void
test_no_memory(void)
{
    long n = 1;
    while (run_without_memory(n)) {
        n++;
    }
    CHECK(n > 6);
}

/* --- broken rules -------------------------------------------------------------- */

static void
test_producer_that_is_not_populated(void)
{
    for (int i = 0; i < 3; i++) {
        ad_async_consumer *consumer = consumer_of(4);
        fake_producer producer;
        fake_producer_init(&producer, consumer);
        if (i == 0) {
            producer.handler->producer = NULL;
        } else if (i == 1) {
            producer.shown.request = NULL;
        } else {
            producer.shown.cancel = NULL;
        }
        CHECK_INT(say_schema(&producer, "l"), EINVAL);
        expect_fault(consumer, i == 0 ? "NULL producer" : "is NULL");
        ad_async_consumer_cancel(consumer);
        end_both(consumer, &producer);
    }
}

static void
test_bad_schema(void)
{
    ad_async_consumer *consumer = consumer_of(4);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    CHECK_INT(say_schema(&producer, "?"), EINVAL);
    CHECK_INT(producer.n_requests, 0);
    expect_failure(consumer, AD_ERR_ARROW, "on_schema of the async stream");
    /* Arrow C++ continues with on_error or a NULL task. */
    CHECK_INT(say_end(&producer), 0);
    say_error(&producer, EINVAL, "refused");
    say_release(&producer);
    expect_failure(consumer, AD_ERR_ARROW, "on_schema of the async stream");
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_null_and_released_schemas(void)
{
    for (int i = 0; i < 2; i++) {
        ad_async_consumer *consumer = consumer_of(4);
        fake_producer producer;
        struct ArrowSchema released = {.format = "l"};
        fake_producer_init(&producer, consumer);
        CHECK_INT(producer.handler->on_schema(producer.handler,
                                              i == 0 ? NULL : &released),
                  EINVAL);
        expect_failure(consumer, i == 0 ? AD_ERR_EXCHANGE : AD_ERR_ARROW,
                       "on_schema");
        say_release(&producer);
        ad_async_consumer_close(consumer);
    }
}

static void
test_task_without_a_function(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(2, &producer);
    struct ArrowAsyncTask task = {0};
    CHECK_INT(producer.handler->on_next_task(producer.handler, &task, NULL),
              EINVAL);
    expect_fault(consumer, "extract_data is NULL");
    end_both(consumer, &producer);
}

#define N_LATE_CALLS 4

/* Calls the i-th callback after the last valid call. */
static void
call_late(fake_producer *producer, int i)
{
    if (i == 0) {
        CHECK_INT(say_batch(producer, 1), EINVAL);
    } else if (i == 1) {
        CHECK_INT(say_end(producer), EINVAL);
    } else if (i == 2) {
        CHECK_INT(say_schema(producer, "l"), EINVAL);
    } else {
        say_error(producer, EIO, "late");
    }
}

static void
test_calls_after_an_error(void)
{
    for (int i = 0; i < N_LATE_CALLS; i++) {
        fake_producer producer;
        ad_async_consumer *consumer = consumer_with_schema(2, &producer);
        ad_error err;
        say_error(&producer, EIO, "the first");
        call_late(&producer, i);
        expect_failure(consumer, AD_ERR_EXCHANGE, "the first");
        CHECK(consumer_fault(consumer, &err));
        CHECK_HAS(err.message, "after on_error");
        end_both(consumer, &producer);
    }
}

static void
test_calls_after_release(void)
{
    for (int i = 0; i < N_LATE_CALLS + 1; i++) {
        ad_async_consumer *consumer = consumer_of(2);
        fake_producer producer;
        fake_producer_init(&producer, consumer);
        struct ArrowAsyncDeviceStreamHandler kept = *producer.handler;
        CHECK_INT(say_schema(&producer, "l"), 0);
        CHECK_INT(say_end(&producer), 0);
        say_release(&producer);
        producer.handler = ad_async_consumer_handler(consumer);
        if (i < N_LATE_CALLS) {
            call_late(&producer, i);
        } else {
            kept.release(producer.handler);
        }
        expect_fault(consumer, i < 4 ? "after release, which must be the last"
                                     : "release was called twice");
        ad_async_consumer_close(consumer);
        check_nothing_lives();
    }
}

static void
call_from_inside(fake_producer *self)
{
    self->on_request = NULL;
    CHECK_INT(say_batch(self, 1), EINVAL);
}

static void
test_request_that_calls_back(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(1, &producer);
    CHECK_INT(say_batch(&producer, 1), 0);
    producer.on_request = call_from_inside;
    expect_batch(consumer, 1);
    expect_fault(consumer, "on_next_task was called from inside request()");
    end_both(consumer, &producer);
}

static void
error_from_inside(fake_producer *self)
{
    say_error(self, EIO, "cannot cancel");
}

static void
test_cancel_that_reports_an_error(void)
{
    ad_async_consumer *consumer = consumer_of(1);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    producer.on_cancel = error_from_inside;
    CHECK_INT(say_schema(&producer, "l"), 0);
    ad_async_consumer_cancel(consumer);
    CHECK_INT(say_batch(&producer, 1), 0);
    expect_batch(consumer, 1);
    expect_poll(consumer, AD_ASYNC_END);
    ad_async_error error;
    CHECK(ad_async_consumer_error(consumer, &error));
    CHECK_STR(error.message, "cannot cancel");
    end_both(consumer, &producer);
}

static void
release_from_inside(fake_producer *self)
{
    self->handler->release(self->handler);
}

static void
test_release_from_inside_another_call(void)
{
    ad_async_consumer *consumer = consumer_of(1);
    fake_producer producer;
    fake_producer_init(&producer, consumer);
    producer.on_request = release_from_inside;
    CHECK_INT(say_schema(&producer, "l"), 0);
    CHECK(consumer_is_released(consumer));
    expect_fault(consumer, "release was called while another call");
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

/* --- bad batches ------------------------------------------------------------------ */

static void
test_batch_of_another_device_type(void)
{
    fake_producer producer;
    ad_async_consumer *consumer = consumer_with_schema(4, &producer);
    CHECK_INT(say_batch(&producer, 1), 0);
    struct ArrowDeviceArray batch = batch_of(2);
    batch.device_type = ARROW_DEVICE_EXT_DEV;
    CHECK_INT(say_task(&producer, batch, NULL), 0);
    CHECK_INT(say_batch(&producer, 3), 0);
    expect_batch(consumer, 1);
    expect_failure(consumer, AD_ERR_ARROW, "batch 2 of the async stream");
    CHECK_INT(producer.n_cancels, 1);
    CHECK_INT(live_tasks, 0);
    CHECK_INT(say_batch(&producer, 4), 0);
    CHECK_INT(live_tasks, 0);
    CHECK_INT(say_end(&producer), 0);
    say_release(&producer);
    expect_failure(consumer, AD_ERR_ARROW, "is of device type 12");
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

static void
test_bad_metadata(void)
{
    int32_t bad[2] = {-5, 0};
    for (int i = 0; i < 3; i++) {
        ad_async_consumer *consumer = consumer_of(4);
        fake_producer producer;
        ad_error err;
        fake_producer_init(&producer, consumer);
        if (i == 0) {
            producer.shown.additional_metadata = (const char *)bad;
            CHECK_INT(say_schema(&producer, "l"), EINVAL);
            expect_failure(consumer, AD_ERR_ARROW, "on_schema");
        } else if (i == 1) {
            CHECK_INT(say_schema(&producer, "l"), 0);
            CHECK_INT(say_task(&producer, batch_of(1), (const char *)bad),
                      EINVAL);
            expect_failure(consumer, AD_ERR_ARROW, "metadata of on_next_task");
        } else {
            producer.handler->on_error(producer.handler, EIO, "lost",
                                       (const char *)bad);
            expect_failure(consumer, AD_ERR_EXCHANGE, "lost");
            CHECK(consumer_fault(consumer, &err));
            CHECK_HAS(err.message, "metadata of on_error");
        }
        end_both(consumer, &producer);
    }
}

/* Arrow C++, arrow-go and SedonaDB free a task that was refused. */
static void
test_refused_task_is_left_to_its_producer(void)
{
    for (int fault = 0; fault < 3; fault++) {
        fake_producer producer;
        ad_async_consumer *consumer = consumer_with_schema(1, &producer);
        ad_error why;
        if (fault == 2) { /* more than was requested */
            CHECK_INT(say_batch(&producer, 1), 0);
        }
        int before = atomic_load(&live_tasks);
        struct ArrowAsyncTask task = fake_task_of(batch_of(2));
        if (fault == 0) { /* after the end */
            CHECK_INT(say_end(&producer), 0);
        }
        const char *metadata = fault == 1 ? "\377\377\377\377" : NULL;
        CHECK(producer.handler->on_next_task(producer.handler, &task,
                                             metadata) != 0);
        CHECK(consumer_fault(consumer, &why));
        CHECK_INT(live_tasks, before + 1);
        CHECK_INT(task.extract_data(&task, NULL), 0);
        say_release(&producer);
        ad_async_consumer_close(consumer);
        check_nothing_lives();
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_whole_stream),
        CHECK_TEST(test_moved_handler),
        CHECK_TEST(test_empty_stream),
        CHECK_TEST(test_requests_keep_the_queue_bounded),
        CHECK_TEST(test_requests_of_half_a_queue),
        CHECK_TEST(test_batch_of_an_accessible_type),
        CHECK_TEST(test_one_wake_per_wait),
        CHECK_TEST(test_cancel_of_a_producer_that_outlives_its_tasks),
        CHECK_TEST(test_cancel_before_the_schema),
        CHECK_TEST(test_cancel_after_the_end_touches_nothing),
        CHECK_TEST(test_close_drops_queued_tasks),
        CHECK_TEST(test_unwanted_tasks_are_not_extracted_with_null),
        CHECK_TEST(test_close_before_the_producer_begins),
        CHECK_TEST(test_release_of_unused_handler),
        CHECK_TEST(test_wake_owner_outlives_calls),
        CHECK_TEST(test_no_memory),
        CHECK_TEST(test_refused_task_is_left_to_its_producer),
        CHECK_TEST(test_producer_that_is_not_populated),
        CHECK_TEST(test_bad_schema),
        CHECK_TEST(test_null_and_released_schemas),
        CHECK_TEST(test_task_without_a_function),
        CHECK_TEST(test_calls_after_an_error),
        CHECK_TEST(test_calls_after_release),
        CHECK_TEST(test_request_that_calls_back),
        CHECK_TEST(test_cancel_that_reports_an_error),
        CHECK_TEST(test_release_from_inside_another_call),
        CHECK_TEST(test_batch_of_another_device_type),
        CHECK_TEST(test_bad_metadata),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
