/* Methods of ad.Array that make other arrays or Python values. */
#ifndef AD_PYTHON_TYPES_ARRAY_METHODS_H
#define AD_PYTHON_TYPES_ARRAY_METHODS_H

#include "support/objects.h"

/* NULL entry last. */
extern PyMethodDef ad_array_methods[];

/* a.field(key), key an int or a str. */
PyObject *ad_array_get_field(PyObject *self, PyObject *key);

/* Getter of a.validity. */
PyObject *ad_array_get_validity(PyObject *self, void *closure);

/* Array.from_buffers (python/functions/from_buffers.c). */
PyObject *ad_array_from_buffers(PyObject *cls, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames);

/* The number of nulls. An unknown number is counted and stored if the host can
 * read the bitmap without waiting; otherwise the result is -1. */
int64_t ad_array_known_null_count(ad_array *array);

#endif /* AD_PYTHON_TYPES_ARRAY_METHODS_H */
