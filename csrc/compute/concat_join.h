/* Shared by the files that implement concat.h: the state of one call, and of
 * one node of its result.
 *
 * All work goes through the buffer builder: on a device it is enqueued, on the
 * host it is done on return. The few steps that differ between the two call
 * ad_concat_is_on_host().
 */
#ifndef AD_COMPUTE_CONCAT_JOIN_H
#define AD_COMPUTE_CONCAT_JOIN_H

#include "base/unaligned.h"
#include "compute/bits.h"
#include "compute/buffer_builder.h"
#include "model/array.h"
#include "model/type.h"

typedef struct ad_concat_job {
    const ad_array *arrays;
    size_t n;
    ad_device device; /* of the result */
    ad_builder builder;
} ad_concat_job;

/* One node of the result while it is built. */
typedef struct ad_concat_node {
    ad_schema schema;      /* borrowed */
    const ad_array *views; /* the rows to join; nothing is owned */
    size_t n;
    ad_type type;
    int64_t length;
    int64_t null_count;
    int64_t n_buffers;
    bool readonly;   /* it shares read-only memory */
    void **buffers;  /* the data of views are shared, the others are new */
    ad_array *parts; /* room for a view of each view's child */
    ad_array *below; /* owned: children, then the dictionary */
} ad_concat_node;

/* Whether view `v` is of the same node as the view before it, so that both
 * have the same data buffers. */
static inline bool
ad_concat_repeats(const ad_concat_node *at, size_t v)
{
    return v > 0 && at->views[v].node == at->views[v - 1].node;
}

/* Whether the host does the work. */
static inline bool
ad_concat_is_on_host(const ad_concat_job *self)
{
    return self->builder.session.backend == NULL;
}

/* Bytes of an offset. */
static inline int
ad_concat_offset_width(const ad_concat_node *at)
{
    return at->type.wide_offsets ? 8 : 4;
}

/* --- rows ---------------------------------------------------------------- */

/* The validity bitmap of a view; NULL if no row is null. The type must have a
 * bitmap. */
const void *ad_concat_validity(const ad_array *view);

/* The largest integer of `width` bytes. */
int64_t ad_concat_max(int width, bool is_unsigned);

/* AD_ERR_EXCHANGE, "size": `what` does not fit the type. */
ad_status ad_concat_fail_size(ad_schema schema, const char *what,
                              ad_error *err);

/* --- buffers ------------------------------------------------------------- */

/* Allocates `n` items of `size` bytes for the result. For 0 bytes *out is NULL
 * on a device, and the address of some memory on the host. */
AD_MUST_CHECK ad_status ad_concat_allocate(ad_concat_job *self, int64_t n,
                                           int64_t size, void **out,
                                           ad_error *err);

/* Builds buffer `i`, of `size` bytes per row, from those of the views. */
AD_MUST_CHECK ad_status ad_concat_bytes(ad_concat_job *self,
                                        ad_concat_node *at, int64_t i,
                                        int64_t size, ad_error *err);

/* Adds `delta` to the integers [from, from + n) of `source`, `width` bytes
 * each, and writes them to integer `to` and the following ones of `target`. */
AD_MUST_CHECK ad_status ad_concat_add(ad_concat_job *self, const void *source,
                                      int64_t from, void *target, int64_t to,
                                      int64_t n, int width, int64_t delta,
                                      ad_error *err);

/* --- nodes --------------------------------------------------------------- */

/* Joins the rows of `n` views to one array. */
AD_MUST_CHECK ad_status ad_concat_views(ad_concat_job *self, ad_schema schema,
                                        const ad_array *views, size_t n,
                                        ad_array *out, ad_error *err);

/* Builds child `i` of the result from at->parts. */
AD_MUST_CHECK ad_status ad_concat_child(ad_concat_job *self,
                                        ad_concat_node *at, int64_t i,
                                        ad_error *err);

/* The same from all values of child `i` of the views. */
AD_MUST_CHECK ad_status ad_concat_whole_child(ad_concat_job *self,
                                              ad_concat_node *at, int64_t i,
                                              ad_error *err);

/* The dictionary of the node, whose indices (buffer 1) are moved where the
 * views' dictionaries differ (concat_dictionary.c). */
AD_MUST_CHECK ad_status ad_concat_dictionary(ad_concat_job *self,
                                             ad_concat_node *at,
                                             ad_error *err);

/* Whether two arrays of `schema` have dictionaries in different memory. */
bool ad_concat_dictionaries_differ(const struct ArrowSchema *schema,
                                   const struct ArrowArray *a,
                                   const struct ArrowArray *b);

/* Dictionaries as one without duplicates (concat_unify.c). */
typedef struct ad_unified {
    int64_t *numbers; /* of the words of all dictionaries; NULL: not unified */
    ad_array *parts;  /* borrowed views of the words in the result */
    size_t n_parts;
} ad_unified;

/* Unifies the dictionaries in at->parts, of the type `type`. The result has no
 * numbers for nested values and for invalid offsets. AD_ERR_EXCHANGE, "dtype",
 * if ordered dictionaries contradict each other. */
AD_MUST_CHECK ad_status ad_concat_unify(const ad_concat_node *at,
                                        const ad_type *type, ad_unified *out,
                                        ad_error *err);
void ad_concat_unified_free(ad_unified *self);

/* All but the validity of a node of these layouts: strings and lists
 * (concat_offsets.c), what else points into something (concat_rows.c); of
 * unions, all but the type ids. On a device the host waits: for offsets and
 * rows that it has to read, and for the kernels that check them. */
AD_MUST_CHECK ad_status ad_concat_ranges(ad_concat_job *self,
                                         ad_concat_node *at, ad_error *err);
AD_MUST_CHECK ad_status ad_concat_list_views(ad_concat_job *self,
                                             ad_concat_node *at,
                                             ad_error *err);
AD_MUST_CHECK ad_status ad_concat_string_views(ad_concat_job *self,
                                               ad_concat_node *at,
                                               ad_error *err);
AD_MUST_CHECK ad_status ad_concat_dense_union(ad_concat_job *self,
                                              ad_concat_node *at,
                                              ad_error *err);
AD_MUST_CHECK ad_status ad_concat_run_ends(ad_concat_job *self,
                                           ad_concat_node *at, ad_error *err);

#endif /* AD_COMPUTE_CONCAT_JOIN_H */
