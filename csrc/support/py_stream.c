#include "support/py_stream.h"

#include <string.h>

#include "support/errors.h"
#include "support/saved_exception.h"

/* An ad_error always has room for a text of this length. */
#define SHORT_TEXT 300
/* This many equal bytes are no coincidence. */
#define MIN_SHARED 32

/* An ad_error has room only for the beginning of a long text, and its message
 * ends with it. Returns the position in the message where the text begins, or
 * NULL if the text is short or is not in the message. */
static const char *
find_cut(const char *message, const char *text)
{
    size_t n = strlen(message);
    size_t i = 0;
    if (strlen(text) <= SHORT_TEXT) {
        return NULL;
    }
    while (i + MIN_SHARED <= n && strncmp(message + i, text, n - i) != 0) {
        i++;
    }
    return i + MIN_SHARED <= n ? message + i : NULL;
}

/* Raise the message up to `cut`, followed by the producer's full text. */
static void
raise_in_full(ad_state *state, const ad_error *err, const char *cut,
              const char *text)
{
    PyObject *head = PyUnicode_DecodeUTF8(err->message, cut - err->message,
                                          "backslashreplace");
    PyObject *all = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                         "backslashreplace");
    if (head != NULL && all != NULL) {
        ad_raise_exchange(state, "stream", NULL, "%U%U", head, all);
    }
    Py_XDECREF(head);
    Py_XDECREF(all);
}

/* Set the errno as an attribute of the current exception. */
static void
add_code(int code)
{
    PyObject *exception = ad_py_take_exception();
    PyObject *number = PyLong_FromLong(code);
    if (number == NULL ||
        PyObject_SetAttrString(exception, "code", number) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(number);
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
        if (kept != NULL && kept->exception != NULL) {
            PyObject *exception = kept->exception;
            kept->exception = NULL;
            return exception;
        }
        stream = has_upstream_failed(source) ? source->upstream : NULL;
    }
    return NULL;
}

PyObject *
ad_stream_raise(ad_state *state, ad_array_stream *stream, const ad_error *err)
{
    PyObject *cause = stream != NULL ? take_exception(stream) : NULL;
    if (cause != NULL) {
        ad_py_restore_exception(cause);
        if (ad_exception_is_final(state)) { /* must not be wrapped */
            return NULL;
        }
    }
    const char *text = stream != NULL && err->code != 0 && cause == NULL
                           ? ad_array_stream_last_error(stream)
                           : NULL;
    bool is_stream = err->status == AD_ERR_EXCHANGE && err->reason != NULL &&
                     strcmp(err->reason, "stream") == 0;
    const char *cut =
        is_stream && text != NULL ? find_cut(err->message, text) : NULL;
    if (cut != NULL) {
        raise_in_full(state, err, cut, text);
    } else {
        ad_raise(state, err);
    }
    if (is_stream && err->code != 0) {
        add_code(err->code);
    }
    return NULL;
}

ad_status
ad_stream_take(void *pointer, ad_capsule_kind kind, ad_array_stream **out,
               ad_error *err)
{
    *out = NULL;
    if (kind == AD_CAPSULE_DEVICE_STREAM) {
        struct ArrowDeviceArrayStream *source = pointer;
        struct ArrowDeviceArrayStream stream = *source;
        source->release = NULL;
        return ad_array_stream_from_device(&stream, out, err);
    }
    struct ArrowArrayStream *source = pointer;
    struct ArrowArrayStream stream = *source;
    source->release = NULL;
    return ad_array_stream_from_host(&stream, out, err);
}
