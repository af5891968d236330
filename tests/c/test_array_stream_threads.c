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

static bool
read_batch(shared *self, ad_array *out)
{
    bool is_end;
    pthread_mutex_lock(&self->mutex);
    CHECK_INT(ad_array_stream_next(self->stream, out, &is_end, NULL), AD_OK);
    pthread_mutex_unlock(&self->mutex);
    return !is_end;
}

static void *
read_in_turn(void *context)
{
    shared *self = context;
    ad_array batch, rows;
    while (read_batch(self, &batch)) {
        CHECK_STR(batch.schema.node->format, "+s");
        CHECK_INT(ad_array_slice(&batch, 0, 1, &rows, NULL), AD_OK);
        atomic_fetch_add(&self->n_rows, batch.length);
        ad_array_clear(&batch);
        ad_array_clear(&rows);
    }
    return NULL;
}

static void
test_readers_in_turn(void)
{
    producer p;
    shared self = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    self.stream = open_stream(&p, N_BATCHES);
    run_all(read_in_turn, &self);
    CHECK_INT(atomic_load(&self.n_rows), N_BATCHES * (N_BATCHES + 1) / 2);
    ad_array_stream_unref(self.stream);
    check_all_gone(&p);
}

static void *
pull_in_turn(void *context)
{
    shared *self = context;
    for (;;) {
        struct ArrowDeviceArray batch;
        pthread_mutex_lock(&self->mutex);
        CHECK_INT(self->moved->get_next(self->moved, &batch), 0);
        pthread_mutex_unlock(&self->mutex);
        if (batch.array.release == NULL) {
            return NULL;
        }
        atomic_fetch_add(&self->n_rows, batch.array.length);
        batch.array.release(&batch.array);
    }
}

/* The struct is exported by one thread, read by others, released by one. */
static void
test_pullers_in_turn(void)
{
    producer p;
    shared self = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    ad_array_stream *stream = open_stream(&p, N_BATCHES);
    struct ArrowDeviceArrayStream moved = exported(stream);
    ad_array_stream_unref(stream);
    self.moved = &moved;
    run_all(pull_in_turn, &self);
    CHECK_INT(atomic_load(&self.n_rows), N_BATCHES * (N_BATCHES + 1) / 2);
    moved.release(&moved);
    check_all_gone(&p);
}

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

/* Columns are moved out of a struct and released by another thread than the
 * batch: nodes of one export are one allocation. */
static void *
release_columns(void *context)
{
    shared *self = context;
    for (int i = 0; i < N_BATCHES; i++) {
        struct ArrowArray column = {0}, batch = {0};
        pthread_mutex_lock(&self->mutex);
        struct ArrowArray *array = &self->structs[i].array;
        for (int64_t j = 0; j < N_COLUMNS && array->release != NULL; j++) {
            if (array->children[j]->release != NULL) {
                column = *array->children[j];
                array->children[j]->release = NULL;
                break;
            }
        }
        if (column.release == NULL && array->release != NULL) {
            batch = *array;
            array->release = NULL;
        }
        pthread_mutex_unlock(&self->mutex);
        if (column.release != NULL) {
            column.release(&column);
        }
        if (batch.release != NULL) {
            batch.release(&batch);
        }
    }
    return NULL;
}

static void
test_columns_are_released_on_other_threads(void)
{
    producer p;
    static shared self = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    ad_array_stream *stream = open_stream(&p, N_BATCHES);
    struct ArrowDeviceArrayStream moved = exported(stream);
    ad_array_stream_unref(stream);
    for (int i = 0; i < N_BATCHES; i++) {
        CHECK_INT(moved.get_next(&moved, &self.structs[i]), 0);
    }
    moved.release(&moved);
    run_all(release_columns, &self); /* one of the four parts each */
    check_all_gone(&p);
}

/* --- from thread to thread -------------------------------------------------- */

/* Imports, reads one batch, and exports the rest for the next thread. */
static void *
pass_on(void *context)
{
    struct ArrowDeviceArrayStream *at = context;
    ad_array_stream *stream;
    ad_array batch;
    bool is_end;
    CHECK_INT(ad_array_stream_from_device(at, false, &stream, NULL), AD_OK);
    CHECK(at->release == NULL);
    CHECK_INT(ad_array_stream_next(stream, &batch, &is_end, NULL), AD_OK);
    CHECK(!is_end);
    *at = exported(stream);
    ad_array_stream_unref(stream);
    ad_array_clear(&batch);
    return NULL;
}

static void
test_passed_from_thread_to_thread(void)
{
    producer p;
    ad_array_stream *stream = open_stream(&p, N_BATCHES);
    struct ArrowDeviceArrayStream at = exported(stream);
    ad_array_stream_unref(stream);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, pass_on, &at), 0);
        CHECK_INT(pthread_join(thread, NULL), 0);
    }
    CHECK_INT(p.n_given, N_THREADS);
    at.release(&at);
    check_all_gone(&p);
}

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
        CHECK_TEST(test_readers_in_turn),
        CHECK_TEST(test_pullers_in_turn),
        CHECK_TEST(test_batches_outlive_stream_on_other_threads),
        CHECK_TEST(test_columns_are_released_on_other_threads),
        CHECK_TEST(test_passed_from_thread_to_thread),
        CHECK_TEST(test_streams_of_one_array),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
