/* Extension types that carry what a tensor is and an Arrow column is not.
 *
 *   arrow.bool8               int8 storage; metadata ""
 *   arrow.fixed_shape_tensor  fixed-size list storage; JSON metadata
 *                             {"shape": [2, 3], "permutation": [1, 0],
 *                              "dim_names": ["a", "b"]}
 *   arrowdev.dlpack           JSON {"code": 4, "bits": 16, "lanes": 1} and,
 *                             for a 0-d tensor, "shape": []; the storage has
 *                             the same number of bits per element: fixed
 *                             width, or for complex numbers a fixed-size list
 *                             of 2 * lanes floats. Elements that are not
 *                             whole bytes stand packed in a fixed-size binary
 */
#ifndef AD_MODEL_EXTENSION_H
#define AD_MODEL_EXTENSION_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/arrow_c.h"
#include "model/dtype.h"
#include "model/schema.h"
#include "model/tensor.h"
#include "base/text.h"

#define AD_EXTENSION_NAME_KEY "ARROW:extension:name"
#define AD_EXTENSION_METADATA_KEY "ARROW:extension:metadata"

typedef enum ad_extension_kind {
    AD_EXTENSION_NONE,
    AD_EXTENSION_BOOL8,
    AD_EXTENSION_FIXED_SHAPE_TENSOR,
    AD_EXTENSION_DLPACK,
    AD_EXTENSION_OTHER /* some extension that arrowdev does not interpret */
} ad_extension_kind;

typedef struct ad_extension {
    ad_extension_kind kind;
    ad_dl_dtype dtype;          /* DLPACK */
    bool is_scalar;             /* DLPACK: the tensor has no dimension */
    int32_t ndim;               /* FIXED_SHAPE_TENSOR: dimensions of one row */
    int64_t shape[AD_MAX_NDIM]; /* physical (storage) order */
    int32_t permutation[AD_MAX_NDIM]; /* logical i is physical [i]; identity
                                         where the metadata has none */
} ad_extension;

/* Read the extension of a node. Metadata that is not what the extension says
 * (broken JSON, negative or overflowing shape, a permutation that is none,
 * wrong storage) fails with AD_ERR_ARROW. */
AD_MUST_CHECK ad_status ad_extension_read(const struct ArrowSchema *node,
                                          ad_extension *out, ad_error *err);

/* The same extension in the very same words, or none in both. */
bool ad_extension_equal(const struct ArrowSchema *a,
                        const struct ArrowSchema *b);

/* Extents of a row of a FIXED_SHAPE_TENSOR as they are meant, and how many
 * values lie between neighbours in storage; ndim of each. */
void ad_extension_row(const ad_extension *tensor, int64_t *shape,
                      int64_t *strides);

/* Do both nodes mean the same elements at the same indices by their storage?
 * One without an extension, or with one that arrowdev does not interpret, says
 * nothing of that; metadata that make no sense mean nothing. */
bool ad_extension_same_elements(const struct ArrowSchema *a,
                                const struct ArrowSchema *b);

/* Are the rows of `to` those of `from`, of the same shape, where the one has no
 * permutation and the other has? */
bool ad_extension_is_put_in_order(const struct ArrowSchema *from,
                                  const struct ArrowSchema *to);

/* A malloc'ed metadata blob that holds just this extension. AD_ERR_VALUE for
 * AD_EXTENSION_NONE and AD_EXTENSION_OTHER. */
AD_MUST_CHECK ad_status ad_extension_metadata(const ad_extension *extension,
                                              char **out, ad_error *err);

#endif /* AD_MODEL_EXTENSION_H */
