/* Run ends, read and written where they lie.
 */
#ifndef AD_COMPUTE_RUN_END_H
#define AD_COMPUTE_RUN_END_H

#include "model/array.h"
#include "compute/buffer_builder.h"

/* Runs [first, first + n), as the child counts them. */
typedef struct ad_run_ends {
    int64_t first;
    int64_t n;
} ad_run_ends;

/* Bytes of a run end. */
AD_MUST_CHECK ad_status ad_run_end_width(ad_schema schema, int64_t *out,
                                         ad_error *err);

/* The runs that hold the rows of each of `n` run-end encoded arrays; none for
 * one without rows. On a device a kernel looks at all run ends, and the host
 * waits for it, once. AD_ERR_ARROW: they do not grow, or are too few. */
AD_MUST_CHECK ad_status ad_find_run_ends(ad_builder *builder,
                                         const ad_array *views, size_t n,
                                         ad_run_ends *out, ad_error *err);

/* Their ends to number `to` and following ones of `target`, as work of the
 * session: counted from the view's first row, which becomes row `row`, and cut
 * where its last one is. */
AD_MUST_CHECK ad_status ad_write_run_ends(ad_builder *builder,
                                          const ad_array *view,
                                          ad_run_ends runs, int64_t row,
                                          void *target, int64_t to,
                                          ad_error *err);

/* The child that they are: `n` of them in `ends`, which it does not keep. */
AD_MUST_CHECK ad_status ad_build_run_ends(ad_schema schema, ad_device device,
                                          int64_t n, const void *ends,
                                          ad_array *out, ad_error *err);

#endif /* AD_COMPUTE_RUN_END_H */
