/* Detection of forks, hooks that run in a forked child, and threads.
 */
#ifndef AD_BASE_PROCESS_H
#define AD_BASE_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
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
 * functions, atomics and pthread_*_init(). Adding a hook again is cheap.
 * Returns 0, or the errno with which the fork handler could not be
 * installed. */
int ad_process_add_child_hook(ad_child_hook *hook);

/* Run `run(context)` on a new thread, which blocks all signals except those of
 * a fault in the thread itself: signals belong to the threads of the program.
 * The caller must join or detach *out; with `out` NULL the thread is detached.
 * Returns 0, or the errno of the failed start. */
int ad_thread_start(void *(*run)(void *context), void *context,
                    pthread_t *out);

/* Bytes that are left of this thread's stack, as far as the system tells; else
 * SIZE_MAX. Takes some microseconds. */
size_t ad_thread_stack_left(void);

/* Whether the first and the last of `nbytes` bytes are mapped and readable, as
 * far as the system tells. For addresses and sizes that a producer's struct
 * states and nothing else confirms. True if nbytes is not positive. */
bool ad_process_can_read(const void *data, int64_t nbytes);

/* Initialize a condition whose timed waits follow AD_WAIT_CLOCK, so that a
 * change of the wall clock does not prolong them. Returns 0 or an errno. */
int ad_cond_init_monotonic(pthread_cond_t *cond);

#ifdef __linux__
#define AD_WAIT_CLOCK CLOCK_MONOTONIC
#else
#define AD_WAIT_CLOCK CLOCK_REALTIME /* no pthread_condattr_setclock */
#endif

#endif /* AD_BASE_PROCESS_H */
