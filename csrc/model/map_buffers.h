/* Builds a new tree over other buffers: copies, trimmed arrays, another
 * bitmap.
 *
 * The new tree has the types, the children and the dictionary of the old one.
 * A callback sets the buffers of each node.
 */
#ifndef AD_MODEL_MAP_BUFFERS_H
#define AD_MODEL_MAP_BUFFERS_H

#include "model/array.h"

/* The rows [first, first + n), counted from the array's own offset. */
typedef struct ad_row_range {
    int64_t first;
    int64_t n;
} ad_row_range;

/* One node, passed to the callback. `spec` is initialized to a node over the
 * buffers of `view`, with its rows, null count, owner and sync. The callback
 * changes what differs. */
typedef struct ad_mapped_node {
    const ad_array *view; /* the rows to be mapped */
    ad_type type;
    ad_array_spec spec;   /* with the lists `buffers` and `below` */
    const void **buffers; /* spec.n_buffers */
    /* The rows of each child that are mapped. {0, -1}: for structs, fixed-size
     * lists and sparse unions those of the view's rows, for other types
     * all. */
    ad_row_range *rows_below;
    /* The new children, followed by the new dictionary. Entries that the
     * callback sets are kept; the others are mapped. */
    ad_array *below;
    bool shares_below; /* children and dictionary are those of the old tree */
} ad_mapped_node;

/* First member of the callback's own struct. */
typedef struct ad_buffer_map ad_buffer_map;
struct ad_buffer_map {
    ad_status (*buffers)(ad_buffer_map *self, ad_mapped_node *node,
                         ad_error *err);
};

/* Calls the callback for each node before its children; children in order, the
 * dictionary last. `out` is the new tree; if it is NULL, nothing is built.
 * AD_ERR_ARROW, also from the callback, gets the path. */
AD_MUST_CHECK ad_status ad_map_buffers(const ad_array *view,
                                       ad_buffer_map *map, ad_array *out,
                                       ad_error *err);

typedef struct ad_validity_change {
    const void *validity; /* buffers[0]; NULL: none */
    int64_t null_count;
    ad_owner *owner; /* owner of all buffers; gains a reference */
    ad_sync *sync;   /* sync of all buffers; gains a reference */
} ad_validity_change;

/* The same rows, children and dictionary with another bitmap. Only for types
 * that have a bitmap. */
AD_MUST_CHECK ad_status
ad_array_with_validity(const ad_array *array, const ad_validity_change *change,
                       ad_array *out, ad_error *err);

#endif /* AD_MODEL_MAP_BUFFERS_H */
