/* Extension metadata, and the JSON reader that it uses. */
#include "check.h"
#include "model/extension.h"
#include "base/json.h"
#include "model/metadata.h"

static void
never_released(struct ArrowSchema *node)
{
}

static ad_metadata_pair
make_pair(const char *key, const char *value)
{
    return (ad_metadata_pair){key, (int32_t)strlen(key), value,
                              (int32_t)strlen(value)};
}

/* Reads extension `name` (NULL: none) with `json` (NULL: none). The storage
 * has the format `format`, and all its children have the format `item`. */
static ad_status
read_over(const char *format, const char *item, const char *name,
          const char *json, ad_extension *out, ad_error *err)
{
    ad_metadata_pair pairs[3] = {make_pair("other", "x")};
    int32_t n = 1;
    char *metadata = NULL;
    if (name != NULL) {
        pairs[n++] = make_pair(AD_EXTENSION_NAME_KEY, name);
    }
    if (json != NULL) {
        pairs[n++] = make_pair(AD_EXTENSION_METADATA_KEY, json);
    }
    CHECK_INT(ad_metadata_build(pairs, n, &metadata, NULL), AD_OK);
    struct ArrowSchema child = {.format = item, .release = never_released};
    struct ArrowSchema *children[] = {&child};
    struct ArrowSchema node = {.format = format,
                               .metadata = metadata,
                               .n_children = item != NULL,
                               .children = children,
                               .release = never_released};
    ad_status status = ad_extension_read(&node, out, err);
    free(metadata);
    return status;
}

static ad_extension
good(const char *format, const char *item, const char *name, const char *json)
{
    ad_extension extension;
    ad_error err = {0};
    ad_status status = read_over(format, item, name, json, &extension, &err);
    if (status != AD_OK) {
        fprintf(stderr, "%s: %s\n", json, err.message);
    }
    CHECK_INT(status, AD_OK);
    return extension;
}

static void
bad(const char *format, const char *item, const char *name, const char *json,
    const char *message)
{
    ad_extension extension;
    ad_error err = {0};
    CHECK_INT(read_over(format, item, name, json, &extension, &err),
              AD_ERR_ARROW);
    CHECK_HAS(err.message, message);
    CHECK_INT(read_over(format, item, name, json, &extension, NULL),
              AD_ERR_ARROW);
}

/* --- arrow.fixed_shape_tensor -------------------------------------------- */

#define TENSOR "arrow.fixed_shape_tensor"

static void
test_fixed_shape_tensor_is_read(void)
{
    ad_extension t = good("+w:6", "i", TENSOR, "{\"shape\":[2,3]}");
    CHECK_INT(t.kind, AD_EXTENSION_FIXED_SHAPE_TENSOR);
    CHECK_INT(t.ndim, 2);
    CHECK_INT(t.shape[0], 2);
    CHECK_INT(t.shape[1], 3);
    CHECK_INT(t.permutation[0], 0);
    CHECK_INT(t.permutation[1], 1);
    t = good("+w:24", "i", TENSOR,
             " { \"shape\" : [ 2 , 3 , 4 ] ,\n\t\"dim_names\": [\"a\", "
             "\"\\u00e9\\\"\\\\\", \"\"], \"other\": {\"x\": [1.5e-3, true, "
             "null, {\"y\": []}]}, \"permutation\": [2, 0, 1] }\r\n");
    CHECK_INT(t.ndim, 3);
    CHECK_INT(t.permutation[0], 2);
    CHECK_INT(t.permutation[1], 0);
    CHECK_INT(t.permutation[2], 1);
    t = good("+w:1", "i", TENSOR, "{\"shape\":[]}");
    CHECK_INT(t.ndim, 0);
    t = good("+w:0", "i", TENSOR, "{\"shape\":[4,0,3]}");
    CHECK_INT(t.ndim, 3);
    t = good("+w:2", "i", TENSOR, "{\"s\\u0068ape\":[2]}");
    CHECK_INT(t.ndim, 1);
}

static void
test_invalid_fixed_shape_tensor_is_refused(void)
{
    bad("+l", "i", TENSOR, "{\"shape\":[2]}", "instead of a fixed-size list");
    bad(NULL, "i", TENSOR, "{\"shape\":[2]}", "NULL");
    bad("+w:6", "i", TENSOR, NULL, "JSON ends");
    bad("+w:6", "i", TENSOR, "{}", "no \"shape\"");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,4]}", "8 elements");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,-3]}", "extent -3");
    bad("+w:0", "i", TENSOR, "{\"shape\":[4294967296,4294967296]}",
        "does not fit");
    bad("+w:0", "i", TENSOR, "{\"shape\":[0,4294967296,4294967296]}",
        "does not fit");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"permutation\":[0]}",
        "another length");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"permutation\":[]}",
        "another length");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"permutation\":[1,1]}",
        "has 1 in its permutation");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"permutation\":[0,2]}",
        "has 2 in its permutation");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"permutation\":[-1,0]}",
        "has -1 in its permutation");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"dim_names\":[\"a\"]}",
        "number of names");
    bad("+w:6", "i", TENSOR, "{\"shape\":[2,3],\"dim_names\":[1,2]}",
        "a string");
    char many[1024] = "{\"shape\":[1";
    for (int i = 1; i < AD_MAX_NDIM; i++) {
        strcat(many, ",1");
    }
    size_t length = strlen(many);
    strcat(many, "]}");
    CHECK_INT(good("+w:1", "i", TENSOR, many).ndim, AD_MAX_NDIM);
    strcpy(many + length, ",1]}");
    bad("+w:1", "i", TENSOR, many, "too many items");
}

static void
test_invalid_json_is_refused(void)
{
    static const char *const texts[][2] = {
        {"", "ends at position 0 instead of an object"},
        {"  ", "ends at position 2 instead of an object"},
        {"[]", "0x5b at position 0 instead of an object"},
        {"{", "instead of a string"},
        {"{\"shape\"", "instead of ':'"},
        {"{\"shape\":", "an array of integers"},
        {"{\"shape\":6", "0x36 at position 9 instead of an array"},
        {"{\"shape\":null}", "an array of integers"},
        {"{\"shape\":[", "an integer"},
        {"{\"shape\":[6", "',' or ']'"},
        {"{\"shape\":[6 6]}", "',' or ']'"},
        {"{\"shape\":[6,]}", "an integer"},
        {"{\"shape\":[\"6\"]}", "an integer"},
        {"{\"shape\":[6.0]}", "position 10 is not an integer"},
        {"{\"shape\":[6e0]}", "is not an integer"},
        {"{\"shape\":[06]}", "leading zero"},
        {"{\"shape\":[- 6]}", "an integer"},
        {"{\"shape\":[+6]}", "an integer"},
        {"{\"shape\":[9223372036854775808]}", "does not fit 64 bits"},
        {"{\"shape\":[99999999999999999999]}", "does not fit 64 bits"},
        {"{\"shape\":[-9223372036854775809]}", "does not fit 64 bits"},
        {"{\"shape\":[-9223372036854775808]}", "extent -9223372036854775808"},
        {"{\"shape\":[6]", "',' or '}'"},
        {"{\"shape\":[6],}", "instead of a string"},
        {"{,\"shape\":[6]}", "instead of a string"},
        {"{\"shape\":[6]} x", "0x78 at position 14 instead of the end"},
        {"{shape:[6]}", "instead of a string"},
        {"{\"a\\x\":1}", "an escape"},
        {"{\"a\\", "an escape"},
        {"{\"a\\u00g0\":1}", "a hexadecimal digit"},
        {"{\"a\\u00", "a hexadecimal digit"},
        {"{\"a\n\":1}", "the end of a string"},
        {"{\"a", "the end of a string"},
        {"{\"a\":tru}", "instead of a value"},
        {"{\"a\":}", "instead of a value"},
        {"{\"a\":-}", "a digit"},
        {"{\"a\":1.}", "a digit"},
        {"{\"a\":1e}", "a digit"},
        {"{\"a\":{\"b\"}}", "':'"},
        {"{\"a\":{\"b\":1,}}", "a string"},
        {"{\"a\":[1}", "',' or ']'"},
        {"{\"dim_names\":{}", "an array of strings"},
        {"{\"dim_names\":[\"a\"", "',' or ']'"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        bad("+w:6", "i", TENSOR, texts[i][0], texts[i][1]);
    }
}

static void
test_json_depth_is_limited(void)
{
    char text[20100] = "{\"a\":";
    char *at = text + strlen(text);
    memset(at, '[', 20000);
    bad("+w:6", "i", TENSOR, text, "nested too deeply");
    at[AD_JSON_MAX_DEPTH] = '\0';
    bad("+w:6", "i", TENSOR, text, "nested too deeply");
    memset(at, '[', AD_JSON_MAX_DEPTH - 1);
    memset(at + AD_JSON_MAX_DEPTH - 1, ']', AD_JSON_MAX_DEPTH - 1);
    strcpy(at + 2 * (AD_JSON_MAX_DEPTH - 1), ",\"shape\":[6]}");
    good("+w:6", "i", TENSOR, text);
}

/* Every prefix of a valid text, in an allocation of its exact size, fails
 * without a read past its end. */
static void
test_truncated_json_is_refused(void)
{
    static const char full[] =
        "{\"a\\u0041\":[1.5,{\"x\":null}],\"shape\":[2, 3],"
        "\"dim_names\":[\"a\",\"b\"]}";
    for (size_t n = 0; n < strlen(full); n++) {
        char *text = malloc(n + 1);
        memcpy(text, full, n);
        ad_json json;
        char key[AD_JSON_KEY_SIZE];
        bool done = false;
        ad_status status = ad_json_enter(&json, text, n, NULL);
        while (status == AD_OK && !done) {
            status = ad_json_member(&json, key, &done, NULL);
            if (status == AD_OK && !done) {
                status = ad_json_skip(&json, NULL);
            }
        }
        CHECK_INT(status, AD_ERR_ARROW);
        free(text);
    }
}

static void
test_json_key_of_any_length_is_skipped(void)
{
    char text[200] = "{\"";
    memset(text + 2, 'k', 100);
    strcat(text, "\":1,\"shape\":[6]}");
    good("+w:6", "i", TENSOR, text);
}

/* --- arrowdev.dlpack ----------------------------------------------------- */

static void
check_dlpack(const char *format, const char *item, int code, int bits,
             int lanes, bool expected)
{
    char json[80];
    snprintf(json, sizeof(json), "{\"code\":%d,\"bits\":%d,\"lanes\":%d}",
             code, bits, lanes);
    if (!expected) {
        bad(format, item, "arrowdev.dlpack", json, "of the same width");
        return;
    }
    ad_extension x = good(format, item, "arrowdev.dlpack", json);
    CHECK_INT(x.kind, AD_EXTENSION_DLPACK);
    CHECK_INT(x.dtype.code, code);
    CHECK_INT(x.dtype.bits, bits);
    CHECK_INT(x.dtype.lanes, lanes);
    CHECK(!x.is_scalar);
}

static void
test_dlpack_is_read(void)
{
    check_dlpack("S", NULL, AD_DL_BFLOAT, 16, 1, true);
    check_dlpack("C", NULL, AD_DL_FLOAT8_E5M2, 8, 1, true);
    check_dlpack("L", NULL, AD_DL_OPAQUE, 64, 1, true);
    check_dlpack("w:16", NULL, AD_DL_FLOAT, 32, 4, true);
    check_dlpack("C", NULL, AD_DL_FLOAT4_E2M1FN, 4, 2, true);
    check_dlpack("+w:2", "f", AD_DL_COMPLEX, 64, 1, true);
    check_dlpack("+w:2", "g", AD_DL_COMPLEX, 128, 1, true);
    check_dlpack("+w:4", "f", AD_DL_COMPLEX, 64, 2, true);
    check_dlpack("w:8", NULL, AD_DL_COMPLEX, 64, 1, true);
    check_dlpack("w:16", NULL, AD_DL_FLOAT4_E2M1FN, 4, 1, true);
    check_dlpack("w:3", NULL, AD_DL_FLOAT6_E2M3FN, 6, 1, true);
    check_dlpack("l", NULL, 77, 64, 1, true);
    ad_extension x = good("S", NULL, "arrowdev.dlpack",
                          "{\"shape\":[],\"lanes\":1,\"x\":2,\"bits\":16,"
                          "\"code\":4}");
    CHECK(x.is_scalar);
}

static void
test_invalid_dlpack_is_refused(void)
{
    check_dlpack("C", NULL, AD_DL_BFLOAT, 16, 1, false);
    check_dlpack("S", NULL, AD_DL_BFLOAT, 16, 2, false);
    check_dlpack("u", NULL, AD_DL_INT, 8, 1, false);
    check_dlpack("b", NULL, AD_DL_BOOL, 1, 1, false);
    check_dlpack("w:0", NULL, AD_DL_FLOAT4_E2M1FN, 4, 1, false);
    check_dlpack("w:4", NULL, AD_DL_FLOAT6_E2M3FN, 6, 1, false);
    check_dlpack("C", NULL, AD_DL_FLOAT4_E2M1FN, 4, 1, false);
    check_dlpack("+w:2", "g", AD_DL_COMPLEX, 64, 1, false);
    check_dlpack("+w:2", "i", AD_DL_COMPLEX, 64, 1, false);
    check_dlpack("+w:2", NULL, AD_DL_COMPLEX, 64, 1, false);
    check_dlpack("+w:3", "f", AD_DL_COMPLEX, 64, 1, false);
    check_dlpack("+w:2", "f", AD_DL_FLOAT, 64, 1, false);
    static const char *const texts[][2] = {
        {"{}", "must have"},
        {"{\"code\":4,\"bits\":16}", "must have"},
        {"{\"code\":256,\"bits\":16,\"lanes\":1}", "must have"},
        {"{\"code\":-1,\"bits\":16,\"lanes\":1}", "must have"},
        {"{\"code\":4,\"bits\":0,\"lanes\":1}", "must have"},
        {"{\"code\":4,\"bits\":256,\"lanes\":1}", "must have"},
        {"{\"code\":4,\"bits\":16,\"lanes\":0}", "must have"},
        {"{\"code\":4,\"bits\":16,\"lanes\":65536}", "must have"},
        {"{\"code\":\"4\",\"bits\":16,\"lanes\":1}", "an integer"},
        {"{\"code\":4,\"bits\":16,\"lanes\":1,\"shape\":[1]}", "too many"},
        {"{\"code\":4,\"bits\":16,\"lanes\":1,\"shape\":1}", "an array"},
        {"x", "an object"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        bad("S", NULL, "arrowdev.dlpack", texts[i][0], texts[i][1]);
    }
    bad("??", NULL, "arrowdev.dlpack", "{}", "not known");
}

/* --- writing ------------------------------------------------------------- */

static ad_extension
again(const char *format, const ad_extension *extension, const char *json)
{
    char *metadata = NULL;
    bool has_failed = true;
    for (long n = 1; has_failed; n++) {
        check_fail_nth(n);
        ad_status status = ad_extension_metadata(extension, &metadata, NULL);
        has_failed = check_failed_once();
        check_fail_nth(0);
        CHECK_INT(status, has_failed ? AD_ERR_MEMORY : AD_OK);
    }
    ad_metadata_pair value;
    bool found = false;
    CHECK_INT(ad_metadata_find(metadata, AD_EXTENSION_METADATA_KEY, &value,
                               &found, NULL),
              AD_OK);
    CHECK(found);
    CHECK_INT(value.value_length, strlen(json));
    CHECK(memcmp(value.value, json, strlen(json)) == 0);
    struct ArrowSchema node = {
        .format = format, .metadata = metadata, .release = never_released};
    ad_extension out;
    CHECK_INT(ad_extension_read(&node, &out, NULL), AD_OK);
    CHECK_INT(out.kind, extension->kind);
    free(metadata);
    return out;
}

static void
test_written_metadata_are_read_back(void)
{
    ad_extension x = {.kind = AD_EXTENSION_BOOL8};
    again("c", &x, "");
    x = (ad_extension){.kind = AD_EXTENSION_DLPACK, .dtype = {4, 16, 1}};
    CHECK(!again("S", &x, "{\"code\":4,\"bits\":16,\"lanes\":1}").is_scalar);
    x.is_scalar = true;
    x = again("S", &x, "{\"code\":4,\"bits\":16,\"lanes\":1,\"shape\":[]}");
    CHECK(x.is_scalar && ad_dtype_equal(x.dtype, (ad_dl_dtype){4, 16, 1}));
    x = (ad_extension){.kind = AD_EXTENSION_FIXED_SHAPE_TENSOR,
                       .ndim = 2,
                       .shape = {2, 3},
                       .permutation = {0, 1}};
    CHECK_INT(again("+w:6", &x, "{\"shape\":[2,3]}").shape[1], 3);
    x.permutation[0] = 1;
    x.permutation[1] = 0;
    x = again("+w:6", &x, "{\"shape\":[2,3],\"permutation\":[1,0]}");
    CHECK_INT(x.permutation[0], 1);
    x.ndim = 0;
    CHECK_INT(again("+w:1", &x, "{\"shape\":[]}").ndim, 0);
    char *metadata = NULL;
    x.kind = AD_EXTENSION_NONE;
    CHECK_INT(ad_extension_metadata(&x, &metadata, NULL), AD_ERR_VALUE);
    x.kind = AD_EXTENSION_OTHER;
    CHECK_INT(ad_extension_metadata(&x, &metadata, NULL), AD_ERR_VALUE);
    CHECK(metadata == NULL);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_fixed_shape_tensor_is_read),
        CHECK_TEST(test_invalid_fixed_shape_tensor_is_refused),
        CHECK_TEST(test_invalid_json_is_refused),
        CHECK_TEST(test_json_depth_is_limited),
        CHECK_TEST(test_truncated_json_is_refused),
        CHECK_TEST(test_json_key_of_any_length_is_skipped),
        CHECK_TEST(test_dlpack_is_read),
        CHECK_TEST(test_invalid_dlpack_is_refused),
        CHECK_TEST(test_written_metadata_are_read_back),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
