#include "model/type.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

typedef struct letter {
    bool known;
    ad_type type;
} letter;

#define FIXED(ID, BITS)                                                       \
    {                                                                         \
        true,                                                                 \
        {                                                                     \
            .id = AD_TYPE_##ID, .layout = AD_LAYOUT_FIXED, .n_buffers = 2,    \
            .has_validity = true, .bit_width = (BITS)                         \
        }                                                                     \
    }
#define OFFSETS(ID, WIDE)                                                     \
    {                                                                         \
        true,                                                                 \
        {                                                                     \
            .id = AD_TYPE_##ID, .layout = AD_LAYOUT_OFFSETS, .n_buffers = 3,  \
            .has_validity = true, .wide_offsets = (WIDE)                      \
        }                                                                     \
    }

/* The one-letter formats, which are nearly all that occur in practice. */
static const letter letters[128] = {
    ['n'] = {true, {.id = AD_TYPE_NULL, .layout = AD_LAYOUT_NONE}},
    ['b'] = FIXED(BOOL, 1),
    ['c'] = FIXED(INT8, 8),
    ['C'] = FIXED(UINT8, 8),
    ['s'] = FIXED(INT16, 16),
    ['S'] = FIXED(UINT16, 16),
    ['i'] = FIXED(INT32, 32),
    ['I'] = FIXED(UINT32, 32),
    ['l'] = FIXED(INT64, 64),
    ['L'] = FIXED(UINT64, 64),
    ['e'] = FIXED(FLOAT16, 16),
    ['f'] = FIXED(FLOAT32, 32),
    ['g'] = FIXED(FLOAT64, 64),
    ['z'] = OFFSETS(BINARY, false),
    ['Z'] = OFFSETS(LARGE_BINARY, true),
    ['u'] = OFFSETS(UTF8, false),
    ['U'] = OFFSETS(LARGE_UTF8, true),
};

/* --- errors ------------------------------------------------------------- */

static ad_status
fail_format(ad_error *err, const char *format, const char *problem)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "format string \"%.80s\" %s",
                   format, problem);
}

static ad_status
fail_unknown(ad_error *err, const char *format)
{
    return fail_format(err, format,
                       "is not known to the Arrow C data interface");
}

/* --- helpers ------------------------------------------------------------- */

static void
set_fixed(ad_type *out, ad_type_id id, int32_t bit_width)
{
    *out = (ad_type){.id = id,
                     .layout = AD_LAYOUT_FIXED,
                     .n_buffers = 2,
                     .has_validity = true,
                     .bit_width = bit_width};
}

static void
set_nested(ad_type *out, ad_type_id id, ad_layout layout, int n_buffers,
           int32_t n_children)
{
    *out = (ad_type){.id = id,
                     .layout = layout,
                     .n_buffers = (int8_t)n_buffers,
                     .has_validity = n_buffers > 0,
                     .n_children = n_children};
}

/* Reads digits only, without sign or blanks; *text advances past them. */
static bool
read_count(const char **text, int64_t limit, int64_t *out)
{
    const char *p = *text;
    int64_t value = 0;
    if (*p < '0' || *p > '9') {
        return false;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        int digit = *p - '0';
        if (value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *text = p;
    *out = value;
    return true;
}

static bool
read_comma(const char **text)
{
    if (**text != ',') {
        return false;
    }
    (*text)++;
    return true;
}

/* --- formats with parameters -------------------------------------------- */

static ad_status
parse_fixed_binary(const char *format, ad_type *out, ad_error *err)
{
    const char *p = format + 2;
    int64_t width;
    if (format[1] != ':') {
        return fail_unknown(err, format);
    }
    if (!read_count(&p, INT32_MAX / 8, &width) || *p != '\0') {
        return fail_format(
            err, format,
            "must give a width of 0 to 268435455 bytes, as in \"w:16\"");
    }
    set_fixed(out, AD_TYPE_FIXED_BINARY, (int32_t)width * 8);
    return AD_OK;
}

static ad_status
parse_decimal(const char *format, ad_type *out, ad_error *err)
{
    const char *p = format + 2;
    int64_t precision, scale;
    int64_t bit_width = 128;
    if (format[1] != ':') {
        return fail_unknown(err, format);
    }
    bool is_ok = read_count(&p, INT32_MAX, &precision) && read_comma(&p);
    bool is_negative = is_ok && *p == '-';
    p += is_negative;
    is_ok = is_ok && read_count(&p, INT32_MAX, &scale);
    if (is_ok && *p == ',') {
        p++;
        is_ok = read_count(&p, INT32_MAX, &bit_width);
    }
    if (!is_ok || *p != '\0') {
        return fail_format(
            err, format,
            "must give precision and scale, as in \"d:10,2\" or "
            "\"d:10,2,256\"");
    }
    if (bit_width != 32 && bit_width != 64 && bit_width != 128 &&
        bit_width != 256) {
        return fail_format(
            err, format,
            "has a decimal width other than 32, 64, 128 and 256 bits");
    }
    /* Decimal digits that fit beside the sign: log10(2) per bit. */
    int max_precision = (int)((bit_width - 1) * 30103 / 100000);
    if (precision < 1 || precision > max_precision) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "format string \"%.80s\" has precision %lld; %lld-bit "
                       "decimals have 1 to %d digits",
                       format, (long long)precision, (long long)bit_width,
                       max_precision);
    }
    set_fixed(out, AD_TYPE_DECIMAL, (int32_t)bit_width);
    out->precision = (int32_t)precision;
    out->scale = is_negative ? -(int32_t)scale : (int32_t)scale;
    return AD_OK;
}

static bool
is_unit(char c)
{
    return c == 's' || c == 'm' || c == 'u' || c == 'n';
}

static ad_status
parse_timestamp(const char *format, ad_type *out, ad_error *err)
{
    if (!is_unit(format[2])) {
        return fail_unknown(err, format);
    }
    if (format[3] != ':') {
        return fail_format(
            err, format,
            "must have a colon before the time zone, as in \"tsu:\"");
    }
    set_fixed(out, AD_TYPE_TIMESTAMP, 64);
    out->unit = format[2];
    out->suffix = format + 4;
    return AD_OK;
}

static ad_status
parse_temporal(const char *format, ad_type *out, ad_error *err)
{
    char kind = format[1];
    char unit = kind != '\0' ? format[2] : '\0';
    if (kind == 's') {
        return parse_timestamp(format, out, err);
    }
    if (kind == 'd' && unit == 'D') {
        set_fixed(out, AD_TYPE_DATE32, 32);
    } else if (kind == 'd' && unit == 'm') {
        set_fixed(out, AD_TYPE_DATE64, 64);
    } else if (kind == 't' && (unit == 's' || unit == 'm')) {
        set_fixed(out, AD_TYPE_TIME32, 32);
        out->unit = unit;
    } else if (kind == 't' && (unit == 'u' || unit == 'n')) {
        set_fixed(out, AD_TYPE_TIME64, 64);
        out->unit = unit;
    } else if (kind == 'D' && is_unit(unit)) {
        set_fixed(out, AD_TYPE_DURATION, 64);
        out->unit = unit;
    } else if (kind == 'i' && unit == 'M') {
        set_fixed(out, AD_TYPE_INTERVAL_MONTHS, 32);
    } else if (kind == 'i' && unit == 'D') {
        set_fixed(out, AD_TYPE_INTERVAL_DAYS, 64);
    } else if (kind == 'i' && unit == 'n') {
        set_fixed(out, AD_TYPE_INTERVAL_MONTH_DAY_NANO, 128);
    } else {
        return fail_unknown(err, format);
    }
    return format[3] == '\0'
               ? AD_OK
               : fail_format(err, format, "has text after its unit");
}

static ad_status
parse_view(const char *format, ad_type *out, ad_error *err)
{
    char kind = format[1];
    if (kind != 'u' && kind != 'z') {
        return fail_unknown(err, format);
    }
    if (format[2] != '\0') {
        return fail_format(err, format, "has text after its second letter");
    }
    *out = (ad_type){
        .id = kind == 'u' ? AD_TYPE_UTF8_VIEW : AD_TYPE_BINARY_VIEW,
        .layout = AD_LAYOUT_VIEWS,
        .n_buffers = 3,
        .has_validity = true,
    };
    return AD_OK;
}

static ad_status
parse_fixed_list(const char *format, ad_type *out, ad_error *err)
{
    const char *p = format + 3;
    int64_t size;
    if (format[2] != ':' || !read_count(&p, INT64_MAX, &size) || *p != '\0') {
        return fail_format(
            err, format, "must give a list size of 0 or more, as in \"+w:3\"");
    }
    set_nested(out, AD_TYPE_FIXED_LIST, AD_LAYOUT_VALIDITY, 1, 1);
    out->list_size = size;
    return AD_OK;
}

static ad_status
parse_union(const char *format, ad_type *out, ad_error *err)
{
    bool is_dense = format[2] == 'd';
    if ((!is_dense && format[2] != 's') || format[3] != ':') {
        return fail_unknown(err, format);
    }
    set_nested(out, is_dense ? AD_TYPE_DENSE_UNION : AD_TYPE_SPARSE_UNION,
               is_dense ? AD_LAYOUT_DENSE_UNION : AD_LAYOUT_SPARSE_UNION,
               is_dense ? 2 : 1, -1);
    out->has_validity = false;
    out->suffix = format + 4;
    int8_t ids[128];
    int n;
    return ad_type_union_ids(out, ids, &n, err);
}

static ad_status
parse_list_view(const char *format, ad_type *out, ad_error *err)
{
    bool is_large = format[2] == 'L';
    if (!is_large && format[2] != 'l') {
        return fail_unknown(err, format);
    }
    if (format[3] != '\0') {
        return fail_format(err, format, "has text after its third letter");
    }
    set_nested(out, is_large ? AD_TYPE_LARGE_LIST_VIEW : AD_TYPE_LIST_VIEW,
               AD_LAYOUT_LIST_VIEW, 3, 1);
    out->wide_offsets = is_large;
    return AD_OK;
}

static ad_status
parse_nested(const char *format, ad_type *out, ad_error *err)
{
    switch (format[1]) {
        case 's':
            set_nested(out, AD_TYPE_STRUCT, AD_LAYOUT_VALIDITY, 1, -1);
            break;
        case 'l':
            set_nested(out, AD_TYPE_LIST, AD_LAYOUT_LIST, 2, 1);
            break;
        case 'L':
            set_nested(out, AD_TYPE_LARGE_LIST, AD_LAYOUT_LIST, 2, 1);
            out->wide_offsets = true;
            break;
        case 'm':
            set_nested(out, AD_TYPE_MAP, AD_LAYOUT_LIST, 2, 1);
            break;
        case 'r':
            set_nested(out, AD_TYPE_RUN_END, AD_LAYOUT_NONE, 0, 2);
            break;
        case 'w':
            return parse_fixed_list(format, out, err);
        case 'u':
            return parse_union(format, out, err);
        case 'v':
            return parse_list_view(format, out, err);
        default:
            return fail_unknown(err, format);
    }
    return format[2] == '\0'
               ? AD_OK
               : fail_format(err, format, "has text after its letter");
}

/* --- entry points ------------------------------------------------------- */

static ad_status
parse_long(const char *format, ad_type *out, ad_error *err)
{
    unsigned char first = (unsigned char)format[0];
    switch (first) {
        case '\0':
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "format string is empty");
        case 't':
            return parse_temporal(format, out, err);
        case '+':
            return parse_nested(format, out, err);
        case 'v':
            return parse_view(format, out, err);
        case 'w':
            return parse_fixed_binary(format, out, err);
        case 'd':
            return parse_decimal(format, out, err);
        default:
            if (first < 128 && letters[first].known) {
                return fail_format(err, format, "has text after its letter");
            }
            return fail_unknown(err, format);
    }
}

const ad_type *
ad_type_of_letter(const char *format)
{
    if (format == NULL || format[0] == '\0' || format[1] != '\0') {
        return NULL;
    }
    unsigned char first = (unsigned char)format[0];
    return first < 128 && letters[first].known ? &letters[first].type : NULL;
}

ad_status
ad_type_parse(const char *format, ad_type *out, ad_error *err)
{
    const ad_type *type = ad_type_of_letter(format);
    if (type != NULL) {
        *out = *type;
        return AD_OK;
    }
    if (format == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "format string is NULL");
    }
    return parse_long(format, out, err);
}

/* Stand for the width of the type and the width of its offsets. */
#define WIDTH 254
#define INDEX 255

int64_t
ad_type_row_bits(const ad_type *type, int64_t i)
{
    static const uint8_t layouts[][3] = {
        [AD_LAYOUT_NONE] = {0},
        [AD_LAYOUT_FIXED] = {1, WIDTH},
        [AD_LAYOUT_OFFSETS] = {1, INDEX},
        [AD_LAYOUT_VIEWS] = {1, 128},
        [AD_LAYOUT_LIST] = {1, INDEX},
        [AD_LAYOUT_LIST_VIEW] = {1, INDEX, INDEX},
        [AD_LAYOUT_VALIDITY] = {1},
        [AD_LAYOUT_SPARSE_UNION] = {8},
        [AD_LAYOUT_DENSE_UNION] = {8, 32},
    };
    int bits = i < 3 ? layouts[type->layout][i] : 0;
    if (bits == WIDTH) {
        return type->bit_width;
    }
    return bits != INDEX ? bits : type->wide_offsets ? 64 : 32;
}

bool
ad_type_same_width(const ad_type *a, const ad_type *b)
{
    return a->layout == AD_LAYOUT_FIXED && b->layout == AD_LAYOUT_FIXED &&
           a->bit_width == b->bit_width && a->bit_width > 0 &&
           a->bit_width % 8 == 0;
}

ad_status
ad_type_union_ids(const ad_type *type, int8_t ids[128], int *n, ad_error *err)
{
    const char *p = type->suffix;
    bool is_seen[128] = {false};
    int count = 0;
    if (p == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "only unions have type ids");
    }
    for (bool is_first = true; *p != '\0'; is_first = false) {
        int64_t id;
        if ((!is_first && !read_comma(&p)) || !read_count(&p, 127, &id)) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "union type ids \"%.80s\" are not numbers from 0 "
                           "to 127 separated by commas",
                           type->suffix);
        }
        if (is_seen[id]) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "union type ids \"%.80s\" contain %d twice",
                           type->suffix, (int)id);
        }
        is_seen[id] = true;
        ids[count++] = (int8_t)id;
    }
    *n = count;
    return AD_OK;
}
