/* Several arrays of one layout as one, in host memory.
 */
#ifndef AD_CORE_CONCAT_H
#define AD_CORE_CONCAT_H

#include "core/array.h"

/* The rows of all `n` arrays (at least one), one after the other, in new host
 * memory; only the data of views (string_view, ...) are shared. All must have
 * the layout of `schema`, which becomes the type. Waits for their events.
 * Dictionaries that differ are put behind one another, so that a value may
 * stand in the result's dictionary more than once.
 *
 * AD_ERR_EXCHANGE: "device" where the host cannot read the memory, "size"
 * where offsets, indices or run ends would not fit their type. AD_ERR_ARROW:
 * offsets that make no sense. */
AD_MUST_CHECK ad_status ad_concat(ad_schema schema, const ad_array *arrays,
                                  size_t n, ad_array *out, ad_error *err);

#endif /* AD_CORE_CONCAT_H */
