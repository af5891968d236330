/* Structs and constants of CUDA's driver API and of HIP that arrowdev uses.
 * tests/devices/test_gpu_abi.py compares them with cuda.h and
 * hip_runtime_api.h.
 *
 * HIP has CUDA's flags and error codes: AD_GPU_ marks those of both.
 */
#ifndef AD_ABI_GPU_ABI_H
#define AD_ABI_GPU_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    AD_GPU_SUCCESS = 0,
    AD_GPU_INVALID_VALUE = 1,
    AD_GPU_OUT_OF_MEMORY = 2,
    AD_GPU_DEINITIALIZED = 4,
    AD_GPU_DEVICE_UNAVAILABLE = 46,
    AD_GPU_NO_DEVICE = 100,
    AD_GPU_INVALID_DEVICE = 101,
    AD_GPU_INVALID_CONTEXT = 201,
    AD_GPU_ECC_UNCORRECTABLE = 214,
    AD_GPU_NVLINK_UNCORRECTABLE = 220,
    AD_GPU_CONTAINED = 226,
    AD_GPU_INVALID_HANDLE = 400,
    AD_GPU_NOT_READY = 600,
    AD_GPU_ILLEGAL_ADDRESS = 700,
    AD_GPU_LAUNCH_TIMEOUT = 702,
    AD_GPU_CONTEXT_IS_DESTROYED = 709,
    AD_GPU_ASSERT = 710,
    AD_GPU_HARDWARE_STACK_ERROR = 714, /* first of the errors of kernels */
    AD_GPU_LAUNCH_FAILED = 719,        /* last of the errors of kernels */
    AD_GPU_TENSOR_MEMORY_LEAK = 721,
    AD_GPU_NOT_SUPPORTED = 801,
    AD_GPU_MPS_CLIENT_TERMINATED = 810,
    AD_GPU_CAPTURE_UNSUPPORTED = 900, /* first of the errors of capture */
    AD_GPU_CAPTURE_INVALIDATED = 901,
    AD_GPU_CAPTURE_IMPLICIT = 906,
    AD_GPU_CAPTURED_EVENT = 907,
    AD_GPU_CAPTURE_WRONG_THREAD = 908, /* last of the errors of capture */
    AD_GPU_EXTERNAL_DEVICE = 911
};

enum {
    AD_GPU_STREAM_NON_BLOCKING = 1,
    AD_GPU_EVENT_DISABLE_TIMING = 2,
    AD_GPU_EVENT_INTERPROCESS = 4,
    AD_GPU_HOST_PORTABLE = 1,
    AD_GPU_CAPTURE_MODE_RELAXED = 2,
    AD_GPU_POOL_OF_DEVICE_MEMORY = 1,
    AD_GPU_LOCATION_DEVICE = 1,
    AD_GPU_FILE_DESCRIPTOR = 1, /* a type of handles for other processes */
    /* attributes: an int, whether an allocation may make its stream wait for a
     * free on another one; and a uint64_t */
    AD_GPU_POOL_INTERNAL_WAITS = 3,
    AD_GPU_POOL_THRESHOLD = 4,
    AD_GPU_POINTER_BUFFER_ID = 7
};

struct ad_gpu_pool_properties { /* CUmemPoolProps, hipMemPoolProps */
    int allocation_type;
    int handle_types; /* for other processes; 0: none */
    int location_type;
    int location_id;
    void *security;
    unsigned char reserved[64]; /* of some versions: maximum size, usage */
};

struct ad_gpu_uuid { /* CUuuid, hipUUID */
    unsigned char bytes[16];
};

/* CUipcMemHandle, CUipcEventHandle, CUmemPoolPtrExportData, and HIP's */
struct ad_gpu_ipc_handle {
    unsigned char bytes[64];
};

/* --- CUDA ---------------------------------------------------------------- */

enum {
    AD_CUDA_STUB_LIBRARY = 34,
    AD_CUDA_NOT_PERMITTED = 800,
    AD_CUDA_STREAM_LEGACY = 1,
    AD_CUDA_STREAM_PER_THREAD = 2,
    AD_CUDA_MANAGED_GLOBAL = 1,
    AD_CUDA_DEVICE_PAGEABLE_ACCESS = 88,
    AD_CUDA_DEVICE_HAS_POOLS = 115,

    AD_CUDA_POINTER_CONTEXT = 1,
    AD_CUDA_POINTER_MEMORY_TYPE = 2,
    AD_CUDA_POINTER_IS_MANAGED = 8,
    AD_CUDA_POINTER_DEVICE_ORDINAL = 9,
    AD_CUDA_POINTER_HAS_IPC_HANDLE = 10,
    AD_CUDA_POINTER_POOL = 17,

    AD_CUDA_IPC_PEER_ACCESS = 1,
    AD_CUDA_ACCESS_READ_WRITE = 3,

    AD_CUDA_MEMORY_HOST = 1,
    AD_CUDA_MEMORY_DEVICE = 2,
    AD_CUDA_MEMORY_UNIFIED = 4
};

struct ad_cuda_copy_2d { /* CUDA_MEMCPY2D_v2 */
    size_t source_x;
    size_t source_y;
    int source_type;
    const void *source_host;
    uint64_t source_device;
    void *source_array;
    size_t source_pitch;

    size_t target_x;
    size_t target_y;
    int target_type;
    void *target_host;
    uint64_t target_device;
    void *target_array;
    size_t target_pitch;

    size_t width;
    size_t height;
};

struct ad_cuda_access { /* CUmemAccessDesc */
    int location_type;
    int location_id;
    int flags;
};

struct ad_cuda_allocation { /* CUmemAllocationProp */
    int allocation_type;
    int handle_types;
    int location_type;
    int location_id;
    void *metadata;
    unsigned char flags[8];
};

/* --- HIP ----------------------------------------------------------------- */

enum {
    AD_HIP_INVALID_POINTER = 17,
    AD_HIP_COPY_HOST_TO_DEVICE = 1,
    AD_HIP_COPY_DEVICE_TO_HOST = 2,
    AD_HIP_COPY_DEVICE_TO_DEVICE = 3,
    AD_HIP_COPY_DEFAULT = 4,

    /* hipIpcMemLazyEnablePeerAccess, which the runtime compares: 0 in old
     * versions, ROCm 5.2 among them */
    AD_HIP_OLD_IPC_PEER_ACCESS = 0,
    AD_HIP_IPC_PEER_ACCESS = 1,

    /* hipMemoryType: since ROCm 6 with CUDA's numbers. */
    AD_HIP_5_MEMORY_HOST = 0,
    AD_HIP_5_MEMORY_DEVICE = 1,
    AD_HIP_5_MEMORY_UNIFIED = 3,
    AD_HIP_5_MEMORY_MANAGED = 4,
    AD_HIP_6_MEMORY_UNREGISTERED = 0,
    AD_HIP_6_MEMORY_HOST = 1,
    AD_HIP_6_MEMORY_DEVICE = 2,
    AD_HIP_6_MEMORY_MANAGED = 3,
    AD_HIP_6_MEMORY_UNIFIED = 11,

    /* hipRuntimeGetVersion(): major, two digits of minor, five of patch. */
    AD_HIP_VERSION_MAJOR = 10000000
};

struct ad_hip_pointer { /* hipPointerAttribute_t */
    int memory_type;
    int device;
    void *device_pointer;
    void *host_pointer;
    int is_managed;
    unsigned int allocation_flags;
};

#endif /* AD_ABI_GPU_ABI_H */
