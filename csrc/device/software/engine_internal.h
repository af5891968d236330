/* Shared by the files of the engine. One lock, ad_engine_.lock, guards
 * everything here unless its comment says otherwise. A function whose name
 * ends in _locked is called with the lock held.
 */
#ifndef AD_DEVICE_SOFTWARE_ENGINE_INTERNAL_H
#define AD_DEVICE_SOFTWARE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/software/engine.h"

enum {
    AD_ENGINE_MAX_DEVICES = 64
};

/* A point in a queue's work. Events and waiting queues hold references. So an
 * event can be recorded again or destroyed while others wait for its earlier
 * record. */
typedef struct ad_engine_mark {
    size_t n_refs;
    bool is_done;
    bool is_armed; /* only ad_engine_event_fire completes it */
    int error;
    int64_t time; /* of completion */
} ad_engine_mark;

struct ad_engine_globals {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* a mark or a queue advanced */
    int n_waiting;           /* threads waiting on `progress` */
    int64_t patience;        /* ms; < 0: endless */
    atomic_int n_devices;    /* readable without the lock */
    atomic_bool is_forked;   /* the same */
    bool is_quitting;
};

extern struct ad_engine_globals ad_engine_;

/* --- locking and waiting (device/software/engine.c) ---------------------- */

/* Take the lock. On FORKED or NOT_STARTED the lock is not held. */
int ad_engine_lock(void);
/* The same; INVALID_DEVICE unless it is a device. */
int ad_engine_lock_device(int device);
void ad_engine_unlock(void);

/* Now, in ns of the monotonic clock. */
int64_t ad_engine_now(void);

/* The time at which a wait of timeout_ms ends. INT64_MAX: never. */
int64_t ad_engine_deadline_locked(int64_t timeout_ms);

/* Sleep until there is progress, or until the deadline. False at the deadline,
 * and at once while the process exits, since there is no progress any more. */
bool ad_engine_await_locked(int64_t deadline);

/* Sleep on the caller's condition, at most until the deadline. */
void ad_engine_sleep_locked(pthread_cond_t *cond, int64_t deadline);

/* Signal progress. */
void ad_engine_progress_locked(void);

/* --- handles ------------------------------------------------------------- */

/* The handle of slot `index`: tag in bits 56-62, then 32 bits of generation,
 * then the index. */
static inline uint64_t
ad_engine_handle(uint64_t tag, uint32_t generation, size_t index)
{
    return tag << 56 | (uint64_t)generation << 24 | index;
}

static inline size_t
ad_engine_handle_index(uint64_t handle)
{
    return handle & 0xffffff;
}

enum {
    AD_ENGINE_MAX_HANDLES = 1 << 24
};

/* --- marks (device/software/engine_event.c) ------------------------------ */

/* A mark with one reference, which the caller owns. NULL: no memory. */
ad_engine_mark *ad_engine_mark_new(void);
ad_engine_mark *ad_engine_mark_ref_locked(ad_engine_mark *mark);
void ad_engine_mark_unref_locked(ad_engine_mark *mark); /* NULL: nothing */
void ad_engine_mark_complete_locked(ad_engine_mark *mark, int error);

/* --- queues (device/software/engine_queue.c) ----------------------------- */

/* Append an operation that completes `mark`. Takes a reference of its own. */
int ad_engine_push_mark_locked(uint64_t queue, ad_engine_mark *mark);

/* Append an operation that waits for `mark`. A NULL or completed mark needs
 * none. */
int ad_engine_push_wait_locked(uint64_t queue, ad_engine_mark *mark);

/* Let all workers end before their next operation. */
void ad_engine_queues_quit_locked(void);

/* --- reset and count, per file ------------------------------------------- */

void ad_engine_queues_reset_locked(void);
void ad_engine_events_reset_locked(void);
void ad_engine_memory_reset_locked(void);
void ad_engine_queues_count_locked(const void *tag, ad_engine_counts *out);
void ad_engine_events_count_locked(const void *tag, ad_engine_counts *out);
void ad_engine_memory_count_locked(const void *tag, ad_engine_counts *out);

/* --- memory (device/software/engine_memory.c) ---------------------------- */

/* Map the arena, once. */
int ad_engine_arena_start_locked(void);

#endif /* AD_DEVICE_SOFTWARE_ENGINE_INTERNAL_H */
