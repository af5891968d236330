#include "base/owner.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
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

/* --- walks --------------------------------------------------------------- */

/* So many owners are entered before those that were met are remembered, which
 * takes memory. */
#define N_BRIEF 64
#define N_INLINE 32

typedef struct walk {
    ad_owner **pending; /* to be entered; a stack */
    size_t n_pending;
    size_t max_pending;
    ad_owner **met; /* a hash table of shared owners; NULL: a free slot */
    size_t n_met;
    size_t max_met; /* a power of two, or 0 */
    ad_owner *few[N_INLINE];
} walk;

static ad_status
push(walk *self, ad_owner *owner, ad_error *err)
{
    if (self->n_pending == self->max_pending) {
        size_t n = 2 * self->max_pending;
        bool is_inline = self->pending == self->few;
        ad_owner **more =
            realloc(is_inline ? NULL : self->pending, n * sizeof(*more));
        if (more == NULL) {
            return ad_fail_memory(err, n * sizeof(*more));
        }
        if (is_inline) {
            memcpy(more, self->few, sizeof(self->few));
        }
        self->pending = more;
        self->max_pending = n;
    }
    self->pending[self->n_pending++] = owner;
    return AD_OK;
}

/* The slot of the owner, or the free one for it. */
static ad_owner **
find_slot(ad_owner **table, size_t n, const ad_owner *owner)
{
    size_t i = (size_t)(((uintptr_t)owner >> 4) * 0x9E3779B97F4A7C15u >> 20);
    while (table[i & (n - 1)] != NULL && table[i & (n - 1)] != owner) {
        i++;
    }
    return &table[i & (n - 1)];
}

static ad_status
grow_table(walk *self, ad_error *err)
{
    size_t n = self->max_met > 0 ? 2 * self->max_met : 4 * N_BRIEF;
    ad_owner **table = calloc(n, sizeof(*table));
    if (table == NULL) {
        return ad_fail_memory(err, n * sizeof(*table));
    }
    for (size_t i = 0; i < self->max_met; i++) {
        if (self->met[i] != NULL) {
            *find_slot(table, n, self->met[i]) = self->met[i];
        }
    }
    free(self->met);
    self->met = table;
    self->max_met = n;
    return AD_OK;
}

/* Sets *is_new to whether the owner is met for the first time. One with a
 * single reference has a single way to it. */
static ad_status
meet(walk *self, ad_owner *owner, bool *is_new, ad_error *err)
{
    *is_new = true;
    if (atomic_load_explicit(&owner->refs, memory_order_relaxed) == 1) {
        return AD_OK;
    }
    if (2 * (self->n_met + 1) > self->max_met) {
        AD_RETURN_IF_ERR(grow_table(self, err));
    }
    ad_owner **slot = find_slot(self->met, self->max_met, owner);
    *is_new = *slot == NULL;
    self->n_met += *is_new;
    *slot = owner;
    return AD_OK;
}

/* Visits the members of the owner and pushes those that have members. */
static ad_status
enter(walk *self, const ad_owner *owner, ad_owner_visit visit, void *data,
      bool *is_over, ad_error *err)
{
    size_t n;
    ad_owner *const *members = ad_owner_members(owner, &n);
    for (size_t i = 0; members != NULL && i < n && !*is_over; i++) {
        if (members[i] == NULL) {
            continue;
        }
        *is_over = visit(members[i], data);
        if (members[i]->ops->members != NULL) {
            AD_RETURN_IF_ERR(push(self, members[i], err));
        }
    }
    return AD_OK;
}

ad_status
ad_owner_walk(ad_owner *owner, ad_owner_visit visit, void *data, ad_error *err)
{
    bool is_over = owner == NULL || visit(owner, data);
    bool is_new = true;
    if (is_over || owner->ops->members == NULL) {
        return AD_OK;
    }
    walk self; /* by assignment: clearing `few` would take longer */
    self.pending = self.few;
    self.n_pending = 0;
    self.max_pending = N_INLINE;
    self.met = NULL;
    self.n_met = self.max_met = 0;
    ad_status status = push(&self, owner, err);
    for (size_t i = 0; status == AD_OK && !is_over && self.n_pending > 0;
         i++) {
        ad_owner *next = self.pending[--self.n_pending];
        if (i >= N_BRIEF) {
            status = meet(&self, next, &is_new, err);
        }
        if (status == AD_OK && is_new) {
            status = enter(&self, next, visit, data, &is_over, err);
        }
    }
    if (self.pending != self.few) {
        free(self.pending);
    }
    free(self.met);
    return status;
}

/* A large tree is not searched to its end, since each search would take as
 * long. */
#define MAX_VISITS 1024

typedef struct search {
    uintptr_t start;
    size_t nbytes;
    int n_visits;
    bool is_found;
} search;

static bool
covers(ad_owner *owner, void *data)
{
    search *self = data;
    if (owner->ops->extent != NULL) {
        ad_extent extent = owner->ops->extent(owner);
        uintptr_t skipped = self->start - (uintptr_t)extent.data;
        self->is_found = self->start >= (uintptr_t)extent.data &&
                         skipped <= extent.nbytes &&
                         self->nbytes <= extent.nbytes - skipped;
    }
    return self->is_found || ++self->n_visits >= MAX_VISITS;
}

bool
ad_owner_covers(ad_owner *owner, const void *data, size_t nbytes)
{
    search self = {.start = (uintptr_t)data, .nbytes = nbytes};
    return ad_owner_walk(owner, covers, &self, NULL) == AD_OK && self.is_found;
}

/* --- host memory --------------------------------------------------------- */

static void
block_destroy(ad_owner *base)
{
    free(base);
}

static ad_extent
block_extent(const ad_owner *base)
{
    const ad_host_block *block = (const ad_host_block *)base;
    return (ad_extent){block->data, (size_t)block->nbytes};
}

static const ad_owner_ops block_ops = {
    .destroy = block_destroy,
    .extent = block_extent,
    .name = "host memory",
};

/* A block of this size is new from the system. Faulting it in page by page
 * takes longer than filling it. */
#define HUGE_BLOCK (4 << 20)

/* Allocates one block and aligns it by hand. glibc before 2.38 does not reuse
 * a freed block of aligned_alloc for the same size: it takes fresh pages from
 * the system. Faulting them in takes as long as copying into them. */
ad_status
ad_host_block_new(int64_t nbytes, ad_host_block **out, ad_error *err)
{
    const size_t extra = sizeof(ad_host_block) + AD_ALIGNMENT - 1;
    if (nbytes < 0 || nbytes > INT64_MAX - AD_ALIGNMENT - (int64_t)extra) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                       "size of an allocation overflows");
    }
    size_t padded = (size_t)ad_padded(nbytes);
    ad_host_block *block = malloc(extra + padded);
    if (block == NULL) {
        return ad_fail_memory(err, extra + padded);
    }
    ad_owner_init(&block->base, &block_ops);
    block->data = NULL;
    block->nbytes = nbytes;
    if (nbytes > 0) {
        uintptr_t start = (uintptr_t)block + extra;
        block->data = (void *)(start & ~(uintptr_t)(AD_ALIGNMENT - 1));
        if (padded >= HUGE_BLOCK) {
            ad_os_ask_for_huge_pages(block->data, padded);
        }
        memset((char *)block->data + nbytes, 0, padded - (size_t)nbytes);
    }
    *out = block;
    return AD_OK;
}
