/* Several arrays of one layout as one, where they are.
 */
#ifndef AD_COMPUTE_CONCAT_H
#define AD_COMPUTE_CONCAT_H

#include "model/array.h"
#include "order/streams.h"

/* The rows of all `n` arrays (at least one), one after the other, in new
 * memory; only the data of views (string_view, ...) are shared. All must have
 * the layout of `schema`, which becomes the type. Dictionaries that differ are
 * put behind one another, so that a value may stand in the result's dictionary
 * more than once.
 *
 * What the host reads is joined on the host, which waits for the events, in
 * memory of its own kind: pinned memory stays pinned, for which its runtime has
 * to be there. Of several kinds the CPU's is taken. On a device the work is done
 * on `stream` (NULL: none was given), after all events, and the result carries
 * one; the host reads where offsets begin and end, and which runs hold the
 * rows, kernels check those between, views, and the offsets of unions, and the
 * host waits for that. Dictionaries are compared by their address only; indices
 * are not looked at there, nor are list views.
 *
 * AD_ERR_EXCHANGE: "device" where they are on several devices, "size" where
 * offsets, indices or run ends would not fit their type. AD_ERR_ARROW: offsets,
 * run ends, type ids or views that make no sense. */
AD_MUST_CHECK ad_status ad_concat_on(ad_schema schema, const ad_array *arrays,
                                     size_t n, const ad_stream_choice *stream,
                                     ad_array *out, ad_error *err);

static inline ad_status
ad_concat(ad_schema schema, const ad_array *arrays, size_t n, ad_array *out,
          ad_error *err)
{
    return ad_concat_on(schema, arrays, n, NULL, out, err);
}

#endif /* AD_COMPUTE_CONCAT_H */
