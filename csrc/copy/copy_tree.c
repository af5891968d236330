#include "copy/copy_tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/unaligned.h"
#include "device/backend.h"

#define VIEW_SIZE 16
#define MAX_INLINE 12 /* bytes of a value that a view contains itself */

/* --- pieces -------------------------------------------------------------- */

/* Where the host reads a piece. */
static const void *
piece_data(const ad_piece *piece)
{
    return (const char *)piece->source + piece->offset;
}

/* Whether the rows may be fewer than those that the node's buffers are for. */
static bool
is_slice(const ad_array *view)
{
    return view->offset != 0 || view->length != view->node->length;
}

/* Whether the host is to read the buffers, so that no more is copied than the
 * rows need. On a device that costs a wait. */
static bool
is_worth_reading(const ad_array *view)
{
    return ad_host_accessible(view->memory.device) || is_slice(view);
}

/* --- reading ------------------------------------------------------------- */

/* Allocates host memory that the plan keeps. */
static ad_status
allocate(ad_plan *plan, int64_t nbytes, void **out, ad_error *err)
{
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->allocations, 1, err));
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    plan->allocations.items[plan->allocations.n++] = &memory->base;
    *out = memory->data;
    return AD_OK;
}

/* Reads memory of the view's device. Blocks. */
static ad_status
read_device(ad_plan *plan, const ad_array *view, const void *data,
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

/* Makes a piece readable by the host. Blocks. */
static ad_status
bring_to_host(ad_plan *plan, const ad_array *view, ad_piece *piece,
              ad_error *err)
{
    void *copy;
    if (piece->nbytes == 0) {
        return AD_OK;
    }
    if (ad_host_accessible(view->memory.device)) {
        return ad_sync_wait(view->memory.sync, "a copy", err);
    }
    AD_RETURN_IF_ERR(allocate(plan, piece->nbytes, &copy, err));
    AD_RETURN_IF_ERR(read_device(plan, view, piece->source, piece->offset,
                                 piece->nbytes, copy, err));
    piece->source = copy;
    piece->offset = 0;
    piece->on_host = true;
    return AD_OK;
}

/* Replaces a piece by as many bytes of new host memory, which the caller
 * fills. */
static ad_status
replace(ad_plan *plan, ad_piece *piece, void **out, ad_error *err)
{
    AD_RETURN_IF_ERR(allocate(plan, piece->nbytes, out, err));
    piece->source = *out;
    piece->offset = 0;
    piece->on_host = true;
    return AD_OK;
}

/* --- bits ---------------------------------------------------------------- */

static bool
has_clean_end(const ad_piece *piece, int64_t n_bits)
{
    const uint8_t *bytes = piece_data(piece);
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
    const void *old = piece_data(piece);
    piece->nbytes = ad_bitmap_bytes(n);
    AD_RETURN_IF_ERR(replace(plan, piece, &bits, err));
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
    AD_RETURN_IF_ERR(bring_to_host(plan, view, piece, err));
    const void *offsets = piece_data(piece);
    int64_t first = ad_offset_at(offsets, is_wide, 0);
    int64_t end = ad_offset_at(offsets, is_wide, view->length);
    AD_RETURN_IF_ERR(check_range(view, is_wide, first, end, err));
    *range = (ad_row_range){first, end - first};
    if (first == 0) {
        return AD_OK;
    }
    void *rebased;
    AD_RETURN_IF_ERR(replace(plan, piece, &rebased, err));
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
    if (known_end >= 0 && !is_slice(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(read_device(plan, view, piece->source,
                                 view->length * width, width, &last, err));
    range->n = ad_offset_at(&last, is_wide, 0);
    return check_range(view, is_wide, 0, range->n, err);
}

/* --- rows that refer to children ----------------------------------------- */

/* A row refers to the values [offset, offset + size) of a child. */
typedef struct reference {
    int64_t offset;
    int64_t size;
    int child; /* -1: no child */
} reference;

typedef struct references {
    const ad_array *view;
    const void *offsets;
    int width;
    const void *sizes;                /* of list views; NULL: 1 each */
    const ad_at_any_i8 *ids;          /* of unions, or NULL */
    int16_t child_of[UINT8_MAX + 1];  /* of each type id */
    ad_row_range range[INT8_MAX + 1]; /* of each child */
    bool is_used[INT8_MAX + 1];       /* the range of each child is set */
} references;

/* False for a row that refers to nothing in the child: the copy's row is as
 * invalid, since its child is not longer. */
static bool
read_reference(const references *self, int64_t i, reference *out)
{
    out->offset = ad_int_at(self->offsets, self->width, i);
    out->size =
        self->sizes != NULL ? ad_int_at(self->sizes, self->width, i) : 1;
    out->child = self->ids != NULL ? self->child_of[(uint8_t)self->ids[i]] : 0;
    if (out->child < 0 || out->offset < 0 || out->size < 0) {
        return false;
    }
    int64_t length = self->view->node->children[out->child]->length;
    return out->offset <= length && out->size <= length - out->offset;
}

static void
find_ranges(references *self)
{
    reference row;
    for (int64_t i = 0; i < self->view->length; i++) {
        if (!read_reference(self, i, &row) || row.size == 0) {
            continue;
        }
        ad_row_range *range = &self->range[row.child];
        int64_t end = row.offset + row.size;
        if (!self->is_used[row.child]) {
            *range = (ad_row_range){row.offset, row.size};
            self->is_used[row.child] = true;
            continue;
        }
        int64_t first = row.offset < range->first ? row.offset : range->first;
        int64_t last = range->first + range->n;
        *range = (ad_row_range){first, (end > last ? end : last) - first};
    }
}

static bool
is_narrower(const references *self)
{
    const struct ArrowArray *node = self->view->node;
    for (int64_t i = 0; i < node->n_children; i++) {
        if (self->range[i].n != node->children[i]->length) {
            return true;
        }
    }
    return false;
}

/* Narrows the children to what the rows refer to, and makes the offsets, whose
 * piece is `piece`, relative to that. An empty list begins at 0. */
static ad_status
narrow_children(ad_plan *plan, references *self, ad_piece *piece,
                ad_row_range *ranges, ad_error *err)
{
    void *narrowed;
    find_ranges(self);
    if (!is_narrower(self)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(replace(plan, piece, &narrowed, err));
    for (int64_t i = 0; i < self->view->length; i++) {
        reference row;
        int64_t at = ad_int_at(self->offsets, self->width, i);
        if (read_reference(self, i, &row)) {
            at = row.size > 0 ? at - self->range[row.child].first : 0;
        }
        ad_put_int(narrowed, self->width, i, at);
    }
    for (int64_t i = 0; i < self->view->node->n_children; i++) {
        ranges[i] = self->range[i];
    }
    return AD_OK;
}

static ad_status
plan_list_view(ad_plan *plan, const ad_array *view, const ad_type *type,
               ad_piece *pieces, ad_row_range *range, ad_error *err)
{
    references self = {.view = view, .width = type->wide_offsets ? 8 : 4};
    if (view->length == 0) {
        *range = (ad_row_range){0, 0};
        return AD_OK;
    }
    if (!is_worth_reading(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(bring_to_host(plan, view, &pieces[1], err));
    AD_RETURN_IF_ERR(bring_to_host(plan, view, &pieces[2], err));
    self.offsets = piece_data(&pieces[1]);
    self.sizes = piece_data(&pieces[2]);
    return narrow_children(plan, &self, &pieces[1], range, err);
}

static ad_status
plan_dense_union(ad_plan *plan, const ad_array *view, const ad_type *type,
                 ad_piece *pieces, ad_row_range *ranges, ad_error *err)
{
    references self = {.view = view, .width = 4};
    int8_t ids[INT8_MAX + 1];
    int n;
    for (int64_t i = 0; view->length == 0 && i < view->node->n_children; i++) {
        ranges[i] = (ad_row_range){0, 0};
    }
    if (view->length == 0 || !is_worth_reading(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_type_union_ids(type, ids, &n, err));
    memset(self.child_of, -1, sizeof(self.child_of));
    for (int i = 0; i < n && i < view->node->n_children; i++) {
        self.child_of[(uint8_t)ids[i]] = (int16_t)i;
    }
    AD_RETURN_IF_ERR(bring_to_host(plan, view, &pieces[0], err));
    AD_RETURN_IF_ERR(bring_to_host(plan, view, &pieces[1], err));
    self.ids = piece_data(&pieces[0]);
    self.offsets = piece_data(&pieces[1]);
    return narrow_children(plan, &self, &pieces[1], ranges, err);
}

/* --- run ends ------------------------------------------------------------ */

/* Checks the runs of the rows, and the one before. */
static ad_status
check_runs(const ad_array *view, const void *ends, int width, int64_t n,
           ad_row_range runs, ad_error *err)
{
    int64_t last = runs.first + runs.n - 1;
    int64_t stop = view->offset + view->length;
    for (int64_t i = runs.first > 0 ? runs.first : 0; i <= last && i < n;
         i++) {
        int64_t before = i > 0 ? ad_int_at(ends, width, i - 1) : 0;
        int64_t end = ad_int_at(ends, width, i);
        if (end <= before) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "run end %" PRId64 " comes after %" PRId64, end,
                           before);
        }
    }
    return last < n ? AD_OK
                    : ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                              "the last run ends before row %" PRId64, stop);
}

/* Finds the runs of the rows. The node of the run ends, which comes next, is
 * told their parent. */
static ad_status
plan_runs(ad_plan *plan, const ad_array *view, ad_row_range *ranges,
          ad_error *err)
{
    const struct ArrowArray *child = view->node->children[0];
    const struct ArrowSchema *schema = view->schema.node->children[0];
    ad_row_range runs = {0, 0};
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    int width = type.bit_width / 8;
    plan->runs = view;
    if (view->length > 0) {
        ad_piece ends = {
            .source = child->length > 0 ? child->buffers[1] : NULL,
            .offset = child->offset * width,
            .nbytes = child->length * width,
        };
        AD_RETURN_IF_ERR(bring_to_host(plan, view, &ends, err));
        const void *data = piece_data(&ends);
        int64_t n = child->length;
        int64_t last = view->offset + view->length - 1;
        runs.first = ad_first_above(data, width, n, view->offset);
        runs.n = ad_first_above(data, width, n, last) - runs.first + 1;
        AD_RETURN_IF_ERR(check_runs(view, data, width, n, runs, err));
    }
    ranges[0] = ranges[1] = runs;
    return AD_OK;
}

/* Makes run ends relative to the first row of `parent`; the last run ends with
 * its last row. `piece` has the ends of the runs of its rows. */
static ad_status
plan_run_ends(ad_plan *plan, const ad_array *view, const ad_type *type,
              const ad_array *parent, ad_piece *piece, ad_error *err)
{
    int width = type->bit_width / 8;
    int64_t n = view->length;
    if (n == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(bring_to_host(plan, view, piece, err));
    const void *old = piece_data(piece);
    if (parent->offset == 0 &&
        ad_int_at(old, width, n - 1) == parent->length) {
        return AD_OK;
    }
    void *ends;
    AD_RETURN_IF_ERR(replace(plan, piece, &ends, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t end = ad_int_at(old, width, i) - parent->offset;
        ad_put_int(ends, width, i,
                   end < parent->length ? end : parent->length);
    }
    return AD_OK;
}

/* --- views --------------------------------------------------------------- */

/* A view whose value does not fit into it: the data buffer that has the value,
 * and the range of bytes there. */
typedef struct long_view {
    int32_t buffer;
    int64_t first;
    int64_t end;
} long_view;

/* What the views use of a data buffer. */
typedef struct view_usage {
    const char *data; /* the buffer; readable on the host if it is gathered */
    int64_t size;     /* of the buffer */
    int64_t first;
    int64_t end;    /* of the bytes that the views use */
    int64_t total;  /* of the sizes of the views' values */
    char *gathered; /* the values without the bytes between them; or NULL */
    int64_t filled; /* so many bytes of `gathered` are written */
} view_usage;

typedef struct views_job {
    const char *old; /* `n` views */
    int64_t n;
    view_usage *usage; /* of `n_data` data buffers */
    int64_t n_data;
    bool is_changed; /* the views of the copy differ */
} views_job;

/* False for an inline value, and for a view that is not within its data
 * buffer, as that of a null row may be. */
static bool
read_long_view(const views_job *self, const char *view, long_view *out)
{
    int32_t numbers[4]; /* size, prefix, buffer, offset */
    memcpy(numbers, view, sizeof(numbers));
    *out =
        (long_view){numbers[2], numbers[3], (int64_t)numbers[3] + numbers[0]};
    return numbers[0] > MAX_INLINE && out->buffer >= 0 &&
           out->buffer < self->n_data && out->first >= 0 &&
           out->end <= self->usage[out->buffer].size;
}

/* Zeros the bytes after an inline value. True if any was not 0. */
static bool
clear_tail(char *view)
{
    static const char nothing[MAX_INLINE];
    int32_t size;
    memcpy(&size, view, sizeof(size));
    if (size < 0 || size >= MAX_INLINE ||
        memcmp(view + 4 + size, nothing, (size_t)(MAX_INLINE - size)) == 0) {
        return false;
    }
    memset(view + 4 + size, 0, (size_t)(MAX_INLINE - size));
    return true;
}

static void
find_usage(views_job *self)
{
    long_view at;
    for (int64_t i = 0; i < self->n; i++) {
        char view[VIEW_SIZE];
        memcpy(view, self->old + i * VIEW_SIZE, VIEW_SIZE);
        if (read_long_view(self, view, &at)) {
            view_usage *usage = &self->usage[at.buffer];
            usage->first = at.first < usage->first ? at.first : usage->first;
            usage->end = at.end > usage->end ? at.end : usage->end;
            usage->total += at.end - at.first;
        } else {
            self->is_changed |= clear_tail(view);
        }
    }
}

/* Narrows a data buffer to the bytes from the first to the last that a view
 * uses. If the values are fewer bytes than that, they are gathered, where the
 * host can read them and the offsets of views reach all of them. */
static ad_status
narrow_data(ad_plan *plan, views_job *self, view_usage *usage, ad_piece *piece,
            bool is_readable, ad_error *err)
{
    void *gathered;
    if (usage->end == 0) {
        piece->nbytes = 0;
        return AD_OK;
    }
    if (is_readable && usage->total < usage->end - usage->first &&
        usage->total <= INT32_MAX) {
        self->is_changed = true;
        piece->nbytes = usage->total;
        AD_RETURN_IF_ERR(replace(plan, piece, &gathered, err));
        usage->gathered = gathered;
        return AD_OK;
    }
    self->is_changed |= usage->first > 0;
    piece->offset = usage->first;
    piece->nbytes = usage->end - usage->first;
    return AD_OK;
}

/* Writes a view relative to the narrowed data. Views that are out of range
 * stay so. */
static void
write_view(const views_job *self, int64_t i, char *out)
{
    long_view at;
    memcpy(out, self->old + i * VIEW_SIZE, VIEW_SIZE);
    if (!read_long_view(self, out, &at)) {
        clear_tail(out);
        return;
    }
    view_usage *usage = &self->usage[at.buffer];
    int32_t offset = (int32_t)(at.first - usage->first);
    if (usage->gathered != NULL) {
        size_t size = (size_t)(at.end - at.first);
        offset = (int32_t)usage->filled;
        memcpy(usage->gathered + offset, usage->data + at.first, size);
        usage->filled += (int64_t)size;
    }
    memcpy(out + 12, &offset, sizeof(offset));
}

/* Narrows the data buffers to what the views use. */
static ad_status
narrow_views(ad_plan *plan, const ad_array *view, ad_piece *views,
             ad_piece *data, int64_t n_data, ad_error *err)
{
    void *usage, *copy;
    bool is_readable = ad_host_accessible(view->memory.device);
    int64_t size = (n_data + 1) * (int64_t)sizeof(view_usage);
    AD_RETURN_IF_ERR(allocate(plan, size, &usage, err));
    AD_RETURN_IF_ERR(bring_to_host(plan, view, views, err));
    views_job self = {.old = piece_data(views),
                      .n = view->length,
                      .usage = usage,
                      .n_data = n_data};
    for (int64_t i = 0; i < n_data; i++) {
        self.usage[i] = (view_usage){
            .data = data[i].source,
            .size = data[i].source != NULL ? data[i].nbytes : 0,
            .first = data[i].nbytes,
        };
    }
    find_usage(&self);
    for (int64_t i = 0; i < n_data; i++) {
        AD_RETURN_IF_ERR(narrow_data(plan, &self, &self.usage[i], &data[i],
                                     is_readable, err));
    }
    if (!self.is_changed) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(replace(plan, views, &copy, err));
    for (int64_t i = 0; i < self.n; i++) {
        write_view(&self, i, (char *)copy + i * VIEW_SIZE);
    }
    return AD_OK;
}

ad_status
ad_sizes_are_on_host(const ad_array *view, const void *data, bool *out,
                     ad_error *err)
{
    const struct ad_backend *backend;
    ad_memory_info info;
    ad_context hint = {.device = view->memory.device};
    *out = true;
    if (ad_host_accessible(view->memory.device)) {
        return AD_OK;
    }
    if (view->memory.sync != NULL) {
        hint.handle = view->memory.sync->on.context.handle;
    }
    AD_RETURN_IF_ERR(ad_backend_open(view->memory.device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->classify(data, hint, &info, err));
    *out = info.kind == AD_MEMORY_UNREGISTERED || info.host_accessible;
    return AD_OK;
}

/* Reads the sizes of the data buffers to new host memory. */
static ad_status
read_sizes(ad_plan *plan, const ad_array *view, ad_piece *piece,
           int64_t n_data, int64_t **out, ad_error *err)
{
    void *sizes;
    bool on_host;
    AD_RETURN_IF_ERR(ad_sizes_are_on_host(view, piece->source, &on_host, err));
    AD_RETURN_IF_ERR(allocate(plan, n_data * 8, &sizes, err));
    if (on_host) {
        AD_RETURN_IF_ERR(ad_sync_wait(view->memory.sync, "a copy", err));
        memcpy(sizes, piece->source, (size_t)n_data * 8);
    } else {
        AD_RETURN_IF_ERR(
            read_device(plan, view, piece->source, 0, n_data * 8, sizes, err));
    }
    *piece =
        (ad_piece){.source = sizes, .nbytes = n_data * 8, .on_host = true};
    *out = sizes;
    return AD_OK;
}

static ad_status
plan_views(ad_plan *plan, const ad_array *view, ad_piece *pieces,
           ad_error *err)
{
    int64_t n_data = view->node->n_buffers - 3;
    ad_piece *sizes_piece = &pieces[2 + n_data];
    int64_t *sizes = NULL;
    if (n_data > 0 && sizes_piece->source == NULL) {
        return AD_OK;
    }
    if (n_data > 0) {
        AD_RETURN_IF_ERR(
            read_sizes(plan, view, sizes_piece, n_data, &sizes, err));
    }
    for (int64_t i = 0; i < n_data; i++) {
        pieces[2 + i].nbytes = sizes[i];
        if (sizes[i] < 0) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "size %" PRId64 " of the variadic buffers is "
                           "%" PRId64 ", expected at least 0",
                           i, sizes[i]);
        }
    }
    if (pieces[1].source == NULL || !is_worth_reading(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        narrow_views(plan, view, &pieces[1], &pieces[2], n_data, err));
    for (int64_t i = 0; i < n_data; i++) {
        sizes[i] = pieces[2 + i].nbytes;
    }
    return AD_OK;
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
            return plan_views(plan, view, pieces, err);
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            return plan_offset_type(plan, view, type, pieces, below, err);
        case AD_LAYOUT_LIST_VIEW:
            return plan_list_view(plan, view, type, pieces, below, err);
        case AD_LAYOUT_DENSE_UNION:
            return plan_dense_union(plan, view, type, pieces, below, err);
        default:
            return type->id == AD_TYPE_RUN_END
                       ? plan_runs(plan, view, below, err)
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
            plan_run_ends(plan, view, &node->type, runs, &pieces[1], err));
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
