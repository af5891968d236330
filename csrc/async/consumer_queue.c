#include "async/consumer_queue.h"

#include <stdlib.h>

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
