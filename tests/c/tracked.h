/* An owner that records its release, on any thread.
 */
#ifndef AD_TESTS_TRACKED_H
#define AD_TESTS_TRACKED_H

#include <stdatomic.h>
#include <time.h>

#include "check.h"
#include "base/owner.h"

typedef struct tracked {
    ad_owner base;
    atomic_int *n_released;
} tracked;

static inline void
tracked_destroy(ad_owner *base)
{
    atomic_fetch_add(((tracked *)base)->n_released, 1);
    free(base);
}

static const ad_owner_ops tracked_ops = {.destroy = tracked_destroy,
                                         .name = "test"};

static inline ad_owner *
tracked_new(atomic_int *n_released)
{
    tracked *self = malloc(sizeof(*self));
    CHECK(self != NULL);
    ad_owner_init(&self->base, &tracked_ops);
    self->n_released = n_released;
    return &self->base;
}

static inline void
rest(long milliseconds)
{
    struct timespec span = {milliseconds / 1000,
                            milliseconds % 1000 * 1000000};
    nanosleep(&span, NULL);
}

/* Waits until *counter is `wanted`, at most 10 s. */
static inline void
expect_soon(atomic_int *counter, int wanted)
{
    for (int i = 0; i < 10000 && atomic_load(counter) != wanted; i++) {
        rest(1);
    }
    CHECK_INT(atomic_load(counter), wanted);
}

#endif /* AD_TESTS_TRACKED_H */
