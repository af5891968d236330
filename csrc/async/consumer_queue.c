#include "async/consumer_queue.h"

#include <stdlib.h>

static void
inbox_destroy(ad_owner *base)
{
    ad_async_inbox *self = (ad_async_inbox *)base;
    if (ad_waker_is_ours(self->waker)) {
        ad_async_consumer_close(self->consumer);
    }
    ad_waker_unref(self->waker);
    free(self);
}

ad_status
ad_async_inbox_new(int64_t queue_size, bool outlives, ad_async_inbox **out,
                   ad_error *err)
{
    ad_async_inbox *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_owner_init(&self->base, inbox_destroy);
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
ad_async_inbox_unref(ad_async_inbox *self)
{
    if (self != NULL) {
        ad_owner_unref(&self->base);
    }
}

void
ad_async_inbox_cancel(ad_async_inbox *self)
{
    if (ad_waker_is_ours(self->waker)) {
        ad_async_consumer_cancel(self->consumer);
    }
}

ad_status
ad_async_inbox_schema(ad_async_inbox *self, ad_schema *out,
                      ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_waker_check(self->waker, err));
    return ad_async_consumer_schema(self->consumer, out, poll, err);
}

/* --- bursts --------------------------------------------------------------------- */

ad_status
ad_async_burst_init(ad_async_burst *self, int64_t size, ad_error *err)
{
    *self = (ad_async_burst){.size = size};
    self->batches = malloc((size_t)size * sizeof(self->batches[0]));
    return self->batches != NULL
               ? AD_OK
               : ad_fail_memory(err, (size_t)size * sizeof(self->batches[0]));
}

void
ad_async_burst_clear(ad_async_burst *self)
{
    while (self->n > 0) {
        ad_async_batch batch = ad_async_burst_take(self);
        ad_async_batch_clear(&batch);
    }
    free(self->batches);
    self->batches = NULL;
}

ad_async_batch
ad_async_burst_take(ad_async_burst *self)
{
    self->n--;
    return self->batches[self->next++];
}

ad_status
ad_async_inbox_fill(ad_async_inbox *self, ad_async_burst *burst,
                    ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_waker_check(self->waker, err));
    burst->next = 0;
    while (burst->n < burst->size) {
        ad_async_batch *batch = &burst->batches[burst->n];
        ad_status status =
            ad_async_consumer_pop(self->consumer, batch, poll, err);
        if (status == AD_OK && *poll == AD_ASYNC_READY) {
            burst->n++;
        } else if (burst->n > 0) {
            break;
        } else if (status != AD_OK || *poll == AD_ASYNC_END ||
                   !ad_waker_clear(self->waker)) {
            return status;
        }
    }
    *poll = AD_ASYNC_READY;
    return AD_OK;
}
