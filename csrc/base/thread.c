#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

static void
block_signals(sigset_t *before)
{
    /* A fault whose signal is blocked kills the process before a handler can
     * report it. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&set, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &set, before);
}

int
ad_thread_start(void *(*run)(void *context), void *context, pthread_t *out)
{
    pthread_t thread;
    sigset_t before;
    block_signals(&before); /* the thread inherits the mask */
    int code = pthread_create(&thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0 && out == NULL) {
        pthread_detach(thread);
    } else if (code == 0) {
        *out = thread;
    }
    return code;
}
