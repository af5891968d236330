#define _GNU_SOURCE /* pthread_cond_clockwait */

/* Both ends of an async stream as another library would implement them, for
 * tests/helpers/async_peer.py: in C, on threads unknown to Python. Batches are int64
 * arrays of one value, the number of the batch. Loaded with ctypes. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi/arrow_c.h"

static int live_arrays;

int
peer_live_arrays(void)
{
    return __atomic_load_n(&live_arrays, __ATOMIC_SEQ_CST);
}

/* --- data ---------------------------------------------------------------- */

typedef struct batch {
    int64_t value;
    const void *buffers[2];
} batch;

static void
release_array(struct ArrowArray *array)
{
    free(array->private_data);
    array->release = NULL;
    __atomic_fetch_sub(&live_arrays, 1, __ATOMIC_SEQ_CST);
}

static void
release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void
make_batch(long number, struct ArrowDeviceArray *out)
{
    batch *data = malloc(sizeof(*data));
    data->value = number;
    data->buffers[0] = NULL;
    data->buffers[1] = &data->value;
    memset(out, 0, sizeof(*out));
    out->array.length = 1;
    out->array.n_buffers = 2;
    out->array.buffers = data->buffers;
    out->array.release = release_array;
    out->array.private_data = data;
    out->device_id = -1;
    out->device_type = ARROW_DEVICE_CPU;
    __atomic_fetch_add(&live_arrays, 1, __ATOMIC_SEQ_CST);
}

/* --- producer ------------------------------------------------------------ */

typedef struct producer {
    struct ArrowAsyncProducer shown;
    struct ArrowAsyncDeviceStreamHandler *handler;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    long n_batches; /* -1: unlimited */
    long fail_at;   /* on_error instead of this batch; -1: never */
    int delay_us;   /* before each batch; -1: until may_send */
    const char *metadata;
    int64_t credit;
    bool is_cancelled;
    bool may_send; /* set by peer_let_batches_go() */
    long n_sent;
    long n_cancels;
    bool is_holding; /* cancel() blocks until may_cancel, or 30 s */
    bool may_cancel; /* set by peer_let_cancel_go() */
    bool is_held_for_long;
    bool is_over;
} producer;

static void
producer_request(struct ArrowAsyncProducer *shown, int64_t n)
{
    producer *self = shown->private_data;
    pthread_mutex_lock(&self->mutex);
    self->credit += n;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

static int
wait_for(pthread_mutex_t *mutex, pthread_cond_t *changed, const bool *what,
         int timeout_ms)
{
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += timeout_ms / 1000;
    int result = 0;
    while (!*what && result == 0) {
        result =
            pthread_cond_clockwait(changed, mutex, CLOCK_MONOTONIC, &limit);
    }
    return result;
}

static void
producer_cancel(struct ArrowAsyncProducer *shown)
{
    producer *self = shown->private_data;
    pthread_mutex_lock(&self->mutex);
    self->is_cancelled = true;
    self->n_cancels++;
    pthread_cond_broadcast(&self->changed);
    if (self->is_holding) {
        self->is_held_for_long = wait_for(&self->mutex, &self->changed,
                                          &self->may_cancel, 30000) != 0;
    }
    pthread_mutex_unlock(&self->mutex);
}

static int
extract(struct ArrowAsyncTask *task, struct ArrowDeviceArray *out)
{
    if (out != NULL) {
        make_batch((long)(intptr_t)task->private_data, out);
    }
    return 0;
}

/* False: the consumer has cancelled. */
static bool
wait_for_credit(producer *self)
{
    pthread_mutex_lock(&self->mutex);
    while (self->credit == 0 && !self->is_cancelled) {
        pthread_cond_wait(&self->changed, &self->mutex);
    }
    bool is_wanted = !self->is_cancelled;
    self->credit -= is_wanted;
    pthread_mutex_unlock(&self->mutex);
    return is_wanted;
}

static int
wait_until(pthread_mutex_t *mutex, pthread_cond_t *changed, const bool *what,
           int timeout_ms)
{
    pthread_mutex_lock(mutex);
    int result = wait_for(mutex, changed, what, timeout_ms);
    pthread_mutex_unlock(mutex);
    return result;
}

static void
delay(producer *self)
{
    if (self->delay_us > 0) {
        usleep((useconds_t)self->delay_us);
    } else if (self->delay_us < 0) {
        (void)wait_until(&self->mutex, &self->changed, &self->may_send, 60000);
    }
}

static void
send_all(producer *self)
{
    struct ArrowAsyncDeviceStreamHandler *handler = self->handler;
    struct ArrowSchema schema = {.format = "l",
                                 .name = "",
                                 .flags = ARROW_FLAG_NULLABLE,
                                 .release = release_schema};
    if (handler->on_schema(handler, &schema) != 0) {
        return;
    }
    for (long i = 0; i != self->n_batches; i++) {
        if (i == self->fail_at) {
            handler->on_error(handler, EIO, "the disk is gone",
                              self->metadata);
            return;
        }
        if (!wait_for_credit(self)) {
            return; /* as specified: only release follows */
        }
        delay(self);
        struct ArrowAsyncTask task = {extract, (void *)(intptr_t)i};
        if (handler->on_next_task(handler, &task, self->metadata) != 0) {
            return;
        }
        self->n_sent++;
    }
    (void)handler->on_next_task(handler, NULL, NULL);
}

static void *
produce(void *context)
{
    producer *self = context;
    send_all(self);
    self->handler->release(self->handler);
    pthread_mutex_lock(&self->mutex);
    self->is_over = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

producer *
peer_produce(struct ArrowAsyncDeviceStreamHandler *handler, long n_batches,
             long fail_at, int delay_us, const char *metadata)
{
    producer *self = calloc(1, sizeof(*self));
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->shown.device_type = ARROW_DEVICE_CPU;
    self->shown.request = producer_request;
    self->shown.cancel = producer_cancel;
    self->shown.additional_metadata = metadata;
    self->shown.private_data = self;
    self->handler = handler;
    handler->producer = &self->shown;
    self->n_batches = n_batches;
    self->fail_at = fail_at;
    self->delay_us = delay_us;
    self->metadata = metadata;
    pthread_create(&self->thread, NULL, produce, self);
    return self;
}

/* Lets a producer with a delay of -1 send its batches. */
void
peer_let_batches_go(producer *self)
{
    pthread_mutex_lock(&self->mutex);
    self->may_send = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

/* Returns 0 once the handler was released. */
int
peer_wait_for_producer(producer *self, int timeout_ms)
{
    return wait_until(&self->mutex, &self->changed, &self->is_over,
                      timeout_ms);
}

long
peer_n_sent(producer *self)
{
    return __atomic_load_n(&self->n_sent, __ATOMIC_SEQ_CST);
}

long
peer_n_cancels(producer *self)
{
    pthread_mutex_lock(&self->mutex);
    long n = self->n_cancels;
    pthread_mutex_unlock(&self->mutex);
    return n;
}

/* cancel() blocks from now on until peer_let_cancel_go(). */
void
peer_hold_cancel(producer *self)
{
    pthread_mutex_lock(&self->mutex);
    self->is_holding = true;
    pthread_mutex_unlock(&self->mutex);
}

/* False: cancel() has already given up. */
bool
peer_let_cancel_go(producer *self)
{
    pthread_mutex_lock(&self->mutex);
    self->may_cancel = true;
    bool is_in_time = !self->is_held_for_long;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return is_in_time;
}

/* Call after peer_wait_for_producer(). */
void
peer_free_producer(producer *self)
{
    pthread_join(self->thread, NULL);
    free(self);
}

/* --- reader of a pull stream --------------------------------------------- */

static void *
read_all(void *context)
{
    struct ArrowDeviceArrayStream *stream = context;
    struct ArrowDeviceArray chunk;
    while (stream->get_next(stream, &chunk) == 0 &&
           chunk.array.release != NULL) {
        chunk.array.release(&chunk.array);
    }
    stream->release(stream);
    return NULL;
}

/* Reads the stream to its end on a detached thread. The struct stays in
 * place. */
void
peer_read(struct ArrowDeviceArrayStream *stream)
{
    pthread_t thread;
    pthread_create(&thread, NULL, read_all, stream);
    pthread_detach(thread);
}

/* --- consumer ------------------------------------------------------------ */

typedef struct consumer {
    struct ArrowAsyncDeviceStreamHandler handler;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t request; /* in on_schema; 0: no request */
    long cancel_at;  /* cancel in on_next_task of this batch; -1: never */
    long refuse_at;  /* refuse this batch (-2: the schema); -1: none */
    bool is_greedy;  /* requests one more per batch */
    long n_batches;
    int64_t sum;
    int code;
    char message[256];
    int n_ends;
    bool is_released;
} consumer;

static int
on_schema(struct ArrowAsyncDeviceStreamHandler *handler,
          struct ArrowSchema *schema)
{
    consumer *self = handler->private_data;
    if (self->refuse_at == -2) {
        return EPERM;
    }
    schema->release(schema);
    if (self->request != 0) {
        handler->producer->request(handler->producer, self->request);
    }
    return 0;
}

static int
on_next_task(struct ArrowAsyncDeviceStreamHandler *handler,
             struct ArrowAsyncTask *task, const char *metadata)
{
    consumer *self = handler->private_data;
    struct ArrowDeviceArray chunk = {.array = {.release = NULL}};
    if (task == NULL) {
        self->n_ends++;
        return 0;
    }
    if (self->n_batches == self->refuse_at) {
        return EPERM;
    }
    if (self->n_batches == self->cancel_at) {
        handler->producer->cancel(handler->producer);
    } else if (self->is_greedy) {
        handler->producer->request(handler->producer, 1);
    }
    if (task->extract_data(task, &chunk) != 0) {
        return EIO;
    }
    const int64_t *values = chunk.array.buffers[1];
    self->sum += values[chunk.array.offset];
    self->n_batches++;
    chunk.array.release(&chunk.array);
    return 0;
}

static void
on_error(struct ArrowAsyncDeviceStreamHandler *handler, int code,
         const char *message, const char *metadata)
{
    consumer *self = handler->private_data;
    self->code = code;
    strncpy(self->message, message, sizeof(self->message) - 1);
}

static void
on_release(struct ArrowAsyncDeviceStreamHandler *handler)
{
    consumer *self = handler->private_data;
    pthread_mutex_lock(&self->mutex);
    self->is_released = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

/* The handler is the first member. Lives until peer_free_consumer(). */
consumer *
peer_consumer(int64_t request, bool is_greedy, long cancel_at, long refuse_at)
{
    consumer *self = calloc(1, sizeof(*self));
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->handler.on_schema = on_schema;
    self->handler.on_next_task = on_next_task;
    self->handler.on_error = on_error;
    self->handler.release = on_release;
    self->handler.private_data = self;
    self->request = request;
    self->is_greedy = is_greedy;
    self->cancel_at = cancel_at;
    self->refuse_at = refuse_at;
    return self;
}

/* Returns 0 once the handler was released. */
int
peer_wait_for_consumer(consumer *self, int timeout_ms)
{
    return wait_until(&self->mutex, &self->changed, &self->is_released,
                      timeout_ms);
}

/* Call on any thread. */
void
peer_request(consumer *self, int64_t n)
{
    self->handler.producer->request(self->handler.producer, n);
}

void
peer_cancel(consumer *self)
{
    self->handler.producer->cancel(self->handler.producer);
}

long
peer_n_received(consumer *self)
{
    return __atomic_load_n(&self->n_batches, __ATOMIC_SEQ_CST);
}

int64_t
peer_sum(consumer *self)
{
    return self->sum;
}

int
peer_n_ends(consumer *self)
{
    return self->n_ends;
}

int
peer_code(consumer *self)
{
    return self->code;
}

const char *
peer_message(consumer *self)
{
    return self->message;
}

void
peer_free_consumer(consumer *self)
{
    free(self);
}
