/* The tests' controls of a stand-in driver: tests/helpers/fakegpu.py calls them with
 * ctypes. They are not logged. Streams are given by their handles; default
 * streams are those of the calling thread's current context. Functions return
 * 0 or the driver's error number unless documented otherwise.
 */
#ifndef FD_CONTROLS_H
#define FD_CONTROLS_H

#include "driver.h"

/* Later work on the stream does not start, and no query or event of it is
 * ready, until it is released as often as it was held. */
FD_EXPORT int fake_hold(uintptr_t stream);
FD_EXPORT int fake_release(uintptr_t stream);

/* Every operation on every stream starts this much later. */
FD_EXPORT void fake_set_delay(int64_t microseconds);

/* The n-th call from now on (of `name`, or of any function) fails with `code`;
 * with `stay`, later calls fail, too. n 0: off. */
FD_EXPORT void fake_fail_at(uint64_t n, const char *name, int code, int stay);

/* Breaks the current context: every call fails. 0 repairs it. */
FD_EXPORT int fake_break_context(int code);

/* Host waits fail (909) after this long; < 0: never. */
FD_EXPORT void fake_set_patience(int64_t milliseconds);

/* cuMemFree and the like wait for work on the memory (1), or count it as a
 * violation (0, default). */
FD_EXPORT void fake_set_free_waits(int on);

/* Asynchronous copies from and to pageable host memory: staged as NVIDIA's
 * driver does it (1, default: host memory is read at the call, and written
 * before it returns), or accessed as late as the contract allows (0). */
FD_EXPORT void fake_set_staging(int on);

/* A new stream or event gets the handle of the one that was destroyed last (1,
 * default), as seen on real drivers (rmm #649), or a handle that none had (0).
 * The use of a destroyed one is reported until its handle is given out
 * again. */
FD_EXPORT void fake_set_handle_reuse(int on);

/* Devices access all memory of the host (HMM, ATS): 1; 0 by default. */
FD_EXPORT void fake_set_pageable_access(int on);

/* Managed memory belongs to no context and no device, as that of CUDA 13's
 * pools may: 1; 0 by default. */
FD_EXPORT void fake_set_managed_without_device(int on);

FD_EXPORT void fake_set_version(int version);
int fd_version(void);

/* Opens gates, removes delays, limits and injected failures, repairs contexts,
 * and ends captures. The log, the counters and live objects stay. */
FD_EXPORT void fake_reset(void);

/* --- queries ------------------------------------------------------------------ */

typedef struct fake_call {
    const char *name; /* static */
    uint64_t thread;
    uint64_t stream;
    uint64_t context; /* current at the call */
} fake_call;

/* Clear and start the log; copy its calls (oldest first). The result is the
 * number of all calls. */
FD_EXPORT void fake_log_start(void);
FD_EXPORT void fake_log_stop(void);
FD_EXPORT size_t fake_log_read(fake_call *out, size_t capacity);
FD_EXPORT uint64_t fake_n_calls(void);

/* Lines of text; reading clears the violations. Return the length. */
FD_EXPORT size_t fake_violations(char *out, size_t size);
FD_EXPORT size_t fake_stub_hits(char *out, size_t size);

typedef struct fake_counts {
    uint64_t contexts; /* live, including primary ones */
    uint64_t streams;  /* created by users */
    uint64_t events;
    uint64_t device; /* allocations */
    uint64_t pinned;
    uint64_t managed;
    uint64_t registered;
    uint64_t bytes;
    uint64_t pending;    /* operations */
    uint64_t host_waits; /* calls that may block */
    uint64_t maps;       /* pools that took memory from the system */
    uint64_t host_spins; /* host waits that take a processor */
    uint64_t reserved;   /* handles of physical memory, ranges of addresses */
    uint64_t imported;   /* pools of other processes */
} fake_counts;

FD_EXPORT void fake_count(fake_counts *out);

FD_EXPORT uintptr_t fake_current_context(void);
FD_EXPORT int fake_context_depth(void);

/* The current bytes, regardless of pending work. 1 for memory that does not
 * exist. */
FD_EXPORT int fake_peek(const void *address, void *out, size_t nbytes);

#endif /* FD_CONTROLS_H */
