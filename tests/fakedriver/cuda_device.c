/* libcuda: start, errors, devices, contexts. */
#include "cuda_face.h"

#include <stdio.h>
#include <string.h>

#include "controls.h"

int
cuInit(unsigned flags)
{
    int code = fd_enter_early(__func__);
    if (code == FD_OK && flags != 0) {
        code = FD_INVALID_VALUE;
    }
    return code == FD_OK ? fd_start() : code;
}

int
cuDriverGetVersion(int *out)
{
    int code = fd_enter_early(__func__);
    if (code == FD_OK) {
        *out = fd_version();
    }
    return code;
}

static const char *
error_name(int code)
{
#define FD_ERROR(number, cuda, hip)                                           \
    case number:                                                              \
        return number == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR_" cuda;
    switch (code) {
#include "error_names.def"
        default:
            return NULL;
    }
#undef FD_ERROR
}

int
cuGetErrorName(int code, const char **out)
{
    *out = error_name(code);
    return *out != NULL ? FD_OK : FD_INVALID_VALUE;
}

int
cuGetErrorString(int code, const char **out)
{
    return cuGetErrorName(code, out);
}

/* Undocumented tables: libraries that need them cannot run here. */
int
cuGetExportTable(const void **out, const void *id)
{
    return FD_NOT_FOUND;
}

/* --- devices ------------------------------------------------------------------- */

static int
check_device(int device)
{
    return device >= 0 && device < fd_n_devices() ? FD_OK : FD_INVALID_DEVICE;
}

int
cuDeviceGet(int *out, int ordinal)
{
    FD_ENTER(0);
    int code = check_device(ordinal);
    if (code == FD_OK) {
        *out = ordinal;
    }
    return code;
}

int
cuDeviceGetCount(int *out)
{
    FD_ENTER(0);
    *out = fd_n_devices();
    return FD_OK;
}

int
cuDeviceGetName(char *out, int size, int device)
{
    FD_ENTER(0);
    int code = check_device(device);
    if (code == FD_OK) {
        snprintf(out, (size_t)size, "Stand-in GPU %d",
                 fd_device_number(device));
    }
    return code;
}

static int
get_uuid(char *out, int device)
{
    int code = check_device(device);
    if (code == FD_OK) {
        fd_device_uuid(device, out);
    }
    return code;
}

int
cuDeviceGetUuid(char *out, int device)
{
    FD_ENTER(0);
    return get_uuid(out, device);
}

int
cuDeviceGetUuid_v2(char *out, int device)
{
    FD_ENTER(0);
    return get_uuid(out, device);
}

int
cuDeviceTotalMem_v2(size_t *out, int device)
{
    size_t left;
    FD_ENTER(0);
    return fd_code(ad_engine_memory(device, out, &left));
}

int
cuDeviceGetPCIBusId(char *out, int size, int device)
{
    FD_ENTER(0);
    int code = check_device(device);
    if (code == FD_OK) {
        snprintf(out, (size_t)size, "0000:%02x:00.0",
                 fd_device_number(device) + 1);
    }
    return code;
}

int
cuDeviceCanAccessPeer(int *out, int device, int peer)
{
    FD_ENTER(0);
    int code = check_device(device);
    code = code == FD_OK ? check_device(peer) : code;
    if (code == FD_OK) {
        *out = device != peer;
    }
    return code;
}

/* Attributes that are not 0. */
static int
attribute_value(int attribute, int device)
{
    switch (attribute) {
        case 1:  /* max threads per block */
        case 39: /* ... of a multiprocessor */
        case 2:
        case 3:
            return 1024;
        case 4:
            return 64;
        case 5:
            return 2147483647;
        case 6:
        case 7:
            return 65535;
        case 8:
            return 49152;
        case 10:
            return 32; /* warp */
        case 16:       /* multiprocessors */
            return 8;
        case 33:
            return fd_device_number(device) + 1; /* PCI bus */
        case 75:                                 /* compute capability 8.0 */
            return 8;
        case 15:  /* overlap */
        case 19:  /* maps host memory */
        case 31:  /* concurrent kernels */
        case 40:  /* async engines */
        case 41:  /* unified addressing */
        case 78:  /* stream priorities */
        case 83:  /* managed memory */
        case 89:  /* concurrent managed access */
        case 91:  /* host pointers of registered memory */
        case 102: /* virtual memory */
        case 103: /* ... that a file descriptor exports */
        case 115: /* memory pools */
        case 119: /* ... that a file descriptor exports (a mask) */
        case 125: /* events of other processes */
            return 1;
        case 88: /* pageable memory */
            return fd_accesses_pageable();
        default:
            return 0;
    }
}

int
cuDeviceGetAttribute(int *out, int attribute, int device)
{
    FD_ENTER(0);
    int code = check_device(device);
    if (code == FD_OK && attribute <= 0) {
        code = FD_INVALID_VALUE;
    }
    if (code == FD_OK) {
        *out = attribute_value(attribute, device);
    }
    return code;
}

/* --- primary contexts ------------------------------------------------------------ */

int
cuDevicePrimaryCtxRetain(fd_context **out, int device)
{
    FD_ENTER(0);
    return fd_context_retain(device, out);
}

int
cuDevicePrimaryCtxRelease_v2(int device)
{
    FD_ENTER(0);
    return fd_context_release(device);
}

int
cuDevicePrimaryCtxReset_v2(int device)
{
    FD_ENTER(0);
    return fd_context_reset(device);
}

int
cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    fd_context *context;
    FD_ENTER(0);
    int code = fd_context_primary(device, &context);
    if (code == FD_OK) {
        *flags = context->flags;
        *is_active = context->is_live;
    }
    return code;
}

int
cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    fd_context *context;
    FD_ENTER(0);
    int code = fd_context_primary(device, &context);
    if (code == FD_OK) {
        context->flags = flags;
    }
    return code;
}

/* --- contexts -------------------------------------------------------------------- */

int
cuCtxCreate_v2(fd_context **out, unsigned flags, int device)
{
    FD_ENTER(0);
    return fd_context_create(device, flags, out);
}

int
cuCtxCreate_v3(fd_context **out, void *affinity, int n, unsigned flags,
               int device)
{
    FD_ENTER(0);
    return n == 0 ? fd_context_create(device, flags, out) : FD_NOT_SUPPORTED;
}

int
cuCtxCreate_v4(fd_context **out, const void *options, unsigned flags,
               int device)
{
    FD_ENTER(0);
    return options == NULL ? fd_context_create(device, flags, out)
                           : FD_NOT_SUPPORTED;
}

int
cuCtxDestroy_v2(fd_context *context)
{
    FD_ENTER(0);
    return fd_context_destroy(context);
}

int
cuCtxGetCurrent(fd_context **out)
{
    FD_ENTER(0);
    *out = fd_context_peek();
    return FD_OK;
}

/* A broken context can still be popped. */
static int
enter_context(const char *name)
{
    int code = fd_enter(name, 0);
    const fd_context *context = fd_context_peek();
    bool is_only_broken =
        code != FD_OK && context != NULL && context->broken == code;
    return is_only_broken ? FD_OK : code;
}

int
cuCtxSetCurrent(fd_context *context)
{
    int code = enter_context(__func__);
    return code == FD_OK ? fd_context_set(context) : code;
}

int
cuCtxPushCurrent_v2(fd_context *context)
{
    int code = enter_context(__func__);
    return code == FD_OK ? fd_context_push(context) : code;
}

int
cuCtxPopCurrent_v2(fd_context **out)
{
    int code = enter_context(__func__);
    return code == FD_OK ? fd_context_pop(out) : code;
}

/* NULL means the current one. */
static int
get_context(fd_context *given, fd_context **out)
{
    *out = given;
    return given == NULL ? fd_context_current(out) : fd_context_check(given);
}

int
cuCtxGetDevice_v2(int *out, fd_context *given)
{
    fd_context *context;
    FD_ENTER(0);
    int code = get_context(given, &context);
    if (code == FD_OK) {
        *out = context->device;
    }
    return code;
}

int
cuCtxGetDevice(int *out)
{
    fd_context *context;
    FD_ENTER(0);
    int code = fd_context_current(&context);
    if (code == FD_OK) {
        *out = context->device;
    }
    return code;
}

int
cuCtxGetFlags(unsigned *out)
{
    fd_context *context;
    FD_ENTER(0);
    int code = fd_context_current(&context);
    if (code == FD_OK) {
        *out = context->flags;
    }
    return code;
}

int
cuCtxGetApiVersion(fd_context *given, unsigned *out)
{
    fd_context *context;
    FD_ENTER(0);
    int code = get_context(given, &context);
    if (code == FD_OK) {
        *out = 3020;
    }
    return code;
}

int
cuCtxGetId(fd_context *given, unsigned long long *out)
{
    fd_context *context;
    FD_ENTER(0);
    int code = get_context(given, &context);
    if (code == FD_OK) {
        *out = context->id;
    }
    return code;
}

static int
synchronize(fd_context *given)
{
    fd_context *context;
    int code = get_context(given, &context);
    return code == FD_OK ? fd_context_wait(context) : code;
}

int
cuCtxSynchronize(void)
{
    FD_ENTER(0);
    return synchronize(NULL);
}

int
cuCtxSynchronize_v2(fd_context *context)
{
    FD_ENTER(0);
    return synchronize(context);
}

int
cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FD_ENTER(0);
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -1;
    }
    return FD_OK;
}

static int
set_peer(fd_context *peer, bool is_on)
{
    fd_context *context;
    int code = fd_context_current(&context);
    code = code == FD_OK ? fd_context_check(peer) : code;
    if (code != FD_OK) {
        return code;
    }
    uint32_t bit = UINT32_C(1) << peer->device;
    bool was_on = (context->peers & bit) != 0;
    if (was_on == is_on) {
        return is_on ? FD_PEER_ALREADY_ENABLED : FD_PEER_NOT_ENABLED;
    }
    context->peers ^= bit;
    return FD_OK;
}

int
cuCtxEnablePeerAccess(fd_context *peer, unsigned flags)
{
    FD_ENTER(0);
    return set_peer(peer, true);
}

int
cuCtxDisablePeerAccess(fd_context *peer)
{
    FD_ENTER(0);
    return set_peer(peer, false);
}
