#include "compute/trim.h"

#include <stdlib.h>

#include "compute/bits.h"
#include "order/device_owner.h"
#include "compute/buffer_builder.h"
#include "base/owner_group.h"
#include "compute/run_end.h"
#include "copy/copy.h"

static const char consumer[] = "making an array compact";

/* --- what is compact already ------------------------------------------------ */

static void
mark_destroy(ad_owner *self)
{
    (void)self;
}

/* Among the owners of what was made here, so that it is known again. */
static ad_owner mark = {.refs = 1, .destroy = mark_destroy};

static bool
was_made_here(const ad_array *array)
{
    size_t n;
    ad_owner *const *members = ad_array_built_members(array->owner, &n);
    if (members == NULL || n == 0 || members[0] == NULL) {
        return false;
    }
    members = ad_owner_group_members(members[0], &n);
    return members != NULL && n > 0 && members[0] == &mark;
}

/* No bits, and nothing in front of the first row. */
static bool
is_plain(const struct ArrowSchema *schema, const struct ArrowArray *node,
         int64_t null_count)
{
    ad_type type;
    if (node->offset != 0 || null_count < 0 ||
        ad_type_parse(schema->format, &type, NULL) != AD_OK ||
        (type.has_validity && node->buffers[0] != NULL) ||
        (type.layout == AD_LAYOUT_FIXED && type.bit_width == 1 &&
         node->length > 0)) {
        return false;
    }
    for (int64_t i = 0; i < node->n_children; i++) {
        if (!is_plain(schema->children[i], node->children[i],
                      node->children[i]->null_count)) {
            return false;
        }
    }
    return node->dictionary == NULL ||
           is_plain(schema->dictionary, node->dictionary,
                    node->dictionary->null_count);
}

bool
ad_array_is_compact(const ad_array *array)
{
    return array->offset == 0 && ad_array_is_whole(array) &&
           (was_made_here(array) ||
            is_plain(array->schema.node, array->node, array->null_count));
}

/* --- the work ---------------------------------------------------------------- */

typedef struct job {
    const ad_array *root;
    const ad_stream_choice *stream;
    ad_making making;
} job;

static ad_status make_compact(job *self, const ad_array *view, bool is_root,
                              ad_array *out, ad_error *err);

/* Where there is nothing to be made, no runtime is needed. */
static ad_status
open_route(job *self, const void *data, ad_error *err)
{
    const ad_array *root = self->root;
    const ad_route_request request = {
        .source = root->device,
        .data = data,
        .sync = root->sync,
        .target = root->device,
        .stream = self->stream,
        .consumer = consumer,
    };
    if (self->making.is_open) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_route_open(&request, &self->making.route, err));
    self->making.is_open = true;
    return self->making.route.backend == NULL
               ? AD_OK
               : ad_owner_note_use(root->owner, self->making.route.place,
                                   self->making.route.stream,
                                   self->making.route.keep, err);
}

/* --- buffers ----------------------------------------------------------------- */

/* `length` bits from `first` on, as a bitmap of its own. */
static ad_status
take_bits(job *self, const void **buffer, int64_t first, int64_t length,
          ad_error *err)
{
    void *target;
    AD_RETURN_IF_ERR(open_route(self, *buffer, err));
    AD_RETURN_IF_ERR(ad_making_bitmap_of(&self->making, *buffer, first, length,
                                         &target, err));
    *buffer = target;
    return AD_OK;
}

/* The bytes [first, first + nbytes): a handle cannot be moved. */
static ad_status
take_bytes(job *self, const void **buffer, int64_t first, int64_t nbytes,
           ad_error *err)
{
    const void *data = *buffer;
    void *target;
    if (data == NULL || first == 0 || nbytes == 0) {
        return AD_OK;
    }
    if (!ad_device_uses_handles(self->root->device.type)) {
        *buffer = (const char *)data + first;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(open_route(self, data, err));
    AD_RETURN_IF_ERR(ad_making_allocate(&self->making, nbytes, &target, err));
    *buffer = target;
    return ad_making_bytes(&self->making, data, first, target, 0, nbytes, err);
}

/* `n` rows of `size` bytes. */
static ad_status
take_rows(job *self, const ad_array *view, const void **buffer, int64_t n,
          int64_t size, ad_error *err)
{
    return take_bytes(self, buffer, view->offset * size, n * size, err);
}

static ad_status
take_buffers(job *self, const ad_array *view, const ad_type *type,
             const void **buffers, ad_error *err)
{
    int64_t n = view->length;
    int64_t index_size = type->wide_offsets ? 8 : 4;
    switch (type->layout) {
        case AD_LAYOUT_FIXED:
            if (type->bit_width == 1) {
                return n == 0 || buffers[1] == NULL
                           ? AD_OK
                           : take_bits(self, &buffers[1], view->offset, n,
                                       err);
            }
            return take_rows(self, view, &buffers[1], n, type->bit_width / 8,
                             err);
        case AD_LAYOUT_OFFSETS:
        case AD_LAYOUT_LIST:
            return take_rows(self, view, &buffers[1], n + 1, index_size, err);
        case AD_LAYOUT_VIEWS:
            return take_rows(self, view, &buffers[1], n, 16, err);
        case AD_LAYOUT_LIST_VIEW:
            AD_RETURN_IF_ERR(
                take_rows(self, view, &buffers[1], n, index_size, err));
            return take_rows(self, view, &buffers[2], n, index_size, err);
        case AD_LAYOUT_SPARSE_UNION:
            return take_rows(self, view, &buffers[0], n, 1, err);
        case AD_LAYOUT_DENSE_UNION:
            AD_RETURN_IF_ERR(take_rows(self, view, &buffers[0], n, 1, err));
            return take_rows(self, view, &buffers[1], n, 4, err);
        case AD_LAYOUT_NONE:
        case AD_LAYOUT_VALIDITY:
            break;
    }
    return AD_OK;
}

/* --- nodes ------------------------------------------------------------------- */

static ad_status
take_child(job *self, const ad_array *view, const ad_type *type, int64_t i,
           ad_array *out, ad_error *err)
{
    ad_array child, rows;
    bool is_cut = type->layout == AD_LAYOUT_VALIDITY ||
                  type->layout == AD_LAYOUT_SPARSE_UNION;
    int64_t size = type->id == AD_TYPE_FIXED_LIST ? type->list_size : 1;
    AD_RETURN_IF_ERR(ad_array_child(view, i, &child, err));
    ad_status status = AD_OK;
    if (is_cut) {
        status = ad_array_slice(&child, view->offset * size,
                                view->length * size, &rows, err);
        ad_array_clear(&child);
        AD_RETURN_IF_ERR(status);
        child = rows;
    }
    status = make_compact(self, &child, false, out, err);
    ad_array_clear(&child);
    return status;
}

/* Run ends are counted from row 0, so that they are written anew. */
static ad_status
take_runs(job *self, const ad_array *view, ad_array *below, ad_error *err)
{
    ad_array values, rows;
    ad_runs runs;
    int64_t width;
    void *ends;
    AD_RETURN_IF_ERR(
        open_route(self, view->node->children[0]->buffers[1], err));
    AD_RETURN_IF_ERR(ad_find_runs(&self->making, view, 1, &runs, err));
    AD_RETURN_IF_ERR(ad_run_end_width(view->schema, &width, err));
    AD_RETURN_IF_ERR(
        ad_making_allocate(&self->making, runs.n * width, &ends, err));
    AD_RETURN_IF_ERR(
        ad_write_run_ends(&self->making, view, runs, 0, ends, 0, err));
    AD_RETURN_IF_ERR(ad_build_run_ends(view->schema, view->device, runs.n,
                                       ends, NULL, &below[0], err));
    AD_RETURN_IF_ERR(ad_array_child(view, 1, &values, err));
    ad_status status = ad_array_slice(&values, runs.first, runs.n, &rows, err);
    ad_array_clear(&values);
    AD_RETURN_IF_ERR(status);
    status = make_compact(self, &rows, false, &below[1], err);
    ad_array_clear(&rows);
    return status;
}

static ad_status
take_below(job *self, const ad_array *view, const ad_type *type,
           ad_array *below, ad_error *err)
{
    int64_t n = view->node->n_children;
    if (type->id == AD_TYPE_RUN_END && view->offset != 0) {
        return take_runs(self, view, below, err);
    }
    for (int64_t i = 0; i < n; i++) {
        AD_RETURN_IF_ERR(take_child(self, view, type, i, &below[i], err));
    }
    if (view->node->dictionary == NULL) {
        return AD_OK;
    }
    ad_array values;
    AD_RETURN_IF_ERR(ad_array_dictionary(view, &values, err));
    ad_status status = make_compact(self, &values, false, &below[n], err);
    ad_array_clear(&values);
    return status;
}

static ad_status
build(job *self, const ad_array *view, const ad_type *type, bool is_root,
      const void **buffers, ad_array *below, ad_array *out, ad_error *err)
{
    ad_owner *owner = NULL;
    int64_t n_nulls;
    AD_RETURN_IF_ERR(ad_array_count_nulls(view, self->stream, &n_nulls, err));
    for (int64_t i = 0; i < view->node->n_buffers; i++) {
        buffers[i] = view->node->buffers[i];
    }
    if (type->has_validity && n_nulls == 0) {
        buffers[0] = NULL;
    } else if (type->has_validity) {
        AD_RETURN_IF_ERR(
            take_bits(self, &buffers[0], view->offset, view->length, err));
    }
    AD_RETURN_IF_ERR(take_buffers(self, view, type, buffers, err));
    AD_RETURN_IF_ERR(take_below(self, view, type, below, err));
    /* What is made here is kept by the root alone, which comes last. */
    if (is_root) {
        AD_RETURN_IF_ERR(
            ad_making_owner(&self->making, &mark, view->owner, &owner, err));
    } else {
        owner = ad_owner_ref(view->owner);
    }
    const ad_array_spec spec = {
        .schema = view->schema,
        .device = view->device,
        .length = view->length,
        .null_count = n_nulls,
        .n_buffers = view->node->n_buffers,
        .buffers = buffers,
        .owner = owner,
        .n_children = view->node->n_children,
        .children = below,
        .dictionary = view->node->dictionary != NULL
                          ? &below[view->node->n_children]
                          : NULL,
        .readonly = view->readonly,
    };
    ad_status status = ad_array_build(&spec, out, err);
    ad_owner_unref(owner);
    return status;
}

static ad_status
make_compact(job *self, const ad_array *view, bool is_root, ad_array *out,
             ad_error *err)
{
    ad_type type;
    size_t n_below = (size_t)view->node->n_children + 1;
    size_t n_buffers = (size_t)view->node->n_buffers + 1;
    AD_RETURN_IF_ERR(ad_type_parse(view->schema.node->format, &type, err));
    ad_array *below = calloc(n_below, sizeof(*below));
    const void **buffers = calloc(n_buffers, sizeof(*buffers));
    ad_status status =
        below == NULL || buffers == NULL
            ? ad_fail_memory(err, n_below * sizeof(*below))
            : build(self, view, &type, is_root, buffers, below, out, err);
    for (size_t i = 0; below != NULL && i < n_below; i++) {
        ad_array_clear(&below[i]);
    }
    free(buffers);
    free(below);
    return status;
}

/* --- entry -------------------------------------------------------------------- */

ad_status
ad_array_compact(const ad_array *array, const ad_stream_choice *stream,
                 ad_array *out, ad_error *err)
{
    job self = {.root = array, .stream = stream};
    ad_sync *sync = NULL;
    ad_status status = make_compact(&self, array, true, out, err);
    if (status == AD_OK) {
        status = ad_making_finish(&self.making, &sync, err);
        if (status != AD_OK) {
            ad_array_clear(out);
        }
    }
    if (status == AD_OK) {
        out->sync = sync != NULL ? sync : ad_sync_ref(array->sync);
    }
    ad_making_clear(&self.making, status != AD_OK, array->owner);
    return status;
}
