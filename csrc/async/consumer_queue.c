#include "async/consumer_queue.h"

#include <stdlib.h>

static void
queue_destroy(ad_owner *base)
{
    ad_consumer_queue *self = (ad_consumer_queue *)base;
    if (ad_waker_is_ours(self->waker)) {
        ad_async_consumer_close(self->consumer);
    }
    ad_waker_unref(self->waker);
    free(self);
}

ad_status
ad_consumer_queue_new(int64_t queue_size, bool outlives,
                      ad_consumer_queue **out, ad_error *err)
{
    ad_consumer_queue *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_owner_init(&self->base, queue_destroy);
    ad_status status = ad_waker_new(&self->waker, err);
    if (status == AD_OK) {
        const ad_async_consumer_options options = {
            .queue_size = queue_size,
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
                         ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_waker_check(self->waker, err));
    return ad_async_consumer_schema(self->consumer, out, poll, err);
}

/* --- chunks -------------------------------------------------------------- */

ad_status
ad_async_chunk_init(ad_async_chunk *self, int64_t size, ad_error *err)
{
    *self = (ad_async_chunk){.size = size};
    self->batches = malloc((size_t)size * sizeof(self->batches[0]));
    return self->batches != NULL
               ? AD_OK
               : ad_fail_memory(err, (size_t)size * sizeof(self->batches[0]));
}

void
ad_async_chunk_clear(ad_async_chunk *self)
{
    while (self->n > 0) {
        ad_async_batch batch = ad_async_chunk_take(self);
        ad_async_batch_clear(&batch);
    }
    free(self->batches);
    self->batches = NULL;
}

ad_async_batch
ad_async_chunk_take(ad_async_chunk *self)
{
    self->n--;
    return self->batches[self->next++];
}

ad_status
ad_consumer_queue_fill(ad_consumer_queue *self, ad_async_chunk *chunk,
                       ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_waker_check(self->waker, err));
    chunk->next = 0;
    while (chunk->n < chunk->size) {
        ad_async_batch *batch = &chunk->batches[chunk->n];
        ad_status status =
            ad_async_consumer_pop(self->consumer, batch, poll, err);
        if (status == AD_OK && *poll == AD_ASYNC_READY) {
            chunk->n++;
        } else if (chunk->n > 0) {
            break;
        } else if (status != AD_OK || *poll == AD_ASYNC_END ||
                   !ad_waker_clear(self->waker)) {
            return status;
        }
    }
    *poll = AD_ASYNC_READY;
    return AD_OK;
}
