#include <string.h>

#include "model/type.h"

#define TRY AD_RETURN_IF_ERR

static bool
is_text(const char *text, size_t length, const char *expected)
{
    return strlen(expected) == length && memcmp(text, expected, length) == 0;
}

/* --- names without parameters ------------------------------------------- */

/* Names and formats, up to the parameters. The first name of a format is the
 * one that is printed: pyarrow's, but a tensor's for floating point, and Arrow
 * C++'s for the first two intervals, which pyarrow does not name. */
static const char *const names[][2] = {
    {"null", "n"},
    {"na", "n"},
    {"bool", "b"},
    {"boolean", "b"},
    {"int8", "c"},
    {"uint8", "C"},
    {"int16", "s"},
    {"uint16", "S"},
    {"int32", "i"},
    {"uint32", "I"},
    {"int64", "l"},
    {"uint64", "L"},
    {"float16", "e"},
    {"halffloat", "e"},
    {"half_float", "e"},
    {"half", "e"},
    {"float32", "f"},
    {"float", "f"},
    {"float64", "g"},
    {"double", "g"},
    {"binary", "z"},
    {"bytes", "z"},
    {"large_binary", "Z"},
    {"binary_view", "vz"},
    {"string", "u"},
    {"utf8", "u"},
    {"str", "u"},
    {"large_string", "U"},
    {"large_utf8", "U"},
    {"string_view", "vu"},
    {"utf8_view", "vu"},
    {"date32[day]", "tdD"},
    {"date32", "tdD"},
    {"date64[ms]", "tdm"},
    {"date64", "tdm"},
    {"month_interval", "tiM"},
    {"interval_months", "tiM"},
    {"day_time_interval", "tiD"},
    {"interval_day_time", "tiD"},
    {"month_day_nano_interval", "tin"},
    {"interval_month_day_nano", "tin"},
    {"list", "+l"},
    {"large_list", "+L"},
    {"list_view", "+vl"},
    {"large_list_view", "+vL"},
    {"fixed_size_list", "+w"},
    {"struct", "+s"},
    {"map", "+m"},
    {"sparse_union", "+us"},
    {"dense_union", "+ud"},
    {"run_end_encoded", "+r"},
    {"dictionary", "+"},
    {"extension", "+"},
};

#define N_NAMES (sizeof(names) / sizeof(names[0]))

/* The format of the first `length` bytes of `name`, or NULL. */
static const char *
find_format(const char *name, size_t length)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (is_text(name, length, names[i][0])) {
            return names[i][1];
        }
    }
    return NULL;
}

const char *
ad_type_name_of_format(const char *format)
{
    size_t length = strcspn(format, ":");
    for (size_t i = 0; i < N_NAMES; i++) {
        if (is_text(format, length, names[i][1])) {
            return names[i][0];
        }
    }
    return NULL;
}

/* --- names with parameters ---------------------------------------------- */

/* The parts of "timestamp[us, UTC]", without blanks at their ends. */
typedef struct parts {
    const char *base;
    size_t base_length;
    const char *first;
    size_t first_length;
    const char *second; /* NULL if there is only one parameter */
    size_t second_length;
} parts;

static void
strip(const char **text, size_t *length)
{
    while (*length > 0 && **text == ' ') {
        (*text)++;
        (*length)--;
    }
    while (*length > 0 && (*text)[*length - 1] == ' ') {
        (*length)--;
    }
}

static bool
split(const char *name, parts *out)
{
    *out = (parts){.base = name, .base_length = strcspn(name, "[(")};
    size_t length = strlen(name);
    if (out->base_length == length ||
        name[length - 1] != (name[out->base_length] == '[' ? ']' : ')')) {
        return false;
    }
    out->first = name + out->base_length + 1;
    out->first_length = length - out->base_length - 2;
    const char *comma = memchr(out->first, ',', out->first_length);
    if (comma != NULL) {
        out->second = comma + 1;
        out->second_length =
            (size_t)(out->first + out->first_length - out->second);
        out->first_length = (size_t)(comma - out->first);
        strip(&out->second, &out->second_length);
    }
    strip(&out->base, &out->base_length);
    strip(&out->first, &out->first_length);
    return true;
}

static bool
has_base(const parts *name, const char *expected)
{
    return is_text(name->base, name->base_length, expected);
}

/* The letter of a unit; NUL for any other text. */
static char
unit_letter(const parts *name)
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    for (int i = 0; i < 4; i++) {
        if (is_text(name->first, name->first_length, units[i])) {
            return units[i][0];
        }
    }
    return '\0';
}

/* Writes the format for the name. Numbers and units may be invalid:
 * ad_type_parse checks them afterwards. Writes nothing for an unknown base
 * name. */
static ad_status
write_decimal(const parts *name, ad_text *out, ad_error *err)
{
    static const char *const bases[] = {"decimal", "decimal32", "decimal64",
                                        "decimal128", "decimal256"};
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        if (!has_base(name, bases[i])) {
            continue;
        }
        const char *width = bases[i] + strlen("decimal");
        bool is_default = *width == '\0' || strcmp(width, "128") == 0;
        TRY(ad_text_append(out, "d:", err));
        TRY(ad_text_append_n(out, name->first, name->first_length, err));
        TRY(ad_text_append(out, ",", err));
        if (name->second == NULL) {
            TRY(ad_text_append(out, "0", err));
        } else {
            TRY(ad_text_append_n(out, name->second, name->second_length, err));
        }
        return is_default ? AD_OK : ad_text_printf(out, err, ",%s", width);
    }
    return AD_OK;
}

static ad_status
write_timestamp(const parts *name, ad_text *out, ad_error *err)
{
    const char *zone = name->second;
    size_t length = name->second_length;
    if (zone != NULL && length >= 3 && memcmp(zone, "tz=", 3) == 0) {
        zone += 3;
        length -= 3;
    }
    char letter = unit_letter(name);
    TRY(ad_text_printf(out, err, "ts%c:", letter != '\0' ? letter : '?'));
    return zone != NULL ? ad_text_append_n(out, zone, length, err) : AD_OK;
}

static ad_status
write_format(const parts *name, ad_text *out, ad_error *err)
{
    char letter = unit_letter(name);
    if (has_base(name, "timestamp")) {
        return write_timestamp(name, out, err);
    }
    TRY(write_decimal(name, out, err));
    if (out->length > 0 || name->second != NULL) {
        return AD_OK;
    }
    if (has_base(name, "fixed_size_binary") || has_base(name, "binary")) {
        TRY(ad_text_append(out, "w:", err));
        return ad_text_append_n(out, name->first, name->first_length, err);
    }
    if (has_base(name, "duration") && letter != '\0') {
        return ad_text_printf(out, err, "tD%c", letter);
    }
    if ((has_base(name, "time32") && (letter == 's' || letter == 'm')) ||
        (has_base(name, "time64") && (letter == 'u' || letter == 'n'))) {
        return ad_text_printf(out, err, "tt%c", letter);
    }
    return AD_OK;
}

/* --- entry point -------------------------------------------------------- */

static ad_status
unknown_name(const char *name, ad_error *err)
{
    size_t length = strcspn(name, "<[( ");
    if (strcmp(name, "int") == 0 || strcmp(name, "uint") == 0) {
        return ad_fail(
            err, AD_ERR_VALUE, NULL,
            "give the number of bits, as in \"int32\" or \"uint64\"",
            "type name \"%s\" is ambiguous", name);
    }
    const char *format = find_format(name, length);
    if (format != NULL && format[0] == '+') {
        return ad_fail(err, AD_ERR_VALUE, NULL,
                       "pass an object with __arrow_c_schema__, such as a "
                       "pyarrow type",
                       "nested type \"%.80s\" cannot be given by name", name);
    }
    return ad_fail(
        err, AD_ERR_VALUE, NULL,
        "examples of names are \"int32\" and \"timestamp[us, UTC]\"; "
        "an Arrow format string, or an object with "
        "__arrow_c_schema__, works too",
        "type name \"%.80s\" is not known", name);
}

/* Accepts a text that is itself a format string. */
static ad_status
take_format(const char *name, ad_text *out, ad_error *err)
{
    ad_type type;
    if (ad_type_parse(name, &type, NULL) != AD_OK) {
        return unknown_name(name, err);
    }
    if (type.n_children != 0) {
        return ad_fail(err, AD_ERR_VALUE, NULL,
                       "pass an object with __arrow_c_schema__, such as a "
                       "pyarrow type",
                       "format string \"%.80s\" does not contain the types of "
                       "the children",
                       name);
    }
    return ad_text_append(out, name, err);
}

ad_status
ad_type_format_from_name(const char *name, ad_text *out, ad_error *err)
{
    ad_text format = {0};
    parts pieces;
    ad_type type;
    const char *found = find_format(name, strlen(name));
    if (found != NULL && found[0] != '+') {
        return ad_text_append(out, found, err);
    }
    if (!split(name, &pieces)) {
        return take_format(name, out, err);
    }
    ad_status status = write_format(&pieces, &format, err);
    if (status == AD_OK && format.length == 0) {
        status = take_format(name, out, err);
    } else if (status == AD_OK) {
        status = ad_type_parse(format.data, &type, NULL) == AD_OK
                     ? ad_text_append(out, format.data, err)
                     : unknown_name(name, err);
    }
    ad_text_clear(&format);
    return status;
}
