/* An owner of host memory that arrowdev allocates. The memory is aligned and
 * padded to 64 bytes and the padding is zeroed, as Arrow recommends for
 * buffers.
 */
#ifndef AD_BASE_MEMORY_H
#define AD_BASE_MEMORY_H

#include <stdint.h>

#include "base/owner.h"
#include "base/status.h"

#define AD_ALIGNMENT 64

/* Bytes of a bitmap of `n` bits, without overflow. */
static inline int64_t
ad_bitmap_bytes(int64_t n)
{
    return n / 8 + (n % 8 != 0);
}

typedef struct ad_memory {
    ad_owner base;
    void *data; /* NULL only for 0 bytes */
    int64_t nbytes;
} ad_memory;

/* The contents are undefined, except for the padding. */
AD_MUST_CHECK ad_status ad_memory_new(int64_t nbytes, ad_memory **out,
                                      ad_error *err);

#endif /* AD_BASE_MEMORY_H */
