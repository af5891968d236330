/* Whether two arrays have the same type, length, nulls and values, or two
 * tensors the same elements.
 */
#ifndef AD_COMPUTE_EQUAL_H
#define AD_COMPUTE_EQUAL_H

#include "model/array.h"
#include "model/tensor.h"

/* Whether both have one type and length. Reads no buffer. Two types are one if
 * ad_schema_equal() says so without metadata, and extensions are the same. The
 * nullability of the arrays themselves is ignored, as their names are. */
AD_MUST_CHECK ad_status ad_array_same_type(const ad_array *a,
                                           const ad_array *b, bool *out,
                                           ad_error *err);

/* Whether the rows of two arrays of one type and length are equal. Both are in
 * memory that the host can read now, and have passed
 * ad_array_validate_references(). The bytes of null rows are ignored.
 * Dictionaries and run ends are compared by the values that they stand for.
 * NaN is not equal to NaN, and -0.0 equals 0.0, for floats of 16, 32 and 64
 * bits and bfloat16. All other values are compared by their bits. The time
 * is that of all rows that list views stand for, which may overlap. A signal
 * ends it with AD_ERR_INTERRUPTED; the only other error is AD_ERR_MEMORY. */
AD_MUST_CHECK ad_status ad_array_rows_equal(const ad_array *a,
                                            const ad_array *b, bool *out,
                                            ad_error *err);

/* The same for two tensors of one dtype and shape, which are contiguous in one
 * order. */
AD_MUST_CHECK ad_status ad_tensor_elements_equal(const ad_tensor *a,
                                                 const ad_tensor *b, bool *out,
                                                 ad_error *err);

#endif /* AD_COMPUTE_EQUAL_H */
