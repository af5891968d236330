/* Detection of forks, hooks that run in a forked child, and what memory the
 * process can read.
 */
#ifndef AD_BASE_PROCESS_H
#define AD_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* 0 until the fork handler is installed. ad_process_watch installs it. */
extern atomic_uint ad_process_generation_now;
unsigned ad_process_watch(void);

/* A number that a fork increments in the child. An object that stores it can
 * tell whether it was made before a fork. */
static inline unsigned
ad_process_generation(void)
{
    unsigned generation =
        atomic_load_explicit(&ad_process_generation_now, memory_order_relaxed);
    return generation != 0 ? generation : ad_process_watch();
}

/* A static variable. Each file with locks, threads or counts has one. */
typedef struct ad_child_hook {
    void (*run)(void);
    struct ad_child_hook *next; /* private to process.c, like is_added */
    atomic_bool is_added;
} ad_child_hook;

/* Call `hook->run` in each forked child from now on, on its only thread, after
 * the generation has changed. The hook may use only async-signal-safe
 * functions, atomics, ad_mutex_init() and ad_cond_init(). Adding a hook again
 * is cheap. Returns 0, or the errno with which the fork handler could not be
 * installed. */
int ad_process_add_child_hook(ad_child_hook *hook);

/* Whether the first and the last of `nbytes` bytes are mapped and readable, as
 * far as the system tells. For addresses and sizes that a producer's struct
 * states and nothing else confirms. True if nbytes is not positive. */
bool ad_process_can_read(const void *data, int64_t nbytes);

#endif /* AD_BASE_PROCESS_H */
