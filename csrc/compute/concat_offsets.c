/* The layouts whose rows point into something else: strings, lists, views,
 * runs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/concat_join.h"

/* --- offsets ------------------------------------------------------------------ */

/* Where the data of a view's rows begin and end. */
static ad_status
data_range(const ad_join *j, const ad_array *view, int64_t *first,
           int64_t *last, ad_error *err)
{
    int width = j->type.wide_offsets ? 8 : 4;
    const struct ArrowArray *node = view->node;
    const void *offsets = node->buffers[1];
    *first = *last = 0;
    if (view->length == 0) {
        return AD_OK;
    }
    *first = ad_int_at(offsets, width, view->offset);
    *last = ad_int_at(offsets, width, view->offset + view->length);
    if (*first < 0 || *last < *first) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offsets run from %" PRId64 " to %" PRId64, *first,
                       *last);
    }
    /* The view may be a slice, and its last offset any of them. */
    int64_t end = ad_int_at(offsets, width, node->offset + node->length);
    if (*last > end) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offsets run to %" PRId64
                       ", past the last one, %" PRId64,
                       *last, end);
    }
    return AD_OK;
}

/* The offsets of all views, made to follow one another; *total is the last. */
static ad_status
join_offsets(ad_join *j, int64_t *total, ad_error *err)
{
    int width = j->type.wide_offsets ? 8 : 4;
    int64_t max = ad_join_max(width, false);
    int64_t at = 0;
    void *data;
    int64_t nbytes;
    AD_RETURN_IF_ERR(ad_join_size_of_rows(j->length + 1, width, &nbytes, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, 1, nbytes, &data, err));
    *total = 0;
    ad_join_put_int(data, width, at++, 0);
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        int64_t first, last;
        AD_RETURN_IF_ERR(data_range(j, view, &first, &last, err));
        if (last - first > max - *total) {
            return ad_join_fail_size(j->schema, "the data", err);
        }
        int64_t before = first;
        for (int64_t i = 1; i <= view->length; i++) {
            int64_t offset =
                ad_int_at(view->node->buffers[1], width, view->offset + i);
            if (offset < before || offset > last) {
                return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                               "offset %" PRId64 " comes after %" PRId64,
                               offset, before);
            }
            ad_join_put_int(data, width, at++, *total + offset - first);
            before = offset;
        }
        *total += last - first;
    }
    return AD_OK;
}

ad_status
ad_join_check_data(const ad_array *view, int64_t first, int64_t last,
                   ad_error *err)
{
    if (first == last || view->node->buffers[2] != NULL) {
        return AD_OK;
    }
    return ad_fail(
        err, AD_ERR_ARROW, NULL, NULL,
        "buffers[2] (data) is NULL, but the offsets end at %" PRId64, last);
}

ad_status
ad_join_strings(ad_join *j, ad_error *err)
{
    int64_t total;
    void *data;
    AD_RETURN_IF_ERR(join_offsets(j, &total, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, 2, total, &data, err));
    int64_t at = 0;
    for (size_t v = 0; v < j->n; v++) {
        int64_t first, last;
        AD_RETURN_IF_ERR(data_range(j, &j->views[v], &first, &last, err));
        AD_RETURN_IF_ERR(ad_join_check_data(&j->views[v], first, last, err));
        if (last > first) {
            const char *source = j->views[v].node->buffers[2];
            memcpy((char *)data + at, source + first, (size_t)(last - first));
            at += last - first;
        }
    }
    return AD_OK;
}

ad_status
ad_join_lists(ad_join *j, ad_array *parts, ad_error *err)
{
    int64_t total;
    AD_RETURN_IF_ERR(join_offsets(j, &total, err));
    for (size_t v = 0; v < j->n; v++) {
        const struct ArrowArray *child = j->views[v].node->children[0];
        int64_t first, last;
        AD_RETURN_IF_ERR(data_range(j, &j->views[v], &first, &last, err));
        if (last > child->length) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "offsets end at %" PRId64 ", but there are %" PRId64
                           " values",
                           last, child->length);
        }
        parts[v] = ad_join_view_below(&j->views[v], child,
                                      j->schema.node->children[0], first,
                                      last - first);
    }
    return ad_join_child(j, 0, parts, err);
}

/* Rows may point anywhere, so that all values come along. */
ad_status
ad_join_list_views(ad_join *j, ad_array *parts, ad_error *err)
{
    int width = j->type.wide_offsets ? 8 : 4;
    int64_t max = ad_join_max(width, false);
    int64_t at = 0;
    int64_t base = 0;
    int64_t nbytes;
    void *offsets;
    void *sizes;
    AD_RETURN_IF_ERR(ad_join_size_of_rows(j->length, width, &nbytes, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, 1, nbytes, &offsets, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, 2, nbytes, &sizes, err));
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        const struct ArrowArray *child = view->node->children[0];
        for (int64_t i = 0; i < view->length; i++, at++) {
            int64_t row = view->offset + i;
            bool is_valid = ad_join_is_valid_row(view, i);
            int64_t offset =
                is_valid ? ad_int_at(view->node->buffers[1], width, row) : 0;
            int64_t size =
                is_valid ? ad_int_at(view->node->buffers[2], width, row) : 0;
            if (offset < 0 || size < 0 || offset > child->length ||
                size > child->length - offset) {
                return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                               "a list of %" PRId64 " values from %" PRId64
                               ", but there are %" PRId64,
                               size, offset, child->length);
            }
            if (offset > max - base) {
                return ad_join_fail_size(j->schema, "the values", err);
            }
            ad_join_put_int(offsets, width, at, base + offset);
            ad_join_put_int(sizes, width, at, size);
        }
        base += child->length;
    }
    ad_join_view_values(j->schema, j->views, j->n, 0, parts);
    return ad_join_child(j, 0, parts, err);
}

/* --- views --------------------------------------------------------------------- */

static ad_status
join_view_rows(ad_join *j, ad_builder *builder, ad_error *err)
{
    const ad_rows rows = ad_join_rows(j, builder);
    int64_t nbytes;
    void *views;
    AD_RETURN_IF_ERR(ad_view_rows_size(&rows, &nbytes, err));
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, 1, nbytes, &views, err));
    return ad_rebase_views(&rows, views, err);
}

/* The data are shared. */
static ad_status
share_data(ad_join *j, ad_error *err)
{
    int64_t to = 0;
    void *sizes;
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, j->n_buffers - 1,
                                        (j->n_buffers - 3) * 8, &sizes, err));
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        int64_t n = view->node->n_buffers - 3;
        const void *known = view->node->buffers[view->node->n_buffers - 1];
        for (int64_t i = 0; i < n; i++, to++) {
            j->buffers[2 + to] = view->node->buffers[2 + i];
            /* Without rows there need not be any sizes. */
            ad_join_put_int(sizes, 8, to,
                            known != NULL ? ad_int_at(known, 8, i) : 0);
        }
        j->owners[j->n_owners++] = ad_owner_ref(view->owner);
    }
    return AD_OK;
}

ad_status
ad_join_views(ad_join *j, ad_error *err)
{
    void *nothing;
    AD_RETURN_IF_ERR(share_data(j, err));
    if (j->length == 0) {
        return ad_join_new_buffer(j, 1, 0, &nothing, err);
    }
    ad_builder builder = ad_builder_on_host();
    ad_status status = join_view_rows(j, &builder, err);
    ad_builder_clear(&builder, false, NULL);
    return status;
}

/* --- run ends ---------------------------------------------------------------------- */

static ad_status
join_run_ends(ad_join *j, ad_builder *builder, ad_run_ends *runs,
              ad_array *parts, ad_error *err)
{
    const ad_rows rows = ad_join_rows(j, builder);
    int64_t n, nbytes;
    void *ends;
    ad_owner *owner;
    AD_RETURN_IF_ERR(ad_find_run_end_rows(&rows, runs, &n, &nbytes, err));
    AD_RETURN_IF_ERR(ad_join_allocate(j, nbytes, &ends, &owner, err));
    ad_status status = ad_join_run_end_rows(&rows, runs, ends, parts, err);
    if (status == AD_OK) {
        status = ad_build_run_ends(j->schema, j->device, n, ends, owner,
                                   &j->children[0], err);
    }
    ad_owner_unref(owner);
    return status;
}

ad_status
ad_join_run_ends(ad_join *j, ad_array *parts, ad_error *err)
{
    ad_run_ends *runs = malloc(j->n * sizeof(*runs));
    if (runs == NULL) {
        return ad_fail_memory(err, j->n * sizeof(*runs));
    }
    ad_builder builder = ad_builder_on_host();
    ad_status status = join_run_ends(j, &builder, runs, parts, err);
    ad_builder_clear(&builder, false, NULL);
    free(runs);
    AD_RETURN_IF_ERR(status);
    j->n_children = 1;
    return ad_join_child(j, 1, parts, err);
}
