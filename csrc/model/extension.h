/* Extension types with the properties of tensors that Arrow columns lack.
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
 *                             whole bytes are packed in a fixed-size binary
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
    AD_EXTENSION_OTHER /* an extension that arrowdev does not interpret */
} ad_extension_kind;

typedef struct ad_extension {
    ad_extension_kind kind;
    ad_dl_dtype dtype;          /* DLPACK */
    bool is_scalar;             /* DLPACK: the tensor has no dimension */
    int32_t ndim;               /* FIXED_SHAPE_TENSOR: dimensions of one row */
    int64_t shape[AD_MAX_NDIM]; /* in physical (storage) order */
    int32_t permutation[AD_MAX_NDIM]; /* logical dimension i is physical [i];
                                         identity if the metadata has none */
} ad_extension;

/* Reads the extension of a node. Fails with AD_ERR_ARROW on metadata that
 * violate the extension's specification (invalid JSON, negative or overflowing
 * shape, invalid permutation, wrong storage). */
AD_MUST_CHECK ad_status ad_extension_read(const struct ArrowSchema *node,
                                          ad_extension *out, ad_error *err);

/* True if both have the same extension with identical metadata, or none. */
bool ad_extension_equal(const struct ArrowSchema *a,
                        const struct ArrowSchema *b);

/* Logical extents of a row of a FIXED_SHAPE_TENSOR, and the distance of
 * neighbours in storage, in values; ndim of each. */
void ad_extension_row(const ad_extension *tensor, int64_t *shape,
                      int64_t *strides);

/* True if both nodes assign the same elements to the same indices of their
 * storage. A node without an extension, or with one that arrowdev does not
 * interpret, is compatible with any. A node with invalid metadata is
 * compatible with none. */
bool ad_extension_same_elements(const struct ArrowSchema *a,
                                const struct ArrowSchema *b);

/* True if the rows of `to` have the same shape as those of `from`, and only
 * `from` has a permutation. */
bool ad_extension_is_put_in_order(const struct ArrowSchema *from,
                                  const struct ArrowSchema *to);

/* Builds a malloc'ed metadata blob with only this extension. AD_ERR_VALUE for
 * AD_EXTENSION_NONE and AD_EXTENSION_OTHER. */
AD_MUST_CHECK ad_status ad_extension_metadata(const ad_extension *extension,
                                              char **out, ad_error *err);

#endif /* AD_MODEL_EXTENSION_H */
