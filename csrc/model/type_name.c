/* Names of types: read, and printed in pyarrow's notation. */
#include <string.h>

#include "model/extension.h"
#include "model/metadata.h"
#include "model/type.h"

#define TRY AD_RETURN_IF_ERR

static bool
is_text(const char *text, size_t length, const char *expected)
{
    return strlen(expected) == length && memcmp(text, expected, length) == 0;
}

/* --- names without parameters -------------------------------------------- */

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

/* The name of a valid format as ad_type_print() writes it, without parameters;
 * NULL for types without children that have parameters. */
static const char *
name_of_format(const char *format)
{
    size_t length = strcspn(format, ":");
    for (size_t i = 0; i < N_NAMES; i++) {
        if (is_text(format, length, names[i][1])) {
            return names[i][0];
        }
    }
    return NULL;
}

/* --- names with parameters ----------------------------------------------- */

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

/* --- a name as a format -------------------------------------------------- */

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

/* --- printing ------------------------------------------------------------ */

/* Deeper levels are printed as "...". */
#define MAX_PRINT_DEPTH 6

/* Further fields are printed as "..." too, and so is everything after this
 * length. Both bounds together limit the time that malicious trees take. */
#define MAX_PRINT_FIELDS 20
#define MAX_PRINT_LENGTH 8192

static ad_status print_node(const struct ArrowSchema *node, int depth,
                            ad_text *out, ad_error *err);

/* --- types without children ---------------------------------------------- */

static const char *
unit_name(char unit)
{
    return unit == 's' ? "s" : unit == 'm' ? "ms" : unit == 'u' ? "us" : "ns";
}

static ad_status
print_plain(const struct ArrowSchema *node, const ad_type *type, ad_text *out,
            ad_error *err)
{
    switch (type->id) {
        case AD_TYPE_FIXED_BINARY:
            return ad_text_printf(out, err, "fixed_size_binary[%d]",
                                  (int)type->bit_width / 8);
        case AD_TYPE_DECIMAL:
            return ad_text_printf(out, err, "decimal%d(%d, %d)",
                                  (int)type->bit_width, (int)type->precision,
                                  (int)type->scale);
        case AD_TYPE_TIME32:
        case AD_TYPE_TIME64:
            return ad_text_printf(out, err, "time%d[%s]", (int)type->bit_width,
                                  unit_name(type->unit));
        case AD_TYPE_DURATION:
            return ad_text_printf(out, err, "duration[%s]",
                                  unit_name(type->unit));
        case AD_TYPE_TIMESTAMP:
            if (type->suffix[0] == '\0') {
                return ad_text_printf(out, err, "timestamp[%s]",
                                      unit_name(type->unit));
            }
            return ad_text_printf(out, err, "timestamp[%s, tz=%s]",
                                  unit_name(type->unit), type->suffix);
        default:
            return ad_text_append(out, name_of_format(node->format), err);
    }
}

/* --- nested types -------------------------------------------------------- */

static bool
is_nullable(const struct ArrowSchema *node)
{
    return (node->flags & ARROW_FLAG_NULLABLE) != 0;
}

static ad_status
print_field(const struct ArrowSchema *field, int depth, ad_text *out,
            ad_error *err)
{
    TRY(ad_text_append(out, field->name != NULL ? field->name : "", err));
    TRY(ad_text_append(out, ": ", err));
    TRY(print_node(field, depth + 1, out, err));
    return is_nullable(field) ? AD_OK : ad_text_append(out, " not null", err);
}

/* `ids` are the type ids of a union, printed after its fields; NULL for other
 * types. */
static ad_status
print_fields(const struct ArrowSchema *node, const int8_t *ids, int depth,
             ad_text *out, ad_error *err)
{
    for (int64_t i = 0; i < node->n_children; i++) {
        if (i > 0) {
            TRY(ad_text_append(out, ", ", err));
        }
        if (i == MAX_PRINT_FIELDS || out->length > MAX_PRINT_LENGTH) {
            return ad_text_append(out, "...", err);
        }
        TRY(print_field(node->children[i], depth, out, err));
        if (ids != NULL) {
            TRY(ad_text_printf(out, err, "=%d", ids[i]));
        }
    }
    return AD_OK;
}

static ad_status
print_map(const struct ArrowSchema *node, int depth, ad_text *out,
          ad_error *err)
{
    const struct ArrowSchema *entries = node->children[0];
    TRY(ad_text_append(out, "map<", err));
    TRY(print_node(entries->children[0], depth + 1, out, err));
    TRY(ad_text_append(out, ", ", err));
    TRY(print_node(entries->children[1], depth + 1, out, err));
    if (!is_nullable(entries->children[1])) {
        TRY(ad_text_append(out, " not null", err));
    }
    bool is_sorted = (node->flags & ARROW_FLAG_MAP_KEYS_SORTED) != 0;
    return ad_text_append(out, is_sorted ? ", keys_sorted>" : ">", err);
}

static ad_status
print_run_end(const struct ArrowSchema *node, int depth, ad_text *out,
              ad_error *err)
{
    TRY(ad_text_append(out, "run_end_encoded<run_ends: ", err));
    TRY(print_node(node->children[0], depth + 1, out, err));
    TRY(ad_text_append(out, ", values: ", err));
    TRY(print_node(node->children[1], depth + 1, out, err));
    return ad_text_append(out, ">", err);
}

static ad_status
print_nested(const struct ArrowSchema *node, const ad_type *type, int depth,
             ad_text *out, ad_error *err)
{
    int8_t ids[128];
    int n;
    bool is_union =
        type->id == AD_TYPE_SPARSE_UNION || type->id == AD_TYPE_DENSE_UNION;
    if (type->id == AD_TYPE_MAP) {
        return print_map(node, depth, out, err);
    }
    if (type->id == AD_TYPE_RUN_END) {
        return print_run_end(node, depth, out, err);
    }
    if (is_union) {
        TRY(ad_type_union_ids(type, ids, &n, err));
    }
    TRY(ad_text_printf(out, err, "%s<", name_of_format(node->format)));
    TRY(print_fields(node, is_union ? ids : NULL, depth, out, err));
    TRY(ad_text_append(out, ">", err));
    return type->id != AD_TYPE_FIXED_LIST
               ? AD_OK
               : ad_text_printf(out, err, "[%lld]",
                                (long long)type->list_size);
}

static ad_status
print_dictionary(const struct ArrowSchema *node, const ad_type *type,
                 int depth, ad_text *out, ad_error *err)
{
    bool is_ordered = (node->flags & ARROW_FLAG_DICTIONARY_ORDERED) != 0;
    TRY(ad_text_append(out, "dictionary<values=", err));
    TRY(print_node(node->dictionary, depth + 1, out, err));
    TRY(ad_text_append(out, ", indices=", err));
    TRY(print_plain(node, type, out, err));
    return ad_text_append(out, is_ordered ? ", ordered=1>" : ", ordered=0>",
                          err);
}

static ad_status
print_storage(const struct ArrowSchema *node, int depth, ad_text *out,
              ad_error *err)
{
    ad_type type;
    TRY(ad_type_parse(node->format, &type, err));
    if (node->dictionary != NULL) {
        return print_dictionary(node, &type, depth, out, err);
    }
    if (type.n_children == 0) {
        return print_plain(node, &type, out, err);
    }
    return print_nested(node, &type, depth, out, err);
}

/* --- extensions ---------------------------------------------------------- */

static ad_status
print_tensor(const struct ArrowSchema *node, const ad_extension *tensor,
             int depth, ad_text *out, ad_error *err)
{
    bool is_permuted = false;
    TRY(ad_text_append(out, "arrow.fixed_shape_tensor[value_type=", err));
    TRY(print_node(node->children[0], depth + 1, out, err));
    TRY(ad_text_append(out, ", shape=[", err));
    for (int32_t i = 0; i < tensor->ndim; i++) {
        TRY(ad_text_printf(out, err, "%s%lld", i > 0 ? "," : "",
                           (long long)tensor->shape[i]));
        is_permuted = is_permuted || tensor->permutation[i] != i;
    }
    TRY(ad_text_append(out, "]", err));
    if (is_permuted) {
        for (int32_t i = 0; i < tensor->ndim; i++) {
            TRY(ad_text_printf(out, err, "%s%d",
                               i > 0 ? "," : ", permutation=[",
                               (int)tensor->permutation[i]));
        }
        TRY(ad_text_append(out, "]", err));
    }
    return ad_text_append(out, "]", err);
}

static ad_status
print_extension(const struct ArrowSchema *node, const ad_metadata_pair *name,
                int depth, ad_text *out, ad_error *err)
{
    char buffer[AD_DTYPE_NAME_SIZE];
    ad_extension extension;
    /* A broken extension is reported when it is used; its storage can be
     * printed in any case. */
    if (ad_extension_read(node, &extension, NULL) != AD_OK) {
        extension.kind = AD_EXTENSION_OTHER;
    }
    TRY(ad_text_append(out, "extension<", err));
    switch (extension.kind) {
        case AD_EXTENSION_BOOL8:
            TRY(ad_text_append(out, "arrow.bool8", err));
            break;
        case AD_EXTENSION_FIXED_SHAPE_TENSOR:
            TRY(print_tensor(node, &extension, depth, out, err));
            break;
        case AD_EXTENSION_DLPACK:
            TRY(ad_text_printf(out, err, "arrowdev.dlpack[%s]",
                               ad_dtype_format(extension.dtype, buffer)));
            break;
        default:
            TRY(ad_text_append_n(out, name->value, (size_t)name->value_length,
                                 err));
            TRY(ad_text_append(out, ": ", err));
            TRY(print_storage(node, depth, out, err));
            break;
    }
    return ad_text_append(out, ">", err);
}

static ad_status
print_node(const struct ArrowSchema *node, int depth, ad_text *out,
           ad_error *err)
{
    ad_metadata_pair name;
    bool found;
    if (depth > MAX_PRINT_DEPTH || out->length > MAX_PRINT_LENGTH) {
        return ad_text_append(out, "...", err);
    }
    if (ad_metadata_find(node->metadata, AD_EXTENSION_NAME_KEY, &name, &found,
                         NULL) == AD_OK &&
        found) {
        return print_extension(node, &name, depth, out, err);
    }
    return print_storage(node, depth, out, err);
}

ad_status
ad_type_print(const struct ArrowSchema *node, ad_text *out, ad_error *err)
{
    return print_node(node, 1, out, err);
}

void
ad_type_error_dtype(const struct ArrowSchema *node, ad_error *err)
{
    ad_text text = {0};
    /* The name is only part of a message, and is left out if there is no
     * memory. */
    if (err != NULL && ad_type_print(node, &text, NULL) == AD_OK) {
        ad_error_dtype(err, ad_text_string(&text));
    }
    ad_text_clear(&text);
}
