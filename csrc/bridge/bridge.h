/* bridge/: a column as a tensor and back, a batch as a matrix.
 *
 * Decides by the type table (docs/types.md) what can be shared, what takes a
 * copy and what is refused; masks become validity bitmaps here. Knows no
 * protocol. Any thread; no lock of its own. Reads offsets of lists, which
 * waits on a device; nothing else here waits.
 */

/* The bridge between the two models: a tensor as an Arrow array and back.
 *
 * Zero-copy wherever the type table (docs/types.md) says so; a copy only where
 * strides, bits or nulls demand it, on the device where the data are, and never
 * with AD_COPY_NEVER. Copies on a device are made on the thread's current
 * stream (order/streams.h).
 */
#ifndef AD_BRIDGE_BRIDGE_H
#define AD_BRIDGE_BRIDGE_H

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
    char order;       /* of a batch as a matrix: 'F' (each column in one run),
                         'C' (each row), or 0: 'F', as columns lie */
    const void *fill; /* AD_NULLS_FILL: one element of the tensor's type */
} ad_bridge_options;

/* 1-D: the column itself. N-d: arrow.fixed_shape_tensor, the first dimension
 * is the length. 0-d: one row with the shape in the metadata. Row-contiguous
 * inner dimensions in any order need no copy (they become the permutation);
 * other strides are copied. Elements of
 * less than a byte: only where the last of several dimensions fills whole
 * bytes, and only contiguous. */
AD_MUST_CHECK ad_status ad_array_from_tensor(const ad_tensor *tensor,
                                             ad_copy copy, ad_array *out,
                                             ad_error *err);

/* The same, and the tensor is used up, on failure too. */
AD_MUST_CHECK ad_status ad_array_from_tensor_steal(ad_tensor *tensor,
                                                   ad_copy copy, ad_array *out,
                                                   ad_error *err);

/* A host tensor of int64 that counts time as a column of `format` (a timestamp
 * or a duration), as above but for 0-d, which is refused. INT64_MIN is NaT, and
 * null: where there is one, a bitmap is built, with any `copy`. */
AD_MUST_CHECK ad_status ad_array_from_times(const ad_tensor *tensor,
                                            const char *format, ad_copy copy,
                                            ad_array *out, ad_error *err);

/* *out is a 2-D tensor each of whose columns is one run of memory: the same one
 * where that is so, else a copy of it, in the order 'F', where it is.
 * AD_ERR_VALUE for any other number of dimensions. */
AD_MUST_CHECK ad_status ad_matrix_lay_out(const ad_tensor *matrix,
                                          ad_copy copy, ad_tensor_value *out,
                                          ad_error *err);

/* Column `i` of such a tensor. */
AD_MUST_CHECK ad_status ad_matrix_column(const ad_tensor *matrix, int64_t i,
                                         ad_array *out, ad_error *err);

/* Numbers, bool8, fixed-size lists, arrow.fixed_shape_tensor, arrowdev.dlpack
 * without a copy, and fixed-size binary as a dimension of uint8; lists whose
 * offsets (which are read) say that they are of one length; bit bools with a
 * copy. A struct whose columns have one element type is a matrix of the shape
 * (rows, columns): without a copy where the order allows it and the columns lie
 * at one pitch; there `options->order` holds, elsewhere it is left to the
 * caller. Types whose meaning a tensor would lose fail with AD_ERR_EXCHANGE
 * and the hint that helps; nulls likewise, unless the options say
 * otherwise. Nulls of a number that is not known are counted, which blocks on a
 * device. */
AD_MUST_CHECK ad_status ad_tensor_from_array(const ad_array *array,
                                             const ad_bridge_options *options,
                                             ad_tensor_value *out,
                                             ad_error *err);

/* ad_tensor_from_array has to read offsets of lists: it may wait. */
bool ad_array_reads_offsets(const ad_array *array);

/* The element type that ad_tensor_from_array would give, without looking at
 * nulls, events or strides. Cheap; for attribute look-ups. Returns false for
 * a type that has no tensor. */
bool ad_array_tensor_dtype(const ad_array *array, ad_dl_dtype *out);

#endif /* AD_BRIDGE_BRIDGE_H */
