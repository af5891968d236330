/* ad_array_stream_to(): copies to a device, with prefetch. */
#include <inttypes.h>
#include <stdlib.h>

#include "stream/adapters.h"
#include "stream/upstream.h"
#include "copy/copy.h"

typedef struct transfer {
    ad_upstream upstream;
    ad_device target;
    ad_stream_ref choice;  /* owns a reference on `keep` */
    ad_sync *given;        /* of the last copy that was returned */
    size_t room;           /* capacity of `moves` */
    size_t first;          /* the next move to return */
    size_t n;              /* moves that have begun */
    ad_array_move moves[]; /* a ring buffer */
} transfer;

static void
set_given(transfer *self, ad_sync *steal)
{
    ad_sync_unref(self->given);
    self->given = steal;
}

static ad_status
begin_next(transfer *self, ad_error *err)
{
    ad_array batch;
    /* A consumer that only enqueues work may be far ahead of the device. The
     * copies finish in order: once this one has finished, at most `room`
     * copies are pending. */
    AD_RETURN_IF_ERR(ad_sync_wait(self->given, "a copy ahead", err));
    set_given(self, NULL);
    if (!ad_upstream_next(&self->upstream, &batch)) {
        return AD_OK;
    }
    size_t last = (self->first + self->n) % self->room;
    ad_status status = ad_array_move_begin(
        &batch, ad_array_stream_is_borrowed(self->upstream.base.upstream),
        self->target, &self->choice, &self->moves[last], err);
    ad_array_clear(&batch);
    self->n += status == AD_OK;
    return status;
}

/* Begins moves until the ring is full. A failure is reported after the moves
 * that have begun. */
static void
prefetch(transfer *self)
{
    ad_error err;
    while (self->n < self->room && !self->upstream.is_over) {
        if (begin_next(self, &err) != AD_OK) {
            ad_upstream_fail(&self->upstream, &err);
        }
    }
}

static ad_status
transfer_next(ad_batch_source *base, ad_array *out, bool *is_end,
              ad_error *err)
{
    transfer *self = (transfer *)base;
    prefetch(self);
    *is_end = false;
    if (self->n == 0 || ad_upstream_is_interrupted(&self->upstream)) {
        ad_status status = ad_upstream_finish(&self->upstream, err);
        *is_end = status == AD_OK;
        return status;
    }
    ad_array_move *move = &self->moves[self->first];
    set_given(self,
              move->is_written ? ad_sync_ref(move->array.memory.sync) : NULL);
    self->first = (self->first + 1) % self->room;
    self->n--;
    return ad_array_move_end(move, out, err);
}

static void
transfer_destroy(ad_batch_source *base)
{
    transfer *self = (transfer *)base;
    for (size_t i = 0; i < self->n; i++) {
        ad_array_move_drop(&self->moves[(self->first + i) % self->room]);
    }
    ad_upstream_clear(&self->upstream);
    ad_sync_unref(self->given);
    ad_owner_unref(self->choice.keep);
    free(self);
}

ad_status
ad_array_stream_to(ad_array_stream *source, ad_device target, int64_t prefetch,
                   const ad_stream_ref *choice, ad_array_stream **out,
                   ad_error *err)
{
    if (prefetch < 0 || prefetch > AD_MAX_PREFETCH) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "prefetch must be from 0 to %d, found %" PRId64,
                       AD_MAX_PREFETCH, prefetch);
    }
    size_t room = (size_t)prefetch + 1;
    size_t nbytes = sizeof(transfer) + room * sizeof(ad_array_move);
    transfer *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    self->upstream.base = (ad_batch_source){
        .next = transfer_next,
        .last_error = ad_upstream_last_error,
        .destroy = transfer_destroy,
    };
    ad_upstream_init(&self->upstream, source);
    self->target = target;
    self->choice = *choice;
    ad_owner_ref(choice->keep);
    self->given = NULL;
    self->room = room;
    self->first = self->n = 0;
    return ad_upstream_open(&self->upstream, ad_array_stream_schema(source),
                            target.type, out, err);
}
