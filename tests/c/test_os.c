/* The system: locks, threads, the clock, flags, libraries, memory. */

#include "base/os.h"

#include <stdatomic.h>

#include "check.h"

#define SECOND INT64_C(1000000000) /* of ad_now() */

#if defined(_WIN32)
#define LIBRARY "kernel32.dll"
#define SYMBOL "GetCurrentProcessId"
#elif defined(__APPLE__)
#define LIBRARY "libSystem.B.dylib"
#define SYMBOL "getpid"
#else
#define LIBRARY "libc.so.6"
#define SYMBOL "getpid"
#endif

/* --- locks --------------------------------------------------------------- */

static ad_mutex lock = AD_MUTEX_INIT;
static ad_cond changed; /* of the numbers below */
static int n_counted;
static bool may_go;

static void *
count(void *context)
{
    const int *n = context;
    for (int i = 0; i < *n; i++) {
        ad_mutex_lock(&lock);
        n_counted++;
        ad_cond_broadcast(&changed);
        ad_mutex_unlock(&lock);
    }
    return NULL;
}

static void
test_mutex_excludes_threads(void)
{
    ad_thread threads[4];
    int n = 1000;
    CHECK_INT(ad_cond_init(&changed), 0);
    n_counted = 0;
    for (int i = 0; i < 4; i++) {
        CHECK_INT(ad_thread_start(count, &n, &threads[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        ad_thread_join(threads[i]);
    }
    CHECK_INT(n_counted, 4 * n);
}

/* Detached threads. */
static void
test_condition_wakes_a_wait(void)
{
    int once = 1;
    n_counted = 0;
    CHECK_INT(ad_thread_start(count, &once, NULL), 0);
    CHECK_INT(ad_thread_start(count, &once, NULL), 0);
    ad_mutex_lock(&lock);
    while (n_counted < 1) {
        ad_cond_wait(&changed, &lock);
    }
    const int64_t deadline = ad_now() + 60 * SECOND;
    while (n_counted < 2) {
        CHECK(ad_cond_wait_until(&changed, &lock, deadline));
    }
    ad_mutex_unlock(&lock);
}

static void
test_wait_ends_at_its_deadline(void)
{
    ad_mutex_lock(&lock);
    /* A wait may also end without a cause. */
    while (ad_cond_wait_until(&changed, &lock, ad_now() - SECOND)) {
    }
    const int64_t deadline = ad_now() + SECOND / 20;
    while (ad_cond_wait_until(&changed, &lock, deadline)) {
    }
    CHECK(ad_now() >= deadline);
    ad_mutex_unlock(&lock);
}

static ad_once once = AD_ONCE_INIT;
static atomic_int n_begun, n_ended;

static void
take_time(void)
{
    n_begun++;
    ad_sleep(SECOND / 50);
    n_ended++;
}

static void *
call_once(void *seen)
{
    ad_once_call(&once, take_time);
    *(int *)seen = n_ended;
    return NULL;
}

static void
test_one_call_is_made_and_all_wait_for_it(void)
{
    ad_thread threads[4];
    int seen[4] = {0};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(ad_thread_start(call_once, &seen[i], &threads[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        ad_thread_join(threads[i]);
        CHECK_INT(seen[i], 1);
    }
    CHECK_INT(n_begun, 1);
}

/* --- threads ------------------------------------------------------------- */

static ad_thread_key key;
static atomic_int n_ends;

static void
end_value(void *value)
{
    n_ends += *(int *)value;
}

static void *
set_value(void *value)
{
    CHECK(ad_thread_key_set(key, value));
    return NULL;
}

static void *
set_no_value(void *unused)
{
    return unused;
}

static void
test_value_of_a_thread_ends_with_it(void)
{
    ad_thread thread;
    int value = 7;
    CHECK(ad_thread_key_new(&key, end_value));
    CHECK_INT(ad_thread_start(set_value, &value, &thread), 0);
    ad_thread_join(thread);
    CHECK_INT(n_ends, 7);
    CHECK_INT(ad_thread_start(set_no_value, NULL, &thread), 0);
    ad_thread_join(thread);
    CHECK_INT(n_ends, 7);
}

static void *
tell_self(void *out)
{
    *(uintptr_t *)out = ad_thread_self();
    ad_mutex_lock(&lock);
    while (!may_go) {
        ad_cond_wait(&changed, &lock);
    }
    ad_mutex_unlock(&lock);
    return NULL;
}

static void
test_threads_have_numbers(void)
{
    ad_thread threads[2];
    uintptr_t numbers[2];
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ad_thread_start(tell_self, &numbers[i], &threads[i]), 0);
    }
    ad_mutex_lock(&lock);
    may_go = true;
    ad_cond_broadcast(&changed);
    ad_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++) {
        ad_thread_join(threads[i]);
        CHECK(numbers[i] != 0 && numbers[i] != ad_thread_self());
    }
    CHECK(numbers[0] != numbers[1]);
    CHECK(ad_thread_self() == ad_thread_self());
}

static __attribute__((noinline)) size_t
stack_left_below(void)
{
    volatile char taken[20000];
    taken[0] = taken[sizeof(taken) - 1] = 1;
    size_t left = ad_thread_stack_left();
    return left + (taken[0] - 1);
}

static void *
compare_stack(void *unused)
{
    size_t left = ad_thread_stack_left();
    CHECK(left > 100000);
    CHECK(left == SIZE_MAX || left - stack_left_below() >= 20000);
    return unused;
}

static void
test_calls_take_of_the_stack(void)
{
    ad_thread thread;
    (void)compare_stack(NULL);
    CHECK_INT(ad_thread_start(compare_stack, NULL, &thread), 0);
    ad_thread_join(thread);
}

/* --- time ---------------------------------------------------------------- */

static void
test_sleep_takes_its_time(void)
{
    const int64_t begun = ad_now();
    ad_yield();
    ad_sleep(SECOND / 100);
    CHECK(ad_now() - begun >= SECOND / 100);
}

/* --- flags --------------------------------------------------------------- */

static void *
set_flag(void *flag)
{
    ad_flag_set(flag);
    return NULL;
}

static void
test_flag_stays_set_until_it_is_cleared(void)
{
    ad_flag flag;
    ad_thread thread;
    CHECK_INT(ad_flag_open(&flag), 0);
    CHECK(!ad_flag_clear(&flag));
    ad_flag_wait(&flag, 1); /* the time expires */
    CHECK_INT(ad_thread_start(set_flag, &flag, &thread), 0);
    ad_flag_wait(&flag, -1);
    ad_thread_join(thread);
    ad_flag_set(&flag);
    ad_flag_wait(&flag, -1);
    CHECK(ad_flag_clear(&flag));
    CHECK(!ad_flag_clear(&flag));
    ad_flag_close(&flag);
}

/* --- libraries ----------------------------------------------------------- */

static void
test_symbol_is_found(void)
{
    char path[200] = "";
    void *library = ad_dl_open(LIBRARY, false);
    CHECK(library != NULL && ad_dl_open(LIBRARY, true) != NULL);
    CHECK(ad_dl_symbol(library, "ad_no_such_symbol") == NULL);
    void *symbol = ad_dl_symbol(library, SYMBOL);
    CHECK(symbol != NULL);
    ad_dl_path(symbol, path, sizeof(path));
    CHECK(path[0] != '\0');
}

static void
test_reason_names_a_library_that_is_not_there(void)
{
    char reason[200], path[200];
    CHECK(ad_dl_open("libad-not-here.so.1", true) == NULL);
    CHECK(ad_dl_open("libad-not-here.so.1", false) == NULL);
    ad_dl_reason(reason, sizeof(reason));
    CHECK_HAS(reason, "libad-not-here.so.1");
    CHECK(ad_dl_open_renamed("libad-not-here.so", path, sizeof(path)) == NULL);
}

/* --- memory and the process ---------------------------------------------- */

static void
test_readable_memory_is_told_from_none(void)
{
    uint64_t word = 0;
    CHECK(ad_os_can_read_byte(&word) && ad_os_can_read_word(&word));
    CHECK(!ad_os_can_read_byte((const void *)16));
    CHECK(!ad_os_can_read_word((const void *)16));
}

static void
test_memory_is_aligned(void)
{
    char *memory = ad_aligned_alloc(64, 64 * 1024);
    CHECK(memory != NULL && (uintptr_t)memory % 64 == 0);
    ad_os_ask_for_huge_pages(memory, 64 * 1024);
    memset(memory, 1, 64 * 1024);
    ad_aligned_free(memory);
}

static void
test_variable_of_the_environment(void)
{
    static char set[] = "ARROWDEV_OF_TEST=x";
    CHECK(ad_os_variable("ARROWDEV_OF_TEST") == NULL);
    CHECK_INT(putenv(set), 0);
    CHECK_STR(ad_os_variable("ARROWDEV_OF_TEST"), "x");
}

static void
test_random_numbers_differ(void)
{
    uint64_t first[2] = {0}, second[2] = {0};
    CHECK(ad_os_random(first, sizeof(first)));
    CHECK(ad_os_random(second, sizeof(second)));
    CHECK(memcmp(first, second, sizeof(first)) != 0);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_mutex_excludes_threads),
        CHECK_TEST(test_condition_wakes_a_wait),
        CHECK_TEST(test_wait_ends_at_its_deadline),
        CHECK_TEST(test_one_call_is_made_and_all_wait_for_it),
        CHECK_TEST(test_value_of_a_thread_ends_with_it),
        CHECK_TEST(test_threads_have_numbers),
        CHECK_TEST(test_calls_take_of_the_stack),
        CHECK_TEST(test_sleep_takes_its_time),
        CHECK_TEST(test_flag_stays_set_until_it_is_cleared),
        CHECK_TEST(test_symbol_is_found),
        CHECK_TEST(test_reason_names_a_library_that_is_not_there),
        CHECK_TEST(test_readable_memory_is_told_from_none),
        CHECK_TEST(test_memory_is_aligned),
        CHECK_TEST(test_variable_of_the_environment),
        CHECK_TEST(test_random_numbers_differ),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
