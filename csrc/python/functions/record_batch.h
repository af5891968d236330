/* arrowdev.record_batch(). */
#ifndef AD_PYTHON_FUNCTIONS_RECORD_BATCH_H
#define AD_PYTHON_FUNCTIONS_RECORD_BATCH_H

#include "support/state.h"

PyObject *ad_function_record_batch(PyObject *module, PyObject *const *args,
                                   Py_ssize_t n_args, PyObject *kwnames);

#endif /* AD_PYTHON_FUNCTIONS_RECORD_BATCH_H */
