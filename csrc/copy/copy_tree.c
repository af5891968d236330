#include "copy/copy_tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "copy/copy.h"
#include "base/unaligned.h"
#include "device/backend.h"

static ad_status plan_node(ad_plan *plan, const ad_array *view,
                           ad_plan_node *out, ad_error *err);

/* --- reading -------------------------------------------------------------- */

/* Host memory that the plan keeps. */
static ad_status
make_host(ad_plan *plan, int64_t nbytes, void **out, ad_error *err)
{
    ad_memory *memory;
    if (plan->n_made == plan->made_capacity) {
        size_t capacity = 2 * plan->made_capacity + 4;
        ad_owner **made = realloc(plan->made, capacity * sizeof(*made));
        if (made == NULL) {
            return ad_fail_memory(err, capacity * sizeof(*made));
        }
        plan->made = made;
        plan->made_capacity = capacity;
    }
    AD_RETURN_IF_ERR(ad_memory_new(nbytes, &memory, err));
    plan->made[plan->n_made++] = &memory->base;
    *out = memory->data;
    return AD_OK;
}

static ad_status
read_source(const ad_array *view, const void *data, int64_t offset,
            int64_t nbytes, void *out, ad_error *err)
{
    return ad_read_device(view->device, data, view->owner, (uint64_t)offset,
                          (size_t)nbytes, view->sync, NULL, out, err);
}

static void
put_index(void *indices, bool is_wide, int64_t i, int64_t value)
{
    int32_t narrow = (int32_t)value;
    if (is_wide) {
        memcpy((char *)indices + i * 8, &value, sizeof(value));
    } else {
        memcpy((char *)indices + i * 4, &narrow, sizeof(narrow));
    }
}

/* --- offsets -------------------------------------------------------------- */

/* Where the data begin and end that a node's offsets point to. */
typedef struct range {
    int64_t first;
    int64_t end;
} range;

static ad_status
fail_range(int64_t first, int64_t end, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "the offsets of the rows run from %" PRId64 " to %" PRId64
                   ", expected at least 0 and no decrease",
                   first, end);
}

/* The offsets have been waited for. Those of a slice are held against the
 * node's last one on the host only: on a device that is one more read. */
static ad_status
check_range(const ad_array *view, bool is_wide, const range *data,
            ad_error *err)
{
    const struct ArrowArray *node = view->node;
    if (data->first < 0 || data->first > data->end) {
        return fail_range(data->first, data->end, err);
    }
    if (ad_host_accessible(view->device)) {
        int64_t last = ad_offset_at(node->buffers[1], is_wide,
                                    node->offset + node->length);
        if (data->end > last) {
            return fail_range(data->end, last, err);
        }
    }
    return AD_OK;
}

/* The offsets of rows in the middle of a column, counted from their first. */
static ad_status
rebase_offsets(ad_plan *plan, const ad_array *view, const ad_type *type,
               ad_piece *piece, range *data, ad_error *err)
{
    bool is_wide = type->wide_offsets;
    int64_t n = view->length + 1;
    void *offsets;
    AD_RETURN_IF_ERR(make_host(plan, piece->nbytes, &offsets, err));
    AD_RETURN_IF_ERR(read_source(view, piece->source, piece->offset,
                                 piece->nbytes, offsets, err));
    data->first = ad_offset_at(offsets, is_wide, 0);
    data->end = ad_offset_at(offsets, is_wide, n - 1);
    AD_RETURN_IF_ERR(check_range(view, is_wide, data, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        if (__builtin_sub_overflow(ad_offset_at(offsets, is_wide, i),
                                   data->first, &at)) {
            return fail_range(1, 0, err);
        }
        put_index(offsets, is_wide, i, at);
    }
    *piece = (ad_piece){offsets, 0, piece->nbytes, true};
    return AD_OK;
}

/* Plan the offsets buffer. `known_end` is where the data end if all rows are
 * meant and nothing has to be read for it; else -1. */
static ad_status
plan_offsets(ad_plan *plan, const ad_array *view, const ad_type *type,
             int64_t known_end, ad_piece *piece, range *data, ad_error *err)
{
    int64_t width = type->wide_offsets ? 8 : 4;
    int64_t last;
    *data = (range){0, 0};
    if (piece->source == NULL || view->length == 0) {
        piece->nbytes = 0;
        return AD_OK;
    }
    piece->offset = view->offset * width;
    piece->nbytes = (view->length + 1) * width;
    if (view->offset != 0) {
        return rebase_offsets(plan, view, type, piece, data, err);
    }
    data->end = known_end;
    if (known_end >= 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(read_source(view, piece->source, view->length * width,
                                 width, &last, err));
    data->end = ad_offset_at(&last, type->wide_offsets, 0);
    return check_range(view, type->wide_offsets, data, err);
}

/* --- buffers of a node ---------------------------------------------------- */

static void
set_bytes(ad_piece *piece, int64_t first, int64_t end)
{
    piece->offset = first;
    piece->nbytes = end - first;
}

/* The rows [offset, offset + length) of elements of `nbytes`. */
static void
set_rows(ad_piece *piece, const ad_array *view, int64_t nbytes)
{
    set_bytes(piece, view->offset * nbytes,
              (view->offset + view->length) * nbytes);
}

static void
set_bits(ad_piece *piece, const ad_array *view)
{
    set_bytes(piece, view->offset / 8, (view->offset + view->length + 7) / 8);
}

ad_status
ad_sizes_are_on_host(const ad_array *view, const void *data, bool *out,
                     ad_error *err)
{
    const struct ad_backend *backend;
    ad_memory_info info;
    ad_place hint = {.device = view->device};
    *out = true;
    if (ad_host_accessible(view->device)) {
        return AD_OK;
    }
    if (view->sync != NULL) {
        hint.context = view->sync->place.context;
    }
    AD_RETURN_IF_ERR(ad_backend_open(view->device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->classify(data, hint, &info, err));
    *out = info.kind == AD_MEMORY_UNREGISTERED || info.host_accessible;
    return AD_OK;
}

/* Views may point anywhere in their data, which are copied whole. */
static ad_status
plan_views(ad_plan *plan, const ad_array *view, ad_piece *pieces,
           ad_error *err)
{
    int64_t n_data = view->node->n_buffers - 3;
    ad_piece *sizes_piece = &pieces[2 + n_data];
    void *sizes;
    bool on_host;
    set_rows(&pieces[1], view, 16);
    if (sizes_piece->source == NULL || n_data <= 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_sizes_are_on_host(view, sizes_piece->source, &on_host, err));
    AD_RETURN_IF_ERR(make_host(plan, n_data * 8, &sizes, err));
    if (on_host) {
        AD_RETURN_IF_ERR(ad_sync_wait(view->sync, "a copy", err));
        memcpy(sizes, sizes_piece->source, (size_t)n_data * 8);
    } else {
        AD_RETURN_IF_ERR(
            read_source(view, sizes_piece->source, 0, n_data * 8, sizes, err));
    }
    *sizes_piece = (ad_piece){sizes, 0, n_data * 8, true};
    for (int64_t i = 0; i < n_data; i++) {
        pieces[2 + i].nbytes = ad_offset_at(sizes, true, i);
        if (pieces[2 + i].nbytes < 0) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "size %" PRId64 " of the variadic buffers is "
                           "%" PRId64 ", expected at least 0",
                           i, pieces[2 + i].nbytes);
        }
    }
    return AD_OK;
}

/* Where a list's child ends if nothing has to be read to know it. */
static int64_t
known_end_of(const ad_array *view, const ad_type *type)
{
    bool is_whole = view->length == view->node->length;
    return type->layout == AD_LAYOUT_LIST && is_whole
               ? view->node->children[0]->length
               : -1;
}

static ad_status
plan_buffers(ad_plan *plan, const ad_array *view, const ad_type *type,
             ad_piece *pieces, range *data, ad_error *err)
{
    int64_t index_size = type->wide_offsets ? 8 : 4;
    if (type->has_validity) {
        set_bits(&pieces[0], view);
    }
    switch (type->layout) {
        case AD_LAYOUT_FIXED:
            if (type->bit_width % 8 == 0) {
                set_rows(&pieces[1], view, type->bit_width / 8);
            } else {
                set_bits(&pieces[1], view);
            }
            return AD_OK;
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            AD_RETURN_IF_ERR(plan_offsets(plan, view, type,
                                          known_end_of(view, type), &pieces[1],
                                          data, err));
            if (type->layout == AD_LAYOUT_OFFSETS) {
                set_bytes(&pieces[2], data->first, data->end);
            }
            return AD_OK;
        case AD_LAYOUT_LIST_VIEW:
            set_rows(&pieces[1], view, index_size);
            set_rows(&pieces[2], view, index_size);
            return AD_OK;
        case AD_LAYOUT_VIEWS:
            return plan_views(plan, view, pieces, err);
        case AD_LAYOUT_SPARSE_UNION:
            set_rows(&pieces[0], view, 1);
            return AD_OK;
        case AD_LAYOUT_DENSE_UNION:
            set_rows(&pieces[0], view, 1);
            set_rows(&pieces[1], view, 4);
            return AD_OK;
        case AD_LAYOUT_NONE:
        case AD_LAYOUT_VALIDITY:
            break;
    }
    return AD_OK;
}

/* --- what hangs below ----------------------------------------------------- */

/* Which rows of a child belong to the rows of `view`. */
static ad_status
rows_of_child(const ad_array *view, const ad_type *type, const range *data,
              ad_array *child, ad_error *err)
{
    int64_t first = view->offset, n = view->length, size = 1;
    ad_array whole = *child;
    switch (type->layout) {
        case AD_LAYOUT_VALIDITY:
            size = type->id == AD_TYPE_FIXED_LIST ? type->list_size : 1;
            break;
        case AD_LAYOUT_SPARSE_UNION:
            break;
        case AD_LAYOUT_LIST:
            first = data->first;
            n = data->end - data->first;
            break;
        default:
            return AD_OK;
    }
    if (__builtin_mul_overflow(first, size, &first) ||
        __builtin_mul_overflow(n, size, &n) ||
        ad_array_slice(&whole, first, n, child, NULL) != AD_OK) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the rows refer to %" PRId64 " values from %" PRId64
                       " on, but the child has %" PRId64,
                       n, first, whole.length);
    }
    ad_array_clear(&whole);
    return AD_OK;
}

static ad_status
plan_child(ad_plan *plan, const ad_plan_node *parent, const ad_type *type,
           const range *data, int64_t i, ad_plan_node *out, ad_error *err)
{
    ad_array child;
    AD_RETURN_IF_ERR(ad_array_child(&parent->source, i, &child, err));
    ad_status status = rows_of_child(&parent->source, type, data, &child, err);
    if (status == AD_OK) {
        status = plan_node(plan, &child, out, err);
    }
    ad_array_clear(&child);
    if (status == AD_ERR_ARROW) {
        ad_error_path_prepend(err, "children[%" PRId64 "]", i);
    }
    return status;
}

static ad_status
plan_below(ad_plan *plan, ad_plan_node *node, const ad_type *type,
           const range *data, ad_error *err)
{
    int64_t n_children = node->source.node->n_children;
    bool has_dictionary = node->source.node->dictionary != NULL;
    size_t n = (size_t)n_children + has_dictionary;
    if (n == 0) {
        return AD_OK;
    }
    node->below = calloc(n, sizeof(*node->below));
    if (node->below == NULL) {
        return ad_fail_memory(err, n * sizeof(*node->below));
    }
    node->n_below = (int64_t)n;
    for (int64_t i = 0; i < n_children; i++) {
        AD_RETURN_IF_ERR(
            plan_child(plan, node, type, data, i, &node->below[i], err));
    }
    if (has_dictionary) {
        ad_array values;
        AD_RETURN_IF_ERR(ad_array_dictionary(&node->source, &values, err));
        ad_status status =
            plan_node(plan, &values, &node->below[n_children], err);
        ad_array_clear(&values);
        return status;
    }
    return AD_OK;
}

/* --- nodes ---------------------------------------------------------------- */

/* Rows in front that have to come along, since bits are copied as bytes. */
static int64_t
rows_in_front(const ad_array *view, const ad_type *type)
{
    const void *const *buffers = view->node->buffers;
    bool has_bits = (type->has_validity && buffers[0] != NULL) ||
                    (type->layout == AD_LAYOUT_FIXED && type->bit_width == 1);
    return has_bits && view->length > 0 ? view->offset % 8 : 0;
}

static ad_status
plan_node(ad_plan *plan, const ad_array *view, ad_plan_node *out,
          ad_error *err)
{
    ad_type type;
    range data = {0, 0};
    size_t n = (size_t)view->node->n_buffers;
    AD_RETURN_IF_ERR(ad_type_parse(view->schema.node->format, &type, err));
    ad_array_share(view, &out->source);
    out->length = view->length;
    if (type.id == AD_TYPE_RUN_END) {
        out->offset = view->offset; /* its children are copied whole */
    } else {
        out->offset = rows_in_front(view, &type);
        out->source.offset -= out->offset;
        out->source.length += out->offset;
    }
    out->pieces = calloc(n + 1, sizeof(*out->pieces));
    if (out->pieces == NULL) {
        return ad_fail_memory(err, (n + 1) * sizeof(*out->pieces));
    }
    for (size_t i = 0; i < n; i++) {
        out->pieces[i].source = view->node->buffers[i];
    }
    AD_RETURN_IF_ERR(
        plan_buffers(plan, &out->source, &type, out->pieces, &data, err));
    return plan_below(plan, out, &type, &data, err);
}

static void
node_clear(ad_plan_node *node)
{
    for (int64_t i = 0; i < node->n_below; i++) {
        node_clear(&node->below[i]);
    }
    free(node->below);
    free(node->pieces);
    ad_array_clear(&node->source);
}

ad_status
ad_plan_make(const ad_array *array, ad_plan *out, ad_error *err)
{
    memset(out, 0, sizeof(*out));
    return plan_node(out, array, &out->root, err);
}

void
ad_plan_clear(ad_plan *plan)
{
    node_clear(&plan->root);
    for (size_t i = 0; i < plan->n_made; i++) {
        ad_owner_unref(plan->made[i]);
    }
    free(plan->made);
}
