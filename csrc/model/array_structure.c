#include <inttypes.h>

#include "model/array.h"

/* --- fast check of leaves ------------------------------------------------ */

/* Number of buffers of one-letter formats whose arrays have neither children
 * nor a dictionary; 0 for every other first letter. */
static const uint8_t leaf_buffers[256] = {
    ['b'] = 2, ['c'] = 2, ['C'] = 2, ['s'] = 2, ['S'] = 2, ['i'] = 2,
    ['I'] = 2, ['l'] = 2, ['L'] = 2, ['e'] = 2, ['f'] = 2, ['g'] = 2,
    ['u'] = 3, ['U'] = 3, ['z'] = 3, ['Z'] = 3,
};

/* The complete check of schema and array for the most common columns. False
 * means only that the slow check has to decide. */
static inline bool
leaf_is_sound(const struct ArrowSchema *schema, const struct ArrowArray *array,
              int64_t min_length)
{
    if (schema == NULL || array == NULL || schema->release == NULL ||
        array->release == NULL || schema->format == NULL) {
        return false;
    }
    int64_t n_buffers = leaf_buffers[(unsigned char)schema->format[0]];
    if (n_buffers == 0 || schema->format[1] != '\0' ||
        schema->n_children != 0 || schema->dictionary != NULL ||
        array->n_children != 0 || array->dictionary != NULL ||
        array->n_buffers != n_buffers || array->buffers == NULL) {
        return false;
    }
    if (array->length < min_length || array->length > AD_LEAF_MAX_END ||
        array->offset < 0 || array->offset > AD_LEAF_MAX_END ||
        array->null_count < -1 || array->null_count > array->length) {
        return false;
    }
    return (array->buffers[0] != NULL || array->null_count <= 0) &&
           (array->buffers[1] != NULL || array->offset + array->length == 0);
}

/* New batches are not in the cache. The nodes are prefetched 8 ahead, the
 * memory that they point to 4 ahead. For a producer with scattered nodes this
 * saves 40 % of the time. */
static inline void
prefetch_children(struct ArrowSchema *const *schemas,
                  struct ArrowArray *const *arrays, int64_t i, int64_t n)
{
    if (i + 8 < n) {
        /* Numbers, because a malformed node may be NULL. */
        uintptr_t schema = (uintptr_t)schemas[i + 8];
        uintptr_t array = (uintptr_t)arrays[i + 8];
        __builtin_prefetch((void *)schema);
        __builtin_prefetch((void *)(schema + sizeof(struct ArrowSchema) - 1));
        __builtin_prefetch((void *)array);
        __builtin_prefetch((void *)(array + sizeof(struct ArrowArray) - 1));
    }
    if (i + 4 < n && schemas[i + 4] != NULL && arrays[i + 4] != NULL) {
        __builtin_prefetch(schemas[i + 4]->format);
        __builtin_prefetch(arrays[i + 4]->buffers);
    }
}

/* --- numbers of a node --------------------------------------------------- */

/* Bits per row in the widest buffer; at least 1. */
static int64_t
bits_per_row(const ad_type *type)
{
    int64_t most = 1;
    for (int64_t i = 0; i < type->n_buffers; i++) {
        int64_t bits = ad_type_row_bits(type, i);
        most = bits > most ? bits : most;
    }
    return most;
}

static ad_status
check_numbers(const struct ArrowArray *array, const ad_type *type,
              ad_error *err)
{
    if (array->length < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "length is %" PRId64 ", expected 0 or more",
                       array->length);
    }
    if (array->offset < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset is %" PRId64 ", expected 0 or more",
                       array->offset);
    }
    /* Offsets have one entry more than the array has rows. */
    int64_t max_end = INT64_MAX / bits_per_row(type) - 1;
    if (array->length > max_end || array->offset > max_end - array->length) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %" PRId64 " and length %" PRId64
                       " overflow the size of a buffer",
                       array->offset, array->length);
    }
    if (array->null_count < -1 || array->null_count > array->length) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "null_count is %" PRId64
                       ", expected -1 (not known) to %" PRId64 " (the length)",
                       array->null_count, array->length);
    }
    return AD_OK;
}

/* --- buffers ------------------------------------------------------------ */

/* Buffers in [first, end) are required if there are rows. */
static const struct {
    int8_t first;
    int8_t end;
    const char *names[3];
} layouts[] = {
    [AD_LAYOUT_NONE] = {0, 0, {NULL}},
    [AD_LAYOUT_FIXED] = {1, 2, {"validity", "data"}},
    [AD_LAYOUT_OFFSETS] = {1, 2, {"validity", "offsets", "data"}},
    [AD_LAYOUT_VIEWS] = {1, 2, {"validity", "views"}},
    [AD_LAYOUT_LIST] = {1, 2, {"validity", "offsets"}},
    [AD_LAYOUT_LIST_VIEW] = {1, 3, {"validity", "offsets", "sizes"}},
    [AD_LAYOUT_VALIDITY] = {1, 1, {"validity"}},
    [AD_LAYOUT_SPARSE_UNION] = {0, 1, {"type ids"}},
    [AD_LAYOUT_DENSE_UNION] = {0, 2, {"type ids", "offsets"}},
};

static ad_status
check_n_buffers(const struct ArrowSchema *schema,
                const struct ArrowArray *array, const ad_type *type,
                ad_error *err)
{
    int64_t found = array->n_buffers;
    bool is_view = type->layout == AD_LAYOUT_VIEWS;
    if (type->id == AD_TYPE_NULL && found == 1) {
        found = 0; /* polars adds a NULL bitmap, which is never read */
    }
    if (is_view ? found < type->n_buffers : found != type->n_buffers) {
        bool is_union = type->layout == AD_LAYOUT_SPARSE_UNION ||
                        type->layout == AD_LAYOUT_DENSE_UNION;
        const char *hint = NULL;
        if (is_union && found == type->n_buffers + 1) {
            hint = "since Arrow 1.0 unions have no validity bitmap";
        } else if (is_view && found == 2) {
            hint = "the last buffer holds the sizes of the variadic ones";
        }
        return ad_fail(err, AD_ERR_ARROW, NULL, hint,
                       "n_buffers is %" PRId64
                       ", but format \"%s\" has %s%d buffers",
                       found, schema->format, is_view ? "at least " : "",
                       type->n_buffers);
    }
    if (is_view && found > INT32_MAX) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "n_buffers is %" PRId64
                       ", but a view can refer to at most %" PRId32 " buffers",
                       found, INT32_MAX);
    }
    if (array->n_buffers > 0 && array->buffers == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "buffers is NULL, but n_buffers is %" PRId64,
                       array->n_buffers);
    }
    return AD_OK;
}

static ad_status
fail_missing_buffer(const struct ArrowArray *array, int64_t i,
                    const char *name, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "buffers[%" PRId64 "] (%s) is NULL, but offset is %" PRId64
                   " and length %" PRId64,
                   i, name, array->offset, array->length);
}

static ad_status
check_buffers(const struct ArrowSchema *schema, const struct ArrowArray *array,
              const ad_type *type, ad_error *err)
{
    AD_RETURN_IF_ERR(check_n_buffers(schema, array, type, err));
    bool has_bitmap = type->has_validity && array->buffers[0] != NULL;
    if (array->null_count > 0 && !has_bitmap && type->id != AD_TYPE_NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "null_count is %" PRId64 ", but %s", array->null_count,
                       type->has_validity
                           ? "buffers[0] (validity) is NULL"
                           : "this type has no validity bitmap");
    }
    if (array->offset + array->length == 0 ||
        (type->layout == AD_LAYOUT_FIXED && type->bit_width == 0)) {
        return AD_OK;
    }
    for (int i = layouts[type->layout].first; i < layouts[type->layout].end;
         i++) {
        if (array->buffers[i] == NULL) {
            return fail_missing_buffer(array, i,
                                       layouts[type->layout].names[i], err);
        }
    }
    if (type->layout == AD_LAYOUT_VIEWS && array->n_buffers > 3 &&
        array->buffers[array->n_buffers - 1] == NULL) {
        return fail_missing_buffer(array, array->n_buffers - 1, "sizes", err);
    }
    return AD_OK;
}

/* --- nodes -------------------------------------------------------------- */

typedef struct walk {
    int depth;
    /* The schema of this subtree has been validated; else it is checked
     * too. */
    bool known;
} walk;

static ad_status check_node(walk at, const struct ArrowSchema *schema,
                            const struct ArrowArray *array, ad_error *err);

/* The number of rows that each child must have at least. */
static ad_status
rows_needed(const struct ArrowArray *array, const ad_type *type, int64_t *out,
            ad_error *err)
{
    int64_t end = array->offset + array->length;
    *out = 0;
    if (type->id == AD_TYPE_STRUCT || type->id == AD_TYPE_SPARSE_UNION) {
        *out = end;
    } else if (type->id == AD_TYPE_FIXED_LIST &&
               __builtin_mul_overflow(end, type->list_size, out)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %" PRId64 " and length %" PRId64
                       " of lists of %" PRId64 " overflow",
                       array->offset, array->length, type->list_size);
    }
    return AD_OK;
}

static ad_status
check_child(walk at, const struct ArrowSchema *schema,
            const struct ArrowArray *array, int64_t needed, ad_error *err)
{
    if (schema == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "the schema is NULL");
    }
    if (!at.known) {
        AD_RETURN_IF_ERR(ad_schema_validate(schema, err));
        at.known = true;
    }
    AD_RETURN_IF_ERR(check_node(at, schema, array, err));
    if (array->length < needed) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "length is %" PRId64
                       ", but the parent's offset and length need %" PRId64,
                       array->length, needed);
    }
    return AD_OK;
}

static ad_status
check_children(walk at, const struct ArrowSchema *schema,
               const struct ArrowArray *array, const ad_type *type,
               ad_error *err)
{
    int64_t n = schema->n_children;
    int64_t needed;
    if (array->n_children != n) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "n_children is %" PRId64
                       ", but the schema has %" PRId64,
                       array->n_children, n);
    }
    if (n > 0 && array->children == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "children is NULL, but n_children is %" PRId64, n);
    }
    AD_RETURN_IF_ERR(rows_needed(array, type, &needed, err));
    at.depth++;
    for (int64_t i = 0; i < n; i++) {
        prefetch_children(schema->children, array->children, i, n);
        if (at.depth <= AD_MAX_DEPTH &&
            leaf_is_sound(schema->children[i], array->children[i], needed)) {
            continue;
        }
        ad_status status = check_child(at, schema->children[i],
                                       array->children[i], needed, err);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "children[%" PRId64 "]", i);
            return status;
        }
    }
    return AD_OK;
}

static ad_status
check_run_ends(const struct ArrowArray *array, ad_error *err)
{
    const struct ArrowArray *run_ends = array->children[0];
    const struct ArrowArray *values = array->children[1];
    if (run_ends->null_count > 0) {
        ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                "null_count is %" PRId64 ", but run ends have no nulls",
                run_ends->null_count);
    } else if (run_ends->length > values->length) {
        ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                "%" PRId64 " run ends for %" PRId64 " values",
                run_ends->length, values->length);
    } else if (run_ends->length == 0 && array->length > 0) {
        ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                "no run ends for %" PRId64 " rows", array->length);
    } else {
        return AD_OK;
    }
    ad_error_path_prepend(err, "children[0]");
    return AD_ERR_ARROW;
}

static ad_status
check_dictionary(walk at, const struct ArrowSchema *schema,
                 const struct ArrowArray *array, ad_error *err)
{
    if ((schema->dictionary != NULL) != (array->dictionary != NULL)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       schema->dictionary != NULL
                           ? "dictionary is NULL, but the schema has one"
                           : "there is a dictionary, but the schema has none");
    }
    if (schema->dictionary == NULL) {
        return AD_OK;
    }
    at.depth++;
    ad_status status =
        check_node(at, schema->dictionary, array->dictionary, err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "dictionary");
    }
    return status;
}

/* Checks a node and the tree below it. The schema node itself has been
 * checked. */
static ad_status
check_node(walk at, const struct ArrowSchema *schema,
           const struct ArrowArray *array, ad_error *err)
{
    ad_type type;
    if (array == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "the array is NULL");
    }
    if (array->release == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the array is released (release is NULL)");
    }
    if (at.depth > AD_MAX_DEPTH) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "nested deeper than %d levels", AD_MAX_DEPTH);
    }
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    AD_RETURN_IF_ERR(check_numbers(array, &type, err));
    AD_RETURN_IF_ERR(check_buffers(schema, array, &type, err));
    AD_RETURN_IF_ERR(check_children(at, schema, array, &type, err));
    if (type.id == AD_TYPE_RUN_END) {
        AD_RETURN_IF_ERR(check_run_ends(array, err));
    }
    return check_dictionary(at, schema, array, err);
}

/* A struct's schema node is checked in a few comparisons, so that a batch is
 * traversed only once: each column's schema together with its array. */
static bool
is_sound_struct(const struct ArrowSchema *schema)
{
    return schema->release != NULL && schema->format != NULL &&
           schema->format[0] == '+' && schema->format[1] == 's' &&
           schema->format[2] == '\0' && schema->dictionary == NULL &&
           schema->n_children >= 0 && schema->n_children <= INT32_MAX &&
           (schema->n_children == 0 || schema->children != NULL);
}

ad_status
ad_array_validate(const struct ArrowSchema *schema,
                  const struct ArrowArray *array, ad_error *err)
{
    if (leaf_is_sound(schema, array, 0)) {
        return AD_OK;
    }
    if (schema == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "the schema is NULL");
    }
    walk at = {.depth = 1, .known = false};
    if (!is_sound_struct(schema)) {
        AD_RETURN_IF_ERR(ad_schema_validate(schema, err));
        at.known = true;
    }
    return check_node(at, schema, array, err);
}

bool
ad_batch_shape_make(const struct ArrowSchema *schema, uint8_t *shape)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        const struct ArrowSchema *child = schema->children[i];
        shape[i] = leaf_buffers[(unsigned char)child->format[0]];
        if (shape[i] == 0 || child->format[1] != '\0' ||
            child->dictionary != NULL) {
            return false;
        }
    }
    return is_sound_struct(schema);
}

/* The numbers and the bitmap of the node are valid. */
static inline bool
numbers_are_sound(const struct ArrowArray *array, int64_t n_buffers)
{
    uint64_t length = (uint64_t)array->length;
    uint64_t offset = (uint64_t)array->offset;
    return array->release != NULL && array->n_buffers == n_buffers &&
           ((length | offset) <= AD_LEAF_MAX_END) &&
           (uint64_t)array->null_count + 1 <= length + 1 &&
           array->buffers != NULL && array->dictionary == NULL &&
           (array->null_count <= 0 || array->buffers[0] != NULL);
}

bool
ad_batch_root_is_sound(const struct ArrowArray *array, int64_t n)
{
    return numbers_are_sound(array, 1) && array->n_children == n;
}

bool
ad_batch_column_is_sound(const struct ArrowArray *column, int64_t n_buffers,
                         int64_t needed)
{
    return numbers_are_sound(column, n_buffers) && column->n_children == 0 &&
           column->length >= needed &&
           (column->buffers[1] != NULL ||
            (column->offset | column->length) == 0);
}

ad_status
ad_array_validate_known(const struct ArrowSchema *schema,
                        const struct ArrowArray *array, ad_error *err)
{
    walk at = {.depth = 1, .known = true};
    if (leaf_is_sound(schema, array, 0)) {
        return AD_OK;
    }
    return check_node(at, schema, array, err);
}
