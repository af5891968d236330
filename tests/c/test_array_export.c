#include <pthread.h>

#include "trees.h"

static ad_error err;

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
