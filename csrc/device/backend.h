/* device/: one backend per runtime, and the registry of the backends.
 *
 * A backend is a file that ends in one `const struct ad_backend`, in the
 * folder of its runtimes, and one line in backends.def. It supplies short
 * primitives for memory, copies, streams, events and kernels. The layers above
 * decide the policy: what waits, what is copied and which error is raised.
 * Every slot may be called on any thread, with and without the GIL, and leaves
 * the caller's current context as it was. A lock per backend guards the first
 * load, and another one guards its queue registry.
 */

/* The contract of a backend: what the core requires of a runtime.
 *
 * Rules for every slot, unless its comment says otherwise:
 * - It may be called on any thread, with and without Python's GIL, and on
 *   several threads at once. The caller holds no lock, and the slot holds none
 *   of its own while it calls the runtime.
 * - It does not block the host, takes no ownership, and leaves the thread's
 *   current context or device as it was.
 * - It is called only after `load` succeeded, and never in a forked child of
 *   the process that loaded it. ad_backend_open() ensures both.
 * - It fails with AD_ERR_DEVICE, the runtime's error code in err->code and the
 *   runtime's name of that code in the message (ad_fail_device). It fails with
 *   AD_ERR_EXCHANGE where the request itself is invalid.
 * - A backend leaves a slot NULL if its runtime cannot serve it. The registry
 *   fills it once with its default, so callers never test for NULL.
 *
 * A new slot is a member of struct ad_backend and a line in the list of
 * registry.c, which does not compile without it; each backend that can serve it
 * sets it in its last lines. docs/internals/add_a_backend.md lists the files.
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
    /* `sync_event` of an Arrow device array is the event handle itself.
     * Without this flag it is the address of the handle (specification,
     * "Synchronization event types"). */
    AD_CAP_SYNC_EVENT_IS_HANDLE = 1 << 1,
    /* event_record may record an event again, so events can be pooled. Without
     * this flag each record creates an event. */
    AD_CAP_EVENTS_REUSABLE = 1 << 2,
    /* deallocate() of memory of the main device type is ordered after the work
     * on its stream. For other memory, and without this flag, the caller waits
     * first. */
    AD_CAP_ORDERED_DEALLOCATE = 1 << 3,
    /* Streams can be captured into graphs. */
    AD_CAP_CAPTURE = 1 << 4,
    /* copy() submits the rows of a block one by one, so many rows take long.
     * Without this flag a block is one operation. */
    AD_CAP_COPY_BY_ROW = 1 << 5,
    /* synchronize() waits for all work in the context, whoever submitted it,
     * so afterwards no work uses memory of the context. Without this flag it
     * waits for the queues that the backend knows, and nothing is released
     * because of it. */
    AD_CAP_CONTEXT_IDLE = 1 << 6,
    /* A forked child can use what its parent loaded. */
    AD_CAP_SURVIVES_FORK = 1 << 7,
    /* Copies and kernels return events of their own. An extra record after
     * them would be an operation of its own. So copy_with_event() and
     * launch_with_event() are called instead of copy() and launch(). */
    AD_CAP_WORK_HAS_EVENT = 1 << 8,
    /* copy() to pageable host memory, and of more than AD_STAGED_AT_ONCE bytes
     * from it, blocks until the work before it on the stream is done. */
    AD_CAP_STAGES = 1 << 9,
    /* A host thread that waits runs work of a device for which runs_on_host is
     * true. */
    AD_CAP_WAIT_HELPS = 1 << 10,
    /* An event is waited for with its own context, so stream_wait_in() is
     * called instead of stream_wait(). */
    AD_CAP_EVENT_HAS_CONTEXT = 1 << 11,
    /* The number of devices may grow. A runtime that had none, or was refused,
     * is tried again when it is needed the next time. */
    AD_CAP_DEVICES_COME = 1 << 12
} ad_backend_capability;

#define AD_STAGED_AT_ONCE ((size_t)64 << 10)

/* The kind of memory that a pointer refers to, as its runtime sees it. */
typedef enum ad_memory_kind {
    AD_MEMORY_UNREGISTERED, /* not known to this runtime. If host_accessible,
                               its devices access it like managed memory */
    AD_MEMORY_DEVICE,
    AD_MEMORY_PINNED, /* host memory that the device can access */
    AD_MEMORY_MANAGED /* migrates between host and device */
} ad_memory_kind;

typedef struct ad_memory_info {
    ad_memory_kind kind;
    /* device type (CUDA, CUDA_HOST, ...), ordinal, handle */
    ad_context context;
    bool host_accessible;
} ad_memory_info;

/* `height` rows of `width` bytes. With one row the bytes are contiguous and
 * the pitches have no meaning. At least one side is on a device of this
 * runtime; the other side is too, or is in host memory. Once an event recorded
 * after the copy is complete, the copy no longer reads or writes host
 * memory. */
typedef struct ad_block_copy {
    ad_span target;
    ad_span source;
    size_t width;
    size_t height;
    size_t target_pitch; /* bytes from one row to the next */
    size_t source_pitch;
} ad_block_copy;

/* --- other processes ----------------------------------------------------- */

/* How an allocation is named to another process. */
typedef enum ad_ipc_kind {
    AD_IPC_FILE,  /* it lies in a file */
    AD_IPC_POOL,  /* the file is a memory pool, the bytes name a pointer */
    AD_IPC_VMM,   /* the file is memory of the virtual memory management */
    AD_IPC_LEGACY /* the bytes name the allocation */
} ad_ipc_kind;

enum {
    AD_IPC_BYTES = 64,
    AD_UUID_SIZE = 16,
};

/* An allocation, for another process. `base` is an address of the process that
 * exports it. */
typedef struct ad_ipc_memory {
    ad_ipc_kind kind;
    int file; /* a descriptor, which belongs to the holder; -1: none */
    /* where it begins in the file; AD_IPC_POOL: a number that no other
     * allocation of this machine has */
    uint64_t file_offset;
    const void *base;
    size_t nbytes;
    unsigned char bytes[AD_IPC_BYTES];
} ad_ipc_memory;

/* An event, for another process. */
typedef struct ad_ipc_event {
    int file; /* a descriptor, which belongs to the holder; -1: none */
    unsigned char bytes[AD_IPC_BYTES];
} ad_ipc_event;

struct ad_backend {
    /* Short name, for example "cuda". The environment variable
     * ARROWDEV_<NAME>_LIBRARY overrides the library that is loaded. */
    const char *name;
    /* The ARROW_DEVICE_* types it serves, the main one first. Ends in 0. */
    const int32_t *device_types;
    uint32_t capabilities; /* AD_CAP_* */

    /* --- the runtime ----------------------------------------------------- */

    /* Find the library, resolve its symbols and start the runtime. Called once
     * in a process, under a lock. May block. Its error is kept and given to
     * all later callers. Required. */
    ad_status (*load)(ad_error *err);

    /* One line of text: library and version. Required. */
    ad_status (*describe)(char *buffer, size_t size, ad_error *err);

    /* Number of devices. Required. */
    ad_status (*count)(int64_t *out, ad_error *err);

    /* Display name of device `id`. Required. */
    ad_status (*device_name)(int64_t id, char *buffer, size_t size,
                             ad_error *err);

    /* Can device `id` allocate memory and run work? If not, fails with
     * AD_ERR_EXCHANGE and the reason. Default: yes. */
    ad_status (*device_usable)(int64_t id, ad_error *err);

    /* Does the device run on the host's processors? A host thread that polls
     * it then takes processor time from the work. Calls no function of the
     * runtime. May be called on any thread. Default: no. */
    bool (*runs_on_host)(int64_t id);

    /* One line of text: the context that is current on this thread, and those
     * in use. "" where the runtime has no current context. Creates no context.
     * Default: "". */
    ad_status (*describe_current)(char *buffer, size_t size, ad_error *err);

    /* The context on `device` for work that names none. CUDA: the primary
     * context, which is retained on first use and never released. SYCL and
     * OpenCL: the default context. Fails for an id that does not exist. Cheap
     * after the first call. Required. */
    ad_status (*primary_context)(ad_device device, ad_context *out,
                                 ad_error *err);

    /* Wait until all work in this context is done. Without
     * AD_CAP_CONTEXT_IDLE: all work on arrowdev's own queues of the device and
     * on the foreign queues registered last (device/queue_registry.h). Blocks.
     * Required. */
    ad_status (*synchronize)(ad_context context, ad_error *err);

    /* --- memory ---------------------------------------------------------- */

    /* Classify a pointer. `hint` is the context where it is said to be; some
     * runtimes (SYCL) need its handle. Returns AD_OK with UNREGISTERED for a
     * pointer that the runtime does not know. Never dereferences the
     * pointer. */
    ad_status (*classify)(const void *pointer, ad_context hint,
                          ad_memory_info *out, ad_error *err);

    /* Allocate uninitialised memory, aligned to at least 64 bytes, which work
     * on `stream` may use from now on. nbytes > 0. AD_ERR_MEMORY when no
     * memory is left. May block. */
    ad_status (*allocate)(ad_context context, ad_stream stream, size_t nbytes,
                          void **out, ad_error *err);

    /* Free memory that was allocated with these arguments. Cannot fail; see
     * AD_CAP_ORDERED_DEALLOCATE. `stream` is one of arrowdev's own, or the one
     * the memory was allocated on. May block where the runtime frees memory
     * only once it is unused. */
    void (*deallocate)(ad_context context, ad_stream stream, void *data,
                       size_t nbytes);

    /* Enqueue a copy on `stream` in `context`. May block only while it stages
     * pageable host memory. */
    ad_status (*copy)(ad_context context, ad_stream stream,
                      const ad_block_copy *copy, ad_error *err);

    /* The same for AD_CAP_WORK_HAS_EVENT. *event, which the caller owns,
     * completes once the copy and all work before it on the stream are done.
     * *event is NULL where a record is needed after all: there was nothing to
     * copy, or the stream is out of order, so later work would not follow the
     * copy. With `host_waits` only the host waits for the event, and order on
     * the stream is not needed. */
    ad_status (*copy_with_event)(ad_context context, ad_stream stream,
                                 const ad_block_copy *copy, bool host_waits,
                                 ad_event *event, ad_error *err);

    /* Enqueue a kernel. AD_ERR_EXCHANGE with reason "kernel" where the device
     * cannot run kernels. The first call may block while it builds them. */
    ad_status (*launch)(ad_context context, ad_stream stream,
                        const ad_launch *launch, ad_error *err);

    /* launch() with an event, as copy_with_event is copy() with an event.
     * Other work may follow. */
    ad_status (*launch_with_event)(ad_context context, ad_stream stream,
                                   const ad_launch *launch, ad_event *event,
                                   ad_error *err);

    /* Between these two calls, on one thread, most work is in `context`, so
     * that the runtime is not asked before each call what is current. Its
     * handle may be NULL: the context for work that names none. The calls
     * nest. No code of a user runs in between, and the host does not wait for
     * long. Default: nothing. */
    void (*begin_calls)(ad_context context);
    void (*end_calls)(ad_context context);

    /* --- streams --------------------------------------------------------- */

    /* The context in which a foreign stream runs. `hint` is the context its
     * user named (id -1: none), and a default stream runs there.
     * AD_ERR_EXCHANGE with reason "stream" for a stream of another device,
     * AD_ERR_DEVICE for an invalid one. */
    ad_status (*stream_context)(ad_stream stream, ad_context hint,
                                ad_context *out, ad_error *err);

    /* The context in which a stream named for `device` most likely runs.
     * event_record verifies it: on an event of that context it succeeds only
     * for a stream of that context, so a call of stream_context is not needed.
     * Makes no runtime call. False: call stream_context. */
    bool (*likely_context)(ad_stream stream, ad_device device,
                           ad_context *out);

    /* The number of a stream that has a handle of its own. No other stream of
     * the process ever gets it, whereas the handle may be given out again.
     * False where the runtime has no such numbers, or refuses the handle.
     * Default: false. */
    bool (*stream_id)(ad_context context, ad_stream stream, uint64_t *out);

    /* The calls that the runtime has refused on this thread, which was inside
     * of a host function of a stream: none is permitted there (CUDA). Such a
     * call can be made later, on another thread. Makes no runtime call.
     * Default: 0. */
    unsigned int (*n_refused)(void);

    /* Is all work done on a stream of stream_create() that is not being
     * captured? One call, where a recorded event takes two. False also where
     * the runtime refuses the handle. Default: false. */
    bool (*stream_is_idle)(ad_context context, ad_stream stream);

    /* Create a stream of arrowdev's own. It does not synchronize with default
     * streams, and it is in order whatever the runtime's default is. */
    ad_status (*stream_create)(ad_context context, ad_stream *out,
                               ad_error *err);
    void (*stream_destroy)(ad_context context, ad_stream stream);

    /* Is the stream being captured into a graph? */
    ad_status (*stream_is_capturing)(ad_context context, ad_stream stream,
                                     bool *out, ad_error *err);

    /* Later work on `stream`, which runs in `context`, waits for the event.
     * The event may belong to another device of this runtime. */
    ad_status (*stream_wait)(ad_context context, ad_stream stream,
                             ad_event event, ad_error *err);

    /* The same for AD_CAP_EVENT_HAS_CONTEXT. `of` is the context of the event:
     * of a foreign one the device of the memory that came with it, and a
     * handle of NULL. */
    ad_status (*stream_wait_in)(ad_context context, ad_stream stream,
                                ad_event event, ad_context of, ad_error *err);

    /* --- events ---------------------------------------------------------- */

    /* Record all work that is now on `stream`. With event->handle NULL this
     * creates an event (without timing), which the caller owns. With
     * AD_CAP_EVENTS_REUSABLE, event->handle may also be an event of the same
     * context that the caller owns. On failure *event is unchanged and can be
     * recorded elsewhere. */
    ad_status (*event_record)(ad_context context, ad_stream stream,
                              ad_event *event, ad_error *err);

    /* Is the work of the event done? The event may be foreign. */
    ad_status (*event_query)(ad_context context, ad_event event, bool *out,
                             ad_error *err);

    /* Wait for the event, which may be foreign. Blocks; sleeps where the
     * runtime can. */
    ad_status (*event_synchronize)(ad_context context, ad_event event,
                                   ad_error *err);

    /* Destroy an event of arrowdev's own. Its work may be pending. */
    void (*event_destroy)(ad_context context, ad_event event);

    /* May the event behind this `sync_event` be passed to the runtime? Only
     * EXT_DEV has producers whose events have another meaning. Default:
     * yes. */
    bool (*claims_event)(const void *sync_event);

    /* --- other processes ------------------------------------------------- */

    /* What names the device in all processes of this machine, whatever its
     * number is in each. */
    ad_status (*device_uuid)(int64_t id, unsigned char out[AD_UUID_SIZE],
                             ad_error *err);

    /* How another process can open the allocation in which `pointer` lies.
     * Fails with AD_ERR_EXCHANGE, reason "share", and says of what kind the
     * memory is, if no other process can. Default: none can. */
    ad_status (*memory_export)(ad_context context, const void *pointer,
                               ad_ipc_memory *out, ad_error *err);

    /* Open memory of another process. *out is where it begins here. Borrows
     * the descriptor. The other process keeps the memory until it is closed.
     * Several opens of an allocation may be at one address. May block. */
    ad_status (*memory_open)(ad_context context, const ad_ipc_memory *memory,
                             void **out, ad_error *err);

    /* Close it. No work uses it. Cannot fail. May block. */
    void (*memory_close)(ad_context context, const ad_ipc_memory *memory,
                         void *data);

    /* Record the work that is now on `stream`, one of arrowdev's own, in an
     * event for other processes. *event is destroyed when no process waits for
     * it any more; its handle is NULL if nothing has to be destroyed. */
    ad_status (*event_export)(ad_context context, ad_stream stream,
                              ad_event *event, ad_ipc_event *out,
                              ad_error *err);

    /* Open an event of another process. Borrows the descriptor. *out is
     * queried, waited for and destroyed as an event of this process. If the
     * other process ends before its work is done, the wait fails. */
    ad_status (*event_open)(ad_context context, const ad_ipc_event *event,
                            ad_event *out, ad_error *err);
};

/* Does the device run on the host's processors, and does a waiting host thread
 * run its work? */
static inline bool
ad_backend_wait_helps(const struct ad_backend *backend, int64_t id)
{
    return (backend->capabilities & AD_CAP_WAIT_HELPS) != 0 &&
           backend->runs_on_host(id);
}

#define AD_BACKEND(variable) extern const struct ad_backend variable;
#include "device/backends.def"

/* --- finding a backend (device/registry.c) ------------------------------- */

/* Backends that have events and whose runtimes are loaded, by device type.
 * Only the functions below read this, which every step of an exchange
 * calls. */
extern const struct ad_backend *_Atomic ad_backends_in_use[AD_N_DEVICE_TYPES];

static inline const struct ad_backend *
ad_backend_known_in_use(int32_t device_type)
{
    return (uint32_t)device_type < AD_N_DEVICE_TYPES
               ? atomic_load_explicit(&ad_backends_in_use[device_type],
                                      memory_order_acquire)
               : NULL;
}

/* For the functions of similar names below, where the type is not known to be
 * in use. */
const struct ad_backend *ad_backend_find(int32_t device_type);
AD_MUST_CHECK ad_status ad_backend_load(int32_t device_type,
                                        const struct ad_backend **out,
                                        ad_error *err);
bool ad_backend_find_events(int32_t device_type);
const struct ad_backend *ad_backend_take_in_use(int32_t device_type);

/* The backend of a device type, whether or not its runtime is available. Never
 * NULL: a type without a backend gets a stand-in that refuses. */
static inline const struct ad_backend *
ad_backend_for(int32_t device_type)
{
    const struct ad_backend *known = ad_backend_known_in_use(device_type);
    return known != NULL ? known : ad_backend_find(device_type);
}

/* The same, ready to use: its runtime is loaded on first need. Fails with
 * AD_ERR_EXCHANGE (reason "runtime") where there is no backend, where its
 * library cannot be loaded or has no device, and in a forked child of a
 * process that had loaded it. The message gives the cause. */
AD_MUST_CHECK static inline ad_status
ad_backend_open(int32_t device_type, const struct ad_backend **out,
                ad_error *err)
{
    const struct ad_backend *known = ad_backend_known_in_use(device_type);
    if (known == NULL) {
        return ad_backend_load(device_type, out, err);
    }
    *out = known;
    return AD_OK;
}

/* Would ad_backend_open succeed? Loads, but writes no message. */
bool ad_backend_is_there(int32_t device_type);

/* Does the backend have streams and events, so that work needs ordering? Loads
 * nothing. */
static inline bool
ad_backend_has_events(int32_t device_type)
{
    return ad_backend_known_in_use(device_type) != NULL ||
           ad_backend_find_events(device_type);
}

/* The backend of a type that has events, loaded on first need. NULL where
 * there is none, or its runtime is not available. */
static inline const struct ad_backend *
ad_backend_in_use(int32_t device_type)
{
    const struct ad_backend *known = ad_backend_known_in_use(device_type);
    return known != NULL ? known : ad_backend_take_in_use(device_type);
}

/* The device with the main type of its runtime: "cuda" for pinned and managed
 * memory, too. */
static inline ad_device
ad_device_of_runtime(ad_device device)
{
    const int32_t main_type = ad_backend_for(device.type)->device_types[0];
    return (ad_device){main_type != 0 ? main_type : device.type, device.id};
}

/* Is this a forked child of the process that loaded the backend? Its memory,
 * streams and events are the parent's then, and are dropped without a call. */
bool ad_backend_is_forked(int32_t device_type);

/* Add a backend that is not in backends.def (device/foreign.c). It stays for
 * the life of the process, and `source` must, too. Fails with AD_ERR_EXCHANGE,
 * reason "runtime", where another backend has one of its device types. Until
 * then memory of these types is carried, as that of a type without a
 * backend. */
AD_MUST_CHECK ad_status ad_backend_register(const struct ad_backend *source,
                                            ad_error *err);

/* Set the function that looks for a backend of a type that has none, when one
 * is needed for the first time. It registers what it finds. `why` says what
 * failed, or is "". It returns false to be asked again. Any thread may be the
 * first, with or without the GIL; two threads may be. Set once, before any
 * device is used. */
enum {
    AD_WHY_SIZE = 400
};
typedef bool (*ad_backend_search)(int32_t device_type, char *why);
void ad_backend_set_search(ad_backend_search search);

/* If something was missing, let the next ad_backend_open try again: it is now
 * available. After a call that failed, it does so by itself. */
void ad_backend_retry(int32_t device_type);

/* All backends, for ad.devices() and the doctor, those that were registered
 * last. Searches for all that can be found. *n is their number. */
const struct ad_backend *const *ad_backends(size_t *n);

/* While a trace is on, the slots for events add what they do to it
 * (device/traced.c), also those of a backend that is registered meanwhile. */
void ad_backends_trace(bool on);
/* The backend of a type as it is without a trace. Never NULL. */
const struct ad_backend *ad_backend_untraced(int32_t device_type);
/* For registry.c: sets the slots of `backend`. */
void ad_backend_set_traced(struct ad_backend *backend,
                           const struct ad_backend *untraced, bool on);

/* Fail with AD_ERR_DEVICE: "cuEventRecord on cuda:0 failed: CUDA_ERROR_X
 * (400)". `call` is the function that failed, `name` the runtime's name of the
 * code. */
ad_status ad_fail_device(ad_error *err, ad_device device, const char *call,
                         int code, const char *name, const char *hint);

/* Fail with AD_ERR_MEMORY: the device has no memory left. */
ad_status ad_fail_device_memory(ad_error *err, ad_device device,
                                size_t nbytes);

/* Fail where no device has this id, with AD_ERR_EXCHANGE, reason "device":
 * "opencl:7 is not there: OpenCL has 1 device". `hint` says what the number
 * counts. */
AD_MUST_CHECK ad_status ad_check_id(ad_device device, const char *runtime,
                                    size_t n_devices, const char *hint,
                                    ad_error *err);

/* --- checks without a runtime -------------------------------------------- */

/* Succeed where the host can read memory of the device. Otherwise fail with
 * AD_ERR_EXCHANGE, reason "device". */
AD_MUST_CHECK ad_status ad_require_host(ad_device device, ad_error *err);

#endif /* AD_DEVICE_BACKEND_H */
