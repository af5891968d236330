/* What the tests may do to a stand-in driver: tests/fakegpu.py calls these
 * with ctypes. None of them is logged. Streams are named by their handles,
 * default ones in the calling thread's current context. Functions return 0 or
 * the driver's error number unless they say otherwise.
 */
#ifndef FD_CONTROLS_H
#define FD_CONTROLS_H

#include "driver.h"

/* Nothing later on the stream begins, no query or event of it is ready, until
 * it is released as often as it was held. */
FD_EXPORT int fake_hold(uintptr_t stream);
FD_EXPORT int fake_release(uintptr_t stream);

/* Each piece of work on every stream begins this much later. */
FD_EXPORT void fake_set_delay(int64_t microseconds);

/* The n-th call from now on (of `name`, or any) fails with `code`; with `stay`
 * those after it too. n 0: off. */
FD_EXPORT void fake_fail_at(uint64_t n, const char *name, int code, int stay);

/* The current context is broken from now on: every call fails. 0 mends it. */
FD_EXPORT int fake_break_context(int code);

/* Host waits give up (909) after this long; < 0: never. */
FD_EXPORT void fake_set_patience(int64_t milliseconds);

/* cuMemFree and the like wait for work on the memory (1), or count it as a
 * violation (0, default). */
FD_EXPORT void fake_set_free_waits(int on);

/* Asynchronous copies from and to pageable host memory: staged as NVIDIA's
 * driver does it (1, default: host memory is read at the call, and written
 * before it returns), or touched as late as the words of the contract allow
 * (0). */
FD_EXPORT void fake_set_staging(int on);

FD_EXPORT void fake_set_version(int version);
int fd_version(void);

/* Gates open, delays, limits and planned failures off, contexts mended. The
 * log, counters and whatever is alive stay. */
FD_EXPORT void fake_reset(void);

/* --- asking ------------------------------------------------------------------- */

typedef struct fake_call {
    const char *name; /* static */
    uint64_t thread;
    uint64_t stream;
    uint64_t context; /* current at the call */
} fake_call;

/* Empty the log and start it; copy its calls (oldest first), all of which are
 * counted in the result. */
FD_EXPORT void fake_log_start(void);
FD_EXPORT void fake_log_stop(void);
FD_EXPORT size_t fake_log_read(fake_call *out, size_t capacity);
FD_EXPORT uint64_t fake_n_calls(void);

/* Lines of text; the violations are emptied. Return the length. */
FD_EXPORT size_t fake_violations(char *out, size_t size);
FD_EXPORT size_t fake_stub_hits(char *out, size_t size);

typedef struct fake_counts {
    uint64_t contexts; /* live, primary ones too */
    uint64_t streams;  /* made by users */
    uint64_t events;
    uint64_t device; /* allocations */
    uint64_t pinned;
    uint64_t managed;
    uint64_t registered;
    uint64_t bytes;
    uint64_t pending;    /* operations */
    uint64_t host_waits; /* calls that blocked, or could have */
} fake_counts;

FD_EXPORT void fake_count(fake_counts *out);

FD_EXPORT uintptr_t fake_current_context(void);
FD_EXPORT int fake_context_depth(void);

/* The bytes as they are now, whatever is pending. 1 for memory that is not
 * there. */
FD_EXPORT int fake_peek(const void *address, void *out, size_t nbytes);

#endif /* FD_CONTROLS_H */
