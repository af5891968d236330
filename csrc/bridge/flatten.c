#include "bridge/flatten.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/owner.h"
#include "base/text.h"
#include "base/unaligned.h"
#include "compute/bits.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "model/extension.h"
#include "model/type.h"

typedef struct lists {
    const ad_array *array; /* that contains the lists */
    const struct ArrowArray *node;
    int64_t offset;
    int64_t length;
    bool is_wide;
    const void *offsets; /* length + 1 of them, in host memory */
} lists;

/* --- offsets of lists ---------------------------------------------------- */

static int64_t
offset_at(const lists *self, int64_t i)
{
    return ad_offset_at(self->offsets, self->is_wide, i);
}

/* Makes the offsets accessible to the host. *memory holds a copy, if any. */
static ad_status
read_offsets(lists *self, ad_host_block **memory, ad_error *err)
{
    const ad_array *array = self->array;
    int64_t width = self->is_wide ? 8 : 4;
    int64_t start, nbytes;
    if (ad_host_accessible(array->memory.device)) {
        self->offsets = (const char *)self->node->buffers[1] +
                        (uint64_t)self->offset * (uint64_t)width;
        return ad_sync_wait(array->memory.sync, "reading the offsets of lists",
                            err);
    }
    if (__builtin_mul_overflow(self->offset, width, &start) ||
        __builtin_mul_overflow(self->length + 1, width, &nbytes)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the offsets of %" PRId64 " lists overflow 64 bits",
                       self->length);
    }
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, memory, err));
    self->offsets = (*memory)->data;
    return ad_read_device(array->memory.device, self->node->buffers[1],
                          array->memory.owner, (uint64_t)start, (size_t)nbytes,
                          array->memory.sync, NULL, (*memory)->data, err);
}

/* The number of offsets that are compared without a branch. */
#define BLOCK 1024

/* Differences modulo the width suffice: if one of them wraps, the last offset
 * differs from the expected one. */
#define FIND_OTHER(NAME, AT_ANY, TYPE)                                        \
    static int64_t NAME(const AT_ANY *offsets, int64_t n, TYPE size)          \
    {                                                                         \
        for (int64_t at = 0; at < n; at += BLOCK) {                           \
            int64_t end = n - at < BLOCK ? n : at + BLOCK;                    \
            TYPE other = 0;                                                   \
            for (int64_t i = at; i < end; i++) {                              \
                other |= (TYPE)(offsets[i + 1] - offsets[i]) ^ size;          \
            }                                                                 \
            for (int64_t i = at; other != 0 && i < end; i++) {                \
                if ((TYPE)(offsets[i + 1] - offsets[i]) != size) {            \
                    return i;                                                 \
                }                                                             \
            }                                                                 \
        }                                                                     \
        return n;                                                             \
    }

FIND_OTHER(find_other_32, ad_at_any_u32, uint32_t)
FIND_OTHER(find_other_64, ad_at_any_u64, uint64_t)

/* The index of the first list whose size is not `size`, else the number of
 * lists. */
static int64_t
find_other(const lists *self, int64_t size)
{
    return self->is_wide
               ? find_other_64(self->offsets, self->length, (uint64_t)size)
               : find_other_32(self->offsets, self->length, (uint32_t)size);
}

/* --- refused lists ------------------------------------------------------- */

static ad_status
fail_offsets(const lists *self, int64_t row, ad_error *err)
{
    ad_status status =
        ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                "list %" PRId64 " has the offsets %" PRId64 " and %" PRId64
                " over a child of length %" PRId64,
                row, offset_at(self, row), offset_at(self, row + 1),
                self->node->children[0]->length);
    ad_error_device(err, self->array->memory.device);
    return status;
}

static ad_status
read_null(const lists *self, int64_t row, bool *is_null, ad_error *err)
{
    const ad_array *array = self->array;
    const uint8_t *validity = self->node->buffers[0];
    uint64_t bit = (uint64_t)self->offset + (uint64_t)row;
    uint8_t byte;
    *is_null = false;
    if (validity == NULL || self->node->null_count == 0) {
        return AD_OK;
    }
    if (ad_host_accessible(array->memory.device)) {
        byte = validity[bit / 8];
    } else {
        AD_RETURN_IF_ERR(ad_read_device(array->memory.device, validity,
                                        array->memory.owner, bit / 8, 1,
                                        array->memory.sync, NULL, &byte, err));
    }
    *is_null = !ad_bitmap_get(&byte, (int64_t)(bit % 8));
    return AD_OK;
}

static ad_status
fail_unequal(const lists *self, int64_t row, int64_t size, ad_error *err)
{
    int64_t other = offset_at(self, row + 1) - offset_at(self, row);
    bool is_null, is_first_null;
    AD_RETURN_IF_ERR(read_null(self, row, &is_null, err));
    AD_RETURN_IF_ERR(read_null(self, 0, &is_first_null, err));
    if (is_null || is_first_null) {
        ad_fail(err, AD_ERR_EXCHANGE, "nulls",
                "drop or fill the null lists in the producing library, or "
                "take .children[0], .validity and the offsets, .buffers[1], "
                "of arrowdev.array(x)",
                "list %" PRId64 " is null and not as long as the others, and "
                "a tensor's rows are all there, and of one length",
                is_null ? row : 0);
    } else {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                "take the values with arrowdev.array(x).children[0] and the "
                "offsets with arrowdev.array(x).buffers[1], whose elements "
                "are bytes",
                "list 0 has %" PRId64 " values and list %" PRId64
                " has %" PRId64 ", and a tensor's rows are of one length",
                size, row, other);
    }
    ad_error_device(err, self->array->memory.device);
    ad_type_error_dtype(self->array->schema.node, err);
    return AD_ERR_EXCHANGE;
}

/* --- lists of equal length ----------------------------------------------- */

static ad_status
check_lists(const lists *self, int64_t *first, int64_t *row_size,
            ad_error *err)
{
    int64_t total, end;
    int64_t start = offset_at(self, 0);
    int64_t next = offset_at(self, 1);
    if (start < 0 || next < start) {
        return fail_offsets(self, 0, err);
    }
    int64_t size = next - start;
    int64_t row = find_other(self, size);
    if (row < self->length) {
        return offset_at(self, row + 1) < offset_at(self, row)
                   ? fail_offsets(self, row, err)
                   : fail_unequal(self, row, size, err);
    }
    if (__builtin_mul_overflow(size, self->length, &total) ||
        __builtin_add_overflow(start, total, &end) ||
        end != offset_at(self, self->length) ||
        end > self->node->children[0]->length) {
        return fail_offsets(self, self->length - 1, err);
    }
    *first = start;
    *row_size = size;
    return AD_OK;
}

/* The `length` lists of `node`, a part of `array`, from row `offset` on, as
 * rows of *row_size values each, which begin at value *first of the child.
 * Lists of unequal lengths: AD_ERR_EXCHANGE; invalid offsets: AD_ERR_ARROW */
static ad_status
lists_as_rows(const ad_array *array, const struct ArrowArray *node,
              const ad_type *type, int64_t offset, int64_t length,
              int64_t *first, int64_t *row_size, ad_error *err)
{
    ad_host_block *memory = NULL;
    lists self = {
        .array = array,
        .node = node,
        .offset = offset,
        .length = length,
        .is_wide = type->wide_offsets,
    };
    *first = 0;
    *row_size = 0;
    if (length == 0) {
        return AD_OK; /* the offsets buffer may be NULL */
    }
    ad_status status = read_offsets(&self, &memory, err);
    if (status == AD_OK) {
        status = check_lists(&self, first, row_size, err);
    }
    ad_owner_unref(memory != NULL ? &memory->base : NULL);
    return status;
}

bool
ad_array_reads_offsets(const ad_array *array)
{
    const struct ArrowSchema *node = array->schema.node;
    while (strncmp(node->format, "+w:", 3) == 0) {
        node = node->children[0];
    }
    return strcmp(node->format, "+l") == 0 || strcmp(node->format, "+L") == 0;
}

/* The node that flattening has reached. */
typedef struct position {
    const struct ArrowSchema *schema;
    const struct ArrowArray *node;
    int64_t offset; /* rows of the node that the column consists of */
    int64_t length;
    int64_t n_nulls; /* among these rows; -1: not known */
    int32_t depth;   /* levels below the column */
    bool in_element; /* an extension has defined the element */
    bool is_scalar;
} position;

/* --- refusals ------------------------------------------------------------ */

/* A hint has room for two paths. */
#define MAX_STEPS 6
#define PATH_SIZE 100

/* The type for .view() that shows values of this width as plain numbers. */
static const char *
view_name(const ad_type *type, char *buffer, size_t size)
{
    int32_t bits = type->bit_width;
    if (bits == 8 || bits == 16 || bits == 32 || bits == 64) {
        snprintf(buffer, size, "int%" PRId32, bits);
    } else {
        snprintf(buffer, size, "fixed_size_binary[%" PRId32 "]", bits / 8);
    }
    return buffer;
}

/* "arrowdev.array(x)" with a step for each level down to the node. */
static const char *
path_to(const position *at, char *buffer, size_t size)
{
    int n = snprintf(buffer, size, "arrowdev.array(x)");
    if (at->depth > MAX_STEPS) {
        snprintf(buffer + n, size - (size_t)n,
                 ".children[0] (%" PRId32 " times)", at->depth);
        return buffer;
    }
    for (int32_t i = 0; i < at->depth; i++) {
        n += snprintf(buffer + n, size - (size_t)n, ".children[0]");
    }
    return buffer;
}

static void
hint_nested(const ad_type *type, const char *path, ad_error *err)
{
    switch (type->id) {
        case AD_TYPE_NULL:
            ad_error_hint(err, "there are no values behind the type null");
            break;
        case AD_TYPE_STRUCT:
            ad_error_hint(err, "take the columns with %s.children", path);
            break;
        case AD_TYPE_RUN_END:
            ad_error_hint(err,
                          "take the run ends and the values apart with "
                          "%s.children",
                          path);
            break;
        case AD_TYPE_SPARSE_UNION:
        case AD_TYPE_DENSE_UNION:
            ad_error_hint(err,
                          "take one member with %s.children, and the type "
                          "ids with %s.buffers",
                          path, path);
            break;
        case AD_TYPE_FIXED_LIST:
            ad_error_hint(err, "take the values with %s.children[0]", path);
            break;
        default:
            if (type->n_children > 0) {
                ad_error_hint(err,
                              "take the values with %s.children[0] and the "
                              "offsets with %s.buffers, whose elements are "
                              "bytes",
                              path, path);
            } else {
                ad_error_hint(err,
                              "take the offsets or views, and the bytes, "
                              "with %s.buffers, whose elements are bytes",
                              path);
            }
    }
}

static void
hint_type(const position *at, const ad_type *type, ad_error *err)
{
    char buffer[40], steps[PATH_SIZE];
    const char *path = path_to(at, steps, sizeof(steps));
    const ad_dtype_info *plain = ad_dtype_by_format(at->schema->format);
    const char *name =
        plain != NULL ? plain->name : view_name(type, buffer, sizeof(buffer));
    if (at->schema->dictionary != NULL) {
        ad_error_hint(err,
                      "take %s.dictionary for the values and %s.view(\"%s\") "
                      "for the indices, or decode it in the producing library",
                      path, path, name);
    } else if (type->id == AD_TYPE_BOOL) {
        ad_error_hint(err, "take the bits with %s.buffers[1]", path);
    } else if (type->layout == AD_LAYOUT_FIXED) {
        ad_error_hint(err, "%s.view(\"%s\") gives what is stored", path, name);
    } else {
        hint_nested(type, path, err);
    }
}

static ad_status
refuse(const ad_array *array, const position *at, const ad_type *type,
       ad_error *err)
{
    ad_text text = {0};
    if (err == NULL) {
        return AD_ERR_EXCHANGE;
    }
    bool is_printed = ad_type_print(array->schema.node, &text, NULL) == AD_OK;
    const char *name = is_printed ? ad_text_string(&text) : at->schema->format;
    ad_fail(err, AD_ERR_EXCHANGE, "dtype", NULL,
            "an array of type %.120s has no equivalent as a tensor, which "
            "would lose what the values mean",
            name);
    ad_error_dtype(err, name);
    ad_error_device(err, array->memory.device);
    hint_type(at, type, err);
    ad_text_clear(&text);
    return AD_ERR_EXCHANGE;
}

static ad_status
fail_overflow(ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "offset and length times the list size overflow");
}

/* --- flattening ---------------------------------------------------------- */

static ad_status
add_extent(ad_flattened *self, int64_t extent, ad_error *err)
{
    if (self->ndim == AD_MAX_NDIM) {
        return ad_fail(err, AD_ERR_EXCHANGE, "ndim",
                       "take the values with arrowdev.array(x).children[0]",
                       "lists within lists make more than %d dimensions",
                       AD_MAX_NDIM);
    }
    self->extent[self->ndim] = extent;
    self->position[self->ndim] = self->ndim;
    self->ndim++;
    return AD_OK;
}

static ad_status
add_rows_of(ad_flattened *self, const ad_extension *extension, ad_error *err)
{
    int32_t base = self->ndim;
    for (int32_t k = 0; k < extension->ndim; k++) {
        AD_RETURN_IF_ERR(add_extent(self, extension->shape[k], err));
    }
    for (int32_t i = 0; i < extension->ndim; i++) {
        self->position[base + i] = base + extension->permutation[i];
    }
    return AD_OK;
}

static void
add_level(ad_flattened *self, const position *at, const ad_type *type)
{
    const void *validity = type->has_validity ? at->node->buffers[0] : NULL;
    bool has_none = validity == NULL || at->length == 0;
    self->levels[self->n_levels++] = (ad_level){
        .validity = validity,
        .offset = at->offset,
        .length = at->length,
        .n_nulls = has_none ? 0 : at->n_nulls,
    };
}

/* Moves on to the values [first, first + length) of the only child. */
static ad_status
descend(position *at, int64_t first, int64_t length, ad_error *err)
{
    const struct ArrowArray *child = at->node->children[0];
    if (__builtin_add_overflow(first, child->offset, &first)) {
        return fail_overflow(err);
    }
    bool is_whole = first == child->offset && length == child->length;
    at->schema = at->schema->children[0];
    at->depth++;
    at->node = child;
    at->offset = first;
    at->length = length;
    at->n_nulls = is_whole || child->null_count == 0 ? child->null_count : -1;
    return AD_OK;
}

static ad_status
descend_fixed(position *at, int64_t list_size, ad_error *err)
{
    int64_t first, length;
    if (__builtin_mul_overflow(at->offset, list_size, &first) ||
        __builtin_mul_overflow(at->length, list_size, &length)) {
        return fail_overflow(err);
    }
    return descend(at, first, length, err);
}

/* Lists of equal length are a dimension, as fixed-size lists are. */
static ad_status
descend_lists(ad_flattened *self, position *at, const ad_array *array,
              const ad_type *type, bool reads, ad_error *err)
{
    int64_t first = 0, row_size = 0;
    if (reads) {
        AD_RETURN_IF_ERR(lists_as_rows(array, at->node, type, at->offset,
                                       at->length, &first, &row_size, err));
    }
    AD_RETURN_IF_ERR(add_extent(self, row_size, err));
    /* No overflow: the child has as many values. */
    return descend(at, first, at->length * row_size, err);
}

/* Applies the extension of a node. *has_rows: the extension defines the
 * dimensions of the node's list. */
static ad_status
apply_extension(ad_flattened *self, position *at, const ad_array *array,
                const ad_type *type, bool *has_rows, ad_error *err)
{
    ad_extension extension;
    *has_rows = false;
    if (at->in_element || at->schema->metadata == NULL) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_extension_read(at->schema, &extension, err));
    switch (extension.kind) {
        case AD_EXTENSION_NONE:
            break;
        case AD_EXTENSION_BOOL8:
            self->dtype = (ad_dl_dtype){AD_DL_BOOL, 8, 1};
            at->in_element = true;
            break;
        case AD_EXTENSION_DLPACK:
            self->dtype = extension.dtype;
            at->in_element = true;
            at->is_scalar = extension.is_scalar && self->n_levels == 0;
            break;
        case AD_EXTENSION_FIXED_SHAPE_TENSOR:
            *has_rows = true;
            return add_rows_of(self, &extension, err);
        default:
            return refuse(array, at, type, err);
    }
    return AD_OK;
}

static ad_status
take_leaf(ad_flattened *self, const position *at, const ad_array *array,
          const ad_type *type, ad_error *err)
{
    self->data = at->node->buffers[1];
    self->offset = at->offset;
    self->leaf_nbytes = type->bit_width / 8;
    if (at->in_element) {
        /* The storage holds one element, which the check of the extension
         * ensures, or a whole innermost dimension of packed elements. */
        int32_t bits = (int32_t)ad_dtype_bits(self->dtype);
        return bits % 8 == 0 ? AD_OK
                             : add_extent(self, type->bit_width / bits, err);
    }
    if (type->id == AD_TYPE_BOOL) {
        self->is_bits = true;
        self->dtype = (ad_dl_dtype){AD_DL_BOOL, 8, 1};
        return AD_OK;
    }
    if (type->id == AD_TYPE_FIXED_BINARY) {
        self->dtype = (ad_dl_dtype){AD_DL_UINT, 8, 1};
        return add_extent(self, self->leaf_nbytes, err);
    }
    const ad_dtype_info *plain = ad_dtype_by_format(at->schema->format);
    if (plain == NULL) {
        return refuse(array, at, type, err);
    }
    self->dtype = plain->dtype;
    return AD_OK;
}

/* One row is a 0-d tensor; any other number of rows is a column. */
static void
drop_scalar_row(ad_flattened *self, const position *at)
{
    if (at->is_scalar && self->ndim == 1 && self->extent[0] == 1) {
        self->ndim = 0;
    }
}

ad_status
ad_flatten_array(const ad_array *array, bool reads, ad_flattened *out,
                 ad_error *err)
{
    ad_type type;
    bool has_rows;
    position at = {
        .schema = array->schema.node,
        .node = array->node,
        .offset = array->offset,
        .length = array->length,
        .n_nulls = ad_array_null_count(array),
    };
    out->n_levels = 0;
    out->ndim = 0;
    out->is_bits = false;
    AD_RETURN_IF_ERR(add_extent(out, array->length, err));
    for (;;) {
        AD_RETURN_IF_ERR(ad_type_parse(at.schema->format, &type, err));
        if (at.schema->dictionary != NULL || out->n_levels > AD_MAX_DEPTH) {
            return refuse(array, &at, &type, err);
        }
        AD_RETURN_IF_ERR(
            apply_extension(out, &at, array, &type, &has_rows, err));
        add_level(out, &at, &type);
        if (type.layout == AD_LAYOUT_FIXED) {
            AD_RETURN_IF_ERR(take_leaf(out, &at, array, &type, err));
            drop_scalar_row(out, &at);
            return AD_OK;
        }
        if (type.layout == AD_LAYOUT_LIST && type.id != AD_TYPE_MAP) {
            AD_RETURN_IF_ERR(
                descend_lists(out, &at, array, &type, reads, err));
            continue;
        }
        if (type.id != AD_TYPE_FIXED_LIST) {
            return refuse(array, &at, &type, err);
        }
        if (!has_rows && !at.in_element) {
            AD_RETURN_IF_ERR(add_extent(out, type.list_size, err));
        }
        AD_RETURN_IF_ERR(descend_fixed(&at, type.list_size, err));
    }
}

/* --- nulls --------------------------------------------------------------- */

#define NULLS_HINT                                                            \
    "pass nulls=\"fill\", fill_value=..., or nulls=\"ignore\", as in "        \
    "arrowdev.tensor(x, nulls=\"fill\", fill_value=...)"

static ad_status
fail_nulls(const ad_array *array, const ad_level *level, bool is_root,
           int64_t n_nulls, ad_error *err)
{
    const char *what = is_root ? "the array" : "a list's child";
    if (n_nulls > 0) {
        char nulls[AD_COUNT_SIZE], values[AD_COUNT_SIZE];
        ad_fail(err, AD_ERR_EXCHANGE, "nulls", NULLS_HINT,
                "%s has %s among %s, and a tensor cannot say which", what,
                ad_count_text(n_nulls, "null", "nulls", nulls),
                ad_count_text(level->length, "value", "values", values));
    } else {
        ad_fail(err, AD_ERR_EXCHANGE, "nulls",
                "pass nulls=\"ignore\", as in "
                "arrowdev.tensor(x, nulls=\"ignore\"), when you know that "
                "there are none, or that their values do no harm",
                "%s has a validity bitmap and may have nulls: its null count "
                "is not known, and no runtime is there that could count them "
                "on this device",
                what);
    }
    ad_error_device(err, array->memory.device);
    ad_type_error_dtype(array->schema.node, err);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_flatten_resolve_nulls(const ad_array *array,
                         const ad_bridge_options *options, ad_flattened *flat,
                         bool *has_nulls, ad_error *err)
{
    bool can_count = ad_host_accessible(array->memory.device) ||
                     ad_backend_is_there(array->memory.device.type);
    *has_nulls = false;
    if (options->nulls == AD_NULLS_IGNORE) {
        return AD_OK;
    }
    for (int32_t i = 0; i < flat->n_levels; i++) {
        ad_level *level = &flat->levels[i];
        int64_t n = level->n_nulls;
        if (n == 0) {
            continue;
        }
        if (n < 0 && can_count) {
            AD_RETURN_IF_ERR(
                ad_bitmap_count_zeros_of(array, level->validity, level->offset,
                                         level->length, NULL, &n, err));
            level->n_nulls = n;
        }
        if (n != 0 && options->nulls == AD_NULLS_RAISE) {
            return fail_nulls(array, level, i == 0, n, err);
        }
        *has_nulls |= n != 0;
    }
    return *has_nulls && options->fill == NULL
               ? ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                         "nulls are to be filled, but no fill value was given")
               : AD_OK;
}
