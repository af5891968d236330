#include <inttypes.h>

#include "bridge/bridge.h"
#include "model/extension.h"
#include "base/owner.h"
#include "strided.h"

static ad_error err;

static const ad_bridge_options no_copy = {.copy = AD_COPY_NEVER};
static const ad_bridge_options any_copy = {.copy = AD_COPY_IF_NEEDED};
static const ad_bridge_options with_copy = {.copy = AD_COPY_ALWAYS};

static const ad_device cuda = {ARROW_DEVICE_CUDA, 0};

/* --- help ---------------------------------------------------------------- */

/* The tree is sound, and its type can be printed and carries no nulls. */
static void
check_sound(const ad_array *array)
{
    struct ArrowDeviceArray *holder;
    CHECK_INT(ad_array_export(array, &holder, &err), AD_OK);
    CHECK_INT(ad_schema_validate(array->schema.node, &err), AD_OK);
    if (ad_array_validate(array->schema.node, &holder->array, &err) != AD_OK) {
        fprintf(stderr, "%s: %s\n", err.path, err.message);
        CHECK(false);
    }
    ad_array_holder_free(holder);
    CHECK_INT(array->null_count, 0);
    CHECK(ad_array_has_no_nulls(array));
    CHECK_STR(array->schema.node->name, "");
    CHECK_INT(array->schema.node->flags, ARROW_FLAG_NULLABLE);
}

static void
back_to_tensor(const ad_array *array, const ad_bridge_options *options,
               ad_tensor_value *out)
{
    if (ad_tensor_from_array(array, options, out, &err) != AD_OK) {
        fprintf(stderr, "%s (%s)\n", err.message, err.hint);
        CHECK(false);
    }
}

static void
refuses_tensor(const ad_tensor *tensor, ad_copy copy, const char *reason,
               const char *hint)
{
    ad_array array;
    memset(&err, 0, sizeof(err));
    CHECK_INT(ad_array_from_tensor(tensor, copy, &array, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, reason);
    CHECK_HAS(err.hint, hint);
    CHECK(err.message[0] != '\0');
    CHECK_INT(ad_array_from_tensor(tensor, copy, &array, NULL),
              AD_ERR_EXCHANGE);
}

/* A tensor over the test's memory, C order, `dtype` of any width. */
static void
flat(const int64_t *shape, int32_t ndim, ad_dl_dtype dtype, ad_device device,
     uint64_t byte_offset, ad_tensor_value *out)
{
    ad_tensor_descriptor descriptor = {
        .data = STRIDED_BASE,
        .byte_offset = byte_offset,
        .dtype = dtype,
        .ndim = ndim,
        .memory.device = device,
        .shape = shape,
    };
    CHECK_INT(ad_tensor_check(&descriptor, "the test", out, &err), AD_OK);
}

/* --- there and back ------------------------------------------------------ */

/* Whether rows lie one after the other, dense in some order. */
static bool
rows_are_dense(const ad_tensor *tensor)
{
    int64_t low, high;
    int64_t size = ad_tensor_size(tensor);
    int64_t expected =
        tensor->ndim > 0 && tensor->shape[0] > 0 ? size / tensor->shape[0] : 1;
    ad_tensor_extent(tensor, &low, &high);
    if (size == 0) {
        return true;
    }
    /* No gaps, nothing backwards, nothing twice: with positive strides the
     * extent is the size of the elements only when they are dense. */
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->strides[i] <= 0) {
            return false;
        }
    }
    return high == ad_tensor_nbytes(tensor) &&
           (tensor->ndim == 0 || tensor->shape[0] == 1 ||
            tensor->strides[0] == expected);
}

static void
round_trip(const ad_tensor *source, bool *was_copied)
{
    ad_array array;
    ad_tensor_value back;
    ad_dl_dtype dtype;
    ad_status status =
        ad_array_from_tensor(source, AD_COPY_NEVER, &array, &err);
    *was_copied = status != AD_OK;
    if (*was_copied) {
        CHECK_INT(status, AD_ERR_EXCHANGE);
        CHECK_STR(err.reason, "strides");
        CHECK_INT(
            ad_array_from_tensor(source, AD_COPY_IF_NEEDED, &array, &err),
            AD_OK);
    }
    check_sound(&array);
    CHECK_INT(array.length, source->ndim > 0 ? source->shape[0] : 1);
    CHECK(ad_array_tensor_dtype(&array, &dtype));
    CHECK(ad_dtype_equal(dtype, source->dtype));
    back_to_tensor(&array, &no_copy, &back);
    strided_check_equal(source, &back.tensor);
    CHECK_INT(back.tensor.flags, AD_TENSOR_IMMUTABLE);
    if (ad_tensor_size(source) > 0) {
        CHECK((back.tensor.data == source->data) == !*was_copied);
    }
    ad_tensor_clear(&back.tensor);
    back_to_tensor(&array, &with_copy, &back);
    strided_check_equal(source, &back.tensor);
    CHECK_INT(back.tensor.flags, AD_TENSOR_COPIED);
    CHECK(back.tensor.data != source->data || back.tensor.data == NULL);
    ad_tensor_clear(&back.tensor);
    ad_array_clear(&array);
}

static void
test_all_shapes_and_strides(void)
{
    static const ad_dl_dtype dtypes[] = {
        {AD_DL_INT, 64, 1},          {AD_DL_UINT, 8, 1},
        {AD_DL_BOOL, 8, 1},          {AD_DL_COMPLEX, 64, 1},
        {AD_DL_COMPLEX, 128, 1},     {AD_DL_BFLOAT, 16, 1},
        {AD_DL_FLOAT, 32, 3},        {AD_DL_FLOAT8_E4M3, 8, 1},
        {AD_DL_FLOAT4_E2M1FN, 4, 2}, {77, 24, 1},
        {AD_DL_OPAQUE, 64, 1},       {AD_DL_COMPLEX, 32, 1},
    };
    for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++) {
        for (size_t i = 0; i < N_STRIDED_SHAPES; i++) {
            for (int mode = 0; mode < N_STRIDED_MODES; mode++) {
                ad_tensor_value x;
                bool was_copied;
                strided_make(&strided_shapes[i], mode, dtypes[k], &x);
                round_trip(&x.tensor, &was_copied);
                CHECK_INT(was_copied, !rows_are_dense(&x.tensor));
            }
        }
    }
}

static void
test_every_number_is_its_own_column(void)
{
#define AD_DTYPE(tag, name, code, bits, arrow, extension, typestr, buffer)    \
    {{code, bits, 1}, arrow, AD_DTYPE_##extension},
    static const struct {
        ad_dl_dtype dtype;
        const char *arrow;
        ad_dtype_extension extension;
    } rows[] = {
#include "model/dtypes.def"
    };
#undef AD_DTYPE
    int64_t shape[] = {3};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ad_tensor_value x;
        ad_array array;
        if (rows[i].arrow[0] == '\0') {
            continue;
        }
        flat(shape, 1, rows[i].dtype, AD_CPU, 0, &x);
        CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
                  AD_OK);
        CHECK_STR(array.schema.node->format, rows[i].arrow);
        if (rows[i].extension == AD_DTYPE_NONE) {
            CHECK(array.schema.owner == NULL);
            CHECK(array.schema.node->metadata == NULL);
        } else {
            ad_extension extension;
            CHECK_INT(ad_extension_read(array.schema.node, &extension, &err),
                      AD_OK);
            CHECK_INT(extension.kind, rows[i].extension == AD_DTYPE_BOOL8
                                          ? AD_EXTENSION_BOOL8
                                          : AD_EXTENSION_DLPACK);
        }
        ad_array_clear(&array);
    }
}

static void
test_a_plain_column_takes_one_allocation(void)
{
    ad_tensor_value x, back;
    ad_array array;
    strided_make(&(strided_shape){1, {7}}, STRIDED_C, I64, &x);
    check_fail_nth(2);
    CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_IF_NEEDED, &array, &err),
              AD_OK);
    CHECK(!check_failed_once());
    check_fail_nth(1);
    CHECK_INT(ad_tensor_from_array(&array, &any_copy, &back, &err), AD_OK);
    CHECK(!check_failed_once());
    check_fail_nth(0);
    ad_tensor_clear(&back.tensor);
    ad_array_clear(&array);
}

static void
test_scalars(void)
{
    static const ad_dl_dtype dtypes[] = {
        {AD_DL_INT, 64, 1}, {AD_DL_BOOL, 8, 1}, {AD_DL_COMPLEX, 64, 1}};
    for (size_t k = 0; k < 3; k++) {
        ad_tensor_value x, back;
        ad_array array, none;
        flat(NULL, 0, dtypes[k], AD_CPU, 0, &x);
        CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
                  AD_OK);
        back_to_tensor(&array, &no_copy, &back);
        CHECK_INT(back.tensor.ndim, 0);
        strided_check_equal(&x.tensor, &back.tensor);
        ad_tensor_clear(&back.tensor);
        /* Any other number of rows is a column. */
        CHECK_INT(ad_array_slice(&array, 0, 0, &none, &err), AD_OK);
        back_to_tensor(&none, &no_copy, &back);
        CHECK_INT(back.tensor.ndim, 1);
        CHECK_INT(back.tensor.shape[0], 0);
        ad_tensor_clear(&back.tensor);
        ad_array_clear(&none);
        ad_array_clear(&array);
    }
}

static void
test_permutation_is_as_arrow_defines_it(void)
{
    /* Logical rows of shape [4, 2, 3] that lie in memory as [2, 3, 4]:
     * logical dimension i is physical dimension permutation[i]. */
    int64_t shape[] = {2, 4, 2, 3};
    int64_t strides[] = {24, 1, 12, 4};
    ad_tensor_descriptor descriptor = {.data = STRIDED_BASE,
                                       .dtype = I16,
                                       .ndim = 4,
                                       .memory.device = AD_CPU,
                                       .shape = shape,
                                       .strides = strides};
    ad_tensor_value x;
    ad_array array;
    ad_extension extension;
    CHECK_INT(ad_tensor_check(&descriptor, "x", &x, &err), AD_OK);
    CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
              AD_OK);
    CHECK_STR(array.schema.node->format, "+w:24");
    CHECK_STR(array.schema.node->children[0]->name, "item");
    CHECK_STR(array.schema.node->children[0]->format, "s");
    CHECK_INT(ad_extension_read(array.schema.node, &extension, &err), AD_OK);
    CHECK_INT(extension.kind, AD_EXTENSION_FIXED_SHAPE_TENSOR);
    CHECK_INT(extension.ndim, 3);
    CHECK_INT(extension.shape[0], 2);
    CHECK_INT(extension.shape[1], 3);
    CHECK_INT(extension.shape[2], 4);
    CHECK_INT(extension.permutation[0], 2);
    CHECK_INT(extension.permutation[1], 0);
    CHECK_INT(extension.permutation[2], 1);
    ad_array_clear(&array);
}

static void
test_slices_come_back_as_slices(void)
{
    static const ad_dl_dtype dtypes[] = {
        {AD_DL_INT, 16, 1}, {AD_DL_COMPLEX, 64, 1}, {AD_DL_FLOAT, 32, 3}};
    for (size_t k = 0; k < 3; k++) {
        ad_tensor_value x, back;
        ad_array array, slice;
        strided_make(&(strided_shape){3, {5, 2, 3}}, STRIDED_ROWS_F, dtypes[k],
                     &x);
        CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
                  AD_OK);
        CHECK_INT(ad_array_slice(&array, 2, 3, &slice, &err), AD_OK);
        ad_array_clear(&array);
        back_to_tensor(&slice, &no_copy, &back);
        x.tensor.shape[0] = 3;
        x.tensor.data =
            (char *)x.tensor.data + 2 * 6 * ad_dtype_bits(dtypes[k]) / 8;
        CHECK(back.tensor.data == x.tensor.data);
        strided_check_equal(&x.tensor, &back.tensor);
        ad_tensor_clear(&back.tensor);
        ad_array_clear(&slice);
    }
}

/* --- owner, sync, flags -------------------------------------------------- */

static int n_destroyed;

static void
count_destroy(ad_owner *self)
{
    n_destroyed++;
}

static const ad_owner_ops count_ops = {.destroy = count_destroy,
                                       .name = "test"};

static void
test_lifetime_event_and_flags_travel(void)
{
    static const strided_shape shapes[] = {{1, {4}}, {3, {2, 3, 2}}};
    int event = 0;
    for (size_t k = 0; k < 2; k++) {
        ad_owner owner;
        ad_tensor_value x, back;
        ad_array array;
        n_destroyed = 0;
        ad_owner_init(&owner, &count_ops);
        strided_make(&shapes[k], STRIDED_C, k == 0 ? I64 : C64, &x);
        x.tensor.memory.device = cuda;
        x.tensor.memory.readonly = true;
        x.tensor.memory.owner = &owner;
        CHECK_INT(ad_sync_new(AD_SYNC_EVENT, cuda, &event, NULL,
                              &x.tensor.memory.sync, &err),
                  AD_OK);
        ad_sync *sync = x.tensor.memory.sync;
        CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
                  AD_OK);
        CHECK(array.memory.readonly && array.memory.sync == sync);
        CHECK(ad_device_equal(array.memory.device, cuda));
        ad_tensor_clear(&x.tensor);
        back_to_tensor(&array, &any_copy, &back);
        ad_array_clear(&array);
        CHECK_INT(n_destroyed, 0);
        CHECK(back.tensor.memory.sync == sync);
        CHECK_INT(back.tensor.flags, AD_TENSOR_IMMUTABLE);
        CHECK(back.tensor.memory.readonly);
        ad_tensor_clear(&back.tensor);
        CHECK_INT(n_destroyed, 1);
    }
}

/* --- devices ------------------------------------------------------------- */

static void
test_devices_do_not_copy(void)
{
    ad_tensor_value x;
    ad_array array;
    strided_make(&(strided_shape){2, {3, 4}}, STRIDED_F, I64, &x);
    x.tensor.memory.device = cuda;
    refuses_tensor(&x.tensor, AD_COPY_IF_NEEDED, "strides",
                   "make it contiguous in the producing library");
    CHECK(err.has_device && ad_device_equal(err.device, cuda));
    refuses_tensor(&x.tensor, AD_COPY_NEVER, "strides", "contiguous");
    refuses_tensor(&x.tensor, AD_COPY_ALWAYS, "runtime", "");
    strided_make(&(strided_shape){1, {4}}, STRIDED_C, I64, &x);
    x.tensor.memory.device = cuda;
    refuses_tensor(&x.tensor, AD_COPY_ALWAYS, "runtime", "");
    CHECK(err.has_device && err.device.type == cuda.type);
    CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
              AD_OK);
    ad_tensor_value back;
    memset(&err, 0, sizeof(err));
    CHECK_INT(ad_tensor_from_array(&array, &with_copy, &back, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "runtime");
    ad_array_clear(&array);
}

static void
test_handles(void)
{
    static const ad_device opencl = {ARROW_DEVICE_OPENCL, 0};
    static const struct {
        ad_dl_dtype dtype;
        int32_t ndim;
        uint64_t byte_offset;
        bool works;
    } cases[] = {
        {{AD_DL_INT, 64, 1}, 1, 0, true},
        {{AD_DL_INT, 64, 1}, 1, 40, true},
        {{AD_DL_INT, 64, 1}, 1, 41, false},
        {{AD_DL_INT, 64, 1}, 3, 40, true},
        {{AD_DL_INT, 64, 1}, 3, 4, false},
        {{AD_DL_COMPLEX, 64, 1}, 1, 12, true}, /* halves have 4 bytes */
        {{AD_DL_COMPLEX, 64, 1}, 3, 10, false},
        {{AD_DL_FLOAT, 32, 3}, 3, 24, true},
        {{AD_DL_FLOAT, 32, 3}, 3, 20, false},
    };
    int64_t shape[] = {3, 2, 2};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ad_tensor_value x, back;
        ad_array array;
        flat(shape, cases[i].ndim, cases[i].dtype, opencl,
             cases[i].byte_offset, &x);
        if (!cases[i].works) {
            refuses_tensor(&x.tensor, AD_COPY_IF_NEEDED, "strides",
                           "buffer of its own");
            continue;
        }
        CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
                  AD_OK);
        check_sound(&array);
        back_to_tensor(&array, &no_copy, &back);
        CHECK(back.tensor.data == (void *)STRIDED_BASE);
        CHECK_INT(back.tensor.byte_offset, cases[i].byte_offset);
        ad_tensor_clear(&back.tensor);
        ad_array_clear(&array);
    }
}

/* --- less than a byte ---------------------------------------------------- */

static void
packed_round_trip(ad_dl_dtype dtype, int32_t ndim, const int64_t *shape,
                  const char *leaf_format)
{
    ad_tensor_value x, back;
    ad_array array;
    for (int copy = AD_COPY_IF_NEEDED; copy <= AD_COPY_ALWAYS; copy++) {
        flat(shape, ndim, dtype, AD_CPU, 0, &x);
        CHECK_INT(ad_array_from_tensor(&x.tensor, copy, &array, &err), AD_OK);
        check_sound(&array);
        const struct ArrowSchema *leaf = array.schema.node;
        leaf = leaf->n_children > 0 ? leaf->children[0] : leaf;
        CHECK_STR(leaf->format, leaf_format);
        back_to_tensor(&array, copy == AD_COPY_ALWAYS ? &with_copy : &no_copy,
                       &back);
        CHECK(ad_dtype_equal(back.tensor.dtype, dtype));
        CHECK_INT(back.tensor.ndim, ndim);
        for (int32_t i = 0; i < ndim; i++) {
            CHECK_INT(back.tensor.shape[i], shape[i]);
            CHECK_INT(back.tensor.strides[i], x.tensor.strides[i]);
        }
        CHECK((back.tensor.data == x.tensor.data) ==
              (copy != AD_COPY_ALWAYS || x.tensor.data == NULL));
        CHECK(x.tensor.data == NULL ||
              memcmp(back.tensor.data, x.tensor.data,
                     (size_t)ad_tensor_nbytes(&x.tensor)) == 0);
        ad_tensor_clear(&back.tensor);
        ad_array_clear(&array);
    }
}

static void
test_packed_rows(void)
{
    packed_round_trip(FP4, 2, (int64_t[]){3, 6}, "w:3");
    packed_round_trip(FP4, 3, (int64_t[]){3, 5, 2}, "w:1");
    packed_round_trip(FP6, 2, (int64_t[]){3, 4}, "w:3");
    packed_round_trip(FP6, 4, (int64_t[]){2, 3, 1, 8}, "w:6");
    packed_round_trip((ad_dl_dtype){77, 1, 1}, 2, (int64_t[]){2, 16}, "w:2");
    packed_round_trip((ad_dl_dtype){AD_DL_FLOAT6_E2M3FN, 6, 2}, 2,
                      (int64_t[]){3, 2}, "w:3");
    packed_round_trip(FP4, 2, (int64_t[]){0, 6}, "w:3");
    packed_round_trip(FP4, 3, (int64_t[]){2, 0, 6}, "w:3");
}

static void
test_packed_that_do_not_fit(void)
{
    ad_tensor_value x;
    static const strided_shape shapes[] = {
        {0, {0}}, {1, {8}}, {2, {3, 3}}, {3, {2, 2, 3}}, {2, {3, 0}}};
    for (size_t i = 0; i < 5; i++) {
        flat(shapes[i].extent, shapes[i].ndim, FP4, AD_CPU, 0, &x);
        refuses_tensor(&x.tensor, AD_COPY_IF_NEEDED, "dtype", "reshape");
        CHECK_STR(err.dtype, "float4_e2m1fn");
    }
    strided_make(&(strided_shape){2, {4, 4}}, STRIDED_F, FP4, &x);
    refuses_tensor(&x.tensor, AD_COPY_IF_NEEDED, "strides", "contiguous");
    refuses_tensor(&x.tensor, AD_COPY_ALWAYS, "dtype", "contiguous");
    flat((int64_t[]){4, 4}, 2, FP4, AD_CPU, 0, &x);
    x.tensor.flags = AD_TENSOR_SUBBYTE_PADDED;
    refuses_tensor(&x.tensor, AD_COPY_IF_NEEDED, "dtype", "pack it");
    CHECK_HAS(err.message, "one byte per element");
    /* Padding means nothing where elements are whole bytes. */
    ad_array array;
    flat((int64_t[]){4}, 1, F32, AD_CPU, 0, &x);
    x.tensor.flags = AD_TENSOR_SUBBYTE_PADDED;
    CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
              AD_OK);
    ad_array_clear(&array);
}

/* --- allocations that fail ----------------------------------------------- */

static void
test_each_allocation_fails(void)
{
    static const struct {
        ad_dl_dtype dtype;
        int mode;
    } cases[] = {
        {{AD_DL_INT, 64, 1}, STRIDED_C},
        {{AD_DL_COMPLEX, 64, 1}, STRIDED_ROWS_F},
        {{AD_DL_BOOL, 8, 1}, STRIDED_BACK},
    };
    for (size_t k = 0; k < 3; k++) {
        for (int32_t ndim = 0; ndim <= 3; ndim++) {
            ad_tensor_value x, back;
            ad_array array;
            strided_shape shape = {ndim, {2, 3, 2}};
            ad_status status = AD_ERR_MEMORY;
            strided_make(&shape, cases[k].mode, cases[k].dtype, &x);
            for (long n = 1; status != AD_OK; n++) {
                CHECK_INT(status, AD_ERR_MEMORY);
                check_fail_nth(n);
                status = ad_array_from_tensor(&x.tensor, AD_COPY_IF_NEEDED,
                                              &array, &err);
                CHECK(check_failed_once() || status == AD_OK);
                check_fail_nth(0);
            }
            status = AD_ERR_MEMORY;
            for (long n = 1; status != AD_OK; n++) {
                CHECK_INT(status, AD_ERR_MEMORY);
                check_fail_nth(n);
                status = ad_tensor_from_array(&array, &with_copy, &back, &err);
                check_fail_nth(0);
            }
            ad_tensor_clear(&back.tensor);
            ad_array_clear(&array);
        }
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_all_shapes_and_strides),
        CHECK_TEST(test_every_number_is_its_own_column),
        CHECK_TEST(test_a_plain_column_takes_one_allocation),
        CHECK_TEST(test_scalars),
        CHECK_TEST(test_permutation_is_as_arrow_defines_it),
        CHECK_TEST(test_slices_come_back_as_slices),
        CHECK_TEST(test_lifetime_event_and_flags_travel),
        CHECK_TEST(test_devices_do_not_copy),
        CHECK_TEST(test_handles),
        CHECK_TEST(test_packed_rows),
        CHECK_TEST(test_packed_that_do_not_fit),
        CHECK_TEST(test_each_allocation_fails),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
