/* Access to integers in buffers that may be unaligned.
 */
#ifndef AD_BASE_UNALIGNED_H
#define AD_BASE_UNALIGNED_H

#include <stdbool.h>
#include <stdint.h>

typedef int8_t ad_at_any_i8 __attribute__((may_alias));
typedef int16_t ad_at_any_i16 __attribute__((may_alias, aligned(1)));
typedef int32_t ad_at_any_i32 __attribute__((may_alias, aligned(1)));
typedef int64_t ad_at_any_i64 __attribute__((may_alias, aligned(1)));
typedef uint8_t ad_at_any_u8 __attribute__((may_alias));
typedef uint16_t ad_at_any_u16 __attribute__((may_alias, aligned(1)));
typedef uint32_t ad_at_any_u32 __attribute__((may_alias, aligned(1)));
typedef uint64_t ad_at_any_u64 __attribute__((may_alias, aligned(1)));

/* Item `i` of signed integers of `width` bytes: 1, 2, 4 or 8. */
static inline int64_t
ad_int_at(const void *integers, int width, int64_t i)
{
    switch (width) {
        case 1:
            return ((const ad_at_any_i8 *)integers)[i];
        case 2:
            return ((const ad_at_any_i16 *)integers)[i];
        case 4:
            return ((const ad_at_any_i32 *)integers)[i];
        default:
            return ((const ad_at_any_i64 *)integers)[i];
    }
}

/* The first of `n` ascending integers that is above `value`; `n` if none is.
 * Of others some number up to `n`. */
static inline int64_t
ad_first_above(const void *integers, int width, int64_t n, int64_t value)
{
    int64_t first = 0;
    while (first < n) {
        int64_t middle = first + (n - first) / 2;
        if (ad_int_at(integers, width, middle) > value) {
            n = middle;
        } else {
            first = middle + 1;
        }
    }
    return first;
}

/* Writes such an item. */
static inline void
ad_put_int(void *data, int width, int64_t i, int64_t value)
{
    switch (width) {
        case 1:
            ((ad_at_any_i8 *)data)[i] = (int8_t)value;
            break;
        case 2:
            ((ad_at_any_i16 *)data)[i] = (int16_t)value;
            break;
        case 4:
            ((ad_at_any_i32 *)data)[i] = (int32_t)value;
            break;
        default:
            ((ad_at_any_i64 *)data)[i] = value;
            break;
    }
}

/* Item `i` of offsets or sizes: 64 bits where `is_wide`, else 32 bits. */
static inline int64_t
ad_offset_at(const void *offsets, bool is_wide, int64_t i)
{
    return is_wide ? ((const ad_at_any_i64 *)offsets)[i]
                   : ((const ad_at_any_i32 *)offsets)[i];
}

#endif /* AD_BASE_UNALIGNED_H */
