/* The calls of a front end: counted, logged and made to fail. They have a lock
 * of their own, so that they work before the start. */
#include "test_device/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum {
    LOG_SIZE = 4096,
    NAME_SIZE = 64
};

static struct {
    pthread_mutex_t lock;
    atomic_uint_fast64_t n;
    atomic_bool is_watched; /* the log is on, or a failure is planned */
    bool is_logging;
    const char *log[LOG_SIZE];
    uint64_t n_logged;
    uint64_t fail_in; /* 0: nothing planned */
    bool fail_stays;
    int fail_code;
    char fail_name[NAME_SIZE]; /* "": any */
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int
planned_locked(const char *call)
{
    if (calls.fail_in == 0 ||
        (calls.fail_name[0] != '\0' && strcmp(calls.fail_name, call) != 0)) {
        return 0;
    }
    if (calls.fail_in > 1) {
        calls.fail_in--;
        return 0;
    }
    if (!calls.fail_stays) {
        calls.fail_in = 0;
    }
    return calls.fail_code;
}

static void
update_watched_locked(void)
{
    atomic_store(&calls.is_watched, calls.is_logging || calls.fail_in != 0);
}

int
ad_engine_enter(const char *call)
{
    atomic_fetch_add_explicit(&calls.n, 1, memory_order_relaxed);
    if (!atomic_load(&calls.is_watched) || ad_engine_is_forked()) {
        return 0;
    }
    pthread_mutex_lock(&calls.lock);
    if (calls.is_logging) {
        calls.log[calls.n_logged++ % LOG_SIZE] = call;
    }
    int code = planned_locked(call);
    update_watched_locked();
    pthread_mutex_unlock(&calls.lock);
    return code;
}

int
ad_engine_fail_at(uint64_t n, const char *call, int code, bool stay)
{
    if (ad_engine_is_forked()) {
        return AD_ENGINE_FORKED;
    }
    if (call != NULL && (call[0] == '\0' || strlen(call) >= NAME_SIZE)) {
        return AD_ENGINE_INVALID_VALUE;
    }
    pthread_mutex_lock(&calls.lock);
    calls.fail_in = n;
    calls.fail_stays = stay;
    calls.fail_code = code;
    strcpy(calls.fail_name, call != NULL ? call : "");
    update_watched_locked();
    pthread_mutex_unlock(&calls.lock);
    return AD_ENGINE_OK;
}

uint64_t
ad_engine_n_calls(void)
{
    return atomic_load(&calls.n);
}

void
ad_engine_set_log(bool on)
{
    if (ad_engine_is_forked()) {
        return;
    }
    pthread_mutex_lock(&calls.lock);
    if (on) {
        calls.n_logged = 0;
    }
    calls.is_logging = on;
    update_watched_locked();
    pthread_mutex_unlock(&calls.lock);
}

size_t
ad_engine_log(const char **out, size_t capacity)
{
    if (ad_engine_is_forked()) {
        return 0;
    }
    pthread_mutex_lock(&calls.lock);
    uint64_t kept = calls.n_logged < LOG_SIZE ? calls.n_logged : LOG_SIZE;
    size_t n = kept < capacity ? (size_t)kept : capacity;
    for (size_t i = 0; i < n; i++) {
        out[i] = calls.log[(calls.n_logged - n + i) % LOG_SIZE];
    }
    pthread_mutex_unlock(&calls.lock);
    return n;
}
