#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "async/async_stream.h"
#include "model/metadata.h"

struct ad_async_producer {
    ad_owner base; /* one reference of the user, one of each pending task */
    struct ArrowAsyncProducer shown;
    struct ArrowAsyncDeviceStreamHandler *handler; /* the consumer's */
    ad_async_wake wake;
    char *metadata;
    struct task *refused;   /* not extracted until now, or NULL */
    atomic_flag is_calling; /* a call of the handler is running */
    ad_mutex mutex;         /* guards the members below */
    ad_async_state state;
    const char *refused_call;
    int refusal; /* what it returned */
    int64_t credit;
    int64_t bad_request;
    bool has_bad_request;
    bool is_cancelled;
    bool is_waiting; /* the wake-up is armed */
};

/* --- calls of the consumer ----------------------------------------------- */

/* `is_over`: nothing more can be sent. The wake-up is then called even if it
 * is not armed. */
static void
unlock_and_wake(ad_async_producer *self, bool is_over)
{
    bool wake = self->is_waiting || is_over;
    self->is_waiting = false;
    ad_mutex_unlock(&self->mutex);
    if (wake && self->wake.call != NULL) {
        self->wake.call(self->wake.context);
    }
}

/* Whether batches may still be sent. Later requests are ignored. */
static bool
is_active(const ad_async_producer *self)
{
    return !self->is_cancelled && !self->has_bad_request &&
           (self->state == AD_ASYNC_NEW || self->state == AD_ASYNC_OPEN);
}

static void
producer_request(struct ArrowAsyncProducer *shown, int64_t n)
{
    ad_async_producer *self = shown->private_data;
    ad_mutex_lock(&self->mutex);
    if (!is_active(self)) {
        ad_mutex_unlock(&self->mutex);
        return;
    }
    if (n <= 0) {
        self->has_bad_request = true;
        self->bad_request = n;
    } else if (__builtin_add_overflow(self->credit, n, &self->credit)) {
        self->credit = INT64_MAX;
    }
    unlock_and_wake(self, self->has_bad_request);
}

static void
producer_cancel(struct ArrowAsyncProducer *shown)
{
    ad_async_producer *self = shown->private_data;
    ad_mutex_lock(&self->mutex);
    bool is_first = !self->is_cancelled && self->state != AD_ASYNC_RELEASED;
    self->is_cancelled = true;
    unlock_and_wake(self, is_first);
}

bool
ad_async_is_own_producer(const struct ArrowAsyncProducer *producer)
{
    return producer->request == producer_request;
}

/* --- tasks --------------------------------------------------------------- */

/* One reference of the producer until the consumer has accepted the task, one
 * of the consumer, which drops it in extract_data. */
typedef struct task {
    ad_owner base;
    ad_async_producer *producer; /* owned: Arrow C++ calls request until it has
                                    extracted everything, after release too */
    struct ArrowDeviceArray *holder;
    atomic_bool is_taken;
} task;

static void
task_destroy(ad_owner *base)
{
    task *self = (task *)base;
    if (self->holder != NULL) {
        ad_array_holder_free(self->holder);
    }
    ad_owner_unref(&self->producer->base);
    free(self);
}

static const ad_owner_ops task_ops = {.destroy = task_destroy,
                                      .name = "async task"};

static int
task_extract(struct ArrowAsyncTask *shown, struct ArrowDeviceArray *out)
{
    task *self = shown->private_data;
    if (self == NULL || atomic_exchange(&self->is_taken, true)) {
        return EINVAL; /* a second call */
    }
    shown->private_data = NULL;
    /* The array was exported in send, so that nothing can fail here: on_error
     * could not reach a consumer that released the handler in the meantime. */
    if (out != NULL) {
        *out = *self->holder;
        self->holder->array.release = NULL;
    }
    ad_array_holder_free(self->holder);
    self->holder = NULL;
    ad_owner_unref(&self->base);
    return 0;
}

static ad_status
task_new(ad_async_producer *producer, const ad_array *array, task **out,
         ad_error *err)
{
    task *self = malloc(sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_status status = ad_array_export(array, &self->holder, err);
    if (status != AD_OK) {
        free(self);
        return status;
    }
    ad_owner_init(&self->base, &task_ops);
    ad_owner_ref(&self->base);
    ad_owner_ref(&producer->base);
    self->producer = producer;
    atomic_init(&self->is_taken, false);
    *out = self;
    return AD_OK;
}

/* --- construction -------------------------------------------------------- */

static void
producer_destroy(ad_owner *base)
{
    ad_async_producer *self = (ad_async_producer *)base;
    ad_owner_unref(self->wake.owner);
    ad_mutex_destroy(&self->mutex);
    free(self->metadata);
    free(self);
}

static const ad_owner_ops producer_ops = {.destroy = producer_destroy,
                                          .name = "async producer"};

static ad_status
check_handler(const struct ArrowAsyncDeviceStreamHandler *handler,
              ad_error *err)
{
    const char *missing = NULL;
    if (handler->release == NULL) {
        missing = "release";
    } else if (handler->on_schema == NULL) {
        missing = "on_schema";
    } else if (handler->on_next_task == NULL) {
        missing = "on_next_task";
    } else if (handler->on_error == NULL) {
        missing = "on_error";
    }
    if (missing == NULL) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_ARROW, NULL,
                   "a handler serves one producer; make another one",
                   "%s of the async stream handler is NULL, expected a "
                   "callback of a handler that was not released",
                   missing);
}

ad_status
ad_async_producer_new(struct ArrowAsyncDeviceStreamHandler *handler,
                      const ad_async_producer_options *options,
                      ad_async_producer **out, ad_error *err)
{
    char *metadata;
    AD_RETURN_IF_ERR(check_handler(handler, err));
    AD_RETURN_IF_ERR(ad_metadata_copy(options->metadata, &metadata, err));
    ad_async_producer *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        free(metadata);
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_owner_init(&self->base, &producer_ops);
    self->shown = (struct ArrowAsyncProducer){
        .device_type = options->device_type,
        .request = producer_request,
        .cancel = producer_cancel,
        .additional_metadata = metadata,
        .private_data = self,
    };
    self->metadata = metadata;
    self->wake = options->wake;
    ad_owner_ref(options->wake.owner);
    atomic_flag_clear(&self->is_calling);
    ad_mutex_init(&self->mutex);
    self->handler = handler;
    handler->producer = &self->shown;
    *out = self;
    return AD_OK;
}

void
ad_async_producer_set_device_type(ad_async_producer *self, int32_t type)
{
    self->shown.device_type = type;
}

ad_status
ad_async_producer_set_metadata(ad_async_producer *self, const char *metadata,
                               ad_error *err)
{
    char *copy;
    AD_RETURN_IF_ERR(ad_metadata_copy(metadata, &copy, err));
    free(self->metadata);
    self->metadata = copy;
    self->shown.additional_metadata = copy;
    return AD_OK;
}

/* --- calls of the handler ------------------------------------------------ */

static ad_status
begin_call(ad_async_producer *self, const char *what, ad_error *err)
{
    if (!atomic_flag_test_and_set(&self->is_calling)) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_VALUE, NULL,
                   "do it later, or on the thread that makes the other call",
                   "%s while another call of the async stream's consumer is "
                   "running: such calls must be serialized",
                   what);
}

static void
end_call(ad_async_producer *self)
{
    atomic_flag_clear(&self->is_calling);
}

static ad_async_state
state_of(ad_async_producer *self)
{
    ad_mutex_lock(&self->mutex);
    ad_async_state found = self->state;
    ad_mutex_unlock(&self->mutex);
    return found;
}

/* Whether the call is valid now. Calls that a consumer only tolerates are
 * not. */
static bool
may_call(ad_async_producer *self, ad_async_event call)
{
    return ad_async_step_of(state_of(self), call)->rule == NULL;
}

static void
apply_event(ad_async_producer *self, ad_async_event event)
{
    ad_mutex_lock(&self->mutex);
    self->state = ad_async_step_of(self->state, event)->next;
    ad_mutex_unlock(&self->mutex);
}

static void
note_refusal(ad_async_producer *self, const char *call, int code)
{
    apply_event(self, AD_ASYNC_REFUSAL);
    ad_mutex_lock(&self->mutex);
    self->refused_call = call;
    self->refusal = code;
    ad_mutex_unlock(&self->mutex);
}

/* Arrow C++ never extracts a task that it refused, other consumers may do so
 * until release. */
static void
drop_refused(ad_async_producer *self)
{
    task *refused = self->refused;
    self->refused = NULL;
    if (refused != NULL) {
        if (!atomic_exchange(&refused->is_taken, true)) {
            ad_owner_unref(&refused->base);
        }
        ad_owner_unref(&refused->base);
    }
}

/* Makes the last call; the consumer may free the handler in it. */
static void
release_handler(ad_async_producer *self)
{
    struct ArrowAsyncDeviceStreamHandler *handler = self->handler;
    self->handler = NULL;
    apply_event(self, AD_ASYNC_RELEASE);
    handler->release(handler);
    drop_refused(self);
}

static ad_status
fail_order(ad_error *err, const char *what, const char *state)
{
    return ad_fail(err, AD_ERR_VALUE, NULL, NULL, "%s an async stream that %s",
                   what, state);
}

/* Calls on_schema with an export of the schema. */
static ad_status
send_schema(ad_async_producer *self, ad_schema schema, ad_async_poll *poll,
            ad_error *err)
{
    struct ArrowSchema *holder;
    AD_RETURN_IF_ERR(ad_schema_export(schema, &holder, err));
    apply_event(self, AD_ASYNC_ON_SCHEMA);
    int code = self->handler->on_schema(self->handler, holder);
    ad_schema_holder_free(holder);
    *poll = AD_ASYNC_READY;
    if (code != 0) {
        note_refusal(self, "on_schema", code);
        *poll = AD_ASYNC_END;
    }
    return AD_OK;
}

ad_status
ad_async_producer_start(ad_async_producer *self, ad_schema schema,
                        ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(begin_call(self, "the stream was started", err));
    ad_status status;
    if (!may_call(self, AD_ASYNC_ON_SCHEMA)) {
        status = fail_order(err, "cannot start", "was started before");
    } else {
        status = send_schema(self, schema, poll, err);
    }
    end_call(self);
    return status;
}

/* Polls, and takes `n` of the credit if a batch may be sent. */
static ad_async_poll
take_credit(ad_async_producer *self, int64_t n)
{
    ad_async_poll poll = AD_ASYNC_END;
    ad_mutex_lock(&self->mutex);
    if (is_active(self)) {
        bool is_ready = self->state == AD_ASYNC_OPEN && self->credit > 0;
        poll = is_ready ? AD_ASYNC_READY : AD_ASYNC_PENDING;
        self->credit -= is_ready ? n : 0;
        self->is_waiting |= !is_ready;
    }
    ad_mutex_unlock(&self->mutex);
    return poll;
}

ad_async_poll
ad_async_producer_poll(ad_async_producer *self)
{
    return take_credit(self, 0);
}

static void
return_credit(ad_async_producer *self)
{
    ad_mutex_lock(&self->mutex);
    self->credit += self->credit < INT64_MAX;
    ad_mutex_unlock(&self->mutex);
}

static ad_status
check_device(const ad_async_producer *self, ad_device device, ad_error *err)
{
    if (ad_device_type_reaches(self->shown.device_type, device.type)) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_EXCHANGE, "device", "Move it with .to() first.",
                   "a batch of device type %d in an async stream of device "
                   "type %d",
                   (int)device.type, (int)self->shown.device_type);
}

/* Creates a task and calls on_next_task. */
static ad_status
send_batch(ad_async_producer *self, const ad_array *array,
           const char *metadata, ad_async_poll *poll, ad_error *err)
{
    task *sent = NULL;
    if (array->memory.device.type == ARROW_DEVICE_CPU) {
        AD_RETURN_IF_ERR(
            ad_sync_wait(array->memory.sync, "an async stream", err));
    }
    AD_RETURN_IF_ERR(task_new(self, array, &sent, err));
    struct ArrowAsyncTask shown = {task_extract, sent};
    int code = self->handler->on_next_task(self->handler, &shown, metadata);
    if (code != 0) {
        note_refusal(self, "on_next_task", code);
        *poll = AD_ASYNC_END;
        self->refused = sent;
        return AD_OK;
    }
    ad_owner_unref(&sent->base);
    return AD_OK;
}

ad_status
ad_async_producer_send(ad_async_producer *self, const ad_array *array,
                       const char *metadata, ad_async_poll *poll,
                       ad_error *err)
{
    AD_RETURN_IF_ERR(begin_call(self, "a batch was sent", err));
    ad_status status = check_device(self, array->memory.device, err);
    if (status == AD_OK) {
        *poll = take_credit(self, 1);
        if (*poll == AD_ASYNC_READY) {
            status = send_batch(self, array, metadata, poll, err);
            if (status != AD_OK) {
                return_credit(self);
            }
        } else if (state_of(self) == AD_ASYNC_NEW) {
            status = fail_order(err, "cannot send to", "was not started");
        }
    }
    end_call(self);
    return status;
}

static void
send_error(ad_async_producer *self, int code, const char *message,
           const char *metadata)
{
    apply_event(self, AD_ASYNC_ON_ERROR);
    self->handler->on_error(self->handler, code, message, metadata);
}

/* Ends the stream after a request of a number below 1. */
static ad_status
end_with_bad_request(ad_async_producer *self, ad_error *err)
{
    ad_status status = ad_fail(
        err, AD_ERR_EXCHANGE, "stream",
        "this is a mistake of the library that consumes the stream",
        "the consumer of the async stream broke a rule: request was called "
        "with n = %lld, which must be 1 or more",
        (long long)self->bad_request);
    char message[96];
    snprintf(message, sizeof(message),
             "request was called with n = %lld, which must be 1 or more",
             (long long)self->bad_request);
    send_error(self, EINVAL, message, NULL);
    return status;
}

static ad_status
fail_refused(const ad_async_producer *self, ad_error *err)
{
    ad_status status = ad_fail(
        err, AD_ERR_EXCHANGE, "stream", NULL,
        "%s of the async stream's consumer refused the call with error %d "
        "(%s)",
        self->refused_call, self->refusal, strerror(self->refusal));
    if (err != NULL) {
        err->code = self->refusal;
    }
    return status;
}

/* Makes the call that precedes release at a normal end. */
static ad_status
end_stream(ad_async_producer *self, ad_error *err)
{
    ad_mutex_lock(&self->mutex);
    bool is_refused = self->state == AD_ASYNC_REFUSED;
    bool has_bad_request = self->has_bad_request;
    ad_mutex_unlock(&self->mutex);
    if (is_refused) {
        return fail_refused(self, err);
    }
    if (has_bad_request) {
        return end_with_bad_request(self, err);
    }
    /* Also after a cancel: without it Arrow C++ waits forever. */
    apply_event(self, AD_ASYNC_ON_END);
    int code = self->handler->on_next_task(self->handler, NULL, NULL);
    if (code != 0) {
        note_refusal(self, "on_next_task (the end)", code);
        return fail_refused(self, err);
    }
    return AD_OK;
}

ad_status
ad_async_producer_finish(ad_async_producer *self, ad_error *err)
{
    AD_RETURN_IF_ERR(begin_call(self, "the stream was finished", err));
    ad_status status = AD_OK;
    if (state_of(self) == AD_ASYNC_NEW) {
        status = fail_order(err, "cannot finish", "was not started");
    } else if (self->handler != NULL) {
        status = end_stream(self, err);
        release_handler(self);
    }
    end_call(self);
    return status;
}

ad_status
ad_async_producer_fail(ad_async_producer *self, int code, const char *message,
                       const char *metadata, const ad_error *cause,
                       ad_error *err)
{
    AD_RETURN_IF_ERR(begin_call(self, "the stream was failed", err));
    if (self->handler != NULL) {
        if (may_call(self, AD_ASYNC_ON_ERROR)) {
            if (cause != NULL) {
                ad_async_tell_own_consumer(self->handler, cause);
            }
            send_error(self, ad_errno_or(code, EIO), message, metadata);
        }
        release_handler(self);
    }
    end_call(self);
    return AD_OK;
}

/* A cancel must not result in on_error, so a cancelled stream just ends. */
static ad_status
abandon(ad_async_producer *self)
{
    ad_mutex_lock(&self->mutex);
    bool is_unwanted = self->is_cancelled && self->state == AD_ASYNC_OPEN;
    ad_mutex_unlock(&self->mutex);
    if (is_unwanted) {
        return ad_async_producer_finish(self, NULL);
    }
    return ad_async_producer_fail(self, ECANCELED,
                                  "the producer abandoned the stream", NULL,
                                  NULL, NULL);
}

void
ad_async_producer_close(ad_async_producer *self)
{
    if (self->handler != NULL && abandon(self) == AD_ERR_VALUE) {
        return; /* called from inside a call of the handler, which uses it */
    }
    ad_owner_unref(&self->base);
}
