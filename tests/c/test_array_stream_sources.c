/* Streams over sources of the core, and each allocation that fails. */
#include <errno.h>

#include "pull_producer.h"

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
        CHECK_TEST(test_source_failure_is_final),
        CHECK_TEST(test_source_is_interrupted),
        CHECK_TEST(test_source_on_other_device_type),
        CHECK_TEST(test_each_allocation_fails),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
