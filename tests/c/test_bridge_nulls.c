#include "bridge_arrays.h"

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

/* --- counting ------------------------------------------------------------ */

static void
test_counts(void)
{
    static const int64_t lengths[] = {0, 1, 3, 7, 8, 9, 63, 64, 65, 200, 1000};
    for (int64_t offset = 0; offset < 70; offset++) {
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
            int64_t expected = 0;
            for (int64_t i = offset; i < offset + lengths[k]; i++) {
                expected += ((STRIDED_BASE[i / 8] >> (i % 8)) & 1) == 0;
            }
            ad_array array = column("l", STRIDED_BASE, strided_memory, offset,
                                    lengths[k], -1);
            CHECK_INT(ad_array_count_nulls_host(&array), expected);
            ad_array_clear(&array);
        }
    }
    ad_array none = column("l", NULL, strided_memory, 0, 5, -1);
    CHECK_INT(ad_array_count_nulls_host(&none), 0);
    ad_array_clear(&none);
    ad_array nulls = array_of(schema_of("n", NULL, NULL, NULL), 0, NULL, NULL,
                              0, 5, 5, NULL);
    CHECK_INT(ad_array_count_nulls_host(&nulls), 5);
    ad_array_clear(&nulls);
}

/* --- refused, ignored ---------------------------------------------------- */

static void
test_nulls_are_refused(void)
{
    ad_tensor_value out;
    ad_array array = column("l", some_bits, STRIDED_BASE, 0, 8, 2);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "nulls",
            "use arrowdev.tensor(x, nulls=\"fill\", fill_value=...), or "
            "nulls=\"ignore\"");
    CHECK_HAS(err.message, "2 nulls among 8");
    CHECK_STR(err.dtype, "int64");
    converts(&array, &ignore, &out);
    CHECK(out.tensor.data == (void *)STRIDED_BASE);
    ad_tensor_clear(&out.tensor);
    ad_array slice;
    CHECK_INT(ad_array_slice(&array, 0, 3, &slice, &err), AD_OK);
    converts(&slice, &plain, &out);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&slice);
    CHECK_INT(ad_array_slice(&array, 2, 4, &slice, &err), AD_OK);
    refuses(&slice, &plain, AD_ERR_EXCHANGE, "nulls", "ignore");
    CHECK_HAS(err.message, "1 null among 4");
    ad_array_clear(&slice);
    ad_array_clear(&array);

    array = column("l", all_bits, STRIDED_BASE, 0, 8, -1);
    converts(&array, &plain, &out);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

static void
test_nulls_on_a_device(void)
{
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
    converts(&array, &ignore, &out);
    ad_tensor_clear(&out.tensor);
    array.null_count = 3;
    refuses(&array, &plain, AD_ERR_EXCHANGE, "nulls", "nulls=\"ignore\"");
    CHECK_HAS(err.message, "3 nulls");
    array.null_count = 0;
    converts(&array, &plain, &out);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

static void
test_an_event_is_not_overtaken(void)
{
    int fill = 0;
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = &fill};
    ad_array array = column("i", some_bits, STRIDED_BASE, 0, 8, -1);
    CHECK_INT(ad_sync_new(AD_SYNC_EVENT, AD_CPU, &fill, NULL,
                          &array.memory.sync, &err),
              AD_OK);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "event", "synchronize");
    refuses(&array, &filling, AD_ERR_EXCHANGE, "event", "synchronize");
    array.null_count = 2;
    refuses(&array, &filling, AD_ERR_EXCHANGE, "event", "synchronize");
    ad_array_clear(&array);
}

static void
test_nulls_inside_lists(void)
{
    ad_tensor_value out;
    /* Values 4 to 9 are looked at; 6 is null. */
    ad_array child = column("s", some_bits, STRIDED_BASE, 1, 20, 2);
    ad_array array = lists_of(&child, "+w:3", NULL, NULL, 1, 2, 0);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "nulls", "ignore");
    CHECK_HAS(err.message, "a list's child has 1 null among 6");
    ad_array slice;
    CHECK_INT(ad_array_slice(&array, 1, 1, &slice, &err), AD_OK);
    converts(&slice, &plain, &out);
    CHECK_INT(out.tensor.ndim, 2);
    CHECK_INT(out.tensor.shape[0], 1);
    CHECK_INT(out.tensor.shape[1], 3);
    CHECK(out.tensor.data == STRIDED_BASE + 2 * (1 + 2 * 3));
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&slice);
    ad_array_clear(&array);

    child = column("s", NULL, STRIDED_BASE, 0, 24, 0);
    array = lists_of(&child, "+w:3", NULL, some_bits, 0, 8, -1);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "nulls", "ignore");
    CHECK_HAS(err.message, "the array has 2 nulls among 8");
    CHECK_STR(err.dtype, "fixed_size_list<: int16>[3]");
    converts(&array, &ignore, &out);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

/* --- filled -------------------------------------------------------------- */

static void
test_fill_a_column(void)
{
    ad_tensor_value out;
    int64_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t fill = -1;
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = &fill};
    ad_array array = column("l", some_bits, data, 1, 7, -1);
    converts(&array, &filling, &out);
    int64_t expected[7] = {2, 3, -1, 5, 6, -1, 8};
    CHECK(memcmp(out.tensor.data, expected, sizeof(expected)) == 0);
    CHECK_INT(out.tensor.flags, AD_TENSOR_COPIED);
    CHECK_INT(data[3], 4);
    ad_tensor_clear(&out.tensor);
    filling.copy = AD_COPY_NEVER;
    refuses(&array, &filling, AD_ERR_EXCHANGE, "copy", "copy=None");
    CHECK_HAS(err.message, "filling nulls");
    filling.copy = AD_COPY_IF_NEEDED;
    filling.fill = NULL;
    refuses(&array, &filling, AD_ERR_VALUE, "", "");
    ad_array_clear(&array);
    /* Nothing to fill: nothing is copied. */
    filling.copy = AD_COPY_NEVER;
    array = column("l", all_bits, data, 0, 8, -1);
    converts(&array, &filling, &out);
    CHECK(out.tensor.data == (void *)data);
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

/* --- bits ---------------------------------------------------------------- */

static void
test_bits_become_bytes(void)
{
    ad_tensor_value out;
    ad_dl_dtype dtype;
    ad_array array = column("b", NULL, some_bits, 2, 9, 0);
    CHECK(ad_array_tensor_dtype(&array, &dtype));
    CHECK(ad_dtype_equal(dtype, BOOL));
    converts(&array, &plain, &out);
    uint8_t expected[] = {1, 0, 1, 1, 0, 1, 1, 1, 1};
    CHECK_INT(out.tensor.shape[0], 9);
    CHECK(memcmp(out.tensor.data, expected, sizeof(expected)) == 0);
    CHECK_INT(out.tensor.flags, AD_TENSOR_COPIED);
    ad_tensor_clear(&out.tensor);
    refuses(&array, &ignore, AD_ERR_EXCHANGE, "copy", "copy=None");
    CHECK_HAS(err.message, "bits");
    CHECK_STR(err.dtype, "bool");
    array.memory.device = cuda;
    refuses(&array, &plain, AD_ERR_EXCHANGE, "runtime", "");
    ad_array_clear(&array);

    ad_array child = column("b", NULL, some_bits, 1, 20, 0);
    array = lists_of(&child, "+w:2", NULL, NULL, 1, 3, 0);
    converts(&array, &plain, &out);
    CHECK_INT(out.tensor.ndim, 2);
    CHECK(memcmp(out.tensor.data, expected + 1, 6) == 0);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);

    uint8_t fill = 7;
    ad_bridge_options filling = {.nulls = AD_NULLS_FILL, .fill = &fill};
    array = column("b", some_bits, all_bits, 0, 8, 2);
    converts(&array, &filling, &out);
    uint8_t filled[] = {1, 1, 1, 7, 1, 1, 7, 1};
    CHECK(memcmp(out.tensor.data, filled, sizeof(filled)) == 0);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);

    array = column("b", NULL, NULL, 0, 0, 0);
    converts(&array, &plain, &out);
    CHECK(out.tensor.data == NULL);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

/* --- types --------------------------------------------------------------- */

static void
test_nested_lists(void)
{
    ad_tensor_value out;
    ad_extension rows = {.kind = AD_EXTENSION_FIXED_SHAPE_TENSOR,
                         .ndim = 2,
                         .shape = {2, 3},
                         .permutation = {1, 0}};
    ad_array values = column("s", NULL, STRIDED_BASE, 3, 200, 0);
    ad_array inner = lists_of(&values, "+w:6", &rows, NULL, 2, 30, 0);
    ad_array array = lists_of(&inner, "+w:4", NULL, NULL, 1, 5, 0);
    converts(&array, &plain, &out);
    int64_t shape[] = {5, 4, 3, 2};
    int64_t strides[] = {24, 6, 1, 3};
    CHECK_INT(out.tensor.ndim, 4);
    CHECK(memcmp(out.tensor.shape, shape, sizeof(shape)) == 0);
    CHECK(memcmp(out.tensor.strides, strides, sizeof(strides)) == 0);
    CHECK(out.tensor.data == STRIDED_BASE + 2 * (3 + 6 * (2 + 4 * 1)));
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

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

static void
test_binary_of_one_width_is_bytes(void)
{
    ad_tensor_value out;
    ad_array array = column("w:16", NULL, STRIDED_BASE, 2, 3, 0);
    converts(&array, &plain, &out);
    CHECK_INT(out.tensor.ndim, 2);
    CHECK_INT(out.tensor.shape[0], 3);
    CHECK_INT(out.tensor.shape[1], 16);
    CHECK(ad_dtype_equal(out.tensor.dtype, U8));
    CHECK(out.tensor.data == STRIDED_BASE + 32);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

static void
test_types_that_are_refused(void)
{
    static const struct {
        const char *format;
        const char *dtype;
        const char *hint;
    } cases[] = {
        {"tdD", "date32", ".view(\"int32\")"},
        {"tdm", "date64", ".view(\"int64\")"},
        {"ttm", "time32[ms]", ".view(\"int32\")"},
        {"ttu", "time64[us]", ".view(\"int64\")"},
        {"tsn:UTC", "timestamp[ns", ".view(\"int64\")"},
        {"tDs", "duration[s]", ".view(\"int64\")"},
        {"tiM", "month", ".view(\"int32\")"},
        {"tiD", "day", ".view(\"int64\")"},
        {"tin", "month_day_nano", ".view(\"fixed_size_binary[16]\")"},
        {"d:5,2", "decimal128(5, 2)", ".view(\"fixed_size_binary[16]\")"},
        {"d:5,2,32", "decimal32(5, 2)", ".view(\"int32\")"},
        {"d:5,2,64", "decimal64(5, 2)", ".view(\"int64\")"},
        {"d:5,2,256", "decimal256(5, 2)", ".view(\"fixed_size_binary[32]\")"},
        {"u", "", ".buffers"},
        {"Z", "", ".buffers"},
        {"vu", "", ".buffers"},
        {"n", "null", "no values"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ad_dl_dtype dtype;
        ad_array array = array_of(schema_of(cases[i].format, NULL, NULL, NULL),
                                  3, NULL, STRIDED_BASE, 0, 4, 0, NULL);
        refuses(&array, &plain, AD_ERR_EXCHANGE, "dtype", cases[i].hint);
        if (cases[i].dtype[0] != '\0') {
            CHECK_HAS(err.dtype, cases[i].dtype);
            CHECK_HAS(err.message, cases[i].dtype);
        }
        CHECK(err.dtype[0] != '\0');
        CHECK(!ad_array_tensor_dtype(&array, &dtype));
        ad_array_clear(&array);
    }
}

static void
test_nested_types_that_are_refused(void)
{
    static const struct {
        const char *format;
        const char *hint;
    } cases[] = {
        {"+vl", ".children[0]"},
        {"+vL", ".children[0]"},
        {"+ud:0", ".children"},
        {"+us:0", ".children"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ad_array child = column("l", NULL, STRIDED_BASE, 0, 4, 0);
        ad_array array =
            lists_of(&child, cases[i].format, NULL, NULL, 0, 4, 0);
        refuses(&array, &plain, AD_ERR_EXCHANGE, "dtype", cases[i].hint);
        ad_array_clear(&array);
    }
    ad_array child = column("tdD", NULL, STRIDED_BASE, 0, 4, 0);
    ad_array array = lists_of(&child, "+w:2", NULL, NULL, 0, 2, 0);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "dtype", "int32");
    ad_array_clear(&array);

    /* Only the schema of the second child is looked at. */
    ad_schema ends = schema_of("i", NULL, NULL, NULL);
    ad_schema pair[] = {ends, ends};
    ad_schema schema;
    ad_schema_spec spec = {.format = "+r", .n_children = 2, .children = pair};
    CHECK_INT(ad_schema_build(&spec, &schema, &err), AD_OK);
    ad_schema_unref(ends);
    array = array_of(schema, 0, NULL, NULL, 0, 0, 0, NULL);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "dtype", "run ends");
    ad_array_clear(&array);

    ad_schema words = schema_of("u", NULL, NULL, NULL);
    array = array_of(schema_of("c", NULL, NULL, &words), 2, NULL, STRIDED_BASE,
                     0, 4, 0, NULL);
    ad_schema_unref(words);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "dtype", ".dictionary");
    CHECK_HAS(err.hint, ".view(\"int8\")");
    ad_array_clear(&array);
}

static void
test_metadata_that_is_no_extension(void)
{
    static const char metadata[] = "\1\0\0\0\3\0\0\0key\5\0\0\0value";
    ad_schema schema;
    ad_tensor_value out;
    ad_schema_spec spec = {.format = "l", .metadata = metadata};
    CHECK_INT(ad_schema_build(&spec, &schema, &err), AD_OK);
    ad_array array = array_of(schema, 2, NULL, STRIDED_BASE, 1, 4, 0, NULL);
    converts(&array, &plain, &out);
    CHECK(ad_dtype_equal(out.tensor.dtype, I64));
    CHECK(out.tensor.data == STRIDED_BASE + 8);
    ad_tensor_clear(&out.tensor);
    ad_array_clear(&array);
}

static void
test_foreign_extensions_are_refused(void)
{
    static const char metadata[] = "\1\0\0\0\24\0\0\0ARROW:extension:name"
                                   "\4\0\0\0mine";
    ad_schema schema;
    ad_schema_spec spec = {.format = "l", .metadata = metadata};
    CHECK_INT(ad_schema_build(&spec, &schema, &err), AD_OK);
    ad_array array = array_of(schema, 2, NULL, STRIDED_BASE, 0, 4, 0, NULL);
    refuses(&array, &plain, AD_ERR_EXCHANGE, "dtype", ".view(\"int64\")");
    ad_array_clear(&array);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_counts),
        CHECK_TEST(test_nulls_are_refused),
        CHECK_TEST(test_nulls_on_a_device),
        CHECK_TEST(test_an_event_is_not_overtaken),
        CHECK_TEST(test_nulls_inside_lists),
        CHECK_TEST(test_fill_a_column),
        CHECK_TEST(test_fill_lists_of_complex),
        CHECK_TEST(test_fill_of_odd_sizes_is_refused),
        CHECK_TEST(test_fill_follows_the_permutation),
        CHECK_TEST(test_bits_become_bytes),
        CHECK_TEST(test_nested_lists),
        CHECK_TEST(test_too_many_dimensions),
        CHECK_TEST(test_numbers_that_overflow),
        CHECK_TEST(test_binary_of_one_width_is_bytes),
        CHECK_TEST(test_types_that_are_refused),
        CHECK_TEST(test_nested_types_that_are_refused),
        CHECK_TEST(test_metadata_that_is_no_extension),
        CHECK_TEST(test_foreign_extensions_are_refused),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
