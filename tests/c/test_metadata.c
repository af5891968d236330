/* The metadata blob: reading, malformed blobs, building, comparison. */
#include "check.h"
#include "model/metadata.h"

static char *
build(const char *const (*pairs)[2], int32_t n)
{
    ad_metadata_pair items[8];
    char *blob = NULL;
    for (int32_t i = 0; i < n; i++) {
        items[i] =
            (ad_metadata_pair){pairs[i][0], (int32_t)strlen(pairs[i][0]),
                               pairs[i][1], (int32_t)strlen(pairs[i][1])};
    }
    CHECK_INT(ad_metadata_build(items, n, &blob, NULL), AD_OK);
    return blob;
}

/* --- malformed blobs ----------------------------------------------------- */

static void
check_malformed(const int32_t *numbers, size_t n, const char *message)
{
    /* On the heap at its exact size, so that a read past the end is
     * detected. */
    char *blob = malloc(n * sizeof(int32_t));
    memcpy(blob, numbers, n * sizeof(int32_t));
    ad_error err = {0};
    int64_t size;
    bool flag;
    ad_metadata_pair pair;
    CHECK_INT(ad_metadata_size(blob, &size, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, message);
    CHECK_INT(ad_metadata_find(blob, "k", &pair, &flag, NULL), AD_ERR_ARROW);
    CHECK_INT(ad_metadata_equal(blob, NULL, &flag, NULL), AD_ERR_ARROW);
    CHECK_INT(ad_metadata_equal(NULL, blob, &flag, NULL), AD_ERR_ARROW);
    free(blob);
}

static void
test_malformed_blobs_are_refused(void)
{
    check_malformed((int32_t[]){-1}, 1, "claim -1 pairs");
    check_malformed((int32_t[]){65537}, 1, "claim 65537 pairs");
    check_malformed((int32_t[]){INT32_MAX}, 1, "claim 2147483647 pairs");
    check_malformed((int32_t[]){1, -5}, 2, "length of -5");
    check_malformed((int32_t[]){1, INT32_MAX}, 2, "length of 2147483647");
    check_malformed((int32_t[]){1, AD_METADATA_MAX_SIZE}, 2, "refused");
    check_malformed((int32_t[]){1, 0, -1}, 3, "value 0 claims");
    check_malformed((int32_t[]){2, 0, 0, 0, INT32_MIN}, 5, "value 1 claims");
}

static void
test_build_errors(void)
{
    const ad_metadata_pair huge = {"k", AD_METADATA_MAX_SIZE, "", 0};
    const ad_metadata_pair fine = {"k", 1, NULL, 0};
    char *blob = NULL;
    CHECK_INT(ad_metadata_build(&huge, 1, &blob, NULL), AD_ERR_VALUE);
    check_fail_nth(1);
    CHECK_INT(ad_metadata_build(&fine, 1, &blob, NULL), AD_ERR_MEMORY);
    CHECK(blob == NULL);
    CHECK_INT(ad_metadata_build(&fine, 1, &blob, NULL), AD_OK);
    free(blob);
}

/* --- comparison ---------------------------------------------------------- */

static void
compare(const char *const (*a)[2], int32_t n_a, const char *const (*b)[2],
        int32_t n_b, bool expected)
{
    char *left = build(a, n_a);
    char *right = build(b, n_b);
    bool is_equal = !expected;
    CHECK_INT(ad_metadata_equal(left, right, &is_equal, NULL), AD_OK);
    CHECK_INT(is_equal, expected);
    free(left);
    free(right);
}

static void
test_comparison_ignores_the_order_of_pairs(void)
{
    const char *const ab[][2] = {{"a", "1"}, {"b", "2"}};
    const char *const ba[][2] = {{"b", "2"}, {"a", "1"}};
    const char *const ac[][2] = {{"a", "1"}, {"b", "3"}};
    const char *const aa[][2] = {{"a", "1"}, {"a", "1"}};
    const char *const longer[][2] = {{"a", "1"}, {"b", "22"}};
    const char *const shifted[][2] = {{"ab", ""}, {"", "12"}};
    compare(ab, 2, ab, 2, true);
    compare(ab, 2, ba, 2, true);
    compare(ab, 2, ac, 2, false);
    compare(ab, 2, aa, 2, false);
    compare(ab, 1, ab, 2, false);
    compare(ab, 2, longer, 2, false);
    compare(ab, 2, shifted, 2, false);
    char *empty = build(ab, 0);
    bool is_equal = false;
    CHECK_INT(ad_metadata_equal(empty, NULL, &is_equal, NULL), AD_OK);
    CHECK(is_equal);
    free(empty);
    char *left = build(ab, 2), *right = build(ba, 2);
    check_fail_nth(1);
    CHECK_INT(ad_metadata_equal(left, right, &is_equal, NULL), AD_ERR_MEMORY);
    free(left);
    free(right);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_malformed_blobs_are_refused),
        CHECK_TEST(test_build_errors),
        CHECK_TEST(test_comparison_ignores_the_order_of_pairs),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
