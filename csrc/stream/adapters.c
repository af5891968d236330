#include "stream/adapters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "copy/copy.h"
#include "base/list.h"
#include "compute/concat.h"

/* --- the stream that an adapter reads ------------------------------------ */

/* First member of an adapter. */
typedef struct upstream {
    ad_batch_source base; /* base.upstream: NULL once the stream ended */
    bool is_over;         /* no more batches come */
    bool is_foreign;      /* the stream failed, not the adapter */
    bool is_told;         /* upstream_finish() reported the outcome */
    ad_error error;       /* the failure; status AD_OK: the stream ended */
} upstream;

/* Begins to read `stream` and takes a reference. `base` has been set. */
static void
upstream_init(upstream *self, ad_array_stream *stream)
{
    self->base.upstream = ad_array_stream_ref(stream);
    self->is_over = false;
    self->is_foreign = false;
    self->is_told = false;
}

static void
upstream_clear(upstream *self)
{
    ad_array_stream *stream = self->base.upstream;
    self->base.upstream = NULL;
    ad_array_stream_unref(stream);
}

/* Reads the next batch; false at the end and after a failure. */
static bool
upstream_next(upstream *self, ad_array *out)
{
    bool is_end;
    if (self->is_over) {
        return false;
    }
    if (ad_array_stream_next(self->base.upstream, out, &is_end,
                             &self->error) != AD_OK) {
        self->is_over = true;
        self->is_foreign = true; /* the stream stays open: it has the text */
        return false;
    }
    if (is_end) {
        self->is_over = true;
        self->error.status = AD_OK;
        upstream_clear(self);
    }
    return !is_end;
}

/* Stops reading because the adapter failed. */
static void
upstream_fail(upstream *self, const ad_error *err)
{
    self->is_over = true;
    self->is_foreign = false;
    self->error = *err;
}

/* Whether a signal ended a wait. The failure is then reported before the
 * batches that preceded it. */
static bool
upstream_is_interrupted(const upstream *self)
{
    return self->is_over && self->error.status == AD_ERR_INTERRUPTED;
}

/* Reports the outcome, once `is_over` is set and all batches were returned. */
static ad_status
upstream_finish(upstream *self, ad_error *err)
{
    self->is_told = true;
    if (self->error.status != AD_OK && err != NULL) {
        *err = self->error;
    }
    return self->error.status;
}

/* The `last_error` of an adapter. NULL also if the stream failed but
 * upstream_finish() has not reported it yet: the failure that the caller
 * saw is then the adapter's. */
static const char *
upstream_last_error(ad_batch_source *base, int *code)
{
    const upstream *self = (const upstream *)base;
    if (!self->is_told || !self->is_foreign) {
        return NULL;
    }
    *code = self->error.code;
    return ad_array_stream_last_error(base->upstream);
}

/* A stream over the adapter, whose batches have `schema` and `device_type`. On
 * failure the adapter is destroyed. */
static ad_status
upstream_open(upstream *self, ad_schema schema, int32_t device_type,
              ad_array_stream **out, ad_error *err)
{
    ad_status status = ad_array_stream_from_source(&self->base, schema,
                                                   device_type, out, err);
    if (status != AD_OK) {
        self->base.destroy(&self->base);
    }
    return status;
}

/* --- copies to a device, with prefetch ----------------------------------- */

typedef struct transfer {
    upstream upstream;
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
    if (!upstream_next(&self->upstream, &batch)) {
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
            upstream_fail(&self->upstream, &err);
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
    if (self->n == 0 || upstream_is_interrupted(&self->upstream)) {
        ad_status status = upstream_finish(&self->upstream, err);
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
    upstream_clear(&self->upstream);
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
        .last_error = upstream_last_error,
        .destroy = transfer_destroy,
    };
    upstream_init(&self->upstream, source);
    self->target = target;
    self->choice = *choice;
    ad_owner_ref(choice->keep);
    self->given = NULL;
    self->room = room;
    self->first = self->n = 0;
    return upstream_open(&self->upstream, ad_array_stream_schema(source),
                         target.type, out, err);
}

/* --- batches of another length ------------------------------------------- */

typedef struct rechunk {
    upstream upstream;
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
        if (!upstream_next(&self->upstream, &batch)) {
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
    if (upstream_is_interrupted(&self->upstream)) {
        return upstream_finish(&self->upstream, err);
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
    ad_status status = upstream_finish(&self->upstream, err);
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
    upstream_clear(&self->upstream);
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
        .last_error = upstream_last_error,
        .destroy = rechunk_destroy,
    };
    upstream_init(&self->upstream, source);
    self->schema = ad_schema_ref(ad_array_stream_schema(source));
    self->rows = rows;
    return upstream_open(&self->upstream, self->schema,
                         ad_array_stream_device_type(source), out, err);
}

/* --- streams that are read one after the other --------------------------- */

typedef struct chain {
    upstream upstream; /* the stream that is read */
    ad_array_stream_list *list;
    bool is_read; /* `upstream` is set; else ask the list */
    bool is_over; /* the list has no more streams, or failed */
    bool has_list_failed;
    ad_schema schema; /* node NULL until the first stream was taken */
    int32_t device_type;
    int64_t n_taken;
} chain;

static ad_status
fail_device_type(const chain *self, int32_t found, ad_error *err)
{
    const ad_device device = {found, -1};
    const ad_device wanted = {self->device_type, -1};
    char from[AD_DEVICE_NAME_SIZE];
    char to[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(err, device, "device",
                      "bring them to one device before, with .to(device)",
                      "stream %" PRId64
                      " is on %s, but those before it are on %s, and "
                      "all batches of a stream must be on one type of device",
                      self->n_taken, ad_device_format(device, from),
                      ad_device_format(wanted, to));
}

static ad_status
check_stream(const chain *self, const ad_array_stream *stream, ad_error *err)
{
    char what[40];
    int32_t found = ad_array_stream_device_type(stream);
    if (self->n_taken > 0 && found != self->device_type) {
        return fail_device_type(self, found, err);
    }
    if (self->schema.node == NULL) {
        return AD_OK;
    }
    snprintf(what, sizeof(what), "stream %" PRId64, self->n_taken);
    return ad_array_stream_require_schema(
        ad_array_stream_schema(stream).node, self->schema.node, what,
        "the schema of all", "convert it before, with .map(function)", err);
}

/* Makes the list's next stream the upstream, if there is one. */
static ad_status
take_stream(chain *self, ad_error *err)
{
    ad_array_stream *stream = NULL;
    ad_status status = self->list->next(self->list, &stream, err);
    if (status != AD_OK || stream == NULL) {
        self->has_list_failed = status != AD_OK;
        self->is_over = true;
        return status;
    }
    status = check_stream(self, stream, err);
    if (status == AD_OK) {
        if (self->schema.node == NULL) {
            self->schema = ad_schema_ref(ad_array_stream_schema(stream));
        }
        self->device_type = ad_array_stream_device_type(stream);
        self->n_taken++;
        self->is_read = true;
        upstream_init(&self->upstream, stream);
    }
    ad_array_stream_unref(stream);
    return status;
}

/* Replaces the schema of a batch by the schema of the chain. */
static void
cast_schema(const chain *self, ad_array *array)
{
    ad_schema old = array->schema;
    if (old.node != self->schema.node) {
        array->schema = ad_schema_ref(self->schema);
        ad_schema_unref(old);
    }
}

static ad_status
chain_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *err)
{
    chain *self = (chain *)base;
    *is_end = false;
    for (;;) {
        if (self->is_read && upstream_next(&self->upstream, out)) {
            cast_schema(self, out);
            return AD_OK;
        }
        if (self->is_read) {
            AD_RETURN_IF_ERR(upstream_finish(&self->upstream, err));
            self->is_read = false;
        }
        *is_end = self->is_over;
        if (*is_end) {
            return AD_OK;
        }
        AD_RETURN_IF_ERR(take_stream(self, err));
    }
}

static const char *
chain_last_error(ad_batch_source *base, int *code)
{
    chain *self = (chain *)base;
    if (self->has_list_failed) {
        return self->list->last_error != NULL
                   ? self->list->last_error(self->list, code)
                   : NULL;
    }
    return self->is_read ? upstream_last_error(base, code) : NULL;
}

static void
chain_free(chain *self)
{
    upstream_clear(&self->upstream);
    ad_schema_unref(self->schema);
    free(self);
}

static void
chain_destroy(ad_batch_source *base)
{
    ad_array_stream_list *list = ((chain *)base)->list;
    chain_free((chain *)base);
    list->destroy(list);
}

ad_status
ad_array_stream_chain(ad_array_stream_list *list, ad_schema schema,
                      ad_array_stream **out, ad_error *err)
{
    chain *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    self->upstream.base = (ad_batch_source){
        .next = chain_next,
        .last_error = chain_last_error,
        .destroy = chain_destroy,
        .saved_exception = list->saved_exception,
    };
    self->list = list;
    self->device_type = ARROW_DEVICE_CPU;
    self->schema = ad_schema_ref(schema);
    ad_status status = take_stream(self, err);
    if (status == AD_OK && self->schema.node == NULL) {
        status = ad_fail(err, AD_ERR_VALUE, NULL, "name it with schema=",
                         "there are no streams to take the schema from");
    }
    if (status == AD_OK) {
        status = ad_array_stream_from_source(
            &self->upstream.base, self->schema, self->device_type, out, err);
    }
    if (status != AD_OK) {
        chain_free(self);
    }
    return status;
}

ad_array_stream_list *
ad_array_stream_chain_list(ad_batch_source *source)
{
    return source->next == chain_next ? ((chain *)source)->list : NULL;
}
