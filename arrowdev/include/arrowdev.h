/* arrowdev.h: the C API of the Python package arrowdev, for other extensions.
 *
 * C11 or C++17, with nothing to link: arrowdev.get_include() is the folder to
 * compile with, and ArrowDev_Import() finds the functions at run time. The
 * page "C API" of the documentation has a complete extension in C, in Cython
 * and in C++.
 *
 * Arrow's and DLPack's structs stand here under their own guards, so that this
 * header lives beside theirs, before or after it. Where a newer dlpack.h than
 * 1.3 is used, include that one first.
 */
#ifndef ARROWDEV_H
#define ARROWDEV_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#include "arrowdev_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- the Arrow C data, stream, device and device stream interfaces ------- */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif /* ARROW_C_DATA_INTERFACE */

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif /* ARROW_C_STREAM_INTERFACE */

#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType;

#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2
#define ARROW_DEVICE_CUDA_HOST 3
#define ARROW_DEVICE_OPENCL 4
#define ARROW_DEVICE_VULKAN 7
#define ARROW_DEVICE_METAL 8
#define ARROW_DEVICE_VPI 9
#define ARROW_DEVICE_ROCM 10
#define ARROW_DEVICE_ROCM_HOST 11
#define ARROW_DEVICE_EXT_DEV 12
#define ARROW_DEVICE_CUDA_MANAGED 13
#define ARROW_DEVICE_ONEAPI 14
#define ARROW_DEVICE_WEBGPU 15
#define ARROW_DEVICE_HEXAGON 16

struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    ArrowDeviceType device_type;
    void *sync_event;
    int64_t reserved[3];
};

#endif /* ARROW_C_DEVICE_DATA_INTERFACE */

#ifndef ARROW_C_DEVICE_STREAM_INTERFACE
#define ARROW_C_DEVICE_STREAM_INTERFACE

struct ArrowDeviceArrayStream {
    ArrowDeviceType device_type;
    int (*get_schema)(struct ArrowDeviceArrayStream *,
                      struct ArrowSchema *out);
    int (*get_next)(struct ArrowDeviceArrayStream *,
                    struct ArrowDeviceArray *out);
    const char *(*get_last_error)(struct ArrowDeviceArrayStream *);
    void (*release)(struct ArrowDeviceArrayStream *);
    void *private_data;
};

#endif /* ARROW_C_DEVICE_STREAM_INTERFACE */

/* --- DLPack 1.3 ---------------------------------------------------------- */

/* All of dlpack.h, because a dlpack.h that is included later is left out. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#ifdef __cplusplus
#define DLPACK_EXTERN_C extern "C"
#else
#define DLPACK_EXTERN_C
#endif

#define DLPACK_DLL
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17,
    kDLTrn = 18
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum {
    kDLInt = 0U,
    kDLUInt = 1U,
    kDLFloat = 2U,
    kDLOpaqueHandle = 3U,
    kDLBfloat = 4U,
    kDLComplex = 5U,
    kDLBool = 6U,
    kDLFloat8_e3m4 = 7U,
    kDLFloat8_e4m3 = 8U,
    kDLFloat8_e4m3b11fnuz = 9U,
    kDLFloat8_e4m3fn = 10U,
    kDLFloat8_e4m3fnuz = 11U,
    kDLFloat8_e5m2 = 12U,
    kDLFloat8_e5m2fnuz = 13U,
    kDLFloat8_e8m0fnu = 14U,
    kDLFloat6_e2m3fn = 15U,
    kDLFloat6_e3m2fn = 16U,
    kDLFloat4_e2m1fn = 17U
} DLDataTypeCode;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef int (*DLPackManagedTensorAllocator)(
    DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
    void (*SetError)(void *error_ctx, const char *kind, const char *message));
typedef int (*DLPackManagedTensorFromPyObjectNoSync)(
    void *py_object, DLManagedTensorVersioned **out);
typedef int (*DLPackDLTensorFromPyObjectNoSync)(void *py_object,
                                                DLTensor *out);
typedef int (*DLPackCurrentWorkStream)(DLDeviceType device_type,
                                       int32_t device_id,
                                       void **out_current_stream);
typedef int (*DLPackManagedTensorToPyObjectNoSync)(
    DLManagedTensorVersioned *tensor, void **out_py_object);

typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    DLPackManagedTensorAllocator managed_tensor_allocator;
    DLPackManagedTensorFromPyObjectNoSync
        managed_tensor_from_py_object_no_sync;
    DLPackManagedTensorToPyObjectNoSync managed_tensor_to_py_object_no_sync;
    DLPackDLTensorFromPyObjectNoSync dltensor_from_py_object_no_sync;
    DLPackCurrentWorkStream current_work_stream;
} DLPackExchangeAPI;

#endif /* DLPACK_DLPACK_H_ */

/* For a dlpack.h from before DLPack 1.0. */
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;

/* --- options ------------------------------------------------------------- */

enum {
    ARROWDEV_COPY_IF_NEEDED = 0,
    ARROWDEV_COPY_NEVER = 1, /* ExchangeError where a copy is needed */
    ARROWDEV_COPY_ALWAYS = 2
};

enum {
    ARROWDEV_NULLS_RAISE = 0,
    ARROWDEV_NULLS_IGNORE = 1, /* drops the mask */
    ARROWDEV_NULLS_FILL = 2    /* with `fill_value` */
};

/* Options of a call. `size` is sizeof(ArrowDevOptions); every other member that
 * is zero has its default, and NULL instead of a struct is all defaults:
 *
 *     ArrowDevOptions options = {.size = sizeof(options),
 *                                .device_type = ARROW_DEVICE_CPU};
 *
 * Objects are borrowed for the time of the call. An option that a function
 * could not follow is a ValueError, never ignored. */
typedef struct ArrowDevOptions {
    size_t size;
    PyObject *stream;     /* stream= of Python: an int with DLPack's meaning or
                             a stream object; NULL or None: the current one */
    PyObject *fill_value; /* for ARROWDEV_NULLS_FILL */
    int64_t device_id;    /* with a device_type; ignored for the CPU */
    int32_t device_type;  /* bring the data there; 0: leave them where they
                             are */
    int32_t copy;         /* ARROWDEV_COPY_* */
    int32_t nulls;        /* ARROWDEV_NULLS_*, for tensors */
    int32_t reserved;     /* 0 */
} ArrowDevOptions;

/* --- the table ----------------------------------------------------------- */

/* The version of the table that this header describes. A later version adds
 * members at the end of the table and changes nothing else. */
#define ARROWDEV_API_VERSION 2

typedef struct ArrowDevAPI {
    uint32_t version;    /* of the table that is installed */
    uint32_t reserved;   /* 0 */
    const char *package; /* version of the package, such as "1.2.3" */
    int (*export_device_array)(PyObject *obj, const ArrowDevOptions *options,
                               struct ArrowSchema *schema,
                               struct ArrowDeviceArray *array);
    PyObject *(*import_device_array)(struct ArrowSchema *schema,
                                     struct ArrowDeviceArray *array);
    int (*export_device_stream)(PyObject *obj, const ArrowDevOptions *options,
                                struct ArrowDeviceArrayStream *out);
    PyObject *(*import_device_stream)(struct ArrowDeviceArrayStream *stream);
    int (*export_dlpack)(PyObject *obj, const ArrowDevOptions *options,
                         DLManagedTensorVersioned **out);
    PyObject *(*import_dlpack)(DLManagedTensorVersioned *tensor);
    PyObject *(*into)(PyObject *obj, PyTypeObject *cls,
                      const ArrowDevOptions *options);
    int (*stream_wait)(const struct ArrowDeviceArray *array, void *stream);
    const char *(*last_error)(void);
    int (*register_backend)(int32_t device_type, /* since version 2 */
                            const arrowdev_backend *backend);
} ArrowDevAPI;

/* One pointer for all files of an extension; each of them has a definition,
 * and the linker keeps one. */
#if defined(__GNUC__)
__attribute__((weak, visibility("hidden"))) const ArrowDevAPI *ArrowDev_API;
#else
static const ArrowDevAPI *ArrowDev_API;
#endif

/* Imports arrowdev and finds its table. Call it in the module's init, before
 * any other function of this header. Returns 0, or -1 with an ImportError: there
 * is no arrowdev, it has no C API, its table is older than this header, or
 * this is a sub-interpreter of CPython 3.11 or earlier. Another call does no
 * harm. */
static inline int
ArrowDev_Import(void)
{
    PyObject *module = PyImport_ImportModule("arrowdev");
    PyObject *capsule =
        module != NULL ? PyObject_GetAttrString(module, "_C_API") : NULL;
    const ArrowDevAPI *api = NULL;
    if (capsule != NULL) {
        api = (const ArrowDevAPI *)PyCapsule_GetPointer(capsule,
                                                        "arrowdev._C_API");
    } else if (module != NULL &&
               PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Format(PyExc_ImportError,
                     "this extension needs version %d of the C API of "
                     "arrowdev, and the installed arrowdev has none; upgrade "
                     "arrowdev",
                     ARROWDEV_API_VERSION);
    }
    if (api != NULL && api->version < ARROWDEV_API_VERSION) {
        PyErr_Format(PyExc_ImportError,
                     "this extension needs version %d of the C API of "
                     "arrowdev, and the installed arrowdev %s has version "
                     "%d; upgrade arrowdev",
                     ARROWDEV_API_VERSION, api->package, (int)api->version);
        api = NULL;
    }
    Py_XDECREF(capsule);
    Py_XDECREF(module);
    if (api == NULL) {
        return -1;
    }
    ArrowDev_API = api;
    return 0;
}

/* --- the functions ------------------------------------------------------- */

/* Each function up to ArrowDev_Into() is called with the GIL, and returns -1
 * or NULL with an exception where it fails: those of the Python functions, which
 * are TypeError, ValueError, arrowdev.ExchangeError (a BufferError, with
 * `reason`), arrowdev.InvalidArrowError, arrowdev.DeviceError and MemoryError.
 * Where an exception is set already, the call fails and leaves it set.
 *
 * Export functions fill structs that the caller releases; they write nothing
 * where they fail, except that `release` is NULL. Import functions take over
 * their arguments, also where they fail: `release` is NULL afterwards. */

/* Exports `obj`, which is anything that arrowdev.array() takes. Data that are
 * not ready have an event, see ArrowDev_StreamWait(). */
static inline int
ArrowDev_ExportDeviceArray(PyObject *obj, const ArrowDevOptions *options,
                           struct ArrowSchema *schema,
                           struct ArrowDeviceArray *array)
{
    return ArrowDev_API->export_device_array(obj, options, schema, array);
}

/* A new arrowdev.Array over the memory of the structs. The event is kept until
 * the array is released. */
static inline PyObject *
ArrowDev_ImportDeviceArray(struct ArrowSchema *schema,
                           struct ArrowDeviceArray *array)
{
    return ArrowDev_API->import_device_array(schema, array);
}

/* Exports `obj`, which is anything that arrowdev.array_stream() takes. An
 * ArrayStream is handed over to the struct. */
static inline int
ArrowDev_ExportDeviceStream(PyObject *obj, const ArrowDevOptions *options,
                            struct ArrowDeviceArrayStream *out)
{
    return ArrowDev_API->export_device_stream(obj, options, out);
}

/* A new arrowdev.ArrayStream over the stream. */
static inline PyObject *
ArrowDev_ImportDeviceStream(struct ArrowDeviceArrayStream *stream)
{
    return ArrowDev_API->import_device_stream(stream);
}

/* Exports `obj`, which is anything that arrowdev.tensor() takes. The stream of
 * the options, or the current or default stream, waits for the data. Sets *out
 * to a tensor whose deleter the caller calls, or to NULL. */
static inline int
ArrowDev_ExportDLPack(PyObject *obj, const ArrowDevOptions *options,
                      DLManagedTensorVersioned **out)
{
    return ArrowDev_API->export_dlpack(obj, options, out);
}

/* A new arrowdev.Tensor over the memory. Work on it may be pending on the
 * current stream of arrowdev.use_stream(), or on the default stream. */
static inline PyObject *
ArrowDev_ImportDLPack(DLManagedTensorVersioned *tensor)
{
    return ArrowDev_API->import_dlpack(tensor);
}

/* `obj` as an instance of another library's class, as arrowdev.convert(). */
static inline PyObject *
ArrowDev_Into(PyObject *obj, PyTypeObject *cls, const ArrowDevOptions *options)
{
    return ArrowDev_API->into(obj, cls, options);
}

/* Lets later work on `stream` wait for array->sync_event; the host does not
 * wait. `stream` is a handle of the runtime of array->device_type: CUstream
 * (NULL: the default stream), hipStream_t, cl_command_queue, or
 * DPCTLSyclQueueRef. Needs no GIL. Returns 0, or an errno: EINVAL, ENOMEM, or
 * EIO for an error of the runtime. */
static inline int
ArrowDev_StreamWait(const struct ArrowDeviceArray *array, void *stream)
{
    return ArrowDev_API->stream_wait(array, stream);
}

/* What went wrong in the last ArrowDev_StreamWait() of this thread that
 * failed, until the next one that fails; "" if none has. Needs no GIL. */
static inline const char *
ArrowDev_LastError(void)
{
    return ArrowDev_API->last_error();
}

/* Registers the runtime of a device type that arrowdev does not know, once and
 * before memory of this type is used; see arrowdev_backend.h. Needs the GIL.
 * Returns 0, or -1 with an exception: ValueError for a table that this version
 * cannot use, ExchangeError where the type has a backend. Whether the functions
 * are valid pointers cannot be checked. */
static inline int
ArrowDev_RegisterBackend(int32_t device_type, const arrowdev_backend *backend)
{
    return ArrowDev_API->register_backend(device_type, backend);
}

/* A new capsule for arrowdev.register_backend(), or for the function of an
 * entry point of the group "arrowdev.backends". The table stays for the life
 * of the process. Needs no ArrowDev_Import(). */
static inline PyObject *
ArrowDev_BackendCapsule(int32_t device_type, const arrowdev_backend *backend)
{
    PyObject *capsule =
        PyCapsule_New((void *)backend, "arrowdev_backend", NULL);
    if (capsule != NULL &&
        PyCapsule_SetContext(capsule, (void *)(intptr_t)device_type) < 0) {
        Py_DECREF(capsule);
        capsule = NULL;
    }
    return capsule;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ARROWDEV_H */
