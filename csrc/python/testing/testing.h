/* The functions of the module behind arrowdev.testing, named _testing_*: the
 * software device, and C callbacks.
 */
#ifndef AD_PYTHON_TESTING_TESTING_H
#define AD_PYTHON_TESTING_TESTING_H

#include "support/state.h"

#define AD_TESTING_FUNCTIONS(X)                                               \
    X(start, METH_VARARGS)                                                    \
    X(call, METH_VARARGS)                                                     \
    X(write, METH_VARARGS)                                                    \
    X(read, METH_VARARGS)                                                     \
    X(find, METH_O)                                                           \
    X(fail_at, METH_VARARGS)                                                  \
    X(calls, METH_NOARGS)                                                     \
    X(live, METH_NOARGS)                                                      \
    X(async_states, METH_NOARGS)                                              \
    X(callbacks, METH_NOARGS)                                                 \
    X(produce, METH_VARARGS)                                                  \
    X(consume, METH_VARARGS)

#define AD_TESTING_DECLARE(name, flags)                                       \
    PyObject *ad_testing_##name(PyObject *module, PyObject *arguments);

AD_TESTING_FUNCTIONS(AD_TESTING_DECLARE)

/* An entry of the module's method table. */
#define AD_TESTING_ENTRY(name, flags)                                         \
    {"_testing_" #name, ad_testing_##name, flags, NULL},

#endif /* AD_PYTHON_TESTING_TESTING_H */
