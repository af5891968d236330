#include "async/consumer.h"

#include <stdlib.h>
#include <string.h>

/* --- construction -------------------------------------------------------- */

static void
consumer_destroy(ad_owner *base)
{
    ad_async_consumer *self = (ad_async_consumer *)base;
    ad_schema_unref(self->schema);
    free(self->metadata);
    free(self->error_message);
    free(self->error_metadata);
    pthread_cond_destroy(&self->quiet);
    pthread_mutex_destroy(&self->mutex);
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
    ad_async_handler_init(self);
    self->options = *options;
    ad_owner_ref(options->wake.owner);
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->quiet, NULL);
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
        ad_async_note_fault(self, &fault);
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
    pthread_mutex_unlock(&self->mutex);
    return status;
}

ad_status
ad_async_consumer_schema(ad_async_consumer *self, ad_schema *out,
                         ad_async_poll *poll, ad_error *err)
{
    pthread_mutex_lock(&self->mutex);
    if (self->schema.node == NULL) {
        return update_and_unlock(self, poll, err);
    }
    *out = ad_schema_ref(self->schema);
    *poll = AD_ASYNC_READY;
    pthread_mutex_unlock(&self->mutex);
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
    ad_async_call call = CALL_REQUEST;
    int64_t n = 0;
    pthread_mutex_lock(&self->mutex);
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
    pthread_mutex_unlock(&self->mutex);
    if (is_due) {
        ad_async_call_producer(self, call, n);
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
    pthread_mutex_unlock(&self->mutex);
    if (is_now) {
        ad_async_call_producer(self, CALL_CANCEL, 0);
        pthread_mutex_lock(&self->mutex);
        self->n_cancelling--;
        ad_async_unlock_and_wake(self, ad_async_take_wake(self));
    }
}

void
ad_async_drop_task(struct ArrowAsyncTask *task)
{
    struct ArrowDeviceArray unwanted;
    memset(&unwanted, 0, sizeof(unwanted));
    if (task->extract_data(task, &unwanted) == 0 &&
        unwanted.array.release != NULL) {
        unwanted.array.release(&unwanted.array);
    }
}

static void
drop_queue(ad_async_consumer *self)
{
    pthread_mutex_lock(&self->mutex);
    take_queued(self);
    pthread_mutex_unlock(&self->mutex);
    while (self->n_taken > 0) {
        ad_async_slot dropped = pop_taken(self);
        ad_async_drop_task(&dropped.task);
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
    pthread_mutex_lock(&self->mutex);
    self->is_broken = true;
    if (code != 0) {
        /* The producer must report the reason with on_error. */
        self->failed_code = code;
        self->failed_batch = number;
    } else {
        ad_async_note_fault(self, err);
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
        pthread_mutex_lock(&self->mutex);
        if (self->count == 0 || self->is_broken) {
            return update_and_unlock(self, poll, err);
        }
        take_queued(self);
        self->is_waiting = self->n_taken == 0;
        pthread_mutex_unlock(&self->mutex);
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
    pthread_mutex_lock(&self->mutex);
    return update_and_unlock(self, poll, err);
}

void
ad_async_consumer_cancel(ad_async_consumer *self)
{
    pthread_mutex_lock(&self->mutex);
    self->is_cancelled = true;
    stop_and_unlock(self, false);
}

bool
ad_async_consumer_error(ad_async_consumer *self, ad_async_error *out)
{
    pthread_mutex_lock(&self->mutex);
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
    pthread_mutex_unlock(&self->mutex);
    return is_there;
}

void
ad_async_consumer_close(ad_async_consumer *self)
{
    pthread_mutex_lock(&self->mutex);
    self->is_closed = true;
    self->is_cancelled = true;
    self->is_waiting = false;
    stop_and_unlock(self, self->n_taken > 0);
    drop_queue(self);
    ad_owner_unref(&self->base);
}
