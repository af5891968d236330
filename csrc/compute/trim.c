#include "compute/trim.h"

#include "compute/bits.h"
#include "order/device_owner.h"
#include "compute/buffer_builder.h"
#include "base/log.h"
#include "base/owner.h"
#include "model/map_buffers.h"

static const char operation[] = "making an array compact";

/* --- arrays that are trimmed already ------------------------------------- */

static void
mark_destroy(ad_owner *self)
{
}

/* The first owner of every array that ad_array_trim() returns: it identifies
 * them. */
static const ad_owner_ops mark_ops = {
    .destroy = mark_destroy,
    .name = "mark",
};
static ad_owner mark = {.refs = 1, .ops = &mark_ops};

static bool
was_made_here(const ad_array *array)
{
    size_t n;
    ad_owner *const *members = ad_owner_members(array->memory.owner, &n);
    return members != NULL && n > 0 && members[0] == &mark;
}

/* Whether no node has bits, an offset or an unknown null count. */
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
ad_array_is_trimmed(const ad_array *array)
{
    return array->offset == 0 && ad_array_is_whole(array) &&
           (was_made_here(array) || is_plain(array->schema.node, array->node,
                                             ad_array_null_count(array)));
}

/* --- session ------------------------------------------------------------- */

typedef struct job {
    ad_buffer_map map;
    const ad_array *root;
    const ad_stream_ref *stream;
    ad_builder builder;
} job;

/* Opens the session on first use: an array that needs no new buffer needs no
 * runtime. */
static ad_status
open_session(job *self, const void *data, ad_error *err)
{
    const ad_array *root = self->root;
    const ad_session_request request = ad_session_within(
        root->memory.device, data, root->memory.sync, self->stream, operation);
    if (self->builder.is_open) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_session_open(&request, &self->builder.session, err));
    self->builder.is_open = true;
    return self->builder.session.backend == NULL
               ? AD_OK
               : ad_owner_record_stream(root->memory.owner,
                                        &self->builder.session.on, err);
}

/* --- buffers ------------------------------------------------------------- */

/* Copies `length` bits from `first` on to a new bitmap. */
static ad_status
take_bits(job *self, const void **buffer, int64_t first, int64_t length,
          ad_error *err)
{
    void *target;
    AD_RETURN_IF_ERR(open_session(self, *buffer, err));
    AD_RETURN_IF_ERR(ad_builder_bitmap_of(&self->builder, *buffer, first,
                                          length, &target, err));
    *buffer = target;
    return AD_OK;
}

/* Moves the address to byte `first`. Memory that is named by a handle is
 * copied, since a handle has no address to move. */
static ad_status
take_bytes(job *self, const void **buffer, int64_t first, int64_t nbytes,
           ad_error *err)
{
    const void *data = *buffer;
    void *target;
    if (data == NULL || first == 0 || nbytes == 0) {
        return AD_OK;
    }
    if (!ad_device_uses_handles(self->root->memory.device.type)) {
        *buffer = (const char *)data + first;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(open_session(self, data, err));
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, nbytes, &target, err));
    *buffer = target;
    return ad_builder_bytes(&self->builder, data, first, target, 0, nbytes,
                            err);
}

static ad_status
take_buffers(job *self, const ad_array *view, const ad_type *type,
             const void **buffers, ad_error *err)
{
    int64_t n = view->length;
    bool has_end =
        type->layout == AD_LAYOUT_OFFSETS || type->layout == AD_LAYOUT_LIST;
    for (int64_t i = type->has_validity; i < type->n_buffers; i++) {
        int64_t bits = ad_type_row_bits(type, i);
        if (bits != 1) {
            AD_RETURN_IF_ERR(take_bytes(self, &buffers[i],
                                        view->offset * bits / 8,
                                        (n + has_end) * bits / 8, err));
        } else if (n > 0 && buffers[i] != NULL) {
            AD_RETURN_IF_ERR(
                take_bits(self, &buffers[i], view->offset, n, err));
        }
    }
    return AD_OK;
}

/* Writes the run ends of a slice anew, since they count from row 0. */
static ad_status
take_run_ends(job *self, ad_mapped_node *node, ad_error *err)
{
    const ad_array *view = node->view;
    ad_run_ends runs;
    int64_t width;
    void *ends;
    AD_RETURN_IF_ERR(
        open_session(self, view->node->children[0]->buffers[1], err));
    AD_RETURN_IF_ERR(ad_find_run_ends(&self->builder, view, &runs, err));
    AD_RETURN_IF_ERR(ad_run_end_width(view->schema, &width, err));
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, runs.n * width, &ends, err));
    AD_RETURN_IF_ERR(
        ad_write_run_ends(&self->builder, view, runs, 0, ends, 0, err));
    node->rows_below[1] = (ad_row_range){runs.first, runs.n};
    return ad_build_run_ends(view->schema, view->memory.device, runs.n, ends,
                             &node->below[0], err);
}

static ad_status
take_node(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    job *self = (job *)map;
    const ad_array *view = node->view;
    const void **buffers = node->buffers;
    int64_t n_nulls;
    AD_RETURN_IF_ERR(ad_array_count_nulls(view, self->stream, &n_nulls, err));
    node->spec.offset = 0;
    node->spec.null_count = n_nulls;
    if (node->type.has_validity && n_nulls == 0) {
        buffers[0] = NULL;
    } else if (node->type.has_validity) {
        AD_RETURN_IF_ERR(
            take_bits(self, &buffers[0], view->offset, view->length, err));
    }
    AD_RETURN_IF_ERR(take_buffers(self, view, &node->type, buffers, err));
    bool is_slice = view->offset != 0 || view->length != view->node->length;
    return node->type.id == AD_TYPE_RUN_END && is_slice
               ? take_run_ends(self, node, err)
               : AD_OK;
}

/* --- entry --------------------------------------------------------------- */

/* Only the root owns the new buffers. */
static ad_status
own_new_buffers(job *self, ad_array *root, ad_error *err)
{
    ad_owner *owners[] = {&mark, root->memory.owner, NULL};
    ad_sync *sync;
    AD_RETURN_IF_ERR(ad_builder_owner(&self->builder, &owners[2], err));
    ad_status status = ad_owner_group_new(owners, 3, &root->memory.owner, err);
    ad_owner_unref(owners[2]);
    AD_RETURN_IF_ERR(status);
    ad_owner_unref(owners[1]);
    AD_RETURN_IF_ERR(ad_builder_finish(&self->builder, &sync, err));
    if (sync != NULL) {
        ad_sync_unref(root->memory.sync);
        root->memory.sync = sync;
    }
    return AD_OK;
}

ad_status
ad_array_trim(const ad_array *array, const ad_stream_ref *stream,
              ad_array *out, ad_error *err)
{
    job self = {.map = {take_node}, .root = array, .stream = stream};
    int64_t start = ad_log_start();
    ad_status status = ad_map_buffers(array, &self.map, out, err);
    if (status == AD_OK) {
        status = own_new_buffers(&self, out, err);
        if (status != AD_OK) {
            ad_array_clear(out);
        }
    }
    if (status == AD_OK && self.builder.nbytes > 0) {
        AD_LOG_COPY(
            self.builder.nbytes, array->memory.device, array->memory.device,
            "the rows of a compact array begin where its memory does", start);
    }
    ad_builder_clear(&self.builder, status != AD_OK, array->memory.owner);
    return status;
}
