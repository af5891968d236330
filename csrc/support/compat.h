/* Differences between CPython 3.10 and 3.13, all in one place.
 */
#ifndef AD_SUPPORT_COMPAT_H
#define AD_SUPPORT_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

/* Has the interpreter begun to finalize? */
static inline bool
ad_py_is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* Does this thread hold the GIL? False in doubt. Never calls into a finalized
 * interpreter, unlike PyErr_Occurred(), and holds with sub-interpreters,
 * unlike PyGILState_Check(). */
static inline bool
ad_py_has_gil(void)
{
    PyThreadState *mine = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030d0000
    return mine != NULL && mine == PyThreadState_GetUnchecked();
#else
    return mine != NULL && mine == _PyThreadState_UncheckedGet();
#endif
}

/* Look up an attribute: 1 found, 0 missing (*out is NULL, no exception is
 * set), -1 error. Plain attribute look-up builds no exception for a missing
 * attribute. */
static inline int
ad_py_lookup_attr(PyObject *object, PyObject *name, PyObject **out)
{
#if PY_VERSION_HEX >= 0x030d0000
    return PyObject_GetOptionalAttr(object, name, out);
#else
    return _PyObject_LookupAttr(object, name, out);
#endif
}

/* The version of a type's attributes, or 0 if none is assigned. Any change of
 * the type or of its bases changes the version. */
static inline unsigned int
ad_py_type_version(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030d0000
    return type->tp_version_tag;
#else
    return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)
               ? type->tp_version_tag
               : 0;
#endif
}

/* New reference to a type's own dict. */
static inline PyObject *
ad_py_type_dict(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

/* The instance dict (borrowed) if it exists and is not empty, else NULL. */
static inline PyObject *
ad_py_instance_dict(PyObject *object)
{
    PyObject **slot = _PyObject_GetDictPtr(object);
    if (slot == NULL || *slot == NULL || PyDict_GET_SIZE(*slot) == 0) {
        return NULL;
    }
    return *slot;
}

/* Take the current exception, or NULL if there is none. */
static inline PyObject *
ad_py_take_exception(void)
{
    if (PyErr_Occurred() == NULL) {
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030c0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
        Py_DECREF(traceback);
    }
    Py_DECREF(type);
    return value;
#endif
}

/* Set a taken exception again (stolen). NULL changes nothing. Foreign Python
 * code that may lose a pending exception runs between the two calls. */
static inline void
ad_py_restore_exception(PyObject *exception)
{
    if (exception == NULL) {
        return;
    }
#if PY_VERSION_HEX >= 0x030c0000
    PyErr_SetRaisedException(exception);
#else
    PyErr_Restore(Py_NewRef(Py_TYPE(exception)), exception,
                  PyException_GetTraceback(exception));
#endif
}

#endif /* AD_SUPPORT_COMPAT_H */
