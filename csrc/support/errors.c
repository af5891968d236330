#include "support/errors.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "base/log.h"
#include "support/logging.h"
#include "support/objects.h"
#include "support/shown.h"
#include "support/waiting.h"

PyDoc_STRVAR(
    exchange_error_doc,
    "The data are well formed but cannot be exchanged as asked.\n"
    "\n"
    "A BufferError, as DLPack and the buffer protocol want it.\n"
    "\n"
    "Attributes\n"
    "----------\n"
    "reason : str or None\n"
    "    One word: \"nulls\", \"dtype\", \"strides\", \"device\", \"event\",\n"
    "    \"readonly\", \"copy\", \"consumed\", \"version\", \"protocol\", ...\n"
    "device : Device or None\n"
    "    The device that the error is about.\n"
    "dtype : str or None\n"
    "    The type that could not be exchanged.\n"
    "hint : str or None\n"
    "    What to do instead.\n"
    "code : int or None\n"
    "    The errno that a foreign stream failed with.\n"
    "metadata : dict of bytes or None\n"
    "    What the producer of an async stream added to its error.\n");

PyDoc_STRVAR(
    device_error_doc,
    "A call of a device runtime failed.\n"
    "\n"
    "Attributes\n"
    "----------\n"
    "code : int or None\n"
    "    The runtime's own error number; its name stands in the message.\n"
    "device : Device or None\n"
    "    The device that the call was about.\n"
    "hint : str or None\n"
    "    What to do instead.\n");

PyDoc_STRVAR(
    invalid_arrow_error_doc,
    "A struct that came from outside is malformed.\n"
    "\n"
    "Attributes\n"
    "----------\n"
    "path : str or None\n"
    "    Where the bad node stands, from the root: \"children[2].dictionary\";\n"
    "    \"\" is the root itself.\n"
    "hint : str or None\n"
    "    What to do instead.\n");

/* A class whose instances have the named attributes, None until set. */
static PyObject *
make_class(PyObject *module, const char *name, const char *doc, PyObject *base,
           const char *const *attributes)
{
    PyObject *members = PyDict_New();
    if (members == NULL) {
        return NULL;
    }
    PyObject *cls = NULL;
    for (; *attributes != NULL; attributes++) {
        if (PyDict_SetItemString(members, *attributes, Py_None) < 0) {
            goto done;
        }
    }
    char full_name[64];
    PyOS_snprintf(full_name, sizeof(full_name), "arrowdev.%s", name);
    cls = PyErr_NewExceptionWithDoc(full_name, doc, base, members);
    if (cls != NULL && PyModule_AddObjectRef(module, name, cls) < 0) {
        Py_CLEAR(cls);
    }
done:
    Py_DECREF(members);
    return cls;
}

int
ad_errors_init(ad_state *state, PyObject *module)
{
    static const char *const exchange[] = {
        "reason", "device", "dtype", "hint", "code", "metadata", NULL};
    static const char *const device[] = {"code", "device", "hint", NULL};
    static const char *const arrow[] = {"path", "hint", NULL};

    state->exchange_error =
        make_class(module, "ExchangeError", exchange_error_doc,
                   PyExc_BufferError, exchange);
    state->device_error = make_class(module, "DeviceError", device_error_doc,
                                     PyExc_RuntimeError, device);
    state->invalid_arrow_error =
        make_class(module, "InvalidArrowError", invalid_arrow_error_doc,
                   PyExc_ValueError, arrow);
    return state->exchange_error != NULL && state->device_error != NULL &&
                   state->invalid_arrow_error != NULL
               ? 0
               : -1;
}

static PyObject *
class_of(ad_state *state, ad_status status)
{
    switch (status) {
        case AD_ERR_MEMORY:
            return PyExc_MemoryError;
        case AD_ERR_ARROW:
            return state->invalid_arrow_error;
        case AD_ERR_EXCHANGE:
            return state->exchange_error;
        case AD_ERR_DEVICE:
            return state->device_error;
        case AD_ERR_TYPE:
            return PyExc_TypeError;
        case AD_ERR_INDEX:
            return PyExc_IndexError;
        case AD_ERR_DEPTH:
            return PyExc_RecursionError;
        case AD_ERR_INTERRUPTED:
        case AD_ERR_VALUE:
        case AD_OK:
            break;
    }
    return PyExc_ValueError;
}

static int
set_string(PyObject *exception, const char *name, const char *value)
{
    return ad_py_set_attr(exception, name, ad_shown_utf8(value));
}

static int
set_attributes(ad_state *state, PyObject *exception, const ad_error *err)
{
    if (err->hint[0] != '\0' && set_string(exception, "hint", err->hint) < 0) {
        return -1;
    }
    if (err->reason[0] != '\0' &&
        set_string(exception, "reason", err->reason) < 0) {
        return -1;
    }
    if (err->dtype[0] != '\0' &&
        set_string(exception, "dtype", err->dtype) < 0) {
        return -1;
    }
    if (err->status == AD_ERR_ARROW &&
        set_string(exception, "path", err->path) < 0) {
        return -1;
    }
    if ((err->status == AD_ERR_DEVICE ||
         (err->status == AD_ERR_EXCHANGE && err->code != 0)) &&
        ad_py_set_attr(exception, "code", PyLong_FromLong(err->code)) < 0) {
        return -1;
    }
    return err->has_device
               ? ad_py_set_attr(exception, "device",
                                ad_device_object_new(state, err->device))
               : 0;
}

/* "children[2]: <message>; <hint>". The message may be that of another
 * exception, which has its path and its hint. A text that was cut may end
 * within a character. */
static PyObject *
make_message(const ad_error *err)
{
    bool has_path =
        err->path[0] != '\0' && strstr(err->message, err->path) == NULL;
    bool has_hint =
        err->hint[0] != '\0' && strstr(err->message, err->hint) == NULL;
    char
        text[sizeof(err->path) + sizeof(err->message) + sizeof(err->hint) + 8];
    int n = PyOS_snprintf(text, sizeof(text), "%s%s%s%s%s",
                          has_path ? err->path : "", has_path ? ": " : "",
                          err->message, has_hint ? "; " : "",
                          has_hint ? err->hint : "");
    return ad_shown(PyUnicode_DecodeUTF8(text, n, "replace"), AD_ONE_LINE);
}

/* Before the exception is set. */
static void
log_refusal(const char *reason, PyObject *message)
{
    if (message != NULL && ad_log_is_on()) {
        char name[48];
        PyOS_snprintf(name, sizeof(name), "refusal (%s)", reason);
        ad_log_refusal(name, "%U", message);
    }
}

PyObject *
ad_raise_with_cause(PyObject *exception, PyObject *cause)
{
    if (exception == NULL) {
        Py_XDECREF(cause);
        return NULL;
    }
    if (cause != NULL) {
        PyException_SetContext(exception, Py_NewRef(cause));
        PyException_SetCause(exception, cause);
    }
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
    return NULL;
}

/* Raises *err with this message (stolen, may be NULL) and cause (likewise). */
static PyObject *
raise_message(ad_state *state, const ad_error *err, PyObject *message,
              PyObject *cause)
{
    PyObject *exception = NULL;
    if (err->status == AD_ERR_EXCHANGE) {
        log_refusal(err->reason, message);
    }
    if (message != NULL) {
        exception = PyObject_CallOneArg(class_of(state, err->status), message);
        Py_DECREF(message);
    }
    bool is_ours = err->status == AD_ERR_ARROW ||
                   err->status == AD_ERR_EXCHANGE ||
                   err->status == AD_ERR_DEVICE;
    if (exception != NULL && is_ours &&
        set_attributes(state, exception, err) < 0) {
        Py_CLEAR(exception);
    }
    return ad_raise_with_cause(exception, cause);
}

PyObject *
ad_raise(ad_state *state, const ad_error *err)
{
    if (err->status == AD_ERR_INTERRUPTED) {
        ad_raise_interruption();
        return NULL;
    }
    PyObject *cause = ad_py_take_exception();
    return raise_message(state, err, make_message(err), cause);
}

PyObject *
ad_raise_text(ad_state *state, const ad_error *err, PyObject *text)
{
    PyObject *shown = ad_shown(text, AD_KEEPS_LINES);
    PyObject *hint = shown != NULL ? ad_shown_utf8(err->hint) : NULL;
    int has_hint = hint != NULL ? PyUnicode_Contains(shown, hint) : -1;
    if (has_hint == 0) {
        Py_SETREF(shown, PyUnicode_FromFormat("%U; %U", shown, hint));
    }
    Py_XDECREF(hint);
    if (has_hint < 0) {
        Py_CLEAR(shown);
    }
    return raise_message(state, err, shown, NULL);
}

/* --- an exception as an error -------------------------------------------- */

/* The str in an attribute, or "". */
static void
copy_text(PyObject *exception, const char *name, char *out, size_t size)
{
    PyObject *value = PyObject_GetAttrString(exception, name);
    const char *text = value != NULL && PyUnicode_Check(value)
                           ? PyUnicode_AsUTF8(value)
                           : NULL;
    PyOS_snprintf(out, size, "%s", text != NULL ? text : "");
    Py_XDECREF(value);
    PyErr_Clear();
}

static void
copy_device(ad_state *state, PyObject *exception, ad_error *err)
{
    PyObject *value = PyObject_GetAttrString(exception, "device");
    if (value != NULL &&
        Py_TYPE(value) == (PyTypeObject *)state->device_type) {
        ad_error_device(err, ((ad_device_object *)value)->device);
    }
    Py_XDECREF(value);
    PyErr_Clear();
}

static int
code_of(PyObject *exception)
{
    PyObject *value = PyObject_GetAttrString(exception, "code");
    int overflow = 0;
    long code = value != NULL && PyLong_Check(value)
                    ? PyLong_AsLongAndOverflow(value, &overflow)
                    : 0;
    Py_XDECREF(value);
    PyErr_Clear();
    return overflow == 0 && code >= INT_MIN && code <= INT_MAX ? (int)code : 0;
}

void
ad_error_describe(ad_state *state, PyObject *exception, ad_error *err)
{
    if (PyErr_GivenExceptionMatches(exception, state->exchange_error)) {
        err->status = AD_ERR_EXCHANGE;
    } else if (PyErr_GivenExceptionMatches(exception, state->device_error)) {
        err->status = AD_ERR_DEVICE;
    } else if (PyErr_GivenExceptionMatches(exception,
                                           state->invalid_arrow_error)) {
        err->status = AD_ERR_ARROW;
    } else {
        return;
    }
    copy_text(exception, "reason", err->reason, sizeof(err->reason));
    copy_text(exception, "hint", err->hint, sizeof(err->hint));
    copy_text(exception, "dtype", err->dtype, sizeof(err->dtype));
    copy_text(exception, "path", err->path, sizeof(err->path));
    copy_device(state, exception, err);
    err->code = code_of(exception);
}

/* --- raising in support/ and above --------------------------------------- */

PyObject *
ad_raise_exchange(ad_state *state, const char *reason, const char *hint,
                  const char *format, ...)
{
    PyObject *cause = ad_py_take_exception();
    va_list args;
    va_start(args, format);
    PyObject *message =
        ad_shown(PyUnicode_FromFormatV(format, args), AD_KEEPS_LINES);
    va_end(args);
    PyObject *exception = NULL;
    if (message != NULL && hint != NULL) {
        PyObject *both = PyUnicode_FromFormat("%U; %s", message, hint);
        Py_SETREF(message, both);
    }
    log_refusal(reason, message);
    if (message != NULL) {
        exception = PyObject_CallOneArg(state->exchange_error, message);
        Py_DECREF(message);
    }
    if (exception != NULL &&
        (set_string(exception, "reason", reason) < 0 ||
         (hint != NULL && set_string(exception, "hint", hint) < 0))) {
        Py_CLEAR(exception);
    }
    return ad_raise_with_cause(exception, cause);
}

void
ad_prefix_exception(const char *format, ...)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return;
    }
    PyObject *exception = ad_py_take_exception();
    PyObject *args =
        exception != NULL ? PyObject_GetAttrString(exception, "args") : NULL;
    if (args != NULL && PyTuple_CheckExact(args) &&
        PyTuple_GET_SIZE(args) == 1 &&
        PyUnicode_Check(PyTuple_GET_ITEM(args, 0))) {
        va_list values;
        va_start(values, format);
        PyObject *text =
            ad_shown(PyUnicode_FromFormatV(format, values), AD_ONE_LINE);
        va_end(values);
        PyUnicode_Append(&text, PyTuple_GET_ITEM(args, 0));
        PyObject *longer = text != NULL ? PyTuple_Pack(1, text) : NULL;
        if (longer != NULL) {
            (void)PyObject_SetAttrString(exception, "args", longer);
        }
        Py_XDECREF(longer);
        Py_XDECREF(text);
    }
    Py_XDECREF(args);
    ad_py_restore_exception(exception); /* replaces one of this function */
}

/* RecursionError: a producer that imports itself would otherwise try its
 * protocols in every order, one on each level. */
bool
ad_exception_is_final(ad_state *state)
{
    return PyErr_ExceptionMatches(PyExc_MemoryError) ||
           PyErr_ExceptionMatches(PyExc_RecursionError) ||
           PyErr_ExceptionMatches(state->device_error) ||
           !PyErr_ExceptionMatches(PyExc_Exception);
}
