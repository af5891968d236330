/* Pinned and managed memory that is kept for the next use.
 *
 * To allocate or free such memory takes long and waits for the device. So a
 * block that is given back is kept. What is kept beyond AD_GPU_KEPT_MAX is
 * freed by a call that waits anyway: the next allocation that finds no block,
 * or Device.synchronize(). The end of a context frees its memory, and the
 * address may be allocated again, so a block is used and freed only while it
 * has the identifier that it was kept with.
 */
#include <pthread.h>
#include <stdlib.h>

#include "device/gpu/gpu.h"

typedef struct block {
    struct block *next;
    ad_context context;
    void *data;
    size_t size;
    uint64_t id;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *kept; /* newest first */
static size_t n_bytes;

#define SMALLEST_STEP 4096

size_t
ad_gpu_block_size(size_t nbytes)
{
    size_t step = SMALLEST_STEP;
    while (step < nbytes / 16) {
        step *= 2;
    }
    return nbytes <= SIZE_MAX - step ? (nbytes + step - 1) / step * step
                                     : nbytes;
}

static block *
unlink_locked(block **link)
{
    block *found = *link;
    if (found != NULL) {
        *link = found->next;
        n_bytes -= found->size;
    }
    return found;
}

static block *
unlink_fitting(ad_context context, size_t size)
{
    pthread_mutex_lock(&lock);
    block **link = &kept;
    while (*link != NULL && ((*link)->size != size ||
                             !ad_context_equal((*link)->context, context))) {
        link = &(*link)->next;
    }
    block *found = unlink_locked(link);
    pthread_mutex_unlock(&lock);
    return found;
}

static block *
unlink_oldest(size_t most)
{
    pthread_mutex_lock(&lock);
    block **link = &kept;
    while (*link != NULL && (*link)->next != NULL) {
        link = &(*link)->next;
    }
    block *found = n_bytes > most ? unlink_locked(link) : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

void *
ad_gpu_block_take(const struct ad_gpu *gpu, ad_context context, size_t size)
{
    void *data = NULL;
    block *found;
    while (data == NULL && (found = unlink_fitting(context, size)) != NULL) {
        if (gpu->allocation_id(found->data) == found->id) {
            data = found->data;
        }
        free(found);
    }
    return data;
}

bool
ad_gpu_block_keep(const struct ad_gpu *gpu, ad_context context, void *data,
                  size_t size)
{
    const uint64_t id = gpu->allocation_id(data);
    block *added = id != 0 ? malloc(sizeof(*added)) : NULL;
    if (added == NULL) {
        return false;
    }
    *added = (block){NULL, context, data, size, id};
    pthread_mutex_lock(&lock);
    added->next = kept;
    kept = added;
    n_bytes += size;
    pthread_mutex_unlock(&lock);
    return true;
}

int
ad_gpu_block_free(const struct ad_gpu *gpu, ad_context context, void *data)
{
    return context.device.type == gpu->host_type ? gpu->calls->host_free(data)
                                                 : gpu->free(data);
}

void
ad_gpu_blocks_trim(size_t most)
{
    block *oldest;
    while ((oldest = unlink_oldest(most)) != NULL) {
        const struct ad_gpu *gpu = ad_gpu_of(oldest->context.device);
        ad_gpu_scope scope;
        if (ad_gpu_enter(gpu, oldest->context, &scope, NULL) == AD_OK) {
            ad_gpu_relax(gpu, &scope);
            if (gpu->allocation_id(oldest->data) == oldest->id &&
                ad_gpu_block_free(gpu, oldest->context, oldest->data) !=
                    AD_GPU_SUCCESS) {
                gpu->forget_error();
            }
            ad_gpu_leave(gpu, &scope);
        }
        free(oldest);
    }
}
