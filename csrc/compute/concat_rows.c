/* Joins rows that refer to other buffers, by kernels: string views, offsets of
 * dense unions, run ends. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/owner.h"
#include "compute/concat_join.h"
#include "compute/run_end.h"
#include "copy/copy_tree.h"

/* --- faults -------------------------------------------------------------- */

/* A kernel writes only one buffer. Its last 8 bytes get 1 + the number of the
 * first invalid row. */
#define FAULT_SIZE ((int64_t)sizeof(int64_t))

/* Reads the invalid row from byte `from` of buffer 1: row `*row` of the memory
 * of view `*v`, or -1 if there is none. Blocks on a device. */
static ad_status
find_fault(ad_concat_job *self, const ad_concat_node *at, int64_t from,
           size_t *v, int64_t *row, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_builder_read(&self->builder, at->buffers[1], from,
                                     FAULT_SIZE, row, err));
    *row -= 1;
    if (*row < 0) {
        return AD_OK;
    }
    for (*v = 0; *v + 1 < at->n && *row >= at->views[*v].length; *v += 1) {
        *row -= at->views[*v].length;
    }
    *row += at->views[*v].offset;
    return AD_OK;
}

/* --- string views -------------------------------------------------------- */

/* Copies the sizes of a view's `n` data buffers. Some producers keep the sizes
 * on the host, others on the device. */
static ad_status
join_sizes(ad_concat_job *self, const ad_array *view, int64_t n, void *sizes,
           int64_t to, ad_error *err)
{
    const void *known = view->node->buffers[view->node->n_buffers - 1];
    bool on_host;
    if (known == NULL) { /* allowed for arrays without rows */
        return ad_copy_bits(&self->builder.session, NULL, 0, sizes, 64 * to,
                            64 * n, AD_BITS_ZEROS, err);
    }
    AD_RETURN_IF_ERR(ad_sizes_are_on_host(view, known, &on_host, err));
    if (!on_host) {
        return ad_builder_bytes(&self->builder, known, 0, sizes, 8 * to, 8 * n,
                                err);
    }
    AD_RETURN_IF_ERR(
        ad_sync_wait(view->memory.sync, "concatenating arrays", err));
    return ad_builder_upload(&self->builder, known, sizes, 8 * to, 8 * n, err);
}

static ad_status
share_data(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t to = 0;
    int64_t last = at->n_buffers - 1;
    AD_RETURN_IF_ERR(
        ad_concat_allocate(self, last - 2, 8, &at->buffers[last], err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t n = view->node->n_buffers - 3;
        if (n == 0 || ad_concat_repeats(at, v)) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            at->buffers[2 + to + i] = (void *)view->node->buffers[2 + i];
        }
        AD_RETURN_IF_ERR(
            ad_builder_share(&self->builder, view->memory.owner, err));
        AD_RETURN_IF_ERR(
            join_sizes(self, view, n, at->buffers[last], to, err));
        to += n;
    }
    return AD_OK;
}

static ad_status
launch_on_views(ad_concat_job *self, ad_concat_node *at, int64_t fault,
                ad_error *err)
{
    int64_t to = 0;
    int64_t base = 0;
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const void *const *buffers = view->node->buffers;
        int64_t n_variadic = view->node->n_buffers - 3;
        const void *validity = ad_concat_validity(view);
        base += v > 0 && !ad_concat_repeats(at, v)
                    ? at->views[v - 1].node->n_buffers - 3
                    : 0;
        const ad_launch launch = {
            .kernel = AD_KERNEL_REBASE_VIEWS,
            .source.offset = (uint64_t)(16 * view->offset),
            .values.data = (void *)validity,
            .target.offset = (uint64_t)(16 * to),
            .bit_offset = validity != NULL ? view->offset : -1,
            .length = view->length,
            .numbers = {n_variadic, base, fault, to + 1},
        };
        AD_RETURN_IF_ERR(ad_session_kernel(&self->builder.session, buffers[1],
                                           at->buffers[1], launch, err));
        to += view->length;
    }
    return AD_OK;
}

/* Changes the buffer numbers of long strings to those of the result. Views of
 * null rows are not checked. */
static ad_status
rebase_views(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    size_t v;
    int64_t row;
    int32_t index;
    AD_RETURN_IF_ERR(
        ad_concat_allocate(self, at->length + 1, 16, &at->buffers[1], err));
    int64_t nbytes = at->length * 16;
    AD_RETURN_IF_ERR(ad_copy_bits(&self->builder.session, NULL, 0,
                                  at->buffers[1], 8 * nbytes, 8 * FAULT_SIZE,
                                  AD_BITS_ZEROS, err));
    AD_RETURN_IF_ERR(launch_on_views(self, at, nbytes, err));
    AD_RETURN_IF_ERR(find_fault(self, at, nbytes, &v, &row, err));
    if (row < 0) {
        return AD_OK;
    }
    const struct ArrowArray *node = at->views[v].node;
    AD_RETURN_IF_ERR(ad_builder_read(&self->builder, node->buffers[1],
                                     16 * row + 8, 4, &index, err));
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "a view into buffer %" PRId32 ", but there are %" PRId64,
                   index, node->n_buffers - 3);
}

ad_status
ad_concat_string_views(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    AD_RETURN_IF_ERR(share_data(self, at, err));
    return at->length == 0
               ? ad_concat_allocate(self, 0, 16, &at->buffers[1], err)
               : rebase_views(self, at, err);
}

/* --- dense unions -------------------------------------------------------- */

/* The type ids of the children of a union. */
typedef struct union_ids {
    int8_t ids[128];
    int n_children;
    int n; /* 1 + the largest id */
} union_ids;

/* An entry of the table of AD_KERNEL_REBASE_OFFSETS, one per type id. */
typedef struct id_entry {
    uint32_t limit;
    uint32_t base;
} id_entry;

static ad_status
find_ids(const ad_concat_node *at, union_ids *out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(at->schema.node->format, &type, err));
    AD_RETURN_IF_ERR(
        ad_type_union_ids(&type, out->ids, &out->n_children, err));
    out->n = 0;
    for (int i = 0; i < out->n_children; i++) {
        out->n = out->ids[i] >= out->n ? out->ids[i] + 1 : out->n;
    }
    return AD_OK;
}

/* The tables (one per view) and the fault follow the offsets, which are padded
 * to a multiple of 8 bytes. */
static int64_t
tables_at(const ad_concat_node *at)
{
    return at->length / 2 * 8 + 8;
}

static int64_t
tables_size(const ad_concat_node *at, const union_ids *ids)
{
    return (int64_t)at->n * ids->n * (int64_t)sizeof(id_entry);
}

/* Offsets that would not fit the result exceed the limit as well. The fault is
 * set to 0 (none). */
static void
fill_tables(const ad_concat_node *at, const union_ids *ids, void *target)
{
    const int64_t end = (int64_t)INT32_MAX + 1;
    int64_t bases[128] = {0};
    id_entry *tables = target;
    memset(target, 0, (size_t)(tables_size(at, ids) + FAULT_SIZE));
    for (size_t v = 0; v < at->n; v++) {
        for (int i = 0; i < ids->n_children; i++) {
            int64_t n = at->views[v].node->children[i]->length;
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
put_tables(ad_concat_job *self, ad_concat_node *at, const union_ids *ids,
           ad_error *err)
{
    int64_t nbytes = tables_size(at, ids) + FAULT_SIZE;
    ad_host_block *memory;
    if (ad_concat_is_on_host(self)) {
        fill_tables(at, ids, (char *)at->buffers[1] + tables_at(at));
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    fill_tables(at, ids, memory->data);
    AD_RETURN_IF_ERR(ad_builder_keep(&self->builder, &memory->base, err));
    return ad_builder_upload(&self->builder, memory->data, at->buffers[1],
                             tables_at(at), nbytes, err);
}

static ad_status
launch_on_offsets(ad_concat_job *self, ad_concat_node *at, int64_t n_ids,
                  int64_t fault, ad_error *err)
{
    int64_t to = 0;
    int64_t table = tables_at(at);
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        const void *const *buffers = view->node->buffers;
        const ad_launch launch = {
            .kernel = AD_KERNEL_REBASE_OFFSETS,
            .source.offset = (uint64_t)view->offset,
            .values.data = (void *)buffers[1],
            .values.offset = (uint64_t)(4 * view->offset),
            .target.offset = (uint64_t)(4 * to),
            .length = view->length,
            .numbers = {n_ids, table, fault, to + 1},
        };
        AD_RETURN_IF_ERR(ad_session_kernel(&self->builder.session, buffers[0],
                                           at->buffers[1], launch, err));
        to += view->length;
        table += n_ids * (int64_t)sizeof(id_entry);
    }
    return AD_OK;
}

static ad_status
fail_offset(const ad_concat_node *at, const union_ids *ids, int8_t id,
            const struct ArrowArray *node, int32_t offset, ad_error *err)
{
    int i = 0;
    while (i < ids->n_children && ids->ids[i] != id) {
        i++;
    }
    if (i == ids->n_children) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "type id %d, which format \"%.40s\" does not have",
                       (int)id, at->schema.node->format);
    }
    int64_t n = node->children[i]->length;
    if (offset >= 0 && offset < n) {
        return ad_concat_fail_size(at->schema, "the values", err);
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "offset %" PRId32 " into child %d of %" PRId64 " values",
                   offset, i, n);
}

static ad_status
rebase_union_offsets(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    union_ids ids;
    size_t v;
    int64_t row;
    int8_t id;
    int32_t offset;
    AD_RETURN_IF_ERR(find_ids(at, &ids, err));
    int64_t behind = tables_size(at, &ids) + FAULT_SIZE;
    int64_t n_words = at->length / 2 + 1 + behind / 8;
    int64_t fault = n_words * 8 - FAULT_SIZE;
    AD_RETURN_IF_ERR(
        ad_concat_allocate(self, n_words, 8, &at->buffers[1], err));
    AD_RETURN_IF_ERR(put_tables(self, at, &ids, err));
    AD_RETURN_IF_ERR(launch_on_offsets(self, at, ids.n, fault, err));
    AD_RETURN_IF_ERR(find_fault(self, at, fault, &v, &row, err));
    if (row < 0) {
        return AD_OK;
    }
    const struct ArrowArray *node = at->views[v].node;
    AD_RETURN_IF_ERR(
        ad_builder_read(&self->builder, node->buffers[0], row, 1, &id, err));
    AD_RETURN_IF_ERR(ad_builder_read(&self->builder, node->buffers[1], 4 * row,
                                     4, &offset, err));
    return fail_offset(at, &ids, id, node, offset, err);
}

ad_status
ad_concat_dense_union(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    AD_RETURN_IF_ERR(at->length == 0
                         ? ad_concat_allocate(self, 0, 4, &at->buffers[1], err)
                         : rebase_union_offsets(self, at, err));
    for (int64_t i = 0; i < at->schema.node->n_children; i++) {
        AD_RETURN_IF_ERR(ad_concat_whole_child(self, at, i, err));
    }
    return AD_OK;
}

/* --- runs ---------------------------------------------------------------- */

/* Sets at->parts to the values of the runs. Their ends count from the first
 * row of the result. */
static ad_status
join_run_ends(ad_concat_job *self, ad_concat_node *at, ad_run_ends *runs,
              ad_error *err)
{
    int64_t width;
    int64_t n = 0;
    int64_t row = 0;
    int64_t to = 0;
    void *ends;
    AD_RETURN_IF_ERR(ad_run_end_width(at->schema, &width, err));
    if (at->length > ad_concat_max((int)width, false)) {
        return ad_concat_fail_size(at->schema, "the run ends", err);
    }
    AD_RETURN_IF_ERR(
        ad_find_run_ends(&self->builder, at->views, at->n, runs, err));
    for (size_t v = 0; v < at->n; v++) {
        n += runs[v].n;
    }
    AD_RETURN_IF_ERR(ad_concat_allocate(self, n, width, &ends, err));
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

ad_status
ad_concat_run_ends(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    ad_run_ends *runs = malloc(at->n * sizeof(*runs));
    if (runs == NULL) {
        return ad_fail_memory(err, at->n * sizeof(*runs));
    }
    ad_status status = join_run_ends(self, at, runs, err);
    free(runs);
    return status == AD_OK ? ad_concat_child(self, at, 1, err) : status;
}
