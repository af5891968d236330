/* Fails one allocation of one library. The library is preloaded. It counts the
 * malloc, calloc and realloc calls from addresses within [low, high), and call
 * number `fail_at` returns NULL, with `is_lasting` all later ones too. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static uintptr_t low, high;
static long count, fail_at = -1;
static int is_lasting;

void
failing_malloc_watch(uintptr_t from, uintptr_t to)
{
    low = from;
    high = to;
}

/* -1: no call fails. Returns the number of calls counted since the last
 * time. */
long
failing_malloc_arm(long at)
{
    long counted = count;
    count = 0;
    fail_at = at;
    return counted;
}

void
failing_malloc_last(int lasting)
{
    is_lasting = lasting;
}

static int
must_fail(uintptr_t caller)
{
    if (caller < low || caller >= high) {
        return 0;
    }
    long mine = count++;
    if (mine != fail_at && !(is_lasting && fail_at >= 0 && mine > fail_at)) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

void *
malloc(size_t size)
{
    return must_fail(CALLER) ? NULL : __libc_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
    return must_fail(CALLER) ? NULL : __libc_calloc(n, size);
}

void *
realloc(void *old, size_t size)
{
    return must_fail(CALLER) ? NULL : __libc_realloc(old, size);
}
