/* Joins dictionaries: shares one if all are equal, else unifies them on the
 * host. Those of nested values are equal if they have the same buffers; others
 * are concatenated. */
#include <inttypes.h>
#include <string.h>

#include "compute/concat_join.h"

/* --- equal values -------------------------------------------------------- */

/* Whether two nodes have the same buffers. */
static bool
same_node(const struct ArrowArray *a, const struct ArrowArray *b)
{
    bool is_same = a->length == b->length && a->offset == b->offset &&
                   a->n_buffers == b->n_buffers &&
                   a->n_children == b->n_children &&
                   (a->dictionary == NULL) == (b->dictionary == NULL);
    for (int64_t i = 0; is_same && i < a->n_buffers; i++) {
        is_same = a->buffers[i] == b->buffers[i];
    }
    for (int64_t i = 0; is_same && i < a->n_children; i++) {
        is_same = same_node(a->children[i], b->children[i]);
    }
    return is_same &&
           (a->dictionary == NULL || same_node(a->dictionary, b->dictionary));
}

/* Returns false for invalid offsets: joining the values reports them. */
static bool
same_strings(const ad_array *a, const ad_array *b, int width)
{
    const void *a_offsets = a->node->buffers[1];
    const void *b_offsets = b->node->buffers[1];
    int64_t a_first = ad_int_at(a_offsets, width, a->offset);
    int64_t b_first = ad_int_at(b_offsets, width, b->offset);
    int64_t nbytes = 0;
    if (a_first < 0 || b_first < 0) {
        return false;
    }
    for (int64_t i = 1; i <= a->length; i++) {
        int64_t a_end = ad_int_at(a_offsets, width, a->offset + i);
        int64_t b_end = ad_int_at(b_offsets, width, b->offset + i);
        if (a_end < a_first || b_end < b_first || a_end - a_first < nbytes ||
            a_end - a_first != b_end - b_first) {
            return false;
        }
        nbytes = a_end - a_first;
    }
    const char *a_data = a->node->buffers[2];
    const char *b_data = b->node->buffers[2];
    return nbytes == 0 ||
           (a_data != NULL && b_data != NULL &&
            memcmp(a_data + a_first, b_data + b_first, (size_t)nbytes) == 0);
}

/* Whether the values are known to be equal. */
static bool
same_values(const ad_array *a, const ad_array *b, const ad_type *type)
{
    if (a->node == b->node || same_node(a->node, b->node)) {
        return true;
    }
    if (a->length != b->length || !type->has_validity ||
        ad_concat_validity(a) != NULL || ad_concat_validity(b) != NULL ||
        a->node->dictionary != NULL || a->length == 0) {
        return false;
    }
    if (type->layout == AD_LAYOUT_FIXED && type->bit_width % 8 == 0) {
        int64_t size = type->bit_width / 8;
        return size == 0 ||
               memcmp((const char *)a->node->buffers[1] + a->offset * size,
                      (const char *)b->node->buffers[1] + b->offset * size,
                      (size_t)(a->length * size)) == 0;
    }
    return type->layout == AD_LAYOUT_OFFSETS &&
           same_strings(a, b, type->wide_offsets ? 8 : 4);
}

bool
ad_concat_dictionaries_differ(const struct ArrowSchema *schema,
                              const struct ArrowArray *a,
                              const struct ArrowArray *b)
{
    bool differ =
        schema->dictionary != NULL && !same_node(a->dictionary, b->dictionary);
    for (int64_t i = 0; i < schema->n_children && !differ; i++) {
        differ = ad_concat_dictionaries_differ(schema->children[i],
                                               a->children[i], b->children[i]);
    }
    return differ;
}

/* Sets at->parts to the dictionaries, and returns whether all are the same.
 * The host compares their values; on a device their addresses are compared. */
static bool
view_dictionaries(const ad_concat_job *self, ad_concat_node *at,
                  const ad_type *type)
{
    bool are_same = true;
    for (size_t v = 0; v < at->n; v++) {
        const struct ArrowArray *node = at->views[v].node->dictionary;
        at->parts[v] =
            ad_array_borrow_below(&at->views[v], -1, 0, node->length);
        are_same &= ad_concat_is_on_host(self)
                        ? same_values(&at->parts[0], &at->parts[v], type)
                        : same_node(at->parts[0].node, node);
    }
    return are_same;
}

/* --- indices ------------------------------------------------------------- */

static bool
is_unsigned(const ad_type *type)
{
    return type->id == AD_TYPE_UINT8 || type->id == AD_TYPE_UINT16 ||
           type->id == AD_TYPE_UINT32 || type->id == AD_TYPE_UINT64;
}

/* Replaces the indices of one view, which begin at row `to`, by the numbers of
 * their words, or adds `base` to them if `numbers` is NULL. Indices of null
 * rows become 0. */
static ad_status
put_indices(const ad_concat_node *at, const ad_array *view, int64_t n_values,
            const int64_t *numbers, int64_t base, int64_t to, ad_error *err)
{
    int width = at->type.bit_width / 8;
    int64_t max = ad_concat_max(width, is_unsigned(&at->type));
    int64_t mask = -1;
    if (width < 8 && is_unsigned(&at->type)) {
        mask = ((int64_t)1 << width * 8) - 1;
    }
    const void *validity = ad_concat_validity(view);
    void *indices = at->buffers[1];
    for (int64_t i = 0; i < view->length; i++) {
        int64_t index = ad_int_at(indices, width, to + i) & mask;
        if (validity != NULL && !ad_bitmap_get(validity, view->offset + i)) {
            ad_put_int(indices, width, to + i, 0);
            continue;
        }
        if (index < 0 || index >= n_values) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "index %" PRId64 " into a dictionary of %" PRId64
                           " values",
                           index, n_values);
        }
        index = numbers != NULL ? numbers[base + index] : base + index;
        if (index > max) {
            return ad_concat_fail_size(at->schema, "the dictionaries", err);
        }
        ad_put_int(indices, width, to + i, index);
    }
    return AD_OK;
}

static ad_status
move_indices(const ad_concat_node *at, const int64_t *numbers, ad_error *err)
{
    int64_t base = 0;
    int64_t to = 0;
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t n = at->parts[v].length;
        int64_t end;
        if (__builtin_add_overflow(base, n, &end)) {
            return ad_concat_fail_size(at->schema, "the dictionaries", err);
        }
        AD_RETURN_IF_ERR(put_indices(at, view, n, numbers, base, to, err));
        base = end;
        to += view->length;
    }
    return AD_OK;
}

ad_status
ad_concat_dictionary(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    const ad_schema schema = {at->schema.node->dictionary, at->schema.owner};
    ad_array *out = &at->below[at->schema.node->n_children];
    ad_unified unified = {0};
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &type, err));
    bool are_same = view_dictionaries(self, at, &type);
    if (are_same && !ad_concat_is_on_host(self)) {
        ad_array_share(&at->parts[0], out);
        return ad_builder_share(&self->builder, out->memory.owner, err);
    }
    ad_status status = AD_OK;
    if (!are_same) {
        AD_RETURN_IF_ERR(ad_concat_unify(at, &type, &unified, err));
        status = move_indices(at, unified.numbers, err);
    }
    if (status == AD_OK) {
        const ad_array *parts =
            unified.numbers != NULL ? unified.parts : at->parts;
        size_t n = unified.numbers != NULL ? unified.n_parts : at->n;
        status =
            ad_concat_views(self, schema, parts, are_same ? 1 : n, out, err);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "dictionary");
        }
    }
    ad_concat_unified_free(&unified);
    return status;
}
