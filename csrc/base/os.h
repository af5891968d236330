/* The system: locks, threads, the clock, libraries, descriptors.
 *
 * All that POSIX and Windows do in different ways, for the layers from abi/ to
 * async/. os_posix.c is for Linux and macOS, os_windows.c for Windows (with
 * gcc or clang). No other file of these layers includes a header of a system,
 * or calls it; tests/project/test_layering.py looks for that. share/ and
 * test_device/ are for Linux, support/ and python/ for POSIX.
 *
 * What returns an int returns 0 or an errno.
 */
#ifndef AD_BASE_OS_H
#define AD_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
/* Of the size of SRWLOCK, CONDITION_VARIABLE, INIT_ONCE and HANDLE:
 * <windows.h> would bring its macros into every file. */
typedef struct ad_mutex {
    void *word;
} ad_mutex;
typedef struct ad_cond {
    void *word;
} ad_cond;
typedef struct ad_once {
    void *word;
} ad_once;
typedef void *ad_thread;
typedef unsigned long ad_thread_key;
#define AD_MUTEX_INIT                                                         \
    {                                                                         \
        NULL                                                                  \
    }
#define AD_COND_INIT                                                          \
    {                                                                         \
        NULL                                                                  \
    }
#define AD_ONCE_INIT                                                          \
    {                                                                         \
        NULL                                                                  \
    }
#define AD_SYSTEM_CALL
#else
#include <pthread.h>
typedef pthread_mutex_t ad_mutex;
typedef pthread_cond_t ad_cond;
typedef pthread_once_t ad_once;
typedef pthread_t ad_thread;
typedef pthread_key_t ad_thread_key;
#define AD_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define AD_COND_INIT PTHREAD_COND_INITIALIZER /* not for a wait with a time */
#define AD_ONCE_INIT PTHREAD_ONCE_INIT
#define AD_SYSTEM_CALL static inline /* below */
#endif

/* --- locks --------------------------------------------------------------- */

/* An initialized mutex or condition may be initialized again in a forked
 * child. */
AD_SYSTEM_CALL void ad_mutex_init(ad_mutex *mutex);
AD_SYSTEM_CALL void ad_mutex_destroy(ad_mutex *mutex);
AD_SYSTEM_CALL void ad_mutex_lock(ad_mutex *mutex);
AD_SYSTEM_CALL void ad_mutex_unlock(ad_mutex *mutex);

/* A condition, whose waits follow the clock of ad_now(). */
int ad_cond_init(ad_cond *cond);
AD_SYSTEM_CALL void ad_cond_destroy(ad_cond *cond);
AD_SYSTEM_CALL void ad_cond_signal(ad_cond *cond);
AD_SYSTEM_CALL void ad_cond_broadcast(ad_cond *cond);
AD_SYSTEM_CALL void ad_cond_wait(ad_cond *cond, ad_mutex *mutex);
/* False: the time `deadline` of ad_now() has come. */
bool ad_cond_wait_until(ad_cond *cond, ad_mutex *mutex, int64_t deadline);

/* Call `function` if no call with this variable has begun; return when that
 * call has ended. */
AD_SYSTEM_CALL void ad_once_call(ad_once *once, void (*function)(void));

/* --- threads ------------------------------------------------------------- */

/* Run `run(context)` on a new thread, which blocks all signals except those of
 * a fault in the thread itself: signals belong to the threads of the program.
 * The caller must join *out; with `out` NULL the thread is detached. */
int ad_thread_start(void *(*run)(void *context), void *context,
                    ad_thread *out);
void ad_thread_join(ad_thread thread);

/* A number of this thread, not 0. A thread may have it that begins after this
 * one has ended. */
AD_SYSTEM_CALL uintptr_t ad_thread_self(void);

/* Bytes that are left of this thread's stack, as far as the system tells; else
 * SIZE_MAX. Takes some microseconds. */
size_t ad_thread_stack_left(void);

/* A variable of each thread. A thread that ends calls `end` with its value,
 * unless that is NULL. False: the system has no more of them, or no memory. */
bool ad_thread_key_new(ad_thread_key *out, void (*end)(void *value));
bool ad_thread_key_set(ad_thread_key key, void *value);

/* Call `child` in each forked child, on its only thread. Does nothing where no
 * process can fork. */
int ad_os_at_fork(void (*child)(void));

/* --- time ---------------------------------------------------------------- */

/* Nanoseconds of a clock that is never set: time.monotonic_ns() of Python. */
int64_t ad_now(void);
void ad_sleep(int64_t nanoseconds); /* a signal may end it early */
void ad_yield(void);

/* --- flags --------------------------------------------------------------- */

/* A flag that any thread sets and others wait for. On POSIX an event loop
 * waits for it as well: `fd` is readable while it is set. */
typedef struct ad_flag {
#ifdef _WIN32
    void *event;
#else
    int fd;
    int write_fd; /* the same, or the end of a pipe to it */
#endif
} ad_flag;

int ad_flag_open(ad_flag *out);
void ad_flag_close(ad_flag *flag);
void ad_flag_set(const ad_flag *flag);
bool ad_flag_clear(const ad_flag *flag); /* whether it was set */
/* Wait until the flag is set, a signal arrives, or the timeout expires (-1:
 * none). Does not clear it. */
void ad_flag_wait(const ad_flag *flag, int timeout_ms);

/* --- libraries ----------------------------------------------------------- */

/* A library, with its symbols for us alone; NULL if there is none.
 * `is_loaded`: only if it is in the process already. */
void *ad_dl_open(const char *name, bool is_loaded);
/* Why the last ad_dl_open() of this thread failed, with the name. Writes at
 * most `size` bytes. */
void ad_dl_reason(char *buffer, size_t size);
/* A library of a wheel that is in the process: "libx-1a2b3c.so.6" for
 * "libx.so". Writes its path. NULL if there is none, or the system does not
 * list them. */
void *ad_dl_open_renamed(const char *name, char *path, size_t size);
void *ad_dl_symbol(void *library, const char *name); /* or NULL */
/* Write the path of the file that a symbol was loaded from, if that is
 * known. */
void ad_dl_path(const void *symbol, char *path, size_t size);

/* --- memory and the process ---------------------------------------------- */

/* Whether a byte is mapped and readable, or the system does not tell. */
bool ad_os_can_read_byte(const void *address);
/* Whether 8 bytes are, and the system tells. */
bool ad_os_can_read_word(const void *address);

/* Memory with this alignment, a power of two of which `size` is a multiple. */
void *ad_aligned_alloc(size_t alignment, size_t size);
void ad_aligned_free(void *memory);

/* Ask for huge pages for the whole pages in this range. The system may
 * refuse. */
void ad_os_ask_for_huge_pages(void *data, size_t nbytes);

/* The variable of the environment; NULL also in a program with more rights
 * than the user who started it. */
const char *ad_os_variable(const char *name);

bool ad_os_random(void *bytes, size_t n);

/* Descriptors of a driver. */
void ad_os_close(int fd);
void ad_os_close_on_exec(int fd);

/* --- what is a call of the system only ----------------------------------- */

#ifndef _WIN32

static inline void
ad_mutex_init(ad_mutex *mutex)
{
    (void)pthread_mutex_init(mutex, NULL);
}

static inline void
ad_mutex_destroy(ad_mutex *mutex)
{
    (void)pthread_mutex_destroy(mutex);
}

static inline void
ad_mutex_lock(ad_mutex *mutex)
{
    (void)pthread_mutex_lock(mutex);
}

static inline void
ad_mutex_unlock(ad_mutex *mutex)
{
    (void)pthread_mutex_unlock(mutex);
}

static inline void
ad_cond_destroy(ad_cond *cond)
{
    (void)pthread_cond_destroy(cond);
}

static inline void
ad_cond_signal(ad_cond *cond)
{
    (void)pthread_cond_signal(cond);
}

static inline void
ad_cond_broadcast(ad_cond *cond)
{
    (void)pthread_cond_broadcast(cond);
}

static inline void
ad_cond_wait(ad_cond *cond, ad_mutex *mutex)
{
    (void)pthread_cond_wait(cond, mutex);
}

static inline void
ad_once_call(ad_once *once, void (*function)(void))
{
    (void)pthread_once(once, function);
}

static inline uintptr_t
ad_thread_self(void)
{
    return (uintptr_t)pthread_self();
}

#endif

#endif /* AD_BASE_OS_H */
