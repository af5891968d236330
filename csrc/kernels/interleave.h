/* Elements that are moved apart, or together, in host memory. ad_interleave
 * takes up to 40 KiB of the stack.
 */
#ifndef AD_KERNELS_INTERLEAVE_H
#define AD_KERNELS_INTERLEAVE_H

#include <stddef.h>
#include <stdint.h>

/* `n` elements of `size` bytes from `source` to `target`, where they are so
 * many bytes apart. */
void ad_move_elements(char *target, int64_t to_step, const char *source,
                      int64_t from_step, int64_t n, size_t size);

/* `n` columns of `n_rows` elements of `size` bytes, which lie one behind the
 * other in each, become rows of n elements, `pitch` bytes from one row to the
 * next. */
void ad_interleave(const char *const *columns, int64_t n, int64_t n_rows,
                   int64_t size, char *target, int64_t pitch);

#endif /* AD_KERNELS_INTERLEAVE_H */
