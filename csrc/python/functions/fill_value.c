/* fill_value of tensor(): a Python number as one element of a dtype. */
#include "python/functions/functions.h"

#include <math.h>
#include <string.h>

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

int
ad_fill_element(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
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
