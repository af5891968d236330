/* What the files of ad_concat_on_device() share.
 */
#ifndef AD_COMPUTE_CONCAT_DEVICE_H
#define AD_COMPUTE_CONCAT_DEVICE_H

#include "compute/concat_join.h"
#include "compute/buffer_builder.h"

typedef struct ad_concat_job {
    const ad_array *arrays;
    size_t n;
    ad_builder builder;
} ad_concat_job;

/* One node of the result while it is made. */
typedef struct ad_concat_node {
    ad_schema schema;      /* borrowed */
    const ad_array *views; /* the rows to be joined; nothing is owned */
    size_t n;
    ad_type type;
    int64_t length;
    int64_t null_count;
    int64_t n_buffers;
    void **buffers;  /* those of views are shared, the others made */
    ad_array *parts; /* room for a view of each view's child */
    ad_array *below; /* owned: children, then the dictionary */
} ad_concat_node;

/* Child `i` from at->parts, one per view. */
AD_MUST_CHECK ad_status ad_concat_child(ad_concat_job *self,
                                        ad_concat_node *at, int64_t i,
                                        ad_error *err);

/* All but the validity of a node of these layouts, and the type ids
 * (concat_rows.c). The host waits: for each node, and for views whose sizes it
 * has to read. */
AD_MUST_CHECK ad_status ad_concat_views(ad_concat_job *self,
                                        ad_concat_node *at, ad_error *err);
AD_MUST_CHECK ad_status ad_concat_dense_union(ad_concat_job *self,
                                              ad_concat_node *at,
                                              ad_error *err);
AD_MUST_CHECK ad_status ad_concat_run_ends(ad_concat_job *self,
                                           ad_concat_node *at, ad_error *err);

#endif /* AD_COMPUTE_CONCAT_DEVICE_H */
