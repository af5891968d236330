/* Arrays as strict consumers want them.
 */
#ifndef AD_COMPUTE_TRIM_H
#define AD_COMPUTE_TRIM_H

#include "model/array.h"
#include "order/streams.h"

/* Every node begins at row 0 and says how many nulls it has; bitmaps, and the
 * bits of bools, are there only where they are needed, and are aligned to 64
 * bytes and padded with zeros to as many. */
bool ad_array_is_trimmed(const ad_array *array);

/* The same rows, so. Bitmaps are made anew, since nobody knows what lies behind
 * foreign ones; of other buffers the address is moved to the first row, or,
 * where memory is named by handles, its bytes are copied. The run ends of a
 * slice are made anew. Null counts that are not known are counted, and the runs
 * of a slice are looked for, which blocks on a device. AD_ERR_ARROW: run ends
 * that make no sense. */
AD_MUST_CHECK ad_status ad_array_trim(const ad_array *array,
                                      const ad_stream_choice *stream,
                                      ad_array *out, ad_error *err);

#endif /* AD_COMPUTE_TRIM_H */
