/* Waits that can be ended before their time, and what is left behind then. */

#include "base/os.h"
#include "base/wait.h"

#include <pthread.h>

#include "check.h"
#include "tracked.h"

/* Looks until which a wait is interrupted; < 0: it never is. */
static int patience;
static atomic_int n_polls;
static bool is_main = true;
static pthread_t waiter; /* the thread that a wait blocked */

static int hook_state;

static void *
begin(void)
{
    return &hook_state;
}

static void
end(void *saved)
{
    CHECK(saved == &hook_state);
}

static bool
can_be_interrupted(void)
{
    return is_main;
}

static bool
is_interrupted(void *saved)
{
    CHECK(saved == &hook_state);
    n_polls++;
    return patience >= 0 && n_polls > patience;
}

static void
set_hooks(int new_patience)
{
    patience = new_patience;
    n_polls = 0;
    ad_wait_set_hooks((ad_wait_hooks){
        .begin = begin,
        .end = end,
        .can_be_interrupted = can_be_interrupted,
        .is_interrupted = is_interrupted,
    });
}

/* What is waited for: over when the test says so. */
static atomic_bool is_open;
static atomic_int n_begun;
static atomic_int n_back;
static bool fails;

static ad_status
block(const ad_wait *self, ad_error *err)
{
    (void)self;
    waiter = pthread_self();
    atomic_fetch_add(&n_begun, 1);
    while (!atomic_load(&is_open)) {
        rest(1);
    }
    atomic_fetch_add(&n_back, 1);
    return fails ? ad_fail(err, AD_ERR_DEVICE, NULL, NULL, "it broke") : AD_OK;
}

static bool
is_over(const ad_wait *self)
{
    (void)self;
    return atomic_load(&is_open);
}

static void
reset(int new_patience)
{
    set_hooks(new_patience);
    atomic_store(&is_open, false);
    atomic_store(&n_begun, 0);
    atomic_store(&n_back, 0);
    fails = false;
    is_main = true;
}

static atomic_bool has_begun; /* the thread of open_later() */

/* Once the wait has begun, and some time after. */
static void *
open_later(void *unused)
{
    atomic_store(&has_begun, true);
    expect_soon(&n_begun, 1);
    rest(100);
    atomic_store(&is_open, true);
    return unused;
}

static void *
open_after_a_poll(void *unused)
{
    expect_soon(&n_begun, 1);
    for (int i = 0; i < 10000 && atomic_load(&n_polls) == 0; i++) {
        rest(1);
    }
    atomic_store(&is_open, true);
    return unused;
}

static void
test_wait_that_ends_by_itself(void)
{
    atomic_int released = 0;
    pthread_t opener;
    ad_error err;
    reset(-1);
    const ad_wait wait = {
        .wait = block, .is_over = is_over, .subject = tracked_new(&released)};
    pthread_create(&opener, NULL, open_after_a_poll, NULL);
    CHECK_INT(ad_wait_interruptible(&wait, &err), AD_OK);
    CHECK(!pthread_equal(waiter, pthread_self()));
    pthread_join(opener, NULL);
    CHECK(n_polls > 0);
    CHECK_INT(n_back, 1);
    ad_owner_unref(wait.subject);
    expect_soon(&released, 1);
}

static void
test_error_of_the_wait_is_told(void)
{
    ad_error err;
    reset(-1);
    fails = true;
    const ad_wait wait = {.wait = block};
    pthread_t opener;
    pthread_create(&opener, NULL, open_later, NULL);
    CHECK_INT(ad_wait_interruptible(&wait, &err), AD_ERR_DEVICE);
    CHECK_STR(err.message, "it broke");
    pthread_join(opener, NULL);
}

static void
test_interrupted_wait_keeps_its_subject(void)
{
    atomic_int released = 0;
    ad_error err;
    reset(2);
    const ad_wait wait = {
        .wait = block, .is_over = is_over, .subject = tracked_new(&released)};
    CHECK_INT(ad_wait_interruptible(&wait, &err), AD_ERR_INTERRUPTED);
    CHECK_INT(err.status, AD_ERR_INTERRUPTED);
    CHECK_INT(n_polls, 3);
    ad_owner_unref(wait.subject);
    rest(30);
    CHECK_INT(n_back, 0);
    CHECK_INT(released, 0);
    atomic_store(&is_open, true);
    expect_soon(&n_back, 1);
    expect_soon(&released, 1);
}

static void
test_short_wait_starts_no_thread(void)
{
    ad_error err;
    reset(0);
    atomic_store(&is_open, true);
    const ad_wait wait = {.wait = block, .is_over = is_over};
    CHECK_INT(ad_wait_interruptible(&wait, &err), AD_OK);
    CHECK(pthread_equal(waiter, pthread_self()));
    CHECK_INT(n_polls, 0);
}

static void
expect_no_interruption(ad_error *err)
{
    pthread_t opener;
    const ad_wait wait = {.wait = block, .is_over = is_over};
    pthread_create(&opener, NULL, open_later, NULL);
    CHECK_INT(ad_wait_interruptible(&wait, err), AD_OK);
    CHECK(pthread_equal(waiter, pthread_self()));
    CHECK_INT(n_polls, 0);
    pthread_join(opener, NULL);
}

static void
test_waits_that_nobody_can_end(void)
{
    ad_error err;
    reset(0);
    expect_no_interruption(NULL); /* nobody could be told */
    reset(0);
    is_main = false;
    expect_no_interruption(&err);
    reset(0);
    ad_wait_set_hooks((ad_wait_hooks){.begin = NULL});
    expect_no_interruption(&err);
}

static void
test_without_memory_it_waits_here(void)
{
    ad_error err;
    reset(0);
    const ad_wait wait = {.wait = block, .is_over = is_over};
    pthread_t opener;
    atomic_store(&has_begun, false);
    pthread_create(&opener, NULL, open_later, NULL);
    while (!atomic_load(&has_begun)) { /* a thread may allocate as it begins */
        ad_yield();
    }
    check_fail_nth(1);
    CHECK_INT(ad_wait_interruptible(&wait, &err), AD_OK);
    CHECK(check_failed_once());
    check_fail_nth(0);
    CHECK(pthread_equal(waiter, pthread_self()));
    pthread_join(opener, NULL);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_wait_that_ends_by_itself),
        CHECK_TEST(test_error_of_the_wait_is_told),
        CHECK_TEST(test_interrupted_wait_keeps_its_subject),
        CHECK_TEST(test_short_wait_starts_no_thread),
        CHECK_TEST(test_waits_that_nobody_can_end),
        CHECK_TEST(test_without_memory_it_waits_here),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
