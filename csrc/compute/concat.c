/* Concatenation. On the host and on a device bytes, bits and offsets are
 * joined; a device does it with copies and kernels, and the host reads only
 * the first and last offsets. What is rare on devices is joined by the host
 * and copied back.
 *
 * All work goes through the buffer builder: on a device it is enqueued, on the
 * host it is done on return. The few steps that differ between the two call
 * is_on_host(). */
#include "compute/concat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/owner.h"
#include "base/unaligned.h"
#include "compute/bits.h"
#include "compute/buffer_builder.h"
#include "compute/unify.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "model/type.h"

static const char operation[] = "concatenating arrays";

typedef struct job {
    const ad_array *arrays;
    size_t n;
    ad_device device; /* of the result */
    ad_builder builder;
} job;

/* One node of the result while it is built. */
typedef struct joined {
    ad_schema schema;      /* borrowed */
    const ad_array *views; /* the rows to join; nothing is owned */
    size_t n;
    ad_type type;
    int64_t length;
    int64_t null_count;
    int64_t n_buffers;
    bool readonly;   /* it shares read-only memory */
    void **buffers;  /* the data of views are shared, the others are new */
    ad_array *parts; /* room for a view of each view's child */
    ad_array *below; /* owned: children, then the dictionary */
} joined;

/* Whether view `v` is of the same node as the view before it, so that both
 * have the same data buffers. */
static bool
repeats(const joined *at, size_t v)
{
    return v > 0 && at->views[v].node == at->views[v - 1].node;
}

/* Whether the host does the work. */
static bool
is_on_host(const job *self)
{
    return self->builder.session.backend == NULL;
}

/* Bytes of an offset. */
static int
offset_width(const joined *at)
{
    return at->type.wide_offsets ? 8 : 4;
}

/* --- rows ---------------------------------------------------------------- */

/* The validity bitmap of a view; NULL if no row is null. The type must have a
 * bitmap. */
static const void *
validity_of(const ad_array *view)
{
    return view->length > 0 && ad_array_null_count(view) != 0
               ? view->node->buffers[0]
               : NULL;
}

/* The largest integer of `width` bytes. */
static int64_t
max_of(int width, bool is_unsigned)
{
    int bits = width * 8 - (is_unsigned ? 0 : 1);
    return bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

/* AD_ERR_EXCHANGE, "size": `what` does not fit the type. */
static ad_status
fail_size(ad_schema schema, const char *what, ad_error *err)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "size",
                   "read the batches one by one with arrowdev.array_stream(), "
                   "or ask the producer for a wider type",
                   "%s of the batches together do not fit the type (format "
                   "\"%.40s\")",
                   what, schema.node->format);
}

/* --- buffers ------------------------------------------------------------- */

/* Allocates `n` items of `size` bytes for the result. For 0 bytes *out is NULL
 * on a device, and the address of some memory on the host. */
static ad_status
allocate(job *self, int64_t n, int64_t size, void **out, ad_error *err)
{
    static const _Alignas(64) unsigned char nothing[64];
    char name[AD_DEVICE_NAME_SIZE];
    int64_t nbytes;
    if (__builtin_mul_overflow(n, size, &nbytes)) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                       "%" PRId64 " rows of %" PRId64 " bytes overflow", n,
                       size);
    }
    ad_status status = ad_builder_allocate(&self->builder, nbytes, out, err);
    if (status != AD_OK && is_on_host(self) &&
        self->device.type != ARROW_DEVICE_CPU) {
        ad_error_prefix(err, "cannot concatenate arrays on %s there: ",
                        ad_device_format(self->device, name));
        ad_error_hint(err, "bring each to the host with .to(\"cpu\") first");
        ad_error_device(err, self->device);
    }
    if (*out == NULL && is_on_host(self)) {
        *out = (void *)nothing;
    }
    return status;
}

/* Allocates buffer `i` of one bit per row, padded with zeros to a multiple of
 * 64 bytes. */
static ad_status
new_bitmap(job *self, joined *at, int64_t i, ad_error *err)
{
    int64_t n = at->length;
    int64_t nbytes = ad_padded(ad_bitmap_bytes(n));
    AD_RETURN_IF_ERR(allocate(self, nbytes, 1, &at->buffers[i], err));
    if (is_on_host(self)) {
        memset((char *)at->buffers[i] + n / 8, 0, (size_t)(nbytes - n / 8));
        return AD_OK;
    }
    return ad_copy_bits(&self->builder.session, NULL, 0, at->buffers[i], n,
                        nbytes * 8 - n, AD_BITS_ZEROS, err);
}

/* Joins buffer `i` of bits. A view without a validity bitmap adds ones. */
static ad_status
join_bits(job *self, joined *at, int64_t i, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(new_bitmap(self, at, i, err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const void *source =
            i == 0 ? validity_of(view) : view->node->buffers[i];
        AD_RETURN_IF_ERR(ad_copy_bits(
            &self->builder.session, source, view->offset, at->buffers[i], to,
            view->length, source != NULL ? AD_BITS_COPY : AD_BITS_ONES, err));
        to += view->length;
    }
    return AD_OK;
}

/* Joins the bitmaps, if a view has one. The null count is -1 if a view's is
 * unknown. */
static ad_status
join_validity(job *self, joined *at, ad_error *err)
{
    bool has_nulls = false;
    at->null_count = at->type.id == AD_TYPE_NULL ? at->length : 0;
    for (size_t v = 0; v < at->n && at->type.has_validity; v++) {
        const ad_array *view = &at->views[v];
        if (validity_of(view) != NULL) {
            int64_t n_nulls = ad_array_null_count(view);
            bool is_known = at->null_count >= 0 && n_nulls >= 0;
            at->null_count = is_known ? at->null_count + n_nulls : -1;
            has_nulls = true;
        }
    }
    return has_nulls ? join_bits(self, at, 0, err) : AD_OK;
}

/* Builds buffer `i`, of `size` bytes per row, from those of the views. */
static ad_status
join_bytes(job *self, joined *at, int64_t i, int64_t size, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(allocate(self, at->length, size, &at->buffers[i], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        AD_RETURN_IF_ERR(ad_builder_bytes(
            &self->builder, view->node->buffers[i], view->offset * size,
            at->buffers[i], to, view->length * size, err));
        to += view->length * size;
    }
    return AD_OK;
}

/* --- children ------------------------------------------------------------ */

/* Joins the rows of `n` views to one array. */
static ad_status join_views(job *self, ad_schema schema, const ad_array *views,
                            size_t n, ad_array *out, ad_error *err);

/* Builds child `i` of the result from at->parts. */
static ad_status
join_child(job *self, joined *at, int64_t i, ad_error *err)
{
    const ad_schema schema = {at->schema.node->children[i], at->schema.owner};
    ad_status status =
        join_views(self, schema, at->parts, at->n, &at->below[i], err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "children[%" PRId64 "]", i);
    }
    return status;
}

/* The same from all values of child `i` of the views. */
static ad_status
join_whole_child(job *self, joined *at, int64_t i, ad_error *err)
{
    for (size_t v = 0; v < at->n; v++) {
        int64_t length = at->views[v].node->children[i]->length;
        at->parts[v] = ad_array_borrow_below(&at->views[v], i, 0, length);
    }
    return join_child(self, at, i, err);
}

/* Joins the children of structs, fixed-size lists and sparse unions: each
 * child has `size` values per row. */
static ad_status
join_children(job *self, joined *at, int64_t size, ad_error *err)
{
    for (int64_t i = 0; i < at->schema.node->n_children; i++) {
        for (size_t v = 0; v < at->n; v++) {
            const ad_array *view = &at->views[v];
            at->parts[v] = ad_array_borrow_below(view, i, view->offset * size,
                                                 view->length * size);
        }
        AD_RETURN_IF_ERR(join_child(self, at, i, err));
    }
    return AD_OK;
}

/* --- first and last offsets ---------------------------------------------- */

/* Reads offset `i` of a view. Blocks on a device. */
static ad_status
read_offset(const job *self, const ad_array *view, int width, int64_t i,
            int64_t *out, ad_error *err)
{
    const void *offsets = view->node->buffers[1];
    int64_t number = 0;
    if (is_on_host(self)) {
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
read_range(const job *self, const joined *at, const ad_array *view,
           int64_t *first, int64_t *last, ad_error *err)
{
    int width = offset_width(at);
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
    return is_on_host(self) ? check_on_host(view, width, *last, err)
                            : check_on_device(view, width, *last, err);
}

/* Reads the range of each view into `ranges` (2 * n numbers), and sums their
 * sizes. */
static ad_status
read_ranges(const job *self, const joined *at, int64_t *ranges, int64_t *total,
            ad_error *err)
{
    int64_t max = max_of(offset_width(at), false);
    *total = 0;
    for (size_t v = 0; v < at->n; v++) {
        int64_t *range = &ranges[2 * v];
        AD_RETURN_IF_ERR(
            read_range(self, at, &at->views[v], &range[0], &range[1], err));
        if (range[1] - range[0] > max - *total) {
            return fail_size(at->schema, "the data", err);
        }
        *total += range[1] - range[0];
    }
    return AD_OK;
}

/* --- strings and lists --------------------------------------------------- */

/* Writes the offsets of one view but the first behind offset `to`, and checks
 * them. */
static ad_status
put_offsets(const joined *at, const ad_array *view, const int64_t *range,
            int64_t base, int64_t to, ad_error *err)
{
    int width = offset_width(at);
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

/* Adds `delta` to the integers [from, from + n) of `source`, `width` bytes
 * each, and writes them to integer `to` and the following ones of `target`. */
static ad_status
add(job *self, const void *source, int64_t from, void *target, int64_t to,
    int64_t n, int width, int64_t delta, ad_error *err)
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

/* The same on a device. The first view with rows also writes its first offset,
 * which becomes 0. */
static ad_status
shift_offsets(job *self, const joined *at, const ad_array *view,
              const int64_t *range, int64_t base, int64_t to, ad_error *err)
{
    int64_t skip = to > 0;
    return view->length == 0
               ? AD_OK
               : add(self, view->node->buffers[1], view->offset + skip,
                     at->buffers[1], to + skip, view->length + 1 - skip,
                     offset_width(at), base - range[0], err);
}

static ad_status
join_offsets(job *self, joined *at, const int64_t *ranges, ad_error *err)
{
    int width = offset_width(at);
    int64_t total = 0;
    int64_t to = 0;
    AD_RETURN_IF_ERR(
        allocate(self, at->length + 1, width, &at->buffers[1], err));
    if (at->length == 0 || is_on_host(self)) {
        AD_RETURN_IF_ERR(ad_copy_bits(&self->builder.session, NULL, 0,
                                      at->buffers[1], 0, 8 * width,
                                      AD_BITS_ZEROS, err));
    }
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const int64_t *range = &ranges[2 * v];
        AD_RETURN_IF_ERR(
            is_on_host(self)
                ? put_offsets(at, view, range, total, to, err)
                : shift_offsets(self, at, view, range, total, to, err));
        to += view->length;
        total += range[1] - range[0];
    }
    return AD_OK;
}

static ad_status
join_data(job *self, joined *at, const int64_t *ranges, int64_t total,
          ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(allocate(self, total, 1, &at->buffers[2], err));
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
join_values(job *self, joined *at, const int64_t *ranges, ad_error *err)
{
    for (size_t v = 0; v < at->n; v++) {
        int64_t first = ranges[2 * v];
        at->parts[v] = ad_array_borrow_below(&at->views[v], 0, first,
                                             ranges[2 * v + 1] - first);
    }
    return join_child(self, at, 0, err);
}

static ad_status
join_ranges(job *self, joined *at, ad_error *err)
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

/* --- list views, on the host --------------------------------------------- */

/* Writes the offsets and sizes of one view from row `to` on. Those of null
 * rows become 0. */
static ad_status
put_lists(const joined *at, const ad_array *view, int64_t base, int64_t to,
          ad_error *err)
{
    int width = offset_width(at);
    int64_t max = max_of(width, false);
    int64_t n_values = view->node->children[0]->length;
    const void *const *buffers = view->node->buffers;
    const void *validity = validity_of(view);
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
            return fail_size(at->schema, "the values", err);
        }
        ad_put_int(at->buffers[1], width, to + i, base + offset);
        ad_put_int(at->buffers[2], width, to + i, size);
    }
    return AD_OK;
}

/* Copies all values of the children, since rows may point to any of them. */
static ad_status
join_list_views(job *self, joined *at, ad_error *err)
{
    int64_t base = 0;
    int64_t to = 0;
    for (int i = 1; i <= 2; i++) {
        AD_RETURN_IF_ERR(allocate(self, at->length, offset_width(at),
                                  &at->buffers[i], err));
    }
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t n_values = view->node->children[0]->length;
        int64_t end;
        if (__builtin_add_overflow(base, n_values, &end)) {
            return fail_size(at->schema, "the values", err);
        }
        AD_RETURN_IF_ERR(put_lists(at, view, base, to, err));
        base = end;
        to += view->length;
    }
    return join_whole_child(self, at, 0, err);
}

/* --- string views, on the host ------------------------------------------- */

/* Copies the sizes of the data buffers, and shares these. */
static ad_status
share_data(job *self, joined *at, ad_error *err)
{
    int64_t to = 0;
    int64_t last = at->n_buffers - 1;
    AD_RETURN_IF_ERR(allocate(self, last - 2, 8, &at->buffers[last], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const struct ArrowArray *node = view->node;
        int64_t n = node->n_buffers - 3;
        if (n == 0 || repeats(at, v)) {
            continue;
        }
        const void *sizes = node->buffers[n + 2];
        char *target = (char *)at->buffers[last] + 8 * to;
        for (int64_t i = 0; i < n; i++) {
            at->buffers[2 + to + i] = (void *)node->buffers[2 + i];
        }
        if (sizes == NULL) { /* allowed for arrays without rows */
            memset(target, 0, (size_t)(8 * n));
        } else {
            memcpy(target, sizes, (size_t)(8 * n));
        }
        AD_RETURN_IF_ERR(
            ad_builder_share(&self->builder, view->memory.owner, err));
        to += n;
    }
    return AD_OK;
}

typedef struct string_view {
    int32_t size;
    char prefix[4];
    uint32_t buffer; /* and `offset`, of more than MAX_INLINE bytes */
    uint32_t offset;
} string_view;

#define MAX_INLINE 12

/* Writes the views of one array from row `to` on. Its data buffers have the
 * numbers from `base` on. Null rows are not checked. */
static ad_status
put_views(const joined *at, const ad_array *view, int64_t base, int64_t to,
          ad_error *err)
{
    const int64_t n_data = view->node->n_buffers - 3;
    const void *validity = validity_of(view);
    const char *from =
        (const char *)view->node->buffers[1] + 16 * view->offset;
    char *target = (char *)at->buffers[1] + 16 * to;
    for (int64_t i = 0; i < view->length; i++) {
        string_view one;
        memcpy(&one, from + 16 * i, sizeof(one));
        if (one.size > MAX_INLINE && one.buffer < n_data) {
            one.buffer += (uint32_t)base;
        } else if (one.size > MAX_INLINE && validity != NULL &&
                   !ad_bitmap_get(validity, view->offset + i)) {
            one = (string_view){0};
        } else if (one.size > MAX_INLINE) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "a view into buffer %" PRId32
                           ", but there are %" PRId64,
                           (int32_t)one.buffer, n_data);
        }
        memcpy(target + 16 * i, &one, sizeof(one));
    }
    return AD_OK;
}

static ad_status
join_string_views(job *self, joined *at, ad_error *err)
{
    int64_t to = 0;
    int64_t base = 0;
    AD_RETURN_IF_ERR(share_data(self, at, err));
    AD_RETURN_IF_ERR(allocate(self, at->length, 16, &at->buffers[1], err));
    for (size_t v = 0; v < at->n; v++) {
        base += v > 0 && !repeats(at, v) ? at->views[v - 1].node->n_buffers - 3
                                         : 0;
        AD_RETURN_IF_ERR(put_views(at, &at->views[v], base, to, err));
        to += at->views[v].length;
    }
    return AD_OK;
}

/* --- dense unions, on the host ------------------------------------------- */

/* The children of a union by their type ids, read as unsigned bytes. `limit`
 * is the number of values that an offset may refer to, at most as many as
 * fit the result; 0: no such id. `base` is added to offsets. */
typedef struct union_member {
    int child;
    uint32_t limit;
    uint32_t base;
} union_member;

static ad_status
fail_offset(const joined *at, const ad_array *view, const union_member *member,
            int64_t row, ad_error *err)
{
    int id = ((const int8_t *)view->node->buffers[0])[row];
    int32_t offset = (int32_t)ad_int_at(view->node->buffers[1], 4, row);
    if (member->child < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "type id %d, which format \"%.40s\" does not have", id,
                       at->schema.node->format);
    }
    int64_t n = view->node->children[member->child]->length;
    if (offset >= 0 && offset < n) {
        return fail_size(at->schema, "the values", err);
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "offset %" PRId32 " into child %d of %" PRId64 " values",
                   offset, member->child, n);
}

/* Negative offsets exceed every limit, since they are read as unsigned. */
static ad_status
put_union_offsets(const joined *at, const ad_array *view,
                  const union_member members[256], int64_t to, ad_error *err)
{
    const uint8_t *ids = view->node->buffers[0];
    const void *offsets = view->node->buffers[1];
    for (int64_t i = 0; i < view->length; i++) {
        int64_t row = view->offset + i;
        uint32_t offset = (uint32_t)ad_int_at(offsets, 4, row);
        const union_member *member = &members[ids[row]];
        if (offset >= member->limit) {
            return fail_offset(at, view, member, row, err);
        }
        ad_put_int(at->buffers[1], 4, to + i, offset + member->base);
    }
    return AD_OK;
}

static ad_status
join_union_offsets(const joined *at, ad_error *err)
{
    union_member members[256];
    int8_t ids[128];
    int n_ids;
    int64_t to = 0;
    AD_RETURN_IF_ERR(ad_type_union_ids(&at->type, ids, &n_ids, err));
    for (int i = 0; i < 256; i++) {
        members[i] = (union_member){.child = -1};
    }
    for (int i = 0; i < n_ids; i++) {
        members[ids[i]].child = i;
    }
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        for (int i = 0; i < n_ids; i++) {
            union_member *member = &members[ids[i]];
            int64_t n = view->node->children[i]->length;
            member->base += member->limit; /* of the view before */
            int64_t room = (int64_t)INT32_MAX + 1 - member->base;
            member->limit = (uint32_t)(n < room ? n : room);
        }
        AD_RETURN_IF_ERR(put_union_offsets(at, view, members, to, err));
        to += view->length;
    }
    return AD_OK;
}

static ad_status
join_dense_union(job *self, joined *at, ad_error *err)
{
    AD_RETURN_IF_ERR(allocate(self, at->length, 4, &at->buffers[1], err));
    AD_RETURN_IF_ERR(join_union_offsets(at, err));
    for (int64_t i = 0; i < at->schema.node->n_children; i++) {
        AD_RETURN_IF_ERR(join_whole_child(self, at, i, err));
    }
    return AD_OK;
}

/* --- runs, on the host --------------------------------------------------- */

/* Sets at->parts to the values of the runs. Their ends count from the first
 * row of the result. */
static ad_status
join_run_ends(job *self, joined *at, ad_run_ends *runs, ad_error *err)
{
    int64_t width;
    int64_t n = 0;
    int64_t row = 0;
    int64_t to = 0;
    void *ends;
    AD_RETURN_IF_ERR(ad_run_end_width(at->schema, &width, err));
    if (at->length > max_of((int)width, false)) {
        return fail_size(at->schema, "the run ends", err);
    }
    for (size_t v = 0; v < at->n; v++) {
        AD_RETURN_IF_ERR(
            ad_find_run_ends(&self->builder, &at->views[v], &runs[v], err));
        n += runs[v].n;
    }
    AD_RETURN_IF_ERR(allocate(self, n, width, &ends, err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        AD_RETURN_IF_ERR(ad_write_run_ends(&self->builder, view, runs[v], row,
                                           ends, to, err));
        at->parts[v] =
            ad_array_borrow_below(view, 1, runs[v].first, runs[v].n);
        row += view->length;
        to += runs[v].n;
    }
    return ad_build_run_ends(at->schema, self->device, n, ends, &at->below[0],
                             err);
}

static ad_status
join_runs(job *self, joined *at, ad_error *err)
{
    ad_run_ends *runs = malloc(at->n * sizeof(*runs));
    if (runs == NULL) {
        return ad_fail_memory(err, at->n * sizeof(*runs));
    }
    ad_status status = join_run_ends(self, at, runs, err);
    free(runs);
    return status == AD_OK ? join_child(self, at, 1, err) : status;
}

/* --- equal dictionaries -------------------------------------------------- */

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
        validity_of(a) != NULL || validity_of(b) != NULL ||
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

/* Whether two arrays of `schema` have dictionaries in different memory. */
static bool
dictionaries_differ(const struct ArrowSchema *schema,
                    const struct ArrowArray *a, const struct ArrowArray *b)
{
    bool differ =
        schema->dictionary != NULL && !same_node(a->dictionary, b->dictionary);
    for (int64_t i = 0; i < schema->n_children && !differ; i++) {
        differ = dictionaries_differ(schema->children[i], a->children[i],
                                     b->children[i]);
    }
    return differ;
}

/* Sets at->parts to the dictionaries, and returns whether all are the same.
 * The host compares their values; on a device their addresses are compared. */
static bool
view_dictionaries(const job *self, joined *at, const ad_type *type)
{
    bool are_same = true;
    for (size_t v = 0; v < at->n; v++) {
        const struct ArrowArray *node = at->views[v].node->dictionary;
        at->parts[v] =
            ad_array_borrow_below(&at->views[v], -1, 0, node->length);
        are_same &= is_on_host(self)
                        ? same_values(&at->parts[0], &at->parts[v], type)
                        : same_node(at->parts[0].node, node);
    }
    return are_same;
}

static ad_status
check_dictionaries(const joined *at, ad_error *err)
{
    int64_t left = AD_UNIFY_MAX;
    for (size_t v = 0; v < at->n; v++) {
        if (at->parts[v].length > left) {
            return fail_size(at->schema, "the dictionaries", err);
        }
        left -= at->parts[v].length;
    }
    return AD_OK;
}

/* --- indices of dictionaries --------------------------------------------- */

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
put_indices(const joined *at, const ad_array *view, int64_t n_values,
            const int64_t *numbers, int64_t base, int64_t to, ad_error *err)
{
    int width = at->type.bit_width / 8;
    int64_t max = max_of(width, is_unsigned(&at->type));
    int64_t mask = -1;
    if (width < 8 && is_unsigned(&at->type)) {
        mask = ((int64_t)1 << width * 8) - 1;
    }
    const void *validity = validity_of(view);
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
            return fail_size(at->schema, "the dictionaries", err);
        }
        ad_put_int(indices, width, to + i, index);
    }
    return AD_OK;
}

static ad_status
move_indices(const joined *at, const int64_t *numbers, ad_error *err)
{
    int64_t base = 0;
    int64_t to = 0;
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t n = at->parts[v].length;
        AD_RETURN_IF_ERR(put_indices(at, view, n, numbers, base, to, err));
        base += n;
        to += view->length;
    }
    return AD_OK;
}

/* The dictionary of the node, whose indices (buffer 1) are moved where the
 * views' dictionaries differ. */
static ad_status
join_dictionary(job *self, joined *at, ad_error *err)
{
    const ad_schema schema = {at->schema.node->dictionary, at->schema.owner};
    ad_array *out = &at->below[at->schema.node->n_children];
    ad_unified unified = {0};
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &type, err));
    bool are_same = view_dictionaries(self, at, &type);
    if (are_same && !is_on_host(self)) {
        ad_array_share(&at->parts[0], out);
        return ad_builder_share(&self->builder, out->memory.owner, err);
    }
    ad_status status = AD_OK;
    if (!are_same) {
        AD_RETURN_IF_ERR(check_dictionaries(at, err));
        AD_RETURN_IF_ERR(
            ad_unify(at->schema.node, at->views, at->n, &type, &unified, err));
        status = move_indices(at, unified.numbers, err);
    }
    if (status == AD_OK) {
        const ad_array *parts =
            unified.numbers != NULL ? unified.parts : at->parts;
        size_t n = unified.numbers != NULL ? unified.n_parts : at->n;
        status = join_views(self, schema, parts, are_same ? 1 : n, out, err);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "dictionary");
        }
    }
    ad_unified_free(&unified);
    return status;
}

/* --- nodes --------------------------------------------------------------- */

static ad_status
join_fixed(job *self, joined *at, ad_error *err)
{
    if (at->type.bit_width == 1) {
        return join_bits(self, at, 1, err);
    }
    AD_RETURN_IF_ERR(join_bytes(self, at, 1, at->type.bit_width / 8, err));
    return at->schema.node->dictionary != NULL ? join_dictionary(self, at, err)
                                               : AD_OK;
}

static ad_status
join_layout(job *self, joined *at, ad_error *err)
{
    switch (at->type.layout) {
        case AD_LAYOUT_NONE:
            return at->type.id == AD_TYPE_RUN_END ? join_runs(self, at, err)
                                                  : AD_OK;
        case AD_LAYOUT_FIXED:
            return join_fixed(self, at, err);
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            return join_ranges(self, at, err);
        case AD_LAYOUT_VIEWS:
            return join_string_views(self, at, err);
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
        case AD_LAYOUT_DENSE_UNION:
            AD_RETURN_IF_ERR(join_bytes(self, at, 0, 1, err));
            return join_dense_union(self, at, err);
    }
    return AD_OK;
}

/* Sums the rows and the buffers of all views. One more than the rows, the
 * number of offsets, is an int64, too. The result keeps all data buffers
 * of string views. */
static ad_status
count_rows_and_buffers(joined *at, ad_error *err)
{
    at->n_buffers = at->type.n_buffers;
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        if (view->length > INT64_MAX - 1 - at->length) {
            return fail_size(at->schema, "the rows", err);
        }
        at->length += view->length;
        if (at->type.layout == AD_LAYOUT_VIEWS && !repeats(at, v)) {
            at->n_buffers += view->node->n_buffers - 3;
            at->readonly |= view->memory.readonly;
        }
    }
    return at->n_buffers > INT32_MAX
               ? fail_size(at->schema, "the buffers", err)
               : AD_OK;
}

static ad_status
build(job *self, const joined *at, ad_array *out, ad_error *err)
{
    int64_t n_children = at->schema.node->n_children;
    ad_owner *owner = NULL;
    if (at->views == self->arrays) { /* the root is built last and owns all */
        AD_RETURN_IF_ERR(ad_builder_owner(&self->builder, &owner, err));
    }
    const ad_array_spec spec = {
        .schema = at->schema,
        .memory = {owner, NULL, self->device, at->readonly},
        .length = at->length,
        .null_count = at->null_count,
        .n_buffers = at->n_buffers,
        .buffers = (const void *const *)at->buffers,
        .n_children = n_children,
        .children = at->below,
        .dictionary = at->schema.node->dictionary != NULL
                          ? &at->below[n_children]
                          : NULL,
    };
    ad_status status = ad_array_build(&spec, out, err);
    ad_owner_unref(owner);
    return status;
}

/* Recursive: validation has limited the depth of the schema. */
static ad_status
join_views(job *self, ad_schema schema, const ad_array *views, size_t n,
           ad_array *out, ad_error *err)
{
    joined at = {.schema = schema, .views = views, .n = n};
    size_t n_below = (size_t)schema.node->n_children + 1;
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &at.type, err));
    AD_RETURN_IF_ERR(count_rows_and_buffers(&at, err));
    at.parts = malloc(n * sizeof(*at.parts));
    at.below = calloc(n_below, sizeof(*at.below));
    at.buffers = calloc((size_t)at.n_buffers + 1, sizeof(*at.buffers));
    ad_status status =
        at.parts == NULL || at.below == NULL || at.buffers == NULL
            ? ad_fail_memory(err, n * sizeof(*at.parts))
            : join_validity(self, &at, err);
    if (status == AD_OK) {
        status = join_layout(self, &at, err);
    }
    if (status == AD_OK) {
        status = build(self, &at, out, err);
    }
    for (size_t i = 0; at.below != NULL && i < n_below; i++) {
        ad_array_clear(&at.below[i]);
    }
    free(at.buffers);
    free(at.below);
    free(at.parts);
    return status;
}

/* --- on the host --------------------------------------------------------- */

static bool
host_reads_all(const ad_array *arrays, size_t n)
{
    size_t i = 0;
    while (i < n && ad_host_accessible(arrays[i].memory.device)) {
        i++;
    }
    return i == n;
}

static ad_status
open_on_host(job *self, ad_error *err)
{
    for (size_t i = 0; i < self->n; i++) {
        const ad_array *array = &self->arrays[i];
        AD_RETURN_IF_ERR(ad_sync_wait(array->memory.sync, operation, err));
        if (array->memory.device.type != self->device.type) {
            self->device.type = ARROW_DEVICE_CPU;
        }
    }
    if (self->device.type == ARROW_DEVICE_CPU) {
        self->device = AD_CPU;
    }
    self->builder = ad_builder_on_host(self->device);
    return AD_OK;
}

/* --- on a device --------------------------------------------------------- */

static ad_status
fail_no_runtime(const ad_array *arrays, size_t n, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(
        err, arrays[0].memory.device, "device",
        "read the batches of a stream one by one with "
        "arrowdev.array_stream()",
        "cannot concatenate %zu arrays on %s: the device has no runtime", n,
        ad_device_format(arrays[0].memory.device, name));
}

static ad_status
check_devices(const ad_array *arrays, size_t n, ad_error *err)
{
    char first[AD_DEVICE_NAME_SIZE];
    char other[AD_DEVICE_NAME_SIZE];
    for (size_t i = 1; i < n; i++) {
        if (ad_device_equal(arrays[i].memory.device,
                            arrays[0].memory.device)) {
            continue;
        }
        return ad_fail_on(err, arrays[i].memory.device, "device",
                          "bring them to one device with .to() first",
                          "array 0 is on %s, but array %zu is on %s",
                          ad_device_format(arrays[0].memory.device, first), i,
                          ad_device_format(arrays[i].memory.device, other));
    }
    return ad_backend_is_there(arrays[0].memory.device.type)
               ? AD_OK
               : fail_no_runtime(arrays, n, err);
}

static ad_session_request
request_for(const ad_array *array, const ad_stream_ref *stream)
{
    return ad_session_within(array->memory.device,
                             ad_node_some_buffer(array->node),
                             array->memory.sync, stream, operation);
}

/* The array whose memory determines the context of the work. Arrays without
 * rows may have no memory. */
static const ad_array *
first_with_memory(const job *self)
{
    size_t i = 0;
    while (i < self->n && ad_node_some_buffer(self->arrays[i].node) == NULL) {
        i++;
    }
    return &self->arrays[i < self->n ? i : 0];
}

/* Opens one stream, which waits for the events of all arrays. */
static ad_status
open_on_device(job *self, const ad_stream_ref *stream, ad_error *err)
{
    AD_RETURN_IF_ERR(check_devices(self->arrays, self->n, err));
    ad_session_request first = request_for(first_with_memory(self), stream);
    for (size_t i = 0; i < self->n; i++) {
        first.others_pending |= !ad_sync_is_done(self->arrays[i].memory.sync);
    }
    AD_RETURN_IF_ERR(ad_session_open(&first, &self->builder.session, err));
    self->builder.is_open = true;
    for (size_t i = 0; i < self->n; i++) {
        const ad_session_request each = request_for(&self->arrays[i], stream);
        AD_RETURN_IF_ERR(ad_session_use(&self->builder.session, &each,
                                        self->arrays[i].memory.owner, err));
    }
    return AD_OK;
}

/* --- where the arrays are ------------------------------------------------ */

/* Joins where the arrays are: on the host with `on_host`, else on the device.
 * `why` is for the log. */
static ad_status
concat_there(ad_schema schema, const ad_array *arrays, size_t n,
             const ad_stream_ref *stream, bool on_host, const char *why,
             ad_array *out, ad_error *err)
{
    job self = {
        .arrays = arrays,
        .n = n,
        .device = arrays[0].memory.device,
    };
    ad_sync *sync = NULL;
    int64_t start = ad_log_start();
    ad_status status = on_host ? open_on_host(&self, err)
                               : open_on_device(&self, stream, err);
    if (status == AD_OK) {
        status = join_views(&self, schema, arrays, n, out, err);
    }
    if (status == AD_OK) {
        status = ad_builder_finish(&self.builder, &sync, err);
        if (status == AD_OK) {
            out->memory.sync = sync;
        } else {
            ad_array_clear(out);
        }
    }
    if (status == AD_OK) {
        AD_LOG_COPY(self.builder.nbytes, arrays[0].memory.device, self.device,
                    why, start);
    }
    for (size_t i = 0; status != AD_OK && i < n && self.builder.is_open; i++) {
        ad_session_abandon(&self.builder.session, arrays[i].memory.owner, NULL,
                           NULL);
    }
    ad_builder_clear(&self.builder, status != AD_OK, NULL);
    return status;
}

/* --- through the host ---------------------------------------------------- */

static bool
have_other_dictionaries(const ad_array *arrays, size_t n)
{
    bool found = false;
    for (size_t i = 1; i < n && !found; i++) {
        found = dictionaries_differ(arrays[i].schema.node, arrays[0].node,
                                    arrays[i].node);
    }
    return found;
}

/* Whether rows refer to other places than the next ones: what is rare on
 * devices has no kernel. The values of dictionaries are not joined there. */
static bool
needs_host(const struct ArrowSchema *schema)
{
    ad_type type;
    bool found =
        ad_type_parse(schema->format, &type, NULL) == AD_OK &&
        (type.layout == AD_LAYOUT_VIEWS ||
         type.layout == AD_LAYOUT_LIST_VIEW ||
         type.layout == AD_LAYOUT_DENSE_UNION || type.id == AD_TYPE_RUN_END);
    for (int64_t i = 0; i < schema->n_children && !found; i++) {
        found = needs_host(schema->children[i]);
    }
    return found;
}

/* For what needs_host(), and for dictionaries, which only the host can compare
 * by value. */
static ad_status
concat_through_host(ad_schema schema, const ad_array *arrays, size_t n,
                    const ad_stream_ref *stream, ad_array *out, ad_error *err)
{
    const char *why = "the host joins rows that a device cannot";
    ad_array joined = {0};
    ad_array *copies = calloc(n, sizeof(*copies));
    if (copies == NULL) {
        return ad_fail_memory(err, n * sizeof(*copies));
    }
    ad_status status = check_devices(arrays, n, err);
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        status =
            ad_array_copy_to(&arrays[i], AD_CPU, stream, why, &copies[i], err);
    }
    if (status == AD_OK) {
        status =
            concat_there(schema, copies, n, stream, true, why, &joined, err);
    }
    if (status == AD_OK) {
        status = ad_array_copy_to(&joined, arrays[0].memory.device, stream,
                                  why, out, err);
        ad_array_clear(&joined);
    }
    for (size_t i = 0; i < n; i++) {
        ad_array_clear(&copies[i]);
    }
    free(copies);
    return status;
}

/* --- entry --------------------------------------------------------------- */

ad_status
ad_concat_on(ad_schema schema, const ad_array *arrays, size_t n,
             const ad_stream_ref *stream, ad_array *out, ad_error *err)
{
    bool on_host = host_reads_all(arrays, n);
    return !on_host && (needs_host(schema.node) ||
                        have_other_dictionaries(arrays, n))
               ? concat_through_host(schema, arrays, n, stream, out, err)
               : concat_there(schema, arrays, n, stream, on_host,
                              "the rows of several arrays are joined", out,
                              err);
}
