/* Messages for the logger "arrowdev" and for a trace: each copy, each wait and
 * each refusal, with its reason.
 *
 * The code that knows the reason writes the message: AD_LOG_COPY() beside the
 * copy (ad_tensor_copy_to() is given the reason), ad_log() in order/sync.c for
 * all waits, and ad_raise() for refusals (support/errors.c).
 *
 * The core does not know the interpreter. The Python layer sets hooks that
 * find out whether the logger is enabled, and write (support/logging.c). While
 * the logger is off a message costs one load and one branch. A message may run
 * any Python code: call these functions with no lock held, and not between
 * begin_calls() and end_calls() of a backend.
 */
#ifndef AD_BASE_LOG_H
#define AD_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

typedef enum ad_log_state {
    AD_LOG_OFF = 0,
    AD_LOG_ON = 1 << 0,
    AD_LOG_ASK = 1 << 1,   /* ask the hook each time */
    AD_LOG_TRACED = 1 << 2 /* a trace is on (base/trace.h), beside these */
} ad_log_state;

typedef struct ad_log_hooks {
    bool (*is_on)(void); /* asked while the state is AD_LOG_ASK */
    void (*write)(const char *line);
} ad_log_hooks;

/* Called once, before the state is anything else than AD_LOG_OFF. */
void ad_log_set_hooks(ad_log_hooks hooks);

/* For ad_log_is_on() and support/logging.c. */
extern atomic_int ad_log_state_now;
__attribute__((cold)) bool ad_log_ask(void);

static inline bool
ad_log_is_on(void)
{
    int state = atomic_load_explicit(&ad_log_state_now, memory_order_relaxed);
    return __builtin_expect(state != AD_LOG_OFF, 0) && ad_log_ask();
}

/* Whether the logger wants lines: a trace alone does not. */
bool ad_log_wants_lines(void);

/* When a copy begins: ns of ad_now(), or 0 while no trace is on. */
static inline int64_t
ad_log_start(void)
{
    int state = atomic_load_explicit(&ad_log_state_now, memory_order_relaxed);
    return __builtin_expect((state & AD_LOG_TRACED) != 0, 0) ? ad_now() : 0;
}

/* Write a line. Call if ad_log_is_on(). */
void ad_log(const char *format, ...) AD_PRINTF(1, 2) __attribute__((cold));

/* "copy: 8,000 bytes, cpu -> cuda:0, because <why>", of a copy that began at
 * `start` and is over, or enqueued; 0: not known. */
__attribute__((cold)) void ad_log_copy(int64_t nbytes, ad_device from,
                                       ad_device to, const char *why,
                                       int64_t start);

/* The same if messages are on. Arguments are evaluated only then. */
#define AD_LOG_COPY(nbytes, from, to, why, start)                             \
    do {                                                                      \
        if (ad_log_is_on()) {                                                 \
            ad_log_copy(nbytes, from, to, why, start);                        \
        }                                                                     \
    } while (0)

#endif /* AD_BASE_LOG_H */
