/* Asynchronous moves: begun now, ended or dropped later. */
#include "order/deferred_release.h"
#include "copy/copy.h"
#include "copy/session.h"

ad_move
ad_move_for(ad_device found, ad_device target)
{
    if (ad_device_equal(found, target)) {
        return AD_MOVE_NONE;
    }
    bool is_host =
        ad_device_equal(target, AD_CPU) && ad_host_accessible(found);
    return is_host || ad_device_is_another_name(found, target) ? AD_MOVE_ALIAS
                                                               : AD_MOVE_COPY;
}

ad_status
ad_array_move_begin(const ad_array *array, bool is_borrowed, ad_device target,
                    const ad_stream_choice *stream, ad_array_move *out,
                    ad_error *err)
{
    ad_move how = ad_move_for(array->device, target);
    out->is_written = how == AD_MOVE_COPY;
    out->is_awaited = how != AD_MOVE_NONE && ad_host_accessible(target);
    if (how == AD_MOVE_COPY) {
        ad_stream_hide_current();
        ad_status status = ad_array_copy_non_blocking(
            array, is_borrowed, target, stream, &out->array, err);
        ad_stream_show_current();
        return status;
    }
    ad_array_share(array, &out->array);
    out->array.device = target;
    return AD_OK;
}

/* Host memory does not track its writers, device memory does: the owner is
 * released after the write. */
void
ad_array_move_drop(ad_array_move *self)
{
    ad_sync *sync = self->array.sync;
    if (self->is_written && self->is_awaited && !ad_sync_is_done(sync)) {
        ad_sync *const syncs[] = {ad_sync_ref(sync)};
        ad_defer_release(ad_owner_ref(self->array.owner), sync->context, syncs,
                         1);
    }
    ad_array_clear(&self->array);
}

ad_status
ad_array_move_end(ad_array_move *self, ad_array *out, ad_error *err)
{
    if (self->is_awaited) {
        ad_status status = ad_sync_wait(self->array.sync, "host memory", err);
        if (status != AD_OK) {
            ad_array_move_drop(self);
            return status;
        }
        ad_sync_unref(self->array.sync);
        self->array.sync = NULL;
    }
    *out = self->array;
    self->array = (ad_array){0};
    return AD_OK;
}
