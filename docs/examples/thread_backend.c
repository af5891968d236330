/* The backend of a device that is made of threads: a stream is a thread that
 * does what was enqueued, and memory is the host's. One lock guards all. */
#include <Python.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrowdev.h"

#define N_DEVICES 2
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long n_pending[N_DEVICES]; /* jobs that are not done */

/* --- devices ------------------------------------------------------------- */

/* open_device is left out, so a device is its number. */
static int
number(void *device)
{
    return (int)(uintptr_t)device;
}

static int
device_count(void *self, int64_t *out, arrowdev_error *error)
{
    *out = N_DEVICES;
    return ARROWDEV_OK;
}

static int
synchronize(void *self, void *device, arrowdev_error *error)
{
    pthread_mutex_lock(&lock);
    while (n_pending[number(device)] > 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return ARROWDEV_OK;
}

/* --- memory -------------------------------------------------------------- */

typedef struct block {
    struct block *next;
    char *data;
    size_t nbytes;
    int device;
} block;
static block *blocks;

static int
allocate(void *self, void *device, void *stream, size_t nbytes, void **out,
         arrowdev_error *error)
{
    block *made = malloc(sizeof(*made));
    char *data =
        made != NULL ? aligned_alloc(64, (nbytes + 63) / 64 * 64) : NULL;
    if (data == NULL) {
        free(made);
        return ARROWDEV_NO_MEMORY;
    }
    *made = (block){.data = data, .nbytes = nbytes, .device = number(device)};
    pthread_mutex_lock(&lock);
    made->next = blocks;
    blocks = made;
    pthread_mutex_unlock(&lock);
    *out = data;
    return ARROWDEV_OK;
}

/* arrowdev has waited for the work on the memory: this table does not have
 * ARROWDEV_CAP_ORDERED_DEALLOCATE. */
static void
deallocate(void *self, void *device, void *stream, void *data, size_t nbytes)
{
    pthread_mutex_lock(&lock);
    block **link = &blocks;
    while ((*link)->data != data) {
        link = &(*link)->next;
    }
    block *found = *link;
    *link = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    free(data);
}

static int
memory_info(void *self, const void *data, arrowdev_memory_info *out,
            arrowdev_error *error)
{
    const uintptr_t at = (uintptr_t)data;
    pthread_mutex_lock(&lock);
    const block *found = blocks;
    while (found != NULL && at - (uintptr_t)found->data >= found->nbytes) {
        found = found->next;
    }
    *out = (arrowdev_memory_info){.is_known = found != NULL};
    out->device_id = found != NULL ? found->device : 0;
    pthread_mutex_unlock(&lock);
    return ARROWDEV_OK;
}

/* --- events -------------------------------------------------------------- */

/* sync_event of an array is the address of this struct. Whoever made it, its
 * job and those that wait for it have a reference each. */
typedef struct event {
    int is_done;
    long n_references;
} event;

static void
drop_locked(event *self)
{
    if (--self->n_references == 0) {
        free(self);
    }
}

static int
event_query(void *self, const arrowdev_event *asked, int32_t *is_done,
            arrowdev_error *error)
{
    pthread_mutex_lock(&lock);
    *is_done = ((event *)asked->sync_event)->is_done;
    pthread_mutex_unlock(&lock);
    return ARROWDEV_OK;
}

static void
wait_locked(const event *self)
{
    while (!self->is_done) {
        pthread_cond_wait(&changed, &lock);
    }
}

static int
event_wait(void *self, const arrowdev_event *waited, arrowdev_error *error)
{
    pthread_mutex_lock(&lock);
    wait_locked(waited->sync_event);
    pthread_mutex_unlock(&lock);
    return ARROWDEV_OK;
}

static void
event_destroy(void *self, const arrowdev_event *own)
{
    pthread_mutex_lock(&lock);
    drop_locked(own->sync_event);
    pthread_mutex_unlock(&lock);
}

/* --- streams ------------------------------------------------------------- */

typedef struct job {
    struct job *next;
    void (*run)(struct job *self); /* without the lock */
    arrowdev_copy copy;
    arrowdev_launch launch;
    event *of;
    int is_wait;
} job;

typedef struct stream {
    int device, is_held, is_over;
    job *first, **last;
} stream;

static void *
run_stream(void *argument)
{
    stream *self = argument;
    pthread_mutex_lock(&lock);
    while (!self->is_over || self->first != NULL) {
        job *next = self->is_held ? NULL : self->first;
        if (next == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        self->first = next->next;
        self->last = self->first != NULL ? self->last : &self->first;
        pthread_mutex_unlock(&lock);
        next->run(next);
        free(next);
        pthread_mutex_lock(&lock);
        n_pending[self->device]--;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    free(self);
    return NULL;
}

static int
stream_create(void *self, void *device, void **out, arrowdev_error *error)
{
    stream *made = calloc(1, sizeof(*made));
    pthread_t thread;
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    *made = (stream){.device = number(device), .last = &made->first};
    int code = pthread_create(&thread, NULL, run_stream, made);
    if (code != 0) {
        free(made);
        error->code = code;
        snprintf(error->call, sizeof(error->call), "pthread_create");
        snprintf(error->text, sizeof(error->text), "%s", strerror(code));
        return ARROWDEV_FAILED;
    }
    pthread_detach(thread);
    *out = made;
    return ARROWDEV_OK;
}

static void
stream_destroy(void *self, void *device, void *old)
{
    pthread_mutex_lock(&lock);
    ((stream *)old)->is_over = 1; /* its work is done all the same */
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int
stream_identity(void *self, void *named, int64_t *device_id, uint64_t *id,
                arrowdev_error *error)
{
    *device_id = ((stream *)named)->device;
    return ARROWDEV_OK;
}

static int
enqueue(stream *on, const job *wanted)
{
    job *made = malloc(sizeof(*made));
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    *made = *wanted;
    pthread_mutex_lock(&lock);
    *on->last = made;
    on->last = &made->next;
    n_pending[on->device]++;
    if (made->of != NULL) {
        made->of->n_references++;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return ARROWDEV_OK;
}

/* Records the event, or waits for it. */
static void
run_event(job *self)
{
    pthread_mutex_lock(&lock);
    if (self->is_wait) {
        wait_locked(self->of);
    }
    self->of->is_done = 1;
    drop_locked(self->of);
    pthread_mutex_unlock(&lock);
}

static int
event_record(void *self, void *device, void *on, void **sync_event,
             arrowdev_error *error)
{
    event *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    made->n_references = 1;
    *sync_event = made;
    int result = enqueue(on, &(job){.run = run_event, .of = made});
    if (result != ARROWDEV_OK) {
        free(made);
    }
    return result;
}

static int
stream_wait(void *self, void *device, void *on, const arrowdev_event *event,
            arrowdev_error *error)
{
    return enqueue(
        on, &(job){.run = run_event, .of = event->sync_event, .is_wait = 1});
}

static void
run_copy(job *self)
{
    const arrowdev_copy *copy = &self->copy;
    memcpy((char *)copy->target.data + copy->target.offset,
           (char *)copy->source.data + copy->source.offset, copy->width);
}

static int
copy_bytes(void *self, void *device, void *on, const arrowdev_copy *copy,
           arrowdev_error *error)
{
    return enqueue(on, &(job){.run = run_copy, .copy = *copy});
}

static void
run_kernel(job *self)
{
    self->launch.run(&self->launch);
}

static int
launch(void *self, void *device, void *on, const arrowdev_launch *wanted,
       arrowdev_error *error)
{
    return enqueue(on, &(job){.run = run_kernel, .launch = *wanted});
}

/* --- the module ---------------------------------------------------------- */

static const arrowdev_backend table = {
    .size = sizeof(table),
    .version = ARROWDEV_BACKEND_VERSION,
    .capabilities = ARROWDEV_CAP_IN_ORDER | ARROWDEV_CAP_SYNCHRONIZES_ALL,
    .name = "threads",
    .device_count = device_count,
    .synchronize = synchronize,
    .memory_info = memory_info,
    .allocate = allocate,
    .deallocate = deallocate,
    .copy_in = copy_bytes,
    .copy_out = copy_bytes,
    .copy_within = copy_bytes,
    .launch = launch,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_identity = stream_identity,
    .stream_wait = stream_wait,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_destroy = event_destroy,
};

/* The function of an entry point: hexagon = "thread_backend:backend". */
static PyObject *
backend(PyObject *module, PyObject *args)
{
    int device_type = ARROW_DEVICE_HEXAGON;
    return PyArg_ParseTuple(args, "|i", &device_type)
               ? ArrowDev_BackendCapsule(device_type, &table)
               : NULL;
}

/* A new stream on a device, as a number. */
static PyObject *
new_stream(PyObject *module, PyObject *device)
{
    void *made;
    arrowdev_error error;
    int result = stream_create(NULL, PyLong_AsVoidPtr(device), &made, &error);
    return result == ARROWDEV_OK ? PyLong_FromVoidPtr(made) : PyErr_NoMemory();
}

/* hold(stream, True) lets a stream begin no work until hold(stream, False). */
static PyObject *
hold(PyObject *module, PyObject *args)
{
    unsigned long long handle;
    int is_held;
    if (!PyArg_ParseTuple(args, "Kp", &handle, &is_held)) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    ((stream *)(uintptr_t)handle)->is_held = is_held;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {{"backend", backend, METH_VARARGS, NULL},
                                {"new_stream", new_stream, METH_O, NULL},
                                {"hold", hold, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "thread_backend",
                                        .m_methods = methods};

PyMODINIT_FUNC
PyInit_thread_backend(void)
{
    return PyModule_Create(&definition);
}
