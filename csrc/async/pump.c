#include "async/pump.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"

struct ad_async_pump {
    ad_owner base; /* one reference of the thread, one of the user */
    ad_async_pump_group *group;
    ad_async_producer *producer;
    ad_waker *waker;
    ad_array_stream *stream;
    ad_waker *done;
    atomic_bool is_stopped;
    atomic_bool is_over; /* set once the thread has written status and err */
    ad_status status;
    ad_error err;
    ad_async_pump *next; /* in `running` */
};

static ad_mutex lock = AD_MUTEX_INIT;
static ad_cond thread_gone; /* valid if has_condition */
static bool has_condition;
static ad_async_pump *running;

/* --- the thread ---------------------------------------------------------- */

/* AD_ASYNC_END also if the pump was stopped. */
static ad_async_poll
wait_for_credit(ad_async_pump *self)
{
    ad_async_poll poll = ad_async_producer_poll(self->producer);
    while (poll == AD_ASYNC_PENDING && !atomic_load(&self->is_stopped)) {
        ad_waker_wait(self->waker, -1);
        (void)ad_waker_clear(self->waker);
        poll = ad_async_producer_poll(self->producer);
    }
    return atomic_load(&self->is_stopped) ? AD_ASYNC_END : poll;
}

/* Reads a batch before the consumer requests it, because an end or an error
 * needs no request. */
static ad_status
send_all(ad_async_pump *self, ad_error *err)
{
    ad_async_poll poll;
    AD_RETURN_IF_ERR(ad_async_producer_start(
        self->producer, ad_array_stream_schema(self->stream), &poll, err));
    while (poll != AD_ASYNC_END && !atomic_load(&self->is_stopped)) {
        ad_array batch;
        bool is_end;
        AD_RETURN_IF_ERR(
            ad_array_stream_next(self->stream, &batch, &is_end, err));
        if (is_end) {
            return AD_OK;
        }
        ad_status status = AD_OK;
        poll = wait_for_credit(self);
        if (poll == AD_ASYNC_READY) {
            status = ad_async_producer_send(self->producer, &batch, NULL,
                                            &poll, err);
        }
        ad_array_clear(&batch);
        AD_RETURN_IF_ERR(status);
    }
    return AD_OK;
}

static void
send_failure(ad_async_pump *self, const ad_error *err)
{
    const char *text = ad_array_stream_last_error(self->stream);
    /* The code of a device error is the driver's, not an errno. */
    int code = err->status == AD_ERR_EXCHANGE && err->code != 0
                   ? err->code
                   : ad_array_stream_errno(err);
    /* Fails only during another call of the handler, and this thread makes all
     * calls. */
    ad_status refused = ad_async_producer_fail(
        self->producer, code, text != NULL ? text : err->message, NULL, err,
        NULL);
    (void)refused;
}

/* Closes a producer that was stopped, which fails the stream with ECANCELED.
 */
static ad_status
end_stream(ad_async_pump *self, ad_status status, ad_error *err)
{
    bool has_failed = status != AD_OK;
    if (has_failed) {
        send_failure(self, err);
    } else if (!atomic_load(&self->is_stopped)) {
        status = ad_async_producer_finish(self->producer, err);
    }
    ad_async_producer_close(self->producer);
    self->producer = NULL;
    if (!has_failed) {
        ad_array_stream_close(self->stream);
    }
    return status;
}

static void
leave_running(ad_async_pump *self)
{
    ad_mutex_lock(&lock);
    ad_async_pump **link = &running;
    while (*link != self) {
        link = &(*link)->next;
    }
    *link = self->next;
    ad_mutex_unlock(&lock);
}

static void *
run(void *context)
{
    ad_async_pump *self = context;
    ad_async_pump_group *group = self->group;
    ad_error err;
    self->status = end_stream(self, send_all(self, &err), &err);
    if (self->status != AD_OK) {
        self->err = err;
    }
    leave_running(self);
    ad_waker *done = self->done;
    ad_owner_ref(done != NULL ? &done->base : NULL);
    atomic_store(&self->is_over, true);
    ad_owner_unref(&self->base);
    if (done != NULL) {
        ad_waker_wake(done);
        ad_waker_unref(done);
    }
    ad_mutex_lock(&lock);
    group->n_threads--;
    ad_cond_broadcast(&thread_gone);
    ad_mutex_unlock(&lock);
    return NULL;
}

/* --- all pumps ----------------------------------------------------------- */

/* A forked child lacks the threads. */
static void
after_fork(void)
{
    ad_mutex_init(&lock);
    has_condition = false;
    running = NULL;
}

static ad_child_hook child_hook = {.run = after_fork};

/* Starts the thread. Returns 0 or an errno. */
static int
start_locked(ad_async_pump *self)
{
    ad_async_pump_group *group = self->group;
    if (group->has_ended) {
        return ECANCELED;
    }
    if (group->generation != ad_process_generation()) {
        group->generation = ad_process_generation();
        group->n_threads = 0;
    }
    int code = has_condition ? 0 : ad_cond_init(&thread_gone);
    has_condition = code == 0;
    return code == 0 ? ad_thread_start(run, self, NULL) : code;
}

static ad_status
enter_running(ad_async_pump *self, ad_error *err)
{
    (void)ad_process_add_child_hook(&child_hook);
    ad_mutex_lock(&lock);
    int code = start_locked(self);
    if (code == 0) {
        self->next = running;
        running = self;
        self->group->n_threads++;
    }
    ad_mutex_unlock(&lock);
    if (code == 0) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                   "cannot start the thread of the async stream: %s",
                   self->group->has_ended ? "the program is about to exit"
                                          : strerror(code));
}

void
ad_async_pump_stop_all(ad_async_pump_group *group)
{
    ad_mutex_lock(&lock);
    group->has_ended = true;
    for (ad_async_pump *pump = running; pump != NULL; pump = pump->next) {
        if (pump->group == group) {
            ad_async_pump_stop(pump);
        }
    }
    ad_mutex_unlock(&lock);
}

void
ad_async_pump_join_all(ad_async_pump_group *group, int64_t deadline)
{
    ad_mutex_lock(&lock);
    while (group->generation == ad_process_generation() &&
           group->n_threads > 0 &&
           ad_cond_wait_until(&thread_gone, &lock, deadline)) {
    }
    ad_mutex_unlock(&lock);
}

/* --- one pump ------------------------------------------------------------ */

static void
pump_destroy(ad_owner *base)
{
    ad_async_pump *self = (ad_async_pump *)base;
    ad_array_stream_unref(self->stream);
    ad_waker_unref(self->waker);
    ad_waker_unref(self->done);
    free(self);
}

static const ad_owner_ops pump_ops = {.destroy = pump_destroy, .name = "pump"};

ad_status
ad_async_pump_start(ad_async_pump_group *group, ad_async_producer *producer,
                    ad_waker *waker, ad_array_stream *stream, ad_waker *done,
                    ad_async_pump **out, ad_error *err)
{
    ad_async_pump *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    ad_owner_init(&self->base, &pump_ops);
    ad_owner_ref(&self->base);
    self->group = group;
    self->producer = producer;
    self->waker = waker;
    ad_owner_ref(&waker->base);
    self->stream = stream;
    self->done = done;
    ad_owner_ref(done != NULL ? &done->base : NULL);
    ad_async_producer_set_device_type(producer,
                                      ad_array_stream_device_type(stream));
    ad_status status = enter_running(self, err);
    if (status != AD_OK) {
        self->stream = NULL;
        pump_destroy(&self->base);
        return status;
    }
    *out = self;
    return AD_OK;
}

void
ad_async_pump_stop(ad_async_pump *self)
{
    atomic_store(&self->is_stopped, true);
    ad_waker_wake(self->waker);
}

bool
ad_async_pump_is_over(ad_async_pump *self, ad_status *status, ad_error *err)
{
    if (!atomic_load(&self->is_over)) {
        return false;
    }
    *status = self->status;
    if (*status != AD_OK) {
        *err = self->err;
    }
    return true;
}

ad_array_stream *
ad_async_pump_stream(ad_async_pump *self)
{
    return self->stream;
}

void
ad_async_pump_unref(ad_async_pump *self)
{
    ad_owner_unref(&self->base);
}
