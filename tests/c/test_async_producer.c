/* The producer of an async stream against a foreign handler: every legal
 * sequence, each mistake of a consumer, and each failed allocation. */

#include "async_ends.h"

#define MAX_TASKS 16

/* A handler that records one letter per call: s(chema) t(ask) n(ull task)
 * e(rror) r(elease). */
typedef struct fake_handler {
    struct ArrowAsyncDeviceStreamHandler shown;
    char calls[64];
    int schema_code;
    int task_code; /* what the next on_next_task returns */
    int end_code;
    int64_t requests;         /* requested in on_schema; 0: none */
    bool requests_more;       /* in on_next_task */
    ad_async_producer *polls; /* on_next_task arms its wake-up */
    bool takes_refused;       /* extracts a task and refuses it */
    bool keeps_refused;       /* copies a task and refuses it */
    int error_code;
    char error_message[256];
    char *error_metadata;
    char *task_metadata;
    struct ArrowAsyncTask tasks[MAX_TASKS];
    int n_tasks;
    int n_extracted;
} fake_handler;

static atomic_int n_wakes;

static void
note(fake_handler *self, char call)
{
    size_t n = strlen(self->calls);
    CHECK(n + 1 < sizeof(self->calls));
    self->calls[n] = call;
}

static int
note_schema(struct ArrowAsyncDeviceStreamHandler *shown,
            struct ArrowSchema *schema)
{
    fake_handler *self = shown->private_data;
    note(self, 's');
    CHECK(shown->producer != NULL);
    CHECK_STR(schema->format, "l");
    if (self->schema_code == 0) {
        schema->release(schema);
    }
    if (self->requests != 0) {
        shown->producer->request(shown->producer, self->requests);
    }
    return self->schema_code;
}

static int
note_task(struct ArrowAsyncDeviceStreamHandler *shown,
          struct ArrowAsyncTask *task, const char *metadata)
{
    fake_handler *self = shown->private_data;
    note(self, task != NULL ? 't' : 'n');
    if (task == NULL) {
        return self->end_code;
    }
    if (metadata != NULL) {
        free(self->task_metadata);
        CHECK_INT(ad_metadata_copy(metadata, &self->task_metadata, NULL),
                  AD_OK);
    }
    if (self->polls != NULL) {
        CHECK_INT(ad_async_producer_poll(self->polls), AD_ASYNC_PENDING);
    }
    if (self->requests_more) {
        shown->producer->request(shown->producer, 1);
    }
    if (self->task_code == 0 || self->keeps_refused) {
        CHECK(self->n_tasks < MAX_TASKS);
        self->tasks[self->n_tasks++] = *task;
    } else if (self->takes_refused) {
        CHECK_INT(task->extract_data(task, NULL), 0);
    }
    return self->task_code;
}

static void
note_error(struct ArrowAsyncDeviceStreamHandler *shown, int code,
           const char *message, const char *metadata)
{
    fake_handler *self = shown->private_data;
    note(self, 'e');
    self->error_code = code;
    snprintf(self->error_message, sizeof(self->error_message), "%s", message);
    CHECK_INT(ad_metadata_copy(metadata, &self->error_metadata, NULL), AD_OK);
}

static void
note_release(struct ArrowAsyncDeviceStreamHandler *shown)
{
    fake_handler *self = shown->private_data;
    note(self, 'r');
    memset(shown, 0xdb, sizeof(*shown)); /* as if freed */
}

static void
handler_init(fake_handler *self)
{
    memset(self, 0, sizeof(*self));
    self->shown = (struct ArrowAsyncDeviceStreamHandler){
        note_schema, note_task, note_error, note_release, NULL, self,
    };
}

static void
count_wake(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static ad_async_producer *
producer_of(fake_handler *handler)
{
    ad_async_producer_options options = {
        .device_type = ARROW_DEVICE_CPU,
        .wake = {count_wake, &n_wakes, NULL},
    };
    ad_async_producer *self;
    atomic_store(&n_wakes, 0);
    CHECK_INT(ad_async_producer_new(&handler->shown, &options, &self, NULL),
              AD_OK);
    return self;
}

static void
start(ad_async_producer *producer, ad_async_poll expected)
{
    ad_async_poll poll;
    CHECK_INT(ad_async_producer_start(producer, ad_schema_primitive("l"),
                                      &poll, NULL),
              AD_OK);
    CHECK_INT(poll, expected);
}

static void
send(ad_async_producer *producer, int64_t length, ad_async_poll expected)
{
    ad_array array = array_of(length);
    ad_async_poll poll;
    CHECK_INT(ad_async_producer_send(producer, &array, NULL, &poll, NULL),
              AD_OK);
    ad_array_clear(&array);
    CHECK_INT(poll, expected);
}

static void
finish(ad_async_producer *producer)
{
    CHECK_INT(ad_async_producer_finish(producer, NULL), AD_OK);
}

/* Extracts the oldest task; without `wanted` it drops the batch. */
static void
extract(fake_handler *handler, int64_t length, bool wanted)
{
    struct ArrowAsyncTask *task = &handler->tasks[handler->n_extracted++];
    struct ArrowDeviceArray batch = {0};
    CHECK_INT(task->extract_data(task, wanted ? &batch : NULL), 0);
    CHECK_INT(task->extract_data(task, &batch), EINVAL); /* exactly once */
    if (wanted) {
        CHECK_INT(batch.array.length, length);
        CHECK_INT(batch.device_type, ARROW_DEVICE_CPU);
        CHECK(batch.sync_event == NULL);
        batch.array.release(&batch.array);
    }
}

static void
done(ad_async_producer *producer, fake_handler *handler, const char *calls)
{
    ad_async_producer_close(producer);
    CHECK_STR(handler->calls, calls);
    while (handler->n_extracted < handler->n_tasks) {
        extract(handler, 0, false);
    }
    free(handler->error_metadata);
    free(handler->task_metadata);
    check_nothing_lives();
}

/* --- legal -------------------------------------------------------------------- */

static void
test_whole_stream(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 2;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    ad_array array = array_of(1);
    char *blob = blob_of("file", "a");
    ad_async_poll poll;
    CHECK_INT(ad_async_producer_send(producer, &array, blob, &poll, NULL),
              AD_OK);
    CHECK_INT(poll, AD_ASYNC_READY);
    check_blob(handler.task_metadata, "file", "a");
    free(blob);
    ad_array_clear(&array);
    extract(&handler, 1, true);
    send(producer, 2, AD_ASYNC_READY);
    finish(producer);
    CHECK_STR(handler.calls, "sttnr");
    extract(&handler, 2, true); /* after release */
    done(producer, &handler, "sttnr");
}

static void
test_metadata_and_device_type_are_shown(void)
{
    fake_handler handler;
    handler_init(&handler);
    char *blob = blob_of("rows", "7");
    ad_async_producer_options options = {.device_type = ARROW_DEVICE_EXT_DEV,
                                         .metadata = blob};
    ad_async_producer *producer;
    CHECK_INT(ad_async_producer_new(&handler.shown, &options, &producer, NULL),
              AD_OK);
    free(blob);
    CHECK_INT(handler.shown.producer->device_type, ARROW_DEVICE_EXT_DEV);
    check_blob(handler.shown.producer->additional_metadata, "rows", "7");
    CHECK(ad_async_is_own_producer(handler.shown.producer));
    done(producer, &handler, "er");
}

static void
test_request_from_inside_a_task(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 1;
    handler.requests_more = true;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    for (int i = 0; i < 10; i++) {
        send(producer, i, AD_ASYNC_READY);
        extract(&handler, i, true);
    }
    finish(producer);
    done(producer, &handler, "sttttttttttnr");
}

static void
test_end_needs_no_request(void)
{
    fake_handler handler;
    handler_init(&handler);
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    finish(producer);
    finish(producer); /* nothing more */
    send(producer, 1, AD_ASYNC_END);
    done(producer, &handler, "snr");
}

static void
test_close_before_end_fails_stream(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 3;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    send(producer, 1, AD_ASYNC_READY);
    done(producer, &handler, "ster");
    CHECK_INT(handler.error_code, ECANCELED);
}

static void
test_close_after_cancel_is_no_error(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 3;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    send(producer, 1, AD_ASYNC_READY);
    handler.shown.producer->cancel(handler.shown.producer);
    done(producer, &handler, "stnr"); /* closes */
}

static void
test_error_of_the_source_after_cancel(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 3;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    handler.shown.producer->cancel(handler.shown.producer);
    CHECK_INT(
        ad_async_producer_fail(producer, EIO, "broken", NULL, NULL, NULL),
        AD_OK);
    CHECK_INT(handler.error_code, EIO);
    done(producer, &handler, "ser");
}

static void
test_cancel_wakes_a_producer_that_waits(void)
{
    fake_handler handler;
    handler_init(&handler);
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    CHECK_INT(ad_async_producer_poll(producer), AD_ASYNC_PENDING);
    handler.shown.producer->cancel(handler.shown.producer);
    CHECK_INT(n_wakes, 1);
    CHECK_INT(ad_async_producer_poll(producer), AD_ASYNC_END);
    finish(producer);
    done(producer, &handler, "snr");
}

/* The producer may be waiting for its source instead of for credit. */
static void
test_the_end_wakes_a_producer_that_has_credit(void)
{
    for (int is_request = 0; is_request < 2; is_request++) {
        fake_handler handler;
        handler_init(&handler);
        handler.requests = 5;
        ad_async_producer *producer = producer_of(&handler);
        struct ArrowAsyncProducer *shown = handler.shown.producer;
        start(producer, AD_ASYNC_READY);
        CHECK_INT(n_wakes, 0);
        for (int i = 0; i < 3; i++) {
            if (is_request) {
                shown->request(shown, 0);
            } else {
                shown->cancel(shown);
            }
            CHECK_INT(n_wakes, 1);
        }
        CHECK_INT(ad_async_producer_poll(producer), AD_ASYNC_END);
        CHECK_INT(ad_async_producer_finish(producer, NULL),
                  is_request ? AD_ERR_EXCHANGE : AD_OK);
        shown->cancel(shown);
        CHECK_INT(n_wakes, 1);
        done(producer, &handler, is_request ? "ser" : "snr");
    }
}

static void
test_options_set_before_start(void)
{
    fake_handler handler;
    handler_init(&handler);
    ad_async_producer *producer = producer_of(&handler);
    char *blob = blob_of("rows", "5");
    ad_async_producer_set_device_type(producer, ARROW_DEVICE_EXT_DEV);
    CHECK_INT(ad_async_producer_set_metadata(producer, blob, NULL), AD_OK);
    free(blob);
    CHECK_INT(handler.shown.producer->device_type, ARROW_DEVICE_EXT_DEV);
    check_blob(handler.shown.producer->additional_metadata, "rows", "5");
    CHECK_INT(ad_async_producer_set_metadata(producer, NULL, NULL), AD_OK);
    CHECK(handler.shown.producer->additional_metadata == NULL);
    CHECK_INT(
        ad_async_producer_set_metadata(producer, "\377\377\377\377", NULL),
        AD_ERR_ARROW);
    start(producer, AD_ASYNC_READY);
    finish(producer);
    done(producer, &handler, "snr");
}

static void
test_struct_lives_as_long_as_a_task(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 2;
    ad_async_producer *producer = producer_of(&handler);
    struct ArrowAsyncProducer *shown = handler.shown.producer;
    start(producer, AD_ASYNC_READY);
    send(producer, 1, AD_ASYNC_READY);
    send(producer, 2, AD_ASYNC_READY);
    finish(producer);
    ad_async_producer_close(producer);
    /* As Arrow C++ does it, after release. */
    for (int i = 1; i <= 2; i++) {
        shown->request(shown, 1);
        shown->cancel(shown);
        extract(&handler, i, true);
    }
    check_nothing_lives();
    CHECK_STR(handler.calls, "sttnr");
}

static void
test_send_waits_for_event_of_host_array(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 1;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    ad_array array = array_of(1);
    ad_async_poll poll;
    ad_error err;
    int unknown; /* an event on the host, of no runtime */
    CHECK_INT(ad_sync_new(AD_SYNC_EVENT, array.memory.device, &unknown,
                          array.memory.owner, &array.memory.sync, NULL),
              AD_OK);
    CHECK(ad_async_producer_send(producer, &array, NULL, &poll, &err) !=
          AD_OK);
    ad_array_clear(&array);
    CHECK_STR(handler.calls, "s");
    finish(producer);
    done(producer, &handler, "snr");
}

/* --- refusals and mistakes of consumers ----------------------------------------- */

static void
test_refused_task(void)
{
    for (int i = 0; i < 2; i++) {
        fake_handler handler;
        handler_init(&handler);
        handler.task_code = ENOMEM;
        handler.takes_refused = i == 1;
        handler.requests = 2;
        ad_async_producer *producer = producer_of(&handler);
        start(producer, AD_ASYNC_READY);
        send(producer, 1, AD_ASYNC_END);
        send(producer, 1, AD_ASYNC_END);
        /* No on_error after a refusal. */
        CHECK_INT(ad_async_producer_fail(producer, EIO, "x", NULL, NULL, NULL),
                  AD_OK);
        done(producer, &handler, "str");
    }
}

/* The task of a refused call is valid until release: a consumer may copy it,
 * refuse the call, and extract it later, from another thread. */
static void
test_refused_task_can_be_extracted_until_release(void)
{
    for (int wanted = 0; wanted < 2; wanted++) {
        fake_handler handler;
        handler_init(&handler);
        handler.task_code = ENOMEM;
        handler.keeps_refused = true;
        handler.requests = 1;
        ad_async_producer *producer = producer_of(&handler);
        start(producer, AD_ASYNC_READY);
        send(producer, 1, AD_ASYNC_END);
        extract(&handler, 1, wanted);
        CHECK_INT(ad_async_producer_finish(producer, NULL), AD_ERR_EXCHANGE);
        done(producer, &handler, "str");
    }
}

static void
test_refused_end(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.end_code = EIO;
    ad_async_producer *producer = producer_of(&handler);
    start(producer, AD_ASYNC_READY);
    ad_error err;
    CHECK_INT(ad_async_producer_finish(producer, &err), AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "on_next_task (the end)");
    done(producer, &handler, "snr");
}

static void
test_incomplete_handlers_are_refused(void)
{
    for (int i = 0; i < 4; i++) {
        fake_handler handler;
        ad_async_producer_options options = {.device_type = 1};
        ad_async_producer *producer;
        ad_error err;
        handler_init(&handler);
        static const char *const names[] = {"release", "on_schema",
                                            "on_next_task", "on_error"};
        if (i == 0) {
            handler.shown.release = NULL;
        } else if (i == 1) {
            handler.shown.on_schema = NULL;
        } else if (i == 2) {
            handler.shown.on_next_task = NULL;
        } else {
            handler.shown.on_error = NULL;
        }
        CHECK_INT(
            ad_async_producer_new(&handler.shown, &options, &producer, &err),
            AD_ERR_ARROW);
        CHECK_HAS(err.message, names[i]);
        CHECK_STR(handler.calls, "");
    }
}

/* --- mistakes of users ------------------------------------------------------------ */

static void
test_calls_out_of_order(void)
{
    fake_handler handler;
    ad_error err;
    ad_async_poll poll;
    handler_init(&handler);
    ad_async_producer *producer = producer_of(&handler);
    ad_array array = array_of(1);
    CHECK_INT(ad_async_producer_send(producer, &array, NULL, &poll, &err),
              AD_ERR_VALUE);
    CHECK_HAS(err.message, "was not started");
    CHECK_INT(ad_async_producer_finish(producer, &err), AD_ERR_VALUE);
    CHECK_HAS(err.message, "was not started");
    start(producer, AD_ASYNC_READY);
    CHECK_INT(ad_async_producer_start(producer, array.schema, &poll, &err),
              AD_ERR_VALUE);
    CHECK_HAS(err.message, "was started before");
    array.memory.device.type = ARROW_DEVICE_EXT_DEV;
    CHECK_INT(ad_async_producer_send(producer, &array, NULL, &poll, &err),
              AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "device type 12");
    array.memory.device.type = ARROW_DEVICE_CPU;
    ad_array_clear(&array);
    finish(producer);
    done(producer, &handler, "snr");
}

static ad_async_producer *woken;

static void
finish_from_inside(void *context)
{
    ad_error err;
    CHECK_INT(ad_async_producer_finish(woken, &err), AD_ERR_VALUE);
    CHECK_HAS(err.message, "serialized");
    count_wake(context);
}

/* on_next_task calls request(), which calls the wake-up. */
static void
test_wake_that_calls_the_handler(void)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests_more = true;
    ad_async_producer_options options = {
        .device_type = ARROW_DEVICE_CPU,
        .wake = {finish_from_inside, &n_wakes, NULL},
    };
    atomic_store(&n_wakes, 0);
    CHECK_INT(ad_async_producer_new(&handler.shown, &options, &woken, NULL),
              AD_OK);
    start(woken, AD_ASYNC_READY);
    handler.shown.producer->request(handler.shown.producer, 1);
    handler.polls = woken;
    send(woken, 1, AD_ASYNC_READY);
    CHECK_INT(n_wakes, 1);
    finish(woken);
    done(woken, &handler, "stnr");
}

/* --- no memory -------------------------------------------------------------------- */

static bool
run_without_memory(long n)
{
    fake_handler handler;
    handler_init(&handler);
    handler.requests = 2;
    char *blob = blob_of("k", "v");
    ad_array array = array_of(3);
    ad_async_producer_options options = {.device_type = ARROW_DEVICE_CPU,
                                         .metadata = blob};
    ad_async_producer *producer = NULL;
    ad_async_poll poll;
    ad_error err = {0};
    check_fail_nth(n);
    ad_status status =
        ad_async_producer_new(&handler.shown, &options, &producer, &err);
    if (status == AD_OK) {
        status = ad_async_producer_start(producer, array.schema, &poll, &err);
        for (int i = 0; i < 2 && status == AD_OK; i++) {
            status =
                ad_async_producer_send(producer, &array, NULL, &poll, &err);
        }
        if (status == AD_OK) {
            status = ad_async_producer_finish(producer, &err);
        }
        ad_async_producer_close(producer);
    }
    bool has_failed = check_failed_once();
    check_fail_nth(0);
    CHECK_INT(status, has_failed ? AD_ERR_MEMORY : AD_OK);
    ad_array_clear(&array);
    while (handler.n_extracted < handler.n_tasks) {
        extract(&handler, 3, true);
    }
    free(handler.error_metadata);
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

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_whole_stream),
        CHECK_TEST(test_metadata_and_device_type_are_shown),
        CHECK_TEST(test_request_from_inside_a_task),
        CHECK_TEST(test_end_needs_no_request),
        CHECK_TEST(test_close_before_end_fails_stream),
        CHECK_TEST(test_close_after_cancel_is_no_error),
        CHECK_TEST(test_error_of_the_source_after_cancel),
        CHECK_TEST(test_cancel_wakes_a_producer_that_waits),
        CHECK_TEST(test_the_end_wakes_a_producer_that_has_credit),
        CHECK_TEST(test_options_set_before_start),
        CHECK_TEST(test_struct_lives_as_long_as_a_task),
        CHECK_TEST(test_send_waits_for_event_of_host_array),
        CHECK_TEST(test_refused_task),
        CHECK_TEST(test_refused_task_can_be_extracted_until_release),
        CHECK_TEST(test_refused_end),
        CHECK_TEST(test_incomplete_handlers_are_refused),
        CHECK_TEST(test_calls_out_of_order),
        CHECK_TEST(test_wake_that_calls_the_handler),
        CHECK_TEST(test_no_memory),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
