/* The consumer of an async stream against a foreign producer that breaks a
 * rule or sends invalid batches. */

#include "async_reading.h"

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
