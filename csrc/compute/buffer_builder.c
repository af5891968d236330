#include "compute/buffer_builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/owner.h"
#include "device/backend.h"

ad_builder
ad_builder_on_host(ad_device device)
{
    const ad_context host = {.device = AD_CPU};
    return (ad_builder){
        .session = {.source = host, .target = host, .memory = host},
        .is_open = true,
        .needs_runtime = device.type != ARROW_DEVICE_CPU,
        .device = device,
    };
}

/* The runtime allocates on a stream, which the host's writes do not need. */
static ad_status
open_runtime(ad_builder *self, ad_error *err)
{
    ad_session *session = &self->session;
    const struct ad_backend *backend;
    AD_RETURN_IF_ERR(ad_backend_open(self->device.type, &backend, err));
    AD_RETURN_IF_ERR(
        backend->primary_context(self->device, &session->memory, err));
    AD_RETURN_IF_ERR(
        ad_stream_own(session->memory, AD_USE_WORK, &session->on, err));
    self->needs_runtime = false;
    return AD_OK;
}

/* Keeps another owner until the end. Steals the reference, also on failure. */
static ad_status
keep(ad_builder *self, ad_owner *owner, ad_error *err)
{
    ad_status status = ad_list_reserve(&self->allocations, 1, err);
    if (status != AD_OK) {
        ad_owner_unref(owner);
        return status;
    }
    self->allocations.items[self->allocations.n++] = owner;
    return AD_OK;
}

ad_status
ad_builder_allocate(ad_builder *self, int64_t nbytes, void **out,
                    ad_error *err)
{
    ad_owner *owner;
    *out = NULL;
    if (self->needs_runtime) {
        AD_RETURN_IF_ERR(open_runtime(self, err));
    }
    AD_RETURN_IF_ERR(
        ad_session_allocate(&self->session, nbytes, out, &owner, err));
    self->nbytes += nbytes;
    return keep(self, owner, err);
}

ad_status
ad_builder_bitmap_of(ad_builder *self, const void *source, int64_t from,
                     int64_t length, void **out, ad_error *err)
{
    int64_t nbytes = ad_padded(ad_bitmap_bytes(length));
    const ad_launch launch = {
        .kernel = AD_KERNEL_COPY_BITS,
        .bit_offset = from,
        .length = length,
        .numbers = {0, AD_BITS_COPY, nbytes * 8 - length},
    };
    AD_RETURN_IF_ERR(ad_builder_allocate(self, nbytes, out, err));
    return ad_session_kernel(&self->session, source, *out, launch, err);
}

static ad_status
copy_from(ad_builder *self, ad_span source, void *target, int64_t to,
          int64_t nbytes, ad_error *err)
{
    const ad_block_copy copy = {
        .target = ad_span_at(self->session.target, target, to),
        .source = source,
        .width = (size_t)nbytes,
        .height = 1,
    };
    return ad_session_copy(&self->session, &copy, err);
}

ad_status
ad_builder_bytes(ad_builder *self, const void *source, int64_t from,
                 void *target, int64_t to, int64_t nbytes, ad_error *err)
{
    return copy_from(self, ad_span_at(self->session.source, source, from),
                     target, to, nbytes, err);
}

ad_status
ad_builder_read(ad_builder *self, const void *source, int64_t from,
                int64_t nbytes, void *out, ad_error *err)
{
    if (self->session.backend != NULL) {
        return ad_session_read(&self->session, NULL, source, (uint64_t)from,
                               (size_t)nbytes, out, err);
    }
    memcpy(out, (const char *)source + from, (size_t)nbytes);
    return AD_OK;
}

ad_status
ad_builder_share(ad_builder *self, ad_owner *owner, ad_error *err)
{
    if (self->session.backend != NULL) {
        self->session.progress = AD_SESSION_BEGUN;
    }
    return keep(self, ad_owner_ref(owner), err);
}

ad_status
ad_builder_owner(const ad_builder *self, ad_owner **out, ad_error *err)
{
    return ad_owner_group_new(self->allocations.items, self->allocations.n,
                              out, err);
}

ad_status
ad_builder_finish(ad_builder *self, ad_sync **out, ad_error *err)
{
    *out = NULL;
    return self->is_open ? ad_session_finish(&self->session, NULL, out, err)
                         : AD_OK;
}

void
ad_builder_clear(ad_builder *self, bool failed, ad_owner *source)
{
    if (failed && self->is_open) {
        ad_session_abandon(&self->session, source, NULL, NULL);
    }
    for (size_t i = 0; i < self->allocations.n; i++) {
        if (failed && self->is_open) {
            ad_session_abandon(&self->session, NULL, NULL,
                               self->allocations.items[i]);
        }
        ad_owner_unref(self->allocations.items[i]);
    }
    free(self->allocations.items);
}
