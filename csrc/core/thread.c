#include "core/thread.h"

#include <signal.h>
#include <stddef.h>

int
ad_thread_start(void *(*run)(void *context), void *context, pthread_t *out)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    /* The mask is inherited. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0 && out == NULL) {
        pthread_detach(thread);
    } else if (code == 0) {
        *out = thread;
    }
    return code;
}
