#include "copy/copy_tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/unaligned.h"
#include "device/backend.h"

#define VIEW_SIZE 16
#define MAX_INLINE 12 /* bytes of a value that a view contains itself */

/* --- reading ------------------------------------------------------------- */

/* Allocates host memory that the plan keeps. */
static ad_status
allocate_host(ad_plan *plan, int64_t nbytes, void **out, ad_error *err)
{
    ad_memory *memory;
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->allocations, 1, err));
    AD_RETURN_IF_ERR(ad_memory_new(nbytes, &memory, err));
    plan->allocations.items[plan->allocations.n++] = &memory->base;
    *out = memory->data;
    return AD_OK;
}

static ad_status
read_source(ad_plan *plan, const ad_array *view, const void *data,
            int64_t offset, int64_t nbytes, void *out, ad_error *err)
{
    const ad_session_request request = {
        .source = view->device,
        .data = data,
        .sync = view->sync,
        .target = AD_CPU,
        .operation = "reading device memory",
    };
    if (plan->reading == NULL) {
        AD_RETURN_IF_ERR(ad_session_open(&request, &plan->own, err));
        plan->reading = &plan->own;
    }
    return ad_session_read(plan->reading, view->owner, data, (uint64_t)offset,
                           (size_t)nbytes, out, err);
}

static void
write_offset(void *indices, bool is_wide, int64_t i, int64_t value)
{
    int32_t narrow = (int32_t)value;
    if (is_wide) {
        memcpy((char *)indices + i * 8, &value, sizeof(value));
    } else {
        memcpy((char *)indices + i * 4, &narrow, sizeof(narrow));
    }
}

/* --- offsets ------------------------------------------------------------- */

static ad_status
fail_range(int64_t first, int64_t end, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "the offsets of the rows run from %" PRId64 " to %" PRId64
                   ", expected at least 0 and no decrease",
                   first, end);
}

/* The offsets are ready. The offsets of a slice are compared with the node's
 * last one on the host only: on a device that costs another read. */
static ad_status
check_range(const ad_array *view, bool is_wide, const ad_piece *piece,
            ad_error *err)
{
    const struct ArrowArray *node = view->node;
    if (piece->first < 0 || piece->first > piece->end) {
        return fail_range(piece->first, piece->end, err);
    }
    if (ad_host_accessible(view->device)) {
        int64_t last = ad_offset_at(node->buffers[1], is_wide,
                                    node->offset + node->length);
        if (piece->end > last) {
            return fail_range(piece->end, last, err);
        }
    }
    return AD_OK;
}

/* Rebases the offsets of a slice to start at 0. */
static ad_status
rebase_slice_offsets(ad_plan *plan, const ad_array *view, const ad_type *type,
                     ad_piece *piece, ad_error *err)
{
    bool is_wide = type->wide_offsets;
    int64_t n = view->length + 1;
    void *offsets;
    AD_RETURN_IF_ERR(allocate_host(plan, piece->nbytes, &offsets, err));
    AD_RETURN_IF_ERR(read_source(plan, view, piece->source, piece->offset,
                                 piece->nbytes, offsets, err));
    piece->first = ad_offset_at(offsets, is_wide, 0);
    piece->end = ad_offset_at(offsets, is_wide, n - 1);
    AD_RETURN_IF_ERR(check_range(view, is_wide, piece, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        if (__builtin_sub_overflow(ad_offset_at(offsets, is_wide, i),
                                   piece->first, &at)) {
            return fail_range(1, 0, err);
        }
        write_offset(offsets, is_wide, i, at);
    }
    piece->source = offsets;
    piece->offset = 0;
    piece->on_host = true;
    return AD_OK;
}

/* Plans the offsets buffer. `known_end` is the end of the data if all rows are
 * selected and it is known without a read; else -1. */
static ad_status
plan_offsets(ad_plan *plan, const ad_array *view, const ad_type *type,
             int64_t known_end, ad_piece *piece, ad_error *err)
{
    int64_t width = type->wide_offsets ? 8 : 4;
    int64_t last;
    if (piece->source == NULL || view->length == 0) {
        piece->nbytes = 0;
        return AD_OK;
    }
    piece->nbytes += width; /* the last offset */
    if (view->offset != 0) {
        return rebase_slice_offsets(plan, view, type, piece, err);
    }
    piece->end = known_end;
    if (known_end >= 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(read_source(plan, view, piece->source,
                                 view->length * width, width, &last, err));
    piece->end = ad_offset_at(&last, type->wide_offsets, 0);
    return check_range(view, type->wide_offsets, piece, err);
}

/* --- buffers of a node --------------------------------------------------- */

ad_status
ad_sizes_are_on_host(const ad_array *view, const void *data, bool *out,
                     ad_error *err)
{
    const struct ad_backend *backend;
    ad_memory_info info;
    ad_context hint = {.device = view->device};
    *out = true;
    if (ad_host_accessible(view->device)) {
        return AD_OK;
    }
    if (view->sync != NULL) {
        hint.handle = view->sync->context.handle;
    }
    AD_RETURN_IF_ERR(ad_backend_open(view->device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->classify(data, hint, &info, err));
    *out = info.kind == AD_MEMORY_UNREGISTERED || info.host_accessible;
    return AD_OK;
}

/* A view whose value does not fit into it: the data buffer that has the value,
 * and the range of bytes there. */
typedef struct long_view {
    int32_t buffer;
    int64_t first;
    int64_t end;
} long_view;

/* False for an inline value, and for a view that is not within the pieces
 * `data`, as that of a null row may be. */
static bool
read_long_view(const char *view, const ad_piece *data, int64_t n_data,
               long_view *out)
{
    int32_t numbers[4]; /* size, prefix, buffer, offset */
    memcpy(numbers, view, sizeof(numbers));
    *out =
        (long_view){numbers[2], numbers[3], (int64_t)numbers[3] + numbers[0]};
    return numbers[0] > MAX_INLINE && out->buffer >= 0 &&
           out->buffer < n_data && out->first >= data[out->buffer].offset &&
           out->end <= data[out->buffer].offset + data[out->buffer].nbytes;
}

/* The bytes of the data buffers that n views refer to become the pieces. */
static void
narrow_data(const char *views, int64_t n, ad_piece *data, int64_t n_data,
            long_view *ranges)
{
    long_view at;
    for (int64_t i = 0; i < n_data; i++) {
        ranges[i] = (long_view){.first = data[i].nbytes};
    }
    for (int64_t i = 0; i < n; i++) {
        if (read_long_view(views + i * VIEW_SIZE, data, n_data, &at)) {
            long_view *range = &ranges[at.buffer];
            range->first = at.first < range->first ? at.first : range->first;
            range->end = at.end > range->end ? at.end : range->end;
        }
    }
    for (int64_t i = 0; i < n_data; i++) {
        bool is_used = ranges[i].end > ranges[i].first;
        data[i].offset = is_used ? ranges[i].first : 0;
        data[i].nbytes = is_used ? ranges[i].end - ranges[i].first : 0;
    }
}

/* Narrows the data buffers of a slice to what its views refer to, and makes
 * the views relative to that. Views that are out of range stay so. */
static ad_status
narrow_views(ad_plan *plan, ad_piece *views, ad_piece *data, int64_t n_data,
             ad_error *err)
{
    void *copy, *ranges;
    const int64_t n = views->nbytes / VIEW_SIZE;
    const char *old = (const char *)views->source + views->offset;
    const int64_t size = n_data * (int64_t)sizeof(long_view);
    AD_RETURN_IF_ERR(allocate_host(plan, size, &ranges, err));
    AD_RETURN_IF_ERR(allocate_host(plan, n * VIEW_SIZE, &copy, err));
    narrow_data(old, n, data, n_data, ranges);
    for (int64_t i = 0; i < n; i++) {
        char *view = (char *)copy + i * VIEW_SIZE;
        long_view at;
        memcpy(view, old + i * VIEW_SIZE, VIEW_SIZE);
        if (read_long_view(view, data, n_data, &at)) {
            int32_t offset = (int32_t)(at.first - data[at.buffer].offset);
            memcpy(view + 12, &offset, sizeof(offset));
        }
    }
    if (n > 0) {
        views->source = copy;
        views->offset = 0;
        views->on_host = true;
    }
    return AD_OK;
}

/* Views may point anywhere in their data buffers, so these are copied whole,
 * except for a slice that the host can read. */
static ad_status
plan_views(ad_plan *plan, const ad_array *view, ad_piece *pieces,
           ad_error *err)
{
    int64_t n_data = view->node->n_buffers - 3;
    ad_piece *sizes_piece = &pieces[2 + n_data];
    void *sizes;
    bool on_host;
    if (sizes_piece->source == NULL || n_data <= 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_sizes_are_on_host(view, sizes_piece->source, &on_host, err));
    AD_RETURN_IF_ERR(allocate_host(plan, n_data * 8, &sizes, err));
    if (on_host) {
        AD_RETURN_IF_ERR(ad_sync_wait(view->sync, "a copy", err));
        memcpy(sizes, sizes_piece->source, (size_t)n_data * 8);
    } else {
        AD_RETURN_IF_ERR(read_source(plan, view, sizes_piece->source, 0,
                                     n_data * 8, sizes, err));
    }
    *sizes_piece =
        (ad_piece){.source = sizes, .nbytes = n_data * 8, .on_host = true};
    for (int64_t i = 0; i < n_data; i++) {
        pieces[2 + i].nbytes = ad_offset_at(sizes, true, i);
        if (pieces[2 + i].nbytes < 0) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "size %" PRId64 " of the variadic buffers is "
                           "%" PRId64 ", expected at least 0",
                           i, pieces[2 + i].nbytes);
        }
    }
    if (view->length == view->node->length ||
        !ad_host_accessible(view->device)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(narrow_views(plan, &pieces[1], &pieces[2], n_data, err));
    for (int64_t i = 0; i < n_data; i++) {
        memcpy((char *)sizes + i * 8, &pieces[2 + i].nbytes, 8);
    }
    return AD_OK;
}

/* The end of a list's child, if it is known without a read; else -1. */
static int64_t
known_end_of(const ad_array *view, const ad_type *type)
{
    bool is_whole = view->length == view->node->length;
    return type->layout == AD_LAYOUT_LIST && is_whole
               ? view->node->children[0]->length
               : -1;
}

/* Bits are copied as whole bytes. */
static ad_status
plan_buffers(ad_plan *plan, const ad_array *view, const ad_type *type,
             ad_piece *pieces, ad_error *err)
{
    for (int64_t i = 0; i < view->node->n_buffers; i++) {
        int64_t bits = ad_type_row_bits(type, i);
        int64_t end = ad_bitmap_bytes((view->offset + view->length) * bits);
        pieces[i].offset = view->offset * bits / 8;
        pieces[i].nbytes = end - pieces[i].offset;
    }
    if (type->layout == AD_LAYOUT_VIEWS) {
        return plan_views(plan, view, pieces, err);
    }
    if (type->layout != AD_LAYOUT_OFFSETS && type->layout != AD_LAYOUT_LIST) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(plan_offsets(plan, view, type, known_end_of(view, type),
                                  &pieces[1], err));
    if (type->layout == AD_LAYOUT_OFFSETS) {
        pieces[2].offset = pieces[1].first;
        pieces[2].nbytes = pieces[1].end - pieces[1].first;
    }
    return AD_OK;
}

/* --- nodes --------------------------------------------------------------- */

/* Number of rows before the slice that are copied with it, because bits are
 * copied as whole bytes. */
static int64_t
leading_rows(const ad_array *view, const ad_type *type)
{
    const void *const *buffers = view->node->buffers;
    bool has_bits = (type->has_validity && buffers[0] != NULL) ||
                    (type->layout == AD_LAYOUT_FIXED && type->bit_width == 1);
    return has_bits && view->length > 0 ? view->offset % 8 : 0;
}

void
ad_plan_set_rows(ad_mapped_node *node, const ad_piece *pieces)
{
    /* The children of a run-end array are copied whole. */
    if (node->type.id != AD_TYPE_RUN_END) {
        node->spec.offset = leading_rows(node->view, &node->type);
    }
    if (node->type.layout == AD_LAYOUT_LIST) {
        node->first_below = pieces[1].first;
        node->n_below = pieces[1].end - pieces[1].first;
    }
}

static ad_status
plan_node(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    ad_plan *plan = (ad_plan *)map;
    ad_array rows = *node->view;
    int64_t leading = leading_rows(&rows, &node->type);
    size_t n = (size_t)node->spec.n_buffers;
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->pieces, n, err));
    ad_piece *pieces = &plan->pieces.items[plan->pieces.n];
    plan->pieces.n += n;
    for (size_t i = 0; i < n; i++) {
        pieces[i] = (ad_piece){.source = node->buffers[i]};
    }
    rows.offset -= leading;
    rows.length += leading;
    AD_RETURN_IF_ERR(plan_buffers(plan, &rows, &node->type, pieces, err));
    ad_plan_set_rows(node, pieces);
    return AD_OK;
}

ad_status
ad_plan_make(const ad_array *array, const ad_session *reading, ad_plan *out,
             ad_error *err)
{
    *out = (ad_plan){.map = {plan_node}, .reading = reading};
    return ad_map_buffers(array, &out->map, NULL, err);
}

void
ad_plan_clear(ad_plan *plan)
{
    for (size_t i = 0; i < plan->allocations.n; i++) {
        ad_owner_unref(plan->allocations.items[i]);
    }
    free(plan->allocations.items);
    free(plan->pieces.items);
}
