/* Reads and writes run ends on their device.
 */
#ifndef AD_COMPUTE_RUN_END_H
#define AD_COMPUTE_RUN_END_H

#include "model/array.h"
#include "compute/buffer_builder.h"

/* The runs [first, first + n), counted from the child's own offset. */
typedef struct ad_run_ends {
    int64_t first;
    int64_t n;
} ad_run_ends;

/* Bytes of a run end. */
AD_MUST_CHECK ad_status ad_run_end_width(ad_schema schema, int64_t *out,
                                         ad_error *err);

/* Finds the runs that hold the rows of a run-end encoded array; no runs if it
 * has no rows. On a device a kernel checks all run ends, and the host waits.
 * AD_ERR_ARROW: the run ends do not increase, or end before the last row. */
AD_MUST_CHECK ad_status ad_find_run_ends(ad_builder *builder,
                                         const ad_array *view,
                                         ad_run_ends *out, ad_error *err);

/* Writes the ends of `runs` to integer `to` and the following ones of
 * `target`, as work of the session. The view's first row becomes row `row`,
 * and the last run ends with the view's last row. */
AD_MUST_CHECK ad_status ad_write_run_ends(ad_builder *builder,
                                          const ad_array *view,
                                          ad_run_ends runs, int64_t row,
                                          void *target, int64_t to,
                                          ad_error *err);

/* Builds the child of `n` run ends from the buffer `ends`, which it does not
 * own. */
AD_MUST_CHECK ad_status ad_build_run_ends(ad_schema schema, ad_device device,
                                          int64_t n, const void *ends,
                                          ad_array *out, ad_error *err);

#endif /* AD_COMPUTE_RUN_END_H */
