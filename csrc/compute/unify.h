/* Dictionaries as one without duplicates, by value, on the host.
 */
#ifndef AD_COMPUTE_UNIFY_H
#define AD_COMPUTE_UNIFY_H

#include "model/array.h"
#include "model/type.h"

/* Values of no bytes are in no memory, so there may be any number of them. The
 * sizes of a table for up to as many do not overflow. */
#define AD_UNIFY_MAX ((int64_t)1 << 56)

typedef struct ad_unified {
    int64_t
        *numbers;    /* of the values of all dictionaries, one after the other;
                         NULL: not unified */
    ad_array *parts; /* borrowed views of the values in the result */
    size_t n_parts;
} ad_unified;

/* The whole dictionary of an array of indices; borrowed. */
static inline ad_array
ad_dictionary_of(const ad_array *view)
{
    return ad_array_borrow_below(view, -1, 0, view->node->dictionary->length);
}

/* Unifies the dictionaries of `n_views` arrays (at least one) of `schema` in
 * host memory, whose values have the type `type`, and are at most AD_UNIFY_MAX together.
 * The result has no numbers for nested values and for invalid offsets.
 * AD_ERR_EXCHANGE, "dtype", if ordered dictionaries contradict each other. */
AD_MUST_CHECK ad_status ad_unify(const struct ArrowSchema *schema,
                                 const ad_array *views, size_t n_views,
                                 const ad_type *type, ad_unified *out,
                                 ad_error *err);
void ad_unified_free(ad_unified *self);

#endif /* AD_COMPUTE_UNIFY_H */
