#include "copy/staging.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"

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
allocate_pinned(ad_staging_copy *self, ad_context context)
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

static void
free_pinned(const ad_staging_copy *self)
{
    const int32_t type = self->context.device.type;
    if (!ad_backend_is_forked(type)) {
        void *saved = ad_wait_begin();
        ad_backend_for(type)->deallocate(self->context, (ad_stream){0},
                                         self->data, self->nbytes);
        ad_wait_end(saved);
    }
    atomic_fetch_sub(&n_pinned, self->nbytes);
}

static void
destroy(ad_owner *base)
{
    for (ad_staging_copy *self = (ad_staging_copy *)base; self != NULL;) {
        ad_staging_copy *next = self->next;
        if (ad_device_equal(self->context.device, AD_CPU)) {
            free(self->data);
        } else {
            free_pinned(self);
        }
        free(self);
        self = next;
    }
}

static const ad_owner_ops staging_copy_ops = {.destroy = destroy,
                                              .name = "staging copy"};

static bool
allocate(ad_staging_copy *self, ad_context context, bool is_optional)
{
    if (self->nbytes > AD_STAGED_AT_ONCE && allocate_pinned(self, context)) {
        return true;
    }
    self->context = (ad_context){.device = AD_CPU};
    self->data = is_optional ? NULL : malloc(self->nbytes);
    return self->data != NULL;
}

void *
ad_staging_block(ad_staging_copy **newest, ad_context context, size_t nbytes)
{
    ad_staging_copy *added = malloc(sizeof(*added));
    if (added == NULL) {
        return NULL;
    }
    added->nbytes = nbytes;
    if (!allocate_pinned(added, context)) {
        free(added);
        return NULL;
    }
    ad_owner_init(&added->base, &staging_copy_ops);
    added->next = *newest;
    *newest = added;
    return added->data;
}

static void
read_rows(const ad_staging_copy *self, ad_block_copy *copy)
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
ad_staging_add(ad_staging_copy **newest, ad_context context,
               ad_block_copy *copy, bool is_optional, ad_error *err)
{
    const size_t nbytes = copy->width * copy->height;
    ad_staging_copy *added = malloc(sizeof(*added));
    if (added == NULL) {
        return ad_fail_memory(err, sizeof(*added));
    }
    added->nbytes = nbytes;
    if (!allocate(added, context, is_optional)) {
        free(added);
        return is_optional ? AD_OK : ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&added->base, &staging_copy_ops);
    read_rows(added, copy);
    added->next = *newest;
    *newest = added;
    return AD_OK;
}
