/* Linux and macOS. */
#ifndef _WIN32

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, secure_getenv, process_vm_readv, ... */
#endif
#include "base/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <link.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#endif
#ifdef __APPLE__
#include <mach/mach.h>
#endif

/* --- locks --------------------------------------------------------------- */

/* macOS cannot choose the clock of a condition, but has waits for a time
 * span. */
int
ad_cond_init(ad_cond *cond)
{
#ifdef __APPLE__
    return pthread_cond_init(cond, NULL);
#else
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0) {
        return error;
    }
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0) {
        error = pthread_cond_init(cond, &attributes);
    }
    pthread_condattr_destroy(&attributes);
    return error;
#endif
}

static struct timespec
timespec_of(int64_t nanoseconds)
{
    return (struct timespec){.tv_sec = (time_t)(nanoseconds / 1000000000),
                             .tv_nsec = (long)(nanoseconds % 1000000000)};
}

bool
ad_cond_wait_until(ad_cond *cond, ad_mutex *mutex, int64_t deadline)
{
#ifdef __APPLE__
    const int64_t left = deadline - ad_now();
    const struct timespec span = timespec_of(left > 0 ? left : 0);
    return pthread_cond_timedwait_relative_np(cond, mutex, &span) == 0;
#else
    const struct timespec time = timespec_of(deadline);
    return pthread_cond_timedwait(cond, mutex, &time) == 0;
#endif
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
ad_thread_start(void *(*run)(void *context), void *context, ad_thread *out)
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

void
ad_thread_join(ad_thread thread)
{
    (void)pthread_join(thread, NULL);
}

#ifdef __linux__

static bool
find_stack(uintptr_t *low, size_t *size)
{
    pthread_attr_t attributes;
    void *start;
#ifndef __GLIBC__
    /* musl knows only what is mapped so far of the first thread's stack. */
    if (getpid() == gettid()) {
        return false;
    }
#endif
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return false;
    }
    int error = pthread_attr_getstack(&attributes, &start, size);
    pthread_attr_destroy(&attributes);
    *low = (uintptr_t)start;
    return error == 0;
}

#else

static bool
find_stack(uintptr_t *low, size_t *size)
{
    *size = pthread_get_stacksize_np(pthread_self());
    *low = (uintptr_t)pthread_get_stackaddr_np(pthread_self()) - *size;
    return true;
}

#endif

size_t
ad_thread_stack_left(void)
{
    uintptr_t low;
    size_t size;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return find_stack(&low, &size) && here - low < size ? here - low
                                                        : SIZE_MAX;
}

bool
ad_thread_key_new(ad_thread_key *out, void (*end)(void *value))
{
    return pthread_key_create(out, end) == 0;
}

bool
ad_thread_key_set(ad_thread_key key, void *value)
{
    return pthread_setspecific(key, value) == 0;
}

int
ad_os_at_fork(void (*child)(void))
{
    return pthread_atfork(NULL, NULL, child);
}

/* --- time ---------------------------------------------------------------- */

int64_t
ad_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void
ad_sleep(int64_t nanoseconds)
{
    const struct timespec span = timespec_of(nanoseconds);
    (void)nanosleep(&span, NULL);
}

void
ad_yield(void)
{
    sched_yield();
}

/* --- flags --------------------------------------------------------------- */

#ifdef __linux__

int
ad_flag_open(ad_flag *out)
{
    out->fd = out->write_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return out->fd < 0 ? errno : 0;
}

#else

int
ad_flag_open(ad_flag *out)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return errno;
    }
    for (size_t i = 0; i < 2; i++) {
        (void)fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    out->fd = ends[0];
    out->write_fd = ends[1];
    return 0;
}

#endif

void
ad_flag_close(ad_flag *flag)
{
    close(flag->fd);
    if (flag->write_fd != flag->fd) {
        close(flag->write_fd);
    }
}

/* The write fails only if the counter or the pipe is full; the descriptor is
 * then readable already. */
void
ad_flag_set(const ad_flag *flag)
{
    const uint64_t one = 1;
    ssize_t n = write(flag->write_fd, &one, sizeof(one));
    (void)n;
}

/* A read empties an eventfd, and takes one number from a pipe. */
bool
ad_flag_clear(const ad_flag *flag)
{
    uint64_t number;
    bool was_set = false;
    while (read(flag->fd, &number, sizeof(number)) == sizeof(number)) {
        was_set = true;
        if (flag->fd == flag->write_fd) {
            break;
        }
    }
    return was_set;
}

void
ad_flag_wait(const ad_flag *flag, int timeout_ms)
{
    struct pollfd waited = {.fd = flag->fd, .events = POLLIN};
    (void)poll(&waited, 1, timeout_ms);
}

/* --- libraries ----------------------------------------------------------- */

/* RTLD_LOCAL keeps the symbols of our copy out of other libraries'
 * look-ups. */
void *
ad_dl_open(const char *name, bool is_loaded)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | (is_loaded ? RTLD_NOLOAD : 0));
}

void
ad_dl_reason(char *buffer, size_t size)
{
    const char *reason = dlerror();
    snprintf(buffer, size, "%s", reason != NULL ? reason : "unknown reason");
}

#ifdef __linux__

typedef struct search {
    const char *name;
    char *path; /* of the library found */
    size_t size;
} search;

static int
is_renamed(struct dl_phdr_info *info, size_t size, void *argument)
{
    search *self = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    const size_t n_stem = (size_t)(strstr(self->name, ".so") - self->name);
    if (slash == NULL || strncmp(slash + 1, self->name, n_stem) != 0 ||
        strchr("-.", slash[1 + n_stem]) == NULL ||
        strstr(slash + 1 + n_stem, ".so") == NULL) {
        return 0;
    }
    snprintf(self->path, self->size, "%s", info->dlpi_name);
    return 1;
}

void *
ad_dl_open_renamed(const char *name, char *path, size_t size)
{
    search wanted = {name, path, size};
    return dl_iterate_phdr(is_renamed, &wanted) != 0 ? ad_dl_open(path, true)
                                                     : NULL;
}

#else

void *
ad_dl_open_renamed(const char *name, char *path, size_t size)
{
    return NULL;
}

#endif

void *
ad_dl_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void
ad_dl_path(const void *symbol, char *path, size_t size)
{
    Dl_info info;
    if (dladdr(symbol, &info) != 0 && info.dli_fname != NULL) {
        snprintf(path, size, "%s", info.dli_fname);
    }
}

/* --- memory and the process ---------------------------------------------- */

#ifdef __linux__

/* The kernel copies the byte, and returns EFAULT where a load would be a
 * fault. A sandbox may refuse the call. */
bool
ad_os_can_read_byte(const void *address)
{
    char byte;
    const struct iovec here = {&byte, 1};
    const struct iovec there = {(void *)address, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 ||
           errno != EFAULT;
}

/* The kernel reads a set of signals there before it refuses the operation -1.
 * No sandbox refuses this call. */
bool
ad_os_can_read_word(const void *address)
{
    const int saved = errno;
    bool is_there =
        syscall(SYS_rt_sigprocmask, -1, address, NULL, (size_t)8) < 0 &&
        errno == EINVAL;
    errno = saved;
    return is_there;
}

void
ad_os_ask_for_huge_pages(void *data, size_t nbytes)
{
    const uintptr_t page = 4096;
    const size_t skipped = page - (uintptr_t)data % page;
    if (nbytes > skipped) {
        (void)madvise((char *)data + skipped, nbytes - skipped, MADV_HUGEPAGE);
    }
}

bool
ad_os_random(void *bytes, size_t n)
{
    return getrandom(bytes, n, 0) == (ssize_t)n;
}

const char *
ad_os_variable(const char *name)
{
    return secure_getenv(name);
}

#else

static bool
can_read(const void *address, size_t nbytes)
{
    uint64_t word;
    vm_size_t n = 0;
    return vm_read_overwrite(mach_task_self(), (uintptr_t)address, nbytes,
                             (uintptr_t)&word, &n) == KERN_SUCCESS;
}

bool
ad_os_can_read_byte(const void *address)
{
    return can_read(address, 1);
}

bool
ad_os_can_read_word(const void *address)
{
    return can_read(address, 8);
}

void
ad_os_ask_for_huge_pages(void *data, size_t nbytes)
{
}

bool
ad_os_random(void *bytes, size_t n)
{
    return getentropy(bytes, n) == 0;
}

const char *
ad_os_variable(const char *name)
{
    return issetugid() ? NULL : getenv(name);
}

#endif

void *
ad_aligned_alloc(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

void
ad_aligned_free(void *memory)
{
    free(memory);
}

void
ad_os_close(int fd)
{
    (void)close(fd);
}

void
ad_os_close_on_exec(int fd)
{
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

#endif /* _WIN32 */
