/* Tensors as columns and back: what few producers make. tests/types and
 * tests/arrays/test_nulls.py test the rest of the bridge. */
#include "bridge/bridge.h"
#include "model/extension.h"
#include "strided.h"

static ad_error err;

static const ad_bridge_options plain = {.copy = AD_COPY_IF_NEEDED};
static const ad_bridge_options no_copy = {.copy = AD_COPY_NEVER};

/* A schema of one node, over `child` if it is not NULL (which it takes). */
static ad_schema
schema_of(const char *format, const ad_extension *extension, ad_schema *child,
          ad_schema *dictionary)
{
    ad_schema out;
    char *metadata = NULL;
    if (extension != NULL) {
        CHECK_INT(ad_extension_metadata(extension, &metadata, &err), AD_OK);
    }
    ad_schema_spec spec = {
        .format = format,
        .metadata = metadata,
        .flags = ARROW_FLAG_NULLABLE,
        .n_children = child != NULL,
        .children = child,
        .dictionary = dictionary,
    };
    CHECK_INT(ad_schema_build(&spec, &out, &err), AD_OK);
    free(metadata);
    if (child != NULL) {
        ad_schema_unref(*child);
    }
    return out;
}

/* Takes schema and child. */
static ad_array
array_of(ad_schema schema, int64_t n_buffers, const void *validity,
         const void *data, int64_t offset, int64_t length, int64_t null_count,
         ad_array *child)
{
    const void *buffers[] = {validity, data, data};
    ad_array out;
    ad_array_spec spec = {
        .schema = schema,
        .memory.device = AD_CPU,
        .length = length,
        .offset = offset,
        .null_count = null_count,
        .n_buffers = n_buffers,
        .buffers = buffers,
        .n_children = child != NULL,
        .children = child,
    };
    CHECK_INT(ad_array_build(&spec, &out, &err), AD_OK);
    ad_schema_unref(schema);
    if (child != NULL) {
        ad_array_clear(child);
    }
    return out;
}

static ad_array
column(const char *format, const void *validity, const void *data,
       int64_t offset, int64_t length, int64_t null_count)
{
    return array_of(schema_of(format, NULL, NULL, NULL), 2, validity, data,
                    offset, length, null_count, NULL);
}

static void
refuses(const ad_array *array, const ad_bridge_options *options,
        ad_status status, const char *reason, const char *hint)
{
    ad_tensor_value out;
    memset(&err, 0, sizeof(err));
    CHECK_INT(ad_tensor_from_array(array, options, &out, &err), status);
    CHECK_STR(err.reason, reason);
    CHECK_HAS(err.hint, hint);
    CHECK(err.message[0] != '\0');
    CHECK_INT(ad_tensor_from_array(array, options, &out, NULL), status);
}

static const uint8_t some_bits[] = {0xb7, 0xff, 0xff, 0xff}; /* 3, 6 unset */

static ad_array
lists_of(ad_array *child, const char *format, const ad_extension *extension,
         const void *validity, int64_t offset, int64_t length,
         int64_t null_count)
{
    ad_schema inner = ad_schema_ref(child->schema);
    return array_of(schema_of(format, extension, &inner, NULL), 1, validity,
                    NULL, offset, length, null_count, child);
}

static void
converts(const ad_array *array, const ad_bridge_options *options,
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

/* --- memory --------------------------------------------------------------- */

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
    CHECK_INT(ad_tensor_from_array(&array, &plain, &back, &err), AD_OK);
    CHECK(!check_failed_once());
    check_fail_nth(0);
    ad_tensor_clear(&back.tensor);
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
        converts(&array, &no_copy, &back);
        CHECK(back.tensor.data == (void *)STRIDED_BASE);
        CHECK_INT(back.tensor.byte_offset, cases[i].byte_offset);
        ad_tensor_clear(&back.tensor);
        ad_array_clear(&array);
    }
}

/* --- nulls ---------------------------------------------------------------- */

static void
test_nulls_on_a_device(void)
{
    static const ad_device cuda = {ARROW_DEVICE_CUDA, 0};
    static const ad_bridge_options ignore = {.copy = AD_COPY_NEVER,
                                             .nulls = AD_NULLS_IGNORE};
    ad_tensor_value out;
    const void *bitmap = (const void *)64; /* faults when read */
    const void *data = (const void *)128;
    int64_t fill = 0;
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = &fill};
    ad_array array = column("l", bitmap, data, 0, 8, -1);
    array.memory.device = cuda;
    refuses(&array, &plain, AD_ERR_EXCHANGE, "nulls", "nulls=\"ignore\"");
    CHECK_HAS(err.message, "may have nulls");
    CHECK(err.has_device);
    refuses(&array, &filling, AD_ERR_EXCHANGE, "runtime", "");
    array.memory.device = AD_CPU;
    array.null_count = 3;
    filling.fill = NULL;
    refuses(&array, &filling, AD_ERR_VALUE, "", "");
    array.memory.device = cuda;
    converts(&array, &ignore, &out);
    ad_tensor_clear(&out.tensor);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "nulls", "nulls=\"ignore\"");
    CHECK_HAS(err.message, "3 nulls");
    array.null_count = 0;
    converts(&array, &plain, &out);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

static void
test_fill_lists_of_complex(void)
{
    /* Two lists of two complex numbers: list 3 is null, and one half of the
     * first number of list 4. */
    static const uint8_t half_bits[] = {0xff, 0xff, 0xfe};
    float data[24];
    float fill[2] = {-1, -2};
    for (int i = 0; i < 24; i++) {
        data[i] = (float)i;
    }
    ad_extension dlpack = {.kind = AD_EXTENSION_DLPACK, .dtype = C64};
    ad_array floats = column("f", half_bits, data, 0, 24, -1);
    ad_array numbers = lists_of(&floats, "+w:2", &dlpack, NULL, 0, 12, 0);
    ad_array array = lists_of(&numbers, "+w:2", NULL, some_bits, 3, 2, -1);
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = fill};
    ad_tensor_value out;
    converts(&array, &filling, &out);
    float expected[] = {-1, -2, -1, -2, -1, -2, 18, 19};
    CHECK_INT(out.tensor.ndim, 2);
    CHECK(ad_dtype_equal(out.tensor.dtype, C64));
    CHECK(memcmp(out.tensor.data, expected, sizeof(expected)) == 0);
    ad_tensor_clear(&out.tensor);
    for (long n = 1;; n++) {
        check_fail_nth(n);
        ad_status status = ad_tensor_from_array(&array, &filling, &out, &err);
        check_fail_nth(0);
        if (status == AD_OK) {
            break;
        }
        CHECK_INT(status, AD_ERR_MEMORY);
    }
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

/* Lanes of 12 bytes, parts of a byte and 12 bits: no size of the kernels. */
static void
test_fill_of_odd_sizes_is_refused(void)
{
    static const struct {
        ad_dl_dtype dtype;
        const char *format;
        const char *found;
    } odd[] = {
        {{AD_DL_FLOAT, 32, 3}, "w:12", "have 12"},
        {FP4, "w:4", "have less than 1"},
        {{AD_DL_INT, 12, 1}, "w:3", "have less than 1"},
    };
    unsigned char fill[16] = {0};
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = fill};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        ad_extension dlpack = {.kind = AD_EXTENSION_DLPACK,
                               .dtype = odd[i].dtype};
        ad_array array =
            array_of(schema_of(odd[i].format, &dlpack, NULL, NULL), 2, "\2",
                     STRIDED_BASE, 0, 3, -1, NULL);
        refuses(&array, &filling, AD_ERR_EXCHANGE, "dtype", "ignore");
        CHECK_HAS(err.message, odd[i].found);
        ad_array_clear(&array);
    }
}

static void
test_fill_follows_the_permutation(void)
{
    /* One row of logical shape [3, 2], stored as [2, 3]; value 3 is null. */
    int16_t data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int16_t fill = -1;
    ad_extension rows = {.kind = AD_EXTENSION_FIXED_SHAPE_TENSOR,
                         .ndim = 2,
                         .shape = {2, 3},
                         .permutation = {1, 0}};
    ad_array child = column("s", some_bits, data, 0, 6, 1);
    ad_array array = lists_of(&child, "+w:6", &rows, NULL, 0, 1, 0);
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = &fill};
    ad_tensor_value out;
    converts(&array, &filling, &out);
    CHECK_INT(out.tensor.shape[1], 3);
    CHECK_INT(out.tensor.strides[1], 1);
    CHECK_INT(out.tensor.shape[2], 2);
    CHECK_INT(out.tensor.strides[2], 3);
    int16_t expected[] = {0, 1, 2, -1, 4, 5};
    CHECK(memcmp(out.tensor.data, expected, sizeof(expected)) == 0);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

/* --- numbers -------------------------------------------------------------- */

static void
test_too_many_dimensions(void)
{
    ad_dl_dtype dtype;
    int32_t depth = AD_MAX_NDIM;
    ad_array array = column("s", NULL, STRIDED_BASE, 0, 4, 0);
    while (--depth > 0) {
        array = lists_of(&array, "+w:1", NULL, NULL, 0, 4, 0);
    }
    CHECK(ad_array_tensor_dtype(&array, &dtype));
    array = lists_of(&array, "+w:1", NULL, NULL, 0, 4, 0);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "ndim", ".children[0]");
    CHECK(!ad_array_tensor_dtype(&array, &dtype));
    ad_array_clear(&array);
}

static void
test_numbers_that_overflow(void)
{
    ad_array array = column("l", NULL, STRIDED_BASE, INT64_MAX / 2, 1, 0);
    refuses(&array, &plain, AD_ERR_ARROW, "", "");
    ad_array_clear(&array);
    ad_array child = column("c", NULL, STRIDED_BASE, 0, 1, 0);
    array = lists_of(&child, "+w:9223372036854775807", NULL, NULL, 2, 1, 0);
    refuses(&array, &plain, AD_ERR_ARROW, "", "");
    ad_array_clear(&array);
    child = column("l", NULL, STRIDED_BASE, 0, 0, 0);
    array = lists_of(&child, "+w:9223372036854775807", NULL, NULL, 0, 0, 0);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "malformed", "");
    ad_array_clear(&array);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_a_plain_column_takes_one_allocation),
        CHECK_TEST(test_handles),
        CHECK_TEST(test_nulls_on_a_device),
        CHECK_TEST(test_fill_lists_of_complex),
        CHECK_TEST(test_fill_of_odd_sizes_is_refused),
        CHECK_TEST(test_fill_follows_the_permutation),
        CHECK_TEST(test_too_many_dimensions),
        CHECK_TEST(test_numbers_that_overflow),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
