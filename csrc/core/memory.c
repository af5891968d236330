#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static void
memory_destroy(ad_owner *base)
{
    ad_memory *memory = (ad_memory *)base;
    free(memory->data);
    free(memory);
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
        memset((char *)memory->data + nbytes, 0, padded - (size_t)nbytes);
    }
    *out = memory;
    return AD_OK;
}
