/* Rows that point into something, joined by kernels on the host and on devices:
 * views of long strings, offsets of dense unions, run ends.
 */
#ifndef AD_COMPUTE_CONCAT_REBASE_H
#define AD_COMPUTE_CONCAT_REBASE_H

#include "model/array.h"
#include "compute/run_end.h"

/* The rows of all views; of views and unions there are some. Nothing is owned. */
typedef struct ad_rows {
    ad_builder *builder;
    ad_schema schema;
    const ad_array *views;
    size_t n;
    int64_t length;
} ad_rows;

/* Bytes of a buffer of views, with room behind them for what a kernel finds
 * wrong. */
AD_MUST_CHECK ad_status ad_view_rows_size(const ad_rows *rows, int64_t *out,
                                          ad_error *err);

/* The views to such a buffer, those of long strings with the number that their
 * data buffer has in the result. Under a null there may be anything. Blocks.
 * AD_ERR_ARROW: there is no such data buffer. */
AD_MUST_CHECK ad_status ad_rebase_views(const ad_rows *rows, void *target,
                                        ad_error *err);

/* The same for a dense union's offsets. AD_ERR_EXCHANGE, "size": they do not
 * fit. */
AD_MUST_CHECK ad_status ad_union_rows_size(const ad_rows *rows, int64_t *out,
                                           ad_error *err);
AD_MUST_CHECK ad_status ad_rebase_offsets(const ad_rows *rows, void *target,
                                          ad_error *err);

/* The runs of each view, and how many there are; `*nbytes` are those of their
 * ends. Blocks. */
AD_MUST_CHECK ad_status ad_find_run_end_rows(const ad_rows *rows,
                                             ad_run_ends *runs, int64_t *n,
                                             int64_t *nbytes, ad_error *err);

/* Their ends to `ends`, counted from the first row of the result; parts[v] = the
 * values of views[v]. */
AD_MUST_CHECK ad_status ad_join_run_end_rows(const ad_rows *rows,
                                             const ad_run_ends *runs,
                                             void *ends, ad_array *parts,
                                             ad_error *err);

#endif /* AD_COMPUTE_CONCAT_REBASE_H */
