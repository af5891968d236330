/* What is to be copied of an Arrow tree: the bytes of the rows that are meant.
 * For the files of copy/copy.h only.
 */
#ifndef AD_COPY_COPY_TREE_H
#define AD_COPY_COPY_TREE_H

#include "model/map_buffers.h"
#include "base/list.h"
#include "base/memory.h"
#include "copy/session.h"

/* One buffer of the copy. */
typedef struct ad_piece {
    const void *source; /* NULL: the buffer is absent */
    int64_t offset;     /* bytes into it */
    int64_t nbytes;
    bool on_host; /* the source is host memory, whatever the tree's device */
    /* Of an offsets buffer: the data that the rows refer to. */
    int64_t first;
    int64_t end;
    /* Where the copy is; not set by the plan. */
    void *target;
    int64_t target_offset;
} ad_piece;

typedef struct ad_plan {
    ad_buffer_map map;
    AD_LIST(ad_piece) pieces;        /* in the order of ad_map_buffers() */
    AD_LIST(ad_owner *) allocations; /* host memory that pieces lie in */
    const ad_session *reading; /* borrowed, or `own`; NULL: none is open */
    ad_session own;
} ad_plan;

/* Offsets stay modulo 8 where there are bits. Offsets buffers that begin in
 * the middle are made anew in host memory, so that only the data they point to
 * are copied. Sizes that stand in device memory are read by `reading`, which is
 * kept; where it is NULL the first read opens one: blocks. The plan is to be
 * cleared on failure too. */
AD_MUST_CHECK ad_status ad_plan_make(const ad_array *array,
                                     const ad_session *reading, ad_plan *out,
                                     ad_error *err);
void ad_plan_clear(ad_plan *plan);

/* The rows of a node of the copy, and of its children; `pieces` are its
 * buffers as planned. */
void ad_plan_set_rows(ad_mapped_node *node, const ad_piece *pieces);

/* Producers disagree on where the sizes of a view's buffers are: what the
 * device's runtime does not know is host memory. */
AD_MUST_CHECK ad_status ad_sizes_are_on_host(const ad_array *view,
                                             const void *data, bool *out,
                                             ad_error *err);

#endif /* AD_COPY_COPY_TREE_H */
