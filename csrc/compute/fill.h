/* A value in the place of nulls, filled in where the data are: the host does it
 * at once, a device when its stream gets there.
 */
#ifndef AD_COMPUTE_FILL_H
#define AD_COMPUTE_FILL_H

#include "model/array.h"
#include "compute/bits.h"
#include "model/tensor.h"

/* Rows that are null are filled in `target`. */
typedef struct ad_fill {
    const void *validity; /* of a bitmap of `array` */
    int64_t offset;       /* of the first row's bit */
    int64_t n_rows;
    int64_t n_elements; /* several per row, or, where there are fewer of them
                           than rows, several rows per element */
} ad_fill;

/* Put the value of `size` bytes (1, 2, 4, 8 or 16) where a row is null, in
 * memory of our own on the array's device that is ready after target->sync;
 * that is replaced by the event to wait for. On the host it is done on
 * return. */
AD_MUST_CHECK ad_status ad_nulls_fill(const ad_array *array,
                                      const ad_fill *fills, size_t n,
                                      const void *value, size_t size,
                                      ad_tensor *target, ad_error *err);

/* The same with values that are copied on the way, so that memory is gone
 * through once. `values` are the elements in one run, as many as rows; the
 * result is on their device, or, where the host reaches it, on the host. */
AD_MUST_CHECK ad_status ad_nulls_copy_filled(
    const ad_array *array, const ad_fill *fill, const void *value, size_t size,
    const ad_tensor *values, ad_allocation *out, ad_error *err);

#endif /* AD_COMPUTE_FILL_H */
