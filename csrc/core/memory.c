#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void
memory_destroy(ad_owner *base)
{
    ad_memory *memory = (ad_memory *)base;
    free(memory->data);
    free(memory);
}

#define HUGE (4 << 20)
#define PAGE 4096

/* Memory of this size is new from the system, and to hand it out page by page
 * would take longer than to fill it. Refused is refused. */
static void
ask_for_huge_pages(void *data, size_t nbytes)
{
    if (nbytes >= HUGE) {
        size_t skipped = PAGE - (uintptr_t)data % PAGE;
        (void)madvise((char *)data + skipped, nbytes - skipped, MADV_HUGEPAGE);
    }
}

ad_status
ad_memory_new(int64_t nbytes, ad_memory **out, ad_error *err)
{
    if (nbytes < 0 || nbytes > INT64_MAX - AD_ALIGNMENT) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                       "size of an allocation overflows");
    }
    ad_memory *memory = malloc(sizeof(*memory));
    if (memory == NULL) {
        return ad_fail_memory(err, sizeof(*memory));
    }
    ad_owner_init(&memory->base, memory_destroy);
    memory->data = NULL;
    memory->nbytes = nbytes;
    if (nbytes > 0) {
        size_t padded =
            ((size_t)nbytes + AD_ALIGNMENT - 1) & ~(size_t)(AD_ALIGNMENT - 1);
        memory->data = aligned_alloc(AD_ALIGNMENT, padded);
        if (memory->data == NULL) {
            ad_owner_unref(&memory->base);
            return ad_fail_memory(err, padded);
        }
        ask_for_huge_pages(memory->data, padded);
        memset((char *)memory->data + nbytes, 0, padded - (size_t)nbytes);
    }
    *out = memory;
    return AD_OK;
}
