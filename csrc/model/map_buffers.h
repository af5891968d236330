/* A new tree over other buffers: copies, trimmed arrays, another bitmap.
 *
 * The tree has the types, the children and the dictionary of the one it is made
 * of. A callback says what the buffers of each node are.
 */
#ifndef AD_MODEL_MAP_BUFFERS_H
#define AD_MODEL_MAP_BUFFERS_H

#include "model/array.h"

/* One node, when the callback is called: `spec` is a node over the buffers of
 * `view`, with its rows, its null count, its owner and its sync. The callback
 * changes what is to be different. */
typedef struct ad_mapped_node {
    const ad_array *view; /* the rows to be mapped */
    ad_type type;
    ad_array_spec spec;   /* its buffers are `buffers`, its children `below` */
    const void **buffers; /* spec.n_buffers */
    /* The children's rows that are mapped, where they are not what the type
     * says: those of the view and spec.offset rows in front of them for
     * structs, fixed-size lists and sparse unions, else all. */
    int64_t first_below;
    int64_t n_below; /* -1: what the type says */
    /* The new children, then the new dictionary. What the callback puts here
     * stays; the others are mapped. */
    ad_array *below;
    bool shares_below; /* all below stays as it is in the old tree */
} ad_mapped_node;

/* The first member of what a callback needs. */
typedef struct ad_buffer_map ad_buffer_map;
struct ad_buffer_map {
    ad_status (*buffers)(ad_buffer_map *self, ad_mapped_node *node,
                         ad_error *err);
};

/* Calls the callback for each node before those below it, children in their
 * order, the dictionary last. `out` is the new tree; where it is NULL the
 * callback is called and nothing is built. AD_ERR_ARROW, also from the
 * callback, has the path. */
AD_MUST_CHECK ad_status ad_map_buffers(const ad_array *view,
                                       ad_buffer_map *map, ad_array *out,
                                       ad_error *err);

#endif /* AD_MODEL_MAP_BUFFERS_H */
