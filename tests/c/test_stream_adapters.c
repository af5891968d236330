/* Adapters: their batches, when they read their source, and what they release
 * after a failure. The copies run on the software device.
 * tests/streams/test_stream_transfer.py tests that they overlap. */
#include <errno.h>

#include "order/deferred_release.h"
#include "stream/adapters.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "device/software/software.h"
#include "trees.h"

#define N_ROWS 64

static ad_error err;
static const ad_device here = {ARROW_DEVICE_EXT_DEV, 0};
static int64_t numbers[N_ROWS]; /* 0, 1, 2, ... */

static void
ok(ad_status status)
{
    if (status != AD_OK) {
        fprintf(stderr, "%s (%s)\n", err.message, err.hint);
    }
    CHECK_INT(status, AD_OK);
}

/* --- a source -------------------------------------------------------------- */

#define MAX_BATCHES 8

/* Batches of consecutive int64 numbers. They are created before the test, so
 * that a failed allocation is never one of theirs. */
typedef struct counter {
    ad_batch_source base;
    ad_array batches[MAX_BATCHES];
    int n_batches;
    int n_given;
    int fail_at; /* instead of this batch; -1: never */
    int n_destroyed;
} counter;

static ad_status
counter_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *e)
{
    counter *self = (counter *)base;
    CHECK_INT(self->n_destroyed, 0);
    CHECK(self->n_given <= self->n_batches);
    if (self->n_given == self->fail_at) {
        return ad_fail(e, AD_ERR_EXCHANGE, "stream", NULL, "it broke");
    }
    *is_end = self->n_given == self->n_batches;
    if (!*is_end) {
        ad_array_share(&self->batches[self->n_given], out);
        ad_array_clear(&self->batches[self->n_given]);
    }
    self->n_given++;
    return AD_OK;
}

static const char *
counter_last_error(ad_batch_source *base, int *code)
{
    (void)base;
    *code = ENOSPC;
    return "it broke, and this is the whole story";
}

static void
counter_destroy(ad_batch_source *base)
{
    counter *self = (counter *)base;
    for (int i = 0; i < self->n_batches; i++) {
        ad_array_clear(&self->batches[i]);
    }
    self->n_destroyed++;
}

static void
make_batch(const char *format, int first, int64_t length, ad_device device,
           ad_array *out)
{
    struct ArrowArray *array =
        format[0] == 'n' ? tree_array(length, false, 0, 0) : tree_ints(length);
    if (format[0] == 'n') {
        array->null_count = length;
    } else {
        array->buffers[1] = &numbers[first];
    }
    struct ArrowSchema schema = tree_take_schema(tree_schema(format, "", 0));
    struct ArrowDeviceArray node = tree_take_array(array, NULL);
    node.device_type = device.type;
    node.device_id = device.id;
    ok(ad_array_import(&schema, &node, false, out, &err));
}

/* `lengths` ends with -1. */
static void
counter_init(counter *self, const char *format, const int64_t *lengths,
             ad_device device)
{
    int64_t first = 0;
    *self = (counter){
        .base = {counter_next, counter_last_error, counter_destroy, NULL},
        .fail_at = -1,
    };
    for (; lengths[self->n_batches] >= 0; self->n_batches++) {
        int64_t length = lengths[self->n_batches];
        make_batch(format, (int)first, length, device,
                   &self->batches[self->n_batches]);
        first += format[0] == 'n' ? 0 : length;
    }
}

static ad_array_stream *
open_counter(counter *self, const char *format, ad_device device)
{
    ad_array_stream *stream;
    ad_schema schema = self->n_batches > 0 ? self->batches[0].schema
                                           : ad_schema_primitive(format);
    ok(ad_array_stream_from_source(&self->base, schema, device.type, &stream,
                                   &err));
    return stream;
}

/* Checks that the numbers of the next batch start at *at. */
static bool
read_on(ad_array_stream *stream, int64_t length, int64_t *at)
{
    ad_array array;
    bool is_end;
    ok(ad_array_stream_next(stream, &array, &is_end, &err));
    if (is_end) {
        return false;
    }
    const int64_t *values = array.node->buffers[1];
    CHECK_INT(array.length, length);
    CHECK(array.memory.sync == NULL);
    for (int64_t i = 0; i < length; i++) {
        CHECK_INT(values[array.offset + i], (*at)++);
    }
    ad_array_clear(&array);
    return true;
}

static void
check_failure(ad_array_stream *stream)
{
    ad_array array;
    bool is_end;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
                  AD_ERR_EXCHANGE);
        CHECK(!is_end);
        CHECK_STR(err.reason, "stream");
        CHECK_INT(err.code, ENOSPC);
        CHECK_STR(err.message, "it broke");
        CHECK_HAS(ad_array_stream_last_error(stream), "the whole story");
    }
}

/* --- rechunk ---------------------------------------------------------------- */

typedef struct rechunk_case {
    int64_t rows;
    int64_t given[MAX_BATCHES];
    int64_t expected[12];
} rechunk_case;

static const rechunk_case rechunk_cases[] = {
    {4, {4, 4, -1}, {4, 4, -1}},
    {4, {10, -1}, {4, 4, 2, -1}},
    {4, {1, 1, 1, 1, 1, -1}, {4, 1, -1}},
    {4, {3, 3, 3, -1}, {4, 4, 1, -1}},
    {4, {3, 0, 6, 0, 3, -1}, {4, 4, 4, -1}},
    {1, {3, 2, -1}, {1, 1, 1, 1, 1, -1}},
    {INT64_MAX, {3, 2, 4, -1}, {9, -1}},
    {4, {-1}, {-1}},
    {4, {0, -1}, {0, -1}},
    {4, {0, 0, 0, -1}, {0, -1}},
    {4, {0, 0, 5, 0, -1}, {4, 1, -1}},
    {4, {5, 0, 0, -1}, {4, 1, -1}},
};

static void
test_rechunk(void)
{
    for (size_t k = 0; k < sizeof(rechunk_cases) / sizeof(rechunk_cases[0]);
         k++) {
        const rechunk_case *c = &rechunk_cases[k];
        counter source;
        counter_init(&source, "l", c->given, AD_CPU);
        ad_array_stream *inner = open_counter(&source, "l", AD_CPU);
        ad_array_stream *stream;
        ok(ad_array_stream_rechunk(inner, c->rows, &stream, &err));
        ad_array_stream_unref(inner);
        CHECK_INT(ad_array_stream_device_type(stream), ARROW_DEVICE_CPU);
        CHECK_STR(ad_array_stream_schema(stream).node->format, "l");
        int64_t at = 0;
        for (int i = 0; read_on(stream, c->expected[i], &at); i++) {
            CHECK(c->expected[i] >= 0);
        }
        CHECK_INT(source.n_destroyed, 1); /* at the end, not later */
        ad_array_stream_unref(stream);
        CHECK_INT(source.n_destroyed, 1);
        tree_check_all_gone();
    }
}

static void
test_rechunk_shares_slices(void)
{
    const int64_t lengths[] = {6, -1};
    counter source;
    counter_init(&source, "l", lengths, AD_CPU);
    const struct ArrowArray *node = source.batches[0].node;
    ad_array_stream *inner = open_counter(&source, "l", AD_CPU);
    ad_array_stream *stream;
    ok(ad_array_stream_rechunk(inner, 4, &stream, &err));
    ad_array_stream_unref(inner);
    ad_array array[2];
    bool is_end;
    ok(ad_array_stream_next(stream, &array[0], &is_end, &err));
    CHECK_INT(source.n_given, 1); /* no more were requested */
    ok(ad_array_stream_next(stream, &array[1], &is_end, &err));
    CHECK(array[0].node == node && array[1].node == node);
    CHECK_INT(array[1].offset, 4);
    CHECK_INT(array[1].length, 2);
    ad_array_stream_unref(stream);
    ad_array_clear(&array[0]);
    ad_array_clear(&array[1]);
    tree_check_all_gone();
}

/* Memory that the host cannot read is sliced, but not joined. */
static void
test_rechunk_on_a_device(void)
{
    const int64_t lengths[] = {4, 3, 3, -1};
    const ad_device device = {ARROW_DEVICE_VPI, 2};
    counter source;
    counter_init(&source, "l", lengths, device);
    ad_array_stream *inner = open_counter(&source, "l", device);
    ad_array_stream *stream;
    ok(ad_array_stream_rechunk(inner, 2, &stream, &err));
    ad_array_stream_unref(inner);
    ad_array array;
    bool is_end;
    for (int i = 0; i < 3; i++) {
        ok(ad_array_stream_next(stream, &array, &is_end, &err));
        CHECK_INT(array.length, 2);
        CHECK(ad_device_equal(array.memory.device, device));
        ad_array_clear(&array);
    }
    CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "device");
    CHECK_HAS(err.hint, "array_stream");
    ad_array_stream_unref(stream);
    CHECK_INT(source.n_destroyed, 1);
    tree_check_all_gone();
}

/* Two batches with the largest possible number of rows. */
#define MOST (INT64_MAX - 1)

static void
test_rechunk_of_too_many_rows(void)
{
    const int64_t lengths[] = {MOST, MOST, -1};
    counter source;
    counter_init(&source, "n", lengths, AD_CPU);
    ad_array_stream *inner = open_counter(&source, "n", AD_CPU);
    ad_array_stream *stream;
    ok(ad_array_stream_rechunk(inner, MOST - 1, &stream, &err));
    ad_array_stream_unref(inner);
    const int64_t expected[] = {MOST - 1, MOST - 1, 2};
    for (int i = 0; i < 3; i++) {
        ad_array array;
        bool is_end;
        ok(ad_array_stream_next(stream, &array, &is_end, &err));
        CHECK(!is_end);
        CHECK_INT(array.length, expected[i]);
        ad_array_clear(&array);
    }
    ad_array_stream_unref(stream);
    tree_check_all_gone();
}

static void
test_rechunk_fails_after_its_rows(void)
{
    const int64_t lengths[] = {3, 3, 3, -1};
    counter source;
    int64_t at = 0;
    counter_init(&source, "l", lengths, AD_CPU);
    source.fail_at = 2;
    ad_array_stream *inner = open_counter(&source, "l", AD_CPU);
    ad_array_stream *stream;
    ok(ad_array_stream_rechunk(inner, 4, &stream, &err));
    ad_array_stream_unref(inner);
    CHECK(read_on(stream, 4, &at));
    CHECK(read_on(stream, 2, &at));
    check_failure(stream);
    CHECK_INT(source.n_destroyed, 0); /* it has the text */
    ad_array_stream_unref(stream);
    CHECK_INT(source.n_destroyed, 1);
    tree_check_all_gone();
}

static void
test_numbers_out_of_range(void)
{
    const int64_t lengths[] = {1, -1};
    const ad_stream_ref none = {.kind = AD_REF_NONE};
    counter source;
    counter_init(&source, "l", lengths, AD_CPU);
    ad_array_stream *inner = open_counter(&source, "l", AD_CPU);
    ad_array_stream *stream;
    int64_t at = 0;
    for (int64_t rows = -1; rows <= 0; rows++) {
        CHECK_INT(ad_array_stream_rechunk(inner, rows, &stream, &err),
                  AD_ERR_VALUE);
        CHECK_HAS(err.message, "rows");
    }
    CHECK_INT(ad_array_stream_to(inner, AD_CPU, -1, &none, &stream, &err),
              AD_ERR_VALUE);
    CHECK_INT(ad_array_stream_to(inner, AD_CPU, AD_MAX_PREFETCH + 1, &none,
                                 &stream, &err),
              AD_ERR_VALUE);
    CHECK_HAS(err.message, "prefetch");
    CHECK(read_on(inner, 1, &at)); /* untouched */
    ad_array_stream_unref(inner);
    tree_check_all_gone();
}

/* Waits, since host memory is kept until the device has read it. */
static void
check_all_gone(void)
{
    const struct ad_backend *backend;
    ad_context context;
    ok(ad_backend_open(here.type, &backend, &err));
    ok(backend->primary_context(here, &context, &err));
    ok(ad_deferred_wait(context, &err));
    tree_check_all_gone();
}

/* --- to ---------------------------------------------------------------------- */

static ad_array_stream *
brought_to(ad_array_stream *steal, ad_device target, int64_t prefetch)
{
    const ad_stream_ref none = {.kind = AD_REF_NONE};
    ad_array_stream *stream;
    ok(ad_array_stream_to(steal, target, prefetch, &none, &stream, &err));
    ad_array_stream_unref(steal);
    CHECK_INT(ad_array_stream_device_type(stream), target.type);
    return stream;
}

/* Copies begin for `prefetch` batches ahead, and for no others. */
static void
test_to_prefetches(void)
{
    const int64_t lengths[] = {1, 2, 3, 4, 5, -1};
    for (int prefetch = 0; prefetch < 7; prefetch++) {
        counter source;
        counter_init(&source, "l", lengths, AD_CPU);
        ad_array_stream *stream =
            brought_to(open_counter(&source, "l", AD_CPU), here, prefetch);
        CHECK_INT(source.n_given, 0);
        for (int i = 0; i < 5; i++) {
            ad_array array, back;
            bool is_end;
            ok(ad_array_stream_next(stream, &array, &is_end, &err));
            int ahead = i + 1 + prefetch;
            CHECK_INT(source.n_given, ahead < 6 ? ahead : 6);
            CHECK(ad_device_equal(array.memory.device, here));
            CHECK_INT(array.length, lengths[i]);
            ok(ad_array_copy_to(&array, AD_CPU, NULL, &back, &err));
            CHECK_INT(*(const int64_t *)back.node->buffers[1],
                      i * (i + 1) / 2);
            ad_array_clear(&back);
            ad_array_clear(&array);
        }
        ad_array_stream_unref(stream);
        CHECK_INT(source.n_destroyed, 1);
        check_all_gone();
    }
}

static void
test_to_device_and_back(void)
{
    const int64_t lengths[] = {3, 0, 4, 5, -1};
    for (int prefetch = 0; prefetch < 5; prefetch++) {
        counter source;
        int64_t at = 0;
        counter_init(&source, "l", lengths, AD_CPU);
        ad_array_stream *stream =
            brought_to(open_counter(&source, "l", AD_CPU), here, prefetch);
        stream = brought_to(stream, AD_CPU, 2);
        for (int i = 0; i < 4; i++) {
            CHECK(read_on(stream, lengths[i], &at));
        }
        CHECK(!read_on(stream, 0, &at));
        ad_array_stream_unref(stream);
        CHECK_INT(source.n_destroyed, 1);
        check_all_gone();
    }
}

static void
test_to_does_not_copy_batch_on_target(void)
{
    const int64_t lengths[] = {3, 3, -1};
    const ad_device device = {ARROW_DEVICE_VPI, 0}; /* without a runtime */
    counter source;
    counter_init(&source, "l", lengths, device);
    const struct ArrowArray *node = source.batches[0].node;
    ad_array_stream *stream =
        brought_to(open_counter(&source, "l", device), device, 1);
    ad_array array;
    bool is_end;
    ok(ad_array_stream_next(stream, &array, &is_end, &err));
    CHECK(array.node == node);
    ad_array_clear(&array);
    ad_array_stream_unref(stream); /* while a batch is in use */
    CHECK_INT(source.n_destroyed, 1);
    check_all_gone();
}

static void
test_to_fails_after_its_batches(void)
{
    const int64_t lengths[] = {2, 2, 2, -1};
    counter source;
    int64_t at = 0;
    counter_init(&source, "l", lengths, AD_CPU);
    source.fail_at = 2;
    ad_array_stream *stream =
        brought_to(open_counter(&source, "l", AD_CPU), here, 7);
    stream = brought_to(stream, AD_CPU, 0);
    CHECK(read_on(stream, 2, &at));
    CHECK(read_on(stream, 2, &at));
    check_failure(stream);
    ad_array_stream_unref(stream);
    CHECK_INT(source.n_destroyed, 1);
    check_all_gone();
}

/* The copy of the second batch cannot begin: there is no such device. */
static void
test_failed_copy_follows_its_batches(void)
{
    const ad_device nowhere = {ARROW_DEVICE_EXT_DEV, 9};
    const int64_t lengths[] = {2, 2, -1};
    counter source;
    ad_array array;
    bool is_end;
    counter_init(&source, "l", lengths, AD_CPU);
    source.batches[0].memory.device = nowhere; /* is there already */
    source.batches[1].memory.device = here;
    ad_array_stream *inner = open_counter(&source, "l", nowhere);
    ad_array_stream *stream = brought_to(inner, nowhere, 1);
    ok(ad_array_stream_next(stream, &array, &is_end, &err));
    CHECK(ad_device_equal(array.memory.device, nowhere));
    ad_array_clear(&array);
    for (int i = 0; i < 2; i++) {
        CHECK(ad_array_stream_next(stream, &array, &is_end, &err) != AD_OK);
        CHECK(!is_end && err.message[0] != '\0');
        CHECK_STR(ad_array_stream_last_error(stream), err.message);
    }
    ad_array_stream_unref(stream);
    CHECK_INT(source.n_destroyed, 1);
    check_all_gone();
}

/* --- chain -------------------------------------------------------------------- */

typedef struct list {
    ad_array_stream_list base;
    ad_array_stream *streams[4];
    int n_streams;
    int n_given;
    int fail_at;
    int n_destroyed;
} list;

static ad_status
list_next(ad_array_stream_list *base, ad_array_stream **out, ad_error *e)
{
    list *self = (list *)base;
    CHECK(self->n_given <= self->n_streams);
    if (self->n_given == self->fail_at) {
        return ad_fail(e, AD_ERR_EXCHANGE, "stream", NULL, "it broke");
    }
    *out = NULL;
    if (self->n_given < self->n_streams) {
        *out = self->streams[self->n_given];
        self->streams[self->n_given] = NULL;
    }
    self->n_given++;
    return AD_OK;
}

static const char *
list_last_error(ad_array_stream_list *base, int *code)
{
    (void)base;
    *code = ENOSPC;
    return "the list broke, and this is the whole story";
}

static void
list_destroy(ad_array_stream_list *base)
{
    list *self = (list *)base;
    for (int i = 0; i < self->n_streams; i++) {
        ad_array_stream_unref(self->streams[i]);
    }
    self->n_destroyed++;
}

static list
no_streams(void)
{
    return (list){.base = {list_next, list_last_error, list_destroy},
                  .fail_at = -1};
}

/* Three streams with consecutive numbers. */
static list
three_streams(counter *sources)
{
    static const int64_t lengths[3][3] = {{2, 3, -1}, {-1}, {0, 4, -1}};
    list all = no_streams();
    for (int i = 0; i < 3; i++) {
        counter_init(&sources[i], "l", lengths[i], AD_CPU);
        all.streams[all.n_streams++] = open_counter(&sources[i], "l", AD_CPU);
    }
    /* The last stream continues the first one's numbers. */
    ad_array_clear(&sources[2].batches[1]);
    make_batch("l", 5, 4, AD_CPU, &sources[2].batches[1]);
    return all;
}

static const ad_schema any = {0};

static void
test_chain(void)
{
    static const int64_t lengths[] = {2, 3, 0, 4};
    counter sources[3];
    ad_array_stream *stream;
    int64_t at = 0;
    list all = three_streams(sources);
    ok(ad_array_stream_chain(&all.base, any, &stream, &err));
    CHECK(ad_array_stream_chain_list(ad_array_stream_source(stream)) ==
          &all.base);
    CHECK_INT(all.n_given, 1); /* the next one when this one has ended */
    for (int i = 0; i < 4; i++) {
        CHECK(read_on(stream, lengths[i], &at));
        CHECK_INT(all.n_given, i < 2 ? 1 : 3);
        CHECK_INT(sources[0].n_destroyed, i < 2 ? 0 : 1);
    }
    CHECK(!read_on(stream, 0, &at));
    CHECK(!read_on(stream, 0, &at));
    CHECK_INT(all.n_given, 4);
    CHECK_INT(sources[2].n_destroyed, 1);
    CHECK_INT(all.n_destroyed, 0);
    ad_array_stream_unref(stream);
    CHECK_INT(all.n_destroyed, 1);
    check_all_gone();
}

static void
test_chain_is_dropped_early(void)
{
    counter sources[3];
    ad_array_stream *stream;
    int64_t at = 0;
    list all = three_streams(sources);
    ok(ad_array_stream_chain(&all.base, any, &stream, &err));
    CHECK(read_on(stream, 2, &at));
    ad_array_stream_close(stream);
    CHECK_INT(all.n_destroyed, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(sources[i].n_destroyed, 1);
    }
    ad_array_stream_unref(stream);
    check_all_gone();
}

static void
test_empty_chain(void)
{
    list none = no_streams();
    ad_array_stream *stream;
    int64_t at = 0;
    CHECK_INT(ad_array_stream_chain(&none.base, any, &stream, &err),
              AD_ERR_VALUE);
    CHECK_HAS(err.hint, "schema=");
    CHECK_INT(none.n_destroyed, 0); /* still the caller's */
    none = no_streams();
    ok(ad_array_stream_chain(&none.base, ad_schema_primitive("g"), &stream,
                             &err));
    CHECK_STR(ad_array_stream_schema(stream).node->format, "g");
    CHECK(!read_on(stream, 0, &at));
    ad_array_stream_unref(stream);
    CHECK_INT(none.n_destroyed, 1);
}

/* The second stream does not match the first one. */
static void
check_misfit(const char *format, int32_t device_type, const char *reason)
{
    const int64_t lengths[] = {1, -1};
    counter sources[2];
    list all = no_streams();
    ad_array_stream *stream;
    ad_array array;
    bool is_end;
    int64_t at = 0;
    ad_device device = {device_type, 0};
    counter_init(&sources[0], "l", lengths, AD_CPU);
    counter_init(&sources[1], format, lengths, device);
    all.streams[0] = open_counter(&sources[0], "l", AD_CPU);
    all.streams[1] = open_counter(&sources[1], format, device);
    all.n_streams = 2;
    ok(ad_array_stream_chain(&all.base, any, &stream, &err));
    CHECK(read_on(stream, 1, &at));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ad_array_stream_next(stream, &array, &is_end, &err),
                  AD_ERR_EXCHANGE);
        CHECK_STR(err.reason, reason);
        CHECK_HAS(err.message, "stream 1 is ");
        CHECK(err.hint[0] != '\0');
    }
    CHECK_INT(sources[1].n_destroyed, 1);
    ad_array_stream_unref(stream);
    CHECK_INT(all.n_destroyed, 1);
    check_all_gone();
}

static void
test_chain_refuses_other_type_or_device(void)
{
    check_misfit("g", ARROW_DEVICE_CPU, "schema");
    CHECK_HAS(err.message, "float64");
    CHECK_HAS(err.message, "int64");
    check_misfit("l", ARROW_DEVICE_VPI, "device");
    CHECK_HAS(err.message, "vpi");
    CHECK_HAS(err.message, "cpu");
}

static void
test_chain_checks_first_stream_against_schema(void)
{
    counter sources[3];
    ad_array_stream *stream;
    list all = three_streams(sources);
    CHECK_INT(ad_array_stream_chain(&all.base, ad_schema_primitive("g"),
                                    &stream, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "schema");
    CHECK_INT(sources[0].n_destroyed, 1);
    CHECK_INT(all.n_destroyed, 0);
    list_destroy(&all.base);
    check_all_gone();
}

static void
test_chain_fails(void)
{
    for (int of_list = 0; of_list < 2; of_list++) {
        counter sources[3];
        ad_array_stream *stream;
        int64_t at = 0;
        list all = three_streams(sources);
        if (of_list) {
            all.fail_at = 1;
        } else {
            sources[0].fail_at = 2;
        }
        ok(ad_array_stream_chain(&all.base, any, &stream, &err));
        CHECK(read_on(stream, 2, &at));
        CHECK(read_on(stream, 3, &at));
        check_failure(stream);
        ad_array_stream_unref(stream);
        CHECK_INT(all.n_destroyed, 1);
        check_all_gone();
    }
}

/* --- each allocation fails ------------------------------------------------------ */

/* Rechunks a chain of two streams, and copies it to a device and back. The
 * batches must not change, whichever allocation fails. */
static ad_status
read_through(list *all, ad_array_stream **stream, int64_t *at)
{
    static const ad_stream_ref none = {.kind = AD_REF_NONE};
    ad_array_stream *next;
    AD_RETURN_IF_ERR(ad_array_stream_chain(&all->base, any, stream, &err));
    AD_RETURN_IF_ERR(ad_array_stream_rechunk(*stream, 4, &next, &err));
    ad_array_stream_unref(*stream);
    *stream = next;
    AD_RETURN_IF_ERR(ad_array_stream_to(*stream, here, 1, &none, &next, &err));
    ad_array_stream_unref(*stream);
    *stream = next;
    AD_RETURN_IF_ERR(
        ad_array_stream_to(*stream, AD_CPU, 2, &none, &next, &err));
    ad_array_stream_unref(*stream);
    *stream = next;
    for (;;) {
        ad_array array;
        bool is_end;
        AD_RETURN_IF_ERR(ad_array_stream_next(*stream, &array, &is_end, &err));
        if (is_end) {
            return AD_OK;
        }
        const int64_t *values = array.node->buffers[1];
        for (int64_t i = 0; i < array.length; i++) {
            CHECK_INT(values[array.offset + i], (*at)++);
        }
        ad_array_clear(&array);
    }
}

/* The device's thread allocates too, so a failed allocation may not be one of
 * the stream. */
static void
test_each_allocation_fails(void)
{
    long n_failed = 0;
    for (long n = 1; n < 1000; n++) {
        counter sources[3];
        ad_array_stream *stream = NULL;
        int64_t at = 0;
        list all = three_streams(sources);
        check_fail_nth(n);
        ad_status status = read_through(&all, &stream, &at);
        bool has_failed = check_failed_once();
        check_fail_nth(0);
        n_failed += status != AD_OK;
        if (status == AD_OK) {
            CHECK_INT(at, 9);
        }
        if (stream == NULL) {
            list_destroy(&all.base);
        }
        ad_array_stream_unref(stream);
        CHECK_INT(all.n_destroyed, 1);
        for (int i = 0; i < 3; i++) {
            CHECK_INT(sources[i].n_destroyed, 1);
        }
        check_all_gone();
        if (!has_failed) {
            ok(status);
            CHECK(n_failed > 20);
            return;
        }
    }
    CHECK(false);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_rechunk),
        CHECK_TEST(test_rechunk_shares_slices),
        CHECK_TEST(test_rechunk_on_a_device),
        CHECK_TEST(test_rechunk_of_too_many_rows),
        CHECK_TEST(test_rechunk_fails_after_its_rows),
        CHECK_TEST(test_numbers_out_of_range),
        CHECK_TEST(test_to_prefetches),
        CHECK_TEST(test_to_device_and_back),
        CHECK_TEST(test_to_does_not_copy_batch_on_target),
        CHECK_TEST(test_to_fails_after_its_batches),
        CHECK_TEST(test_failed_copy_follows_its_batches),
        CHECK_TEST(test_chain),
        CHECK_TEST(test_chain_is_dropped_early),
        CHECK_TEST(test_empty_chain),
        CHECK_TEST(test_chain_refuses_other_type_or_device),
        CHECK_TEST(test_chain_checks_first_stream_against_schema),
        CHECK_TEST(test_chain_fails),
        CHECK_TEST(test_each_allocation_fails),
    };
    for (int i = 0; i < N_ROWS; i++) {
        numbers[i] = i;
    }
    ok(ad_software_start(1, &err));
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
