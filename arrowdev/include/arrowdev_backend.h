/* arrowdev_backend.h: the runtime of a device type, as a table of functions.
 *
 * arrowdev.h includes this file. It needs no Python: C11 or C++17, and nothing
 * to link. arrowdev knows CUDA, HIP, OpenCL and oneAPI itself. For any other
 * device type an extension registers a table by ArrowDev_RegisterBackend(), and
 * then all that arrowdev does with memory of a device is done with this
 * memory: copies, waits, events, release after the consumer's work.
 *
 * The page "Add a backend" of the documentation explains the contract, and
 * arrowdev.testing.check_backend() tries it. For all functions:
 *
 * - Any thread calls them, with or without Python's GIL, and several threads
 *   at once. They never ask for the GIL and call neither Python nor arrowdev.
 * - They do not wait for work of the device, except `synchronize`,
 *   `event_wait`, `allocate` and `deallocate`. `load`, `open_device`,
 *   `memory_open` and `memory_close` may take long.
 * - They change nothing for the thread: what was current before is current
 *   afterwards.
 * - They are called until the process ends, also after Python has ended, and
 *   never in a forked child of a process that has called `load`.
 * - They return ARROWDEV_OK, or another ARROWDEV_* result and say why in
 *   *error, which is never NULL and empty before the call. What they return by
 *   a pointer has no meaning then.
 */
#ifndef ARROWDEV_BACKEND_H
#define ARROWDEV_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A later version adds members at the end of the table and changes nothing
 * else. */
#define ARROWDEV_BACKEND_VERSION 1

/* --- results ------------------------------------------------------------- */

enum {
    ARROWDEV_OK = 0,
    /* A call of the runtime failed: DeviceError, with the code of the error. */
    ARROWDEV_FAILED = 1,
    /* No memory is left: MemoryError. */
    ARROWDEV_NO_MEMORY = 2,
    /* It cannot be done, although nothing failed: ExchangeError. */
    ARROWDEV_REFUSED = 3
};

/* Texts are UTF-8, and end in a 0. */
typedef struct arrowdev_error {
    int32_t code; /* ARROWDEV_FAILED: the number that the runtime gave */
    int32_t reserved;
    char call[64];  /* the function that failed, such as "vkQueueSubmit" */
    char text[256]; /* ARROWDEV_FAILED: the runtime's name of the code.
                       ARROWDEV_REFUSED: a sentence */
    char hint[256]; /* what to do; or "" */
} arrowdev_error;

/* --- capabilities -------------------------------------------------------- */

enum {
    /* Work on a stream runs in the order of its submission, also on streams of
     * others. Those of `stream_create` are in order in any case. */
    ARROWDEV_CAP_IN_ORDER = 1 << 0,
    /* `event_record` may record an event of its own again. */
    ARROWDEV_CAP_EVENTS_REUSABLE = 1 << 1,
    /* Memory that is freed stays valid for the work that is on the stream now.
     * Otherwise arrowdev waits before it frees memory. */
    ARROWDEV_CAP_ORDERED_DEALLOCATE = 1 << 2,
    /* `synchronize` waits for all work on the device, whoever has submitted
     * it. Otherwise only for the work on arrowdev's streams. */
    ARROWDEV_CAP_SYNCHRONIZES_ALL = 1 << 3,
    /* Copies of several rows are one operation. Otherwise `height` of a copy
     * is 1 in each call. */
    ARROWDEV_CAP_COPIES_ROWS = 1 << 4,
    /* The devices run on the host's processors: a host thread that polls takes
     * time from their work. */
    ARROWDEV_CAP_RUNS_ON_HOST = 1 << 5
};

/* --- memory -------------------------------------------------------------- */

/* Bytes from `offset` on in the memory that `data` names. Where a device type
 * names memory by handles (Vulkan, Metal, WebGPU), `data` is one. */
typedef struct arrowdev_span {
    void *data;
    uint64_t offset;
} arrowdev_span;

/* `height` rows of `width` bytes; the pitches are the bytes from one row to the
 * next. A device is NULL where the memory is the host's. */
typedef struct arrowdev_copy {
    arrowdev_span target;
    arrowdev_span source;
    void *target_device;
    void *source_device;
    size_t target_pitch;
    size_t source_pitch;
    size_t width;
    size_t height;
} arrowdev_copy;

typedef struct arrowdev_memory_info {
    int32_t is_known;        /* 0: the runtime does not know the pointer */
    int32_t host_accessible; /* 1: the host may read it */
    int64_t device_id;
} arrowdev_memory_info;

/* --- events -------------------------------------------------------------- */

/* An event is named by what `sync_event` of an ArrowDeviceArray holds for this
 * device type: the address of a VkEvent for ARROW_DEVICE_VULKAN. So an event
 * of the backend is exported as it is, and one of another library comes in as
 * it is. */
typedef struct arrowdev_event {
    void *sync_event;
    void *device;   /* the one of the memory that came with the event; for an
                       own event, the one on which it was recorded */
    int32_t is_own; /* 1: `event_record` of this backend has made it */
    int32_t reserved;
} arrowdev_event;

/* --- kernels ------------------------------------------------------------- */

/* An operation on elements, such as bits that become bytes. All kernels have
 * the parameters (const uchar *source, long source_offset, const uchar
 * *values, long values_offset, uchar *target, long target_offset, long
 * bit_offset, long length, long p0, long p1, long p2, long p3). */
typedef struct arrowdev_launch {
    const char *kernel;        /* its name in `opencl_source` */
    const char *opencl_source; /* all kernels in OpenCL C 1.2; lives forever */
    arrowdev_span source;
    arrowdev_span values;
    arrowdev_span target;
    int64_t bit_offset;
    int64_t length;
    int64_t numbers[4]; /* p0 to p3 */
    int64_t n_items;    /* exactly so many work items run */
    /* The bytes from each span on that the kernel may use: of `source` and
     * `values` it reads, of `target` it reads and writes. */
    size_t source_size;
    size_t values_size;
    size_t target_size;
    /* Runs the kernel on this thread, if the host can read and write the
     * memory. For a copy of the struct, too, at any time. */
    void (*run)(const struct arrowdev_launch *launch);
    int64_t reserved[2]; /* to be copied with the rest */
} arrowdev_launch;

/* --- other processes ----------------------------------------------------- */

/* An allocation or an event, as the other process gets it. */
typedef struct arrowdev_shared {
    int32_t file; /* a descriptor; -1: none */
    int32_t reserved;
    uint64_t file_offset; /* where the allocation begins in the file */
    const void *base;     /* of the allocation, in the process that shares */
    uint64_t nbytes;      /* of the allocation */
    unsigned char bytes[64]; /* what else it takes to open it */
} arrowdev_shared;

/* --- the table ----------------------------------------------------------- */

/* arrowdev copies it; `self` and what the functions need stay for the life of
 * the process. A function without "required" may be NULL.
 *
 * `device` is what open_device gave. `stream` is a stream of this backend or of
 * a user. Streams and events belong together: either all of stream_create,
 * stream_destroy, stream_wait, event_record, event_query, event_destroy and
 * synchronize are there, or none. Without them all work is done when a call
 * returns, `stream` has no meaning, and events of other libraries are not
 * waited for but refused. */
typedef struct arrowdev_backend {
    size_t size;           /* sizeof(arrowdev_backend) */
    uint32_t version;      /* ARROWDEV_BACKEND_VERSION */
    uint32_t capabilities; /* ARROWDEV_CAP_* */
    /* A short word of lower-case letters, digits and underscores, such as
     * "vulkan". Required. */
    const char *name;
    void *self; /* the first argument of each function */

    /* --- the runtime ---- */

    /* Called before all others, by one thread. After a failure it is called
     * again when the runtime is needed the next time. */
    int (*load)(void *self, arrowdev_error *error);
    /* One line of text: library and version. Default: the name. */
    int (*describe)(void *self, char *buffer, size_t size,
                    arrowdev_error *error);
    /* The devices are numbered from 0 on, and their number may grow: a library
     * whose events or memory need its own device (VkDevice) has it numbered by
     * the backend, and says that number in its arrays. Cheap. Required. */
    int (*device_count)(void *self, int64_t *out, arrowdev_error *error);
    /* One line of text. Default: the name and the number. */
    int (*device_name)(void *self, int64_t id, char *buffer, size_t size,
                       arrowdev_error *error);
    /* Called once for a device, before it is used. Default: the number of the
     * device, as a pointer. */
    int (*open_device)(void *self, int64_t id, void **device,
                       arrowdev_error *error);
    /* Undo open_device, where no memory is left to remember the device. A
     * device in use stays open for the life of the process. */
    void (*close_device)(void *self, void *device);
    /* Wait for all work on the device. */
    int (*synchronize)(void *self, void *device, arrowdev_error *error);

    /* --- memory ---- */

    /* Where the memory is that the pointer (or handle) names. Reads nothing of
     * it. Default: where its producer says. */
    int (*memory_info)(void *self, const void *data, arrowdev_memory_info *out,
                       arrowdev_error *error);
    /* nbytes > 0, aligned to 64 bytes, for work on `stream` from now on.
     * Without it and `deallocate`, which belong together, to() and
     * Device.empty() are refused. */
    int (*allocate)(void *self, void *device, void *stream, size_t nbytes,
                    void **out, arrowdev_error *error);
    void (*deallocate)(void *self, void *device, void *stream, void *data,
                       size_t nbytes);
    /* Enqueue a copy from the host, to the host, and within the runtime (from
     * another device of it, too). The host's memory stays until an event
     * behind the copy is done. Default: such copies are refused. */
    int (*copy_in)(void *self, void *device, void *stream,
                   const arrowdev_copy *copy, arrowdev_error *error);
    int (*copy_out)(void *self, void *device, void *stream,
                    const arrowdev_copy *copy, arrowdev_error *error);
    int (*copy_within)(void *self, void *device, void *stream,
                       const arrowdev_copy *copy, arrowdev_error *error);
    /* Enqueue a kernel; *launch is gone after the call. Default: operations
     * that need one are refused. */
    int (*launch)(void *self, void *device, void *stream,
                  const arrowdev_launch *launch, arrowdev_error *error);

    /* --- streams ---- */

    /* An own stream, in order. Not NULL. */
    int (*stream_create)(void *self, void *device, void **stream,
                         arrowdev_error *error);
    void (*stream_destroy)(void *self, void *device, void *stream);
    /* The number of the device that a user's stream belongs to. *id is a
     * number that no later stream gets, whereas its handle may come again; it
     * is 0 before the call, which means that there is none. ARROWDEV_REFUSED
     * or ARROWDEV_FAILED for what is no stream. Default: a stream belongs to
     * the device that its user names. */
    int (*stream_identity)(void *self, void *stream, int64_t *device_id,
                           uint64_t *id, arrowdev_error *error);
    /* Later work on the stream waits for the event, which may belong to
     * another device of this runtime. The host does not wait. */
    int (*stream_wait)(void *self, void *device, void *stream,
                       const arrowdev_event *event, arrowdev_error *error);

    /* --- events ---- */

    /* Record the work that is now on the stream. *sync_event is NULL for a new
     * event; with ARROWDEV_CAP_EVENTS_REUSABLE it may be one of this device
     * that was recorded before, and stays what it is if that fails. */
    int (*event_record)(void *self, void *device, void *stream,
                        void **sync_event, arrowdev_error *error);
    /* Whether the work is done. */
    int (*event_query)(void *self, const arrowdev_event *event,
                       int32_t *is_done, arrowdev_error *error);
    /* Wait on the host. Default: event_query again and again. */
    int (*event_wait)(void *self, const arrowdev_event *event,
                      arrowdev_error *error);
    /* Only what event_record, event_export or event_open has made. Its work
     * may be pending, and streams may wait for it. */
    void (*event_destroy)(void *self, const arrowdev_event *event);
    /* Whether an event may be passed to the other functions: for device types,
     * such as EXT_DEV, whose producers do not agree on what an event is.
     * Default: yes. */
    int32_t (*event_is_known)(void *self, const void *sync_event);

    /* --- other processes ---- */

    /* These six belong together. Without them ad.share() is refused. */

    /* What names the device in all processes of this machine. */
    int (*device_uuid)(void *self, int64_t id, unsigned char uuid[16],
                       arrowdev_error *error);
    /* Name the allocation in which `data` lies. out->file is -1 before, and
     * arrowdev closes the descriptor. ARROWDEV_REFUSED for memory that no other
     * process can open. */
    int (*memory_export)(void *self, void *device, const void *data,
                         arrowdev_shared *out, arrowdev_error *error);
    /* Open what another process has named. *out is where it begins here. The
     * descriptor stays arrowdev's, here and below. The other process keeps the
     * memory until it is closed. */
    int (*memory_open)(void *self, void *device, const arrowdev_shared *memory,
                       void **out, arrowdev_error *error);
    /* No work uses it. */
    void (*memory_close)(void *self, void *device,
                         const arrowdev_shared *memory, void *data);
    /* Name an event behind the work that is now on the stream, as
     * memory_export does. *sync_event is NULL before, and may stay so.
     * Otherwise event_destroy gets it once no process waits for it. */
    int (*event_export)(void *self, void *device, void *stream,
                        void **sync_event, arrowdev_shared *out,
                        arrowdev_error *error);
    /* Open what another process has named. Queries and waits get it as an
     * event of another library, and event_destroy gets it at the end. If the
     * other process ends before its work is done, a wait fails. */
    int (*event_open)(void *self, void *device, const arrowdev_shared *event,
                      void **sync_event, arrowdev_error *error);
} arrowdev_backend;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ARROWDEV_BACKEND_H */
