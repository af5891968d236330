/* Joins strings and lists. */
#include <inttypes.h>
#include <stdlib.h>

#include "compute/concat_join.h"
#include "copy/copy.h"

/* --- first and last offsets ---------------------------------------------- */

/* Reads offset `i` of a view. Blocks on a device. */
static ad_status
read_offset(const ad_concat_job *self, const ad_array *view, int width,
            int64_t i, int64_t *out, ad_error *err)
{
    const void *offsets = view->node->buffers[1];
    int64_t number = 0;
    if (ad_concat_is_on_host(self)) {
        *out = ad_int_at(offsets, width, i);
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_read_device(view->memory.device, offsets,
                                    view->memory.owner, (uint64_t)(i * width),
                                    (size_t)width, view->memory.sync, NULL,
                                    &number, err));
    *out = ad_int_at(&number, width, 0);
    return AD_OK;
}

/* Checks the last offset of a view, which may be a slice, against the last one
 * of its node. */
static ad_status
check_on_host(const ad_array *view, int width, int64_t last, ad_error *err)
{
    const struct ArrowArray *node = view->node;
    int64_t end =
        ad_int_at(node->buffers[1], width, node->offset + node->length);
    return last <= end ? AD_OK
                       : ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                                 "offsets run to %" PRId64
                                 ", past the last one, %" PRId64,
                                 last, end);
}

/* Checks all offsets of the view up to the last. Blocks. */
static ad_status
check_on_device(const ad_array *view, int width, int64_t last, ad_error *err)
{
    int64_t bad;
    AD_RETURN_IF_ERR(ad_find_bad_offset(view, view->node->buffers[1], width,
                                        last, &bad, err));
    return bad < 0 ? AD_OK
                   : ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                             "the offsets decrease at row %" PRId64, bad);
}

/* Reads and checks the range of data that the view's rows use. Blocks on a
 * device. */
static ad_status
read_range(const ad_concat_job *self, const ad_concat_node *at,
           const ad_array *view, int64_t *first, int64_t *last, ad_error *err)
{
    int width = ad_concat_offset_width(at);
    *first = *last = 0;
    if (view->length == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(read_offset(self, view, width, view->offset, first, err));
    AD_RETURN_IF_ERR(read_offset(self, view, width,
                                 view->offset + view->length, last, err));
    if (*first < 0 || *last < *first) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offsets run from %" PRId64 " to %" PRId64, *first,
                       *last);
    }
    if (at->type.layout == AD_LAYOUT_LIST &&
        *last > view->node->children[0]->length) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offsets end at %" PRId64 ", but there are %" PRId64
                       " values",
                       *last, view->node->children[0]->length);
    }
    return ad_concat_is_on_host(self)
               ? check_on_host(view, width, *last, err)
               : check_on_device(view, width, *last, err);
}

/* Reads the range of each view into `ranges` (2 * n numbers), and sums their
 * sizes. */
static ad_status
read_ranges(const ad_concat_job *self, const ad_concat_node *at,
            int64_t *ranges, int64_t *total, ad_error *err)
{
    int64_t max = ad_concat_max(ad_concat_offset_width(at), false);
    *total = 0;
    for (size_t v = 0; v < at->n; v++) {
        int64_t *range = &ranges[2 * v];
        AD_RETURN_IF_ERR(
            read_range(self, at, &at->views[v], &range[0], &range[1], err));
        if (range[1] - range[0] > max - *total) {
            return ad_concat_fail_size(at->schema, "the data", err);
        }
        *total += range[1] - range[0];
    }
    return AD_OK;
}

/* --- strings and lists --------------------------------------------------- */

/* Writes the offsets of one view but the first behind offset `to`, and checks
 * them. */
static ad_status
put_offsets(const ad_concat_node *at, const ad_array *view,
            const int64_t *range, int64_t base, int64_t to, ad_error *err)
{
    int width = ad_concat_offset_width(at);
    const void *offsets = view->node->buffers[1];
    void *target = at->buffers[1];
    int64_t before = range[0];
    for (int64_t i = 1; i <= view->length; i++) {
        int64_t offset = ad_int_at(offsets, width, view->offset + i);
        if (offset < before || offset > range[1]) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "offset %" PRId64 " comes after %" PRId64, offset,
                           before);
        }
        ad_put_int(target, width, to + i, base + offset - range[0]);
        before = offset;
    }
    return AD_OK;
}

/* The same on a device. The first view with rows also writes its first offset,
 * which becomes 0. */
static ad_status
shift_offsets(ad_concat_job *self, const ad_concat_node *at,
              const ad_array *view, const int64_t *range, int64_t base,
              int64_t to, ad_error *err)
{
    int64_t skip = to > 0;
    return view->length == 0
               ? AD_OK
               : ad_concat_add(
                     self, view->node->buffers[1], view->offset + skip,
                     at->buffers[1], to + skip, view->length + 1 - skip,
                     ad_concat_offset_width(at), base - range[0], err);
}

static ad_status
join_offsets(ad_concat_job *self, ad_concat_node *at, const int64_t *ranges,
             ad_error *err)
{
    int width = ad_concat_offset_width(at);
    int64_t total = 0;
    int64_t to = 0;
    AD_RETURN_IF_ERR(
        ad_concat_allocate(self, at->length + 1, width, &at->buffers[1], err));
    if (at->length == 0 || ad_concat_is_on_host(self)) {
        AD_RETURN_IF_ERR(ad_copy_bits(&self->builder.session, NULL, 0,
                                      at->buffers[1], 0, 8 * width,
                                      AD_BITS_ZEROS, err));
    }
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const int64_t *range = &ranges[2 * v];
        AD_RETURN_IF_ERR(
            ad_concat_is_on_host(self)
                ? put_offsets(at, view, range, total, to, err)
                : shift_offsets(self, at, view, range, total, to, err));
        to += view->length;
        total += range[1] - range[0];
    }
    return AD_OK;
}

static ad_status
join_data(ad_concat_job *self, ad_concat_node *at, const int64_t *ranges,
          int64_t total, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(ad_concat_allocate(self, total, 1, &at->buffers[2], err));
    for (size_t v = 0; v < at->n; v++) {
        const void *data = at->views[v].node->buffers[2];
        int64_t last = ranges[2 * v + 1];
        int64_t nbytes = last - ranges[2 * v];
        if (nbytes > 0 && data == NULL) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "buffers[2] (data) is NULL, but the offsets end "
                           "at %" PRId64,
                           last);
        }
        AD_RETURN_IF_ERR(ad_builder_bytes(&self->builder, data, ranges[2 * v],
                                          at->buffers[2], to, nbytes, err));
        to += nbytes;
    }
    return AD_OK;
}

static ad_status
join_values(ad_concat_job *self, ad_concat_node *at, const int64_t *ranges,
            ad_error *err)
{
    for (size_t v = 0; v < at->n; v++) {
        int64_t first = ranges[2 * v];
        at->parts[v] = ad_array_borrow_below(&at->views[v], 0, first,
                                             ranges[2 * v + 1] - first);
    }
    return ad_concat_child(self, at, 0, err);
}

ad_status
ad_concat_ranges(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t total;
    int64_t *ranges = malloc(2 * at->n * sizeof(*ranges));
    if (ranges == NULL) {
        return ad_fail_memory(err, 2 * at->n * sizeof(*ranges));
    }
    ad_status status = read_ranges(self, at, ranges, &total, err);
    if (status == AD_OK) {
        status = join_offsets(self, at, ranges, err);
    }
    if (status == AD_OK) {
        status = at->type.layout == AD_LAYOUT_LIST
                     ? join_values(self, at, ranges, err)
                     : join_data(self, at, ranges, total, err);
    }
    free(ranges);
    return status;
}

/* --- list views ---------------------------------------------------------- */

/* Writes the offsets and sizes of one view from row `to` on. Those of null
 * rows become 0. */
static ad_status
put_lists(const ad_concat_node *at, const ad_array *view, int64_t base,
          int64_t to, ad_error *err)
{
    int width = ad_concat_offset_width(at);
    int64_t max = ad_concat_max(width, false);
    int64_t n_values = view->node->children[0]->length;
    const void *const *buffers = view->node->buffers;
    const void *validity = ad_concat_validity(view);
    for (int64_t i = 0; i < view->length; i++) {
        int64_t row = view->offset + i;
        int64_t offset = 0;
        int64_t size = 0;
        if (validity == NULL || ad_bitmap_get(validity, row)) {
            offset = ad_int_at(buffers[1], width, row);
            size = ad_int_at(buffers[2], width, row);
        }
        if (offset < 0 || size < 0 || offset > n_values ||
            size > n_values - offset) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "a list of %" PRId64 " values from %" PRId64
                           ", but there are %" PRId64,
                           size, offset, n_values);
        }
        if (offset > max - base) {
            return ad_concat_fail_size(at->schema, "the values", err);
        }
        ad_put_int(at->buffers[1], width, to + i, base + offset);
        ad_put_int(at->buffers[2], width, to + i, size);
    }
    return AD_OK;
}

/* The same on a device, where rows are not checked. */
static ad_status
shift_lists(ad_concat_job *self, const ad_concat_node *at,
            const ad_array *view, int64_t base, int64_t to, ad_error *err)
{
    int width = ad_concat_offset_width(at);
    const void *const *buffers = view->node->buffers;
    if (view->node->children[0]->length > ad_concat_max(width, false) - base) {
        return ad_concat_fail_size(at->schema, "the values", err);
    }
    AD_RETURN_IF_ERR(ad_concat_add(self, buffers[1], view->offset,
                                   at->buffers[1], to, view->length, width,
                                   base, err));
    return ad_builder_bytes(&self->builder, buffers[2], view->offset * width,
                            at->buffers[2], to * width, view->length * width,
                            err);
}

/* Copies all values of the children, since rows may point to any of them. */
ad_status
ad_concat_list_views(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t base = 0;
    int64_t to = 0;
    for (int i = 1; i <= 2; i++) {
        AD_RETURN_IF_ERR(ad_concat_allocate(self, at->length,
                                            ad_concat_offset_width(at),
                                            &at->buffers[i], err));
    }
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t n_values = view->node->children[0]->length;
        int64_t end;
        if (__builtin_add_overflow(base, n_values, &end)) {
            return ad_concat_fail_size(at->schema, "the values", err);
        }
        AD_RETURN_IF_ERR(ad_concat_is_on_host(self)
                             ? put_lists(at, view, base, to, err)
                             : shift_lists(self, at, view, base, to, err));
        base = end;
        to += view->length;
    }
    return ad_concat_whole_child(self, at, 0, err);
}
