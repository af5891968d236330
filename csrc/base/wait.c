#include "base/wait.h"

#include <stdlib.h>

#include "base/os.h"
#include "base/process.h"

/* Most work is complete after this spin and does not need a helper thread. */
#define SPIN_NS 100000L
/* The spin for work on the host: polling takes the CPU from that work, while a
 * blocking wait may run it. */
#define SPIN_ON_HOST_NS 5000L
/* The pauses of a wait that polls. */
#define PAUSES_PER_WAIT 32
#define LONGEST_PAUSE_NS 500000L
/* The interval at which a long wait checks for interruptions. */
#define POLL_NS 20000000L

ad_wait_hooks ad_hooks;
atomic_bool ad_has_interpreters;

void
ad_wait_set_hooks(ad_wait_hooks hooks)
{
    ad_hooks = hooks;
}

/* --- the helper thread --------------------------------------------------- */

/* The wait of a runtime cannot be interrupted. A helper thread blocks in it,
 * and the calling thread waits for the helper and may abandon it. Each of the
 * two holds a reference. */
typedef struct job {
    ad_owner base;
    ad_mutex lock;
    ad_cond done;
    ad_wait wait;
    bool is_done;
    ad_status status;
    ad_error error;
} job;

static void
job_destroy(ad_owner *base)
{
    job *self = (job *)base;
    ad_cond_destroy(&self->done);
    ad_mutex_destroy(&self->lock);
    free(self);
}

static const ad_owner_ops job_ops = {.destroy = job_destroy, .name = "wait"};

static void *
run(void *arg)
{
    job *self = arg;
    ad_error error;
    ad_status status = self->wait.wait(&self->wait, &error);
    ad_owner_unref(self->wait.subject);
    ad_mutex_lock(&self->lock);
    self->is_done = true;
    self->status = status;
    if (status != AD_OK) {
        self->error = error;
    }
    ad_cond_signal(&self->done);
    ad_mutex_unlock(&self->lock);
    ad_owner_unref(&self->base);
    return NULL;
}

/* Returns NULL where memory or a thread is not available. */
static job *
start(const ad_wait *wait)
{
    job *self = malloc(sizeof(*self));
    if (self == NULL) {
        return NULL;
    }
    *self = (job){.wait = *wait};
    if (ad_cond_init(&self->done) != 0) {
        free(self);
        return NULL;
    }
    ad_owner_init(&self->base, &job_ops);
    ad_mutex_init(&self->lock);
    ad_owner_ref(&self->base);
    ad_owner_ref(wait->subject);
    if (ad_thread_start(run, self, NULL) != 0) {
        ad_owner_unref(wait->subject);
        ad_owner_unref(&self->base);
        ad_owner_unref(&self->base);
        return NULL;
    }
    return self;
}

static bool
is_done_soon(job *self)
{
    const int64_t until = ad_now() + POLL_NS;
    ad_mutex_lock(&self->lock);
    while (!self->is_done &&
           ad_cond_wait_until(&self->done, &self->lock, until)) {
    }
    bool is_done = self->is_done;
    ad_mutex_unlock(&self->lock);
    return is_done;
}

/* A signal handler may fork. In the child no thread works on the job. */
static ad_status
await(job *self, void *saved, ad_error *err)
{
    const unsigned generation = ad_process_generation();
    while (!is_done_soon(self)) {
        if (ad_hooks.is_interrupted(saved)) {
            return ad_fail(err, AD_ERR_INTERRUPTED, NULL, NULL,
                           "the wait was interrupted");
        }
        if (generation != ad_process_generation()) {
            return ad_fail(err, AD_ERR_EXCHANGE, "runtime",
                           "wait for it in the parent",
                           "the work that is waited for was begun before this "
                           "process was forked off");
        }
    }
    if (self->status != AD_OK) {
        *err = self->error;
    }
    return self->status;
}

void
ad_wait_pause(int64_t begun)
{
    const int64_t waited = ad_now() - begun;
    const int64_t pause = waited / PAUSES_PER_WAIT;
    if (waited < SPIN_NS) {
        ad_yield();
    } else {
        ad_sleep(pause < LONGEST_PAUSE_NS ? pause : LONGEST_PAUSE_NS);
    }
}

bool
ad_wait_is_over_soon(const ad_wait *wait)
{
    int64_t end = ad_now() + (wait->on_host ? SPIN_ON_HOST_NS : SPIN_NS);
    do {
        if (wait->is_over(wait)) {
            return true;
        }
        ad_yield(); /* the device may be this CPU */
    } while (ad_now() < end);
    return false;
}

static ad_status
wait_interruptibly(const ad_wait *wait, void *saved, ad_error *err)
{
    bool is_over = wait->is_over != NULL && ad_wait_is_over_soon(wait);
    job *self = is_over ? NULL : start(wait);
    if (self == NULL) {
        return wait->wait(wait, err);
    }
    ad_status status = await(self, saved, err);
    ad_owner_unref(&self->base);
    return status;
}

ad_status
ad_wait_interruptible(const ad_wait *wait, ad_error *err)
{
    bool can_be_interrupted = err != NULL &&
                              ad_hooks.can_be_interrupted != NULL &&
                              ad_hooks.can_be_interrupted();
    void *saved = ad_wait_begin();
    ad_status status = can_be_interrupted
                           ? wait_interruptibly(wait, saved, err)
                           : wait->wait(wait, err);
    ad_wait_end(saved);
    return status;
}

void
ad_wait_pass_on(void)
{
    if (ad_hooks.pass_on != NULL) {
        ad_hooks.pass_on();
    }
}
