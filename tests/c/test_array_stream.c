#include <errno.h>
#include <stddef.h>

#include "pull_producer.h"

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
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
