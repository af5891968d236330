/* Arrays as tensors: columns, batches as matrices, and what is known of the
 * tensor without making it. */
#include "bridge/bridge.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/owner.h"
#include "bridge/flatten.h"
#include "compute/bits.h"
#include "copy/copy.h"
#include "copy/session.h"
#include "device/backend.h"
#include "kernels/kernels.h"
#include "model/extension.h"
#include "order/device_owner.h"

/* --- nulls filled with a value ------------------------------------------- */

/* A bitmap, and the elements of its rows. The host fills nulls at once, a
 * device as work of a stream. */
typedef struct null_fill {
    const void *validity; /* the bitmap, in memory of `array` */
    int64_t offset;       /* of the first row's bit */
    int64_t n_rows;
    int64_t n_elements; /* a multiple of n_rows (several elements per row) or a
                           divisor of it (several rows per element) */
} null_fill;

static const char filling[] = "filling nulls";

/* The kernels fill whole elements of these sizes. */
static ad_status
check_size(size_t size, ad_device device, ad_error *err)
{
    if (size == 1 || size == 2 || size == 4 || size == 8 || size == 16) {
        return AD_OK;
    }
    return ad_fail_on(
        err, device, "dtype", "use nulls=\"ignore\" and the array's .validity",
        "nulls are filled in elements of 1, 2, 4, 8 or 16 bytes, "
        "and these have %s%zu",
        size == 0 ? "less than " : "", size == 0 ? 1 : size);
}

/* `size` has passed check_size. */
static ad_launch
fill_launch(const null_fill *fill, const void *value, size_t size)
{
    unsigned char repeated[16];
    ad_launch launch = {
        .kernel = AD_KERNEL_FILL_NULLS,
        .bit_offset = fill->offset,
        .length = fill->n_rows,
        .numbers = {(int64_t)size},
    };
    for (size_t i = 0; i < sizeof(repeated); i += size) {
        memcpy(repeated + i, value, size);
    }
    launch.numbers[1] = fill->n_rows > fill->n_elements
                            ? -(fill->n_rows / fill->n_elements)
                            : fill->n_elements / fill->n_rows;
    memcpy(&launch.numbers[2], repeated, sizeof(repeated));
    return launch;
}

static ad_status
run_fill(ad_session *session, const ad_array *array, const null_fill *fill,
         ad_launch launch, void *target, ad_error *err)
{
    const ad_session_request also =
        ad_session_within(array->memory.device, fill->validity,
                          array->memory.sync, NULL, filling);
    AD_RETURN_IF_ERR(ad_session_use(session, &also, array->memory.owner, err));
    return ad_session_kernel(session, fill->validity, target, launch, err);
}

/* Writes the value of `size` bytes to the null rows of `target`, which is
 * arrowdev's own memory on the array's device. The work follows target->sync,
 * which is replaced by the event to wait for. On the host the work is done on
 * return. AD_ERR_EXCHANGE, "dtype", for a size other than 1, 2, 4, 8 and 16,
 * here and below. */
static ad_status
fill_nulls(const ad_array *array, const null_fill *fills, size_t n,
           const void *value, size_t size, ad_tensor *target, ad_error *err)
{
    ad_session_request request =
        ad_session_within(target->memory.device, target->data,
                          target->memory.sync, NULL, filling);
    ad_session session;
    ad_sync *sync;
    request.others_pending = !ad_sync_is_done(array->memory.sync);
    AD_RETURN_IF_ERR(check_size(size, array->memory.device, err));
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    ad_status status =
        session.backend == NULL
            ? AD_OK
            : ad_owner_record_stream(target->memory.owner, &session.on, err);
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        ad_launch launch = fill_launch(&fills[i], value, size);
        if (launch.numbers[1] == 1) {
            launch.values.data = target->data;
        }
        status =
            run_fill(&session, array, &fills[i], launch, target->data, err);
    }
    if (status == AD_OK) {
        status = ad_session_finish(&session, NULL, &sync, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(&session, array->memory.owner, NULL,
                           target->memory.owner);
        return status;
    }
    if (sync != NULL) {
        ad_sync_unref(target->memory.sync);
        target->memory.sync = sync;
    }
    return AD_OK;
}

/* Without a session, which takes longer than filling a thousand rows. */
static ad_status
copy_filled_on_host(const ad_array *array, const null_fill *fill,
                    ad_launch launch, int64_t nbytes, ad_allocation *out,
                    ad_error *err)
{
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_sync_wait(array->memory.sync, filling, err));
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    launch.source.data = (void *)fill->validity;
    launch.target.data = memory->data;
    launch.n_items = 1;
    ad_kernel_run_on_host(&launch);
    *out = (ad_allocation){.data = memory->data, .owner = &memory->base};
    return AD_OK;
}

/* Copies `values` to new memory and fills the nulls in one pass. `values` is
 * contiguous, with one element per row. The result is on the host where the
 * host can access the values, else on their device. */
static ad_status
copy_filled(const ad_array *array, const null_fill *fill, const void *value,
            size_t size, const ad_tensor *values, ad_allocation *out,
            ad_error *err)
{
    const ad_session_request request = ad_session_within(
        array->memory.device, values->data, array->memory.sync, NULL, filling);
    AD_RETURN_IF_ERR(check_size(size, array->memory.device, err));
    int64_t nbytes = fill->n_rows * (int64_t)size;
    ad_launch launch = fill_launch(fill, value, size);
    launch.values.data = values->data;
    launch.values.offset = values->byte_offset;
    *out = (ad_allocation){0};
    if (ad_host_accessible(array->memory.device)) {
        return copy_filled_on_host(array, fill, launch, nbytes, out, err);
    }
    ad_session session;
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    ad_status status =
        ad_session_allocate(&session, nbytes, &out->data, &out->owner, err);
    if (status == AD_OK) {
        status = run_fill(&session, array, fill, launch, out->data, err);
    }
    return ad_session_end(&session, status, array->memory.owner, NULL, out,
                          err);
}

/* --- copies of a column -------------------------------------------------- */

static ad_status
fail_copy(const ad_array *array, bool is_bits, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "copy", "allow a copy (copy=None)",
            "%s needs a copy, which was ruled out",
            is_bits ? "making bytes of the bits of a bool array"
                    : "filling nulls");
    ad_error_device(err, array->memory.device);
    ad_type_error_dtype(array->schema.node, err);
    return AD_ERR_EXCHANGE;
}

/* Unpacks the bits to bytes. */
static ad_status
unpack_values(const ad_array *array, const ad_flattened *flat, int64_t n,
              ad_device device, ad_allocation *out, ad_error *err)
{
    bool is_host = ad_host_accessible(device);
    if (is_host) {
        AD_RETURN_IF_ERR(
            ad_sync_wait(array->memory.sync, "a copy on the host", err));
    }
    const ad_bits bits = {
        .device = device,
        .data = flat->data,
        .offset = flat->offset,
        .length = n,
        .owner = array->memory.owner,
        .sync = is_host ? NULL : array->memory.sync,
    };
    return ad_unpack_bits(&bits, NULL, out, err);
}

/* Copies the values as one dimension, so that their order in memory stays. */
static ad_status
duplicate_values(const ad_array *array, const ad_tensor *tensor, int64_t n,
                 ad_device device, ad_allocation *out, ad_error *err)
{
    ad_tensor_value copy;
    int64_t stride = 1;
    ad_tensor run = *tensor;
    run.ndim = 1;
    run.shape = &n;
    run.strides = &stride;
    run.memory.owner = array->memory.owner;
    run.memory.sync = array->memory.sync;
    AD_RETURN_IF_ERR(
        ad_tensor_copy_to(&run, device, NULL, 'C', NULL, &copy, err));
    *out = (ad_allocation){copy.tensor.data, copy.tensor.memory.owner,
                           copy.tensor.memory.sync};
    return AD_OK;
}

/* Replaces the memory of *tensor by a copy in the same order. The nulls of a
 * plain column are those of its only level, and filled by the copy. A row of
 * other levels holds several elements (a list) or a part of one (half of a
 * complex number). */
static ad_status
copy_values(const ad_array *array, const ad_flattened *flat, bool has_nulls,
            const void *value, ad_tensor *tensor, ad_error *err)
{
    ad_device device =
        ad_bridge_target(array->memory.device, AD_COPY_IF_NEEDED);
    null_fill fills[AD_MAX_DEPTH + 1];
    ad_allocation made;
    size_t n_fills = 0;
    int64_t n = ad_tensor_size(tensor);
    uint32_t bits = ad_dtype_bits(tensor->dtype);
    size_t size = bits % 8 == 0 ? bits / 8 : 0;
    bool is_plain = has_nulls && flat->n_levels == 1 && !flat->is_bits &&
                    flat->levels[0].length == n;
    for (int32_t i = 0; has_nulls && n > 0 && i < flat->n_levels; i++) {
        const ad_level *level = &flat->levels[i];
        if (level->n_nulls != 0) {
            fills[n_fills++] =
                (null_fill){level->validity, level->offset, level->length, n};
        }
    }
    int64_t start = ad_log_start();
    AD_RETURN_IF_ERR(
        is_plain ? copy_filled(array, fills, value, size, tensor, &made, err)
        : flat->is_bits
            ? unpack_values(array, flat, n, device, &made, err)
            : duplicate_values(array, tensor, n, device, &made, err));
    AD_LOG_COPY(size > 0 ? n * (int64_t)size : n * bits / 8,
                array->memory.device, device,
                flat->is_bits ? "a tensor has a byte per bool, not a bit"
                : has_nulls   ? "nulls are filled"
                              : "copy=True was passed",
                start);
    tensor->data = made.data;
    tensor->byte_offset = 0;
    tensor->memory =
        (ad_memory){.owner = made.owner, .sync = made.sync, .device = device};
    tensor->flags = AD_TENSOR_COPIED;
    if (is_plain || n_fills == 0) {
        return AD_OK;
    }
    ad_status status =
        fill_nulls(array, fills, n_fills, value, size, tensor, err);
    if (status != AD_OK) {
        ad_tensor_clear(tensor);
    }
    return status;
}

/* --- a column ------------------------------------------------------------ */

static void
share_memory(const ad_array *array, ad_tensor *tensor)
{
    tensor->memory.owner = ad_owner_ref(array->memory.owner);
    tensor->memory.sync = ad_sync_ref(array->memory.sync);
}

/* The fast path for plain numbers without nulls, the most frequent column. */
static const ad_dtype_info *
plain_column(const ad_array *array)
{
    const struct ArrowSchema *schema = array->schema.node;
    if (schema->metadata != NULL || schema->dictionary != NULL ||
        !ad_array_has_no_nulls(array)) {
        return NULL;
    }
    return ad_dtype_by_format(schema->format);
}

/* Makes a tensor of the values from value `offset` of `nbytes` bytes on. The
 * product may overflow: validation cannot check the length of the memory. */
static ad_status
check(const ad_array *array, ad_tensor_descriptor *descriptor, int64_t offset,
      int64_t nbytes, ad_tensor_value *out, ad_error *err)
{
    int64_t product;
    if (__builtin_mul_overflow(offset, nbytes, &product)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %" PRId64 " of %" PRId64
                       "-byte values overflows",
                       offset, nbytes);
    }
    descriptor->byte_offset = (uint64_t)product;
    descriptor->memory = (ad_memory){.device = array->memory.device,
                                     .readonly = array->memory.readonly};
    descriptor->flags = AD_TENSOR_IMMUTABLE;
    return ad_tensor_check(descriptor, "the array", out, err);
}

static ad_status
check_plain(const ad_array *array, ad_dl_dtype dtype, ad_tensor_value *out,
            ad_error *err)
{
    ad_tensor_descriptor descriptor = {
        .data = (void *)array->node->buffers[1],
        .dtype = dtype,
        .ndim = 1,
        .shape = &array->length,
    };
    return check(array, &descriptor, array->offset, dtype.bits / 8, out, err);
}

/* Dimensions in logical order, with the strides of the order in memory. */
static ad_status
check_flattened(const ad_array *array, const ad_flattened *flat,
                ad_tensor_value *out, ad_error *err)
{
    int64_t memory_strides[AD_MAX_NDIM];
    int64_t shape[AD_MAX_NDIM];
    int64_t strides[AD_MAX_NDIM];
    /* Wraps instead of overflowing: ad_tensor_check refuses such shapes. */
    uint64_t stride = 1;
    for (int32_t i = flat->ndim - 1; i >= 0; i--) {
        memory_strides[i] = (int64_t)stride;
        stride *= flat->extent[i] > 1 ? (uint64_t)flat->extent[i] : 1;
    }
    for (int32_t i = 0; i < flat->ndim; i++) {
        shape[i] = flat->extent[flat->position[i]];
        strides[i] = memory_strides[flat->position[i]];
    }
    ad_tensor_descriptor descriptor = {
        .data = (void *)flat->data,
        .dtype = flat->dtype,
        .ndim = flat->ndim,
        .shape = shape,
        .strides = strides,
    };
    return check(array, &descriptor, flat->offset, flat->leaf_nbytes, out,
                 err);
}

/* Anything but a batch. */
static ad_status
column_to_tensor(const ad_array *array, const ad_bridge_options *options,
                 ad_tensor_value *out, ad_error *err)
{
    const ad_dtype_info *plain =
        options->copy != AD_COPY_ALWAYS ? plain_column(array) : NULL;
    if (plain != NULL) {
        AD_RETURN_IF_ERR(check_plain(array, plain->dtype, out, err));
        share_memory(array, &out->tensor);
        return AD_OK;
    }
    ad_flattened flat;
    bool has_nulls;
    AD_RETURN_IF_ERR(ad_flatten_array(array, true, &flat, err));
    AD_RETURN_IF_ERR(
        ad_flatten_resolve_nulls(array, options, &flat, &has_nulls, err));
    AD_RETURN_IF_ERR(check_flattened(array, &flat, out, err));
    if (options->copy != AD_COPY_ALWAYS && !flat.is_bits && !has_nulls) {
        share_memory(array, &out->tensor);
        return AD_OK;
    }
    return options->copy == AD_COPY_NEVER
               ? fail_copy(array, flat.is_bits, err)
               : copy_values(array, &flat, has_nulls, options->fill,
                             &out->tensor, err);
}

/* --- a batch as a matrix ------------------------------------------------- */

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

/* --- columns ------------------------------------------------------------- */

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
    "take one column with arrowdev.array(x).field(...), or bring them to "    \
    "one type in the producing library"

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

/* --- copies of a matrix -------------------------------------------------- */

/* A column as the source of the copy. It is a copy itself if bits become bytes
 * or nulls are filled. */
static ad_status
take_column(const matrix *self, int64_t i, const ad_bridge_options *options,
            ad_tensor_value *value, ad_error *err)
{
    const ad_array *batch = self->batch;
    ad_array column = column_of(batch, i);
    AD_RETURN_IF_ERR(column_to_tensor(&column, options, value, err));
    if (!self->has_null_rows) {
        return AD_OK;
    }
    const null_fill fill = {
        .validity = ad_array_validity(batch),
        .offset = batch->offset,
        .n_rows = self->n_rows,
        .n_elements = self->n_rows,
    };
    ad_status status = fill_nulls(batch, &fill, 1, self->options->fill,
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
fail_copy_of_matrix(const matrix *self, const char *why, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "copy",
            "allow a copy (copy=None), or take the columns one by one with "
            "arrowdev.array(x).field(...)",
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

/* --- a batch ------------------------------------------------------------- */

/* `why` says why the columns are no matrix; NULL: they are one. */
static void
log_copy(const matrix *self, const char *why, int64_t start)
{
    ad_device device = self->batch->memory.device;
    char because[128] = "copy=True was passed";
    if (why != NULL) {
        snprintf(because, sizeof(because),
                 "the columns are no matrix as they are: %s", why);
    }
    ad_log_copy(self->n_columns * self->run, device,
                ad_bridge_target(device, AD_COPY_IF_NEEDED), because, start);
}

/* The columns are also row-major if there is one row without gaps or one
 * column. */
static bool
is_row_major(const matrix *self)
{
    return self->n_columns == 1 || self->n_rows == 0 ||
           (self->n_rows == 1 && self->pitch == self->size);
}

/* A struct whose columns have one element type, as a matrix of the shape
 * (rows, columns). */
static ad_status
batch_to_tensor(const ad_array *batch, const ad_bridge_options *options,
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
        return fail_copy_of_matrix(&self, why, err);
    }
    int64_t start = ad_log_start();
    AD_RETURN_IF_ERR(copy_columns(&self, order, out, err));
    if (ad_log_is_on()) {
        log_copy(&self, self.has_pitch && !turns ? NULL : why, start);
    }
    return AD_OK;
}

/* --- an array ------------------------------------------------------------ */

static bool
is_batch(const ad_array *array)
{
    return strcmp(array->schema.node->format, "+s") == 0;
}

/* copy=True for pinned or managed memory: the tensor is made as if it was CPU
 * memory, and the copy goes to the device of the array. */
static ad_status
copy_back(const ad_array *array, const ad_bridge_options *options,
          ad_tensor_value *out, ad_error *err)
{
    char order = is_batch(array) && options->order == 0 ? 'F' : options->order;
    ad_bridge_options if_needed = *options;
    ad_array on_host = ad_array_borrow(array);
    ad_tensor_value seen;
    if_needed.copy = AD_COPY_IF_NEEDED;
    on_host.memory.device = AD_CPU;
    on_host.memory.sync = NULL;
    AD_RETURN_IF_ERR(
        ad_sync_wait(array->memory.sync, "a copy on the host", err));
    ad_status status = ad_tensor_from_array(&on_host, &if_needed, &seen, err);
    if (status != AD_OK) {
        ad_error_device(err, array->memory.device);
        return status;
    }
    if ((seen.tensor.flags & AD_TENSOR_COPIED) == 0) { /* shared memory */
        seen.tensor.memory.device = array->memory.device;
    }
    status = ad_tensor_copy_to(&seen.tensor, array->memory.device, NULL, order,
                               "copy=True was passed", out, err);
    ad_tensor_clear(&seen.tensor);
    return status;
}

ad_status
ad_tensor_from_array(const ad_array *array, const ad_bridge_options *options,
                     ad_tensor_value *out, ad_error *err)
{
    if (options->copy == AD_COPY_ALWAYS &&
        ad_host_accessible(array->memory.device) &&
        !ad_device_equal(array->memory.device, AD_CPU)) {
        return copy_back(array, options, out, err);
    }
    return is_batch(array) ? batch_to_tensor(array, options, out, err)
                           : column_to_tensor(array, options, out, err);
}

/* The rows alone, without what they consist of. */
static void
flatten_rows(const ad_array *array, ad_flattened *out)
{
    const void *validity = ad_array_validity(array);
    out->n_levels = ad_array_has_no_nulls(array) ? 0 : 1;
    out->levels[0] = (ad_level){
        .validity = validity,
        .offset = array->offset,
        .length = array->length,
        .n_nulls =
            validity != NULL ? ad_array_null_count(array) : array->length,
    };
}

ad_status
ad_array_require_no_nulls(const ad_array *array, ad_error *err)
{
    const ad_bridge_options options = {.nulls = AD_NULLS_RAISE};
    ad_flattened flat;
    bool has_nulls;
    if (is_batch(array)) {
        flatten_rows(array, &flat);
    } else {
        ad_status status = ad_flatten_array(array, true, &flat, err);
        if (status == AD_ERR_EXCHANGE && !ad_error_has_reason(err, "nulls")) {
            flatten_rows(array, &flat); /* no tensor */
        } else if (status != AD_OK) {
            return status;
        }
    }
    AD_RETURN_IF_ERR(
        ad_flatten_resolve_nulls(array, &options, &flat, &has_nulls, err));
    for (int64_t i = 0; is_batch(array) && i < array->node->n_children; i++) {
        const ad_array column =
            ad_array_borrow_below(array, i, array->offset, array->length);
        AD_RETURN_IF_ERR(ad_array_require_no_nulls(&column, err));
    }
    return AD_OK;
}

bool
ad_array_tensor_dtype(const ad_array *array, ad_dl_dtype *out)
{
    ad_flattened flat;
    ad_array column;
    if (is_batch(array) && array->node->n_children > 0) {
        column = ad_array_borrow_below(array, 0, array->offset, array->length);
        array = &column;
    }
    if (ad_flatten_array(array, false, &flat, NULL) != AD_OK) {
        return false;
    }
    *out = flat.dtype;
    return true;
}

void
ad_array_tensor_shape(const ad_array *array, int32_t *ndim, int64_t *shape)
{
    ad_flattened flat;
    shape[0] = array->length;
    if (is_batch(array)) {
        *ndim = 2;
        shape[1] = array->node->n_children;
        return;
    }
    if (ad_flatten_array(array, false, &flat, NULL) != AD_OK) {
        *ndim = 1;
        return;
    }
    bool is_known = !ad_array_reads_offsets(array);
    *ndim = flat.ndim;
    for (int32_t i = 0; i < flat.ndim; i++) {
        shape[i] = is_known ? flat.extent[flat.position[i]] : -1;
    }
}
