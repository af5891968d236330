/* Runtimes without a device: an event is complete when the test says so, any
 * call can be made to fail, and every call is counted.
 *
 *   mock_in_order   type CUDA (and CUDA_HOST): streams in order, events that
 *                   can be pooled, memory freed in stream order, contexts that
 *                   can be waited for
 *   mock_queues     type ONEAPI: nothing of that; sync_event is the handle
 *   mock_claims     type EXT_DEV: claims only sync_event == MOCK_CLAIMED
 *   mock_broken     type OPENCL: its library cannot be loaded
 *   mock_bare       type VPI: has no slot but the required ones
 */
#ifndef AD_TESTS_MOCK_BACKEND_H
#define AD_TESTS_MOCK_BACKEND_H

#include "base/handles.h"
#include "base/status.h"
#include "device/backend.h"

enum {
    IN_ORDER = 2,
    PINNED = 3,
    QUEUES = 14,
    CLAIMS = 12,
    BROKEN = 4,
    BARE = 9
};

/* A stream that was destroyed: recording and waiting fail. */
#define MOCK_DEAD_STREAM 666u
/* A stream that is being captured, until mock_end_capture(): what is recorded
 * there cannot be asked. */
#define MOCK_CAPTURED_STREAM 777u
/* A stream of another context than the others of its device. */
#define MOCK_STRANGER 888u
#define MOCK_STRANGE_CONTEXT ((void *)0x9000)
#define MOCK_CLAIMED ((void *)0x77)

typedef struct mock_event {
    uint64_t at; /* complete when the clock has come this far */
    uintptr_t stream;
    bool is_captured;
} mock_event;

typedef struct mock_counts {
    long loads, primary_contexts, stream_contexts, streams_created,
        streams_destroyed, waits, events_created, events_destroyed, records,
        queries, event_waits, context_waits, allocations, deallocations;
} mock_counts;

/* All counts, and all state but events that live. */
void mock_reset(void);
mock_counts mock_count(void);

/* Every record is one tick of work later than the last; work is done up to
 * what this says. mock_finish: all that was recorded so far. */
void mock_finish(void);
/* Everything is complete as soon as it is recorded. */
void mock_set_instant(bool instant);
/* Waits return at once and complete everything; else they block until
 * mock_finish. Default: on. */
void mock_set_waits_finish(bool finish);

/* Guess where streams run, which is right but for MOCK_STRANGER; default: off. */
void mock_set_guesses(bool guesses);

/* Make the n-th call from now on that can fail do so (AD_ERR_DEVICE); 0 is
 * none. */
void mock_fail_nth(long n);
bool mock_failed_once(void);
/* Make all of one kind fail. */
typedef enum mock_kind {
    MOCK_NONE,
    MOCK_QUERY,
    MOCK_CONTEXT_WAIT,
    MOCK_ALLOCATE /* AD_ERR_MEMORY while a release is deferred */
} mock_kind;
void mock_fail_all(mock_kind kind);
/* Make the next n of one kind fail. */
void mock_fail_next(mock_kind kind, long n);

/* Whether the runtime refuses the calls of this thread, as CUDA does inside of a
 * host function. Calls that wait are none. */
void mock_set_refusing(bool refusing);

/* Events that were created and not destroyed. */
long mock_live_events(void);
/* The same for allocations. */
long mock_live_memory(void);

void mock_end_capture(void);

/* The capture ends after one more query. */
void mock_end_capture_after_query(void);

/* The streams that were created so far died with their context. */
void mock_lose_streams(void);

/* The last stream_wait: which stream. */
uintptr_t mock_last_waiter(void);
/* The last event_record: which stream. */
uintptr_t mock_last_recorded(void);

#endif /* AD_TESTS_MOCK_BACKEND_H */
