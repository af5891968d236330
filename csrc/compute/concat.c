/* Concatenation: bytes are copied. On a device kernels write bits and offsets,
 * and the host reads only the first and last offsets and runs. */
#include "compute/concat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/owner.h"
#include "compute/concat_join.h"
#include "copy/copy.h"
#include "device/backend.h"

static const char operation[] = "concatenating arrays";

/* --- rows ---------------------------------------------------------------- */

const void *
ad_concat_validity(const ad_array *view)
{
    return view->length > 0 && view->null_count != 0 ? view->node->buffers[0]
                                                     : NULL;
}

int64_t
ad_concat_max(int width, bool is_unsigned)
{
    int bits = width * 8 - (is_unsigned ? 0 : 1);
    return bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

ad_status
ad_concat_fail_size(ad_schema schema, const char *what, ad_error *err)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "size",
                   "read the batches one by one with arrowdev.array_stream(), "
                   "or ask the producer for a wider type",
                   "%s of the batches together do not fit the type (format "
                   "\"%.40s\")",
                   what, schema.node->format);
}

/* --- buffers ------------------------------------------------------------- */

ad_status
ad_concat_allocate(ad_concat_job *self, int64_t n, int64_t size, void **out,
                   ad_error *err)
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
    if (status != AD_OK && ad_concat_is_on_host(self) &&
        self->device.type != ARROW_DEVICE_CPU) {
        ad_error_prefix(err, "cannot concatenate arrays on %s there: ",
                        ad_device_format(self->device, name));
        ad_error_hint(err, "bring each to the host with .to(\"cpu\") first");
        ad_error_device(err, self->device);
    }
    if (*out == NULL && ad_concat_is_on_host(self)) {
        *out = (void *)nothing;
    }
    return status;
}

/* Allocates buffer `i` of one bit per row, padded with zeros to a multiple of
 * 64 bytes. */
static ad_status
new_bitmap(ad_concat_job *self, ad_concat_node *at, int64_t i, ad_error *err)
{
    int64_t n = at->length;
    int64_t nbytes = ad_padded(ad_bitmap_bytes(n));
    AD_RETURN_IF_ERR(
        ad_concat_allocate(self, nbytes, 1, &at->buffers[i], err));
    if (ad_concat_is_on_host(self)) {
        memset((char *)at->buffers[i] + n / 8, 0, (size_t)(nbytes - n / 8));
        return AD_OK;
    }
    return ad_copy_bits(&self->builder.session, NULL, 0, at->buffers[i], n,
                        nbytes * 8 - n, AD_BITS_ZEROS, err);
}

/* Joins buffer `i` of bits. A view without a validity bitmap adds ones. */
static ad_status
join_bits(ad_concat_job *self, ad_concat_node *at, int64_t i, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(new_bitmap(self, at, i, err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const void *source =
            i == 0 ? ad_concat_validity(view) : view->node->buffers[i];
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
join_validity(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    bool has_nulls = false;
    at->null_count = at->type.id == AD_TYPE_NULL ? at->length : 0;
    for (size_t v = 0; v < at->n && at->type.has_validity; v++) {
        const ad_array *view = &at->views[v];
        if (ad_concat_validity(view) != NULL) {
            bool is_known = at->null_count >= 0 && view->null_count >= 0;
            at->null_count = is_known ? at->null_count + view->null_count : -1;
            has_nulls = true;
        }
    }
    return has_nulls ? join_bits(self, at, 0, err) : AD_OK;
}

ad_status
ad_concat_bytes(ad_concat_job *self, ad_concat_node *at, int64_t i,
                int64_t size, ad_error *err)
{
    int64_t to = 0;
    AD_RETURN_IF_ERR(
        ad_concat_allocate(self, at->length, size, &at->buffers[i], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        AD_RETURN_IF_ERR(ad_builder_bytes(
            &self->builder, view->node->buffers[i], view->offset * size,
            at->buffers[i], to, view->length * size, err));
        to += view->length * size;
    }
    return AD_OK;
}

ad_status
ad_concat_add(ad_concat_job *self, const void *source, int64_t from,
              void *target, int64_t to, int64_t n, int width, int64_t delta,
              ad_error *err)
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

/* --- children ------------------------------------------------------------ */

ad_status
ad_concat_child(ad_concat_job *self, ad_concat_node *at, int64_t i,
                ad_error *err)
{
    const ad_schema schema = {at->schema.node->children[i], at->schema.owner};
    ad_status status =
        ad_concat_views(self, schema, at->parts, at->n, &at->below[i], err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "children[%" PRId64 "]", i);
    }
    return status;
}

ad_status
ad_concat_whole_child(ad_concat_job *self, ad_concat_node *at, int64_t i,
                      ad_error *err)
{
    for (size_t v = 0; v < at->n; v++) {
        int64_t length = at->views[v].node->children[i]->length;
        at->parts[v] = ad_array_borrow_below(&at->views[v], i, 0, length);
    }
    return ad_concat_child(self, at, i, err);
}

/* Joins the children of structs, fixed-size lists and sparse unions: each
 * child has `size` values per row. */
static ad_status
join_children(ad_concat_job *self, ad_concat_node *at, int64_t size,
              ad_error *err)
{
    for (int64_t i = 0; i < at->schema.node->n_children; i++) {
        for (size_t v = 0; v < at->n; v++) {
            const ad_array *view = &at->views[v];
            at->parts[v] = ad_array_borrow_below(view, i, view->offset * size,
                                                 view->length * size);
        }
        AD_RETURN_IF_ERR(ad_concat_child(self, at, i, err));
    }
    return AD_OK;
}

/* --- nodes --------------------------------------------------------------- */

static ad_status
join_fixed(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    if (at->type.bit_width == 1) {
        return join_bits(self, at, 1, err);
    }
    AD_RETURN_IF_ERR(
        ad_concat_bytes(self, at, 1, at->type.bit_width / 8, err));
    return at->schema.node->dictionary != NULL
               ? ad_concat_dictionary(self, at, err)
               : AD_OK;
}

static ad_status
join_layout(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    switch (at->type.layout) {
        case AD_LAYOUT_NONE:
            return at->type.id == AD_TYPE_RUN_END
                       ? ad_concat_run_ends(self, at, err)
                       : AD_OK;
        case AD_LAYOUT_FIXED:
            return join_fixed(self, at, err);
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            return ad_concat_ranges(self, at, err);
        case AD_LAYOUT_VIEWS:
            return ad_concat_string_views(self, at, err);
        case AD_LAYOUT_LIST_VIEW:
            return ad_concat_list_views(self, at, err);
        case AD_LAYOUT_VALIDITY:
            return join_children(
                self, at,
                at->type.id == AD_TYPE_FIXED_LIST ? at->type.list_size : 1,
                err);
        case AD_LAYOUT_SPARSE_UNION:
            AD_RETURN_IF_ERR(ad_concat_bytes(self, at, 0, 1, err));
            return join_children(self, at, 1, err);
        case AD_LAYOUT_DENSE_UNION:
            AD_RETURN_IF_ERR(ad_concat_bytes(self, at, 0, 1, err));
            return ad_concat_dense_union(self, at, err);
    }
    return AD_OK;
}

/* Sums the rows and the buffers of all views. One more than the rows, the
 * number of offsets, is an int64, too. The result keeps all data buffers
 * of string views. */
static ad_status
count_rows_and_buffers(ad_concat_node *at, ad_error *err)
{
    at->n_buffers = at->type.n_buffers;
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        if (view->length > INT64_MAX - 1 - at->length) {
            return ad_concat_fail_size(at->schema, "the rows", err);
        }
        at->length += view->length;
        if (at->type.layout == AD_LAYOUT_VIEWS && !ad_concat_repeats(at, v)) {
            at->n_buffers += view->node->n_buffers - 3;
            at->readonly |= view->memory.readonly;
        }
    }
    return at->n_buffers > INT32_MAX
               ? ad_concat_fail_size(at->schema, "the buffers", err)
               : AD_OK;
}

static ad_status
build(ad_concat_job *self, const ad_concat_node *at, ad_array *out,
      ad_error *err)
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
ad_status
ad_concat_views(ad_concat_job *self, ad_schema schema, const ad_array *views,
                size_t n, ad_array *out, ad_error *err)
{
    ad_concat_node at = {.schema = schema, .views = views, .n = n};
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
open_on_host(ad_concat_job *self, ad_error *err)
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
first_with_memory(const ad_concat_job *self)
{
    size_t i = 0;
    while (i < self->n && ad_node_some_buffer(self->arrays[i].node) == NULL) {
        i++;
    }
    return &self->arrays[i < self->n ? i : 0];
}

/* Opens one stream, which waits for the events of all arrays. */
static ad_status
open_on_device(ad_concat_job *self, const ad_stream_ref *stream, ad_error *err)
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

/* --- through the host ---------------------------------------------------- */

static bool
have_other_dictionaries(const ad_array *arrays, size_t n)
{
    bool found = false;
    for (size_t i = 1; i < n && !found; i++) {
        found = ad_concat_dictionaries_differ(arrays[i].schema.node,
                                              arrays[0].node, arrays[i].node);
    }
    return found;
}

/* Dictionaries are compared by value, which only the host can do. */
static ad_status
concat_through_host(ad_schema schema, const ad_array *arrays, size_t n,
                    const ad_stream_ref *stream, ad_array *out, ad_error *err)
{
    ad_array joined = {0};
    ad_array *copies = calloc(n, sizeof(*copies));
    if (copies == NULL) {
        return ad_fail_memory(err, n * sizeof(*copies));
    }
    ad_status status = check_devices(arrays, n, err);
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        status = ad_array_copy_to(&arrays[i], AD_CPU, stream, &copies[i], err);
    }
    if (status == AD_OK) {
        status = ad_concat(schema, copies, n, &joined, err);
    }
    if (status == AD_OK) {
        status = ad_array_copy_to(&joined, arrays[0].memory.device, stream,
                                  out, err);
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
    ad_concat_job self = {
        .arrays = arrays,
        .n = n,
        .device = arrays[0].memory.device,
    };
    ad_sync *sync = NULL;
    bool on_host = host_reads_all(arrays, n);
    if (!on_host && have_other_dictionaries(arrays, n)) {
        return concat_through_host(schema, arrays, n, stream, out, err);
    }
    ad_status status = on_host ? open_on_host(&self, err)
                               : open_on_device(&self, stream, err);
    if (status == AD_OK) {
        status = ad_concat_views(&self, schema, arrays, n, out, err);
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
                    "the rows of several arrays are joined");
    }
    for (size_t i = 0; status != AD_OK && i < n && self.builder.is_open; i++) {
        ad_session_abandon(&self.builder.session, arrays[i].memory.owner, NULL,
                           NULL);
    }
    ad_builder_clear(&self.builder, status != AD_OK, NULL);
    return status;
}
