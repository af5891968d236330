/* Bitmaps and offsets: copies, counts and checks, on the host or on a device.
 */
#ifndef AD_COMPUTE_BITS_H
#define AD_COMPUTE_BITS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/array.h"
#include "base/owner.h"
#include "order/streams.h"
#include "order/sync.h"
#include "copy/session.h"

/* A range of bits. Nothing in it is owned. */
typedef struct ad_bits {
    ad_device device;
    const void *data;
    int64_t offset; /* of the first bit */
    int64_t length;
    ad_owner *owner; /* may be NULL */
    ad_sync *sync;   /* may be NULL */
} ad_bits;

/* Expands bits to bytes of 0 or 1 in new memory on the same device. `stream`
 * may be NULL. */
AD_MUST_CHECK ad_status ad_unpack_bits(const ad_bits *bits,
                                       const ad_stream_ref *stream,
                                       ad_allocation *out, ad_error *err);

/* Counts the zeros of a bitmap of `array` (ad_bitmap_count_zeros). The device
 * counts, after the array's event. Blocks. `stream` may be NULL. */
AD_MUST_CHECK ad_status ad_bitmap_count_zeros_of(
    const ad_array *array, const void *bitmap, int64_t offset, int64_t length,
    const ad_stream_ref *stream, int64_t *out, ad_error *err);

/* Counts the nulls among the rows of a host array. */
int64_t ad_array_count_nulls_host(const ad_array *array);

/* Counts the nulls among the rows, on the array's device. Blocks. */
AD_MUST_CHECK ad_status ad_array_count_nulls(const ad_array *array,
                                             const ad_stream_ref *stream,
                                             int64_t *out, ad_error *err);

/* Finds the first row of an array on a device whose offset is negative,
 * decreases or exceeds `limit`: *out is that row, or -1. Each offset has
 * `width` bytes. The device does the work. Blocks. */
AD_MUST_CHECK ad_status ad_find_bad_offset(const ad_array *array,
                                           const void *offsets, int64_t width,
                                           int64_t limit, int64_t *out,
                                           ad_error *err);

/* Copies the bits [from, from + n) of `source` to bit `to` and the following
 * ones of `target`, as work of the session. `source` may be NULL where `how`
 * needs none. */
AD_MUST_CHECK ad_status ad_copy_bits(ad_session *session, const void *source,
                                     int64_t from, void *target, int64_t to,
                                     int64_t n, ad_bits_operation how,
                                     ad_error *err);

static inline bool
ad_bitmap_get(const void *bitmap, int64_t i)
{
    return (((const uint8_t *)bitmap)[i / 8] >> (i % 8)) & 1;
}

#endif /* AD_COMPUTE_BITS_H */
