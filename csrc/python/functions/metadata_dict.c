/* Metadata of a schema as a dict, and a mapping as metadata. */
#include "python/functions/functions.h"

#include "model/metadata.h"
#include "support/args.h"
#include "support/errors.h"

/* --- from a blob --------------------------------------------------------- */

PyObject *
ad_metadata_as_pairs(ad_state *state, const char *blob)
{
    ad_metadata_reader reader;
    ad_metadata_pair pair;
    ad_error err;
    bool done = false;
    PyObject *list = PyList_New(0);
    if (list == NULL) {
        return NULL;
    }
    ad_status status = ad_metadata_begin(&reader, blob, &err);
    while (status == AD_OK) {
        status = ad_metadata_next(&reader, &pair, &done, &err);
        if (status != AD_OK || done) {
            break;
        }
        PyObject *both =
            Py_BuildValue("(y#y#)", pair.key, (Py_ssize_t)pair.key_length,
                          pair.value, (Py_ssize_t)pair.value_length);
        if (ad_py_append(list, both) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    if (status != AD_OK) {
        Py_DECREF(list);
        return ad_raise(state, &err);
    }
    return list;
}

PyObject *
ad_metadata_as_dict(ad_state *state, const char *blob)
{
    if (blob == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *pairs = ad_metadata_as_pairs(state, blob);
    PyObject *result = pairs != NULL ? PyDict_New() : NULL;
    if (result != NULL && PyDict_MergeFromSeq2(result, pairs, 1) < 0) {
        Py_CLEAR(result);
    }
    Py_XDECREF(pairs);
    return result;
}

/* --- to a blob ----------------------------------------------------------- */

/* The bytes of a bytes or str, borrowed from it. */
static int
read_text(PyObject *object, const char **out, int32_t *length)
{
    Py_ssize_t n;
    if (PyBytes_Check(object)) {
        *out = PyBytes_AS_STRING(object);
        n = PyBytes_GET_SIZE(object);
    } else if (PyUnicode_Check(object)) {
        *out = PyUnicode_AsUTF8AndSize(object, &n);
        if (*out == NULL) {
            return -1;
        }
    } else {
        PyErr_Format(PyExc_TypeError,
                     "keys and values of metadata must be bytes or str, not "
                     "%.200s",
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    if (n > AD_METADATA_MAX_SIZE) {
        PyErr_Format(
            PyExc_ValueError,
            "a text of %zd bytes in metadata, expected %d at the most", n,
            AD_METADATA_MAX_SIZE);
        return -1;
    }
    *length = (int32_t)n;
    return 0;
}

/* `items` is a list of pairs. */
static int
read_pairs(PyObject *items, ad_metadata_pair *pairs)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
            PyErr_SetString(PyExc_TypeError,
                            "metadata must be a mapping of bytes or str");
            return -1;
        }
        if (read_text(PyTuple_GET_ITEM(item, 0), &pairs[i].key,
                      &pairs[i].key_length) < 0 ||
            read_text(PyTuple_GET_ITEM(item, 1), &pairs[i].value,
                      &pairs[i].value_length) < 0) {
            return -1;
        }
    }
    return 0;
}

int
ad_metadata_from_pairs(ad_state *state, PyObject *items, char **out)
{
    Py_ssize_t n = PyList_GET_SIZE(items);
    ad_error err;
    if (n > AD_METADATA_MAX_PAIRS) {
        PyErr_Format(PyExc_ValueError,
                     "%zd entries of metadata, expected %d at the most", n,
                     AD_METADATA_MAX_PAIRS);
        return -1;
    }
    ad_metadata_pair *pairs = PyMem_New(ad_metadata_pair, n > 0 ? n : 1);
    if (pairs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int result = read_pairs(items, pairs);
    if (result == 0 &&
        ad_metadata_build(pairs, (int32_t)n, out, &err) != AD_OK) {
        ad_raise(state, &err);
        result = -1;
    }
    PyMem_Free(pairs);
    return result;
}

int
ad_metadata_from_mapping(ad_state *state, PyObject *mapping, char **out)
{
    *out = NULL;
    if (ad_is_none(mapping)) {
        return 0;
    }
    PyObject *items =
        PyMapping_Check(mapping) ? PyMapping_Items(mapping) : NULL;
    if (items == NULL) {
        if (!PyErr_Occurred() ||
            PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError,
                         "metadata must be a mapping of bytes or str, not "
                         "%.200s",
                         Py_TYPE(mapping)->tp_name);
        }
        return -1;
    }
    int result = ad_metadata_from_pairs(state, items, out);
    Py_DECREF(items);
    return result;
}
