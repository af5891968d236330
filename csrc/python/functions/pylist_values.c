/* Rows of types without children: numbers, text, bytes, times; and the errors of
 * all rows. */
#include "python/functions/pylist.h"

#include <math.h>
#include <stdarg.h>

#include "base/unaligned.h"
#include "base/utf8.h"
#include "support/py_call.h"

/* --- errors -------------------------------------------------------------- */

/* Write the path to *err, and "row 2 (7 in its buffers)" to its message. */
static void
describe_row(const ad_pylist_reader *self, int64_t row, ad_error *err)
{
    int64_t offset = self->array.offset;
    ad_fail(err, AD_ERR_ARROW, NULL, NULL, "row %lld",
            (long long)(row - offset));
    if (offset != 0) {
        size_t n = strlen(err->message);
        PyOS_snprintf(err->message + n, sizeof(err->message) - n,
                      " (%lld in its buffers)", (long long)row);
    }
    for (; self->parent != NULL; self = self->parent) {
        if (self->index < 0) {
            ad_error_path_prepend(err, "dictionary");
        } else {
            ad_error_path_prepend(err, "children[%lld]",
                                  (long long)self->index);
        }
    }
}

int
ad_pylist_malformed(const ad_pylist_reader *self, int64_t row,
                    const char *format, ...)
{
    ad_error err;
    va_list args;
    describe_row(self, row, &err);
    size_t n = strlen(err.message);
    n += (size_t)PyOS_snprintf(err.message + n, sizeof(err.message) - n, ": ");
    va_start(args, format);
    PyOS_vsnprintf(err.message + n, sizeof(err.message) - n, format, args);
    va_end(args);
    ad_raise(self->list->state, &err);
    return -1;
}

/* Put path and row before the text of the current exception. Returns -1. */
static int
name_row(const ad_pylist_reader *self, int64_t row)
{
    ad_error err;
    describe_row(self, row, &err);
    ad_prefix_exception("%s%s%s: ", err.path, err.path[0] != '\0' ? ": " : "",
                        err.message);
    return -1;
}

int
ad_pylist_read_extension(const ad_pylist_reader *self, ad_extension *out)
{
    ad_error err;
    ad_status status = ad_extension_read(self->array.schema.node, out, &err);
    return ad_raise_status(self->list->state, status, &err);
}

int
ad_pylist_no_value(ad_dl_dtype dtype, const char *instead)
{
    char name[AD_DTYPE_NAME_SIZE];
    PyErr_Format(PyExc_NotImplementedError, "no Python value for %s; use %s",
                 ad_dtype_format(dtype, name), instead);
    return -1;
}

/* --- numbers ------------------------------------------------------------- */

typedef float any_float __attribute__((may_alias, aligned(1)));
typedef double any_double __attribute__((may_alias, aligned(1)));

typedef struct complex64 {
    float real, imaginary;
} __attribute__((may_alias, packed)) complex64;

typedef struct complex128 {
    double real, imaginary;
} __attribute__((may_alias, packed)) complex128;

/* What is no finite number. */
typedef enum specials {
    INFINITY_AND_NAN, /* IEEE: the highest exponent */
    ONE_NAN,          /* "fn": all bits but the sign are set */
    ONE_ZERO,         /* "fnuz": NaN in place of the negative zero */
} specials;

static inline PyObject *
short_float(unsigned bits, int n_exponent, int n_fraction, int bias,
            specials rule)
{
    unsigned highest = (1u << n_exponent) - 1;
    unsigned exponent = bits >> n_fraction & highest;
    unsigned fraction = bits & ((1u << n_fraction) - 1);
    bool is_negative = bits >> (n_exponent + n_fraction) != 0;
    bool is_last = fraction == (1u << n_fraction) - 1;
    double magnitude = exponent == 0
                           ? ldexp(fraction, 1 - bias - n_fraction)
                           : ldexp(fraction + (1u << n_fraction),
                                   (int)exponent - bias - n_fraction);
    if (rule == INFINITY_AND_NAN && exponent == highest) {
        magnitude = fraction != 0 ? NAN : INFINITY;
    } else if (rule == ONE_NAN
                   ? exponent == highest && is_last
                   : rule == ONE_ZERO && is_negative && magnitude == 0) {
        magnitude = NAN;
    }
    return PyFloat_FromDouble(copysign(magnitude, is_negative ? -1 : 1));
}

/* "fnu": an exponent alone. */
static PyObject *
power_of_two(uint8_t exponent)
{
    return PyFloat_FromDouble(exponent == 255 ? NAN
                                              : ldexp(1, exponent - 127));
}

static PyObject *
bfloat16_as_object(uint16_t bits)
{
    uint32_t upper = (uint32_t)bits << 16;
    float number;
    memcpy(&number, &upper, sizeof(number));
    return PyFloat_FromDouble((double)number);
}

static inline PyObject *
complex64_object(complex64 number)
{
    return PyComplex_FromDoubles(number.real, number.imaginary);
}

static inline PyObject *
complex128_object(complex128 number)
{
    return PyComplex_FromDoubles(number.real, number.imaginary);
}

/* A fill() that writes make(values[row]). */
#define DEFINE_FILL(name, type, make)                                         \
    static int fill_##name(ad_pylist_reader *self, int64_t row, int64_t n,    \
                           PyObject **out)                                    \
    {                                                                         \
        const type *values = self->first;                                     \
        for (int64_t i = 0; i < n; i++) {                                     \
            out[i] = ad_pylist_is_null(self, row + i)                         \
                         ? Py_NewRef(Py_None)                                 \
                         : make(values[row + i]);                             \
            if (out[i] == NULL) {                                             \
                return -1;                                                    \
            }                                                                 \
        }                                                                     \
        return 0;                                                             \
    }

DEFINE_FILL(int8, ad_at_any_i8, PyLong_FromLong)
DEFINE_FILL(int16, ad_at_any_i16, PyLong_FromLong)
DEFINE_FILL(int32, ad_at_any_i32, PyLong_FromLong)
DEFINE_FILL(int64, ad_at_any_i64, PyLong_FromLongLong)
DEFINE_FILL(uint8, ad_at_any_u8, PyLong_FromLong)
DEFINE_FILL(uint16, ad_at_any_u16, PyLong_FromLong)
DEFINE_FILL(uint32, ad_at_any_u32, PyLong_FromUnsignedLong)
DEFINE_FILL(uint64, ad_at_any_u64, PyLong_FromUnsignedLongLong)
DEFINE_FILL(bfloat16, ad_at_any_u16, bfloat16_as_object)
DEFINE_FILL(float32, any_float, PyFloat_FromDouble)
DEFINE_FILL(float64, any_double, PyFloat_FromDouble)
DEFINE_FILL(bool8, ad_at_any_u8, PyBool_FromLong)
DEFINE_FILL(float8_e8m0fnu, ad_at_any_u8, power_of_two)
DEFINE_FILL(complex64, complex64, complex64_object)
DEFINE_FILL(complex128, complex128, complex128_object)

/* A float of few bits: its type in memory, bits of exponent and fraction, bias
 * of the exponent, and rule. */
#define DEFINE_SHORT_FLOATS(name, type, ...)                                  \
    static inline PyObject *name##_object(type bits)                          \
    {                                                                         \
        return short_float(bits, __VA_ARGS__);                                \
    }                                                                         \
    DEFINE_FILL(name, type, name##_object)

DEFINE_SHORT_FLOATS(float16, ad_at_any_u16, 5, 10, 15, INFINITY_AND_NAN)
DEFINE_SHORT_FLOATS(float8_e3m4, ad_at_any_u8, 3, 4, 3, INFINITY_AND_NAN)
DEFINE_SHORT_FLOATS(float8_e4m3, ad_at_any_u8, 4, 3, 7, INFINITY_AND_NAN)
DEFINE_SHORT_FLOATS(float8_e4m3b11fnuz, ad_at_any_u8, 4, 3, 11, ONE_ZERO)
DEFINE_SHORT_FLOATS(float8_e4m3fn, ad_at_any_u8, 4, 3, 7, ONE_NAN)
DEFINE_SHORT_FLOATS(float8_e4m3fnuz, ad_at_any_u8, 4, 3, 8, ONE_ZERO)
DEFINE_SHORT_FLOATS(float8_e5m2, ad_at_any_u8, 5, 2, 15, INFINITY_AND_NAN)
DEFINE_SHORT_FLOATS(float8_e5m2fnuz, ad_at_any_u8, 5, 2, 16, ONE_ZERO)

static const struct {
    uint8_t code;
    uint8_t bits;
    ad_pylist_fill *fill;
} numbers[] = {
    {AD_DL_INT, 8, fill_int8},
    {AD_DL_INT, 16, fill_int16},
    {AD_DL_INT, 32, fill_int32},
    {AD_DL_INT, 64, fill_int64},
    {AD_DL_UINT, 8, fill_uint8},
    {AD_DL_UINT, 16, fill_uint16},
    {AD_DL_UINT, 32, fill_uint32},
    {AD_DL_UINT, 64, fill_uint64},
    {AD_DL_FLOAT, 16, fill_float16},
    {AD_DL_FLOAT, 32, fill_float32},
    {AD_DL_FLOAT, 64, fill_float64},
    {AD_DL_BOOL, 8, fill_bool8},
    {AD_DL_COMPLEX, 64, fill_complex64},
    {AD_DL_COMPLEX, 128, fill_complex128},
    {AD_DL_BFLOAT, 16, fill_bfloat16},
    {AD_DL_FLOAT8_E3M4, 8, fill_float8_e3m4},
    {AD_DL_FLOAT8_E4M3, 8, fill_float8_e4m3},
    {AD_DL_FLOAT8_E4M3B11FNUZ, 8, fill_float8_e4m3b11fnuz},
    {AD_DL_FLOAT8_E4M3FN, 8, fill_float8_e4m3fn},
    {AD_DL_FLOAT8_E4M3FNUZ, 8, fill_float8_e4m3fnuz},
    {AD_DL_FLOAT8_E5M2, 8, fill_float8_e5m2},
    {AD_DL_FLOAT8_E5M2FNUZ, 8, fill_float8_e5m2fnuz},
    {AD_DL_FLOAT8_E8M0FNU, 8, fill_float8_e8m0fnu},
};

ad_pylist_fill *
ad_pylist_fill_of(ad_dl_dtype dtype)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(numbers); i++) {
        if (ad_dtype_equal(
                dtype, (ad_dl_dtype){numbers[i].code, numbers[i].bits, 1})) {
            return numbers[i].fill;
        }
    }
    return NULL;
}

/* Numbers as values of the extension type, if there is one. */
static int
open_numbers(ad_pylist_reader *self)
{
    const ad_dtype_info *plain =
        ad_dtype_by_format(self->array.schema.node->format);
    ad_extension extension;
    if (ad_pylist_read_extension(self, &extension) < 0) {
        return -1;
    }
    ad_dl_dtype dtype = extension.kind == AD_EXTENSION_DLPACK ? extension.dtype
                        : extension.kind == AD_EXTENSION_BOOL8
                            ? (ad_dl_dtype){AD_DL_BOOL, 8, 1}
                            : plain->dtype;
    self->fill = ad_pylist_fill_of(dtype);
    return self->fill != NULL
               ? 0
               : ad_pylist_no_value(dtype, ".view()" AD_PYLIST_WHERE);
}

static int
fill_null(ad_pylist_reader *Py_UNUSED(self), int64_t Py_UNUSED(row), int64_t n,
          PyObject **out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = Py_NewRef(Py_None);
    }
    return 0;
}

static int
fill_bool(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    for (int64_t i = row; i < row + n; i++) {
        PyObject *value = ad_pylist_is_null(self, i)      ? Py_None
                          : ad_bitmap_get(self->first, i) ? Py_True
                                                          : Py_False;
        *out++ = Py_NewRef(value);
    }
    return 0;
}

/* --- text and bytes ------------------------------------------------------ */

/* An error of the codec as InvalidArrowError. */
static int
not_utf8(const ad_pylist_reader *self, int64_t row)
{
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        return -1;
    }
    PyObject *error = ad_py_take_exception();
    PyObject *text = PyObject_Str(error);
    const char *problem = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
    if (problem != NULL) {
        ad_pylist_malformed(self, row, "%s", problem);
    }
    Py_XDECREF(text);
    Py_DECREF(error);
    return -1;
}

/* The codec has shared objects for up to one character. */
static inline PyObject *
decode_text(const void *data, Py_ssize_t size)
{
    if (size < 2 || !ad_is_ascii(data, (size_t)size)) {
        return PyUnicode_DecodeUTF8(data, size, "strict");
    }
    PyObject *text = PyUnicode_New(size, 127);
    if (text != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(text), data, (size_t)size);
    }
    return text;
}

/* Write one value, and return 0. */
static inline int
put_bytes(const ad_pylist_reader *self, int64_t row, const void *data,
          int64_t size, bool is_text, PyObject **out)
{
    *out = is_text ? decode_text(data, (Py_ssize_t)size)
                   : PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    return *out != NULL ? 0 : is_text ? not_utf8(self, row) : -1;
}

static inline __attribute__((always_inline)) int
fill_strings(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out,
             bool is_wide, bool is_text)
{
    const char *data = self->second;
    for (int64_t i = row; i < row + n; i++, out++) {
        if (ad_pylist_is_null(self, i)) {
            *out = Py_NewRef(Py_None);
            continue;
        }
        int64_t start = ad_offset_at(self->first, is_wide, i);
        int64_t stop = ad_offset_at(self->first, is_wide, i + 1);
        if (start < 0 || start > stop || stop > self->size) {
            return ad_pylist_malformed(
                self, i,
                "its values run from %lld to %lld, expected from 0 to %lld",
                (long long)start, (long long)stop, (long long)self->size);
        }
        if (put_bytes(self, i, start != 0 ? data + start : data, stop - start,
                      is_text, out) < 0) {
            return -1;
        }
    }
    return 0;
}

#define DEFINE_STRINGS(name, is_wide, is_text)                                \
    static int name(ad_pylist_reader *self, int64_t row, int64_t n,           \
                    PyObject **out)                                           \
    {                                                                         \
        return fill_strings(self, row, n, out, is_wide, is_text);             \
    }

DEFINE_STRINGS(fill_utf8, false, true)
DEFINE_STRINGS(fill_large_utf8, true, true)
DEFINE_STRINGS(fill_binary, false, false)
DEFINE_STRINGS(fill_large_binary, true, false)

/* The bytes of a 16-byte view: up to 12 are inline, others in a buffer. */
static int
find_view(const ad_pylist_reader *self, int64_t row, const char **data,
          int64_t *size)
{
    const struct ArrowArray *node = self->array.node;
    const ad_at_any_i32 *view =
        (const ad_at_any_i32 *)((const char *)self->first + 16 * row);
    int32_t buffer = view[2];
    int32_t start = view[3];
    *size = view[0];
    if (*size < 0) {
        return ad_pylist_malformed(self, row,
                                   "its size is %lld, expected at least 0",
                                   (long long)*size);
    }
    if (*size <= 12) {
        *data = (const char *)(view + 1);
        return 0;
    }
    int64_t n = node->n_buffers - 3; /* validity, views; and sizes */
    if (buffer < 0 || buffer >= n) {
        return ad_pylist_malformed(
            self, row, "its buffer is %d, but there are %lld of them", buffer,
            (long long)n);
    }
    const char *bytes = node->buffers[2 + buffer];
    int64_t end =
        bytes != NULL
            ? ad_offset_at(node->buffers[node->n_buffers - 1], true, buffer)
            : 0;
    if (start < 0 || start > end - *size) {
        return ad_pylist_malformed(
            self, row,
            "its %lld bytes from %d on are not within the %lld of buffer %d",
            (long long)*size, start, (long long)end, buffer);
    }
    *data = bytes + start;
    return 0;
}

static int
fill_views(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    bool is_text = self->type.id == AD_TYPE_UTF8_VIEW;
    for (int64_t i = row; i < row + n; i++, out++) {
        const char *data = NULL;
        int64_t size = 0;
        if (ad_pylist_is_null(self, i)) {
            *out = Py_NewRef(Py_None);
        } else if (find_view(self, i, &data, &size) < 0 ||
                   put_bytes(self, i, data, size, is_text, out) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
fill_fixed_binary(ad_pylist_reader *self, int64_t row, int64_t n,
                  PyObject **out)
{
    for (int64_t i = row; i < row + n; i++, out++) {
        const char *data = self->first; /* NULL if it has no bytes */
        if (ad_pylist_is_null(self, i)) {
            *out = Py_NewRef(Py_None);
        } else if (put_bytes(self, i,
                             self->size != 0 ? data + i * self->size : data,
                             self->size, false, out) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
open_strings(ad_pylist_reader *self)
{
    ad_error err;
    ad_status status =
        ad_array_buffer_size(&self->array, 2, &self->size, &err);
    bool is_text = self->type.id >= AD_TYPE_UTF8;
    self->fill = self->type.wide_offsets
                     ? (is_text ? fill_large_utf8 : fill_large_binary)
                     : (is_text ? fill_utf8 : fill_binary);
    return ad_raise_status(self->list->state, status, &err);
}

static int
open_fixed_binary(ad_pylist_reader *self)
{
    ad_extension extension;
    if (ad_pylist_read_extension(self, &extension) < 0) {
        return -1;
    }
    self->size = self->type.bit_width / 8;
    self->fill = fill_fixed_binary;
    return extension.kind == AD_EXTENSION_DLPACK
               ? ad_pylist_no_value(extension.dtype,
                                    ".buffers" AD_PYLIST_WHERE)
               : 0;
}

/* --- times, decimals, intervals ------------------------------------------ */

/* The signed integer of `size` bytes as an int. */
static PyObject *
long_integer(const char *data, int64_t size)
{
    static const char negative[32] = {[0 ... 31] = -1};
    static const char positive[32];
    int64_t number;
    if (size <= 8) {
        return PyLong_FromLongLong(ad_int_at(data, (int)size, 0));
    }
    memcpy(&number, data, sizeof(number));
    if (memcmp(data + 8, number < 0 ? negative : positive, (size_t)size - 8) ==
        0) {
        return PyLong_FromLongLong(number);
    }
    PyObject *bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    PyObject *result =
        bytes != NULL ? ad_call_helper("_pylist", "signed_integer", &bytes, 1)
                      : NULL;
    Py_XDECREF(bytes);
    return result;
}

/* A time of day is within one day. */
static int
check_time(const ad_pylist_reader *self, int64_t row)
{
    int64_t per_second = self->type.unit == 's'   ? 1
                         : self->type.unit == 'm' ? 1000
                         : self->type.unit == 'u' ? 1000000
                                                  : 1000000000;
    int64_t number = ad_int_at(self->first, (int)self->size, row);
    return number >= 0 && number < 86400 * per_second
               ? 0
               : ad_pylist_malformed(
                     self, row, "the time is %lld, expected 0 to %lld",
                     (long long)number, (long long)(86400 * per_second - 1));
}

/* Call the helper for one value. */
static PyObject *
convert_number(const ad_pylist_reader *self, int64_t row)
{
    bool is_time_of_day =
        self->type.id == AD_TYPE_TIME32 || self->type.id == AD_TYPE_TIME64;
    if (is_time_of_day && check_time(self, row) < 0) {
        return NULL;
    }
    PyObject *number =
        long_integer((const char *)self->first + row * self->size, self->size);
    PyObject *value =
        number != NULL ? PyObject_CallOneArg(self->helper, number) : NULL;
    if (value == NULL && number != NULL) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_OverflowError,
                         "%S is past what Python's datetime holds; use "
                         ".view('int%d')%s",
                         number, (int)self->size * 8, AD_PYLIST_WHERE);
        }
        name_row(self, row);
    }
    Py_XDECREF(number);
    return value;
}

/* The helper is made for the first value, because time zones that only nulls
 * have need not be known. */
static int
make_helper(ad_pylist_reader *self)
{
    PyObject *format = PyUnicode_FromString(self->array.schema.node->format);
    if (self->helper == NULL && format != NULL) {
        self->helper = ad_call_helper("_pylist", "converter", &format, 1);
    }
    Py_XDECREF(format);
    return self->helper != NULL ? 0 : -1;
}

static int
fill_converted(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    for (int64_t i = row; i < row + n; i++, out++) {
        if (ad_pylist_is_null(self, i)) {
            *out = Py_NewRef(Py_None);
            continue;
        }
        if (self->helper == NULL && make_helper(self) < 0) {
            return -1;
        }
        *out = convert_number(self, i);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

/* (days, milliseconds), or (months, days, nanoseconds) */
static int
fill_intervals(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    bool has_months = self->type.id == AD_TYPE_INTERVAL_MONTH_DAY_NANO;
    for (int64_t i = row; i < row + n; i++, out++) {
        const char *data = (const char *)self->first + i * self->size;
        const ad_at_any_i32 *parts = (const ad_at_any_i32 *)data;
        *out = ad_pylist_is_null(self, i) ? Py_NewRef(Py_None)
               : has_months ? Py_BuildValue("iiL", parts[0], parts[1],
                                            (long long)ad_int_at(data, 8, 1))
                            : Py_BuildValue("ii", parts[0], parts[1]);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

int
ad_pylist_open_values(ad_pylist_reader *self)
{
    self->size = self->type.bit_width / 8;
    switch (self->type.id) {
        case AD_TYPE_NULL:
            self->fill = fill_null;
            return 0;
        case AD_TYPE_BOOL:
            self->fill = fill_bool;
            return 0;
        case AD_TYPE_BINARY:
        case AD_TYPE_LARGE_BINARY:
        case AD_TYPE_UTF8:
        case AD_TYPE_LARGE_UTF8:
            return open_strings(self);
        case AD_TYPE_BINARY_VIEW:
        case AD_TYPE_UTF8_VIEW:
            self->fill = fill_views;
            return 0;
        case AD_TYPE_FIXED_BINARY:
            return open_fixed_binary(self);
        case AD_TYPE_INTERVAL_MONTHS:
            self->fill = fill_int32;
            return 0;
        case AD_TYPE_INTERVAL_DAYS:
        case AD_TYPE_INTERVAL_MONTH_DAY_NANO:
            self->fill = fill_intervals;
            return 0;
        default:
            if (self->type.id <= AD_TYPE_FLOAT64) {
                return open_numbers(self);
            }
            self->fill = fill_converted;
            return 0;
    }
}
