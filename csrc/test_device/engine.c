/* Queues and events of the engine, its start and end. One lock, engine.lock,
 * guards everything here unless its comment says otherwise. A function whose name ends in _locked is called with the lock
 * held.
 */
#include "test_device/engine_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/list.h"
#include "base/os.h"
#include "base/process.h"
#include "test_device/engine_races.h"
#include "test_device/engine_runs.h"

/* The condition is initialised at the start, since a static initialiser cannot
 * choose its clock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* a mark or a queue advanced */
    int n_waiting;           /* threads waiting on `progress` */
    int64_t patience;        /* ms; < 0: endless */
    atomic_int n_devices;    /* readable without the lock */
    atomic_bool is_forked;   /* the same */
    bool is_quitting;
    int ended_errors[AD_ENGINE_MAX_DEVICES]; /* the first of queues that are
                                                gone */
} engine = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .patience = -1,
};

/* --- locking and waiting ------------------------------------------------- */

bool
ad_engine_is_forked(void)
{
    return atomic_load(&engine.is_forked);
}

int
ad_engine_n_devices(void)
{
    return ad_engine_is_forked() ? 0 : atomic_load(&engine.n_devices);
}

int
ad_engine_lock(void)
{
    if (ad_engine_is_forked()) {
        return AD_ENGINE_FORKED;
    }
    if (atomic_load(&engine.n_devices) == 0) {
        return AD_ENGINE_NOT_STARTED;
    }
    pthread_mutex_lock(&engine.lock);
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
    pthread_mutex_unlock(&engine.lock);
}

/* The time at which a wait of timeout_ms ends. INT64_MAX: never. */
static int64_t
deadline_locked(int64_t timeout_ms)
{
    int64_t wait = timeout_ms < 0 ? engine.patience : timeout_ms;
    int64_t now = ad_now();
    if (wait < 0 || wait > (INT64_MAX - now) / 1000000) {
        return INT64_MAX;
    }
    return now + wait * 1000000;
}

static void
sleep_locked(pthread_cond_t *cond, int64_t deadline)
{
    if (deadline == INT64_MAX) {
        pthread_cond_wait(cond, &engine.lock);
        return;
    }
    struct timespec until = {
        .tv_sec = (time_t)(deadline / 1000000000),
        .tv_nsec = (long)(deadline % 1000000000),
    };
    pthread_cond_timedwait(cond, &engine.lock, &until);
}

/* Sleep until there is progress, or until the deadline. False at the deadline,
 * and at once while the process exits, since there is no progress any more. */
static bool
await_progress_locked(int64_t deadline)
{
    if (engine.is_quitting ||
        (deadline != INT64_MAX && ad_now() >= deadline)) {
        return false;
    }
    engine.n_waiting++;
    sleep_locked(&engine.progress, deadline);
    engine.n_waiting--;
    return true;
}

static void
signal_progress_locked(void)
{
    if (engine.n_waiting > 0) {
        pthread_cond_broadcast(&engine.progress);
    }
}

/* --- handles ------------------------------------------------------------- */

/* The handle of slot `index`: tag in bits 56-62, then 32 bits of generation,
 * then the index. */
static uint64_t
make_handle(uint64_t tag, uint32_t generation, size_t index)
{
    return tag << 56 | (uint64_t)generation << 24 | index;
}

static size_t
index_of_handle(uint64_t handle)
{
    return handle & 0xffffff;
}

enum {
    MAX_HANDLES = 1 << 24
};

/* --- marks --------------------------------------------------------------- */

/* A point in a queue's work. Events and waiting queues hold references. So an
 * event can be recorded again or destroyed while others wait for its earlier
 * record. */
typedef struct queue_mark {
    size_t n_refs;
    bool is_done;
    bool is_armed; /* only ad_engine_event_fire completes it */
    int error;
    int64_t time;    /* of completion */
    ad_order *order; /* engine_races.h */
    int64_t asked;   /* time of the first late query; 0: none */
    int n_asked;     /* late queries */
} queue_mark;

/* The caller owns the one reference. NULL: no memory. */
static queue_mark *
new_mark(void)
{
    queue_mark *mark = calloc(1, sizeof(*mark));
    if (mark != NULL) {
        mark->n_refs = 1;
    }
    return mark;
}

static queue_mark *
ref_mark_locked(queue_mark *mark)
{
    if (mark != NULL) {
        mark->n_refs++;
    }
    return mark;
}

static void
unref_mark_locked(queue_mark *mark)
{
    if (mark != NULL && --mark->n_refs == 0) {
        ad_races_free_locked(mark->order);
        free(mark);
    }
}

static void
complete_mark_locked(queue_mark *mark, int error)
{
    if (!mark->is_done) {
        if (mark->is_armed) {
            ad_races_fired_locked(mark->order);
        }
        mark->is_done = true;
        mark->is_armed = false;
        mark->error = error;
        mark->time = ad_now();
        signal_progress_locked();
    }
}

/* --- queues -------------------------------------------------------------- */

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
    ad_engine_run run;
    queue_mark *mark;   /* a reference */
    int64_t not_before; /* 0: the delay has not begun */
    ad_order *order;    /* of all up to it; engine_races.h */
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
    ad_order *order;
    uint32_t place; /* that created it */
} queue;

static AD_LIST(queue *) queues;

/* That of the live queue, or of the last one. */
static uint64_t
handle_of_slot(const queue *q)
{
    return make_handle(QUEUE_TAG, q->generation, q->index);
}

/* The order of a queue. A destroyed queue keeps it until its work is done. */
static ad_order *
order_locked(queue *q)
{
    return q->handle == 0
               ? q->order
               : ad_races_of_queue_locked(&q->order, q->handle, q->device,
                                          q->tag != NULL, q->place);
}

static queue *
find_queue_locked(uint64_t handle)
{
    size_t index = index_of_handle(handle);
    if (handle == 0 || index >= queues.n) {
        return NULL;
    }
    queue *q = queues.items[index];
    return q->handle == handle ? q : NULL;
}

/* A queue that is live, or is destroyed and still has work. */
static queue *
find_busy_queue_locked(uint64_t handle)
{
    size_t index = index_of_handle(handle);
    if (handle == 0 || index >= queues.n) {
        return NULL;
    }
    queue *q = queues.items[index];
    return q->is_used && handle_of_slot(q) == handle ? q : NULL;
}

/* Lock and look up. The lock is held only if this returns OK. */
static int
lock_found(uint64_t handle, queue *(*find)(uint64_t), queue **out)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    *out = find(handle);
    if (*out == NULL) {
        ad_engine_unlock();
        return AD_ENGINE_INVALID_QUEUE;
    }
    return AD_ENGINE_OK;
}

static int
lock_queue(uint64_t handle, queue **out)
{
    return lock_found(handle, find_queue_locked, out);
}

static queue *
new_slot_locked(void)
{
    if (queues.n == MAX_HANDLES ||
        ad_list_reserve(&queues, 1, NULL) != AD_OK) {
        return NULL;
    }
    queue *q = calloc(1, sizeof(*q));
    if (q == NULL || ad_cond_init(&q->wake) != 0) {
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
    uint32_t place = ad_races_here();
    int status = ad_engine_lock_device(device);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    queue *q = take_slot_locked();
    if (q == NULL) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        q->handle = make_handle(QUEUE_TAG, ++q->generation, q->index);
        q->is_used = true;
        q->device = device;
        q->tag = tag;
        q->data = data;
        q->n_holds = 0;
        q->n_steps = 0;
        q->delay = 0;
        q->error = AD_ENGINE_OK;
        q->place = place;
        (void)order_locked(q); /* numbered in the order of creation */
        *out = q->handle;
    }
    ad_engine_unlock();
    return status;
}

/* The queue is destroyed and its work is done: keep its error, and free the
 * slot. */
static void
end_queue_locked(queue *q)
{
    int *error = &engine.ended_errors[q->device];
    *error = *error != AD_ENGINE_OK ? *error : q->error;
    ad_races_queue_ends_locked(q->order);
    q->order = NULL;
    q->is_used = false;
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
    q->n_steps = 0;
    if (q->has_worker) {
        pthread_cond_signal(&q->wake); /* it ends once the work is done */
    } else {
        end_queue_locked(q);
    }
    ad_engine_unlock();
    return AD_ENGINE_OK;
}

/* --- the worker of a queue ----------------------------------------------- */

/* The next operation that is due. NULL: the thread ends. */
static op *
await_op_locked(queue *q)
{
    for (;;) {
        op *o = q->first;
        int64_t deadline = INT64_MAX;
        if (engine.is_quitting || (o == NULL && q->handle == 0)) {
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
            int64_t now = ad_now();
            if (o->not_before == 0) {
                o->not_before = now + q->delay * 1000;
            }
            if (now >= o->not_before) {
                return o;
            }
            deadline = o->not_before;
        }
        sleep_locked(&q->wake, deadline);
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
            o->run.start = ad_now();
            status = work_status(o->work(o->arg));
            o->run.end = ad_now();
            pthread_mutex_lock(&engine.lock);
            o->run.queue = handle_of_slot(q);
            o->run.device = q->device;
            ad_runs_add_locked(o->run);
            break;
        case OP_MARK:
            complete_mark_locked(o->mark, q->error);
            break;
        case OP_WAIT:
            while (!o->mark->is_done && !engine.is_quitting) {
                await_progress_locked(INT64_MAX);
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
    pthread_mutex_lock(&engine.lock);
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
        unref_mark_locked(o->mark);
        ad_races_free_locked(o->order);
        free(o);
        q->n_done++;
        signal_progress_locked();
    }
    q->has_worker = false;
    if (q->handle == 0 && q->first == NULL) {
        end_queue_locked(q);
    }
    ad_engine_unlock();
    return NULL;
}

static void
quit_queues_locked(void)
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
    ref_mark_locked(o->mark);
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

/* Takes a reference to the mark. The order of the queue includes what is
 * pushed. */
static int
push_in_order_locked(queue *q, op_kind kind, queue_mark *mark)
{
    int status = push_locked(q, (op){.kind = kind, .mark = mark});
    if (status == AD_ENGINE_OK) {
        q->last->order = ad_races_copy_locked(order_locked(q));
    }
    return status;
}

/* Append an operation that completes `mark`. Takes a reference of its own. */
static int
push_mark_locked(queue *q, queue_mark *mark)
{
    if (q == NULL) {
        return AD_ENGINE_INVALID_QUEUE;
    }
    mark->order = ad_races_copy_locked(order_locked(q));
    /* Behind a closed gate the mark is pending even if the queue is idle. */
    if (q->n_done == q->n_submitted && q->n_holds == 0) {
        complete_mark_locked(mark, q->error);
        return AD_ENGINE_OK;
    }
    return push_in_order_locked(q, OP_MARK, mark);
}

/* Append an operation that waits for `mark`. A NULL or completed mark needs
 * none. */
static int
push_wait_locked(queue *q, queue_mark *mark)
{
    if (q == NULL) {
        return AD_ENGINE_INVALID_QUEUE;
    }
    ad_races_wait_locked(order_locked(q), mark != NULL ? mark->order : NULL);
    if (mark == NULL || (mark->is_done && mark->error == AD_ENGINE_OK)) {
        return AD_ENGINE_OK;
    }
    return push_in_order_locked(q, OP_WAIT, mark);
}

static int
enqueue(uint64_t handle, queue *(*find)(uint64_t), ad_engine_work work,
        void *arg, const ad_engine_use *uses, size_t n)
{
    queue *q;
    uint32_t place = ad_races_here();
    int status = lock_found(handle, find, &q);
    if (status == AD_ENGINE_OK) {
        int64_t now = ad_now();
        status = push_locked(q, (op){.kind = OP_WORK,
                                     .work = work,
                                     .arg = arg,
                                     .run = ad_runs_of(uses, n, place, now)});
        if (status == AD_ENGINE_OK) {
            ad_races_work_locked(order_locked(q), uses, n, false, place, now);
            q->last->order = ad_races_copy_locked(order_locked(q));
        }
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_enqueue_use(uint64_t handle, ad_engine_work work, void *arg,
                      const ad_engine_use *uses, size_t n)
{
    return enqueue(handle, find_queue_locked, work, arg, uses, n);
}

int
ad_engine_enqueue_last(uint64_t handle, ad_engine_work work, void *arg,
                       const ad_engine_use *uses, size_t n)
{
    return enqueue(handle, find_busy_queue_locked, work, arg, uses, n);
}

int
ad_engine_enqueue(uint64_t handle, ad_engine_work work, void *arg)
{
    return ad_engine_enqueue_use(handle, work, arg, NULL, 0);
}

void
ad_engine_refuse_use(uint64_t handle, const ad_engine_use *uses, size_t n)
{
    queue *q;
    uint32_t place = ad_races_here();
    if (lock_queue(handle, &q) == AD_ENGINE_OK) {
        ad_races_work_locked(order_locked(q), uses, n, true, place, ad_now());
        ad_engine_unlock();
    }
}

/* Whether there was such a queue, which is destroyed and has no work. */
static bool
has_ended_locked(uint64_t handle)
{
    size_t index = index_of_handle(handle);
    return index < queues.n && handle >= make_handle(QUEUE_TAG, 1, index) &&
           handle <= handle_of_slot(queues.items[index]) &&
           find_busy_queue_locked(handle) == NULL;
}

/* What is now on the other queue, as a mark for which `q` waits. */
static int
wait_for_queue_locked(queue *q, uint64_t other)
{
    if (has_ended_locked(other)) {
        ad_races_wait_locked(order_locked(q), ad_races_ended_locked(other));
        return AD_ENGINE_OK;
    }
    queue_mark *mark = new_mark();
    if (mark == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    int status = push_mark_locked(find_busy_queue_locked(other), mark);
    if (status == AD_ENGINE_OK) {
        status = push_wait_locked(q, mark);
    }
    unref_mark_locked(mark);
    return status;
}

int
ad_engine_queue_wait_queue(uint64_t handle, uint64_t other)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        status = wait_for_queue_locked(q, other);
        ad_engine_unlock();
    }
    return status;
}

/* --- waiting for queues -------------------------------------------------- */

/* Wait until all work submitted by now is done. Ignores the queue's error. */
static int
drain_locked(queue *q, int64_t deadline)
{
    int status = AD_ENGINE_OK;
    uint64_t target = q->n_submitted;
    ad_order *order = ad_races_copy_locked(order_locked(q));
    while (status == AD_ENGINE_OK && q->n_done < target) {
        if (!await_progress_locked(deadline)) {
            status = AD_ENGINE_TIMEOUT;
        }
    }
    if (status == AD_ENGINE_OK) {
        ad_races_host_knows_locked(order);
    }
    ad_races_free_locked(order);
    return status;
}

int
ad_engine_queue_query(uint64_t handle)
{
    queue *q;
    int status = lock_queue(handle, &q);
    if (status == AD_ENGINE_OK) {
        status = AD_ENGINE_NOT_READY;
        if (q->n_done == q->n_submitted) {
            status = q->error;
            ad_races_host_knows_locked(order_locked(q));
        }
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_queue_synchronize(uint64_t handle, int64_t timeout_ms)
{
    queue *q;
    int status = lock_found(handle, find_busy_queue_locked, &q);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    status = drain_locked(q, deadline_locked(timeout_ms));
    if (status == AD_ENGINE_OK) {
        status =
            handle_of_slot(q) == handle ? q->error : AD_ENGINE_INVALID_QUEUE;
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

/* The first error of destroyed queues of a device (-1: of all). */
static int
ended_error_locked(int device)
{
    int error = AD_ENGINE_OK;
    for (int i = 0; i < AD_ENGINE_MAX_DEVICES && error == AD_ENGINE_OK; i++) {
        error = device < 0 || i == device ? engine.ended_errors[i] : error;
    }
    return error;
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
    int64_t deadline = deadline_locked(timeout_ms);
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
    if (status == AD_ENGINE_OK && tag == NULL) {
        ad_races_host_knows_ended_locked(device);
        first_error = first_error != AD_ENGINE_OK ? first_error
                                                  : ended_error_locked(device);
    }
    ad_engine_unlock();
    return status != AD_ENGINE_OK ? status : first_error;
}

/* --- properties of queues ------------------------------------------------ */

int
ad_engine_queue_is_busy(uint64_t handle, int64_t *out)
{
    int status = ad_engine_lock();
    if (status == AD_ENGINE_OK) {
        const queue *q = find_busy_queue_locked(handle);
        *out = q != NULL && q->n_done < q->n_submitted;
        ad_engine_unlock();
    }
    return status;
}

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
        q->n_steps = q->n_holds > 0 ? q->n_steps : 0;
        pthread_cond_signal(&q->wake);
    } else {
        status = AD_ENGINE_INVALID_VALUE;
    }
    ad_engine_unlock();
    return status;
}

/* The operation that the next step lets pass. NULL: there is none. */
static op *
next_step_locked(const queue *q)
{
    op *o = q->first;
    for (int i = 0; i < q->n_steps && o != NULL; i++) {
        o = o->next;
    }
    return o;
}

/* Lets the operation pass. Steps of other threads pass before it. */
static int
pass_locked(queue *q, op *o)
{
    int status = AD_ENGINE_OK;
    uint64_t target = q->n_begun + (uint64_t)++q->n_steps;
    int64_t deadline = deadline_locked(-1);
    /* What the host knows then; the worker frees that of the operation. */
    ad_order *order = ad_races_copy_locked(o->order);
    pthread_cond_signal(&q->wake);
    while (q->n_done < target && status == AD_ENGINE_OK) {
        if (!await_progress_locked(deadline)) {
            status = AD_ENGINE_TIMEOUT;
        }
    }
    if (status == AD_ENGINE_OK) {
        ad_races_host_knows_locked(order);
    } else if (q->n_steps > 0 && q->n_begun < target) {
        q->n_steps--;
    }
    ad_races_free_locked(order);
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
    op *o = next_step_locked(q);
    if (q->n_holds == 0) {
        status = AD_ENGINE_INVALID_VALUE;
    } else if (o == NULL || (o->kind == OP_WAIT && !o->mark->is_done)) {
        status = AD_ENGINE_NOT_READY;
    } else {
        status = pass_locked(q, o);
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

static void
reset_queues_locked(void)
{
    for (size_t i = 0; i < queues.n; i++) {
        queue *q = queues.items[i];
        q->n_holds = 0;
        q->n_steps = 0;
        q->delay = 0;
        q->error = AD_ENGINE_OK;
        pthread_cond_signal(&q->wake);
    }
    memset(engine.ended_errors, 0, sizeof(engine.ended_errors));
}

static void
count_queues_locked(const void *tag, ad_engine_counts *out)
{
    for (size_t i = 0; i < queues.n; i++) {
        const queue *q = queues.items[i];
        if (q->handle != 0 && (tag == NULL || q->tag == tag)) {
            out->queues++;
        }
        out->pending += (size_t)(q->n_submitted - q->n_done);
    }
}

/* --- events -------------------------------------------------------------- */

/* Tag of event handles. */
enum {
    EVENT_TAG = 0x45,
    SLAB_SIZE = 1024,
    MAX_SLABS = 4096
};

/* `handle` is the first member: its address is the event's address. */
typedef struct event {
    uint64_t handle; /* 0: not live */
    uint32_t generation;
    size_t index;
    void *tag;
    void *data;
    queue_mark *mark; /* of the last record; NULL: never recorded */
    struct event *next_free;
} event;

/* Slots are in slabs that never move and are never freed, so an address is
 * recognized by comparison alone. Slots are reused in the order in which they
 * became free, so a stale address is detected for as long as possible. */
static struct {
    event *slabs[MAX_SLABS];
    size_t n_slabs;
    event *free_first;
    event *free_last;
} events;

/* An armed mark that is replaced can no longer be fired. */
static void
set_mark_locked(event *e, queue_mark *mark)
{
    if (e->mark != NULL && e->mark->is_armed) {
        complete_mark_locked(e->mark, AD_ENGINE_OK);
    }
    unref_mark_locked(e->mark);
    e->mark = mark;
}

static void
push_free_locked(event *e)
{
    e->next_free = NULL;
    if (events.free_last != NULL) {
        events.free_last->next_free = e;
    } else {
        events.free_first = e;
    }
    events.free_last = e;
}

static bool
grow_locked(void)
{
    if (events.n_slabs == MAX_SLABS) {
        return false;
    }
    event *slab = calloc(SLAB_SIZE, sizeof(*slab));
    if (slab == NULL) {
        return false;
    }
    for (size_t i = 0; i < SLAB_SIZE; i++) {
        slab[i].index = events.n_slabs * SLAB_SIZE + i;
        push_free_locked(&slab[i]);
    }
    events.slabs[events.n_slabs++] = slab;
    return true;
}

static event *
find_event_locked(uint64_t handle)
{
    size_t index = index_of_handle(handle);
    if (handle == 0 || index >= events.n_slabs * SLAB_SIZE) {
        return NULL;
    }
    event *e = &events.slabs[index / SLAB_SIZE][index % SLAB_SIZE];
    return e->handle == handle ? e : NULL;
}

/* Lock and look up. The lock is held only if this returns OK. */
static int
lock_event(uint64_t handle, event **out)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    *out = find_event_locked(handle);
    if (*out == NULL) {
        ad_engine_unlock();
        return AD_ENGINE_INVALID_EVENT;
    }
    return AD_ENGINE_OK;
}

int
ad_engine_event_create(int device, void *tag, void *data, uint64_t *out)
{
    int status = ad_engine_lock_device(device);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (events.free_first == NULL && !grow_locked()) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        event *e = events.free_first;
        events.free_first = e->next_free;
        if (events.free_first == NULL) {
            events.free_last = NULL;
        }
        e->handle = make_handle(EVENT_TAG, ++e->generation, e->index);
        e->tag = tag;
        e->data = data;
        *out = e->handle;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_destroy(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    set_mark_locked(e, NULL);
    e->handle = 0;
    push_free_locked(e);
    ad_engine_unlock();
    return AD_ENGINE_OK;
}

int
ad_engine_event_data(uint64_t handle, void **out)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        *out = e->data;
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_event_address(uint64_t handle, const uint64_t **out)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        *out = &e->handle;
        ad_engine_unlock();
    }
    return status;
}

uint64_t
ad_engine_event_at(const void *address)
{
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return 0;
    }
    uint64_t handle = 0;
    uintptr_t wanted = (uintptr_t)address;
    for (size_t i = 0; i < events.n_slabs; i++) {
        uintptr_t distance = wanted - (uintptr_t)events.slabs[i];
        if (distance < SLAB_SIZE * sizeof(event) &&
            distance % sizeof(event) == 0) {
            handle = events.slabs[i][distance / sizeof(event)].handle;
            break;
        }
    }
    ad_engine_unlock();
    return handle;
}

int
ad_engine_event_record(uint64_t handle, uint64_t queue)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    queue_mark *mark = new_mark();
    if (mark == NULL) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        status = push_mark_locked(find_queue_locked(queue), mark);
    }
    if (status == AD_ENGINE_OK) {
        if (mark->order != NULL) { /* races are searched */
            ad_races_recorded_locked(order_locked(find_queue_locked(queue)));
        }
        set_mark_locked(e, mark);
    } else {
        unref_mark_locked(mark);
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_queue_wait(uint64_t queue, uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        status = push_wait_locked(find_queue_locked(queue), e->mark);
        ad_engine_unlock();
    }
    return status;
}

static int
query_mark_locked(queue_mark *mark)
{
    if (mark == NULL) {
        return AD_ENGINE_OK;
    }
    if (!mark->is_done) {
        return AD_ENGINE_NOT_READY;
    }
    ad_races_host_knows_locked(mark->order);
    return mark->error;
}

int
ad_engine_event_query(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        status = query_mark_locked(e->mark);
        ad_engine_unlock();
    }
    return status;
}

/* Both are exceeded by whoever polls, and by nobody who asks in passing. The
 * thread of the deferred releases polls, too, and what it is told the host
 * knows: it is told when it has waited as long as few tests take. */
enum {
    LATE_QUERIES = 16,
    LATE_MS = 50,
    LATE_MS_IN_BACKGROUND = 2000
};

static bool
is_late_enough_locked(queue_mark *mark, bool is_in_background)
{
    int64_t late = is_in_background ? LATE_MS_IN_BACKGROUND : LATE_MS;
    if (mark == NULL || ad_races_is_known_locked(mark->order)) {
        return true;
    }
    int64_t now = ad_now();
    mark->asked = mark->asked != 0 ? mark->asked : now;
    return ++mark->n_asked > LATE_QUERIES &&
           now - mark->asked > late * 1000000;
}

int
ad_engine_event_query_late(uint64_t handle)
{
    event *e;
    bool is_in_background = ad_races_here() == 0;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        status = is_late_enough_locked(e->mark, is_in_background)
                     ? query_mark_locked(e->mark)
                     : AD_ENGINE_NOT_READY;
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_event_synchronize(uint64_t handle, int64_t timeout_ms)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    queue_mark *mark = ref_mark_locked(e->mark);
    if (mark != NULL) {
        int64_t deadline = deadline_locked(timeout_ms);
        while (!mark->is_done && await_progress_locked(deadline)) {
        }
        status = mark->is_done ? query_mark_locked(mark) : AD_ENGINE_TIMEOUT;
        unref_mark_locked(mark);
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_time(uint64_t handle, int64_t *out)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (e->mark != NULL && e->mark->is_done) {
        *out = e->mark->time;
    } else {
        status = AD_ENGINE_NOT_READY;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_arm(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    queue_mark *mark = new_mark();
    if (mark != NULL) {
        mark->is_armed = true;
        mark->order = ad_races_armed_locked();
        set_mark_locked(e, mark);
    } else {
        status = AD_ENGINE_OUT_OF_MEMORY;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_fire(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (e->mark != NULL && e->mark->is_armed) {
        complete_mark_locked(e->mark, AD_ENGINE_OK);
    } else {
        status = AD_ENGINE_INVALID_VALUE;
    }
    ad_engine_unlock();
    return status;
}

static void
reset_events_locked(void)
{
    for (size_t i = 0; i < events.n_slabs * SLAB_SIZE; i++) {
        event *e = &events.slabs[i / SLAB_SIZE][i % SLAB_SIZE];
        if (e->mark == NULL) {
            continue;
        }
        if (e->mark->is_armed) {
            complete_mark_locked(e->mark, AD_ENGINE_OK);
        }
        e->mark->error = AD_ENGINE_OK;
    }
}

static void
count_events_locked(const void *tag, ad_engine_counts *out)
{
    for (size_t i = 0; i < events.n_slabs * SLAB_SIZE; i++) {
        const event *e = &events.slabs[i / SLAB_SIZE][i % SLAB_SIZE];
        if (e->handle != 0 && (tag == NULL || e->tag == tag)) {
            out->events++;
        }
    }
}

/* --- start, fork, exit --------------------------------------------------- */

/* A child has no workers, and the lock may be held by a thread that does not
 * exist there. So the child never takes it. */
static void
on_fork(void)
{
    atomic_store(&engine.is_forked, true);
}

static ad_child_hook child_hook = {.run = on_fork};

static void
on_exit_(void)
{
    if (ad_engine_lock() == AD_ENGINE_OK) {
        engine.is_quitting = true;
        quit_queues_locked();
        signal_progress_locked();
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
    if (ad_cond_init(&engine.progress) != 0) {
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
    pthread_mutex_lock(&engine.lock);
    int status = AD_ENGINE_OK;
    int n = atomic_load(&engine.n_devices);
    if (n == 0) {
        status = start_locked();
    }
    if (status == AD_ENGINE_OK && n < n_devices) {
        atomic_store(&engine.n_devices, n_devices);
    }
    pthread_mutex_unlock(&engine.lock);
    return status;
}

/* --- all parts at once --------------------------------------------------- */

void
ad_engine_set_patience(int64_t milliseconds)
{
    if (ad_engine_lock() == AD_ENGINE_OK) {
        engine.patience = milliseconds;
        ad_engine_unlock();
    }
}

int64_t
ad_engine_patience(void)
{
    int64_t patience = -1;
    if (ad_engine_lock() == AD_ENGINE_OK) {
        patience = engine.patience;
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
    engine.patience = -1;
    reset_queues_locked();
    reset_events_locked();
    ad_engine_memory_reset_locked();
    signal_progress_locked();
    ad_engine_unlock();
    ad_engine_fail_at(0, NULL, 0, false);
}

void
ad_engine_count(const void *tag, ad_engine_counts *out)
{
    *out = (ad_engine_counts){0};
    if (ad_engine_lock() == AD_ENGINE_OK) {
        count_queues_locked(tag, out);
        count_events_locked(tag, out);
        ad_engine_memory_count_locked(tag, out);
        ad_engine_unlock();
    }
}
