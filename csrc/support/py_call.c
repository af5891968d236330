#include "support/py_call.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/process.h"
#include "base/thread_local.h"
#include "model/array.h"

static atomic_int n_calls;
static AD_THREAD_LOCAL int n_calls_here; /* those of this thread */
static atomic_bool is_stopped;
static AD_THREAD_LOCAL bool has_stopped_them; /* called ad_py_calls_stop */

/* The finalizing thread may attach while it holds the GIL, although
 * Py_IsInitialized() is false by then. Any other thread that asks for the GIL
 * of an interpreter that finalizes hangs, or ends by pthread_exit(), which
 * aborts the process in a noexcept function of C++. */
static bool
may_ask_for_gil(void)
{
    return Py_IsInitialized() && !ad_py_is_finalizing() &&
           (!atomic_load(&is_stopped) || has_stopped_them);
}

/* The call is counted before the check, so that either this thread sees the
 * stop, or the stopping thread sees the call and waits for it. */
static bool
attach(PyGILState_STATE *gil, bool is_allowed(void))
{
    atomic_fetch_add(&n_calls, 1);
    if (!is_allowed()) {
        atomic_fetch_sub(&n_calls, 1);
        return false;
    }
    n_calls_here++;
    *gil = PyGILState_Ensure();
    return true;
}

static void
detach(PyGILState_STATE gil)
{
    PyGILState_Release(gil);
    n_calls_here--;
    atomic_fetch_sub(&n_calls, 1);
}

bool
ad_py_enter(ad_py_entry *self)
{
    self->is_attached = !ad_py_has_gil();
    if (self->is_attached && !attach(&self->gil, may_ask_for_gil)) {
        return false;
    }
    self->exception = ad_py_take_exception();
    return true;
}

void
ad_py_leave(ad_py_entry *self)
{
    ad_py_restore_exception(self->exception);
    if (self->is_attached) {
        detach(self->gil);
    }
}

/* After the stop a thread that holds the GIL is refused as well: a thread that
 * reads an endless iterable is almost always in a call, and the stop would
 * wait in vain. */
static bool
may_call(void)
{
    return atomic_load(&is_stopped) ? has_stopped_them && ad_py_has_gil()
                                    : ad_py_has_gil() || may_ask_for_gil();
}

bool
ad_py_call_begin(PyGILState_STATE *gil)
{
    return attach(gil, may_call);
}

void
ad_py_call_end(PyGILState_STATE gil)
{
    detach(gil);
}

/* The child has no other threads. The thread that forks may be within a call,
 * for example in a signal handler. */
static void
forget_calls(void)
{
    atomic_store(&n_calls, n_calls_here);
}

static ad_child_hook child_hook = {.run = forget_calls};

void
ad_py_calls_allow(void)
{
    (void)ad_process_add_child_hook(&child_hook);
    atomic_store(&is_stopped, false);
}

void
ad_py_calls_stop(int64_t deadline)
{
    has_stopped_them = true;
    atomic_store(&is_stopped, true);
    while (atomic_load(&n_calls) > n_calls_here && ad_now() < deadline) {
        ad_sleep(1000000);
    }
}

/* --- owners of Python objects -------------------------------------------- */

typedef struct object_owner {
    ad_owner base;
    PyObject *object;
    ad_leaf leaf;
} object_owner;

typedef struct buffer_owner {
    ad_owner base;
    Py_buffer buffer;
} buffer_owner;

static void
object_destroy_with_gil(ad_owner *base)
{
    object_owner *owner = (object_owner *)base;
    PyObject *exception = ad_py_take_exception();
    Py_DECREF(owner->object);
    ad_py_restore_exception(exception);
    free(owner);
}

static void
object_destroy(ad_owner *base)
{
    ad_py_entry entry;
    if (ad_py_enter(&entry)) {
        object_destroy_with_gil(base);
        ad_py_leave(&entry);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

static const ad_owner_ops object_ops = {
    .destroy = object_destroy,
    .destroy_with_gil = object_destroy_with_gil,
    .leaf = offsetof(object_owner, leaf),
    .name = "Python object",
};

static void
buffer_destroy(ad_owner *base)
{
    buffer_owner *owner = (buffer_owner *)base;
    ad_py_entry entry;
    if (ad_py_enter(&entry)) {
        PyBuffer_Release(&owner->buffer);
        ad_py_leave(&entry);
        free(owner);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

static const ad_owner_ops buffer_ops = {.destroy = buffer_destroy,
                                        .name = "Python buffer"};

ad_owner *
ad_py_owner_new(PyObject *object)
{
    object_owner *owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    ad_owner_init(&owner->base, &object_ops);
    owner->object = Py_NewRef(object);
    return &owner->base;
}

ad_owner *
ad_py_owner_of_buffer(PyObject *object, int flags, const Py_buffer **out)
{
    buffer_owner *owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    ad_owner_init(&owner->base, &buffer_ops);
    if (PyObject_GetBuffer(object, &owner->buffer, flags) < 0) {
        free(owner);
        return NULL;
    }
    *out = &owner->buffer;
    return &owner->base;
}

PyObject *
ad_py_owner_object(const ad_owner *owner)
{
    if (owner == NULL || owner->ops != &object_ops) {
        return NULL;
    }
    return ((const object_owner *)owner)->object;
}

/* --- helpers written in Python ------------------------------------------- */

PyObject *
ad_find_helper(const char *submodule, const char *function)
{
    char name[64];
    PyOS_snprintf(name, sizeof(name), "arrowdev.%s", submodule);
    PyObject *module = PyImport_ImportModule(name);
    if (module == NULL) {
        return NULL;
    }
    PyObject *callable = PyObject_GetAttrString(module, function);
    Py_DECREF(module);
    return callable;
}

PyObject *
ad_call_helper(const char *submodule, const char *function,
               PyObject *const *args, size_t n_args)
{
    PyObject *callable = ad_find_helper(submodule, function);
    if (callable == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(callable, args, n_args, NULL);
    Py_DECREF(callable);
    return result;
}
