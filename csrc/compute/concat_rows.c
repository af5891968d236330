/* Concatenation on a device where each row has to be looked at: views, dense
 * unions, runs. Kernels do, and tell the host what they found. */
#include <stdlib.h>

#include "compute/concat_device.h"
#include "compute/concat_rebase.h"
#include "copy/copy.h"
#include "copy/copy_tree.h"

static ad_rows
rows_of(ad_concat_job *self, const ad_concat_node *at)
{
    return (ad_rows){
        .builder = &self->builder,
        .schema = at->schema,
        .views = at->views,
        .n = at->n,
        .length = at->length,
    };
}

/* --- views ------------------------------------------------------------------- */

/* The sizes of a view's `n` data buffers, which producers keep on either
 * side. */
static ad_status
join_sizes(ad_concat_job *self, const ad_array *view, int64_t n, void *sizes,
           int64_t to, ad_error *err)
{
    const void *known = view->node->buffers[view->node->n_buffers - 1];
    bool on_host;
    if (known == NULL) { /* without rows there need not be any */
        return ad_builder_bits(&self->builder, NULL, 0, sizes, 64 * to, 64 * n,
                               AD_BITS_ZEROS, err);
    }
    AD_RETURN_IF_ERR(ad_sizes_are_on_host(view, known, &on_host, err));
    if (!on_host) {
        return ad_builder_bytes(&self->builder, known, 0, sizes, 8 * to, 8 * n,
                                err);
    }
    AD_RETURN_IF_ERR(ad_sync_wait(view->sync, "putting arrays together", err));
    return ad_builder_upload(&self->builder, known, sizes, 8 * to, 8 * n, err);
}

static ad_status
share_data(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    int64_t to = 0;
    void **sizes = &at->buffers[at->n_buffers - 1];
    AD_RETURN_IF_ERR(ad_builder_allocate(&self->builder,
                                         (at->n_buffers - 3) * 8, sizes, err));
    for (size_t v = 0; v < at->n; v++) {
        const ad_array *view = &at->views[v];
        int64_t n = view->node->n_buffers - 3;
        if (n == 0) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            at->buffers[2 + to + i] = (void *)view->node->buffers[2 + i];
        }
        AD_RETURN_IF_ERR(ad_builder_share(&self->builder, view->owner, err));
        AD_RETURN_IF_ERR(join_sizes(self, view, n, *sizes, to, err));
        to += n;
    }
    return AD_OK;
}

ad_status
ad_concat_views(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    const ad_rows rows = rows_of(self, at);
    int64_t nbytes;
    AD_RETURN_IF_ERR(share_data(self, at, err));
    if (at->length == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_view_rows_size(&rows, &nbytes, err));
    AD_RETURN_IF_ERR(
        ad_builder_allocate(&self->builder, nbytes, &at->buffers[1], err));
    return ad_rebase_views(&rows, at->buffers[1], err);
}

/* --- dense unions --------------------------------------------------------------- */

ad_status
ad_concat_dense_union(ad_concat_job *self, ad_concat_node *at, ad_error *err)
{
    const ad_rows rows = rows_of(self, at);
    int64_t nbytes;
    if (at->length > 0) {
        AD_RETURN_IF_ERR(ad_union_rows_size(&rows, &nbytes, err));
        AD_RETURN_IF_ERR(
            ad_builder_allocate(&self->builder, nbytes, &at->buffers[1], err));
        AD_RETURN_IF_ERR(ad_rebase_offsets(&rows, at->buffers[1], err));
    }
    for (int64_t i = 0; i < at->schema.node->n_children; i++) {
        ad_join_view_values(at->schema, at->views, at->n, i, at->parts);
        AD_RETURN_IF_ERR(ad_concat_child(self, at, i, err));
    }
    return AD_OK;
}

/* --- runs ------------------------------------------------------------------------- */

static ad_status
join_run_ends(ad_concat_job *self, ad_concat_node *at, ad_run_ends *runs,
              ad_error *err)
{
    const ad_rows rows = rows_of(self, at);
    int64_t n, nbytes;
    void *ends;
    AD_RETURN_IF_ERR(ad_find_run_end_rows(&rows, runs, &n, &nbytes, err));
    AD_RETURN_IF_ERR(ad_builder_allocate(&self->builder, nbytes, &ends, err));
    AD_RETURN_IF_ERR(ad_join_run_end_rows(&rows, runs, ends, at->parts, err));
    return ad_build_run_ends(at->schema, self->arrays[0].device, n, ends, NULL,
                             &at->below[0], err);
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
