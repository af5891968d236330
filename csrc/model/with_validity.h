/* An array with another validity bitmap.
 */
#ifndef AD_MODEL_WITH_VALIDITY_H
#define AD_MODEL_WITH_VALIDITY_H

#include "model/array.h"

typedef struct ad_validity_change {
    const void *validity; /* buffers[0]; NULL: none */
    int64_t null_count;
    ad_owner *owner; /* owner of all buffers; gains a reference */
    ad_sync *sync;   /* sync of all buffers; gains a reference */
} ad_validity_change;

/* The same rows, children and dictionary with another bitmap. Only for types
 * that have a bitmap. */
AD_MUST_CHECK ad_status
ad_array_with_validity(const ad_array *array, const ad_validity_change *change,
                       ad_array *out, ad_error *err);

#endif /* AD_MODEL_WITH_VALIDITY_H */
