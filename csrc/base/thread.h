/* Threads of our own. They block the signals, which are for the threads of the
 * program, but for those that tell of a fault of the thread itself.
 */
#ifndef AD_BASE_THREAD_H
#define AD_BASE_THREAD_H

#include <pthread.h>

/* Run `run(context)` on a new thread. *out is to be joined or detached; NULL:
 * detached from the start. 0, or the errno that says why there is no
 * thread. */
int ad_thread_start(void *(*run)(void *context), void *context,
                    pthread_t *out);

#endif /* AD_BASE_THREAD_H */
