#include "compute/bits.h"
#include "bridge/bridge.h"
#include "model/extension.h"
#include "base/owner.h"
#include "bridge/masks.h"
#include "strided.h"

static ad_error err;

static const ad_device cuda = {ARROW_DEVICE_CUDA, 0};

static const ad_bridge_options plain = {.copy = AD_COPY_IF_NEEDED};
static const ad_bridge_options ignore = {.copy = AD_COPY_NEVER,
                                         .nulls = AD_NULLS_IGNORE};

/* --- arrays to test with ------------------------------------------------- */

static void
keep_alive(ad_owner *self)
{
}

static const ad_owner_ops keep_alive_ops = {.destroy = keep_alive,
                                            .name = "test"};

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
        .device = AD_CPU,
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

/* Fixed-size lists over a column, both with offset and bitmap. */
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
refuses(const ad_array *array, const ad_bridge_options *options,
        ad_status status, const char *reason, const char *hint)
{
    ad_tensor_value out;
    memset(&err, 0, sizeof(err));
    CHECK_INT(ad_tensor_from_array(array, options, &out, &err), status);
    CHECK_STR(err.reason != NULL ? err.reason : "", reason);
    CHECK_HAS(err.hint, hint);
    CHECK(err.message[0] != '\0');
    CHECK_INT(ad_tensor_from_array(array, options, &out, NULL), status);
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

static const uint8_t some_bits[] = {0xb7, 0xff, 0xff, 0xff}; /* 3, 6 unset */
static const uint8_t all_bits[] = {0xff, 0xff, 0xff, 0xff};

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
    CHECK_HAS(err.message, "1 nulls among 4");
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
    array.device = cuda;
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
    CHECK_INT(
        ad_sync_new(AD_SYNC_EVENT, AD_CPU, &fill, NULL, &array.sync, &err),
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
    CHECK_HAS(err.message, "a list's child has 1 nulls among 6");
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
    array.device = cuda;
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

/* --- a mask -------------------------------------------------------------- */

static void
mask_of(const uint8_t *data, int64_t length, int64_t stride,
        ad_tensor_value *out)
{
    ad_tensor_descriptor descriptor = {.data = (void *)data,
                                       .dtype = BOOL,
                                       .ndim = 1,
                                       .device = AD_CPU,
                                       .shape = &length,
                                       .strides = &stride};
    CHECK_INT(ad_tensor_check(&descriptor, "a mask", out, &err), AD_OK);
}

static ad_status
with_validity(const ad_array *array, const ad_tensor *flags, int valid_value,
              ad_array *out, ad_error *error)
{
    ad_mask mask;
    ad_status status =
        ad_mask_from_tensor(flags, valid_value == 0, NULL, &mask, error);
    if (status == AD_OK) {
        status = ad_array_apply_mask(array, &mask, NULL, out, error);
        ad_mask_clear(&mask);
    }
    return status;
}

static void
check_rows_valid(const ad_array *array, const char *expected)
{
    const uint8_t *bits = ad_array_validity(array);
    int64_t n_nulls = 0;
    for (int64_t i = 0; i < array->length; i++) {
        int64_t bit = array->offset + i;
        CHECK_INT((bits[bit / 8] >> (bit % 8)) & 1, expected[i] == '1');
        n_nulls += expected[i] == '0';
    }
    CHECK_INT(array->null_count, n_nulls);
    CHECK_INT(ad_array_count_nulls_host(array), n_nulls);
}

static void
test_masks(void)
{
    static const uint8_t mask_bytes[] = {1, 0, 0, 2, 1, 0, 255, 0};
    ad_tensor_value mask;
    ad_array out;
    ad_array array = column("l", NULL, STRIDED_BASE, 13, 8, 0);
    mask_of(mask_bytes, 8, 1, &mask);
    CHECK_INT(with_validity(&array, &mask.tensor, 1, &out, &err), AD_OK);
    check_rows_valid(&out, "10011010");
    CHECK(out.node->buffers[1] == array.node->buffers[1]);
    CHECK_INT(out.offset, 13);
    ad_array_clear(&out);
    CHECK_INT(with_validity(&array, &mask.tensor, 0, &out, &err), AD_OK);
    check_rows_valid(&out, "01100101");
    ad_array_clear(&array);
    refuses(&out, &plain, AD_ERR_EXCHANGE, "nulls", "ignore");
    ad_array_clear(&out);
    array = column("l", some_bits, STRIDED_BASE, 0, 8, -1);
    CHECK_INT(with_validity(&array, &mask.tensor, 1, &out, &err), AD_OK);
    check_rows_valid(&out, "10001000");
    ad_array_clear(&array);
    ad_array_clear(&out);

    mask_of(mask_bytes + 7, 4, -2, &mask);
    mask.tensor.dtype = U8;
    array = column("l", all_bits, STRIDED_BASE, 0, 4, -1);
    CHECK_INT(with_validity(&array, &mask.tensor, 1, &out, &err), AD_OK);
    check_rows_valid(&out, "0010");
    ad_array_clear(&out);
    ad_array_clear(&array);
}

static void
test_masks_of_nested_rows(void)
{
    static const uint8_t mask_bytes[] = {1, 0};
    ad_owner owner;
    ad_tensor_value x, mask;
    ad_array array, out;
    ad_status status = AD_ERR_MEMORY;
    ad_owner_init(&owner, &keep_alive_ops);
    strided_make(&(strided_shape){3, {2, 3, 2}}, STRIDED_C, C64, &x);
    x.tensor.owner = ad_owner_ref(&owner);
    CHECK_INT(ad_array_from_tensor(&x.tensor, AD_COPY_NEVER, &array, &err),
              AD_OK);
    ad_tensor_clear(&x.tensor);
    mask_of(mask_bytes, 2, 1, &mask);
    for (long n = 1; status != AD_OK; n++) {
        CHECK_INT(status, AD_ERR_MEMORY);
        check_fail_nth(n);
        status = with_validity(&array, &mask.tensor, 1, &out, &err);
        check_fail_nth(0);
    }
    ad_array_clear(&array);
    check_rows_valid(&out, "10");
    CHECK_INT(ad_array_validate(out.schema.node, out.node, &err), AD_OK);
    CHECK_INT(owner.refs, 2);
    ad_array_clear(&out);
    CHECK_INT(owner.refs, 1);
}

static void
test_mask_of_a_dictionary(void)
{
    static const uint8_t mask_bytes[] = {0, 1, 1, 0};
    ad_tensor_value mask;
    ad_array out;
    ad_array words = column("l", NULL, STRIDED_BASE, 0, 9, 0);
    ad_array_spec spec = {
        .schema = schema_of("c", NULL, NULL, &words.schema),
        .device = AD_CPU,
        .length = 4,
        .n_buffers = 2,
        .buffers = (const void *[]){NULL, STRIDED_BASE},
        .dictionary = &words,
    };
    ad_array array;
    CHECK_INT(ad_array_build(&spec, &array, &err), AD_OK);
    ad_schema_unref(spec.schema);
    ad_array_clear(&words);
    mask_of(mask_bytes, 4, 1, &mask);
    CHECK_INT(with_validity(&array, &mask.tensor, 1, &out, &err), AD_OK);
    ad_array_clear(&array);
    check_rows_valid(&out, "0110");
    CHECK_INT(out.node->dictionary->length, 9);
    ad_array_clear(&out);
}

static void
mask_refused(const ad_array *array, const ad_tensor_value *mask,
             ad_status status, const char *message)
{
    ad_array out;
    CHECK_INT(with_validity(array, &mask->tensor, 1, &out, &err), status);
    CHECK_HAS(err.message, message);
}

static void
test_masks_that_are_refused(void)
{
    static const uint8_t mask_bytes[] = {1, 0, 0, 2};
    ad_tensor_value mask, other;
    ad_array array = column("l", NULL, STRIDED_BASE, 0, 4, 0);
    mask_of(mask_bytes, 3, 1, &mask);
    mask_refused(&array, &mask, AD_ERR_VALUE, "one element per row: 4, not 3");
    mask_of(mask_bytes, 4, 1, &mask);
    mask.tensor.dtype = I16;
    mask_refused(&array, &mask, AD_ERR_TYPE, "not int16");
    strided_make(&(strided_shape){2, {2, 2}}, STRIDED_C, BOOL, &other);
    mask_refused(&array, &other, AD_ERR_VALUE, "one dimension, not 2");
    mask.tensor.dtype = BOOL;
    mask.tensor.device = cuda;
    mask_refused(&array, &mask, AD_ERR_EXCHANGE, "cuda:0");
    mask.tensor.device = AD_CPU;
    array.device = cuda;
    mask_refused(&array, &mask, AD_ERR_EXCHANGE, "cuda:0");
    ad_array_clear(&array);
    array = array_of(schema_of("n", NULL, NULL, NULL), 0, NULL, NULL, 0, 4, 4,
                     NULL);
    mask_refused(&array, &mask, AD_ERR_TYPE, "no validity bitmap");
    ad_array_clear(&array);

    ad_schema schema;
    ad_schema_spec spec = {.format = "l"};
    CHECK_INT(ad_schema_build(&spec, &schema, &err), AD_OK);
    array = array_of(schema, 2, NULL, STRIDED_BASE, 0, 4, 0, NULL);
    mask_refused(&array, &mask, AD_ERR_VALUE, "the mask marks 2");
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
        CHECK_TEST(test_masks),
        CHECK_TEST(test_masks_of_nested_rows),
        CHECK_TEST(test_mask_of_a_dictionary),
        CHECK_TEST(test_masks_that_are_refused),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
