#include "trees.h"

static ad_error err;

static struct ArrowSchema *
batch_schema(void)
{
    return tree_schema("+s", "", 3, tree_schema("l", "a", 0),
                       tree_schema("u", "b", 0), tree_schema("g", "a", 0));
}

/* A batch of 10 rows from row 1 on; its children have 12 rows. */
static struct ArrowArray *
batch_array(void)
{
    struct ArrowArray *node =
        tree_array(10, false, 1, 3, tree_ints(12), tree_array(12, true, 3, 0),
                   tree_ints(12));
    node->offset = 1;
    node->children[1]->null_count = 4;
    node->children[1]->offset = 5;
    return node;
}

static void
test_import_moves_schema_and_array(void)
{
    ad_array array, child;
    tree_import(batch_schema(), batch_array(), NULL, &array);
    CHECK(array.memory.sync == NULL);
    CHECK_INT(array.memory.device.type, ARROW_DEVICE_CUDA);
    CHECK_INT(array.memory.device.id, 3);
    CHECK_INT(array.offset, 1);
    CHECK_INT(array.length, 10);
    CHECK_INT(array.null_count, 0);
    CHECK(!array.memory.readonly);
    CHECK(ad_array_is_whole(&array));
    CHECK_INT(ad_array_child(&array, 0, &child, NULL), AD_OK);
    ad_array_clear(&array);
    CHECK(array.memory.owner == NULL && array.node == NULL);
    CHECK_INT(atomic_load(&live_arrays), 4);
    CHECK_STR(child.schema.node->name, "a");
    ad_array_clear(&child);
    ad_array_clear(&child);
    tree_check_all_gone();
}

static void
test_import_fails_without_memory(void)
{
    int event;
    struct ArrowSchema schema = tree_take_schema(batch_schema());
    struct ArrowDeviceArray array = tree_take_array(batch_array(), &event);
    ad_array out;
    int n = 1;
    for (;; n++) {
        check_fail_nth(n);
        ad_status status = ad_array_import(&schema, &array, false, &out, &err);
        if (status == AD_OK) {
            break;
        }
        CHECK_INT(status, AD_ERR_MEMORY);
        CHECK(check_failed_once());
        CHECK(schema.release != NULL && array.array.release != NULL);
        CHECK_INT(atomic_load(&live_arrays), 4);
        CHECK_INT(atomic_load(&live_schemas), 4);
    }
    check_fail_nth(0);
    CHECK_INT(n, 4); /* owner of the tree and of the device, sync, owner of the
                        schema */
    ad_array_clear(&out);
    tree_check_all_gone();
}

static void
test_import_as_shares_the_schema(void)
{
    int event;
    struct ArrowSchema source = tree_take_schema(batch_schema());
    ad_schema schema;
    ad_array out;
    CHECK_INT(ad_schema_move(&source, &schema, &err), AD_OK);
    for (int n = 1;; n++) {
        struct ArrowDeviceArray array = tree_take_array(batch_array(), &event);
        check_fail_nth(n);
        ad_status status = ad_array_import_as(schema, &array, &out, &err);
        check_fail_nth(0);
        if (status == AD_OK) {
            CHECK(array.array.release == NULL);
            CHECK_INT(n, 3); /* owner of the tree and of the device, sync */
            break;
        }
        CHECK_INT(status, AD_ERR_MEMORY);
        CHECK(array.array.release != NULL);
        array.array.release(&array.array);
    }
    ad_schema_unref(schema);
    CHECK_INT(atomic_load(&live_schemas), 4);
    CHECK(out.schema.node == schema.node);
    ad_array_clear(&out);
    tree_check_all_gone();
}

static void
test_slice_refuses_rows_out_of_range(void)
{
    static const int64_t bad[][2] = {
        {-1, 1},        {0, -1},
        {0, 11},        {10, 1},
        {11, 0},        {INT64_MAX, INT64_MAX},
        {1, INT64_MAX}, {INT64_MIN, INT64_MIN},
    };
    ad_array array, once, twice;
    tree_import(batch_schema(), batch_array(), NULL, &array);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_INT(ad_array_slice(&array, bad[i][0], bad[i][1], &once, &err),
                  AD_ERR_INDEX);
        CHECK_HAS(err.message, "10 rows");
    }
    CHECK_INT(ad_array_slice(&array, 2, 6, &once, &err), AD_OK);
    CHECK_INT(ad_array_slice(&once, 1, 3, &twice, &err), AD_OK);
    CHECK_INT(twice.offset, 4);
    CHECK(!ad_array_is_whole(&twice));
    CHECK_INT(ad_array_slice(&once, 4, 3, &twice, &err), AD_ERR_INDEX);
    ad_array_clear(&array);
    ad_array_clear(&once);
    CHECK_INT(atomic_load(&live_arrays), 4);
    ad_array_clear(&twice);
    tree_check_all_gone();
}

static void
test_field_applies_the_slice_of_its_parent(void)
{
    ad_array array, part, out;
    tree_import(batch_schema(), batch_array(), NULL, &array);
    CHECK_INT(ad_array_slice(&array, 2, 5, &part, &err), AD_OK);
    CHECK_INT(ad_array_child(&part, 1, &out, &err), AD_OK);
    CHECK_INT(out.offset, 5);
    CHECK_INT(out.length, 12);
    CHECK_INT(out.null_count, 4);
    ad_array_clear(&out);
    CHECK_INT(ad_array_field(&part, 1, &out, &err), AD_OK);
    CHECK_INT(out.offset, 5 + 1 + 2);
    CHECK_INT(out.length, 5);
    CHECK_INT(out.null_count, -1);
    CHECK_STR(out.schema.node->format, "u");
    ad_array_clear(&out);
    CHECK_INT(ad_array_field(&part, 0, &out, &err), AD_OK);
    CHECK_INT(out.null_count, 0);
    ad_array_clear(&out);
    CHECK_INT(ad_array_child(&part, 3, &out, &err), AD_ERR_INDEX);
    CHECK_INT(ad_array_child(&part, -1, &out, &err), AD_ERR_INDEX);
    CHECK_INT(ad_array_field(&part, 3, &out, &err), AD_ERR_INDEX);
    CHECK_INT(ad_array_dictionary(&part, &out, &err), AD_ERR_VALUE);
    ad_array_clear(&part);
    ad_array_clear(&array);
    tree_check_all_gone();
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_import_moves_schema_and_array),
        CHECK_TEST(test_import_fails_without_memory),
        CHECK_TEST(test_import_as_shares_the_schema),
        CHECK_TEST(test_slice_refuses_rows_out_of_range),
        CHECK_TEST(test_field_applies_the_slice_of_its_parent),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
