/* Copies and kernels on the software device: strides, bits, and failing
 * allocations. tests/devices/test_copies.py tests whole trees. */
#include <time.h>

#include "compute/bits.h"
#include "bridge/bridge.h"
#include "base/owner.h"
#include "order/deferred_release.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "device/foreign.h"
#include "test_device/software.h"
#include "test_device/engine.h"
#include "validate/validate.h"

#include "strided.h"

static ad_error err;
static const ad_device here = {ARROW_DEVICE_EXT_DEV, 0};
static const ad_device there = {ARROW_DEVICE_EXT_DEV, 1};

static void
ok(ad_status status)
{
    if (status != AD_OK) {
        fprintf(stderr, "%s (%s)\n", err.message, err.hint);
    }
    CHECK_INT(status, AD_OK);
}

/* --- tensors ------------------------------------------------------------- */

static void
check_equal(const ad_tensor *found, const ad_tensor *expected)
{
    ad_tensor_value back;
    ok(ad_tensor_copy_to(found, AD_CPU, NULL, 0, NULL, &back, &err));
    CHECK(back.tensor.memory.sync == NULL);
    strided_check_equal(expected, &back.tensor);
    ad_tensor_clear(&back.tensor);
}

/* The same strides over a copy of the memory on the device. */
static void
strided_on_device(const ad_tensor *host, const ad_tensor *memory,
                  ad_tensor_value *out)
{
    ad_tensor_share(host, out);
    if (host->data != NULL) {
        out->tensor.data = (char *)memory->data +
                           ((unsigned char *)host->data - strided_memory);
    }
    out->tensor.memory.device = memory->memory.device;
    out->tensor.memory.owner = ad_owner_ref(memory->memory.owner);
    out->tensor.memory.sync = ad_sync_ref(memory->memory.sync);
}

static void
copy_memory(ad_tensor_value *out)
{
    const int64_t n = sizeof(strided_memory);
    ad_tensor_descriptor descriptor = {
        .data = strided_memory,
        .dtype = U8,
        .ndim = 1,
        .memory.device = AD_CPU,
        .shape = &n,
    };
    ad_tensor_value all;
    ok(ad_tensor_check(&descriptor, "the test", &all, &err));
    ok(ad_tensor_copy_to(&all.tensor, here, NULL, 'C', NULL, out, &err));
    CHECK_INT(out->tensor.flags, AD_TENSOR_COPIED);
    CHECK(ad_device_equal(out->tensor.memory.device, here));
    CHECK(out->tensor.memory.sync != NULL);
    check_equal(&out->tensor, &all.tensor);
}

static void
check_copies(const ad_tensor *host, const ad_tensor *memory)
{
    const ad_device targets[] = {{1, -1}, here, there};
    ad_tensor_value on_device, copy;
    strided_on_device(host, memory, &on_device);
    for (size_t i = 0; i < 3; i++) {
        for (const char *order = "CF"; *order != '\0'; order++) {
            ok(ad_tensor_copy_to(&on_device.tensor, targets[i], NULL, *order,
                                 NULL, &copy, &err));
            CHECK(ad_device_equal(copy.tensor.memory.device, targets[i]));
            CHECK(ad_tensor_is_contiguous(&copy.tensor, *order));
            check_equal(&copy.tensor, host);
            ad_tensor_clear(&copy.tensor);
        }
    }
    ok(ad_tensor_copy_to(host, there, NULL, 'C', NULL, &copy, &err));
    check_equal(&copy.tensor, host);
    ad_tensor_clear(&copy.tensor);
    ad_tensor_clear(&on_device.tensor);
}

static void
test_strided_copies_equal_their_source(void)
{
    static const ad_dl_dtype dtypes[] = {
        {AD_DL_UINT, 8, 1}, {AD_DL_UINT, 24, 1}, {AD_DL_COMPLEX, 128, 1}};
    ad_tensor_value memory, x;
    copy_memory(&memory);
    for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++) {
        for (size_t i = 0; i < N_STRIDED_SHAPES; i++) {
            for (int mode = 0; mode < N_STRIDED_MODES; mode++) {
                strided_make(&strided_shapes[i], mode, dtypes[k], &x);
                check_copies(&x.tensor, &memory.tensor);
            }
        }
    }
    for (int mode = 0; mode < N_STRIDED_MODES; mode++) {
        strided_make(&(strided_shape){3, {3, 70, 65}}, mode, U8, &x);
        check_copies(&x.tensor, &memory.tensor);
        strided_make(&(strided_shape){3, {70, 3, 65}}, mode, U8, &x);
        check_copies(&x.tensor, &memory.tensor);
    }
    ad_tensor_clear(&memory.tensor);
}

static void
test_packed_elements_are_copied_in_their_own_order_only(void)
{
    ad_tensor_value x, copy;
    ad_tensor_descriptor descriptor = {
        .data = STRIDED_BASE,
        .dtype = FP4,
        .ndim = 2,
        .memory.device = AD_CPU,
        .shape = (int64_t[]){3, 3},
    };
    ok(ad_tensor_check(&descriptor, "the test", &x, &err));
    ok(ad_tensor_copy_to(&x.tensor, here, NULL, 'C', NULL, &copy, &err));
    unsigned char bytes[5];
    ok(ad_read_device(here, copy.tensor.data, NULL, 0, 5,
                      copy.tensor.memory.sync, NULL, bytes, &err));
    CHECK(memcmp(bytes, STRIDED_BASE, 5) == 0);
    ad_tensor_value again;
    CHECK_INT(
        ad_tensor_copy_to(&copy.tensor, there, NULL, 'F', NULL, &again, &err),
        AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "dtype");
    CHECK(err.hint[0] != '\0');
    ad_tensor_clear(&copy.tensor);
}

/* --- asynchronous moves -------------------------------------------------- */

static const int64_t values[] = {1, 2, 3, 4};

/* Copies values to the device; the copy waits until `queue` is released. */
static void
make_pending_array(uint64_t queue, ad_array *out)
{
    const void *buffers[] = {NULL, values};
    const ad_stream_ref choice =
        ad_stream_named((ad_context){here, NULL}, (ad_stream){queue}, NULL);
    const ad_array_spec spec = {
        .schema = ad_schema_primitive("l"),
        .memory = {.device = AD_CPU},
        .length = 4,
        .n_buffers = 2,
        .buffers = buffers,
    };
    ad_array on_host;
    ok(ad_array_build(&spec, &on_host, &err));
    CHECK_INT(ad_engine_queue_hold(queue), AD_ENGINE_OK);
    ok(ad_array_copy_to(&on_host, here, &choice, NULL, out, &err));
    ad_array_clear(&on_host);
}

/* Begins a copy to the host, which does not wait. `is_dropped`: the move is
 * abandoned, so that only the device refers to the written memory. */
static void
check_move(bool is_dropped)
{
    const struct ad_backend *backend;
    uint64_t queue;
    ad_context context;
    ad_array source, found;
    ad_array_move move;
    bool is_done;
    CHECK_INT(ad_engine_queue_create(0, NULL, NULL, &queue), AD_ENGINE_OK);
    make_pending_array(queue, &source);
    ok(ad_array_move_begin(&source, false, AD_CPU, NULL, &move, &err));
    ad_array_clear(&source);
    ok(ad_sync_query(move.array.memory.sync, &is_done, &err));
    CHECK(!is_done);
    if (is_dropped) {
        ad_array_move_drop(&move);
        CHECK(move.array.node == NULL);
    }
    CHECK_INT(ad_engine_queue_release(queue), AD_ENGINE_OK);
    if (!is_dropped) {
        ok(ad_array_move_end(&move, &found, &err));
        CHECK(found.memory.sync == NULL &&
              ad_device_equal(found.memory.device, AD_CPU));
        CHECK(memcmp(found.node->buffers[1], values, sizeof(values)) == 0);
        ad_array_clear(&found);
    }
    ok(ad_backend_open(here.type, &backend, &err));
    ok(backend->primary_context(here, &context, &err));
    ok(ad_deferred_wait(context, &err));
    CHECK_INT(ad_deferred_count(), 0);
    CHECK_INT(ad_engine_queue_destroy(queue), AD_ENGINE_OK);
}

static void
test_move_end_waits_for_a_copy_to_the_host(void)
{
    check_move(false);
}

static void
test_dropped_move_keeps_the_memory_alive(void)
{
    check_move(true);
}

static void
test_move_between_names_of_one_memory_is_an_alias(void)
{
    const ad_device pinned = {ARROW_DEVICE_CUDA_HOST, 0};
    const ad_device cuda = {ARROW_DEVICE_CUDA, 0};
    CHECK_INT(ad_move_for(here, here), AD_MOVE_NONE);
    CHECK_INT(ad_move_for(pinned, AD_CPU), AD_MOVE_ALIAS);
    CHECK_INT(ad_move_for(pinned, cuda), AD_MOVE_ALIAS);
    CHECK_INT(ad_move_for(AD_CPU, pinned), AD_MOVE_COPY);
    CHECK_INT(ad_move_for(here, there), AD_MOVE_COPY);
    CHECK_INT(ad_move_for(here, AD_CPU), AD_MOVE_COPY);
}

/* --- failing allocations ------------------------------------------------- */

static ad_status
copy_there_and_back(const ad_tensor *x)
{
    ad_tensor_value a, b, c;
    AD_RETURN_IF_ERR(ad_tensor_copy_to(x, here, NULL, 'C', NULL, &a, &err));
    ad_status status =
        ad_tensor_copy_to(&a.tensor, there, NULL, 'F', NULL, &b, &err);
    if (status == AD_OK) {
        status =
            ad_tensor_copy_to(&b.tensor, AD_CPU, NULL, 'C', NULL, &c, &err);
        if (status == AD_OK) {
            strided_check_equal(x, &c.tensor);
            ad_tensor_clear(&c.tensor);
        }
        ad_tensor_clear(&b.tensor);
    }
    ad_tensor_clear(&a.tensor);
    return status;
}

static void
test_failing_allocations_are_reported(void)
{
    ad_tensor_value x;
    long n_failed = 0;
    strided_make(&(strided_shape){2, {30, 40}}, STRIDED_PITCH, I16, &x);
    for (long n = 1; n < 1000; n++) {
        check_fail_nth(n);
        ad_status status = copy_there_and_back(&x.tensor);
        bool has_failed = check_failed_once();
        check_fail_nth(0);
        n_failed += status != AD_OK;
        if (!has_failed) {
            ok(status);
            CHECK(n_failed > 5);
            return;
        }
    }
    CHECK(false);
}

/* Only rows without buffers can be as many. Their bits need fewer bytes than
 * 2^63, although (n + 7) / 8 overflows. */
static void
test_most_rows_without_buffers(void)
{
    const ad_schema_spec empty_struct = {
        .format = "+s",
        .flags = ARROW_FLAG_NULLABLE,
    };
    const void *const buffers[] = {NULL};
    ad_array_spec spec = {
        .memory.device = AD_CPU,
        .length = INT64_MAX - 1,
        .n_buffers = 1,
        .buffers = buffers,
    };
    ad_array array, there_array;
    ok(ad_schema_build(&empty_struct, &spec.schema, &err));
    ok(ad_array_build(&spec, &array, &err));
    ok(ad_array_validate_full(&array, &err));
    ok(ad_array_copy_to(&array, here, NULL, NULL, &there_array, &err));
    CHECK_INT(there_array.length, INT64_MAX - 1);
    ok(ad_array_validate_full(&there_array, &err));
    ad_array_clear(&there_array);
    ad_array_clear(&array);
    ad_schema_unref(spec.schema);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_strided_copies_equal_their_source),
        CHECK_TEST(test_packed_elements_are_copied_in_their_own_order_only),
        CHECK_TEST(test_move_end_waits_for_a_copy_to_the_host),
        CHECK_TEST(test_dropped_move_keeps_the_memory_alive),
        CHECK_TEST(test_move_between_names_of_one_memory_is_an_alias),
        CHECK_TEST(test_failing_allocations_are_reported),
        CHECK_TEST(test_most_rows_without_buffers),
    };
    strided_prepare();
    ok(ad_software_start(2, &err));
    ok(ad_foreign_register(ARROW_DEVICE_EXT_DEV, &ad_software_table, false,
                           &err));
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
