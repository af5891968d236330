/* Format strings and type names, parsed and printed. */
#include "check.h"
#include "model/metadata.h"
#include "model/schema.h"
#include "model/type.h"

typedef struct expectation {
    const char *format;
    ad_type_id id;
    ad_layout layout;
    int n_buffers;
    int bit_width;
    int n_children;
    char unit;
    const char *suffix; /* NULL: no suffix */
    const char *name;   /* NULL: a nested type */
} expectation;

#define FIXED(format, id, bits, unit, name)                                   \
    {                                                                         \
        format, AD_TYPE_##id, AD_LAYOUT_FIXED, 2, bits, 0, unit, NULL, name   \
    }
#define STAMP(format, unit, zone, name)                                       \
    {                                                                         \
        format, AD_TYPE_TIMESTAMP, AD_LAYOUT_FIXED, 2, 64, 0, unit, zone,     \
            name                                                              \
    }
#define PLAIN(format, id, layout, n, name)                                    \
    {                                                                         \
        format, AD_TYPE_##id, AD_LAYOUT_##layout, n, 0, 0, 0, NULL, name      \
    }
#define NESTED(format, id, layout, n, children, suffix)                       \
    {                                                                         \
        format, AD_TYPE_##id, AD_LAYOUT_##layout, n, 0, children, 0, suffix,  \
            NULL                                                              \
    }

static const expectation expectations[] = {
    PLAIN("n", NULL, NONE, 0, "null"),
    FIXED("b", BOOL, 1, 0, "bool"),
    FIXED("c", INT8, 8, 0, "int8"),
    FIXED("C", UINT8, 8, 0, "uint8"),
    FIXED("s", INT16, 16, 0, "int16"),
    FIXED("S", UINT16, 16, 0, "uint16"),
    FIXED("i", INT32, 32, 0, "int32"),
    FIXED("I", UINT32, 32, 0, "uint32"),
    FIXED("l", INT64, 64, 0, "int64"),
    FIXED("L", UINT64, 64, 0, "uint64"),
    FIXED("e", FLOAT16, 16, 0, "float16"),
    FIXED("f", FLOAT32, 32, 0, "float32"),
    FIXED("g", FLOAT64, 64, 0, "float64"),
    PLAIN("z", BINARY, OFFSETS, 3, "binary"),
    PLAIN("Z", LARGE_BINARY, OFFSETS, 3, "large_binary"),
    PLAIN("u", UTF8, OFFSETS, 3, "string"),
    PLAIN("U", LARGE_UTF8, OFFSETS, 3, "large_string"),
    PLAIN("vz", BINARY_VIEW, VIEWS, 3, "binary_view"),
    PLAIN("vu", UTF8_VIEW, VIEWS, 3, "string_view"),
    FIXED("w:16", FIXED_BINARY, 128, 0, "fixed_size_binary[16]"),
    FIXED("w:0", FIXED_BINARY, 0, 0, "fixed_size_binary[0]"),
    FIXED("w:268435455", FIXED_BINARY, 2147483640, 0,
          "fixed_size_binary[268435455]"),
    FIXED("d:10,2", DECIMAL, 128, 0, "decimal128(10, 2)"),
    FIXED("d:9,-3,32", DECIMAL, 32, 0, "decimal32(9, -3)"),
    FIXED("d:18,0,64", DECIMAL, 64, 0, "decimal64(18, 0)"),
    FIXED("d:76,76,256", DECIMAL, 256, 0, "decimal256(76, 76)"),
    FIXED("tdD", DATE32, 32, 0, "date32[day]"),
    FIXED("tdm", DATE64, 64, 0, "date64[ms]"),
    FIXED("tts", TIME32, 32, 's', "time32[s]"),
    FIXED("ttm", TIME32, 32, 'm', "time32[ms]"),
    FIXED("ttu", TIME64, 64, 'u', "time64[us]"),
    FIXED("ttn", TIME64, 64, 'n', "time64[ns]"),
    STAMP("tss:", 's', "", "timestamp[s]"),
    STAMP("tsm:", 'm', "", "timestamp[ms]"),
    STAMP("tsu:UTC", 'u', "UTC", "timestamp[us, tz=UTC]"),
    STAMP("tsn:Europe/Paris", 'n', "Europe/Paris",
          "timestamp[ns, tz=Europe/Paris]"),
    FIXED("tDs", DURATION, 64, 's', "duration[s]"),
    FIXED("tDm", DURATION, 64, 'm', "duration[ms]"),
    FIXED("tDu", DURATION, 64, 'u', "duration[us]"),
    FIXED("tDn", DURATION, 64, 'n', "duration[ns]"),
    FIXED("tiM", INTERVAL_MONTHS, 32, 0, "month_interval"),
    FIXED("tiD", INTERVAL_DAYS, 64, 0, "day_time_interval"),
    FIXED("tin", INTERVAL_MONTH_DAY_NANO, 128, 0, "month_day_nano_interval"),
    NESTED("+l", LIST, LIST, 2, 1, NULL),
    NESTED("+L", LARGE_LIST, LIST, 2, 1, NULL),
    NESTED("+vl", LIST_VIEW, LIST_VIEW, 3, 1, NULL),
    NESTED("+vL", LARGE_LIST_VIEW, LIST_VIEW, 3, 1, NULL),
    NESTED("+w:3", FIXED_LIST, VALIDITY, 1, 1, NULL),
    NESTED("+s", STRUCT, VALIDITY, 1, -1, NULL),
    NESTED("+m", MAP, LIST, 2, 1, NULL),
    NESTED("+us:", SPARSE_UNION, SPARSE_UNION, 1, -1, ""),
    NESTED("+ud:0,127", DENSE_UNION, DENSE_UNION, 2, -1, "0,127"),
    NESTED("+r", RUN_END, NONE, 0, 2, NULL),
};

enum {
    N_EXPECTATIONS = sizeof(expectations) / sizeof(expectations[0])
};

/* --- format strings ------------------------------------------------------ */

static void
test_formats_are_parsed(void)
{
    for (int i = 0; i < N_EXPECTATIONS; i++) {
        const expectation *e = &expectations[i];
        ad_type type;
        CHECK_INT(ad_type_parse(e->format, &type, NULL), AD_OK);
        CHECK_INT(type.id, e->id);
        CHECK_INT(type.layout, e->layout);
        CHECK_INT(type.n_buffers, e->n_buffers);
        CHECK_INT(type.bit_width, e->bit_width);
        CHECK_INT(type.n_children, e->n_children);
        CHECK_INT(type.unit, e->unit);
        CHECK((type.suffix == NULL) == (e->suffix == NULL));
        if (e->suffix != NULL) {
            CHECK_STR(type.suffix, e->suffix);
        }
        bool is_union = e->layout == AD_LAYOUT_SPARSE_UNION ||
                        e->layout == AD_LAYOUT_DENSE_UNION;
        CHECK_INT(type.has_validity, e->layout != AD_LAYOUT_NONE && !is_union);
        bool is_wide =
            strchr("ZUL", e->format[strlen(e->format) - 1]) != NULL &&
            e->layout != AD_LAYOUT_FIXED;
        CHECK_INT(type.wide_offsets, is_wide);
    }
}

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

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_formats_are_parsed),
        CHECK_TEST(test_only_one_letter_formats_are_letters),
        CHECK_TEST(test_parameters_are_parsed),
        CHECK_TEST(test_invalid_formats_are_refused),
        CHECK_TEST(test_union_ids_are_parsed),
        CHECK_TEST(test_views_need_the_same_whole_width),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
