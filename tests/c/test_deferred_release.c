/* Owners that wait for a device, and the thread that looks after them. */

#include "order/deferred_release.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifndef _WIN32
#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "check.h"
#include "base/wait.h"
#include "base/os.h"
#include "base/process.h"
#include "mock_backend.h"
#include "stream_refs.h"
#include "tracked.h"


static const ad_stream S = {0x200};

static ad_sync *
pending_on(ad_stream stream)
{
    ad_sync *sync;
    CHECK_INT(ad_sync_record(ON(IN_ORDER, 0, stream), &sync, NULL), AD_OK);
    return sync;
}

static void
defer(atomic_int *released, ad_stream stream)
{
    ad_sync *sync = pending_on(stream);
    ad_defer_release(tracked_new(released), CONTEXT(IN_ORDER, 0), &sync, 1);
}

static void
test_thread_releases_what_is_done(void)
{
    atomic_int released = 0;
    mock_reset();
    ad_deferred_drain(); /* nothing there */
    for (int i = 0; i < 20; i++) {
        defer(&released, S);
    }
    rest(20);
    CHECK_INT(released, 0);
    CHECK_INT(ad_deferred_count(), 20);
    mock_finish();
    expect_soon(&released, 20);
    CHECK_INT(mock_count().event_waits, 0);
    CHECK_INT(mock_count().context_waits, 0);
}

static void
test_all_events_have_to_be_done(void)
{
    atomic_int released = 0;
    ad_sync *syncs[2];
    mock_reset();
    syncs[0] = pending_on(S);
    mock_finish();
    syncs[1] = pending_on(S);
    ad_defer_release(tracked_new(&released), CONTEXT(IN_ORDER, 0), syncs, 2);
    rest(20);
    ad_deferred_drain();
    CHECK_INT(released, 0);
    mock_finish();
    expect_soon(&released, 1);
}

static void
test_waiting_releases_one_context_only(void)
{
    atomic_int here = 0;
    atomic_int there = 0;
    ad_sync *sync;
    mock_reset();
    defer(&here, S);
    CHECK_INT(ad_sync_record(ON(QUEUES, 0, S), &sync, NULL), AD_OK);
    ad_defer_release(tracked_new(&there), CONTEXT(QUEUES, 0), &sync, 1);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(here, 1);
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
    CHECK_INT(there, 1);
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
}

/* A wait for a context invalidates the graphs that are captured in it. */
static void
test_context_is_waited_for_by_users_only(void)
{
    atomic_int released = 0;
    mock_reset();
    ad_defer_release(tracked_new(&released), CONTEXT(IN_ORDER, 0), NULL, 0);
    CHECK_INT(ad_deferred_count(), 0);
    rest(30);
    ad_deferred_drain();
    CHECK_INT(released, 0);
    CHECK_INT(mock_count().context_waits, 0);
    CHECK(ad_deferred_is_any());
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
    CHECK_INT(mock_count().context_waits, 1);
}

static void *
wait_for_other_device(void *unused)
{
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 1), NULL), AD_OK);
    return unused;
}

/* A thread hangs in the wait for one device. That is no reason for anybody to
 * wait on behalf of another one. */
static void
test_blocked_wait_for_a_device_stops_no_other(void)
{
    atomic_int idle = 0;
    atomic_int released = 0;
    pthread_t other;
    ad_sync *sync;
    mock_reset();
    mock_set_waits_finish(false);
    ad_sync *never = pending_on(S);
    ad_defer_release(tracked_new(&idle), CONTEXT(IN_ORDER, 1), NULL, 0);
    CHECK_INT(pthread_create(&other, NULL, wait_for_other_device, NULL), 0);
    rest(20);
    CHECK_INT(ad_sync_record(ON(IN_ORDER, 0, S), &sync, NULL), AD_OK);
    ((mock_event *)sync->event.handle)->at = 0;
    ad_defer_release(tracked_new(&released), CONTEXT(IN_ORDER, 0), &sync, 1);
    ad_deferred_drain();
    CHECK_INT(released, 1);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(idle, 0);
    mock_finish();
    pthread_join(other, NULL);
    CHECK_INT(idle, 1);
    ad_sync_unref(never);
}

#ifndef _WIN32

/* How often threads other than this one and the main one went to sleep. */
static long
count_sleeps_of_others(void)
{
    char line[128];
    long total = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *at = readdir(tasks); at != NULL; at = readdir(tasks)) {
        long id = atol(at->d_name);
        snprintf(line, sizeof(line), "/proc/self/task/%ld/status", id);
        FILE *status = fopen(line, "r");
        while (id != 0 && id != getpid() && id != syscall(SYS_gettid) &&
               status != NULL && fgets(line, sizeof(line), status) != NULL) {
            long n;
            total +=
                sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ? n : 0;
        }
        if (status != NULL) {
            fclose(status);
        }
    }
    closedir(tasks);
    return total;
}

/* In the quietest of some spans: a thread that polls wakes up in each of them,
 * one of a sanitizer or on a busy machine only in some. */
static void *
count_and_finish(void *count)
{
    long least = LONG_MAX;
    /* Until the main thread waits in a pass of all entries. */
    for (int i = 0; i < 10000 && mock_count().event_waits == 0; i++) {
        rest(1);
    }
    for (int i = 0; i < 10 && least > 3; i++) {
        long before = count_sleeps_of_others();
        rest(300);
        long n = count_sleeps_of_others() - before;
        least = n < least ? n : least;
    }
    *(long *)count = least;
    mock_finish();
    return NULL;
}

static void
test_thread_sleeps_while_another_pass_has_all_entries(void)
{
    atomic_int released = 0;
    long n_sleeps = -1;
    pthread_t other;
    mock_reset();
    mock_set_waits_finish(false);
    defer(&released, S);
    CHECK_INT(pthread_create(&other, NULL, count_and_finish, &n_sleeps), 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
    pthread_join(other, NULL);
    CHECK(n_sleeps >= 0 && n_sleeps <= 3);
}

#endif

/* An owner may not know its context, and pinned memory is used by its device:
 * who asks for the device means them too. */
static void
test_waiting_finds_all_of_a_device(void)
{
    static const ad_context asked[] = {
        {{IN_ORDER, 0}, (void *)0x1000},
        {{IN_ORDER, 0}, NULL},
        {{IN_ORDER, 0}, (void *)0x7777},
        {{PINNED, 0}, NULL},
    };
    const ad_context known[] = {
        {{IN_ORDER, 0}, NULL},
        {{PINNED, 0}, NULL},
        {{PINNED, -1}, NULL},
        CONTEXT(IN_ORDER, 0),
    };
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            atomic_int released = 0;
            atomic_int elsewhere = 0;
            mock_reset();
            ad_sync *sync = pending_on(S);
            ad_sync *same = ad_sync_ref(sync);
            ad_defer_release(tracked_new(&released), known[i], &sync, 1);
            ad_defer_release(tracked_new(&elsewhere), CONTEXT(IN_ORDER, 1),
                             &same, 1);
            CHECK_INT(ad_deferred_wait(asked[j], NULL), AD_OK);
            CHECK_INT(released, 1);
            mock_finish();
            expect_soon(&elsewhere, 1);
        }
    }
}

static void
expect_abandoned(void)
{
    for (int i = 0; i < 20000 && ad_deferred_count() > 0; i++) {
        rest(1);
    }
    CHECK_INT(ad_deferred_count(), 0);
}

static void
test_unqueryable_event_is_asked_again(void)
{
    atomic_int released = 0;
    mock_reset();
    mock_fail_next(MOCK_QUERY, 4);
    defer(&released, S);
    mock_finish();
    expect_soon(&released, 1);
    CHECK(mock_count().queries > 4);
    CHECK_INT(mock_count().context_waits, 0);
}

static void
test_unqueryable_event_is_abandoned_to_its_context(void)
{
    atomic_int released = 0;
    mock_reset();
    mock_fail_all(MOCK_QUERY);
    defer(&released, S);
    expect_abandoned();
    CHECK_INT(released, 0);
    CHECK_INT(mock_count().context_waits, 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
    CHECK_INT(mock_count().context_waits, 1);
}

/* As is_ready() does it inside of a host function. */
static void
test_refused_queries_abandon_nothing(void)
{
    atomic_int released = 0;
    mock_reset();
    defer(&released, S);
    mock_set_refusing(true);
    for (int i = 0; i < 1000; i++) {
        ad_deferred_drain();
    }
    mock_set_refusing(false);
    CHECK_INT(ad_deferred_count(), 1);
    mock_finish();
    expect_soon(&released, 1);
    CHECK_INT(mock_count().context_waits, 0);
}

static const ad_stream CAPTURED = {MOCK_CAPTURED_STREAM};

static void
test_event_is_recorded_after_the_capture(void)
{
    atomic_int released = 0;
    atomic_int n_kept = 0;
    ad_error err;
    mock_reset();
    ad_owner *keep = tracked_new(&n_kept);
    ad_defer_release_late(tracked_new(&released),
                          ON_OF(CONTEXT(IN_ORDER, 0), CAPTURED, keep));
    ad_owner_unref(keep);
    rest(30);
    CHECK_INT(mock_count().records, 0);
    CHECK_INT(ad_deferred_count(), 1);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "capture");
    CHECK_INT(released, 0);
    mock_end_capture();
    for (int i = 0; i < 20000 && mock_count().records == 0; i++) {
        rest(1);
    }
    CHECK_INT(released, 0);
    CHECK_INT(n_kept, 0);
    mock_finish();
    expect_soon(&released, 1);
    expect_soon(&n_kept, 1);
    CHECK_INT(mock_count().context_waits, 0);
}

static void
test_capture_that_ends_during_the_query(void)
{
    atomic_int released = 0;
    mock_reset();
    mock_end_capture_after_query();
    ad_defer_release_late(tracked_new(&released), ON(IN_ORDER, 0, CAPTURED));
    for (int i = 0; i < 20000 && mock_count().records == 0; i++) {
        rest(1);
    }
    CHECK_INT(mock_count().records, 1);
    mock_finish();
    expect_soon(&released, 1);
}

static void
test_late_event_on_a_dead_stream_is_abandoned(void)
{
    atomic_int released = 0;
    mock_reset();
    ad_defer_release_late(tracked_new(&released),
                          ON(IN_ORDER, 0, ((ad_stream){MOCK_DEAD_STREAM})));
    expect_abandoned();
    CHECK_INT(mock_count().context_waits, 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
    CHECK_INT(mock_count().context_waits, 1);
}

static void
test_captured_event_disturbs_no_capture(void)
{
    atomic_int released = 0;
    mock_reset();
    defer(&released, (ad_stream){MOCK_CAPTURED_STREAM});
    rest(50);
    CHECK_INT(released, 0);
    CHECK_INT(mock_count().context_waits, 0);
    /* Somebody who waits for the device does not capture. */
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
    CHECK_INT(mock_count().context_waits, 1);
}

static void
test_errors_are_survived_and_told(void)
{
    atomic_int released = 0;
    ad_error err;
    mock_reset();
    mock_fail_all(MOCK_CONTEXT_WAIT);
    ad_defer_release(tracked_new(&released), CONTEXT(IN_ORDER, 0), NULL, 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), &err), AD_ERR_DEVICE);
    CHECK_INT(err.code, 42);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_ERR_DEVICE);
    CHECK_INT(released, 0);
    mock_fail_all(MOCK_NONE);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
}

static void
test_wait_retries_abandoned_releases(void)
{
    atomic_int released = 0;
    mock_reset();
    mock_fail_all(MOCK_CONTEXT_WAIT);
    ad_defer_release(tracked_new(&released), CONTEXT(IN_ORDER, 0), NULL, 0);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_ERR_DEVICE);
    }
    CHECK(ad_deferred_is_any());
    /* It fails still, which is not the fault of who waits. */
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 0);
    mock_fail_all(MOCK_NONE);
    long n_waits = mock_count().context_waits;
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 1), NULL), AD_OK);
    CHECK_INT(mock_count().context_waits, n_waits);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(released, 1);
    CHECK(!ad_deferred_is_any());
}

static ad_owner *unproven; /* on purpose: it is never released */

/* "Idle" means nothing to a runtime that knows queues only. */
static void
test_context_that_is_never_known_to_be_idle(void)
{
    static atomic_int released;
    atomic_int others = 0;
    ad_sync *sync;
    mock_reset();
    unproven = tracked_new(&released);
    ad_defer_release(unproven, CONTEXT(QUEUES, 0), NULL, 0);
    CHECK_INT(ad_deferred_count(), 0);
    CHECK(!ad_deferred_is_any());
    /* An event that failed may tell later, and nothing else can. */
    CHECK_INT(ad_sync_record(ON(QUEUES, 0, S), &sync, NULL), AD_OK);
    mock_fail_all(MOCK_QUERY);
    ad_defer_release(tracked_new(&others), CONTEXT(QUEUES, 0), &sync, 1);
    expect_abandoned();
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
    CHECK_INT(others, 0);
    mock_fail_all(MOCK_NONE);
    CHECK_INT(ad_deferred_wait(CONTEXT(QUEUES, 0), NULL), AD_OK);
    CHECK_INT(others, 1);
    CHECK_INT(released, 0);
    CHECK_INT(mock_count().context_waits, 0);
}

static void
test_list_is_bounded(void)
{
    atomic_int released = 0;
    mock_reset();
    for (int i = 0; i < AD_DEFERRED_MAX + 10; i++) {
        defer(&released, S);
    }
    /* The mock's waits complete everything: one wait was enough. */
    CHECK(mock_count().event_waits >= 1);
    CHECK(ad_deferred_count() <= AD_DEFERRED_MAX);
    mock_finish();
    expect_soon(&released, AD_DEFERRED_MAX + 10);
}

/* Entries that wait for a context are no reason to wait for one. */
static void
test_full_list_waits_for_no_context(void)
{
    atomic_int idle = 0;
    atomic_int released = 0;
    mock_reset();
    for (int i = 0; i < AD_DEFERRED_MAX + 10; i++) {
        ad_defer_release(tracked_new(&idle), CONTEXT(IN_ORDER, 0), NULL, 0);
    }
    defer(&released, S);
    mock_finish();
    expect_soon(&released, 1);
    CHECK_INT(mock_count().event_waits, 0);
    CHECK_INT(mock_count().context_waits, 0);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    CHECK_INT(idle, AD_DEFERRED_MAX + 10);
}

static void
test_without_memory_it_waits_here(void)
{
    atomic_int released = 0;
    mock_reset();
    ad_sync *sync = pending_on(S);
    ad_owner *owner = tracked_new(&released);
    check_fail_nth(1);
    ad_defer_release(owner, CONTEXT(IN_ORDER, 0), &sync, 1);
    CHECK(check_failed_once());
    check_fail_nth(0);
    CHECK_INT(released, 1);
    CHECK_INT(mock_count().event_waits, 1);
}

/* --- releases that call back --------------------------------------------------- */

static atomic_int n_nested;

static void
nested_destroy(ad_owner *base)
{
    ad_deferred_drain();
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    mock_set_instant(true);
    defer(&n_nested, S);
    tracked_destroy(base);
}

static const ad_owner_ops nested_ops = {.destroy = nested_destroy};

static void
test_release_may_defer_and_wait(void)
{
    atomic_int released = 0;
    mock_reset();
    atomic_store(&n_nested, 0);
    for (int i = 0; i < 5; i++) {
        ad_sync *sync = pending_on(S);
        ad_owner *owner = tracked_new(&released);
        owner->ops = &nested_ops;
        ad_defer_release(owner, CONTEXT(IN_ORDER, 0), &sync, 1);
    }
    mock_finish();
    expect_soon(&released, 5);
    expect_soon(&n_nested, 5);
}

/* --- threads --------------------------------------------------------------------- */

static void *
defer_many(void *released)
{
    for (int i = 0; i < 100; i++) {
        defer(released, S);
        ad_deferred_drain();
        if (i % 10 == 0) {
            CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
        }
    }
    return NULL;
}

static void
test_threads_defer_releases(void)
{
    pthread_t threads[8];
    atomic_int released = 0;
    mock_reset();
    for (int i = 0; i < 8; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, defer_many, &released), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    mock_finish();
    expect_soon(&released, 800);
    CHECK_INT(ad_deferred_count(), 0);
}

/* --- signals and forks ----------------------------------------------------- */

#ifndef _WIN32

static atomic_int n_signals_elsewhere;
static pthread_t main_thread;

static void
on_signal(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), main_thread)) {
        atomic_fetch_add(&n_signals_elsewhere, 1);
    }
}

/* The thread exists by now: whoever gets a signal, it is not that one. */
static void
test_signals_go_to_the_program(void)
{
    sigset_t set;
    main_thread = pthread_self();
    signal(SIGUSR1, on_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 10; i++) {
        kill(getpid(), SIGUSR1);
        rest(1);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK_INT(n_signals_elsewhere, 0);
}

static void *
read_mask(void *mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return NULL;
}

static void
test_threads_block_all_but_their_faults(void)
{
    sigset_t mask;
    pthread_t thread;
    CHECK_INT(ad_thread_start(read_mask, &mask, &thread), 0);
    pthread_join(thread, NULL);
    CHECK_INT(sigismember(&mask, SIGINT), 1);
    CHECK_INT(sigismember(&mask, SIGALRM), 1);
    CHECK_INT(sigismember(&mask, SIGSEGV), 0);
    CHECK_INT(sigismember(&mask, SIGABRT), 0);
}

static void
child(void)
{
    atomic_int released = 0;
    ad_sync *sync;
    CHECK_INT(ad_deferred_count(), 0); /* the parent's are not ours */
    mock_reset();
    CHECK_INT(ad_sync_record(ON(CLAIMS, 0, S), &sync, NULL), AD_OK);
    ad_defer_release(tracked_new(&released), CONTEXT(CLAIMS, 0), &sync, 1);
    mock_finish();
    rest(30);
    CHECK_INT(released, 0); /* no thread */
    ad_deferred_drain();
    CHECK_INT(released, 1);
    ad_deferred_stop();
}

static void
test_forked_child_starts_with_nothing(void)
{
    atomic_int released = 0;
    int status = -1;
    mock_reset();
    defer(&released, S);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        child();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK_INT(released, 0);
    mock_finish();
    expect_soon(&released, 1);
}

static atomic_int n_forking;
static pid_t forked;

static void
forking_destroy(ad_owner *base)
{
    fflush(NULL);
    forked = fork();
    tracked_destroy(base);
}

static const ad_owner_ops forking_ops = {.destroy = forking_destroy};

/* A destructor of a program forks, in the middle of a drain. The child's list
 * begins anew, whatever the parent was about to do with its own. */
static void
test_release_may_fork(void)
{
    atomic_int other = 0;
    int status = -1;
    mock_reset();
    mock_set_waits_finish(false);
    atomic_store(&n_forking, 0);
    ad_sync *syncs[2] = {pending_on(S), pending_on(S)};
    ad_owner *owner = tracked_new(&n_forking);
    owner->ops = &forking_ops;
    ad_defer_release(owner, CONTEXT(IN_ORDER, 0), &syncs[0], 1);
    ad_defer_release(tracked_new(&other), CONTEXT(IN_ORDER, 0), &syncs[1], 1);
    pid_t parent = getpid();
    mock_set_waits_finish(true);
    CHECK_INT(ad_deferred_wait(CONTEXT(IN_ORDER, 0), NULL), AD_OK);
    if (getpid() != parent) {
        CHECK_INT(ad_deferred_count(), 0);
        CHECK_INT(other, 0);
        child();
        _exit(0);
    }
    expect_soon(&n_forking, 1);
    CHECK(waitpid(forked, &status, 0) == forked);
    CHECK_INT(status, 0);
    expect_soon(&other, 1);
    CHECK_INT(ad_deferred_count(), 0);
}

#endif

/* --- ends -------------------------------------------------------------------------- */

/* Last: there is no thread afterwards. */
static void
test_stop_does_not_wait_for_the_device(void)
{
    static atomic_int released;
    mock_reset();
    defer(&released, S);
    const int64_t before = ad_now();
    ad_deferred_stop();
    ad_deferred_stop();
    CHECK(ad_now() - before < INT64_C(2500000000));
    CHECK_INT(released, 0);
    CHECK_INT(ad_deferred_count(), 1);
    defer(&released, S);
    mock_finish();
    rest(30);
    CHECK_INT(released, 0);
    ad_deferred_drain();
    CHECK_INT(released, 2);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_thread_releases_what_is_done),
        CHECK_TEST(test_all_events_have_to_be_done),
        CHECK_TEST(test_waiting_releases_one_context_only),
        CHECK_TEST(test_context_is_waited_for_by_users_only),
        CHECK_TEST(test_blocked_wait_for_a_device_stops_no_other),
        CHECK_TEST(test_waiting_finds_all_of_a_device),
        CHECK_TEST(test_unqueryable_event_is_asked_again),
        CHECK_TEST(test_unqueryable_event_is_abandoned_to_its_context),
        CHECK_TEST(test_refused_queries_abandon_nothing),
        CHECK_TEST(test_event_is_recorded_after_the_capture),
        CHECK_TEST(test_capture_that_ends_during_the_query),
        CHECK_TEST(test_late_event_on_a_dead_stream_is_abandoned),
        CHECK_TEST(test_captured_event_disturbs_no_capture),
        CHECK_TEST(test_errors_are_survived_and_told),
        CHECK_TEST(test_wait_retries_abandoned_releases),
        CHECK_TEST(test_context_that_is_never_known_to_be_idle),
        CHECK_TEST(test_list_is_bounded),
        CHECK_TEST(test_full_list_waits_for_no_context),
        CHECK_TEST(test_without_memory_it_waits_here),
        CHECK_TEST(test_release_may_defer_and_wait),
        CHECK_TEST(test_threads_defer_releases),
#ifndef _WIN32
        CHECK_TEST(test_thread_sleeps_while_another_pass_has_all_entries),
        CHECK_TEST(test_signals_go_to_the_program),
        CHECK_TEST(test_threads_block_all_but_their_faults),
        CHECK_TEST(test_forked_child_starts_with_nothing),
        CHECK_TEST(test_release_may_fork),
#endif
        CHECK_TEST(test_stop_does_not_wait_for_the_device),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
