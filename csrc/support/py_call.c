#include "support/py_call.h"

#include <stdatomic.h>
#include <time.h>

#include "base/process.h"
#include "base/thread_local.h"

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

static bool
is_past(const struct timespec *deadline)
{
    struct timespec t;
    clock_gettime(AD_WAIT_CLOCK, &t);
    return t.tv_sec > deadline->tv_sec ||
           (t.tv_sec == deadline->tv_sec && t.tv_nsec >= deadline->tv_nsec);
}

void
ad_py_calls_stop(const struct timespec *deadline)
{
    const struct timespec pause = {0, 1000000};
    has_stopped_them = true;
    atomic_store(&is_stopped, true);
    while (atomic_load(&n_calls) > n_calls_here && !is_past(deadline)) {
        nanosleep(&pause, NULL);
    }
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
