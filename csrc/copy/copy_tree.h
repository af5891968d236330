/* The plan of a copy of an Arrow tree: which bytes the selected rows need.
 * Only for the files behind copy/copy.h.
 */
#ifndef AD_COPY_COPY_TREE_H
#define AD_COPY_COPY_TREE_H

#include "model/map_buffers.h"
#include "base/list.h"
#include "base/owner.h"
#include "copy/session.h"

/* One buffer of the copy. */
typedef struct ad_piece {
    const void *source; /* NULL: the buffer is absent */
    int64_t offset;     /* in bytes */
    int64_t nbytes;
    bool on_host; /* the source is host memory, whatever the tree's device
                     is */
    /* Of an offsets buffer: the range of data that the rows refer to. */
    int64_t first;
    int64_t end;
    /* Location of the copy; not set by the plan. */
    void *target;
    int64_t target_offset;
} ad_piece;

typedef struct ad_plan {
    ad_buffer_map map;
    AD_LIST(ad_piece) pieces;        /* in the order of ad_map_buffers() */
    AD_LIST(ad_owner *) allocations; /* host memory that contains pieces */
    const ad_session *reading; /* borrowed, or `own`; NULL: none is open */
    ad_session own;
} ad_plan;

/* Plans the copy of `array`. Bit offsets stay the same modulo 8. The offsets
 * of a slice, and its views where the host reads the array, are rebased in
 * host memory, so that only the data that they refer to are copied. Sizes in
 * device memory are read in the session `reading`, which must outlive the
 * plan; if it is NULL, the first read opens a session. Reads block. The plan
 * must be cleared on failure too. */
AD_MUST_CHECK ad_status ad_plan_make(const ad_array *array,
                                     const ad_session *reading, ad_plan *out,
                                     ad_error *err);
void ad_plan_clear(ad_plan *plan);

/* Sets the rows of a copied node and of its children; `pieces` are the planned
 * buffers of the node. */
void ad_plan_set_rows(ad_mapped_node *node, const ad_piece *pieces);

/* Finds whether the sizes of a view's buffers are in host memory. Producers
 * differ here; memory that the device's runtime does not know is host
 * memory. */
AD_MUST_CHECK ad_status ad_sizes_are_on_host(const ad_array *view,
                                             const void *data, bool *out,
                                             ad_error *err);

#endif /* AD_COPY_COPY_TREE_H */
