/* ad_owner: the one lifetime primitive.
 *
 * An atomic reference count with a table of functions. Every object that keeps
 * memory alive is a struct that begins with an ad_owner: an imported Arrow
 * tree, a DLPack tensor, a host allocation, a Python object. The last unref
 * may come on any thread, without the GIL, during or after finalization.
 * `destroy` must work in all these cases; for a PyObject only
 * support/py_call.c does so.
 *
 * NULL is a valid owner everywhere and stands for memory that lives forever.
 */
#ifndef AD_BASE_OWNER_H
#define AD_BASE_OWNER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/arrow_c.h"
#include "base/status.h"

typedef struct ad_owner ad_owner;

/* A block of memory that can be read or copied in one piece: one allocation,
 * or the bytes that one tensor of a producer spans. */
typedef struct ad_extent {
    const void *data;
    size_t nbytes;
} ad_extent;

/* Each kind of owner has one static constant. */
typedef struct ad_owner_ops {
    /* Free self. Called exactly once, when the last reference is dropped. */
    void (*destroy)(ad_owner *self);
    /* The *n owners (some may be NULL) whose memory is reached through this
     * one. Optional. */
    ad_owner *const *(*members)(const ad_owner *self, size_t *n);
    /* The memory that this owner keeps alive, if it is one known block.
     * Optional. */
    ad_extent (*extent)(const ad_owner *self);
    /* As `destroy`, where the caller is known to hold the GIL. Optional. */
    void (*destroy_with_gil)(ad_owner *self);
    /* Offset of the room for an ad_leaf; 0: there is none. */
    size_t leaf;
    const char *name; /* for debugging */
} ad_owner_ops;

struct ad_owner {
    atomic_size_t refs; /* of a queued owner: the next one, see
                           ad_owner_destroy() */
    const ad_owner_ops *ops;
};

/* Room in an owner for the node of a column over its memory, so that the
 * column takes no allocation of its own (see ad_array_of_leaf). */
typedef struct ad_leaf {
    struct ArrowArray node;
    const void *buffers[2];
} ad_leaf;

/* Set the count to one reference, which belongs to the caller. */
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

/* Destroys an owner without references. An owner may hold another one, which
 * may hold the next. So a destroy within many others on the same thread, also
 * with foreign code in between, only queues its owner. The outermost destroy
 * runs the queue before it returns: a chain of any length needs little
 * stack. */
void ad_owner_destroy(ad_owner *owner);
/* The same for an owner with destroy_with_gil. */
void ad_owner_destroy_with_gil(ad_owner *owner);

/* The holder of the only reference has no concurrent user, so a plain load is
 * enough there. The common case needs no locked instruction. */
static inline void
ad_owner_unref(ad_owner *owner)
{
    if (owner != NULL &&
        (atomic_load_explicit(&owner->refs, memory_order_acquire) == 1 ||
         atomic_fetch_sub_explicit(&owner->refs, 1, memory_order_acq_rel) ==
             1)) {
        ad_owner_destroy(owner);
    }
}

/* The same for a caller that holds the GIL. */
static inline void
ad_owner_unref_with_gil(ad_owner *owner)
{
    if (owner != NULL && owner->ops->destroy_with_gil != NULL &&
        atomic_load_explicit(&owner->refs, memory_order_acquire) == 1) {
        ad_owner_destroy_with_gil(owner);
    } else {
        ad_owner_unref(owner);
    }
}

/* The members of an owner (see `members`), or NULL where none are known. */
static inline ad_owner *const *
ad_owner_members(const ad_owner *owner, size_t *n)
{
    return owner != NULL && owner->ops->members != NULL
               ? owner->ops->members(owner, n)
               : NULL;
}

/* One owner that holds several others, for an array whose buffers came from
 * different objects. Takes new references on all of `owners`, of which some
 * may be NULL. */
AD_MUST_CHECK ad_status ad_owner_group_new(ad_owner *const *owners, size_t n,
                                           ad_owner **out, ad_error *err);

/* An owner that knows the extent of the memory that `inner` keeps alive. Takes
 * over `inner` on success. */
AD_MUST_CHECK ad_status ad_owner_with_extent(ad_owner *inner, ad_extent extent,
                                             ad_owner **out, ad_error *err);

/* Returns whether the walk is over. May be called again for the same owner. */
typedef bool (*ad_owner_visit)(ad_owner *owner, void *data);

/* Visits `owner` and all that is reached through members, until a visit ends
 * the walk. Owners make chains of any length, and may share members, so that
 * exponentially many ways lead to one: the walk takes little stack, and time
 * in proportion to the number of members. AD_ERR_MEMORY: not all were
 * visited. A chain, or a small tree, takes no memory. */
AD_MUST_CHECK ad_status ad_owner_walk(ad_owner *owner, ad_owner_visit visit,
                                      void *data, ad_error *err);

/* True if these bytes are within the extent of `owner` or of one of its
 * members. Addresses alone never show it. Of a large tree of owners only a
 * part is searched, so false means "not known". */
bool ad_owner_covers(ad_owner *owner, const void *data, size_t nbytes);

/* --- host memory --------------------------------------------------------- */

/* An owner of host memory that arrowdev allocates. The memory is aligned and
 * padded to 64 bytes and the padding is zeroed, as Arrow recommends for
 * buffers. */
#define AD_ALIGNMENT 64

static inline int64_t
ad_padded(int64_t nbytes)
{
    return (nbytes + AD_ALIGNMENT - 1) & ~(int64_t)(AD_ALIGNMENT - 1);
}

/* Bytes of a bitmap of `n` bits, without overflow. */
static inline int64_t
ad_bitmap_bytes(int64_t n)
{
    return n / 8 + (n % 8 != 0);
}

typedef struct ad_host_block {
    ad_owner base;
    void *data; /* NULL only for 0 bytes */
    int64_t nbytes;
} ad_host_block;

/* The contents are undefined, except for the padding. */
AD_MUST_CHECK ad_status ad_host_block_new(int64_t nbytes, ad_host_block **out,
                                          ad_error *err);

#endif /* AD_BASE_OWNER_H */
