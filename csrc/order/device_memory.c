#include "order/device_memory.h"

#include <stdlib.h>

#include "base/wait.h"
#include "order/deferred_release.h"
#include "order/device_owner.h"
#include "device/backend.h"

bool
ad_device_memory_free(ad_context context, ad_stream stream, void *data,
                      size_t nbytes)
{
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    const unsigned int n_refused = backend->n_refused();
    void *saved = ad_wait_begin();
    backend->deallocate(context, stream, data, nbytes);
    ad_wait_end(saved);
    return backend->n_refused() == n_refused;
}

/* The device owner around this one guarantees that the device is done, or that
 * `stream` waits for pending work. */
static void
memory_destroy(ad_owner *base)
{
    ad_device_memory *self = (ad_device_memory *)base;
    if (self->data != NULL &&
        !ad_backend_is_forked(self->context.device.type)) {
        if (!ad_device_memory_free(self->context, self->on.stream, self->data,
                                   self->nbytes)) {
            ad_release_elsewhere(base, self->context);
            return;
        }
        ad_stream_note_free(&self->on);
    }
    ad_owner_unref(self->on.keep);
    free(self);
}

static ad_extent
memory_extent(const ad_owner *base)
{
    const ad_device_memory *self = (const ad_device_memory *)base;
    return (ad_extent){self->data, self->nbytes};
}

static const ad_owner_ops memory_ops = {
    .destroy = memory_destroy,
    .extent = memory_extent,
    .name = "device memory",
};

static ad_status
allocate(const struct ad_backend *backend, ad_device_memory *self,
         ad_error *err)
{
    void *saved = ad_wait_begin();
    ad_status status = backend->allocate(self->context, self->on.stream,
                                         self->nbytes, &self->data, err);
    ad_wait_end(saved);
    if (status != AD_OK) {
        self->data = NULL;
    }
    return status;
}

/* Deferred releases, and frees on other streams, hold memory that is no longer
 * reachable. Waiting for them is better than a memory error. */
static bool
wait_for_memory(ad_context context)
{
    bool is_any =
        ad_deferred_is_any() && ad_deferred_wait(context, NULL) == AD_OK;
    return ad_stream_wait_for_frees(context) || is_any;
}

static ad_status
allocate_or_drain(const struct ad_backend *backend, ad_device_memory *self,
                  ad_error *err)
{
    ad_deferred_drain();
    ad_status status = allocate(backend, self, err);
    if (status == AD_ERR_MEMORY && wait_for_memory(self->context)) {
        status = allocate(backend, self, err);
    }
    return status;
}

ad_status
ad_device_memory_new(ad_context context, const ad_stream_ref *on,
                     int64_t nbytes, void **out, ad_owner **owner,
                     ad_error *err)
{
    const struct ad_backend *backend;
    ad_owner *inner;
    ad_owner *outer = NULL;
    *out = NULL;
    *owner = NULL;
    if (nbytes < 0) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "a size of %lld was asked for, expected 0 or more "
                       "bytes",
                       (long long)nbytes);
    }
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    if (nbytes == 0) {
        if (!(ad_device_traits(context.device.type) & AD_ALLOCATIONS)) {
            return AD_OK;
        }
        nbytes = 1;
    }
    bool is_ordered =
        (backend->capabilities & AD_CAP_ORDERED_DEALLOCATE) != 0 &&
        context.device.type == backend->device_types[0];
    AD_RETURN_IF_ERR(
        ad_device_owner_alloc(sizeof(ad_device_memory), &memory_ops, context,
                              is_ordered ? on : NULL, &inner, &outer, err));
    ad_device_memory *self = (ad_device_memory *)inner;
    self->context = context;
    self->on = *on;
    (void)ad_owner_ref(on->keep);
    self->data = NULL;
    self->nbytes = (size_t)nbytes;
    ad_status status = allocate_or_drain(backend, self, err);
    if (status == AD_OK) {
        ad_device_owner_set_memory(outer, self);
    }
    /* A free in order follows the work on the stream, except on a per-thread
     * stream, which only this thread can name. */
    if (status == AD_OK && (!is_ordered || on->kind == AD_REF_PER_THREAD)) {
        status = ad_owner_record_stream(outer, on, err);
    }
    if (status != AD_OK) {
        ad_owner_unref(outer);
        return status;
    }
    *out = self->data;
    *owner = outer;
    return AD_OK;
}
