/* A batch of columns of one type as a matrix. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/owner.h"
#include "bridge/flatten.h"
#include "model/extension.h"
#include "compute/fill.h"
#include "copy/copy.h"
#include "copy/session.h"
#include "kernels/interleave.h"

typedef struct matrix {
    const ad_array *batch;
    const ad_bridge_options *options;
    int64_t n_rows;
    int64_t n_columns;
    ad_dl_dtype dtype;
    int64_t size;       /* bytes of an element */
    int64_t run;        /* bytes of a column */
    void *data;         /* of the first column: address or handle */
    int64_t start;      /* of the rows in `data`, in bytes */
    int64_t pitch;      /* bytes from one column to the next */
    int64_t end;        /* of the last column's memory, from `data` on */
    bool has_pitch;     /* the columns need no copy */
    bool has_gaps;      /* there is memory between columns */
    bool has_null_rows; /* the batch's own nulls are filled */
    const char *why;    /* the reason if has_pitch is false */
} matrix;

/* --- columns ------------------------------------------------------------ */

static const char *
name_of(const matrix *self, int64_t i)
{
    const char *name = self->batch->schema.node->children[i]->name;
    return name != NULL ? name : "";
}

/* Column `i`, borrowed; the nulls of the batch are ignored. */
static ad_array
column_of(const ad_array *batch, int64_t i)
{
    return ad_array_borrow_below(batch, i, batch->offset, batch->length);
}

static ad_status
fail_columns(const matrix *self, ad_error *err)
{
    ad_error_device(err, self->batch->memory.device);
    ad_type_error_dtype(self->batch->schema.node, err);
    return AD_ERR_EXCHANGE;
}

#define COLUMN_HINT                                                           \
    "take one column with .field(...), or bring them to one type in the "     \
    "producing library"

/* The first column defines the element type. */
static ad_status
take_type(matrix *self, ad_dl_dtype dtype, ad_error *err)
{
    int64_t nbytes;
    self->dtype = dtype;
    self->size = ad_dtype_bits(dtype) / 8;
    if (__builtin_mul_overflow(self->n_rows, self->size, &self->run) ||
        __builtin_mul_overflow(self->run, self->n_columns, &nbytes)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "%" PRId64 " columns of %" PRId64
                       " rows overflow 64 bits",
                       self->n_columns, self->n_rows);
    }
    return AD_OK;
}

static ad_status
check_type(matrix *self, int64_t i, const ad_flattened *flat, ad_error *err)
{
    char first[AD_DTYPE_NAME_SIZE], other[AD_DTYPE_NAME_SIZE];
    if (flat->ndim > 1) {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype", COLUMN_HINT,
                "column \"%.80s\" has rows of %" PRId32
                " dimensions, and those of a matrix are single values",
                name_of(self, i), flat->ndim - 1);
        return fail_columns(self, err);
    }
    if (i == 0) {
        return take_type(self, flat->dtype, err);
    }
    if (!ad_dtype_equal(self->dtype, flat->dtype)) {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype", COLUMN_HINT,
                "column \"%.80s\" is of type %s and column \"%.80s\" of "
                "type %s, and a matrix has one type",
                name_of(self, 0), ad_dtype_format(self->dtype, first),
                name_of(self, i), ad_dtype_format(flat->dtype, other));
        return fail_columns(self, err);
    }
    return AD_OK;
}

static void
needs_copy(matrix *self, const char *why)
{
    self->has_pitch = false;
    self->why = self->why != NULL ? self->why : why;
}

/* Records the position of column `i` relative to the first column. */
static void
note_place(matrix *self, int64_t i, const ad_array *column,
           const ad_flattened *flat)
{
    bool is_handle = ad_device_uses_handles(self->batch->memory.device.type);
    /* The memory of the child reaches up to its last row, which the slice may
     * not have. */
    int64_t rows = column->node->offset + column->node->length;
    int64_t start, begin, end, step;
    if (i == 0) {
        self->data = (void *)flat->data;
    }
    begin = (int64_t)((uintptr_t)flat->data - (uintptr_t)self->data);
    if (__builtin_mul_overflow(flat->offset, flat->leaf_nbytes, &start) ||
        __builtin_add_overflow(begin, start, &start) ||
        __builtin_mul_overflow(rows - column->offset, self->size, &end) ||
        __builtin_add_overflow(start, end, &end)) {
        needs_copy(self, "their distance overflows 64 bits");
        return;
    }
    if (i == 0) {
        self->start = start;
        self->end = end;
        self->pitch = self->run; /* valid for a single column */
        return;
    }
    if (is_handle && flat->data != self->data) {
        needs_copy(self, "they are in several buffers");
        return;
    }
    self->has_gaps |= begin > self->end;
    self->end = end;
    if (__builtin_sub_overflow(start, self->start, &step)) {
        needs_copy(self, "their distance overflows 64 bits");
    } else if (i == 1) {
        self->pitch = step;
        if (step < self->run || step % self->size != 0) {
            needs_copy(self, "they are not stored one after the other");
        }
    } else if (step / i != self->pitch || step % i != 0) {
        needs_copy(self, "the distances between them differ");
    }
}

/* A tensor spans the gaps between the columns, which may be unmapped or memory
 * of others, however regular they are: only the owner of the memory tells. On
 * the host the bytes of columns without gaps are all theirs, so they may be in
 * several allocations; the copies of device runtimes end with an
 * allocation. */
static bool
is_one_block(const matrix *self)
{
    ad_device device = self->batch->memory.device;
    int64_t nbytes;
    if (self->n_columns == 1 || self->n_rows == 0 ||
        ad_device_uses_handles(device.type) ||
        (ad_device_equal(device, AD_CPU) && !self->has_gaps)) {
        return true;
    }
    return !__builtin_mul_overflow(self->pitch, self->n_columns - 1,
                                   &nbytes) &&
           !__builtin_add_overflow(nbytes, self->run, &nbytes) &&
           ad_owner_covers(self->batch->memory.owner,
                           (const char *)self->data + self->start,
                           (size_t)nbytes);
}

/* Hints name the array x, which is a column here. */
static void
hint_at_column(int64_t i, ad_error *err)
{
    if (err != NULL) {
        char hint[sizeof(err->hint)];
        memcpy(hint, err->hint, sizeof(hint));
        ad_error_hint(err,
                      "take x = arrowdev.array(batch).field(%" PRId64 "); %s",
                      i, hint);
    }
}

static ad_status
inspect_column(matrix *self, int64_t i, ad_error *err)
{
    ad_flattened flat;
    bool has_nulls;
    ad_array column = column_of(self->batch, i);
    ad_status status = ad_flatten_array(&column, false, &flat, err);
    if (status == AD_ERR_EXCHANGE) {
        hint_at_column(i, err);
    }
    if (status == AD_OK) {
        status = check_type(self, i, &flat, err);
        if (status != AD_OK) {
            return status;
        }
        status = ad_flatten_resolve_nulls(&column, self->options, &flat,
                                          &has_nulls, err);
    }
    if (status != AD_OK) {
        ad_error_prefix(err, "column \"%.80s\": ", name_of(self, i));
        return status;
    }
    if (has_nulls || flat.is_bits) {
        needs_copy(self, has_nulls ? "nulls are to be filled"
                                   : "bits are to become bytes");
    } else if (self->has_pitch && self->n_rows > 0) {
        note_place(self, i, &column, &flat);
    }
    return AD_OK;
}

/* Checks the batch's own nulls, which its columns do not contain. */
static ad_status
inspect_rows(matrix *self, ad_error *err)
{
    const ad_array *batch = self->batch;
    ad_flattened flat = {.n_levels = 1};
    flat.levels[0] = (ad_level){
        .validity = ad_array_validity(batch),
        .offset = batch->offset,
        .length = batch->length,
        .n_nulls =
            ad_array_has_no_nulls(batch) ? 0 : ad_array_null_count(batch),
    };
    AD_RETURN_IF_ERR(ad_flatten_resolve_nulls(batch, self->options, &flat,
                                              &self->has_null_rows, err));
    if (self->has_null_rows) {
        needs_copy(self, "nulls are to be filled");
    }
    return AD_OK;
}

static ad_status
inspect(matrix *self, ad_error *err)
{
    if (self->n_columns == 0) {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype", NULL,
                "a batch without columns has no element type, so that it is "
                "no matrix");
        return fail_columns(self, err);
    }
    AD_RETURN_IF_ERR(inspect_rows(self, err));
    for (int64_t i = 0; i < self->n_columns; i++) {
        AD_RETURN_IF_ERR(inspect_column(self, i, err));
    }
    if (self->has_pitch && !is_one_block(self)) {
        needs_copy(self, self->has_gaps
                             ? "the gaps between them may be memory of others"
                             : "they may be in several allocations");
    }
    return AD_OK;
}

/* --- zero-copy views ----------------------------------------------------- */

/* The matrix over `memory`; steals its owner and sync, even on failure. */
static ad_status
describe_stolen(const matrix *self, const ad_tensor *memory, char order,
                int64_t pitch, ad_tensor_value *out, ad_error *err)
{
    int64_t shape[] = {self->n_rows, self->n_columns};
    int64_t strides[] = {1, pitch / self->size};
    ad_tensor held = *memory;
    const ad_tensor_descriptor descriptor = {
        .data = memory->data,
        .byte_offset = memory->byte_offset,
        .dtype = self->dtype,
        .ndim = 2,
        .flags = memory->flags,
        .memory = memory->memory,
        .shape = shape,
        .strides = order == 'C' || self->n_rows == 0 ? NULL : strides,
    };
    ad_status status = ad_tensor_check(&descriptor, "the batch", out, err);
    if (status != AD_OK) {
        ad_tensor_clear(&held);
        return status;
    }
    return AD_OK;
}

/* The matrix over the memory of the columns. */
static ad_status
describe_columns(const matrix *self, ad_tensor_value *out, ad_error *err)
{
    const ad_array *batch = self->batch;
    const ad_tensor memory = {
        .data = self->data,
        .byte_offset = (uint64_t)self->start,
        .flags = AD_TENSOR_IMMUTABLE,
        .memory = ad_memory_ref(&batch->memory),
    };
    return describe_stolen(self, &memory, 'F', self->pitch, out, err);
}

/* --- copies -------------------------------------------------------------- */

/* A column as the source of the copy. It is a copy itself if bits become bytes
 * or nulls are filled. */
static ad_status
take_column(const matrix *self, int64_t i, const ad_bridge_options *options,
            ad_tensor_value *value, ad_error *err)
{
    const ad_array *batch = self->batch;
    ad_array column = column_of(batch, i);
    AD_RETURN_IF_ERR(ad_column_to_tensor(&column, options, value, err));
    if (!self->has_null_rows) {
        return AD_OK;
    }
    const ad_fill fill = {
        .validity = ad_array_validity(batch),
        .offset = batch->offset,
        .n_rows = self->n_rows,
        .n_elements = self->n_rows,
    };
    ad_status status = ad_nulls_fill(batch, &fill, 1, self->options->fill,
                                     (size_t)self->size, &value->tensor, err);
    if (status != AD_OK) {
        ad_tensor_clear(&value->tensor);
    }
    return status;
}

static ad_status
take_columns(const matrix *self, ad_tensor *columns, ad_error *err)
{
    ad_tensor_value value;
    ad_bridge_options options = *self->options;
    options.copy = self->has_null_rows ? AD_COPY_ALWAYS : AD_COPY_IF_NEEDED;
    if (options.nulls == AD_NULLS_RAISE) {
        options.nulls = AD_NULLS_IGNORE; /* inspect() has found none */
    }
    for (int64_t i = 0; i < self->n_columns; i++) {
        ad_status status = take_column(self, i, &options, &value, err);
        if (status != AD_OK) {
            ad_error_prefix(err, "column \"%.80s\": ", name_of(self, i));
            return status;
        }
        columns[i] = value.tensor;
        columns[i].shape = NULL; /* points into `value`, which is reused */
        columns[i].strides = NULL;
    }
    return AD_OK;
}

static ad_status
interleave(const matrix *self, const ad_tensor *columns, char *target,
           ad_error *err)
{
    size_t nbytes = (size_t)self->n_columns * sizeof(char *);
    const char **sources = malloc(nbytes);
    if (sources == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    for (int64_t k = 0; k < self->n_columns; k++) {
        sources[k] = ad_tensor_address(&columns[k]);
    }
    ad_interleave(sources, self->n_columns, self->n_rows, self->size, target,
                  self->n_columns * self->size);
    free(sources);
    return AD_OK;
}

/* Copies the columns one after the other. */
static ad_status
send_columns(const matrix *self, const ad_tensor *columns, ad_session *session,
             void *target, ad_error *err)
{
    for (int64_t k = 0; k < self->n_columns; k++) {
        const ad_tensor *column = &columns[k];
        const ad_session_request memory = ad_session_within(
            column->memory.device, NULL, column->memory.sync, NULL, "a copy");
        const ad_block_copy copy = {
            .target = ad_span_at(session->target, target, k * self->run),
            .source = {session->source, column->data, column->byte_offset},
            .width = (size_t)self->run,
            .height = 1,
        };
        AD_RETURN_IF_ERR(
            ad_session_use(session, &memory, column->memory.owner, err));
        AD_RETURN_IF_ERR(ad_session_copy(session, &copy, err));
    }
    return AD_OK;
}

static ad_status
join_columns(const matrix *self, const ad_tensor *columns, char order,
             ad_tensor *out, ad_error *err)
{
    const ad_array *batch = self->batch;
    ad_session_request request =
        ad_session_within(batch->memory.device, columns[0].data,
                          batch->memory.sync, NULL, "a copy");
    ad_session session;
    ad_allocation made = {0};
    request.target = ad_bridge_target(batch->memory.device, AD_COPY_IF_NEEDED);
    for (int64_t k = 0; k < self->n_columns; k++) {
        request.others_pending |= !ad_sync_is_done(columns[k].memory.sync);
    }
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    ad_status status = ad_session_allocate(
        &session, self->run * self->n_columns, &made.data, &made.owner, err);
    if (status == AD_OK) {
        bool turns = order == 'C' && session.backend == NULL && self->run > 0;
        status = turns ? interleave(self, columns, made.data, err)
                       : send_columns(self, columns, &session, made.data, err);
    }
    AD_RETURN_IF_ERR(ad_session_end(&session, status, batch->memory.owner,
                                    NULL, &made, err));
    *out = (ad_tensor){
        .data = made.data,
        .flags = AD_TENSOR_COPIED,
        .memory = {.owner = made.owner,
                   .sync = made.sync,
                   .device = request.target},
    };
    return AD_OK;
}

/* New memory with all columns: in `order` on the host, else in 'F'. */
static ad_status
join(const matrix *self, char order, ad_tensor *out, ad_error *err)
{
    size_t nbytes = (size_t)self->n_columns * sizeof(ad_tensor);
    ad_tensor *columns = calloc(1, nbytes);
    if (columns == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_status status = take_columns(self, columns, err);
    if (status == AD_OK) {
        status = join_columns(self, columns, order, out, err);
    }
    for (int64_t k = 0; k < self->n_columns; k++) {
        ad_tensor_clear(&columns[k]);
    }
    free(columns);
    return status;
}

static ad_status
fail_copy(const matrix *self, const char *why, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "copy",
            "allow a copy (copy=None), or take the columns one by one with "
            ".field(...)",
            "a matrix of these columns needs a copy, which was ruled out: %s",
            why);
    return fail_columns(self, err);
}

/* Copies a strided tensor; steals `source`. */
static ad_status
copy_strided(ad_tensor_value *source, char order, ad_tensor_value *out,
             ad_error *err)
{
    ad_device target =
        ad_bridge_target(source->tensor.memory.device, AD_COPY_IF_NEEDED);
    ad_status status = ad_tensor_copy_to(&source->tensor, target, NULL, order,
                                         NULL, out, err);
    ad_tensor_clear(&source->tensor);
    return status;
}

static ad_status
copy_columns(const matrix *self, char order, ad_tensor_value *out,
             ad_error *err)
{
    ad_tensor_value view;
    ad_tensor memory = {0};
    bool is_host = ad_host_accessible(self->batch->memory.device);
    if (self->has_pitch) {
        AD_RETURN_IF_ERR(describe_columns(self, &view, err));
        return copy_strided(&view, order, out, err);
    }
    AD_RETURN_IF_ERR(join(self, order, &memory, err));
    if (is_host || order == 'F') {
        return describe_stolen(self, &memory, order, self->run, out, err);
    }
    AD_RETURN_IF_ERR(
        describe_stolen(self, &memory, 'F', self->run, &view, err));
    return copy_strided(&view, order, out, err);
}

/* --- entry --------------------------------------------------------------- */

/* `why` says why the columns are no matrix; NULL: they are one. */
static void
log_copy(const matrix *self, const char *why)
{
    ad_device device = self->batch->memory.device;
    char because[128] = "copy=True was passed";
    if (why != NULL) {
        snprintf(because, sizeof(because),
                 "the columns are no matrix as they are: %s", why);
    }
    ad_log_copy(self->n_columns * self->run, device,
                ad_bridge_target(device, AD_COPY_IF_NEEDED), because);
}

/* The columns are also row-major if there is one row without gaps or one
 * column. */
static bool
is_row_major(const matrix *self)
{
    return self->n_columns == 1 || self->n_rows == 0 ||
           (self->n_rows == 1 && self->pitch == self->size);
}

ad_status
ad_batch_to_tensor(const ad_array *batch, const ad_bridge_options *options,
                   ad_tensor_value *out, ad_error *err)
{
    ad_extension extension;
    ad_flattened refused;
    char order = options->order == 'C' ? 'C' : 'F';
    matrix self = {
        .batch = batch,
        .options = options,
        .n_rows = batch->length,
        .n_columns = batch->node->n_children,
        .has_pitch = true,
    };
    AD_RETURN_IF_ERR(ad_extension_read(batch->schema.node, &extension, err));
    if (extension.kind != AD_EXTENSION_NONE) {
        /* The meaning of an extension's columns is unknown, so it fails. */
        return ad_flatten_array(batch, false, &refused, err);
    }
    AD_RETURN_IF_ERR(inspect(&self, err));
    bool turns = order == 'C' && !is_row_major(&self);
    if (self.has_pitch && !turns && options->copy != AD_COPY_ALWAYS) {
        return describe_columns(&self, out, err);
    }
    const char *why = self.has_pitch
                          ? "they are stored in order \"F\", not order=\"C\""
                          : self.why;
    if (options->copy == AD_COPY_NEVER) {
        return fail_copy(&self, why, err);
    }
    if (ad_log_is_on()) {
        log_copy(&self, self.has_pitch && !turns ? NULL : why);
    }
    return copy_columns(&self, order, out, err);
}
