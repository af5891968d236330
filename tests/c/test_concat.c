#include "compute/concat.h"
#include "trees.h"

static ad_error err;

static const int64_t ints[] = {1, 2, 3, 4};
static const uint8_t bits[] = {0x0d}; /* 1 0 1 1 */
static const int32_t offsets[] = {0, 1, 1, 3, 6};
static const char text[] = "abbccc";
static const int8_t indices[] = {0, 1, 0, 1};
static const char *const words[2] = {"xxyy", "yyzz"};
static const int32_t word_offsets[] = {0, 2, 4};

/* int64, string with a null, list<int64>, dictionary<string>; 4 rows. */
static struct ArrowSchema *
batch_schema(void)
{
    return tree_schema("+s", "", 4, tree_schema("l", "a", 0),
                       tree_schema("u", "b", 0),
                       tree_schema("+l", "c", 1, tree_schema("l", "item", 0)),
                       tree_schema_dictionary(tree_schema("c", "d", 0),
                                              tree_schema("u", "", 0)));
}

static void
import_batch(int which, ad_array *out)
{
    struct ArrowArray *a = tree_ints(4);
    a->buffers[1] = ints;
    struct ArrowArray *b = tree_array(4, true, 3, 0);
    b->buffers[0] = bits;
    b->buffers[1] = offsets;
    b->buffers[2] = text;
    b->null_count = 1;
    struct ArrowArray *items = tree_ints(6);
    static const int64_t six[] = {1, 2, 3, 4, 5, 6};
    items->buffers[1] = six;
    struct ArrowArray *c = tree_array(4, false, 2, 1, items);
    c->buffers[1] = offsets;
    struct ArrowArray *values = tree_array(2, false, 3, 0);
    values->buffers[1] = word_offsets;
    values->buffers[2] = words[which];
    struct ArrowArray *d =
        tree_array_dictionary(tree_array(4, false, 2, 0), values);
    d->buffers[1] = indices;
    struct ArrowSchema schema = tree_take_schema(batch_schema());
    struct ArrowDeviceArray array =
        tree_take_array(tree_array(4, false, 1, 4, a, b, c, d), NULL);
    array.device_type = ARROW_DEVICE_CPU;
    CHECK_INT(ad_array_import(&schema, &array, false, out, &err), AD_OK);
}

static void
check_result(const ad_array *whole)
{
    struct ArrowArray *const *columns = whole->node->children;
    CHECK_INT(whole->length, 7);
    CHECK_INT(whole->null_count, 0);
    const int64_t *a = columns[0]->buffers[1];
    CHECK_INT(a[2], 4);
    CHECK_INT(a[3], 1); /* the second batch */
    const int32_t *b = columns[1]->buffers[1];
    CHECK_INT(b[7], 5 + 6);
    CHECK_INT(b[0], 0);
    CHECK(memcmp(columns[1]->buffers[2], "bbcccabbccc", 11) == 0);
    /* rows 1, 2, 3 of the first, then all of the second */
    CHECK_INT(*(const uint8_t *)columns[1]->buffers[0], 0x6e);
    const int64_t *items = columns[2]->children[0]->buffers[1];
    CHECK_INT(columns[2]->children[0]->length, 11);
    CHECK_INT(items[0], 2);
    CHECK_INT(items[5], 1);
    const int8_t *d = columns[3]->buffers[1];
    CHECK_INT(columns[3]->dictionary->length, 3); /* both have "yy" */
    CHECK_INT(d[0], 1);
    CHECK_INT(d[3], 1);
    CHECK_INT(d[4], 2);
    CHECK(memcmp(columns[3]->dictionary->buffers[2], "xxyyzz", 6) == 0);
}

/* The first batch without its first row. */
static void
make_batches(ad_array *batches)
{
    ad_array first;
    import_batch(0, &first);
    CHECK_INT(ad_array_slice(&first, 1, 3, &batches[0], &err), AD_OK);
    ad_array_clear(&first);
    import_batch(1, &batches[1]);
}

static void
test_each_allocation_fails(void)
{
    bool has_failed = true;
    for (long n = 1; has_failed; n++) {
        ad_array batches[2];
        ad_array whole;
        make_batches(batches);
        check_fail_nth(n);
        ad_status status =
            ad_concat(batches[0].schema, batches, 2, &whole, &err);
        has_failed = check_failed_once();
        check_fail_nth(0);
        CHECK_INT(status, has_failed ? AD_ERR_MEMORY : AD_OK);
        if (status == AD_OK) {
            check_result(&whole);
            ad_array_clear(&whole);
            CHECK(n > 20);
        }
        ad_array_clear(&batches[0]);
        ad_array_clear(&batches[1]);
        tree_check_all_gone();
    }
}

/* Arrays of one row over `lengths` nulls below. */
static void
check_nulls_below(const ad_schema_spec *type, const int64_t *lengths, size_t n)
{
    static const int64_t zero[1] = {0};
    static const void *const buffers[] = {NULL, zero, zero};
    bool is_dictionary = type->dictionary != NULL;
    ad_schema schema;
    ad_array parts[3], out;
    CHECK_INT(ad_schema_build(type, &schema, &err), AD_OK);
    for (size_t i = 0; i < n; i++) {
        ad_array nulls;
        ad_array_spec spec = {
            .schema = is_dictionary ? *type->dictionary : type->children[0],
            .memory.device = AD_CPU,
            .length = lengths[i],
            .null_count = lengths[i],
        };
        CHECK_INT(ad_array_build(&spec, &nulls, &err), AD_OK);
        spec = (ad_array_spec){
            .schema = schema,
            .memory.device = AD_CPU,
            .length = 1,
            .n_buffers = is_dictionary ? 2 : 3,
            .buffers = buffers,
            .n_children = is_dictionary ? 0 : 1,
            .children = is_dictionary ? NULL : &nulls,
            .dictionary = is_dictionary ? &nulls : NULL,
        };
        CHECK_INT(ad_array_build(&spec, &parts[i], &err), AD_OK);
        ad_array_clear(&nulls);
    }
    CHECK_INT(ad_concat(schema, parts, n, &out, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "size");
    for (size_t i = 0; i < n; i++) {
        ad_array_clear(&parts[i]);
    }
    ad_schema_unref(schema);
}

/* Nulls take no memory, so that there may be more than 2^63 of them. */
static void
test_values_below_that_overflow(void)
{
    static const char *const names[] = {"item"};
    static const int64_t lengths[] = {INT64_MAX - 1, INT64_MAX - 2,
                                      INT64_MAX - 3};
    ad_schema nulls;
    ad_schema_spec type = {.format = "n", .flags = ARROW_FLAG_NULLABLE};
    CHECK_INT(ad_schema_build(&type, &nulls, &err), AD_OK);
    const ad_schema_spec lists = {
        .format = "+vL", .n_children = 1, .children = &nulls, .names = names};
    const ad_schema_spec words = {.format = "l", .dictionary = &nulls};
    for (size_t n = 2; n <= 3; n++) {
        check_nulls_below(&lists, lengths, n);
        check_nulls_below(&words, lengths, n);
    }
    ad_schema_unref(nulls);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_each_allocation_fails),
        CHECK_TEST(test_values_below_that_overflow),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
