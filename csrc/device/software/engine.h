/* A real asynchronous device made of threads.
 *
 * Queues are worker threads, events fire when the work before them is done,
 * and device memory cannot be touched by the host. The software device
 * (software.c) and the stand-in drivers of the test suite are thin faces over
 * this engine; each is a library with an engine of its own, compiled from
 * software_engine*.c and base/thread.c. It depends on libc and pthread only,
 * and runs on Linux only.
 *
 * Memory. One memfd is mapped twice. Callers get addresses in the first
 * mapping, where device memory has no access at all; work that runs on a queue
 * reaches the same bytes at ad_engine_inside(address). Each allocation has
 * pages of its own. Freed pages are unmapped from both views, and their
 * addresses are not given out again before the whole arena was passed through,
 * so that a use after free faults, or is found out (copy and fill check).
 *
 * Handles of queues and events are numbers with a generation: one that was
 * destroyed or never existed is recognized, nothing is dereferenced.
 *
 * Rules for every function:
 * - Called from any thread. Those that may block say so.
 * - Returns an ad_engine_status where it can fail; outputs are written on
 *   success only.
 * - In a forked child of the process everything refuses with
 *   AD_ENGINE_FORKED; nothing blocks there. Releases do nothing.
 * - At exit workers start no more work; held and pending work never keeps a
 *   process alive.
 */
#ifndef AD_DEVICE_SOFTWARE_ENGINE_H
#define AD_DEVICE_SOFTWARE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ad_engine_status {
    AD_ENGINE_OK = 0,
    AD_ENGINE_NOT_STARTED,     /* no devices yet */
    AD_ENGINE_UNSUPPORTED,     /* not on this operating system */
    AD_ENGINE_FORKED,          /* a child of the process that started it */
    AD_ENGINE_INVALID_DEVICE,  /* no such ordinal */
    AD_ENGINE_INVALID_QUEUE,   /* destroyed, or never one */
    AD_ENGINE_INVALID_EVENT,   /* destroyed, or never one */
    AD_ENGINE_INVALID_POINTER, /* not live memory of the engine */
    AD_ENGINE_INVALID_VALUE,   /* a size or a range */
    AD_ENGINE_OUT_OF_MEMORY,   /* device memory, or the host's */
    AD_ENGINE_NOT_READY,       /* a query: the work is pending */
    AD_ENGINE_TIMEOUT,         /* a wait took longer than it may */
    AD_ENGINE_ILLEGAL_ADDRESS, /* work touched memory that is not there */
    AD_ENGINE_WORK_FAILED,     /* work returned something else than 0 */
    AD_ENGINE_INJECTED,        /* asked for with ad_engine_fail_at */
    AD_ENGINE_N_STATUS
} ad_engine_status;

/* --- devices ------------------------------------------------------------- */

/* Have at least `n_devices` devices from now on (at most 64). Devices are
 * never taken away: streams and events that others keep for them stay good.
 * Starting again with fewer is no error. */
int ad_engine_start(int n_devices);

/* 0 before the start and in a forked child. */
int ad_engine_n_devices(void);

/* True in a forked child of the process that started the engine. */
bool ad_engine_is_forked(void);

/* Most bytes that live allocations of kind DEVICE and MANAGED on `device` may
 * have together. Default: 4 GiB. */
int ad_engine_set_memory_limit(int device, size_t nbytes);

/* Limit, and what is left of it now. */
int ad_engine_memory(int device, size_t *limit, size_t *left);

/* Wait until all work is done on the queues of `device` (-1: all) that have
 * `tag` (NULL: any). Fails with the first error of work found there. Blocks;
 * timeout as in ad_engine_queue_synchronize. */
int ad_engine_synchronize(int device, const void *tag, int64_t timeout_ms);

/* --- memory -------------------------------------------------------------- */

typedef enum ad_engine_kind {
    AD_ENGINE_DEVICE,    /* out of the host's reach */
    AD_ENGINE_PINNED,    /* host and device; not counted as device memory */
    AD_ENGINE_MANAGED,   /* host and device */
    AD_ENGINE_REGISTERED /* host memory of somebody else, made known */
} ad_engine_kind;

typedef struct ad_engine_allocation {
    void *base;
    size_t nbytes; /* as asked for */
    int device;
    ad_engine_kind kind;
    void *tag; /* of the face: a context */
} ad_engine_allocation;

/* nbytes > 0 bytes, aligned to 4096, filled with a pattern that is no
 * plausible value. OUT_OF_MEMORY above the limit. */
int ad_engine_allocate(int device, size_t nbytes, ad_engine_kind kind,
                       void *tag, void **out);

/* Give memory back now, whatever work is pending. INVALID_POINTER unless
 * `base` is the start of a live allocation (so a second free is an error). */
int ad_engine_free(void *base);

/* The same once the work that is now on `queue` is done. From this call on
 * ad_engine_find does not know it any more. */
int ad_engine_free_ordered(uint64_t queue, void *base);

/* Make host memory known as REGISTERED, and forget it. INVALID_VALUE where it
 * overlaps what is known. */
int ad_engine_register(void *base, size_t nbytes, int device, void *tag);
int ad_engine_unregister(void *base);

/* The live allocation that `pointer` lies in (its base or any byte). Never
 * dereferences it. */
bool ad_engine_find(const void *pointer, ad_engine_allocation *out);

/* Are [pointer, pointer + nbytes) bytes that work may touch now: inside one
 * live allocation, or memory of the host (outside the arena)? */
bool ad_engine_may_touch(const void *pointer, size_t nbytes);

/* Where work reaches the memory behind a public address; the address itself
 * for memory of the host. For use on a queue's worker (and by a face that
 * implements a synchronous call, once the work is done). */
void *ad_engine_inside(const void *pointer);

/* --- queues -------------------------------------------------------------- */

/* A queue runs its work one after the other, in the order of submission, on
 * a worker thread that starts with the first work. Handles are > 2 and fit in
 * 63 bits; 0 is never one. `tag` and `data` belong to the face. */
int ad_engine_queue_create(int device, void *tag, uint64_t *out);

/* The handle dies at once; pending work still runs, and the gate is opened
 * for it. Does not block. */
int ad_engine_queue_destroy(uint64_t queue);

bool ad_engine_queue_is_live(uint64_t queue);
int ad_engine_queue_device(uint64_t queue, int *out);
int ad_engine_queue_tag(uint64_t queue, void **out);
int ad_engine_queue_set_data(uint64_t queue, void *data);
int ad_engine_queue_data(uint64_t queue, void **out);

/* The live queues of `device` (-1: all) with `tag` (NULL: any), at most
 * `capacity` of them; returns how many there are. */
size_t ad_engine_queue_list(int device, const void *tag, uint64_t *out,
                            size_t capacity);

/* Work. Runs on the worker without any lock held, and may call the engine,
 * but not wait for its own queue. Frees `arg` itself. Returns 0, or an
 * ad_engine_status (other numbers read as WORK_FAILED), which the queue
 * remembers, and every event recorded later on it: asynchronous errors, as on
 * a GPU. Later work still runs. */
typedef int (*ad_engine_work)(void *arg);

/* Append work. On failure `arg` stays the caller's. */
int ad_engine_enqueue(uint64_t queue, ad_engine_work work, void *arg);

/* `height` rows of `width` bytes between any two of device, pinned and host
 * memory. Both ranges are checked now (INVALID_POINTER) and again when the
 * copy runs (ILLEGAL_ADDRESS). Host memory is read and written when the copy
 * runs, never at the call. */
int ad_engine_copy(uint64_t queue, void *target, size_t target_pitch,
                   const void *source, size_t source_pitch, size_t width,
                   size_t height);

/* Copy `nbytes` that are read from the host's `source` before this returns,
 * into a target that is written when the work runs. */
int ad_engine_write(uint64_t queue, void *target, const void *source,
                    size_t nbytes);

/* `n` times the `size` bytes (1, 2, 4 or 8) of `pattern`; checked as above. */
int ad_engine_fill(uint64_t queue, void *target, uint64_t pattern, size_t size,
                   size_t n);

/* Later work on `queue` waits until the event's work recorded by now is done.
 * An event that was never recorded counts as done. */
int ad_engine_queue_wait(uint64_t queue, uint64_t event);

/* Later work on `queue` waits until the work now on `other` is done. */
int ad_engine_queue_wait_queue(uint64_t queue, uint64_t other);

/* OK, NOT_READY, or the error of earlier work. */
int ad_engine_queue_query(uint64_t queue);

/* Sleep until the work on the queue is done. timeout_ms < 0: as long as
 * ad_engine_set_patience allows, forever by default. TIMEOUT; or the error of
 * earlier work. Blocks. */
int ad_engine_queue_synchronize(uint64_t queue, int64_t timeout_ms);

/* The gate: work that has not begun does not begin until each hold was
 * released. INVALID_VALUE for a release too many. */
int ad_engine_queue_hold(uint64_t queue);
int ad_engine_queue_release(uint64_t queue);

/* From now on each piece of work begins this much later. */
int ad_engine_queue_set_delay(uint64_t queue, int64_t microseconds);
int ad_engine_queue_delay(uint64_t queue, int64_t *microseconds);

/* --- events -------------------------------------------------------------- */

/* Events belong to a device for information only: any queue records and
 * awaits them. */
int ad_engine_event_create(int device, void *tag, uint64_t *out);

/* The handle dies at once; marks and waits that are pending stay good. */
int ad_engine_event_destroy(uint64_t event);

int ad_engine_event_device(uint64_t event, int *out);
int ad_engine_event_set_data(uint64_t event, void *data);
int ad_engine_event_data(uint64_t event, void **out);

/* Each event has one address for life: that of 8 bytes that hold its handle.
 * And back, without reading there: 0 for an address that is none. */
int ad_engine_event_address(uint64_t event, const uint64_t **out);
uint64_t ad_engine_event_at(const void *address);

/* Record the work that is on `queue` now; may be repeated, the last counts.
 * Behind a closed gate it is pending even where there is no work. */
int ad_engine_event_record(uint64_t event, uint64_t queue);

/* OK, NOT_READY, or the error of the work it stands for. */
int ad_engine_event_query(uint64_t event);

/* Sleep until it is done; timeout and results as in
 * ad_engine_queue_synchronize. Blocks. */
int ad_engine_event_synchronize(uint64_t event, int64_t timeout_ms);

/* When the last record completed, in ns of the monotonic clock. NOT_READY. */
int ad_engine_event_time(uint64_t event, int64_t *out);

/* By hand, for tests: count as recorded and pending, until fired. */
int ad_engine_event_arm(uint64_t event);
int ad_engine_event_fire(uint64_t event);

/* --- failure on demand, log, counters ------------------------------------ */

/* Every call of a face begins with this: it is counted, written to the log if
 * that is on, and 0 is returned, or the code that ad_engine_fail_at asked for.
 * `call` must be a static string. */
int ad_engine_enter(const char *call);

/* Let the n-th next call fail (1: the very next) with `code`; counted are the
 * calls named `call` (copied, at most 63 characters), or all (NULL). `stay`:
 * those after it too. n 0: off. */
int ad_engine_fail_at(uint64_t n, const char *call, int code, bool stay);

/* Calls since the start; of one name, or all (NULL). By name only while the
 * log is on (the names that it remembers). */
uint64_t ad_engine_n_calls(const char *call);

/* The log: a ring of the last 4096 names. Switching it on empties it. */
void ad_engine_set_log(bool on);

/* Copy the last names, oldest first; returns how many (<= capacity). */
size_t ad_engine_log(const char **out, size_t capacity);

typedef struct ad_engine_counts {
    size_t queues;      /* live handles */
    size_t events;      /* live handles */
    size_t allocations; /* live, without registered memory */
    size_t bytes;       /* theirs */
    size_t pending;     /* pieces of work, those of destroyed queues too */
} ad_engine_counts;

/* What is live now: with `tag` only, or all (NULL). `pending` is of all. */
void ad_engine_count(const void *tag, ad_engine_counts *out);

/* An endless host wait gives up with TIMEOUT after this long; < 0: never. */
void ad_engine_set_patience(int64_t milliseconds);
int64_t ad_engine_patience(void);

/* Open all gates, fire what was armed, remove delays, limits, patience,
 * planned failures and remembered errors. Handles and memory stay. */
void ad_engine_reset(void);

#endif /* AD_DEVICE_SOFTWARE_ENGINE_H */
