#include "mock_backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "order/deferred_release.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mock_counts counts;
static uint64_t now;      /* ticks that were handed out */
static uint64_t finished; /* ticks whose work is done */
static bool is_instant;
static bool waits_finish = true;
static long countdown;
static bool has_failed;
static bool is_capture_over;
static bool is_capture_ending; /* after one more query */
static mock_kind failing;
static long n_failing; /* so many times more; 0: always */
static uintptr_t last_waiter;
static uintptr_t last_recorded;
static long live_events;
static long live_memory;

#ifndef _WIN32

static void
take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void
drop_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A fork while another thread has the lock would leave it locked in the
 * child. */
__attribute__((constructor)) static void
keep_lock_in_forks(void)
{
    (void)pthread_atfork(take_lock, drop_lock, drop_lock);
}

#endif

void
mock_reset(void)
{
    pthread_mutex_lock(&lock);
    memset(&counts, 0, sizeof(counts));
    is_instant = false;
    waits_finish = true;
    countdown = 0;
    has_failed = false;
    is_capture_over = is_capture_ending = false;
    failing = MOCK_NONE;
    last_waiter = 0;
    pthread_mutex_unlock(&lock);
}

#define LOCKED(statement)                                                     \
    pthread_mutex_lock(&lock);                                                \
    statement;                                                                \
    pthread_mutex_unlock(&lock)

mock_counts
mock_count(void)
{
    LOCKED(mock_counts copy = counts);
    return copy;
}

void
mock_finish(void)
{
    LOCKED(finished = now);
}

void
mock_set_instant(bool instant)
{
    LOCKED(is_instant = instant);
}

void
mock_set_waits_finish(bool finish)
{
    LOCKED(waits_finish = finish);
}

void
mock_fail_nth(long n)
{
    LOCKED((countdown = n, has_failed = false));
}

bool
mock_failed_once(void)
{
    LOCKED(bool failed = has_failed);
    return failed;
}

void
mock_fail_all(mock_kind kind)
{
    mock_fail_next(kind, 0);
}

void
mock_fail_next(mock_kind kind, long n)
{
    LOCKED((failing = kind, n_failing = n));
}

void
mock_end_capture(void)
{
    LOCKED(is_capture_over = true);
}

void
mock_end_capture_after_query(void)
{
    LOCKED(is_capture_ending = true);
}

long
mock_live_events(void)
{
    LOCKED(long n = live_events);
    return n;
}

long
mock_live_memory(void)
{
    LOCKED(long n = live_memory);
    return n;
}

uintptr_t
mock_last_recorded(void)
{
    LOCKED(uintptr_t stream = last_recorded);
    return stream;
}

uintptr_t
mock_last_waiter(void)
{
    LOCKED(uintptr_t stream = last_waiter);
    return stream;
}

/* --- the slots; the lock is held where a name ends in _locked --------------- */

static bool
fails_locked(mock_kind kind)
{
    if (failing != MOCK_NONE && failing == kind) {
        failing = n_failing == 1 ? MOCK_NONE : failing;
        n_failing -= n_failing > 0;
        return true;
    }
    if (countdown > 0 && --countdown == 0) {
        has_failed = true;
        return true;
    }
    return false;
}

static ad_status
fail(ad_device device, const char *call, ad_error *err)
{
    return ad_fail_device(err, device, call, 42, "MOCK_ERROR", NULL);
}

static _Thread_local bool is_refusing;
static _Thread_local unsigned int n_refused;

void
mock_set_refusing(bool refusing)
{
    is_refusing = refusing;
}

static unsigned int
mock_n_refused(void)
{
    return n_refused;
}

static bool
is_refused(void)
{
    n_refused += is_refusing;
    return is_refusing;
}

/* Count a call, and say whether it fails. */
static bool
enter(long *count, mock_kind kind)
{
    if (is_refused()) {
        return true;
    }
    LOCKED((*count += 1); bool fails = fails_locked(kind));
    return fails;
}

static ad_status
mock_load(ad_error *err)
{
    (void)err;
    LOCKED(counts.loads++);
    return AD_OK;
}

static ad_status
broken_load(ad_error *err)
{
    LOCKED(counts.loads++);
    return ad_fail(err, AD_ERR_EXCHANGE, "runtime", "install it",
                   "libmock.so is not there");
}

static ad_status
mock_describe(char *buffer, size_t size, ad_error *err)
{
    (void)err;
    snprintf(buffer, size, "a mock");
    return AD_OK;
}

static ad_status
mock_n_devices(int64_t *out, ad_error *err)
{
    (void)err;
    *out = 2;
    return AD_OK;
}

static ad_status
mock_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    (void)err;
    snprintf(buffer, size, "mock %d", (int)id);
    return AD_OK;
}

static ad_status
mock_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    if (enter(&counts.primary_contexts, MOCK_NONE)) {
        return fail(device, "mock_primary_context", err);
    }
    *out = (ad_context){device, (void *)(uintptr_t)(0x1000 + device.id)};
    return AD_OK;
}

static void
block(void)
{
    struct timespec span = {0, 100000};
    bool done = false;
    while (!done) {
        pthread_mutex_lock(&lock);
        if (waits_finish) {
            finished = now;
        }
        done = finished == now;
        pthread_mutex_unlock(&lock);
        if (!done) {
            nanosleep(&span, NULL);
        }
    }
}

static ad_status
mock_synchronize(ad_context context, ad_error *err)
{
    if (enter(&counts.context_waits, MOCK_CONTEXT_WAIT)) {
        return fail(context.device, "mock_synchronize", err);
    }
    block();
    return AD_OK;
}

static ad_status
mock_allocate(ad_context context, ad_stream stream, size_t nbytes, void **out,
              ad_error *err)
{
    bool is_full = ad_deferred_count() > 0;
    (void)stream;
    LOCKED((is_full = is_full && failing == MOCK_ALLOCATE));
    if (is_full) {
        return ad_fail(err, AD_ERR_MEMORY, NULL, NULL, "the mock is full");
    }
    if (enter(&counts.allocations, MOCK_NONE)) {
        return fail(context.device, "mock_allocate", err);
    }
    *out = malloc(nbytes);
    if (*out == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    LOCKED(live_memory++);
    return AD_OK;
}

static void
mock_deallocate(ad_context context, ad_stream stream, void *data,
                size_t nbytes)
{
    (void)context;
    (void)stream;
    (void)nbytes;
    if (is_refused()) {
        return;
    }
    LOCKED((counts.deallocations++, live_memory--));
    free(data);
}

static void *
context_of(ad_device device, ad_stream stream)
{
    return stream.handle == MOCK_STRANGER
               ? MOCK_STRANGE_CONTEXT
               : (void *)(uintptr_t)(0x1000 + device.id);
}

static atomic_bool guesses;

void
mock_set_guesses(bool yes)
{
    atomic_store(&guesses, yes);
}

static ad_status
mock_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                    ad_error *err)
{
    if (enter(&counts.stream_contexts, MOCK_NONE) ||
        stream.handle == MOCK_DEAD_STREAM) {
        return fail(hint.device, "mock_stream_context", err);
    }
    *out = (ad_context){hint.device, context_of(hint.device, stream)};
    return AD_OK;
}

static bool
mock_likely_context(ad_stream stream, ad_device device, ad_context *out)
{
    (void)stream;
    *out = (ad_context){device, context_of(device, (ad_stream){0})};
    return atomic_load(&guesses);
}

#define FIRST_STREAM 0x50000

static atomic_uint_fast64_t next_stream = FIRST_STREAM;
static atomic_uint_fast64_t first_alive = FIRST_STREAM;

void
mock_lose_streams(void)
{
    atomic_store(&first_alive, atomic_load(&next_stream));
}

static ad_status
mock_stream_is_capturing(ad_context context, ad_stream stream, bool *out,
                         ad_error *err)
{
    if (stream.handle >= FIRST_STREAM &&
        stream.handle < atomic_load(&first_alive)) {
        return fail(context.device, "mock_stream_is_capturing", err);
    }
    LOCKED((*out = stream.handle == MOCK_CAPTURED_STREAM && !is_capture_over,
            is_capture_over |= is_capture_ending));
    return AD_OK;
}

static ad_status
mock_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    if (enter(&counts.streams_created, MOCK_NONE)) {
        return fail(context.device, "mock_stream_create", err);
    }
    out->handle = atomic_fetch_add(&next_stream, 16);
    return AD_OK;
}

static void
mock_stream_destroy(ad_context context, ad_stream stream)
{
    (void)context;
    (void)stream;
    LOCKED(counts.streams_destroyed++);
}

static ad_status
mock_stream_wait(ad_context context, ad_stream stream, ad_event event,
                 ad_error *err)
{
    (void)event;
    if (enter(&counts.waits, MOCK_NONE) || stream.handle == MOCK_DEAD_STREAM) {
        return fail(context.device, "mock_stream_wait", err);
    }
    LOCKED(last_waiter = stream.handle);
    return AD_OK;
}

static ad_status
mock_event_record(ad_context context, ad_stream stream, ad_event *event,
                  ad_error *err)
{
    if (enter(&counts.records, MOCK_NONE) ||
        stream.handle == MOCK_DEAD_STREAM ||
        (stream.handle == MOCK_STRANGER &&
         context.handle != MOCK_STRANGE_CONTEXT)) {
        return fail(context.device, "mock_event_record", err);
    }
    mock_event *e = event->handle;
    if (e == NULL) {
        e = malloc(sizeof(*e));
        if (e == NULL) {
            return ad_fail_memory(err, sizeof(*e));
        }
        LOCKED((counts.events_created++, live_events++));
    }
    pthread_mutex_lock(&lock);
    e->at = ++now;
    if (is_instant) {
        finished = now;
    }
    e->stream = stream.handle;
    last_recorded = stream.handle;
    e->is_captured = stream.handle == MOCK_CAPTURED_STREAM && !is_capture_over;
    pthread_mutex_unlock(&lock);
    event->handle = e;
    return AD_OK;
}

static ad_status
fail_captured(ad_device device, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "capture", NULL, "a captured event");
    ad_error_device(err, device);
    return AD_ERR_EXCHANGE;
}

static ad_status
mock_event_query(ad_context context, ad_event event, bool *out, ad_error *err)
{
    const mock_event *e = event.handle;
    if (enter(&counts.queries, MOCK_QUERY)) {
        return fail(context.device, "mock_event_query", err);
    }
    if (e->is_captured) {
        return fail_captured(context.device, err);
    }
    LOCKED(*out = e->at <= finished);
    return AD_OK;
}

static ad_status
mock_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    const mock_event *e = event.handle;
    if (enter(&counts.event_waits, MOCK_NONE)) {
        return fail(context.device, "mock_event_synchronize", err);
    }
    if (e->is_captured) {
        return fail_captured(context.device, err);
    }
    block();
    return AD_OK;
}

static void
mock_event_destroy(ad_context context, ad_event event)
{
    (void)context;
    if (is_refused()) {
        return;
    }
    LOCKED((counts.events_destroyed++, live_events--));
    free(event.handle);
}

static bool
mock_claims_event(const void *sync_event)
{
    return sync_event == MOCK_CLAIMED;
}

#define MOCK_REQUIRED                                                         \
    .describe = mock_describe, .count = mock_n_devices,                       \
    .device_name = mock_device_name, .primary_context = mock_primary_context, \
    .synchronize = mock_synchronize

#define MOCK_SLOTS                                                            \
    MOCK_REQUIRED,                                                            \
        .allocate = mock_allocate, .deallocate = mock_deallocate,             \
        .n_refused = mock_n_refused, .stream_context = mock_stream_context,   \
        .likely_context = mock_likely_context,                                \
        .stream_create = mock_stream_create,                                  \
        .stream_destroy = mock_stream_destroy,                                \
        .stream_is_capturing = mock_stream_is_capturing,                      \
        .stream_wait = mock_stream_wait, .event_record = mock_event_record,   \
        .event_query = mock_event_query,                                      \
        .event_synchronize = mock_event_synchronize,                          \
        .event_destroy = mock_event_destroy

extern const struct ad_backend mock_in_order, mock_queues, mock_claims,
    mock_broken, mock_bare;

const struct ad_backend mock_in_order = {
    .name = "inorder",
    .device_types = (const int32_t[]){IN_ORDER, PINNED, 0},
    .capabilities = AD_CAP_IN_ORDER | AD_CAP_EVENTS_REUSABLE |
                    AD_CAP_ORDERED_DEALLOCATE | AD_CAP_CAPTURE |
                    AD_CAP_CONTEXT_IDLE | AD_CAP_STAGES,
    .load = mock_load,
    MOCK_SLOTS,
};

const struct ad_backend mock_queues = {
    .name = "queues",
    .device_types = (const int32_t[]){QUEUES, 0},
    .capabilities = AD_CAP_SYNC_EVENT_IS_HANDLE,
    .load = mock_load,
    MOCK_SLOTS,
};

const struct ad_backend mock_claims = {
    .name = "claims",
    .device_types = (const int32_t[]){CLAIMS, 0},
    .capabilities = AD_CAP_SYNC_EVENT_IS_HANDLE,
    .load = mock_load,
    MOCK_SLOTS,
    .claims_event = mock_claims_event,
};

const struct ad_backend mock_broken = {
    .name = "broken",
    .device_types = (const int32_t[]){BROKEN, 0},
    .load = broken_load,
    MOCK_SLOTS,
};

const struct ad_backend mock_bare = {
    .name = "bare",
    .device_types = (const int32_t[]){BARE, 0},
    .load = mock_load,
    MOCK_REQUIRED,
};
