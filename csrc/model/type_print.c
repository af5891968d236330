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
            return ad_text_append(out, ad_type_name_of_format(node->format),
                                  err);
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
    TRY(ad_text_printf(out, err, "%s<", ad_type_name_of_format(node->format)));
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
