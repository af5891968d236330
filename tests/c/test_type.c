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

/* --- printing ------------------------------------------------------------ */

static void
never_released(struct ArrowSchema *node)
{
}

static struct ArrowSchema
leaf(const char *format, const char *name)
{
    return (struct ArrowSchema){.format = format,
                                .name = name,
                                .flags = ARROW_FLAG_NULLABLE,
                                .release = never_released};
}

static void
check_print(const struct ArrowSchema *node, const char *expected)
{
    ad_text text = {0};
    CHECK_INT(ad_schema_validate(node, NULL), AD_OK);
    CHECK_INT(ad_type_print(node, &text, NULL), AD_OK);
    CHECK_STR(ad_text_string(&text), expected);
    ad_text_clear(&text);
}

static void
check_nested(const char *format, int64_t n, struct ArrowSchema *a,
             struct ArrowSchema *b, const char *expected)
{
    struct ArrowSchema *children[] = {a, b};
    struct ArrowSchema node = leaf(format, "");
    node.n_children = n;
    node.children = children;
    check_print(&node, expected);
}

static void
test_plain_types_are_printed(void)
{
    for (int i = 0; i < N_EXPECTATIONS; i++) {
        if (expectations[i].name != NULL) {
            struct ArrowSchema node = leaf(expectations[i].format, "x");
            check_print(&node, expectations[i].name);
        }
    }
}

static void
test_nested_types_are_printed(void)
{
    struct ArrowSchema item = leaf("i", "item");
    struct ArrowSchema a = leaf("u", "a"), ends = leaf("s", "run_ends");
    struct ArrowSchema b = leaf("tsu:UTC", NULL);
    b.flags = 0;
    check_nested("+l", 1, &item, NULL, "list<item: int32>");
    check_nested("+L", 1, &item, NULL, "large_list<item: int32>");
    check_nested("+vl", 1, &item, NULL, "list_view<item: int32>");
    check_nested("+vL", 1, &item, NULL, "large_list_view<item: int32>");
    check_nested("+w:4", 1, &item, NULL, "fixed_size_list<item: int32>[4]");
    check_nested("+s", 0, NULL, NULL, "struct<>");
    check_nested("+s", 2, &a, &b,
                 "struct<a: string, : timestamp[us, tz=UTC] not null>");
    check_nested("+us:5,7", 2, &item, &a,
                 "sparse_union<item: int32=5, a: string=7>");
    check_nested("+ud:0", 1, &item, NULL, "dense_union<item: int32=0>");
    check_nested("+r", 2, &ends, &a,
                 "run_end_encoded<run_ends: int16, values: string>");

    struct ArrowSchema *pair[] = {&a, &b};
    struct ArrowSchema entries = leaf("+s", "entries");
    entries.n_children = 2;
    entries.children = pair;
    check_nested("+m", 1, &entries, NULL,
                 "map<string, timestamp[us, tz=UTC] not null>");
    struct ArrowSchema *only[] = {&entries};
    struct ArrowSchema map = leaf("+m", "");
    map.flags = ARROW_FLAG_MAP_KEYS_SORTED;
    map.n_children = 1;
    map.children = only;
    b.flags = ARROW_FLAG_NULLABLE;
    check_print(&map, "map<string, timestamp[us, tz=UTC], keys_sorted>");

    struct ArrowSchema indices = leaf("c", "");
    indices.dictionary = &a;
    check_print(&indices,
                "dictionary<values=string, indices=int8, ordered=0>");
    indices.flags |= ARROW_FLAG_DICTIONARY_ORDERED;
    check_print(&indices,
                "dictionary<values=string, indices=int8, ordered=1>");
}

static void
test_deep_and_wide_types_are_cut(void)
{
    enum {
        LEVELS = 12,
        FIELDS = 30
    };
    struct ArrowSchema nodes[LEVELS], fields[FIELDS], *lists[LEVELS][FIELDS];
    ad_text text = {0};
    for (int i = 0; i < LEVELS; i++) {
        nodes[i] = leaf(i == LEVELS - 1 ? "i" : "+s", "f");
        nodes[i].n_children = i == LEVELS - 1 ? 0 : FIELDS;
        nodes[i].children = lists[i];
        for (int j = 0; j < FIELDS; j++) {
            lists[i][j] = &nodes[i + 1 < LEVELS ? i + 1 : i];
        }
    }
    CHECK_INT(ad_type_print(nodes, &text, NULL), AD_OK);
    CHECK_HAS(ad_text_string(&text), "f: ...");
    CHECK(text.length > 8192 && text.length < 12000);
    ad_text_clear(&text);

    for (int j = 0; j < FIELDS; j++) {
        fields[j] = leaf("i", "i");
        lists[0][j] = &fields[j];
    }
    CHECK_INT(ad_type_print(nodes, &text, NULL), AD_OK);
    CHECK_INT(text.length, strlen("struct<...>") + 20 * strlen("i: int32, "));
    CHECK_HAS(ad_text_string(&text), "i: int32, ...>");
    ad_text_clear(&text);
}

static void
check_extension(struct ArrowSchema *node, const char *name, const char *json,
                const char *expected)
{
    ad_metadata_pair pairs[] = {
        {"ARROW:extension:name", 20, name, (int32_t)strlen(name)},
        {"ARROW:extension:metadata", 24, json, (int32_t)strlen(json)},
    };
    char *metadata = NULL;
    CHECK_INT(ad_metadata_build(pairs, 2, &metadata, NULL), AD_OK);
    node->metadata = metadata;
    check_print(node, expected);
    node->metadata = NULL;
    free(metadata);
}

static void
test_extensions_are_printed(void)
{
    struct ArrowSchema node = leaf("c", "");
    check_extension(&node, "arrow.bool8", "", "extension<arrow.bool8>");
    check_extension(&node, "arrow.bool8", "{}",
                    "extension<arrow.bool8: int8>");
    check_extension(&node, "my.own", "", "extension<my.own: int8>");
    node.format = "S";
    check_extension(&node, "arrowdev.dlpack",
                    "{\"code\":4,\"bits\":16,\"lanes\":1}",
                    "extension<arrowdev.dlpack[bfloat16]>");
    struct ArrowSchema item = leaf("i", "item");
    struct ArrowSchema *children[] = {&item};
    struct ArrowSchema list = leaf("+w:6", "");
    list.n_children = 1;
    list.children = children;
    check_extension(&list, "arrow.fixed_shape_tensor", "{\"shape\":[2,3]}",
                    "extension<arrow.fixed_shape_tensor[value_type=int32, "
                    "shape=[2,3]]>");
    check_extension(&list, "arrow.fixed_shape_tensor",
                    "{\"shape\":[2,3],\"permutation\":[1,0]}",
                    "extension<arrow.fixed_shape_tensor[value_type=int32, "
                    "shape=[2,3], permutation=[1,0]]>");
    check_extension(&list, "arrow.fixed_shape_tensor", "{\"shape\":[2,4]}",
                    "extension<arrow.fixed_shape_tensor: "
                    "fixed_size_list<item: int32>[6]>");
    int32_t lie = -1;
    node.metadata = (const char *)&lie;
    check_print(&node, "uint16");
}

static void
test_print_fails_without_memory(void)
{
    struct ArrowSchema item = leaf("tsu:UTC", "a rather long name of a field");
    struct ArrowSchema *children[] = {&item, &item, &item};
    struct ArrowSchema node = leaf("+s", "");
    node.n_children = 3;
    node.children = children;
    for (long n = 1;; n++) {
        ad_text text = {0};
        check_fail_nth(n);
        ad_status status = ad_type_print(&node, &text, NULL);
        bool has_failed = check_failed_once();
        check_fail_nth(0);
        CHECK_INT(status, has_failed ? AD_ERR_MEMORY : AD_OK);
        ad_text_clear(&text);
        if (!has_failed) {
            CHECK(n > 2);
            break;
        }
    }
}

/* --- names --------------------------------------------------------------- */

static void
check_name(const char *name, const char *format)
{
    ad_text text = {0};
    CHECK_INT(ad_type_format_from_name(name, &text, NULL), AD_OK);
    CHECK_STR(ad_text_string(&text), format);
    ad_text_clear(&text);
}

static void
test_names_are_parsed(void)
{
    static const char *const names[][2] = {
        {"utf8", "u"},
        {"str", "u"},
        {"large_utf8", "U"},
        {"half", "e"},
        {"float16", "e"},
        {"float32", "f"},
        {"float64", "g"},
        {"boolean", "b"},
        {"utf8_view", "vu"},
        {"date32", "tdD"},
        {"date64", "tdm"},
        {"interval_months", "tiM"},
        {"timestamp[us, UTC]", "tsu:UTC"},
        {"timestamp[us,UTC]", "tsu:UTC"},
        {"timestamp[ns, tz=+01:00]", "tsn:+01:00"},
        {"timestamp(ms)", "tsm:"},
        {"decimal128(10,2)", "d:10,2"},
        {"decimal(5)", "d:5,0"},
        {"decimal256(50, -3)", "d:50,-3,256"},
        {"decimal32( 9 , 1 )", "d:9,1,32"},
        {"fixed_size_binary(16)", "w:16"},
        {"binary[3]", "w:3"},
        {"duration[ns]", "tDn"},
        {"time64[us]", "ttu"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check_name(names[i][0], names[i][1]);
    }
    /* Every printed name is parsed, and every format is its own name. */
    for (int i = 0; i < N_EXPECTATIONS; i++) {
        if (expectations[i].name != NULL) {
            check_name(expectations[i].name, expectations[i].format);
            check_name(expectations[i].format, expectations[i].format);
        }
    }
    check_name("tsu:a[b]", "tsu:a[b]");
}

static void
test_invalid_names_are_refused(void)
{
    static const char *const names[][2] = {
        {"", "not known"},
        {"int", "ambiguous"},
        {"uint", "ambiguous"},
        {"int31", "not known"},
        {"Int32", "not known"},
        {"timestamp", "not known"},
        {"timestamp[]", "not known"},
        {"timestamp[xs]", "not known"},
        {"timestamp[us", "not known"},
        {"timestamp[us)", "not known"},
        {"timestamp('ms')", "not known"},
        {"time32[us]", "not known"},
        {"time64[ms]", "not known"},
        {"time32[s, UTC]", "not known"},
        {"duration[day]", "not known"},
        {"decimal128(99, 2)", "not known"},
        {"decimal128(x, 2)", "not known"},
        {"decimal16(4, 2)", "not known"},
        {"fixed_size_binary[-1]", "not"},
        {"[", "not known"},
        {"]", "not known"},
        {"[]", "not known"},
        {"(", "not known"},
        {"()", "not known"},
        {"list<item: int32>", "nested"},
        {"struct", "nested"},
        {"fixed_size_list<item: int32>[4]", "nested"},
        {"dictionary<values=string, indices=int8, ordered=0>", "nested"},
        {"extension<arrow.bool8>", "nested"},
        {"+s", "children"},
        {"+us:", "children"},
        {"+w:3", "children"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ad_error err = {0};
        ad_text text = {0};
        CHECK_INT(ad_type_format_from_name(names[i][0], &text, &err),
                  AD_ERR_VALUE);
        CHECK_HAS(err.message, names[i][1]);
        CHECK(err.hint[0] != '\0');
        CHECK(text.data == NULL);
    }
}

static void
test_names_fail_without_memory(void)
{
    static const char *const names[] = {"int32", "decimal256(5, 2)", "w:3",
                                        "timestamp[us, UTC]"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool has_failed = true;
        for (long n = 1; has_failed; n++) {
            ad_text text = {0};
            check_fail_nth(n);
            ad_status status = ad_type_format_from_name(names[i], &text, NULL);
            has_failed = check_failed_once();
            check_fail_nth(0);
            CHECK_INT(status, has_failed ? AD_ERR_MEMORY : AD_OK);
            ad_text_clear(&text);
        }
    }
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
        CHECK_TEST(test_plain_types_are_printed),
        CHECK_TEST(test_nested_types_are_printed),
        CHECK_TEST(test_deep_and_wide_types_are_cut),
        CHECK_TEST(test_extensions_are_printed),
        CHECK_TEST(test_print_fails_without_memory),
        CHECK_TEST(test_names_are_parsed),
        CHECK_TEST(test_invalid_names_are_refused),
        CHECK_TEST(test_names_fail_without_memory),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
