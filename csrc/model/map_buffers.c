#include "model/map_buffers.h"

#include <inttypes.h>
#include <stdlib.h>

/* Slices child `i` to the rows that are mapped. */
static ad_status
slice_child(const ad_mapped_node *node, int64_t i, ad_array *child,
            ad_error *err)
{
    ad_row_range rows = node->rows_below[i];
    int64_t size = 1;
    ad_array whole = *child;
    if (rows.n < 0) {
        if (node->type.layout != AD_LAYOUT_VALIDITY &&
            node->type.layout != AD_LAYOUT_SPARSE_UNION) {
            return AD_OK;
        }
        rows = (ad_row_range){node->view->offset, node->view->length};
        size = node->type.id == AD_TYPE_FIXED_LIST ? node->type.list_size : 1;
    }
    if (__builtin_mul_overflow(rows.first, size, &rows.first) ||
        __builtin_mul_overflow(rows.n, size, &rows.n) ||
        ad_array_slice(&whole, rows.first, rows.n, child, NULL) != AD_OK) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the rows refer to %" PRId64 " values from %" PRId64
                       " on, but the child has %" PRId64,
                       rows.n, rows.first, whole.length);
    }
    ad_array_clear(&whole);
    return AD_OK;
}

static ad_status
map_one_below(ad_buffer_map *map, const ad_mapped_node *node, int64_t i,
              ad_array *out, ad_error *err)
{
    ad_array below;
    bool is_child = i < node->spec.n_children;
    AD_RETURN_IF_ERR(ad_array_below(node->view, i, &below, err));
    ad_status status = is_child ? slice_child(node, i, &below, err) : AD_OK;
    if (status == AD_OK) {
        status = ad_map_buffers(&below, map, out, err);
    }
    ad_array_clear(&below);
    if (status == AD_ERR_ARROW && is_child) {
        ad_error_path_prepend(err, "children[%" PRId64 "]", i);
    }
    return status;
}

/* `builds`: the new tree is built. */
static ad_status
map_below(ad_buffer_map *map, const ad_mapped_node *node, bool builds,
          ad_error *err)
{
    int64_t n = node->spec.n_children + (node->spec.dictionary != NULL);
    for (int64_t i = 0; i < n; i++) {
        ad_array *below = &node->below[i];
        if (node->shares_below) {
            AD_RETURN_IF_ERR(ad_array_below(node->view, i, below, err));
        } else if (below->node == NULL) {
            AD_RETURN_IF_ERR(
                map_one_below(map, node, i, builds ? below : NULL, err));
        }
    }
    return AD_OK;
}

static void
begin_node(const ad_array *view, ad_array *below, ad_mapped_node *out)
{
    const struct ArrowArray *node = view->node;
    ad_row_range *rows_below = (ad_row_range *)&below[node->n_children + 1];
    const void **buffers = (const void **)&rows_below[node->n_children];
    for (int64_t i = 0; i < node->n_children; i++) {
        rows_below[i] = (ad_row_range){0, -1};
    }
    for (int64_t i = 0; i < node->n_buffers; i++) {
        buffers[i] = node->buffers[i];
    }
    out->view = view;
    out->buffers = buffers;
    out->below = below;
    out->rows_below = rows_below;
    out->shares_below = false;
    out->spec = (ad_array_spec){
        .schema = view->schema,
        .memory = view->memory,
        .length = view->length,
        .offset = view->offset,
        .null_count = ad_array_null_count(view),
        .n_buffers = node->n_buffers,
        .buffers = buffers,
        .n_children = node->n_children,
        .children = below,
        .dictionary =
            node->dictionary != NULL ? &below[node->n_children] : NULL,
    };
}

ad_status
ad_map_buffers(const ad_array *view, ad_buffer_map *map, ad_array *out,
               ad_error *err)
{
    ad_mapped_node node;
    size_t n_below = (size_t)view->node->n_children + 1;
    size_t nbytes = n_below * sizeof(*node.below) +
                    (n_below - 1) * sizeof(*node.rows_below) +
                    (size_t)view->node->n_buffers * sizeof(*node.buffers);
    AD_RETURN_IF_ERR(
        ad_type_parse(view->schema.node->format, &node.type, err));
    ad_array *below = calloc(1, nbytes);
    if (below == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    begin_node(view, below, &node);
    ad_status status = map->buffers(map, &node, err);
    if (status == AD_OK) {
        status = map_below(map, &node, out != NULL, err);
    }
    if (status == AD_OK && out != NULL) {
        status = ad_array_build(&node.spec, out, err);
    }
    for (size_t i = 0; i < n_below; i++) {
        if (below[i].node != NULL) {
            ad_array_clear(&below[i]);
        }
    }
    free(below);
    return status;
}

/* --- another bitmap ------------------------------------------------------ */

typedef struct replacement {
    ad_buffer_map map;
    const ad_validity_change *change;
} replacement;

static ad_status
replace(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    const ad_validity_change *change = ((replacement *)map)->change;
    node->buffers[0] = change->validity;
    node->spec.null_count = change->null_count;
    node->spec.memory.owner = change->owner;
    node->spec.memory.sync = change->sync;
    node->shares_below = true;
    return AD_OK;
}

ad_status
ad_array_with_validity(const ad_array *array, const ad_validity_change *change,
                       ad_array *out, ad_error *err)
{
    replacement self = {{replace}, change};
    return ad_map_buffers(array, &self.map, out, err);
}
