/* Names of types: read, and printed in pyarrow's notation. */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "model/extension.h"
#include "model/metadata.h"
#include "model/schema.h"
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

#define NESTED_HINT                                                           \
    "name them, as in \"list<int32>\" and \"struct<a: int32, b: utf8>\", or " \
    "pass an object with __arrow_c_schema__, such as a pyarrow type"

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
    if (is_text(name, length, "extension")) {
        return ad_fail(
            err, AD_ERR_VALUE, NULL,
            "pass an object with __arrow_c_schema__, such as a "
            "pyarrow type",
            "an extension type cannot be given by name, which lacks "
            "its metadata");
    }
    if (format != NULL && format[0] == '+') {
        return ad_fail(err, AD_ERR_VALUE, NULL, NESTED_HINT,
                       "nested type \"%.80s\" lacks the types of its children",
                       name);
    }
    return ad_fail(
        err, AD_ERR_VALUE, NULL,
        "examples of names are \"int32\", \"timestamp[us, UTC]\" and "
        "\"list<utf8>\"; an Arrow format string, or an object with "
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
        return ad_fail(err, AD_ERR_VALUE, NULL, NESTED_HINT,
                       "format string \"%.80s\" does not contain the types of "
                       "the children",
                       name);
    }
    return ad_text_append(out, name, err);
}

/* Writes the format string of a type without children. A format string is
 * taken as it is. */
static ad_status
format_from_name(const char *name, ad_text *out, ad_error *err)
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

/* --- a name as a schema -------------------------------------------------- */

typedef struct reader {
    const char *whole; /* for messages */
    const char *at;
    int depth;
} reader;

/* A node while it is read. */
typedef struct node {
    const char *format; /* without parameters; borrowed */
    ad_text parameters; /* appended to the format */
    ad_text name;
    int64_t flags;
    AD_LIST(ad_schema) children;
    ad_schema dictionary;
} node;

static ad_status read_type(reader *self, node *out, ad_error *err);

static void
node_clear(node *self)
{
    for (size_t i = 0; i < self->children.n; i++) {
        ad_schema_unref(self->children.items[i]);
    }
    free(self->children.items);
    ad_text_clear(&self->parameters);
    ad_text_clear(&self->name);
    ad_schema_unref(self->dictionary);
}

static ad_status
node_build(const node *self, ad_schema *out, ad_error *err)
{
    ad_text format = {0};
    ad_status status = ad_text_printf(&format, err, "%s%s", self->format,
                                      ad_text_string(&self->parameters));
    if (status == AD_OK) {
        const ad_schema_spec spec = {
            .format = ad_text_string(&format),
            .name = ad_text_string(&self->name),
            .flags = self->flags,
            .n_children = (int64_t)self->children.n,
            .children = self->children.items,
            .dictionary =
                self->dictionary.node != NULL ? &self->dictionary : NULL,
        };
        status = ad_schema_build(&spec, out, err);
    }
    ad_text_clear(&format);
    return status;
}

/* Makes a child of *child, which is cleared. */
static ad_status
add_child(node *self, node *child, ad_error *err)
{
    ad_status status = ad_list_reserve(&self->children, 1, err);
    if (status == AD_OK) {
        status =
            node_build(child, &self->children.items[self->children.n], err);
    }
    self->children.n += status == AD_OK;
    node_clear(child);
    return status;
}

static ad_status
expected(const reader *self, const char *what, ad_error *err)
{
    return *self->at == '\0'
               ? ad_fail(err, AD_ERR_VALUE, NULL, NESTED_HINT,
                         "expected %s at the end of the type name \"%.80s\"",
                         what, self->whole)
               : ad_fail(err, AD_ERR_VALUE, NULL, NESTED_HINT,
                         "expected %s before \"%.24s\" in the type name "
                         "\"%.80s\"",
                         what, self->at, self->whole);
}

static void
skip_blanks(reader *self)
{
    self->at += strspn(self->at, " ");
}

static bool
take(reader *self, const char *text)
{
    skip_blanks(self);
    size_t length = strlen(text);
    bool is_there = strncmp(self->at, text, length) == 0;
    self->at += is_there ? length : 0;
    return is_there;
}

static ad_status
take_or_fail(reader *self, const char *text, const char *quoted, ad_error *err)
{
    return take(self, text) ? AD_OK : expected(self, quoted, err);
}

/* The length up to the first of `ends` that is not within brackets. */
static size_t
length_before(const char *text, const char *ends)
{
    int depth = 0;
    size_t i = 0;
    for (; text[i] != '\0' && (depth > 0 || strchr(ends, text[i]) == NULL);
         i++) {
        depth += (text[i] == '[' || text[i] == '(') -
                 (text[i] == ']' || text[i] == ')');
    }
    return i;
}

/* Reads "name:" before a type, if there is one. */
static ad_status
read_name(reader *self, node *out, bool *found, ad_error *err)
{
    skip_blanks(self);
    size_t length = length_before(self->at, ":,<>");
    *found = self->at[length] == ':';
    if (!*found) {
        return AD_OK;
    }
    const char *name = self->at;
    self->at += length + 1;
    strip(&name, &length);
    return ad_text_append_n(&out->name, name, length, err);
}

/* A type within brackets, with the name before it or else `name`. NULL: there
 * must be a name. */
static ad_status
read_child(reader *self, node *parent, const char *name, bool is_nullable,
           ad_error *err)
{
    node child = {0};
    bool is_named = false;
    ad_status status = read_name(self, &child, &is_named, err);
    if (status == AD_OK && !is_named) {
        status = name != NULL ? ad_text_append(&child.name, name, err)
                              : expected(self, "\"name: type\"", err);
    }
    if (status == AD_OK) {
        status = read_type(self, &child, err);
    }
    if (status != AD_OK) {
        node_clear(&child);
        return status;
    }
    if (!is_nullable) {
        child.flags &= ~(int64_t)ARROW_FLAG_NULLABLE;
    }
    return add_child(parent, &child, err);
}

/* The id of a union's field: "=5" after it, else its position. */
static ad_status
read_id(reader *self, node *out, ad_error *err)
{
    size_t n = out->children.n - 1;
    TRY(ad_text_append(&out->parameters, n > 0 ? "," : ":", err));
    if (!take(self, "=")) {
        return ad_text_printf(&out->parameters, err, "%zu", n);
    }
    size_t length = strspn(self->at, "0123456789");
    self->at += length;
    return length > 0 ? ad_text_append_n(&out->parameters, self->at - length,
                                         length, err)
                      : expected(self, "a type id", err);
}

/* Fields up to ">". */
static ad_status
read_fields(reader *self, node *out, bool have_ids, ad_error *err)
{
    if (take(self, ">")) {
        return have_ids ? ad_text_append(&out->parameters, ":", err) : AD_OK;
    }
    do {
        TRY(read_child(self, out, NULL, true, err));
        if (have_ids) {
            TRY(read_id(self, out, err));
        }
    } while (take(self, ","));
    return take_or_fail(self, ">", "\",\" or \">\"", err);
}

static ad_status
read_list(reader *self, node *out, ad_error *err)
{
    TRY(read_child(self, out, "item", true, err));
    TRY(take_or_fail(self, ">", "\">\"", err));
    if (strcmp(out->format, "+w") != 0) {
        return AD_OK;
    }
    TRY(take_or_fail(self, "[", "the size, as in \"[2]\",", err));
    size_t length = strcspn(self->at, "]");
    TRY(ad_text_append(&out->parameters, ":", err));
    TRY(ad_text_append_n(&out->parameters, self->at, length, err));
    self->at += length;
    return take_or_fail(self, "]", "\"]\"", err);
}

static ad_status
read_map(reader *self, node *out, ad_error *err)
{
    node entries = {.format = "+s"};
    ad_status status = ad_text_append(&entries.name, "entries", err);
    if (status == AD_OK) {
        status = read_child(self, &entries, "key", false, err);
    }
    if (status == AD_OK) {
        status = take_or_fail(self, ",", "\",\" and a type", err);
    }
    if (status == AD_OK) {
        status = read_child(self, &entries, "value", true, err);
    }
    if (status != AD_OK) {
        node_clear(&entries);
        return status;
    }
    TRY(add_child(out, &entries, err));
    if (take(self, ",")) {
        TRY(take_or_fail(self, "keys_sorted", "\"keys_sorted\"", err));
        out->flags |= ARROW_FLAG_MAP_KEYS_SORTED;
    }
    return take_or_fail(self, ">", "\">\"", err);
}

static ad_status
read_run_ends(reader *self, node *out, ad_error *err)
{
    TRY(read_child(self, out, "run_ends", false, err));
    TRY(take_or_fail(self, ",", "\",\" and a type", err));
    TRY(read_child(self, out, "values", true, err));
    return take_or_fail(self, ">", "\">\"", err);
}

/* The node becomes that of the indices. */
static ad_status
read_dictionary(reader *self, node *out, ad_error *err)
{
    node values = {0};
    TRY(take_or_fail(self, "values=", "\"values=\"", err));
    ad_status status = read_type(self, &values, err);
    if (status == AD_OK) {
        status = node_build(&values, &out->dictionary, err);
    }
    node_clear(&values);
    TRY(status);
    TRY(take_or_fail(self, ",", "\", indices=\"", err));
    TRY(take_or_fail(self, "indices=", "\"indices=\"", err));
    if (self->at[strcspn(self->at, ",<>")] == '<') {
        return expected(self, "the name of an integer type", err);
    }
    TRY(read_type(self, out, err));
    if (take(self, ",")) {
        TRY(take_or_fail(self, "ordered=", "\"ordered=\"", err));
        if (take(self, "1")) {
            out->flags |= ARROW_FLAG_DICTIONARY_ORDERED;
        } else {
            TRY(take_or_fail(self, "0", "0 or 1", err));
        }
    }
    return take_or_fail(self, ">", "\">\"", err);
}

/* A type without children ends where that around it goes on. */
static ad_status
read_leaf(reader *self, node *out, ad_error *err)
{
    static const char not_null[] = " not null";
    const size_t suffix = sizeof(not_null) - 1;
    const char *text = self->at;
    size_t length =
        self->depth > 0 ? length_before(text, ",>=") : strlen(text);
    if (self->depth > 0 && length == 0) {
        return expected(self, "a type", err);
    }
    self->at += length;
    strip(&text, &length);
    if (length > suffix && is_text(text + length - suffix, suffix, not_null)) {
        length -= suffix;
        out->flags &= ~(int64_t)ARROW_FLAG_NULLABLE;
    }
    ad_text name = {0};
    ad_status status = ad_text_append_n(&name, text, length, err);
    if (status == AD_OK) {
        status =
            format_from_name(ad_text_string(&name), &out->parameters, err);
    }
    ad_text_clear(&name);
    return status;
}

static ad_status
read_nested(reader *self, size_t length, node *out, ad_error *err)
{
    const char *format = find_format(self->at, length);
    bool is_nested = format != NULL && format[0] == '+';
    if (!is_nested || is_text(self->at, length, "extension")) {
        return unknown_name(self->at, err);
    }
    if (self->depth == AD_MAX_DEPTH) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "type name \"%.80s\" is nested deeper than %d levels",
                       self->whole, AD_MAX_DEPTH);
    }
    self->at += length + 1;
    if (strcmp(format, "+") == 0) {
        return read_dictionary(self, out, err);
    }
    out->format = format;
    switch (format[1]) {
        case 's':
            return read_fields(self, out, false, err);
        case 'u':
            return read_fields(self, out, true, err);
        case 'm':
            return read_map(self, out, err);
        case 'r':
            return read_run_ends(self, out, err);
        default:
            return read_list(self, out, err);
    }
}

static ad_status
read_type(reader *self, node *out, ad_error *err)
{
    skip_blanks(self);
    size_t length = strspn(self->at, "abcdefghijklmnopqrstuvwxyz_");
    out->format = "";
    out->flags = ARROW_FLAG_NULLABLE;
    if (self->at[length] != '<') {
        return read_leaf(self, out, err);
    }
    self->depth++;
    TRY(read_nested(self, length, out, err));
    self->depth--;
    if (take(self, "not null")) {
        out->flags &= ~(int64_t)ARROW_FLAG_NULLABLE;
    }
    return AD_OK;
}

ad_status
ad_schema_from_name(const char *name, ad_schema *out, ad_error *err)
{
    reader self = {.whole = name, .at = name};
    node root = {0};
    *out = (ad_schema){0};
    ad_status status = read_type(&self, &root, err);
    if (status == AD_OK && *self.at != '\0') {
        skip_blanks(&self);
        status = *self.at == '\0' ? AD_OK : expected(&self, "the end", err);
    }
    bool is_leaf = root.format[0] == '\0' && root.dictionary.node == NULL;
    if (status == AD_OK && is_leaf &&
        (root.flags & ARROW_FLAG_NULLABLE) != 0) {
        *out = ad_schema_primitive(ad_text_string(&root.parameters));
    }
    if (status == AD_OK && out->node == NULL) {
        status = node_build(&root, out, err);
    }
    if (status == AD_OK) {
        status = ad_schema_validate(out->node, err);
    }
    if (status != AD_OK) {
        ad_schema_unref(*out);
        *out = (ad_schema){0};
    }
    node_clear(&root);
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

const char *
ad_type_unit_name(char unit)
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
                                  ad_type_unit_name(type->unit));
        case AD_TYPE_DURATION:
            return ad_text_printf(out, err, "duration[%s]",
                                  ad_type_unit_name(type->unit));
        case AD_TYPE_TIMESTAMP:
            if (type->suffix[0] == '\0') {
                return ad_text_printf(out, err, "timestamp[%s]",
                                      ad_type_unit_name(type->unit));
            }
            return ad_text_printf(out, err, "timestamp[%s, tz=%s]",
                                  ad_type_unit_name(type->unit), type->suffix);
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
