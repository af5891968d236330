/* Nulls: masks that become validity bitmaps, and bitmaps that are obeyed.
 *
 * All is done where the data are. On the host nulls are counted at once; on a
 * device nobody waits: the count is left open, and the result carries the
 * event.
 */
#ifndef AD_COMPUTE_NULLS_H
#define AD_COMPUTE_NULLS_H

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

/* A tensor of bool or uint8 elements with one dimension, made compact if need
 * be. AD_ERR_TYPE, AD_ERR_VALUE for anything else. */
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

/* Rows that are null are filled in `target`. */
typedef struct ad_fill {
    const void *validity; /* of a bitmap of `array` */
    int64_t offset;       /* of the first row's bit */
    int64_t n_rows;
    int64_t n_elements; /* several per row, or, where there are fewer of them
                           than rows, several rows per element */
} ad_fill;

/* Put the value of `size` bytes (1, 2, 4, 8 or 16) where a row is null, in
 * memory of our own on the array's device that is ready after target->sync;
 * that is replaced by the event to wait for. On the host it is done on
 * return. */
AD_MUST_CHECK ad_status ad_nulls_fill(const ad_array *array,
                                      const ad_fill *fills, size_t n,
                                      const void *value, size_t size,
                                      ad_tensor *target, ad_error *err);

/* The same with values that are copied on the way, so that memory is gone
 * through once. `values` are the elements in one run, as many as rows; the
 * result is on their device, or, where the host reaches it, on the host. */
AD_MUST_CHECK ad_status ad_nulls_copy_filled(const ad_array *array,
                                             const ad_fill *fill,
                                             const void *value, size_t size,
                                             const ad_tensor *values,
                                             ad_made *out, ad_error *err);

#endif /* AD_COMPUTE_NULLS_H */
