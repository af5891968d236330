#include "copy/staging.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "order/deferred_release.h"
#include "order/device_memory.h"

static atomic_size_t n_pinned; /* bytes in use */

/* The type of the runtime's pinned memory, or 0. */
static int32_t
pinned_type(const struct ad_backend *backend)
{
    const uint32_t wanted = AD_HOST_READS | AD_NO_STREAMS;
    const int32_t *type = backend->device_types;
    while (*type != 0 && (ad_device_traits(*type) & wanted) != wanted) {
        type++;
    }
    return *type;
}

static bool
allocate_pinned(ad_staging_buffer *self, ad_context context)
{
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    self->context = context;
    self->context.device.type = pinned_type(backend);
    if ((backend->capabilities & AD_CAP_STAGES) == 0 ||
        self->context.device.type == 0 || self->nbytes > AD_STAGING_MAX) {
        return false;
    }
    size_t before = atomic_fetch_add(&n_pinned, self->nbytes);
    bool is_there = false;
    if (before <= AD_STAGING_MAX - self->nbytes) {
        void *saved = ad_wait_begin();
        is_there = backend->allocate(self->context, (ad_stream){0},
                                     self->nbytes, &self->data, NULL) == AD_OK;
        ad_wait_end(saved);
    }
    if (!is_there) {
        atomic_fetch_sub(&n_pinned, self->nbytes);
    }
    return is_there;
}

/* False where the runtime permits no call on this thread. */
static bool
free_pinned(const ad_staging_buffer *self)
{
    if (!ad_backend_is_forked(self->context.device.type) &&
        !ad_device_memory_free(self->context, (ad_stream){0}, self->data,
                               self->nbytes)) {
        return false;
    }
    atomic_fetch_sub(&n_pinned, self->nbytes);
    return true;
}

static void
destroy(ad_owner *base)
{
    for (ad_staging_buffer *self = (ad_staging_buffer *)base; self != NULL;) {
        ad_staging_buffer *next = self->next;
        if (ad_device_equal(self->context.device, AD_CPU)) {
            free(self->data);
        } else if (!free_pinned(self)) {
            ad_release_elsewhere(&self->base, self->context);
            return;
        }
        free(self);
        self = next;
    }
}

static const ad_owner_ops staging_ops = {.destroy = destroy,
                                         .name = "staging buffer"};

/* NULL where there is no memory. */
static ad_staging_buffer *
add(ad_staging_buffer **newest, ad_context context, size_t nbytes,
    bool may_be_pinned, bool may_be_pageable)
{
    ad_staging_buffer *self = malloc(sizeof(*self));
    if (self == NULL) {
        return NULL;
    }
    *self = (ad_staging_buffer){.next = *newest, .nbytes = nbytes};
    if (!may_be_pinned || !allocate_pinned(self, context)) {
        self->context = (ad_context){.device = AD_CPU};
        self->data = may_be_pageable ? malloc(nbytes) : NULL;
    }
    if (self->data == NULL) {
        free(self);
        return NULL;
    }
    ad_owner_init(&self->base, &staging_ops);
    *newest = self;
    return self;
}

void *
ad_staging_pinned(ad_staging_buffer **newest, ad_context context,
                  size_t nbytes)
{
    ad_staging_buffer *added = add(newest, context, nbytes, true, false);
    return added != NULL ? added->data : NULL;
}

static void
read_rows(const ad_staging_buffer *self, ad_block_copy *copy)
{
    const char *source = (const char *)copy->source.data + copy->source.offset;
    for (size_t i = 0; i < copy->height; i++) {
        memcpy((char *)self->data + i * copy->width,
               source + i * copy->source_pitch, copy->width);
    }
    copy->source.data = self->data;
    copy->source.offset = 0;
    copy->source_pitch = copy->width;
}

ad_status
ad_staging_add(ad_staging_buffer **newest, ad_context context,
               ad_block_copy *copy, bool is_optional, ad_error *err)
{
    const size_t nbytes = copy->width * copy->height;
    const ad_staging_buffer *added =
        add(newest, context, nbytes, nbytes > AD_STAGED_AT_ONCE, !is_optional);
    if (added == NULL) {
        return is_optional ? AD_OK : ad_fail_memory(err, nbytes);
    }
    read_rows(added, copy);
    return AD_OK;
}
