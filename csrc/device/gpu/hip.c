/* HIP (ROCm), the counterpart of cuda.c. HIP has no contexts but a current
 * device on each thread. It keeps the error of a failed call as the thread's
 * last error, so this backend clears its own errors at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "device/dynlib.h"
#include "device/gpu/gpu.h"

/* --- the library --------------------------------------------------------- */

struct hip_calls {
    struct ad_gpu_calls common;
#define AD_HIP(member, exported, need, parameters) int(*member) parameters;
#define AD_HIP_RETURNS(result, member, exported, need, parameters)            \
    result(*member) parameters;
#include "abi/hip_api.def"
};

static const ad_symbol symbols[] = {
#define AD_HIP_COMMON(member, exported, need, parameters)                     \
    {exported, offsetof(struct hip_calls, common.member), AD_##need},
#define AD_HIP(member, exported, need, parameters)                            \
    {exported, offsetof(struct hip_calls, member), AD_##need},
#define AD_HIP_RETURNS(result, member, exported, need, parameters)            \
    {exported, offsetof(struct hip_calls, member), AD_##need},
#include "abi/hip_api.def"
};

/* The functions are called through the types of struct ad_gpu_calls. */
#define AD_HIP_COMMON(member, exported, need, parameters)                     \
    _Static_assert(__builtin_types_compatible_p(                              \
                       __typeof__(((struct ad_gpu_calls *)0)->member),        \
                       int(*) parameters),                                    \
                   exported);
#include "abi/hip_api.def"

/* The exported names, for messages. */
static const struct {
#define AD_HIP(member, exported, need, parameters) const char *member;
#include "abi/hip_api.def"
} names = {
#define AD_HIP(member, exported, need, parameters) .member = exported,
#include "abi/hip_api.def"
};

/* The result of a call of the runtime. */
#define HIP(member, ...)                                                      \
    (ad_gpu_result)                                                           \
    {                                                                         \
        hip.member(__VA_ARGS__), names.member                                 \
    }

static const char *const sonames[] = {
    AD_LIBRARY_FILE("libamdhip64.so", "libamdhip64.dylib", "amdhip64.dll"),
    AD_LIBRARY_FILE("libamdhip64.so.7", NULL, "amdhip64_7.dll"),
    AD_LIBRARY_FILE("libamdhip64.so.6", NULL, "amdhip64_6.dll"),
    AD_LIBRARY_FILE("libamdhip64.so.5", NULL, NULL),
    NULL,
};

static const ad_library library = {
    .name = "hip",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
    .is_in_wheels = true,
};

/* Written by load() only. */
static struct hip_calls hip;
static char hip_path[AD_LIBRARY_PATH_SIZE];
static int hip_version;
static int n_devices;

static _Atomic(ad_gpu_module *) hip_modules;

static const char *
hip_error_name(int code)
{
    return hip.error_name(code);
}

static void
hip_forget_error(void)
{
    (void)hip.last_error();
}

static ad_gpu_result
start(int *n)
{
    ad_gpu_result result = HIP(runtime_version, &hip_version);
    if (result.code != AD_GPU_SUCCESS) {
        return result;
    }
    /* Without a device hipInit() fails in various ways. The number of devices
     * tells whether that is the only cause. */
    const int init = hip.init(0);
    result = HIP(device_count, n);
    if (result.code == AD_GPU_NO_DEVICE) {
        *n = 0;
        result.code = AD_GPU_SUCCESS;
    } else if (init != AD_GPU_SUCCESS) {
        result = (ad_gpu_result){init, names.init};
    }
    return result;
}

static ad_status
hip_load(ad_error *err)
{
    int n = 0;
    AD_RETURN_IF_ERR(ad_library_load(&library, &hip, hip_path, err));
    ad_gpu_result result = start(&n);
    hip_forget_error();
    if (result.code != AD_GPU_SUCCESS) {
        return ad_gpu_fail_start(&ad_gpu_hip, result,
                                 "see whether rocminfo works; this user may "
                                 "lack the right to use /dev/kfd",
                                 err);
    }
    n_devices = n;
    return AD_OK;
}

static ad_status
hip_describe(char *buffer, size_t size, ad_error *err)
{
    snprintf(buffer, size, "HIP %d.%d (%s)",
             hip_version / AD_HIP_VERSION_MAJOR,
             hip_version % AD_HIP_VERSION_MAJOR / 100000, hip_path);
    return AD_OK;
}

static ad_status
hip_count(int64_t *out, ad_error *err)
{
    *out = n_devices;
    return AD_OK;
}

static ad_status
hip_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    const ad_device device = {ARROW_DEVICE_ROCM, id};
    AD_RETURN_IF_ERR(ad_gpu_check_id(&ad_gpu_hip, device, err));
    ad_gpu_result result = HIP(device_name, buffer, (int)size, (int)id);
    return ad_gpu_check(&ad_gpu_hip, device, result, err);
}

static ad_status
hip_device_uuid(int64_t id, unsigned char out[AD_UUID_SIZE], ad_error *err)
{
    const ad_device device = {ARROW_DEVICE_ROCM, id};
    struct ad_gpu_uuid uuid;
    AD_RETURN_IF_ERR(ad_gpu_check_id(&ad_gpu_hip, device, err));
    AD_GPU_NEED(&ad_gpu_hip, hip, names, device_uuid, device, err);
    ad_gpu_result result = HIP(device_uuid, &uuid, (int)id);
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, device, result, err));
    memcpy(out, uuid.bytes, AD_UUID_SIZE);
    return AD_OK;
}

/* --- the current device -------------------------------------------------- */

static ad_gpu_result
hip_current(void **handle, int64_t *id)
{
    int device = -1;
    ad_gpu_result result = HIP(device_get_current, &device);
    *handle = NULL;
    *id = device;
    return result;
}

static ad_gpu_result
hip_primary(int64_t id, void **out)
{
    *out = NULL;
    return (ad_gpu_result){AD_GPU_SUCCESS, NULL};
}

static ad_status
hip_describe_current(char *buffer, size_t size, ad_error *err)
{
    void *handle;
    ad_device device = {ARROW_DEVICE_ROCM, -1};
    char name[AD_DEVICE_NAME_SIZE];
    ad_gpu_result result = hip_current(&handle, &device.id);
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, device, result, err));
    snprintf(buffer, size, "%s is the current device",
             ad_device_format(device, name));
    return AD_OK;
}

static ad_gpu_result
hip_enter(ad_context context, ad_gpu_scope *scope)
{
    ad_gpu_result result = HIP(device_get_current, &scope->device);
    /* An id of -1 means the current device. */
    if (result.code == AD_GPU_SUCCESS && context.device.id >= 0 &&
        scope->device != context.device.id) {
        result = HIP(device_set_current, (int)context.device.id);
        scope->is_moved = result.code == AD_GPU_SUCCESS;
    }
    return result;
}

static void
hip_leave(const ad_gpu_scope *scope)
{
    (void)hip.device_set_current(scope->device);
}

/* --- streams ------------------------------------------------------------- */

/* The device of a stream with a handle of its own. -1 if this version of HIP
 * cannot tell. */
static ad_gpu_result
device_of_stream(ad_stream stream, int64_t *out)
{
    void *handle = (void *)stream.handle;
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    int id = -1;
    if (hip.stream_device != NULL) {
        result = HIP(stream_device, handle, &id);
    } else if (hip.stream_device_id != NULL) {
        id = hip.stream_device_id(handle);
    }
    *out = id;
    return result;
}

static ad_status
hip_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                   ad_error *err)
{
    const bool is_default = stream.handle <= AD_STREAM_PER_THREAD;
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    void *handle;
    int64_t id = -1;
    if (!is_default) {
        result = device_of_stream(stream, &id);
    } else if (hint.device.id < 0) {
        result = hip_current(&handle, &id);
    }
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, hint.device, result, err));
    if (id < 0) {
        id = hint.device.id;
    }
    if (id < 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "stream",
                       "say which device is meant (device=)",
                       "this version of HIP cannot say on which device stream "
                       "0x%zx runs",
                       (size_t)stream.handle);
    }
    *out = (ad_context){{ARROW_DEVICE_ROCM, id}, NULL};
    return ad_gpu_check_stream(&ad_gpu_hip, stream, hint.device, out->device,
                               err);
}

/* --- memory -------------------------------------------------------------- */

/* Convert hipMemoryType, whose numbers changed with ROCm 6. False: unknown
 * number. */
static bool
kind_of(const struct ad_hip_pointer *facts, ad_memory_kind *out)
{
    const bool is_old = hip_version / AD_HIP_VERSION_MAJOR < 6;
    const int type = facts->memory_type;
    if (facts->is_managed != 0) {
        *out = AD_MEMORY_MANAGED;
    } else if (type ==
               (is_old ? AD_HIP_5_MEMORY_HOST : AD_HIP_6_MEMORY_HOST)) {
        *out = AD_MEMORY_PINNED;
    } else if (type ==
               (is_old ? AD_HIP_5_MEMORY_DEVICE : AD_HIP_6_MEMORY_DEVICE)) {
        *out = AD_MEMORY_DEVICE;
    } else if (is_old ? type == AD_HIP_5_MEMORY_UNIFIED ||
                            type == AD_HIP_5_MEMORY_MANAGED
                      : type == AD_HIP_6_MEMORY_UNIFIED ||
                            type == AD_HIP_6_MEMORY_MANAGED) {
        *out = AD_MEMORY_MANAGED;
    } else if (!is_old && type == AD_HIP_6_MEMORY_UNREGISTERED) {
        *out = AD_MEMORY_UNREGISTERED;
    } else {
        return false;
    }
    return true;
}

static ad_status
hip_classify(const void *pointer, ad_context hint, ad_memory_info *out,
             ad_error *err)
{
    *out = (ad_memory_info){
        .kind = AD_MEMORY_UNREGISTERED,
        .context = hint,
    };
    if (n_devices == 0) { /* without a device no memory is known */
        return AD_OK;
    }
    struct ad_hip_pointer facts = {.device = -1};
    ad_gpu_result result = HIP(pointer_attributes, &facts, pointer);
    /* An unknown pointer: some versions return 1, others a memory type for
     * it. */
    if (result.code == AD_GPU_INVALID_VALUE) {
        hip_forget_error();
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, hint.device, result, err));
    if (!kind_of(&facts, &out->kind)) {
        return ad_gpu_fail_kind(&ad_gpu_hip, hint.device, facts.memory_type,
                                err);
    }
    if (out->kind != AD_MEMORY_UNREGISTERED) {
        /* The specification has no device type for managed memory of ROCm. */
        out->context = (ad_context){{out->kind == AD_MEMORY_PINNED
                                         ? ARROW_DEVICE_ROCM_HOST
                                         : ARROW_DEVICE_ROCM,
                                     facts.device},
                                    NULL};
        out->host_accessible = out->kind != AD_MEMORY_DEVICE;
    }
    return AD_OK;
}

static ad_gpu_pools *
hip_pools(int64_t id)
{
    static ad_gpu_pools pools[64];
    return id >= 0 && id < 64 ? &pools[id] : NULL;
}

/* Some versions create the pool when it is queried, so this is not called for
 * unused devices. The device attribute that reports pools has a different
 * number in each version. */
static bool
hip_has_pools(int64_t id)
{
    void *pool;
    if (hip.memory_alloc_async == NULL || hip.memory_free_async == NULL ||
        hip.device_default_pool == NULL) {
        return false;
    }
    bool has_pool = hip.device_default_pool(&pool, (int)id) == AD_GPU_SUCCESS;
    if (!has_pool) {
        hip_forget_error();
    }
    return has_pool;
}

static ad_gpu_result
hip_allocate(ad_context context, bool is_ordered, void *pool, void *stream,
             size_t nbytes, void **out)
{
    if (!is_ordered) {
        return HIP(memory_alloc, out, nbytes);
    }
    if (pool != NULL && hip.memory_alloc_from_pool != NULL) {
        return HIP(memory_alloc_from_pool, out, nbytes, pool, stream);
    }
    return HIP(memory_alloc_async, out, nbytes, stream);
}

static int
hip_free_ordered(void *data, void *stream)
{
    return hip.memory_free_async(data, stream);
}

static int
hip_free(void *data)
{
    return hip.memory_free(data);
}

static uint64_t
hip_allocation_id(void *data)
{
    uint64_t id = 0;
    if (hip.pointer_attribute == NULL ||
        hip.pointer_attribute(&id, AD_GPU_POINTER_BUFFER_ID, data) !=
            AD_GPU_SUCCESS) {
        hip_forget_error();
        return 0;
    }
    return id;
}

/* --- other processes ----------------------------------------------------- */

/* All device memory goes by hipIpcGetMemHandle, which AMD's source serves for
 * memory of pools too. HIP's other ways are left alone: before the middle of
 * 2026 a pool was imported on device 0 whatever its device is (rocm-systems
 * #5522), no attribute names the pool of a pointer, and
 * hipMemRetainAllocationHandle follows a null pointer for memory that hipMemMap
 * did not map. */

static ad_status
export_inside(ad_device device, const void *pointer, ad_ipc_memory *out,
              ad_error *err)
{
    struct ad_gpu_ipc_handle name;
    void *base = NULL;
    AD_GPU_NEED(&ad_gpu_hip, hip, names, memory_range, device, err);
    AD_GPU_NEED(&ad_gpu_hip, hip, names, ipc_get_memory, device, err);
    ad_gpu_result result =
        HIP(memory_range, &base, &out->nbytes, (void *)pointer);
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, device, result, err));
    result = HIP(ipc_get_memory, &name, base);
    if (result.code == AD_GPU_INVALID_VALUE ||
        result.code == AD_HIP_INVALID_POINTER ||
        result.code == AD_GPU_NOT_SUPPORTED) {
        hip_forget_error();
        return ad_gpu_fail_share(
            &ad_gpu_hip, device,
            "device memory without a handle for them, such as "
            "that of another process,",
            err);
    }
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, device, result, err));
    out->kind = AD_IPC_LEGACY;
    out->base = base;
    memcpy(out->bytes, name.bytes, sizeof(out->bytes));
    return AD_OK;
}

static ad_status
hip_memory_export(ad_context context, const void *pointer, ad_ipc_memory *out,
                  ad_error *err)
{
    ad_memory_info info;
    ad_gpu_scope scope;
    *out = (ad_ipc_memory){.file = -1};
    AD_RETURN_IF_ERR(hip_classify(pointer, context, &info, err));
    AD_RETURN_IF_ERR(ad_gpu_check_exported(&ad_gpu_hip, &info, err));
    AD_RETURN_IF_ERR(ad_gpu_enter(&ad_gpu_hip, info.context, &scope, err));
    ad_gpu_relax(&ad_gpu_hip, &scope);
    ad_status status = export_inside(info.context.device, pointer, out, err);
    ad_gpu_leave(&ad_gpu_hip, &scope);
    return status;
}

/* Like CUDA, HIP counts how often a handle is open. */
static ad_status
open_inside(ad_device device, const ad_ipc_memory *memory, void **out,
            ad_error *err)
{
    struct ad_gpu_ipc_handle name;
    void *base = NULL;
    size_t size = 0;
    AD_GPU_NEED(&ad_gpu_hip, hip, names, ipc_open_memory, device, err);
    AD_GPU_NEED(&ad_gpu_hip, hip, names, ipc_close_memory, device, err);
    memcpy(name.bytes, memory->bytes, sizeof(name.bytes));
    ad_gpu_result result =
        HIP(ipc_open_memory, out, name, AD_HIP_IPC_PEER_ACCESS);
    if (result.code == AD_GPU_INVALID_VALUE) {
        hip_forget_error();
        result = HIP(ipc_open_memory, out, name, AD_HIP_OLD_IPC_PEER_ACCESS);
    }
    AD_RETURN_IF_ERR(ad_gpu_check(&ad_gpu_hip, device, result, err));
    if (hip.memory_range == NULL ||
        hip.memory_range(&base, &size, *out) != AD_GPU_SUCCESS) {
        hip_forget_error(); /* of imported memory it may say nothing */
    } else if (!ad_gpu_holds((uintptr_t)base, size, (uintptr_t)*out,
                             memory->nbytes)) {
        (void)hip.ipc_close_memory(*out);
        return ad_gpu_fail_imported(&ad_gpu_hip, device,
                                    "its allocation is shorter", err);
    }
    return AD_OK;
}

static ad_status
hip_memory_open(ad_context context, const ad_ipc_memory *memory, void **out,
                ad_error *err)
{
    const ad_device device = context.device;
    ad_gpu_scope scope;
    AD_RETURN_IF_ERR(ad_gpu_check_imported(&ad_gpu_hip, device, memory, err));
    if (memory->kind != AD_IPC_LEGACY) {
        return ad_gpu_fail_imported(&ad_gpu_hip, device,
                                    "HIP exports no descriptors", err);
    }
    AD_RETURN_IF_ERR(ad_gpu_enter(&ad_gpu_hip, context, &scope, err));
    ad_gpu_relax(&ad_gpu_hip, &scope);
    ad_status status = open_inside(device, memory, out, err);
    ad_gpu_leave(&ad_gpu_hip, &scope);
    return status;
}

static void
hip_memory_close(ad_context context, const ad_ipc_memory *memory, void *data)
{
    ad_gpu_scope scope;
    (void)ad_gpu_enter(&ad_gpu_hip, context, &scope, NULL); /* any serves */
    ad_gpu_relax(&ad_gpu_hip, &scope);
    if (!ad_gpu_is_ok(hip.ipc_close_memory(data))) {
        hip_forget_error();
    }
    ad_gpu_leave(&ad_gpu_hip, &scope);
}

/* The bytes are the name of a file, which HIP reads up to its end. */
static ad_status
hip_event_open(ad_context context, const ad_ipc_event *event, ad_event *out,
               ad_error *err)
{
    return memchr(event->bytes, '\0', sizeof(event->bytes)) != NULL
               ? ad_gpu_event_open(context, event, out, err)
               : ad_fail_on(err, context.device, "share", NULL,
                            "the HIP event of another process has a name "
                            "without an end");
}

/* --- copies -------------------------------------------------------------- */

static int
direction_of(const ad_block_copy *copy)
{
    const int32_t target = copy->target.context.device.type;
    const int32_t source = copy->source.context.device.type;
    if (source == ARROW_DEVICE_ROCM) {
        return target == ARROW_DEVICE_ROCM  ? AD_HIP_COPY_DEVICE_TO_DEVICE
               : target == ARROW_DEVICE_CPU ? AD_HIP_COPY_DEVICE_TO_HOST
                                            : AD_HIP_COPY_DEFAULT;
    }
    return source == ARROW_DEVICE_CPU && target == ARROW_DEVICE_ROCM
               ? AD_HIP_COPY_HOST_TO_DEVICE
               : AD_HIP_COPY_DEFAULT;
}

static ad_gpu_result
hip_copy(const ad_block_copy *copy, void *stream)
{
    void *target = ad_gpu_pointer(copy->target);
    const void *source = ad_gpu_pointer(copy->source);
    const int direction = direction_of(copy);
    if (copy->height == 1) {
        return HIP(copy, target, source, copy->width, direction, stream);
    }
    return HIP(copy_2d, target, copy->target_pitch, source, copy->source_pitch,
               copy->width, copy->height, direction, stream);
}

static ad_gpu_result
hip_copy_peer(const ad_block_copy *copy, void *stream)
{
    return HIP(copy_peer, ad_gpu_pointer(copy->target),
               (int)copy->target.context.device.id,
               ad_gpu_pointer(copy->source),
               (int)copy->source.context.device.id, copy->width, stream);
}

/* --- HIP's run-time compiler --------------------------------------------- */

struct hiprtc_calls {
#define AD_HIPRTC(member, exported, result, parameters)                       \
    result(*member) parameters;
#include "abi/hiprtc_api.def"
};

static const ad_symbol hiprtc_symbols[] = {
#define AD_HIPRTC(member, exported, result, parameters)                       \
    {exported, offsetof(struct hiprtc_calls, member), AD_REQUIRED},
#include "abi/hiprtc_api.def"
};

/* Before ROCm 5.3 the compiler was part of the runtime. */
static const char *const hiprtc_sonames[] = {
    "libhiprtc.so",     "libhiprtc.so.7",   "libhiprtc.so.6", "libhiprtc.so.5",
    "libamdhip64.so.5", "libamdhip64.so.4", "libamdhip64.so", NULL,
};

static const ad_library hiprtc_library = {
    .name = "hiprtc",
    .sonames = hiprtc_sonames,
    .symbols = hiprtc_symbols,
    .n_symbols = sizeof(hiprtc_symbols) / sizeof(hiprtc_symbols[0]),
};

static struct hiprtc_calls hiprtc;
static ad_error load_error;
static ad_status load_status;

static void
load_hiprtc(void)
{
    load_status = ad_library_load(&hiprtc_library, &hiprtc, NULL, &load_error);
}

/* The first line of the compiler's log, or "". */
static void
read_log(void *program, char *buffer, size_t size)
{
    size_t length = 0;
    buffer[0] = '\0';
    if (hiprtc.log_size(program, &length) != 0 || length == 0) {
        return;
    }
    char *log = calloc(1, length + 1);
    if (log != NULL && hiprtc.log(program, log) == 0) {
        log[strcspn(log, "\n")] = '\0';
        strncat(buffer, log, size - 1);
    }
    free(log);
}

static ad_status
fail_build(const char *call, int code, const char *log, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "kernel",
            "copy the data to the host first with .to(\"cpu\")",
            "arrowdev's kernels cannot be built for this device: %s failed: "
            "%s (%d)%s%s",
            call, hiprtc.error_string(code), code, log[0] != '\0' ? ": " : "",
            log);
    if (err != NULL) {
        err->code = code;
    }
    return AD_ERR_EXCHANGE;
}

static ad_status
compile_program(void *program, void **out, ad_error *err)
{
    char log[256];
    size_t size = 0;
    int code = hiprtc.program_compile(program, 0, NULL);
    if (code != 0) {
        read_log(program, log, sizeof(log));
        return fail_build("hiprtcCompileProgram", code, log, err);
    }
    code = hiprtc.code_size(program, &size);
    if (code != 0) {
        return fail_build("hiprtcGetCodeSize", code, "", err);
    }
    *out = malloc(size);
    if (*out == NULL) {
        return ad_fail_memory(err, size);
    }
    code = hiprtc.code(program, *out);
    if (code != 0) {
        free(*out);
        *out = NULL;
        return fail_build("hiprtcGetCode", code, "", err);
    }
    return AD_OK;
}

/* Builds `source` for the current device with HIP's run-time compiler. *out is
 * the code object, which the caller frees. Fails with AD_ERR_EXCHANGE, reason
 * "kernel", if there is no compiler or it rejects the source. */
static ad_status
build(const char *source, void **out, ad_error *err)
{
    static ad_once once = AD_ONCE_INIT;
    void *program = NULL;
    ad_once_call(&once, load_hiprtc);
    if (load_status != AD_OK) {
        return ad_fail(err, AD_ERR_EXCHANGE, "kernel",
                       "install ROCm's libhiprtc, or copy the data to the "
                       "host first with .to(\"cpu\")",
                       "arrowdev's kernels cannot be built: %s",
                       load_error.message);
    }
    int code =
        hiprtc.program_create(&program, source, "arrowdev.hip", 0, NULL, NULL);
    if (code != 0) {
        return fail_build("hiprtcCreateProgram", code, "", err);
    }
    ad_status status = compile_program(program, out, err);
    (void)hiprtc.program_destroy(&program);
    return status;
}

/* --- kernels ------------------------------------------------------------- */

static ad_status
hip_module_key(ad_context context, uint64_t *out, ad_error *err)
{
    void *handle;
    int64_t id;
    ad_gpu_result result = hip_current(&handle, &id);
    *out = (uint64_t)id;
    return ad_gpu_check(&ad_gpu_hip, context.device, result, err);
}

/* Builds for the current device. */
static ad_status
hip_module_image(ad_kernel kernel, const void **out, void **release,
                 ad_error *err)
{
    AD_RETURN_IF_ERR(build(ad_kernels_hip, release, err));
    *out = *release;
    return AD_OK;
}

/* --- the backend --------------------------------------------------------- */

const struct ad_gpu ad_gpu_hip = {
    .name = "HIP",
    .calls = &hip.common,
    .names =
        {
#define AD_HIP_COMMON(member, exported, need, parameters) .member = exported,
#include "abi/hip_api.def"
        },
    .modules = &hip_modules,
    .device_type = ARROW_DEVICE_ROCM,
    .host_type = ARROW_DEVICE_ROCM_HOST,
    .n_devices = &n_devices,
    .error_name = hip_error_name,
    .forget_error = hip_forget_error,
    .enter = hip_enter,
    .enter_existing = hip_enter,
    .leave = hip_leave,
    .current = hip_current,
    .primary = hip_primary,
    .pools = hip_pools,
    .has_pools = hip_has_pools,
    .allocate = hip_allocate,
    .free_ordered = hip_free_ordered,
    .free = hip_free,
    .allocation_id = hip_allocation_id,
    .copy = hip_copy,
    .copy_peer = hip_copy_peer,
    .module_key = hip_module_key,
    .module_image = hip_module_image,
};

const struct ad_backend ad_backend_hip = {
    .name = "hip",
    .device_types =
        (const int32_t[]){ARROW_DEVICE_ROCM, ARROW_DEVICE_ROCM_HOST, 0},
    .capabilities = AD_CAP_IN_ORDER | AD_CAP_EVENTS_REUSABLE |
                    AD_CAP_ORDERED_DEALLOCATE | AD_CAP_CAPTURE |
                    AD_CAP_CONTEXT_IDLE | AD_CAP_STAGES,
    .load = hip_load,
    .describe = hip_describe,
    .count = hip_count,
    .device_name = hip_device_name,
    .describe_current = hip_describe_current,
    .classify = hip_classify,
    .stream_context = hip_stream_context,
    .device_uuid = hip_device_uuid,
    .memory_export = hip_memory_export,
    .memory_open = hip_memory_open,
    .memory_close = hip_memory_close,
    .event_open = hip_event_open,
    AD_GPU_SLOTS,
};
