/* What is said where the protocols of an object refuse it, or it has none. */
#include "protocol/protocol.h"

#include "base/log.h"
#include "support/logging.h"

void
ad_refusals_clear(ad_refusals *tried)
{
    Py_CLEAR(tried->first);
    Py_CLEAR(tried->text);
}

/* The first line of the exception's text. The others may be the stack of C++
 * code. */
static PyObject *
first_line(PyObject *exception)
{
    PyObject *text = PyObject_Str(exception);
    if (text != NULL) {
        Py_ssize_t end =
            PyUnicode_FindChar(text, '\n', 0, PyUnicode_GET_LENGTH(text), 1);
        if (end > 0) {
            Py_SETREF(text, PyUnicode_Substring(text, 0, end));
        }
    }
    return text;
}

/* Whether an AttributeError means that the protocol's attribute is absent in
 * this state of the object: its look-up fails as well. Otherwise the
 * producer's code has raised it. -1: the look-up raised a final exception. */
static int
is_absent(ad_state *state, PyObject *object, const ad_protocol *protocol,
          PyObject *exception)
{
    PyObject *value = NULL;
    if (protocol->attribute < 0 ||
        !PyErr_GivenExceptionMatches(exception, PyExc_AttributeError)) {
        return 0;
    }
    int found =
        ad_py_lookup_attr(object, state->strings[protocol->attribute], &value);
    Py_XDECREF(value);
    if (found < 0 && ad_exception_is_final(state)) {
        return -1;
    }
    PyErr_Clear();
    return found == 0;
}

/* "<protocol> refused (<class>: <text>)", or NULL with an exception. */
static PyObject *
refusal_line(const ad_protocol *protocol, PyObject *object,
             PyObject *exception)
{
    const char *class = Py_TYPE(exception)->tp_name;
    PyObject *text = first_line(exception);
    if (text == NULL) {
        /* Its __str__ raises, so only the class is named. */
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        PyErr_Clear();
        return PyUnicode_FromFormat("%s refused (%s)", protocol->name, class);
    }
    if (ad_log_is_on()) {
        ad_log_python("refusal: %s of %.100s raised %.100s: %U",
                      protocol->name, Py_TYPE(object)->tp_name, class, text);
    }
    PyObject *line = PyUnicode_FromFormat("%s refused (%s: %U)",
                                          protocol->name, class, text);
    Py_DECREF(text);
    return line;
}

int
ad_refusals_add(ad_state *state, ad_refusals *tried, PyObject *object,
                const ad_protocol *protocol)
{
    if (ad_exception_is_final(state)) {
        return -1;
    }
    PyObject *exception = ad_py_take_exception();
    int absent =
        exception != NULL ? is_absent(state, object, protocol, exception) : 1;
    if (absent != 0) {
        Py_XDECREF(exception);
        return absent < 0 ? -1 : 0;
    }
    PyObject *line = refusal_line(protocol, object, exception);
    if (line == NULL) {
        Py_DECREF(exception);
        return -1;
    }
    if (tried->text == NULL) {
        tried->first = exception;
        tried->text = line;
        return 0;
    }
    Py_DECREF(exception);
    Py_SETREF(tried->text, PyUnicode_FromFormat("%U, %U", tried->text, line));
    Py_DECREF(line);
    return tried->text != NULL ? 0 : -1;
}

static bool
has_method(PyObject *object, const char *name)
{
    PyObject *value =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), name);
    if (value == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(value);
    return value != NULL;
}

const char *
ad_import_hint(PyObject *object)
{
    if (PyDict_Check(object)) {
        return "; arrowdev.record_batch(x) makes a batch of a dict of columns";
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        return "; values need a type: numpy.asarray(x, type) or "
               "pyarrow.array(x, type); arrowdev.concat(x) joins arrays";
    }
    if (has_method(object, "collect")) { /* polars, PySpark */
        return "; x.collect() computes the data";
    }
    if (has_method(object, "iter_batches")) { /* pyarrow.parquet.ParquetFile */
        return "; x.read() reads it, arrowdev.array_stream(x.iter_batches()) "
               "its batches";
    }
    if (has_method(object, "to_table")) { /* pyarrow's datasets */
        return "; x.to_table() reads it";
    }
    if (has_method(object, "sql")) { /* DuckDB's connection */
        return "; x.sql(query) gives data";
    }
    if (has_method(object, "to_series")) { /* pandas.Index */
        return "; x.to_series() has the values";
    }
    if (has_method(object, "toarray")) { /* SciPy's sparse matrices */
        return "; x.toarray() makes it dense";
    }
    if (PyRange_Check(object) || PyAnySet_Check(object)) {
        return "; numpy.asarray(list(x)) makes an array of the values";
    }
    if (ad_is_none(object)) {
        return "; a function without `return` gives None";
    }
    if (PyType_Check(object)) {
        return "; it is a class, not an instance of it";
    }
    if (has_method(object, "__arrow_c_schema__")) { /* a type or a field */
        return "; it has no data, arrowdev.schema(x) takes its type";
    }
    if (has_method(object, "__aiter__")) {
        return "; read its arrays with `async for`";
    }
    if (has_method(object, "__fspath__")) {
        return "; it is the path of a file, which a library has to read, as "
               "pyarrow.parquet.read_table(x) does";
    }
    if (PyIter_Check(object)) {
        return "; arrowdev.array_stream(x) reads an iterator of arrays";
    }
    if (PyLong_Check(object) || PyFloat_Check(object) ||
        PyUnicode_Check(object)) {
        return "; pyarrow.array([x]) makes an array of Python values";
    }
    return "";
}

/* TypeError that names the protocols in `among`. */
static void
fail_without_protocol(PyObject *object, uint32_t among)
{
    PyObject *names = NULL;
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        if (!(among >> i & 1) || ad_protocols[i]->import == NULL) {
            continue;
        }
        PyObject *longer =
            names == NULL
                ? PyUnicode_FromString(ad_protocols[i]->name)
                : PyUnicode_FromFormat("%U, %s", names, ad_protocols[i]->name);
        Py_XDECREF(names);
        names = longer;
        if (names == NULL) {
            return;
        }
    }
    bool is_class = PyType_Check(object);
    const PyTypeObject *named =
        is_class ? (const PyTypeObject *)object : Py_TYPE(object);
    PyErr_Format(PyExc_TypeError,
                 "%s%.200s speaks none of the protocols%s (tried: %U)",
                 is_class ? "the class " : "", named->tp_name,
                 ad_import_hint(object), names);
    Py_XDECREF(names);
}

PyObject *
ad_refusals_raise(ad_state *state, ad_refusals *tried, PyObject *object)
{
    ad_py_restore_exception(tried->first);
    tried->first = NULL;
    ad_raise_exchange(state, "refused", NULL, "%.200s cannot be imported: %U",
                      Py_TYPE(object)->tp_name, tried->text);
    ad_refusals_clear(tried);
    return NULL;
}

int
ad_fail_import(ad_state *state, PyObject *object, ad_refusals *tried,
               uint32_t among)
{
    if (tried->first != NULL) {
        ad_refusals_raise(state, tried, object);
    } else if (!PyErr_Occurred()) {
        fail_without_protocol(object, among);
    }
    ad_refusals_clear(tried);
    return -1;
}
