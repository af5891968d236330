#include "core/making.h"

#include <stdlib.h>

#include "core/bits.h"
#include "core/memory.h"
#include "core/owner_group.h"

ad_status
ad_making_keep(ad_making *self, ad_owner *owner, ad_error *err)
{
    if (self->n_made == self->capacity) {
        size_t capacity = 2 * self->capacity + 4;
        ad_owner **made = realloc(self->made, capacity * sizeof(*made));
        if (made == NULL) {
            ad_owner_unref(owner);
            return ad_fail_memory(err, capacity * sizeof(*made));
        }
        self->made = made;
        self->capacity = capacity;
    }
    self->made[self->n_made++] = owner;
    return AD_OK;
}

ad_status
ad_making_allocate(ad_making *self, int64_t nbytes, void **out, ad_error *err)
{
    ad_owner *owner;
    AD_RETURN_IF_ERR(
        ad_route_allocate(&self->route, nbytes, out, &owner, err));
    return ad_making_keep(self, owner, err);
}

ad_status
ad_making_bitmap(ad_making *self, int64_t length, void **out, ad_error *err)
{
    int64_t nbytes =
        ((length + 7) / 8 + AD_ALIGNMENT - 1) / AD_ALIGNMENT * AD_ALIGNMENT;
    AD_RETURN_IF_ERR(ad_making_allocate(self, nbytes, out, err));
    return ad_making_bits(self, NULL, 0, *out, length, nbytes * 8 - length,
                          AD_BITS_ZEROS, err);
}

ad_status
ad_making_bits(ad_making *self, const void *source, int64_t from, void *target,
               int64_t to, int64_t n, ad_bits_operation how, ad_error *err)
{
    return ad_copy_bits(&self->route, source, from, target, to, n, how, err);
}

ad_status
ad_making_bytes(ad_making *self, const void *source, int64_t from,
                void *target, int64_t to, int64_t nbytes, ad_error *err)
{
    const ad_block_copy copy = {
        .target = ad_span_at(self->route.target, target, to),
        .source = ad_span_at(self->route.source, source, from),
        .width = (size_t)nbytes,
        .height = 1,
    };
    return ad_route_copy(&self->route, &copy, err);
}

ad_status
ad_making_owner(const ad_making *self, ad_owner *first, ad_owner *second,
                ad_owner **out, ad_error *err)
{
    size_t n = self->n_made + 2;
    ad_owner **owners = malloc(n * sizeof(*owners));
    if (owners == NULL) {
        return ad_fail_memory(err, n * sizeof(*owners));
    }
    owners[0] = first;
    owners[1] = second;
    for (size_t i = 0; i < self->n_made; i++) {
        owners[2 + i] = self->made[i];
    }
    ad_status status = ad_owner_group_new(owners, n, out, err);
    free(owners);
    return status;
}

ad_status
ad_making_finish(ad_making *self, ad_sync **out, ad_error *err)
{
    *out = NULL;
    return self->is_open ? ad_route_finish(&self->route, NULL, out, err)
                         : AD_OK;
}

void
ad_making_clear(ad_making *self, bool failed, ad_owner *source)
{
    if (failed && self->is_open) {
        ad_route_abandon(&self->route, source, NULL, NULL);
    }
    for (size_t i = 0; i < self->n_made; i++) {
        if (failed && self->is_open) {
            ad_route_abandon(&self->route, NULL, NULL, self->made[i]);
        }
        ad_owner_unref(self->made[i]);
    }
    free(self->made);
}
