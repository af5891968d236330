/* Lists and batches as tensors, matrices as columns, times with NaT, labels:
 * what stays alive, and what is left where an allocation fails. */
#include "bridge/bridge.h"
#include "base/owner.h"
#include "model/metadata.h"
#include "model/schema_cast.h"
#include "strided.h"
#include "tracked.h"

static ad_error err;

static atomic_int n_released;

/* --- arrays to test with --------------------------------------------------- */

static ad_array
array_of(const ad_schema_spec *schema, const void *const *buffers,
         int64_t n_buffers, int64_t length, int64_t null_count,
         const ad_array *children)
{
    ad_array out;
    ad_array_spec spec = {
        .memory.device = AD_CPU,
        .length = length,
        .null_count = null_count,
        .n_buffers = n_buffers,
        .buffers = buffers,
        .n_children = schema->n_children,
        .children = children,
        .memory.owner = tracked_new(&n_released),
    };
    CHECK_INT(ad_schema_build(schema, &spec.schema, &err), AD_OK);
    CHECK_INT(ad_array_build(&spec, &out, &err), AD_OK);
    ad_schema_unref(spec.schema);
    ad_owner_unref(spec.memory.owner);
    return out;
}

static ad_array
column(const char *format, const void *validity, const void *data,
       int64_t length, int64_t null_count)
{
    const void *buffers[] = {validity, data};
    ad_schema_spec schema = {.format = format, .flags = ARROW_FLAG_NULLABLE};
    return array_of(&schema, buffers, 2, length, null_count, NULL);
}

/* Takes the child. */
static ad_array
lists(const char *format, const void *offsets, int64_t length, ad_array *child)
{
    const void *buffers[] = {NULL, offsets};
    ad_schema_spec schema = {
        .format = format, .n_children = 1, .children = &child->schema};
    ad_array out = array_of(&schema, buffers, 2, length, 0, child);
    ad_array_clear(child);
    return out;
}

/* Takes the columns. */
static ad_array
batch(ad_array *columns, int64_t n, const void *validity, int64_t null_count)
{
    static const char *const names[] = {"a", "b", "c"};
    const void *buffers[] = {validity};
    ad_schema schemas[3];
    for (int64_t i = 0; i < n; i++) {
        schemas[i] = columns[i].schema;
    }
    ad_schema_spec schema = {
        .format = "+s", .n_children = n, .children = schemas, .names = names};
    ad_array out =
        array_of(&schema, buffers, 1, columns[0].length, null_count, columns);
    for (int64_t i = 0; i < n; i++) {
        ad_array_clear(&columns[i]);
    }
    return out;
}

static const int64_t numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const int64_t others[4] = {20, 21, 22, 23};
static const uint8_t bits = 0x0b; /* of four, the third is null */

/* Three columns at one pitch, or not. */
static ad_array
matrix_batch(bool lies, bool has_nulls)
{
    ad_array columns[] = {
        column("l", has_nulls ? &bits : NULL, numbers, 4, has_nulls),
        column("l", NULL, numbers + 4, 4, 0),
        column("l", NULL, lies ? numbers + 8 : others, 4, 0),
    };
    return batch(columns, 3, NULL, 0);
}

/* --- lists ------------------------------------------------------------------ */

static void
test_lists(void)
{
    static const int32_t narrow[] = {2, 5, 8, 11};
    static const int64_t wide[] = {2, 5, 8, 11};
    for (int k = 0; k < 2; k++) {
        ad_bridge_options options = {.copy = AD_COPY_NEVER};
        ad_tensor_value out;
        ad_array child = column("l", NULL, numbers, 12, 0);
        ad_array array = k == 0 ? lists("+l", narrow, 3, &child)
                                : lists("+L", wide, 3, &child);
        CHECK(ad_array_reads_offsets(&array));
        CHECK_INT(ad_tensor_from_array(&array, &options, &out, &err), AD_OK);
        CHECK_INT(out.tensor.ndim, 2);
        CHECK_INT(out.tensor.shape[0], 3);
        CHECK_INT(out.tensor.shape[1], 3);
        CHECK(out.tensor.data == numbers + 2);
        ad_array_clear(&array);
        n_released = 0;
        ad_tensor_clear(&out.tensor);
        CHECK_INT(n_released, 2);
    }
}

static void
test_lists_that_are_no_rows(void)
{
    static const struct {
        int32_t offsets[4];
        ad_status status;
    } cases[] = {
        {{0, 3, 6, 8}, AD_ERR_EXCHANGE},
        {{0, 3, 6, 13}, AD_ERR_EXCHANGE},
        {{-3, 0, 3, 6}, AD_ERR_ARROW},
        {{6, 3, 0, -3}, AD_ERR_ARROW},
        {{4, 7, 10, 13}, AD_ERR_ARROW},
        {{0, 3, 2, 5}, AD_ERR_ARROW},
        {{0, INT32_MIN, 0, INT32_MIN}, AD_ERR_ARROW},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ad_bridge_options options = {.copy = AD_COPY_IF_NEEDED};
        ad_tensor_value out;
        ad_array child = column("l", NULL, numbers, 12, 0);
        ad_array array = lists("+l", cases[i].offsets, 3, &child);
        CHECK_INT(ad_tensor_from_array(&array, &options, &out, &err),
                  cases[i].status);
        CHECK_INT(ad_tensor_from_array(&array, &options, &out, NULL),
                  cases[i].status);
        n_released = 0;
        ad_array_clear(&array);
        CHECK_INT(n_released, 2);
    }
}

/* --- matrices ----------------------------------------------------------------- */

static void
test_matrix(void)
{
    ad_bridge_options options = {.copy = AD_COPY_NEVER};
    ad_tensor_value out;
    ad_array array = matrix_batch(true, false);
    CHECK_INT(ad_tensor_from_array(&array, &options, &out, &err), AD_OK);
    CHECK_INT(out.tensor.shape[0], 4);
    CHECK_INT(out.tensor.shape[1], 3);
    CHECK_INT(out.tensor.strides[0], 1);
    CHECK_INT(out.tensor.strides[1], 4);
    CHECK(out.tensor.data == numbers);
    ad_array_clear(&array);
    n_released = 0;
    ad_tensor_clear(&out.tensor);
    CHECK_INT(n_released, 4);
}

static void
check_columns(const ad_tensor *found, bool lies, int64_t filled)
{
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t k = 0; k < 3; k++) {
            int64_t expected = lies || k < 2 ? k * 4 + i : others[i];
            if (i == 2 && k == 0 && filled != 0) {
                expected = filled;
            }
            const int64_t *data = found->data;
            CHECK_INT(data[i * found->strides[0] + k * found->strides[1]],
                      expected);
        }
    }
}

/* Every way to a matrix, with each allocation failing in turn. */
static void
test_each_allocation_of_a_matrix_fails(void)
{
    static const int64_t fill = -7;
    for (int k = 0; k < 16; k++) {
        bool lies = k & 1, has_nulls = k & 2;
        ad_bridge_options options = {
            .copy = k & 8 ? AD_COPY_ALWAYS : AD_COPY_IF_NEEDED,
            .nulls = has_nulls ? AD_NULLS_FILL : AD_NULLS_RAISE,
            .order = k & 4 ? 'C' : 'F',
            .fill = has_nulls ? &fill : NULL,
        };
        ad_tensor_value out;
        ad_array array = matrix_batch(lies, has_nulls);
        ad_status status = AD_ERR_MEMORY;
        for (long n = 1; status != AD_OK; n++) {
            CHECK_INT(status, AD_ERR_MEMORY);
            check_fail_nth(n);
            status = ad_tensor_from_array(&array, &options, &out, &err);
            CHECK(check_failed_once() || status == AD_OK);
            check_fail_nth(0);
        }
        check_columns(&out.tensor, lies, has_nulls ? fill : 0);
        ad_tensor_clear(&out.tensor);
        n_released = 0;
        ad_array_clear(&array);
        CHECK_INT(n_released, 4);
    }
}

static void
test_null_rows(void)
{
    static const int64_t fill = -7;
    ad_bridge_options options = {.nulls = AD_NULLS_FILL, .fill = &fill};
    ad_array columns[] = {
        column("l", NULL, numbers, 4, 0),
        column("l", NULL, numbers + 4, 4, 0),
    };
    ad_array array = batch(columns, 2, &bits, 1);
    ad_status status = AD_ERR_MEMORY;
    ad_tensor_value out;
    for (long n = 1; status != AD_OK; n++) {
        check_fail_nth(n);
        status = ad_tensor_from_array(&array, &options, &out, &err);
        check_fail_nth(0);
        CHECK(status == AD_OK || status == AD_ERR_MEMORY);
    }
    const int64_t *data = out.tensor.data;
    CHECK_INT(data[1], 1);
    CHECK_INT(data[2], fill);
    CHECK_INT(data[4 + 2], fill);
    CHECK_INT(data[4 + 3], 7);
    ad_tensor_clear(&out.tensor);
    options.nulls = AD_NULLS_RAISE;
    CHECK_INT(ad_tensor_from_array(&array, &options, &out, &err),
              AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "nulls");
    ad_array_clear(&array);
}

/* Nothing is copied to or from memory that is not there. */
static void
test_matrix_of_no_rows(void)
{
    static const int64_t fill = -7;
    for (int k = 0; k < 16; k++) {
        ad_bridge_options options = {
            .copy = k & 1 ? AD_COPY_ALWAYS : AD_COPY_IF_NEEDED,
            .nulls = k & 2 ? AD_NULLS_FILL : AD_NULLS_RAISE,
            .order = k & 4 ? 'C' : 'F',
            .fill = k & 2 ? &fill : NULL,
        };
        const char *format = k & 8 ? "b" : "l";
        ad_array columns[] = {
            column(format, NULL, NULL, 0, 0),
            column(format, NULL, numbers, 0, 0),
        };
        ad_array array = batch(columns, 2, NULL, 0);
        ad_tensor_value out;
        CHECK_INT(array.length, 0);
        CHECK_INT(ad_tensor_from_array(&array, &options, &out, &err), AD_OK);
        CHECK_INT(out.tensor.shape[0], 0);
        CHECK_INT(out.tensor.shape[1], 2);
        ad_tensor_clear(&out.tensor);
        ad_array_clear(&array);
    }
}

static void
test_columns_that_overflow(void)
{
    ad_bridge_options options = {.copy = AD_COPY_IF_NEEDED};
    ad_tensor_value out;
    ad_array columns[] = {
        column("l", NULL, numbers, INT64_MAX / 16, 0),
        column("l", NULL, numbers, INT64_MAX / 16, 0),
        column("l", NULL, numbers, INT64_MAX / 16, 0),
    };
    ad_array array = batch(columns, 3, NULL, 0);
    CHECK_INT(ad_tensor_from_array(&array, &options, &out, &err),
              AD_ERR_ARROW);
    ad_array_clear(&array);
}

static void
test_columns_of_a_matrix(void)
{
    static const strided_shape shape = {2, {4, 3}};
    for (int mode = STRIDED_C; mode <= STRIDED_SPREAD; mode++) {
        ad_tensor_value x, view;
        ad_array array;
        ad_status status = AD_ERR_MEMORY;
        strided_make(&shape, mode, I64, &x);
        for (long n = 1; status != AD_OK; n++) {
            check_fail_nth(n);
            status =
                ad_matrix_lay_out(&x.tensor, AD_COPY_IF_NEEDED, &view, &err);
            check_fail_nth(0);
            CHECK(status == AD_OK || status == AD_ERR_MEMORY);
        }
        for (int64_t k = 0; k < 3; k++) {
            CHECK_INT(ad_matrix_column(&view.tensor, k, &array, &err), AD_OK);
            const char *first =
                (const char *)x.tensor.data + k * x.tensor.strides[1] * 8;
            for (int64_t i = 0; i < 4; i++) {
                CHECK(memcmp((const int64_t *)array.node->buffers[1] + i,
                             first + i * x.tensor.strides[0] * 8, 8) == 0);
            }
            ad_array_clear(&array);
        }
        ad_tensor_clear(&view.tensor);
    }
}

/* --- times --------------------------------------------------------------------- */

static void
test_times(void)
{
    static const int64_t times[] = {1, INT64_MIN, 3, 4};
    for (int32_t ndim = 1; ndim <= 2; ndim++) {
        int64_t shape[] = {ndim == 1 ? 4 : 2, 2};
        ad_tensor_descriptor descriptor = {.data = (void *)times,
                                           .dtype = I64,
                                           .ndim = ndim,
                                           .memory.device = AD_CPU,
                                           .shape = shape};
        ad_tensor_value x;
        ad_array array;
        ad_status status = AD_ERR_MEMORY;
        CHECK_INT(ad_tensor_check(&descriptor, "times", &x, &err), AD_OK);
        x.tensor.memory.owner = tracked_new(&n_released);
        for (long n = 1; status != AD_OK; n++) {
            check_fail_nth(n);
            status = ad_array_from_times(&x.tensor, "tsu:", AD_COPY_NEVER,
                                         &array, &err);
            check_fail_nth(0);
            CHECK(status == AD_OK || status == AD_ERR_MEMORY);
        }
        n_released = 0;
        ad_tensor_clear(&x.tensor);
        CHECK_INT(n_released, 0);
        const struct ArrowArray *leaf =
            ndim == 1 ? array.node : array.node->children[0];
        CHECK_INT(leaf->null_count, 1);
        CHECK(leaf->buffers[1] == times);
        CHECK_INT(*(const uint8_t *)leaf->buffers[0], 0x0d);
        ad_array_clear(&array);
        CHECK_INT(n_released, 1);
    }
}

static void
test_other_byte_order(void)
{
    static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const struct {
        ad_dl_dtype dtype;
        uint8_t expected[8];
    } cases[] = {
        {{AD_DL_INT, 8, 1}, {1, 2, 3, 4, 5, 6, 7, 8}},
        {{AD_DL_UINT, 16, 1}, {2, 1, 4, 3, 6, 5, 8, 7}},
        {{AD_DL_FLOAT, 32, 1}, {4, 3, 2, 1, 8, 7, 6, 5}},
        {{AD_DL_INT, 64, 1}, {8, 7, 6, 5, 4, 3, 2, 1}},
        {{AD_DL_COMPLEX, 64, 1}, {4, 3, 2, 1, 8, 7, 6, 5}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t n = 64 / cases[i].dtype.bits;
        ad_tensor_descriptor descriptor = {.data = (void *)bytes,
                                           .dtype = cases[i].dtype,
                                           .ndim = 1,
                                           .memory.device = AD_CPU,
                                           .shape = &n};
        ad_tensor_value x, out;
        CHECK_INT(ad_tensor_check(&descriptor, "bytes", &x, &err), AD_OK);
        CHECK_INT(ad_tensor_copy_swapped(&x.tensor, 'C', &out, &err), AD_OK);
        CHECK(memcmp(out.tensor.data, cases[i].expected, 8) == 0);
        CHECK(out.tensor.flags & AD_TENSOR_COPIED);
        ad_tensor_clear(&out.tensor);
    }
}

/* --- labels -------------------------------------------------------------------- */

static void
test_copy_of_a_schema(void)
{
    static const ad_metadata_pair pair = {"key", 3, "value", 5};
    ad_schema copy, words;
    ad_status status = AD_ERR_MEMORY;
    char *metadata;
    bool is_equal;
    CHECK_INT(ad_metadata_build(&pair, 1, &metadata, &err), AD_OK);
    ad_schema_spec of_words = {.format = "u", .metadata = metadata};
    CHECK_INT(ad_schema_build(&of_words, &words, &err), AD_OK);
    ad_schema children[] = {words, words};
    const char *const names[] = {"x", "y"};
    ad_schema_spec spec = {.format = "+s",
                           .name = "root",
                           .metadata = metadata,
                           .flags = ARROW_FLAG_NULLABLE,
                           .n_children = 2,
                           .children = children,
                           .names = names};
    ad_schema schema;
    CHECK_INT(ad_schema_build(&spec, &schema, &err), AD_OK);
    for (long n = 1; status != AD_OK; n++) {
        check_fail_nth(n);
        status = ad_schema_copy(schema.node, &copy, &err);
        check_fail_nth(0);
        CHECK(status == AD_OK || status == AD_ERR_MEMORY);
    }
    CHECK_INT(
        ad_schema_equal(schema.node, copy.node, true, true, &is_equal, &err),
        AD_OK);
    CHECK(is_equal);
    ad_schema_unref(schema);
    ad_schema_unref(words);
    free(metadata);
    CHECK_STR(copy.node->children[1]->name, "y");
    ad_schema_unref(copy);
}

static void
test_labels(void)
{
    static const struct {
        const char *from, *to;
        bool is_layout, is_storage;
    } cases[] = {
        {"l", "l", true, true},
        {"l", "tsu:", false, true},
        {"tDs", "l", false, true},
        {"l", "tdm", false, true},
        {"i", "tdD", false, true},
        {"i", "ttm", false, true},
        {"l", "L", false, false},
        {"l", "g", false, false},
        {"L", "tsu:", false, false},
        {"l", "tdD", false, false},
        {"tsu:", "tsm:", false, false},
        {"tsu:", "tDu", false, false},
        {"tsu:", "tsu:UTC", false, false},
        {"tsu:Asia/Tokyo", "tsu:UTC", false, true},
        {"tsu:Asia/Tokyo", "tss:UTC", false, false},
        {"w:8", "l", false, false},
        {"b", "c", false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ArrowSchema from = {.format = cases[i].from};
        const struct ArrowSchema to = {.format = cases[i].to};
        CHECK(ad_schema_cast_fits_type(&from, &to, AD_CAST_LAYOUT) ==
              cases[i].is_layout);
        CHECK(ad_schema_cast_fits_type(&from, &to, AD_CAST_STORAGE) ==
              cases[i].is_storage);
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_lists),
        CHECK_TEST(test_lists_that_are_no_rows),
        CHECK_TEST(test_matrix),
        CHECK_TEST(test_each_allocation_of_a_matrix_fails),
        CHECK_TEST(test_null_rows),
        CHECK_TEST(test_matrix_of_no_rows),
        CHECK_TEST(test_columns_that_overflow),
        CHECK_TEST(test_columns_of_a_matrix),
        CHECK_TEST(test_times),
        CHECK_TEST(test_other_byte_order),
        CHECK_TEST(test_copy_of_a_schema),
        CHECK_TEST(test_labels),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
