#include <string.h>

#include "model/extension.h"
#include "model/metadata.h"
#include "model/type.h"

/* Deeper levels are printed as "...". */
#define MAX_PRINT_DEPTH 6

/* Further fields are printed as "..." too, and so is everything after this
 * length. Both bounds together limit the time that malicious trees take. */
#define MAX_PRINT_FIELDS 20
#define MAX_PRINT_LENGTH 8192

#define TRY AD_RETURN_IF_ERR

static ad_status print_node(const struct ArrowSchema *node, int depth,
                            ad_text *out, ad_error *err);

/* --- types without children --------------------------------------------- */

/* Names in pyarrow's spelling. pyarrow has no names for the first two
 * intervals, so theirs are from Arrow C++. NULL: the type has parameters or
 * children. */
static const char *const plain_names[] = {
    [AD_TYPE_NULL] = "null",
    [AD_TYPE_BOOL] = "bool",
    [AD_TYPE_INT8] = "int8",
    [AD_TYPE_UINT8] = "uint8",
    [AD_TYPE_INT16] = "int16",
    [AD_TYPE_UINT16] = "uint16",
    [AD_TYPE_INT32] = "int32",
    [AD_TYPE_UINT32] = "uint32",
    [AD_TYPE_INT64] = "int64",
    [AD_TYPE_UINT64] = "uint64",
    [AD_TYPE_FLOAT16] = "halffloat",
    [AD_TYPE_FLOAT32] = "float",
    [AD_TYPE_FLOAT64] = "double",
    [AD_TYPE_BINARY] = "binary",
    [AD_TYPE_LARGE_BINARY] = "large_binary",
    [AD_TYPE_UTF8] = "string",
    [AD_TYPE_LARGE_UTF8] = "large_string",
    [AD_TYPE_BINARY_VIEW] = "binary_view",
    [AD_TYPE_UTF8_VIEW] = "string_view",
    [AD_TYPE_DATE32] = "date32[day]",
    [AD_TYPE_DATE64] = "date64[ms]",
    [AD_TYPE_INTERVAL_MONTHS] = "month_interval",
    [AD_TYPE_INTERVAL_DAYS] = "day_time_interval",
    [AD_TYPE_INTERVAL_MONTH_DAY_NANO] = "month_day_nano_interval",
    [AD_TYPE_RUN_END] = NULL,
};

static const char *
unit_name(char unit)
{
    return unit == 's' ? "s" : unit == 'm' ? "ms" : unit == 'u' ? "us" : "ns";
}

static ad_status
print_plain(const ad_type *type, ad_text *out, ad_error *err)
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
            return ad_text_append(out, plain_names[type->id], err);
    }
}

/* --- nested types ------------------------------------------------------- */

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
        if (i == MAX_PRINT_FIELDS) {
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
print_union(const struct ArrowSchema *node, const ad_type *type, int depth,
            ad_text *out, ad_error *err)
{
    int8_t ids[128];
    int n;
    TRY(ad_type_union_ids(type, ids, &n, err));
    TRY(ad_text_append(out,
                       type->id == AD_TYPE_DENSE_UNION ? "dense_union<"
                                                       : "sparse_union<",
                       err));
    TRY(print_fields(node, ids, depth, out, err));
    return ad_text_append(out, ">", err);
}

static const char *
nested_name(ad_type_id id)
{
    switch (id) {
        case AD_TYPE_LIST:
            return "list<";
        case AD_TYPE_LARGE_LIST:
            return "large_list<";
        case AD_TYPE_LIST_VIEW:
            return "list_view<";
        case AD_TYPE_LARGE_LIST_VIEW:
            return "large_list_view<";
        case AD_TYPE_FIXED_LIST:
            return "fixed_size_list<";
        default:
            return "struct<";
    }
}

static ad_status
print_nested(const struct ArrowSchema *node, const ad_type *type, int depth,
             ad_text *out, ad_error *err)
{
    switch (type->id) {
        case AD_TYPE_MAP:
            return print_map(node, depth, out, err);
        case AD_TYPE_RUN_END:
            return print_run_end(node, depth, out, err);
        case AD_TYPE_SPARSE_UNION:
        case AD_TYPE_DENSE_UNION:
            return print_union(node, type, depth, out, err);
        default:
            TRY(ad_text_append(out, nested_name(type->id), err));
            TRY(print_fields(node, NULL, depth, out, err));
            TRY(ad_text_append(out, ">", err));
            return type->id != AD_TYPE_FIXED_LIST
                       ? AD_OK
                       : ad_text_printf(out, err, "[%lld]",
                                        (long long)type->list_size);
    }
}

static ad_status
print_dictionary(const struct ArrowSchema *node, const ad_type *type,
                 int depth, ad_text *out, ad_error *err)
{
    bool is_ordered = (node->flags & ARROW_FLAG_DICTIONARY_ORDERED) != 0;
    TRY(ad_text_append(out, "dictionary<values=", err));
    TRY(print_node(node->dictionary, depth + 1, out, err));
    TRY(ad_text_append(out, ", indices=", err));
    TRY(print_plain(type, out, err));
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
        return print_plain(&type, out, err);
    }
    return print_nested(node, &type, depth, out, err);
}

/* --- extensions --------------------------------------------------------- */

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
