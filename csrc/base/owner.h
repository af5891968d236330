/* ad_owner: the one lifetime primitive.
 *
 * A C reference count with functions, of which one frees. Whatever keeps foreign or
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

/* One static constant for each kind of owner. */
typedef struct ad_owner_ops {
    /* Called exactly once, with the last reference. Frees self. */
    void (*destroy)(ad_owner *self);
    /* The owners that this one holds because memory of theirs is reached
     * through it: *n of them (NULL among them). Optional. */
    ad_owner *const *(*members)(const ad_owner *self, size_t *n);
    const char *name; /* for who looks with a debugger */
} ad_owner_ops;

struct ad_owner {
    atomic_size_t refs;
    const ad_owner_ops *ops;
};

/* Start with one reference, which belongs to the caller. */
static inline void
ad_owner_init(ad_owner *owner, const ad_owner_ops *ops)
{
    atomic_init(&owner->refs, 1);
    owner->ops = ops;
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
        owner->ops->destroy(owner);
    }
}

/* What an owner holds (see `members`); NULL: nothing that is known. */
static inline ad_owner *const *
ad_owner_members(const ad_owner *owner, size_t *n)
{
    return owner != NULL && owner->ops->members != NULL
               ? owner->ops->members(owner, n)
               : NULL;
}

#endif /* AD_BASE_OWNER_H */
