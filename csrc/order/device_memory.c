#include "order/device_memory.h"

#include <stdlib.h>

#include "base/wait.h"
#include "order/device_owner.h"
#include "order/deferred_release.h"
#include "device/backend.h"

typedef struct device_memory {
    ad_owner base;
    ad_context context;
    ad_stream stream; /* of the allocation */
    ad_owner *keep;
    void *data; /* NULL: not allocated yet */
} device_memory;

/* The device owner around this one guarantees that the device is done, or that
 * `stream` waits for pending work. */
static void
memory_destroy(ad_owner *base)
{
    device_memory *self = (device_memory *)base;
    int32_t type = self->context.device.type;
    if (self->data != NULL && !ad_backend_is_forked(type)) {
        void *saved = ad_wait_begin();
        ad_backend_for(type)->deallocate(self->context, self->stream,
                                         self->data);
        ad_wait_end(saved);
    }
    ad_owner_unref(self->keep);
    free(self);
}

static const ad_owner_ops memory_ops = {.destroy = memory_destroy,
                                        .name = "device memory"};

static ad_status
allocate(const struct ad_backend *backend, device_memory *self, size_t nbytes,
         ad_error *err)
{
    void *saved = ad_wait_begin();
    ad_status status = backend->allocate(self->context, self->stream, nbytes,
                                         &self->data, err);
    ad_wait_end(saved);
    if (status != AD_OK) {
        self->data = NULL;
    }
    return status;
}

/* Deferred releases hold memory that is no longer reachable. Waiting for them
 * is better than a memory error. */
static ad_status
allocate_or_drain(const struct ad_backend *backend, device_memory *self,
                  size_t nbytes, ad_error *err)
{
    ad_deferred_drain();
    ad_status status = allocate(backend, self, nbytes, err);
    if (status == AD_ERR_MEMORY && ad_deferred_is_any() &&
        ad_deferred_wait(self->context, NULL) == AD_OK) {
        status = allocate(backend, self, nbytes, err);
    }
    return status;
}

/* Where deallocation is ordered, the stream is the free stream. Elsewhere, and
 * where it is a per-thread stream, which only this thread can name, it is also
 * recorded, so that the release follows its work. Takes over `inner`. */
static ad_status
wrap(const struct ad_backend *backend, device_memory *inner, ad_owner **out,
     ad_error *err)
{
    bool is_ordered = (backend->capabilities & AD_CAP_ORDERED_DEALLOCATE) != 0;
    ad_stream_choice producer = {is_ordered, inner->stream, inner->keep};
    ad_owner *owner;
    ad_status status = ad_device_owner_new(&inner->base, inner->context,
                                           &producer, &owner, err);
    if (status != AD_OK) {
        ad_owner_unref(&inner->base);
        return status;
    }
    if (!is_ordered ||
        ad_stream_is_per_thread(inner->context.device, inner->stream)) {
        status = ad_owner_record_stream(owner, inner->context, inner->stream,
                                        inner->keep, err);
    }
    if (status != AD_OK) {
        ad_owner_unref(owner);
        return status;
    }
    *out = owner;
    return AD_OK;
}

ad_status
ad_device_memory_new(ad_context context, ad_stream stream, ad_owner *keep,
                     int64_t nbytes, void **out, ad_owner **owner,
                     ad_error *err)
{
    const struct ad_backend *backend;
    *out = NULL;
    *owner = NULL;
    if (nbytes < 0) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "%lld bytes of memory were asked for",
                       (long long)nbytes);
    }
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    if (nbytes == 0) {
        return AD_OK;
    }
    device_memory *self = malloc(sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_owner_init(&self->base, &memory_ops);
    self->context = context;
    self->stream = stream;
    self->keep = ad_owner_ref(keep);
    self->data = NULL;
    ad_status status = allocate_or_drain(backend, self, (size_t)nbytes, err);
    if (status != AD_OK) {
        ad_owner_unref(&self->base);
        return status;
    }
    void *data = self->data;
    AD_RETURN_IF_ERR(wrap(backend, self, owner, err));
    *out = data;
    return AD_OK;
}
