/* Element types: the table, typestrs, buffer formats. */
#include "check.h"
#include "model/dtype.h"

static const ad_dtype_info table[] = {
#define AD_DTYPE(tag, name, code, bits, arrow, extension, typestr, buffer)    \
    {name, {code, bits, 1}, arrow, AD_DTYPE_##extension, typestr, buffer},
#include "model/dtypes.def"
#undef AD_DTYPE
};

enum {
    N_TABLE = sizeof(table) / sizeof(table[0])
};

static void
test_table_rows_are_found_by_every_key(void)
{
    char text[32];
    ad_element element;
    ad_dl_dtype named;
    for (int i = 0; i < N_TABLE; i++) {
        const ad_dtype_info *row = ad_dtype_find(table[i].dtype);
        CHECK(row != NULL);
        CHECK_STR(row->name, table[i].name);
        CHECK(ad_dtype_from_name(table[i].name, &named));
        CHECK(ad_dtype_equal(named, table[i].dtype));
        if (table[i].extension == AD_DTYPE_NONE) {
            CHECK(ad_dtype_by_format(table[i].arrow) == row);
        }
        if (table[i].typestr[0] != '\0') {
            snprintf(text, sizeof(text), "<%s", table[i].typestr);
            CHECK_INT(ad_dtype_from_typestr(text, &element, NULL), AD_OK);
            CHECK(ad_dtype_equal(element.dtype, table[i].dtype));
        }
        if (table[i].buffer[0] != '\0') {
            int64_t size = table[i].dtype.bits / 8;
            CHECK_INT(
                ad_dtype_from_buffer(table[i].buffer, size, &element, NULL),
                AD_OK);
            CHECK(ad_dtype_equal(element.dtype, table[i].dtype));
            /* In standard size, l and L have 32 bits. */
            const char *code = table[i].buffer;
            code = *code == 'l' ? "q" : *code == 'L' ? "Q" : code;
            snprintf(text, sizeof(text), "=%s", code);
            CHECK_INT(ad_dtype_from_buffer(text, size, &element, NULL), AD_OK);
            CHECK(ad_dtype_equal(element.dtype, table[i].dtype));
        }
    }
}

static void
test_names_are_canonical(void)
{
    static const char *const names[] = {
        "float32x4",
        "float8_e4m3fnx16",
        "boolx2",
        "opaquex65535",
        "dlpack(code=77, bits=3, lanes=1)",
        "dlpack(code=255, bits=255, lanes=65535)"};
    static const char *const others[] = {"",
                                         "float31",
                                         "float32x",
                                         "float32x0",
                                         "float32x1",
                                         "float32x04",
                                         "float32x65537",
                                         "float32x4 ",
                                         "float32 x4",
                                         "float32x-4",
                                         "dlpack(code=2, bits=32, lanes=1)",
                                         "dlpack(code=77, bits=0, lanes=1)",
                                         "dlpack(code=333, bits=3, lanes=1)",
                                         "dlpack(code=77, bits=3, lanes=1",
                                         "dlpack(code=77, bits=3, lanes=1)x"};
    char name[AD_DTYPE_NAME_SIZE];
    ad_dl_dtype found;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK(ad_dtype_from_name(names[i], &found));
        CHECK_STR(ad_dtype_format(found, name), names[i]);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK(!ad_dtype_from_name(others[i], &found));
    }
}

/* --- refused types ------------------------------------------------------- */

typedef struct refusal {
    const char *text;
    ad_status status;
    const char *reason; /* NULL: no reason */
    const char *hint;
} refusal;

static void
check_refusal(const refusal *expected, ad_status status, const ad_error *err)
{
    if (status != expected->status) {
        fprintf(stderr, "%s gives status %d\n", expected->text, status);
    }
    CHECK_INT(status, expected->status);
    CHECK_INT(err->status, expected->status);
    CHECK_HAS(err->message, expected->text);
    CHECK_HAS(err->hint, expected->hint);
    CHECK_STR(err->reason, expected->reason != NULL ? expected->reason : "");
    if (expected->reason != NULL) {
        CHECK_STR(err->dtype, expected->text);
    }
}

static void
test_typestr_refusals(void)
{
    static const refusal refusals[] = {
        {"<M8", AD_ERR_EXCHANGE, "dtype", "view(\"int64\")"},
        {"<M8[D]", AD_ERR_EXCHANGE, "dtype", "datetime64[s]"},
        {"<M8[25us]", AD_ERR_EXCHANGE, "dtype", "datetime64[us]"},
        {"<m8[us", AD_ERR_EXCHANGE, "dtype", "timedelta64[s]"},
        {"<m4[us]", AD_ERR_EXCHANGE, "dtype", "timedelta64[us]"},
        {"|V8", AD_ERR_EXCHANGE, "dtype", ""},
        {"|O8", AD_ERR_EXCHANGE, "dtype", ""},
        {"|O", AD_ERR_EXCHANGE, "dtype", ""},
        {"<U5", AD_ERR_EXCHANGE, "dtype", ""},
        {"|S5", AD_ERR_EXCHANGE, "dtype", ""},
        {"|a5", AD_ERR_EXCHANGE, "dtype", ""},
        {"|t1", AD_ERR_EXCHANGE, "dtype", ""},
        {"<f16", AD_ERR_EXCHANGE, "dtype", ""},
        {"<c32", AD_ERR_EXCHANGE, "dtype", ""},
        {"<i16", AD_ERR_EXCHANGE, "dtype", ""},
        {"B", AD_ERR_VALUE, NULL, ""},
        {"", AD_ERR_VALUE, NULL, ""},
        {"<", AD_ERR_VALUE, NULL, ""},
        {"<f", AD_ERR_VALUE, NULL, ""},
        {"f3", AD_ERR_VALUE, NULL, ""},
        {"<f0", AD_ERR_VALUE, NULL, ""},
        {"<f4x", AD_ERR_VALUE, NULL, ""},
        {"<i99999999999999999999", AD_ERR_VALUE, NULL, ""},
        {"<f-4", AD_ERR_VALUE, NULL, ""},
        {"@f4", AD_ERR_VALUE, NULL, ""},
        {"float32", AD_ERR_VALUE, NULL, ""},
    };
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        ad_error err = {0};
        ad_element element;
        check_refusal(&refusals[i],
                      ad_dtype_from_typestr(refusals[i].text, &element, &err),
                      &err);
        CHECK_INT(ad_dtype_from_typestr(refusals[i].text, &element, NULL),
                  refusals[i].status);
    }
}

static void
check_buffer(const char *format, int64_t itemsize, uint8_t code, uint8_t bits)
{
    ad_element element = {0};
    CHECK_INT(ad_dtype_from_buffer(format, itemsize, &element, NULL), AD_OK);
    CHECK(ad_dtype_equal(element.dtype, (ad_dl_dtype){code, bits, 1}));
}

static void
test_buffer_format_is_parsed(void)
{
    const uint8_t long_bits = 8 * sizeof(long);
    check_buffer(NULL, 1, AD_DL_UINT, 8);
    check_buffer("l", sizeof(long), AD_DL_INT, long_bits);
    check_buffer("@L", sizeof(long), AD_DL_UINT, long_bits);
    check_buffer("<l", 4, AD_DL_INT, 32);
    check_buffer("=L", 4, AD_DL_UINT, 32);
    check_buffer("n", sizeof(size_t), AD_DL_INT, 8 * sizeof(size_t));
    check_buffer("@N", sizeof(size_t), AD_DL_UINT, 8 * sizeof(size_t));
    check_buffer("?", 1, AD_DL_BOOL, 8);
    check_buffer("e", 2, AD_DL_FLOAT, 16);
    check_buffer("Zf", 8, AD_DL_COMPLEX, 64);
    check_buffer("<Zd", 16, AD_DL_COMPLEX, 128);
    check_buffer("F", 8, AD_DL_COMPLEX, 64);
    check_buffer("=D", 16, AD_DL_COMPLEX, 128);
    check_buffer(">b", 1, AD_DL_INT, 8);
    check_buffer("!B", 1, AD_DL_UINT, 8);
}

static void
test_buffer_format_refusals(void)
{
    static const refusal refusals[] = {
        {"g", AD_ERR_EXCHANGE, "dtype", "64-bit"},
        {"Zg", AD_ERR_EXCHANGE, "dtype", "64-bit"},
        {"c", AD_ERR_EXCHANGE, "dtype", "cast"},
        {"O", AD_ERR_EXCHANGE, "dtype", ""},
        {"T{<i:a:<f:b:}", AD_ERR_EXCHANGE, "dtype", "field"},
        {"(2,3)f", AD_ERR_EXCHANGE, "dtype", "field"},
        {"P", AD_ERR_EXCHANGE, "dtype", ""},
        {"8s", AD_ERR_EXCHANGE, "dtype", ""},
        {"s", AD_ERR_EXCHANGE, "dtype", ""},
        {"w", AD_ERR_EXCHANGE, "dtype", ""},
        {"2f", AD_ERR_EXCHANGE, "dtype", ""},
        {"ff", AD_ERR_EXCHANGE, "dtype", ""},
        {"x", AD_ERR_EXCHANGE, "dtype", ""},
        {"i", AD_ERR_EXCHANGE, "dtype", ""}, /* the test passes itemsize 0 */
        {"", AD_ERR_VALUE, NULL, ""},
        {"@", AD_ERR_VALUE, NULL, ""},
        {"=n", AD_ERR_VALUE, NULL, ""},
        {"k", AD_ERR_VALUE, NULL, ""},
        {"Z", AD_ERR_VALUE, NULL, ""},
        {"Zq", AD_ERR_VALUE, NULL, ""},
    };
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        ad_error err = {0};
        ad_element element;
        check_refusal(
            &refusals[i],
            ad_dtype_from_buffer(refusals[i].text, 0, &element, &err), &err);
    }
}

static void
test_buffer_itemsize_must_agree(void)
{
    static const int64_t sizes[] = {0, 1, 2, 8, -4, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ad_error err = {0};
        ad_element element;
        CHECK_INT(ad_dtype_from_buffer("<f", sizes[i], &element, &err),
                  AD_ERR_EXCHANGE);
        CHECK_HAS(err.message, "instead of 4");
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_table_rows_are_found_by_every_key),
        CHECK_TEST(test_names_are_canonical),
        CHECK_TEST(test_typestr_refusals),
        CHECK_TEST(test_buffer_format_is_parsed),
        CHECK_TEST(test_buffer_format_refusals),
        CHECK_TEST(test_buffer_itemsize_must_agree),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
