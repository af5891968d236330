/* An asynchronous device made of threads.
 *
 * Queues are worker threads, events complete when the work before them is
 * done, and the host cannot access device memory. The software device
 * (software.c) and the stand-in drivers of the tests are thin front ends of
 * this engine. Each is a library with an engine of its own, compiled from
 * engine*.c and base/process.c. The engine depends on libc and pthread only,
 * and runs on Linux only.
 *
 * Memory: one memfd is mapped twice. Callers get addresses in the first
 * mapping, where device memory is inaccessible. Work on a queue reaches the
 * same bytes at ad_engine_inside(address). Each allocation has pages of its
 * own. Freed pages are unmapped from both views, and their addresses are
 * reused only after the search has passed through the whole arena. So a use
 * after free faults, or is detected (copy and fill check).
 *
 * Handles of queues and events are numbers with a generation. A destroyed or
 * invalid handle is recognized without dereferencing anything.
 *
 * Rules for every function:
 * - It may be called on any thread. Functions that may block say so.
 * - It returns an ad_engine_status if it can fail. Outputs are written on
 *   success only.
 * - In a forked child of the process every call fails with AD_ENGINE_FORKED,
 *   and nothing blocks. Releases do nothing.
 * - At exit the workers start no more work. Held and pending work never keeps
 *   a process alive.
 */
#ifndef AD_TEST_DEVICE_ENGINE_H
#define AD_TEST_DEVICE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AD_ENGINE_STATUSES(X)                                                 \
    X(OK)                                                                     \
    X(NOT_STARTED)     /* ad_engine_start was not called */                   \
    X(UNSUPPORTED)     /* unsupported operating system */                     \
    X(FORKED)          /* in a child of the process that started it */        \
    X(INVALID_DEVICE)  /* no such ordinal */                                  \
    X(INVALID_QUEUE)   /* destroyed, or never valid */                        \
    X(INVALID_EVENT)   /* destroyed, or never valid */                        \
    X(INVALID_POINTER) /* not live memory of the engine */                    \
    X(INVALID_VALUE)   /* invalid size or range */                            \
    X(OUT_OF_MEMORY)   /* of device or host memory */                         \
    X(NOT_READY)       /* from a query: the work is pending */                \
    X(TIMEOUT)         /* a wait reached its timeout */                       \
    X(ILLEGAL_ADDRESS) /* work accessed invalid memory */                     \
    X(WORK_FAILED)     /* work returned a nonzero value */                    \
    X(INJECTED)        /* requested with ad_engine_fail_at */

typedef enum ad_engine_status {
#define AD_ENGINE_DECLARE(name) AD_ENGINE_##name,
    AD_ENGINE_STATUSES(AD_ENGINE_DECLARE)
#undef AD_ENGINE_DECLARE
    AD_ENGINE_N_STATUS
} ad_engine_status;

/* --- devices ------------------------------------------------------------- */

/* Provide at least `n_devices` devices (at most 64). Devices are never
 * removed, so that streams and events which others keep stay valid. A later
 * call with fewer devices is no error. */
int ad_engine_start(int n_devices);

/* 0 before the start and in a forked child. */
int ad_engine_n_devices(void);

/* True in a forked child of the process that started the engine. */
bool ad_engine_is_forked(void);

/* Limit the total size of live DEVICE and MANAGED allocations on `device`.
 * Default: 4 GiB. */
int ad_engine_set_memory_limit(int device, size_t nbytes);

/* The limit, and the bytes left of it. */
int ad_engine_memory(int device, size_t *limit, size_t *left);

/* Wait until all work is done on the queues of `device` (-1: all) that have
 * `tag` (NULL: any). Fails with the first error of their work. Blocks; timeout
 * as in ad_engine_queue_synchronize. */
int ad_engine_synchronize(int device, const void *tag, int64_t timeout_ms);

/* --- memory -------------------------------------------------------------- */

typedef enum ad_engine_kind {
    AD_ENGINE_DEVICE,    /* inaccessible to the host */
    AD_ENGINE_PINNED,    /* host and device; not counted as device memory */
    AD_ENGINE_MANAGED,   /* host and device */
    AD_ENGINE_REGISTERED /* registered memory of the host */
} ad_engine_kind;

typedef struct ad_engine_allocation {
    void *base;
    size_t nbytes; /* as requested */
    int device;
    ad_engine_kind kind;
    void *tag; /* the front end's: a context */
} ad_engine_allocation;

/* Allocate nbytes > 0 bytes, aligned to 4096 and filled with a pattern that is
 * no plausible value. OUT_OF_MEMORY above the limit. */
int ad_engine_allocate(int device, size_t nbytes, ad_engine_kind kind,
                       void *tag, void **out);

/* Free memory at once, even if work is pending. Operations that touch it now
 * end before its addresses are used again. INVALID_POINTER unless `base` is the start of a live allocation, so a second free fails. */
int ad_engine_free(void *base);

/* Free memory once the work that is now on `queue` is done, which may be a
 * destroyed queue that still has work. From this call on ad_engine_find does
 * not find it. */
int ad_engine_free_ordered(uint64_t queue, void *base);

/* The same where nobody can be told of a failure. Behind a destroyed queue
 * without work the memory is freed now. Without memory to enqueue the
 * free, the host waits for the queue; if that takes too long, the memory stays
 * allocated. */
void ad_engine_free_after(uint64_t queue, void *base);

/* Register host memory as REGISTERED, and unregister it. INVALID_VALUE if it
 * overlaps known memory. */
int ad_engine_register(void *base, size_t nbytes, int device, void *tag);
int ad_engine_unregister(void *base);

/* The live allocation that contains `pointer`. Never dereferences it. */
bool ad_engine_find(const void *pointer, ad_engine_allocation *out);

/* May work access [pointer, pointer + nbytes) now? The range must be inside
 * one live allocation, or host memory outside the arena. */
bool ad_engine_may_touch(const void *pointer, size_t nbytes);

/* Copy the bytes that are there now to memory of the host. Waits for nothing,
 * and is no use of the memory. */
int ad_engine_peek(void *target, const void *source, size_t nbytes);

/* The address at which work accesses the memory behind a public address. Host
 * memory keeps its address. For use on a queue's worker, and by a front end
 * that implements a synchronous call, once the work is done. */
void *ad_engine_inside(const void *pointer);

/* The file in which the live DEVICE, PINNED or MANAGED allocation that
 * contains `pointer` lies, where it begins in the file, and the allocation.
 * The descriptor is borrowed. INVALID_POINTER if there is none. */
int ad_engine_memory_file(const void *pointer, int *file, uint64_t *offset,
                          ad_engine_allocation *out);

/* Map part of another process's file as an allocation, which is freed like any
 * other and does not count against the limit of the device. Both processes see
 * what is written. The descriptor is duplicated. INVALID_VALUE unless `offset`
 * is that of a page and the file has all the bytes. */
int ad_engine_map(int device, int file, uint64_t offset, size_t nbytes,
                  ad_engine_kind kind, void *tag, void **out);

/* --- queues -------------------------------------------------------------- */

/* Create a queue. It runs its work in the order of submission, on a worker
 * thread that starts with the first work. Handles are > 2 and fit in 63 bits.
 * `tag` and `data` belong to the front end. */
int ad_engine_queue_create(int device, void *tag, void *data, uint64_t *out);

/* The handle becomes invalid at once for new work. Pending work still runs,
 * its gate is opened, and ad_engine_synchronize tells of its errors until the
 * reset. Does not block. */
int ad_engine_queue_destroy(uint64_t queue);

bool ad_engine_queue_is_live(uint64_t queue);

typedef struct ad_engine_queue {
    int device;
    void *data;
    int64_t delay; /* us */
} ad_engine_queue;

int ad_engine_queue_get(uint64_t queue, ad_engine_queue *out);

/* Write at most `capacity` of the live queues of `device` (-1: all) with `tag`
 * (NULL: any). Returns how many there are. */
size_t ad_engine_queue_list(int device, const void *tag, uint64_t *out,
                            size_t capacity);

/* Work. It runs on the worker without any lock held. It may call the engine,
 * but not wait for its own queue. It frees `arg` itself. It returns 0 or an
 * ad_engine_status; other numbers count as WORK_FAILED. The queue keeps the
 * error, and so does every event recorded later on it: errors are
 * asynchronous, as on a GPU. Later work still runs. */
typedef int (*ad_engine_work)(void *arg);

/* Append work. On failure the caller keeps `arg`. */
int ad_engine_enqueue(uint64_t queue, ad_engine_work work, void *arg);

enum {
    AD_ENGINE_MAX_RANGES = 3
};

typedef struct ad_engine_range {
    const void *data;
    size_t nbytes;
} ad_engine_range;

/* Return work(arg) if work may touch all the ranges, of which there are at most
 * AD_ENGINE_MAX_RANGES, else ILLEGAL_ADDRESS. Memory that is freed meanwhile
 * keeps its pages until it returns. */
int ad_engine_touch(const ad_engine_range *ranges, size_t n,
                    ad_engine_work work, void *arg);

typedef enum ad_engine_access {
    AD_ENGINE_READ,
    AD_ENGINE_WRITE,
    AD_ENGINE_FREE
} ad_engine_access;

/* What work does with `height` rows of `width` bytes, `pitch` bytes apart. */
typedef struct ad_engine_use {
    ad_engine_access access;
    const void *data;
    size_t pitch;
    size_t width;
    size_t height;
    bool is_waited_for; /* by arrowdev, before it gives the memory back */
} ad_engine_use;

/* The same for work that uses memory, which is how races are found. */
int ad_engine_enqueue_use(uint64_t queue, ad_engine_work work, void *arg,
                          const ad_engine_use *uses, size_t n);

/* The same behind the work of a queue that is destroyed, as long as there is
 * some; INVALID_QUEUE then. */
int ad_engine_enqueue_last(uint64_t queue, ad_engine_work work, void *arg,
                           const ad_engine_use *uses, size_t n);

/* Work was not enqueued, since its memory is invalid. */
void ad_engine_refuse_use(uint64_t queue, const ad_engine_use *uses, size_t n);

/* Copy `height` rows of `width` bytes between any two of device, pinned and
 * host memory. Both ranges are checked now (INVALID_POINTER) and again when
 * the copy runs (ILLEGAL_ADDRESS). Host memory is read and written when the
 * copy runs, never at the call. */
int ad_engine_copy(uint64_t queue, void *target, size_t target_pitch,
                   const void *source, size_t source_pitch, size_t width,
                   size_t height);

/* The same, where arrowdev waits for what it copies to the host. */
int ad_engine_copy_for_arrowdev(uint64_t queue, void *target,
                                size_t target_pitch, const void *source,
                                size_t source_pitch, size_t width,
                                size_t height);

/* Read `nbytes` from the host's `source` before this returns, and write them
 * to the target when the work runs. */
int ad_engine_write(uint64_t queue, void *target, const void *source,
                    size_t nbytes);

/* Fill the target with `n` copies of the `size` bytes (1, 2, 4 or 8) of
 * `pattern`. Checked as in ad_engine_copy. */
int ad_engine_fill(uint64_t queue, void *target, uint64_t pattern, size_t size,
                   size_t n);

/* Later work on `queue` waits for the work that the event has recorded by now.
 * An event that was never recorded counts as done. */
int ad_engine_queue_wait(uint64_t queue, uint64_t event);

/* Later work on `queue` waits for the work that is now on `other`, which may
 * be destroyed. The errors of a destroyed queue whose work is done do not
 * carry over. */
int ad_engine_queue_wait_queue(uint64_t queue, uint64_t other);

/* Returns OK, NOT_READY, or the error of earlier work. */
int ad_engine_queue_query(uint64_t queue);

/* Whether work is pending on a queue, which may be destroyed. Unlike
 * ad_engine_queue_query, this tells the search for races nothing. */
int ad_engine_queue_is_busy(uint64_t queue, int64_t *out);

/* Sleep until the work on the queue is done. timeout_ms < 0: as long as
 * ad_engine_set_patience allows, by default forever. Returns TIMEOUT, or the
 * error of earlier work. A destroyed queue is waited for, too: INVALID_QUEUE
 * once it has no work. Blocks. */
int ad_engine_queue_synchronize(uint64_t queue, int64_t timeout_ms);

/* The gate: pending work does not begin until each hold is released.
 * INVALID_VALUE for a release without a hold. */
int ad_engine_queue_hold(uint64_t queue);
int ad_engine_queue_release(uint64_t queue);

/* Let one pending operation pass a closed gate: the first for which no other
 * thread has called this. Sleep until it is done. NOT_READY: there is none, or
 * it waits for another queue, and stays pending. INVALID_VALUE if the gate is
 * open. Blocks. */
int ad_engine_queue_step(uint64_t queue);

/* From now on each operation begins after this delay. */
int ad_engine_queue_set_delay(uint64_t queue, int64_t microseconds);

/* --- events -------------------------------------------------------------- */

/* Any queue may record the event or wait for it. `tag` and `data` belong to
 * the front end. */
int ad_engine_event_create(int device, void *tag, void *data, uint64_t *out);

/* The handle becomes invalid at once. Pending marks and waits stay valid. */
int ad_engine_event_destroy(uint64_t event);

int ad_engine_event_data(uint64_t event, void **out);

/* Each event has one address for its whole life: that of 8 bytes that hold its
 * handle. ad_engine_event_at converts an address back without reading it. 0:
 * not an event's address. */
int ad_engine_event_address(uint64_t event, const uint64_t **out);
uint64_t ad_engine_event_at(const void *address);

/* Record the work that is now on `queue`. The last record counts. Behind a
 * closed gate the event is pending even if there is no work. */
int ad_engine_event_record(uint64_t event, uint64_t queue);

/* Returns OK, NOT_READY, or the error of the recorded work. */
int ad_engine_event_query(uint64_t event);

/* The same, as on a slow device while races are searched: work that the host
 * does not know to be done counts as pending at first. So it does not depend
 * on the speed of a queue who waits for it, and what the host knows. */
int ad_engine_event_query_late(uint64_t event);

/* Sleep until the event is done. Timeout and results as in
 * ad_engine_queue_synchronize. Blocks. */
int ad_engine_event_synchronize(uint64_t event, int64_t timeout_ms);

/* The time at which the last record completed, in ns of the monotonic clock.
 * NOT_READY if it has not. */
int ad_engine_event_time(uint64_t event, int64_t *out);

/* Manual control for tests: an armed event counts as recorded and pending
 * until it is fired. */
int ad_engine_event_arm(uint64_t event);
int ad_engine_event_fire(uint64_t event);

/* --- races ---------------------------------------------------------------- */

/* One of the two accesses. */
typedef struct ad_engine_party {
    ad_engine_access access;
    int queue;        /* number, from 1; 0: the host */
    bool is_own;      /* of arrowdev, which has numbers of its own */
    int device;       /* of the queue */
    uint64_t handle;  /* of the queue, which may be gone */
    uint32_t place;   /* of the call */
    uint32_t made_at; /* the place that created the queue */
    /* Times are ns of the monotonic clock. 0: there is none. */
    int64_t enqueued;     /* an access of the host: when it was */
    int64_t recorded;     /* when an event was recorded behind it */
    uint64_t recorded_by; /* the thread that recorded it */
} ad_engine_party;

typedef struct ad_engine_race {
    ad_engine_party first;
    ad_engine_party second;
    uint64_t allocation; /* number, from 1; 0: memory of the host */
    uint32_t made_at;    /* the place that allocated it */
    size_t nbytes;       /* of the allocation */
    uintptr_t begin;     /* of the bytes that both use: in the allocation, or
                            the address */
    size_t n_common;     /* up to the last byte that both use */
    bool is_after_free;
    bool waits_too_early; /* the second one waits for earlier work of the first
                             one's queue */
} ad_engine_race;

/* The place of a caller, by a number that is its own, for races and runs. Called
 * without the lock. NULL: places are 0. */
void ad_engine_set_place(uint32_t (*place)(void));

/* Begin to search. */
void ad_engine_races_start(void);
/* What was found stays. */
void ad_engine_races_stop(void);

/* Copy races that were found from number `from` on. Returns how many. */
size_t ad_engine_races(size_t from, ad_engine_race *out, size_t capacity);

/* Copy writes to memory of the host that nobody has waited for, from number
 * `from` on, as the first access of a race without a second one. Returns how
 * many. */
size_t ad_engine_races_unawaited(size_t from, ad_engine_race *out,
                                 size_t capacity);

/* Accesses that were forgotten although they may be in a race. SIZE_MAX: the
 * search has ended without memory. */
size_t ad_engine_races_dropped(void);

/* The number of a queue in the search, which ad_engine_party has, too. */
typedef struct ad_engine_queue_number {
    int device;
    uint64_t handle;
    int number; /* from 1 */
    bool is_own;
} ad_engine_queue_number;

/* Copy the numbers from number `from` on. Returns how many. */
size_t ad_engine_queue_numbers(size_t from, ad_engine_queue_number *out,
                               size_t capacity);

/* --- what queues have run ------------------------------------------------- */

typedef struct ad_engine_run {
    const char
        *name;      /* static: "copy", "write", "kernel", "release", "work" */
    uint64_t queue; /* which may be gone */
    int device;
    uint32_t place;
    size_t nbytes;
    int64_t enqueued; /* ns of the monotonic clock */
    int64_t start;
    int64_t end;
} ad_engine_run;

/* Record the last 65,536 runs of work. OUT_OF_MEMORY: none are recorded. */
int ad_engine_runs_start(void);
void ad_engine_runs_stop(void);

/* Copy runs from number `from` on; *next is the number after the last one.
 * Returns how many. */
size_t ad_engine_runs(uint64_t from, ad_engine_run *out, size_t capacity,
                      uint64_t *next);

/* --- failure on demand, log, counters ------------------------------------ */

/* Every call of a front end begins with this. It counts the call, writes it to
 * the log if the log is on, and returns 0 or the code of a planned failure
 * (ad_engine_fail_at). `call` must be a static string. */
int ad_engine_enter(const char *call);

/* Let the n-th next call fail with `code` (1: the very next). Counts the calls
 * named `call` (copied, at most 63 characters), or all (NULL). `stay`: later
 * calls fail too. n 0: off. */
int ad_engine_fail_at(uint64_t n, const char *call, int code, bool stay);

/* Number of calls since the start. */
uint64_t ad_engine_n_calls(void);

/* The log: a ring of the last 4096 names. Enabling it clears it. */
void ad_engine_set_log(bool on);

/* Copy the last names, oldest first. Returns how many (<= capacity). */
size_t ad_engine_log(const char **out, size_t capacity);

typedef struct ad_engine_counts {
    size_t queues;      /* live handles */
    size_t events;      /* live handles */
    size_t allocations; /* live, registered memory excluded */
    size_t bytes;       /* of the live allocations */
    size_t pending;     /* operations, destroyed queues included */
} ad_engine_counts;

/* Count the live objects, only those with `tag` or all (NULL). `pending`
 * counts all queues. */
void ad_engine_count(const void *tag, ad_engine_counts *out);

/* Maximum time of a host wait without a timeout, which then fails with
 * TIMEOUT. < 0: unlimited. */
void ad_engine_set_patience(int64_t milliseconds);
int64_t ad_engine_patience(void);

/* Open all gates, fire armed events, and clear delays, limits, patience,
 * planned failures and stored errors. Handles and memory stay. */
void ad_engine_reset(void);

#endif /* AD_TEST_DEVICE_ENGINE_H */
