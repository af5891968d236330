#include "compute/concat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/bits.h"
#include "compute/concat_join.h"
#include "compute/concat_rebase.h"
#include "order/device_memory.h"
#include "base/memory.h"
#include "base/owner_group.h"
#include "device/backend.h"
#include "kernels/kernels.h"

static ad_status concat_views(ad_schema schema, const ad_array *views,
                              size_t n, ad_device device, ad_array *out,
                              ad_error *err);

/* --- numbers in buffers -------------------------------------------------- */

/* Of the low bytes, whichever end they are at. */
void
ad_join_put_int(void *data, int width, int64_t i, int64_t value)
{
    int32_t middle = (int32_t)value;
    int16_t narrow = (int16_t)value;
    int8_t byte = (int8_t)value;
    const void *source = width == 8   ? (const void *)&value
                         : width == 4 ? (const void *)&middle
                         : width == 2 ? (const void *)&narrow
                                      : (const void *)&byte;
    memcpy((char *)data + i * width, source, (size_t)width);
}

int64_t
ad_join_max(int width, bool is_unsigned)
{
    int bits = width * 8 - (is_unsigned ? 0 : 1);
    return bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

/* --- bits ------------------------------------------------------------------ */

/* Source NULL: ones. */
static void
copy_bits(uint8_t *to, int64_t at, const uint8_t *source, int64_t from,
          int64_t n)
{
    const ad_launch launch = {
        .kernel = AD_KERNEL_COPY_BITS,
        .source.data = (void *)source,
        .target.data = to,
        .bit_offset = from,
        .length = n,
        .numbers = {at, source == NULL ? AD_BITS_ONES : AD_BITS_COPY},
        .n_items = 1,
    };
    if (n > 0) {
        ad_kernel_run_on_host(&launch);
    }
}

/* --- helpers ---------------------------------------------------------------- */

/* Pinned and managed memory are made by the runtime, and written by the host,
 * which needs no stream for it. */
static ad_status
allocate_by_runtime(ad_device device, int64_t nbytes, void **out,
                    ad_owner **owner, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context primary;
    ad_stream stream;
    AD_RETURN_IF_ERR(ad_backend_open(device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->primary_context(device, &primary, err));
    AD_RETURN_IF_ERR(ad_stream_own(primary, &stream, err));
    return ad_device_memory_new(primary, stream, NULL, nbytes, out, owner,
                                err);
}

ad_status
ad_join_allocate(const ad_join *j, int64_t nbytes, void **out,
                 ad_owner **owner, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_memory *memory;
    if (j->device.type == ARROW_DEVICE_CPU) {
        AD_RETURN_IF_ERR(ad_memory_new(nbytes, &memory, err));
        *out = memory->data;
        *owner = &memory->base;
        return AD_OK;
    }
    ad_status status = allocate_by_runtime(j->device, nbytes, out, owner, err);
    if (status != AD_OK) {
        ad_error_prefix(err, "arrays on %s cannot be put together there: ",
                        ad_device_format(j->device, name));
        ad_error_hint(err, "bring each to the host with .to(\"cpu\") first");
        ad_error_device(err, j->device);
    }
    return status;
}

/* Buffer `i` of the result: new memory, which the join owns. */
ad_status
ad_join_new_buffer(ad_join *j, int64_t i, int64_t nbytes, void **out,
                   ad_error *err)
{
    static const _Alignas(64) unsigned char nothing[64];
    ad_owner *owner;
    AD_RETURN_IF_ERR(ad_join_allocate(j, nbytes, out, &owner, err));
    if (owner != NULL) {
        j->owners[j->n_owners++] = owner;
    }
    j->buffers[i] = *out != NULL ? *out : nothing;
    return AD_OK;
}

/* One bit per row; those behind the last row are 0. */
static ad_status
new_bits(ad_join *j, int64_t i, void **out, ad_error *err)
{
    int64_t nbytes = (j->length + 7) / 8;
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, i, nbytes, out, err));
    if (nbytes > 0) {
        ((uint8_t *)*out)[nbytes - 1] = 0;
    }
    return AD_OK;
}

ad_status
ad_join_size_of_rows(int64_t rows, int64_t row_size, int64_t *out,
                     ad_error *err)
{
    if (__builtin_mul_overflow(rows, row_size, out)) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                       "%" PRId64 " rows of %" PRId64 " bytes overflow", rows,
                       row_size);
    }
    return AD_OK;
}

ad_status
ad_join_fail_size(ad_schema schema, const char *what, ad_error *err)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "size",
                   "read the batches one by one with arrowdev.array_stream(), "
                   "or ask the producer for a wider type",
                   "%s of the batches together do not fit the type (format "
                   "\"%.40s\")",
                   what, schema.node->format);
}

/* Rows [first, first + length) of a child, as the parent counts them. */
ad_array
ad_join_view_below(const ad_array *view, const struct ArrowArray *node,
                   const struct ArrowSchema *schema, int64_t first,
                   int64_t length)
{
    ad_array below = *view;
    bool is_whole = first == 0 && length == node->length;
    below.node = node;
    below.schema.node = schema;
    below.offset = node->offset + first;
    below.length = length;
    below.null_count = is_whole ? node->null_count : -1;
    return below;
}

bool
ad_join_may_have_nulls(const ad_array *view)
{
    return view->length > 0 && view->null_count != 0 &&
           view->node->buffers[0] != NULL;
}

void
ad_join_view_child(ad_schema schema, const ad_array *views, size_t n,
                   int64_t i, int64_t size, ad_array *parts)
{
    for (size_t v = 0; v < n; v++) {
        parts[v] = ad_join_view_below(
            &views[v], views[v].node->children[i], schema.node->children[i],
            views[v].offset * size, views[v].length * size);
    }
}

void
ad_join_view_values(ad_schema schema, const ad_array *views, size_t n,
                    int64_t i, ad_array *parts)
{
    for (size_t v = 0; v < n; v++) {
        const struct ArrowArray *child = views[v].node->children[i];
        parts[v] = ad_join_view_below(
            &views[v], child, schema.node->children[i], 0, child->length);
    }
}

ad_status
ad_join_count_buffers(ad_schema schema, const ad_type *type,
                      const ad_array *views, size_t n, int64_t *out,
                      ad_error *err)
{
    *out = type->n_buffers;
    for (size_t v = 0; v < n && type->layout == AD_LAYOUT_VIEWS; v++) {
        *out += views[v].node->n_buffers - 3;
    }
    return *out > INT32_MAX ? ad_join_fail_size(schema, "the buffers", err)
                            : AD_OK;
}

bool
ad_join_is_readonly(const ad_type *type, const ad_array *views, size_t n)
{
    bool readonly = false;
    for (size_t v = 0; v < n && type->layout == AD_LAYOUT_VIEWS; v++) {
        readonly |= views[v].readonly;
    }
    return readonly;
}

ad_status
ad_join_count_rows(ad_schema schema, const ad_array *views, size_t n,
                   int64_t *rows, ad_error *err)
{
    *rows = 0;
    for (size_t v = 0; v < n; v++) {
        if (__builtin_add_overflow(*rows, views[v].length, rows)) {
            return ad_join_fail_size(schema, "the rows", err);
        }
    }
    return AD_OK;
}

bool
ad_join_count_nulls(const ad_type *type, const ad_array *views, size_t n,
                    int64_t rows, int64_t *nulls)
{
    bool has_nulls = false;
    *nulls = type->id == AD_TYPE_NULL ? rows : 0;
    for (size_t v = 0; v < n && type->has_validity; v++) {
        if (ad_join_may_have_nulls(&views[v])) {
            has_nulls = true;
            *nulls = views[v].null_count < 0 || *nulls < 0
                         ? -1
                         : *nulls + views[v].null_count;
        }
    }
    return has_nulls;
}

static ad_status
join_validity(ad_join *j, ad_error *err)
{
    void *bits;
    if (!ad_join_count_nulls(&j->type, j->views, j->n, j->length,
                             &j->null_count)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(new_bits(j, 0, &bits, err));
    int64_t at = 0;
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        const void *source =
            ad_join_may_have_nulls(view) ? view->node->buffers[0] : NULL;
        copy_bits(bits, at, source, view->offset, view->length);
        at += view->length;
    }
    return AD_OK;
}

bool
ad_join_is_valid_row(const ad_array *view, int64_t i)
{
    return !ad_join_may_have_nulls(view) ||
           ad_bitmap_get(view->node->buffers[0], view->offset + i);
}

/* Child `i` of the result from `parts`, one per view. */
ad_status
ad_join_child(ad_join *j, int64_t i, const ad_array *parts, ad_error *err)
{
    ad_schema schema = {j->schema.node->children[i], j->schema.owner};
    ad_status status =
        concat_views(schema, parts, j->n, j->device, &j->children[i], err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "children[%" PRId64 "]", i);
        return status;
    }
    j->n_children = i + 1;
    return AD_OK;
}

/* --- fixed width, dictionaries ---------------------------------------------- */

static ad_status
join_bits(ad_join *j, int64_t buffer, ad_error *err)
{
    void *data;
    int64_t at = 0;
    AD_RETURN_IF_ERR(new_bits(j, buffer, &data, err));
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        copy_bits(data, at, view->node->buffers[buffer], view->offset,
                  view->length);
        at += view->length;
    }
    return AD_OK;
}

ad_status
ad_join_fixed(ad_join *j, int64_t buffer, int64_t bit_width, ad_error *err)
{
    void *data;
    int64_t nbytes;
    if (bit_width == 1) {
        return join_bits(j, buffer, err);
    }
    AD_RETURN_IF_ERR(
        ad_join_size_of_rows(j->length, bit_width / 8, &nbytes, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, buffer, nbytes, &data, err));
    char *to = data;
    int64_t size = bit_width / 8;
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        const char *source = view->node->buffers[buffer];
        if (view->length > 0 && size > 0) {
            memcpy(to, source + view->offset * size,
                   (size_t)(view->length * size));
            to += view->length * size;
        }
    }
    return AD_OK;
}

/* Offsets that make no sense are never the same: whoever joins the values
 * refuses them. */
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

/* The values are the same for certain. */
static bool
same_values(const ad_array *a, const ad_array *b, const ad_type *type)
{
    if (a->node == b->node) {
        return true;
    }
    if (a->length != b->length || !type->has_validity ||
        ad_join_may_have_nulls(a) || ad_join_may_have_nulls(b) ||
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

/* Indices into dictionaries that now stand behind one another. */
static ad_status
shift_indices(ad_join *j, const ad_array *dictionaries, ad_error *err)
{
    int width = j->type.bit_width / 8;
    bool is_unsigned =
        j->type.id == AD_TYPE_UINT8 || j->type.id == AD_TYPE_UINT16 ||
        j->type.id == AD_TYPE_UINT32 || j->type.id == AD_TYPE_UINT64;
    int64_t max = ad_join_max(width, is_unsigned);
    int64_t mask = width == 8 ? -1 : ((int64_t)1 << width * 8) - 1;
    int64_t at = 0;
    int64_t base = 0;
    void *data = (void *)j->buffers[1];
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        for (int64_t i = 0; i < view->length; i++, at++) {
            int64_t index = ad_int_at(data, width, at);
            index = is_unsigned ? index & mask : index;
            if (!ad_join_is_valid_row(view, i)) {
                ad_join_put_int(data, width, at, 0);
                continue;
            }
            if (index < 0 || index >= dictionaries[v].length) {
                return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                               "index %" PRId64
                               " into a dictionary of %" PRId64 " values",
                               index, dictionaries[v].length);
            }
            if (base + index > max) {
                return ad_join_fail_size(j->schema, "the dictionaries", err);
            }
            ad_join_put_int(data, width, at, base + index);
        }
        base += dictionaries[v].length;
    }
    return AD_OK;
}

static ad_status
join_dictionaries(ad_join *j, ad_array *parts, ad_error *err)
{
    const struct ArrowSchema *schema = j->schema.node->dictionary;
    ad_schema values = {schema, j->schema.owner};
    ad_type type;
    bool are_same = true;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        const struct ArrowArray *node = view->node->dictionary;
        parts[v] = ad_join_view_below(view, node, schema, 0, node->length);
        are_same &= same_values(&parts[0], &parts[v], &type);
    }
    ad_status status = concat_views(values, parts, are_same ? 1 : j->n,
                                    j->device, &j->dictionary, err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "dictionary");
        return status;
    }
    return are_same ? AD_OK : shift_indices(j, parts, err);
}

/* --- children without offsets ----------------------------------------------------- */

/* Struct, fixed-size list, sparse union: `size` values of each child per
 * row. */
static ad_status
join_children(ad_join *j, int64_t size, ad_array *parts, ad_error *err)
{
    for (int64_t i = 0; i < j->schema.node->n_children; i++) {
        ad_join_view_child(j->schema, j->views, j->n, i, size, parts);
        AD_RETURN_IF_ERR(ad_join_child(j, i, parts, err));
    }
    return AD_OK;
}

static ad_status
join_union_offsets(ad_join *j, ad_builder *builder, ad_error *err)
{
    const ad_rows rows = ad_join_rows(j, builder);
    int64_t nbytes;
    void *offsets;
    AD_RETURN_IF_ERR(ad_union_rows_size(&rows, &nbytes, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, 1, nbytes, &offsets, err));
    return ad_rebase_offsets(&rows, offsets, err);
}

static ad_status
join_dense_union(ad_join *j, ad_array *parts, ad_error *err)
{
    void *nothing;
    AD_RETURN_IF_ERR(ad_join_fixed(j, 0, 8, err));
    if (j->length == 0) {
        AD_RETURN_IF_ERR(ad_join_new_buffer(j, 1, 0, &nothing, err));
    } else {
        ad_builder builder = ad_builder_on_host();
        ad_status status = join_union_offsets(j, &builder, err);
        ad_builder_clear(&builder, false, NULL);
        AD_RETURN_IF_ERR(status);
    }
    for (int64_t i = 0; i < j->schema.node->n_children; i++) {
        ad_join_view_values(j->schema, j->views, j->n, i, parts);
        AD_RETURN_IF_ERR(ad_join_child(j, i, parts, err));
    }
    return AD_OK;
}

/* --- nodes -------------------------------------------------------------------------- */

static ad_status
join_layout(ad_join *j, ad_array *parts, ad_error *err)
{
    switch (j->type.layout) {
        case AD_LAYOUT_NONE:
            return j->type.id == AD_TYPE_RUN_END
                       ? ad_join_run_ends(j, parts, err)
                       : AD_OK;
        case AD_LAYOUT_FIXED:
            AD_RETURN_IF_ERR(ad_join_fixed(j, 1, j->type.bit_width, err));
            return j->schema.node->dictionary != NULL
                       ? join_dictionaries(j, parts, err)
                       : AD_OK;
        case AD_LAYOUT_OFFSETS:
            return ad_join_strings(j, err);
        case AD_LAYOUT_VIEWS:
            return ad_join_views(j, err);
        case AD_LAYOUT_LIST:
            return ad_join_lists(j, parts, err);
        case AD_LAYOUT_LIST_VIEW:
            return ad_join_list_views(j, parts, err);
        case AD_LAYOUT_VALIDITY:
            return join_children(
                j, j->type.id == AD_TYPE_FIXED_LIST ? j->type.list_size : 1,
                parts, err);
        case AD_LAYOUT_SPARSE_UNION:
            AD_RETURN_IF_ERR(ad_join_fixed(j, 0, 8, err));
            return join_children(j, 1, parts, err);
        case AD_LAYOUT_DENSE_UNION:
            return join_dense_union(j, parts, err);
    }
    return AD_OK;
}

static ad_status
build(ad_join *j, ad_array *out, ad_error *err)
{
    ad_owner *owner;
    AD_RETURN_IF_ERR(ad_owner_group_new(j->owners, j->n_owners, &owner, err));
    const ad_array_spec spec = {
        .schema = j->schema,
        .device = j->device,
        .length = j->length,
        .null_count = j->null_count,
        .n_buffers = j->n_buffers,
        .buffers = j->buffers,
        .owner = owner,
        .n_children = j->n_children,
        .children = j->children,
        .dictionary = j->dictionary.node != NULL ? &j->dictionary : NULL,
        .readonly = ad_join_is_readonly(&j->type, j->views, j->n),
    };
    ad_status status = ad_array_build(&spec, out, err);
    ad_owner_unref(owner);
    return status;
}

static void
join_clear(ad_join *j)
{
    for (int64_t i = 0; i < j->n_children; i++) {
        ad_array_clear(&j->children[i]);
    }
    for (size_t i = 0; i < j->n_owners; i++) {
        ad_owner_unref(j->owners[i]);
    }
    ad_array_clear(&j->dictionary);
    free(j->buffers);
    free(j->owners);
    free(j->children);
}

/* All nodes below are joined the same way; the depth is the schema's, which
 * has been validated. */
static ad_status
concat_views(ad_schema schema, const ad_array *views, size_t n,
             ad_device device, ad_array *out, ad_error *err)
{
    ad_join j = {.schema = schema, .views = views, .n = n, .device = device};
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &j.type, err));
    AD_RETURN_IF_ERR(ad_join_count_rows(schema, views, n, &j.length, err));
    AD_RETURN_IF_ERR(
        ad_join_count_buffers(schema, &j.type, views, n, &j.n_buffers, err));
    size_t n_below = (size_t)schema.node->n_children;
    /* Three buffers at the most are made anew. */
    ad_array *parts = malloc(n * sizeof(*parts));
    j.buffers = calloc((size_t)j.n_buffers + 1, sizeof(*j.buffers));
    j.owners = malloc((n + 4) * sizeof(*j.owners));
    j.children = malloc((n_below + 1) * sizeof(*j.children));
    ad_status status = AD_OK;
    if (parts == NULL || j.buffers == NULL || j.owners == NULL ||
        j.children == NULL) {
        status = ad_fail_memory(err, n * sizeof(*parts));
    }
    if (status == AD_OK) {
        status = join_validity(&j, err);
    }
    if (status == AD_OK) {
        status = join_layout(&j, parts, err);
    }
    if (status == AD_OK) {
        status = build(&j, out, err);
    }
    join_clear(&j);
    free(parts);
    return status;
}

ad_status
ad_concat_on(ad_schema schema, const ad_array *arrays, size_t n,
             const ad_stream_choice *stream, ad_array *out, ad_error *err)
{
    bool is_host = true;
    ad_device device = arrays[0].device;
    for (size_t i = 0; i < n; i++) {
        is_host &= ad_host_accessible(arrays[i].device);
        if (arrays[i].device.type != device.type) {
            device.type = ARROW_DEVICE_CPU;
        }
    }
    if (!is_host) {
        return ad_concat_on_device(schema, arrays, n, stream, out, err);
    }
    for (size_t i = 0; i < n; i++) {
        AD_RETURN_IF_ERR(
            ad_sync_wait(arrays[i].sync, "putting arrays together", err));
    }
    if (device.type == ARROW_DEVICE_CPU) {
        device = AD_CPU;
    }
    return concat_views(schema, arrays, n, device, out, err);
}
