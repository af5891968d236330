#include "base/owner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* --- host memory --------------------------------------------------------- */

static void
memory_destroy(ad_owner *base)
{
    free(base);
}

static const ad_owner_ops memory_ops = {.destroy = memory_destroy,
                                        .name = "host memory"};

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
