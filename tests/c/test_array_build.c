#include "trees.h"

static ad_error err;

static ad_schema
move_schema(struct ArrowSchema *node)
{
    struct ArrowSchema source = tree_take_schema(node);
    ad_schema out;
    CHECK_INT(ad_schema_validate(&source, &err), AD_OK);
    CHECK_INT(ad_schema_move(&source, &out, &err), AD_OK);
    return out;
}

static void
check_valid(const ad_array *array)
{
    if (ad_array_validate(array->schema.node, array->node, &err) != AD_OK) {
        fprintf(stderr, "%s: %s: %s\n", array->schema.node->format, err.path,
                err.message);
        exit(1);
    }
}

static void
test_built_column_keeps_owner_and_sync(void)
{
    tree_owner owner;
    tree_owner_init(&owner);
    ad_sync *sync;
    CHECK_INT(ad_sync_new(AD_SYNC_EVENT, AD_CPU, &owner, NULL, &sync, &err),
              AD_OK);
    const void *buffers[] = {NULL, tree_buffer(1)};
    ad_array_spec spec = {
        .schema = ad_schema_primitive("l"),
        .memory.device = {ARROW_DEVICE_ROCM, 1},
        .length = 6,
        .offset = 2,
        .null_count = 0,
        .n_buffers = 2,
        .buffers = buffers,
        .memory.owner = &owner.base,
        .memory.sync = sync,
        .memory.readonly = true,
    };
    ad_array array;
    CHECK_INT(ad_array_build(&spec, &array, &err), AD_OK);
    ad_owner_unref(&owner.base);
    ad_sync_unref(sync);
    buffers[1] = NULL;
    check_valid(&array);
    CHECK(ad_array_is_whole(&array));
    CHECK_INT(array.memory.device.type, ARROW_DEVICE_ROCM);
    CHECK_INT(array.offset, 2);
    CHECK(array.memory.readonly);
    CHECK(array.memory.sync == sync);
    CHECK(array.node->buffers[1] == tree_buffer(1));
    CHECK(array.node->children == NULL);
    CHECK(!owner.destroyed);
    ad_array_clear(&array);
    CHECK(owner.destroyed);
}

/* Builds one batch of columns of two imports, one of them a slice. */
static void
build_batch(ad_array *out, ad_status expected)
{
    ad_array first, second, columns[2];
    struct ArrowArray *node = tree_array(9, true, 2, 0);
    node->null_count = 3;
    tree_import(tree_schema("l", "a", 0), node, NULL, &first);
    tree_import(tree_schema("u", "b", 0), tree_array(4, false, 3, 0), NULL,
                &second);
    CHECK_INT(ad_array_slice(&first, 5, 4, &columns[0], &err), AD_OK);
    ad_array_share(&second, &columns[1]);
    columns[1].memory.readonly = true;
    ad_array_clear(&first);
    ad_array_clear(&second);
    ad_schema schema = move_schema(tree_schema(
        "+s", "", 2, tree_schema("l", "a", 0), tree_schema("u", "b", 0)));
    const void *no_validity = NULL;
    ad_array_spec spec = {
        .schema = schema,
        .memory.device = {ARROW_DEVICE_CUDA, 3},
        .length = 4,
        .n_buffers = 1,
        .buffers = &no_validity,
        .n_children = 2,
        .children = columns,
    };
    check_fail_nth(expected == AD_OK ? 2 : 1); /* there is only one
                                                  allocation */
    CHECK_INT(ad_array_build(&spec, out, &err), expected);
    CHECK_INT(check_failed_once(), expected != AD_OK);
    check_fail_nth(0);
    ad_schema_unref(schema);
    ad_array_clear(&columns[0]);
    ad_array_clear(&columns[1]);
}

static void
test_build_fails_without_memory(void)
{
    ad_array batch;
    build_batch(&batch, AD_ERR_MEMORY);
    tree_check_all_gone();
}

static void
check_empty(struct ArrowSchema *node)
{
    ad_schema schema = move_schema(node);
    ad_array array, again;
    struct ArrowDeviceArray *holder;
    for (int n = 1;; n++) {
        check_fail_nth(n);
        ad_status status = ad_array_empty(schema, &array, &err);
        check_fail_nth(0);
        if (status == AD_OK) {
            CHECK_INT(n, 2);
            break;
        }
        CHECK_INT(status, AD_ERR_MEMORY);
    }
    check_valid(&array);
    CHECK_INT(array.length, 0);
    CHECK_INT(array.null_count, 0);
    CHECK_INT(array.memory.device.type, ARROW_DEVICE_CPU);
    CHECK(array.memory.sync == NULL);
    CHECK_INT(ad_array_export(&array, &holder, &err), AD_OK);
    ad_array_clear(&array);
    CHECK_INT(ad_array_import_as(schema, holder, &again, &err), AD_OK);
    ad_array_holder_free(holder);
    for (int64_t i = 0; i < again.node->n_buffers; i++) {
        bool bitmap = i == 0 && strncmp(schema.node->format, "+u", 2) != 0;
        const void *buffer = again.node->buffers[i];
        CHECK((buffer == NULL) == bitmap);
        CHECK((uintptr_t)buffer % 64 == 0);
        CHECK(bitmap || *(const int64_t *)buffer == 0);
    }
    ad_array_clear(&again);
    ad_schema_unref(schema);
    tree_check_all_gone();
}

static void
test_empty_array_of_every_format_is_valid(void)
{
    static const char *const leaves[] = {
        "n", "b", "l", "g", "u", "Z", "vu", "vz", "w:16", "d:9,2", "tsn:UTC",
    };
    static const char *const parents[] = {
        "+l", "+L", "+vl", "+vL", "+w:3", "+s", "+us:7", "+ud:7",
    };
    for (size_t i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++) {
        check_empty(tree_schema(leaves[i], "", 0));
        check_empty(tree_schema("+s", "", 2, tree_schema("l", "", 0),
                                tree_schema(leaves[i], "", 0)));
    }
    for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
        check_empty(tree_schema(parents[i], "", 1, tree_schema("l", "", 0)));
    }
    check_empty(tree_schema("+r", "", 2, tree_schema("i", "run_ends", 0),
                            tree_schema("u", "values", 0)));
    check_empty(
        tree_schema("+m", "", 1,
                    tree_schema("+s", "entries", 2, tree_schema("u", "key", 0),
                                tree_schema("l", "value", 0))));
    check_empty(tree_schema_dictionary(
        tree_schema("i", "", 0),
        tree_schema("+l", "", 1,
                    tree_schema_dictionary(tree_schema("c", "", 0),
                                           tree_schema("vu", "", 0)))));
    check_empty(tree_wide_schema(1000));
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_built_column_keeps_owner_and_sync),
        CHECK_TEST(test_build_fails_without_memory),
        CHECK_TEST(test_empty_array_of_every_format_is_valid),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
