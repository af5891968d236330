/* Any object as an Array or as a Tensor: arrowdev.array(), tensor() and
 * from_dlpack(), and what other functions share of their arguments. */
#include <math.h>
#include <string.h>

#include "copy/copy.h"
#include "model/extension.h"
#include "model/schema_cast.h"
#include "model/type.h"
#include "protocol/numpy.h"
#include "python/functions/functions.h"

int
ad_parse_request(ad_state *state, PyObject *device, PyObject *stream,
                 PyObject *copy, ad_request *out)
{
    int copy_value = AD_COPY_IF_NEEDED;
    *out = (ad_request){.copy = AD_COPY_IF_NEEDED};
    if (ad_parse_stream(state, stream, &out->stream) < 0) {
        return -1;
    }
    if (!ad_is_none(device)) {
        if (ad_parse_device(state, device, &out->device) < 0) {
            return -1;
        }
        out->has_device = true;
    }
    if (copy != NULL && ad_parse_copy(copy, &copy_value) < 0) {
        return -1;
    }
    out->copy = (ad_copy)copy_value;
    return 0;
}

/* --- device= and copy= --------------------------------------------------- */

/* Choose the kind of move. For an alias on the host, wait for the data as
 * well, because the host reads without an event. */
static ad_status
plan_move(const ad_memory *memory, ad_device target, ad_copy copy,
          bool is_copied, ad_move *out, ad_error *err)
{
    ad_device found = memory->device;
    *out = ad_move_for(found, target);
    if (copy == AD_COPY_ALWAYS && !(is_copied && *out == AD_MOVE_NONE)) {
        *out = AD_MOVE_COPY;
    }
    if (*out == AD_MOVE_ALIAS && ad_device_equal(target, AD_CPU)) {
        return ad_sync_wait(memory->sync, "host memory", err);
    }
    if (*out == AD_MOVE_COPY && copy == AD_COPY_NEVER) {
        char from[AD_DEVICE_NAME_SIZE];
        char to[AD_DEVICE_NAME_SIZE];
        return ad_fail_on(
            err, found, "copy",
            "leave copy=False out, or leave the data where they are",
            "the memory is on %s, and to have it on %s takes a copy",
            ad_device_format(found, from), ad_device_format(target, to));
    }
    return AD_OK;
}

/* plan_move() has waited for an alias on the host, which needs no event. */
static void
alias_there(ad_device target, ad_memory *memory)
{
    memory->device = target;
    if (ad_device_equal(target, AD_CPU)) {
        ad_memory_drop_sync(memory);
    }
}

static void
clear_either(ad_array *array, ad_tensor_value *value)
{
    if (array != NULL) {
        ad_array_clear(array);
    } else {
        ad_tensor_clear(&value->tensor);
    }
}

/* Replace the array or tensor by a copy on `target`. */
static ad_status
copy_there(ad_array *array, ad_tensor_value *value, ad_device target,
           const ad_stream_ref *choice, const char *why, ad_error *err)
{
    if (array != NULL) {
        ad_array copied;
        AD_RETURN_IF_ERR(
            ad_array_copy_to(array, target, choice, why, &copied, err));
        ad_array_clear(array);
        *array = copied;
        return AD_OK;
    }
    ad_tensor_value copied;
    if (why == NULL) {
        why = ad_device_equal(value->tensor.memory.device, target)
                  ? "copy=True was passed"
                  : "the tensor was asked for on that device";
    }
    AD_RETURN_IF_ERR(ad_tensor_copy_to(&value->tensor, target, choice, 0, why,
                                       &copied, err));
    ad_tensor_clear(&value->tensor);
    ad_tensor_share(&copied.tensor, value);
    ad_tensor_clear(&copied.tensor);
    return AD_OK;
}

int
ad_move_to(ad_state *state, ad_array *array, ad_tensor_value *value,
           ad_device target, const ad_stream_argument *stream, ad_copy copy,
           const char *why)
{
    ad_memory *memory = array != NULL ? &array->memory : &value->tensor.memory;
    bool is_copied =
        array == NULL && (value->tensor.flags & AD_TENSOR_COPIED) != 0;
    ad_stream_ref choice;
    ad_move what;
    ad_error err;
    ad_status status = plan_move(memory, target, copy, is_copied, &what, &err);
    if (status == AD_OK && what == AD_MOVE_ALIAS) {
        alias_there(target, memory);
    } else if (status == AD_OK && what == AD_MOVE_COPY) {
        if (ad_choose_stream(state, stream,
                             ad_device_of_copy(memory->device, target), NULL,
                             &choice) < 0) {
            clear_either(array, value);
            return -1;
        }
        status = copy_there(array, value, target, &choice, why, &err);
        ad_stream_ref_clear(&choice);
    }
    int result = ad_raise_status(state, status, &err);
    if (result < 0) {
        clear_either(array, value);
    }
    return result;
}

/* --- array(): from a tensor ---------------------------------------------- */

/* Convert a tensor through the bridge. A move to another device and a copy
 * made by the producer each satisfy copy=True. */
static int
bridge_to_array(ad_state *state, ad_tensor *tensor, const ad_request *request,
                ad_array *out)
{
    bool moves = request->has_device &&
                 !ad_device_equal(tensor->memory.device, request->device);
    bool is_copied = (tensor->flags & AD_TENSOR_COPIED) != 0;
    ad_copy copy = request->copy;
    ad_error err;
    if (request->wants_rows && tensor->ndim == 0) {
        ad_tensor_clear(tensor);
        ad_raise_exchange(state, "ndim",
                          "read a dataset as a whole, as in "
                          "arrowdev.array(x[...]); arrowdev.array(x) takes an "
                          "array",
                          "a single value is no batch, which has rows");
        return -1;
    }
    if (copy == AD_COPY_ALWAYS && (moves || is_copied)) {
        copy = AD_COPY_IF_NEEDED;
    }
    if (ad_array_from_tensor_steal(tensor, copy, out, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return moves ? ad_move_to(state, out, NULL, request->device,
                              ad_request_copy_stream(request), request->copy,
                              NULL)
                 : 0;
}

/* Convert the import result into an array on the requested device, copied if
 * requested. Takes over `imported`, on failure too. */
static int
imported_as_array(ad_state *state, ad_imported *imported,
                  const ad_request *request, ad_array *out)
{
    if (!imported->is_array) {
        return bridge_to_array(state, &imported->tensor.tensor, request, out);
    }
    *out = imported->array;
    if (!request->has_device && request->copy != AD_COPY_ALWAYS) {
        return 0;
    }
    return ad_move_to(state, out, NULL,
                      request->has_device ? request->device
                                          : out->memory.device,
                      ad_request_copy_stream(request), request->copy, NULL);
}

/* --- array(): type= ------------------------------------------------------ */

static bool
holds_bytes_of_bool(const struct ArrowSchema *node)
{
    ad_extension extension;
    return strcmp(node->format, "c") == 0 &&
           ad_extension_read(node, &extension, NULL) == AD_OK &&
           (extension.kind == AD_EXTENSION_BOOL8 ||
            (extension.kind == AD_EXTENSION_DLPACK &&
             extension.dtype.code == AD_DL_BOOL));
}

/* Pack bools of one byte into bits if bits are requested and a copy is
 * allowed. */
static ad_status
pack_if_bools(ad_array *array, ad_schema wanted, ad_copy copy, ad_error *err)
{
    if (copy == AD_COPY_NEVER || strcmp(wanted.node->format, "b") != 0 ||
        !holds_bytes_of_bool(array->schema.node)) {
        return AD_OK;
    }
    ad_array bits;
    AD_RETURN_IF_ERR(ad_array_pack_bools(array, NULL, &bits, err));
    ad_array_clear(array);
    *array = bits;
    return AD_OK;
}

static ad_status
fail_cast(const ad_array *array, ad_schema wanted, ad_schema_cast_result why,
          ad_error *err)
{
    ad_text from = {0};
    ad_text to = {0};
    ad_status status = ad_type_print(array->schema.node, &from, err);
    if (status == AD_OK) {
        status = ad_type_print(wanted.node, &to, err);
    }
    if (status != AD_OK) {
        goto done;
    }
    status = AD_ERR_EXCHANGE;
    if (why == AD_CAST_LOSES_NULLS) {
        ad_fail(err, status, "nulls",
                "ask for a nullable type, or fill the nulls first",
                "the data have (or may have) nulls, and the type that was "
                "asked for is not nullable");
    } else if (why == AD_CAST_MOVES_ELEMENTS) {
        ad_fail(err, status, "dtype",
                ad_extension_is_put_in_order(array->schema.node, wanted.node)
                    ? "leave the type out; arrowdev.tensor(x, order=\"C\") "
                      "lays the elements out in order, which needs no "
                      "permutation"
                    : "leave the type out, or convert in the producing "
                      "library",
                "the data are %s, not %s: the same storage would mean other "
                "elements, or the same ones at other indices",
                ad_text_string(&from), ad_text_string(&to));
    } else if (why == AD_CAST_MOVES_FIELDS) {
        ad_fail(err, status, "dtype",
                "take the columns with arrowdev.array(x).field(...), and put "
                "them together anew with arrowdev.record_batch()",
                "the data are %s, not %s: a field of the data has another "
                "position there",
                ad_text_string(&from), ad_text_string(&to));
    } else {
        ad_fail(err, status, "dtype",
                ad_schema_cast_is_view(array->schema.node, wanted.node)
                    ? "leave the type out and use "
                      "arrowdev.array(x).view(type) for the same bytes, or "
                      "convert in the producing library"
                    : "convert in the producing library",
                "the data are %s, not %s", ad_text_string(&from),
                ad_text_string(&to));
    }
    ad_error_dtype(err, ad_text_string(&from));
done:
    ad_text_clear(&from);
    ad_text_clear(&to);
    return status;
}

/* Give the array the requested type. Names, nullability, metadata and
 * extensions change without a copy, bools become bits by a copy, and every
 * other conversion is refused. */
static int
apply_type(ad_state *state, ad_array *array, ad_schema wanted, ad_copy copy)
{
    ad_error err;
    ad_status status = pack_if_bools(array, wanted, copy, &err);
    if (status == AD_OK) {
        ad_schema_cast_result found =
            ad_schema_cast_check(array, ad_array_known_null_count(array),
                                 wanted.node, AD_CAST_LAYOUT);
        if (found == AD_CAST_FITS) {
            ad_schema_unref(array->schema);
            array->schema = ad_schema_ref(wanted);
            return 0;
        }
        status = fail_cast(array, wanted, found, &err);
    }
    return ad_raise_status(state, status, &err);
}

/* --- array(): validity= -------------------------------------------------- */

/* Import the validity argument: any boolean object, true where valid. Returns
 * 0, or -1 with an exception. */
static int
import_mask(ad_state *state, PyObject *validity, const ad_stream_ref *stream,
            ad_mask *out)
{
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    ad_imported imported;
    ad_error err;
    if (ad_import(state, validity, &request, AD_ALL_PROTOCOLS, &imported) <
        0) {
        ad_prefix_exception("validity: ");
        return -1;
    }
    ad_status status =
        imported.is_array
            ? ad_mask_from_array(&imported.array, stream, out, &err)
            : ad_mask_from_tensor(&imported.tensor.tensor, false, stream, out,
                                  &err);
    ad_imported_clear(&imported);
    return ad_raise_status(state, status, &err);
}

/* A mask on the device of the data is applied before the data move. Any other
 * mask is applied after the move, on the device of the result. On failure the
 * caller clears *array. */
static int
apply_mask(ad_state *state, const ad_request *request,
           const ad_stream_ref *stream, const ad_mask *mask, ad_array *array)
{
    ad_array masked;
    ad_error err;
    bool is_there = ad_device_equal(array->memory.device, mask->device);
    bool moves = request->has_device || request->copy == AD_COPY_ALWAYS;
    ad_device target =
        request->has_device ? request->device : array->memory.device;
    const ad_stream_argument *work = ad_request_copy_stream(request);
    if (moves && !is_there &&
        ad_move_to(state, array, NULL, target, work, request->copy, NULL) <
            0) {
        return -1;
    }
    if (ad_array_apply_mask(array, mask, is_there && moves ? NULL : stream,
                            &masked, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    ad_array_clear(array);
    *array = masked;
    return moves && is_there ? ad_move_to(state, array, NULL, target, work,
                                          request->copy, NULL)
                             : 0;
}

/* Apply the validity argument, and move the array to the requested device. On
 * failure the caller clears *array. */
static int
apply_validity(ad_state *state, ad_array *array, PyObject *validity,
               const ad_request *request)
{
    ad_stream_ref choice;
    ad_mask mask;
    ad_device working =
        request->has_device ? request->device : array->memory.device;
    const ad_stream_argument *stream = ad_device_equal(working, AD_CPU)
                                           ? NULL
                                           : ad_request_copy_stream(request);
    int result = ad_choose_stream(state, stream, working, NULL, &choice);
    if (result == 0) {
        result = import_mask(state, validity, &choice, &mask);
        if (result == 0) {
            result = apply_mask(state, request, &choice, &mask, array);
            ad_mask_clear(&mask);
        }
        ad_stream_ref_clear(&choice);
    }
    return result;
}

/* --- array(): the import ------------------------------------------------- */

int
ad_import_array(ad_state *state, PyObject *object, const ad_request *request,
                ad_schema wanted, PyObject *validity, ad_array *out)
{
    bool has_validity = !ad_is_none(validity);
    ad_request here = *request;
    ad_imported imported;
    /* A producer may convert to the requested type, which is a copy. */
    if (request->copy != AD_COPY_NEVER) {
        here.schema = wanted;
    }
    here.wants_column =
        request->copy != AD_COPY_ALWAYS && !request->has_device;
    if (has_validity) { /* apply_mask() moves the data */
        here.has_device = false;
        here.copy = request->copy == AD_COPY_ALWAYS ? AD_COPY_IF_NEEDED
                                                    : request->copy;
    }
    if (ad_import(state, object, &here, AD_ALL_PROTOCOLS, &imported) < 0 ||
        imported_as_array(state, &imported, &here, out) < 0) {
        return -1;
    }
    if ((wanted.node == NULL ||
         apply_type(state, out, wanted, here.copy) == 0) &&
        (!has_validity ||
         apply_validity(state, out, validity, request) == 0) &&
        ad_apply_stream_order(state, request, &out->memory) == 0) {
        return 0;
    }
    ad_array_clear(out);
    return -1;
}

/* ad_as_array() with other options than a copy. */
static int
as_array(ad_state *state, PyObject *value, ad_schema wanted,
         const ad_request *request, ad_array *out)
{
    ad_copy copy = request->copy;
    if (ad_is_array(state, value) && wanted.node == NULL &&
        copy != AD_COPY_ALWAYS) {
        ad_array_share(ad_array_of(value), out);
        return 0;
    }
    if (ad_is_ndarray(state, value) && wanted.node == NULL &&
        copy != AD_COPY_ALWAYS) {
        int result = ad_ndarray_column(state, value, out);
        if (result != 0) {
            return result < 0 ? -1 : 0;
        }
    }
    return ad_import_array(state, value, request, wanted, NULL, out);
}

int
ad_as_array(ad_state *state, PyObject *value, ad_schema wanted, ad_copy copy,
            ad_array *out)
{
    const ad_request request = {.copy = copy};
    return as_array(state, value, wanted, &request, out);
}

int
ad_as_batch(ad_state *state, PyObject *value, ad_schema wanted, ad_array *out)
{
    static const ad_request request = {.copy = AD_COPY_IF_NEEDED,
                                       .wants_rows = true};
    return as_array(state, value, wanted, &request, out);
}

/* Without any option. The result is in imported.array, where the import has
 * written it. */
static PyObject *
import_plain(ad_state *state, PyObject *object)
{
    static const ad_request request = {.copy = AD_COPY_IF_NEEDED,
                                       .wants_column = true};
    ad_imported imported;
    if (ad_import(state, object, &request, AD_ALL_PROTOCOLS, &imported) < 0 ||
        (!imported.is_array &&
         bridge_to_array(state, &imported.tensor.tensor, &request,
                         &imported.array) < 0)) {
        return NULL;
    }
    return ad_array_object_in_order(state, &imported.array);
}

PyObject *
ad_as_array_object(ad_state *state, PyObject *value, ad_copy copy)
{
    ad_array array;
    if (ad_is_array(state, value) && copy != AD_COPY_ALWAYS) {
        return Py_NewRef(value);
    }
    if (copy == AD_COPY_IF_NEEDED) {
        int result = ad_is_ndarray(state, value)
                         ? ad_ndarray_column(state, value, &array)
                         : 0;
        return result < 0   ? NULL
               : result > 0 ? ad_array_object_new(state, &array)
                            : import_plain(state, value);
    }
    return ad_as_array(state, value, (ad_schema){0}, copy, &array) == 0
               ? ad_array_object_new(state, &array)
               : NULL;
}

PyObject *
ad_array_object_in_order(ad_state *state, ad_array *steal)
{
    static const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    if (ad_apply_stream_order(state, &request, &steal->memory) < 0) {
        ad_array_clear(steal);
        return NULL;
    }
    return ad_array_object_new(state, steal);
}

static const ad_signature array_signature = {
    .function = "array()",
    .n_positional_only = 2,
    .n_positional = 2,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_type, AD_STR_device,
                       AD_STR_stream, AD_STR_copy, AD_STR_validity),
};

PyObject *
ad_function_array(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                  PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    if (n_args == 1 && kwnames == NULL) {
        return ad_as_array_object(state, args[0], AD_COPY_IF_NEEDED);
    }
    PyObject *values[6];
    ad_request request;
    ad_schema wanted = {0};
    ad_array array;
    if (ad_parse_args(state, &array_signature, args, n_args, kwnames, values) <
            0 ||
        (!ad_is_none(values[1]) &&
         ad_parse_schema(state, values[1], &wanted) < 0)) {
        return NULL;
    }
    int result =
        ad_parse_request(state, values[2], values[3], values[4], &request);
    if (result == 0) {
        result = ad_import_array(state, values[0], &request, wanted, values[5],
                                 &array);
    }
    ad_schema_unref(wanted);
    return result == 0 ? ad_array_object_new(state, &array) : NULL;
}

/* --- tensor(): fill_value= ----------------------------------------------- */

static int
out_of_range(PyObject *value, ad_dl_dtype dtype)
{
    char name[AD_DTYPE_NAME_SIZE];
    PyErr_Format(PyExc_OverflowError, "fill_value %R does not fit into %s",
                 value, ad_dtype_format(dtype, name));
    return -1;
}

/* Replace the exception of a failed conversion by one that names the
 * argument. */
static int
not_converted(PyObject *value, ad_dl_dtype dtype, const char *expected)
{
    char name[AD_DTYPE_NAME_SIZE];
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        return out_of_range(value, dtype);
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Format(
            PyExc_TypeError, "fill_value for %s must be %s, not %.200s",
            ad_dtype_format(dtype, name), expected, Py_TYPE(value)->tp_name);
    }
    return -1;
}

static int
fill_signed(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred()) {
        return not_converted(value, dtype, "an int");
    }
    long long limit = dtype.bits < 64 ? 1LL << (dtype.bits - 1) : 0;
    if (limit != 0 && (number < -limit || number >= limit)) {
        return out_of_range(value, dtype);
    }
    memcpy(element, &number, dtype.bits / 8); /* little endian */
    return 0;
}

static int
fill_unsigned(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    PyObject *index = PyNumber_Index(value);
    if (index == NULL) {
        return not_converted(value, dtype, "an int");
    }
    unsigned long long number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        return not_converted(value, dtype, "an int");
    }
    if (dtype.bits < 64 && number >> dtype.bits != 0) {
        return out_of_range(value, dtype);
    }
    memcpy(element, &number, dtype.bits / 8);
    return 0;
}

/* The upper half of a float, rounded to nearest, ties to even. */
static uint16_t
round_to_bfloat16(float single)
{
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    if (isnan(single)) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static int
pack_half(double number, unsigned char *element)
{
#if PY_VERSION_HEX >= 0x030b0000
    return PyFloat_Pack2(number, (char *)element, 1);
#else
    return _PyFloat_Pack2(number, element, 1);
#endif
}

/* Write `number` as a float of `bits` bits and of the kind of `dtype`.
 * Messages name `value`, the object that it comes from. */
static int
put_float(PyObject *value, double number, ad_dl_dtype dtype, uint8_t bits,
          unsigned char *element)
{
    static const uint16_t infinity = 0x7f80;
    float single = (float)number;
    uint16_t brain = round_to_bfloat16(single);
    if (bits == 64) {
        memcpy(element, &number, sizeof(number));
        return 0;
    }
    if (bits == 16 && dtype.code != AD_DL_BFLOAT) {
        return pack_half(number, element) < 0
                   ? not_converted(value, dtype, "a number")
                   : 0;
    }
    bool is_infinite =
        bits == 32 ? isinf(single) : (brain & 0x7fff) == infinity;
    if (is_infinite && !isinf(number)) {
        return out_of_range(value, dtype);
    }
    if (bits == 32) {
        memcpy(element, &single, sizeof(single));
    } else {
        memcpy(element, &brain, sizeof(brain));
    }
    return 0;
}

static int
fill_float(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        return not_converted(value, dtype, "a number");
    }
    return put_float(value, number, dtype, dtype.bits, element);
}

static int
fill_complex(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    Py_complex number = PyComplex_AsCComplex(value);
    if (number.real == -1.0 && PyErr_Occurred()) {
        return not_converted(value, dtype, "a number");
    }
    uint8_t half = dtype.bits / 2;
    int result = put_float(value, number.real, dtype, half, element);
    return result < 0 ? -1
                      : put_float(value, number.imag, dtype, half,
                                  element + half / 8);
}

/* NumPy's bools and the numbers 0 and 1 are equal to a bool; a word is not. */
static int
fill_bool(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    int is_true = PyObject_RichCompareBool(value, Py_True, Py_EQ);
    int is_false =
        is_true == 0 ? PyObject_RichCompareBool(value, Py_False, Py_EQ) : 0;
    if (is_true < 0 || is_false < 0) {
        return -1;
    }
    if (!is_true && !is_false) {
        PyErr_SetNone(PyNumber_Check(value) ? PyExc_OverflowError
                                            : PyExc_TypeError);
        return not_converted(value, dtype, "True or False");
    }
    element[0] = (unsigned char)is_true;
    return 0;
}

/* Write `value` as one element of `dtype` into `element` (16 bytes). -1 with
 * TypeError for a value of the wrong kind, OverflowError for one that does not
 * fit, ValueError for a dtype that cannot be filled. */
static int
fill_element(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    /* The kinds below have whole bytes and at most 128 bits. */
    if (dtype.lanes == 1 && ad_dtype_find(dtype) != NULL) {
        switch (dtype.code) {
            case AD_DL_INT:
                return fill_signed(value, dtype, element);
            case AD_DL_UINT:
                return fill_unsigned(value, dtype, element);
            case AD_DL_FLOAT:
            case AD_DL_BFLOAT:
                return fill_float(value, dtype, element);
            case AD_DL_COMPLEX:
                return fill_complex(value, dtype, element);
            case AD_DL_BOOL:
                return fill_bool(value, dtype, element);
            default:
                break;
        }
    }
    char name[AD_DTYPE_NAME_SIZE];
    PyErr_Format(PyExc_ValueError,
                 "nulls of %s cannot be filled; use nulls=\"ignore\" and "
                 "the array's .validity",
                 ad_dtype_format(dtype, name));
    return -1;
}

/* --- tensor(): nulls= and order= ----------------------------------------- */

int
ad_parse_nulls(PyObject *nulls, PyObject *fill_value, ad_tensor_options *out)
{
    static const char *const names[] = {[AD_NULLS_RAISE] = "raise",
                                        [AD_NULLS_IGNORE] = "ignore",
                                        [AD_NULLS_FILL] = "fill"};
    int choice = nulls == NULL ? AD_NULLS_RAISE : -1;
    for (int i = 0; choice < 0 && i < 3 && PyUnicode_Check(nulls); i++) {
        if (PyUnicode_CompareWithASCIIString(nulls, names[i]) == 0) {
            choice = i;
        }
    }
    if (choice < 0) {
        PyErr_Format(PyExc_ValueError,
                     "nulls must be \"raise\", \"ignore\" or \"fill\", not %R",
                     nulls);
        return -1;
    }
    out->bridge.nulls = (ad_nulls)choice;
    out->fill_value = ad_is_none(fill_value) ? NULL : fill_value;
    if ((out->bridge.nulls == AD_NULLS_FILL) != (out->fill_value != NULL)) {
        PyErr_SetString(PyExc_ValueError,
                        "nulls=\"fill\" and fill_value= go together");
        return -1;
    }
    return 0;
}

static int
parse_order(PyObject *order, char *out)
{
    *out = 0;
    if (ad_is_none(order)) {
        return 0;
    }
    if (PyUnicode_Check(order) &&
        (PyUnicode_CompareWithASCIIString(order, "C") == 0 ||
         PyUnicode_CompareWithASCIIString(order, "F") == 0)) {
        *out = (char)PyUnicode_READ_CHAR(order, 0);
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "order must be \"C\", \"F\" or None, "
                 "not %R",
                 order);
    return -1;
}

static bool
has_negative_stride(const ad_tensor *tensor)
{
    bool found = false;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        found |= tensor->strides[i] < 0;
    }
    return found;
}

static const char *
reason_of_layout(ad_copy copy, bool is_refused, char order)
{
    return copy == AD_COPY_ALWAYS ? "copy=True was passed"
           : is_refused           ? "the class takes no negative strides"
           : order == 'F'         ? "the elements are not in the order \"F\""
                                  : "the elements are not in the order \"C\"";
}

/* Replace the tensor by a copy if one was requested or the order requires one.
 * On failure returns -1 with an exception and clears the tensor. */
static int
apply_layout(ad_state *state, const ad_tensor_options *options,
             ad_tensor_value *value)
{
    ad_tensor *tensor = &value->tensor;
    ad_copy copy = options->bridge.copy;
    char order = options->bridge.order;
    bool is_copied = tensor->flags & AD_TENSOR_COPIED;
    bool fits = order == 0 || ad_tensor_is_contiguous(tensor, order);
    bool is_refused =
        options->no_negative_strides && has_negative_stride(tensor);
    if (fits && !is_refused && (copy != AD_COPY_ALWAYS || is_copied)) {
        return 0;
    }
    if (copy != AD_COPY_NEVER) {
        return ad_replace_by_copy(
            state, options->stream, order != 0 ? order : 'C',
            reason_of_layout(copy, is_refused, order), value);
    }
    ad_tensor_clear(tensor);
    if (is_refused) {
        ad_raise_exchange(state, "strides", "leave copy=False out",
                          "the tensor has a negative stride, which the class "
                          "cannot take without a copy");
    } else {
        ad_raise_exchange(state, "copy", "leave order= or copy=False out",
                          "order=\"%c\" needs a copy of this tensor", order);
    }
    return -1;
}

static void
apply_readonly(int readonly, ad_tensor *tensor)
{
    if (readonly == 1) {
        tensor->memory.readonly = true;
    } else if (readonly == 0) {
        tensor->memory.readonly = false;
        tensor->flags &= ~(uint32_t)AD_TENSOR_IMMUTABLE;
    }
}

/* --- tensor(): the import ------------------------------------------------ */

/* Convert an array through the bridge, with the fill value as an element of
 * the array's dtype. */
static int
bridge_to_tensor(ad_state *state, const ad_array *array,
                 ad_tensor_options *options, ad_tensor_value *out)
{
    unsigned char element[16];
    ad_dl_dtype dtype;
    ad_error err;
    if (options->fill_value != NULL && ad_array_tensor_dtype(array, &dtype)) {
        if (fill_element(options->fill_value, dtype, element) < 0) {
            return -1;
        }
        options->bridge.fill = element;
    }
    if (ad_tensor_from_array(array, &options->bridge, out, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    if (strcmp(array->schema.node->format, "+s") == 0) {
        options->bridge.order = 0;
    }
    return 0;
}

int
ad_imported_as_tensor(ad_state *state, ad_imported *imported,
                      ad_tensor_options *options)
{
    if (!imported->is_array) {
        return 0;
    }
    ad_array array = imported->array;
    int result = bridge_to_tensor(state, &array, options, &imported->tensor);
    ad_array_clear(&array);
    return result;
}

/* The masked array itself, or what NumPy makes of one of several dimensions:
 * its data, or a filled copy. Its rows may be masked in part, for which an
 * Array has no validity. */
static PyObject *
without_mask(ad_state *state, PyObject *object,
             const ad_tensor_options *options)
{
    bool fills = options->bridge.nulls == AD_NULLS_FILL;
    if (options->bridge.nulls == AD_NULLS_RAISE ||
        (fills && options->bridge.copy == AD_COPY_NEVER) ||
        !ad_is_subclass(Py_TYPE(object), "numpy.ma", "MaskedArray")) {
        return Py_NewRef(object);
    }
    PyObject *ndim = PyObject_GetAttr(object, AD_STR(state, ndim));
    long n = ndim != NULL ? PyLong_AsLong(ndim) : -1;
    Py_XDECREF(ndim);
    if (n < 0 && PyErr_Occurred()) {
        return NULL;
    }
    return n < 2   ? Py_NewRef(object)
           : fills ? PyObject_CallMethodObjArgs(object, AD_STR(state, filled),
                                                options->fill_value, NULL)
                   : PyObject_GetAttr(object, AD_STR(state, data));
}

/* Imports the object. NumPy rounds a fill value that does not fit, which is
 * refused here. */
static int
import_any(ad_state *state, PyObject *object, const ad_request *request,
           uint32_t among, const ad_tensor_options *options, ad_imported *out)
{
    unsigned char element[16];
    PyObject *source = without_mask(state, object, options);
    if (source == NULL) {
        return -1;
    }
    ad_request as_tensor = *request;
    as_tensor.wants_tensor = true;
    as_tensor.nulls = options->bridge.nulls;
    as_tensor.order = options->bridge.order;
    int result = ad_import(state, source, &as_tensor, among, out);
    if (result == 0 && source != object && !out->is_array &&
        options->fill_value != NULL &&
        fill_element(options->fill_value, out->tensor.tensor.dtype, element) <
            0) {
        ad_imported_clear(out);
        result = -1;
    }
    Py_DECREF(source);
    return result;
}

int
ad_imported_to_device(ad_state *state, ad_imported *imported,
                      const ad_request *request, ad_copy *copy)
{
    ad_array *array = imported->is_array ? &imported->array : NULL;
    ad_device device = array != NULL ? array->memory.device
                                     : imported->tensor.tensor.memory.device;
    if (!request->has_device || ad_device_equal(device, request->device)) {
        return 0;
    }
    /* What moves with copy=True is copied. */
    *copy =
        request->copy == AD_COPY_ALWAYS ? AD_COPY_IF_NEEDED : request->copy;
    return ad_move_to(state, array, &imported->tensor, request->device,
                      ad_request_copy_stream(request), request->copy, NULL);
}

int
ad_import_tensor(ad_state *state, PyObject *object, const ad_request *request,
                 uint32_t among, ad_tensor_options *options, ad_imported *out)
{
    ad_tensor *tensor = &out->tensor.tensor;
    options->bridge.copy = request->copy;
    options->stream = ad_request_copy_stream(request);
    if (import_any(state, object, request, among, options, out) < 0 ||
        ad_imported_to_device(state, out, request, &options->bridge.copy) <
            0 ||
        ad_imported_as_tensor(state, out, options) < 0 ||
        apply_layout(state, options, &out->tensor) < 0) {
        return -1;
    }
    if (ad_apply_stream_order(state, request, &tensor->memory) < 0) {
        ad_tensor_clear(tensor);
        return -1;
    }
    return 0;
}

static PyObject *
import_tensor_object(ad_state *state, PyObject *object,
                     const ad_request *request, uint32_t among,
                     ad_tensor_options *options)
{
    ad_imported imported;
    if (ad_import_tensor(state, object, request, among, options, &imported) <
        0) {
        return NULL;
    }
    apply_readonly(options->readonly, &imported.tensor.tensor);
    return ad_tensor_object_new(state, &imported.tensor.tensor);
}

static const ad_signature tensor_signature = {
    .function = "tensor()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_device, AD_STR_stream,
                       AD_STR_copy, AD_STR_nulls, AD_STR_fill_value,
                       AD_STR_order, AD_STR_readonly),
};

static PyObject *
function_tensor(ad_state *state, PyObject *const *values)
{
    ad_request request;
    ad_tensor_options options = {0};
    if (ad_parse_request(state, values[1], values[2], values[3], &request) <
            0 ||
        ad_parse_nulls(values[4], values[5], &options) < 0 ||
        parse_order(values[6], &options.bridge.order) < 0 ||
        ad_parse_optional_bool(values[7], "readonly", &options.readonly) < 0) {
        return NULL;
    }
    return import_tensor_object(state, values[0], &request, AD_ALL_PROTOCOLS,
                                &options);
}

AD_ENTRY(ad_function_tensor, ad_state_of_module, tensor_signature,
         function_tensor(state, values));

static const ad_signature from_dlpack_signature = {
    .function = "from_dlpack()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_device, AD_STR_copy),
};

static PyObject *
function_from_dlpack(ad_state *state, PyObject *const *values)
{
    ad_request request;
    ad_tensor_options options = {.readonly = -1};
    if (ad_parse_request(state, values[1], NULL, values[2], &request) < 0) {
        return NULL;
    }
    /* __dlpack__ of a masked array would export the data without the mask. */
    return import_tensor_object(state, values[0], &request,
                                AD_PROTOCOL_BIT(masked_array) |
                                    AD_PROTOCOL_BIT(dlpack_exchange) |
                                    AD_PROTOCOL_BIT(dlpack),
                                &options);
}

AD_ENTRY(ad_function_from_dlpack, ad_state_of_module, from_dlpack_signature,
         function_from_dlpack(state, values));
