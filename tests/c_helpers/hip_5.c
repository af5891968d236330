/* The stand-in for HIP as in ROCm 5. It is linked before the stand-in driver
 * and replaces a few of its functions: hipMemoryType had other numbers, an
 * unknown pointer was an error, and hipIpcMemLazyEnablePeerAccess was 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "abi/gpu_abi.h"

#define EXPORT __attribute__((visibility("default")))

static void *
next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

EXPORT int
hipRuntimeGetVersion(int *out)
{
    *out = 50221153;
    return 0;
}

EXPORT int
hipPointerGetAttributes(struct ad_hip_pointer *out, const void *pointer)
{
    int (*ask)(struct ad_hip_pointer *, const void *) =
        (int (*)(struct ad_hip_pointer *, const void *))next(__func__);
    int code = ask(out, pointer);
    if (code == 0) {
        switch (out->memory_type) {
            case AD_HIP_6_MEMORY_HOST:
                out->memory_type = AD_HIP_5_MEMORY_HOST;
                break;
            case AD_HIP_6_MEMORY_DEVICE:
                out->memory_type = AD_HIP_5_MEMORY_DEVICE;
                break;
            default:
                return 1;
        }
    }
    return code;
}

EXPORT int
hipIpcOpenMemHandle(void **out, struct ad_gpu_ipc_handle handle,
                    unsigned int flags)
{
    int (*open)(void **, struct ad_gpu_ipc_handle, unsigned int) = (int (*)(
        void **, struct ad_gpu_ipc_handle, unsigned int))next(__func__);
    return flags == AD_HIP_OLD_IPC_PEER_ACCESS
               ? open(out, handle, AD_HIP_IPC_PEER_ACCESS)
               : AD_GPU_INVALID_VALUE;
}
