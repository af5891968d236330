#include "copy/copy_tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/unaligned.h"
#include "device/backend.h"

/* --- reading ------------------------------------------------------------- */

ad_status
ad_plan_allocate(ad_plan *plan, int64_t nbytes, void **out, ad_error *err)
{
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->allocations, 1, err));
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    plan->allocations.items[plan->allocations.n++] = &memory->base;
    *out = memory->data;
    return AD_OK;
}

ad_status
ad_plan_read(ad_plan *plan, const ad_array *view, const void *data,
             int64_t offset, int64_t nbytes, void *out, ad_error *err)
{
    const ad_session_request request = {
        .source = view->memory.device,
        .data = data,
        .sync = view->memory.sync,
        .target = AD_CPU,
        .operation = "reading device memory",
    };
    if (plan->reading == NULL) {
        AD_RETURN_IF_ERR(ad_session_open(&request, &plan->own, err));
        plan->reading = &plan->own;
    }
    return ad_session_read(plan->reading, view->memory.owner, data,
                           (uint64_t)offset, (size_t)nbytes, out, err);
}

ad_status
ad_plan_bring_to_host(ad_plan *plan, const ad_array *view, ad_piece *piece,
                      ad_error *err)
{
    void *copy;
    if (piece->nbytes == 0) {
        return AD_OK;
    }
    if (ad_host_accessible(view->memory.device)) {
        return ad_sync_wait(view->memory.sync, "a copy", err);
    }
    AD_RETURN_IF_ERR(ad_plan_allocate(plan, piece->nbytes, &copy, err));
    AD_RETURN_IF_ERR(ad_plan_read(plan, view, piece->source, piece->offset,
                                  piece->nbytes, copy, err));
    piece->source = copy;
    piece->offset = 0;
    piece->on_host = true;
    return AD_OK;
}

ad_status
ad_plan_replace(ad_plan *plan, ad_piece *piece, void **out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_plan_allocate(plan, piece->nbytes, out, err));
    piece->source = *out;
    piece->offset = 0;
    piece->on_host = true;
    return AD_OK;
}

/* --- bits ---------------------------------------------------------------- */

static bool
has_clean_end(const ad_piece *piece, int64_t n_bits)
{
    const uint8_t *bytes = ad_piece_data(piece);
    return n_bits % 8 == 0 || bytes[n_bits / 8] >> (n_bits % 8) == 0;
}

/* Plans a buffer of one bit per row. */
static ad_status
plan_bits(ad_plan *plan, const ad_array *view, ad_piece *piece, ad_error *err)
{
    int64_t n = view->length;
    int shift = (int)(view->offset % 8);
    if (piece->source == NULL || n == 0) {
        return AD_OK;
    }
    if (view->memory.device.type != ARROW_DEVICE_CPU) {
        piece->shift = shift;
        piece->n_bits = shift != 0 || n % 8 != 0 ? n : 0;
        return AD_OK;
    }
    if (shift == 0 && has_clean_end(piece, n)) {
        return AD_OK;
    }
    void *bits;
    const void *old = ad_piece_data(piece);
    piece->nbytes = ad_bitmap_bytes(n);
    AD_RETURN_IF_ERR(ad_plan_replace(plan, piece, &bits, err));
    const ad_launch launch = {
        .kernel = AD_KERNEL_COPY_BITS,
        .source.data = (void *)old,
        .target.data = bits,
        .bit_offset = shift,
        .length = n,
        .numbers = {0, AD_BITS_COPY, piece->nbytes * 8 - n},
        .n_items = 1,
    };
    ad_kernel_run_on_host(&launch);
    return AD_OK;
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
check_range(const ad_array *view, bool is_wide, int64_t first, int64_t end,
            ad_error *err)
{
    const struct ArrowArray *node = view->node;
    if (first < 0 || first > end) {
        return fail_range(first, end, err);
    }
    if (ad_host_accessible(view->memory.device)) {
        int64_t last = ad_offset_at(node->buffers[1], is_wide,
                                    node->offset + node->length);
        if (end > last) {
            return fail_range(end, last, err);
        }
    }
    return AD_OK;
}

/* Writes `n` offsets less `first`. */
static ad_status
rebase(const void *offsets, bool is_wide, int64_t n, int64_t first, void *out,
       ad_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        if (__builtin_sub_overflow(ad_offset_at(offsets, is_wide, i), first,
                                   &at) ||
            (!is_wide && at != (int32_t)at)) {
            return fail_range(first, ad_offset_at(offsets, is_wide, i), err);
        }
        ad_put_int(out, is_wide ? 8 : 4, i, at);
    }
    return AD_OK;
}

/* Plans offsets that the host can read: they start at 0 in the copy. */
static ad_status
plan_read_offsets(ad_plan *plan, const ad_array *view, bool is_wide,
                  ad_piece *piece, ad_row_range *range, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, piece, err));
    const void *offsets = ad_piece_data(piece);
    int64_t first = ad_offset_at(offsets, is_wide, 0);
    int64_t end = ad_offset_at(offsets, is_wide, view->length);
    AD_RETURN_IF_ERR(check_range(view, is_wide, first, end, err));
    *range = (ad_row_range){first, end - first};
    if (first == 0) {
        return AD_OK;
    }
    void *rebased;
    AD_RETURN_IF_ERR(ad_plan_replace(plan, piece, &rebased, err));
    return rebase(offsets, is_wide, view->length + 1, first, rebased, err);
}

/* Plans the offsets buffer; *range is the range of data that the rows refer
 * to. `known_end` is the end of the data where all rows are selected and it is
 * known without a read; else -1. */
static ad_status
plan_offsets(ad_plan *plan, const ad_array *view, const ad_type *type,
             int64_t known_end, ad_piece *piece, ad_row_range *range,
             ad_error *err)
{
    bool is_wide = type->wide_offsets;
    int64_t width = is_wide ? 8 : 4;
    int64_t last;
    *range = (ad_row_range){0, 0};
    if (piece->source == NULL || view->length == 0) {
        piece->nbytes = 0;
        return AD_OK;
    }
    piece->nbytes += width; /* the last offset */
    if (ad_host_accessible(view->memory.device) || view->offset != 0) {
        return plan_read_offsets(plan, view, is_wide, piece, range, err);
    }
    range->n = known_end;
    if (known_end >= 0 && !ad_plan_is_slice(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_plan_read(plan, view, piece->source,
                                  view->length * width, width, &last, err));
    range->n = ad_offset_at(&last, is_wide, 0);
    return check_range(view, is_wide, 0, range->n, err);
}

/* --- nodes --------------------------------------------------------------- */

/* The end of a list's child, if it is known without a read; else -1. */
static int64_t
known_end_of(const ad_array *view, const ad_type *type)
{
    return type->layout == AD_LAYOUT_LIST ? view->node->children[0]->length
                                          : -1;
}

static ad_status
plan_offset_type(ad_plan *plan, const ad_array *view, const ad_type *type,
                 ad_piece *pieces, ad_row_range *below, ad_error *err)
{
    ad_row_range range;
    AD_RETURN_IF_ERR(plan_offsets(plan, view, type, known_end_of(view, type),
                                  &pieces[1], &range, err));
    if (type->layout == AD_LAYOUT_LIST) {
        *below = range;
    } else {
        pieces[2].offset = range.first;
        pieces[2].nbytes = range.n;
    }
    return AD_OK;
}

/* The buffers that refer to something, and the rows of the children. */
static ad_status
plan_references(ad_plan *plan, const ad_array *view, const ad_type *type,
                ad_piece *pieces, ad_row_range *below, ad_error *err)
{
    switch (type->layout) {
        case AD_LAYOUT_VIEWS:
            return ad_plan_views(plan, view, pieces, err);
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            return plan_offset_type(plan, view, type, pieces, below, err);
        case AD_LAYOUT_LIST_VIEW:
            return ad_plan_list_view(plan, view, type, pieces, below, err);
        case AD_LAYOUT_DENSE_UNION:
            return ad_plan_dense_union(plan, view, type, pieces, below, err);
        default:
            return type->id == AD_TYPE_RUN_END
                       ? ad_plan_runs(plan, view, below, err)
                       : AD_OK;
    }
}

static ad_status
plan_node(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    ad_plan *plan = (ad_plan *)map;
    const ad_array *view = node->view;
    const ad_array *runs = plan->runs;
    size_t n = (size_t)node->spec.n_buffers;
    size_t n_below = (size_t)node->spec.n_children;
    plan->runs = NULL;
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->pieces, n, err));
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->ranges, n_below, err));
    ad_piece *pieces = &plan->pieces.items[plan->pieces.n];
    plan->pieces.n += n;
    for (size_t i = 0; i < n; i++) {
        int64_t bits = ad_type_row_bits(&node->type, (int64_t)i);
        int64_t end = ad_bitmap_bytes((view->offset + view->length) * bits);
        pieces[i] = (ad_piece){.source = node->buffers[i],
                               .offset = view->offset * bits / 8};
        pieces[i].nbytes = view->length > 0 ? end - pieces[i].offset : 0;
        if (bits == 1) {
            AD_RETURN_IF_ERR(plan_bits(plan, view, &pieces[i], err));
        }
    }
    AD_RETURN_IF_ERR(plan_references(plan, view, &node->type, pieces,
                                     node->rows_below, err));
    if (runs != NULL) {
        AD_RETURN_IF_ERR(
            ad_plan_run_ends(plan, view, &node->type, runs, &pieces[1], err));
    }
    for (size_t i = 0; i < n_below; i++) {
        plan->ranges.items[plan->ranges.n++] = node->rows_below[i];
    }
    return AD_OK;
}

ad_status
ad_plan_make(const ad_array *array, const ad_session *reading, ad_plan *out,
             ad_error *err)
{
    *out = (ad_plan){.map = {plan_node}, .reading = reading};
    return ad_map_buffers(array, &out->map, NULL, err);
}

const ad_piece *
ad_plan_next(ad_plan *plan, ad_mapped_node *node)
{
    const ad_piece *pieces = &plan->pieces.items[plan->next_piece];
    plan->next_piece += (size_t)node->spec.n_buffers;
    for (int64_t i = 0; i < node->spec.n_children; i++) {
        node->rows_below[i] = plan->ranges.items[plan->next_range++];
    }
    node->spec.offset = 0;
    return pieces;
}

void
ad_plan_clear(ad_plan *plan)
{
    for (size_t i = 0; i < plan->allocations.n; i++) {
        ad_owner_unref(plan->allocations.items[i]);
    }
    free(plan->allocations.items);
    free(plan->ranges.items);
    free(plan->pieces.items);
}
