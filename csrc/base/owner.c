#include "base/owner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/thread_local.h"

/* --- destroying ---------------------------------------------------------- */

/* So many destroys run within each other. Each takes some hundred bytes of
 * stack, and what foreign code takes in between. */
#define MOST_NESTED 50

typedef struct destroys {
    size_t depth;     /* that run now on this thread */
    ad_owner *queued; /* owners to be destroyed later */
} destroys;

static AD_THREAD_LOCAL destroys here;

static __attribute__((noinline)) void
queue(ad_owner *owner)
{
    atomic_store_explicit(&owner->refs, (size_t)here.queued,
                          memory_order_relaxed);
    here.queued = owner;
}

static __attribute__((noinline)) void
run_queue(void)
{
    while (here.queued != NULL) {
        ad_owner *owner = here.queued;
        here.queued = (ad_owner *)atomic_load_explicit(&owner->refs,
                                                       memory_order_relaxed);
        here.depth = 1;
        owner->ops->destroy(owner);
        here.depth = 0;
    }
}

static inline void
destroy(ad_owner *owner, void (*destroy_owner)(ad_owner *self))
{
    if (__builtin_expect(here.depth >= MOST_NESTED, 0)) {
        queue(owner);
        return;
    }
    here.depth++;
    destroy_owner(owner);
    here.depth--;
    if (__builtin_expect(here.depth == 0 && here.queued != NULL, 0)) {
        run_queue();
    }
}

void
ad_owner_destroy(ad_owner *owner)
{
    destroy(owner, owner->ops->destroy);
}

void
ad_owner_destroy_with_gil(ad_owner *owner)
{
    destroy(owner, owner->ops->destroy_with_gil);
}

/* --- groups -------------------------------------------------------------- */

typedef struct owner_group {
    ad_owner base;
    size_t n;
    ad_owner *owners[];
} owner_group;

static void
group_destroy(ad_owner *base)
{
    owner_group *group = (owner_group *)base;
    for (size_t i = 0; i < group->n; i++) {
        ad_owner_unref(group->owners[i]);
    }
    free(group);
}

static ad_owner *const *
group_members(const ad_owner *base, size_t *n)
{
    const owner_group *group = (const owner_group *)base;
    *n = group->n;
    return group->owners;
}

static const ad_owner_ops group_ops = {
    .destroy = group_destroy,
    .members = group_members,
    .name = "group",
};

ad_status
ad_owner_group_new(ad_owner *const *owners, size_t n, ad_owner **out,
                   ad_error *err)
{
    size_t nbytes = sizeof(owner_group) + n * sizeof(owners[0]);
    owner_group *group = malloc(nbytes);
    if (group == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&group->base, &group_ops);
    group->n = n;
    for (size_t i = 0; i < n; i++) {
        group->owners[i] = ad_owner_ref(owners[i]);
    }
    *out = &group->base;
    return AD_OK;
}

/* --- extents ------------------------------------------------------------- */

typedef struct owner_with_extent {
    ad_owner base;
    ad_owner *inner;
    ad_extent extent;
} owner_with_extent;

static void
with_extent_destroy(ad_owner *base)
{
    owner_with_extent *self = (owner_with_extent *)base;
    ad_owner_unref(self->inner);
    free(self);
}

static ad_owner *const *
with_extent_members(const ad_owner *base, size_t *n)
{
    *n = 1;
    return &((const owner_with_extent *)base)->inner;
}

static ad_extent
with_extent_extent(const ad_owner *base)
{
    return ((const owner_with_extent *)base)->extent;
}

static const ad_owner_ops with_extent_ops = {
    .destroy = with_extent_destroy,
    .members = with_extent_members,
    .extent = with_extent_extent,
    .name = "owner with extent",
};

ad_status
ad_owner_with_extent(ad_owner *inner, ad_extent extent, ad_owner **out,
                     ad_error *err)
{
    owner_with_extent *self = malloc(sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_owner_init(&self->base, &with_extent_ops);
    self->inner = inner;
    self->extent = extent;
    *out = &self->base;
    return AD_OK;
}

/* Owners may share members, so that a tree of them has exponentially many
 * paths, and chains of them may be longer than the stack. */
#define MAX_VISITS 1024

static bool
covers(const ad_owner *owner, uintptr_t start, size_t nbytes, int *n_visits)
{
    size_t n;
    if (owner == NULL || ++*n_visits > MAX_VISITS) {
        return false;
    }
    if (owner->ops->extent != NULL) {
        ad_extent extent = owner->ops->extent(owner);
        uintptr_t skipped = start - (uintptr_t)extent.data;
        if (start >= (uintptr_t)extent.data && skipped <= extent.nbytes &&
            nbytes <= extent.nbytes - skipped) {
            return true;
        }
    }
    ad_owner *const *members = ad_owner_members(owner, &n);
    for (size_t i = 0; members != NULL && i < n; i++) {
        if (covers(members[i], start, nbytes, n_visits)) {
            return true;
        }
    }
    return false;
}

bool
ad_owner_covers(const ad_owner *owner, const void *data, size_t nbytes)
{
    int n_visits = 0;
    return covers(owner, (uintptr_t)data, nbytes, &n_visits);
}

/* --- host memory --------------------------------------------------------- */

static void
memory_destroy(ad_owner *base)
{
    free(base);
}

static ad_extent
memory_extent(const ad_owner *base)
{
    const ad_memory *memory = (const ad_memory *)base;
    return (ad_extent){memory->data, (size_t)memory->nbytes};
}

static const ad_owner_ops memory_ops = {
    .destroy = memory_destroy,
    .extent = memory_extent,
    .name = "host memory",
};

#define HUGE (4 << 20)
#define PAGE 4096

/* A block of this size is new from the system. Faulting it in page by page
 * takes longer than filling it. A refused request is ignored. */
static void
ask_for_huge_pages(void *data, size_t nbytes)
{
    if (nbytes >= HUGE) {
        size_t skipped = PAGE - (uintptr_t)data % PAGE;
        (void)madvise((char *)data + skipped, nbytes - skipped, MADV_HUGEPAGE);
    }
}

/* Allocates one block and aligns it by hand. glibc before 2.38 does not reuse
 * a freed block of aligned_alloc for the same size: it takes fresh pages from
 * the system. Faulting them in takes as long as copying into them. */
ad_status
ad_memory_new(int64_t nbytes, ad_memory **out, ad_error *err)
{
    const size_t extra = sizeof(ad_memory) + AD_ALIGNMENT - 1;
    if (nbytes < 0 || nbytes > INT64_MAX - AD_ALIGNMENT - (int64_t)extra) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                       "size of an allocation overflows");
    }
    size_t padded = (size_t)ad_padded(nbytes);
    ad_memory *memory = malloc(extra + padded);
    if (memory == NULL) {
        return ad_fail_memory(err, extra + padded);
    }
    ad_owner_init(&memory->base, &memory_ops);
    memory->data = NULL;
    memory->nbytes = nbytes;
    if (nbytes > 0) {
        uintptr_t start = (uintptr_t)memory + extra;
        memory->data = (void *)(start & ~(uintptr_t)(AD_ALIGNMENT - 1));
        ask_for_huge_pages(memory->data, padded);
        memset((char *)memory->data + nbytes, 0, padded - (size_t)nbytes);
    }
    *out = memory;
    return AD_OK;
}
