#include "async/consumer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/metadata.h"
#include "base/thread_local.h"

/* --- calls into the producer --------------------------------------------- */

/* The calls of the producer that this thread is inside of. A producer must not
 * call the handler from inside request(); from inside cancel() it may call
 * on_error. */
typedef struct frame {
    struct frame *outer;
    const ad_async_consumer *consumer;
    ad_async_call call;
} frame;

static AD_THREAD_LOCAL frame *frames;

static int
count_own_calls(const ad_async_consumer *self)
{
    int n = 0;
    for (const frame *f = frames; f != NULL; f = f->outer) {
        n += f->consumer == self;
    }
    return n;
}

static const char *
innermost_call(const ad_async_consumer *self)
{
    for (const frame *f = frames; f != NULL; f = f->outer) {
        if (f->consumer == self) {
            return f->call == CALL_REQUEST ? "request" : "cancel";
        }
    }
    return NULL;
}

void
ad_async_call_producer(ad_async_consumer *self, ad_async_call call, int64_t n)
{
    struct ArrowAsyncProducer *producer = self->producer;
    frame here = {frames, self, call};
    frames = &here;
    if (call == CALL_REQUEST) {
        producer->request(producer, n);
    } else {
        producer->cancel(producer);
    }
    frames = here.outer;
    pthread_mutex_lock(&self->mutex);
    self->n_calls--;
    pthread_cond_broadcast(&self->quiet);
    pthread_mutex_unlock(&self->mutex);
}

/* --- state changes, with the mutex held ---------------------------------- */

bool
ad_async_take_wake(ad_async_consumer *self)
{
    bool wake = self->is_waiting;
    self->is_waiting = false;
    return wake;
}

void
ad_async_unlock_and_wake(ad_async_consumer *self, bool wake)
{
    pthread_mutex_unlock(&self->mutex);
    if (wake && self->options.wake.call != NULL) {
        self->options.wake.call(self->options.wake.context);
    }
}

void
ad_async_note_fault(ad_async_consumer *self, const ad_error *err)
{
    if (self->fault.status == AD_OK) {
        self->fault = *err;
    }
    if (self->outcome <= OUTCOME_END) {
        self->outcome = OUTCOME_FAULT;
    }
}

static void
break_rule(ad_async_consumer *self, const char *call, const char *rule)
{
    ad_error err;
    (void)ad_fail(&err, AD_ERR_EXCHANGE, "stream",
                  "this is a mistake of the library that produces the stream",
                  "the producer of the async stream broke a rule: %s was "
                  "called %s",
                  call, rule);
    ad_async_note_fault(self, &err);
}

/* The rule about the order of calls that this call breaks, or NULL. */
static const char *
broken_order_rule(const ad_async_consumer *self, ad_async_event call)
{
    const ad_async_step *step = ad_async_step_of(self->state, call);
    return step->is_tolerated ? NULL : step->rule;
}

static void
apply_event(ad_async_consumer *self, ad_async_event event)
{
    self->state = ad_async_step_of(self->state, event)->next;
}

/* Refuses a call that breaks a rule. Returns the result of the callback. */
static int
refuse(ad_async_consumer *self, const char *call, const char *rule)
{
    break_rule(self, call, rule);
    apply_event(self, AD_ASYNC_REFUSAL);
    return EINVAL;
}

static int
refuse_for(ad_async_consumer *self, ad_status status, const ad_error *err)
{
    ad_async_note_fault(self, err);
    apply_event(self, AD_ASYNC_REFUSAL);
    return status == AD_ERR_MEMORY ? ENOMEM : EINVAL;
}

/* --- serialization of the handler's calls -------------------------------- */

static const char not_serialized[] =
    "while another call was running; calls of the handler must be serialized";

static bool
begin_callback(ad_async_consumer *self, const char *call)
{
    const char *inside = innermost_call(self);
    int none = CALLBACK_NONE;
    if (inside == NULL && atomic_compare_exchange_strong(
                              &self->callback, &none, CALLBACK_RUNNING)) {
        return true;
    }
    char rule[128];
    if (inside != NULL) {
        snprintf(rule, sizeof(rule),
                 "from inside %s(), which must not call it", inside);
    } else {
        snprintf(rule, sizeof(rule), "%s", not_serialized);
    }
    pthread_mutex_lock(&self->mutex);
    (void)refuse(self, call, rule);
    ad_async_unlock_and_wake(self, ad_async_take_wake(self));
    return false;
}

static void release_now(ad_async_consumer *self);

static void
end_callback(ad_async_consumer *self)
{
    int running = CALLBACK_RUNNING;
    if (!atomic_compare_exchange_strong(&self->callback, &running,
                                        CALLBACK_NONE)) {
        release_now(self);
    }
}

/* --- the handler --------------------------------------------------------- */

static const char *
broken_producer_rule(const struct ArrowAsyncProducer *producer)
{
    if (producer == NULL) {
        return "with a NULL producer, which must be populated before";
    }
    if (producer->request == NULL || producer->cancel == NULL) {
        return "with a producer whose request or cancel is NULL";
    }
    return NULL;
}

/* Takes the schema, and copies the metadata and device type of the producer.
 */
static ad_status
take_schema(ad_async_consumer *self, struct ArrowSchema *schema, ad_error *err)
{
    const struct ArrowAsyncProducer *producer = self->producer;
    char *metadata = NULL;
    ad_schema taken;
    ad_status status = ad_schema_validate(schema, err);
    if (status == AD_OK) {
        status =
            ad_metadata_copy(producer->additional_metadata, &metadata, err);
    }
    if (status == AD_OK) {
        status = ad_schema_move(schema, &taken, err);
    }
    if (status != AD_OK) {
        free(metadata);
        ad_error_prefix(err, "on_schema of the async stream: ");
        return status;
    }
    self->schema = taken;
    self->metadata = metadata;
    self->device_type = producer->device_type;
    self->producer_outlives_tasks = self->options.producer_outlives_tasks ||
                                    ad_async_is_own_producer(producer);
    apply_event(self, AD_ASYNC_ON_SCHEMA);
    return AD_OK;
}

/* on_schema, with the mutex held. */
static int
receive_schema(ad_async_consumer *self, struct ArrowAsyncProducer *producer,
               struct ArrowSchema *schema)
{
    const char *rule = broken_order_rule(self, AD_ASYNC_ON_SCHEMA);
    ad_error err;
    if (rule == NULL) {
        rule = broken_producer_rule(producer);
    }
    if (rule == NULL && schema == NULL) {
        rule = "with a NULL schema";
    }
    if (rule != NULL) {
        return refuse(self, "on_schema", rule);
    }
    self->producer = producer;
    ad_status status = take_schema(self, schema, &err);
    return status == AD_OK ? 0 : refuse_for(self, status, &err);
}

static int
on_schema(struct ArrowAsyncDeviceStreamHandler *handler,
          struct ArrowSchema *schema)
{
    ad_async_consumer *self = handler->private_data;
    int result = EINVAL;
    if (begin_callback(self, "on_schema")) {
        ad_async_call call = CALL_REQUEST;
        int64_t n = self->options.queue_size;
        pthread_mutex_lock(&self->mutex);
        result = receive_schema(self, handler->producer, schema);
        if (result == 0) {
            self->n_calls++;
            if (self->wants_cancel) {
                self->is_cancel_sent = true;
                call = CALL_CANCEL;
            } else {
                self->n_requested = n;
            }
        }
        ad_async_unlock_and_wake(self, ad_async_take_wake(self));
        if (result == 0) {
            ad_async_call_producer(self, call, n);
        }
        end_callback(self);
    }
    /* Released also if it was refused: some producers do not look at the
     * schema again, and the others find it released. */
    if (result != 0 && schema != NULL && schema->release != NULL) {
        schema->release(schema);
    }
    return result;
}

/* on_next_task, with the mutex held. Takes ownership of *metadata if the task
 * is queued, and sets it to NULL. */
static int
receive_task(ad_async_consumer *self, const struct ArrowAsyncTask *task,
             char **metadata, bool *is_unwanted)
{
    ad_async_event call = task != NULL ? AD_ASYNC_ON_TASK : AD_ASYNC_ON_END;
    const char *rule = broken_order_rule(self, call);
    if (rule == NULL && task != NULL && task->extract_data == NULL) {
        rule = "with a task whose extract_data is NULL";
    }
    if (rule != NULL) {
        return refuse(self, "on_next_task", rule);
    }
    if (task == NULL) {
        apply_event(self, AD_ASYNC_ON_END);
        if (self->outcome == OUTCOME_OPEN) {
            self->outcome = OUTCOME_END;
        }
        return 0;
    }
    if (self->n_received == self->n_requested) {
        char text[128];
        snprintf(
            text, sizeof(text), "for batch %lld, but only %lld were requested",
            (long long)self->n_received + 1, (long long)self->n_requested);
        return refuse(self, "on_next_task", text);
    }
    self->n_received++;
    *is_unwanted = self->is_closed || self->is_broken;
    if (!*is_unwanted) {
        /* A requested task has a free slot, because a slot is requested again
         * only after its task was popped. */
        int64_t at = (self->n_received - 1) % self->options.queue_size;
        self->slots[at] = (ad_async_slot){*task, *metadata};
        self->count++;
        *metadata = NULL;
    }
    return 0;
}

static int
on_next_task(struct ArrowAsyncDeviceStreamHandler *handler,
             struct ArrowAsyncTask *task, const char *metadata)
{
    ad_async_consumer *self = handler->private_data;
    char *copy = NULL;
    bool is_unwanted = false;
    bool sends_cancel = false;
    ad_error err;
    if (!begin_callback(self, "on_next_task")) {
        return EINVAL;
    }
    ad_status status = AD_OK;
    if (task != NULL && metadata != NULL) {
        status = ad_metadata_copy(metadata, &copy, &err);
    }
    pthread_mutex_lock(&self->mutex);
    int result;
    if (status != AD_OK) {
        ad_error_prefix(&err, "metadata of on_next_task: ");
        result = refuse_for(self, status, &err);
    } else {
        result = receive_task(self, task, &copy, &is_unwanted);
    }
    if (result == 0 && task != NULL && self->wants_cancel &&
        !self->is_cancel_sent) {
        sends_cancel = true;
        self->is_cancel_sent = true;
        self->n_calls++;
    }
    ad_async_unlock_and_wake(self, ad_async_take_wake(self));
    free(copy);
    /* The producer is alive while it is inside this callback. */
    if (sends_cancel) {
        ad_async_call_producer(self, CALL_CANCEL, 0);
    }
    if (is_unwanted) {
        ad_async_drop_task(task);
    }
    end_callback(self);
    return result;
}

/* Writes the error of on_error for the user. What the producer lacked, such as
 * memory, the user does not lack. */
static void
report(ad_async_consumer *self)
{
    ad_error *err = &self->reported;
    if (err->status != AD_ERR_EXCHANGE && err->status != AD_ERR_ARROW &&
        err->status != AD_ERR_DEVICE) {
        err->status = AD_ERR_EXCHANGE;
        ad_error_reason(err, "stream");
    }
    if (err->status != AD_ERR_DEVICE) { /* has the runtime's number */
        err->code = self->error_code;
    }
    snprintf(err->message, sizeof(err->message),
             "the producer of the async stream reports error %d (%s): %s",
             self->error_code, strerror(self->error_code), self->error_text);
}

/* Stores the arguments of on_error. If an allocation fails, the message is
 * truncated. */
static void
store_error(ad_async_consumer *self, int code, const char *message,
            const char *metadata)
{
    ad_error err;
    if (message == NULL) {
        message = strerror(code);
    }
    self->has_error = true;
    self->error_code = code;
    snprintf(self->error_text, sizeof(self->error_text), "%s", message);
    self->error_message = strdup(message);
    report(self);
    if (self->outcome == OUTCOME_OPEN) {
        bool is_asked_for = self->is_cancelled && self->failed_code == 0;
        self->outcome = is_asked_for ? OUTCOME_END : OUTCOME_ERROR;
    }
    if (ad_metadata_copy(metadata, &self->error_metadata, &err) != AD_OK) {
        ad_error_prefix(&err, "metadata of on_error: ");
        ad_async_note_fault(self, &err);
    }
}

static void
on_error(struct ArrowAsyncDeviceStreamHandler *handler, int code,
         const char *message, const char *metadata)
{
    ad_async_consumer *self = handler->private_data;
    /* on_error is valid from inside cancel(). From inside request() it breaks
     * a rule, but is accepted so that the error is not lost. */
    bool is_nested = innermost_call(self) != NULL;
    bool is_serial = is_nested || begin_callback(self, "on_error");
    pthread_mutex_lock(&self->mutex);
    const char *rule = broken_order_rule(self, AD_ASYNC_ON_ERROR);
    if (rule != NULL) {
        (void)refuse(self, "on_error", rule);
    } else {
        apply_event(self, AD_ASYNC_ON_ERROR);
        store_error(self, code, message, metadata);
    }
    ad_async_unlock_and_wake(self, ad_async_take_wake(self));
    if (is_serial && !is_nested) {
        end_callback(self);
    }
}

void
ad_async_tell_own_consumer(struct ArrowAsyncDeviceStreamHandler *handler,
                           const ad_error *cause)
{
    if (handler->on_error == on_error) {
        ad_async_consumer *self = handler->private_data;
        pthread_mutex_lock(&self->mutex);
        self->reported = *cause;
        pthread_mutex_unlock(&self->mutex);
    }
}

static void
handler_release(struct ArrowAsyncDeviceStreamHandler *handler)
{
    ad_async_consumer *self = handler->private_data;
    if (handler != &self->handler) {
        handler->release = NULL; /* moved by the producer */
    }
    for (;;) {
        int found = CALLBACK_NONE;
        if (atomic_compare_exchange_strong(&self->callback, &found,
                                           CALLBACK_RUNNING)) {
            release_now(self);
            return;
        }
        pthread_mutex_lock(&self->mutex);
        break_rule(self, "release", not_serialized);
        pthread_mutex_unlock(&self->mutex);
        /* Another call of the handler is running and still uses it: that call
         * performs the release when it returns. Nothing is used here after the
         * exchange. */
        found = CALLBACK_RUNNING;
        if (atomic_compare_exchange_strong(&self->callback, &found,
                                           CALLBACK_RELEASE_PENDING) ||
            found == CALLBACK_RELEASE_PENDING) {
            return;
        }
    }
}

static void
release_now(ad_async_consumer *self)
{
    pthread_mutex_lock(&self->mutex);
    if (self->state == AD_ASYNC_RELEASED) {
        break_rule(self, "release", broken_order_rule(self, AD_ASYNC_RELEASE));
        atomic_store(&self->callback, CALLBACK_NONE);
        ad_async_unlock_and_wake(self, ad_async_take_wake(self));
        return;
    }
    /* The producer may free its struct after this call, so the other threads
     * must have left it. */
    int own_calls = count_own_calls(self);
    while (self->n_calls > own_calls) {
        pthread_cond_wait(&self->quiet, &self->mutex);
    }
    const char *rule = broken_order_rule(self, AD_ASYNC_RELEASE);
    apply_event(self, AD_ASYNC_RELEASE);
    self->handler.release = NULL;
    self->handler.producer = NULL;
    self->producer = NULL;
    if (self->outcome == OUTCOME_OPEN && self->wants_cancel) {
        self->outcome = OUTCOME_END;
    } else if (self->outcome == OUTCOME_OPEN) {
        break_rule(self, "release", rule);
    }
    atomic_store(&self->callback, CALLBACK_NONE);
    ad_async_unlock_and_wake(self, ad_async_take_wake(self));
    ad_owner_unref(&self->base);
}

void
ad_async_handler_init(ad_async_consumer *self)
{
    self->handler = (struct ArrowAsyncDeviceStreamHandler){
        .on_schema = on_schema,
        .on_next_task = on_next_task,
        .on_error = on_error,
        .release = handler_release,
        .private_data = self,
    };
}
