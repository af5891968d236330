/* libamdhip64: errors, devices, memory. The numbers are those of ROCm 6. */
#include "hip_face.h"

#include <stdio.h>
#include <string.h>

const fd_face fd_face_here = {
    .visible = "HIP_VISIBLE_DEVICES",
    .has_implicit_context = true,
    .free_waits = true,
    .names_pool_memory = true,
    .leaves_event = true,
};

enum {
    VERSION = 60200000,
    TYPE_UNREGISTERED = 0,
    TYPE_HOST = 1,
    TYPE_DEVICE = 2,
    TYPE_MANAGED = 3
};

static __thread int last_error;

int
fd_hip_result(int code)
{
    last_error = code != FD_OK ? code : last_error;
    return code;
}

/* The first call of any function starts the runtime. */
__attribute__((constructor)) static void
start(void)
{
    (void)fd_start();
}

FD_EXPORT int
hipInit(unsigned flags)
{
    HIP_CALL(0, flags == 0 ? FD_OK : FD_INVALID_VALUE);
}

static int
give(int *out, int value)
{
    *out = value;
    return FD_OK;
}

FD_EXPORT int
hipDriverGetVersion(int *out)
{
    HIP_CALL(0, give(out, VERSION));
}

FD_EXPORT int
hipRuntimeGetVersion(int *out)
{
    HIP_CALL(0, give(out, VERSION));
}

FD_EXPORT const char *
hipGetErrorName(int code)
{
#define FD_ERROR(number, cuda, hip)                                           \
    case number:                                                              \
        return number == 0 ? "hipSuccess" : "hipError" hip;
    switch (code) {
#include "error_names.def"
        case FD_INVALID_CONFIGURATION:
            return "hipErrorInvalidConfiguration";
        case FD_INVALID_DEVICE_POINTER:
            return "hipErrorInvalidDevicePointer";
        default:
            return "hipErrorUnknown";
    }
#undef FD_ERROR
}

FD_EXPORT const char *
hipGetErrorString(int code)
{
    return hipGetErrorName(code);
}

FD_EXPORT int
hipPeekAtLastError(void)
{
    return last_error;
}

FD_EXPORT int
hipGetLastError(void)
{
    int code = last_error;
    last_error = FD_OK;
    return code;
}

/* --- devices -------------------------------------------------------------------- */

static int
check_device(int device)
{
    return device >= 0 && device < fd_n_devices() ? FD_OK : FD_INVALID_DEVICE;
}

static int
current(fd_context **out)
{
    return fd_context_current(out);
}

static int
get_device(int *out)
{
    fd_context *context;
    int code = current(&context);
    return code == FD_OK ? give(out, context->device) : code;
}

static int
set_device(int device)
{
    fd_context *context;
    int code = fd_context_primary(device, &context);
    return code == FD_OK ? fd_context_set(context) : code;
}

static int
synchronize(void)
{
    fd_context *context;
    int code = current(&context);
    return code == FD_OK ? fd_context_wait(context) : code;
}

FD_EXPORT int
hipGetDeviceCount(int *out)
{
    HIP_CALL(0, give(out, fd_n_devices()));
}

FD_EXPORT int
hipGetDevice(int *out)
{
    HIP_CALL(0, get_device(out));
}

FD_EXPORT int
hipSetDevice(int device)
{
    HIP_CALL(0, set_device(device));
}

FD_EXPORT int
hipDeviceSynchronize(void)
{
    HIP_CALL(0, synchronize());
}

FD_EXPORT int
hipDeviceGet(int *out, int ordinal)
{
    HIP_CALL(0, check_device(ordinal) == FD_OK ? give(out, ordinal)
                                               : FD_INVALID_DEVICE);
}

static int
device_name(char *out, int size, int device)
{
    int code = check_device(device);
    if (code == FD_OK) {
        snprintf(out, (size_t)size, "Stand-in HIP GPU %d",
                 fd_device_number(device));
    }
    return code;
}

FD_EXPORT int
hipDeviceGetName(char *out, int size, int device)
{
    HIP_CALL(0, device_name(out, size, device));
}

static int
device_uuid(char *out, int device)
{
    int code = check_device(device);
    if (code == FD_OK) {
        fd_device_uuid(device, out);
    }
    return code;
}

FD_EXPORT int
hipDeviceGetUuid(char *out, int device)
{
    HIP_CALL(0, device_uuid(out, device));
}

FD_EXPORT int
hipDeviceCanAccessPeer(int *out, int device, int peer)
{
    HIP_CALL(0, give(out, device != peer));
}

/* --- memory ----------------------------------------------------------------------- */

static int
allocate(void **out, size_t nbytes, fd_memory_kind kind, unsigned flags)
{
    *out = NULL;
    return nbytes == 0 ? FD_OK : fd_allocate(nbytes, kind, flags, out);
}

FD_EXPORT int
hipMalloc(void **out, size_t nbytes)
{
    HIP_CALL(0, allocate(out, nbytes, FD_DEVICE, 0));
}

FD_EXPORT int
hipHostMalloc(void **out, size_t nbytes, unsigned flags)
{
    HIP_CALL(0, allocate(out, nbytes, FD_PINNED, flags));
}

FD_EXPORT int
hipMallocManaged(void **out, size_t nbytes, unsigned flags)
{
    HIP_CALL(0, allocate(out, nbytes, FD_MANAGED, flags));
}

FD_EXPORT int
hipFree(void *base)
{
    HIP_CALL(0, base == NULL ? FD_OK : fd_free(__func__, base, FD_DEVICE));
}

FD_EXPORT int
hipHostFree(void *base)
{
    HIP_CALL(0, base == NULL ? FD_OK : fd_free(__func__, base, FD_PINNED));
}

FD_EXPORT int
hipHostRegister(void *base, size_t nbytes, unsigned flags)
{
    HIP_CALL(0, fd_register(base, nbytes, flags));
}

FD_EXPORT int
hipHostUnregister(void *base)
{
    HIP_CALL(0, fd_unregister(__func__, base));
}

static int
host_pointer(void **out, void *pointer)
{
    fd_allocation a;
    if (!fd_allocation_at(pointer, &a) || a.kind == FD_DEVICE) {
        return FD_INVALID_VALUE;
    }
    *out = pointer;
    return FD_OK;
}

FD_EXPORT int
hipHostGetDevicePointer(void **out, void *pointer, unsigned flags)
{
    HIP_CALL(0, host_pointer(out, pointer));
}

FD_EXPORT int
hipMemGetInfo(size_t *left, size_t *total)
{
    HIP_CALL(0, fd_memory_info(left, total));
}

FD_EXPORT int
hipMallocAsync(void **out, size_t nbytes, uintptr_t stream)
{
    HIP_CALL(stream, fd_allocate_ordered(__func__, nbytes, NULL, stream, out));
}

FD_EXPORT int
hipMallocFromPoolAsync(void **out, size_t nbytes, fd_pool *pool,
                       uintptr_t stream)
{
    HIP_CALL(stream, fd_allocate_ordered(__func__, nbytes, pool, stream, out));
}

FD_EXPORT int
hipFreeAsync(void *base, uintptr_t stream)
{
    HIP_CALL(stream, fd_free_ordered(__func__, base, stream));
}

FD_EXPORT int
hipMemPoolCreate(fd_pool **out, const fd_pool_properties *properties)
{
    HIP_CALL(0, fd_pool_create(properties, out));
}

FD_EXPORT int
hipMemPoolTrimTo(fd_pool *pool, size_t keep)
{
    HIP_CALL(0, fd_pool_trim(pool, keep));
}

FD_EXPORT int
hipMemPoolDestroy(fd_pool *pool)
{
    HIP_CALL(0, fd_pool_destroy(pool));
}

FD_EXPORT int
hipMemPoolGetAttribute(fd_pool *pool, int attribute, void *out)
{
    HIP_CALL(0, fd_pool_get(pool, attribute, out));
}

FD_EXPORT int
hipMemPoolSetAttribute(fd_pool *pool, int attribute, void *value)
{
    HIP_CALL(0, fd_pool_set(pool, attribute, value));
}

FD_EXPORT int
hipDeviceGetDefaultMemPool(fd_pool **out, int device)
{
    HIP_CALL(0, fd_pool_default(device, out));
}

FD_EXPORT int
hipDeviceGetMemPool(fd_pool **out, int device)
{
    HIP_CALL(0, fd_pool_current(device, out));
}

static int
pointer_attributes(hip_pointer *out, const void *pointer)
{
    static const int types[] = {
        [FD_DEVICE] = TYPE_DEVICE,
        [FD_PINNED] = TYPE_HOST,
        [FD_MANAGED] = TYPE_MANAGED,
        [FD_REGISTERED] = TYPE_HOST,
    };
    fd_allocation a;
    if (!fd_allocation_at(pointer, &a)) {
        *out = (hip_pointer){.type = TYPE_UNREGISTERED,
                             .device = -2,
                             .host_pointer = (void *)pointer};
        return FD_OK;
    }
    *out = (hip_pointer){
        .type = types[a.kind],
        .device = a.device,
        .device_pointer = (void *)pointer,
        .host_pointer = a.kind != FD_DEVICE ? (void *)pointer : NULL,
        .is_managed = a.kind == FD_MANAGED,
        .flags = a.flags,
    };
    return FD_OK;
}

/* The numbers are those of CUDA. Other attributes are not needed here. */
static int
pointer_attribute(void *out, int attribute, const void *pointer)
{
    fd_allocation a;
    if (!fd_allocation_at(pointer, &a)) {
        return attribute == 7 || attribute == 11 || attribute == 12
                   ? FD_INVALID_VALUE
                   : FD_NOT_SUPPORTED;
    }
    switch (attribute) {
        case 7:
            memcpy(out, &a.id, sizeof(a.id));
            return FD_OK;
        case 11:
            memcpy(out, &a.base, sizeof(a.base));
            return FD_OK;
        case 12:
            memcpy(out, &a.nbytes, sizeof(a.nbytes));
            return FD_OK;
        default:
            return FD_NOT_SUPPORTED;
    }
}

static int
address_range(void **base, size_t *nbytes, void *pointer)
{
    fd_allocation a;
    if (!fd_allocation_at(pointer, &a)) {
        return FD_NOT_FOUND;
    }
    if (base != NULL) {
        *base = a.base;
    }
    if (nbytes != NULL) {
        *nbytes = a.nbytes;
    }
    return FD_OK;
}

FD_EXPORT int
hipMemGetAddressRange(void **base, size_t *nbytes, void *pointer)
{
    HIP_CALL(0, address_range(base, nbytes, pointer));
}

FD_EXPORT int
hipPointerGetAttribute(void *out, int attribute, const void *pointer)
{
    HIP_CALL(0, pointer_attribute(out, attribute, pointer));
}

FD_EXPORT int
hipPointerGetAttributes(hip_pointer *out, const void *pointer)
{
    HIP_CALL(0, pointer_attributes(out, pointer));
}
