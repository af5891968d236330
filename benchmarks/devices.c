/* What devices.py needs in C: a loop over bare runtime calls, a library with
 * device tensors behind DLPack's C exchange API, a runtime that does nothing,
 * and arrowdev's core under a loop of its own. All loops take their time
 * themselves, in seconds. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "abi/arrow_c.h"
#include "abi/dlpack.h"
#include "order/sync.h"
#include "device/backend.h"

#define EXPORT __attribute__((visibility("default")))

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- bare calls ------------------------------------------------------------ */

typedef struct bare_call {
    int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t);
    uintptr_t arguments[4];
} bare_call;

EXPORT double
bare_loop(const bare_call *calls, long n_calls, long number, int *failed)
{
    double start = now();
    for (long i = 0; i < number; i++) {
        for (const bare_call *c = calls; c < calls + n_calls; c++) {
            *failed |= c->function(c->arguments[0], c->arguments[1],
                                   c->arguments[2], c->arguments[3]);
        }
    }
    return now() - start;
}

/* --- a library like torch ---------------------------------------------------- */

static int64_t shape[1] = {1000};
static int64_t strides[1] = {1};
static void *data;
static void *work_stream;

EXPORT void
library_set(void *pointer, void *stream)
{
    data = pointer;
    work_stream = stream;
}

static void
delete_tensor(ad_dl_managed_versioned *self)
{
    free(self);
}

static int
tensor_of(void *py_object, ad_dl_managed_versioned **out)
{
    (void)py_object;
    ad_dl_managed_versioned *made = malloc(sizeof(*made));
    if (made == NULL) {
        return -1;
    }
    *made = (ad_dl_managed_versioned){
        .version = {AD_DL_MAJOR, AD_DL_MINOR},
        .deleter = delete_tensor,
        .dl_tensor = {.data = data,
                      .device = {ARROW_DEVICE_CUDA, 0},
                      .ndim = 1,
                      .dtype = {AD_DL_INT, 64, 1},
                      .shape = shape,
                      .strides = strides},
    };
    *out = made;
    return 0;
}

/* Nothing is exchanged in this direction. */
static int
object_of(ad_dl_managed_versioned *tensor, void **out)
{
    (void)tensor;
    (void)out;
    return -1;
}

static int
current_stream(int32_t device_type, int32_t device_id, void **out)
{
    (void)device_type;
    (void)device_id;
    *out = work_stream;
    return 0;
}

EXPORT ad_dl_exchange_api library_table = {
    .header = {.version = {AD_DL_MAJOR, AD_DL_MINOR}},
    .managed_tensor_from_py_object_no_sync = tensor_of,
    .managed_tensor_to_py_object_no_sync = object_of,
    .current_work_stream = current_stream,
};

/* --- a runtime that does nothing ------------------------------------------------ */

/* What is left is arrowdev: under a driver, threads would meet at its lock. */

static ad_status
idle_load(ad_error *err)
{
    (void)err;
    return AD_OK;
}

static ad_status
idle_count(int64_t *out, ad_error *err)
{
    (void)err;
    *out = 1;
    return AD_OK;
}

static ad_status
idle_record(ad_context context, ad_stream stream, ad_event *event,
            ad_error *err)
{
    static int one_for_all;
    (void)context;
    (void)stream;
    (void)err;
    event->handle = &one_for_all;
    return AD_OK;
}

static ad_status
idle_wait(ad_context context, ad_stream stream, ad_event event, ad_error *err)
{
    (void)context;
    (void)stream;
    (void)event;
    (void)err;
    return AD_OK;
}

extern const struct ad_backend ad_backend_idle;

const struct ad_backend ad_backend_idle = {
    .name = "idle",
    .device_types = (const int32_t[]){ARROW_DEVICE_EXT_DEV, 0},
    .capabilities = AD_CAP_IN_ORDER | AD_CAP_EVENTS_REUSABLE,
    .load = idle_load,
    .count = idle_count,
    .event_record = idle_record,
    .stream_wait = idle_wait,
};

/* --- arrowdev's core ----------------------------------------------------------- */

typedef struct core_work {
    ad_stream_ref producer;
    ad_stream_ref consumer;
    long number;
    int failed;
} core_work;

/* What an import does: an event recorded on the producer's stream. */
static void
core_record(core_work *work)
{
    for (long i = 0; i < work->number; i++) {
        ad_sync *sync = NULL;
        work->failed |= ad_sync_pending(&work->producer, &sync, NULL) != AD_OK;
        ad_sync_unref(sync);
    }
}

/* What an export does: the consumer's stream waits for it. */
static void
core_wait(core_work *work)
{
    ad_sync *sync = NULL;
    work->failed |= ad_sync_pending(&work->producer, &sync, NULL) != AD_OK;
    for (long i = 0; i < work->number; i++) {
        work->failed |=
            ad_sync_order(sync, &work->consumer, "a loop", NULL) != AD_OK;
    }
    ad_sync_unref(sync);
}

static void
core_both(core_work *work)
{
    for (long i = 0; i < work->number; i++) {
        ad_sync *sync = NULL;
        work->failed |= ad_sync_pending(&work->producer, &sync, NULL) != AD_OK;
        work->failed |=
            ad_sync_order(sync, &work->consumer, "a loop", NULL) != AD_OK;
        ad_sync_unref(sync);
    }
}

static void (*const steps[])(core_work *) = {core_record, core_wait,
                                             core_both};

static ad_stream_ref
stream_at(int device_type, void *context, void *handle)
{
    return ad_stream_named((ad_context){{device_type, 0}, context},
                           (ad_stream){(uintptr_t)handle}, NULL);
}

EXPORT double
core_loop(int step, void *context, void *producer, void *consumer, long number,
          int *failed)
{
    core_work work = {
        .producer = stream_at(ARROW_DEVICE_CUDA, context, producer),
        .consumer = stream_at(ARROW_DEVICE_CUDA, context, consumer),
        .number = number,
    };
    double start = now();
    steps[step](&work);
    *failed |= work.failed;
    return now() - start;
}

static void *
run_thread(void *work)
{
    core_both(work);
    return NULL;
}

/* `number` exchanges in all, on so many threads with a stream each. */
EXPORT double
core_threads(int n_threads, int device_type, void *context,
             void *const *streams, long number, int *failed)
{
    pthread_t threads[64];
    core_work work[64];
    double start = now();
    for (int i = 0; i < n_threads; i++) {
        work[i] = (core_work){
            .producer = stream_at(device_type, context, streams[2 * i]),
            .consumer = stream_at(device_type, context, streams[2 * i + 1]),
            .number = number / n_threads,
        };
        pthread_create(&threads[i], NULL, run_thread, &work[i]);
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        *failed |= work[i].failed;
    }
    return now() - start;
}

/* --- the same calls, bare, on threads ------------------------------------------ */

typedef struct bare_work {
    const bare_call *calls; /* of this thread */
    long n_calls;
    long number;
    int failed;
} bare_work;

static void *
run_bare(void *argument)
{
    bare_work *work = argument;
    bare_loop(work->calls, work->n_calls, work->number, &work->failed);
    return NULL;
}

/* `n_calls` calls for each thread. */
EXPORT double
bare_threads(int n_threads, const bare_call *calls, long n_calls, long number,
             int *failed)
{
    pthread_t threads[64];
    bare_work work[64];
    double start = now();
    for (int i = 0; i < n_threads; i++) {
        work[i] = (bare_work){.calls = calls + i * n_calls,
                              .n_calls = n_calls,
                              .number = number / n_threads};
        pthread_create(&threads[i], NULL, run_bare, &work[i]);
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        *failed |= work[i].failed;
    }
    return now() - start;
}
