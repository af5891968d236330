#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
    size_t padded =
        ((size_t)nbytes + AD_ALIGNMENT - 1) & ~(size_t)(AD_ALIGNMENT - 1);
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
