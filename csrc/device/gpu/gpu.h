/* Code shared by the CUDA and HIP backends.
 *
 * HIP follows CUDA: its streams, events, modules, flags and error codes are
 * the same under other names. So these slots are written once, here, over the
 * functions that a runtime's library exports (struct ad_gpu_calls). cuda.c and
 * hip.c hold the differences (struct ad_gpu): contexts in CUDA, a current
 * device in HIP, and how memory is allocated, copied and classified.
 */
#ifndef AD_DEVICE_GPU_GPU_H
#define AD_DEVICE_GPU_GPU_H

#include <stdatomic.h>

#include "abi/arrow_c.h"
#include "abi/gpu_abi.h"
#include "device/backend.h"

/* The functions with the same signature. All return the runtime's error
 * code. */
struct ad_gpu_calls {
#define AD_CUDA_COMMON(member, exported, need, parameters)                    \
    int(*member) parameters;
#include "abi/cuda_api.def"
};

/* Their exported names, for messages. */
struct ad_gpu_names {
#define AD_CUDA_COMMON(member, exported, need, parameters) const char *member;
#include "abi/cuda_api.def"
};

/* Result of a call: its error code and its name. */
typedef struct ad_gpu_result {
    int code;
    const char *call;
} ad_gpu_result;

/* State of this thread that ad_gpu_leave restores. Starts zeroed. */
typedef struct ad_gpu_scope {
    bool is_moved;
    bool is_relaxed;
    int device;         /* HIP: the device that was current */
    int mode;           /* the thread's previous capture mode */
    ad_context entered; /* CUDA: with the handle of the current context */
} ad_gpu_scope;

/* Kernels, loaded into one context or device. Entries are added, and never
 * changed or removed. */
typedef struct ad_gpu_module {
    struct ad_gpu_module *next;
    uint64_t key;
    void *module;
    void *functions[AD_N_KERNELS]; /* NULL: the module has no such kernel */
} ad_gpu_module;

typedef enum ad_gpu_pool_state {
    AD_GPU_POOLS_UNKNOWN, /* the runtime was not asked yet */
    AD_GPU_NO_POOLS,
    AD_GPU_HAS_POOLS
} ad_gpu_pool_state;

/* What a device has for memory that is allocated and freed in stream order.
 * Starts zeroed. */
typedef struct ad_gpu_pools {
    atomic_int state;    /* an ad_gpu_pool_state */
    _Atomic(void *) own; /* arrowdev's own pool, which lives until the device
                            is reset; NULL: the default pool serves */
} ad_gpu_pools;

struct ad_gpu {
    const char *name; /* for messages: "CUDA" */
    const struct ad_gpu_calls *calls;
    struct ad_gpu_names names;
    _Atomic(ad_gpu_module *) *modules;
    int32_t device_type; /* of memory that is on the device only */
    int32_t host_type;   /* of pinned memory */
    const int *n_devices;

    const char *(*error_name)(int code);
    /* Clear the thread's last error after a failed call (NOT_READY included),
     * so that other libraries do not read it. */
    void (*forget_error)(void);

    /* Make the context current on this thread. Sets scope->is_moved if another
     * one was current; `leave` is called then. On failure the current context
     * is unchanged. */
    ad_gpu_result (*enter)(ad_context context, ad_gpu_scope *scope);
    /* The same for a context without a known handle, where any existing
     * context serves. Creates none. */
    ad_gpu_result (*enter_existing)(ad_context context, ad_gpu_scope *scope);
    void (*leave)(const ad_gpu_scope *scope);

    /* The context that is current on this thread, and its device's ordinal.
     * NULL and -1 if none is. HIP: NULL and the current device. */
    ad_gpu_result (*current)(void **handle, int64_t *id);
    /* The handle of a device's primary context. HIP: NULL. */
    ad_gpu_result (*primary)(int64_t id, void **out);

    /* Does event_record on a default stream fail unless the event is of the
     * current context? */
    bool record_checks_context;

    /* The functions below are called while the context is current. */

    /* What is known about the pools of a device; NULL: no pools. */
    ad_gpu_pools *(*pools)(int64_t id);
    /* Can the device free memory in stream order? Asks the runtime. */
    bool (*has_pools)(int64_t id);
    /* Allocate memory of the kind that context.device.type names, except
     * pinned memory. is_ordered: memory that is freed in stream order, of
     * `pool` or, if that is NULL, of the default pool. */
    ad_gpu_result (*allocate)(ad_context context, bool is_ordered, void *pool,
                              void *stream, size_t nbytes, void **out);
    int (*free_ordered)(void *data, void *stream);
    int (*free)(void *data);
    /* The number of an allocation, which is unique in the process. 0: it has
     * none, or is no allocation any more. */
    uint64_t (*allocation_id)(void *data);

    /* Copy a block of any height within one address space. */
    ad_gpu_result (*copy)(const ad_block_copy *copy, void *stream);
    /* Copy a block of height 1 from one context or device to another. */
    ad_gpu_result (*copy_peer)(const ad_block_copy *copy, void *stream);

    /* Key of the context or device that a module is loaded into. A key is
     * never reused in a process. */
    ad_status (*module_key)(ad_context context, uint64_t *out, ad_error *err);
    /* The image of the module that has the kernel: each has one of its own,
     * or one module has all. The caller frees `*release`. */
    bool has_module_per_kernel;
    ad_status (*module_image)(ad_kernel kernel, const void **out,
                              void **release, ad_error *err);
};

/* cuda.c and hip.c */
extern const struct ad_gpu ad_gpu_cuda;
extern const struct ad_gpu ad_gpu_hip;

static inline const struct ad_gpu *
ad_gpu_of(ad_device device)
{
    const bool is_hip = device.type == ARROW_DEVICE_ROCM ||
                        device.type == ARROW_DEVICE_ROCM_HOST;
    return is_hip ? &ad_gpu_hip : &ad_gpu_cuda;
}

/* Does the error code mean that there is no such context, or no longer? */
static inline bool
ad_gpu_is_gone(int code)
{
    return code == AD_GPU_INVALID_CONTEXT ||
           code == AD_GPU_CONTEXT_IS_DESTROYED;
}

/* The only conversion from our streams to the runtime's. */
static inline void *
ad_gpu_handle(ad_stream stream)
{
    return (void *)stream.handle;
}

/* The address where a span starts. Nothing else adds an offset to a
 * pointer. */
static inline void *
ad_gpu_pointer(ad_span span)
{
    return (char *)span.data + span.offset;
}

/* Whether a call succeeded. Counts one that was refused inside of a host
 * function, for n_refused. */
bool ad_gpu_is_ok(int code);

/* Fail with the error that a call returned: AD_ERR_DEVICE, or AD_ERR_EXCHANGE
 * ("capture") for an operation that stream capture forbids. */
ad_status ad_gpu_fail(const struct ad_gpu *gpu, ad_device device,
                      ad_gpu_result result, ad_error *err);

static inline ad_status
ad_gpu_check(const struct ad_gpu *gpu, ad_device device, ad_gpu_result result,
             ad_error *err)
{
    return result.code == AD_GPU_SUCCESS
               ? AD_OK
               : ad_gpu_fail(gpu, device, result, err);
}

/* Fail in load(): the library is installed but does not start. */
ad_status ad_gpu_fail_start(const struct ad_gpu *gpu, ad_gpu_result result,
                            const char *hint, ad_error *err);

/* Fail if no device has this id. */
ad_status ad_gpu_check_id(const struct ad_gpu *gpu, ad_device device,
                          ad_error *err);

/* Fail if a stream of `found` is passed for data on another device. Pinned and
 * managed memory is usable on any device. */
ad_status ad_gpu_fail_stream(const struct ad_gpu *gpu, ad_stream stream,
                             ad_device wanted, ad_device found, ad_error *err);

static inline ad_status
ad_gpu_check_stream(const struct ad_gpu *gpu, ad_stream stream,
                    ad_device wanted, ad_device found, ad_error *err)
{
    return wanted.id == found.id || wanted.id < 0 ||
                   wanted.type != gpu->device_type
               ? AD_OK
               : ad_gpu_fail_stream(gpu, stream, wanted, found, err);
}

/* Fail: memory of a kind that this version does not support. */
ad_status ad_gpu_fail_kind(const struct ad_gpu *gpu, ad_device device,
                           int kind, ad_error *err);

/* --- slots of struct ad_backend ------------------------------------------ */

ad_status ad_gpu_primary_context(ad_device device, ad_context *out,
                                 ad_error *err);
ad_status ad_gpu_synchronize(ad_context context, ad_error *err);
ad_status ad_gpu_allocate(ad_context context, ad_stream stream, size_t nbytes,
                          void **out, ad_error *err);
void ad_gpu_deallocate(ad_context context, ad_stream stream, void *data,
                       size_t nbytes);
ad_status ad_gpu_copy(ad_context context, ad_stream stream,
                      const ad_block_copy *copy, ad_error *err);
ad_status ad_gpu_launch(ad_context context, ad_stream stream,
                        const ad_launch *launch, ad_error *err);
ad_status ad_gpu_stream_create(ad_context context, ad_stream *out,
                               ad_error *err);
void ad_gpu_stream_destroy(ad_context context, ad_stream stream);
ad_status ad_gpu_stream_is_capturing(ad_context context, ad_stream stream,
                                     bool *out, ad_error *err);
ad_status ad_gpu_stream_wait(ad_context context, ad_stream stream,
                             ad_event event, ad_error *err);
ad_status ad_gpu_event_record(ad_context context, ad_stream stream,
                              ad_event *event, ad_error *err);
ad_status ad_gpu_event_query(ad_context context, ad_event event, bool *out,
                             ad_error *err);
ad_status ad_gpu_event_synchronize(ad_context context, ad_event event,
                                   ad_error *err);
void ad_gpu_event_destroy(ad_context context, ad_event event);

/* ipc.c */
ad_status ad_gpu_event_export(ad_context context, ad_stream stream,
                              ad_event *event, ad_ipc_event *out,
                              ad_error *err);
ad_status ad_gpu_event_open(ad_context context, const ad_ipc_event *event,
                            ad_event *out, ad_error *err);

unsigned int ad_gpu_n_refused(void);
void ad_gpu_begin_calls(ad_context context);
void ad_gpu_end_calls(ad_context context);

/* The context of ad_gpu_begin_calls on this thread, or NULL. */
const ad_context *ad_gpu_held(const struct ad_gpu *gpu);

#define AD_GPU_SLOTS                                                          \
    .begin_calls = ad_gpu_begin_calls, .end_calls = ad_gpu_end_calls,         \
    .primary_context = ad_gpu_primary_context,                                \
    .synchronize = ad_gpu_synchronize, .allocate = ad_gpu_allocate,           \
    .deallocate = ad_gpu_deallocate, .copy = ad_gpu_copy,                     \
    .launch = ad_gpu_launch, .stream_create = ad_gpu_stream_create,           \
    .stream_destroy = ad_gpu_stream_destroy,                                  \
    .stream_is_capturing = ad_gpu_stream_is_capturing,                        \
    .stream_wait = ad_gpu_stream_wait, .event_record = ad_gpu_event_record,   \
    .event_query = ad_gpu_event_query,                                        \
    .event_synchronize = ad_gpu_event_synchronize,                            \
    .event_destroy = ad_gpu_event_destroy,                                    \
    .event_export = ad_gpu_event_export

/* --- other processes (ipc.c) ---------------------------------------------- */

/* Fail with the reason "share": `what` cannot be opened by other processes. */
ad_status ad_gpu_fail_share(const struct ad_gpu *gpu, ad_device device,
                            const char *what, ad_error *err);

/* The same where the library lacks a function. */
ad_status ad_gpu_fail_missing(const struct ad_gpu *gpu, ad_device device,
                              const char *function, ad_error *err);

/* Leave the caller with this failure if the library lacks a function. */
#define AD_GPU_NEED(gpu, calls, names, member, device, err)                   \
    do {                                                                      \
        if ((calls).member == NULL) {                                         \
            return ad_gpu_fail_missing(gpu, device, (names).member, err);     \
        }                                                                     \
    } while (0)

/* Fail for memory that lies on no device, or not only there. */
ad_status ad_gpu_check_exported(const struct ad_gpu *gpu,
                                const ad_memory_info *info, ad_error *err);

/* Fail unless another process has described memory that can be there. */
ad_status ad_gpu_check_imported(const struct ad_gpu *gpu, ad_device device,
                                const ad_ipc_memory *memory, ad_error *err);

/* Fail for a description of memory that is wrong. `what` says how. */
ad_status ad_gpu_fail_imported(const struct ad_gpu *gpu, ad_device device,
                               const char *what, ad_error *err);

/* Does the allocation of `size` bytes at `base`, as the runtime sees it, hold
 * `nbytes` bytes from `data` on? */
static inline bool
ad_gpu_holds(uintptr_t base, size_t size, uintptr_t data, size_t nbytes)
{
    return data >= base && data - base <= size &&
           nbytes <= size - (data - base);
}

/* --- calls in a context --------------------------------------------------- */

/* Make a context current, or fail. *scope need not be initialised. */
ad_status ad_gpu_enter(const struct ad_gpu *gpu, ad_context context,
                       ad_gpu_scope *scope, ad_error *err);

/* Until ad_gpu_leave, calls on this thread do not invalidate graphs that
 * others capture. By default a capture forbids every thread of the process to
 * wait, to query an event, to allocate, to create a stream or to load a
 * module, and such a call invalidates the capture. Only for callers that never
 * use a captured stream. */
void ad_gpu_relax(const struct ad_gpu *gpu, ad_gpu_scope *scope);
void ad_gpu_restore(const struct ad_gpu *gpu, const ad_gpu_scope *scope);

static inline void
ad_gpu_leave(const struct ad_gpu *gpu, const ad_gpu_scope *scope)
{
    if (scope->is_relaxed) {
        ad_gpu_restore(gpu, scope);
    }
    if (scope->is_moved) {
        gpu->leave(scope);
    }
}

#endif /* AD_DEVICE_GPU_GPU_H */
