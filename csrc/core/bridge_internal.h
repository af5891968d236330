/* What the files of the bridge share. Nobody else includes this.
 */
#ifndef AD_CORE_BRIDGE_INTERNAL_H
#define AD_CORE_BRIDGE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/array.h"
#include "core/stream.h"

/* Bits number [offset, offset + length) of a bitmap that are 0. */
int64_t ad_bitmap_count_zeros(const void *bitmap, int64_t offset,
                              int64_t length);

/* The same for a bitmap of `array`, counted where it lies, once it is ready.
 * Blocks. `stream` may be NULL. */
AD_MUST_CHECK ad_status ad_bitmap_count_zeros_of(
    const ad_array *array, const void *bitmap, int64_t offset, int64_t length,
    const ad_stream_choice *stream, int64_t *out, ad_error *err);

static inline bool
ad_bitmap_get(const void *bitmap, int64_t i)
{
    return (((const uint8_t *)bitmap)[i / 8] >> (i % 8)) & 1;
}

#endif /* AD_CORE_BRIDGE_INTERNAL_H */
