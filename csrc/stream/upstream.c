#include "stream/upstream.h"

void
ad_upstream_init(ad_upstream *self, ad_array_stream *stream)
{
    self->base.upstream = ad_array_stream_ref(stream);
    self->is_over = false;
    self->is_foreign = false;
    self->is_told = false;
}

void
ad_upstream_clear(ad_upstream *self)
{
    ad_array_stream *stream = self->base.upstream;
    self->base.upstream = NULL;
    ad_array_stream_unref(stream);
}

bool
ad_upstream_next(ad_upstream *self, ad_array *out)
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
        ad_upstream_clear(self);
    }
    return !is_end;
}

void
ad_upstream_fail(ad_upstream *self, const ad_error *err)
{
    self->is_over = true;
    self->is_foreign = false;
    self->error = *err;
}

bool
ad_upstream_is_interrupted(const ad_upstream *self)
{
    return self->is_over && self->error.status == AD_ERR_INTERRUPTED;
}

ad_status
ad_upstream_finish(ad_upstream *self, ad_error *err)
{
    self->is_told = true;
    if (self->error.status != AD_OK && err != NULL) {
        *err = self->error;
    }
    return self->error.status;
}

const char *
ad_upstream_last_error(ad_batch_source *base, int *code)
{
    const ad_upstream *self = (const ad_upstream *)base;
    if (!self->is_told || !self->is_foreign) {
        return NULL;
    }
    *code = self->error.code;
    return ad_array_stream_last_error(base->upstream);
}

ad_status
ad_upstream_open(ad_upstream *self, ad_schema schema, int32_t device_type,
                 ad_array_stream **out, ad_error *err)
{
    ad_status status = ad_array_stream_from_source(&self->base, schema,
                                                   device_type, out, err);
    if (status != AD_OK) {
        self->base.destroy(&self->base);
    }
    return status;
}
