#include "python/waiting.h"

#include "core/blocking.h"
#include "python/compat.h"

/* What a handler raised during a wait. Core unwinds and releases without an
 * exception set. Only the main thread runs handlers, so one is enough. */
static PyObject *interruption;

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
end(void *ticket)
{
    if (ticket != NULL) {
        PyEval_RestoreThread(ticket);
    }
}

/* Only work that is pending comes here. Python tells nobody in C which thread
 * is the main one, and another one may be it after a fork. */
static bool
is_main_thread(void)
{
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

/* Handlers run in the main thread only, and not while an exception is on its
 * way: that is a destructor's wait. */
static bool
can_be_interrupted(void)
{
    return Py_IsInitialized() && PyGILState_Check() && !PyErr_Occurred() &&
           is_main_thread();
}

static bool
is_interrupted(void *ticket)
{
    PyEval_RestoreThread(ticket);
    bool result = PyErr_CheckSignals() < 0;
    if (result) {
        Py_XSETREF(interruption, ad_py_take_exception());
    }
    (void)PyEval_SaveThread();
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

void
ad_waiting_init(void)
{
    ad_blocking_set_hooks((ad_blocking_hooks){
        .begin = begin,
        .end = end,
        .can_be_interrupted = can_be_interrupted,
        .is_interrupted = is_interrupted,
    });
}
