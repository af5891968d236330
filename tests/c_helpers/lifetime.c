/* A consumer and a producer in C, for tests/arrays/test_lifetime.py: releases on
 * threads unknown to Python, and structs whose releases are counted without
 * Python. Loaded with ctypes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/arrow_c.h"

/* The signature of every release and every DLPack deleter. */
typedef void (*release_fn)(void *);

/* --- consumers ----------------------------------------------------------- */

typedef struct call {
    release_fn release;
    void *argument;
    int delay_ms;
} call;

static void *
run(void *argument)
{
    call *self = argument;
    usleep((useconds_t)self->delay_ms * 1000);
    self->release(self->argument);
    free(self);
    return NULL;
}

static int
start(pthread_t *thread, release_fn release, void *argument, int delay_ms)
{
    call *self = malloc(sizeof(*self));
    *self = (call){release, argument, delay_ms};
    return pthread_create(thread, NULL, run, self);
}

/* On the calling thread. Holds the GIL only if ctypes does. */
void
helper_call(release_fn release, void *argument)
{
    release(argument);
}

int
helper_call_on_thread(release_fn release, void *argument)
{
    pthread_t thread;
    int result = start(&thread, release, argument, 0);
    return result != 0 ? result : pthread_join(thread, NULL);
}

int
helper_call_later(release_fn release, void *argument, int delay_ms)
{
    pthread_t thread;
    int result = start(&thread, release, argument, delay_ms);
    return result != 0 ? result : pthread_detach(thread);
}

/* With the GIL and an exception set. Returns 1 if the same exception is set
 * afterwards. */
int
helper_call_with_exception(release_fn release, void *argument)
{
    PyObject *type, *value, *traceback;
    PyErr_SetString(PyExc_KeyError, "on its way");
    release(argument);
    PyErr_Fetch(&type, &value, &traceback);
    int result = type == PyExc_KeyError;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return result;
}

/* All at the same time, argument i on thread i. */
int
helper_call_many(const release_fn *releases, void *const *arguments, int n)
{
    pthread_t *threads = malloc((size_t)n * sizeof(*threads));
    int result = 0;
    for (int i = 0; i < n; i++) {
        result |= start(&threads[i], releases[i], arguments[i], 0);
    }
    for (int i = 0; i < n; i++) {
        result |= pthread_join(threads[i], NULL);
    }
    free(threads);
    return result;
}

/* --- after finalization -------------------------------------------------- */

static call at_exit;
static int at_exit_on_thread;

static void
run_at_exit(void)
{
    static const char before[] = "after finalization\n";
    static const char after[] = "released\n";
    if (Py_IsInitialized()) {
        _exit(3);
    }
    (void)!write(1, before, sizeof(before) - 1);
    if (at_exit_on_thread) {
        helper_call_on_thread(at_exit.release, at_exit.argument);
    } else {
        at_exit.release(at_exit.argument);
    }
    (void)!write(1, after, sizeof(after) - 1);
}

/* The call runs after main() has returned, when the interpreter is
 * finalized. */
int
helper_call_at_exit(release_fn release, void *argument, int on_thread)
{
    at_exit = (call){release, argument, 0};
    at_exit_on_thread = on_thread;
    return atexit(run_at_exit);
}

/* --- a producer ---------------------------------------------------------- */

typedef struct counters {
    atomic_int schemas;
    atomic_int arrays;
    atomic_int twice;
    atomic_int without_gil; /* arrays */
} counters;

static int64_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7};
static const void *buffers[] = {NULL, numbers};

static void
release_schema(struct ArrowSchema *self)
{
    counters *count = self->private_data;
    if (self->release == NULL) {
        atomic_fetch_add(&count->twice, 1);
        return;
    }
    for (int64_t i = 0; i < self->n_children; i++) {
        if (self->children[i]->release != NULL) {
            self->children[i]->release(self->children[i]);
        }
        free(self->children[i]);
    }
    free(self->children);
    self->release = NULL;
    atomic_fetch_add(&count->schemas, 1);
}

static void
release_array(struct ArrowArray *self)
{
    counters *count = self->private_data;
    if (self->release == NULL) {
        atomic_fetch_add(&count->twice, 1);
        return;
    }
    for (int64_t i = 0; i < self->n_children; i++) {
        if (self->children[i]->release != NULL) {
            self->children[i]->release(self->children[i]);
        }
        free(self->children[i]);
    }
    free(self->children);
    self->release = NULL;
    atomic_fetch_add(&count->arrays, 1);
    atomic_fetch_add(&count->without_gil, !PyGILState_Check());
}

/* A struct of `n_children` int64 columns of 8 rows, or one int64 column if
 * `n_children` is 0. */
void
helper_produce(struct ArrowSchema *schema, struct ArrowArray *array,
               int64_t n_children, counters *count)
{
    *schema = (struct ArrowSchema){
        .format = n_children > 0 ? "+s" : "l",
        .name = "",
        .flags = n_children > 0 ? 0 : ARROW_FLAG_NULLABLE,
        .n_children = n_children,
        .release = release_schema,
        .private_data = count,
    };
    *array = (struct ArrowArray){
        .length = 8,
        .n_buffers = n_children > 0 ? 1 : 2,
        .buffers = buffers,
        .n_children = n_children,
        .release = release_array,
        .private_data = count,
    };
    if (n_children > 0) {
        schema->children = calloc((size_t)n_children, sizeof(void *));
        array->children = calloc((size_t)n_children, sizeof(void *));
    }
    for (int64_t i = 0; i < n_children; i++) {
        schema->children[i] = malloc(sizeof(*schema));
        array->children[i] = malloc(sizeof(*array));
        helper_produce(schema->children[i], array->children[i], 0, count);
    }
}
