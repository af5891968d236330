/* Checks that the batches of a stream match its schema. Most streams are of
 * structs of plain columns, whose batches are checked against the shape of
 * their schema. The check is inline, because a stream that is passed on does
 * nothing else with a batch.
 */
#ifndef AD_MODEL_BATCH_SHAPE_H
#define AD_MODEL_BATCH_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/arrow_c.h"

/* With fewer rows than this, no size in bits of a leaf overflows. One less
 * than a power of 2. */
#define AD_LEAF_MAX_END (INT64_MAX / 128)

/* Writes one entry per child of a validated schema to `shape`. Returns false
 * for a schema that is not a struct of plain columns. */
bool ad_batch_shape_make(const struct ArrowSchema *schema, uint8_t *shape);

/* The complete checks of the struct itself, and of a column of it that needs
 * at least `needed` rows. */
bool ad_batch_root_is_sound(const struct ArrowArray *array, int64_t n);
bool ad_batch_column_is_sound(const struct ArrowArray *column,
                              int64_t n_buffers, int64_t needed);

/* True for a sound node without an offset or nulls. The conditions are joined
 * into few branches, since which of them fails does not matter. `needed` is in
 * [0, AD_LEAF_MAX_END]. */
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

/* True if the array is sound and has the shape, of `n` children. False means
 * only that ad_array_validate_known has to decide. */
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
