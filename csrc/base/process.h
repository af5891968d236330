/* This process, and the children that it forks.
 */
#ifndef AD_BASE_PROCESS_H
#define AD_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>

/* 0 until forks are watched. */
extern atomic_uint ad_process_generation_now;
unsigned ad_process_watch(void);

/* Another number in each forked child. An object that remembers it knows on
 * which side of a fork it was made. */
static inline unsigned
ad_process_generation(void)
{
    unsigned generation =
        atomic_load_explicit(&ad_process_generation_now, memory_order_relaxed);
    return generation != 0 ? generation : ad_process_watch();
}

/* A static variable: one for each module that has locks, threads or counts. */
typedef struct ad_child_hook {
    void (*run)(void);
    struct ad_child_hook *next; /* these two are this module's */
    atomic_bool is_added;
} ad_child_hook;

/* From now on `hook->run` is called in each forked child, on its only thread,
 * with the new generation. It may only use what is async-signal-safe, atomics
 * and pthread_*_init(). Cheap where the hook has been added before. 0, or the
 * errno that says why forks are not watched. */
int ad_process_add_child_hook(ad_child_hook *hook);

#endif /* AD_BASE_PROCESS_H */
