/* The tests' controls: settings, injected failures, log, counters. */
#define _GNU_SOURCE /* gettid */

#include "controls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    fake_call *calls;
    size_t n;
    size_t capacity;
    bool is_on;
} call_log;

static struct {
    uint64_t countdown; /* 0: off */
    char name[64];      /* empty: any */
    int code;
    bool stays;
} plan;

static char stub_hits[16384];
static atomic_uint_fast64_t n_calls;
static atomic_uint_fast64_t n_host_waits;
static atomic_uint_fast64_t n_host_spins;
static atomic_int_fast64_t delay;
static atomic_int_fast64_t patience = -1;
static atomic_bool free_waits;
static atomic_bool staging = true;
static atomic_bool handle_reuse = true;
static atomic_bool pageable_access;
static atomic_bool managed_without_device;
static atomic_int version = 13000;

/* --- the check of every call ------------------------------------------------ */

static void
append_locked(const char *name, uintptr_t stream)
{
    if (call_log.n == call_log.capacity) {
        size_t capacity =
            call_log.capacity == 0 ? 4096 : call_log.capacity * 2;
        fake_call *grown = realloc(call_log.calls, capacity * sizeof(*grown));
        if (grown == NULL) {
            return;
        }
        call_log.calls = grown;
        call_log.capacity = capacity;
    }
    call_log.calls[call_log.n++] =
        (fake_call){name, (uint64_t)gettid(), stream,
                    (uint64_t)(uintptr_t)fd_context_peek()};
}

int
fd_log_call(const char *name, uintptr_t stream)
{
    int code = FD_OK;
    atomic_fetch_add(&n_calls, 1);
    if (stream == 0 && fd_null_is_per_thread > 0) {
        stream = FD_PER_THREAD;
    }
    pthread_mutex_lock(&lock);
    if (call_log.is_on) {
        append_locked(name, stream);
    }
    bool is_meant = plan.name[0] == '\0' || strcmp(plan.name, name) == 0;
    if (plan.countdown > 0 && is_meant) {
        if (plan.countdown == 1) {
            code = plan.code;
        }
        plan.countdown -= !(plan.countdown == 1 && plan.stays);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void
fd_log_stub(const char *name)
{
    pthread_mutex_lock(&lock);
    size_t used = strlen(stub_hits);
    size_t length = strlen(name);
    if (used + length + 2 <= sizeof(stub_hits)) {
        memcpy(stub_hits + used, name, length);
        memcpy(stub_hits + used + length, "\n", 2);
    }
    pthread_mutex_unlock(&lock);
}

void
fd_host_waits(const char *name)
{
    atomic_fetch_add(&n_host_waits, 1);
}

void
fd_host_spins(void)
{
    atomic_fetch_add(&n_host_spins, 1);
}

/* --- settings ----------------------------------------------------------------- */

void
fake_set_delay(int64_t microseconds)
{
    uint64_t queues[1024];
    atomic_store(&delay, microseconds);
    size_t n = ad_engine_queue_list(-1, NULL, queues, 1024);
    for (size_t i = 0; i < n && i < 1024; i++) {
        ad_engine_queue_set_delay(queues[i], microseconds);
    }
}

int64_t
fd_new_delay(void)
{
    return atomic_load(&delay);
}

void
fake_fail_at(uint64_t n, const char *name, int code, int stay)
{
    pthread_mutex_lock(&lock);
    plan.countdown = n;
    plan.code = code;
    plan.stays = stay != 0;
    plan.name[0] = '\0';
    if (name != NULL) {
        strncpy(plan.name, name, sizeof(plan.name) - 1);
    }
    pthread_mutex_unlock(&lock);
}

int
fake_break_context(int code)
{
    fd_context *context;
    int found = fd_context_current(&context);
    if (found == FD_OK) {
        context->broken = code;
    }
    return found;
}

void
fake_set_patience(int64_t milliseconds)
{
    atomic_store(&patience, milliseconds);
}

int64_t
fd_patience(void)
{
    return atomic_load(&patience);
}

void
fake_set_free_waits(int on)
{
    atomic_store(&free_waits, on != 0);
}

bool
fd_free_waits(void)
{
    return atomic_load(&free_waits);
}

void
fake_set_staging(int on)
{
    atomic_store(&staging, on != 0);
}

bool
fd_stages_host(void)
{
    return atomic_load(&staging);
}

void
fake_set_handle_reuse(int on)
{
    atomic_store(&handle_reuse, on != 0);
}

bool
fd_reuses_handles(void)
{
    return atomic_load(&handle_reuse);
}

void
fake_set_pageable_access(int on)
{
    atomic_store(&pageable_access, on != 0);
}

bool
fd_accesses_pageable(void)
{
    return atomic_load(&pageable_access);
}

void
fake_set_managed_without_device(int on)
{
    atomic_store(&managed_without_device, on != 0);
}

bool
fd_managed_has_device(void)
{
    return !atomic_load(&managed_without_device);
}

void
fake_set_version(int number)
{
    atomic_store(&version, number);
}

int
fd_version(void)
{
    return atomic_load(&version);
}

void
fake_reset(void)
{
    ad_engine_reset();
    fake_fail_at(0, NULL, 0, 0);
    fake_set_delay(0);
    fake_set_patience(-1);
    fake_set_free_waits(0);
    fake_set_staging(1);
    fake_set_handle_reuse(1);
    fake_set_pageable_access(0);
    fake_set_managed_without_device(0);
    fake_set_version(13000);
    fd_context_mend_all();
    fd_capture_end_all();
}

/* --- queries --------------------------------------------------------------------- */

void
fake_log_start(void)
{
    pthread_mutex_lock(&lock);
    call_log.n = 0;
    call_log.is_on = true;
    pthread_mutex_unlock(&lock);
}

void
fake_log_stop(void)
{
    pthread_mutex_lock(&lock);
    call_log.is_on = false;
    pthread_mutex_unlock(&lock);
}

size_t
fake_log_read(fake_call *out, size_t capacity)
{
    pthread_mutex_lock(&lock);
    size_t n = call_log.n;
    size_t n_copied = n < capacity ? n : capacity;
    if (n_copied > 0) {
        memcpy(out, call_log.calls, n_copied * sizeof(*out));
    }
    pthread_mutex_unlock(&lock);
    return n;
}

uint64_t
fake_n_calls(void)
{
    return atomic_load(&n_calls);
}

size_t
fake_stub_hits(char *out, size_t size)
{
    pthread_mutex_lock(&lock);
    size_t length = strlen(stub_hits);
    length = length < size ? length : size - 1;
    memcpy(out, stub_hits, length);
    out[length] = '\0';
    stub_hits[0] = '\0';
    pthread_mutex_unlock(&lock);
    return length;
}

void
fake_count(fake_counts *out)
{
    size_t kinds[4] = {0};
    size_t bytes = 0;
    ad_engine_counts engine = {0};
    fd_memory_count(kinds, &bytes);
    ad_engine_count(NULL, &engine);
    *out = (fake_counts){
        .contexts = fd_context_count(),
        .streams = fd_stream_count(),
        .events = engine.events,
        .device = kinds[FD_DEVICE],
        .pinned = kinds[FD_PINNED],
        .managed = kinds[FD_MANAGED],
        .registered = kinds[FD_REGISTERED],
        .bytes = bytes,
        .pending = fd_n_pending(),
        .host_waits = atomic_load(&n_host_waits),
        .maps = fd_pool_maps(),
        .host_spins = atomic_load(&n_host_spins),
        .reserved = fd_vmm_count(),
        .imported = fd_pool_count_imported(),
    };
}

uintptr_t
fake_current_context(void)
{
    return (uintptr_t)fd_context_peek();
}

int
fake_context_depth(void)
{
    return fd_context_depth();
}

int
fake_peek(const void *address, void *out, size_t nbytes)
{
    fd_lock();
    bool is_mapped = fd_mapped_locked(address, nbytes, -1, false);
    fd_unlock();
    return is_mapped && ad_engine_peek(out, address, nbytes) == AD_ENGINE_OK
               ? FD_OK
               : FD_INVALID_VALUE;
}
