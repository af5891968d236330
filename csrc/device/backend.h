/* device/: one backend per runtime, and the registry of them.
 *
 * A backend is a `const struct ad_backend` in a folder of its own and one line
 * in backends.def. It supplies short primitives: memory, copies, streams,
 * events, kernels. Policy (who waits, what is copied, which error) belongs to
 * the layers above. Slots may be called on any thread, with and without the
 * GIL, and leave the caller's current context as it was. Locks: one per
 * backend for its first load, one for the queues that it has seen.
 */

/* The contract of a backend: what the core asks of a runtime.
 *
 * A backend is one file that ends in one `const struct ad_backend` with
 * designated initialisers, and one line in backends.def. What is to be done
 * (who waits for what, what is copied, which memory is given back when) is
 * decided in core; a backend supplies short primitives.
 *
 * Rules for every slot, unless its comment says otherwise:
 * - It is called from any thread, with and without Python's GIL, and several
 *   threads may be in it at once. No lock is held around it, and it must hold
 *   none of its own while it calls the runtime.
 * - It does not block the host, takes no ownership, and leaves the thread's
 *   current context or device as it was.
 * - It is called only after `load` succeeded, and never in a forked child of
 *   the process that loaded it: ad_backend_open() sees to both.
 * - It fails with AD_ERR_DEVICE, the runtime's number in err->code and its
 *   name for that number in the message (ad_fail_device); with
 *   AD_ERR_EXCHANGE where the request itself makes no sense.
 * - A slot that the runtime cannot serve is left NULL here and is filled, once,
 *   with a default that refuses; callers never test for NULL.
 */
#ifndef AD_DEVICE_BACKEND_H
#define AD_DEVICE_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/device.h"
#include "base/handles.h"
#include "base/status.h"
#include "kernels/kernels.h"

typedef enum ad_backend_capability {
    /* Work on one stream runs in the order of its submission. */
    AD_CAP_IN_ORDER = 1 << 0,
    /* `sync_event` of an Arrow device array is the event handle itself; else
     * it is the address of the handle (specification, "Synchronization event
     * types"). */
    AD_CAP_EVENT_IS_ADDRESS = 1 << 1,
    /* event_record on an event that was recorded before records it anew, so
     * that events can be pooled; else each record makes a new one. */
    AD_CAP_EVENTS_REUSABLE = 1 << 2,
    /* deallocate() is ordered after the work on its stream; else the caller
     * waits first. */
    AD_CAP_ORDERED_DEALLOCATE = 1 << 3,
    /* Streams can be captured into graphs. */
    AD_CAP_CAPTURE = 1 << 4,
    /* copy() takes the rows of a block one by one, so that many of them take
     * long; else a block is one piece of work. */
    AD_CAP_COPY_BY_ROW = 1 << 5,
    /* synchronize() waits for all work in the context, whoever submitted it,
     * so that no memory there is in use once it returned; else for that on the
     * queues which the backend knows, and nothing is released by it. */
    AD_CAP_CONTEXT_IDLE = 1 << 6,
    /* A forked child can use what its parent loaded. */
    AD_CAP_SURVIVES_FORK = 1 << 7,
    /* Copies and kernels have events of their own, see copy_with_event; to
     * record one behind them would be work of its own. */
    AD_CAP_WORK_HAS_EVENT = 1 << 8,
    /* copy() from the device to pageable host memory blocks until the work
     * before it on the stream is done. */
    AD_CAP_STAGES = 1 << 9,
    /* A wait of the host lends its thread to a device that runs_on_host. */
    AD_CAP_WAIT_HELPS = 1 << 10
} ad_backend_capability;

/* What a pointer is to the runtime that owns it. */
typedef enum ad_memory_kind {
    AD_MEMORY_UNREGISTERED, /* none of this runtime's */
    AD_MEMORY_DEVICE,
    AD_MEMORY_PINNED, /* host memory that the device reaches */
    AD_MEMORY_MANAGED /* moves between host and device by itself */
} ad_memory_kind;

typedef struct ad_memory_info {
    ad_memory_kind kind;
    /* device type (CUDA, CUDA_HOST, ...), ordinal, handle */
    ad_context context;
    bool host_accessible;
    bool device_accessible;
} ad_memory_info;

/* `height` rows of `width` bytes; 1 row: one run of bytes and no pitches. At
 * least one side lies on a device of this runtime; the other one too, or in
 * host memory. Host memory is not read or written any more once the event
 * recorded after the copy is complete. */
typedef struct ad_block_copy {
    ad_span target;
    ad_span source;
    size_t width;
    size_t height;
    size_t target_pitch; /* bytes from one row to the next */
    size_t source_pitch;
} ad_block_copy;

struct ad_backend {
    /* Tag of the file: "cuda". The environment variable
     * ARROWDEV_<NAME>_LIBRARY overrides the library that is loaded. */
    const char *name;
    /* The ARROW_DEVICE_* it serves, the main one first; ends in 0. */
    const int32_t *device_types;
    uint32_t capabilities; /* AD_CAP_* */

    /* --- the runtime ---------------------------------------------------- */

    /* Find the library, resolve its symbols, start it. Called once in a
     * process, under a lock; may block. Its error is kept and given to all
     * later callers. Required. */
    ad_status (*load)(ad_error *err);

    /* One line for people: library, version. Required. */
    ad_status (*describe)(char *buffer, size_t size, ad_error *err);

    /* Number of devices. Required. */
    ad_status (*count)(int64_t *out, ad_error *err);

    /* Name of device `id` for people. Required. */
    ad_status (*device_name)(int64_t id, char *buffer, size_t size,
                             ad_error *err);

    /* Can memory be had on device `id`, and work be done there? Else
     * AD_ERR_EXCHANGE, and why not. Default: yes. */
    ad_status (*device_usable)(int64_t id, ad_error *err);

    /* Is the device made of the host's processors? Then a host that asks it
     * again and again keeps them from the work. No call of the runtime, on any
     * thread. Default: no. */
    bool (*runs_on_host)(int64_t id);

    /* One line for people: which context is current on this thread, and which
     * are in use; "" where the runtime knows no such thing. Makes none. Default:
     * "". */
    ad_status (*describe_current)(char *buffer, size_t size, ad_error *err);

    /* The context on `device` of work that names
     * none (CUDA: the primary context, which is retained on first use and
     * kept; SYCL and OpenCL: the default context). Fails for an id that is not
     * there. Cheap after the first call. Required. */
    ad_status (*primary_context)(ad_device device, ad_context *out,
                                 ad_error *err);

    /* Wait until all work in this context is done; without
     * AD_CAP_CONTEXT_IDLE, all on arrowdev's own queues of the device and the
     * last others that the backend was shown (device/queue_registry.h).
     * Blocks. Required. */
    ad_status (*synchronize)(ad_context context, ad_error *err);

    /* --- memory ---------------------------------------------------------- */

    /* What is this pointer? `hint` is the context where it is said to be; its
     * handle may be needed to ask (SYCL). AD_OK with UNREGISTERED for a
     * pointer that the runtime does not know. Never dereferences it. */
    ad_status (*classify)(const void *pointer, ad_context hint,
                          ad_memory_info *out, ad_error *err);

    /* Uninitialised memory that may be used by work on `stream` from now on,
     * aligned to 64 bytes at least. nbytes > 0. AD_ERR_MEMORY when there is
     * none left. May block. */
    ad_status (*allocate)(ad_context context, ad_stream stream, size_t nbytes,
                          void **out, ad_error *err);

    /* Give it back (cannot fail; see AD_CAP_ORDERED_DEALLOCATE). `stream` is
     * one of arrowdev's own, or the one it was allocated on. May block: where
     * the runtime frees only once the memory is not used any more. */
    void (*deallocate)(ad_context context, ad_stream stream, void *data);

    /* Enqueue a copy on `stream` in `context`. May block only while it stages
     * pageable host memory. */
    ad_status (*copy)(ad_context context, ad_stream stream,
                      const ad_block_copy *copy, ad_error *err);

    /* The same, with AD_CAP_WORK_HAS_EVENT: *event, which the caller owns, is
     * done when the copy is, and all that was before it on the stream. NULL
     * where that takes a record after all: there was nothing to copy, or the
     * stream has no order, so that what comes later would not follow the copy;
     * if `host_waits` for it, it need not. */
    ad_status (*copy_with_event)(ad_context context, ad_stream stream,
                                 const ad_block_copy *copy, bool host_waits,
                                 ad_event *event, ad_error *err);

    /* Enqueue a kernel. AD_ERR_EXCHANGE with reason "kernel" where kernels
     * cannot be had. The first call may block while it builds. */
    ad_status (*launch)(ad_context context, ad_stream stream,
                        const ad_launch *launch, ad_error *err);

    /* The same, as copy_with_event is to copy; other work may follow. */
    ad_status (*launch_with_event)(ad_context context, ad_stream stream,
                                   const ad_launch *launch, ad_event *event,
                                   ad_error *err);

    /* --- streams ---------------------------------------------------------- */

    /* Where a stream that came from outside runs. `hint` is where its user
     * says it runs (id -1: not said); default streams run wherever that is.
     * AD_ERR_EXCHANGE with reason "stream" for one of another device,
     * AD_ERR_DEVICE for one that is not valid. */
    ad_status (*stream_context)(ad_stream stream, ad_context hint,
                                ad_context *out, ad_error *err);

    /* Where a stream that is named for `device` runs unless it is a stranger,
     * for event_record to say: on an event of that context it succeeds for a
     * stream of that context only, so that stream_context need not be asked.
     * No runtime call. False: it has to be asked. */
    bool (*likely_context)(ad_stream stream, ad_device device,
                           ad_context *out);

    /* A stream of arrowdev's own that does not synchronize with default
     * streams; in order, whatever the runtime's default is. */
    ad_status (*stream_create)(ad_context context, ad_stream *out,
                               ad_error *err);
    void (*stream_destroy)(ad_context context, ad_stream stream);

    /* Is the stream being captured into a graph? */
    ad_status (*stream_is_capturing)(ad_context context, ad_stream stream,
                                     bool *out, ad_error *err);

    /* Later work on `stream`, which runs in `context`, waits for the event;
     * the event may be of another device of this runtime. */
    ad_status (*stream_wait)(ad_context context, ad_stream stream,
                             ad_event event, ad_error *err);

    /* --- events ------------------------------------------------------------ */

    /* Record all work that is on `stream` now. event->handle is NULL: a new
     * event (without timing), which the caller owns; else, with
     * AD_CAP_EVENTS_REUSABLE, one that the caller owns, of the same context.
     * On failure *event is as it was, and can be recorded elsewhere. */
    ad_status (*event_record)(ad_context context, ad_stream stream,
                              ad_event *event, ad_error *err);

    /* Is the work done? Foreign events too. */
    ad_status (*event_query)(ad_context context, ad_event event, bool *out,
                             ad_error *err);

    /* Wait for it. Blocks (sleeping where the runtime can). Foreign events
     * too. */
    ad_status (*event_synchronize)(ad_context context, ad_event event,
                                   ad_error *err);

    /* Drop an event of our own; its work may be pending. */
    void (*event_destroy)(ad_context context, ad_event event);

    /* May the event behind this `sync_event` be handed to the runtime? Only
     * EXT_DEV has producers whose events mean something else. Default:
     * yes. */
    bool (*claims_event)(const void *sync_event);
};

/* Is the device made of the host's processors, and a wait of the host lends it
 * one? */
static inline bool
ad_backend_wait_helps(const struct ad_backend *backend, int64_t id)
{
    return (backend->capabilities & AD_CAP_WAIT_HELPS) != 0 &&
           backend->runs_on_host(id);
}

/* --- finding one (device/registry.c) ---------------------------------------------- */

/* The backend of a device type, whether or not its runtime is there. Never
 * NULL: a type without one gets a stand-in that refuses. */
const struct ad_backend *ad_backend_for(int32_t device_type);

/* The same, ready to be used: loaded on first need. Fails with AD_ERR_EXCHANGE
 * (reason "runtime") where there is no backend, its library cannot be
 * loaded or has no device, and says why; in a forked child of a process that had loaded it. */
AD_MUST_CHECK ad_status ad_backend_open(int32_t device_type,
                                        const struct ad_backend **out,
                                        ad_error *err);

/* Would ad_backend_open succeed? Loads, but writes no message. */
bool ad_backend_is_there(int32_t device_type);

/* It has streams and events, so that there is an order to be kept. Loads
 * nothing. */
bool ad_backend_has_events(int32_t device_type);

/* Backends with events whose runtimes are there, by device type; for what
 * follows. */
extern const struct ad_backend *_Atomic ad_backends_in_use[AD_N_DEVICE_TYPES];
const struct ad_backend *ad_backend_take_in_use(int32_t device_type);

/* Both: the backend of a type whose order is to be kept, loaded on first need;
 * NULL where there is none, or its runtime is not there. Every step of an
 * exchange asks this. */
static inline const struct ad_backend *
ad_backend_in_use(int32_t device_type)
{
    const struct ad_backend *known = NULL;
    if ((uint32_t)device_type < AD_N_DEVICE_TYPES) {
        known = atomic_load_explicit(&ad_backends_in_use[device_type],
                                     memory_order_acquire);
    }
    return known != NULL ? known : ad_backend_take_in_use(device_type);
}

/* This is a forked child of the process that loaded it: its memory, streams
 * and events are the parent's, and are dropped without a call. */
bool ad_backend_is_forked(int32_t device_type);

/* Where loading failed, let the next ad_backend_open try again: what was
 * missing has come (software devices). */
void ad_backend_retry(int32_t device_type);

/* All backends, for ad.devices() and the doctor: *n of them. */
const struct ad_backend *const *ad_backends(size_t *n);

/* Fail with AD_ERR_DEVICE: "cuEventRecord on cuda:0 failed: CUDA_ERROR_X
 * (400)". `name`
 * is the runtime's name of the code, `call` the function that failed. */
ad_status ad_fail_device(ad_error *err, ad_device device, const char *call,
                         int code, const char *name, const char *hint);

/* Fail with AD_ERR_EXCHANGE, reason "device": "opencl:7 is not there: OpenCL has
 * 1 device". `hint` says what the number counts. */
void ad_fail_not_there(ad_error *err, ad_device device, const char *runtime,
                       size_t n_devices, const char *hint);

/* --- questions without a runtime ------------------------------------------- */

/* Succeed where the host may, else fail with AD_ERR_EXCHANGE, reason
 * "device". */
AD_MUST_CHECK ad_status ad_require_host(ad_device device, ad_error *err);

#endif /* AD_DEVICE_BACKEND_H */
