#include "model/array.h"

#include "base/owner.h"
#include "base/process.h"
#include "base/unaligned.h"
#include "device/backend.h"

/* Size of the data of a variable-size type: the last offset of the node. The
 * slice's own last offset is used only if it is smaller. It must not enlarge
 * the size, because it is among the offsets that are checked against this size
 * later, and an offset after a null may have any value. */
static ad_status
data_size(const ad_array *array, const ad_type *type, int64_t end,
          int64_t *out, ad_error *err)
{
    const struct ArrowArray *node = array->node;
    const void *offsets = node->buffers[1];
    if (offsets == NULL || end == 0) {
        *out = 0;
        return AD_OK;
    }
    if (!ad_host_accessible(array->memory.device) ||
        array->memory.sync != NULL) {
        *out = AD_SIZE_UNKNOWN;
        return AD_OK;
    }
    int64_t last = node->offset + node->length;
    int64_t size = ad_offset_at(offsets, type->wide_offsets, last);
    if (size < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %lld of the offsets buffer is %lld, expected "
                       "a size of at least 0",
                       (long long)last, (long long)size);
    }
    int64_t own = ad_offset_at(offsets, type->wide_offsets, end);
    *out = own >= 0 && own < size ? own : size;
    return AD_OK;
}

/* The last buffer of a view holds the sizes of its variadic buffers. */
static ad_status
variadic_size(const ad_array *array, int64_t i, int64_t *out, ad_error *err)
{
    const void *sizes = array->node->buffers[array->node->n_buffers - 1];
    if (sizes == NULL) {
        *out = 0; /* valid only without rows, so that no row refers to the
                     buffer */
        return AD_OK;
    }
    if (array->memory.sync != NULL ||
        !ad_host_accessible(array->memory.device)) {
        *out = AD_SIZE_UNKNOWN;
        return AD_OK;
    }
    *out = ad_offset_at(sizes, true, i - 2);
    if (*out < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "size %lld of the variadic buffers is %lld, expected "
                       "at least 0",
                       (long long)(i - 2), (long long)*out);
    }
    return AD_OK;
}

ad_status
ad_array_buffer_needed(const ad_array *array, int64_t i, int64_t *out,
                       ad_error *err)
{
    ad_type type;
    int64_t end = array->offset + array->length;
    int64_t n = array->node->n_buffers;
    AD_RETURN_IF_ERR(ad_type_parse(array->schema.node->format, &type, err));
    if (type.layout == AD_LAYOUT_VIEWS && i == n - 1) {
        *out = (n - 3) * 8;
        return AD_OK;
    }
    if (type.layout == AD_LAYOUT_VIEWS && i > 1) {
        return variadic_size(array, i, out, err);
    }
    if (type.layout == AD_LAYOUT_OFFSETS && i == 2) {
        return data_size(array, &type, end, out, err);
    }
    /* Without rows the offsets may be absent, as older producers export
     * them. */
    bool has_end =
        type.layout == AD_LAYOUT_OFFSETS || type.layout == AD_LAYOUT_LIST;
    int64_t n_items = end + (has_end && i == 1 && end > 0);
    *out = ad_bitmap_bytes(n_items * ad_type_row_bits(&type, i));
    return AD_OK;
}

ad_status
ad_array_buffer_size(const ad_array *array, int64_t i, int64_t *out,
                     ad_error *err)
{
    *out = 0;
    return array->node->buffers[i] != NULL
               ? ad_array_buffer_needed(array, i, out, err)
               : AD_OK;
}

static ad_status
add_size(int64_t *total, int64_t size, ad_error *err)
{
    if (*total == AD_SIZE_UNKNOWN || size == AD_SIZE_UNKNOWN) {
        *total = AD_SIZE_UNKNOWN;
    } else if (__builtin_add_overflow(*total, size, total)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the sizes of all buffers overflow 64 bits");
    }
    return AD_OK;
}

static ad_status
add_tree(const ad_array *array, int64_t *total, ad_error *err)
{
    for (int64_t i = 0; i < array->node->n_buffers; i++) {
        int64_t size;
        AD_RETURN_IF_ERR(ad_array_buffer_size(array, i, &size, err));
        AD_RETURN_IF_ERR(add_size(total, size, err));
    }
    int64_t n = array->node->n_children + (array->node->dictionary != NULL);
    for (int64_t i = 0; i < n; i++) {
        ad_array below;
        AD_RETURN_IF_ERR(ad_array_below(array, i, &below, err));
        ad_status status = add_tree(&below, total, err);
        ad_array_clear(&below);
        AD_RETURN_IF_ERR(status);
    }
    return AD_OK;
}

ad_status
ad_array_nbytes(const ad_array *array, int64_t *out, ad_error *err)
{
    *out = 0;
    return add_tree(array, out, err);
}

/* --- is the memory mapped? ------------------------------------------------ */

/* Of the whole node, because the size of a slice's data is read at the node's
 * end. The size of a buffer may be in another one, which is checked first:
 * sizes of views are last, offsets precede their data. */
static bool
can_read_own(const ad_array *array)
{
    ad_array whole = ad_array_borrow(array);
    int64_t n = whole.node->n_buffers;
    whole.offset = whole.node->offset;
    whole.length = whole.node->length;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (n > 3 ? i + n - 1 : i) % n; /* more than 3: views */
        int64_t size;
        if (ad_array_buffer_size(&whole, at, &size, NULL) == AD_OK &&
            !ad_process_can_read(whole.node->buffers[at], size)) {
            return false;
        }
    }
    return true;
}

/* The dictionary, which is the last one below, is not left out: a node with
 * one has no children. */
static bool
can_read_tree(const ad_array *array, int64_t max_children, int64_t *n_left)
{
    int64_t n = array->node->n_children + (array->node->dictionary != NULL);
    bool can_read = --*n_left >= 0 && can_read_own(array);
    for (int64_t i = 0; i < n && i < max_children && can_read; i++) {
        ad_array below;
        can_read = ad_array_below(array, i, &below, NULL) == AD_OK;
        if (can_read) {
            can_read = can_read_tree(&below, max_children, n_left);
            ad_array_clear(&below);
        }
    }
    return can_read;
}

bool
ad_array_can_be_read(const ad_array *array, int64_t max_children,
                     int64_t max_nodes)
{
    return can_read_tree(array, max_children, &max_nodes);
}
