#include "python/py_call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define PATIENCE_MS 5000

static atomic_int n_calls;
static atomic_bool is_stopped;

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

/* Counted before it looks, so that whoever stops either is seen here or sees
 * this call and waits: no thread asks for the GIL of an interpreter that goes
 * meanwhile. */
bool
ad_py_call_begin(PyGILState_STATE *gil)
{
    atomic_fetch_add(&n_calls, 1);
    if (!is_possible() || (atomic_load(&is_stopped) && !PyGILState_Check())) {
        atomic_fetch_sub(&n_calls, 1);
        return false;
    }
    *gil = PyGILState_Ensure();
    return true;
}

void
ad_py_call_end(PyGILState_STATE gil)
{
    PyGILState_Release(gil);
    atomic_fetch_sub(&n_calls, 1);
}

/* The threads that were calling are not in the child. */
static void
forget_calls(void)
{
    atomic_store(&n_calls, 0);
}

void
ad_py_call_start(void)
{
    static atomic_flag is_registered = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_registered)) {
        (void)pthread_atfork(NULL, NULL, forget_calls);
    }
    atomic_store(&is_stopped, false);
}

void
ad_py_call_stop(void)
{
    const struct timespec pause = {0, 1000000};
    atomic_store(&is_stopped, true);
    for (int i = 0; i < PATIENCE_MS && atomic_load(&n_calls) > 0; i++) {
        nanosleep(&pause, NULL);
    }
}
