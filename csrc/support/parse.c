#include "support/parse.h"

#include "model/type.h"
#include "support/args.h"
#include "support/capsule.h"
#include "support/errors.h"
#include "support/objects.h"

static int
device_from_pair(PyObject *pair, ad_device *out)
{
    if (PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_TypeError,
                     "a device as a tuple is (type, id), not %R", pair);
        return -1;
    }
    int overflow;
    long type = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(pair, 0), &overflow);
    if (type == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (overflow != 0 || type < INT32_MIN || type > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "device type %R is out of range",
                     PyTuple_GET_ITEM(pair, 0));
        return -1;
    }
    long long id = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1));
    if (id == -1 && PyErr_Occurred()) {
        return -1;
    }
    *out = (ad_device){(int32_t)type, id};
    return 0;
}

int
ad_parse_device(ad_state *state, PyObject *value, ad_device *out)
{
    if (Py_TYPE(value) == (PyTypeObject *)state->device_type) {
        *out = ((ad_device_object *)value)->device;
        return 0;
    }
    if (PyTuple_Check(value)) {
        return device_from_pair(value, out);
    }
    if (PyUnicode_Check(value)) {
        const char *text = ad_c_string(value);
        if (text == NULL) {
            return -1;
        }
        if (ad_device_parse(text, out)) {
            return 0;
        }
        PyErr_Format(PyExc_ValueError,
                     "unknown device %R; expected a name such as \"cpu\" or "
                     "\"cuda:0\" (see arrowdev.DeviceType for the names)",
                     value);
        return -1;
    }
    PyErr_Format(PyExc_TypeError,
                 "a device is a str, a (type, id) tuple or an "
                 "arrowdev.Device, not %.200s",
                 Py_TYPE(value)->tp_name);
    return -1;
}

static int
schema_from_name(ad_state *state, PyObject *value, ad_schema *out)
{
    const char *name = ad_c_string(value);
    if (name == NULL) {
        return -1;
    }
    ad_text format = {0};
    ad_error err;
    ad_status status = ad_type_format_from_name(name, &format, &err);
    if (status == AD_OK) {
        *out = ad_schema_primitive(ad_text_string(&format));
        if (out->node == NULL) {
            const ad_schema_spec spec = {.format = ad_text_string(&format),
                                         .flags = ARROW_FLAG_NULLABLE};
            status = ad_schema_build(&spec, out, &err);
        }
    }
    ad_text_clear(&format);
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

static int
schema_from_capsule(ad_state *state, PyObject *capsule, ad_schema *out)
{
    struct ArrowSchema *schema = ad_capsule_get(
        state, capsule, AD_CAPSULE_SCHEMA, "__arrow_c_schema__");
    if (schema == NULL) {
        return -1;
    }
    ad_error err;
    ad_status status = ad_schema_validate(schema, &err);
    if (status == AD_OK) {
        status = ad_schema_move(schema, out, &err);
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

int
ad_parse_schema(ad_state *state, PyObject *value, ad_schema *out)
{
    if (Py_TYPE(value) == (PyTypeObject *)state->schema_type) {
        *out = ad_schema_ref(((ad_schema_object *)value)->schema);
        return 0;
    }
    if (PyUnicode_Check(value)) {
        return schema_from_name(state, value, out);
    }
    if (PyCapsule_CheckExact(value)) {
        return schema_from_capsule(state, value, out);
    }
    PyObject *method = NULL;
    int found =
        ad_py_lookup_attr(value, AD_STR(state, arrow_c_schema), &method);
    if (found == 0) {
        PyErr_Format(PyExc_TypeError,
                     "a type is a str (a format string or a name such as "
                     "\"timestamp[us, UTC]\") or an object with "
                     "__arrow_c_schema__, not %.200s",
                     Py_TYPE(value)->tp_name);
    }
    if (found <= 0) {
        return -1;
    }
    PyObject *capsule = PyObject_CallNoArgs(method);
    Py_DECREF(method);
    if (capsule == NULL) {
        return -1;
    }
    int result = schema_from_capsule(state, capsule, out);
    Py_DECREF(capsule);
    return result;
}
