/* Deep copies of host arrays.
 */
#ifndef AD_CORE_ARRAY_COPY_H
#define AD_CORE_ARRAY_COPY_H

#include "core/array.h"

/* The whole tree in memory of our own, with the same offsets. Host memory
 * that is ready only; AD_ERR_EXCHANGE elsewhere. */
AD_MUST_CHECK ad_status ad_array_copy(const ad_array *array, ad_array *out,
                                      ad_error *err);

#endif /* AD_CORE_ARRAY_COPY_H */
