/* Are the batches of a stream what its schema says? Most streams are of
 * structs of plain columns, whose batches are checked by the shape of their
 * schema: in line, since it is all that a stream that is passed on does with a
 * batch.
 */
#ifndef AD_MODEL_BATCH_SHAPE_H
#define AD_MODEL_BATCH_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/arrow_c.h"

/* No size in bits of a leaf with fewer rows overflows. One less than a power
 * of 2. */
#define AD_LEAF_MAX_END (INT64_MAX / 128)

/* `shape` gets one entry per child of a validated schema. False for one that
 * is no struct of plain columns. */
bool ad_batch_shape_make(const struct ArrowSchema *schema, uint8_t *shape);

/* The whole check of the struct itself, and of a column of it that has to have
 * `needed` rows. */
bool ad_batch_root_is_sound(const struct ArrowArray *array, int64_t n);
bool ad_batch_column_is_sound(const struct ArrowArray *column,
                              int64_t n_buffers, int64_t needed);

/* Without an offset or nulls, and sound. Tests are joined where they can be:
 * there is nothing to be learnt from which one fails. `needed` is from 0 to
 * AD_LEAF_MAX_END. */
static inline bool
ad_batch_node_is_simple(const struct ArrowArray *node, int64_t n_buffers,
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

/* The array is sound and has the shape, of `n` children. False means only:
 * look closer, with ad_array_validate_known. */
static inline __attribute__((always_inline)) bool
ad_batch_has_shape(const struct ArrowArray *array, const uint8_t *shape,
                   int64_t n)
{
    if (!ad_batch_node_is_simple(array, 1, n, 0) &&
        !ad_batch_root_is_sound(array, n)) {
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
        bool is_simple =
            ad_batch_node_is_simple(column, shape[i], 0, needed) &&
            column->buffers[1] != NULL;
        if (!is_simple &&
            !ad_batch_column_is_sound(column, shape[i], needed)) {
            return false;
        }
    }
    return true;
}

#endif /* AD_MODEL_BATCH_SHAPE_H */
