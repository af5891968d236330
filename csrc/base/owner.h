/* ad_owner: the one lifetime primitive.
 *
 * A C reference count with a function that frees. Whatever keeps foreign or
 * own memory alive is a struct that begins with an ad_owner: an imported
 * Arrow tree, a DLPack tensor, a host allocation, a Python object. The last
 * unref may come on any thread, without the GIL, during or after
 * finalization; `destroy` must cope with that (support/py_owner.c is the one
 * place that knows how to do so for a PyObject).
 *
 * NULL is a valid owner everywhere: memory that lives forever.
 */
#ifndef AD_BASE_OWNER_H
#define AD_BASE_OWNER_H

#include <stdatomic.h>
#include <stddef.h>

typedef struct ad_owner ad_owner;

struct ad_owner {
    atomic_size_t refs;
    /* Called exactly once, with the last reference. Frees self. */
    void (*destroy)(ad_owner *self);
};

/* Start with one reference, which belongs to the caller. */
static inline void
ad_owner_init(ad_owner *owner, void (*destroy)(ad_owner *))
{
    atomic_init(&owner->refs, 1);
    owner->destroy = destroy;
}

static inline ad_owner *
ad_owner_ref(ad_owner *owner)
{
    if (owner != NULL) {
        atomic_fetch_add_explicit(&owner->refs, 1, memory_order_relaxed);
    }
    return owner;
}

/* Who holds the only reference has no rival, so that a plain load will do and
 * the common case needs no locked instruction. */
static inline void
ad_owner_unref(ad_owner *owner)
{
    if (owner != NULL &&
        (atomic_load_explicit(&owner->refs, memory_order_acquire) == 1 ||
         atomic_fetch_sub_explicit(&owner->refs, 1, memory_order_acq_rel) ==
             1)) {
        owner->destroy(owner);
    }
}

#endif /* AD_BASE_OWNER_H */
