#include "support/py_stream.h"

#include <string.h>

#include "support/errors.h"
#include "support/saved_exception.h"

void
ad_stream_drop(ad_array_stream *stream)
{
    PyObject *saved = ad_py_save_exception();
    ad_array_stream_unref(stream);
    ad_py_reset_exception(saved);
}

/* No more than an ad_error has room for in any case. */
#define SHORT_TEXT 300
/* So many bytes are not alike by chance. */
#define MIN_SHARED 32

/* An ad_error has room for the beginning of a long text only, and ends with
 * it: where that begins in the message; NULL: a short text, or another one. */
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

/* The message, and from `cut` on all of the text that the producer gave. */
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

/* The errno as an attribute, once the exception is raised. */
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

/* Has the source told that the stream that it reads failed? It may know so
 * before the batches that precede the failure are given. */
static bool
has_upstream_failed(ad_batch_source *source)
{
    int code = 0;
    if (source->last_error != NULL) {
        (void)source->last_error(source, &code);
    }
    return code != 0;
}

/* The exception that ended the stream, or the stream that it reads: a new
 * reference; NULL where there is none. */
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
        stream = has_upstream_failed(source) && source->upstream != NULL
                     ? source->upstream(source)
                     : NULL;
    }
    return NULL;
}

PyObject *
ad_stream_raise(ad_state *state, ad_array_stream *stream, const ad_error *err)
{
    PyObject *cause = stream != NULL ? take_exception(stream) : NULL;
    if (cause != NULL) {
        ad_py_restore_exception(cause);
        if (ad_exception_is_final(state)) { /* not for a library to wrap */
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
