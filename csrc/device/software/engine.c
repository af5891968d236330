/* Start, fork, exit and waiting; and the calls that concern all parts. */
#include "device/software/engine_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/process.h"

/* The condition is initialised at the start, since a static initialiser cannot
 * choose its clock. */
struct ad_engine_globals ad_engine_ = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .patience = -1,
};

/* --- start, fork, exit --------------------------------------------------- */

/* A child has no workers, and the lock may be held by a thread that does not
 * exist there. So the child never takes it. */
static void
on_fork(void)
{
    atomic_store(&ad_engine_.is_forked, true);
}

static ad_child_hook child_hook = {.run = on_fork};

static void
on_exit_(void)
{
    if (ad_engine_lock() == AD_ENGINE_OK) {
        ad_engine_.is_quitting = true;
        ad_engine_queues_quit_locked();
        ad_engine_progress_locked();
        ad_engine_unlock();
    }
}

static int
start_locked(void)
{
    int status = ad_engine_arena_start_locked();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (ad_cond_init_monotonic(&ad_engine_.progress) != 0) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    if (ad_process_add_child_hook(&child_hook) != 0 || atexit(on_exit_) != 0) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    return AD_ENGINE_OK;
}

int
ad_engine_start(int n_devices)
{
    if (ad_engine_is_forked()) {
        return AD_ENGINE_FORKED;
    }
    if (n_devices < 1 || n_devices > AD_ENGINE_MAX_DEVICES) {
        return AD_ENGINE_INVALID_VALUE;
    }
    pthread_mutex_lock(&ad_engine_.lock);
    int status = AD_ENGINE_OK;
    int n = atomic_load(&ad_engine_.n_devices);
    if (n == 0) {
        status = start_locked();
    }
    if (status == AD_ENGINE_OK && n < n_devices) {
        atomic_store(&ad_engine_.n_devices, n_devices);
    }
    pthread_mutex_unlock(&ad_engine_.lock);
    return status;
}

int
ad_engine_n_devices(void)
{
    return ad_engine_is_forked() ? 0 : atomic_load(&ad_engine_.n_devices);
}

bool
ad_engine_is_forked(void)
{
    return atomic_load(&ad_engine_.is_forked);
}

/* --- locking and waiting ------------------------------------------------- */

int
ad_engine_lock(void)
{
    if (ad_engine_is_forked()) {
        return AD_ENGINE_FORKED;
    }
    if (atomic_load(&ad_engine_.n_devices) == 0) {
        return AD_ENGINE_NOT_STARTED;
    }
    pthread_mutex_lock(&ad_engine_.lock);
    return AD_ENGINE_OK;
}

int
ad_engine_lock_device(int device)
{
    int status = ad_engine_lock();
    if (status == AD_ENGINE_OK &&
        (device < 0 || device >= ad_engine_n_devices())) {
        ad_engine_unlock();
        status = AD_ENGINE_INVALID_DEVICE;
    }
    return status;
}

void
ad_engine_unlock(void)
{
    pthread_mutex_unlock(&ad_engine_.lock);
}

int64_t
ad_engine_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t
ad_engine_deadline_locked(int64_t timeout_ms)
{
    int64_t wait = timeout_ms < 0 ? ad_engine_.patience : timeout_ms;
    int64_t now = ad_engine_now();
    if (wait < 0 || wait > (INT64_MAX - now) / 1000000) {
        return INT64_MAX;
    }
    return now + wait * 1000000;
}

void
ad_engine_sleep_locked(pthread_cond_t *cond, int64_t deadline)
{
    if (deadline == INT64_MAX) {
        pthread_cond_wait(cond, &ad_engine_.lock);
        return;
    }
    struct timespec until = {
        .tv_sec = (time_t)(deadline / 1000000000),
        .tv_nsec = (long)(deadline % 1000000000),
    };
    pthread_cond_timedwait(cond, &ad_engine_.lock, &until);
}

bool
ad_engine_await_locked(int64_t deadline)
{
    if (ad_engine_.is_quitting ||
        (deadline != INT64_MAX && ad_engine_now() >= deadline)) {
        return false;
    }
    ad_engine_.n_waiting++;
    ad_engine_sleep_locked(&ad_engine_.progress, deadline);
    ad_engine_.n_waiting--;
    return true;
}

void
ad_engine_progress_locked(void)
{
    if (ad_engine_.n_waiting > 0) {
        pthread_cond_broadcast(&ad_engine_.progress);
    }
}

/* --- all parts at once --------------------------------------------------- */

void
ad_engine_set_patience(int64_t milliseconds)
{
    if (ad_engine_lock() == AD_ENGINE_OK) {
        ad_engine_.patience = milliseconds;
        ad_engine_unlock();
    }
}

int64_t
ad_engine_patience(void)
{
    int64_t patience = -1;
    if (ad_engine_lock() == AD_ENGINE_OK) {
        patience = ad_engine_.patience;
        ad_engine_unlock();
    }
    return patience;
}

void
ad_engine_reset(void)
{
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return;
    }
    ad_engine_.patience = -1;
    ad_engine_queues_reset_locked();
    ad_engine_events_reset_locked();
    ad_engine_memory_reset_locked();
    ad_engine_progress_locked();
    ad_engine_unlock();
    ad_engine_fail_at(0, NULL, 0, false);
}

void
ad_engine_count(const void *tag, ad_engine_counts *out)
{
    *out = (ad_engine_counts){0};
    if (ad_engine_lock() == AD_ENGINE_OK) {
        ad_engine_queues_count_locked(tag, out);
        ad_engine_events_count_locked(tag, out);
        ad_engine_memory_count_locked(tag, out);
        ad_engine_unlock();
    }
}
