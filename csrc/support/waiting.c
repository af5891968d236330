#include "support/waiting.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/os.h"
#include "base/wait.h"
#include "support/py_call.h"

/* The exception that a handler raised during a wait, until it is raised again,
 * and the thread of the handler. One is enough, because only the main thread
 * runs handlers. The core unwinds and releases without an exception set. */
static ad_mutex lock = AD_MUTEX_INIT; /* of the next two */
static PyObject *interruption;
static unsigned long interrupted_thread;

/* Is there an interruption, which this thread has to raise? */
static bool
has_interruption(void)
{
    ad_mutex_lock(&lock);
    bool result = interruption != NULL &&
                  PyThread_get_thread_ident() == interrupted_thread;
    ad_mutex_unlock(&lock);
    return result;
}

/* Replace the interruption by another one (stolen), or by none. Returns the
 * one before. */
static PyObject *
exchange_interruption(PyObject *exception)
{
    ad_mutex_lock(&lock);
    PyObject *before = interruption;
    interruption = exception;
    interrupted_thread = PyThread_get_thread_ident();
    ad_mutex_unlock(&lock);
    return before;
}

/* A wait that holds the GIL would block the thread that ends the wait. */
static void *
begin(void)
{
    if (!ad_py_has_gil()) {
        return NULL; /* not held by this thread */
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

static void *
begin_release(void)
{
    return ad_py_has_gil() ? ad_py_take_exception() : NULL;
}

static void
end_release(void *exception)
{
    ad_py_restore_exception(exception);
}

static bool
call_with_gil(void *interpreter, void (*function)(void *argument),
              void *argument)
{
    ad_py_entry entry;
    if (!ad_py_enter(interpreter, &entry)) {
        return false;
    }
    function(argument);
    ad_py_leave(&entry);
    return true;
}

/* An approximation that needs no GIL, which a thread that computes holds for
 * 5 ms. If the main thread of the program is not the main thread of Python,
 * such a wait is not interrupted. */
static bool
is_first_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

/* Called only when work is pending, with the GIL. The main thread of a
 * sub-interpreter runs no handlers. The C API does not tell which thread is
 * the main one, and a fork may change it. The look-up runs no Python code: a
 * handler would run in that, and its exception would be lost here. */
static bool
is_main_thread(void)
{
    if (PyErr_Occurred()) {
        return false; /* a destructor's wait: handlers run later */
    }
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        return false;
    }
    PyObject *name = PyUnicode_FromString("threading");
    PyObject *threading = name != NULL ? PyImport_GetModule(name) : NULL;
    PyObject *thread = threading != NULL
                           ? PyObject_GetAttrString(threading, "_main_thread")
                           : NULL;
    PyObject *ident =
        thread != NULL ? PyObject_GetAttrString(thread, "_ident") : NULL;
    bool result = ident != NULL ? PyLong_AsUnsignedLong(ident) ==
                                      PyThread_get_thread_ident()
                                : is_first_thread();
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    Py_XDECREF(name);
    PyErr_Clear();
    return result;
}

/* Handlers run in the main thread only. */
static bool
can_be_interrupted(void)
{
    return Py_IsInitialized() &&
           (ad_py_has_gil() ? is_main_thread() : is_first_thread());
}

/* Handlers do not run while an exception is set, because the wait is then a
 * destructor's. An interruption that was passed on and has not been raised yet
 * ends the next waits as well. */
bool
ad_run_signal_handlers(void)
{
    if (PyErr_Occurred()) {
        return false;
    }
    if (has_interruption()) {
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
    PyObject *before = exchange_interruption(ad_py_take_exception());
    Py_XDECREF(before);
}

/* Without a saved state an outer function has released the GIL, or the thread
 * has never held it. */
static bool
is_interrupted(void *saved)
{
    ad_py_call call;
    bool result = false;
    if (saved != NULL) {
        PyEval_RestoreThread(saved);
        result = ad_run_signal_handlers();
        (void)PyEval_SaveThread();
    } else if (ad_py_call_begin(ad_interpreter_main(), &call)) {
        result = ad_run_signal_handlers();
        ad_py_call_end(&call);
    }
    return result;
}

void
ad_raise_interruption(void)
{
    PyObject *exception = exchange_interruption(NULL);
    if (exception == NULL) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
    ad_py_restore_exception(exception);
}

static int
raise_now(void *unused)
{
    PyObject *exception = exchange_interruption(NULL);
    ad_py_restore_exception(exception);
    return exception != NULL ? -1 : 0; /* 0: already raised */
}

/* The main thread raises the interruption as soon as it is back in Python. If
 * the list of pending calls is full, it raises KeyboardInterrupt there, and
 * the handler's exception only at the next wait. */
static void
pass_on(void)
{
    if (Py_AddPendingCall(raise_now, NULL) < 0) {
        PyErr_SetInterrupt();
    }
}

void
ad_pass_on_exception(void)
{
    bool is_error = PyErr_ExceptionMatches(PyExc_Exception);
    PyObject *exception = ad_py_take_exception();
    bool is_main = is_main_thread();
    ad_py_restore_exception(exception);
    if (is_error || !is_main) {
        PyErr_WriteUnraisable(NULL);
        return;
    }
    ad_keep_interruption();
    pass_on();
}

/* A second import changes nothing: other threads may be waiting. */
void
ad_waiting_init(void)
{
    if (ad_hooks.begin != NULL) {
        return;
    }
    ad_wait_set_hooks((ad_wait_hooks){
        .begin = begin,
        .end = end,
        .can_be_interrupted = can_be_interrupted,
        .is_interrupted = is_interrupted,
        .pass_on = pass_on,
        .begin_release = begin_release,
        .end_release = end_release,
        .call_with_gil = call_with_gil,
    });
}
