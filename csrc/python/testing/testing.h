/* The functions of the module behind arrowdev.testing, named _testing_*: the
 * software device, and C callbacks.
 */
#ifndef AD_PYTHON_TESTING_TESTING_H
#define AD_PYTHON_TESTING_TESTING_H

#include "support/state.h"

/* testing.c */
PyObject *ad_testing_start(PyObject *module, PyObject *args);
PyObject *ad_testing_hide(PyObject *module, PyObject *ignored);
PyObject *ad_testing_reset(PyObject *module, PyObject *patience_ms);
PyObject *ad_testing_call(PyObject *module, PyObject *args);
PyObject *ad_testing_write(PyObject *module, PyObject *args);
PyObject *ad_testing_read(PyObject *module, PyObject *args);
PyObject *ad_testing_find(PyObject *module, PyObject *address);
PyObject *ad_testing_fail_at(PyObject *module, PyObject *args);
PyObject *ad_testing_calls(PyObject *module, PyObject *ignored);
PyObject *ad_testing_live(PyObject *module, PyObject *ignored);

/* python/testing/arrays.c */
PyObject *ad_testing_produce(PyObject *module, PyObject *args);
PyObject *ad_testing_consume(PyObject *module, PyObject *args);

/* python/testing/guards.c */
PyObject *ad_testing_guards(PyObject *module, PyObject *ignored);
/* python/testing/callbacks.c */
PyObject *ad_testing_callbacks(PyObject *module, PyObject *ignored);

/* python/testing/async_states.c */
PyObject *ad_testing_async_states(PyObject *module, PyObject *ignored);

/* Entries of the module's method table. */
#define AD_TESTING_FUNCTIONS                                                  \
    {"_testing_start", ad_testing_start, METH_VARARGS, NULL},                 \
        {"_testing_hide", ad_testing_hide, METH_NOARGS, NULL},                \
        {"_testing_reset", ad_testing_reset, METH_O, NULL},                   \
        {"_testing_call", ad_testing_call, METH_VARARGS, NULL},               \
        {"_testing_write", ad_testing_write, METH_VARARGS, NULL},             \
        {"_testing_read", ad_testing_read, METH_VARARGS, NULL},               \
        {"_testing_find", ad_testing_find, METH_O, NULL},                     \
        {"_testing_fail_at", ad_testing_fail_at, METH_VARARGS, NULL},         \
        {"_testing_calls", ad_testing_calls, METH_NOARGS, NULL},              \
        {"_testing_live", ad_testing_live, METH_NOARGS, NULL},                \
        {"_testing_guards", ad_testing_guards, METH_NOARGS, NULL},            \
        {"_testing_callbacks", ad_testing_callbacks, METH_NOARGS, NULL},      \
        {"_testing_async_states", ad_testing_async_states, METH_NOARGS,       \
         NULL},                                                               \
        {"_testing_produce", ad_testing_produce, METH_VARARGS, NULL},         \
    {                                                                         \
        "_testing_consume", ad_testing_consume, METH_VARARGS, NULL            \
    }

#endif /* AD_PYTHON_TESTING_TESTING_H */
