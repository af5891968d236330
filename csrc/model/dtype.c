#include "model/dtype.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* --- the table ---------------------------------------------------------- */

enum {
#define AD_DTYPE(tag, name, code, bits, arrow, extension, typestr, buffer)    \
    ROW_##tag,
#include "model/dtypes.def"
#undef AD_DTYPE
    N_ROWS
};

static const ad_dtype_info rows[N_ROWS] = {
#define AD_DTYPE(tag, name, code, bits, arrow, extension, typestr, buffer)    \
    {name, {code, bits, 1}, arrow, AD_DTYPE_##extension, typestr, buffer},
#include "model/dtypes.def"
#undef AD_DTYPE
};

const ad_dtype_info *
ad_dtype_find(ad_dl_dtype dtype)
{
    switch (dtype.code << 8 | dtype.bits) {
#define AD_DTYPE(tag, name, code, bits, arrow, extension, typestr, buffer)    \
    case (code) << 8 | (bits):                                                \
        return &rows[ROW_##tag];
#include "model/dtypes.def"
#undef AD_DTYPE
        default:
            return NULL;
    }
}

const ad_dtype_info *
ad_dtype_by_format(const char *format)
{
    /* The rows without an extension have one letter each. A row without a
     * letter is that of int8, too, whose letter differs then. */
    static const uint8_t found[128] = {
        ['c'] = ROW_INT8,    ['s'] = ROW_INT16,   ['i'] = ROW_INT32,
        ['l'] = ROW_INT64,   ['C'] = ROW_UINT8,   ['S'] = ROW_UINT16,
        ['I'] = ROW_UINT32,  ['L'] = ROW_UINT64,  ['e'] = ROW_FLOAT16,
        ['f'] = ROW_FLOAT32, ['g'] = ROW_FLOAT64,
    };
    unsigned char letter = (unsigned char)format[0];
    const ad_dtype_info *row = &rows[letter < 128 ? found[letter] : 0];
    return row->arrow[0] == format[0] && format[1] == '\0' ? row : NULL;
}

const char *
ad_dtype_format(ad_dl_dtype dtype, char *buffer)
{
    const ad_dtype_info *row = ad_dtype_find(dtype);
    if (row == NULL) {
        snprintf(buffer, AD_DTYPE_NAME_SIZE,
                 "dlpack(code=%d, bits=%d, lanes=%d)", dtype.code, dtype.bits,
                 dtype.lanes);
    } else if (dtype.lanes == 1) {
        snprintf(buffer, AD_DTYPE_NAME_SIZE, "%s", row->name);
    } else {
        snprintf(buffer, AD_DTYPE_NAME_SIZE, "%sx%d", row->name, dtype.lanes);
    }
    return buffer;
}

/* Parses "float32x4": the name of a row, and lanes. */
static bool
scan_name(const char *name, ad_dl_dtype *out)
{
    for (int i = 0; i < N_ROWS; i++) {
        size_t n = strlen(rows[i].name);
        const char *rest = name + n;
        unsigned int lanes = 1;
        if (strncmp(rows[i].name, name, n) == 0 &&
            (*rest == '\0' || sscanf(rest, "x%5u", &lanes) == 1)) {
            *out = rows[i].dtype;
            out->lanes = (uint16_t)lanes;
            return true;
        }
    }
    return false;
}

bool
ad_dtype_from_name(const char *name, ad_dl_dtype *out)
{
    char buffer[AD_DTYPE_NAME_SIZE];
    unsigned int code, bits, lanes;
    bool is_found = scan_name(name, out);
    if (!is_found && sscanf(name, "dlpack(code=%3u, bits=%3u, lanes=%5u)",
                            &code, &bits, &lanes) == 3) {
        *out = (ad_dl_dtype){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
        is_found = true;
    }
    /* The text has to be canonical: numbers in range, nothing after them. */
    return is_found && ad_dtype_bits(*out) != 0 &&
           strcmp(ad_dtype_format(*out, buffer), name) == 0;
}

/* --- errors ------------------------------------------------------------- */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static const bool is_little = true;
#else
static const bool is_little = false;
#endif

static bool
is_foreign(char order)
{
    return is_little ? order == '>' || order == '!' : order == '<';
}

#define COLUMN_HINT "pyarrow.array(x) makes a column of them"

static ad_status
fail_dtype(ad_error *err, const char *text, const char *what, const char *hint)
{
    ad_fail(err, AD_ERR_EXCHANGE, "dtype", hint,
            "elements of type \"%.80s\" (%s) have no equivalent in arrowdev",
            text, what);
    ad_error_dtype(err, text);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_element_require_plain(const ad_element *element, const char *why,
                         ad_error *err)
{
    char name[AD_DTYPE_NAME_SIZE];
    if (!element->is_swapped && element->time == NULL) {
        return AD_OK;
    }
    ad_dtype_format(element->dtype, name);
    if (element->is_swapped) {
        ad_fail(err, AD_ERR_EXCHANGE, "byteorder",
                "convert it first, with "
                ".astype(x.dtype.newbyteorder(\"=\")) for example",
                "elements of %s are not in the byte order of this machine, "
                "and cannot be swapped, because %s",
                name, why);
    } else {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                "pass .view(\"int64\") for the plain numbers",
                "datetime64 or timedelta64 elements cannot be "
                "searched for NaT, because %s",
                why);
    }
    ad_error_dtype(err, name);
    return AD_ERR_EXCHANGE;
}

/* --- typestr ------------------------------------------------------------ */

typedef struct typestr {
    const char *text;
    char order; /* '=' if there is none */
    char kind;
    int size;         /* 0 if there is none */
    const char *rest; /* text after the size */
} typestr;

static ad_status
bad_typestr(ad_error *err, const char *text)
{
    return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                   "\"%.80s\" is not a typestr of an array interface such as "
                   "\"<f4\"",
                   text);
}

static bool
split_typestr(const char *text, typestr *out)
{
    const char *p = text;
    *out = (typestr){.text = text, .order = '='};
    if (*p != '\0' && strchr("<>=|", *p) != NULL) {
        out->order = *p++;
    }
    out->kind = *p;
    if (*p == '\0' || strchr("?biufcmMOSUVat", *p++) == NULL) {
        return false;
    }
    const char *digits = p;
    while (*p >= '0' && *p <= '9' && out->size <= 99999999) {
        out->size = out->size * 10 + (*p++ - '0');
    }
    out->rest = p;
    return p > digits || out->kind == 'O';
}

/* True for the sizes that numpy has on some platform: 80-bit floats take 10,
 * 12 or 16 bytes. */
static bool
is_plausible(const typestr *type)
{
    int size = type->kind == 'c' ? type->size / 2 : type->size;
    return size == 1 || size == 2 || size == 4 || size == 8 || size == 10 ||
           size == 12 || size == 16;
}

/* Refuses a time of a unit that Arrow does not have: a finer or coarser one, a
 * multiple ("[25us]"), or none. The hint names the coarsest Arrow unit that
 * holds the values. */
static ad_status
refuse_time(const typestr *type, ad_error *err)
{
    static const struct {
        const char *unit, *into;
    } units[] = {
        {"as]", "ns"}, {"fs]", "ns"}, {"ps]", "ns"},
        {"ns]", "ns"}, {"us]", "us"}, {"ms]", "ms"},
    };
    const char *plain = ".view(\"int64\") for the plain numbers";
    const char *unit = type->rest + strspn(type->rest, "[0123456789");
    const char *into = "s";
    bool is_moment = type->kind == 'M';
    fail_dtype(err, type->text, "a unit of time that Arrow does not have",
               NULL);
    /* Durations in years or months have no fixed length. */
    if (*unit == '\0' || (!is_moment && strchr("YM", *unit) != NULL)) {
        ad_error_hint(err, "pass %s", plain);
        return AD_ERR_EXCHANGE;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        into = strcmp(unit, units[i].unit) == 0 ? units[i].into : into;
    }
    ad_error_hint(
        err, "convert it first, with .astype(\"%s64[%s]\")%s, or pass %s",
        is_moment ? "datetime" : "timedelta", into,
        strchr("afp", *unit) != NULL ? ", which drops finer units" : "",
        plain);
    return AD_ERR_EXCHANGE;
}

static ad_status
refuse_typestr(const typestr *type, ad_error *err)
{
    switch (type->kind) {
        case 'M':
        case 'm':
            return refuse_time(type, err);
        case 'O':
            return fail_dtype(err, type->text, "Python objects", COLUMN_HINT);
        case 'S':
        case 'a':
        case 'U':
            return fail_dtype(err, type->text, "fixed-width text",
                              COLUMN_HINT);
        case 'V':
            /* NumPy writes a byte order for the dtypes of other libraries
             * only. */
            if (type->text[0] != '|' && type->size <= 2) {
                return fail_dtype(
                    err, type->text, "a dtype that is not NumPy's own",
                    type->size == 1 ? "x.view(\"uint8\") gives their bits"
                                    : "x.view(\"uint16\") gives their "
                                      "bits");
            }
            return fail_dtype(err, type->text, "structured or raw bytes",
                              "pass one field, x[\"name\"].copy(), or a "
                              ".view() of a number type");
        case 't':
            return fail_dtype(err, type->text, "bit field", NULL);
        default:
            if (*type->rest == '\0' && is_plausible(type)) {
                return fail_dtype(
                    err, type->text, "number of that size",
                    type->kind == 'c' ? ".astype(\"complex128\") rounds them"
                    : type->kind == 'f'
                        ? type->size == 1
                              ? "x.view(\"uint8\") gives their bits"
                              : ".astype(\"float64\") rounds them"
                        : NULL);
            }
            return bad_typestr(err, type->text);
    }
}

/* Arrow's format for datetime64 or timedelta64. NULL for all other types, and
 * for units that Arrow does not have and multiples ("[25us]"). */
static const char *
find_time(const typestr *type)
{
    static const struct {
        const char *unit, *timestamp, *duration;
    } units[] = {
        {"[s]", "tss:", "tDs"},
        {"[ms]", "tsm:", "tDm"},
        {"[us]", "tsu:", "tDu"},
        {"[ns]", "tsn:", "tDn"},
    };
    bool is_moment = type->kind == 'M';
    for (int i = 0; i < 4 && (is_moment || type->kind == 'm'); i++) {
        if (type->size == 8 && strcmp(type->rest, units[i].unit) == 0) {
            return is_moment ? units[i].timestamp : units[i].duration;
        }
    }
    return NULL;
}

/* Finds a row by kind and size, the two parts of the table's typestr. */
static const ad_dtype_info *
find_typestr(const typestr *type)
{
    if (*type->rest != '\0') {
        return NULL;
    }
    for (int i = 0; i < N_ROWS; i++) {
        if (rows[i].typestr[0] == type->kind &&
            rows[i].dtype.bits / 8 == type->size) {
            return &rows[i];
        }
    }
    return NULL;
}

ad_status
ad_dtype_from_typestr(const char *text, ad_element *out, ad_error *err)
{
    typestr type;
    if (!split_typestr(text, &type)) {
        /* The typestr of NumPy's variable-length text is the name of its
         * dtype. */
        return strncmp(text, "StringDType(", 12) == 0
                   ? fail_dtype(err, text, "text of any length", COLUMN_HINT)
                   : bad_typestr(err, text);
    }
    const char *time = find_time(&type);
    const ad_dtype_info *row =
        time != NULL ? &rows[ROW_INT64] : find_typestr(&type);
    if (row == NULL) {
        return refuse_typestr(&type, err);
    }
    *out = (ad_element){
        .dtype = row->dtype,
        .is_swapped = type.size > 1 && is_foreign(type.order),
        .time = time,
    };
    return AD_OK;
}

/* --- PEP 3118 ----------------------------------------------------------- */

/* The code of the same type in standard sizes. Native 'l' has 8 bytes on some
 * machines and 4 on others; 'n' and 'N' have only native sizes. */
static char
standard_code(char native)
{
    switch (native) {
        case 'l':
            return sizeof(long) == 8 ? 'q' : 'i';
        case 'L':
            return sizeof(long) == 8 ? 'Q' : 'I';
        case 'n':
            return sizeof(size_t) == 8 ? 'q' : 'i';
        case 'N':
            return sizeof(size_t) == 8 ? 'Q' : 'I';
        default:
            return native;
    }
}

/* Rows by code, plus 1. Not a search, because this runs for every imported
 * buffer. 'F' and 'D' are spellings of `struct` since Python 3.14. */
static int
row_of_code(char code)
{
    static const uint8_t found[256] = {
        ['b'] = ROW_INT8 + 1,      ['B'] = ROW_UINT8 + 1,
        ['h'] = ROW_INT16 + 1,     ['H'] = ROW_UINT16 + 1,
        ['i'] = ROW_INT32 + 1,     ['I'] = ROW_UINT32 + 1,
        ['q'] = ROW_INT64 + 1,     ['Q'] = ROW_UINT64 + 1,
        ['e'] = ROW_FLOAT16 + 1,   ['f'] = ROW_FLOAT32 + 1,
        ['d'] = ROW_FLOAT64 + 1,   ['?'] = ROW_BOOL + 1,
        ['F'] = ROW_COMPLEX64 + 1, ['D'] = ROW_COMPLEX128 + 1,
    };
    return found[(unsigned char)code] - 1;
}

static ad_status
refuse_buffer(const char *text, const char *code, ad_error *err)
{
    switch (*code == 'Z' ? code[1] : *code) {
        case 'g':
            return fail_dtype(err, text, "long double",
                              "convert to 64-bit floats first");
        case 'c':
            return fail_dtype(err, text, "single characters",
                              "pass memoryview(x).cast(\"B\") for the bytes");
        case 'O':
            return fail_dtype(err, text, "Python objects", COLUMN_HINT);
        case 'T':
        case '(':
            return fail_dtype(err, text, "structured elements",
                              "pass one field, x[\"name\"].copy()");
        case 'P':
        case '&':
        case 'X':
            return fail_dtype(err, text, "pointers", NULL);
        default:
            break;
    }
    const char *item = code + strspn(code, "0123456789");
    if (*item != '\0' && strchr("spuw", *item) != NULL) {
        return fail_dtype(err, text, "text", COLUMN_HINT);
    }
    /* "3f", "ff", "xi": an element has several items, or padding. */
    if ((*code >= '0' && *code <= '9') || *code == 'x' ||
        (row_of_code(standard_code(*code)) >= 0 && code[1] != '\0')) {
        return fail_dtype(err, text, "several items per element", NULL);
    }
    return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                   "\"%.80s\" is not a buffer format such as \"f\" or \"<i\"",
                   text);
}

static ad_status
take_row(int row, const char *text, int64_t itemsize, bool is_swapped,
         ad_element *out, ad_error *err)
{
    if (itemsize != rows[row].dtype.bits / 8) {
        char bytes[AD_COUNT_SIZE];
        ad_fail(err, AD_ERR_EXCHANGE, "dtype", NULL,
                "buffer of format \"%.80s\" claims %s per element instead of "
                "%d",
                text, ad_count_text(itemsize, "byte", "bytes", bytes),
                rows[row].dtype.bits / 8);
        ad_error_dtype(err, text);
        return AD_ERR_EXCHANGE;
    }
    out->dtype = rows[row].dtype;
    out->is_swapped = is_swapped;
    out->time = NULL; /* PEP 3118 has no code for times */
    return AD_OK;
}

/* Parses formats with a byte order or with a letter before the code, and
 * invalid ones. */
static ad_status
parse_buffer(const char *text, int64_t itemsize, ad_element *out,
             ad_error *err)
{
    const char *code = text;
    char order = '@';
    if (*code != '\0' && strchr("@=<>!^", *code) != NULL) {
        order = *code++;
    }
    char letter = *code;
    int length = 1;
    if (letter == 'Z') {
        letter = code[1] == 'f' ? 'F' : code[1] == 'd' ? 'D' : '\0';
        length = 2;
    } else if (order == '@' || order == '^') {
        letter = standard_code(letter);
    } else if (letter == 'l' || letter == 'L') {
        letter = letter == 'l' ? 'i' : 'I';
    }
    int row = row_of_code(letter);
    if (row < 0 || code[length] != '\0') {
        return refuse_buffer(text, code, err);
    }
    return take_row(row, text, itemsize,
                    rows[row].dtype.bits > 8 && is_foreign(order), out, err);
}

ad_status
ad_dtype_from_buffer(const char *format, int64_t itemsize, ad_element *out,
                     ad_error *err)
{
    const char *text = format != NULL ? format : "B";
    if (text[0] != '\0' && text[1] == '\0') {
        int row = row_of_code(standard_code(text[0]));
        if (row >= 0 && itemsize == rows[row].dtype.bits / 8) {
            *out = (ad_element){.dtype = rows[row].dtype};
            return AD_OK;
        }
    }
    return parse_buffer(text, itemsize, out, err);
}
