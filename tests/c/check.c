#include "check.h"

#include <stdatomic.h>

/* Threads of a test allocate, too. */
static atomic_long countdown;
static atomic_bool has_failed;

void
check_fail_nth(long n)
{
    countdown = n;
    has_failed = false;
}

bool
check_failed_once(void)
{
    return has_failed;
}

static bool
fails_now(void)
{
    if (countdown > 0 && atomic_fetch_sub(&countdown, 1) == 1) {
        has_failed = true;
        return true;
    }
    return false;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *
__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *
__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}

#ifndef _WIN32 /* which has no such function */

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *
__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, size);
}

#endif

int
check_run(const check_test *tests, size_t n_tests)
{
    for (size_t i = 0; i < n_tests; i++) {
        tests[i].run();
        printf("ok %s\n", tests[i].name);
    }
    printf("%zu passed, 0 failed\n", n_tests);
    return 0;
}
