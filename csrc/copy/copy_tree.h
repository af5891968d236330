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
    /* Bits that are not in place yet: the rows' bits begin at bit `shift` of
     * the first byte, and the bits after them are not zeroed. `n_bits` is 0
     * for all other buffers, and for those of CPU memory. */
    int shift;
    int64_t n_bits;
    /* Location of the copy; not set by the plan. */
    void *target;
    int64_t target_offset;
} ad_piece;

typedef struct ad_plan {
    ad_buffer_map map;
    AD_LIST(ad_piece) pieces;        /* in the order of ad_map_buffers() */
    AD_LIST(ad_row_range) ranges;    /* rows_below of all nodes */
    AD_LIST(ad_owner *) allocations; /* host memory that contains pieces */
    const ad_session *reading; /* borrowed, or `own`; NULL: none is open */
    ad_session own;
    const ad_array *runs; /* the parent of the run ends that come next */
    size_t next_piece;    /* see ad_plan_next() */
    size_t next_range;
} ad_plan;

/* Plans the copy of `array`. The copy has the rows of `array` only, and
 * begins with them: every node has offset 0, and children have the rows that
 * their parent's rows refer to. Dictionaries are copied whole. The offsets,
 * views and run ends that change are written in host memory, and so are bits
 * of CPU memory that begin within a byte or do not end with zeros.
 *
 * On a device some is copied whole, so that nothing has to be read: the
 * children of lists and list views, and the data of views and unions, unless
 * they are sliced.
 *
 * Sizes, offsets, views and run ends in device memory are read in the session
 * `reading`, which must outlive the plan; if it is NULL, the first read opens a
 * session. Reads block. The plan must be cleared on failure too. */
AD_MUST_CHECK ad_status ad_plan_make(const ad_array *array,
                                     const ad_session *reading, ad_plan *out,
                                     ad_error *err);
void ad_plan_clear(ad_plan *plan);

/* For a callback of ad_map_buffers(): sets the rows of the next node of the
 * copy and of its children. Returns its planned buffers. */
const ad_piece *ad_plan_next(ad_plan *plan, ad_mapped_node *node);

/* Finds whether the sizes of a view's buffers are in host memory. Producers
 * differ here; memory that the device's runtime does not know is host
 * memory. */
AD_MUST_CHECK ad_status ad_sizes_are_on_host(const ad_array *view,
                                             const void *data, bool *out,
                                             ad_error *err);

#endif /* AD_COPY_COPY_TREE_H */
