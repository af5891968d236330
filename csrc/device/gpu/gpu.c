#include "device/gpu/gpu.h"

#include <limits.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/thread_local.h"
#include "base/wait.h"

/* --- errors -------------------------------------------------------------- */

/* A kernel or the device has failed: nothing runs in the process any more, on
 * any thread. cuda.h: "This leaves the process in an inconsistent state and
 * any further CUDA work will return the same error." Of errors that cannot be
 * corrected it says less, but their memory is lost. */
static bool
is_broken(int code)
{
    switch (code) {
        case AD_GPU_ECC_UNCORRECTABLE:
        case AD_GPU_NVLINK_UNCORRECTABLE:
        case AD_GPU_CONTAINED:
        case AD_GPU_ILLEGAL_ADDRESS:
        case AD_GPU_LAUNCH_TIMEOUT:
        case AD_GPU_ASSERT:
        case AD_GPU_TENSOR_MEMORY_LEAK:
        case AD_GPU_MPS_CLIENT_TERMINATED:
        case AD_GPU_EXTERNAL_DEVICE:
            return true;
        default:
            return code >= AD_GPU_HARDWARE_STACK_ERROR &&
                   code <= AD_GPU_LAUNCH_FAILED;
    }
}

static const char *
hint_for(int code)
{
    if (is_broken(code)) {
        return "a kernel that was started earlier, or the device, has failed; "
               "the device can be used again by a new process only";
    }
    switch (code) {
        case AD_GPU_DEVICE_UNAVAILABLE:
            return "another process may have the device for itself: see its "
                   "compute mode in nvidia-smi";
        case AD_CUDA_NOT_PERMITTED:
            return "the thread runs a host function of a stream, in which "
                   "CUDA permits no call: do it elsewhere";
        case AD_GPU_DEINITIALIZED:
            return "the runtime has shut down: drop what lies on the device "
                   "before the process ends";
        case AD_GPU_INVALID_CONTEXT:
        case AD_GPU_CONTEXT_IS_DESTROYED:
            return "the context that it belongs to is gone, or not current on "
                   "this thread: keep the library that made it from "
                   "resetting the device";
        case AD_GPU_INVALID_HANDLE:
            return "a stream or an event was destroyed, or belongs to another "
                   "device: keep the object it came from alive while it is "
                   "used";
        default:
            return NULL;
    }
}

static const char *
hint_for_capture(int code)
{
    switch (code) {
        case AD_GPU_CAPTURE_INVALIDATED:
            return "the capture was broken before: end it, and find out what "
                   "the first error was";
        case AD_GPU_CAPTURE_IMPLICIT:
            return "the legacy default stream cannot be used while a stream "
                   "that waits for it is captured: pass another (stream=...)";
        case AD_GPU_CAPTURED_EVENT:
            return "the data are made by a graph that is being captured: wait "
                   "for them on a stream of the same capture (stream=...), or "
                   "once the graph was launched";
        default:
            return "do it before the capture begins or after it has ended";
    }
}

static AD_THREAD_LOCAL unsigned int n_refused;

bool
ad_gpu_is_ok(int code)
{
    if (code == AD_CUDA_NOT_PERMITTED) {
        n_refused++;
    }
    return code == AD_GPU_SUCCESS;
}

unsigned int
ad_gpu_n_refused(void)
{
    return n_refused;
}

ad_status
ad_gpu_fail(const struct ad_gpu *gpu, ad_device device, ad_gpu_result result,
            ad_error *err)
{
    gpu->forget_error();
    (void)ad_gpu_is_ok(result.code);
    ad_fail_device(err, device, result.call, result.code,
                   gpu->error_name(result.code), hint_for(result.code));
    if (result.code < AD_GPU_CAPTURE_UNSUPPORTED ||
        result.code > AD_GPU_CAPTURE_WRONG_THREAD) {
        return AD_ERR_DEVICE;
    }
    if (err != NULL) {
        err->status = AD_ERR_EXCHANGE;
        ad_error_reason(err, "capture");
        ad_error_hint(err, "%s", hint_for_capture(result.code));
    }
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_fail_start(const struct ad_gpu *gpu, ad_gpu_result result,
                  const char *hint, ad_error *err)
{
    const char *name = gpu->error_name(result.code);
    gpu->forget_error();
    ad_fail(err, AD_ERR_EXCHANGE, "runtime", hint,
            "the %s runtime is installed and does not start: %s failed: %s "
            "(%d)",
            gpu->name, result.call,
            name != NULL ? name : "an error without a name", result.code);
    if (err != NULL) {
        err->code = result.code;
    }
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_check_id(const struct ad_gpu *gpu, ad_device device, ad_error *err)
{
    return ad_check_id(device, gpu->name, (size_t)*gpu->n_devices,
                       device.id < 0
                           ? "say which one: ad.devices() lists those that "
                             "are there"
                           : "ad.devices() lists those that are there",
                       err);
}

ad_status
ad_gpu_fail_stream(const struct ad_gpu *gpu, ad_stream stream,
                   ad_device wanted, ad_device found, ad_error *err)
{
    char on[AD_DEVICE_NAME_SIZE], for_data[AD_DEVICE_NAME_SIZE];
    ad_device_format(wanted, for_data);
    ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
            "%s stream 0x%zx runs on %s, but is named for data on %s",
            gpu->name, (size_t)stream.handle, ad_device_format(found, on),
            for_data);
    ad_error_hint(err, "pass a stream of %s", for_data);
    ad_error_device(err, wanted);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_fail_kind(const struct ad_gpu *gpu, ad_device device, int kind,
                 ad_error *err)
{
    return ad_fail_on(
        err, device, "device",
        "copy the data to device, pinned or managed memory",
        "%s says that the pointer is to memory of kind %d; device, pinned "
        "and managed memory are known",
        gpu->name, kind);
}

/* What ad_gpu_begin_calls has made current on this thread. */
static AD_THREAD_LOCAL struct {
    const struct ad_gpu *gpu; /* NULL: nothing */
    unsigned int depth;
    ad_gpu_scope scope;
} held;

const ad_context *
ad_gpu_held(const struct ad_gpu *gpu)
{
    return held.gpu == gpu ? &held.scope.entered : NULL;
}

static ad_gpu_result
enter(const struct ad_gpu *gpu, ad_context context, ad_gpu_scope *scope)
{
    const ad_context *current = ad_gpu_held(gpu);
    bool is_held =
        current != NULL && context.handle == current->handle &&
        (context.handle != NULL || context.device.id == current->device.id);
    return is_held ? (ad_gpu_result){AD_GPU_SUCCESS, NULL}
                   : gpu->enter(context, scope);
}

void
ad_gpu_begin_calls(ad_context context)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    if (held.depth++ != 0) {
        return;
    }
    held.scope = (ad_gpu_scope){.entered = context};
    if (gpu->enter(context, &held.scope).code == AD_GPU_SUCCESS) {
        held.gpu = gpu;
    } else {
        gpu->forget_error();
    }
}

void
ad_gpu_end_calls(ad_context context)
{
    const struct ad_gpu *gpu = held.gpu;
    if (--held.depth == 0 && gpu != NULL) {
        held.gpu = NULL;
        ad_gpu_leave(gpu, &held.scope);
    }
}

ad_status
ad_gpu_enter(const struct ad_gpu *gpu, ad_context context, ad_gpu_scope *scope,
             ad_error *err)
{
    *scope = (ad_gpu_scope){.is_moved = false};
    ad_gpu_result result = enter(gpu, context, scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

static void
relax(const struct ad_gpu *gpu, ad_gpu_scope *scope)
{
    scope->mode = AD_GPU_CAPTURE_MODE_RELAXED;
    if (gpu->calls->exchange_capture_mode != NULL) {
        scope->is_relaxed =
            gpu->calls->exchange_capture_mode(&scope->mode) == AD_GPU_SUCCESS;
        if (!scope->is_relaxed) {
            gpu->forget_error();
        }
    }
}

/* Between ad_gpu_begin_calls and ad_gpu_end_calls the thread is relaxed once,
 * on first need. */
void
ad_gpu_relax(const struct ad_gpu *gpu, ad_gpu_scope *scope)
{
    scope->is_relaxed = false;
    if (held.gpu != gpu) {
        relax(gpu, scope);
    } else if (!held.scope.is_relaxed) {
        relax(gpu, &held.scope);
    }
}

/* A call may report the failure of earlier work, but only once. */
void
ad_gpu_restore(const struct ad_gpu *gpu, const ad_gpu_scope *scope)
{
    int mode = scope->mode;
    if (gpu->calls->exchange_capture_mode(&mode) != AD_GPU_SUCCESS) {
        gpu->forget_error();
        (void)gpu->calls->exchange_capture_mode(&mode);
    }
}

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

static ad_mutex lock = AD_MUTEX_INIT;
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
    ad_mutex_lock(&lock);
    block **link = &kept;
    while (*link != NULL && ((*link)->size != size ||
                             !ad_context_equal((*link)->context, context))) {
        link = &(*link)->next;
    }
    block *found = unlink_locked(link);
    ad_mutex_unlock(&lock);
    return found;
}

static block *
unlink_oldest(size_t most)
{
    ad_mutex_lock(&lock);
    block **link = &kept;
    while (*link != NULL && (*link)->next != NULL) {
        link = &(*link)->next;
    }
    block *found = n_bytes > most ? unlink_locked(link) : NULL;
    ad_mutex_unlock(&lock);
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
    ad_mutex_lock(&lock);
    added->next = kept;
    kept = added;
    n_bytes += size;
    ad_mutex_unlock(&lock);
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
    static const int handle_types[] = {AD_GPU_FILE_DESCRIPTOR, 0};
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

/* Gives unused memory beyond `most` bytes back to the runtime, for other
 * libraries: what the pool of the device keeps, and pinned and managed memory.
 * May block. Enters the contexts of kept blocks. */
static void
trim(const struct ad_gpu *gpu, int64_t id, size_t most)
{
    trim_blocks(most);
    trim_pool(gpu, id, most);
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

/* --- kernels ------------------------------------------------------------- */

/* Each is loaded into a context once, on first need, and launched from there.
 */

static const ad_gpu_module *
find_module(const struct ad_gpu *gpu, uint64_t key, ad_kernel kernel)
{
    const ad_gpu_module *entry =
        atomic_load_explicit(gpu->modules, memory_order_acquire);
    while (entry != NULL &&
           (entry->key != key || entry->functions[kernel] == NULL)) {
        entry = entry->next;
    }
    return entry;
}

static ad_status
fail_kernel(const struct ad_gpu *gpu, ad_context context, ad_gpu_result result,
            ad_error *err)
{
    ad_status status = ad_gpu_fail(gpu, context.device, result, err);
    if (status != AD_ERR_DEVICE) {
        return status; /* a capture error */
    }
    if (err != NULL) {
        err->status = AD_ERR_EXCHANGE;
        ad_error_reason(err, "kernel");
        ad_error_hint(err, "arrowdev's kernels cannot be loaded on this "
                           "device; copy the data to the host first with "
                           ".to(\"cpu\")");
    }
    return AD_ERR_EXCHANGE;
}

static ad_status
load_module(const struct ad_gpu *gpu, ad_context context, ad_kernel kernel,
            ad_gpu_module *entry, ad_error *err)
{
    const void *image = NULL;
    void *release = NULL;
    AD_RETURN_IF_ERR(gpu->module_image(kernel, &image, &release, err));
    ad_gpu_result result = {gpu->calls->module_load(&entry->module, image),
                            gpu->names.module_load};
    free(release);
    const int first = gpu->has_module_per_kernel ? (int)kernel : 0;
    const int end = gpu->has_module_per_kernel ? first + 1 : AD_N_KERNELS;
    for (int i = first; i < end && result.code == AD_GPU_SUCCESS; i++) {
        result.call = gpu->names.module_function;
        result.code = gpu->calls->module_function(
            &entry->functions[i], entry->module, ad_kernel_name(i));
    }
    return result.code == AD_GPU_SUCCESS
               ? AD_OK
               : fail_kernel(gpu, context, result, err);
}

static void
drop_module(const struct ad_gpu *gpu, ad_gpu_module *entry)
{
    if (entry->module != NULL &&
        gpu->calls->module_unload(entry->module) != AD_GPU_SUCCESS) {
        gpu->forget_error();
    }
    free(entry);
}

/* Two threads may both load the kernel. The second one unloads its own
 * copy. */
static const ad_gpu_module *
publish_module(const struct ad_gpu *gpu, ad_kernel kernel,
               ad_gpu_module *entry)
{
    ad_gpu_module *head = atomic_load(gpu->modules);
    do {
        const ad_gpu_module *known = find_module(gpu, entry->key, kernel);
        if (known != NULL) {
            drop_module(gpu, entry);
            return known;
        }
        entry->next = head;
    } while (!atomic_compare_exchange_weak(gpu->modules, &head, entry));
    return entry;
}

static ad_status
find_or_load(const struct ad_gpu *gpu, ad_context context, ad_kernel kernel,
             const ad_gpu_module **out, ad_error *err)
{
    uint64_t key;
    AD_RETURN_IF_ERR(gpu->module_key(context, &key, err));
    *out = find_module(gpu, key, kernel);
    if (*out != NULL) {
        return AD_OK;
    }
    ad_gpu_module *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return ad_fail_memory(err, sizeof(*entry));
    }
    entry->key = key;
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_relax(gpu, &scope);
    ad_status status = load_module(gpu, context, kernel, entry, err);
    if (status == AD_OK) {
        *out = publish_module(gpu, kernel, entry);
    } else {
        drop_module(gpu, entry);
    }
    ad_gpu_leave(gpu, &scope);
    return status;
}

static ad_status
launch_inside(const struct ad_gpu *gpu, ad_context context, ad_stream stream,
              const ad_launch *launch, ad_error *err)
{
    const ad_gpu_module *module;
    ad_launch copy = *launch;
    AD_RETURN_IF_ERR(find_or_load(gpu, context, copy.kernel, &module, err));
    void *parameters[] = {
        &copy.source.data,   &copy.source.offset, &copy.values.data,
        &copy.values.offset, &copy.target.data,   &copy.target.offset,
        &copy.bit_offset,    &copy.length,        &copy.numbers[0],
        &copy.numbers[1],    &copy.numbers[2],    &copy.numbers[3],
    };
    /* n_items is at most AD_KERNEL_GROUP, or a multiple of it. */
    int64_t block =
        copy.n_items < AD_KERNEL_GROUP ? copy.n_items : AD_KERNEL_GROUP;
    ad_gpu_result result = {
        gpu->calls->launch(module->functions[copy.kernel],
                           (unsigned int)(copy.n_items / block), 1, 1,
                           (unsigned int)block, 1, 1, 0, (void *)stream.handle,
                           parameters, NULL),
        gpu->names.launch};
    return ad_gpu_check(gpu, context.device, result, err);
}

ad_status
ad_gpu_launch(ad_context context, ad_stream stream, const ad_launch *launch,
              ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_status status = launch_inside(gpu, context, stream, launch, err);
    ad_gpu_leave(gpu, &scope);
    return status;
}

/* --- contexts ------------------------------------------------------------ */

ad_status
ad_gpu_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(device);
    void *handle;
    if (device.id < 0 && device.type != gpu->device_type) {
        /* Pinned and managed memory may come without an ordinal. */
        AD_RETURN_IF_ERR(
            ad_gpu_check(gpu, device, gpu->current(&handle, &device.id), err));
        device.id = device.id < 0 ? 0 : device.id;
    }
    AD_RETURN_IF_ERR(ad_gpu_check_id(gpu, device, err));
    AD_RETURN_IF_ERR(
        ad_gpu_check(gpu, device, gpu->primary(device.id, &handle), err));
    *out = (ad_context){device, handle};
    return AD_OK;
}

/* A destroyed context has no pending work. */
ad_status
ad_gpu_synchronize(ad_context context, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_result result = enter(gpu, context, &scope);
    if (result.code == AD_GPU_SUCCESS) {
        ad_gpu_relax(gpu, &scope);
        result =
            (ad_gpu_result){gpu->calls->synchronize(), gpu->names.synchronize};
        trim(gpu, context.device.id, KEPT_MAX);
        ad_gpu_leave(gpu, &scope);
    }
    if (context.handle != NULL && ad_gpu_is_gone(result.code)) {
        gpu->forget_error();
        return AD_OK;
    }
    return ad_gpu_check(gpu, context.device, result, err);
}

/* A destroyed context has destroyed its streams and events. */
static void
destroy(ad_context context, int (*call)(void *), void *handle)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    if (ad_gpu_enter(gpu, context, &scope, NULL) == AD_OK) {
        if (!ad_gpu_is_ok(call(handle))) {
            gpu->forget_error();
        }
        ad_gpu_leave(gpu, &scope);
    }
}

/* --- streams ------------------------------------------------------------- */

ad_status
ad_gpu_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    void *made = NULL;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result = {
        gpu->calls->stream_create(&made, AD_GPU_STREAM_NON_BLOCKING),
        gpu->names.stream_create};
    ad_gpu_leave(gpu, &scope);
    out->handle = (uintptr_t)made;
    return ad_gpu_check(gpu, context.device, result, err);
}

void
ad_gpu_stream_destroy(ad_context context, ad_stream stream)
{
    destroy(context, ad_gpu_of(context.device)->calls->stream_destroy,
            ad_gpu_handle(stream));
}

/* --- foreign streams and events ------------------------------------------ */

/* A stream with a handle of its own belongs to a fixed context, so a call on
 * it needs no current context. A default stream is a different one in each
 * context. */
static inline bool
has_handle(ad_context context, ad_stream stream)
{
    return !ad_stream_is_default(context.device, stream);
}

/* A call on handles has returned `code`. Is the call to be made again in the
 * stream's own context, which this function enters? The call may have failed
 * because of the current context: there is none, or it is destroyed or
 * broken. */
static bool
enters_after(const struct ad_gpu *gpu, ad_context context, int code,
             ad_gpu_scope *scope)
{
    if (!ad_gpu_is_gone(code) && !is_broken(code)) {
        return false;
    }
    gpu->forget_error();
    /* Foreign events have no context. A query must not create one: an unused
     * primary context takes memory and time. */
    ad_gpu_result result = context.handle == NULL
                               ? gpu->enter_existing(context, scope)
                               : enter(gpu, context, scope);
    return result.code == AD_GPU_SUCCESS && scope->is_moved;
}

/* A call on a stream with its argument: an event, or where the capture state
 * goes. */
typedef ad_gpu_result (*stream_call)(const struct ad_gpu *gpu,
                                     ad_stream stream, void *argument);

static inline ad_gpu_result
ask_capture(const struct ad_gpu *gpu, ad_stream stream, void *state)
{
    return (ad_gpu_result){
        gpu->calls->stream_is_capturing(ad_gpu_handle(stream), state),
        gpu->names.stream_is_capturing};
}

static inline ad_gpu_result
wait_for(const struct ad_gpu *gpu, ad_stream stream, void *event)
{
    return (ad_gpu_result){
        gpu->calls->stream_wait(ad_gpu_handle(stream), event, 0),
        gpu->names.stream_wait};
}

static inline ad_gpu_result
record(const struct ad_gpu *gpu, ad_stream stream, void *event)
{
    return (ad_gpu_result){
        gpu->calls->event_record(event, ad_gpu_handle(stream)),
        gpu->names.event_record};
}

/* The legacy stream must not be used while a stream that waits for it is
 * captured, since its use invalidates the capture. A query of its capture
 * state is allowed. */
static ad_gpu_result
ask_legacy(const struct ad_gpu *gpu, ad_context context, ad_stream stream)
{
    int state = 0;
    bool is_legacy = ad_stream_is_default(context.device, stream) &&
                     !ad_stream_is_per_thread(context.device, stream);
    return is_legacy ? ask_capture(gpu, stream, &state)
                     : (ad_gpu_result){AD_GPU_SUCCESS, NULL};
}

/* The uncommon case is a separate function, so that the common one needs
 * neither a stack frame nor a scope. */
#define SELDOM __attribute__((noinline, cold))

/* Makes a call in the stream's own context: on a default stream, or after
 * `result`. */
static SELDOM ad_status
call_inside(ad_context context, ad_stream stream, stream_call call,
            void *argument, ad_gpu_result result, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope = {.is_moved = false};
    bool is_inside;
    if (has_handle(context, stream)) {
        is_inside = enters_after(gpu, context, result.code, &scope);
    } else {
        result = enter(gpu, context, &scope);
        if (result.code == AD_GPU_SUCCESS && call != ask_capture) {
            result = ask_legacy(gpu, context, stream);
        }
        is_inside = result.code == AD_GPU_SUCCESS;
    }
    if (is_inside) {
        result = call(gpu, stream, argument);
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

static inline ad_status
call_on(ad_context context, ad_stream stream, stream_call call, void *argument,
        ad_error *err)
{
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    if (has_handle(context, stream)) {
        result = call(ad_gpu_of(context.device), stream, argument);
        if (result.code == AD_GPU_SUCCESS) {
            return AD_OK;
        }
    }
    return call_inside(context, stream, call, argument, result, err);
}

ad_status
ad_gpu_stream_is_capturing(ad_context context, ad_stream stream, bool *out,
                           ad_error *err)
{
    int state = 0; /* 1: active, 2: invalidated, but not ended yet */
    ad_status status = call_on(context, stream, ask_capture, &state, err);
    *out = state != 0;
    return status;
}

ad_status
ad_gpu_stream_wait(ad_context context, ad_stream stream, ad_event event,
                   ad_error *err)
{
    return call_on(context, stream, wait_for, event.handle, err);
}

/* --- events -------------------------------------------------------------- */

/* cuEventCreate: without BLOCKING_SYNC such events "will provide the best
 * performance when used with cuStreamWaitEvent() and cuEventQuery()". HIP keeps
 * its default fences, which make the work visible to the system. */
#define EVENT_FLAGS AD_GPU_EVENT_DISABLE_TIMING

/* The runtime creates an event in the current context. */
static SELDOM ad_status
record_first(ad_context context, ad_stream stream, ad_event *event,
             ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    void *made = NULL;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_result result = ask_legacy(gpu, context, stream);
    if (result.code == AD_GPU_SUCCESS) {
        result = (ad_gpu_result){gpu->calls->event_create(&made, EVENT_FLAGS),
                                 gpu->names.event_create};
    }
    if (result.code == AD_GPU_SUCCESS) {
        result = record(gpu, stream, made);
        if (result.code == AD_GPU_SUCCESS) {
            event->handle = made;
        } else {
            (void)gpu->calls->event_destroy(made);
        }
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

/* Record on a default stream without a look at the current context: if it is
 * another one, the record fails. */
static bool
record_where_current(ad_context context, ad_stream stream, ad_event event)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    return ask_legacy(gpu, context, stream).code == AD_GPU_SUCCESS &&
           record(gpu, stream, event.handle).code == AD_GPU_SUCCESS;
}

ad_status
ad_gpu_event_record(ad_context context, ad_stream stream, ad_event *event,
                    ad_error *err)
{
    if (event->handle == NULL) {
        return record_first(context, stream, event, err);
    }
    if (!has_handle(context, stream) &&
        ad_gpu_of(context.device)->record_checks_context &&
        record_where_current(context, stream, *event)) {
        return AD_OK;
    }
    return call_on(context, stream, record, event->handle, err);
}

/* Calls a function of an event, which may be foreign. Called while the thread
 * is relaxed. */
static int
ask_event(const struct ad_gpu *gpu, ad_context context, int (*call)(void *),
          ad_event event)
{
    ad_gpu_scope scope = {.is_moved = false};
    int code = call(event.handle);
    if (enters_after(gpu, context, code, &scope)) {
        code = call(event.handle);
    }
    ad_gpu_leave(gpu, &scope);
    return code;
}

ad_status
ad_gpu_event_query(ad_context context, ad_event event, bool *out,
                   ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result = {
        ask_event(gpu, context, gpu->calls->event_query, event),
        gpu->names.event_query};
    ad_gpu_leave(gpu, &scope);
    *out = result.code == AD_GPU_SUCCESS;
    if (result.code == AD_GPU_NOT_READY) {
        gpu->forget_error();
        return AD_OK;
    }
    return ad_gpu_check(gpu, context.device, result, err);
}

/* The runtime's wait for an event without BLOCKING_SYNC takes a processor, and
 * nothing tells the flags of a foreign event. A second event with that flag
 * would need a stream that waits for the first one, and so a hardware queue. So
 * the host polls. The runtime's wait for the completed event returns at once;
 * with it the runtime gives unused memory of pools back. */
ad_status
ad_gpu_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    const int64_t begun = ad_now();
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_result result = {AD_GPU_NOT_READY, gpu->names.event_query};
    ad_gpu_relax(gpu, &scope);
    for (;;) {
        result.code = ask_event(gpu, context, gpu->calls->event_query, event);
        if (result.code != AD_GPU_NOT_READY) {
            break;
        }
        gpu->forget_error();
        ad_wait_pause(begun);
    }
    if (result.code == AD_GPU_SUCCESS) {
        result = (ad_gpu_result){
            ask_event(gpu, context, gpu->calls->event_synchronize, event),
            gpu->names.event_synchronize};
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

void
ad_gpu_event_destroy(ad_context context, ad_event event)
{
    destroy(context, ad_gpu_of(context.device)->calls->event_destroy,
            event.handle);
}
