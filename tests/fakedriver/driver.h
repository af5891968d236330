/* Stand-in GPU drivers for the tests: what both faces (CUDA, HIP) share.
 *
 * Queues, events and memory are those of the software device's engine; this
 * adds the other parts of a driver: contexts, default streams, checks,
 * memory pools, capture into graphs, and the tests' controls (controls.h).
 * Error numbers are CUDA's; those of HIP are the same where both have them.
 *
 * Missing: compilers and kernels other than arrowdev's own, the private
 * tables of cudart (so no CuPy, RMM, torch), arrays and textures, nodes of
 * graphs, memory that a graph allocates, NVML. Nothing was compared with a real driver: where this one is too lenient, a test
 * proves nothing.
 *
 * One lock guards all state of this layer. It is never held during a wait,
 * while work runs, or while a callback is called. Functions whose names end
 * in `_locked` require that the caller holds it.
 */
#ifndef FD_DRIVER_H
#define FD_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test_device/engine.h"
#include "kernels/kernels.h"

#define FD_EXPORT __attribute__((visibility("default")))

enum {
    FD_OK = 0,
    FD_INVALID_VALUE = 1,
    FD_OUT_OF_MEMORY = 2,
    FD_NOT_INITIALIZED = 3,
    FD_INVALID_CONFIGURATION = 9,   /* HIP only */
    FD_INVALID_DEVICE_POINTER = 17, /* HIP only */
    FD_INVALID_DEVICE = 101,
    FD_INVALID_CONTEXT = 201,
    FD_NO_BINARY = 209,
    FD_INVALID_HANDLE = 400,
    FD_NOT_FOUND = 500,
    FD_NOT_READY = 600,
    FD_ILLEGAL_ADDRESS = 700,
    FD_PEER_ALREADY_ENABLED = 704,
    FD_PEER_NOT_ENABLED = 705,
    FD_CONTEXT_DESTROYED = 709,
    FD_ALREADY_REGISTERED = 712,
    FD_NOT_REGISTERED = 713,
    FD_LAUNCH_FAILED = 719,
    FD_NOT_PERMITTED = 800,
    FD_NOT_SUPPORTED = 801,
    FD_CAPTURE_UNSUPPORTED = 900,
    FD_CAPTURE_INVALIDATED = 901,
    FD_CAPTURE_MERGE = 902,
    FD_CAPTURE_UNMATCHED = 903,
    FD_CAPTURE_UNJOINED = 904,
    FD_CAPTURE_ISOLATION = 905,
    FD_CAPTURE_IMPLICIT = 906,
    FD_CAPTURED_EVENT = 907,
    FD_CAPTURE_WRONG_THREAD = 908,
    FD_TIMEOUT = 909,
    FD_UNKNOWN = 999
};

enum {
    FD_MAX_DEVICES = 8,
    FD_LEGACY = 1, /* reserved stream handles */
    FD_PER_THREAD = 2
};

/* Differences of behaviour between the two libraries. */
typedef struct fd_face {
    const char *visible; /* the variable that lists the devices */
    /* HIP: a thread without a current context works on device 0. */
    bool has_implicit_context;
    /* HIP: freeing memory waits for the device, as documented. */
    bool free_waits;
    /* CUDA: FD_NOT_PERMITTED for each call in a host function. "Attempting to
     * use a CUDA API may result in CUDA_ERROR_NOT_PERMITTED, but this is not
     * required" (cuLaunchHostFunc). */
    bool refuses_in_host_function;
    /* HIP: hipIpcGetMemHandle names memory of pools, too. */
    bool names_pool_memory;
    /* HIP: hipIpcOpenEventHandle creates the event before it looks at the
     * handle, and leaves it to the caller if that is refused. */
    bool leaves_event;
} fd_face;

extern const fd_face fd_face_here; /* one per library */

/* --- state.c: start, lock, and the entry of every call ---------------------- */

void fd_lock(void);
void fd_unlock(void);

/* Create the devices; idempotent. */
int fd_start(void);
int fd_n_devices(void);

/* The number of a device on the machine, the same in all processes, and the
 * device that has the number in this one, or -1. CUDA_VISIBLE_DEVICES or
 * HIP_VISIBLE_DEVICES lists the numbers in the order of this process. */
int fd_device_number(int device);
int fd_device_here(int number);
void fd_device_uuid(int device, char out[16]);

/* Every exported function calls this first: it is logged with its stream
 * (0: none, or the default one), and refused where the driver was not started,
 * the process was forked, a test injected its failure, or the current context
 * is broken by an earlier asynchronous error. */
int fd_enter(const char *name, uintptr_t stream);

/* The function of this thread's last fd_enter(), for violations. */
const char *fd_call_name(void);

/* For the few functions that work before the start and in broken contexts. */
int fd_enter_early(const char *name);

#define FD_ENTER(stream)                                                      \
    do {                                                                      \
        int entered = fd_enter(__func__, (uintptr_t)(stream));                \
        if (entered != FD_OK) {                                               \
            return entered;                                                   \
        }                                                                     \
    } while (0)

/* The driver's number for the engine's status. */
int fd_code(int engine_status);

/* A fault of the library under test that a GPU may only sometimes show:
 * recorded for fake_violations(). */
void fd_violation(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* True once the process ends: polling work stops. */
bool fd_is_stopping(void);

/* The limit of a host wait in milliseconds (FD_TIMEOUT). */
int64_t fd_patience(void);

/* --- context.c ---------------------------------------------------------------- */

typedef struct fd_context {
    struct fd_context *next; /* never freed: stale handles are recognized */
    int device;
    bool is_primary;
    bool is_live;
    int n_retained; /* primary */
    unsigned flags;
    _Atomic int broken; /* error of asynchronous work: later calls fail */
    uint64_t id;
    uint64_t legacy; /* queue of the legacy default stream */
    uint32_t peers;  /* bit n: access to device n was enabled */
} fd_context;

/* This thread's current context. FD_INVALID_CONTEXT without one,
 * FD_CONTEXT_DESTROYED for a destroyed one. */
int fd_context_current(fd_context **out);

/* The same, or NULL without an error. */
fd_context *fd_context_peek(void);

/* Whether it is a live context. */
int fd_context_check(const fd_context *context);

int fd_context_set(fd_context *context); /* NULL: pop */
int fd_context_push(fd_context *context);
int fd_context_pop(fd_context **out);
int fd_context_depth(void);

int fd_context_create(int device, unsigned flags, fd_context **out);
int fd_context_destroy(fd_context *context);

/* The primary context of a device, in any state. */
int fd_context_primary(int device, fd_context **out);
int fd_context_retain(int device, fd_context **out);
int fd_context_release(int device);
int fd_context_reset(int device);

size_t fd_context_count(void); /* live ones */
void fd_context_mend_all(void);

/* Block until all its work is done. */
int fd_context_synchronize(fd_context *context);

/* The same for a user: FD_CAPTURE_UNSUPPORTED during a capture in the context,
 * which is broken. */
int fd_context_wait(fd_context *context);

/* --- stream.c ----------------------------------------------------------------- */

typedef struct fd_capture fd_capture;

typedef enum fd_stream_kind {
    FD_STREAM_USER,
    FD_STREAM_LEGACY,
    FD_STREAM_PER_THREAD
} fd_stream_kind;

typedef struct fd_stream {
    struct fd_stream *next;
    uint64_t queue;
    uint64_t handle; /* of user streams */
    fd_context *context;
    fd_stream_kind kind;
    bool is_blocking; /* synchronizes with the legacy default stream */
    unsigned flags;
    int priority;
    fd_capture *capture;
    size_t n_captured; /* operations and waits since it joined the capture */
    bool is_joined;    /* another stream of the capture waited for them */
} fd_stream;

/* The stream behind a handle, default ones in the current context.
 * FD_INVALID_HANDLE for an invalid or destroyed one. */
int fd_stream_find_locked(uintptr_t handle, fd_stream **out);

/* The same, and the caller holds the lock on success only. */
int fd_stream_lock(uintptr_t handle, fd_stream **out);

int fd_stream_create(unsigned flags, int priority, uintptr_t *out);
int fd_stream_destroy(uintptr_t handle);
int fd_stream_query(uintptr_t handle);
int fd_stream_synchronize(uintptr_t handle);
int fd_stream_wait_event(uintptr_t handle, uintptr_t event);
int fd_stream_context(uintptr_t handle, fd_context **out);
int fd_stream_flags(uintptr_t handle, unsigned *out);
int fd_stream_id(uintptr_t handle, uint64_t *out);
int fd_stream_priority(uintptr_t handle, int *out);
size_t fd_stream_count(void); /* live streams of users */

/* Whether it was a user's stream. A GPU need not notice its use. */
bool fd_stream_is_destroyed(uintptr_t handle);

/* Create the default stream of this context; drop all streams of one. */
int fd_stream_new_legacy_locked(fd_context *context);
void fd_stream_drop_all_locked(fd_context *context);

/* In this thread a NULL stream means the per-thread one, while > 0. */
extern __thread int fd_null_is_per_thread;

/* Legacy barriers around one submission: the stream waits as the rules of
 * default streams require. FD_CAPTURE_IMPLICIT, which ends the capture. */
int fd_stream_barrier_locked(fd_stream *stream);

/* --- operation.c: work ------------------------------------------------------- */

typedef struct fd_range {
    void *start;
    size_t nbytes; /* 0: none */
    bool is_written;
} fd_range;

/* A record of an event that another process made. */
typedef struct fd_remote {
    struct fd_board *board;
    struct fd_shared_event *shared;
    uint64_t check;
    uint64_t number;
} fd_remote;

typedef struct fd_operation fd_operation;

struct fd_operation {
    fd_operation *next; /* pending ones, or those of a graph */
    fd_operation *previous;
    const char *name;
    int (*run)(fd_operation *operation); /* an ad_engine_status */
    fd_context *context;
    uint64_t queue;
    fd_range ranges[3]; /* the target, the source, and another source */
    void *staging;      /* freed afterwards */
    union {
        struct {
            char *target;
            const char *source;
            size_t target_pitch;
            size_t source_pitch;
            size_t width;
            size_t height;
        } copy;
        struct {
            char *target;
            size_t pitch;
            uint32_t pattern;
            size_t size;  /* 1, 2 or 4 */
            size_t width; /* in elements */
            size_t height;
        } fill;
        struct {
            void (*function)(void *);
            void *argument;
        } host;
        struct {
            uint32_t *address;
            uint32_t value;
            unsigned flags;
        } value;
        ad_launch launch;
        struct fd_allocation *allocation;
        fd_remote remote;
    } u;
};

/* Submits a copy of `operation` to the stream, or to the graph into which the
 * stream is captured. Always takes ownership of `operation->staging`. */
int fd_submit(uintptr_t stream, const fd_operation *operation);
int fd_submit_locked(fd_stream *stream, const fd_operation *operation);

/* The name of a pending operation that uses these bytes, or NULL. */
const char *fd_pending_use_locked(const void *start, size_t nbytes);
size_t fd_n_pending(void);

/* Copies and fills; `is_synchronous`: blocks until the stream is done. */
typedef struct fd_copy {
    void *target;
    const void *source;
    size_t target_pitch;
    size_t source_pitch;
    size_t width;
    size_t height;
} fd_copy;

int fd_copy_submit(const char *name, const fd_copy *copy, uintptr_t stream,
                   bool is_synchronous);
int fd_copy_bytes(const char *name, void *target, const void *source,
                  size_t nbytes, uintptr_t stream, bool is_synchronous);
int fd_fill_submit(const char *name, void *target, size_t pitch,
                   uint32_t pattern, size_t size, size_t width, size_t height,
                   uintptr_t stream, bool is_synchronous);
int fd_host_function(const char *name, void (*function)(void *),
                     void *argument, uintptr_t stream);
/* Whether this thread runs a host function. */
bool fd_is_in_host_function(void);

int fd_wait_value(const char *name, void *address, uint32_t value,
                  unsigned flags, uintptr_t stream);
int fd_write_value(const char *name, void *address, uint32_t value,
                   uintptr_t stream);

/* --- event.c ------------------------------------------------------------------- */

typedef struct fd_event_link fd_event_link; /* ipc_event.c */

typedef struct fd_event {
    struct fd_event *next;
    struct fd_event *previous;
    uint64_t handle;
    uint64_t engine; /* the engine's handle */
    fd_context *context;
    unsigned flags; /* 1 blocking, 2 no timing, 4 interprocess */
    bool is_recorded;
    fd_capture *capture;     /* that it was last recorded into */
    uint64_t captured_queue; /* its stream there, and the position */
    size_t n_captured;
    fd_event_link *link; /* NULL: no other process knows it */
} fd_event;

int fd_event_create(unsigned flags, uintptr_t *out);
int fd_event_destroy(uintptr_t handle);
int fd_event_record(uintptr_t handle, uintptr_t stream);
int fd_event_query(uintptr_t handle);
int fd_event_synchronize(uintptr_t handle);
void fd_event_end_polls(void); /* on this thread */
int fd_event_elapsed(uintptr_t start, uintptr_t end, float *out);

/* FD_INVALID_HANDLE with NULL, and the use of a destroyed event is reported;
 * FD_CONTEXT_DESTROYED with the event. */
int fd_event_find_locked(uintptr_t handle, fd_event **out);

/* --- memory.c, pool.c ------------------------------------------------------------ */

typedef enum fd_memory_kind {
    FD_DEVICE,
    FD_PINNED,
    FD_MANAGED,
    FD_REGISTERED
} fd_memory_kind;

typedef struct fd_pool {
    struct fd_pool *next;
    int device;
    bool is_default;
    bool is_live;
    int handles;        /* kinds that other processes take it by */
    uint64_t threshold; /* of bytes that a synchronization leaves */
    int reuse[3];
    size_t used;
    size_t used_high;
    size_t reserved; /* mapped */
    size_t reserved_high;
    uint64_t shared; /* the number by which processes know it; 0: none */
    bool is_imported;
} fd_pool;

/* CUmemPoolProps and hipMemPoolProps */
typedef struct fd_pool_properties {
    int allocation; /* 1: device memory, 2: managed */
    int handles;
    int location; /* 1: device */
    int id;
    void *security;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} fd_pool_properties;

typedef struct fd_place fd_place;       /* ipc.h */
typedef struct fd_physical fd_physical; /* vmm.c */

typedef struct fd_allocation {
    struct fd_allocation *next;
    char *base;
    size_t nbytes;
    fd_memory_kind kind;
    fd_context *context; /* NULL: none */
    int device;
    unsigned flags;
    fd_pool *pool;   /* stream-ordered memory */
    bool is_ready;   /* its stream has allocated it */
    bool is_leaving; /* freed, in the order of a stream */
    uint64_t id;
    fd_place *place; /* of shared memory; NULL: not shared */
    uint64_t check;
    bool is_foreign;       /* memory of another process */
    size_t n_opens;        /* of its handle; 0: not opened by a handle */
    fd_physical *physical; /* mapped memory */
    unsigned char access[FD_MAX_DEVICES]; /* to mapped memory */
} fd_allocation;

int fd_allocate(size_t nbytes, fd_memory_kind kind, unsigned flags,
                void **out);
int fd_free(const char *name, void *base, fd_memory_kind kind);
int fd_register(void *base, size_t nbytes, unsigned flags);
int fd_unregister(const char *name, void *base);
int fd_memory_info(size_t *left, size_t *total);

/* Opened memory of another process. */
int fd_free_opened(const char *name, void *base);

fd_allocation *fd_allocation_list_locked(void);

/* Memory of the engine, or mapped memory. NULL without memory. */
fd_allocation *fd_allocation_add_locked(void *base, size_t nbytes,
                                        fd_memory_kind kind,
                                        fd_context *context, int device);

/* The live allocation that contains a pointer, or NULL. */
fd_allocation *fd_allocation_find_locked(const void *pointer);

/* Whether the driver may use these bytes: live memory, or host memory. */
bool fd_may_use(const void *start, size_t nbytes);

/* A copy of it; false if there is none. */
bool fd_allocation_at(const void *pointer, fd_allocation *out);

/* Live allocations by kind, and their bytes; added. */
void fd_memory_count(size_t counts[4], size_t *bytes);

/* Drop all memory of a context that is destroyed. */
void fd_memory_drop_all_locked(fd_context *context);
void fd_allocation_free_locked(fd_allocation *allocation, const char *name);

int fd_pool_default(int device, fd_pool **out);
int fd_pool_current(int device, fd_pool **out);
int fd_pool_set_current(int device, fd_pool *pool);
int fd_pool_create(const fd_pool_properties *properties, fd_pool **out);
int fd_pool_destroy(fd_pool *pool);
int fd_pool_check(const fd_pool *pool);
int fd_pool_get(fd_pool *pool, int attribute, void *out);
int fd_pool_set(fd_pool *pool, int attribute, const void *value);
int fd_pool_trim(fd_pool *pool, size_t keep);

/* An allocation, which maps the memory that the pool lacks, and a free, which
 * unmaps nothing. */
void fd_pool_take_locked(fd_pool *pool, size_t nbytes);
void fd_pool_give_locked(fd_pool *pool, size_t nbytes);

/* After a synchronization every pool unmaps unused memory above its
 * threshold. */
int fd_pool_export(fd_pool *pool, int kind, int *out);
int fd_pool_import(int file, int kind, fd_pool **out);
size_t fd_pool_count_imported(void);
void fd_pools_release(void);
void fd_pools_end_locked(int device);

uint64_t fd_pool_maps(void); /* how often memory was mapped */

/* `pool` NULL: the current one of the stream's device. */
int fd_allocate_ordered(const char *name, size_t nbytes, fd_pool *pool,
                        uintptr_t stream, void **out);
int fd_free_ordered(const char *name, void *base, uintptr_t stream);

/* --- ipc.c, ipc_event.c: other processes ---------------------------------------- */

typedef struct fd_name fd_name; /* a handle of 64 bytes (ipc.h) */

bool fd_is_legacy_capable(const fd_allocation *allocation);

/* The allocation in which a pointer lies, for other processes. */
int fd_ipc_export(const void *pointer, fd_name *out);
int fd_ipc_open(const fd_name *name, void **out);
int fd_ipc_close(const char *name, void *base);

int fd_pool_export_pointer(const void *pointer, fd_name *out);
int fd_pool_import_pointer(fd_pool *pool, const fd_name *name, void **out);

/* Tells other processes that the memory is freed, or that its stream has
 * allocated it. */
void fd_ipc_free_locked(fd_allocation *allocation, const char *name);
void fd_ipc_ready_locked(fd_allocation *allocation);

/* Whether the process that shares it has not freed it. Reports misuse. */
bool fd_ipc_may_use_locked(const fd_allocation *allocation, const char *name);

int fd_event_share_locked(fd_event *event);
void fd_event_unshare_locked(fd_event *event);
int fd_event_export(uintptr_t handle, fd_name *out);
int fd_event_import(const fd_name *name, uintptr_t *out);

/* FD_INVALID_HANDLE, and a report, if its process has destroyed it. */
int fd_event_check_locked(const fd_event *event);

/* Before the event is recorded: tells the other processes. */
int fd_event_note_locked(fd_event *event, const fd_stream *stream);

/* Whether the last record is not this event's own. */
bool fd_event_is_elsewhere_locked(const fd_event *event, fd_remote *out);
int fd_remote_query(const fd_remote *remote);
int fd_remote_wait(const fd_remote *remote, int64_t limit_ms);
int fd_remote_submit_locked(fd_stream *stream, const fd_remote *remote);

/* --- vmm.c --------------------------------------------------------------------- */

enum {
    FD_READ = 1,
    FD_READ_WRITE = 3
};

/* CUmemAllocationProp and hipMemAllocationProp */
typedef struct fd_physical_properties {
    int type;
    int handles;
    int location; /* 1: device */
    int id;
    void *metadata;
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char reserved[4];
} fd_physical_properties;

/* CUmemAccessDesc and hipMemAccessDesc */
typedef struct fd_access {
    int location;
    int id;
    int flags;
} fd_access;

int fd_physical_granularity(size_t *out,
                            const fd_physical_properties *properties);
int fd_physical_create(uint64_t *out, size_t nbytes,
                       const fd_physical_properties *properties);
int fd_physical_release(uint64_t handle);
int fd_physical_retain(uint64_t *out, const void *address);
int fd_physical_describe(uint64_t handle, fd_physical_properties *out);
int fd_physical_handles(const fd_physical *physical);
int fd_physical_export(uint64_t handle, int kind, int *out);
int fd_physical_import(int file, int kind, uint64_t *out);

int fd_address_reserve(void **out, size_t nbytes, size_t alignment);
int fd_address_free(void *base, size_t nbytes);
bool fd_reserved_at(const void *address, void **base, size_t *nbytes);

int fd_map(void *base, size_t nbytes, size_t offset, uint64_t handle);
int fd_unmap(const char *name, void *base, size_t nbytes);
int fd_set_access(void *base, size_t nbytes, const fd_access *access,
                  size_t n);
int fd_get_access(unsigned long long *out, int device, const void *address);

/* For fd_allocation_free_locked(). */
void fd_unmap_locked(const fd_allocation *allocation);
void fd_physical_unmapped_locked(fd_physical *physical);

/* Whether a device (-1: any) may use the bytes: true outside of reserved
 * addresses. */
bool fd_mapped_locked(const void *start, size_t nbytes, int device,
                      bool is_written);

size_t fd_vmm_count(void); /* handles and reservations */

/* --- kernel.c ------------------------------------------------------------------ */

typedef struct fd_module fd_module;
typedef struct fd_function fd_function;

int fd_module_load(const char *image, fd_module **out);
int fd_module_unload(fd_module *module);
int fd_module_function(fd_module *module, const char *name, fd_function **out);
int fd_launch(const char *name, fd_function *function, int64_t n_items,
              void **arguments, uintptr_t stream);

/* --- graph.c -------------------------------------------------------------------- */

enum {
    FD_CAPTURE_NONE = 0,
    FD_CAPTURE_ACTIVE = 1,
    FD_CAPTURE_BROKEN = 2
};

enum {
    FD_MODE_GLOBAL = 0,
    FD_MODE_THREAD = 1,
    FD_MODE_RELAXED = 2
};

typedef struct fd_graph fd_graph;

int fd_capture_begin(uintptr_t stream, int mode);
int fd_capture_end(uintptr_t stream, fd_graph **out);
int fd_capture_info(uintptr_t stream, int *status, uint64_t *id,
                    fd_graph **graph);
int fd_capture_exchange_mode(int *mode);

/* Checks that this thread may make a "potentially unsafe API call", as the
 * capture modes of all threads have it: allocate, free, make a stream or a
 * pool, load or unload a module, query, synchronize. FD_CAPTURE_UNSUPPORTED,
 * and the capture is broken. */
int fd_capture_allows_locked(void);

/* Checks that no stream of the context is captured. FD_CAPTURE_UNSUPPORTED,
 * and those captures are broken. */
int fd_capture_none_in_locked(const fd_context *context);
int fd_capture_allows(void);

void fd_capture_break_locked(fd_capture *capture);

/* For tests that failed inside a capture. */
void fd_capture_end_all(void);

/* A stream of the capture is destroyed; the first one ends the capture. */
void fd_capture_drop_locked(fd_capture *capture, uint64_t queue);
int fd_capture_status_locked(const fd_capture *capture);

/* A stream that records or waits for an event during captures. */
int fd_capture_record_locked(fd_stream *stream, fd_event *event);
int fd_capture_wait_locked(fd_stream *stream, fd_event *event);
int fd_capture_add_locked(fd_stream *stream, const fd_operation *operation);

/* Whether the stream is captured, or the legacy stream would synchronize with
 * a captured one of its context. */
fd_stream *fd_stream_captured_locked(const fd_context *context);
void fd_stream_leave_capture_locked(const fd_capture *capture, bool *others);
const fd_stream *fd_stream_list_locked(void);

int fd_graph_create(fd_graph **out);
int fd_graph_destroy(fd_graph *graph);
int fd_graph_count(fd_graph *graph, size_t *out);
int fd_graph_instantiate(fd_graph *graph, fd_graph **out);
int fd_graph_launch(fd_graph *graph, uintptr_t stream);

/* --- log (controls.c) ------------------------------------------------------------ */

/* Log a call; returns the code of an injected failure, or 0. */
int fd_log_call(const char *name, uintptr_t stream);
void fd_log_stub(const char *name);

/* Settings of the tests. */
bool fd_free_waits(void);        /* freeing used memory waits, like NVIDIA's */
bool fd_accesses_pageable(void); /* devices access memory of the host */
bool fd_managed_has_device(void);     /* and a context */
bool fd_stages_host(void);            /* pageable host memory is staged */
bool fd_reuses_handles(void);         /* of destroyed objects, for new ones */
int64_t fd_new_delay(void);           /* of queues from now on, in us */
void fd_host_waits(const char *name); /* a call is about to block */
void fd_host_spins(void);             /* it takes a processor meanwhile */

#endif /* FD_DRIVER_H */
