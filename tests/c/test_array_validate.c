#include "trees.h"

static ad_error err;

/* A valid schema and array; each test makes one place invalid. */
typedef struct tree {
    struct ArrowSchema *schema;
    struct ArrowArray *array;
} tree;

static void
tree_free(tree t)
{
    if (t.schema->release != NULL) {
        t.schema->release(t.schema);
    }
    if (t.array->release != NULL) {
        t.array->release(t.array);
    }
    free(t.schema);
    free(t.array);
}

static ad_status
validate(tree t)
{
    err = (ad_error){0};
    ad_status status = ad_array_validate(t.schema, t.array, &err);
    CHECK_INT(ad_array_validate(t.schema, t.array, NULL), status);
    return status;
}

/* Both entry points refuse the array with the same message. */
static void
refuse(tree t, const char *path, const char *message)
{
    CHECK_INT(validate(t), AD_ERR_ARROW);
    CHECK_STR(err.path, path);
    CHECK_HAS(err.message, message);
    CHECK_INT(ad_array_validate_known(t.schema, t.array, &err), AD_ERR_ARROW);
    CHECK_STR(err.path, path);
    CHECK_HAS(err.message, message);
    tree_free(t);
    tree_check_all_gone();
}

static void
accept(tree t)
{
    if (validate(t) != AD_OK) {
        fprintf(stderr, "%s: %s: %s\n", t.schema->format, err.path,
                err.message);
        exit(1);
    }
    CHECK_INT(ad_array_validate_known(t.schema, t.array, NULL), AD_OK);
    tree_free(t);
    tree_check_all_gone();
}

static tree
leaf(const char *format, int64_t length, int n_buffers)
{
    return (tree){tree_schema(format, "", 0),
                  tree_array(length, true, n_buffers, 0)};
}

/* A node with one int64 child of `child_length` rows. */
static tree
parent(const char *format, int64_t length, int n_buffers, int64_t child_length)
{
    return (tree){
        tree_schema(format, "", 1, tree_schema("l", "item", 0)),
        tree_array(length, true, n_buffers, 1, tree_ints(child_length))};
}

static tree
run_end(int64_t length, int64_t n_runs, int64_t n_values)
{
    return (tree){tree_schema("+r", "", 2, tree_schema("i", "run_ends", 0),
                              tree_schema("l", "values", 0)),
                  tree_array(length, false, 0, 2,
                             tree_array(n_runs, true, 2, 0),
                             tree_ints(n_values))};
}

static tree
dictionary(void)
{
    return (tree){tree_schema_dictionary(tree_schema("c", "", 0),
                                         tree_schema("u", "", 0)),
                  tree_array_dictionary(tree_array(5, true, 2, 0),
                                        tree_array(2, false, 3, 0))};
}

/* struct<list<struct<int64>>, dictionary>, for long paths. */
static tree
deep(void)
{
    tree d = dictionary();
    tree list = {
        tree_schema("+l", "", 1,
                    tree_schema("+s", "item", 1, tree_schema("l", "", 0))),
        tree_array(5, true, 2, 1, tree_array(9, false, 1, 1, tree_ints(9)))};
    return (tree){tree_schema("+s", "", 2, list.schema, d.schema),
                  tree_array(5, false, 1, 2, list.array, d.array)};
}

static void
test_refuses_invalid_numbers(void)
{
    static const struct {
        const char *format;
        int n_buffers;
        int64_t length, offset, null_count;
        const char *message;
    } cases[] = {
        {"l", 2, -1, 0, 0, "length is -1"},
        {"l", 2, INT64_MIN, 0, 0, "length is -9223372036854775808"},
        {"l", 2, 5, -1, 0, "offset is -1"},
        {"l", 2, 5, 0, -2, "null_count is -2"},
        {"l", 2, 5, 0, 6, "null_count is 6"},
        {"l", 2, INT64_MAX, 0, 0, "overflow"},
        {"l", 2, 5, INT64_MAX, 0, "overflow"},
        {"l", 2, INT64_MAX / 2 + 1, INT64_MAX / 2 + 1, 0, "overflow"},
        {"l", 2, INT64_MAX / 64, 0, 0, "overflow"},
        {"tdD", 2, INT64_MAX / 32, 0, 0, "overflow"},
        {"w:1000", 2, INT64_MAX / 8000, 0, 0, "overflow"},
        {"vu", 3, INT64_MAX / 128, 0, 0, "overflow"},
        {"U", 3, INT64_MAX / 64, 0, 0, "overflow"},
        {"n", 0, INT64_MAX, 5, 0, "overflow"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int nested = 0; nested < 2; nested++) {
            tree t = leaf(cases[i].format, 0, cases[i].n_buffers);
            t.array->length = cases[i].length;
            t.array->offset = cases[i].offset;
            t.array->null_count = cases[i].null_count;
            if (nested) {
                t.schema = tree_schema("+s", "", 1, t.schema);
                t.array = tree_array(0, false, 1, 1, t.array);
            }
            refuse(t, nested ? "children[0]" : "", cases[i].message);
        }
    }
    /* The greatest length that is accepted. */
    tree t = leaf("l", INT64_MAX / 64 - 1, 2);
    accept(t);
}

static void
test_refuses_invalid_buffers(void)
{
    tree t = leaf("l", 5, 2);
    t.array->buffers = NULL;
    refuse(t, "", "buffers is NULL, but n_buffers is 2");
    t = leaf("n", 5, 1); /* one NULL buffer is accepted */
    t.array->buffers = NULL;
    refuse(t, "", "buffers is NULL, but n_buffers is 1");
    t = leaf("l", 5, 2);
    t.array->buffers[0] = NULL;
    t.array->null_count = 1;
    refuse(t, "", "null_count is 1, but buffers[0] (validity) is NULL");
    t = leaf("vu", 5, 5);
    t.array->buffers[4] = NULL;
    refuse(t, "", "buffers[4] (sizes) is NULL");
    t = leaf("l", 0, 2);
    t.array->offset = 1;
    t.array->buffers[1] = NULL;
    refuse(t, "", "buffers[1] (data) is NULL, but offset is 1 and length 0");
    t = leaf("n", 5, 2);
    refuse(t, "", "n_buffers is 2, but format \"n\" has 0 buffers");
    t = leaf("l", 5, 3);
    refuse(t, "", "n_buffers is 3, but format \"l\" has 2 buffers");
    t = leaf("l", 5, 2);
    t.array->n_buffers = -1;
    refuse(t, "", "n_buffers is -1");
    t = leaf("vu", 5, 2);
    refuse(t, "", "n_buffers is 2, but format \"vu\" has at least 3");
    CHECK_HAS(err.hint, "sizes");
    t = parent("+us:4", 5, 2, 5);
    refuse(t, "", "n_buffers is 2, but format \"+us:4\" has 1");
    CHECK_HAS(err.hint, "no validity bitmap");
    t = parent("+ud:4", 5, 3, 5);
    refuse(t, "", "n_buffers is 3, but format \"+ud:4\" has 2");
    t = parent("+us:4", 5, 1, 5);
    t.array->null_count = 2;
    refuse(t, "", "null_count is 2, but this type has no validity bitmap");
    t = run_end(5, 2, 2);
    t.array->null_count = 1;
    refuse(t, "", "null_count is 1, but this type has no validity bitmap");
    t = parent("+s", 5, 1, 5);
    t.array->buffers[0] = NULL;
    t.array->null_count = 1;
    refuse(t, "", "null_count is 1");
}

static void
test_refuses_missing_data(void)
{
    static const struct {
        const char *format;
        int n_buffers, missing;
        const char *message;
    } cases[] = {
        {"l", 2, 1, "buffers[1] (data)"},
        {"tdD", 2, 1, "buffers[1] (data)"},
        {"u", 3, 1, "buffers[1] (offsets)"},
        {"vz", 4, 1, "buffers[1] (views)"},
        {"+l", 2, 1, "buffers[1] (offsets)"},
        {"+vl", 3, 1, "buffers[1] (offsets)"},
        {"+vl", 3, 2, "buffers[2] (sizes)"},
        {"+us:4", 1, 0, "buffers[0] (type ids)"},
        {"+ud:4", 2, 0, "buffers[0] (type ids)"},
        {"+ud:4", 2, 1, "buffers[1] (offsets)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tree t = cases[i].format[0] == '+'
                     ? parent(cases[i].format, 5, cases[i].n_buffers, 5)
                     : leaf(cases[i].format, 5, cases[i].n_buffers);
        t.array->buffers[cases[i].missing] = NULL;
        refuse(t, "", cases[i].message);
    }
}

static void
test_refuses_invalid_children(void)
{
    tree t = parent("+s", 5, 1, 4);
    refuse(t, "children[0]", "length is 4, but the parent's offset and");
    CHECK_HAS(err.message, "need 5");
    t = parent("+s", 3, 1, 5);
    t.array->offset = 3;
    refuse(t, "children[0]", "length is 5");
    t = parent("+us:4", 5, 1, 4);
    refuse(t, "children[0]", "length is 4");
    t = parent("+w:3", 5, 1, 14);
    refuse(t, "children[0]", "need 15");
    t = parent("+w:4611686018427387904", 5, 1, 14);
    refuse(t, "", "overflow");
    t = parent("+s", 5, 1, 5);
    t.array->n_children = 0;
    refuse(t, "", "n_children is 0, but the schema has 1");
    t = parent("+s", 5, 1, 5);
    t.array->n_children = -1;
    refuse(t, "", "n_children is -1, but the schema has 1");
    t = leaf("l", 5, 2);
    t.array->n_children = 1;
    refuse(t, "", "n_children is 1, but the schema has 0");
    t = parent("+s", 5, 1, 5);
    t.array->children = NULL;
    refuse(t, "", "children is NULL, but n_children is 1");
    t = parent("+s", 5, 1, 5);
    struct ArrowArray *only = t.array->children[0];
    t.array->children[0] = NULL;
    CHECK_INT(validate(t), AD_ERR_ARROW);
    CHECK_STR(err.path, "children[0]");
    CHECK_HAS(err.message, "the array is NULL");
    t.array->children[0] = only;
    only->release(only);
    refuse(t, "children[0]", "released");
    t = deep();
    t.array->children[0]->children[0]->children[0]->n_buffers = 1;
    refuse(t, "children[0].children[0].children[0]", "n_buffers is 1");
}

static void
test_refuses_invalid_run_ends(void)
{
    tree t = run_end(5, 2, 2);
    t.array->children[0]->null_count = 1;
    refuse(t, "children[0]", "run ends have no nulls");
    refuse(run_end(5, 3, 2), "children[0]", "3 run ends for 2 values");
    refuse(run_end(5, 0, 0), "children[0]", "no run ends for 5 rows");
}

static void
refuse_schema(tree t, const char *path, const char *message)
{
    CHECK_INT(validate(t), AD_ERR_ARROW);
    CHECK_STR(err.path, path);
    CHECK_HAS(err.message, message);
    tree_free(t);
    tree_check_all_gone();
}

static void
test_refuses_invalid_schema(void)
{
    tree t = leaf("l", 5, 2);
    t.schema->release(t.schema);
    refuse_schema(t, "", "released");
    t = leaf("l", 5, 2);
    t.array->release(t.array);
    refuse(t, "", "released");
    refuse_schema(leaf("?", 5, 2), "", "?");
    t = parent("+s", 5, 1, 5);
    t.schema->children[0]->format = "?";
    refuse_schema(t, "children[0]", "?");
    t = parent("+s", 5, 1, 5);
    t.schema->children[0]->release(t.schema->children[0]);
    refuse_schema(t, "children[0]", "released");
    t = parent("+s", 5, 1, 5);
    struct ArrowSchema *only = t.schema->children[0];
    t.schema->children[0] = NULL;
    CHECK_INT(validate(t), AD_ERR_ARROW);
    CHECK_STR(err.path, "children[0]");
    t.schema->children[0] = only;
    only->n_children = 1;
    CHECK_INT(validate(t), AD_ERR_ARROW);
    CHECK_STR(err.path, "children[0]");
    only->n_children = 0;
    tree_free(t);
    struct ArrowArray *array = tree_ints(1);
    CHECK_INT(ad_array_validate(NULL, array, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "schema is NULL");
    struct ArrowSchema *schema = tree_schema("l", "", 0);
    CHECK_INT(ad_array_validate(schema, NULL, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "array is NULL");
    tree_free((tree){schema, array});
    tree_check_all_gone();
}

/* Nodes in plain lists, because a release of such a tree would recurse. */
typedef struct level {
    struct ArrowSchema schema, *schema_child;
    struct ArrowArray array, *array_child;
} level;

/* A million columns that all are the same node, so they are not released. */
static void
test_accepts_a_million_columns(void)
{
    const int64_t n = 1000000;
    tree t = parent("+s", 5, 1, 5);
    struct ArrowSchema schema = *t.schema;
    struct ArrowArray array = *t.array;
    schema.n_children = array.n_children = n;
    schema.children = malloc((size_t)n * sizeof(*schema.children));
    array.children = malloc((size_t)n * sizeof(*array.children));
    for (int64_t i = 0; i < n; i++) {
        schema.children[i] = t.schema->children[0];
        array.children[i] = t.array->children[0];
    }
    CHECK_INT(ad_array_validate(&schema, &array, &err), AD_OK);
    array.children[n - 1] = NULL;
    CHECK_INT(ad_array_validate(&schema, &array, &err), AD_ERR_ARROW);
    CHECK_STR(err.path, "children[999999]");
    free(schema.children);
    free(array.children);
    tree_free(t);
    tree_check_all_gone();
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_refuses_invalid_numbers),
        CHECK_TEST(test_refuses_invalid_buffers),
        CHECK_TEST(test_refuses_missing_data),
        CHECK_TEST(test_refuses_invalid_children),
        CHECK_TEST(test_refuses_invalid_run_ends),
        CHECK_TEST(test_refuses_invalid_schema),
        CHECK_TEST(test_accepts_a_million_columns),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
