#include <errno.h>
#include <stddef.h>

#include "pull_producer.h"

static void
check_end(ad_array_stream *stream)
{
    ad_array array;
    bool is_end;
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err), AD_OK);
    CHECK(is_end);
}

static void
read_one(ad_array_stream *stream, ad_array *out)
{
    bool is_end;
    CHECK_INT(ad_array_stream_next(stream, out, &is_end, &err), AD_OK);
    CHECK(!is_end);
}

/* --- reading --------------------------------------------------------------- */

static void
test_batches_keep_id_and_event(void)
{
    producer p = sound(3);
    ad_array_stream *stream = open_stream(&p);
    CHECK_INT(ad_array_stream_device_type(stream), TYPE);
    CHECK_STR(ad_array_stream_schema(stream).node->format, "l");
    CHECK(ad_array_stream_source(stream) == NULL);
    for (int i = 0; i < 3; i++) {
        ad_array array;
        read_one(stream, &array);
        CHECK_INT(array.memory.device.type, TYPE);
        CHECK_INT(array.memory.device.id, i);
        CHECK_INT(array.length, 2);
        CHECK(array.memory.sync != NULL &&
              array.memory.sync->handle == &event);
        ad_array_clear(&array);
    }
    check_end(stream);
    check_end(stream);
    CHECK_INT(p.n_calls, 4); /* no call after the end */
    CHECK_INT(p.n_asked, 1);
    CHECK_INT(p.n_released, 0);
    ad_array_stream_unref(stream);
    CHECK_INT(p.n_released, 1);
    tree_check_all_gone();
}

/* Batches are pulled into their slot. Host memory has no event type, so an
 * event is ignored and not exported. */
static void
test_batches_of_host_memory(void)
{
    for (int has_events = 0; has_events < 2; has_events++) {
        ad_array found[2];
        producer p = sound(2);
        p.device_type = ARROW_DEVICE_CPU;
        p.has_no_events = !has_events;
        ad_array_stream *stream = open_stream(&p);
        for (int i = 0; i < 2; i++) {
            read_one(stream, &found[i]);
            CHECK_INT(found[i].memory.device.type, ARROW_DEVICE_CPU);
            CHECK_INT(found[i].memory.device.id, i);
            CHECK_INT(found[i].length, 2);
            CHECK(found[i].memory.sync == NULL);
            CHECK_INT(found[i].had_event, has_events);
        }
        check_end(stream);
        ad_array_stream_unref(stream);
        CHECK_INT(p.n_released, 1);
        ad_array_clear(&found[0]);
        CHECK(found[1].node->release == tree_release_array);
        ad_array_clear(&found[1]);
        tree_check_all_gone();
    }
}

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

static void
test_batch_and_schema_outlive_stream(void)
{
    producer p = sound(1);
    ad_array_stream *stream = open_stream(&p);
    ad_array array;
    read_one(stream, &array);
    ad_schema schema = ad_schema_ref(ad_array_stream_schema(stream));
    ad_array_stream_unref(stream);
    CHECK_INT(p.n_released, 1);
    CHECK_STR(schema.node->format, "l");
    CHECK_STR(array.schema.node->format, "l");
    CHECK_INT(array.node->length, 2);
    ad_array_clear(&array);
    ad_schema_unref(schema);
    tree_check_all_gone();
}

static void
test_close_releases_at_once(void)
{
    producer p = sound(5);
    ad_array_stream *stream = open_stream(&p);
    ad_array array;
    read_one(stream, &array);
    ad_array_stream_close(stream);
    CHECK_INT(p.n_released, 1);
    check_end(stream);
    CHECK(ad_array_stream_last_error(stream) == NULL);
    ad_array_stream_close(stream);
    ad_array_stream_unref(stream);
    ad_array_clear(&array);
    tree_check_all_gone();
}

static void
test_collect(void)
{
    producer p = sound(9);
    ad_array_stream *stream = open_stream(&p);
    ad_array *batches;
    size_t n;
    CHECK_INT(ad_array_stream_collect(stream, &batches, &n, &err), AD_OK);
    CHECK_INT(n, 9);
    CHECK_INT(batches[8].memory.device.id, 8);
    ad_array_list_free(batches, n);
    ad_array_stream_unref(stream);
    tree_check_all_gone();
}

/* --- faults ---------------------------------------------------------------- */

static void
test_get_schema_fails(void)
{
    producer p = sound(1);
    p.schema_code = EIO;
    p.message = "no such table";
    struct ArrowDeviceArrayStream foreign = struct_of(&p);
    ad_array_stream *stream;
    CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "stream");
    CHECK_INT(err.code, EIO);
    CHECK_HAS(err.message, "get_schema of the stream failed with error 5");
    CHECK_HAS(err.message, "no such table");
    CHECK_INT(p.n_released, 1);
}

static void
test_get_next_fails(void)
{
    producer p = sound(3);
    p.fail_at = 1;
    p.next_code = ENOSPC;
    p.message = "disk is full";
    ad_array_stream *stream = open_stream(&p);
    ad_array array;
    bool is_end;
    read_one(stream, &array);
    ad_array_clear(&array);
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
              AD_ERR_EXCHANGE);
    CHECK_INT(err.code, ENOSPC);
    CHECK_HAS(err.message, "get_next of the stream failed with error 28");
    CHECK_STR(ad_array_stream_last_error(stream), "disk is full");
    /* The next call asks the producer again. */
    read_one(stream, &array);
    CHECK_INT(array.memory.device.id, 1);
    CHECK(ad_array_stream_last_error(stream) == NULL);
    ad_array_clear(&array);
    ad_array_stream_unref(stream);
    CHECK_INT(p.n_released, 1);
    tree_check_all_gone();
}

static void
test_no_last_error(void)
{
    producer p = sound(1);
    p.fail_at = 0;
    p.next_code = EINVAL;
    struct ArrowDeviceArrayStream foreign = struct_of(&p);
    foreign.get_last_error = NULL;
    ad_array_stream *stream;
    ad_array array;
    bool is_end;
    CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, &err),
              AD_OK);
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
              AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "no message was given");
    CHECK(ad_array_stream_last_error(stream) == NULL);
    ad_array_stream_unref(stream);
    tree_check_all_gone();
}

static void
test_missing_callbacks(void)
{
    for (int i = 0; i < 2; i++) {
        producer p = sound(1);
        struct ArrowDeviceArrayStream foreign = struct_of(&p);
        ad_array_stream *stream;
        if (i == 0) {
            foreign.get_schema = NULL;
        } else {
            foreign.get_next = NULL;
        }
        CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, &err),
                  AD_ERR_ARROW);
        CHECK_HAS(err.message, i == 0 ? "get_schema" : "get_next");
        CHECK_INT(p.n_released, 1);
    }
}

/* The bad batch is lost, so the stream must stay failed. */
static void
check_stays_failed(producer *p, const char *rule)
{
    ad_array_stream *stream = open_stream(p);
    ad_array array;
    bool is_end;
    read_one(stream, &array);
    ad_array_clear(&array);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
                  AD_ERR_ARROW);
        CHECK_HAS(err.message, rule);
        CHECK(!is_end);
    }
    CHECK_INT(p->n_calls, 2);
    CHECK_HAS(ad_array_stream_last_error(stream), rule);
    ad_array_stream_unref(stream);
    CHECK_INT(p->n_released, 1);
    tree_check_all_gone();
}

static void
test_other_device_type(void)
{
    producer p = sound(3);
    p.other_type_at = 1;
    check_stays_failed(&p, "batch of device type 9, which its own device "
                           "type 12 cannot access");
}

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

static void
test_schema_changes(void)
{
    producer p = sound(3);
    p.other_schema_at = 1;
    check_stays_failed(&p, "does not fit the schema of the stream");
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

static void
test_pass_through_checks(void)
{
    producer p = sound(2);
    p.other_type_at = 0;
    ad_array_stream *stream = open_stream(&p);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream_unref(stream);
    struct ArrowDeviceArray batch;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(out.get_next(&out, &batch), EINVAL);
        CHECK(batch.array.release == NULL);
        CHECK_HAS(out.get_last_error(&out), "device type 9");
    }
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
test_own_stream_is_unwrapped(void)
{
    producer p = sound(1);
    ad_array_stream *stream = open_stream(&p);
    struct ArrowDeviceArrayStream out = export_of(stream);
    ad_array_stream *again;
    CHECK_INT(ad_array_stream_from_device(&out, false, &again, &err), AD_OK);
    CHECK(again == stream);
    CHECK(out.release == NULL);
    ad_array_stream_unref(again);
    ad_array_stream_unref(stream);
    CHECK_INT(p.n_released, 1);
    tree_check_all_gone();
}

static void
test_unused_holder_releases(void)
{
    producer p = sound(1);
    ad_array_stream *stream = open_stream(&p);
    struct ArrowDeviceArrayStream *holder;
    CHECK_INT(ad_array_stream_export_device(stream, &holder, &err), AD_OK);
    ad_array_stream_unref(stream);
    CHECK_INT(p.n_released, 0);
    ad_device_stream_holder_free(holder);
    CHECK_INT(p.n_released, 1);
    tree_check_all_gone();
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

static void
test_one_array(void)
{
    ad_array array;
    ad_array_stream *stream;
    struct ArrowArrayStream *holder;
    struct ArrowArray batch;
    struct ArrowSchema schema = tree_take_schema(tree_schema("l", "", 0));
    struct ArrowDeviceArray node = tree_take_array(tree_ints(4), NULL);
    node.device_type = ARROW_DEVICE_CPU;
    CHECK_INT(ad_array_import(&schema, &node, false, &array, &err), AD_OK);
    CHECK_INT(ad_array_stream_from_array(&array, &stream, &err), AD_OK);
    ad_array_clear(&array);
    CHECK_INT(ad_array_stream_export_host(stream, &holder, &err), AD_OK);
    ad_array_stream_unref(stream);
    CHECK_INT(holder->get_next(holder, &batch), 0);
    CHECK_INT(batch.length, 4);
    struct ArrowArray end;
    CHECK_INT(holder->get_next(holder, &end), 0);
    CHECK(end.release == NULL);
    ad_array_stream_holder_free(holder);
    CHECK_INT(atomic_load(&live_arrays), 1);
    batch.release(&batch);
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

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_batches_keep_id_and_event),
        CHECK_TEST(test_batches_of_host_memory),
        CHECK_TEST(test_get_next_is_not_called_without_memory),
        CHECK_TEST(test_batch_and_schema_outlive_stream),
        CHECK_TEST(test_close_releases_at_once),
        CHECK_TEST(test_collect),
        CHECK_TEST(test_get_schema_fails),
        CHECK_TEST(test_get_next_fails),
        CHECK_TEST(test_no_last_error),
        CHECK_TEST(test_missing_callbacks),
        CHECK_TEST(test_other_device_type),
        CHECK_TEST(test_batches_of_accessible_types),
        CHECK_TEST(test_schema_changes),
        CHECK_TEST(test_pass_through),
        CHECK_TEST(test_pass_through_code_that_is_no_errno),
        CHECK_TEST(test_pass_through_end_and_errors),
        CHECK_TEST(test_pass_through_checks),
        CHECK_TEST(test_plain_batches_are_validated),
        CHECK_TEST(test_own_stream_is_unwrapped),
        CHECK_TEST(test_unused_holder_releases),
        CHECK_TEST(test_release_during_calls),
        CHECK_TEST(test_host_export),
        CHECK_TEST(test_one_array),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
