#include "support/logging.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "base/trace.h"
#include "base/thread_local.h"
#include "base/wait.h"
#include "support/py_call.h"
#include "support/shown.h"
#include "support/waiting.h"

/* A message that a handler of the logger causes is not written, because the
 * handler would cause the next one. */
static AD_THREAD_LOCAL bool is_writing;

/* --- the state ----------------------------------------------------------- */

/* Before the program imports logging, nobody can have enabled the logger.
 */
static bool
is_logging_imported(const ad_interpreter *here)
{
    PyObject *modules = PyImport_GetModuleDict();
    return modules != NULL && PyDict_Check(modules) &&
           PyDict_GetItemWithError(modules, here->logging_name) != NULL;
}

/* _log.py turns the messages on or off, and does so again with every change of
 * a level. If it cannot follow these, the state remains AD_LOG_ASK. */
static bool
connect(void)
{
    PyObject *result = ad_call_helper("_log", "connect", NULL, 0);
    if (result == NULL) {
        ad_pass_on_exception();
    }
    bool is_connected = result == Py_True;
    Py_XDECREF(result);
    return is_connected;
}

/* Each interpreter has its own logger, so that the state of the process is
 * AD_LOG_ASK as long as one of several wants messages. */
static void
set_state(ad_log_state lines)
{
    static ad_mutex lock = AD_MUTEX_INIT;
    ad_mutex_lock(&lock);
    atomic_store(&ad_interpreter_here()->log_state, lines);
    if (atomic_load(&ad_has_interpreters)) {
        lines = ad_interpreter_wants_messages() ? AD_LOG_ASK : AD_LOG_OFF;
    }
    int state = atomic_load(&ad_log_state_now);
    while (!atomic_compare_exchange_weak(
        &ad_log_state_now, &state, (state & AD_LOG_TRACED) | (int)lines)) {
    }
    ad_mutex_unlock(&lock);
}

/* A thread that does not hold the GIL does not ask for it here: it would have
 * to for every message that nobody wants. */
static bool
is_on(void)
{
    ad_interpreter *here = is_writing ? NULL : ad_interpreter_of_thread();
    if (here == NULL || atomic_load(&here->log_state) != AD_LOG_ASK) {
        return here != NULL && atomic_load(&here->log_state) == AD_LOG_ON;
    }
    ad_py_entry entry;
    if (!ad_py_has_gil() || ad_py_is_finalizing() ||
        !is_logging_imported(here) || !ad_py_enter(here, &entry)) {
        return false;
    }
    bool result = connect();
    ad_py_leave(&entry);
    return result;
}

void
ad_logging_connect(void)
{
    (void)ad_log_wants_lines();
}

PyObject *
ad_function_log_turn(PyObject *Py_UNUSED(module), PyObject *value)
{
    int is_true = PyObject_IsTrue(value);
    if (is_true < 0) {
        return NULL;
    }
    set_state(value == Py_None ? AD_LOG_ASK
              : is_true        ? AD_LOG_ON
                               : AD_LOG_OFF);
    Py_RETURN_NONE;
}

/* --- lines --------------------------------------------------------------- */

/* `text` is stolen; it is NULL with an exception if it could not be made. */
static void
write_text(PyObject *text)
{
    text = ad_shown(text, AD_ONE_LINE);
    PyObject *result = NULL;
    is_writing = true;
    if (text != NULL) {
        result = ad_call_helper("_log", "write", &text, 1);
    }
    if (result == NULL) {
        ad_pass_on_exception();
    }
    Py_XDECREF(result);
    Py_XDECREF(text);
    is_writing = false;
}

/* While the interpreter finalizes there is no logger. */
static void
write_line(const char *line)
{
    ad_py_entry entry;
    if (is_writing) {
        return;
    }
    if (ad_py_is_finalizing() ||
        !ad_py_enter(ad_interpreter_of_thread(), &entry)) {
        fprintf(stderr, "arrowdev: %s\n", line);
        return;
    }
    PyObject *text =
        PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace");
    write_text(text);
    ad_py_leave(&entry);
}

static void
trace_refusal(const char *name, PyObject *text)
{
    PyObject *shown = ad_shown(Py_NewRef(text), AD_ONE_LINE);
    const char *bytes = shown != NULL ? PyUnicode_AsUTF8(shown) : NULL;
    if (bytes != NULL) {
        ad_trace_refusal(name, bytes);
    } else {
        ad_pass_on_exception();
    }
    Py_XDECREF(shown);
}

void
ad_log_python(const char *format, ...)
{
    va_list args;
    if (is_writing || ad_py_is_finalizing() || !ad_log_wants_lines()) {
        return;
    }
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    write_text(text);
}

void
ad_log_refusal(const char *name, const char *format, ...)
{
    va_list args;
    if (is_writing || ad_py_is_finalizing()) {
        return;
    }
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (text == NULL) {
        ad_pass_on_exception();
        return;
    }
    if (ad_trace_is_on()) {
        trace_refusal(name, text);
    }
    ad_log_python("%s: %U", name, text);
    Py_DECREF(text);
}

/* A second import into an interpreter changes nothing: other threads may be
 * writing. */
int
ad_logging_init(void)
{
    ad_interpreter *here = ad_interpreter_here();
    if (here->logging_name != NULL) {
        return 0;
    }
    here->logging_name = PyUnicode_InternFromString("logging");
    if (here->logging_name == NULL) {
        return -1;
    }
    ad_log_set_hooks((ad_log_hooks){.is_on = is_on, .write = write_line});
    set_state(AD_LOG_ASK);
    return 0;
}

PyObject *
ad_function_log(PyObject *Py_UNUSED(module), PyObject *text)
{
    if (ad_log_is_on()) {
        ad_log_python("%S", text);
    }
    Py_RETURN_NONE;
}
