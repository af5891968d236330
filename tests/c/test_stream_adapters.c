/* Adapters at the largest sizes, and what they release where an allocation
 * fails. The copies run on the software device. tests/streams tests their
 * batches and when they read their source. */
#include "order/deferred_release.h"
#include "stream/adapters.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "device/foreign.h"
#include "test_device/software.h"
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
    int n_destroyed;
} counter;

static ad_status
counter_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *e)
{
    counter *self = (counter *)base;
    CHECK_INT(self->n_destroyed, 0);
    CHECK(self->n_given <= self->n_batches);
    *is_end = self->n_given == self->n_batches;
    if (!*is_end) {
        ad_array_share(&self->batches[self->n_given], out);
        ad_array_clear(&self->batches[self->n_given]);
    }
    self->n_given++;
    return AD_OK;
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
    *self =
        (counter){.base = {.next = counter_next, .destroy = counter_destroy}};
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

/* --- rechunk ---------------------------------------------------------------- */

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

/* --- chain -------------------------------------------------------------------- */

typedef struct list {
    ad_array_stream_list base;
    ad_array_stream *streams[4];
    int n_streams;
    int n_given;
    int n_destroyed;
} list;

static ad_status
list_next(ad_array_stream_list *base, ad_array_stream **out, ad_error *e)
{
    list *self = (list *)base;
    CHECK(self->n_given <= self->n_streams);
    *out = NULL;
    if (self->n_given < self->n_streams) {
        *out = self->streams[self->n_given];
        self->streams[self->n_given] = NULL;
    }
    self->n_given++;
    return AD_OK;
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

/* Three streams with consecutive numbers. */
static list
three_streams(counter *sources)
{
    static const int64_t lengths[3][3] = {{2, 3, -1}, {-1}, {0, 4, -1}};
    list all = {.base = {.next = list_next, .destroy = list_destroy}};
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
        CHECK_TEST(test_rechunk_of_too_many_rows),
        CHECK_TEST(test_each_allocation_fails),
    };
    for (int i = 0; i < N_ROWS; i++) {
        numbers[i] = i;
    }
    ok(ad_software_start(1, &err));
    ok(ad_foreign_register(ARROW_DEVICE_EXT_DEV, &ad_software_table, false,
                           &err));
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
