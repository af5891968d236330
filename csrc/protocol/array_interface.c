/* NumPy's own protocols: __array_interface__, version 3, which is host memory
 * by pointer, and __array__(). What __cuda_array_interface__ and
 * __sycl_usm_array_interface__ share with it is here, too.
 */
#include "protocol/array_interface.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "device/backend.h"
#include "support/py_call.h"
#include "support/shown.h"

/* --- messages ------------------------------------------------------------ */

/* Prints plain values, and only the type of anything else: the repr of a
 * foreign object may be long, or read device memory. */
static PyObject *
describe(PyObject *found)
{
    if (found == NULL) {
        return PyUnicode_FromString("missing");
    }
    if (found == Py_None || PyUnicode_CheckExact(found) ||
        PyLong_CheckExact(found) || PyFloat_CheckExact(found) ||
        PyBool_Check(found)) {
        PyObject *text = PyUnicode_FromFormat("%.80R", found);
        if (text != NULL) {
            return text;
        }
        PyErr_Clear(); /* an int with more digits than Python prints */
    }
    if (PyTuple_Check(found)) {
        return PyUnicode_FromFormat("a tuple of %zd items",
                                    PyTuple_GET_SIZE(found));
    }
    return PyUnicode_FromFormat("of type %.80s", Py_TYPE(found)->tp_name);
}

void
ad_interface_wrong(ad_state *state, const char *origin, const char *field,
                   PyObject *found, const char *expected)
{
    if (PyErr_Occurred() && ad_exception_is_final(state)) {
        return; /* KeyboardInterrupt etc., not a fault of the producer */
    }
    PyObject *cause = ad_py_take_exception();
    PyObject *text = describe(found);
    if (text == NULL) {
        Py_XDECREF(cause);
        return;
    }
    ad_py_restore_exception(cause);
    ad_raise_exchange(state, "malformed", NULL, "%s: %s is %U, expected %s",
                      origin, field, text, expected);
    Py_DECREF(text);
}

/* Adds the origin of the field to an error of the core. */
static void
prefix_error(ad_error *err, const char *origin, const char *field)
{
    char text[sizeof(err->message)];
    int room = (int)sizeof(text) - AD_ORIGIN_SIZE - 17;
    snprintf(text, sizeof(text), "%.*s: %.12s: %.*s", AD_ORIGIN_SIZE, origin,
             field, room, err->message);
    memcpy(err->message, text, sizeof(text));
}

/* --- fields -------------------------------------------------------------- */

/* Gets all fields at once, because reading one may run code that changes the
 * dict. The fields that most dicts lack come last. */
static int
get_fields(ad_state *state, ad_interface *in)
{
    const int names[AD_N_FIELDS] = {
        AD_STR_version, AD_STR_typestr, AD_STR_shape,
        AD_STR_data,    AD_STR_strides, in->rules->order_field,
        AD_STR_descr,   AD_STR_offset,  AD_STR_mask,
    };
    for (int i = 0; i < AD_N_FIELDS && in->n_known < PyDict_GET_SIZE(in->dict);
         i++) {
        PyObject *value =
            names[i] >= 0 ? ad_py_dict_item(in->dict, state->strings[names[i]])
                          : NULL;
        if (value == NULL && PyErr_Occurred()) {
            return -1;
        }
        in->n_known += value != NULL;
        if (value != Py_None || i < AD_FIELD_STRIDES) {
            in->fields[i] = value;
        } else {
            Py_DECREF(value);
        }
    }
    return 0;
}

int
ad_interface_int(ad_state *state, const char *origin, const char *field,
                 PyObject *value, int64_t least, int64_t *out)
{
    const char *expected =
        least >= 0 ? "an int that is not negative" : "an int of 64 bits";
    if (value == NULL || !PyIndex_Check(value)) {
        ad_interface_wrong(state, origin, field, value, "an int");
        return -1;
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        ad_interface_wrong(state, origin, field, value, "an int");
        return -1;
    }
    long long read = PyLong_AsLongLong(number);
    if ((read == -1 && PyErr_Occurred()) || read < least) {
        ad_interface_wrong(state, origin, field, number, expected);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    *out = read;
    return 0;
}

static ad_import_result
read_version(ad_state *state, ad_interface *in)
{
    const ad_interface_rules *rules = in->rules;
    if (ad_interface_int(state, in->origin, "version",
                         in->fields[AD_FIELD_VERSION], 0, &in->version) < 0) {
        return AD_IMPORT_FAILED;
    }
    if (in->version < rules->min_version || in->version > rules->max_version) {
        ad_raise_exchange(state, "version", NULL,
                          "%s: version is %lld, expected %lld to %lld",
                          in->origin, (long long)in->version,
                          (long long)rules->min_version,
                          (long long)rules->max_version);
        return AD_IMPORT_REFUSED;
    }
    return AD_IMPORT_DONE;
}

/* Requires a str that names an element type. */
static int
parse_typestr(ad_state *state, const char *origin, const char *field,
              PyObject *value, ad_element *out)
{
    Py_ssize_t length;
    const char *text = NULL;
    if (value != NULL && PyUnicode_Check(value)) {
        text = PyUnicode_AsUTF8AndSize(value, &length);
    }
    if (text == NULL || strlen(text) != (size_t)length) {
        ad_interface_wrong(state, origin, field, value, "a str such as '<f4'");
        return -1;
    }
    ad_error err;
    if (ad_dtype_from_typestr(text, out, &err) != AD_OK) {
        prefix_error(&err, origin, field);
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

/* [("", typestr)] is the default: a new reference to its typestr. NULL without
 * an exception for anything else, which is a structured type. */
static PyObject *
plain_typestr(PyObject *descr)
{
    PyObject *item = PyList_Check(descr) ? ad_py_only_item(descr) : NULL;
    PyObject *typestr = NULL;
    if (item != NULL && PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 2) {
        PyObject *name = PyTuple_GET_ITEM(item, 0);
        bool is_plain = PyUnicode_Check(name) &&
                        PyUnicode_GET_LENGTH(name) == 0 &&
                        PyUnicode_Check(PyTuple_GET_ITEM(item, 1));
        typestr = is_plain ? Py_NewRef(PyTuple_GET_ITEM(item, 1)) : NULL;
    }
    Py_XDECREF(item);
    return typestr;
}

static bool
same_element(const ad_element *a, const ad_element *b)
{
    return ad_dtype_equal(a->dtype, b->dtype) &&
           a->is_swapped == b->is_swapped && a->time == b->time;
}

static int
check_descr(ad_state *state, const char *origin, PyObject *descr,
            const ad_element *element)
{
    PyObject *text = plain_typestr(descr);
    if (text == NULL) {
        ad_raise_exchange(state, "dtype",
                          "pass one field, x[\"name\"].copy(), or a .view() "
                          "of a number type",
                          "%s: descr describes structured elements, expected "
                          "[('', typestr)]",
                          origin);
        return -1;
    }
    ad_element other;
    int result = parse_typestr(state, origin, "descr", text, &other);
    if (result == 0 && !same_element(element, &other)) {
        ad_interface_wrong(state, origin, "the type in descr", text,
                           "the same as typestr");
        result = -1;
    }
    Py_DECREF(text);
    return result;
}

/* 't1' with an optional byte order: a field of bits, which can be a mask. */
static bool
is_bit_field(PyObject *typestr)
{
    static const char *const names[] = {"t1", "|t1", "<t1", ">t1", "=t1"};
    if (typestr == NULL || !PyUnicode_Check(typestr)) {
        return false;
    }
    Py_ssize_t n = PyUnicode_GET_LENGTH(typestr);
    bool found = false; /* one letter decides in most cases */
    if ((n == 2 || n == 3) && PyUnicode_READ_CHAR(typestr, n - 2) == 't') {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            found |= PyUnicode_CompareWithASCIIString(typestr, names[i]) == 0;
        }
    }
    return found;
}

/* Only the typestr shows that elements are bits. */
static int
read_bits(ad_state *state, ad_interface *in)
{
    PyObject *descr = in->fields[AD_FIELD_DESCR];
    PyObject *typestr = descr != NULL ? plain_typestr(descr) : NULL;
    bool fits = descr == NULL || is_bit_field(typestr);
    Py_XDECREF(typestr);
    if (!fits) {
        ad_interface_wrong(state, in->origin, "descr", descr,
                           "[('', '|t1')], as typestr has it");
    }
    in->is_bits = true;
    in->element = (ad_element){.dtype = {AD_DL_UINT, 8, 1}};
    in->descriptor.dtype = in->element.dtype;
    return fits ? 0 : -1;
}

static int
read_dtype(ad_state *state, ad_interface *in)
{
    PyObject *typestr = in->fields[AD_FIELD_TYPESTR];
    PyObject *descr = in->fields[AD_FIELD_DESCR];
    if (in->rules->has_mask && is_bit_field(typestr)) {
        return read_bits(state, in);
    }
    if (parse_typestr(state, in->origin, "typestr", typestr, &in->element) <
        0) {
        return -1;
    }
    in->descriptor.dtype = in->element.dtype;
    return descr == NULL ? 0
                         : check_descr(state, in->origin, descr, &in->element);
}

static int
read_shape(ad_state *state, ad_interface *in)
{
    PyObject *shape = in->fields[AD_FIELD_SHAPE];
    if (shape == NULL || !PyTuple_Check(shape)) {
        ad_interface_wrong(state, in->origin, "shape", shape,
                           "a tuple of ints");
        return -1;
    }
    if (PyTuple_GET_SIZE(shape) > AD_MAX_NDIM) {
        ad_interface_wrong(state, in->origin, "shape", shape,
                           "no more than 64 dimensions");
        return -1;
    }
    in->descriptor.ndim = (int32_t)PyTuple_GET_SIZE(shape);
    for (int32_t i = 0; i < in->descriptor.ndim; i++) {
        PyObject *item = PyTuple_GET_ITEM(shape, i);
        if (ad_interface_int(state, in->origin, "an extent in shape", item, 0,
                             &in->dims[i]) < 0) {
            return -1;
        }
    }
    in->descriptor.shape = in->dims;
    return 0;
}

static int64_t
itemsize_of(const ad_tensor_descriptor *descriptor)
{
    /* whole bytes: has a typestr */
    return ad_dtype_bits(descriptor->dtype) / 8;
}

/* Converts bytes to elements. The stride of a dimension of extent 1, or of an
 * array without elements, is never used and may be anything. */
static int
scale_strides(ad_state *state, ad_interface *in, int64_t *strides)
{
    int64_t itemsize = itemsize_of(&in->descriptor);
    bool is_empty = false;
    for (int32_t i = 0; i < in->descriptor.ndim; i++) {
        is_empty = is_empty || in->dims[i] == 0;
    }
    for (int32_t i = 0; i < in->descriptor.ndim; i++) {
        bool is_used = !is_empty && in->dims[i] != 1;
        if (is_used && strides[i] % itemsize != 0) {
            char bytes[AD_COUNT_SIZE];
            ad_raise_exchange(
                state, "strides", "make a contiguous copy first",
                "%s: the stride of %s in dimension %d is no "
                "multiple of the itemsize %lld",
                in->origin, ad_count_text(strides[i], "byte", "bytes", bytes),
                (int)i, (long long)itemsize);
            return -1;
        }
        strides[i] = strides[i] / itemsize;
    }
    return 0;
}

static int
read_strides(ad_state *state, ad_interface *in)
{
    PyObject *value = in->fields[AD_FIELD_STRIDES];
    int64_t *strides = in->dims + AD_MAX_NDIM;
    if (value == NULL) {
        return 0;
    }
    if (!PyTuple_Check(value) ||
        PyTuple_GET_SIZE(value) != in->descriptor.ndim) {
        ad_interface_wrong(state, in->origin, "strides", value,
                           "None or a tuple of as many ints as shape has");
        return -1;
    }
    for (int32_t i = 0; i < in->descriptor.ndim; i++) {
        PyObject *item = PyTuple_GET_ITEM(value, i);
        if (ad_interface_int(state, in->origin, "an item of strides", item,
                             INT64_MIN, &strides[i]) < 0) {
            return -1;
        }
    }
    in->descriptor.strides = strides;
    return in->rules->counts_elements ? 0 : scale_strides(state, in, strides);
}

static int
read_pointer(ad_state *state, const char *origin, PyObject *value, void **out)
{
    static const char *const expected = "an int that is an address";
    PyObject *number = PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    if (number == NULL) {
        ad_interface_wrong(state, origin, "the pointer in data", value,
                           expected);
        return -1;
    }
    unsigned long long address = PyLong_AsUnsignedLongLong(number);
    if ((address == (unsigned long long)-1 && PyErr_Occurred()) ||
        address > UINTPTR_MAX) {
        ad_interface_wrong(state, origin, "the pointer in data", number,
                           expected);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    *out = (void *)(uintptr_t)address;
    return 0;
}

/* The memory of a buffer, such as the bytes that Pillow makes of an image. */
static int
read_buffer(ad_state *state, ad_interface *in, PyObject *data)
{
    const Py_buffer *view;
    in->memory = ad_py_owner_of_buffer(data, PyBUF_SIMPLE, &view);
    if (in->memory == NULL) {
        if (!ad_exception_is_final(state)) {
            ad_interface_wrong(state, in->origin, "data", data,
                               "a buffer of contiguous bytes");
        }
        return -1;
    }
    in->memory_size = view->len;
    in->descriptor.data = view->buf;
    if (view->readonly) {
        in->descriptor.memory.readonly = true;
    }
    return 0;
}

static int
read_data(ad_state *state, ad_interface *in)
{
    PyObject *data = in->fields[AD_FIELD_DATA];
    if (in->rules->is_host && data != NULL && PyObject_CheckBuffer(data)) {
        return read_buffer(state, in, data);
    }
    if (data == NULL || data == Py_None || PyObject_CheckBuffer(data)) {
        ad_raise_exchange(state, "malformed",
                          "pass numpy.asarray(x), or the object that holds "
                          "the memory",
                          "%s: data names no pointer but a buffer, expected "
                          "(int, bool)",
                          in->origin);
        return -1;
    }
    if (!PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2) {
        ad_interface_wrong(state, in->origin, "data", data, "(int, bool)");
        return -1;
    }
    PyObject *readonly = PyTuple_GET_ITEM(data, 1);
    if (!PyLong_Check(readonly)) { /* some producers use 0 and 1 */
        ad_interface_wrong(state, in->origin, "the read-only flag in data",
                           readonly, "a bool");
        return -1;
    }
    int is_readonly = PyObject_IsTrue(readonly);
    if (is_readonly < 0) {
        ad_interface_wrong(state, in->origin, "the read-only flag in data",
                           readonly, "a bool");
        return -1;
    }
    if (is_readonly) {
        in->descriptor.memory.readonly = true;
    }
    return read_pointer(state, in->origin, PyTuple_GET_ITEM(data, 0),
                        &in->descriptor.data);
}

static int
read_offset(ad_state *state, ad_interface *in)
{
    PyObject *value = in->fields[AD_FIELD_OFFSET];
    int64_t offset, nbytes;
    uintptr_t address = (uintptr_t)in->descriptor.data;
    if (value == NULL) {
        return 0;
    }
    if (ad_interface_int(state, in->origin, "offset", value, 0, &offset) < 0) {
        return -1;
    }
    if (in->memory != NULL && offset <= in->memory_size) {
        in->memory_start = offset;
        in->descriptor.data = (unsigned char *)in->descriptor.data + offset;
        return 0;
    }
    if (offset == 0 || address == 0) {
        return 0;
    }
    if (!in->rules->counts_elements) {
        ad_interface_wrong(state, in->origin, "offset", value,
                           in->memory != NULL ? "one within the buffer"
                                              : "0 beside a pointer");
        return -1;
    }
    if (__builtin_mul_overflow(offset, itemsize_of(&in->descriptor),
                               &nbytes) ||
        __builtin_add_overflow(address, (uintptr_t)nbytes, &address)) {
        ad_interface_wrong(state, in->origin, "offset", value,
                           "one that stays within the address space");
        return -1;
    }
    in->descriptor.data = (void *)address;
    return 0;
}

/* For bits the descriptor covers the bytes that hold them. */
static int
describe_bytes(ad_state *state, ad_interface *in)
{
    if (in->descriptor.ndim != 1 || in->descriptor.strides != NULL) {
        char dimensions[AD_COUNT_SIZE];
        ad_raise_exchange(
            state, "strides", "make a contiguous copy first",
            "%s: bits lie in %s%s, expected one, and no strides", in->origin,
            ad_count_text(in->descriptor.ndim, "dimension", "dimensions",
                          dimensions),
            in->descriptor.strides != NULL ? " with strides" : "");
        return -1;
    }
    in->n_bits = in->dims[0];
    in->dims[0] = in->n_bits / 8 + (in->n_bits % 8 != 0);
    return 0;
}

static int
check_mask(ad_state *state, const ad_interface *in)
{
    if (in->fields[AD_FIELD_MASK] == NULL ||
        (in->rules->has_mask && !in->is_mask)) {
        return 0;
    }
    ad_raise_exchange(state, "nulls",
                      "pass the data without the mask, and the mask as "
                      "validity= (true where valid)",
                      in->is_mask ? "%s: mask is set, in a mask"
                                  : "%s: mask is set, which this "
                                    "interface does not know",
                      in->origin);
    return -1;
}

static ad_import_result
read_fields(ad_state *state, ad_interface *in)
{
    ad_import_result result = read_version(state, in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    ad_error err;
    if (read_dtype(state, in) < 0) {
        return AD_IMPORT_FAILED;
    }
    if (!in->rules->is_host &&
        ad_element_require_plain(&in->element, "they may lie on a device",
                                 &err) != AD_OK) {
        prefix_error(&err, in->origin, "typestr");
        return ad_import_error(state, &err);
    }
    if (read_shape(state, in) < 0 || read_strides(state, in) < 0 ||
        read_data(state, in) < 0 || read_offset(state, in) < 0 ||
        (in->is_bits && describe_bytes(state, in) < 0) ||
        check_mask(state, in) < 0) {
        return AD_IMPORT_FAILED;
    }
    if (PyDict_GET_SIZE(in->dict) < in->n_known) {
        ad_interface_wrong(state, in->origin, "the value", in->dict,
                           "a dict that keeps its fields");
        return AD_IMPORT_FAILED;
    }
    return AD_IMPORT_DONE;
}

static void
clear(ad_interface *in)
{
    for (int i = 0; i < AD_N_FIELDS; i++) {
        Py_CLEAR(in->fields[i]);
    }
    Py_CLEAR(in->dict);
    ad_owner_unref(in->memory);
    in->memory = NULL;
}

/* Gets and reads the dict of `object`. On AD_IMPORT_DONE the caller must call
 * clear(). */
static ad_import_result
read_dict(ad_state *state, PyObject *object, const ad_interface_rules *rules,
          bool is_mask, ad_interface *out)
{
    memset(out, 0, offsetof(ad_interface, dims));
    out->rules = rules;
    out->is_mask = is_mask;
    out->dict = PyObject_GetAttr(object, state->strings[rules->attribute]);
    if (out->dict == NULL) {
        return ad_import_exception(state);
    }
    ad_origin(rules->name, object, out->origin);
    ad_import_result result = AD_IMPORT_FAILED;
    if (!PyDict_Check(out->dict)) {
        ad_interface_wrong(state, out->origin, "the value", out->dict,
                           "a dict");
    } else if (get_fields(state, out) == 0) {
        result = read_fields(state, out);
    }
    if (result != AD_IMPORT_DONE) {
        clear(out);
    }
    return result;
}

/* --- the tensor ---------------------------------------------------------- */

/* The elements lie within the buffer, if there is one. */
static ad_status
check_memory(const ad_interface *in, const ad_tensor *tensor, ad_error *err)
{
    int64_t low, high;
    ad_tensor_extent(tensor, &low, &high);
    if (in->memory == NULL || (low >= -in->memory_start &&
                               high <= in->memory_size - in->memory_start)) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                   "%s: shape and strides reach bytes %lld to %lld of data, "
                   "which has %lld",
                   in->origin, (long long)in->memory_start + low,
                   (long long)in->memory_start + high,
                   (long long)in->memory_size);
}

static ad_owner *
make_owner(PyObject *object, const ad_interface *in)
{
    if (in->memory != NULL) {
        return ad_owner_ref(in->memory);
    }
    if (PyDict_GET_SIZE(in->dict) <= in->n_known) {
        return ad_py_owner_new(object);
    }
    PyObject *both = PyTuple_Pack(2, object, in->dict);
    if (both == NULL) {
        return NULL;
    }
    ad_owner *owner = ad_py_owner_new(both);
    Py_DECREF(both);
    return owner;
}

ad_import_result
ad_interface_tensor(ad_state *state, PyObject *object, ad_interface *in,
                    ad_device device, ad_tensor_value *out)
{
    ad_error err;
    in->descriptor.memory.device = device;
    if (ad_tensor_check(&in->descriptor, in->origin, out, &err) != AD_OK ||
        check_memory(in, &out->tensor, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    out->tensor.memory.owner = make_owner(object, in);
    return out->tensor.memory.owner != NULL ? AD_IMPORT_DONE
                                            : AD_IMPORT_FAILED;
}

static int
read_device_pair(ad_state *state, const char *origin, PyObject *pair,
                 ad_device *out)
{
    int64_t type;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        ad_interface_wrong(state, origin, "__dlpack_device__()", pair,
                           "(int, int)");
        return -1;
    }
    if (ad_interface_int(state, origin, "the type of __dlpack_device__()",
                         PyTuple_GET_ITEM(pair, 0), 0, &type) < 0 ||
        ad_interface_int(state, origin, "the id of __dlpack_device__()",
                         PyTuple_GET_ITEM(pair, 1), 0, &out->id) < 0) {
        return -1;
    }
    out->type = type > INT32_MAX ? INT32_MAX : (int32_t)type;
    return 1;
}

/* 1 with *out filled; 0 if the method is absent or refuses; -1. */
static int
ask_dlpack_device(ad_state *state, PyObject *object, const char *origin,
                  ad_device *out)
{
    PyObject *method;
    PyObject *pair = NULL;
    int found =
        ad_py_lookup_attr(object, AD_STR(state, dlpack_device), &method);
    if (found == 0) {
        return 0;
    }
    if (found > 0) {
        pair = PyObject_CallNoArgs(method);
        Py_DECREF(method);
    }
    if (pair == NULL) {
        if (ad_exception_is_final(state)) {
            return -1;
        }
        PyErr_Clear(); /* the device stays unknown */
        return 0;
    }
    int result = read_device_pair(state, origin, pair, out);
    Py_DECREF(pair);
    return result;
}

ad_import_result
ad_interface_believe_device(ad_state *state, PyObject *object,
                            const ad_request *request, const ad_interface *in,
                            ad_device *out)
{
    const ad_interface_rules *rules = in->rules;
    /* No memory lies on the wrong device. */
    int64_t otherwise = in->descriptor.data == NULL ? 0 : -1;
    *out = (ad_device){rules->device_type, otherwise};
    if (request->has_device) {
        *out = request->device;
    } else if (ask_dlpack_device(state, object, in->origin, out) < 0) {
        return AD_IMPORT_FAILED;
    }
    if (ad_device_traits(out->type) & rules->traits) {
        return AD_IMPORT_DONE;
    }
    char name[AD_DEVICE_NAME_SIZE];
    ad_raise_exchange(state, "device", NULL,
                      "%s: expected memory of a %s device, but %s says %s",
                      in->origin, rules->devices,
                      request->has_device ? "the caller"
                                          : "__dlpack_device__()",
                      ad_device_format(*out, name));
    return AD_IMPORT_REFUSED;
}

/* --- bits and masks ------------------------------------------------------ */

/* Bits ('|t1') as the elements of an interface's dict, and its mask: an object
 * with the same interface, of one bool per element ('|b1', or uint8) or of
 * bits, true where valid. It has a pointer and, on a device, a stream of its
 * own. Every failure is final: a later protocol would import the data without
 * the mask. */
#define MASK_HINT                                                             \
    "pass the data without the mask, and the mask as validity= (true where "  \
    "valid)"

static int64_t
length_of(const ad_interface *in)
{
    return in->is_bits ? in->n_bits : in->dims[0];
}

static ad_import_result
check_fits(ad_state *state, const ad_interface *data, const ad_interface *mask)
{
    ad_dl_dtype dtype = mask->descriptor.dtype;
    int64_t n = length_of(mask);
    char name[AD_DTYPE_NAME_SIZE];
    if (data->descriptor.ndim != 1 || mask->descriptor.ndim != 1) {
        char dimensions[AD_COUNT_SIZE];
        ad_raise_exchange(state, "nulls",
                          "pass the data without the mask, and as validity= "
                          "one flag per row (true where valid)",
                          "%s: the mask has %s and the data have %d, "
                          "expected one: Arrow has a validity bit per row",
                          data->origin,
                          ad_count_text(mask->descriptor.ndim, "dimension",
                                        "dimensions", dimensions),
                          (int)data->descriptor.ndim);
        return AD_IMPORT_FAILED;
    }
    if ((dtype.code != AD_DL_BOOL && dtype.code != AD_DL_UINT) ||
        dtype.bits != 8) {
        ad_raise_exchange(state, "dtype", MASK_HINT,
                          "%s: elements of the mask are %s, expected bools "
                          "('|b1') or bits ('|t1')",
                          data->origin, ad_dtype_format(dtype, name));
        return AD_IMPORT_FAILED;
    }
    if (n != length_of(data)) {
        char elements[AD_COUNT_SIZE];
        ad_raise_exchange(state, "malformed", MASK_HINT,
                          "%s: the mask has %s, expected one for each of %lld",
                          data->origin,
                          ad_count_text(n, "element", "elements", elements),
                          (long long)length_of(data));
        return AD_IMPORT_FAILED;
    }
    return AD_IMPORT_DONE;
}

/* The mask keeps only references of the tensor. */
static ad_status
as_flags(const ad_interface *in, const ad_tensor *tensor, ad_mask *out,
         ad_error *err)
{
    if (!in->is_bits) {
        return ad_mask_from_tensor(tensor, false, NULL, out, err);
    }
    *out = (ad_mask){
        .device = tensor->memory.device,
        .data = tensor->data,
        .length = in->n_bits,
        .is_bits = true,
        .owner = ad_owner_ref(tensor->memory.owner),
        .sync = ad_sync_ref(tensor->memory.sync),
    };
    return AD_OK;
}

static ad_import_result
apply_mask(ad_state *state, const ad_request *request, const ad_interface *in,
           const ad_tensor *tensor, ad_imported *out)
{
    ad_mask mask;
    ad_error err;
    if (as_flags(in, tensor, &mask, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    ad_status status = ad_imported_apply_mask(out, &mask, request->copy, &err);
    ad_mask_clear(&mask);
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

static ad_import_result
import_mask(ad_state *state, const ad_request *request,
            const ad_interface *data, ad_imported *out)
{
    const ad_interface_rules *rules = data->rules;
    PyObject *mask = data->fields[AD_FIELD_MASK];
    ad_interface in;
    ad_tensor_value value;
    ad_import_result result = read_dict(state, mask, rules, true, &in);
    if (result == AD_IMPORT_REFUSED &&
        PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        ad_raise_exchange(state, "nulls", MASK_HINT,
                          "%s: mask is of type %.80s, expected None or an "
                          "object with %s",
                          data->origin, Py_TYPE(mask)->tp_name, rules->name);
        return AD_IMPORT_FAILED;
    }
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    result = check_fits(state, data, &in);
    if (result == AD_IMPORT_DONE) {
        result = rules->make_tensor(state, mask, request, &in, &value);
    }
    if (result == AD_IMPORT_DONE) {
        result = apply_mask(state, request, &in, &value.tensor, out);
        ad_tensor_clear(&value.tensor);
    }
    clear(&in);
    return result;
}

/* For a dict with is_bits: *out, the tensor of the bytes, becomes a column of
 * bools over them. On failure *out is cleared. */
static ad_import_result
take_bits(ad_state *state, const ad_interface *in, ad_imported *out)
{
    ad_tensor *tensor = &out->tensor.tensor;
    const void *buffers[] = {NULL, tensor->data};
    const ad_array_spec spec = {
        .schema = ad_schema_primitive("b"),
        .length = in->n_bits,
        .n_buffers = 2,
        .buffers = buffers,
        .memory = tensor->memory,
    };
    ad_error err;
    ad_status status = ad_array_build(&spec, &out->array, &err);
    out->is_array = status == AD_OK;
    ad_tensor_clear(tensor); /* may run Python code: raise afterwards */
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

/* The last step of an import: if the dict `in` has a mask, *out becomes an
 * array with those nulls, whose sync covers data and mask. On failure, which
 * is final, *out is cleared. */
static ad_import_result
add_mask(ad_state *state, const ad_request *request, const ad_interface *in,
         ad_imported *out)
{
    if (in->fields[AD_FIELD_MASK] == NULL ||
        import_mask(state, request, in, out) == AD_IMPORT_DONE) {
        return AD_IMPORT_DONE;
    }
    ad_imported_clear(out);
    return AD_IMPORT_FAILED;
}

/* --- import -------------------------------------------------------------- */

ad_import_result
ad_interface_import(const ad_protocol *self, ad_state *state, PyObject *object,
                    const ad_type_slot *slot, const ad_request *request,
                    ad_imported *out)
{
    const ad_interface_rules *rules = self->rules;
    ad_interface in;
    ad_import_result result = read_dict(state, object, rules, false, &in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    out->is_array = false;
    result = rules->make_tensor(state, object, request, &in, &out->tensor);
    if (result == AD_IMPORT_DONE && in.is_bits) {
        result = take_bits(state, &in, out);
    } else if (result == AD_IMPORT_DONE &&
               (rules->is_host || in.fields[AD_FIELD_MASK] == NULL)) {
        result = ad_finish_elements(state, request, &in.element, out);
    }
    if (result == AD_IMPORT_DONE) {
        result = add_mask(state, request, &in, out);
    }
    clear(&in);
    return result;
}

/* --- export -------------------------------------------------------------- */

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

/* --- __array_interface__ ------------------------------------------------- */

static ad_import_result
tensor_on_host(ad_state *state, PyObject *object, const ad_request *request,
               ad_interface *in, ad_tensor_value *out)
{
    return ad_interface_tensor(state, object, in, AD_CPU, out);
}

static PyObject *
dict_of_host(ad_state *state, const ad_tensor *tensor,
             const ad_interface_rules *rules)
{
    ad_error err;
    if (!ad_host_accessible(tensor->memory.device)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            rules, "the host cannot read memory of %s",
            ad_device_format(tensor->memory.device, name));
    }
    /* The consumer reads the memory right after the look-up. */
    if (ad_sync_wait(tensor->memory.sync, rules->name, &err) != AD_OK) {
        return ad_interface_failed(state, rules, &err);
    }
    return ad_interface_build(state, tensor, rules);
}

static const ad_interface_rules numpy_rules = {
    .name = "__array_interface__",
    .attribute = AD_STR_array_interface,
    .order_field = -1,
    .make_tensor = tensor_on_host,
    .export_dict = dict_of_host,
    .min_version = 3,
    .max_version = 3,
    .exports_byte_order = true,
    .exports_address_always = true,
    .is_host = true,
    .has_mask = true,
};

/* --- __array__() --------------------------------------------------------- */

static const ad_signature as_numpy_signature = {
    .function = "__array__()",
    .n_positional = 2,
    AD_PARAMETER_NAMES(AD_STR_dtype, AD_STR_copy),
};

static PyObject *
as_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
         PyObject *kwnames)
{
    PyObject *values[2];
    if (ad_parse_args(ad_state_of(self), &as_numpy_signature, args, n_args,
                      kwnames, values) < 0) {
        return NULL;
    }
    PyObject *helper_args[] = {self, values[0] != NULL ? values[0] : Py_None,
                               values[1] != NULL ? values[1] : Py_None};
    return ad_call_helper("_libraries", "as_numpy", helper_args, 3);
}

/* Without __array__, NumPy makes an array of one Python object of a Tensor
 * whose buffer it cannot read. So every Tensor has it, to refuse. */
static PyMethodDef methods[] = {
    {"__array__", AD_METHOD(as_numpy),
     "__array__($self, dtype=None, copy=None)\n--\n\n"
     "The data as a NumPy array, in shared memory if they have a dtype, else\n"
     "as Python objects. Raises ExchangeError, with a hint, for memory that\n"
     "the host cannot read and for record batches, whose names NumPy drops."},
    {NULL, NULL, 0, NULL},
};

/* NumPy iterates over an Array without it, which on a device says why that is
 * impossible. The rows of a batch would become dicts, of which pandas makes
 * columns of other types; so a batch has it, to refuse. */
static PyObject *
array_method(PyObject *self, void *closure)
{
    PyMethodDef *method = closure;
    if (ad_array_offers_host(ad_state_of(self), self, method->ml_name) < 0) {
        return NULL;
    }
    return PyCFunction_New(method, self);
}

static const PyGetSetDef getset[] = {
    {"__array__", array_method, NULL,
     PyDoc_STR("Method as Tensor.__array__; AttributeError, which says why, "
               "where\nthe host cannot read the memory."),
     methods},
    {"__array_interface__", ad_interface_get, NULL,
     PyDoc_STR("Array interface, version 3 (host-accessible memory)."),
     (void *)&numpy_rules},
    {0},
};

const ad_protocol ad_protocol_array_interface = {
    .name = "__array_interface__",
    .attribute = AD_STR_array_interface,
    .import = ad_interface_import,
    .rules = &numpy_rules,
    .array_getset = getset,
    .tensor_methods = methods,
    .tensor_getset = &getset[1],
};
