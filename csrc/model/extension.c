#include "model/extension.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/metadata.h"
#include "model/type.h"
#include "base/text.h"

static const char *const names[] = {
    [AD_EXTENSION_BOOL8] = "arrow.bool8",
    [AD_EXTENSION_FIXED_SHAPE_TENSOR] = "arrow.fixed_shape_tensor",
    [AD_EXTENSION_DLPACK] = "arrowdev.dlpack",
};

static ad_extension_kind
find_kind(const ad_metadata_pair *name)
{
    for (int i = AD_EXTENSION_BOOL8; i <= AD_EXTENSION_DLPACK; i++) {
        if (strlen(names[i]) == (size_t)name->value_length &&
            memcmp(names[i], name->value, strlen(names[i])) == 0) {
            return (ad_extension_kind)i;
        }
    }
    return AD_EXTENSION_OTHER;
}

static ad_status
fail_extension(ad_extension_kind kind, const char *problem, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "extension %s %s",
                   names[kind], problem);
}

static ad_status
fail_storage(ad_extension_kind kind, const struct ArrowSchema *node,
             const char *expected, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "extension %s has storage of format \"%.80s\"%s instead "
                   "of %s",
                   names[kind], node->format != NULL ? node->format : "",
                   node->dictionary != NULL ? " with a dictionary" : "",
                   expected);
}

/* --- members of the metadata --------------------------------------------- */

/* -1: the member is absent. */
typedef struct members {
    int64_t code;
    int64_t bits;
    int64_t lanes;
    int32_t n_shape;
    int32_t n_permutation;
    int32_t n_names;
    int64_t permutation[AD_MAX_NDIM];
} members;

static ad_status
read_dlpack_member(ad_json *json, const char *key, members *found,
                   ad_error *err)
{
    int64_t *target = strcmp(key, "code") == 0    ? &found->code
                      : strcmp(key, "bits") == 0  ? &found->bits
                      : strcmp(key, "lanes") == 0 ? &found->lanes
                                                  : NULL;
    if (target != NULL) {
        return ad_json_integer(json, target, err);
    }
    return strcmp(key, "shape") == 0
               ? ad_json_integers(json, NULL, 0, &found->n_shape, err)
               : ad_json_skip(json, err);
}

static ad_status
read_tensor_member(ad_json *json, const char *key, members *found,
                   ad_extension *out, ad_error *err)
{
    if (strcmp(key, "shape") == 0) {
        return ad_json_integers(json, out->shape, AD_MAX_NDIM, &found->n_shape,
                                err);
    }
    if (strcmp(key, "permutation") == 0) {
        return ad_json_integers(json, found->permutation, AD_MAX_NDIM,
                                &found->n_permutation, err);
    }
    return strcmp(key, "dim_names") == 0
               ? ad_json_strings(json, &found->n_names, err)
               : ad_json_skip(json, err);
}

static ad_status
read_members(const ad_metadata_pair *text, members *found, ad_extension *out,
             ad_error *err)
{
    ad_json json;
    char key[AD_JSON_KEY_SIZE];
    bool done = false;
    found->code = found->bits = found->lanes = -1;
    found->n_shape = found->n_permutation = found->n_names = -1;
    AD_RETURN_IF_ERR(
        ad_json_enter(&json, text->value, (size_t)text->value_length, err));
    for (;;) {
        AD_RETURN_IF_ERR(ad_json_member(&json, key, &done, err));
        if (done) {
            return AD_OK;
        }
        AD_RETURN_IF_ERR(
            out->kind == AD_EXTENSION_DLPACK
                ? read_dlpack_member(&json, key, found, err)
                : read_tensor_member(&json, key, found, out, err));
    }
}

/* --- arrow.fixed_shape_tensor ------------------------------------------- */

static ad_status
take_permutation(const members *found, ad_extension *out, ad_error *err)
{
    bool is_seen[AD_MAX_NDIM] = {false};
    if (found->n_permutation >= 0 && found->n_permutation != out->ndim) {
        return fail_extension(out->kind,
                              "has a permutation of another length than its "
                              "shape",
                              err);
    }
    for (int32_t i = 0; i < out->ndim; i++) {
        int64_t axis = found->n_permutation >= 0 ? found->permutation[i] : i;
        if (axis < 0 || axis >= out->ndim || is_seen[axis]) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "extension %s has %lld in its permutation, which "
                           "must contain each of 0 to %d once",
                           names[out->kind], (long long)axis, out->ndim - 1);
        }
        is_seen[axis] = true;
        out->permutation[i] = (int32_t)axis;
    }
    return AD_OK;
}

static ad_status
check_shape(const ad_extension *tensor, int64_t list_size, ad_error *err)
{
    int64_t size = 1;
    bool is_empty = false;
    bool is_too_large = false;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t extent = tensor->shape[i];
        if (extent < 0) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "extension %s has the extent %lld in its shape",
                           names[tensor->kind], (long long)extent);
        }
        if (extent == 0) {
            is_empty = true;
        } else if (__builtin_mul_overflow(size, extent, &size)) {
            is_too_large = true;
        }
    }
    /* Strides of an empty shape are products of its other extents, so these
     * products must fit too. */
    if (is_too_large) {
        return fail_extension(tensor->kind,
                              "has a shape whose product does not fit 64 "
                              "bits",
                              err);
    }
    size = is_empty ? 0 : size;
    if (size != list_size) {
        char elements[AD_COUNT_SIZE];
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "extension %s has a shape of %s over a fixed-size list "
                       "of %lld",
                       names[tensor->kind],
                       ad_count_text(size, "element", "elements", elements),
                       (long long)list_size);
    }
    return AD_OK;
}

static ad_status
read_tensor(const struct ArrowSchema *node, const ad_metadata_pair *text,
            ad_extension *out, ad_error *err)
{
    ad_type type;
    members found;
    AD_RETURN_IF_ERR(ad_type_parse(node->format, &type, err));
    if (type.id != AD_TYPE_FIXED_LIST) {
        return fail_storage(out->kind, node, "a fixed-size list", err);
    }
    AD_RETURN_IF_ERR(read_members(text, &found, out, err));
    if (found.n_shape < 0) {
        return fail_extension(out->kind, "has no \"shape\" in its metadata",
                              err);
    }
    out->ndim = found.n_shape;
    if (found.n_names >= 0 && found.n_names != out->ndim) {
        return fail_extension(
            out->kind, "has another number of names than dimensions", err);
    }
    AD_RETURN_IF_ERR(take_permutation(&found, out, err));
    return check_shape(out, type.list_size, err);
}

/* --- arrowdev.dlpack ---------------------------------------------------- */

/* True for a fixed-size list of two floats per complex number. */
static bool
fits_complex_list(const struct ArrowSchema *node, const ad_type *type,
                  ad_dl_dtype dtype)
{
    ad_type child;
    return dtype.code == AD_DL_COMPLEX && type->id == AD_TYPE_FIXED_LIST &&
           type->list_size == 2 * (int64_t)dtype.lanes &&
           node->n_children == 1 && node->children[0] != NULL &&
           ad_type_parse(node->children[0]->format, &child, NULL) == AD_OK &&
           child.id >= AD_TYPE_FLOAT16 && child.id <= AD_TYPE_FLOAT64 &&
           child.bit_width * 2 == dtype.bits;
}

static bool
fits_storage(const struct ArrowSchema *node, const ad_type *type,
             ad_dl_dtype dtype)
{
    int64_t bits = ad_dtype_bits(dtype);
    if (fits_complex_list(node, type, dtype)) {
        return true;
    }
    if (type->layout != AD_LAYOUT_FIXED || type->bit_width == 0 ||
        type->bit_width % 8 != 0) {
        return false;
    }
    /* Sub-byte elements are packed: each binary holds a whole row of them. */
    if (bits % 8 != 0) {
        return type->id == AD_TYPE_FIXED_BINARY && type->bit_width % bits == 0;
    }
    return type->bit_width == bits;
}

static ad_status
read_dlpack(const struct ArrowSchema *node, const ad_metadata_pair *text,
            ad_extension *out, ad_error *err)
{
    ad_type type;
    members found;
    AD_RETURN_IF_ERR(ad_type_parse(node->format, &type, err));
    AD_RETURN_IF_ERR(read_members(text, &found, out, err));
    if (found.code < 0 || found.code > UINT8_MAX || found.bits < 1 ||
        found.bits > UINT8_MAX || found.lanes < 1 ||
        found.lanes > UINT16_MAX) {
        return fail_extension(out->kind,
                              "must have \"code\" (0 to 255), \"bits\" (1 to "
                              "255) and \"lanes\" (1 to 65535)",
                              err);
    }
    out->dtype = (ad_dl_dtype){(uint8_t)found.code, (uint8_t)found.bits,
                               (uint16_t)found.lanes};
    out->is_scalar = found.n_shape == 0;
    if (!fits_storage(node, &type, out->dtype)) {
        char name[AD_DTYPE_NAME_SIZE];
        fail_storage(out->kind, node, "storage of the same width", err);
        ad_error_dtype(err, ad_dtype_format(out->dtype, name));
        return AD_ERR_ARROW;
    }
    return AD_OK;
}

/* --- entry points ------------------------------------------------------- */

ad_status
ad_extension_read(const struct ArrowSchema *node, ad_extension *out,
                  ad_error *err)
{
    ad_metadata_pair name;
    ad_metadata_pair text = {0};
    bool found;
    /* Not the whole struct, for speed: most nodes have no extension, and the
     * arrays have a meaning only for a tensor. */
    out->kind = AD_EXTENSION_NONE;
    out->is_scalar = false;
    out->ndim = 0;
    out->dtype = (ad_dl_dtype){0, 0, 0};
    AD_RETURN_IF_ERR(ad_metadata_find(node->metadata, AD_EXTENSION_NAME_KEY,
                                      &name, &found, err));
    if (!found) {
        return AD_OK;
    }
    out->kind = find_kind(&name);
    if (out->kind == AD_EXTENSION_OTHER) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_metadata_find(
        node->metadata, AD_EXTENSION_METADATA_KEY, &text, &found, err));
    if (!found) {
        text = (ad_metadata_pair){.value = ""};
    }
    if (node->dictionary != NULL) {
        return fail_storage(out->kind, node, "plain storage", err);
    }
    if (out->kind == AD_EXTENSION_FIXED_SHAPE_TENSOR) {
        return read_tensor(node, &text, out, err);
    }
    if (out->kind == AD_EXTENSION_DLPACK) {
        return read_dlpack(node, &text, out, err);
    }
    if (node->format == NULL || strcmp(node->format, "c") != 0) {
        return fail_storage(out->kind, node, "int8 (\"c\")", err);
    }
    return text.value_length == 0
               ? AD_OK
               : fail_extension(out->kind, "has metadata, which must be empty",
                                err);
}

/* True if both nodes have the same value for the key, or none. */
static bool
same_entry(const struct ArrowSchema *a, const struct ArrowSchema *b,
           const char *key)
{
    ad_metadata_pair in_a, in_b;
    bool has_a, has_b;
    if (ad_metadata_find(a->metadata, key, &in_a, &has_a, NULL) != AD_OK ||
        ad_metadata_find(b->metadata, key, &in_b, &has_b, NULL) != AD_OK) {
        return false;
    }
    return has_a == has_b &&
           (!has_a ||
            (in_a.value_length == in_b.value_length &&
             memcmp(in_a.value, in_b.value, (size_t)in_a.value_length) == 0));
}

bool
ad_extension_equal(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
    return same_entry(a, b, AD_EXTENSION_NAME_KEY) &&
           same_entry(a, b, AD_EXTENSION_METADATA_KEY);
}

void
ad_extension_row(const ad_extension *tensor, int64_t *shape, int64_t *strides)
{
    int64_t physical[AD_MAX_NDIM];
    int64_t stride = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        physical[i] = stride;
        stride *= tensor->shape[i];
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        shape[i] = tensor->shape[tensor->permutation[i]];
        strides[i] = physical[tensor->permutation[i]];
    }
}

static bool
same_rows(const ad_extension *a, const ad_extension *b)
{
    int64_t a_shape[AD_MAX_NDIM], a_strides[AD_MAX_NDIM];
    int64_t b_shape[AD_MAX_NDIM], b_strides[AD_MAX_NDIM];
    if (a->ndim != b->ndim) {
        return false;
    }
    ad_extension_row(a, a_shape, a_strides);
    ad_extension_row(b, b_shape, b_strides);
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a_shape[i] != b_shape[i] ||
            (a_shape[i] > 1 && a_strides[i] != b_strides[i])) {
            return false;
        }
    }
    return true;
}

static ad_dl_dtype
element_of(const ad_extension *extension)
{
    return extension->kind == AD_EXTENSION_BOOL8
               ? (ad_dl_dtype){AD_DL_BOOL, 8, 1}
               : extension->dtype;
}

static bool
is_interpreted(const ad_extension *extension)
{
    return extension->kind != AD_EXTENSION_NONE &&
           extension->kind != AD_EXTENSION_OTHER;
}

bool
ad_extension_same_elements(const struct ArrowSchema *a,
                           const struct ArrowSchema *b)
{
    ad_extension left, right;
    if (a->metadata == NULL || b->metadata == NULL ||
        a->metadata == b->metadata || ad_extension_equal(a, b)) {
        return true;
    }
    if (ad_extension_read(a, &left, NULL) != AD_OK ||
        ad_extension_read(b, &right, NULL) != AD_OK) {
        return false;
    }
    if (!is_interpreted(&left) || !is_interpreted(&right)) {
        return true;
    }
    if (left.kind == AD_EXTENSION_FIXED_SHAPE_TENSOR &&
        right.kind == AD_EXTENSION_FIXED_SHAPE_TENSOR) {
        return same_rows(&left, &right);
    }
    return ad_dtype_equal(element_of(&left), element_of(&right));
}

static bool
is_identity(const ad_extension *tensor)
{
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->permutation[i] != i) {
            return false;
        }
    }
    return true;
}

bool
ad_extension_is_put_in_order(const struct ArrowSchema *from,
                             const struct ArrowSchema *to)
{
    ad_extension a, b;
    if (ad_extension_read(from, &a, NULL) != AD_OK ||
        ad_extension_read(to, &b, NULL) != AD_OK ||
        a.kind != AD_EXTENSION_FIXED_SHAPE_TENSOR || b.kind != a.kind ||
        a.ndim != b.ndim || is_identity(&a) || !is_identity(&b)) {
        return false;
    }
    for (int32_t i = 0; i < a.ndim; i++) {
        if (a.shape[a.permutation[i]] != b.shape[i]) {
            return false;
        }
    }
    return true;
}

static ad_status
write_tensor(const ad_extension *tensor, ad_text *text, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_text_append(text, "{\"shape\":[", err));
    for (int32_t i = 0; i < tensor->ndim; i++) {
        AD_RETURN_IF_ERR(ad_text_printf(text, err, i > 0 ? ",%lld" : "%lld",
                                        (long long)tensor->shape[i]));
    }
    if (!is_identity(tensor)) {
        AD_RETURN_IF_ERR(ad_text_append(text, "],\"permutation\":[", err));
        for (int32_t i = 0; i < tensor->ndim; i++) {
            AD_RETURN_IF_ERR(ad_text_printf(text, err, i > 0 ? ",%d" : "%d",
                                            (int)tensor->permutation[i]));
        }
    }
    return ad_text_append(text, "]}", err);
}

static ad_status
write_text(const ad_extension *extension, ad_text *text, ad_error *err)
{
    switch (extension->kind) {
        case AD_EXTENSION_BOOL8:
            return AD_OK;
        case AD_EXTENSION_FIXED_SHAPE_TENSOR:
            return write_tensor(extension, text, err);
        case AD_EXTENSION_DLPACK:
            return ad_text_printf(text, err,
                                  "{\"code\":%d,\"bits\":%d,\"lanes\":%d%s}",
                                  extension->dtype.code, extension->dtype.bits,
                                  extension->dtype.lanes,
                                  extension->is_scalar ? ",\"shape\":[]" : "");
        default:
            return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                           "no metadata can be written for extension kind %d",
                           (int)extension->kind);
    }
}

static ad_metadata_pair
make_pair(const char *key, const char *value)
{
    return (ad_metadata_pair){key, (int32_t)strlen(key), value,
                              (int32_t)strlen(value)};
}

ad_status
ad_extension_metadata(const ad_extension *extension, char **out, ad_error *err)
{
    ad_text text = {0};
    ad_status status = write_text(extension, &text, err);
    if (status == AD_OK) {
        ad_metadata_pair pairs[] = {
            make_pair(AD_EXTENSION_NAME_KEY, names[extension->kind]),
            make_pair(AD_EXTENSION_METADATA_KEY, ad_text_string(&text)),
        };
        status = ad_metadata_build(pairs, 2, out, err);
    }
    ad_text_clear(&text);
    return status;
}
