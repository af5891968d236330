/* Memory of CUDA and HIP: pools, blocks that are kept, allocation and copies. */
#include "device/gpu/gpu.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

/* --- blocks that are kept ------------------------------------------------- */

/* To allocate or free pinned or managed memory takes long and waits for the
 * device. So a block that is given back is kept. What is kept beyond
 * KEPT_MAX is freed by a call that waits anyway: the next allocation
 * that finds no block, or Device.synchronize(). The end of a context frees its
 * memory, and the address may be allocated again, so a block is used and freed
 * only while it has the identifier that it was kept with. */
typedef struct block {
    struct block *next;
    ad_context context;
    void *data;
    size_t size;
    uint64_t id;
} block;

#define KEPT_MAX ((size_t)256 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *kept; /* newest first */
static size_t n_bytes;

#define SMALLEST_STEP 4096

/* The size of the block for `nbytes`. Few sizes occur, so that kept blocks
 * fit. */
static size_t
block_size(size_t nbytes)
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

/* The functions below are called while the context is current and the thread
 * is relaxed. This one takes a kept block, or returns NULL. */
static void *
take_block(const struct ad_gpu *gpu, ad_context context, size_t size)
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

/* Keeps a block that no work uses any more. False: the caller frees it. */
static bool
keep_block(const struct ad_gpu *gpu, ad_context context, void *data,
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

/* Returns the code of the call. May block. */
static int
free_block(const struct ad_gpu *gpu, ad_context context, void *data)
{
    return context.device.type == gpu->host_type ? gpu->calls->host_free(data)
                                                 : gpu->free(data);
}

/* Frees the oldest kept blocks until `most` bytes are left. May block. Enters
 * the contexts of the blocks. */
static void
trim_blocks(size_t most)
{
    block *oldest;
    while ((oldest = unlink_oldest(most)) != NULL) {
        const struct ad_gpu *gpu = ad_gpu_of(oldest->context.device);
        ad_gpu_scope scope;
        if (ad_gpu_enter(gpu, oldest->context, &scope, NULL) == AD_OK) {
            ad_gpu_relax(gpu, &scope);
            if (gpu->allocation_id(oldest->data) == oldest->id &&
                free_block(gpu, oldest->context, oldest->data) !=
                    AD_GPU_SUCCESS) {
                gpu->forget_error();
            }
            ad_gpu_leave(gpu, &scope);
        }
        free(oldest);
    }
}

/* --- pools ---------------------------------------------------------------- */

/* The bytes of unused memory that a synchronization leaves in a pool. Their
 * memory stays mapped. To map memory takes long, and less than to fill as much
 * over a bus. */
#define POOLED_MAX ((uint64_t)1 << 30)

/* With a descriptor other processes can use the memory. Some devices and
 * systems have none. */
static void *
create_pool(const struct ad_gpu *gpu, int64_t id)
{
    static const int handle_types[] = {AD_GPU_POOL_FILE_DESCRIPTOR, 0};
    struct ad_gpu_pool_properties properties = {
        .allocation_type = AD_GPU_POOL_OF_DEVICE_MEMORY,
        .location_type = AD_GPU_LOCATION_DEVICE,
        .location_id = (int)id,
    };
    void *made = NULL;
    for (int i = 0; i < 2; i++) {
        properties.handle_types = handle_types[i];
        if (gpu->calls->pool_create(&made, &properties) == AD_GPU_SUCCESS) {
            return made;
        }
        gpu->forget_error();
    }
    return NULL;
}

/* Gives the device a pool that keeps some of its memory. The default pool
 * returns unused memory to the system at every synchronization, so that each
 * later allocation has to map memory. Its threshold is a setting of the whole
 * process and is left alone. Without a pool of its own arrowdev uses the
 * default one. Two threads may both create a pool; the second destroys its
 * own. */
static void
make_pool(const struct ad_gpu *gpu, int64_t id, ad_gpu_pools *pools)
{
    const struct ad_gpu_calls *calls = gpu->calls;
    if (calls->pool_create == NULL || calls->pool_set == NULL ||
        calls->pool_destroy == NULL) {
        return;
    }
    void *made = create_pool(gpu, id);
    if (made == NULL) {
        return;
    }
    void *none = NULL;
    uint64_t threshold = POOLED_MAX;
    int waits = 0; /* an upload waits for no consumer of other memory */
    int code = calls->pool_set(made, AD_GPU_POOL_THRESHOLD, &threshold);
    if (code == AD_GPU_SUCCESS) {
        code = calls->pool_set(made, AD_GPU_POOL_INTERNAL_WAITS, &waits);
    }
    if (code != AD_GPU_SUCCESS ||
        !atomic_compare_exchange_strong(&pools->own, &none, made)) {
        (void)calls->pool_destroy(made);
        gpu->forget_error();
    }
}

/* NULL where the device cannot free the memory in stream order: managed
 * memory, and all memory on devices without pools. Called while the thread is
 * relaxed. */
static ad_gpu_pools *
find_pools(const struct ad_gpu *gpu, ad_device device)
{
    ad_gpu_pools *pools =
        device.type == gpu->device_type ? gpu->pools(device.id) : NULL;
    if (pools == NULL) {
        return NULL;
    }
    int state = atomic_load_explicit(&pools->state, memory_order_acquire);
    if (state == AD_GPU_POOLS_UNKNOWN) {
        state = gpu->has_pools(device.id) ? AD_GPU_HAS_POOLS : AD_GPU_NO_POOLS;
        if (state == AD_GPU_HAS_POOLS) {
            make_pool(gpu, device.id, pools);
        }
        atomic_store_explicit(&pools->state, state, memory_order_release);
    }
    return state == AD_GPU_HAS_POOLS ? pools : NULL;
}

/* The reset of a device destroys its pools, and the runtime refuses the handle
 * of such a pool with the code of a wrong argument. A pool that lives can be
 * trimmed, here without an effect. */
static bool
is_alive(const struct ad_gpu *gpu, void *pool)
{
    bool is_there = gpu->calls->pool_trim != NULL &&
                    gpu->calls->pool_trim(pool, SIZE_MAX) == AD_GPU_SUCCESS;
    if (!is_there) {
        gpu->forget_error();
    }
    return is_there;
}

/* Other threads may find no pool meanwhile, and use the default one. */
static void
replace_pool(const struct ad_gpu *gpu, int64_t id, ad_gpu_pools *pools,
             void *ended)
{
    if (atomic_compare_exchange_strong(&pools->own, &ended, NULL)) {
        make_pool(gpu, id, pools);
    }
}

/* Makes no pool. */
static void
trim_pool(const struct ad_gpu *gpu, int64_t id, size_t most)
{
    bool is_known = id >= 0 && id < *gpu->n_devices;
    ad_gpu_pools *pools = is_known ? gpu->pools(id) : NULL;
    void *own = pools != NULL ? atomic_load(&pools->own) : NULL;
    if (own != NULL && gpu->calls->pool_trim != NULL &&
        gpu->calls->pool_trim(own, most) != AD_GPU_SUCCESS) {
        gpu->forget_error();
    }
}

static void
trim(const struct ad_gpu *gpu, int64_t id, size_t most)
{
    trim_blocks(most);
    trim_pool(gpu, id, most);
}

void
ad_gpu_memory_trim(const struct ad_gpu *gpu, int64_t id)
{
    trim(gpu, id, KEPT_MAX);
}

/* --- allocation ----------------------------------------------------------- */

static ad_gpu_result
allocate_on_device(const struct ad_gpu *gpu, ad_context context, void *stream,
                   size_t nbytes, void **out)
{
    ad_gpu_pools *pools = find_pools(gpu, context.device);
    void *pool = pools != NULL ? atomic_load(&pools->own) : NULL;
    ad_gpu_result result =
        gpu->allocate(context, pools != NULL, pool, stream, nbytes, out);
    if (result.code != AD_GPU_INVALID_VALUE || pool == NULL ||
        is_alive(gpu, pool)) {
        return result;
    }
    replace_pool(gpu, context.device.id, pools, pool);
    return gpu->allocate(context, true, atomic_load(&pools->own), stream,
                         nbytes, out);
}

static ad_gpu_result
try_to_allocate(const struct ad_gpu *gpu, ad_context context, void *stream,
                size_t nbytes, void **out)
{
    return context.device.type == gpu->host_type
               ? (ad_gpu_result){gpu->calls->host_alloc(out, nbytes,
                                                        AD_GPU_HOST_PORTABLE),
                                 gpu->names.host_alloc}
               : allocate_on_device(gpu, context, stream, nbytes, out);
}

static ad_gpu_result
allocate_new(const struct ad_gpu *gpu, ad_context context, void *stream,
             size_t nbytes, void **out)
{
    ad_gpu_result result = try_to_allocate(gpu, context, stream, nbytes, out);
    if (result.code == AD_GPU_OUT_OF_MEMORY) {
        gpu->forget_error();
        trim(gpu, context.device.id, 0);
        result = try_to_allocate(gpu, context, stream, nbytes, out);
    }
    return result;
}

/* Pinned and managed memory comes in blocks that are kept. */
static bool
is_kept(const struct ad_gpu *gpu, ad_context context)
{
    return context.device.type != gpu->device_type;
}

static ad_gpu_result
allocate_block(const struct ad_gpu *gpu, ad_context context, void *stream,
               size_t nbytes, void **out)
{
    const size_t size = block_size(nbytes);
    *out = take_block(gpu, context, size);
    if (*out != NULL) {
        return (ad_gpu_result){AD_GPU_SUCCESS, NULL};
    }
    trim_blocks(KEPT_MAX);
    return allocate_new(gpu, context, stream, size, out);
}

ad_status
ad_gpu_allocate(ad_context context, ad_stream stream, size_t nbytes,
                void **out, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result =
        (is_kept(gpu, context) ? allocate_block : allocate_new)(
            gpu, context, ad_gpu_handle(stream), nbytes, out);
    ad_gpu_leave(gpu, &scope);
    if (result.code == AD_GPU_OUT_OF_MEMORY) {
        gpu->forget_error();
        return ad_fail_device_memory(err, context.device, nbytes);
    }
    return ad_gpu_check(gpu, context.device, result, err);
}

/* Without pools device memory is freed after the stream has been synchronized.
 * If that fails, work may still use the memory, so it is leaked. Returns the
 * code of the last call. */
static int
free_device_memory(const struct ad_gpu *gpu, ad_context context, void *stream,
                   void *data)
{
    if (find_pools(gpu, context.device) != NULL) {
        if (gpu->free_ordered(data, stream) == AD_GPU_SUCCESS) {
            return AD_GPU_SUCCESS;
        }
        gpu->forget_error();
    }
    int code = gpu->calls->stream_synchronize(stream);
    return code == AD_GPU_SUCCESS ? gpu->free(data) : code;
}

static int
free_memory(const struct ad_gpu *gpu, ad_context context, void *stream,
            void *data, size_t nbytes)
{
    if (!is_kept(gpu, context)) {
        return free_device_memory(gpu, context, stream, data);
    }
    return keep_block(gpu, context, data, block_size(nbytes))
               ? AD_GPU_SUCCESS
               : free_block(gpu, context, data);
}

void
ad_gpu_deallocate(ad_context context, ad_stream stream, void *data,
                  size_t nbytes)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    ad_error err;
    bool has_entered = ad_gpu_enter(gpu, context, &scope, &err) == AD_OK;
    if (!has_entered && err.code == AD_CUDA_NOT_PERMITTED) {
        return; /* counted, so that the memory is freed later */
    }
    ad_gpu_relax(gpu, &scope);
    /* A destroyed context has freed its memory. After other failures the free
     * is still attempted, because the stream determines the context. */
    if (has_entered || !ad_gpu_is_gone(err.code)) {
        int code =
            free_memory(gpu, context, ad_gpu_handle(stream), data, nbytes);
        if (!ad_gpu_is_ok(code)) {
            gpu->forget_error();
        }
    }
    ad_gpu_leave(gpu, &scope);
}

/* --- copies --------------------------------------------------------------- */

/* Copies row by row where one call cannot: copies between two devices with
 * pitches, and pitches of 2 GiB and more. */
static ad_gpu_result
copy_each_row(ad_gpu_result (*copy_row)(const ad_block_copy *, void *),
              const ad_block_copy *copy, void *stream)
{
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    ad_block_copy row = *copy;
    row.height = 1;
    for (size_t i = 0; i < copy->height && result.code == AD_GPU_SUCCESS;
         i++) {
        result = copy_row(&row, stream);
        row.target.offset += copy->target_pitch;
        row.source.offset += copy->source_pitch;
    }
    return result;
}

/* Are both sides device memory, of different contexts or devices? */
static bool
are_peers(const struct ad_gpu *gpu, const ad_context *a, const ad_context *b)
{
    return a->device.type == gpu->device_type &&
           b->device.type == gpu->device_type &&
           (a->device.id != b->device.id ||
            (a->handle != NULL && b->handle != NULL &&
             a->handle != b->handle));
}

ad_status
ad_gpu_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
            ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    ad_gpu_result result;
    if (copy->width == 0 || copy->height == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    if (are_peers(gpu, &copy->target.context, &copy->source.context)) {
        result = copy_each_row(gpu->copy_peer, copy, ad_gpu_handle(stream));
    } else if (copy->height > 1 && (copy->target_pitch > INT_MAX ||
                                    copy->source_pitch > INT_MAX)) {
        result = copy_each_row(gpu->copy, copy, ad_gpu_handle(stream));
    } else {
        result = gpu->copy(copy, ad_gpu_handle(stream));
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}
