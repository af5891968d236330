/* Threads that arrowdev starts. They block all signals except those of a fault
 * in the thread itself, because signals belong to the threads of the program.
 */
#ifndef AD_BASE_THREAD_H
#define AD_BASE_THREAD_H

#include <pthread.h>

/* Run `run(context)` on a new thread. The caller must join or detach *out.
 * With `out` NULL the thread is detached. Returns 0, or the errno of the
 * failed start. */
int ad_thread_start(void *(*run)(void *context), void *context,
                    pthread_t *out);

#endif /* AD_BASE_THREAD_H */
