/* Import and export of streams as the two structs of the specification.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "device/backend.h"
#include "model/batch_shape.h"
#include "stream/array_stream_internal.h"

/* --- reading a struct ---------------------------------------------------- */

/* Records that the producer's `call` returned `code`. */
static int
fail_foreign(ad_array_stream *self, const char *call, int code)
{
    const char *text = ad_array_stream_foreign_text(self);
    self->code = code;
    self->is_foreign = true;
    (void)ad_fail(&self->error, AD_ERR_EXCHANGE, "stream", NULL,
                  "%s of the stream failed with error %d (%s): %.300s", call,
                  code, strerror(code),
                  text != NULL ? text : "no message was given");
    self->error.code = code;
    return code;
}

static __attribute__((noinline)) int
fail_device_type(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    (void)ad_fail(&self->error, AD_ERR_ARROW, NULL, NULL,
                  "the stream gave a batch of device type %d, which its own "
                  "device type %d cannot access",
                  (int)out->device_type, (int)self->device_type);
    return ad_array_stream_drop_batch(self, out);
}

static __attribute__((noinline)) int
validate_batch(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    if (ad_array_validate_known(self->schema.node, &out->array,
                                &self->error) == AD_OK) {
        return 0;
    }
    ad_error_prefix(&self->error,
                    "a batch does not fit the schema of the stream: ");
    return ad_array_stream_drop_batch(self, out);
}

/* Checks the device type and the structure of a foreign batch. */
static inline __attribute__((always_inline)) int
check_batch(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    if (out->device_type != self->device_type &&
        !ad_device_type_reaches(self->device_type, out->device_type)) {
        return fail_device_type(self, out);
    }
    return self->shape != NULL && ad_batch_has_shape(&out->array, self->shape,
                                                     self->n_columns)
               ? 0
               : validate_batch(self, out);
}

static inline int
call_next(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    if (!self->is_host) {
        return self->device.get_next(&self->device, out);
    }
    out->device_id = AD_CPU.id;
    out->device_type = ARROW_DEVICE_CPU;
    out->sync_event = NULL;
    memset(out->reserved, 0, sizeof(out->reserved));
    return self->host.get_next(&self->host, &out->array);
}

/* Reads a stream that is open. */
static inline __attribute__((always_inline)) int
pull_now(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    out->array.release = NULL;
    self->code = 0;
    int code = call_next(self, out);
    if (code != 0) {
        out->array.release = NULL;
        return fail_foreign(self, "get_next", code);
    }
    if (out->array.release == NULL) {
        self->condition = AD_STREAM_ENDED;
        return 0;
    }
    return check_batch(self, out);
}

/* The same with a limit on nested reads: the producer may read a stream of
 * ours, which reads another one. */
static __attribute__((noinline)) int
pull_counted(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    out->array.release = NULL;
    if (ad_stream_descend(&self->error) != AD_OK) {
        return ad_array_stream_fail(self);
    }
    int code = pull_now(self, out);
    ad_stream_ascend();
    return code;
}

static int
pull_foreign(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    if (self->condition != AD_STREAM_OPEN) {
        return ad_array_stream_not_open(self, out);
    }
    return ad_stream_reads_count() ? pull_counted(self, out)
                                   : pull_now(self, out);
}

/* --- callbacks of an export ---------------------------------------------- */

static int
export_schema(ad_array_stream *self, struct ArrowSchema *out)
{
    if (ad_schema_export_to(self->schema, out, &self->error) != AD_OK) {
        self->code = ad_array_stream_errno(&self->error);
        self->is_foreign = false;
        return self->code;
    }
    return 0;
}

/* Waits because a host array has no event. A signal does not end the wait: the
 * struct has no error for it, and the event is dropped with the batch. */
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

/* The call may run a generator that closes the reader that made the call,
 * which releases the struct. A reference for each call would take two locked
 * instructions, as long as all the rest of the call. */
static int
export_next(ad_array_stream *self, bool is_host, struct ArrowDeviceArray *out)
{
    const bool is_nested = self->is_called;
    self->is_called = true;
    int code = self->pull(self, out);
    if (code == 0 && out->array.release != NULL && out->sync_event != NULL) {
        if (out->device_type == ARROW_DEVICE_CPU) {
            out->sync_event = NULL; /* host memory has no event type */
        } else if (is_host) {
            code = wait_for_batch(self, out);
        }
    }
    self->is_called = is_nested;
    if (self->is_left && !is_nested) {
        self->is_left = false;
        ad_array_stream_unref(self);
    }
    return code == 0 ? 0 : ad_errno_or(code, EIO);
}

/* Drops the reference of a struct. A later one during the same call need not
 * be left to it. */
static void
export_release(ad_array_stream *self)
{
    if (self != NULL && self->is_called && !self->is_left) {
        self->is_left = true;
    } else {
        ad_array_stream_unref(self);
    }
}

/* The callbacks that are alike in both structs. A release clears private_data,
 * so that a second one does nothing. */
#define CALLBACKS(KIND, STREAM)                                               \
    static int KIND##_schema(struct STREAM *self, struct ArrowSchema *out)    \
    {                                                                         \
        return export_schema(self->private_data, out);                        \
    }                                                                         \
                                                                              \
    static const char *KIND##_last_error(struct STREAM *self)                 \
    {                                                                         \
        ad_array_stream *stream = self->private_data;                         \
        return stream != NULL ? ad_array_stream_last_error(stream) : NULL;    \
    }                                                                         \
                                                                              \
    static void KIND##_release(struct STREAM *self)                           \
    {                                                                         \
        ad_array_stream *stream = self->private_data;                         \
        self->release = NULL;                                                 \
        self->private_data = NULL;                                            \
        export_release(stream);                                               \
    }

CALLBACKS(device, ArrowDeviceArrayStream)
CALLBACKS(host, ArrowArrayStream)

static int
device_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out)
{
    return export_next(self->private_data, false, out);
}

static int
host_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    struct ArrowDeviceArray batch;
    out->release = NULL;
    int code = export_next(self->private_data, true, &batch);
    if (code == 0) {
        *out = batch.array;
    }
    return code;
}

/* --- export -------------------------------------------------------------- */

ad_status
ad_array_stream_export_device(ad_array_stream *stream,
                              struct ArrowDeviceArrayStream **holder,
                              ad_error *err)
{
    struct ArrowDeviceArrayStream *out = malloc(sizeof(*out));
    if (out == NULL) {
        return ad_fail_memory(err, sizeof(*out));
    }
    *out = (struct ArrowDeviceArrayStream){
        .device_type = stream->device_type,
        .get_schema = device_schema,
        .get_next = device_next,
        .get_last_error = device_last_error,
        .release = device_release,
        .private_data = ad_array_stream_ref(stream),
    };
    *holder = out;
    return AD_OK;
}

void
ad_device_stream_holder_free(struct ArrowDeviceArrayStream *holder)
{
    AD_RELEASE(holder, release);
    free(holder);
}

ad_status
ad_array_stream_export_host(ad_array_stream *stream,
                            struct ArrowArrayStream **holder, ad_error *err)
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
        .get_schema = host_schema,
        .get_next = host_next,
        .get_last_error = host_last_error,
        .release = host_release,
        .private_data = ad_array_stream_ref(stream),
    };
    *holder = out;
    return AD_OK;
}

void
ad_array_stream_holder_free(struct ArrowArrayStream *holder)
{
    AD_RELEASE(holder, release);
    free(holder);
}

/* --- import -------------------------------------------------------------- */

/* Without a shape every batch is validated in full, so a failed allocation is
 * no error. */
static void
make_shape(ad_array_stream *self)
{
    const struct ArrowSchema *schema = self->schema.node;
    self->n_columns = schema->n_children;
    self->shape = malloc((size_t)schema->n_children + 1);
    if (self->shape != NULL && !ad_batch_shape_make(schema, self->shape)) {
        free(self->shape);
        self->shape = NULL;
    }
}

static ad_status
read_schema(ad_array_stream *self, ad_error *err)
{
    struct ArrowSchema schema;
    memset(&schema, 0, sizeof(schema));
    int code = self->is_host ? self->host.get_schema(&self->host, &schema)
                             : self->device.get_schema(&self->device, &schema);
    if (code != 0) {
        (void)fail_foreign(self, "get_schema", code);
        if (err != NULL) {
            *err = self->error;
        }
        return AD_ERR_EXCHANGE;
    }
    ad_status status = ad_schema_validate(&schema, err);
    if (status == AD_OK) {
        status = ad_schema_move(&schema, &self->schema, err);
    }
    if (status != AD_OK && schema.release != NULL) {
        schema.release(&schema);
    }
    return status;
}

/* Called after the struct was moved into the stream. */
static ad_status
finish_import(ad_array_stream *self, bool has_schema, bool has_next,
              ad_array_stream **out, ad_error *err)
{
    self->pull = pull_foreign;
    ad_status status =
        has_schema && has_next
            ? read_schema(self, err)
            : ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                      "%s of the stream is NULL, expected a callback",
                      has_schema ? "get_next" : "get_schema");
    if (status != AD_OK) {
        ad_array_stream_unref(self);
        return status;
    }
    make_shape(self);
    *out = self;
    return AD_OK;
}

ad_status
ad_array_stream_from_device(struct ArrowDeviceArrayStream *stream,
                            bool with_gil, ad_array_stream **out,
                            ad_error *err)
{
    if (stream->get_schema == device_schema) {
        *out = ad_array_stream_ref(stream->private_data);
        stream->release(stream);
        return AD_OK;
    }
    ad_array_stream *self = ad_array_stream_new(err);
    if (self == NULL) {
        stream->release(stream);
        return AD_ERR_MEMORY;
    }
    self->device = *stream;
    self->with_gil = with_gil;
    stream->release = NULL;
    self->device_type = self->device.device_type;
    return finish_import(self, self->device.get_schema != NULL,
                         self->device.get_next != NULL, out, err);
}

/* Only an export of CPU batches is unwrapped. Batches of another device type
 * are read through the struct, because only the struct waits for their
 * events. */
static bool
is_own_host_stream(const struct ArrowArrayStream *stream)
{
    return stream->get_schema == host_schema &&
           ad_array_stream_device_type(stream->private_data) ==
               ARROW_DEVICE_CPU;
}

ad_status
ad_array_stream_from_host(struct ArrowArrayStream *stream,
                          ad_array_stream **out, ad_error *err)
{
    if (is_own_host_stream(stream)) {
        *out = ad_array_stream_ref(stream->private_data);
        stream->release(stream);
        return AD_OK;
    }
    ad_array_stream *self = ad_array_stream_new(err);
    if (self == NULL) {
        stream->release(stream);
        return AD_ERR_MEMORY;
    }
    self->is_host = true;
    self->host = *stream;
    stream->release = NULL;
    return finish_import(self, self->host.get_schema != NULL,
                         self->host.get_next != NULL, out, err);
}
