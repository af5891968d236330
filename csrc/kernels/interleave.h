/* Strided moves and interleaving of elements in host memory. ad_interleave
 * uses up to 40 KiB of stack.
 */
#ifndef AD_KERNELS_INTERLEAVE_H
#define AD_KERNELS_INTERLEAVE_H

#include <stddef.h>
#include <stdint.h>

/* Copies `n` elements of `size` bytes. Neighbours are `from_step` bytes apart
 * in the source and `to_step` bytes apart in the target. */
void ad_move_elements(char *target, int64_t to_step, const char *source,
                      int64_t from_step, int64_t n, size_t size);

/* Interleaves `n` contiguous columns of `n_rows` elements of `size` bytes. The
 * rows of n elements are `pitch` bytes apart. */
void ad_interleave(const char *const *columns, int64_t n, int64_t n_rows,
                   int64_t size, char *target, int64_t pitch);

#endif /* AD_KERNELS_INTERLEAVE_H */
