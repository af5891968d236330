/* Differences between the versions of CPython from 3.10 on, and between builds
 * with and without a GIL, all in one place.
 */
#ifndef AD_SUPPORT_COMPAT_H
#define AD_SUPPORT_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

/* --- threads without a GIL ------------------------------------------------ */

/* What "with the GIL" means in a free-threaded build: the thread is attached
 * to the interpreter, and others may be, too. What threads share has one of
 * these locks there (docs/internals/threads.md). With a GIL the locks are
 * empty. No Python code runs, and nothing waits, while one is held. */
#ifdef Py_GIL_DISABLED
#define AD_FREE_THREADED 1
typedef PyMutex ad_py_mutex; /* 0: unlocked */

static inline void
ad_py_lock(ad_py_mutex *mutex)
{
    PyMutex_Lock(mutex);
}

static inline void
ad_py_unlock(ad_py_mutex *mutex)
{
    PyMutex_Unlock(mutex);
}
#else
#define AD_FREE_THREADED 0
typedef char ad_py_mutex;

static inline void
ad_py_lock(ad_py_mutex *mutex)
{
    (void)mutex;
}

static inline void
ad_py_unlock(ad_py_mutex *mutex)
{
    (void)mutex;
}
#endif

/* The value of a member that other threads may write and that cannot be
 * _Atomic: one of CPython's structs, or one that Py_VISIT and Py_CLEAR take. */
#define AD_PY_LOAD(member, order) __atomic_load_n(&(member), __ATOMIC_##order)
#define AD_PY_STORE(member, value)                                            \
    __atomic_store_n(&(member), value, __ATOMIC_RELEASE)

/* A member that is set once, on first need: borrowed, or NULL. */
static inline PyObject *
ad_py_once(PyObject *const *member)
{
    return AD_PY_LOAD(*member, ACQUIRE);
}

/* Set such a member, unless another thread was first. Steals `object`, and
 * returns what is set. */
static inline PyObject *
ad_py_set_once(PyObject **member, PyObject *object)
{
    PyObject *found = NULL;
    if (!__atomic_compare_exchange_n(member, &found, object, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        Py_DECREF(object);
        return found;
    }
    return object;
}

/* The lock of an object. */
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#define Py_BEGIN_CRITICAL_SECTION2(object, other) {
#define Py_END_CRITICAL_SECTION2() }
#endif

/* The value of an expression that is evaluated with the lock of the object. */
#define AD_PY_LOCKED(object, expression)                                      \
    ({                                                                        \
        __typeof__(expression) value_;                                        \
        Py_BEGIN_CRITICAL_SECTION(object);                                    \
        value_ = (expression);                                                \
        Py_END_CRITICAL_SECTION();                                            \
        value_;                                                               \
    })

/* --- the interpreter ------------------------------------------------------ */

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

/* Sub-interpreters, which may have a GIL of their own. CPython 3.11 does not
 * tell which interpreter a thread is attached to. */
#define AD_PY_HAS_INTERPRETERS (PY_VERSION_HEX >= 0x030c0000)

/* The state with which this thread is attached, or NULL. Never calls into a
 * finalized interpreter. */
#if PY_VERSION_HEX >= 0x030d0000
#define ad_py_attached() PyThreadState_GetUnchecked()
#elif AD_PY_HAS_INTERPRETERS
#define ad_py_attached() _PyThreadState_UncheckedGet()
#else
static inline PyThreadState *
ad_py_attached(void)
{
    PyThreadState *mine = PyGILState_GetThisThreadState();
    return mine != NULL && mine == _PyThreadState_UncheckedGet() ? mine : NULL;
}
#endif

/* Does this thread hold the GIL of an interpreter, or is it attached? False in
 * doubt. Never calls into a finalized interpreter, unlike PyErr_Occurred(),
 * and holds with sub-interpreters, unlike PyGILState_Check(). */
static inline bool
ad_py_has_gil(void)
{
    return ad_py_attached() != NULL;
}

/* --- attributes and items -------------------------------------------------- */

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
    return AD_PY_LOAD(type->tp_version_tag, RELAXED);
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

/* New reference to a type's bases in the order of look-ups, or NULL without an
 * exception. Another thread may replace the tuple. */
static inline PyObject *
ad_py_type_mro(PyTypeObject *type)
{
    if (!AD_FREE_THREADED) {
        return Py_XNewRef(type->tp_mro);
    }
    /* A metaclass may have an attribute of this name, `type` has the true one. */
    PyObject *dict = ad_py_type_dict(&PyType_Type);
    PyObject *getter =
        dict != NULL ? PyDict_GetItemString(dict, "__mro__") : NULL;
    PyObject *mro =
        getter != NULL
            ? Py_TYPE(getter)->tp_descr_get(getter, (PyObject *)type,
                                            (PyObject *)&PyType_Type)
            : NULL;
    Py_XDECREF(dict);
    if (mro == NULL || !PyTuple_Check(mro)) {
        PyErr_Clear();
        Py_CLEAR(mro);
    }
    return mro;
}

/* New reference to the instance dict if it exists and is not empty, else
 * NULL. */
static inline PyObject *
ad_py_instance_dict(PyObject *object)
{
    PyObject *dict = NULL;
    Py_BEGIN_CRITICAL_SECTION(object);
    PyObject **slot = _PyObject_GetDictPtr(object);
    if (slot != NULL && *slot != NULL && PyDict_GET_SIZE(*slot) != 0) {
        dict = Py_NewRef(*slot);
    }
    Py_END_CRITICAL_SECTION();
    return dict;
}

/* Set an attribute or an item of a dict, or append to a list. These steal
 * `value`; NULL has an exception. 0, or -1 with an exception. */
static inline int
ad_py_set_attr(PyObject *object, const char *name, PyObject *value)
{
    int result =
        value != NULL ? PyObject_SetAttrString(object, name, value) : -1;
    Py_XDECREF(value);
    return result;
}

static inline int
ad_py_set_item(PyObject *dict, PyObject *key, PyObject *value)
{
    int result = value != NULL ? PyDict_SetItem(dict, key, value) : -1;
    Py_XDECREF(value);
    return result;
}

static inline int
ad_py_append(PyObject *list, PyObject *value)
{
    int result = value != NULL ? PyList_Append(list, value) : -1;
    Py_XDECREF(value);
    return result;
}

/* New reference to an item of a dict, or NULL with or without an exception. */
static inline PyObject *
ad_py_dict_item(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *item;
    (void)PyDict_GetItemRef(dict, key, &item);
    return item;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* New reference to the first item of a list that has just one, else NULL. */
static inline PyObject *
ad_py_only_item(PyObject *list)
{
    PyObject *item = NULL;
    Py_BEGIN_CRITICAL_SECTION(list);
    if (PyList_GET_SIZE(list) == 1) {
        item = Py_NewRef(PyList_GET_ITEM(list, 0));
    }
    Py_END_CRITICAL_SECTION();
    return item;
}

/* New reference to a module that is imported already, or NULL without an
 * exception. */
static inline PyObject *
ad_py_imported(const char *name)
{
    PyObject *text = PyUnicode_FromString(name);
    PyObject *module = text != NULL ? PyImport_GetModule(text) : NULL;
    Py_XDECREF(text);
    PyErr_Clear();
    return module;
}

/* For a destructor: clear the weak references to the object in `list`. */
static inline void
ad_py_clear_weakrefs(PyObject *object, PyObject **list)
{
    if (AD_PY_LOAD(*list, RELAXED) != NULL) {
        PyObject_ClearWeakRefs(object);
    }
}

/* --- exceptions ------------------------------------------------------------ */

/* Take the exception that is set. Cold, so that ad_py_take_exception is a
 * comparison. */
static inline __attribute__((cold)) PyObject *
ad_py_fetch_exception(void)
{
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

/* Take the current exception, or NULL if there is none. */
static inline PyObject *
ad_py_take_exception(void)
{
    return PyErr_Occurred() == NULL ? NULL : ad_py_fetch_exception();
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
