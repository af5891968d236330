/* Concatenation on a device: bytes are copied by the runtime, bits and offsets
 * by kernels. The host reads where offsets and runs begin and end, and no
 * data. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/bits.h"
#include "compute/concat_device.h"
#include "copy/copy.h"

static const char consumer[] = "putting arrays together";

static ad_status join_views(ad_concat_job *self, ad_schema schema,
                            const ad_array *views, bool is_root, ad_array *out,
                            ad_error *err);

/* --- buffers ------------------------------------------------------------------ */

static ad_status
join_validity(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t to = 0;
    if (!ad_join_count_nulls(&at->type, at->views, at->n, at->length,
                             &at->null_count)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_builder_bitmap(&self->builder, at->length, &at->buffers[0], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        bool may = ad_join_may_have_nulls(view);
        AD_RETURN_IF_ERR(ad_builder_bits(
            &self->builder, may ? view->node->buffers[0] : NULL, view->offset,
            at->buffers[0], to, view->length,
            may ? AD_BITS_COPY : AD_BITS_ONES, err));
        to += view->length;
    }
    return AD_OK;
}

/* Buffer `i` of bits. */
static ad_status
join_bits(ad_concat_job *self, ad_concat_node *at, int i, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(
        ad_builder_bitmap(&self->builder, at->length, &at->buffers[i], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        AD_RETURN_IF_ERR(ad_builder_bits(
            &self->builder, view->node->buffers[i], view->offset,
            at->buffers[i], to, view->length, AD_BITS_COPY, err));
        to += view->length;
    }
    return AD_OK;
}

/* Buffer `i` of `size` bytes per row. */
static ad_status
join_bytes(ad_concat_job *self, ad_concat_node *at, int i, int64_t size,
           ad_error *err)
{
    int64_t nbytes;
    int64_t to = 0;
    AD_RETURN_IF_ERR(ad_join_size_of_rows(at->length, size, &nbytes, err));
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, nbytes, &at->buffers[i], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        AD_RETURN_IF_ERR(ad_builder_bytes(
            &self->builder, view->node->buffers[i], view->offset * size,
            at->buffers[i], to, view->length * size, err));
        to += view->length * size;
    }
    return AD_OK;
}

/* Numbers [from, from + n) of a buffer, each with `delta` added, to number `to`
 * of another. */
static ad_status
add(ad_concat_job *self, const void *source, int64_t from, void *target,
    int64_t to, int64_t n, int64_t width, int64_t delta, ad_error *err)
{
    const ad_launch launch = {
        .kernel = AD_KERNEL_ADD,
        .source.offset = (uint64_t)(from * width),
        .target.offset = (uint64_t)(to * width),
        .length = n,
        .numbers = {width, delta},
    };
    return ad_session_kernel(&self->builder.session, source, target, launch,
                             err);
}

/* --- offsets ------------------------------------------------------------------- */

/* Those between the first and the last, and what they point to; blocks. */
static ad_status
check_offsets(const ad_concat_node *at, const ad_array *view, int64_t last,
              ad_error *err)
{
    int64_t bad;
    bool is_list = at->type.layout == AD_LAYOUT_LIST;
    if (is_list && last > view->node->children[0]->length) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offsets end at %" PRId64 ", but there are %" PRId64
                       " values",
                       last, view->node->children[0]->length);
    }
    AD_RETURN_IF_ERR(ad_find_bad_offset(view, view->node->buffers[1],
                                        at->type.wide_offsets ? 8 : 4, last,
                                        &bad, err));
    return bad < 0 ? AD_OK
                   : ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                             "the offsets decrease at row %" PRId64, bad);
}

/* Where the data of a view's rows begin and end; blocks. */
static ad_status
read_range(const ad_concat_node *at, const ad_array *view, int64_t *first,
           int64_t *last, ad_error *err)
{
    int width = at->type.wide_offsets ? 8 : 4;
    int64_t numbers[2] = {0};
    *first = *last = 0;
    if (view->length == 0) {
        return AD_OK;
    }
    for (int i = 0; i < 2; i++) {
        int64_t row = view->offset + (i == 0 ? 0 : view->length);
        AD_RETURN_IF_ERR(ad_read_device(view->device, view->node->buffers[1],
                                        view->owner, (uint64_t)(row * width),
                                        (size_t)width, view->sync, NULL,
                                        &numbers[i], err));
        numbers[i] = ad_int_at(&numbers[i], width, 0);
    }
    if (numbers[0] < 0 || numbers[1] < numbers[0]) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offsets run from %" PRId64 " to %" PRId64, numbers[0],
                       numbers[1]);
    }
    *first = numbers[0];
    *last = numbers[1];
    return check_offsets(at, view, numbers[1], err);
}

/* The views' ranges of data follow one another: 2 * n numbers. */
static ad_status
read_ranges(const ad_concat_node *at, int64_t *ranges, int64_t *total,
            ad_error *err)
{
    int64_t max = ad_join_max(at->type.wide_offsets ? 8 : 4, false);
    *total = 0;
    for (size_t v = 0; v < at->n; v++) {
        int64_t *range = &ranges[2 * v];
        AD_RETURN_IF_ERR(
            read_range(at, &at->views[v], &range[0], &range[1], err));
        if (range[1] - range[0] > max - *total) {
            return ad_join_fail_size(at->schema, "the data", err);
        }
        *total += range[1] - range[0];
    }
    return AD_OK;
}

/* The first view with rows gives its first offset, which becomes 0; the others
 * go on from the last. */
static ad_status
join_offsets(ad_concat_job *self, ad_concat_node *at, const int64_t *ranges,
             ad_error *err)
{
    int64_t width = at->type.wide_offsets ? 8 : 4;
    int64_t nbytes;
    int64_t total = 0;
    int64_t to = 0;
    AD_RETURN_IF_ERR(
        ad_join_size_of_rows(at->length + 1, width, &nbytes, err));
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, nbytes, &at->buffers[1], err));
    if (at->length == 0) {
        return ad_builder_bits(&self->builder, NULL, 0, at->buffers[1], 0,
                               nbytes * 8, AD_BITS_ZEROS, err);
    }
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t skip = to > 0;
        if (view->length > 0) {
            AD_RETURN_IF_ERR(add(self, view->node->buffers[1],
                                 view->offset + skip, at->buffers[1],
                                 to + skip, view->length + 1 - skip, width,
                                 total - ranges[2 * v], err));
        }
        to += view->length;
        total += ranges[2 * v + 1] - ranges[2 * v];
    }
    return AD_OK;
}

static ad_status
join_data(ad_concat_job *self, ad_concat_node *at, const int64_t *ranges,
          int64_t total, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, total, &at->buffers[2], err));
    for (size_t v = 0; v < at->n; v++) {
        int64_t nbytes = ranges[2 * v + 1] - ranges[2 * v];
        AD_RETURN_IF_ERR(ad_join_check_data(&at->views[v], ranges[2 * v],
                                            ranges[2 * v + 1], err));
        AD_RETURN_IF_ERR(
            ad_builder_bytes(&self->builder, at->views[v].node->buffers[2],
                             ranges[2 * v], at->buffers[2], to, nbytes, err));
        to += nbytes;
    }
    return AD_OK;
}

/* --- what hangs below ----------------------------------------------------------- */

/* Child `i` from at->parts, one per view. */
ad_status
ad_concat_child(ad_concat_job *self, ad_concat_node *at, int64_t i,
                ad_error *err)
{
    const ad_schema schema = {at->schema.node->children[i], at->schema.owner};
    ad_status status =
        join_views(self, schema, at->parts, false, &at->below[i], err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "children[%" PRId64 "]", i);
    }
    return status;
}

/* `size` values of each child per row. */
static ad_status
join_children(ad_concat_job *self, ad_concat_node *at, int64_t size,
              ad_error *err)
{
    for (int64_t i = 0; i < at->schema.node->n_children; i++) {
        ad_join_view_child(at->schema, at->views, at->n, i, size, at->parts);
        AD_RETURN_IF_ERR(ad_concat_child(self, at, i, err));
    }
    return AD_OK;
}

/* Strings and lists. */
static ad_status
join_ranges(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t total;
    int64_t *ranges = malloc(2 * at->n * sizeof(*ranges));
    if (ranges == NULL) {
        return ad_fail_memory(err, 2 * at->n * sizeof(*ranges));
    }
    ad_status status = read_ranges(at, ranges, &total, err);
    if (status == AD_OK) {
        status = join_offsets(self, at, ranges, err);
    }
    if (status == AD_OK && at->type.layout == AD_LAYOUT_OFFSETS) {
        status = join_data(self, at, ranges, total, err);
    } else if (status == AD_OK) {
        for (size_t v = 0; v < at->n; v++) {
            const ad_array *view = &at->views[v];
            at->parts[v] = ad_join_view_below(
                view, view->node->children[0], at->schema.node->children[0],
                ranges[2 * v], ranges[2 * v + 1] - ranges[2 * v]);
        }
        status = ad_concat_child(self, at, 0, err);
    }
    free(ranges);
    return status;
}

/* Rows may point anywhere, so that all values come along. */
static ad_status
join_list_views(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t width = at->type.wide_offsets ? 8 : 4;
    int64_t max = ad_join_max((int)width, false);
    int64_t nbytes;
    int64_t base = 0;
    int64_t to = 0;
    AD_RETURN_IF_ERR(ad_join_size_of_rows(at->length, width, &nbytes, err));
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, nbytes, &at->buffers[1], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const struct ArrowArray *child = view->node->children[0];
        if (child->length > max - base) {
            return ad_join_fail_size(at->schema, "the values", err);
        }
        AD_RETURN_IF_ERR(add(self, view->node->buffers[1], view->offset,
                             at->buffers[1], to, view->length, width, base,
                             err));
        base += child->length;
        to += view->length;
    }
    AD_RETURN_IF_ERR(join_bytes(self, at, 2, width, err));
    ad_join_view_values(at->schema, at->views, at->n, 0, at->parts);
    return ad_concat_child(self, at, 0, err);
}

/* The very same memory. */
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

/* Values that are not the same memory stand behind one another, and the
 * indices are moved. What a null's index was becomes some number. */
static ad_status
join_dictionaries(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    const struct ArrowSchema *schema = at->schema.node->dictionary;
    const ad_schema values = {schema, at->schema.owner};
    ad_array *below = &at->below[at->schema.node->n_children];
    int width = at->type.bit_width / 8;
    int64_t max =
        ad_join_max(width, strchr("CSIL", at->schema.node->format[0]) != NULL);
    bool are_same = true;
    int64_t base = 0;
    int64_t to = 0;
    for (size_t v = 0; v < at->n; v++) {
        const struct ArrowArray *dictionary = at->views[v].node->dictionary;
        at->parts[v] = ad_join_view_below(&at->views[v], dictionary, schema, 0,
                                          dictionary->length);
        are_same &= same_node(at->views[0].node->dictionary, dictionary);
    }
    if (are_same) {
        ad_array_share(&at->parts[0], below);
        return ad_builder_share(&self->builder, below->owner, err);
    }
    for (size_t v = 0; v < at->n; v++) {
        int64_t n = at->parts[v].length;
        if (n > 0 && base > max - (n - 1)) {
            return ad_join_fail_size(at->schema, "the dictionaries", err);
        }
        if (base > 0) {
            AD_RETURN_IF_ERR(add(self, at->buffers[1], to, at->buffers[1], to,
                                 at->views[v].length, width, base, err));
        }
        base += n;
        to += at->views[v].length;
    }
    ad_status status = join_views(self, values, at->parts, false, below, err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "dictionary");
    }
    return status;
}

/* --- nodes --------------------------------------------------------------------- */

static ad_status
join_layout(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    switch (at->type.layout) {
        case AD_LAYOUT_FIXED:
            if (at->type.bit_width == 1) {
                return join_bits(self, at, 1, err);
            }
            AD_RETURN_IF_ERR(
                join_bytes(self, at, 1, at->type.bit_width / 8, err));
            return at->schema.node->dictionary != NULL
                       ? join_dictionaries(self, at, err)
                       : AD_OK;
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            return join_ranges(self, at, err);
        case AD_LAYOUT_LIST_VIEW:
            return join_list_views(self, at, err);
        case AD_LAYOUT_VALIDITY:
            return join_children(
                self, at,
                at->type.id == AD_TYPE_FIXED_LIST ? at->type.list_size : 1,
                err);
        case AD_LAYOUT_SPARSE_UNION:
            AD_RETURN_IF_ERR(join_bytes(self, at, 0, 1, err));
            return join_children(self, at, 1, err);
        case AD_LAYOUT_NONE:
            return at->type.id == AD_TYPE_RUN_END
                       ? ad_concat_run_ends(self, at, err)
                       : AD_OK;
        case AD_LAYOUT_VIEWS:
            return ad_concat_views(self, at, err);
        case AD_LAYOUT_DENSE_UNION:
            AD_RETURN_IF_ERR(join_bytes(self, at, 0, 1, err));
            return ad_concat_dense_union(self, at, err);
    }
    return AD_OK;
}

static ad_status
build(ad_concat_job *self, const ad_concat_node *at, bool is_root,
      ad_array *out, ad_error *err)
{
    int64_t n_children = at->schema.node->n_children;
    ad_owner *owner = NULL;
    if (is_root) { /* comes last, and keeps all */
        AD_RETURN_IF_ERR(
            ad_builder_owner(&self->builder, NULL, NULL, &owner, err));
    }
    const ad_array_spec spec = {
        .schema = at->schema,
        .device = self->arrays[0].device,
        .length = at->length,
        .null_count = at->null_count,
        .n_buffers = at->n_buffers,
        .buffers = (const void *const *)at->buffers,
        .owner = owner,
        .n_children = n_children,
        .children = at->below,
        .dictionary = at->schema.node->dictionary != NULL
                          ? &at->below[n_children]
                          : NULL,
        .readonly = ad_join_is_readonly(&at->type, at->views, at->n),
    };
    ad_status status = ad_array_build(&spec, out, err);
    ad_owner_unref(owner);
    return status;
}

static ad_status
join_views(ad_concat_job *self, ad_schema schema, const ad_array *views,
           bool is_root, ad_array *out, ad_error *err)
{
    ad_concat_node at = {.schema = schema, .views = views, .n = self->n};
    size_t n_below = (size_t)schema.node->n_children + 1;
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &at.type, err));
    AD_RETURN_IF_ERR(
        ad_join_count_rows(schema, views, self->n, &at.length, err));
    AD_RETURN_IF_ERR(ad_join_count_buffers(schema, &at.type, views, self->n,
                                           &at.n_buffers, err));
    at.parts = malloc(self->n * sizeof(*at.parts));
    at.below = calloc(n_below, sizeof(*at.below));
    at.buffers = calloc((size_t)at.n_buffers + 1, sizeof(*at.buffers));
    ad_status status =
        at.parts == NULL || at.below == NULL || at.buffers == NULL
            ? ad_fail_memory(err, self->n * sizeof(*at.parts))
            : join_validity(self, &at, err);
    if (status == AD_OK) {
        status = join_layout(self, &at, err);
    }
    if (status == AD_OK) {
        status = build(self, &at, is_root, out, err);
    }
    for (size_t i = 0; at.below != NULL && i < n_below; i++) {
        ad_array_clear(&at.below[i]);
    }
    free(at.buffers);
    free(at.below);
    free(at.parts);
    return status;
}

/* --- entry ----------------------------------------------------------------------- */

static ad_status
fail_no_runtime(const ad_array *arrays, size_t n, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_EXCHANGE, "device",
            "read the batches of a stream one by one with "
            "arrowdev.array_stream()",
            "%zu arrays on %s cannot be put together: no runtime is there "
            "that could do it",
            n, ad_device_format(arrays[0].device, name));
    ad_error_device(err, arrays[0].device);
    return AD_ERR_EXCHANGE;
}

static ad_status
check_devices(const ad_array *arrays, size_t n, ad_error *err)
{
    char first[AD_DEVICE_NAME_SIZE];
    char other[AD_DEVICE_NAME_SIZE];
    for (size_t i = 1; i < n; i++) {
        if (ad_device_equal(arrays[i].device, arrays[0].device)) {
            continue;
        }
        ad_fail(err, AD_ERR_EXCHANGE, "device",
                "bring them to one device with .to() first",
                "array 0 is on %s, but array %zu is on %s",
                ad_device_format(arrays[0].device, first), i,
                ad_device_format(arrays[i].device, other));
        ad_error_device(err, arrays[i].device);
        return AD_ERR_EXCHANGE;
    }
    return ad_backend_is_there(arrays[0].device.type)
               ? AD_OK
               : fail_no_runtime(arrays, n, err);
}

static ad_session_request
request_for(const ad_array *array, const ad_stream_choice *stream)
{
    return (ad_session_request){
        .source = array->device,
        .data = ad_array_some_buffer(array),
        .sync = array->sync,
        .target = array->device,
        .stream = stream,
        .consumer = consumer,
    };
}

/* One whose memory says where the work is to be done: what has no rows need
 * have none. */
static const ad_array *
first_with_memory(const ad_concat_job *self)
{
    size_t i = 0;
    while (i < self->n && ad_array_some_buffer(&self->arrays[i]) == NULL) {
        i++;
    }
    return &self->arrays[i < self->n ? i : 0];
}

/* On one stream, after the events of all. */
static ad_status
open_session(ad_concat_job *self, const ad_stream_choice *stream,
             ad_error *err)
{
    const ad_session_request first =
        request_for(first_with_memory(self), stream);
    AD_RETURN_IF_ERR(ad_session_open(&first, &self->builder.session, err));
    self->builder.is_open = true;
    for (size_t i = 0; i < self->n; i++) {
        const ad_session_request each = request_for(&self->arrays[i], stream);
        AD_RETURN_IF_ERR(ad_session_use(&self->builder.session, &each,
                                        self->arrays[i].owner, err));
    }
    return AD_OK;
}

ad_status
ad_concat_on_device(ad_schema schema, const ad_array *arrays, size_t n,
                    const ad_stream_choice *stream, ad_array *out,
                    ad_error *err)
{
    ad_concat_job self = {.arrays = arrays, .n = n};
    ad_sync *sync = NULL;
    AD_RETURN_IF_ERR(check_devices(arrays, n, err));
    ad_status status = open_session(&self, stream, err);
    if (status == AD_OK) {
        status = join_views(&self, schema, arrays, true, out, err);
        if (status == AD_OK) {
            status = ad_builder_finish(&self.builder, &sync, err);
            if (status == AD_OK) {
                out->sync = sync;
            } else {
                ad_array_clear(out);
            }
        }
    }
    for (size_t i = 0; status != AD_OK && i < n && self.builder.is_open; i++) {
        ad_session_abandon(&self.builder.session, arrays[i].owner, NULL, NULL);
    }
    ad_builder_clear(&self.builder, status != AD_OK, NULL);
    return status;
}
