/* Masks, which become validity bitmaps.
 *
 * All is done where the data are. On the host nulls are counted at once; on a
 * device nobody waits: the count is left open, and the result carries the
 * event.
 */
#ifndef AD_BRIDGE_MASKS_H
#define AD_BRIDGE_MASKS_H

#include "model/array.h"
#include "compute/bits.h"
#include "order/streams.h"
#include "model/tensor.h"

/* One flag per row, with references of its own. */
typedef struct ad_mask {
    ad_device device;
    const void *data;
    int64_t offset; /* of the first flag: bits, or bytes */
    int64_t length;
    bool is_bits;
    bool marks_nulls; /* bytes only: what is not 0 marks a null */
    ad_owner *owner;
    ad_sync *sync;
} ad_mask;

/* A tensor of bool or uint8 elements with one dimension, made contiguous if
 * need be. AD_ERR_TYPE, AD_ERR_VALUE for anything else. */
AD_MUST_CHECK ad_status ad_mask_from_tensor(const ad_tensor *tensor,
                                            bool marks_nulls,
                                            const ad_stream_choice *stream,
                                            ad_mask *out, ad_error *err);

/* An array of bools, bits or bytes, or of uint8, true where valid. It must
 * not have nulls itself (AD_ERR_EXCHANGE, "nulls"), which may have to be
 * counted: blocks on a device. */
AD_MUST_CHECK ad_status ad_mask_from_array(const ad_array *array,
                                           const ad_stream_choice *stream,
                                           ad_mask *out, ad_error *err);

void ad_mask_clear(ad_mask *mask);

/* The rows of `array`, of which those are null that the mask says, and those
 * that were before. Bits that lie as they are needed are shared, else the
 * bitmap is new; all other buffers are shared. Where all rows are valid, as
 * far as is known without a wait, the result has no bitmap. The array of N-d
 * tensors takes one flag per row.
 *
 * AD_ERR_VALUE: another number of flags than rows, or nulls where the schema
 * says that there are none; AD_ERR_TYPE: a type without a bitmap;
 * AD_ERR_EXCHANGE, "device": they lie on two devices. */
AD_MUST_CHECK ad_status ad_array_apply_mask(const ad_array *array,
                                            const ad_mask *mask,
                                            const ad_stream_choice *stream,
                                            ad_array *out, ad_error *err);

/* arrow.bool8 rows as bits (nullable bool, without a name) in new memory on
 * the same device; offset and nulls stay as they are. */
AD_MUST_CHECK ad_status ad_array_pack_bools(const ad_array *array,
                                            const ad_stream_choice *stream,
                                            ad_array *out, ad_error *err);

#endif /* AD_BRIDGE_MASKS_H */
