#include "support/py_call.h"

#include <stdatomic.h>
#include <time.h>

#include "base/process.h"

static atomic_int n_calls;
static _Thread_local int n_calls_here; /* those of this thread */
static atomic_bool is_stopped;
static _Thread_local bool has_stopped_them; /* called ad_py_call_stop */

/* While another thread finalizes, PyGILState_Ensure would hang or kill this
 * thread; the finalizing thread itself holds the GIL and may go on. */
static bool
is_possible(void)
{
    return Py_IsInitialized() &&
           (!ad_py_is_finalizing() || PyGILState_Check());
}

bool
ad_py_enter(PyGILState_STATE *gil)
{
    if (!is_possible()) {
        return false;
    }
    *gil = PyGILState_Ensure();
    return true;
}

/* A thread that already holds the GIL is refused as well: a thread that reads
 * an endless iterable is almost always in a call, and the stop would wait in
 * vain. */
static bool
is_welcome(void)
{
    return !atomic_load(&is_stopped) ||
           (has_stopped_them && PyGILState_Check());
}

/* The call is counted before the checks, so that either this thread sees the
 * stop, or the stopping thread sees the call and waits for it. Thus no
 * thread asks for the GIL of an interpreter that finalizes meanwhile. */
bool
ad_py_call_begin(PyGILState_STATE *gil)
{
    atomic_fetch_add(&n_calls, 1);
    if (!is_possible() || !is_welcome()) {
        atomic_fetch_sub(&n_calls, 1);
        return false;
    }
    n_calls_here++;
    *gil = PyGILState_Ensure();
    return true;
}

void
ad_py_call_end(PyGILState_STATE gil)
{
    PyGILState_Release(gil);
    n_calls_here--;
    atomic_fetch_sub(&n_calls, 1);
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
ad_py_call_start(void)
{
    (void)ad_process_add_child_hook(&child_hook);
    atomic_store(&is_stopped, false);
}

static bool
is_past(const struct timespec *deadline)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec > deadline->tv_sec ||
           (t.tv_sec == deadline->tv_sec && t.tv_nsec >= deadline->tv_nsec);
}

void
ad_py_call_stop(const struct timespec *deadline)
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
