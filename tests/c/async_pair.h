/* The two ends on two threads, each waiting for its wake-up: for the tests
 * with threads and for the benchmark.
 */
#ifndef AD_TESTS_ASYNC_PAIR_H
#define AD_TESTS_ASYNC_PAIR_H

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "async/async_stream.h"

/* A wake-up that a thread waits for, at most 10 s. */
typedef struct waker {
    ad_mutex mutex;
    ad_cond woken;
    atomic_bool is_woken;
    long n_wakes;
} waker;

#define WAKER                                                                 \
    {                                                                         \
        AD_MUTEX_INIT, AD_COND_INIT, false, 0                                 \
    }

static inline void
waker_wake(void *context)
{
    waker *self = context;
    ad_mutex_lock(&self->mutex);
    self->is_woken = true;
    self->n_wakes++;
    ad_cond_signal(&self->woken);
    ad_mutex_unlock(&self->mutex);
}

static inline void
waker_wait(waker *self)
{
    /* A running peer answers faster than a sleeping thread wakes up. */
    for (int i = 0; i < 2000 && !atomic_load(&self->is_woken); i++) {
        atomic_signal_fence(memory_order_seq_cst);
    }
    ad_mutex_lock(&self->mutex);
    while (!self->is_woken) {
        ad_cond_wait(&self->woken, &self->mutex);
    }
    self->is_woken = false;
    ad_mutex_unlock(&self->mutex);
}

/* How the producer's thread ends the stream. */
typedef enum pair_end {
    PAIR_FINISH,
    PAIR_FAIL,
    PAIR_GIVE_UP
} pair_end;

typedef struct pair {
    ad_async_consumer *consumer;
    ad_async_producer *producer;
    waker consumer_waker;
    waker producer_waker;
    const ad_array *batch;
    long n_batches;
    pair_end end;
    long n_sent;
    pthread_t thread;
} pair;

static void *
pair_produce(void *context)
{
    pair *self = context;
    ad_async_producer *producer = self->producer;
    ad_async_poll poll;
    CHECK_INT(
        ad_async_producer_start(producer, self->batch->schema, &poll, NULL),
        AD_OK);
    while (poll != AD_ASYNC_END && self->n_sent < self->n_batches) {
        CHECK_INT(
            ad_async_producer_send(producer, self->batch, NULL, &poll, NULL),
            AD_OK);
        if (poll == AD_ASYNC_PENDING) {
            waker_wait(&self->producer_waker);
        } else if (poll == AD_ASYNC_READY) {
            self->n_sent++;
        }
    }
    if (self->end == PAIR_FINISH) {
        CHECK_INT(ad_async_producer_finish(producer, NULL), AD_OK);
    } else if (self->end == PAIR_FAIL) {
        CHECK_INT(
            ad_async_producer_fail(producer, 5, "failed", NULL, NULL, NULL),
            AD_OK);
    }
    ad_async_producer_close(producer);
    return NULL;
}

/* self->batch, n_batches and end are set. */
static inline void
pair_start(pair *self, int64_t queue_size)
{
    ad_async_consumer_options consumer = {
        .queue_size = queue_size,
        .wake = {waker_wake, &self->consumer_waker, NULL},
    };
    ad_async_producer_options producer = {
        .device_type = self->batch->memory.device.type,
        .wake = {waker_wake, &self->producer_waker, NULL},
    };
    CHECK_INT(ad_async_consumer_new(&consumer, &self->consumer, NULL), AD_OK);
    CHECK_INT(ad_async_producer_new(ad_async_consumer_handler(self->consumer),
                                    &producer, &self->producer, NULL),
              AD_OK);
    CHECK_INT(pthread_create(&self->thread, NULL, pair_produce, self), 0);
}

/* Pops at most `n` batches, or all for -1. Returns how many; *poll and *status
 * hold the outcome. */
static inline long
pair_pop(pair *self, long n, ad_async_poll *poll, ad_status *status)
{
    long popped = 0;
    *poll = AD_ASYNC_READY;
    *status = AD_OK;
    while (popped != n) {
        ad_async_batch batch;
        *status = ad_async_consumer_pop(self->consumer, &batch, poll, NULL);
        if (*status != AD_OK || *poll == AD_ASYNC_END) {
            break;
        }
        if (*poll == AD_ASYNC_PENDING) {
            waker_wait(&self->consumer_waker);
        } else {
            popped++;
            ad_async_batch_clear(&batch);
        }
    }
    return popped;
}

/* Joins the producer's thread; no wake-up follows. */
static inline void
pair_join(pair *self)
{
    CHECK_INT(pthread_join(self->thread, NULL), 0);
}

#endif /* AD_TESTS_ASYNC_PAIR_H */
