#include "support/args.h"

#include <string.h>

#include "bridge/bridge.h"
#include "model/type.h"
#include "support/capsule.h"
#include "support/errors.h"
#include "support/objects.h"
#include "support/py_call.h"

/* Index of the keyword among the parameters that may be given by name, -1
 * when there is none, -2 on error. */
static int
find_parameter(ad_state *state, const ad_signature *signature, PyObject *name)
{
    for (int i = signature->n_positional_only; i < signature->n_parameters;
         i++) {
        if (state->strings[signature->names[i]] == name) {
            return i;
        }
    }
    for (int i = signature->n_positional_only; i < signature->n_parameters;
         i++) {
        int order =
            PyUnicode_Compare(name, state->strings[signature->names[i]]);
        if (order == 0) {
            return i;
        }
        if (order == -1 && PyErr_Occurred()) {
            return -2;
        }
    }
    return -1;
}

/* TypeError that names the keywords there are. */
static void
fail_keyword(ad_state *state, const ad_signature *signature, PyObject *name)
{
    int first = signature->n_positional_only;
    PyObject *text =
        PyUnicode_FromFormat("%s got an unexpected keyword argument '%U'",
                             signature->function, name);
    for (int i = first; text != NULL && i < signature->n_parameters; i++) {
        Py_SETREF(text, PyUnicode_FromFormat(
                            "%U%s%U", text, i == first ? "; there are " : ", ",
                            state->strings[signature->names[i]]));
    }
    if (text != NULL && first > 1) {
        Py_SETREF(text, PyUnicode_FromFormat(
                            "%U; the first %d arguments have no keyword", text,
                            first));
    }
    if (text != NULL) {
        PyErr_SetObject(PyExc_TypeError, text);
        Py_DECREF(text);
    }
}

static int
refuse_keyword(ad_state *state, const ad_signature *signature, PyObject *name,
               PyObject *value)
{
    if (!signature->ignores_none) {
        fail_keyword(state, signature, name);
        return -1;
    }
    if (value == Py_None) {
        return 0;
    }
    PyErr_Format(PyExc_NotImplementedError,
                 "%s does not know the keyword argument '%U', so its value "
                 "%R cannot be honoured; pass None or leave it out",
                 signature->function, name, value);
    return -1;
}

static int
parse_keywords(ad_state *state, const ad_signature *signature,
               PyObject *const *keyword_values, PyObject *kwnames,
               PyObject **values)
{
    Py_ssize_t n_keywords = PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < n_keywords; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = find_parameter(state, signature, name);
        if (i == -2) {
            return -1;
        }
        if (i == -1) {
            if (refuse_keyword(state, signature, name, keyword_values[k]) <
                0) {
                return -1;
            }
            continue;
        }
        if (values[i] != NULL) {
            PyErr_Format(PyExc_TypeError,
                         "%s got multiple values for argument '%U'",
                         signature->function, name);
            return -1;
        }
        values[i] = keyword_values[k];
    }
    return 0;
}

int
ad_parse_args(ad_state *state, const ad_signature *signature,
              PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
              PyObject **values)
{
    if (n_args > signature->n_positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s takes at most %d positional argument%s (%zd given)",
                     signature->function, signature->n_positional,
                     signature->n_positional == 1 ? "" : "s", n_args);
        return -1;
    }
    int i = 0;
    for (; i < n_args; i++) {
        values[i] = args[i];
    }
    for (; i < signature->n_parameters; i++) {
        values[i] = NULL;
    }
    if (kwnames != NULL &&
        parse_keywords(state, signature, args + n_args, kwnames, values) < 0) {
        return -1;
    }
    for (i = 0; i < signature->n_required; i++) {
        if (values[i] == NULL) {
            PyErr_Format(PyExc_TypeError,
                         "%s is missing its argument %d ('%U')",
                         signature->function, i + 1,
                         state->strings[signature->names[i]]);
            return -1;
        }
    }
    return 0;
}

int
ad_parse_optional_bool(PyObject *value, const char *name, int *out)
{
    if (ad_is_none(value)) {
        *out = -1;
    } else if (PyBool_Check(value)) {
        *out = value == Py_True;
    } else {
        PyErr_Format(PyExc_TypeError,
                     "%s must be True, False or None, not %.200s", name,
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    return 0;
}

int
ad_parse_bool(PyObject *value, const char *name, bool *out)
{
    if (value == NULL) {
        return 0;
    }
    *out = value == Py_True;
    if (!PyBool_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be True or False, not %.200s",
                     name, Py_TYPE(value)->tp_name);
        return -1;
    }
    return 0;
}

int
ad_parse_count(PyObject *value, const char *name, int64_t *out)
{
    int overflow;
    PyObject *number = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (number == NULL) { /* without an exception: a bool */
        if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s",
                         name, Py_TYPE(value)->tp_name);
        }
        return -1;
    }
    *out = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow != 0) {
        PyErr_Format(PyExc_ValueError, "%s is %R, which 64 bits cannot hold",
                     name, value);
        return -1;
    }
    return 0;
}

int
ad_parse_copy(PyObject *value, int *out)
{
    int flag;
    if (ad_parse_optional_bool(value, "copy", &flag) < 0) {
        return -1;
    }
    *out = flag < 0    ? AD_COPY_IF_NEEDED
           : flag == 0 ? AD_COPY_NEVER
                       : AD_COPY_ALWAYS;
    return 0;
}

PyObject *
ad_as_tuple(PyObject *sequence, const char *message)
{
    PyObject *items = PySequence_Fast(sequence, message);
    if (items == NULL) {
        return NULL;
    }
    PyObject *tuple = PySequence_Tuple(items);
    Py_DECREF(items);
    return tuple;
}

PyObject *
ad_int_tuple(const int64_t *values, int32_t n, int64_t factor)
{
    PyObject *tuple = PyTuple_New(n);
    for (int32_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(values[i] * factor);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, number);
        }
    }
    return tuple;
}

const char *
ad_c_string(PyObject *text)
{
    Py_ssize_t size;
    const char *result = PyUnicode_AsUTF8AndSize(text, &size);
    if (result != NULL && strlen(result) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%R has a NUL character", text);
        return NULL;
    }
    return result;
}

/* --- devices and types --------------------------------------------------- */

static int
device_from_pair(PyObject *pair, ad_device *out)
{
    if (PyTuple_GET_SIZE(pair) != 2 ||
        !PyIndex_Check(PyTuple_GET_ITEM(pair, 0)) ||
        !PyIndex_Check(PyTuple_GET_ITEM(pair, 1))) {
        PyErr_Format(PyExc_TypeError,
                     "a device as a tuple is (type, id), two ints, not %R",
                     pair);
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
    long long id =
        PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(pair, 1), &overflow);
    if (id == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (overflow != 0) {
        PyErr_Format(PyExc_ValueError, "device id %R is out of range",
                     PyTuple_GET_ITEM(pair, 1));
        return -1;
    }
    *out = (ad_device){(int32_t)type, id};
    return 0;
}

/* A device of another library. */
static int
foreign_device(ad_state *state, PyObject *value, ad_device *out)
{
    PyObject *known = ad_call_helper("_device", "as_device", &value, 1);
    int result = -1;
    if (known == Py_None) {
        PyErr_Format(
            PyExc_TypeError,
            "a device is a str such as \"cuda:0\", a (type, id) tuple, an "
            "arrowdev.Device, or a device of torch, jax, dpctl or CuPy, not "
            "%.200s%s",
            Py_TYPE(value)->tp_name,
            PyType_Check(value) ? "; .into(cls) makes an instance of a class "
                                  "of another library"
                                : "");
    } else if (known != NULL) {
        result = ad_parse_device(state, known, out);
    }
    Py_XDECREF(known);
    return result;
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
    return foreign_device(state, value, out);
}

static int
schema_from_name(ad_state *state, PyObject *value, ad_schema *out)
{
    const char *name = ad_c_string(value);
    ad_error err;
    return name != NULL
               ? ad_raise_status(state, ad_schema_from_name(name, out, &err),
                                 &err)
               : -1;
}

static int
schema_from_capsule(ad_state *state, PyObject *capsule, ad_schema *out)
{
    ad_error err;
    ad_status status = AD_OK;
    struct ArrowSchema *schema;
    Py_BEGIN_CRITICAL_SECTION(capsule);
    schema = ad_capsule_get(state, capsule, AD_CAPSULE_SCHEMA,
                            "__arrow_c_schema__");
    if (schema != NULL) {
        status = ad_schema_validate(schema, &err);
    }
    if (schema != NULL && status == AD_OK) {
        status = ad_schema_move(schema, out, &err);
    }
    Py_END_CRITICAL_SECTION();
    return schema != NULL ? ad_raise_status(state, status, &err) : -1;
}

static int parse_type(ad_state *state, PyObject *value, int64_t flags,
                      int depth, ad_schema *out);

/* --- structs of named types ---------------------------------------------- */

/* Parse a field: (name, type), or a type with a name. *name is borrowed from
 * the item. */
static int
parse_field(ad_state *state, PyObject *item, int depth, const char **name,
            ad_schema *out)
{
    bool is_pair = PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 2;
    if (is_pair && PyUnicode_Check(PyTuple_GET_ITEM(item, 0))) {
        *name = ad_c_string(PyTuple_GET_ITEM(item, 0));
        if (*name == NULL) {
            return -1;
        }
        if (parse_type(state, PyTuple_GET_ITEM(item, 1), ARROW_FLAG_NULLABLE,
                       depth, out) < 0) {
            ad_prefix_exception("field \"%.80s\": ", *name);
            return -1;
        }
        return 0;
    }
    *name = NULL; /* its own */
    *out = (ad_schema){0};
    if (!PyUnicode_Check(item) && !PyTuple_Check(item) &&
        parse_type(state, item, 0, depth, out) < 0) {
        return -1;
    }
    if (out->node == NULL || out->node->name == NULL ||
        out->node->name[0] == '\0') {
        PyErr_SetString(PyExc_TypeError,
                        "a field is a pair (name, type), or an object with "
                        "__arrow_c_schema__ that has a name");
        ad_schema_unref(*out);
        return -1;
    }
    return 0;
}

static int
schema_from_fields(ad_state *state, PyObject *items, int64_t flags, int depth,
                   ad_schema *out)
{
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    ad_schema *fields = PyMem_Calloc((size_t)n + 1, sizeof(*fields));
    const char **names = PyMem_Calloc((size_t)n + 1, sizeof(*names));
    int result = fields != NULL && names != NULL ? 0 : -1;
    Py_ssize_t n_read = 0;
    if (result < 0) {
        PyErr_NoMemory();
    }
    while (result == 0 && n_read < n) {
        result = parse_field(state, PyTuple_GET_ITEM(items, n_read), depth + 1,
                             &names[n_read], &fields[n_read]);
        n_read += result == 0;
    }
    if (result == 0) {
        const ad_schema_spec spec = {
            .format = "+s",
            .flags = flags,
            .n_children = n,
            .children = fields,
            .names = names,
        };
        ad_error err;
        ad_status status = ad_schema_build(&spec, out, &err);
        if (status == AD_OK) {
            status = ad_schema_validate(out->node, &err); /* its depth */
            if (status != AD_OK) {
                ad_schema_unref(*out);
            }
        }
        result = ad_raise_status(state, status, &err);
    }
    for (Py_ssize_t i = 0; i < n_read; i++) {
        ad_schema_unref(fields[i]);
    }
    PyMem_Free(fields);
    PyMem_Free(names);
    return result;
}

/* A tuple of the fields of a list, a tuple or a mapping; NULL without an
 * exception for any other object. */
static PyObject *
fields_of(PyObject *value)
{
    if (PyList_Check(value) || PyTuple_Check(value)) {
        return PySequence_Tuple(value);
    }
    if (!PyMapping_Check(value) || !PyObject_HasAttrString(value, "keys")) {
        return NULL;
    }
    PyObject *pairs = PyMapping_Items(value);
    PyObject *items = pairs != NULL ? PySequence_Tuple(pairs) : NULL;
    Py_XDECREF(pairs);
    return items;
}

/* Parse what has no schema method. */
static int
parse_fields(ad_state *state, PyObject *value, int64_t flags, int depth,
             ad_schema *out)
{
    /* A list may contain itself. */
    if (depth > AD_MAX_DEPTH) {
        PyErr_Format(PyExc_ValueError,
                     "a type is nested deeper than %d levels", AD_MAX_DEPTH);
        return -1;
    }
    PyObject *items = fields_of(value);
    if (items == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError,
                         "a type is a str (a format string or a name such as "
                         "\"timestamp[us, UTC]\"), a mapping or list of named "
                         "types or an object with __arrow_c_schema__, not "
                         "%.200s; pass the name of a dtype; the type of data "
                         "is arrowdev.array_stream(x).schema",
                         Py_TYPE(value)->tp_name);
        }
        return -1;
    }
    int result = schema_from_fields(state, items, flags, depth, out);
    Py_DECREF(items);
    return result;
}

/* `flags` are those of a struct of named types. */
static int
parse_type(ad_state *state, PyObject *value, int64_t flags, int depth,
           ad_schema *out)
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
    if (found <= 0) {
        return found < 0 ? -1 : parse_fields(state, value, flags, depth, out);
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

int
ad_parse_schema(ad_state *state, PyObject *value, ad_schema *out)
{
    return parse_type(state, value, 0, 0, out);
}
