#include "support/waiting.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/wait.h"
#include "support/py_call.h"

/* What a handler raised during a wait, until it is raised again, and in which
 * thread: only the main one runs handlers, so one is enough. Core unwinds and
 * releases without an exception set. */
static PyObject *interruption;
static unsigned long interrupted_thread;

/* A wait that keeps the GIL would stop the very thread that is to end it. */
static void *
begin(void)
{
    if (!Py_IsInitialized() || !PyGILState_Check()) {
        return NULL; /* not ours to give up */
    }
    return PyEval_SaveThread();
}

static void
end(void *saved)
{
    if (saved != NULL) {
        PyEval_RestoreThread(saved);
    }
}

/* Only work that is pending comes here. Python tells nobody in C which thread
 * is the main one, and another one may be it after a fork. */
static bool
is_main_thread(void)
{
    if (PyErr_Occurred()) {
        return false; /* a destructor's wait: handlers have to wait, too */
    }
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread =
        threading != NULL ? PyObject_CallMethod(threading, "main_thread", NULL)
                          : NULL;
    PyObject *ident =
        thread != NULL ? PyObject_GetAttrString(thread, "ident") : NULL;
    bool result = ident != NULL &&
                  PyLong_AsUnsignedLong(ident) == PyThread_get_thread_ident();
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    PyErr_Clear(); /* then it waits as other threads do */
    return result;
}

/* The same, as far as can be told without the GIL, which is not taken for it: a
 * thread that computes keeps it for 5 ms. In a program whose main thread is
 * another one than Python's, no such wait is ended. */
static bool
is_first_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

/* Handlers run in the main thread only. */
static bool
can_be_interrupted(void)
{
    return Py_IsInitialized() &&
           (PyGILState_Check() ? is_main_thread() : is_first_thread());
}

/* Not while an exception is on its way: that is a destructor's wait. What was
 * passed on and could not be raised yet ends the next waits, too. */
bool
ad_run_signal_handlers(void)
{
    if (PyErr_Occurred()) {
        return false;
    }
    if (interruption != NULL &&
        PyThread_get_thread_ident() == interrupted_thread) {
        return true;
    }
    if (PyErr_CheckSignals() == 0) {
        return false;
    }
    ad_keep_interruption();
    return true;
}

void
ad_keep_interruption(void)
{
    Py_XSETREF(interruption, ad_py_take_exception());
    interrupted_thread = PyThread_get_thread_ident();
}

/* Without a saved state the GIL was given up further out, or never had. */
static bool
is_interrupted(void *saved)
{
    PyGILState_STATE gil;
    bool result = false;
    if (saved != NULL) {
        PyEval_RestoreThread(saved);
        result = ad_run_signal_handlers();
        (void)PyEval_SaveThread();
    } else if (ad_py_call_begin(&gil)) {
        result = ad_run_signal_handlers();
        ad_py_call_end(gil);
    }
    return result;
}

void
ad_raise_interruption(void)
{
    PyObject *exception = interruption;
    interruption = NULL;
    if (exception == NULL) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        return;
    }
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
}

static int
raise_now(void *unused)
{
    (void)unused;
    if (interruption == NULL) {
        return 0; /* somebody has raised it */
    }
    ad_raise_interruption();
    return -1;
}

/* The main thread raises it as soon as it is back in Python. Where the list of
 * pending calls is full, a KeyboardInterrupt is raised there, and what the
 * handler raised at the next wait only. */
static void
pass_on(void)
{
    if (Py_AddPendingCall(raise_now, NULL) < 0) {
        PyErr_SetInterrupt();
    }
}

void
ad_waiting_init(void)
{
    ad_wait_set_hooks((ad_wait_hooks){
        .begin = begin,
        .end = end,
        .can_be_interrupted = can_be_interrupted,
        .is_interrupted = is_interrupted,
        .pass_on = pass_on,
    });
}
