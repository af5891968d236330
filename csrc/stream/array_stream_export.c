/* Streams as the specification's two structs. */
#include <stdlib.h>

#include "stream/array_stream_internal.h"
#include "device/backend.h"

/* What both structs give as the schema. */
static int
give_schema(ad_array_stream *self, struct ArrowSchema *out)
{
    struct ArrowSchema *box;
    if (ad_schema_export(self->schema, &box, &self->error) != AD_OK) {
        self->code = ad_array_stream_errno(&self->error);
        self->is_foreign = false;
        return self->code;
    }
    *out = *box;
    box->release = NULL;
    ad_schema_box_free(box);
    return 0;
}

static int
exported_device_schema(struct ArrowDeviceArrayStream *self,
                       struct ArrowSchema *out)
{
    return give_schema(self->private_data, out);
}

/* The call may run a generator that closes the very reader that made it, and
 * so releases the struct: the stream outlives the call. */
static int
exported_device_next(struct ArrowDeviceArrayStream *self,
                     struct ArrowDeviceArray *out)
{
    ad_array_stream *stream = ad_array_stream_ref(self->private_data);
    int code = stream->pull(stream, out);
    ad_array_stream_unref(stream);
    return code;
}

/* NULL where the stream was released meanwhile. */
static const char *
last_error(ad_array_stream *stream)
{
    return stream != NULL ? ad_array_stream_last_error(stream) : NULL;
}

static const char *
exported_device_error(struct ArrowDeviceArrayStream *self)
{
    return last_error(self->private_data);
}

static void
exported_device_release(struct ArrowDeviceArrayStream *self)
{
    ad_array_stream *stream = self->private_data;
    self->release = NULL;
    self->private_data = NULL; /* who releases twice meets nothing */
    ad_array_stream_unref(stream);
}

static int
exported_host_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    return give_schema(self->private_data, out);
}

/* A host array has no event. No signal ends the wait (there is no error to tell
 * it by): the event goes with the batch, and nobody may be left waiting. */
static int
wait_for_batch(ad_array_stream *self, struct ArrowDeviceArray *batch)
{
    ad_sync *sync;
    ad_device device = {batch->device_type, batch->device_id};
    ad_status status = ad_sync_new(AD_SYNC_EVENT, device, batch->sync_event,
                                   NULL, &sync, &self->error);
    if (status == AD_OK) {
        status = ad_sync_wait(sync, "a batch of __arrow_c_stream__", NULL);
        ad_sync_unref(sync);
        if (status != AD_OK) {
            ad_fail(&self->error, status, NULL, NULL,
                    "the event of a batch of __arrow_c_stream__ cannot be "
                    "waited for");
        }
    }
    return status == AD_OK ? 0 : ad_array_stream_drop_batch(self, batch);
}

static int
exported_host_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    ad_array_stream *stream = ad_array_stream_ref(self->private_data);
    struct ArrowDeviceArray batch;
    out->release = NULL;
    int code = stream->pull(stream, &batch);
    if (code == 0 && batch.array.release != NULL && batch.sync_event != NULL) {
        code = wait_for_batch(stream, &batch);
    }
    if (code == 0) {
        *out = batch.array;
    }
    ad_array_stream_unref(stream);
    return code;
}

static const char *
exported_host_error(struct ArrowArrayStream *self)
{
    return last_error(self->private_data);
}

static void
exported_host_release(struct ArrowArrayStream *self)
{
    ad_array_stream *stream = self->private_data;
    self->release = NULL;
    self->private_data = NULL; /* who releases twice meets nothing */
    ad_array_stream_unref(stream);
}

ad_array_stream *
ad_array_stream_behind_device(const struct ArrowDeviceArrayStream *stream)
{
    return stream->get_schema == exported_device_schema ? stream->private_data
                                                        : NULL;
}

ad_array_stream *
ad_array_stream_behind_host(const struct ArrowArrayStream *stream)
{
    return stream->get_schema == exported_host_schema ? stream->private_data
                                                      : NULL;
}

ad_status
ad_array_stream_export_device(ad_array_stream *stream,
                              struct ArrowDeviceArrayStream **box,
                              ad_error *err)
{
    struct ArrowDeviceArrayStream *out = malloc(sizeof(*out));
    if (out == NULL) {
        return ad_fail_memory(err, sizeof(*out));
    }
    *out = (struct ArrowDeviceArrayStream){
        .device_type = stream->device_type,
        .get_schema = exported_device_schema,
        .get_next = exported_device_next,
        .get_last_error = exported_device_error,
        .release = exported_device_release,
        .private_data = ad_array_stream_ref(stream),
    };
    *box = out;
    return AD_OK;
}

void
ad_device_stream_box_free(struct ArrowDeviceArrayStream *box)
{
    if (box->release != NULL) {
        box->release(box);
    }
    free(box);
}

ad_status
ad_array_stream_export_host(ad_array_stream *stream,
                            struct ArrowArrayStream **box, ad_error *err)
{
    ad_device device = {stream->device_type, -1};
    char name[AD_DEVICE_NAME_SIZE];
    if ((ad_device_traits(device.type) & AD_HOST_READS) == 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "use __arrow_c_device_stream__",
                       "the batches are on %s, which the host cannot read",
                       ad_device_format(device, name));
    }
    struct ArrowArrayStream *out = malloc(sizeof(*out));
    if (out == NULL) {
        return ad_fail_memory(err, sizeof(*out));
    }
    *out = (struct ArrowArrayStream){
        .get_schema = exported_host_schema,
        .get_next = exported_host_next,
        .get_last_error = exported_host_error,
        .release = exported_host_release,
        .private_data = ad_array_stream_ref(stream),
    };
    *box = out;
    return AD_OK;
}

void
ad_stream_box_free(struct ArrowArrayStream *box)
{
    if (box->release != NULL) {
        box->release(box);
    }
    free(box);
}
