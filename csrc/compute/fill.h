/* Fills null rows with a value: at once on the host, as work of a stream on a
 * device.
 */
#ifndef AD_COMPUTE_FILL_H
#define AD_COMPUTE_FILL_H

#include "model/array.h"
#include "compute/bits.h"
#include "model/tensor.h"

/* A bitmap, and the elements of its rows. */
typedef struct ad_fill {
    const void *validity; /* the bitmap, in memory of `array` */
    int64_t offset;       /* of the first row's bit */
    int64_t n_rows;
    int64_t n_elements; /* a multiple of n_rows (several elements per row) or a
                           divisor of it (several rows per element) */
} ad_fill;

/* Writes the value of `size` bytes to the null rows of `target`, which is
 * arrowdev's own memory on the array's device. The work follows target->sync,
 * which is replaced by the event to wait for. On the host the work is done on
 * return. AD_ERR_EXCHANGE, "dtype", for a size other than 1, 2, 4, 8 and 16,
 * here and below. */
AD_MUST_CHECK ad_status ad_nulls_fill(const ad_array *array,
                                      const ad_fill *fills, size_t n,
                                      const void *value, size_t size,
                                      ad_tensor *target, ad_error *err);

/* Copies `values` to new memory and fills the nulls in one pass. `values` is
 * contiguous, with one element per row. The result is on the host where the
 * host can access the values, else on their device. */
AD_MUST_CHECK ad_status ad_nulls_copy_filled(
    const ad_array *array, const ad_fill *fill, const void *value, size_t size,
    const ad_tensor *values, ad_allocation *out, ad_error *err);

#endif /* AD_COMPUTE_FILL_H */
