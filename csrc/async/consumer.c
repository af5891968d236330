/* The consumer: its handler, which the producer calls, what the user calls,
 * and the queue with which a loop or a thread reads the stream. */
#include "async/consumer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/metadata.h"
#include "base/thread_local.h"

/* --- calls into the producer --------------------------------------------- */

typedef enum producer_call {
    CALL_REQUEST,
    CALL_CANCEL
} producer_call;

/* The calls of the producer that this thread is inside of. A producer must not
 * call the handler from inside request(); from inside cancel() it may call
 * on_error. */
typedef struct frame {
    struct frame *outer;
    const ad_async_consumer *consumer;
    producer_call call;
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

/* Calls the producer and decrements n_calls. The caller has incremented
 * n_calls in the same critical section in which it checked that the producer
 * is alive; `release` waits for the call to return. */
static void
call_producer(ad_async_consumer *self, producer_call call, int64_t n)
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
    ad_mutex_lock(&self->mutex);
    self->n_calls--;
    ad_cond_broadcast(&self->quiet);
    ad_mutex_unlock(&self->mutex);
}

/* Extracts a task that nobody wants. Extracts into a scratch struct, because
 * arrow-go writes to a NULL pointer. */
static void
drop_task(struct ArrowAsyncTask *task)
{
    struct ArrowDeviceArray unwanted;
    memset(&unwanted, 0, sizeof(unwanted));
    if (task->extract_data(task, &unwanted) == 0 &&
        unwanted.array.release != NULL) {
        unwanted.array.release(&unwanted.array);
    }
}

/* --- state changes, with the mutex held ---------------------------------- */

/* Whether the wake-up is armed; disarms it. */
static bool
take_wake(ad_async_consumer *self)
{
    bool wake = self->is_waiting;
    self->is_waiting = false;
    return wake;
}

static void
unlock_and_wake(ad_async_consumer *self, bool wake)
{
    ad_mutex_unlock(&self->mutex);
    if (wake && self->options.wake.call != NULL) {
        self->options.wake.call(self->options.wake.context);
    }
}

/* The stream ends with this error, unless it failed before. */
static void
note_fault(ad_async_consumer *self, const ad_error *err)
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
    note_fault(self, &err);
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
    note_fault(self, err);
    apply_event(self, AD_ASYNC_REFUSAL);
    return status == AD_ERR_MEMORY ? ENOMEM : EINVAL;
}

/* --- serialization of the handler's calls -------------------------------- */

/* Detects handler calls that are not serialized. */
enum {
    CALLBACK_NONE,
    CALLBACK_RUNNING,
    CALLBACK_RELEASE_PENDING /* release was called during another call */
};

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
    ad_mutex_lock(&self->mutex);
    (void)refuse(self, call, rule);
    unlock_and_wake(self, take_wake(self));
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
        producer_call call = CALL_REQUEST;
        int64_t n = self->options.queue_size;
        ad_mutex_lock(&self->mutex);
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
        unlock_and_wake(self, take_wake(self));
        if (result == 0) {
            call_producer(self, call, n);
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
    ad_mutex_lock(&self->mutex);
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
    unlock_and_wake(self, take_wake(self));
    free(copy);
    /* The producer is alive while it is inside this callback. */
    if (sends_cancel) {
        call_producer(self, CALL_CANCEL, 0);
    }
    if (is_unwanted) {
        drop_task(task);
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
        note_fault(self, &err);
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
    ad_mutex_lock(&self->mutex);
    const char *rule = broken_order_rule(self, AD_ASYNC_ON_ERROR);
    if (rule != NULL) {
        (void)refuse(self, "on_error", rule);
    } else {
        apply_event(self, AD_ASYNC_ON_ERROR);
        store_error(self, code, message, metadata);
    }
    unlock_and_wake(self, take_wake(self));
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
        ad_mutex_lock(&self->mutex);
        self->reported = *cause;
        ad_mutex_unlock(&self->mutex);
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
        ad_mutex_lock(&self->mutex);
        break_rule(self, "release", not_serialized);
        ad_mutex_unlock(&self->mutex);
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
    ad_mutex_lock(&self->mutex);
    if (self->state == AD_ASYNC_RELEASED) {
        break_rule(self, "release", broken_order_rule(self, AD_ASYNC_RELEASE));
        atomic_store(&self->callback, CALLBACK_NONE);
        unlock_and_wake(self, take_wake(self));
        return;
    }
    /* The producer may free its struct after this call, so the other threads
     * must have left it. */
    int own_calls = count_own_calls(self);
    while (self->n_calls > own_calls) {
        ad_cond_wait(&self->quiet, &self->mutex);
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
    unlock_and_wake(self, take_wake(self));
    ad_owner_unref(&self->base);
}

/* --- construction -------------------------------------------------------- */

static void
consumer_destroy(ad_owner *base)
{
    ad_async_consumer *self = (ad_async_consumer *)base;
    ad_schema_unref(self->schema);
    free(self->metadata);
    free(self->error_message);
    free(self->error_metadata);
    ad_cond_destroy(&self->quiet);
    ad_mutex_destroy(&self->mutex);
    ad_owner_unref(self->options.wake.owner);
    free(self);
}

static const ad_owner_ops consumer_ops = {.destroy = consumer_destroy,
                                          .name = "async consumer"};

ad_status
ad_async_consumer_new(const ad_async_consumer_options *options,
                      ad_async_consumer **out, ad_error *err)
{
    int64_t n = options->queue_size;
    if (n < 1 || n > AD_ASYNC_MAX_QUEUE) {
        return ad_fail(err, AD_ERR_VALUE, NULL,
                       "a few batches keep the producer busy: 5, say",
                       "queue_size is %lld, expected 1 to %d", (long long)n,
                       AD_ASYNC_MAX_QUEUE);
    }
    size_t size =
        sizeof(ad_async_consumer) + (size_t)n * sizeof(ad_async_slot);
    ad_async_consumer *self = calloc(1, size);
    if (self == NULL) {
        return ad_fail_memory(err, size);
    }
    ad_owner_init(&self->base, &consumer_ops);
    ad_owner_ref(&self->base);
    self->handler = (struct ArrowAsyncDeviceStreamHandler){
        .on_schema = on_schema,
        .on_next_task = on_next_task,
        .on_error = on_error,
        .release = handler_release,
        .private_data = self,
    };
    self->options = *options;
    ad_owner_ref(options->wake.owner);
    ad_mutex_init(&self->mutex);
    (void)ad_cond_init(&self->quiet);
    *out = self;
    return AD_OK;
}

struct ArrowAsyncDeviceStreamHandler *
ad_async_consumer_handler(ad_async_consumer *self)
{
    return &self->handler;
}

/* --- calls of the user --------------------------------------------------- */

/* Reports the state of an empty queue: pending, or the outcome. Unlocks. */
static ad_status
update_and_unlock(ad_async_consumer *self, ad_async_poll *poll, ad_error *err)
{
    ad_status status = AD_OK;
    if (self->failed_code != 0 && self->outcome == OUTCOME_END) {
        ad_error fault;
        (void)ad_fail(&fault, AD_ERR_EXCHANGE, "stream", NULL,
                      "extract_data of batch %lld of the async stream failed "
                      "with error %d (%s), and no on_error followed",
                      (long long)self->failed_batch, self->failed_code,
                      strerror(self->failed_code));
        fault.code = self->failed_code;
        note_fault(self, &fault);
    }
    *poll = AD_ASYNC_END;
    switch (self->outcome) {
        case OUTCOME_OPEN:
            self->is_waiting = true;
            *poll = AD_ASYNC_PENDING;
            break;
        case OUTCOME_END:
            break;
        case OUTCOME_ERROR:
            status = self->reported.status;
            if (err != NULL) {
                *err = self->reported;
            }
            break;
        case OUTCOME_FAULT:
            status = self->fault.status;
            if (err != NULL) {
                *err = self->fault;
            }
            break;
    }
    ad_mutex_unlock(&self->mutex);
    return status;
}

ad_status
ad_async_consumer_schema(ad_async_consumer *self, ad_schema *out,
                         ad_async_poll *poll, ad_error *err)
{
    ad_mutex_lock(&self->mutex);
    if (self->schema.node == NULL) {
        return update_and_unlock(self, poll, err);
    }
    *out = ad_schema_ref(self->schema);
    *poll = AD_ASYNC_READY;
    ad_mutex_unlock(&self->mutex);
    return AD_OK;
}

int32_t
ad_async_consumer_device_type(const ad_async_consumer *self)
{
    return self->device_type;
}

const char *
ad_async_consumer_metadata(const ad_async_consumer *self)
{
    return self->metadata;
}

void
ad_async_batch_clear(ad_async_batch *batch)
{
    ad_array_clear(&batch->array);
    free(batch->metadata);
    batch->metadata = NULL;
}

/* Takes all queued tasks. While a thread is inside cancel() the last task
 * stays in the queue, because it keeps the producer alive; that thread wakes
 * the reader afterwards. Mutex held. */
static void
take_queued(ad_async_consumer *self)
{
    int64_t n = self->count - (self->n_cancelling > 0 && self->count > 0);
    self->n_taken += n;
    self->count -= n;
    self->is_starved = self->n_received == self->n_requested;
}

static ad_async_slot
pop_taken(ad_async_consumer *self)
{
    ad_async_slot slot = self->slots[self->head];
    self->head = (self->head + 1) % self->options.queue_size;
    self->n_taken--;
    return slot;
}

/* Half a queue is requested at a time, so that the producer goes on while the
 * user works on the rest. A producer that has sent all that was requested waits:
 * the last batch of a group requests the rest, because the user will wait next,
 * and one wake-up of the producer then fills the whole queue. */
static bool
is_request_due(const ad_async_consumer *self)
{
    return self->n_owed * 2 >= self->options.queue_size ||
           (self->is_starved && self->n_taken == 0);
}

/* Requests as many batches as were popped; or sends a cancel that could not be
 * sent before. The caller holds a task that was not extracted, which keeps an
 * Arrow C++ producer alive. */
static void
tell_producer(ad_async_consumer *self)
{
    producer_call call = CALL_REQUEST;
    int64_t n = 0;
    ad_mutex_lock(&self->mutex);
    /* In any other state the producer may be freed. */
    bool is_due = self->state == AD_ASYNC_OPEN;
    if (is_due && self->wants_cancel) {
        call = CALL_CANCEL;
        is_due = !self->is_cancel_sent;
        self->is_cancel_sent = true;
    } else if (is_due) {
        n = self->n_owed;
        self->n_requested += n;
    }
    self->n_calls += is_due;
    self->n_owed = 0;
    ad_mutex_unlock(&self->mutex);
    if (is_due) {
        call_producer(self, call, n);
    }
}

/* Cancels the stream: now if the producer must be alive, otherwise in its next
 * call or at the next pop. `holds_task`: this is the user's thread, and it has
 * taken tasks out of the queue. The mutex is held since the tasks became
 * unwanted: a task that is dropped is not requested again, so a producer that
 * is not cancelled may wait forever. Unlocks. */
static void
stop_and_unlock(ad_async_consumer *self, bool holds_task)
{
    self->wants_cancel = true;
    bool is_now =
        !self->is_cancel_sent && self->state == AD_ASYNC_OPEN &&
        (holds_task || self->count > 0 || self->producer_outlives_tasks);
    if (is_now) {
        self->is_cancel_sent = true;
        self->n_cancelling++;
        self->n_calls++;
    }
    ad_mutex_unlock(&self->mutex);
    if (is_now) {
        call_producer(self, CALL_CANCEL, 0);
        ad_mutex_lock(&self->mutex);
        self->n_cancelling--;
        unlock_and_wake(self, take_wake(self));
    }
}

static void
drop_queue(ad_async_consumer *self)
{
    ad_mutex_lock(&self->mutex);
    take_queued(self);
    ad_mutex_unlock(&self->mutex);
    while (self->n_taken > 0) {
        ad_async_slot dropped = pop_taken(self);
        drop_task(&dropped.task);
        free(dropped.metadata);
    }
}

/* Extracts and imports a batch. *code is the result of extract_data. */
static ad_status
open_task(ad_async_consumer *self, struct ArrowAsyncTask *task, int64_t number,
          ad_array *out, int *code, ad_error *err)
{
    /* Zeroed, because on failure Arrow C++ returns 0 without writing it. */
    struct ArrowDeviceArray chunk;
    memset(&chunk, 0, sizeof(chunk));
    *code = task->extract_data(task, &chunk);
    if (*code != 0) {
        return AD_OK;
    }
    if (chunk.array.release == NULL) {
        return ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                       "extract_data of batch %lld of the async stream "
                       "returned 0 without an array",
                       (long long)number);
    }
    ad_status status;
    if (!ad_device_type_reaches(self->device_type, chunk.device_type)) {
        status = ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                         "batch %lld of the async stream is of device type "
                         "%d, which the producer's type %d cannot access",
                         (long long)number, (int)chunk.device_type,
                         (int)self->device_type);
    } else {
        status = ad_array_import_as(self->schema, &chunk, out, err);
        if (status != AD_OK) {
            ad_error_prefix(
                err, "batch %lld of the async stream: ", (long long)number);
        }
    }
    if (status != AD_OK) {
        chunk.array.release(&chunk.array);
    }
    return status;
}

/* Stops the stream after a batch that could not be imported. */
static void
stop_after_failure(ad_async_consumer *self, int code, int64_t number,
                   const ad_error *err)
{
    ad_mutex_lock(&self->mutex);
    self->is_broken = true;
    if (code != 0) {
        /* The producer must report the reason with on_error. */
        self->failed_code = code;
        self->failed_batch = number;
    } else {
        note_fault(self, err);
    }
    stop_and_unlock(self, self->n_taken > 0);
    drop_queue(self);
}

ad_status
ad_async_consumer_pop(ad_async_consumer *self, ad_async_batch *out,
                      ad_async_poll *poll, ad_error *err)
{
    ad_error own_err;
    if (self->n_taken == 0) {
        ad_mutex_lock(&self->mutex);
        if (self->count == 0 || self->is_broken) {
            return update_and_unlock(self, poll, err);
        }
        take_queued(self);
        self->is_waiting = self->n_taken == 0;
        ad_mutex_unlock(&self->mutex);
        if (self->n_taken == 0) {
            *poll = AD_ASYNC_PENDING;
            return AD_OK;
        }
    }
    ad_async_slot taken = pop_taken(self);
    int64_t number = ++self->n_popped;
    self->n_owed++;
    if (is_request_due(self) ||
        atomic_load_explicit(&self->wants_cancel, memory_order_relaxed)) {
        tell_producer(self);
    }
    int code;
    err = err != NULL ? err : &own_err;
    ad_status status =
        open_task(self, &taken.task, number, &out->array, &code, err);
    if (status == AD_OK && code == 0) {
        out->metadata = taken.metadata;
        *poll = AD_ASYNC_READY;
        return AD_OK;
    }
    free(taken.metadata);
    stop_after_failure(self, code, number, err);
    ad_mutex_lock(&self->mutex);
    return update_and_unlock(self, poll, err);
}

void
ad_async_consumer_cancel(ad_async_consumer *self)
{
    ad_mutex_lock(&self->mutex);
    self->is_cancelled = true;
    stop_and_unlock(self, false);
}

bool
ad_async_consumer_error(ad_async_consumer *self, ad_async_error *out)
{
    ad_mutex_lock(&self->mutex);
    bool is_there = self->has_error;
    if (is_there) {
        *out = (ad_async_error){
            .code = self->error_code,
            .message = self->error_message != NULL ? self->error_message
                                                   : self->error_text,
            .metadata = self->error_metadata,
            .is_outcome = self->outcome == OUTCOME_ERROR,
        };
    }
    ad_mutex_unlock(&self->mutex);
    return is_there;
}

void
ad_async_consumer_close(ad_async_consumer *self)
{
    ad_mutex_lock(&self->mutex);
    self->is_closed = true;
    self->is_cancelled = true;
    self->is_waiting = false;
    stop_and_unlock(self, self->n_taken > 0);
    drop_queue(self);
    ad_owner_unref(&self->base);
}

/* --- the queue ----------------------------------------------------------- */

/* Limits of the chunk size. The batches of a chunk count towards the queue
 * size. */
#define MAX_CHUNK 64
#define QUEUE_PER_CHUNK 16

static int64_t
chunk_of(int64_t queue_size)
{
    int64_t chunk = queue_size / QUEUE_PER_CHUNK;
    bool is_sound = chunk >= 1 && queue_size <= AD_ASYNC_MAX_QUEUE;
    return !is_sound ? 1 : chunk > MAX_CHUNK ? MAX_CHUNK : chunk;
}

static ad_async_batch
take_ready(ad_consumer_queue *self)
{
    self->n_ready--;
    return self->ready[self->next++];
}

static void
queue_destroy(ad_owner *base)
{
    ad_consumer_queue *self = (ad_consumer_queue *)base;
    while (self->n_ready > 0) {
        ad_async_batch batch = take_ready(self);
        ad_async_batch_clear(&batch);
    }
    if (ad_waker_is_ours(self->waker)) {
        ad_async_consumer_close(self->consumer);
    }
    ad_waker_unref(self->waker);
    free(self);
}

static const ad_owner_ops queue_ops = {.destroy = queue_destroy,
                                       .name = "consumer queue"};

ad_status
ad_consumer_queue_new(int64_t queue_size, bool outlives,
                      ad_consumer_queue **out, ad_error *err)
{
    int64_t chunk_size = chunk_of(queue_size);
    size_t nbytes = sizeof(ad_consumer_queue) +
                    (size_t)chunk_size * sizeof(ad_async_batch);
    ad_consumer_queue *self = calloc(1, nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    self->chunk_size = chunk_size;
    ad_owner_init(&self->base, &queue_ops);
    ad_status status = ad_waker_new(&self->waker, err);
    if (status == AD_OK) {
        const ad_async_consumer_options options = {
            .queue_size = queue_size - (chunk_size - 1),
            .producer_outlives_tasks = outlives,
            .wake = ad_waker_callback(self->waker)};
        status = ad_async_consumer_new(&options, &self->consumer, err);
    }
    if (status != AD_OK) {
        ad_waker_unref(self->waker);
        free(self);
        return status;
    }
    *out = self;
    return AD_OK;
}

void
ad_consumer_queue_unref(ad_consumer_queue *self)
{
    if (self != NULL) {
        ad_owner_unref(&self->base);
    }
}

void
ad_consumer_queue_cancel(ad_consumer_queue *self)
{
    if (ad_waker_is_ours(self->waker)) {
        ad_async_consumer_cancel(self->consumer);
    }
}

ad_status
ad_consumer_queue_schema(ad_consumer_queue *self, ad_schema *out,
                         bool *has_arrived, ad_error *err)
{
    ad_async_poll poll;
    AD_RETURN_IF_ERR(ad_waker_check(self->waker, err));
    AD_RETURN_IF_ERR(
        ad_async_consumer_schema(self->consumer, out, &poll, err));
    *has_arrived = poll == AD_ASYNC_READY;
    return poll != AD_ASYNC_END
               ? AD_OK
               : ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                         "the async stream ended before its schema arrived");
}

/* Pops until the chunk is full. *poll and the error are those of the first
 * pop. */
static ad_status
fill(ad_consumer_queue *self, ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_waker_check(self->waker, err));
    self->next = 0;
    while (self->n_ready < self->chunk_size) {
        ad_async_batch *batch = &self->ready[self->n_ready];
        ad_status status =
            ad_async_consumer_pop(self->consumer, batch, poll, err);
        if (status == AD_OK && *poll == AD_ASYNC_READY) {
            self->n_ready++;
        } else if (self->n_ready > 0) {
            break;
        } else if (status != AD_OK || *poll == AD_ASYNC_END ||
                   !ad_waker_clear(self->waker)) {
            return status;
        }
    }
    return AD_OK;
}

ad_status
ad_consumer_queue_pop(ad_consumer_queue *self, ad_async_batch *out,
                      ad_async_poll *poll, ad_error *err)
{
    if (self->n_ready == 0) {
        AD_RETURN_IF_ERR(fill(self, poll, err));
    }
    if (self->n_ready > 0) {
        *out = take_ready(self);
        *poll = AD_ASYNC_READY;
    }
    return AD_OK;
}
