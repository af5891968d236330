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
        .id = AD_TYPE_##ID, .layout = AD_LAYOUT_FIXED, .n_buffers = 2,        \
        .has_validity = true, .bit_width = (BITS)                             \
    }
#define OFFSETS(ID, WIDE)                                                     \
    {                                                                         \
        .id = AD_TYPE_##ID, .layout = AD_LAYOUT_OFFSETS, .n_buffers = 3,      \
        .has_validity = true, .wide_offsets = (WIDE)                          \
    }
#define VIEWS(ID)                                                             \
    {                                                                         \
        .id = AD_TYPE_##ID, .layout = AD_LAYOUT_VIEWS, .n_buffers = 3,        \
        .has_validity = true                                                  \
    }
#define NESTED(ID, LAYOUT, BUFFERS, CHILDREN, WIDE)                           \
    {                                                                         \
        .id = AD_TYPE_##ID, .layout = AD_LAYOUT_##LAYOUT,                     \
        .n_buffers = (BUFFERS), .has_validity = (BUFFERS) > 0,                \
        .n_children = (CHILDREN), .wide_offsets = (WIDE)                      \
    }

/* The one-letter formats, which are nearly all that occur in practice. */
static const letter letters[128] = {
    ['n'] = {true, {.id = AD_TYPE_NULL, .layout = AD_LAYOUT_NONE}},
    ['b'] = {true, FIXED(BOOL, 1)},
    ['c'] = {true, FIXED(INT8, 8)},
    ['C'] = {true, FIXED(UINT8, 8)},
    ['s'] = {true, FIXED(INT16, 16)},
    ['S'] = {true, FIXED(UINT16, 16)},
    ['i'] = {true, FIXED(INT32, 32)},
    ['I'] = {true, FIXED(UINT32, 32)},
    ['l'] = {true, FIXED(INT64, 64)},
    ['L'] = {true, FIXED(UINT64, 64)},
    ['e'] = {true, FIXED(FLOAT16, 16)},
    ['f'] = {true, FIXED(FLOAT32, 32)},
    ['g'] = {true, FIXED(FLOAT64, 64)},
    ['z'] = {true, OFFSETS(BINARY, false)},
    ['Z'] = {true, OFFSETS(LARGE_BINARY, true)},
    ['u'] = {true, OFFSETS(UTF8, false)},
    ['U'] = {true, OFFSETS(LARGE_UTF8, true)},
};

/* The other formats without parameters, of two or three letters. */
static const struct {
    char text[4];
    ad_type type;
} words[] = {
    {"+s", NESTED(STRUCT, VALIDITY, 1, -1, false)},
    {"+l", NESTED(LIST, LIST, 2, 1, false)},
    {"+L", NESTED(LARGE_LIST, LIST, 2, 1, true)},
    {"+m", NESTED(MAP, LIST, 2, 1, false)},
    {"+r", NESTED(RUN_END, NONE, 0, 2, false)},
    {"+vl", NESTED(LIST_VIEW, LIST_VIEW, 3, 1, false)},
    {"+vL", NESTED(LARGE_LIST_VIEW, LIST_VIEW, 3, 1, true)},
    {"vu", VIEWS(UTF8_VIEW)},
    {"vz", VIEWS(BINARY_VIEW)},
    {"tdD", FIXED(DATE32, 32)},
    {"tdm", FIXED(DATE64, 64)},
    {"tts", FIXED(TIME32, 32)},
    {"ttm", FIXED(TIME32, 32)},
    {"ttu", FIXED(TIME64, 64)},
    {"ttn", FIXED(TIME64, 64)},
    {"tDs", FIXED(DURATION, 64)},
    {"tDm", FIXED(DURATION, 64)},
    {"tDu", FIXED(DURATION, 64)},
    {"tDn", FIXED(DURATION, 64)},
    {"tiM", FIXED(INTERVAL_MONTHS, 32)},
    {"tiD", FIXED(INTERVAL_DAYS, 64)},
    {"tin", FIXED(INTERVAL_MONTH_DAY_NANO, 128)},
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
    ad_status status =
        fail_format(err, format, "is not known to the Arrow C data interface");
    if (strncmp(format, "_pl", 3) == 0) {
        ad_error_hint(err, "it is a type of polars alone: cast it there, as "
                           "in x.cast(polars.Decimal(38, 0))");
    }
    return status;
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

static ad_status
parse_timestamp(const char *format, ad_type *out, ad_error *err)
{
    if (format[2] == '\0' || strchr("smun", format[2]) == NULL) {
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

/* --- entry points ------------------------------------------------------- */

static bool
is_word(const char *format, const char *text)
{
    return format[0] == text[0] && format[1] == text[1] &&
           (text[2] == '\0' || format[2] == text[2]);
}

static ad_status
parse_word(const char *format, ad_type *out, ad_error *err)
{
    size_t i = 0;
    while (i < sizeof(words) / sizeof(words[0]) &&
           !is_word(format, words[i].text)) {
        i++;
    }
    if (i == sizeof(words) / sizeof(words[0])) {
        return fail_unknown(err, format);
    }
    *out = words[i].type;
    if (out->id == AD_TYPE_TIME32 || out->id == AD_TYPE_TIME64 ||
        out->id == AD_TYPE_DURATION) {
        out->unit = format[2];
    }
    return format[words[i].text[2] == '\0' ? 2 : 3] == '\0'
               ? AD_OK
               : fail_format(err, format, "has text after its last letter");
}

static ad_status
parse_long(const char *format, ad_type *out, ad_error *err)
{
    unsigned char first = (unsigned char)format[0];
    switch (first) {
        case '\0':
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "format string is empty");
        case 't':
            return format[1] == 's' ? parse_timestamp(format, out, err)
                                    : parse_word(format, out, err);
        case '+':
            return format[1] == 'w'   ? parse_fixed_list(format, out, err)
                   : format[1] == 'u' ? parse_union(format, out, err)
                                      : parse_word(format, out, err);
        case 'v':
            return parse_word(format, out, err);
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
