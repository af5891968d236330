/* A mask becomes the validity bitmap of an array. */
#include "bridge_arrays.h"

/* --- a mask -------------------------------------------------------------- */

static void
mask_of(const uint8_t *data, int64_t length, int64_t stride,
        ad_tensor_value *out)
{
    ad_tensor_descriptor descriptor = {.data = (void *)data,
                                       .dtype = BOOL,
                                       .ndim = 1,
                                       .memory.device = AD_CPU,
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
    x.tensor.memory.owner = ad_owner_ref(&owner);
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
        .memory.device = AD_CPU,
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
    mask.tensor.memory.device = cuda;
    mask_refused(&array, &mask, AD_ERR_EXCHANGE, "cuda:0");
    mask.tensor.memory.device = AD_CPU;
    array.memory.device = cuda;
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
        CHECK_TEST(test_masks),
        CHECK_TEST(test_masks_of_nested_rows),
        CHECK_TEST(test_mask_of_a_dictionary),
        CHECK_TEST(test_masks_that_are_refused),
    };
    strided_prepare();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
