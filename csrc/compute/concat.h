/* Concatenates arrays of one layout on their device.
 */
#ifndef AD_COMPUTE_CONCAT_H
#define AD_COMPUTE_CONCAT_H

#include "model/array.h"
#include "order/streams.h"

/* Joins the rows of all `n` arrays (at least one) in new memory. Only the data
 * of views (string_view, ...) on the host are shared. All arrays must have the layout of
 * `schema`, which becomes the type of the result. Dictionaries that differ are
 * unified by value. Those of nested values are shared if all arrays have the
 * same buffers of them, and concatenated otherwise: the result's dictionary
 * may then hold such a value more than once.
 *
 * Arrays that the host can access are joined on the host, which waits for
 * their events. The result has the arrays' kind of memory, and CPU memory if
 * the kinds differ. Pinned and managed memory need their runtime.
 *
 * On a device the work is done on `stream` (NULL: none was given), after all
 * events, and the result carries an event. The host reads the first and the
 * last offset of each array. Kernels check the other offsets; the host waits
 * for them. Views, list views, dense unions, run ends, and dictionaries in
 * different memory are rare there: these arrays are joined on the host and
 * copied back, which blocks. The indices of a dictionary that all arrays share
 * are not checked.
 *
 * AD_ERR_EXCHANGE: "device" if the arrays are on several devices, "size" if
 * offsets, indices or run ends would not fit their type, "dtype" if ordered
 * dictionaries contradict each other. AD_ERR_ARROW: invalid offsets, indices,
 * run ends, type ids or views. */
AD_MUST_CHECK ad_status ad_concat_on(ad_schema schema, const ad_array *arrays,
                                     size_t n, const ad_stream_ref *stream,
                                     ad_array *out, ad_error *err);

static inline ad_status
ad_concat(ad_schema schema, const ad_array *arrays, size_t n, ad_array *out,
          ad_error *err)
{
    return ad_concat_on(schema, arrays, n, NULL, out, err);
}

#endif /* AD_COMPUTE_CONCAT_H */
