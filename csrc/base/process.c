#define _GNU_SOURCE /* process_vm_readv, pthread_getattr_np */
#include "base/process.h"

#include <errno.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

atomic_uint ad_process_generation_now;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ad_child_hook *hooks; /* protected by the lock */

/* Another thread of the parent may have held the lock at the fork, and it
 * would never be unlocked here. A hook that was being added is either in the
 * list or not, so the list is consistent. */
static void
after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_fetch_add(&ad_process_generation_now, 1);
    for (const ad_child_hook *h = hooks; h != NULL; h = h->next) {
        h->run();
    }
}

static int
watch_locked(void)
{
    if (atomic_load(&ad_process_generation_now) != 0) {
        return 0;
    }
    int code = pthread_atfork(NULL, NULL, after_fork);
    if (code == 0) {
        atomic_store(&ad_process_generation_now, 1);
    }
    return code;
}

unsigned
ad_process_watch(void)
{
    pthread_mutex_lock(&lock);
    (void)watch_locked();
    pthread_mutex_unlock(&lock);
    return atomic_load(&ad_process_generation_now);
}

int
ad_process_add_child_hook(ad_child_hook *hook)
{
    if (atomic_load_explicit(&hook->is_added, memory_order_acquire)) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    int code = watch_locked();
    if (code == 0 && !atomic_load(&hook->is_added)) {
        hook->next = hooks;
        hooks = hook;
        atomic_store_explicit(&hook->is_added, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* --- threads ------------------------------------------------------------- */

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

size_t
ad_thread_stack_left(void)
{
#ifdef __linux__
    pthread_attr_t attributes;
    void *low;
    size_t size;
#ifndef __GLIBC__
    /* musl knows only what is mapped so far of the first thread's stack. */
    if (getpid() == gettid()) {
        return SIZE_MAX;
    }
#endif
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return SIZE_MAX;
    }
    int error = pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    uintptr_t left = here - (uintptr_t)low;
    return error == 0 && left < size ? left : SIZE_MAX;
#else
    return SIZE_MAX;
#endif
}

int
ad_cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0) {
        return error;
    }
#ifdef __linux__
    error = pthread_condattr_setclock(&attributes, AD_WAIT_CLOCK);
#endif
    if (error == 0) {
        error = pthread_cond_init(cond, &attributes);
    }
    pthread_condattr_destroy(&attributes);
    return error;
}

/* The kernel copies the byte, and returns EFAULT where a load would be a fault.
 * A sandbox may refuse the call. */
static bool
can_read_byte(uintptr_t address)
{
#ifdef __linux__
    char byte;
    const struct iovec here = {&byte, 1};
    const struct iovec there = {(void *)address, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 ||
           errno != EFAULT;
#else
    return true;
#endif
}

bool
ad_process_can_read(const void *data, int64_t nbytes)
{
    uintptr_t first = (uintptr_t)data;
    uintptr_t last;
    return nbytes <= 0 ||
           (!__builtin_add_overflow(first, (uintptr_t)nbytes - 1, &last) &&
            can_read_byte(first) && can_read_byte(last));
}
