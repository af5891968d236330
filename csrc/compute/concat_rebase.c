#include "compute/concat_rebase.h"

#include <inttypes.h>
#include <string.h>

#include "compute/concat_join.h"
#include "base/memory.h"

/* --- faults ------------------------------------------------------------------ */

/* A kernel writes 1 + the number of a row into the last 8 bytes of the buffer,
 * which is the one memory that it writes. */
#define FAULT_SIZE ((int64_t)sizeof(int64_t))

/* The row that was written at byte `from` of the target, as row `*row` of the
 * memory of view `*v`; -1: none. Blocks. */
static ad_status
find_fault(const ad_rows *self, const void *target, int64_t from, size_t *v,
           int64_t *row, ad_error *err)
{
    AD_RETURN_IF_ERR(
        ad_builder_read(self->builder, target, from, FAULT_SIZE, row, err));
    *row -= 1;
    if (*row < 0) {
        return AD_OK;
    }
    for (*v = 0; *v + 1 < self->n && *row >= self->views[*v].length; *v += 1) {
        *row -= self->views[*v].length;
    }
    *row += self->views[*v].offset;
    return AD_OK;
}

/* --- views ------------------------------------------------------------------- */

ad_status
ad_view_rows_size(const ad_rows *self, int64_t *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_join_size_of_rows(self->length, 16, out, err));
    *out += FAULT_SIZE;
    return AD_OK;
}

static ad_status
launch_on_views(const ad_rows *self, void *target, int64_t fault,
                ad_error *err)
{
    int64_t to = 0;
    int64_t base = 0;
    for (size_t v = 0; v < self->n; v++) {
        const ad_array *view = &self->views[v];
        const void *const *buffers = view->node->buffers;
        int64_t n_variadic = view->node->n_buffers - 3;
        bool has_nulls = ad_join_may_have_nulls(view);
        const ad_launch launch = {
            .kernel = AD_KERNEL_RAISE_VIEWS,
            .source.offset = (uint64_t)(16 * view->offset),
            .values.data = has_nulls ? (void *)buffers[0] : NULL,
            .target.offset = (uint64_t)(16 * to),
            .bit_offset = has_nulls ? view->offset : -1,
            .length = view->length,
            .numbers = {n_variadic, base, fault, to + 1},
        };
        AD_RETURN_IF_ERR(ad_session_kernel(&self->builder->session, buffers[1],
                                           target, launch, err));
        to += view->length;
        base += n_variadic;
    }
    return AD_OK;
}

ad_status
ad_rebase_views(const ad_rows *self, void *target, ad_error *err)
{
    int64_t fault = 16 * self->length;
    size_t v;
    int64_t row;
    int32_t index;
    AD_RETURN_IF_ERR(ad_builder_bits(self->builder, NULL, 0, target, 8 * fault,
                                     8 * FAULT_SIZE, AD_BITS_ZEROS, err));
    AD_RETURN_IF_ERR(launch_on_views(self, target, fault, err));
    AD_RETURN_IF_ERR(find_fault(self, target, fault, &v, &row, err));
    if (row < 0) {
        return AD_OK;
    }
    const struct ArrowArray *node = self->views[v].node;
    AD_RETURN_IF_ERR(ad_builder_read(self->builder, node->buffers[1],
                                     16 * row + 8, 4, &index, err));
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "a view into buffer %" PRId32 ", but there are %" PRId64,
                   index, node->n_buffers - 3);
}

/* --- dense unions ------------------------------------------------------------- */

/* The ids that the children of a union have, and how many there are up to the
 * largest. */
typedef struct union_ids {
    int8_t ids[128];
    int n_children;
    int n;
} union_ids;

/* What AD_KERNEL_RAISE_OFFSETS wants to know of an id. */
typedef struct id_entry {
    uint32_t limit;
    uint32_t base;
} id_entry;

static ad_status
find_ids(const ad_rows *self, union_ids *out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(self->schema.node->format, &type, err));
    AD_RETURN_IF_ERR(
        ad_type_union_ids(&type, out->ids, &out->n_children, err));
    out->n = 0;
    for (int i = 0; i < out->n_children; i++) {
        out->n = out->ids[i] >= out->n ? out->ids[i] + 1 : out->n;
    }
    return AD_OK;
}

/* Behind the offsets, and room for one that there may be: a table for each
 * view, and the fault. */
static int64_t
tables_at(const ad_rows *self)
{
    return self->length / 2 * 8 + 8;
}

static int64_t
tables_size(const ad_rows *self, const union_ids *ids)
{
    return (int64_t)self->n * ids->n * (int64_t)sizeof(id_entry);
}

ad_status
ad_union_rows_size(const ad_rows *self, int64_t *out, ad_error *err)
{
    union_ids ids;
    AD_RETURN_IF_ERR(find_ids(self, &ids, err));
    int64_t behind = tables_size(self, &ids) + FAULT_SIZE;
    return ad_join_size_of_rows(self->length / 2 + 1 + behind / 8, 8, out,
                                err);
}

/* Offsets that would not fit the result are above the limit, too. */
static void
fill_tables(const ad_rows *self, const union_ids *ids, id_entry *tables)
{
    const int64_t end = (int64_t)INT32_MAX + 1;
    int64_t bases[128] = {0};
    for (size_t v = 0; v < self->n; v++) {
        for (int i = 0; i < ids->n_children; i++) {
            int64_t n = self->views[v].node->children[i]->length;
            int64_t room = end - bases[i];
            int64_t limit = n < room ? n : room;
            tables[ids->ids[i]] =
                (id_entry){(uint32_t)limit, (uint32_t)bases[i]};
            bases[i] += limit;
        }
        tables += ids->n;
    }
}

static ad_status
upload_tables(const ad_rows *self, const union_ids *ids, void *target,
              ad_error *err)
{
    int64_t nbytes = tables_size(self, ids) + FAULT_SIZE;
    ad_memory *memory;
    AD_RETURN_IF_ERR(ad_memory_new(nbytes, &memory, err));
    memset(memory->data, 0, (size_t)nbytes);
    fill_tables(self, ids, (id_entry *)memory->data);
    AD_RETURN_IF_ERR(ad_builder_keep(self->builder, &memory->base, err));
    return ad_builder_upload(self->builder, memory->data, target,
                             tables_at(self), nbytes, err);
}

static ad_status
launch_on_offsets(const ad_rows *self, int64_t n_ids, void *target,
                  int64_t fault, ad_error *err)
{
    int64_t to = 0;
    int64_t table = tables_at(self);
    for (size_t v = 0; v < self->n; v++) {
        const ad_array *view = &self->views[v];
        const void *const *buffers = view->node->buffers;
        const ad_launch launch = {
            .kernel = AD_KERNEL_RAISE_OFFSETS,
            .source.offset = (uint64_t)view->offset,
            .values.data = (void *)buffers[1],
            .values.offset = (uint64_t)(4 * view->offset),
            .target.offset = (uint64_t)(4 * to),
            .length = view->length,
            .numbers = {n_ids, table, fault, to + 1},
        };
        AD_RETURN_IF_ERR(ad_session_kernel(&self->builder->session, buffers[0],
                                           target, launch, err));
        to += view->length;
        table += n_ids * (int64_t)sizeof(id_entry);
    }
    return AD_OK;
}

static ad_status
fail_offset(const ad_rows *self, const union_ids *ids, int8_t id,
            const struct ArrowArray *node, int32_t offset, ad_error *err)
{
    int i = 0;
    while (i < ids->n_children && ids->ids[i] != id) {
        i++;
    }
    if (i == ids->n_children) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "type id %d, which format \"%.40s\" does not have",
                       (int)id, self->schema.node->format);
    }
    int64_t n = node->children[i]->length;
    if (offset >= 0 && offset < n) {
        return ad_join_fail_size(self->schema, "the values", err);
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "offset %" PRId32 " into child %d of %" PRId64 " values",
                   offset, i, n);
}

ad_status
ad_rebase_offsets(const ad_rows *self, void *target, ad_error *err)
{
    union_ids ids;
    size_t v;
    int64_t row;
    int8_t id;
    int32_t offset;
    AD_RETURN_IF_ERR(find_ids(self, &ids, err));
    int64_t fault = tables_at(self) + tables_size(self, &ids);
    AD_RETURN_IF_ERR(upload_tables(self, &ids, target, err));
    AD_RETURN_IF_ERR(launch_on_offsets(self, ids.n, target, fault, err));
    AD_RETURN_IF_ERR(find_fault(self, target, fault, &v, &row, err));
    if (row < 0) {
        return AD_OK;
    }
    const struct ArrowArray *node = self->views[v].node;
    AD_RETURN_IF_ERR(
        ad_builder_read(self->builder, node->buffers[0], row, 1, &id, err));
    AD_RETURN_IF_ERR(ad_builder_read(self->builder, node->buffers[1], 4 * row,
                                     4, &offset, err));
    return fail_offset(self, &ids, id, node, offset, err);
}

/* --- runs ------------------------------------------------------------------------- */

ad_status
ad_find_run_end_rows(const ad_rows *self, ad_run_ends *runs, int64_t *n,
                     int64_t *nbytes, ad_error *err)
{
    int64_t width;
    AD_RETURN_IF_ERR(ad_run_end_width(self->schema, &width, err));
    if (self->length > ad_join_max((int)width, false)) {
        return ad_join_fail_size(self->schema, "the run ends", err);
    }
    AD_RETURN_IF_ERR(
        ad_find_run_ends(self->builder, self->views, self->n, runs, err));
    *n = 0;
    for (size_t v = 0; v < self->n; v++) {
        *n += runs[v].n;
    }
    return ad_join_size_of_rows(*n, width, nbytes, err);
}

ad_status
ad_join_run_end_rows(const ad_rows *self, const ad_run_ends *runs, void *ends,
                     ad_array *parts, ad_error *err)
{
    int64_t row = 0;
    int64_t to = 0;
    for (size_t v = 0; v < self->n; v++) {
        const ad_array *view = &self->views[v];
        AD_RETURN_IF_ERR(ad_write_run_ends(self->builder, view, runs[v], row,
                                           ends, to, err));
        parts[v] = ad_join_view_below(view, view->node->children[1],
                                      self->schema.node->children[1],
                                      runs[v].first, runs[v].n);
        row += view->length;
        to += runs[v].n;
    }
    return AD_OK;
}
