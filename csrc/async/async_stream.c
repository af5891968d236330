/* What both ends of an async stream share: the table of the states, and the
 * waker. */
#include "async/async_stream.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"

/* --- the states of a stream ---------------------------------------------- */

#define GOES_TO(state)                                                        \
    {                                                                         \
        .next = AD_ASYNC_##state                                              \
    }
#define BREAKS(state, id, text)                                               \
    {                                                                         \
        .next = AD_ASYNC_##state, .rule = (text), .rule_id = "async." id      \
    }
#define TOLERATED(state, id, text)                                            \
    {                                                                         \
        .next = AD_ASYNC_##state, .rule = (text), .rule_id = "async." id,     \
        .is_tolerated = true                                                  \
    }

#define NO_SCHEMA "before on_schema, which must be the first call"
#define NO_END "without an end; a NULL task or on_error must come before it"
#define IS_ENDED "after the end of the stream, when only release may follow"
#define IS_FAILED "after on_error, when only release may follow"
#define IS_REFUSED                                                            \
    "after a call that was refused, when only release may follow"
#define IS_RELEASED "after release, which must be the last call"

/* Every call but release breaks one rule. */
#define NOTHING_MORE(state, id, text)                                         \
    [AD_ASYNC_ON_SCHEMA] = BREAKS(state, id, text),                           \
    [AD_ASYNC_ON_TASK] = BREAKS(state, id, text),                             \
    [AD_ASYNC_ON_END] = BREAKS(state, id, text),                              \
    [AD_ASYNC_ON_ERROR] = BREAKS(state, id, text)

static const ad_async_step steps[AD_ASYNC_N_STATES][AD_ASYNC_N_EVENTS] = {
    [AD_ASYNC_NEW] =
        {
            [AD_ASYNC_ON_SCHEMA] = GOES_TO(OPEN),
            [AD_ASYNC_ON_TASK] = BREAKS(NEW, "schema_first", NO_SCHEMA),
            [AD_ASYNC_ON_END] = BREAKS(NEW, "schema_first", NO_SCHEMA),
            [AD_ASYNC_ON_ERROR] = GOES_TO(FAILED),
            [AD_ASYNC_RELEASE] = BREAKS(RELEASED, "end", NO_END),
            [AD_ASYNC_REFUSAL] = GOES_TO(REFUSED),
        },
    [AD_ASYNC_OPEN] =
        {
            [AD_ASYNC_ON_SCHEMA] = BREAKS(OPEN, "schema_first",
                                          "twice, but a stream has one "
                                          "schema"),
            [AD_ASYNC_ON_TASK] = GOES_TO(OPEN),
            [AD_ASYNC_ON_END] = GOES_TO(ENDED),
            [AD_ASYNC_ON_ERROR] = GOES_TO(FAILED),
            [AD_ASYNC_RELEASE] = BREAKS(RELEASED, "end", NO_END),
            [AD_ASYNC_REFUSAL] = GOES_TO(REFUSED),
        },
    [AD_ASYNC_ENDED] =
        {
            NOTHING_MORE(ENDED, "over", IS_ENDED),
            [AD_ASYNC_RELEASE] = GOES_TO(RELEASED),
            [AD_ASYNC_REFUSAL] = GOES_TO(REFUSED),
        },
    [AD_ASYNC_FAILED] =
        {
            NOTHING_MORE(FAILED, "over", IS_FAILED),
            [AD_ASYNC_RELEASE] = GOES_TO(RELEASED),
            [AD_ASYNC_REFUSAL] = GOES_TO(REFUSED_FAILED),
        },
    [AD_ASYNC_REFUSED] =
        {
            [AD_ASYNC_ON_SCHEMA] = BREAKS(REFUSED, "over", IS_REFUSED),
            [AD_ASYNC_ON_TASK] = BREAKS(REFUSED, "over", IS_REFUSED),
            [AD_ASYNC_ON_END] = TOLERATED(REFUSED, "over", IS_REFUSED),
            [AD_ASYNC_ON_ERROR] =
                TOLERATED(REFUSED_FAILED, "over", IS_REFUSED),
            [AD_ASYNC_RELEASE] = GOES_TO(RELEASED),
            [AD_ASYNC_REFUSAL] = GOES_TO(REFUSED),
        },
    [AD_ASYNC_REFUSED_FAILED] =
        {
            [AD_ASYNC_ON_SCHEMA] = BREAKS(REFUSED_FAILED, "over", IS_REFUSED),
            [AD_ASYNC_ON_TASK] = BREAKS(REFUSED_FAILED, "over", IS_REFUSED),
            [AD_ASYNC_ON_END] = TOLERATED(REFUSED_FAILED, "over", IS_REFUSED),
            [AD_ASYNC_ON_ERROR] = BREAKS(REFUSED_FAILED, "over", IS_REFUSED),
            [AD_ASYNC_RELEASE] = GOES_TO(RELEASED),
            [AD_ASYNC_REFUSAL] = GOES_TO(REFUSED_FAILED),
        },
    [AD_ASYNC_RELEASED] =
        {
            NOTHING_MORE(RELEASED, "release", IS_RELEASED),
            [AD_ASYNC_RELEASE] = BREAKS(RELEASED, "release",
                                        "twice; it must be called once, last"),
            [AD_ASYNC_REFUSAL] = GOES_TO(RELEASED),
        },
};

const ad_async_step *
ad_async_step_of(ad_async_state state, ad_async_event event)
{
    return &steps[state][event];
}

const char *
ad_async_state_name(ad_async_state state)
{
    static const char *const names[AD_ASYNC_N_STATES] = {
        "new",     "open",           "ended",    "failed",
        "refused", "refused_failed", "released",
    };
    return names[state];
}

const char *
ad_async_event_name(ad_async_event event)
{
    static const char *const names[AD_ASYNC_N_EVENTS] = {
        "on_schema", "on_next_task", "end", "on_error", "release", "refusal",
    };
    return names[event];
}

/* --- the waker ----------------------------------------------------------- */

static void
waker_destroy(ad_owner *base)
{
    ad_waker *self = (ad_waker *)base;
    ad_flag_close(&self->flag);
    free(self);
}

static const ad_owner_ops waker_ops = {.destroy = waker_destroy,
                                       .name = "waker"};

ad_status
ad_waker_new(ad_waker **out, ad_error *err)
{
    ad_waker *self = malloc(sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    int code = ad_flag_open(&self->flag);
    if (code != 0) {
        free(self);
        (void)ad_fail(err, AD_ERR_EXCHANGE, "stream",
                      "close files, or raise the limit (ulimit -n)",
                      "no file descriptor for an async stream: %s",
                      strerror(code));
        if (err != NULL) {
            err->code = code;
        }
        return AD_ERR_EXCHANGE;
    }
    self->generation = ad_process_generation();
    ad_owner_init(&self->base, &waker_ops);
    *out = self;
    return AD_OK;
}

void
ad_waker_unref(ad_waker *self)
{
    if (self != NULL) {
        ad_owner_unref(&self->base);
    }
}

bool
ad_waker_is_ours(const ad_waker *self)
{
    return self->generation == ad_process_generation();
}

ad_status
ad_waker_check(const ad_waker *self, ad_error *err)
{
    return ad_waker_is_ours(self)
               ? AD_OK
               : ad_fail(err, AD_ERR_EXCHANGE, "stream",
                         "go on with it in the parent, or make another one "
                         "here",
                         "this async stream was made before this process was "
                         "forked, and its other end is not in the child");
}

void
ad_waker_wake(ad_waker *self)
{
    if (ad_waker_is_ours(self)) {
        ad_flag_set(&self->flag);
    }
}

static void
wake(void *waker)
{
    ad_waker_wake(waker);
}

ad_async_wake
ad_waker_callback(ad_waker *self)
{
    return (ad_async_wake){wake, self, &self->base};
}

bool
ad_waker_clear(ad_waker *self)
{
    return ad_waker_is_ours(self) && ad_flag_clear(&self->flag);
}

void
ad_waker_wait(ad_waker *self, int timeout_ms)
{
    ad_flag_wait(&self->flag, timeout_ms);
}
