# The C API for Cython: `from arrowdev cimport ArrowDev_Import`. Compile with the folder of
# arrowdev.get_include(); the contracts stand in arrowdev.h.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "arrowdev.h":
    enum:
        ARROW_FLAG_DICTIONARY_ORDERED
        ARROW_FLAG_NULLABLE
        ARROW_FLAG_MAP_KEYS_SORTED

    struct ArrowSchema:
        const char *format
        const char *name
        const char *metadata
        int64_t flags
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil
        void *private_data

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept nogil
        void *private_data

    ctypedef int32_t ArrowDeviceType

    enum:
        ARROW_DEVICE_CPU
        ARROW_DEVICE_CUDA
        ARROW_DEVICE_CUDA_HOST
        ARROW_DEVICE_OPENCL
        ARROW_DEVICE_VULKAN
        ARROW_DEVICE_METAL
        ARROW_DEVICE_VPI
        ARROW_DEVICE_ROCM
        ARROW_DEVICE_ROCM_HOST
        ARROW_DEVICE_EXT_DEV
        ARROW_DEVICE_CUDA_MANAGED
        ARROW_DEVICE_ONEAPI
        ARROW_DEVICE_WEBGPU
        ARROW_DEVICE_HEXAGON

    struct ArrowDeviceArray:
        ArrowArray array
        int64_t device_id
        ArrowDeviceType device_type
        void *sync_event

    struct ArrowDeviceArrayStream:
        ArrowDeviceType device_type
        int (*get_schema)(ArrowDeviceArrayStream *, ArrowSchema *out) noexcept nogil
        int (*get_next)(ArrowDeviceArrayStream *, ArrowDeviceArray *out) noexcept nogil
        const char *(*get_last_error)(ArrowDeviceArrayStream *) noexcept nogil
        void (*release)(ArrowDeviceArrayStream *) noexcept nogil
        void *private_data

    enum:
        DLPACK_FLAG_BITMASK_READ_ONLY
        DLPACK_FLAG_BITMASK_IS_COPIED
        DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED

    ctypedef struct DLPackVersion:
        uint32_t major
        uint32_t minor

    ctypedef enum DLDeviceType:
        kDLCPU
        kDLCUDA
        kDLCUDAHost
        kDLOpenCL
        kDLVulkan
        kDLMetal
        kDLVPI
        kDLROCM
        kDLROCMHost
        kDLExtDev
        kDLCUDAManaged
        kDLOneAPI
        kDLWebGPU
        kDLHexagon

    ctypedef enum DLDataTypeCode:
        kDLInt
        kDLUInt
        kDLFloat
        kDLOpaqueHandle
        kDLBfloat
        kDLComplex
        kDLBool

    ctypedef struct DLDevice:
        DLDeviceType device_type
        int32_t device_id

    ctypedef struct DLDataType:
        uint8_t code
        uint8_t bits
        uint16_t lanes

    ctypedef struct DLTensor:
        void *data
        DLDevice device
        int32_t ndim
        DLDataType dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset

    ctypedef struct DLManagedTensorVersioned:
        DLPackVersion version
        void *manager_ctx
        void (*deleter)(DLManagedTensorVersioned *self) noexcept nogil
        uint64_t flags
        DLTensor dl_tensor

    enum:
        ARROWDEV_API_VERSION
        ARROWDEV_COPY_IF_NEEDED
        ARROWDEV_COPY_NEVER
        ARROWDEV_COPY_ALWAYS
        ARROWDEV_NULLS_RAISE
        ARROWDEV_NULLS_IGNORE
        ARROWDEV_NULLS_FILL

    # The two objects are borrowed: <void *>stream.
    ctypedef struct ArrowDevOptions:
        size_t size
        void *stream
        void *fill_value
        int64_t device_id
        int32_t device_type
        int32_t copy
        int32_t nulls

    ctypedef struct arrowdev_backend:
        size_t size

    int ArrowDev_Import() except -1
    int ArrowDev_ExportDeviceArray(object obj, const ArrowDevOptions *options,
                                   ArrowSchema *schema, ArrowDeviceArray *array) except -1
    object ArrowDev_ImportDeviceArray(ArrowSchema *schema, ArrowDeviceArray *array)
    int ArrowDev_ExportDeviceStream(object obj, const ArrowDevOptions *options,
                                    ArrowDeviceArrayStream *out) except -1
    object ArrowDev_ImportDeviceStream(ArrowDeviceArrayStream *stream)
    int ArrowDev_ExportDLPack(object obj, const ArrowDevOptions *options,
                              DLManagedTensorVersioned **out) except -1
    object ArrowDev_ImportDLPack(DLManagedTensorVersioned *tensor)
    object ArrowDev_Into(object obj, type cls, const ArrowDevOptions *options)
    int ArrowDev_StreamWait(const ArrowDeviceArray *array, void *stream) noexcept nogil
    const char *ArrowDev_LastError() noexcept nogil
    int ArrowDev_RegisterBackend(int32_t device_type,
                                 const arrowdev_backend *backend) except -1
    object ArrowDev_BackendCapsule(int32_t device_type, const arrowdev_backend *backend)
