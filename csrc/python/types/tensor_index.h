/* Views of an ad.Tensor: indexing, iteration, permutation.
 */
#ifndef AD_PYTHON_TYPES_TENSOR_INDEX_H
#define AD_PYTHON_TYPES_TENSOR_INDEX_H

#include "support/objects.h"

/* The view tensor[key]: a Tensor, 0-d where every dimension has an int. New
 * reference, or NULL with IndexError, TypeError, or ExchangeError for a view
 * that begins within a byte. */
PyObject *ad_tensor_subscript(PyObject *self, PyObject *key);

/* tp_iter: the views tensor[0], tensor[1], ... */
PyObject *ad_tensor_iterate(PyObject *self);

/* permute(*axes), which may be one sequence: a view whose dimension i is
 * dimension axes[i] of `self`; the reverse order without axes. */
PyObject *ad_tensor_permute(PyObject *self, PyObject *args);

#endif /* AD_PYTHON_TYPES_TENSOR_INDEX_H */
