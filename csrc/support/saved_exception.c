#include "support/saved_exception.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "support/py_call.h"

/* The number in an attribute, or `otherwise` if that is not a valid errno. */
static int
number_of(PyObject *exception, const char *attribute, int otherwise)
{
    PyObject *number = PyObject_GetAttrString(exception, attribute);
    long value =
        number != NULL && PyLong_Check(number) ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    return value > 0 && value < 4096 ? (int)value : otherwise;
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
    self->exception = exception;
    return ad_fail(err, self->code == ENOMEM ? AD_ERR_MEMORY : AD_ERR_EXCHANGE,
                   "stream", NULL, "%s raised %.400s", who,
                   self->text != NULL ? self->text
                                      : Py_TYPE(exception)->tp_name);
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
    PyGILState_STATE gil;
    free(self->text);
    self->text = NULL;
    if (self->exception != NULL && ad_py_enter(&gil)) {
        PyObject *saved = ad_py_save_exception();
        Py_CLEAR(self->exception);
        ad_py_reset_exception(saved);
        PyGILState_Release(gil);
    }
}
