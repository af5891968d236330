/* Hooks around calls that block the host and around release functions of other
 * libraries, and interruptible waits.
 *
 * The core does not know the interpreter. The Python layer sets hooks that
 * release and reacquire the GIL and run signal handlers (support/waiting.c).
 * Every blocking slot of a backend is called between begin() and end(), with
 * no lock of arrowdev held.
 */
#ifndef AD_BASE_WAIT_H
#define AD_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/handles.h"
#include "base/owner.h"
#include "base/status.h"

typedef struct ad_wait_hooks {
    void *(*begin)(void);     /* returns NULL where end() is not needed */
    void (*end)(void *saved); /* `saved` is the result of begin() */
    /* Whether waits on this thread can be interrupted. Called before
     * begin(). */
    bool (*can_be_interrupted)(void);
    /* Whether a signal interrupts this thread. Called periodically between
     * begin() and end(). May run any code, even a fork. */
    bool (*is_interrupted)(void *saved);
    /* See ad_wait_pass_on(). */
    void (*pass_on)(void);
    /* See ad_release_begin(). NULL stands for no exception. */
    void *(*begin_release)(void);
    void (*end_release)(void *exception);
    /* See ad_call_with_gil(). */
    bool (*call_with_gil)(void *interpreter, void (*function)(void *argument),
                          void *argument);
} ad_wait_hooks;

/* Called once, before any device is used. The default hooks do nothing. */
void ad_wait_set_hooks(ad_wait_hooks hooks);

/* For the functions below. */
extern ad_wait_hooks ad_hooks;

/* Whether arrowdev has ever been imported into a second interpreter of this
 * process, so that a thread with a GIL may not have the right one. */
extern atomic_bool ad_has_interpreters;

static inline void *
ad_wait_begin(void)
{
    return ad_hooks.begin != NULL ? ad_hooks.begin() : NULL;
}

static inline void
ad_wait_end(void *saved)
{
    if (saved != NULL) {
        ad_hooks.end(saved);
    }
}

/* For long work of the host between these two: whether it has to end with
 * AD_ERR_INTERRUPTED. May run any code. Call it every 10 ms or so. */
static inline bool
ad_wait_is_interrupted(void *saved)
{
    return ad_hooks.is_interrupted != NULL && ad_hooks.is_interrupted(saved);
}

/* Around every call of a release function or deleter of another library: some
 * of them (ctypes callbacks) lose the exception of this thread. */
static inline void *
ad_release_begin(void)
{
    return ad_hooks.begin_release != NULL ? ad_hooks.begin_release() : NULL;
}

static inline void
ad_release_end(void *exception)
{
    if (exception != NULL) {
        ad_hooks.end_release(exception);
    }
}

/* Such a call of the callback `member` of the struct `it`, unless it is
 * NULL. */
#define AD_RELEASE(it, member)                                                \
    do {                                                                      \
        if ((it)->member != NULL) {                                           \
            void *exception_ = ad_release_begin();                            \
            (it)->member(it);                                                 \
            ad_release_end(exception_);                                       \
        }                                                                     \
    } while (0)

/* Call `function` with the GIL of `interpreter` (support/py_call.h), whether
 * this thread holds it already or not. False, without the call, once the
 * interpreter is about to finalize. Any thread may call it, without a lock of
 * arrowdev. */
static inline bool
ad_call_with_gil(void *interpreter, void (*function)(void *argument),
                 void *argument)
{
    if (ad_hooks.call_with_gil != NULL) {
        return ad_hooks.call_with_gil(interpreter, function, argument);
    }
    function(argument);
    return true;
}

/* --- interruptible waits ------------------------------------------------- */

typedef struct ad_wait {
    /* Blocks. After an interruption the call continues on a helper thread,
     * which holds a reference on `subject` until the call returns. */
    ad_status (*wait)(const struct ad_wait *self, ad_error *err);
    /* Whether wait() would return at once, with success or an error. Does not
     * block. Optional. */
    bool (*is_over)(const struct ad_wait *self);
    ad_owner *subject;  /* what is waited for, or NULL */
    ad_context context; /* for wait() */
    bool on_host; /* the work that is waited for runs on the host's CPU */
} ad_wait;

/* Wait for the subject. AD_ERR_INTERRUPTED means that the wait was
 * interrupted. That stops no work, so the caller must treat the memory as
 * still in use. AD_ERR_EXCHANGE, "runtime", means that this process was forked
 * during the wait. With `err` NULL an interruption could not be reported, and
 * the wait is not interruptible. */
AD_MUST_CHECK ad_status ad_wait_interruptible(const ad_wait *wait,
                                              ad_error *err);

/* Whether the wait is over now or after a short spin. Requires is_over. */
bool ad_wait_is_over_soon(const ad_wait *wait);

/* For a wait that polls: the pause before the next query of a wait that began
 * at the time `begun` of ad_now(). It yields at first, and then sleeps in
 * proportion to the time waited: 3 % of it, at most 0.5 ms. */
void ad_wait_pause(int64_t begun);

/* Schedule the effect of an interruption for later. For AD_ERR_INTERRUPTED in
 * an interface that can return only an errno. Any thread may call it. */
void ad_wait_pass_on(void);

#endif /* AD_BASE_WAIT_H */
