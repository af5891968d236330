#include "support/shown.h"

#include <stdio.h>
#include <string.h>

/* "\U0010ffff" */
#define MAX_ESCAPE 10

static bool
is_shown(Py_UCS4 character, ad_line_rule rule)
{
    return Py_UNICODE_ISPRINTABLE(character) ||
           (character == '\n' && rule == AD_KEEPS_LINES);
}

static bool
is_all_shown(PyObject *text, ad_line_rule rule)
{
    const int kind = (int)PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    const Py_ssize_t n = PyUnicode_GET_LENGTH(text);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!is_shown(PyUnicode_READ(kind, data, i), rule)) {
            return false;
        }
    }
    return true;
}

/* Returns the number of characters written. */
static int
escape(Py_UCS4 character, Py_UCS4 *out)
{
    char text[MAX_ESCAPE + 1];
    int n = character == '\n'   ? snprintf(text, sizeof(text), "\\n")
            : character == '\r' ? snprintf(text, sizeof(text), "\\r")
            : character == '\t' ? snprintf(text, sizeof(text), "\\t")
            : character < 0x100
                ? snprintf(text, sizeof(text), "\\x%02x", (unsigned)character)
            : character < 0x10000
                ? snprintf(text, sizeof(text), "\\u%04x", (unsigned)character)
                : snprintf(text, sizeof(text), "\\U%08x", (unsigned)character);
    for (int i = 0; i < n; i++) {
        out[i] = (Py_UCS4)text[i];
    }
    return n;
}

static PyObject *
with_escapes(PyObject *text, ad_line_rule rule)
{
    const int kind = (int)PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    const Py_ssize_t n = PyUnicode_GET_LENGTH(text);
    Py_UCS4 *out = PyMem_New(Py_UCS4, (size_t)n * MAX_ESCAPE);
    if (out == NULL) {
        return PyErr_NoMemory();
    }
    Py_ssize_t length = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_UCS4 character = PyUnicode_READ(kind, data, i);
        if (is_shown(character, rule)) {
            out[length++] = character;
        } else {
            length += escape(character, out + length);
        }
    }
    PyObject *result =
        PyUnicode_FromKindAndData(PyUnicode_4BYTE_KIND, out, length);
    PyMem_Free(out);
    return result;
}

PyObject *
ad_shown(PyObject *steal, ad_line_rule rule)
{
    if (steal == NULL || is_all_shown(steal, rule)) {
        return steal;
    }
    PyObject *result = with_escapes(steal, rule);
    Py_DECREF(steal);
    return result;
}

PyObject *
ad_shown_utf8(const char *text)
{
    text = text != NULL ? text : "";
    return ad_shown(PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                         "surrogateescape"),
                    AD_ONE_LINE);
}

PyObject *
ad_raise_shown(PyObject *exception_type, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyObject *text =
        ad_shown(PyUnicode_FromFormatV(format, args), AD_ONE_LINE);
    va_end(args);
    if (text != NULL) {
        PyErr_SetObject(exception_type, text);
        Py_DECREF(text);
    }
    return NULL;
}

PyObject *
ad_function_shown(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text;
    int keeps_lines = 0;
    if (!PyArg_ParseTuple(args, "U|p", &text, &keeps_lines)) {
        return NULL;
    }
    return ad_shown(Py_NewRef(text),
                    keeps_lines ? AD_KEEPS_LINES : AD_ONE_LINE);
}
