/* The exported dicts; interface_import.c reads those of other libraries. */
#include "protocol/interface_import.h"
#include "support/shown.h"

#include <stdarg.h>
#include <stddef.h>

PyObject *
ad_interface_unavailable(const ad_interface_rules *rules, const char *format,
                         ...)
{
    va_list args;
    va_start(args, format);
    PyObject *why = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (why != NULL) {
        ad_raise_shown(PyExc_AttributeError, "%s is not available: %U",
                       rules->name, why);
        Py_DECREF(why);
    }
    return NULL;
}

PyObject *
ad_interface_failed(ad_state *state, const ad_interface_rules *rules,
                    const ad_error *err)
{
    if (err->status == AD_ERR_EXCHANGE) {
        return ad_interface_unavailable(rules, "%s", err->message);
    }
    return ad_raise(state, err);
}

/* Data that cannot be exchanged, or no longer, have no such attribute, so that
 * hasattr() works. The reason becomes the cause. Returns NULL. */
static PyObject *
as_attribute_error(ad_state *state, const ad_interface_rules *rules)
{
    if (!PyErr_ExceptionMatches(state->exchange_error) &&
        !PyErr_ExceptionMatches(state->device_error)) {
        return NULL;
    }
    PyObject *cause = ad_py_take_exception();
    ad_interface_unavailable(rules, "%S", cause);
    return ad_raise_with_cause(ad_py_take_exception(), cause);
}

PyObject *
ad_interface_get(PyObject *self, void *closure)
{
    ad_state *state = ad_state_of(self);
    const ad_interface_rules *rules = closure;
    ad_tensor_value value;
    ad_error err;
    if (ad_is_array(state, self)) {
        if (ad_refuse_batch(ad_array_of(self), rules->name, &err) != AD_OK) {
            return ad_interface_unavailable(rules, "%s; %s", err.message,
                                            err.hint);
        }
        if (ad_array_offers_tensor(state, self, rules->name) < 0) {
            return NULL;
        }
    } else if (!(ad_tensor_of(self)->flags & AD_TENSOR_SIZE_UNKNOWN)) {
        PyObject *shown = rules->export_dict(state, ad_tensor_of(self), rules);
        return shown != NULL ? shown : as_attribute_error(state, rules);
    }
    if (ad_self_as_tensor(state, self, &value) < 0) {
        return as_attribute_error(state, rules);
    }
    PyObject *result = rules->export_dict(state, &value.tensor, rules);
    /* No copy was made, so `self` keeps the memory. */
    ad_tensor_clear(&value.tensor);
    return result != NULL ? result : as_attribute_error(state, rules);
}

static PyObject *
export_typestr(const ad_tensor *tensor, const ad_interface_rules *rules)
{
    const ad_dtype_info *row = ad_dtype_find(tensor->dtype);
    if (row == NULL || row->typestr[0] == '\0' || tensor->dtype.lanes != 1) {
        char name[AD_DTYPE_NAME_SIZE];
        return ad_interface_unavailable(rules,
                                        "elements of type %s have no typestr",
                                        ad_dtype_format(tensor->dtype, name));
    }
    char order = '|';
    if (rules->exports_byte_order && tensor->dtype.bits > 8) {
        order = PY_LITTLE_ENDIAN ? '<' : '>';
    }
    return PyUnicode_FromFormat("%c%s", order, row->typestr);
}

static PyObject *
export_strides(const ad_tensor *tensor, const ad_interface_rules *rules)
{
    if (ad_tensor_is_contiguous(tensor, 'C')) {
        return Py_NewRef(Py_None);
    }
    int64_t itemsize = ad_dtype_bits(tensor->dtype) / 8;
    return ad_int_tuple(tensor->strides, tensor->ndim,
                        rules->counts_elements ? 1 : itemsize);
}

/* The address of a tensor without elements. */
static const max_align_t nowhere;

static PyObject *
export_data(const ad_tensor *tensor, const ad_interface_rules *rules)
{
    bool readonly = ad_tensor_is_readonly(tensor);
    const void *address =
        ad_tensor_size(tensor) != 0     ? ad_tensor_address(tensor)
        : rules->exports_address_always ? (const void *)&nowhere
                                        : NULL;
    PyObject *pointer = PyLong_FromVoidPtr((void *)address);
    if (pointer == NULL) {
        return NULL;
    }
    PyObject *pair = PyTuple_Pack(2, pointer, readonly ? Py_True : Py_False);
    Py_DECREF(pointer);
    return pair;
}

PyObject *
ad_interface_build(ad_state *state, const ad_tensor *tensor,
                   const ad_interface_rules *rules)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    if (ad_py_set_item(dict, AD_STR(state, typestr),
                       export_typestr(tensor, rules)) < 0 ||
        ad_py_set_item(dict, AD_STR(state, shape),
                       ad_int_tuple(tensor->shape, tensor->ndim, 1)) < 0 ||
        ad_py_set_item(dict, AD_STR(state, strides),
                       export_strides(tensor, rules)) < 0 ||
        ad_py_set_item(dict, AD_STR(state, data), export_data(tensor, rules)) <
            0 ||
        ad_py_set_item(dict, AD_STR(state, version),
                       PyLong_FromLongLong(rules->max_version)) < 0) {
        Py_DECREF(dict);
        return NULL;
    }
    return dict;
}
