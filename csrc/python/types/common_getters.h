/* Attributes and methods of device and event that Array, Tensor and Buffer
 * share, so that the types cannot differ. module.c adds them to the types.
 */
#ifndef AD_PYTHON_TYPES_COMMON_GETTERS_H
#define AD_PYTHON_TYPES_COMMON_GETTERS_H

#include "support/objects.h"

/* NULL entry last. */
extern const PyMethodDef ad_common_methods[];
extern const PyGetSetDef ad_common_getset[];

/* __reduce_ex__: calls _pickle.py. */
PyObject *ad_reduce(PyObject *self, PyObject *protocol);

/* __copy__: the object itself. */
PyObject *ad_copy_is_self(PyObject *self, PyObject *ignored);

/* int() and float(): ad_scalar() as a number. */
PyObject *ad_scalar_as_int(PyObject *self);
PyObject *ad_scalar_as_float(PyObject *self);

/* A text of a schema (NULL: empty) as a str. Bytes that are not UTF-8 become
 * surrogates. */
PyObject *ad_decode_text(const char *text);

/* For repr(): ", after event", or "" if no pending work is known. */
const char *ad_readiness(const ad_sync *sync);

#endif /* AD_PYTHON_TYPES_COMMON_GETTERS_H */
