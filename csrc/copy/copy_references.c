#include <inttypes.h>
#include <string.h>

#include "base/unaligned.h"
#include "copy/copy_tree.h"
#include "device/backend.h"

#define VIEW_SIZE 16
#define MAX_INLINE 12 /* bytes of a value that a view contains itself */

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
    AD_RETURN_IF_ERR(ad_plan_replace(plan, piece, &narrowed, err));
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

ad_status
ad_plan_list_view(ad_plan *plan, const ad_array *view, const ad_type *type,
                  ad_piece *pieces, ad_row_range *range, ad_error *err)
{
    references self = {.view = view, .width = type->wide_offsets ? 8 : 4};
    if (view->length == 0) {
        *range = (ad_row_range){0, 0};
        return AD_OK;
    }
    if (!ad_plan_is_worth_reading(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, &pieces[1], err));
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, &pieces[2], err));
    self.offsets = ad_piece_data(&pieces[1]);
    self.sizes = ad_piece_data(&pieces[2]);
    return narrow_children(plan, &self, &pieces[1], range, err);
}

ad_status
ad_plan_dense_union(ad_plan *plan, const ad_array *view, const ad_type *type,
                    ad_piece *pieces, ad_row_range *ranges, ad_error *err)
{
    references self = {.view = view, .width = 4};
    int8_t ids[INT8_MAX + 1];
    int n;
    for (int64_t i = 0; view->length == 0 && i < view->node->n_children; i++) {
        ranges[i] = (ad_row_range){0, 0};
    }
    if (view->length == 0 || !ad_plan_is_worth_reading(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_type_union_ids(type, ids, &n, err));
    memset(self.child_of, -1, sizeof(self.child_of));
    for (int i = 0; i < n && i < view->node->n_children; i++) {
        self.child_of[(uint8_t)ids[i]] = (int16_t)i;
    }
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, &pieces[0], err));
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, &pieces[1], err));
    self.ids = ad_piece_data(&pieces[0]);
    self.offsets = ad_piece_data(&pieces[1]);
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
ad_status
ad_plan_runs(ad_plan *plan, const ad_array *view, ad_row_range *ranges,
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
        AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, &ends, err));
        const void *data = ad_piece_data(&ends);
        int64_t n = child->length;
        int64_t last = view->offset + view->length - 1;
        runs.first = ad_first_above(data, width, n, view->offset);
        runs.n = ad_first_above(data, width, n, last) - runs.first + 1;
        AD_RETURN_IF_ERR(check_runs(view, data, width, n, runs, err));
    }
    ranges[0] = ranges[1] = runs;
    return AD_OK;
}

ad_status
ad_plan_run_ends(ad_plan *plan, const ad_array *view, const ad_type *type,
                 const ad_array *parent, ad_piece *piece, ad_error *err)
{
    int width = type->bit_width / 8;
    int64_t n = view->length;
    if (n == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, piece, err));
    const void *old = ad_piece_data(piece);
    if (parent->offset == 0 &&
        ad_int_at(old, width, n - 1) == parent->length) {
        return AD_OK;
    }
    void *ends;
    AD_RETURN_IF_ERR(ad_plan_replace(plan, piece, &ends, err));
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
        AD_RETURN_IF_ERR(ad_plan_replace(plan, piece, &gathered, err));
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
    AD_RETURN_IF_ERR(ad_plan_allocate(plan, size, &usage, err));
    AD_RETURN_IF_ERR(ad_plan_bring_to_host(plan, view, views, err));
    views_job self = {.old = ad_piece_data(views),
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
    AD_RETURN_IF_ERR(ad_plan_replace(plan, views, &copy, err));
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
    AD_RETURN_IF_ERR(ad_plan_allocate(plan, n_data * 8, &sizes, err));
    if (on_host) {
        AD_RETURN_IF_ERR(ad_sync_wait(view->memory.sync, "a copy", err));
        memcpy(sizes, piece->source, (size_t)n_data * 8);
    } else {
        AD_RETURN_IF_ERR(ad_plan_read(plan, view, piece->source, 0, n_data * 8,
                                      sizes, err));
    }
    *piece =
        (ad_piece){.source = sizes, .nbytes = n_data * 8, .on_host = true};
    *out = sizes;
    return AD_OK;
}

ad_status
ad_plan_views(ad_plan *plan, const ad_array *view, ad_piece *pieces,
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
    if (pieces[1].source == NULL || !ad_plan_is_worth_reading(view)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        narrow_views(plan, view, &pieces[1], &pieces[2], n_data, err));
    for (int64_t i = 0; i < n_data; i++) {
        sizes[i] = pieces[2 + i].nbytes;
    }
    return AD_OK;
}
