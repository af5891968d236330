/* Bits and what is made of them, wherever they lie.
 */
#ifndef AD_CORE_BITS_H
#define AD_CORE_BITS_H

#include <stdint.h>

#include "core/owner.h"
#include "core/stream.h"
#include "core/sync.h"

/* A run of bits. Nothing in it is owned. */
typedef struct ad_bits {
    ad_device device;
    const void *data;
    int64_t offset; /* of the first bit */
    int64_t length;
    ad_owner *owner; /* may be NULL */
    ad_sync *sync;   /* may be NULL */
} ad_bits;

/* Memory that was made, with references of its own. */
typedef struct ad_made {
    void *data;
    ad_owner *owner;
    ad_sync *sync;
} ad_made;

/* Bits as bytes of 0 or 1 in new memory on the same device. `stream` may be
 * NULL. */
AD_MUST_CHECK ad_status ad_unpack_bits(const ad_bits *bits,
                                       const ad_stream_choice *stream,
                                       ad_made *out, ad_error *err);

#endif /* AD_CORE_BITS_H */
