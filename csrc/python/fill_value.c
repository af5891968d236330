#include "python/fill_value.h"

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

static int
fill_signed(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred()) {
        return -1;
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
        return -1;
    }
    unsigned long long number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        return -1;
    }
    if (dtype.bits < 64 && number >> dtype.bits != 0) {
        return out_of_range(value, dtype);
    }
    memcpy(element, &number, dtype.bits / 8);
    return 0;
}

static int
fill_float(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (dtype.bits == 64) {
        memcpy(element, &number, sizeof(number));
        return 0;
    }
    if (dtype.bits == 32) {
        float single = (float)number;
        if (isinf(single) && !isinf(number)) {
            return out_of_range(value, dtype);
        }
        memcpy(element, &single, sizeof(single));
        return 0;
    }
#if PY_VERSION_HEX >= 0x030b0000
    return PyFloat_Pack2(number, (char *)element, 1);
#else
    return _PyFloat_Pack2(number, element, 1);
#endif
}

int
ad_fill_element(PyObject *value, ad_dl_dtype dtype, unsigned char *element)
{
    /* The table's numbers have whole bytes, and 64 bits at the most. */
    if (dtype.lanes == 1 && ad_dtype_find(dtype) != NULL) {
        switch (dtype.code) {
            case AD_DL_INT:
                return fill_signed(value, dtype, element);
            case AD_DL_UINT:
                return fill_unsigned(value, dtype, element);
            case AD_DL_FLOAT:
                return fill_float(value, dtype, element);
            case AD_DL_BOOL: {
                int truth = PyObject_IsTrue(value);
                element[0] = truth == 1;
                return truth < 0 ? -1 : 0;
            }
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
