/* ad_array_stream_chain(): concatenates streams. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "stream/adapters.h"
#include "stream/upstream.h"

typedef struct chain {
    ad_upstream upstream; /* the stream that is read */
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
        ad_upstream_init(&self->upstream, stream);
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
        if (self->is_read && ad_upstream_next(&self->upstream, out)) {
            cast_schema(self, out);
            return AD_OK;
        }
        if (self->is_read) {
            AD_RETURN_IF_ERR(ad_upstream_finish(&self->upstream, err));
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
    return self->is_read ? ad_upstream_last_error(base, code) : NULL;
}

static void
chain_free(chain *self)
{
    ad_upstream_clear(&self->upstream);
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
