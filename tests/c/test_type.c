/* Format strings, parsed. */
#include "check.h"
#include "model/schema.h"
#include "model/type.h"

/* --- format strings ------------------------------------------------------ */

static void
test_only_one_letter_formats_are_letters(void)
{
    for (int c = 1; c < 256; c++) {
        const char format[] = {(char)c, '\0'};
        ad_type type;
        ad_status status = ad_type_parse(format, &type, NULL);
        CHECK_INT(ad_type_of_letter(format) != NULL, status == AD_OK);
    }
    CHECK(ad_type_of_letter(NULL) == NULL);
    CHECK(ad_type_of_letter("") == NULL);
    CHECK(ad_type_of_letter("ii") == NULL);
}

static void
test_parameters_are_parsed(void)
{
    ad_type type;
    CHECK_INT(ad_type_parse("d:38,-7", &type, NULL), AD_OK);
    CHECK_INT(type.precision, 38);
    CHECK_INT(type.scale, -7);
    CHECK_INT(ad_type_parse("+w:9223372036854775807", &type, NULL), AD_OK);
    CHECK_INT(type.list_size, INT64_MAX);
    CHECK_INT(ad_type_parse("+w:0", &type, NULL), AD_OK);
    CHECK_INT(type.list_size, 0);
}

static void
test_invalid_formats_are_refused(void)
{
    static const char *const formats[] = {
        "x",
        "?",
        "ix",
        "ii",
        "nn",
        "uu",
        "\x80",
        "\xff\xff",
        "+",
        "+x",
        "+ls",
        "+sx",
        "+m:",
        "+rr",
        "+w",
        "+w:",
        "+w:-1",
        "+w:+1",
        "+w: 1",
        "+w:1x",
        "+w:9223372036854775808",
        "+w:99999999999999999999",
        "+wx3",
        "+u",
        "+us",
        "+ux:0",
        "+us:128",
        "+us:-1",
        "+us:0,",
        "+us:,0",
        "+us:0,,1",
        "+us:a",
        "+ud:1,2,1",
        "+ud:99999999999999999999",
        "+v",
        "+vx",
        "+vll",
        "v",
        "vx",
        "vuu",
        "w",
        "w:",
        "w:-1",
        "w:268435456",
        "w:1 ",
        "wx",
        "d",
        "d:",
        "d:5",
        "d:5,",
        "d:,2",
        "d:-5,2",
        "d:0,0",
        "d:39,0",
        "d:10,0,32",
        "d:19,0,64",
        "d:77,0,256",
        "d:5,2,",
        "d:5,2,100",
        "d:5,2,128,",
        "d:5,--2",
        "d:5,2147483648",
        "d:99999999999,2",
        "dx5,2",
        "t",
        "td",
        "tdx",
        "tdDD",
        "tt",
        "ttx",
        "ttss",
        "ts",
        "tsx:",
        "tsu",
        "tsuUTC",
        "tD",
        "tDx",
        "tDsx",
        "ti",
        "tix",
        "tiMM",
        "tx",
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        /* A copy of the exact size detects reads past its end. */
        char *format = strdup(formats[i]);
        ad_error err = {0};
        ad_type type;
        ad_status status = ad_type_parse(format, &type, &err);
        if (status != AD_ERR_ARROW) {
            fprintf(stderr, "\"%s\" is accepted\n", format);
        }
        CHECK_INT(status, AD_ERR_ARROW);
        CHECK(strlen(err.message) > 0);
        CHECK_INT(ad_type_parse(format, &type, NULL), AD_ERR_ARROW);
        free(format);
    }
    ad_error err = {0};
    ad_type type;
    CHECK_INT(ad_type_parse(NULL, &type, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "NULL");
    CHECK_INT(ad_type_parse("", &type, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "empty");
    CHECK_INT(ad_type_parse("ix", &type, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "\"ix\" has text after");
    CHECK_INT(ad_type_parse("d:40,2", &type, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "precision 40");
}

static void
test_union_ids_are_parsed(void)
{
    ad_type type;
    ad_error err = {0};
    int8_t ids[128];
    int n = -1;
    CHECK_INT(ad_type_parse("+us:5,0,127", &type, NULL), AD_OK);
    CHECK_INT(ad_type_union_ids(&type, ids, &n, NULL), AD_OK);
    CHECK_INT(n, 3);
    CHECK_INT(ids[0], 5);
    CHECK_INT(ids[2], 127);
    char all[1024] = "+ud:";
    for (int i = 0; i < 128; i++) {
        sprintf(all + strlen(all), i > 0 ? ",%d" : "%d", 127 - i);
    }
    CHECK_INT(ad_type_parse(all, &type, NULL), AD_OK);
    CHECK_INT(ad_type_union_ids(&type, ids, &n, NULL), AD_OK);
    CHECK_INT(n, 128);
    CHECK_INT(ids[127], 0);
    type.suffix = "1,1";
    CHECK_INT(ad_type_union_ids(&type, ids, &n, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "twice");
    CHECK_INT(ad_type_parse("i", &type, NULL), AD_OK);
    CHECK_INT(ad_type_union_ids(&type, ids, &n, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "only unions");
}

static bool
same_width(const char *a, const char *b)
{
    ad_type left, right;
    CHECK_INT(ad_type_parse(a, &left, NULL), AD_OK);
    CHECK_INT(ad_type_parse(b, &right, NULL), AD_OK);
    return ad_type_same_width(&left, &right);
}

static void
test_views_need_the_same_whole_width(void)
{
    CHECK(same_width("l", "tsu:"));
    CHECK(same_width("tin", "w:16"));
    CHECK(!same_width("l", "i"));
    CHECK(!same_width("b", "b"));
    CHECK(!same_width("w:0", "w:0"));
    CHECK(!same_width("u", "u"));
    CHECK(!same_width("+s", "+s"));
}

/* Python tests have the names; no allocation fails in them. */
static void
test_names_fail_without_memory(void)
{
    static const char *const names[] = {
        "int32", "timestamp[us, UTC]", "map<string, list<int8>>",
        "dense_union<a: int8=3, b: int8=4>",
        "dictionary<values=list<string>, indices=int8>"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool has_failed = true;
        for (long n = 1; has_failed; n++) {
            ad_schema schema = {0};
            check_fail_nth(n);
            ad_status status = ad_schema_from_name(names[i], &schema, NULL);
            has_failed = check_failed_once();
            check_fail_nth(0);
            CHECK_INT(status, has_failed ? AD_ERR_MEMORY : AD_OK);
            CHECK((schema.node != NULL) == !has_failed);
            ad_schema_unref(schema);
        }
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_only_one_letter_formats_are_letters),
        CHECK_TEST(test_parameters_are_parsed),
        CHECK_TEST(test_invalid_formats_are_refused),
        CHECK_TEST(test_union_ids_are_parsed),
        CHECK_TEST(test_views_need_the_same_whole_width),
        CHECK_TEST(test_names_fail_without_memory),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
