/* The layouts whose rows point into something else: strings, lists, views,
 * runs. */
#include <inttypes.h>
#include <string.h>

#include "core/concat_join.h"

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
        parts[v] = ad_join_view_below(view, child, j->schema.node->children[0],
                                      0, child->length);
        base += child->length;
    }
    return ad_join_child(j, 0, parts, err);
}

/* --- views --------------------------------------------------------------------- */

/* A view of more than 12 bytes names a variadic buffer, which is shared. */
ad_status
ad_join_views(ad_join *j, ad_error *err)
{
    char *views;
    int64_t *sizes;
    int64_t n_variadic = 0;
    int64_t at = 0;
    void *data;
    AD_RETURN_IF_ERR(ad_join_fixed(j, 1, 128, err));
    views = (char *)j->buffers[1];
    AD_RETURN_IF_ERR(ad_join_new_buffer(j, j->n_buffers - 1,
                                        (j->n_buffers - 3) * 8, &data, err));
    sizes = data;
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        int64_t n = view->node->n_buffers - 3;
        const void *known = view->node->buffers[view->node->n_buffers - 1];
        for (int64_t i = 0; i < view->length; i++, at++) {
            int32_t size;
            int32_t index;
            memcpy(&size, views + at * 16, 4);
            memcpy(&index, views + at * 16 + 8, 4);
            if (!ad_join_is_valid_row(view, i)) {
                memset(views + at * 16, 0, 16);
            } else if (size > 12) {
                if (index < 0 || index >= n) {
                    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                                   "a view into buffer %" PRId32
                                   ", but there are %" PRId64,
                                   index, n);
                }
                index += (int32_t)n_variadic;
                memcpy(views + at * 16 + 8, &index, 4);
            }
        }
        for (int64_t i = 0; i < n; i++, n_variadic++) {
            j->buffers[2 + n_variadic] = view->node->buffers[2 + i];
            /* Without rows there need not be any sizes. */
            sizes[n_variadic] = known != NULL ? ad_int_at(known, 8, i) : 0;
        }
        j->owners[j->n_owners++] = ad_owner_ref(view->owner);
    }
    return AD_OK;
}

/* --- run ends ---------------------------------------------------------------------- */

/* The runs [*first, *end) that hold a view's rows. */
static ad_status
find_runs(const ad_array *view, int width, int64_t *first, int64_t *end,
          ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t stop = view->offset + view->length;
    int64_t i = 0;
    int64_t before = 0;
    *first = *end = 0;
    if (view->length == 0) {
        return AD_OK;
    }
    for (*first = -1; i < ends->length; i++) {
        int64_t run_end = ad_int_at(ends->buffers[1], width, ends->offset + i);
        if (run_end <= before) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "run end %" PRId64 " comes after %" PRId64, run_end,
                           before);
        }
        before = run_end;
        if (*first < 0 && run_end > view->offset) {
            *first = i;
        }
        if (run_end >= stop) {
            *end = i + 1;
            return AD_OK;
        }
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "the last run ends at %" PRId64 ", but there are %" PRId64
                   " rows",
                   before, stop);
}

/* The run ends of all views, counted from the first row of the result. */
static ad_status
write_run_ends(const ad_join *j, int width, void *out, ad_error *err)
{
    int64_t max = ad_join_max(width, false);
    int64_t at = 0;
    int64_t rows = 0;
    for (size_t v = 0; v < j->n; v++) {
        const ad_array *view = &j->views[v];
        const struct ArrowArray *ends = view->node->children[0];
        int64_t first, end;
        AD_RETURN_IF_ERR(find_runs(view, width, &first, &end, err));
        for (int64_t i = first; i < end; i++) {
            int64_t run_end =
                ad_int_at(ends->buffers[1], width, ends->offset + i) -
                view->offset;
            run_end = run_end < view->length ? run_end : view->length;
            if (rows + run_end > max) {
                return ad_join_fail_size(j->schema, "the run ends", err);
            }
            ad_join_put_int(out, width, at++, rows + run_end);
        }
        rows += view->length;
    }
    return AD_OK;
}

ad_status
ad_join_runs(ad_join *j, ad_array *parts, ad_error *err)
{
    ad_type type;
    int64_t n_runs = 0;
    void *ends;
    ad_owner *owner;
    ad_schema schema = {j->schema.node->children[0], j->schema.owner};
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &type, err));
    int width = type.bit_width / 8;
    for (size_t v = 0; v < j->n; v++) {
        int64_t first, end;
        AD_RETURN_IF_ERR(find_runs(&j->views[v], width, &first, &end, err));
        parts[v] = ad_join_view_below(
            &j->views[v], j->views[v].node->children[1],
            j->schema.node->children[1], first, end - first);
        n_runs += end - first;
    }
    AD_RETURN_IF_ERR(ad_join_allocate(j, n_runs * width, &ends, &owner, err));
    ad_status status = write_run_ends(j, width, ends, err);
    if (status == AD_OK) {
        const void *buffers[] = {NULL, ends};
        const ad_array_spec spec = {.schema = schema,
                                    .device = j->device,
                                    .length = n_runs,
                                    .n_buffers = 2,
                                    .buffers = buffers,
                                    .owner = owner};
        status = ad_array_build(&spec, &j->children[0], err);
    }
    ad_owner_unref(owner);
    if (status != AD_OK) {
        return status;
    }
    j->n_children = 1;
    return ad_join_child(j, 1, parts, err);
}
