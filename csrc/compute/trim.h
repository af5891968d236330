/* Arrays without offsets or unused bits, as strict consumers need them.
 */
#ifndef AD_COMPUTE_TRIM_H
#define AD_COMPUTE_TRIM_H

#include "model/array.h"
#include "order/streams.h"

/* Whether every node has offset 0 and a known null count, and has a bitmap
 * only if it has nulls, and whether all bitmaps (also the values of bools) are
 * aligned to 64 bytes and padded with zeros to a multiple of 64 bytes. */
bool ad_array_is_trimmed(const ad_array *array);

/* Returns the same rows as a trimmed array. Bitmaps are copied, since the
 * padding of foreign bitmaps is unknown. The address of every other buffer
 * moves to the first row; memory that is named by handles is copied instead.
 * The run ends of a slice are written anew. Counting unknown null counts and
 * finding the runs of a slice block on a device. AD_ERR_ARROW: invalid run
 * ends. */
AD_MUST_CHECK ad_status ad_array_trim(const ad_array *array,
                                      const ad_stream_ref *stream,
                                      ad_array *out, ad_error *err);

#endif /* AD_COMPUTE_TRIM_H */
