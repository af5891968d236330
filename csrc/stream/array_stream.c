#include "stream/array_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/process.h"
#include "base/thread_local.h"
#include "base/wait.h"
#include "model/extension.h"
#include "stream/array_stream_internal.h"

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

const char *
ad_array_stream_foreign_text(ad_array_stream *self)
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

int
ad_array_stream_fail(ad_array_stream *self)
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
        return ad_array_stream_foreign_text(self);
    }
    if (self->source != NULL && self->source->last_error != NULL) {
        text = self->source->last_error(self->source, &code);
    }
    return text != NULL ? text : self->error.message;
}

int
ad_array_stream_drop_batch(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    out->array.release(&out->array);
    out->array.release = NULL;
    return ad_array_stream_fail(self);
}

int
ad_array_stream_not_open(ad_array_stream *self, struct ArrowDeviceArray *out)
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

atomic_size_t ad_streams_alive;

static AD_THREAD_LOCAL size_t n_reads; /* that are nested now */

ad_status
ad_stream_descend(ad_error *err)
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

void
ad_stream_ascend(void)
{
    n_reads--;
}

/* --- sources ------------------------------------------------------------- */

/* The source's next batch, with a limit on nested reads. */
static ad_status
ask_source(ad_array_stream *self, ad_array *out, bool *is_end)
{
    ad_batch_source *source = self->source;
    if (!ad_stream_reads_count()) {
        return source->next(source, out, is_end, &self->error);
    }
    AD_RETURN_IF_ERR(ad_stream_descend(&self->error));
    ad_status status = source->next(source, out, is_end, &self->error);
    ad_stream_ascend();
    return status;
}

/* Records the failure of the source that self->error describes. */
static int
fail_source(ad_array_stream *self)
{
    int code = 0;
    ad_array_stream_fail(self);
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
        return ad_array_stream_fail(self);
    }
    return 0;
}

static int
pull_source(ad_array_stream *self, struct ArrowDeviceArray *out)
{
    ad_array array;
    bool is_end;
    if (self->condition != AD_STREAM_OPEN) {
        return ad_array_stream_not_open(self, out);
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
    return status == AD_OK ? 0 : ad_array_stream_fail(self);
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
    atomic_fetch_sub_explicit(&ad_streams_alive, 1, memory_order_relaxed);
    ad_array_stream_close(self);
    ad_schema_unref(self->schema);
    free(self->shape);
    free(self);
}

static const ad_owner_ops stream_ops = {.destroy = stream_destroy,
                                        .name = "stream"};

/* malloc, not calloc: most of the struct is `error`, which is written before
 * it is read. */
ad_array_stream *
ad_array_stream_new(ad_error *err)
{
    ad_array_stream *self = malloc(sizeof(*self));
    if (self == NULL) {
        (void)ad_fail_memory(err, sizeof(*self));
        return NULL;
    }
    ad_owner_init(&self->base, &stream_ops);
    atomic_fetch_add_explicit(&ad_streams_alive, 1, memory_order_relaxed);
    self->pull = NULL;
    self->schema = (ad_schema){0};
    self->shape = NULL;
    self->device_type = ARROW_DEVICE_CPU;
    self->condition = AD_STREAM_OPEN;
    self->is_called = self->is_left = false;
    self->is_host = self->with_gil = false;
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
    ad_array_stream *self = ad_array_stream_new(err);
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
    if (ad_array_import_checked(self->schema, batch, self->with_gil, out,
                                &self->error) != AD_OK) {
        (void)ad_array_stream_drop_batch(self, batch);
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
