/* Windows 8 and later, with gcc or clang. */
#ifdef _WIN32

#define _CRT_RAND_S
#define _WIN32_WINNT 0x0602
#include "base/os.h"

#include <windows.h>

#include <errno.h>
#include <io.h>
#include <malloc.h>
#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ad_mutex) == sizeof(SRWLOCK) &&
                   sizeof(ad_cond) == sizeof(CONDITION_VARIABLE) &&
                   sizeof(ad_once) == sizeof(INIT_ONCE) &&
                   sizeof(ad_thread) == sizeof(HANDLE) &&
                   sizeof(ad_thread_key) == sizeof(DWORD),
               "the types of os.h are those of Windows");

/* --- locks --------------------------------------------------------------- */

/* All of these are a word of zeros at first, and hold no resources. */
void
ad_mutex_init(ad_mutex *mutex)
{
    InitializeSRWLock((SRWLOCK *)mutex);
}

void
ad_mutex_destroy(ad_mutex *mutex)
{
}

void
ad_mutex_lock(ad_mutex *mutex)
{
    AcquireSRWLockExclusive((SRWLOCK *)mutex);
}

void
ad_mutex_unlock(ad_mutex *mutex)
{
    ReleaseSRWLockExclusive((SRWLOCK *)mutex);
}

int
ad_cond_init(ad_cond *cond)
{
    InitializeConditionVariable((CONDITION_VARIABLE *)cond);
    return 0;
}

void
ad_cond_destroy(ad_cond *cond)
{
}

void
ad_cond_signal(ad_cond *cond)
{
    WakeConditionVariable((CONDITION_VARIABLE *)cond);
}

void
ad_cond_broadcast(ad_cond *cond)
{
    WakeAllConditionVariable((CONDITION_VARIABLE *)cond);
}

void
ad_cond_wait(ad_cond *cond, ad_mutex *mutex)
{
    (void)SleepConditionVariableSRW((CONDITION_VARIABLE *)cond,
                                    (SRWLOCK *)mutex, INFINITE, 0);
}

/* Milliseconds that are no shorter. */
static DWORD
milliseconds(int64_t nanoseconds)
{
    const int64_t span = nanoseconds / 1000000 + (nanoseconds % 1000000 > 0);
    return span < 0 ? 0 : span < INT32_MAX ? (DWORD)span : INT32_MAX;
}

/* The wait may end a little early, as the clocks differ. */
bool
ad_cond_wait_until(ad_cond *cond, ad_mutex *mutex, int64_t deadline)
{
    return SleepConditionVariableSRW(
               (CONDITION_VARIABLE *)cond, (SRWLOCK *)mutex,
               milliseconds(deadline - ad_now()), 0) != 0 ||
           ad_now() < deadline;
}

static BOOL CALLBACK
call_once(INIT_ONCE *once, void *function, void **unused)
{
    void (*call)(void);
    memcpy(&call, &function, sizeof(call));
    call();
    return TRUE;
}

void
ad_once_call(ad_once *once, void (*function)(void))
{
    void *argument;
    memcpy(&argument, &function, sizeof(argument));
    (void)InitOnceExecuteOnce((INIT_ONCE *)once, call_once, argument, NULL);
}

/* --- threads ------------------------------------------------------------- */

typedef struct beginning {
    void *(*run)(void *context);
    void *context;
} beginning;

static unsigned __stdcall begin_thread(void *argument)
{
    const beginning it = *(beginning *)argument;
    free(argument);
    (void)it.run(it.context);
    return 0;
}

int
ad_thread_start(void *(*run)(void *context), void *context, ad_thread *out)
{
    beginning *it = malloc(sizeof(*it));
    if (it == NULL) {
        return ENOMEM;
    }
    *it = (beginning){run, context};
    HANDLE thread = (HANDLE)_beginthreadex(NULL, 0, begin_thread, it, 0, NULL);
    if (thread == NULL) {
        free(it);
        return EAGAIN;
    }
    if (out == NULL) {
        CloseHandle(thread);
    } else {
        *out = thread;
    }
    return 0;
}

void
ad_thread_join(ad_thread thread)
{
    (void)WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}

uintptr_t
ad_thread_self(void)
{
    return GetCurrentThreadId();
}

size_t
ad_thread_stack_left(void)
{
    ULONG_PTR low, high;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    GetCurrentThreadStackLimits(&low, &high);
    return here - low < high - low ? here - low : SIZE_MAX;
}

bool
ad_thread_key_new(ad_thread_key *out, void (*end)(void *value))
{
    *out = FlsAlloc(end);
    return *out != FLS_OUT_OF_INDEXES;
}

bool
ad_thread_key_set(ad_thread_key key, void *value)
{
    return FlsSetValue(key, value) != 0;
}

int
ad_os_at_fork(void (*child)(void))
{
    return 0;
}

/* --- time ---------------------------------------------------------------- */

int64_t
ad_now(void)
{
    LARGE_INTEGER ticks;
    LARGE_INTEGER per_second;
    QueryPerformanceFrequency(&per_second);
    QueryPerformanceCounter(&ticks);
    const int64_t whole = ticks.QuadPart / per_second.QuadPart;
    const int64_t rest = ticks.QuadPart % per_second.QuadPart;
    return whole * 1000000000 + rest * 1000000000 / per_second.QuadPart;
}

/* A sleep may end a little early, as the clocks differ. */
void
ad_sleep(int64_t nanoseconds)
{
    const int64_t until = ad_now() + nanoseconds;
    for (int64_t left = nanoseconds; left > 0; left = until - ad_now()) {
        Sleep(milliseconds(left));
    }
}

void
ad_yield(void)
{
    SwitchToThread();
}

/* --- flags --------------------------------------------------------------- */

int
ad_flag_open(ad_flag *out)
{
    out->event = CreateEventW(NULL, TRUE, FALSE, NULL);
    return out->event != NULL ? 0 : EMFILE;
}

void
ad_flag_close(ad_flag *flag)
{
    CloseHandle(flag->event);
}

void
ad_flag_set(const ad_flag *flag)
{
    SetEvent(flag->event);
}

/* A flag that is set between the two calls was set before this one returns. */
bool
ad_flag_clear(const ad_flag *flag)
{
    bool was_set = WaitForSingleObject(flag->event, 0) == WAIT_OBJECT_0;
    if (was_set) {
        ResetEvent(flag->event);
    }
    return was_set;
}

void
ad_flag_wait(const ad_flag *flag, int timeout_ms)
{
    (void)WaitForSingleObject(flag->event,
                              timeout_ms < 0 ? INFINITE : (DWORD)timeout_ms);
}

/* --- libraries ----------------------------------------------------------- */

static _Thread_local DWORD open_error;
static _Thread_local char open_name[200];

void *
ad_dl_open(const char *name, bool is_loaded)
{
    HMODULE library = NULL;
    if (is_loaded) {
        return GetModuleHandleExA(0, name, &library) != 0 ? library : NULL;
    }
    library = LoadLibraryA(name);
    if (library == NULL) {
        open_error = GetLastError();
        snprintf(open_name, sizeof(open_name), "%s", name);
    }
    return library;
}

void
ad_dl_reason(char *buffer, size_t size)
{
    char reason[200];
    DWORD n = FormatMessageA(
        FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
        open_error, 0, reason, sizeof(reason), NULL);
    while (n > 0 && strchr("\r\n.", reason[n - 1]) != NULL) {
        n--;
    }
    snprintf(buffer, size, "%s: %.*s (error %lu)", open_name, (int)n, reason,
             open_error);
}

void *
ad_dl_open_renamed(const char *name, char *path, size_t size)
{
    return NULL;
}

void *
ad_dl_symbol(void *library, const char *name)
{
    void *symbol;
    FARPROC found = GetProcAddress(library, name);
    memcpy(&symbol, &found, sizeof(symbol));
    return symbol;
}

void
ad_dl_path(const void *symbol, char *path, size_t size)
{
    HMODULE library;
    char found[MAX_PATH + 1] = "";
    if (GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                               GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                           symbol, &library) != 0 &&
        GetModuleFileNameA(library, found, MAX_PATH) != 0) {
        snprintf(path, size, "%s", found);
    }
}

/* --- memory and the process ---------------------------------------------- */

static bool
can_read(const void *address, size_t nbytes)
{
    uint64_t word;
    return ReadProcessMemory(GetCurrentProcess(), address, &word, nbytes,
                             NULL) != 0;
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

/* free() does not take what _aligned_malloc() returns. */
void *
ad_aligned_alloc(size_t alignment, size_t size)
{
    return _aligned_malloc(size, alignment);
}

void
ad_aligned_free(void *memory)
{
    _aligned_free(memory);
}

void
ad_os_ask_for_huge_pages(void *data, size_t nbytes)
{
}

const char *
ad_os_variable(const char *name)
{
    return getenv(name);
}

bool
ad_os_random(void *bytes, size_t n)
{
    unsigned char *at = bytes;
    unsigned int number;
    for (size_t i = 0; i < n; i++) {
        if (rand_s(&number) != 0) {
            return false;
        }
        at[i] = (unsigned char)number;
    }
    return true;
}

void
ad_os_close(int fd)
{
    (void)_close(fd);
}

void
ad_os_close_on_exec(int fd)
{
}

#endif /* _WIN32 */
