#include "core/single_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- export -------------------------------------------------------------- */

/* What both kinds of stream keep; freed when neither the box nor a moved-out
 * stream holds it any more. */
typedef struct single_source {
    ad_owner base;
    ad_array array;
    bool is_done;
    char message[256];
} single_source;

typedef struct device_stream_box {
    struct ArrowDeviceArrayStream stream;
    single_source source;
} device_stream_box;

typedef struct host_stream_box {
    struct ArrowArrayStream stream;
    single_source source;
} host_stream_box;

static int
errno_of(ad_status status)
{
    return status == AD_ERR_MEMORY ? ENOMEM : EINVAL;
}

static int
note_error(single_source *source, ad_status status, const ad_error *err)
{
    snprintf(source->message, sizeof(source->message), "%.255s", err->message);
    return errno_of(status);
}

static int
single_get_schema(single_source *source, struct ArrowSchema *out)
{
    ad_error err;
    struct ArrowSchema *box;
    ad_status status = ad_schema_export(source->array.schema, &box, &err);
    if (status != AD_OK) {
        return note_error(source, status, &err);
    }
    *out = *box;
    box->release = NULL;
    ad_schema_box_free(box);
    return 0;
}

static int
single_get_next(single_source *source, struct ArrowDeviceArray *out)
{
    if (source->is_done) {
        memset(out, 0, sizeof(*out));
        return 0;
    }
    ad_error err;
    struct ArrowDeviceArray *box;
    ad_status status = ad_array_export(&source->array, &box, &err);
    if (status != AD_OK) {
        return note_error(source, status, &err);
    }
    *out = *box;
    box->array.release = NULL;
    ad_array_box_free(box);
    source->is_done = true;
    return 0;
}

static const char *
message_of(const single_source *source)
{
    return source->message[0] != '\0' ? source->message : NULL;
}

static int
device_get_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out)
{
    return single_get_schema(self->private_data, out);
}

static int
device_get_next(struct ArrowDeviceArrayStream *self,
                struct ArrowDeviceArray *out)
{
    return single_get_next(self->private_data, out);
}

static const char *
device_get_last_error(struct ArrowDeviceArrayStream *self)
{
    return message_of(self->private_data);
}

static void
device_release(struct ArrowDeviceArrayStream *self)
{
    single_source *source = self->private_data;
    self->release = NULL;
    ad_owner_unref(&source->base);
}

static int
host_get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    return single_get_schema(self->private_data, out);
}

static int
host_get_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    struct ArrowDeviceArray chunk;
    int result = single_get_next(self->private_data, &chunk);
    if (result == 0) {
        *out = chunk.array;
    }
    return result;
}

static const char *
host_get_last_error(struct ArrowArrayStream *self)
{
    return message_of(self->private_data);
}

static void
host_release(struct ArrowArrayStream *self)
{
    single_source *source = self->private_data;
    self->release = NULL;
    ad_owner_unref(&source->base);
}

static void
device_box_destroy(ad_owner *base)
{
    single_source *source = (single_source *)base;
    ad_array_clear(&source->array);
    free((char *)source - offsetof(device_stream_box, source));
}

static void
host_box_destroy(ad_owner *base)
{
    single_source *source = (single_source *)base;
    ad_array_clear(&source->array);
    free((char *)source - offsetof(host_stream_box, source));
}

/* One reference for the box, one for the stream in it. */
static void
source_init(single_source *source, const ad_array *array,
            void (*destroy)(ad_owner *))
{
    ad_owner_init(&source->base, destroy);
    ad_owner_ref(&source->base);
    ad_array_share(array, &source->array);
    source->is_done = false;
    memset(source->message, 0, sizeof(source->message));
}

ad_status
ad_device_stream_export(const ad_array *array,
                        struct ArrowDeviceArrayStream **out, ad_error *err)
{
    device_stream_box *box = malloc(sizeof(*box));
    if (box == NULL) {
        return ad_fail_memory(err, sizeof(*box));
    }
    source_init(&box->source, array, device_box_destroy);
    box->stream = (struct ArrowDeviceArrayStream){
        .device_type = array->device.type,
        .get_schema = device_get_schema,
        .get_next = device_get_next,
        .get_last_error = device_get_last_error,
        .release = device_release,
        .private_data = &box->source,
    };
    *out = &box->stream;
    return AD_OK;
}

void
ad_device_stream_box_free(struct ArrowDeviceArrayStream *stream)
{
    device_stream_box *box = (device_stream_box *)stream;
    if (stream->release != NULL) {
        stream->release(stream);
    }
    ad_owner_unref(&box->source.base);
}

ad_status
ad_stream_export(const ad_array *array, struct ArrowArrayStream **out,
                 ad_error *err)
{
    host_stream_box *box = malloc(sizeof(*box));
    if (box == NULL) {
        return ad_fail_memory(err, sizeof(*box));
    }
    source_init(&box->source, array, host_box_destroy);
    box->stream = (struct ArrowArrayStream){
        .get_schema = host_get_schema,
        .get_next = host_get_next,
        .get_last_error = host_get_last_error,
        .release = host_release,
        .private_data = &box->source,
    };
    *out = &box->stream;
    return AD_OK;
}

void
ad_stream_box_free(struct ArrowArrayStream *stream)
{
    host_stream_box *box = (host_stream_box *)stream;
    if (stream->release != NULL) {
        stream->release(stream);
    }
    ad_owner_unref(&box->source.base);
}

/* --- import -------------------------------------------------------------- */

static ad_status
fail_stream(ad_error *err, const char *call, int code, const char *text)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                   "%s of the stream failed with error %d (%s): %s", call,
                   code, strerror(code),
                   text != NULL ? text : "no message was given");
}

/* A foreign stream seen as a device stream, whichever kind it is. */
typedef struct single_reader {
    struct ArrowDeviceArrayStream *device; /* one of the two */
    struct ArrowArrayStream *host;
} single_reader;

static int
reader_get_schema(single_reader *reader, struct ArrowSchema *out)
{
    memset(out, 0, sizeof(*out));
    return reader->device != NULL
               ? reader->device->get_schema(reader->device, out)
               : reader->host->get_schema(reader->host, out);
}

static int
reader_get_next(single_reader *reader, struct ArrowDeviceArray *out)
{
    memset(out, 0, sizeof(*out));
    if (reader->device != NULL) {
        return reader->device->get_next(reader->device, out);
    }
    struct ArrowArray chunk = {0};
    int code = reader->host->get_next(reader->host, &chunk);
    if (code == 0) {
        ad_device_array_from_host(&chunk, out);
    }
    return code;
}

static const char *
reader_last_error(single_reader *reader)
{
    if (reader->device != NULL) {
        return reader->device->get_last_error != NULL
                   ? reader->device->get_last_error(reader->device)
                   : NULL;
    }
    return reader->host->get_last_error != NULL
               ? reader->host->get_last_error(reader->host)
               : NULL;
}

static ad_status
check_callbacks(const single_reader *reader, ad_error *err)
{
    bool has_schema = reader->device != NULL
                          ? reader->device->get_schema != NULL
                          : reader->host->get_schema != NULL;
    bool has_next = reader->device != NULL ? reader->device->get_next != NULL
                                           : reader->host->get_next != NULL;
    if (has_schema && has_next) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "%s of the stream is NULL, expected a callback",
                   has_schema ? "get_next" : "get_schema");
}

static ad_status
read_schema(single_reader *reader, ad_schema *out, ad_error *err)
{
    struct ArrowSchema schema;
    int code = reader_get_schema(reader, &schema);
    if (code != 0) {
        return fail_stream(err, "get_schema", code, reader_last_error(reader));
    }
    ad_status status = ad_schema_validate(&schema, err);
    if (status == AD_OK) {
        status = ad_schema_move(&schema, out, err);
    }
    if (status != AD_OK && schema.release != NULL) {
        schema.release(&schema);
    }
    return status;
}

static ad_status
read_chunk(single_reader *reader, ad_schema schema, ad_array *out,
           bool *is_end, ad_error *err)
{
    struct ArrowDeviceArray chunk;
    int code = reader_get_next(reader, &chunk);
    if (code != 0) {
        return fail_stream(err, "get_next", code, reader_last_error(reader));
    }
    *is_end = chunk.array.release == NULL;
    if (*is_end) {
        return AD_OK;
    }
    ad_status status = ad_array_import_as(schema, &chunk, out, err);
    if (status != AD_OK) {
        chunk.array.release(&chunk.array);
        return status;
    }
    if (reader->device != NULL &&
        out->device.type != reader->device->device_type) {
        ad_array_clear(out);
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the stream gave a chunk of device type %d, but says "
                       "that its device type is %d",
                       (int)chunk.device_type,
                       (int)reader->device->device_type);
    }
    return AD_OK;
}

/* The next chunk that has rows; *is_end when there is none. The first chunk
 * without rows is kept in *empty, for a stream that has no other. */
static ad_status
read_rows(single_reader *reader, ad_schema schema, ad_array *out,
          ad_array *empty, bool *is_end, ad_error *err)
{
    for (;;) {
        AD_RETURN_IF_ERR(read_chunk(reader, schema, out, is_end, err));
        if (*is_end || out->length > 0) {
            return AD_OK;
        }
        ad_array_clear(empty);
        *empty = *out;
        *out = (ad_array){0};
    }
}

/* Leave the only chunk that has rows in *out. */
static ad_status
read_single(single_reader *reader, ad_array *out, ad_error *err)
{
    ad_schema schema = {0};
    ad_array first = {0};
    ad_array second = {0};
    ad_array empty = {0};
    bool is_end;
    AD_RETURN_IF_ERR(check_callbacks(reader, err));
    AD_RETURN_IF_ERR(read_schema(reader, &schema, err));
    ad_status status = read_rows(reader, schema, &first, &empty, &is_end, err);
    bool has_rows = status == AD_OK && !is_end;
    if (has_rows) {
        status = read_rows(reader, schema, &second, &empty, &is_end, err);
    }
    if (status == AD_OK && !is_end) {
        status = ad_fail(err, AD_ERR_EXCHANGE, "chunks",
                         "combine the chunks in the producing library first "
                         "(polars: .rechunk(), pyarrow: .combine_chunks())",
                         "the stream has more than one chunk, and one array "
                         "was asked for");
    } else if (status == AD_OK && !has_rows && empty.node == NULL) {
        status = ad_array_empty(schema, out, err);
    } else if (status == AD_OK) {
        ad_array *only = has_rows ? &first : &empty;
        *out = *only;
        *only = (ad_array){0};
    }
    ad_array_clear(&empty);
    ad_array_clear(&second);
    ad_array_clear(&first);
    ad_schema_unref(schema);
    return status;
}

ad_status
ad_device_stream_read_single(struct ArrowDeviceArrayStream *stream,
                             ad_array *out, ad_error *err)
{
    single_reader reader = {.device = stream};
    ad_status status = read_single(&reader, out, err);
    stream->release(stream);
    return status;
}

ad_status
ad_stream_read_single(struct ArrowArrayStream *stream, ad_array *out,
                      ad_error *err)
{
    single_reader reader = {.host = stream};
    ad_status status = read_single(&reader, out, err);
    stream->release(stream);
    return status;
}
