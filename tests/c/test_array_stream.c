/* Pull streams: foreign producers, sources of the core, several threads, and
 * each allocation that fails. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "stream/array_stream.h"
#include "trees.h"

#define TYPE ARROW_DEVICE_EXT_DEV /* no runtime is loaded for it */

static ad_error err;
static int event;

/* A producer in C of `n_batches` batches of int64, with optional faults. */
typedef struct producer {
    int32_t device_type;
    int n_batches;
    int n_given;
    int n_released;
    int n_calls; /* of get_next */
    int n_asked; /* for the schema */
    int schema_code;
    int fail_at; /* this call of get_next returns next_code; -1: none */
    int next_code;
    int other_type_at; /* this batch is on `other_type`; -1: none */
    int32_t other_type;
    int other_schema_at; /* this batch has another schema; -1: none */
    int n_columns;       /* 0: a plain int64 */
    bool has_no_events;
    const char *message;
} producer;

static int
get_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out)
{
    producer *p = self->private_data;
    p->n_asked++;
    if (p->schema_code == 0) {
        *out =
            tree_take_schema(p->n_columns > 0 ? tree_wide_schema(p->n_columns)
                                              : tree_schema("l", "", 0));
    }
    return p->schema_code;
}

static int
get_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out)
{
    producer *p = self->private_data;
    if (p->n_calls++ == p->fail_at) {
        return p->next_code;
    }
    if (p->n_given == p->n_batches) {
        out->array.release = NULL;
        return 0;
    }
    struct ArrowArray *array =
        p->n_given == p->other_schema_at ? tree_array(2, false, 3, 0)
        : p->n_columns > 0               ? tree_wide_array(p->n_columns, 2)
                                         : tree_ints(2);
    *out = tree_take_array(array, p->has_no_events ? NULL : &event);
    out->device_type =
        p->n_given == p->other_type_at ? p->other_type : p->device_type;
    out->device_id = p->n_given;
    p->n_given++;
    return 0;
}

static const char *
get_last_error(struct ArrowDeviceArrayStream *self)
{
    return ((producer *)self->private_data)->message;
}

static void
release(struct ArrowDeviceArrayStream *self)
{
    producer *p = self->private_data;
    CHECK_INT(p->n_released, 0);
    p->n_released++;
    self->release = NULL;
}

static producer
sound(int n_batches)
{
    return (producer){.device_type = TYPE,
                      .n_batches = n_batches,
                      .fail_at = -1,
                      .other_type_at = -1,
                      .other_type = ARROW_DEVICE_VPI,
                      .other_schema_at = -1};
}

static struct ArrowDeviceArrayStream
struct_of(producer *p)
{
    return (struct ArrowDeviceArrayStream){
        p->device_type, get_schema, get_next, get_last_error, release, p};
}

static ad_array_stream *
open_stream(producer *p)
{
    struct ArrowDeviceArrayStream foreign = struct_of(p);
    ad_array_stream *stream;
    CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, &err),
              AD_OK);
    CHECK(foreign.release == NULL);
    return stream;
}

/* The struct of an export. */
static struct ArrowDeviceArrayStream
export_of(ad_array_stream *stream)
{
    struct ArrowDeviceArrayStream *holder;
    CHECK_INT(ad_array_stream_export_device(stream, &holder, &err), AD_OK);
    struct ArrowDeviceArrayStream out = *holder;
    holder->release = NULL;
    ad_device_stream_holder_free(holder);
    return out;
}

static void
read_one(ad_array_stream *stream, ad_array *out)
{
    bool is_end;
    CHECK_INT(ad_array_stream_next(stream, out, &is_end, &err), AD_OK);
    CHECK(!is_end);
}

/* --- reading --------------------------------------------------------------- */

/* get_next is not called if there is no memory for the batch. */
static void
test_get_next_is_not_called_without_memory(void)
{
    ad_array array;
    bool is_end;
    producer p = sound(1);
    p.device_type = ARROW_DEVICE_CPU;
    p.has_no_events = true;
    ad_array_stream *stream = open_stream(&p);
    check_fail_nth(1);
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
              AD_ERR_MEMORY);
    check_fail_nth(0);
    CHECK(!is_end);
    CHECK_INT(p.n_calls, 0);
    read_one(stream, &array);
    ad_array_clear(&array);
    ad_array_stream_unref(stream);
    tree_check_all_gone();
}

/* --- faults ---------------------------------------------------------------- */

/* The specification: each batch "MUST be accessible" from the stream's device
 * type, and "should" have that type. */
static void
test_batches_of_accessible_types(void)
{
    enum {
        CPU = ARROW_DEVICE_CPU,
        CUDA = ARROW_DEVICE_CUDA,
        PINNED = ARROW_DEVICE_CUDA_HOST,
        MANAGED = ARROW_DEVICE_CUDA_MANAGED,
        ROCM = ARROW_DEVICE_ROCM,
        ROCM_PINNED = ARROW_DEVICE_ROCM_HOST
    };
    static const struct {
        int32_t stream;
        int32_t batch;
        bool is_accessible;
    } cases[] = {
        {CUDA, PINNED, true},     {CUDA, MANAGED, true},
        {CPU, PINNED, true},      {CPU, MANAGED, true},
        {CPU, ROCM_PINNED, true}, {ROCM, ROCM_PINNED, true},
        {CPU, CUDA, false},       {CUDA, CPU, false},
        {PINNED, CPU, false},     {PINNED, CUDA, false},
        {CUDA, ROCM, false},      {CUDA, ROCM_PINNED, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ad_array array;
        bool is_end;
        producer p = sound(2);
        p.device_type = cases[i].stream;
        p.other_type_at = 1;
        p.other_type = cases[i].batch;
        ad_array_stream *stream = open_stream(&p);
        read_one(stream, &array);
        ad_array_clear(&array);
        ad_status status = ad_array_stream_next(stream, &array, &is_end, &err);
        CHECK_INT(status, cases[i].is_accessible ? AD_OK : AD_ERR_ARROW);
        if (status == AD_OK) {
            CHECK_INT(array.memory.device.type, cases[i].batch);
            CHECK(array.memory.sync != NULL &&
                  array.memory.sync->handle == &event);
            ad_array_clear(&array);
        }
        ad_array_stream_unref(stream);
        CHECK_INT(p.n_released, 1);
        tree_check_all_gone();
    }
}

/* --- export ---------------------------------------------------------------- */

static void
test_pass_through(void)
{
    producer p = sound(2);
    ad_array_stream *stream = open_stream(&p);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream_unref(stream);
    struct ArrowSchema schema;
    struct ArrowDeviceArray batch;
    CHECK_INT(out.device_type, TYPE);
    CHECK_INT(out.get_schema(&out, &schema), 0);
    CHECK_STR(schema.format, "l");
    CHECK_INT(out.get_next(&out, &batch), 0);
    CHECK(batch.sync_event == &event);
    CHECK(batch.array.release == tree_release_array); /* not wrapped */
    batch.array.release(&batch.array);
    CHECK_INT(out.get_next(&out, &batch), 0);
    out.release(&out);
    CHECK(out.release == NULL);
    CHECK_INT(p.n_released, 1);
    CHECK_INT(batch.array.length, 2);
    batch.array.release(&batch.array);
    schema.release(&schema);
    tree_check_all_gone();
}

/* An exported stream returns an errno, whatever its producer returned. */
static void
test_pass_through_code_that_is_no_errno(void)
{
    producer p = sound(1);
    p.fail_at = 0;
    p.next_code = -1;
    p.message = "later";
    ad_array_stream *stream = open_stream(&p);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream_unref(stream);
    struct ArrowDeviceArray batch;
    CHECK_INT(out.get_next(&out, &batch), EIO);
    CHECK(out.get_last_error(&out) == p.message);
    out.release(&out);
    tree_check_all_gone();
}

static void
test_pass_through_end_and_errors(void)
{
    producer p = sound(1);
    p.fail_at = 0;
    p.next_code = EAGAIN;
    p.message = "later";
    ad_array_stream *stream = open_stream(&p);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream_unref(stream);
    struct ArrowDeviceArray batch;
    CHECK(out.get_last_error(&out) == NULL);
    CHECK_INT(out.get_next(&out, &batch), EAGAIN);
    CHECK(out.get_last_error(&out) == p.message);
    CHECK_INT(out.get_next(&out, &batch), 0);
    batch.array.release(&batch.array);
    for (int i = 0; i < 3; i++) {
        memset(&batch, 0xff, sizeof(batch));
        CHECK_INT(out.get_next(&out, &batch), 0);
        CHECK(batch.array.release == NULL);
    }
    CHECK_INT(p.n_calls, 3);
    out.release(&out);
    tree_check_all_gone();
}

/* Each rule of the shape check of plain batches. */
typedef struct change {
    bool of_column; /* else of the batch itself */
    size_t at;      /* offset of the member, which has 8 bytes */
    int64_t value;
    bool is_sound;
} change;

#define OF_BATCH(name, x) false, offsetof(struct ArrowArray, name), x
#define OF_COLUMN(name, x) true, offsetof(struct ArrowArray, name), x
#define NO_DATA ((size_t)-1)

static const change changes[] = {
    {OF_BATCH(length, 2), true},
    {OF_BATCH(length, 1), true},
    {OF_BATCH(null_count, -1), true},
    {OF_COLUMN(null_count, -1), true},
    {OF_COLUMN(offset, 7), true},
    {OF_COLUMN(length, 3), true},
    {OF_BATCH(n_children, 2), false},
    {OF_BATCH(n_buffers, 2), false},
    {OF_BATCH(length, -1), false},
    {OF_BATCH(null_count, 1), false},
    {OF_BATCH(offset, 1), false},
    /* The end of the columns would exceed the largest size. */
    {OF_BATCH(offset, INT64_MAX / 128), false},
    {OF_BATCH(children, 0), false},
    {OF_COLUMN(length, 1), false},
    {OF_COLUMN(null_count, 3), false},
    {OF_COLUMN(null_count, -2), false},
    {OF_COLUMN(null_count, 1), false},
    {OF_COLUMN(n_buffers, 3), false},
    {OF_COLUMN(offset, -1), false},
    {OF_COLUMN(offset, INT64_MAX - 1), false},
    {OF_COLUMN(n_children, 1), false},
    {OF_COLUMN(buffers, 0), false},
    {OF_COLUMN(dictionary, 64), false},
    {true, NO_DATA, 0, false},
};

static const change *changed;

static int
get_changed(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out)
{
    CHECK_INT(get_next(self, out), 0);
    struct ArrowArray *node =
        changed->of_column ? out->array.children[1] : &out->array;
    if (changed->at == NO_DATA) {
        node->buffers[1] = NULL;
    } else {
        memcpy((char *)node + changed->at, &changed->value, 8);
    }
    return 0;
}

static void
test_plain_batches_are_validated(void)
{
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        producer p = sound(1);
        p.n_columns = 3;
        changed = &changes[i];
        struct ArrowDeviceArrayStream foreign = struct_of(&p);
        foreign.get_next = get_changed;
        ad_array_stream *stream;
        struct ArrowDeviceArray batch;
        CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, &err),
                  AD_OK);
        struct ArrowDeviceArrayStream out = export_of(stream);
        ad_array_stream_unref(stream);
        CHECK_INT(out.get_next(&out, &batch), changed->is_sound ? 0 : EINVAL);
        if (changed->is_sound) {
            batch.array.release(&batch.array);
        }
        out.release(&out);
        tree_check_all_gone();
    }
}

static void
test_host_export(void)
{
    producer p = sound(1);
    struct ArrowArrayStream *holder;
    ad_array_stream *stream = open_stream(&p);
    CHECK_INT(ad_array_stream_export_host(stream, &holder, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "device");
    CHECK_HAS(err.hint, "__arrow_c_device_stream__");
    ad_array_stream_unref(stream);

    /* An event that cannot be waited for. */
    producer host = sound(1);
    host.device_type = ARROW_DEVICE_CUDA_HOST;
    stream = open_stream(&host);
    CHECK_INT(ad_array_stream_export_host(stream, &holder, &err), AD_OK);
    ad_array_stream_unref(stream);
    struct ArrowArray batch;
    CHECK(holder->get_next(holder, &batch) != 0);
    CHECK(batch.release == NULL);
    CHECK(holder->get_last_error(holder) != NULL);
    ad_array_stream_holder_free(holder);
    CHECK_INT(host.n_released, 1);
    tree_check_all_gone();
}

/* A source that releases both structs of its stream, in the call of one of
 * them or in a call within that call. */
typedef struct leaving {
    ad_batch_source base;
    struct ArrowDeviceArrayStream *holders[2];
    int n_nested; /* calls within the call */
    bool is_destroyed;
} leaving;

static ad_status
leaving_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *e)
{
    leaving *self = (leaving *)base;
    struct ArrowDeviceArray batch;
    if (self->n_nested-- > 0) {
        CHECK_INT(self->holders[1]->get_next(self->holders[1], &batch), 0);
        CHECK(batch.array.release == NULL);
    } else {
        self->holders[0]->release(self->holders[0]);
        self->holders[1]->release(self->holders[1]);
    }
    CHECK(!self->is_destroyed);
    *is_end = true;
    return AD_OK;
}

static void
leaving_destroy(ad_batch_source *base)
{
    ((leaving *)base)->is_destroyed = true;
}

/* The stream lives until the outermost call has ended. */
static void
test_release_during_calls(void)
{
    for (int n_nested = 0; n_nested < 3; n_nested++) {
        ad_array_stream *stream;
        struct ArrowDeviceArray batch;
        leaving source = {
            .base = {.next = leaving_next, .destroy = leaving_destroy},
            .n_nested = n_nested};
        CHECK_INT(ad_array_stream_from_source(&source.base, (ad_schema){0},
                                              ARROW_DEVICE_CPU, &stream, &err),
                  AD_OK);
        for (int i = 0; i < 2; i++) {
            CHECK_INT(ad_array_stream_export_device(stream, &source.holders[i],
                                                    &err),
                      AD_OK);
        }
        ad_array_stream_unref(stream);
        CHECK_INT(source.holders[0]->get_next(source.holders[0], &batch), 0);
        CHECK(batch.array.release == NULL);
        CHECK(source.is_destroyed);
        ad_device_stream_holder_free(source.holders[0]);
        ad_device_stream_holder_free(source.holders[1]);
    }
}

/* --- on several threads ------------------------------------------------------ */

#define N_THREADS 4
#define N_BATCHES 400
#define N_COLUMNS 3

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

typedef struct shared {
    pthread_mutex_t mutex;
    ad_array batches[N_BATCHES]; /* taken from the end */
    int n_batches;
} shared;

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
    producer p = sound(N_BATCHES);
    shared self = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    p.n_columns = N_COLUMNS;
    ad_array_stream *stream = open_stream(&p);
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
    CHECK_INT(p.n_released, 1);
    tree_check_all_gone();
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
        struct ArrowDeviceArrayStream moved = export_of(stream);
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
    producer p = sound(1);
    ad_array_stream *stream = open_stream(&p);
    ad_array array;
    bool is_end;
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, NULL), AD_OK);
    ad_array_stream_unref(stream);
    run_all(stream_of_shared, &array);
    ad_array_clear(&array);
    CHECK_INT(p.n_released, 1);
    tree_check_all_gone();
}

/* --- sources of our own ------------------------------------------------------ */

typedef struct own_source {
    ad_batch_source base;
    int n_left;
    int n_destroyed;
    ad_device device;
} own_source;

static ad_status
own_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *e)
{
    own_source *self = (own_source *)base;
    *is_end = false;
    if (self->n_left-- == 0) {
        return ad_fail(e, AD_ERR_VALUE, NULL, NULL, "nothing is left");
    }
    struct ArrowSchema schema = tree_take_schema(tree_schema("l", "", 0));
    struct ArrowDeviceArray node = tree_take_array(tree_ints(1), NULL);
    node.device_type = self->device.type;
    ad_status status = ad_array_import(&schema, &node, false, out, e);
    if (status != AD_OK) {
        schema.release(&schema);
        node.array.release(&node.array);
    }
    return status;
}

static const char *
own_error(ad_batch_source *base, int *code)
{
    *code = ENOTDIR;
    return "the whole story";
}

static void
own_destroy(ad_batch_source *base)
{
    ((own_source *)base)->n_destroyed++;
}

static ad_array_stream *
open_own(own_source *source)
{
    ad_array_stream *stream;
    CHECK_INT(ad_array_stream_from_source(&source->base,
                                          ad_schema_primitive("l"), TYPE,
                                          &stream, &err),
              AD_OK);
    CHECK(ad_array_stream_source(stream) == &source->base);
    return stream;
}

static void
test_source_failure_is_final(void)
{
    own_source source = {
        {.next = own_next, .last_error = own_error, .destroy = own_destroy},
        1,
        0,
        {TYPE, 0}};
    ad_array_stream *stream = open_own(&source);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream_unref(stream);
    struct ArrowDeviceArray batch;
    CHECK_INT(out.get_next(&out, &batch), 0);
    batch.array.release(&batch.array);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(out.get_next(&out, &batch), ENOTDIR);
        CHECK_STR(out.get_last_error(&out), "the whole story");
    }
    CHECK_INT(source.n_left, -1); /* called once */
    out.release(&out);
    CHECK_INT(source.n_destroyed, 1);
    tree_check_all_gone();
}

static ad_status
interrupted_next(ad_batch_source *base, ad_array *out, bool *is_end,
                 ad_error *e)
{
    (void)base, (void)out, (void)is_end;
    return ad_fail(e, AD_ERR_INTERRUPTED, NULL, NULL, "the wait was ended");
}

static void
test_source_is_interrupted(void)
{
    own_source source = {
        {.next = interrupted_next, .destroy = own_destroy}, 0, 0, {TYPE, 0}};
    ad_array_stream *stream = open_own(&source);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream_unref(stream);
    struct ArrowDeviceArray batch;
    CHECK_INT(out.get_next(&out, &batch), EINTR);
    CHECK_STR(out.get_last_error(&out), "the wait was ended");
    out.release(&out);
    CHECK_INT(source.n_destroyed, 1);
    tree_check_all_gone();
}

static void
test_source_on_other_device_type(void)
{
    own_source source = {{.next = own_next, .destroy = own_destroy},
                         1,
                         0,
                         {ARROW_DEVICE_VPI, 0}};
    ad_array_stream *stream = open_own(&source);
    ad_array array;
    bool is_end;
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "device");
    ad_array_stream_unref(stream);
    CHECK_INT(source.n_destroyed, 1);
    tree_check_all_gone();
}

/* --- each allocation fails ---------------------------------------------------- */

/* The producer's batches are created before the test, since its own
 * allocations would be counted too, and a NULL from them would crash. */
static struct ArrowDeviceArray ready[3];
static struct ArrowSchema ready_schema;
static int n_ready;

static int
ready_get_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out)
{
    *out = ready_schema;
    ready_schema.release = NULL;
    return 0;
}

static int
ready_get_next(struct ArrowDeviceArrayStream *self,
               struct ArrowDeviceArray *out)
{
    if (n_ready == 3) {
        out->array.release = NULL;
        return 0;
    }
    *out = ready[n_ready];
    ready[n_ready++].array.release = NULL;
    return 0;
}

/* Returns whether there was an n-th allocation; without one all calls succeed.
 * An allocation that only serves speed may fail without an error. */
static bool
run_with_failure(long nth, bool by_struct)
{
    producer p = sound(0);
    struct ArrowDeviceArrayStream foreign = struct_of(&p);
    foreign.get_schema = ready_get_schema;
    foreign.get_next = ready_get_next;
    n_ready = 0;
    ready_schema = tree_take_schema(tree_schema("l", "", 0));
    for (int i = 0; i < 3; i++) {
        ready[i] = tree_take_array(tree_ints(1), &event);
        ready[i].device_type = TYPE;
    }
    ad_array_stream *stream = NULL;
    int is_good = 0;
    check_fail_nth(nth);
    ad_status status =
        ad_array_stream_from_device(&foreign, false, &stream, &err);
    if (status == AD_OK && by_struct) {
        struct ArrowDeviceArrayStream *holder;
        struct ArrowSchema schema;
        struct ArrowDeviceArray batch;
        status = ad_array_stream_export_device(stream, &holder, &err);
        if (status == AD_OK) {
            int code = holder->get_schema(holder, &schema);
            CHECK(code == 0 || code == ENOMEM);
            is_good = code == 0;
            if (code == 0) {
                schema.release(&schema);
            }
            code = holder->get_next(holder, &batch);
            CHECK_INT(code, 0); /* passes through without an allocation */
            batch.array.release(&batch.array);
            ad_device_stream_holder_free(holder);
        }
    } else if (status == AD_OK) {
        ad_array *batches;
        size_t n;
        status = ad_array_stream_collect(stream, &batches, &n, &err);
        if (status == AD_OK) {
            CHECK_INT(n, 3);
            ad_array_list_free(batches, n);
            is_good = 1;
        }
    }
    bool has_failed = check_failed_once();
    check_fail_nth(0);
    CHECK(status == AD_OK || (has_failed && status == AD_ERR_MEMORY));
    CHECK(has_failed || is_good);
    ad_array_stream_unref(stream);
    CHECK_INT(p.n_released, 1);
    for (int i = 0; i < 3; i++) {
        if (ready[i].array.release != NULL) {
            ready[i].array.release(&ready[i].array);
        }
    }
    if (ready_schema.release != NULL) {
        ready_schema.release(&ready_schema);
    }
    tree_check_all_gone();
    return has_failed;
}

static void
test_each_allocation_fails(void)
{
    for (int by_struct = 0; by_struct < 2; by_struct++) {
        long n = 1;
        while (run_with_failure(n, by_struct)) {
            n++;
            CHECK(n < 100);
        }
        CHECK(n > 3);
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_pass_through),
        CHECK_TEST(test_pass_through_code_that_is_no_errno),
        CHECK_TEST(test_pass_through_end_and_errors),
        CHECK_TEST(test_get_next_is_not_called_without_memory),
        CHECK_TEST(test_batches_of_accessible_types),
        CHECK_TEST(test_plain_batches_are_validated),
        CHECK_TEST(test_release_during_calls),
        CHECK_TEST(test_host_export),
        CHECK_TEST(test_batches_outlive_stream_on_other_threads),
        CHECK_TEST(test_streams_of_one_array),
        CHECK_TEST(test_source_failure_is_final),
        CHECK_TEST(test_source_is_interrupted),
        CHECK_TEST(test_source_on_other_device_type),
        CHECK_TEST(test_each_allocation_fails),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
