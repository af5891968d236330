#include "support/py_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "support/errors.h"
#include "support/py_call.h"

/* An ad_error always has room for a text of this length. */
#define SHORT_TEXT 300
/* A shorter match may be accidental. */
#define MIN_SHARED 32

/* A message may end with only the beginning of a long text, and is one line.
 * Returns the position in the message where the text begins, or NULL if the
 * text is a short line or is not in the message. */
static const char *
find_cut(const char *message, const char *text)
{
    size_t n = strlen(message);
    size_t i = 0;
    if (strlen(text) <= SHORT_TEXT) {
        return strchr(text, '\n') != NULL ? strstr(message, text) : NULL;
    }
    while (i + MIN_SHARED <= n && strncmp(message + i, text, n - i) != 0) {
        i++;
    }
    return i + MIN_SHARED <= n ? message + i : NULL;
}

/* Raise *err with its message up to `cut`, followed by the producer's full
 * text. */
static void
raise_in_full(ad_state *state, const ad_error *err, const char *cut,
              const char *text)
{
    PyObject *head = PyUnicode_DecodeUTF8(err->message, cut - err->message,
                                          "backslashreplace");
    PyObject *all = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                         "backslashreplace");
    PyObject *both =
        head != NULL && all != NULL ? PyUnicode_Concat(head, all) : NULL;
    Py_XDECREF(head);
    Py_XDECREF(all);
    ad_raise_text(state, err, both);
}

/* Set the errno as an attribute of the current exception. */
static void
add_code(int code)
{
    PyObject *exception = ad_py_take_exception();
    if (ad_py_set_attr(exception, "code", PyLong_FromLong(code)) < 0) {
        PyErr_Clear();
    }
    ad_py_restore_exception(exception);
}

/* Has the source reported a failure of its upstream? It may know of the
 * failure before it has delivered the batches that precede it. */
static bool
has_upstream_failed(ad_batch_source *source)
{
    int code = 0;
    if (source->last_error != NULL) {
        (void)source->last_error(source, &code);
    }
    return code != 0;
}

/* Take the exception that ended the stream or one of its upstreams. Returns a
 * strong reference, or NULL if there is none. */
static PyObject *
take_exception(ad_array_stream *stream)
{
    while (stream != NULL && ad_array_stream_source(stream) != NULL) {
        ad_batch_source *source = ad_array_stream_source(stream);
        ad_saved_exception *kept = source->saved_exception;
        PyObject *exception =
            kept != NULL && kept->interpreter == ad_interpreter_here()
                ? atomic_exchange(&kept->exception, NULL)
                : NULL;
        if (exception != NULL) {
            return exception;
        }
        stream = has_upstream_failed(source) ? source->upstream : NULL;
    }
    return NULL;
}

PyObject *
ad_array_stream_raise(ad_state *state, ad_array_stream *stream,
                      const ad_error *err)
{
    PyObject *cause = stream != NULL ? take_exception(stream) : NULL;
    bool is_exchange = cause != NULL && PyErr_GivenExceptionMatches(
                                            cause, state->exchange_error);
    bool is_arrow = cause != NULL && PyErr_GivenExceptionMatches(
                                         cause, state->invalid_arrow_error);
    if (cause != NULL) {
        ad_py_restore_exception(cause);
        if (ad_exception_is_final(state)) { /* must not be wrapped */
            return NULL;
        }
    }
    if (is_exchange && err->code != 0) {
        add_code(err->code);
    }
    if (is_exchange || is_arrow) { /* says it better than a wrapper */
        return NULL;
    }
    const char *text = stream != NULL && err->code != 0 && cause == NULL
                           ? ad_array_stream_last_error(stream)
                           : NULL;
    const char *cut = text != NULL ? find_cut(err->message, text) : NULL;
    if (cut != NULL) {
        raise_in_full(state, err, cut, text);
    } else {
        ad_raise(state, err);
    }
    return NULL;
}

/* With the lock of the capsule of the struct. */
static void
move_out(void *pointer, ad_stream_struct *out)
{
    if (out->is_device) {
        struct ArrowDeviceArrayStream *source = pointer;
        out->device = *source;
        source->release = NULL;
    } else {
        struct ArrowArrayStream *source = pointer;
        out->host = *source;
        source->release = NULL;
    }
}

int
ad_stream_struct_take(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
                      const char *origin, ad_stream_struct *out)
{
    void *pointer;
    out->is_device = kind == AD_CAPSULE_DEVICE_STREAM;
    out->interpreter = state->interpreter;
    Py_BEGIN_CRITICAL_SECTION(capsule);
    pointer = ad_capsule_get(state, capsule, kind, origin);
    if (pointer != NULL) {
        move_out(pointer, out);
    }
    Py_END_CRITICAL_SECTION();
    return pointer != NULL ? 0 : -1;
}

/* With its lock: the struct in a capsule with the name of its kind, or NULL. */
static void *
struct_in(PyObject *capsule, bool is_device)
{
    const char *name = ad_capsule_name(is_device ? AD_CAPSULE_DEVICE_STREAM
                                                 : AD_CAPSULE_STREAM);
    return PyCapsule_IsValid(capsule, name)
               ? PyCapsule_GetPointer(capsule, name)
               : NULL;
}

bool
ad_stream_struct_borrow(PyObject *capsule, bool is_device,
                        ad_stream_struct *out)
{
    void *pointer;
    out->is_device = is_device;
    out->interpreter = ad_interpreter_here();
    Py_BEGIN_CRITICAL_SECTION(capsule);
    pointer = struct_in(capsule, is_device);
    if (pointer != NULL) {
        move_out(pointer, out);
    }
    Py_END_CRITICAL_SECTION();
    return pointer != NULL && (is_device ? out->device.release != NULL
                                         : out->host.release != NULL);
}

void
ad_stream_struct_give_back(PyObject *capsule, ad_stream_struct *borrowed)
{
    void *pointer;
    Py_BEGIN_CRITICAL_SECTION(capsule);
    pointer = struct_in(capsule, borrowed->is_device);
    if (pointer != NULL && borrowed->is_device) {
        *(struct ArrowDeviceArrayStream *)pointer = borrowed->device;
    } else if (pointer != NULL) {
        *(struct ArrowArrayStream *)pointer = borrowed->host;
    }
    Py_END_CRITICAL_SECTION();
    if (pointer != NULL) {
        return;
    }
    /* Foreign code has renamed the capsule, which frees nothing then. */
    if (borrowed->is_device) {
        AD_RELEASE(&borrowed->device, release);
    } else {
        AD_RELEASE(&borrowed->host, release);
    }
}

ad_status
ad_stream_struct_import(const ad_stream_struct *steal, ad_array_stream **out,
                        ad_error *err)
{
    ad_stream_struct stream = *steal;
    *out = NULL;
    return stream.is_device
               ? ad_array_stream_from_device(&stream.device,
                                             stream.interpreter, out, err)
               : ad_array_stream_from_host(&stream.host, out, err);
}

/* --- saved exceptions ---------------------------------------------------- */

/* The number in an attribute, or `otherwise` if that is not a valid errno. */
static int
number_of(PyObject *exception, const char *attribute, int otherwise)
{
    PyObject *number = PyObject_GetAttrString(exception, attribute);
    long value =
        number != NULL && PyLong_Check(number) ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    return ad_errno_or(value, otherwise);
}

static int
errno_of(ad_state *state, PyObject *exception)
{
    if (PyErr_GivenExceptionMatches(exception, PyExc_MemoryError)) {
        return ENOMEM;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_NotImplementedError)) {
        return ENOSYS;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt)) {
        return EINTR;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_OSError)) {
        return number_of(exception, "errno", EIO);
    }
    if (PyErr_GivenExceptionMatches(exception, state->device_error)) {
        return EIO; /* its code is the runtime's */
    }
    /* The errno of the stream that the producer reads. */
    if (PyErr_GivenExceptionMatches(exception, state->exchange_error)) {
        return number_of(exception, "code", EINVAL);
    }
    return EINVAL;
}

/* "ValueError: text", malloc'ed; NULL if it is not available. */
static char *
text_of(PyObject *exception)
{
    PyObject *text =
        PyUnicode_FromFormat("%s: %S", Py_TYPE(exception)->tp_name, exception);
    if (text == NULL) { /* its __str__ raises */
        PyErr_Clear();
        text = PyUnicode_FromString(Py_TYPE(exception)->tp_name);
    }
    PyObject *bytes =
        text != NULL
            ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace")
            : NULL;
    char *copy = bytes != NULL ? strdup(PyBytes_AS_STRING(bytes)) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    PyErr_Clear();
    return copy;
}

ad_status
ad_save_exception(ad_state *state, ad_saved_exception *self, const char *who,
                  ad_error *err)
{
    PyObject *exception = ad_py_take_exception();
    self->code = errno_of(state, exception);
    self->text = text_of(exception);
    self->interpreter = state->interpreter;
    self->exception = exception;
    (void)ad_fail(err, self->code == ENOMEM ? AD_ERR_MEMORY : AD_ERR_EXCHANGE,
                  "stream", NULL, "%s%s%.400s", who != NULL ? who : "",
                  who != NULL ? " raised " : "",
                  self->text != NULL ? self->text
                                     : Py_TYPE(exception)->tp_name);
    ad_error_describe(state, exception, err);
    return err->status;
}

ad_status
ad_fail_exit(const char *who, ad_error *err)
{
    (void)ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                  "Python is about to exit, so that %s cannot be asked for "
                  "more",
                  who);
    if (err != NULL) {
        err->code = ECANCELED;
    }
    return AD_ERR_EXCHANGE;
}

ad_status
ad_save_exit(ad_saved_exception *self, const char *who, ad_error *err)
{
    self->code = ECANCELED;
    return ad_fail_exit(who, err);
}

void
ad_saved_exception_clear(ad_saved_exception *self)
{
    ad_py_entry entry;
    free(self->text);
    self->text = NULL;
    if (self->exception != NULL && ad_py_enter(self->interpreter, &entry)) {
        Py_XDECREF(atomic_exchange(&self->exception, NULL));
        ad_py_leave(&entry);
    }
}
