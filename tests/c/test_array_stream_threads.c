/* Pull streams on several threads: batches and schemas are released on another
 * thread, and structs are exported on one thread and read on another. A stream
 * has one caller at a time, as the specification demands. Meant for
 * ThreadSanitizer.
 */
#include <errno.h>
#include <pthread.h>

#include "stream/array_stream.h"
#include "trees.h"

#define TYPE ARROW_DEVICE_EXT_DEV /* no runtime is loaded for it */
#define N_THREADS 4
#define N_BATCHES 400
#define N_COLUMNS 3

/* --- a producer ------------------------------------------------------------ */

typedef struct producer {
    int n_given;
    int n_batches;
    atomic_int n_released;
} producer;

static int
get_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out)
{
    *out = tree_take_schema(tree_wide_schema(N_COLUMNS));
    return 0;
}

/* The length of a batch is its number, from 1 on. */
static int
get_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out)
{
    producer *p = self->private_data;
    if (p->n_given == p->n_batches) {
        out->array.release = NULL;
        return 0;
    }
    p->n_given++;
    *out =
        tree_take_array(tree_wide_array(N_COLUMNS, p->n_given), &p->n_given);
    out->device_type = TYPE;
    out->device_id = 0;
    return 0;
}

static const char *
get_last_error(struct ArrowDeviceArrayStream *self)
{
    return NULL;
}

static void
release(struct ArrowDeviceArrayStream *self)
{
    producer *p = self->private_data;
    atomic_fetch_add(&p->n_released, 1);
    self->release = NULL;
}

static ad_array_stream *
open_stream(producer *p, int n_batches)
{
    *p = (producer){.n_batches = n_batches};
    struct ArrowDeviceArrayStream foreign = {
        TYPE, get_schema, get_next, get_last_error, release, p};
    ad_array_stream *stream;
    CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, NULL),
              AD_OK);
    return stream;
}

static struct ArrowDeviceArrayStream
exported(ad_array_stream *stream)
{
    struct ArrowDeviceArrayStream *holder, moved;
    CHECK_INT(ad_array_stream_export_device(stream, &holder, NULL), AD_OK);
    moved = *holder;
    holder->release = NULL;
    ad_device_stream_holder_free(holder);
    return moved;
}

/* Checks that everything from the producer was released. */
static void
check_all_gone(producer *p)
{
    CHECK_INT(atomic_load(&p->n_released), 1);
    CHECK_INT(atomic_load(&live_schemas), 0);
    CHECK_INT(atomic_load(&live_arrays), 0);
}

static void
run_all(void *(*run)(void *), void *context)
{
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, run, context), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    }
}

/* --- one stream, read by several threads in turn --------------------------- */

typedef struct shared {
    pthread_mutex_t mutex;
    ad_array_stream *stream;              /* read directly, or */
    struct ArrowDeviceArrayStream *moved; /* read through its struct */
    ad_array batches[N_BATCHES];          /* taken from the end */
    struct ArrowDeviceArray structs[N_BATCHES];
    int n_batches;
    atomic_long n_rows;
} shared;

/* --- batches released on other threads --------------------------------------- */

static void *
clear_batches(void *context)
{
    shared *self = context;
    ad_array batch = {0};
    do {
        ad_array_clear(&batch);
        pthread_mutex_lock(&self->mutex);
        if (self->n_batches > 0) {
            batch = self->batches[--self->n_batches];
        }
        pthread_mutex_unlock(&self->mutex);
    } while (batch.node != NULL);
    return NULL;
}

/* The stream is released first, then the batches; the last batch frees the
 * schema, on any thread. */
static void
test_batches_outlive_stream_on_other_threads(void)
{
    producer p;
    shared self = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    ad_array_stream *stream = open_stream(&p, N_BATCHES);
    bool is_end = false;
    while (self.n_batches < N_BATCHES) {
        CHECK_INT(ad_array_stream_next(stream, &self.batches[self.n_batches++],
                                       &is_end, NULL),
                  AD_OK);
        CHECK(!is_end);
    }
    ad_array_stream_unref(stream);
    CHECK_INT(atomic_load(&live_schemas), 1 + N_COLUMNS);
    run_all(clear_batches, &self);
    check_all_gone(&p);
}

/* --- from thread to thread -------------------------------------------------- */

/* Each thread has its own stream over one array. They share the array's owner
 * and schema. */
static void *
stream_of_shared(void *context)
{
    const ad_array *array = context;
    for (int i = 0; i < N_BATCHES; i++) {
        ad_array_stream *stream;
        ad_array batch;
        bool is_end;
        CHECK_INT(ad_array_stream_from_array(array, &stream, NULL), AD_OK);
        struct ArrowDeviceArrayStream moved = exported(stream);
        ad_array_stream_unref(stream);
        CHECK_INT(ad_array_stream_from_device(&moved, false, &stream, NULL),
                  AD_OK);
        CHECK_INT(ad_array_stream_next(stream, &batch, &is_end, NULL), AD_OK);
        CHECK(!is_end && batch.node == array->node);
        ad_array_stream_unref(stream);
        ad_array_clear(&batch);
    }
    return NULL;
}

static void
test_streams_of_one_array(void)
{
    producer p;
    ad_array_stream *stream = open_stream(&p, 1);
    ad_array array;
    bool is_end;
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, NULL), AD_OK);
    ad_array_stream_unref(stream);
    run_all(stream_of_shared, &array);
    ad_array_clear(&array);
    check_all_gone(&p);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_batches_outlive_stream_on_other_threads),
        CHECK_TEST(test_streams_of_one_array),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
