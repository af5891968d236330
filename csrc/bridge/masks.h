/* Masks, which become validity bitmaps.
 *
 * All work runs on the device of the data. Host nulls are counted at once. On
 * a device the host does not wait: the count stays unknown, and the result
 * carries the event.
 */
#ifndef AD_BRIDGE_MASKS_H
#define AD_BRIDGE_MASKS_H

#include "model/array.h"
#include "compute/bits.h"
#include "order/streams.h"
#include "model/tensor.h"

/* One flag per row; owns its references. */
typedef struct ad_mask {
    ad_device device;
    const void *data;
    int64_t offset; /* of the first flag: bits, or bytes */
    int64_t length;
    bool is_bits;
    bool marks_nulls; /* bytes only: a value other than 0 marks a null */
    ad_owner *owner;
    ad_sync *sync;
} ad_mask;

/* A mask from a 1-D tensor of bool or uint8, which is copied unless it is
 * contiguous. AD_ERR_TYPE or AD_ERR_VALUE for anything else. */
AD_MUST_CHECK ad_status ad_mask_from_tensor(const ad_tensor *tensor,
                                            bool marks_nulls,
                                            const ad_stream_ref *stream,
                                            ad_mask *out, ad_error *err);

/* A mask from an array of bools (bits or bytes) or uint8, true where valid. It
 * must not have nulls (AD_ERR_EXCHANGE, "nulls"). They may have to be counted,
 * which waits on a device. */
AD_MUST_CHECK ad_status ad_mask_from_array(const ad_array *array,
                                           const ad_stream_ref *stream,
                                           ad_mask *out, ad_error *err);

void ad_mask_clear(ad_mask *mask);

/* `array` with the nulls of the mask added to its own. The bits of the mask
 * are shared if their position fits, else the bitmap is new; all other buffers
 * are shared. The result has no bitmap if all rows are known to be valid
 * without a wait. An array of N-d tensors takes one flag per row.
 *
 * AD_ERR_VALUE: the numbers of flags and rows differ, or there are nulls and
 * the schema does not allow them; AD_ERR_TYPE: a type without a bitmap;
 * AD_ERR_EXCHANGE, "device": array and mask are on different devices. */
AD_MUST_CHECK ad_status ad_array_apply_mask(const ad_array *array,
                                            const ad_mask *mask,
                                            const ad_stream_ref *stream,
                                            ad_array *out, ad_error *err);

/* arrow.bool8 rows as bits (nullable bool, without a name) in new memory on
 * the same device; offset and nulls do not change. */
AD_MUST_CHECK ad_status ad_array_pack_bools(const ad_array *array,
                                            const ad_stream_ref *stream,
                                            ad_array *out, ad_error *err);

#endif /* AD_BRIDGE_MASKS_H */
