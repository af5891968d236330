/* Queues and their workers. */
#include "device/software/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/process.h"

/* Tag of queue handles. */
enum {
    QUEUE_TAG = 0x51
};

typedef enum op_kind {
    OP_WORK,
    OP_MARK, /* complete `mark` */
    OP_WAIT  /* wait for `mark` */
} op_kind;

typedef struct op {
    struct op *next;
    op_kind kind;
    ad_engine_work work;
    void *arg;
    ad_engine_mark *mark; /* a reference */
    int64_t not_before;   /* 0: the delay has not begun */
} op;

/* A slot. Later queues reuse it, and it is never freed. Reuse does not reset
 * the three counters, so that a wait for an earlier queue stays correct. */
typedef struct queue {
    uint64_t handle; /* 0: not live; pending work may still run */
    uint32_t generation;
    size_t index;
    bool is_used; /* live, or its worker still runs */
    bool has_worker;
    int device;
    void *tag;
    void *data;
    pthread_cond_t wake; /* new work, an opened gate, or the end */
    op *first;
    op *last;
    uint64_t n_submitted;
    uint64_t n_begun;
    uint64_t n_done;
    int n_holds;
    int n_steps;   /* operations that may pass the closed gate */
    int64_t delay; /* us */
    int error;     /* first error of its work */
} queue;

static AD_LIST(queue *) queues;

/* --- slots --------------------------------------------------------------- */

static queue *
find_locked(uint64_t handle)
{
    size_t index = ad_engine_handle_index(handle);
    if (handle == 0 || index >= queues.n) {
        return NULL;
    }
    queue *q = queues.items[index];
    return q->handle == handle ? q : NULL;
}

/* Lock and look up. The lock is held only if this returns OK. */
static int
lock_queue(uint64_t handle, queue **out)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    *out = find_locked(handle);
    if (*out == NULL) {
        ad_engine_unlock();
        return AD_ENGINE_INVALID_QUEUE;
    }
    return AD_ENGINE_OK;
}

static queue *
new_slot_locked(void)
{
    if (queues.n == AD_ENGINE_MAX_HANDLES ||
        ad_list_reserve(&queues, 1, NULL) != AD_OK) {
        return NULL;
    }
    queue *q = calloc(1, sizeof(*q));
    if (q == NULL || ad_cond_init_monotonic(&q->wake) != 0) {
        free(q);
        return NULL;
    }
    q->index = queues.n;
    queues.items[queues.n++] = q;
    return q;
}

static queue *
take_slot_locked(void)
{
    for (size_t i = 0; i < queues.n; i++) {
        if (!queues.items[i]->is_used) {
            return queues.items[i];
        }
    }
    return new_slot_locked();
}

int
ad_engine_queue_create(int device, void *tag, void *data, uint64_t *out)
{
    int status = ad_engine_lock_device(device);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    queue *q = take_slot_locked();
    if (q == NULL) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        q->handle = ad_engine_handle(QUEUE_TAG, ++q->generation, q->index);
        q->is_used = true;
        q->device = device;
        q->tag = tag;
        q->data = data;
        q->n_holds = 0;
        q->n_steps = 0;
        q->delay = 0;
        q->error = AD_ENGINE_OK;
        *out = q->handle;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_queue_destroy(uint64_t handle)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    q->handle = 0;
    q->n_holds = 0;
    if (q->has_worker) {
        pthread_cond_signal(&q->wake);
    } else {
        q->is_used = false;
    }
    ad_engine_unlock();
    return AD_ENGINE_OK;
}

/* --- the worker ---------------------------------------------------------- */

/* The next operation that is due. NULL: the thread ends. */
static op *
await_op_locked(queue *q)
{
    for (;;) {
        op *o = q->first;
        int64_t deadline = INT64_MAX;
        if (ad_engine_.is_quitting || (o == NULL && q->handle == 0)) {
            return NULL;
        }
        if (o != NULL && q->n_steps > 0) {
            q->n_steps--;
            return o;
        }
        if (o != NULL && q->n_holds == 0) {
            if (o->kind != OP_WORK || q->delay == 0) {
                return o;
            }
            int64_t now = ad_engine_now();
            if (o->not_before == 0) {
                o->not_before = now + q->delay * 1000;
            }
            if (now >= o->not_before) {
                return o;
            }
            deadline = o->not_before;
        }
        ad_engine_sleep_locked(&q->wake, deadline);
    }
}

static int
work_status(int result)
{
    bool is_known = result >= 0 && result < AD_ENGINE_N_STATUS;
    return is_known ? result : AD_ENGINE_WORK_FAILED;
}

/* Releases the lock while it works or waits. */
static void
run_op_locked(queue *q, op *o)
{
    int status = AD_ENGINE_OK;
    switch (o->kind) {
        case OP_WORK:
            ad_engine_unlock();
            status = work_status(o->work(o->arg));
            pthread_mutex_lock(&ad_engine_.lock);
            break;
        case OP_MARK:
            ad_engine_mark_complete_locked(o->mark, q->error);
            break;
        case OP_WAIT:
            while (!o->mark->is_done && !ad_engine_.is_quitting) {
                ad_engine_await_locked(INT64_MAX);
            }
            /* An error of the awaited work carries over to this queue. */
            status = o->mark->error;
            break;
    }
    if (q->error == AD_ENGINE_OK) {
        q->error = status;
    }
}

static void *
worker_main(void *arg)
{
    queue *q = arg;
    pthread_mutex_lock(&ad_engine_.lock);
    for (;;) {
        op *o = await_op_locked(q);
        if (o == NULL) {
            break;
        }
        q->first = o->next;
        if (q->first == NULL) {
            q->last = NULL;
        }
        q->n_begun++;
        run_op_locked(q, o);
        ad_engine_mark_unref_locked(o->mark);
        free(o);
        q->n_done++;
        ad_engine_progress_locked();
    }
    q->has_worker = false;
    q->is_used = q->handle != 0 || q->first != NULL;
    ad_engine_unlock();
    return NULL;
}

void
ad_engine_queues_quit_locked(void)
{
    for (size_t i = 0; i < queues.n; i++) {
        pthread_cond_signal(&queues.items[i]->wake);
    }
}

/* --- submitting ---------------------------------------------------------- */

/* Takes a reference to the mark of `what`. */
static int
push_locked(queue *q, op what)
{
    op *o = malloc(sizeof(*o));
    if (o == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    /* Detached, so that no thread has to join it. */
    if (!q->has_worker && ad_thread_start(worker_main, q, NULL) != 0) {
        free(o);
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    q->has_worker = true;
    *o = what;
    ad_engine_mark_ref_locked(o->mark);
    if (q->last != NULL) {
        q->last->next = o;
    } else {
        q->first = o;
    }
    q->last = o;
    q->n_submitted++;
    pthread_cond_signal(&q->wake);
    return AD_ENGINE_OK;
}

int
ad_engine_push_mark_locked(uint64_t handle, ad_engine_mark *mark)
{
    queue *q = find_locked(handle);
    if (q == NULL) {
        return AD_ENGINE_INVALID_QUEUE;
    }
    /* Behind a closed gate the mark is pending even if the queue is idle. */
    if (q->n_done == q->n_submitted && q->n_holds == 0) {
        ad_engine_mark_complete_locked(mark, q->error);
        return AD_ENGINE_OK;
    }
    return push_locked(q, (op){.kind = OP_MARK, .mark = mark});
}

int
ad_engine_push_wait_locked(uint64_t handle, ad_engine_mark *mark)
{
    queue *q = find_locked(handle);
    if (q == NULL) {
        return AD_ENGINE_INVALID_QUEUE;
    }
    if (mark == NULL || (mark->is_done && mark->error == AD_ENGINE_OK)) {
        return AD_ENGINE_OK;
    }
    return push_locked(q, (op){.kind = OP_WAIT, .mark = mark});
}

int
ad_engine_enqueue(uint64_t handle, ad_engine_work work, void *arg)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        status =
            push_locked(q, (op){.kind = OP_WORK, .work = work, .arg = arg});
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_queue_wait_queue(uint64_t handle, uint64_t other)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    ad_engine_mark *mark = ad_engine_mark_new();
    if (find_locked(handle) == NULL) {
        status = AD_ENGINE_INVALID_QUEUE;
    } else if (mark == NULL) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        status = ad_engine_push_mark_locked(other, mark);
    }
    if (status == AD_ENGINE_OK) {
        status = ad_engine_push_wait_locked(handle, mark);
    }
    ad_engine_mark_unref_locked(mark);
    ad_engine_unlock();
    return status;
}

/* --- waiting ------------------------------------------------------------- */

/* Wait until all work submitted by now is done. Ignores the queue's error. */
static int
drain_locked(queue *q, int64_t deadline)
{
    uint64_t target = q->n_submitted;
    while (q->n_done < target) {
        if (!ad_engine_await_locked(deadline)) {
            return AD_ENGINE_TIMEOUT;
        }
    }
    return AD_ENGINE_OK;
}

int
ad_engine_queue_query(uint64_t handle)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        status = q->n_done == q->n_submitted ? q->error : AD_ENGINE_NOT_READY;
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_queue_synchronize(uint64_t handle, int64_t timeout_ms)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    status = drain_locked(q, ad_engine_deadline_locked(timeout_ms));
    if (status == AD_ENGINE_OK && q->handle == handle) {
        status = q->error;
    }
    ad_engine_unlock();
    return status;
}

static bool
is_of(const queue *q, int device, const void *tag)
{
    return q->is_used && (device < 0 || q->device == device) &&
           (tag == NULL || q->tag == tag);
}

int
ad_engine_synchronize(int device, const void *tag, int64_t timeout_ms)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (device >= ad_engine_n_devices()) {
        ad_engine_unlock();
        return AD_ENGINE_INVALID_DEVICE;
    }
    int64_t deadline = ad_engine_deadline_locked(timeout_ms);
    int first_error = AD_ENGINE_OK;
    for (size_t i = 0; status == AD_ENGINE_OK && i < queues.n; i++) {
        queue *q = queues.items[i];
        if (is_of(q, device, tag)) {
            status = drain_locked(q, deadline);
            if (first_error == AD_ENGINE_OK) {
                first_error = q->error;
            }
        }
    }
    ad_engine_unlock();
    return status != AD_ENGINE_OK ? status : first_error;
}

/* --- properties ---------------------------------------------------------- */

bool
ad_engine_queue_is_live(uint64_t handle)
{
    ad_engine_queue found;
    return ad_engine_queue_get(handle, &found) == AD_ENGINE_OK;
}

int
ad_engine_queue_get(uint64_t handle, ad_engine_queue *out)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        *out = (ad_engine_queue){q->device, q->data, q->delay};
        ad_engine_unlock();
    }
    return status;
}

size_t
ad_engine_queue_list(int device, const void *tag, uint64_t *out,
                     size_t capacity)
{
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return 0;
    }
    size_t n = 0;
    for (size_t i = 0; i < queues.n; i++) {
        const queue *q = queues.items[i];
        if (q->handle != 0 && is_of(q, device, tag)) {
            if (n < capacity) {
                out[n] = q->handle;
            }
            n++;
        }
    }
    ad_engine_unlock();
    return n;
}

int
ad_engine_queue_hold(uint64_t handle)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        q->n_holds++;
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_queue_release(uint64_t handle)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (q->n_holds > 0) {
        q->n_holds--;
        pthread_cond_signal(&q->wake);
    } else {
        status = AD_ENGINE_INVALID_VALUE;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_queue_step(uint64_t handle)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    const op *o = q->first;
    if (q->n_holds == 0) {
        status = AD_ENGINE_INVALID_VALUE;
    } else if (o == NULL || (o->kind == OP_WAIT && !o->mark->is_done)) {
        status = AD_ENGINE_NOT_READY;
    } else {
        /* Steps of other threads pass before this one. */
        uint64_t target = q->n_begun + (uint64_t)++q->n_steps;
        int64_t deadline = ad_engine_deadline_locked(-1);
        pthread_cond_signal(&q->wake);
        while (q->n_done < target && status == AD_ENGINE_OK) {
            if (!ad_engine_await_locked(deadline)) {
                status = AD_ENGINE_TIMEOUT;
            }
        }
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_queue_set_delay(uint64_t handle, int64_t microseconds)
{
    if (microseconds < 0 || microseconds > INT64_MAX / 4000) {
        return AD_ENGINE_INVALID_VALUE;
    }
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        q->delay = microseconds;
        pthread_cond_signal(&q->wake);
        ad_engine_unlock();
    }
    return status;
}

/* --- reset and count ----------------------------------------------------- */

void
ad_engine_queues_reset_locked(void)
{
    for (size_t i = 0; i < queues.n; i++) {
        queue *q = queues.items[i];
        q->n_holds = 0;
        q->delay = 0;
        q->error = AD_ENGINE_OK;
        pthread_cond_signal(&q->wake);
    }
}

void
ad_engine_queues_count_locked(const void *tag, ad_engine_counts *out)
{
    for (size_t i = 0; i < queues.n; i++) {
        const queue *q = queues.items[i];
        if (q->handle != 0 && (tag == NULL || q->tag == tag)) {
            out->queues++;
        }
        out->pending += (size_t)(q->n_submitted - q->n_done);
    }
}
