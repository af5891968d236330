/* repr() and HTML of Array, and what the other types need for theirs. The
 * values are formatted by arrowdev/_repr.py. */
#include "python/types/types.h"

#include <string.h>

#include "base/process.h"
#include "model/type.h"
#include "support/errors.h"
#include "support/py_call.h"
#include "support/shown.h"

/* --- repr ---------------------------------------------------------------- */

static bool
is_ready_on_host(ad_device device, const ad_sync *sync)
{
    const uint32_t host = AD_HOST_READS | AD_NO_STREAMS;
    return (ad_device_traits(device.type) & host) == host &&
           ad_sync_is_done(sync);
}

/* A repr looks at fewer children: 20 columns of a batch, 6 fields of a struct,
 * or one of the 128 that a union may have. */
#define MAX_CHILDREN 128

/* Each may take system calls. Values of larger trees are not shown. */
#define MAX_NODES 10000

/* As ad_can_show_tensor(). */
static bool
can_show_array(const ad_array *array)
{
    return is_ready_on_host(array->memory.device, array->memory.sync) &&
           ad_array_can_be_read(array, MAX_CHILDREN, MAX_NODES);
}

bool
ad_can_show_tensor(const ad_tensor *tensor)
{
    int64_t low, high;
    if (!is_ready_on_host(tensor->memory.device, tensor->memory.sync)) {
        return false;
    }
    ad_tensor_extent(tensor, &low, &high);
    return ad_process_can_read((const char *)ad_tensor_address(tensor) + low,
                               high - low);
}

PyObject *
ad_append_values(PyObject *steal, const char *function, PyObject *self)
{
    PyObject *result = NULL;
    PyObject *args[] = {self};
    PyObject *values =
        steal != NULL ? ad_call_helper("_repr", function, args, 1) : NULL;
    if (values != NULL) {
        result = PyUnicode_FromFormat("%U%U>", steal, values);
        Py_DECREF(values);
    }
    Py_XDECREF(steal);
    return result;
}

#define MAX_TYPE 200 /* characters */

PyObject *
ad_short_type(PyObject *self, const struct ArrowSchema *node)
{
    ad_text text = {0};
    ad_error err;
    PyObject *result;
    if (ad_type_print(node, &text, &err) != AD_OK) {
        result = ad_raise(ad_state_of(self), &err);
    } else {
        const char *type = ad_text_string(&text);
        size_t size = strlen(type);
        result = ad_shown(
            PyUnicode_FromFormat(size > MAX_TYPE ? "%.200s..." : "%s", type),
            AD_ONE_LINE);
    }
    ad_text_clear(&text);
    return result;
}

PyObject *
ad_array_repr(PyObject *self)
{
    const ad_array *array = ad_array_of(self);
    char device[AD_DEVICE_NAME_SIZE];
    PyObject *type = ad_short_type(self, array->schema.node);
    if (type == NULL) {
        return NULL;
    }
    bool can_show = can_show_array(array);
    PyObject *result = PyUnicode_FromFormat(
        can_show ? "<arrowdev.Array %U, length %lld, on %s%s"
                 : "<arrowdev.Array %U, length %lld, on %s%s>",
        type, (long long)array->length,
        ad_device_format(array->memory.device, device),
        ad_readiness(array->memory.sync));
    Py_DECREF(type);
    return can_show ? ad_append_values(result, "of_array", self) : result;
}

/* --- record batches ------------------------------------------------------ */

static bool
is_batch(PyObject *self)
{
    return strcmp(ad_array_of(self)->schema.node->format, "+s") == 0;
}

int
ad_require_batch(PyObject *self, const char *attribute)
{
    if (is_batch(self)) {
        return 0;
    }
    PyObject *type = ad_short_type(self, ad_array_of(self)->schema.node);
    if (type != NULL) {
        PyErr_Format(PyExc_AttributeError,
                     "only a record batch (struct) has %s, and this Array is "
                     "of type %U; len() is its number of rows",
                     attribute, type);
        Py_DECREF(type);
    }
    return -1;
}

static PyObject *
array_num_rows(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_require_batch(self, "num_rows") == 0
               ? PyLong_FromLongLong(ad_array_of(self)->length)
               : NULL;
}

static PyObject *
array_num_columns(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_require_batch(self, "num_columns") == 0
               ? PyLong_FromLongLong(ad_array_of(self)->node->n_children)
               : NULL;
}

static PyObject *
array_shape(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_require_batch(self, "shape") == 0
               ? Py_BuildValue("(LL)", (long long)ad_array_of(self)->length,
                               (long long)ad_array_of(self)->node->n_children)
               : NULL;
}

static PyObject *
list_names(const struct ArrowSchema *node)
{
    PyObject *names = PyList_New(0);
    for (int64_t i = 0; names != NULL && i < node->n_children; i++) {
        if (ad_py_append(names, ad_decode_text(node->children[i]->name)) < 0) {
            Py_CLEAR(names);
        }
    }
    return names;
}

static PyObject *
array_column_names(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_require_batch(self, "column_names") == 0
               ? list_names(ad_array_of(self)->schema.node)
               : NULL;
}

/* --- completions and HTML ------------------------------------------------ */

static PyObject *
array_keys(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return is_batch(self) ? list_names(ad_array_of(self)->schema.node)
                          : PyList_New(0);
}

static PyObject *
array_dir(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *args[] = {self};
    return ad_call_helper("_repr", "names_of_array", args, 1);
}

static PyObject *
array_html(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const ad_array *array = ad_array_of(self);
    if (!is_batch(self)) {
        Py_RETURN_NONE;
    }
    PyObject *args[] = {self, can_show_array(array) ? Py_True : Py_False};
    return ad_call_helper("_repr", "html_of_batch", args, 2);
}

const PyMethodDef ad_array_prompt_methods[] = {
    {"_repr_html_", array_html, METH_NOARGS,
     "_repr_html_($self)\n--\n\n"
     "A record batch as a table for a notebook; None for other arrays."},
    {"_ipython_key_completions_", array_keys, METH_NOARGS,
     "_ipython_key_completions_($self)\n--\n\n"
     "The names that [] takes."},
    {"__dir__", array_dir, METH_NOARGS,
     "__dir__($self)\n--\n\n"
     "The attributes, without those of record batches for other arrays."},
    {NULL, NULL, 0, NULL},
};

const PyGetSetDef ad_array_prompt_getset[] = {
    {"shape", array_shape, NULL,
     "(rows, columns) of a record batch. AttributeError for other arrays,\n"
     "which have len().",
     NULL},
    {"num_rows", array_num_rows, NULL,
     "Number of rows of a record batch. AttributeError for other arrays.",
     NULL},
    {"num_columns", array_num_columns, NULL,
     "Number of columns of a record batch. AttributeError for other\n"
     "arrays.",
     NULL},
    {"column_names", array_column_names, NULL,
     "Names of the columns of a record batch, as a list.\n"
     "AttributeError for other arrays.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* --- HTML of schemas ----------------------------------------------------- */

PyObject *
ad_html_of_schema(PyObject *schema, const char *caption)
{
    PyObject *text = PyUnicode_FromString(caption);
    if (text == NULL) {
        return NULL;
    }
    PyObject *args[] = {schema, text};
    PyObject *result = ad_call_helper("_repr", "html_of_schema", args, 2);
    Py_DECREF(text);
    return result;
}
