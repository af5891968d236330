/* ad_array_stream_rechunk(): changes the length of the batches. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/list.h"
#include "compute/concat.h"
#include "stream/adapters.h"
#include "stream/upstream.h"

typedef struct rechunk {
    ad_upstream upstream;
    ad_schema schema;
    int64_t rows;
    ad_array rest; /* unused rows of the last batch read; or node NULL */
    AD_LIST(ad_array) parts; /* of the batch under construction */
    int64_t n_rows;          /* of `parts` */
    bool has_rows;           /* a batch with rows was read */
    ad_array empty;          /* first empty batch before that; or node NULL */
} rechunk;

/* Reads batches until `rest` has rows; false at the end. */
static bool
fill_rest(rechunk *self)
{
    while (self->rest.node == NULL) {
        ad_array batch;
        if (!ad_upstream_next(&self->upstream, &batch)) {
            return false;
        }
        if (batch.length > 0) {
            self->has_rows = true;
            self->rest = batch;
            ad_array_clear(&self->empty);
        } else if (!self->has_rows && self->empty.node == NULL) {
            self->empty = batch;
        } else {
            ad_array_clear(&batch);
        }
    }
    return true;
}

/* Moves as many rows of `rest` as fit into a new part. */
static ad_status
add_part(rechunk *self, ad_error *err)
{
    int64_t missing = self->rows - self->n_rows;
    ad_array *part;
    AD_RETURN_IF_ERR(ad_list_reserve(&self->parts, 1, err));
    part = &self->parts.items[self->parts.n];
    if (self->rest.length <= missing) {
        *part = self->rest;
        self->rest = (ad_array){0};
    } else {
        ad_array rest;
        AD_RETURN_IF_ERR(ad_array_slice(&self->rest, 0, missing, part, err));
        ad_status status = ad_array_slice(
            &self->rest, missing, self->rest.length - missing, &rest, err);
        if (status != AD_OK) {
            ad_array_clear(part);
            return status;
        }
        ad_array_clear(&self->rest);
        self->rest = rest;
    }
    self->parts.n++;
    self->n_rows += part->length;
    return AD_OK;
}

static void
clear_parts(rechunk *self)
{
    for (size_t i = 0; i < self->parts.n; i++) {
        ad_array_clear(&self->parts.items[i]);
    }
    self->parts.n = 0;
    self->n_rows = 0;
}

/* Joins the parts into one batch. */
static ad_status
join(rechunk *self, ad_array *out, ad_error *err)
{
    ad_status status = AD_OK;
    if (self->parts.n == 1) {
        *out = self->parts.items[0];
        self->parts.items[0] = (ad_array){0};
    } else {
        status = ad_concat(self->schema, self->parts.items, self->parts.n, out,
                           err);
    }
    clear_parts(self);
    return status;
}

static ad_status
rechunk_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *err)
{
    rechunk *self = (rechunk *)base;
    *is_end = false;
    while (self->n_rows < self->rows && fill_rest(self)) {
        AD_RETURN_IF_ERR(add_part(self, err));
    }
    if (ad_upstream_is_interrupted(&self->upstream)) {
        return ad_upstream_finish(&self->upstream, err);
    }
    if (self->parts.n > 0) {
        return join(self, out, err);
    }
    if (self->empty.node != NULL) {
        self->has_rows = true; /* so that no second empty batch follows */
        *out = self->empty;
        self->empty = (ad_array){0};
        return AD_OK;
    }
    ad_status status = ad_upstream_finish(&self->upstream, err);
    *is_end = status == AD_OK;
    return status;
}

static void
rechunk_destroy(ad_batch_source *base)
{
    rechunk *self = (rechunk *)base;
    clear_parts(self);
    free(self->parts.items);
    ad_array_clear(&self->rest);
    ad_array_clear(&self->empty);
    ad_upstream_clear(&self->upstream);
    ad_schema_unref(self->schema);
    free(self);
}

ad_status
ad_array_stream_rechunk(ad_array_stream *source, int64_t rows,
                        ad_array_stream **out, ad_error *err)
{
    if (rows < 1) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "rows must be at least 1, found %" PRId64, rows);
    }
    rechunk *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    self->upstream.base = (ad_batch_source){
        .next = rechunk_next,
        .last_error = ad_upstream_last_error,
        .destroy = rechunk_destroy,
    };
    ad_upstream_init(&self->upstream, source);
    self->schema = ad_schema_ref(ad_array_stream_schema(source));
    self->rows = rows;
    return ad_upstream_open(&self->upstream, self->schema,
                            ad_array_stream_device_type(source), out, err);
}
