/* Methods of ad.Device, and the functions that list devices. */
#ifndef AD_PYTHON_TYPES_DEVICE_METHODS_H
#define AD_PYTHON_TYPES_DEVICE_METHODS_H

#include "support/objects.h"

PyObject *ad_device_get_name(PyObject *self, void *closure);
PyObject *ad_device_empty(PyObject *self, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames);
PyObject *ad_device_synchronize(PyObject *self, PyObject *ignored);

/* arrowdev.devices(), and arrowdev._core._runtimes() for the doctor. */
PyObject *ad_function_devices(PyObject *module, PyObject *ignored);
PyObject *ad_function_runtimes(PyObject *module, PyObject *ignored);

#endif /* AD_PYTHON_TYPES_DEVICE_METHODS_H */
