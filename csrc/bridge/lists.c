/* Lists of equal length, which their offsets show. */
#include <inttypes.h>
#include <string.h>

#include "compute/bits.h"
#include "bridge/flatten.h"
#include "base/owner.h"
#include "copy/copy.h"
#include "base/unaligned.h"
#include "device/backend.h"

typedef struct lists {
    const ad_array *array; /* that contains the lists */
    const struct ArrowArray *node;
    int64_t offset;
    int64_t length;
    bool is_wide;
    const void *offsets; /* length + 1 of them, in host memory */
} lists;

/* --- offsets ------------------------------------------------------------ */

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

/* --- refusals ----------------------------------------------------------- */

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
                "take .children[0], .validity and the offsets, .buffers[1]",
                "list %" PRId64 " is null and not as long as the others, and "
                "a tensor's rows are all there, and of one length",
                is_null ? row : 0);
    } else {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                "take the values with .children[0] and the offsets with "
                ".buffers[1]",
                "list 0 has %" PRId64 " values and list %" PRId64
                " has %" PRId64 ", and a tensor's rows are of one length",
                size, row, other);
    }
    ad_error_device(err, self->array->memory.device);
    ad_type_error_dtype(self->array->schema.node, err);
    return AD_ERR_EXCHANGE;
}

/* --- entry -------------------------------------------------------------- */

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

ad_status
ad_lists_as_rows(const ad_array *array, const struct ArrowArray *node,
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
