/* CUDA, through its driver library. No toolkit is needed to build or to run.
 *
 * Every stream is named by a handle of its own. Default streams are 1 (legacy)
 * and 2 (per thread). 0 is never used, since its meaning depends on how a
 * program was compiled.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "device/dynlib.h"
#include "device/gpu/cuda.h"

/* --- the library --------------------------------------------------------- */

static const ad_symbol symbols[] = {
#define AD_CUDA_COMMON(member, exported, need, parameters)                    \
    {exported, offsetof(struct ad_cuda_calls, common.member), AD_##need},
#define AD_CUDA(member, exported, need, parameters)                           \
    {exported, offsetof(struct ad_cuda_calls, member), AD_##need},
#include "abi/cuda_api.def"
};

const struct ad_cuda_names ad_cuda_names = {
#define AD_CUDA(member, exported, need, parameters) .member = exported,
#include "abi/cuda_api.def"
};

static const char *const sonames[] = {
    AD_LIBRARY_FILE("libcuda.so.1", "libcuda.dylib", "nvcuda.dll"),
    AD_LIBRARY_FILE("libcuda.so", NULL, NULL), NULL};

static const ad_library library = {
    .name = "cuda",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

/* A wrong guess costs a call that fails, and a right one saves a call. */
#define N_NO_GUESSES 64

struct cuda_device {
    int device;              /* CUdevice */
    _Atomic(void *) primary; /* primary context, never released */
    atomic_int no_guesses;   /* so many streams are not guessed */
    ad_gpu_pools pools;
};

/* Written by load() only. */
struct ad_cuda_calls ad_cuda;
static char cuda_path[AD_LIBRARY_PATH_SIZE];
static int n_devices;
static struct cuda_device *devices;

static _Atomic(ad_gpu_module *) cuda_modules;

static const char *
cuda_error_name(int code)
{
    const char *name = NULL;
    if (code == AD_CUDA_STUB_LIBRARY) {
        return "CUDA_ERROR_STUB_LIBRARY"; /* a stub does not name it */
    }
    return ad_cuda.error_name(code, &name) == AD_GPU_SUCCESS ? name : NULL;
}

static void
cuda_forget_error(void)
{
    /* The driver keeps no last error. */
}

static const char *
start_hint(int code)
{
    return code == AD_CUDA_STUB_LIBRARY
               ? "this is the toolkit's stub library, which is for linking "
                 "only: install NVIDIA's driver, and take the folder \"stubs\" "
                 "out of LD_LIBRARY_PATH"
               : "see whether nvidia-smi works; the driver's module may not "
                 "be loaded, or not fit the library";
}

/* *n is the number of devices, 0 where the driver says that there is none. */
static ad_gpu_result
start(int *n)
{
    ad_gpu_result result = CUDA(init, 0);
    if (result.code == AD_GPU_SUCCESS) {
        result = CUDA(device_count, n);
    }
    if (result.code == AD_GPU_NO_DEVICE) {
        *n = 0;
        result.code = AD_GPU_SUCCESS;
    }
    return result;
}

static ad_status
cuda_load(ad_error *err)
{
    int n = 0;
    AD_RETURN_IF_ERR(ad_library_load(&library, &ad_cuda, cuda_path, err));
    ad_gpu_result result = start(&n);
    if (result.code == AD_GPU_SUCCESS && n > 0) {
        devices = calloc((size_t)n, sizeof(*devices));
        if (devices == NULL) {
            return ad_fail_memory(err, (size_t)n * sizeof(*devices));
        }
    }
    for (int i = 0; i < n && result.code == AD_GPU_SUCCESS; i++) {
        result = CUDA(device_get, &devices[i].device, i);
    }
    if (result.code != AD_GPU_SUCCESS) {
        free(devices);
        devices = NULL;
        return ad_gpu_fail_start(&ad_gpu_cuda, result, start_hint(result.code),
                                 err);
    }
    n_devices = n > 0 ? n : 0;
    return AD_OK;
}

static ad_status
cuda_describe(char *buffer, size_t size, ad_error *err)
{
    int version = 0;
    ad_gpu_result result = CUDA(driver_version, &version);
    AD_RETURN_IF_ERR(ad_gpu_check(
        &ad_gpu_cuda, (ad_device){ARROW_DEVICE_CUDA, -1}, result, err));
    snprintf(buffer, size, "CUDA driver for CUDA %d.%d (%s)", version / 1000,
             version % 1000 / 10, cuda_path);
    return AD_OK;
}

static ad_status
cuda_count(int64_t *out, ad_error *err)
{
    *out = n_devices;
    return AD_OK;
}

static ad_status
cuda_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    const ad_device device = {ARROW_DEVICE_CUDA, id};
    AD_RETURN_IF_ERR(ad_gpu_check_id(&ad_gpu_cuda, device, err));
    ad_gpu_result result =
        CUDA(device_name, buffer, (int)size, devices[id].device);
    return ad_gpu_check(&ad_gpu_cuda, device, result, err);
}

static ad_status
cuda_device_uuid(int64_t id, unsigned char out[AD_UUID_SIZE], ad_error *err)
{
    const ad_device device = {ARROW_DEVICE_CUDA, id};
    struct ad_gpu_uuid uuid;
    AD_RETURN_IF_ERR(ad_gpu_check_id(&ad_gpu_cuda, device, err));
    AD_GPU_NEED(&ad_gpu_cuda, ad_cuda, ad_cuda_names, device_uuid, device,
                err);
    ad_gpu_result result = CUDA(device_uuid, &uuid, devices[id].device);
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_cuda, device, result, err));
    memcpy(out, uuid.bytes, AD_UUID_SIZE);
    return AD_OK;
}

/* --- contexts ------------------------------------------------------------ */

/* The primary context of a device, retained on first use. Two threads may both
 * retain it: the count is then two, and the context is the same. */
static ad_gpu_result
cuda_primary(int64_t id, void **out)
{
    struct cuda_device *device = &devices[id];
    int code = AD_GPU_SUCCESS;
    *out = atomic_load_explicit(&device->primary, memory_order_acquire);
    if (*out == NULL) {
        code = ad_cuda.primary_retain(out, device->device);
        if (code == AD_GPU_SUCCESS) {
            atomic_store_explicit(&device->primary, *out,
                                  memory_order_release);
        }
    }
    return (ad_gpu_result){code, ad_cuda_names.primary_retain};
}

/* Is the primary context active, so that a retain does not create it? */
static bool
is_primary_active(int64_t id)
{
    unsigned int flags;
    int is_active = 0;
    return atomic_load_explicit(&devices[id].primary, memory_order_acquire) !=
               NULL ||
           (ad_cuda.primary_state(devices[id].device, &flags, &is_active) ==
                AD_GPU_SUCCESS &&
            is_active);
}

/* The device whose primary context this is. -1: no known one. */
static int64_t
id_of_primary(const void *handle)
{
    for (int i = 0; i < n_devices; i++) {
        if (atomic_load_explicit(&devices[i].primary, memory_order_acquire) ==
            handle) {
            return i;
        }
    }
    return -1;
}

static ad_gpu_result
cuda_current(void **handle, int64_t *id)
{
    int device;
    *id = -1;
    ad_gpu_result result = CUDA(context_get_current, handle);
    if (result.code != AD_GPU_SUCCESS || *handle == NULL) {
        return result;
    }
    *id = id_of_primary(*handle);
    if (*id >= 0) {
        return result;
    }
    result = CUDA(context_device, &device);
    for (int i = 0; result.code == AD_GPU_SUCCESS && i < n_devices; i++) {
        if (devices[i].device == device) {
            *id = i;
        }
    }
    return result;
}

static ad_status
cuda_describe_current(char *buffer, size_t size, ad_error *err)
{
    void *handle;
    int64_t id;
    ad_gpu_result result = cuda_current(&handle, &id);
    AD_RETURN_IF_ERR(ad_gpu_check(
        &ad_gpu_cuda, (ad_device){ARROW_DEVICE_CUDA, -1}, result, err));
    int n = handle == NULL
                ? snprintf(buffer, size, "no context is current")
                : snprintf(buffer, size, "context %p of cuda:%lld is current",
                           handle, (long long)id);
    for (int i = 0; i < n_devices && (size_t)n < size; i++) {
        if (is_primary_active(i)) {
            n += snprintf(buffer + n, size - (size_t)n,
                          ", the primary one of cuda:%d is in use", i);
        }
    }
    return AD_OK;
}

/* The context for work on `device` that names none. It is the current context
 * if that is on the device, as for every CUDA program, and otherwise the
 * primary one. An id of -1 means the current context. NULL: there is none. */
static ad_gpu_result
context_for(ad_device device, void **out, int64_t *id, bool *is_current)
{
    const ad_context *held = ad_gpu_held(&ad_gpu_cuda);
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    if (held != NULL) {
        *out = held->handle;
        *id = held->device.id;
    } else {
        result = cuda_current(out, id);
    }
    *is_current = device.id < 0 || *id == device.id;
    if (result.code != AD_GPU_SUCCESS || *is_current) {
        return result;
    }
    *id = device.id;
    return device.id < n_devices ? cuda_primary(device.id, out)
                                 : (ad_gpu_result){AD_GPU_INVALID_DEVICE,
                                                   ad_cuda_names.device_get};
}

static ad_gpu_result
cuda_enter(ad_context context, ad_gpu_scope *scope)
{
    void *now = NULL;
    bool is_current = false;
    if (context.handle == NULL) {
        ad_gpu_result result = context_for(context.device, &context.handle,
                                           &context.device.id, &is_current);
        if (result.code != AD_GPU_SUCCESS || context.handle == NULL) {
            /* No context: the runtime decides whether that is an error. */
            return result;
        }
    }
    scope->entered = context;
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    if (!is_current) {
        result = CUDA(context_get_current, &now);
        is_current = now == context.handle;
    }
    if (result.code == AD_GPU_SUCCESS && !is_current) {
        result = CUDA(context_push, context.handle);
        scope->is_moved = result.code == AD_GPU_SUCCESS;
    }
    return result;
}

/* Enters the device's primary context if it is active. Otherwise the current
 * context stays, or none: the driver decides whether that is an error. */
static ad_gpu_result
cuda_enter_existing(ad_context context, ad_gpu_scope *scope)
{
    const int64_t id = context.device.id;
    if (id < 0 || id >= n_devices || !is_primary_active(id)) {
        return (ad_gpu_result){AD_GPU_SUCCESS, NULL};
    }
    return cuda_enter(context, scope);
}

static void
cuda_leave(const ad_gpu_scope *scope)
{
    void *ours;
    (void)ad_cuda.context_pop(&ours);
}

/* --- streams ------------------------------------------------------------- */

/* Retain the primary context, so that the driver need not be asked for the
 * context of most streams. It is active, so the retain creates nothing. */
static void
remember_primary(int64_t id)
{
    void *primary;
    if (id >= 0 &&
        atomic_load_explicit(&devices[id].primary, memory_order_acquire) ==
            NULL &&
        is_primary_active(id)) {
        (void)cuda_primary(id, &primary);
    }
}

/* The device of a stream's context. Nearly all are primary contexts, for which
 * the driver is not asked. */
static ad_gpu_result
device_of_context(void *handle, int64_t *out)
{
    *out = id_of_primary(handle);
    if (*out >= 0) {
        return (ad_gpu_result){AD_GPU_SUCCESS, NULL};
    }
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_result result = cuda_enter((ad_context){.handle = handle}, &scope);
    if (result.code == AD_GPU_SUCCESS) {
        void *same;
        result = cuda_current(&same, out);
        ad_gpu_leave(&ad_gpu_cuda, &scope);
    }
    if (result.code == AD_GPU_SUCCESS && *out >= 0) {
        remember_primary(*out);
        if (id_of_primary(handle) < 0) {
            atomic_store_explicit(&devices[*out].no_guesses, N_NO_GUESSES,
                                  memory_order_relaxed);
        }
    }
    return result;
}

/* The primary context, unless a stream of another one was seen. A default
 * stream belongs to the current context, which may be another one. */
static bool
cuda_likely_context(ad_stream stream, ad_device device, ad_context *out)
{
    if (device.type != ARROW_DEVICE_CUDA || device.id < 0 ||
        device.id >= n_devices || stream.handle == AD_STREAM_NULL) {
        return false;
    }
    struct cuda_device *on = &devices[device.id];
    int left = atomic_load_explicit(&on->no_guesses, memory_order_relaxed);
    if (left > 0) {
        atomic_store_explicit(&on->no_guesses, left - 1, memory_order_relaxed);
        return false;
    }
    *out = (ad_context){
        device, atomic_load_explicit(&on->primary, memory_order_acquire)};
    return out->handle != NULL;
}

static ad_status
cuda_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                    ad_error *err)
{
    const bool is_default = stream.handle <= AD_CUDA_STREAM_PER_THREAD;
    bool is_current;
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    void *handle = hint.handle;
    int64_t id = hint.device.id;
    if (!is_default) {
        result = CUDA(stream_context, (void *)stream.handle, &handle);
        if (result.code == AD_GPU_SUCCESS) {
            result = device_of_context(handle, &id);
        }
    } else if (handle == NULL) {
        result = context_for(hint.device, &handle, &id, &is_current);
    }
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_cuda, hint.device, result, err));
    if (handle == NULL) {
        return ad_fail_on(
            err, hint.device, "stream",
            "say which device is meant (device=), or make it current",
            "a default stream of CUDA is named, but not the device, and none "
            "is current on this thread");
    }
    *out = (ad_context){{ARROW_DEVICE_CUDA, id}, handle};
    return ad_gpu_check_stream(&ad_gpu_cuda, stream, hint.device, out->device,
                               err);
}

static bool
cuda_stream_id(ad_context context, ad_stream stream, uint64_t *out)
{
    unsigned long long id;
    bool has_id = ad_cuda.stream_id != NULL &&
                  ad_gpu_is_ok(ad_cuda.stream_id((void *)stream.handle, &id));
    *out = has_id ? id : 0;
    return has_id;
}

static bool
cuda_stream_is_idle(ad_context context, ad_stream stream)
{
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_relax(&ad_gpu_cuda, &scope);
    bool is_idle =
        ad_cuda.stream_query((void *)stream.handle) == AD_GPU_SUCCESS;
    ad_gpu_leave(&ad_gpu_cuda, &scope);
    return is_idle;
}

/* --- memory -------------------------------------------------------------- */

struct pointer_facts {
    void *handle;
    int memory_type;
    int ordinal;
    uint64_t is_managed; /* the driver writes only some of its bytes */
};

static int
ask_pointer(const void *pointer, struct pointer_facts *facts)
{
    int attributes[] = {AD_CUDA_POINTER_CONTEXT, AD_CUDA_POINTER_MEMORY_TYPE,
                        AD_CUDA_POINTER_DEVICE_ORDINAL,
                        AD_CUDA_POINTER_IS_MANAGED};
    void *into[] = {&facts->handle, &facts->memory_type, &facts->ordinal,
                    &facts->is_managed};
    *facts = (struct pointer_facts){NULL, 0, -2, 0};
    return ad_cuda.pointer_attributes(4, attributes, into, (uintptr_t)pointer);
}

/* Old drivers require a current context even for this query. The primary one
 * of the hint serves, but it is not created for it. */
static int
ask_pointer_inside(const void *pointer, ad_device hint,
                   struct pointer_facts *facts)
{
    ad_gpu_scope scope = {.is_moved = false};
    ad_context primary = {.device = hint};
    if (hint.id < 0 || hint.id >= n_devices || !is_primary_active(hint.id) ||
        cuda_primary(hint.id, &primary.handle).code != AD_GPU_SUCCESS ||
        cuda_enter(primary, &scope).code != AD_GPU_SUCCESS) {
        return AD_GPU_INVALID_CONTEXT;
    }
    int code = ask_pointer(pointer, facts);
    ad_gpu_leave(&ad_gpu_cuda, &scope);
    return code;
}

/* Can the host read at this address? */
static bool
is_readable(const void *pointer)
{
    return ad_os_can_read_word(
        (const void *)((uintptr_t)pointer & ~(uintptr_t)7));
}

/* The device for memory that the driver names none for: the one of the hint,
 * the current one, or the first. */
static int64_t
device_without_ordinal(ad_device hint)
{
    void *handle;
    int64_t id = hint.id;
    if (id < 0 && cuda_current(&handle, &id).code != AD_GPU_SUCCESS) {
        id = -1;
    }
    return id < 0 ? 0 : id;
}

/* Memory that the driver does not know. A device with HMM or ATS accesses all
 * memory of the host, as it accesses managed memory. An address that the host
 * cannot read is of memory that was freed. */
static void
classify_pageable(const void *pointer, ad_device hint, ad_memory_info *out)
{
    const int64_t id = device_without_ordinal(hint);
    int has_access = 0;
    if (id < n_devices &&
        ad_cuda.device_attribute(&has_access, AD_CUDA_DEVICE_PAGEABLE_ACCESS,
                                 devices[id].device) == AD_GPU_SUCCESS &&
        has_access != 0 && is_readable(pointer)) {
        out->context = (ad_context){{ARROW_DEVICE_CUDA_MANAGED, id}, NULL};
        out->host_accessible = true;
    }
}

ad_status
ad_cuda_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                 ad_error *err)
{
    struct pointer_facts facts;
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED, .context = hint};
    int code = ask_pointer(pointer, &facts);
    if (code == AD_GPU_INVALID_CONTEXT) {
        code = ask_pointer_inside(pointer, hint.device, &facts);
    }
    /* An unknown pointer: some drivers return 1, others no memory type. */
    if (code == AD_GPU_INVALID_VALUE ||
        (code == AD_GPU_SUCCESS && facts.memory_type == 0 &&
         facts.is_managed == 0)) {
        classify_pageable(pointer, hint.device, out);
        return AD_OK;
    }
    if (code != AD_GPU_SUCCESS) {
        return ad_gpu_fail(
            &ad_gpu_cuda, hint.device,
            (ad_gpu_result){code, ad_cuda_names.pointer_attributes}, err);
    }
    int32_t type;
    if (facts.is_managed != 0) {
        out->kind = AD_MEMORY_MANAGED;
        type = ARROW_DEVICE_CUDA_MANAGED;
    } else if (facts.memory_type == AD_CUDA_MEMORY_HOST) {
        out->kind = AD_MEMORY_PINNED;
        type = ARROW_DEVICE_CUDA_HOST;
    } else if (facts.memory_type == AD_CUDA_MEMORY_DEVICE) {
        out->kind = AD_MEMORY_DEVICE;
        type = ARROW_DEVICE_CUDA;
    } else {
        return ad_gpu_fail_kind(&ad_gpu_cuda, hint.device, facts.memory_type,
                                err);
    }
    /* Memory of a pool belongs to no context: NULL. Managed memory of a pool
     * may belong to no device either. */
    out->context = (ad_context){
        {type, facts.ordinal >= 0 ? facts.ordinal
                                  : device_without_ordinal(hint.device)},
        facts.handle};
    out->host_accessible = out->kind != AD_MEMORY_DEVICE;
    return AD_OK;
}

static ad_gpu_pools *
cuda_pools(int64_t id)
{
    return &devices[id].pools;
}

static bool
cuda_has_pools(int64_t id)
{
    int value = 0;
    return ad_cuda.memory_alloc_async != NULL &&
           ad_cuda.memory_free_async != NULL &&
           ad_cuda.device_attribute(&value, AD_CUDA_DEVICE_HAS_POOLS,
                                    devices[id].device) == AD_GPU_SUCCESS &&
           value != 0;
}

static ad_gpu_result
cuda_allocate(ad_context context, bool is_ordered, void *pool, void *stream,
              size_t nbytes, void **out)
{
    uint64_t made = 0;
    ad_gpu_result result;
    if (context.device.type == ARROW_DEVICE_CUDA_MANAGED) {
        result =
            CUDA(memory_alloc_managed, &made, nbytes, AD_CUDA_MANAGED_GLOBAL);
    } else if (!is_ordered) {
        result = CUDA(memory_alloc, &made, nbytes);
    } else if (pool != NULL && ad_cuda.memory_alloc_from_pool != NULL) {
        result = CUDA(memory_alloc_from_pool, &made, nbytes, pool, stream);
    } else {
        result = CUDA(memory_alloc_async, &made, nbytes, stream);
    }
    *out = (void *)(uintptr_t)made;
    return result;
}

static int
cuda_free_ordered(void *data, void *stream)
{
    return ad_cuda.memory_free_async((uintptr_t)data, stream);
}

static int
cuda_free(void *data)
{
    return ad_cuda.memory_free((uintptr_t)data);
}

static uint64_t
cuda_allocation_id(void *data)
{
    int attribute = AD_GPU_POINTER_BUFFER_ID;
    uint64_t id = 0;
    void *into[] = {&id};
    return ad_cuda.pointer_attributes(1, &attribute, into, (uintptr_t)data) ==
                   AD_GPU_SUCCESS
               ? id
               : 0;
}

/* --- copies -------------------------------------------------------------- */

static int
memory_type_of(ad_span span)
{
    const int32_t type = span.context.device.type;
    return type == ARROW_DEVICE_CPU    ? AD_CUDA_MEMORY_HOST
           : type == ARROW_DEVICE_CUDA ? AD_CUDA_MEMORY_DEVICE
                                       : AD_CUDA_MEMORY_UNIFIED;
}

static ad_gpu_result
cuda_copy(const ad_block_copy *copy, void *stream)
{
    void *target = ad_gpu_pointer(copy->target);
    const void *source = ad_gpu_pointer(copy->source);
    if (copy->height == 1) {
        return CUDA(copy, (uintptr_t)target, (uintptr_t)source, copy->width,
                    stream);
    }
    /* For each side the driver reads only the member that its type selects. */
    const struct ad_cuda_copy_2d block = {
        .source_type = memory_type_of(copy->source),
        .source_host = source,
        .source_device = (uintptr_t)source,
        .source_pitch = copy->source_pitch,
        .target_type = memory_type_of(copy->target),
        .target_host = target,
        .target_device = (uintptr_t)target,
        .target_pitch = copy->target_pitch,
        .width = copy->width,
        .height = copy->height,
    };
    return CUDA(copy_2d, &block, stream);
}

/* The context of one side of a peer copy. Pool memory has none, and any
 * context of its device serves. */
static ad_gpu_result
context_of(ad_context context, void **out)
{
    *out = context.handle;
    if (context.handle != NULL) {
        return (ad_gpu_result){AD_GPU_SUCCESS, NULL};
    }
    if (context.device.id < 0 || context.device.id >= n_devices) {
        return (ad_gpu_result){AD_GPU_INVALID_DEVICE, ad_cuda_names.copy_peer};
    }
    return cuda_primary(context.device.id, out);
}

static ad_gpu_result
cuda_copy_peer(const ad_block_copy *copy, void *stream)
{
    void *target = NULL;
    void *source = NULL;
    ad_gpu_result result = context_of(copy->target.context, &target);
    if (result.code == AD_GPU_SUCCESS) {
        result = context_of(copy->source.context, &source);
    }
    if (result.code == AD_GPU_SUCCESS) {
        result = CUDA(copy_peer, (uintptr_t)ad_gpu_pointer(copy->target),
                      target, (uintptr_t)ad_gpu_pointer(copy->source), source,
                      copy->width, stream);
    }
    return result;
}

/* --- kernels ------------------------------------------------------------- */

/* A new context may get the address of a destroyed one, but its number is
 * never reused. Drivers before CUDA 12 have no numbers. There only primary
 * contexts, which stay alive, can be told apart. */
static ad_status
cuda_module_key(ad_context context, uint64_t *out, ad_error *err)
{
    void *handle;
    int64_t id;
    unsigned long long number;
    ad_gpu_result result = cuda_current(&handle, &id);
    if (result.code == AD_GPU_SUCCESS && ad_cuda.context_id != NULL) {
        result = CUDA(context_id, handle, &number);
        *out = number;
    } else if (result.code == AD_GPU_SUCCESS) {
        if (id < 0 || handle != atomic_load(&devices[id].primary)) {
            return ad_fail(err, AD_ERR_EXCHANGE, "kernel",
                           "install a driver for CUDA 12 or later, use the "
                           "device's primary context, or copy the data to "
                           "the host first with .to(\"cpu\")",
                           "this CUDA driver cannot tell contexts apart, so "
                           "that arrowdev's kernels run in primary ones only");
        }
        *out = (uint64_t)id;
    }
    return ad_gpu_check(&ad_gpu_cuda, context.device, result, err);
}

static ad_status
cuda_module_image(ad_kernel kernel, const void **out, void **release,
                  ad_error *err)
{
    *out = ad_kernels_ptx[kernel];
    *release = NULL;
    return AD_OK;
}

/* --- the backend --------------------------------------------------------- */

const struct ad_gpu ad_gpu_cuda = {
    .name = "CUDA",
    .calls = &ad_cuda.common,
    .names =
        {
#define AD_CUDA_COMMON(member, exported, need, parameters) .member = exported,
#include "abi/cuda_api.def"
        },
    .modules = &cuda_modules,
    .device_type = ARROW_DEVICE_CUDA,
    .host_type = ARROW_DEVICE_CUDA_HOST,
    .n_devices = &n_devices,
    .error_name = cuda_error_name,
    .forget_error = cuda_forget_error,
    .enter = cuda_enter,
    .enter_existing = cuda_enter_existing,
    .leave = cuda_leave,
    .current = cuda_current,
    .primary = cuda_primary,
    .record_checks_context = true,
    .pools = cuda_pools,
    .has_pools = cuda_has_pools,
    .allocate = cuda_allocate,
    .free_ordered = cuda_free_ordered,
    .free = cuda_free,
    .allocation_id = cuda_allocation_id,
    .copy = cuda_copy,
    .copy_peer = cuda_copy_peer,
    .module_key = cuda_module_key,
    .has_module_per_kernel = true,
    .module_image = cuda_module_image,
};

const struct ad_backend ad_backend_cuda = {
    .name = "cuda",
    .device_types =
        (const int32_t[]){ARROW_DEVICE_CUDA, ARROW_DEVICE_CUDA_HOST,
                          ARROW_DEVICE_CUDA_MANAGED, 0},
    .capabilities = AD_CAP_IN_ORDER | AD_CAP_EVENTS_REUSABLE |
                    AD_CAP_ORDERED_DEALLOCATE | AD_CAP_CAPTURE |
                    AD_CAP_CONTEXT_IDLE | AD_CAP_STAGES,
    .load = cuda_load,
    .describe = cuda_describe,
    .count = cuda_count,
    .device_name = cuda_device_name,
    .describe_current = cuda_describe_current,
    .classify = ad_cuda_classify,
    .likely_context = cuda_likely_context,
    .stream_context = cuda_stream_context,
    .stream_id = cuda_stream_id,
    .n_refused = ad_gpu_n_refused,
    .stream_is_idle = cuda_stream_is_idle,
    .device_uuid = cuda_device_uuid,
    .memory_export = ad_cuda_memory_export,
    .memory_open = ad_cuda_memory_open,
    .memory_close = ad_cuda_memory_close,
    .event_open = ad_gpu_event_open,
    AD_GPU_SLOTS,
};
