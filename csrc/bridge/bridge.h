/* bridge/: converts columns to tensors and back, and batches to matrices.
 *
 * The type table (docs/types.md) decides which data are shared, copied or
 * refused. Copies are only made for strides, bits or nulls, on the device of
 * the data, on the thread's current stream (order/streams.h), and never with
 * AD_COPY_NEVER. Masks become validity bitmaps. Includes no protocol. Any
 * thread may call it; it has no lock. Reading the offsets of lists waits for
 * the device; nothing else waits, unless a comment says so.
 */
#ifndef AD_BRIDGE_BRIDGE_H
#define AD_BRIDGE_BRIDGE_H

#include "compute/bits.h"
#include "model/array.h"
#include "model/tensor.h"

typedef enum ad_copy {
    AD_COPY_IF_NEEDED, /* copy=None */
    AD_COPY_NEVER,     /* copy=False */
    AD_COPY_ALWAYS     /* copy=True */
} ad_copy;

typedef enum ad_nulls {
    AD_NULLS_RAISE,
    AD_NULLS_IGNORE,
    AD_NULLS_FILL
} ad_nulls;

typedef struct ad_bridge_options {
    ad_copy copy;
    ad_nulls nulls;
    char order;       /* of a batch as a matrix: 'F' (column-major),
                         'C' (row-major), or 0: 'F' */
    const void *fill; /* AD_NULLS_FILL: one element of the tensor's type */
} ad_bridge_options;

/* A tensor as a column. 1-D: a plain column. N-d: arrow.fixed_shape_tensor,
 * whose length is the first dimension. 0-d: one row with the shape in the
 * metadata. Contiguous rows need no copy, whatever the order of the inner
 * dimensions (it becomes the permutation); other strides are copied. Elements
 * of less than a byte must be contiguous, in two or more dimensions, of which
 * the last fills whole bytes. */
AD_MUST_CHECK ad_status ad_array_from_tensor(const ad_tensor *tensor,
                                             ad_copy copy, ad_array *out,
                                             ad_error *err);

/* The same; steals the tensor, even on failure. */
AD_MUST_CHECK ad_status ad_array_from_tensor_steal(ad_tensor *tensor,
                                                   ad_copy copy, ad_array *out,
                                                   ad_error *err);

/* A host tensor of int64 times as a column of `format` (a timestamp or a
 * duration), as above, except that 0-d is refused. INT64_MIN (NaT) becomes
 * null: if there is one, a bitmap is built, with any `copy`. */
AD_MUST_CHECK ad_status ad_array_from_times(const ad_tensor *tensor,
                                            const char *format, ad_copy copy,
                                            ad_array *out, ad_error *err);

/* *out is a 2-D tensor with contiguous columns: `matrix` itself if its columns
 * are contiguous, else a copy in the order 'F' on the same device.
 * AD_ERR_VALUE for any other number of dimensions. */
AD_MUST_CHECK ad_status ad_matrix_lay_out(const ad_tensor *matrix,
                                          ad_copy copy, ad_tensor_value *out,
                                          ad_error *err);

/* Column `i` of such a tensor. */
AD_MUST_CHECK ad_status ad_matrix_column(const ad_tensor *matrix, int64_t i,
                                         ad_array *out, ad_error *err);

/* An array as a tensor. Without a copy: numbers, bool8, fixed-size lists,
 * arrow.fixed_shape_tensor, arrowdev.dlpack, fixed-size binary as a dimension
 * of uint8, and lists of equal length (their offsets are read). Bit bools are
 * copied. A struct whose columns have one element type is a matrix of the
 * shape (rows, columns), without a copy if the order allows it and the columns
 * have a constant pitch within one block of memory that their owner knows, or
 * without gaps on the host. `options->order` applies to matrices only;
 * otherwise the order is left to the caller. Types whose meaning a tensor
 * would lose fail with AD_ERR_EXCHANGE and a hint; so do nulls, unless the
 * options allow them. Nulls of an unknown number are counted, which waits on a
 * device. */
AD_MUST_CHECK ad_status ad_tensor_from_array(const ad_array *array,
                                             const ad_bridge_options *options,
                                             ad_tensor_value *out,
                                             ad_error *err);

/* Fails where ad_tensor_from_array would, or might, drop nulls: of a type that
 * is no tensor, those of the rows. Nothing is copied; nulls of an unknown
 * number are counted, which waits on a device. */
AD_MUST_CHECK ad_status ad_array_require_no_nulls(const ad_array *array,
                                                  ad_error *err);

/* Returns whether ad_tensor_from_array has to read offsets of lists, for which
 * it may wait. */
bool ad_array_reads_offsets(const ad_array *array);

/* The element type of the tensor from ad_tensor_from_array, without checks of
 * nulls, events or strides. Cheap, for attribute look-ups. Returns false for a
 * type that cannot be a tensor. */
bool ad_array_tensor_dtype(const ad_array *array, ad_dl_dtype *out);

/* The shape of that tensor, as cheaply; -1 for the length of lists, which is
 * in memory. Of a type that cannot be a tensor: that of its rows (and columns,
 * of a batch). `shape` has room for AD_MAX_NDIM. */
void ad_array_tensor_shape(const ad_array *array, int32_t *ndim,
                           int64_t *shape);

/* --- masks, which become validity bitmaps -------------------------------- */

/* All work runs on the device of the data. Host nulls are counted at once. On
 * a device the host does not wait: the count stays unknown, and the result
 * carries the event.
 */

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

#endif /* AD_BRIDGE_BRIDGE_H */
