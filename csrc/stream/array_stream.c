/* Streams, their import and export as the two structs of the specification,
 * and what reads them. */
#include "stream/array_stream.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/os.h"
#include "base/thread_local.h"
#include "base/wait.h"
#include "device/backend.h"
#include "model/extension.h"

/* --- the stream ---------------------------------------------------------- */

typedef enum condition {
    AD_STREAM_OPEN,
    AD_STREAM_ENDED,
    AD_STREAM_FAILED /* by a failure of ours: a batch is lost */
} condition;

struct ad_array_stream {
    ad_owner base;
    /* The next batch as a struct, whose release is NULL at the end. Returns 0,
     * or an errno with `error` and the text set. */
    int (*pull)(ad_array_stream *self, struct ArrowDeviceArray *out);
    ad_schema schema;
    uint8_t *shape; /* see has_shape(); NULL: batches are not plain */
    int64_t n_columns;
    int32_t device_type;
    condition condition;
    /* A get_next of an exported struct runs. A release of the struct then
     * leaves its reference to the call, which drops it. */
    bool is_called;
    bool is_left;
    /* The stream reads one of the next three. The release of an unused struct
     * is NULL. */
    bool is_host;      /* a foreign struct is in `host`, not in `device` */
    void *interpreter; /* of its batches on devices: ad_array_import() */
    struct ArrowDeviceArrayStream device;
    struct ArrowArrayStream host;
    ad_batch_source *source;
    int code;        /* errno of the last failure; 0: none */
    bool is_foreign; /* the producer has the text of that failure */
    ad_error error;
};

/* A read within a read within a read ... takes stack, as does foreign code
 * between the two. So few streams cannot nest too deeply, and reads are not
 * counted. */
#define FEW_STREAMS 50
static atomic_size_t n_alive;

static inline bool
reads_count(void)
{
    return __builtin_expect(
        atomic_load_explicit(&n_alive, memory_order_relaxed) > FEW_STREAMS, 0);
}

/* --- failures ------------------------------------------------------------ */

int
ad_array_stream_errno(const ad_error *err)
{
    switch (err->status) {
        case AD_ERR_MEMORY:
            return ENOMEM;
        case AD_ERR_DEVICE:
            return EIO;
        case AD_ERR_INTERRUPTED:
            return EINTR;
        case AD_ERR_DEPTH:
            return ELOOP;
        default:
            return EINVAL;
    }
}

/* get_last_error of the foreign struct; NULL if it has none. */
static const char *
foreign_text(ad_array_stream *self)
{
    if (self->device.release != NULL) {
        return self->device.get_last_error != NULL
                   ? self->device.get_last_error(&self->device)
                   : NULL;
    }
    if (self->host.release != NULL) {
        return self->host.get_last_error != NULL
                   ? self->host.get_last_error(&self->host)
                   : NULL;
    }
    return NULL;
}

/* Puts the stream into AD_STREAM_FAILED for self->error, since reading on
 * would skip a batch. Returns the errno. */
static int
fail(ad_array_stream *self)
{
    self->code = ad_array_stream_errno(&self->error);
    self->is_foreign = false;
    self->condition = AD_STREAM_FAILED;
    return self->code;
}

const char *
ad_array_stream_last_error(ad_array_stream *self)
{
    int code = 0;
    const char *text = NULL;
    if (self->code == 0) {
        return NULL;
    }
    if (self->is_foreign) {
        return foreign_text(self);
    }
    if (self->source != NULL && self->source->last_error != NULL) {
        text = self->source->last_error(self->source, &code);
    }
    return text != NULL ? text : self->error.message;
}

/* The same after the release of the batch. */
static int
drop_batch(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    out->array.release(&out->array);
    out->array.release = NULL;
    return fail(self);
}

/* The result of `pull` for a stream that is not open. */
static int
not_open(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    out->array.release = NULL;
    if (self->condition != AD_STREAM_FAILED) {
        return 0;
    }
    if (self->error.status == AD_ERR_INTERRUPTED) { /* raised only once */
        (void)ad_fail(&self->error, AD_ERR_EXCHANGE, "stream",
                      "make another one",
                      "a signal ended an earlier wait of this stream, and a "
                      "batch is lost");
        self->error.code = self->code;
    }
    return self->code;
}

/* --- nested reads -------------------------------------------------------- */

/* The stack is looked at once in so many nested reads, which need less than
 * LEAST_STACK together. A stack of 8 MiB suffices for MOST_READS of our
 * adapters. */
#define READS_PER_LOOK 16
#define LEAST_STACK (64 << 10)
#define MOST_READS 5000

static AD_THREAD_LOCAL size_t n_reads; /* that are nested now */

/* Around a read that another stream does, where reads count. AD_ERR_DEPTH
 * where the stack would not suffice for more; then ascend() is not called. */
static ad_status
descend(ad_error *err)
{
    bool is_deep = false;
    if (n_reads > 0 && n_reads % READS_PER_LOOK == 0) {
        is_deep =
            n_reads >= MOST_READS || ad_thread_stack_left() < LEAST_STACK;
    }
    if (is_deep) {
        return ad_fail(err, AD_ERR_DEPTH, NULL,
                       "join many streams at once, as a list",
                       "%zu streams read from each other, and the stack may "
                       "not suffice for another one",
                       n_reads);
    }
    n_reads++;
    return AD_OK;
}

static void
ascend(void)
{
    n_reads--;
}

/* --- sources ------------------------------------------------------------- */

/* The source's next batch, with a limit on nested reads. */
static ad_status
ask_source(ad_array_stream *self, ad_array *out, bool *is_end)
{
    ad_batch_source *source = self->source;
    if (!reads_count()) {
        return source->next(source, out, is_end, &self->error);
    }
    AD_RETURN_IF_ERR(descend(&self->error));
    ad_status status = source->next(source, out, is_end, &self->error);
    ascend();
    return status;
}

/* Records the failure of the source that self->error describes. */
static int
fail_source(ad_array_stream *self)
{
    int code = 0;
    fail(self);
    if (self->source->last_error != NULL) {
        (void)self->source->last_error(self->source, &code);
    }
    if (code != 0) {
        self->code = code;
    }
    if (self->error.status != AD_ERR_DEVICE) { /* has the runtime's number */
        self->error.code = self->code;
    }
    return self->code;
}

static int
source_next(ad_array_stream *self, ad_array *out, bool *is_end)
{
    self->code = 0;
    if (ask_source(self, out, is_end) != AD_OK) {
        return fail_source(self);
    }
    if (*is_end) {
        self->condition = AD_STREAM_ENDED;
        return 0;
    }
    if (!ad_device_type_reaches(self->device_type, out->memory.device.type)) {
        (void)ad_fail(&self->error, AD_ERR_EXCHANGE, "device", NULL,
                      "a batch is on device type %d, which the stream's type "
                      "%d cannot access",
                      (int)out->memory.device.type, (int)self->device_type);
        ad_array_clear(out);
        return fail(self);
    }
    return 0;
}

static int
pull_source(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    ad_array array;
    bool is_end;
    if (self->condition != AD_STREAM_OPEN) {
        return not_open(self, out);
    }
    out->array.release = NULL;
    int code = source_next(self, &array, &is_end);
    if (code != 0 && self->error.status == AD_ERR_INTERRUPTED) {
        ad_wait_pass_on(); /* a reader of the struct gets only the errno */
    }
    if (code != 0 || is_end) {
        return code;
    }
    ad_status status = ad_array_export_to(&array, out, &self->error);
    ad_array_clear(&array);
    return status == AD_OK ? 0 : fail(self);
}

/* --- construction -------------------------------------------------------- */

void
ad_array_stream_close(ad_array_stream *self)
{
    struct ArrowDeviceArrayStream device = self->device;
    struct ArrowArrayStream host = self->host;
    ad_batch_source *source = self->source;
    self->condition = AD_STREAM_ENDED;
    self->code = 0;
    self->device.release = NULL;
    self->host.release = NULL;
    self->source = NULL;
    /* Last, since foreign code may use this stream again. */
    void *exception = ad_release_begin();
    if (device.release != NULL) {
        device.release(&device);
    }
    if (host.release != NULL) {
        host.release(&host);
    }
    if (source != NULL) {
        source->destroy(source);
    }
    ad_release_end(exception);
}

static void
stream_destroy(ad_owner *base)
{
    ad_array_stream *self = (ad_array_stream *)base;
    atomic_fetch_sub_explicit(&n_alive, 1, memory_order_relaxed);
    ad_array_stream_close(self);
    ad_schema_unref(self->schema);
    free(self->shape);
    free(self);
}

static const ad_owner_ops stream_ops = {.destroy = stream_destroy,
                                        .name = "stream"};

/* A stream without a producer; the caller sets `pull`. NULL on failure, with
 * `err` set. malloc, not calloc: most of the struct is `error`, which is
 * written before it is read. */
static ad_array_stream *
stream_new(ad_error *err)
{
    ad_array_stream *self = malloc(sizeof(*self));
    if (self == NULL) {
        (void)ad_fail_memory(err, sizeof(*self));
        return NULL;
    }
    ad_owner_init(&self->base, &stream_ops);
    atomic_fetch_add_explicit(&n_alive, 1, memory_order_relaxed);
    self->pull = NULL;
    self->schema = (ad_schema){0};
    self->shape = NULL;
    self->device_type = ARROW_DEVICE_CPU;
    self->condition = AD_STREAM_OPEN;
    self->is_called = self->is_left = false;
    self->is_host = false;
    self->interpreter = NULL;
    self->device.release = NULL;
    self->host.release = NULL;
    self->source = NULL;
    self->code = 0;
    self->is_foreign = false;
    return self;
}

ad_array_stream *
ad_array_stream_ref(ad_array_stream *stream)
{
    ad_owner_ref(&stream->base);
    return stream;
}

void
ad_array_stream_unref(ad_array_stream *stream)
{
    if (stream != NULL) {
        ad_owner_unref(&stream->base);
    }
}

ad_status
ad_array_stream_from_source(ad_batch_source *source, ad_schema schema,
                            int32_t device_type, ad_array_stream **out,
                            ad_error *err)
{
    ad_array_stream *self = stream_new(err);
    if (self == NULL) {
        return AD_ERR_MEMORY;
    }
    self->source = source;
    self->pull = pull_source;
    self->schema = ad_schema_ref(schema);
    self->device_type = device_type;
    *out = self;
    return AD_OK;
}

/* --- one array ----------------------------------------------------------- */

typedef struct single_source {
    ad_batch_source base;
    ad_array array; /* owner and node are NULL once it was returned */
} single_source;

static ad_status
single_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *err)
{
    single_source *self = (single_source *)base;
    *is_end = self->array.node == NULL;
    *out = self->array;
    self->array = (ad_array){0};
    return AD_OK;
}

static void
single_destroy(ad_batch_source *base)
{
    single_source *self = (single_source *)base;
    ad_array_clear(&self->array);
    free(self);
}

ad_status
ad_array_stream_from_array(const ad_array *array, ad_array_stream **out,
                           ad_error *err)
{
    single_source *source = malloc(sizeof(*source));
    if (source == NULL) {
        return ad_fail_memory(err, sizeof(*source));
    }
    source->base =
        (ad_batch_source){.next = single_next, .destroy = single_destroy};
    ad_array_share(array, &source->array);
    ad_status status = ad_array_stream_from_source(
        &source->base, array->schema, array->memory.device.type, out, err);
    if (status != AD_OK) {
        single_destroy(&source->base);
    }
    return status;
}

/* --- reading a struct ---------------------------------------------------- */

/* Records that the producer's `call` returned `code`. */
static int
fail_foreign(ad_array_stream *self, const char *call, int code)
{
    const char *text = foreign_text(self);
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
    return drop_batch(self, out);
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
    return drop_batch(self, out);
}

/* True for a sound node without an offset or nulls. The conditions are joined
 * into few branches, since which of them fails does not matter. `needed` is in
 * [0, AD_LEAF_MAX_END]. */
static inline bool
is_simple_node(const struct ArrowArray *node, int64_t n_buffers,
               int64_t n_children, int64_t needed)
{
    uint64_t odd = (uint64_t)(node->n_buffers ^ n_buffers) |
                   (uint64_t)(node->n_children ^ n_children) |
                   (uint64_t)node->offset | (uint64_t)node->null_count |
                   (uint64_t)(uintptr_t)node->dictionary;
    return odd == 0 && node->release != NULL && node->buffers != NULL &&
           (uint64_t)node->length - (uint64_t)needed <=
               (uint64_t)(AD_LEAF_MAX_END - needed);
}

/* True if the array is sound and has the shape, of `n` children. False means
 * only that ad_array_validate_known has to decide. Most streams are of structs
 * of plain columns, whose batches are checked against the shape of their
 * schema. Inline, because a stream that is passed on does nothing else with a
 * batch. */
static inline __attribute__((always_inline)) bool
has_shape(const struct ArrowArray *array, const uint8_t *shape, int64_t n)
{
    if (!is_simple_node(array, 1, n, 0) && !ad_batch_root_is_sound(array, n)) {
        return false;
    }
    int64_t needed = array->offset + array->length;
    if (needed > AD_LEAF_MAX_END || (n > 0 && array->children == NULL)) {
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        const struct ArrowArray *column = array->children[i];
        if (column == NULL) {
            return false;
        }
        bool is_simple = is_simple_node(column, shape[i], 0, needed) &&
                         column->buffers[1] != NULL;
        if (!is_simple &&
            !ad_batch_column_is_sound(column, shape[i], needed)) {
            return false;
        }
    }
    return true;
}

/* Checks the device type and the structure of a foreign batch. */
static inline __attribute__((always_inline)) int
check_batch(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    if (out->device_type != self->device_type &&
        !ad_device_type_reaches(self->device_type, out->device_type)) {
        return fail_device_type(self, out);
    }
    return self->shape != NULL &&
                   has_shape(&out->array, self->shape, self->n_columns)
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
    if (descend(&self->error) != AD_OK) {
        return fail(self);
    }
    int code = pull_now(self, out);
    ascend();
    return code;
}

static int
pull_foreign(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    if (self->condition != AD_STREAM_OPEN) {
        return not_open(self, out);
    }
    return reads_count() ? pull_counted(self, out) : pull_now(self, out);
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
    return status == AD_OK ? 0 : drop_batch(self, batch);
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
                            void *interpreter, ad_array_stream **out,
                            ad_error *err)
{
    if (stream->get_schema == device_schema) {
        *out = ad_array_stream_ref(stream->private_data);
        stream->release(stream);
        return AD_OK;
    }
    ad_array_stream *self = stream_new(err);
    if (self == NULL) {
        stream->release(stream);
        return AD_ERR_MEMORY;
    }
    self->device = *stream;
    self->interpreter = interpreter;
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
    ad_array_stream *self = stream_new(err);
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

/* --- reading ------------------------------------------------------------- */

ad_schema
ad_array_stream_schema(const ad_array_stream *stream)
{
    return stream->schema;
}

int32_t
ad_array_stream_device_type(const ad_array_stream *stream)
{
    return stream->device_type;
}

ad_batch_source *
ad_array_stream_source(const ad_array_stream *stream)
{
    return stream->source;
}

bool
ad_array_stream_is_borrowed(const ad_array_stream *stream)
{
    while (stream != NULL && stream->source != NULL) {
        if (stream->source->is_borrowed) {
            return true;
        }
        stream = stream->source->upstream;
    }
    return false;
}

static ad_status
return_error(const ad_array_stream *self, ad_error *err)
{
    if (err != NULL) {
        *err = self->error;
    }
    return self->error.status;
}

static ad_status
import_batch(ad_array_stream *self, struct ArrowDeviceArray *batch,
             ad_array *out, ad_error *err)
{
    if (ad_array_import_checked(self->schema, batch, self->interpreter, out,
                                &self->error) != AD_OK) {
        (void)drop_batch(self, batch);
        return return_error(self, err);
    }
    return AD_OK;
}

/* The producer writes a host batch into the slot where it stays. A copy of a
 * struct that was just written by narrower stores stalls the processor (failed
 * store forwarding) for longer than the rest of the import takes. */
static ad_status
next_on_host(ad_array_stream *self, ad_array *out, bool *is_end, ad_error *err)
{
    struct ArrowDeviceArray *slot = ad_array_slot_new(err);
    if (slot == NULL) {
        return AD_ERR_MEMORY;
    }
    int code = self->pull(self, slot);
    if (code == 0 && slot->array.release != NULL &&
        slot->device_type == ARROW_DEVICE_CPU) {
        ad_array_slot_import(slot, self->schema, out);
        return AD_OK;
    }
    struct ArrowDeviceArray batch = *slot; /* an end, or pinned memory */
    ad_array_slot_free(slot);
    if (code != 0) {
        return return_error(self, err);
    }
    *is_end = batch.array.release == NULL;
    return *is_end ? AD_OK : import_batch(self, &batch, out, err);
}

ad_status
ad_array_stream_next(ad_array_stream *self, ad_array *out, bool *is_end,
                     ad_error *err)
{
    struct ArrowDeviceArray batch;
    *is_end = false;
    if (self->condition == AD_STREAM_OPEN && self->source != NULL) {
        return source_next(self, out, is_end) == 0 ? AD_OK
                                                   : return_error(self, err);
    }
    if (self->device_type == ARROW_DEVICE_CPU) {
        return next_on_host(self, out, is_end, err);
    }
    if (self->pull(self, &batch) != 0) {
        return return_error(self, err);
    }
    *is_end = batch.array.release == NULL;
    return *is_end ? AD_OK : import_batch(self, &batch, out, err);
}

void
ad_array_list_free(ad_array *arrays, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ad_array_clear(&arrays[i]);
    }
    free(arrays);
}

ad_status
ad_array_stream_collect(ad_array_stream *self, ad_array **out, size_t *out_n,
                        ad_error *err)
{
    AD_LIST(ad_array) list = {0};
    for (;;) {
        bool is_end;
        ad_array *last = NULL;
        ad_status status = ad_list_reserve(&list, 1, err);
        if (status == AD_OK) {
            last = &list.items[list.n];
            status = ad_array_stream_next(self, last, &is_end, err);
        }
        if (status != AD_OK) {
            ad_array_list_free(list.items, list.n);
            return status;
        }
        if (is_end) {
            break;
        }
        /* An empty batch stays only if no other batch follows. */
        if (list.n > 0 && last->length == 0) {
            ad_array_clear(last);
        } else if (list.n == 1 && list.items[0].length == 0) {
            ad_array_clear(&list.items[0]);
            list.items[0] = *last;
        } else {
            list.n++;
        }
    }
    *out = list.items;
    *out_n = list.n;
    return AD_OK;
}

/* --- schemas of batches -------------------------------------------------- */

/* Describes a difference that the printed type does not show: nullability of
 * the root, or the metadata of an extension. */
static const char *
hidden_difference(const struct ArrowSchema *node,
                  const struct ArrowSchema *other)
{
    bool is_nullable = node->flags & ARROW_FLAG_NULLABLE;
    bool is_other_nullable = other->flags & ARROW_FLAG_NULLABLE;
    if (is_nullable != is_other_nullable) {
        return is_nullable ? " (nullable)" : " (not nullable)";
    }
    return ad_schema_all(node, other, ad_extension_equal)
               ? ""
               : ", with other extension metadata";
}

ad_status
ad_array_stream_require_schema(const struct ArrowSchema *found,
                               const struct ArrowSchema *wanted,
                               const char *what, const char *whole,
                               const char *hint, ad_error *err)
{
    bool is_equal = found == wanted;
    ad_text from = {0};
    ad_text to = {0};
    if (is_equal) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_schema_equal(found, wanted, false, false, &is_equal, err));
    if (is_equal && ad_schema_all(found, wanted, ad_extension_equal)) {
        return AD_OK;
    }
    ad_status status = ad_type_print(found, &from, err);
    if (status == AD_OK) {
        status = ad_type_print(wanted, &to, err);
    }
    if (status == AD_OK) {
        bool are_alike =
            strcmp(ad_text_string(&from), ad_text_string(&to)) == 0;
        status = ad_fail(err, AD_ERR_EXCHANGE, "schema", hint,
                         "%s is %.200s%s, but %s is %.200s%s", what,
                         ad_text_string(&from),
                         are_alike ? hidden_difference(found, wanted) : "",
                         whole, ad_text_string(&to),
                         are_alike ? hidden_difference(wanted, found) : "");
    }
    ad_text_clear(&from);
    ad_text_clear(&to);
    return status;
}
