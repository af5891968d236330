/* Arrays: imported, built and exported; which structs are released when. */
#include <pthread.h>

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

/* --- built from parts ------------------------------------------------------ */

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

/* --- exported -------------------------------------------------------------- */

/* Moves a node out, as a consumer does. */
static struct ArrowArray
take(struct ArrowArray *source)
{
    CHECK(source->release != NULL);
    struct ArrowArray moved = *source;
    source->release = NULL;
    return moved;
}

static void
drop(struct ArrowArray *node)
{
    node->release(node);
    CHECK(node->release == NULL);
}

/* Exports the array and drops the import: only the export keeps the memory. */
static struct ArrowDeviceArray *
export_and_clear(ad_array *array)
{
    struct ArrowDeviceArray *holder = NULL;
    CHECK_INT(ad_array_export(array, &holder, &err), AD_OK);
    ad_array_clear(array);
    return holder;
}

static void
import_batch(int n_columns, void *event, ad_array *out)
{
    tree_import(tree_wide_schema(n_columns), tree_wide_array(n_columns, 10),
                event, out);
}

/* struct<a: int64, b: list<struct<int64, utf8>>, c: dictionary<utf8>> */
static void
import_nested(ad_array *out)
{
    tree_import(
        tree_schema(
            "+s", "", 3, tree_schema("l", "a", 0),
            tree_schema("+l", "b", 1,
                        tree_schema("+s", "item", 2, tree_schema("l", "x", 0),
                                    tree_schema("u", "y", 0))),
            tree_schema_dictionary(tree_schema("c", "c", 0),
                                   tree_schema("u", "", 0))),
        tree_array(10, false, 1, 3, tree_ints(10),
                   tree_array(10, false, 2, 1,
                              tree_array(20, false, 1, 2, tree_ints(20),
                                         tree_array(20, false, 3, 0))),
                   tree_array_dictionary(tree_array(10, false, 2, 0),
                                         tree_array(4, false, 3, 0))),
        NULL, out);
}

static void
test_moved_column_and_holder_are_released_in_any_order(void)
{
    for (int order = 0; order < 3; order++) {
        ad_array array;
        tree_import(tree_schema("l", "", 0), tree_ints(7), NULL, &array);
        struct ArrowDeviceArray *holder = export_and_clear(&array);
        if (order == 2) {
            drop(&holder->array);
            CHECK_INT(atomic_load(&live_arrays), 0);
            ad_array_holder_free(holder);
        } else {
            struct ArrowArray moved = take(&holder->array);
            if (order == 0) {
                ad_array_holder_free(holder);
                CHECK_INT(atomic_load(&live_arrays), 1);
                drop(&moved);
            } else {
                drop(&moved);
                CHECK_INT(atomic_load(&live_arrays), 0);
                ad_array_holder_free(holder);
            }
        }
        tree_check_all_gone();
    }
}

/* Moves three columns out, and releases them, the root and the holder in every
 * order. */
static void
test_moved_children_are_released_in_any_order(void)
{
    int order[5] = {0, 1, 2, 3, 4};
    for (int p = 0; p < 120; p++) {
        int rest[5] = {0, 1, 2, 3, 4};
        for (int i = 0, q = p; i < 5; i++) {
            int n = 5 - i, k = q % n;
            q /= n;
            order[i] = rest[k];
            memmove(&rest[k], &rest[k + 1], (size_t)(n - k - 1) * sizeof(int));
        }
        ad_array array;
        import_nested(&array);
        struct ArrowDeviceArray *holder = export_and_clear(&array);
        struct ArrowArray moved[4];
        for (int i = 0; i < 3; i++) {
            moved[i] = take(holder->array.children[i]);
        }
        moved[3] = take(&holder->array);
        for (int i = 0; i < 5; i++) {
            bool is_holder_alone = i == 4 && order[i] == 4;
            CHECK_INT(atomic_load(&live_arrays) > 0, !is_holder_alone);
            if (order[i] == 4) {
                ad_array_holder_free(holder);
            } else {
                drop(&moved[order[i]]);
            }
        }
        tree_check_all_gone();
    }
}

static void
test_moved_grandchildren_and_dictionary_outlive_their_parents(void)
{
    ad_array array;
    import_nested(&array);
    struct ArrowDeviceArray *holder = export_and_clear(&array);
    struct ArrowArray root = take(&holder->array);
    ad_array_holder_free(holder);
    struct ArrowArray list = take(root.children[1]);
    struct ArrowArray inner = take(list.children[0]->children[1]);
    struct ArrowArray values = take(root.children[2]->dictionary);
    drop(&root);
    CHECK_INT(list.children[0]->children[0]->length, 20);
    drop(&list);
    drop(&values);
    CHECK(atomic_load(&live_arrays) > 0);
    CHECK(inner.buffers[1] == tree_buffer(1));
    drop(&inner);
    tree_check_all_gone();
}

/* A consumer places a node of its own where it moved one out. */
static void
test_foreign_child_is_released_with_its_parent(void)
{
    ad_array array;
    import_batch(2, NULL, &array);
    struct ArrowDeviceArray *holder = export_and_clear(&array);
    struct ArrowArray moved = take(holder->array.children[1]);
    struct ArrowArray *foreign = tree_ints(10);
    *holder->array.children[1] = *foreign;
    free(foreign);
    ad_array_holder_free(holder);
    CHECK_INT(atomic_load(&live_arrays), 3);
    drop(&moved);
    tree_check_all_gone();
}

static void
test_export_fails_without_memory(void)
{
    int event;
    ad_array array;
    struct ArrowDeviceArray *holder = NULL;
    import_batch(5, &event, &array);
    check_fail_nth(1);
    CHECK_INT(ad_array_export(&array, &holder, &err), AD_ERR_MEMORY);
    CHECK(check_failed_once());
    CHECK(holder == NULL);
    check_fail_nth(2); /* there is no second allocation */
    CHECK_INT(ad_array_export(&array, &holder, &err), AD_OK);
    CHECK(!check_failed_once());
    check_fail_nth(0);
    ad_array_clear(&array);
    ad_array_holder_free(holder);
    tree_check_all_gone();
}

static void
test_wide_export_lives_until_its_last_column(void)
{
    enum {
        N = 1000
    };
    static struct ArrowArray moved[N];
    ad_array array;
    import_batch(N, NULL, &array);
    struct ArrowDeviceArray *holder = export_and_clear(&array);
    for (int i = 0; i < N; i += 2) {
        moved[i] = take(holder->array.children[i]);
    }
    ad_array_holder_free(holder);
    for (int i = N - 2; i >= 0; i -= 2) {
        CHECK_INT(atomic_load(&live_arrays), N + 1);
        drop(&moved[i]);
    }
    tree_check_all_gone();
}

static void *
drop_on_thread(void *node)
{
    drop(node);
    return NULL;
}

static void *
free_on_thread(void *holder)
{
    ad_array_holder_free(holder);
    return NULL;
}

static void
test_nodes_are_released_on_several_threads(void)
{
    enum {
        N = 4
    };
    for (int round = 0; round < 50; round++) {
        int event;
        ad_array array;
        struct ArrowArray moved[N];
        pthread_t threads[N + 1];
        import_batch(N + 2, &event, &array);
        struct ArrowDeviceArray *holder = export_and_clear(&array);
        for (int i = 0; i < N; i++) {
            moved[i] = take(holder->array.children[i]);
        }
        for (int i = 0; i < N; i++) {
            CHECK_INT(
                pthread_create(&threads[i], NULL, drop_on_thread, &moved[i]),
                0);
        }
        CHECK_INT(pthread_create(&threads[N], NULL, free_on_thread, holder),
                  0);
        for (int i = 0; i <= N; i++) {
            pthread_join(threads[i], NULL);
        }
        tree_check_all_gone();
    }
}

/* One node of host memory, and a tree: into a struct of the consumer. */
static void
test_export_into_a_struct(void)
{
    for (int n_columns = 0; n_columns < 3; n_columns++) {
        struct ArrowSchema schema =
            tree_take_schema(n_columns == 0 ? tree_schema("l", "x", 0)
                                            : tree_wide_schema(n_columns));
        struct ArrowDeviceArray source = tree_take_array(
            n_columns == 0 ? tree_ints(7) : tree_wide_array(n_columns, 10),
            NULL);
        source.device_type = ARROW_DEVICE_CPU;
        source.device_id = -1;
        ad_array array;
        CHECK_INT(ad_array_import(&schema, &source, false, &array, &err),
                  AD_OK);
        struct ArrowDeviceArray out;
        struct ArrowSchema type;
        if (n_columns > 0) {
            check_fail_nth(1);
            CHECK_INT(ad_array_export_to(&array, &out, &err), AD_ERR_MEMORY);
            check_fail_nth(1);
            CHECK_INT(ad_schema_export_to(array.schema, &type, &err),
                      AD_ERR_MEMORY);
        }
        CHECK_INT(ad_array_export_to(&array, &out, &err), AD_OK);
        CHECK_INT(ad_schema_export_to(array.schema, &type, &err), AD_OK);
        ad_array_clear(&array);
        CHECK_INT(ad_array_validate(&type, &out.array, &err), AD_OK);
        CHECK_INT(out.device_id, -1);
        CHECK(out.sync_event == NULL);
        CHECK_INT(out.array.length, n_columns == 0 ? 7 : 10);
        CHECK(atomic_load(&live_schemas) > 0);
        struct ArrowArray moved = take(&out.array);
        type.release(&type);
        CHECK(type.release == NULL);
        CHECK_INT(atomic_load(&live_schemas), 0);
        CHECK(atomic_load(&live_arrays) > 0);
        drop(&moved);
        tree_check_all_gone();
    }
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
        CHECK_TEST(test_built_column_keeps_owner_and_sync),
        CHECK_TEST(test_build_fails_without_memory),
        CHECK_TEST(test_empty_array_of_every_format_is_valid),
        CHECK_TEST(test_moved_column_and_holder_are_released_in_any_order),
        CHECK_TEST(test_moved_children_are_released_in_any_order),
        CHECK_TEST(
            test_moved_grandchildren_and_dictionary_outlive_their_parents),
        CHECK_TEST(test_foreign_child_is_released_with_its_parent),
        CHECK_TEST(test_export_fails_without_memory),
        CHECK_TEST(test_wide_export_lives_until_its_last_column),
        CHECK_TEST(test_nodes_are_released_on_several_threads),
        CHECK_TEST(test_export_into_a_struct),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
