/* Schemas: validation, ownership of import, build and export, comparison. */
#include <pthread.h>

#include "check.h"
#include "model/metadata.h"
#include "model/schema.h"

/* --- a producer that allocates every node separately --------------------- */

static atomic_int live;

static void
release(struct ArrowSchema *node)
{
    for (int64_t i = 0; node->children != NULL && i < node->n_children; i++) {
        struct ArrowSchema *child = node->children[i];
        if (child != NULL && child->release != NULL) {
            child->release(child);
        }
        free(child);
    }
    if (node->dictionary != NULL) {
        if (node->dictionary->release != NULL) {
            node->dictionary->release(node->dictionary);
        }
        free(node->dictionary);
    }
    free(node->children);
    free((void *)node->format);
    free((void *)node->name);
    node->release = NULL;
    atomic_fetch_sub(&live, 1);
}

static struct ArrowSchema *
node(const char *format, const char *name, int64_t n_children)
{
    struct ArrowSchema *self = calloc(1, sizeof(*self));
    self->format = format != NULL ? strdup(format) : NULL;
    self->name = name != NULL ? strdup(name) : NULL;
    self->flags = ARROW_FLAG_NULLABLE;
    self->n_children = n_children;
    if (n_children > 0) {
        self->children = calloc((size_t)n_children, sizeof(*self->children));
    }
    self->release = release;
    atomic_fetch_add(&live, 1);
    return self;
}

static struct ArrowSchema *
parent(const char *format, const char *name, struct ArrowSchema *first,
       struct ArrowSchema *second)
{
    struct ArrowSchema *self =
        node(format, name, (first != NULL) + (second != NULL));
    if (first != NULL) {
        self->children[0] = first;
    }
    if (second != NULL) {
        self->children[1] = second;
    }
    return self;
}

static struct ArrowSchema *
encoded(const char *format, struct ArrowSchema *values)
{
    struct ArrowSchema *self = node(format, "d", 0);
    self->dictionary = values;
    return self;
}

static void
drop(struct ArrowSchema *self)
{
    if (self->release != NULL) {
        self->release(self);
    }
    free(self);
}

static struct ArrowSchema *
sample(void)
{
    return parent("+s", "root", node("i", "a", 0),
                  parent("+l", "b", encoded("c", node("u", NULL, 0)), NULL));
}

/* --- validation ---------------------------------------------------------- */

/* Consumes the tree. */
static void
invalid(struct ArrowSchema *self, const char *path, const char *message)
{
    ad_error err = {0};
    CHECK_INT(ad_schema_validate(self, &err), AD_ERR_ARROW);
    CHECK_STR(err.path, path);
    CHECK_HAS(err.message, message);
    CHECK_INT(ad_schema_validate(self, NULL), AD_ERR_ARROW);
    drop(self);
}

static struct ArrowSchema *
with_count(struct ArrowSchema *self, int64_t n)
{
    self->n_children = n;
    return self;
}

static void
test_invalid_schemas_are_refused(void)
{
    ad_error err = {0};
    CHECK_INT(ad_schema_validate(NULL, &err), AD_ERR_ARROW);
    invalid(node(NULL, "", 0), "", "NULL");
    invalid(node("", "", 0), "", "empty");
    invalid(node("ix", "", 0), "", "\"ix\"");
    invalid(parent("+s", "", node("i", "", 0), node("w:-1", "", 0)),
            "children[1]", "w:-1");
    invalid(parent("+l", "", encoded("c", node("?", "", 0)), NULL),
            "children[0].dictionary", "\"?\"");
    invalid(parent("i", "", node("i", "", 0), NULL), "", "instead of 0");
    invalid(node("+l", "", 0), "", "instead of 1");
    invalid(parent("+us:1", "", node("i", "", 0), node("i", "", 0)), "",
            "instead of 1");
    invalid(node("+s", "", 1), "children[0]", "NULL");
    invalid(with_count(node("+s", "", 0), -1), "", "claims -1");
    invalid(with_count(node("i", "", 0), -3), "", "claims -3");
    invalid(with_count(node("+s", "", 0), 5), "", "list of children is NULL");
    struct ArrowSchema *huge = node("+s", "", 0);
    huge->n_children = INT64_MAX;
    CHECK_INT(ad_schema_validate(huge, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "claims 9223372036854775807");
    huge->n_children = 0;
    drop(huge);
    invalid(encoded("f", node("u", "", 0)), "", "instead of an integer");
    invalid(encoded("u", node("u", "", 0)), "", "instead of an integer");
    invalid(parent("+m", "", node("i", "", 0), NULL), "children[0]",
            "struct of two");
    invalid(parent("+m", "", parent("+s", "", node("i", "", 0), NULL), NULL),
            "children[0]", "struct of two");
    invalid(parent("+r", "", node("c", "", 0), node("i", "", 0)),
            "children[0]", "run ends");
    invalid(parent("+r", "", node("ttm", "", 0), node("i", "", 0)),
            "children[0]", "run ends");
    CHECK_INT(live, 0);
}

/* --- import -------------------------------------------------------------- */

static ad_schema
import(struct ArrowSchema *self)
{
    ad_schema schema;
    CHECK_INT(ad_schema_move(self, &schema, NULL), AD_OK);
    CHECK(self->release == NULL);
    free(self);
    return schema;
}

static void
test_move_leaves_the_source_released(void)
{
    struct ArrowSchema *tree = sample();
    ad_schema schema = {0};
    ad_error err = {0};
    check_fail_nth(1);
    CHECK_INT(ad_schema_move(tree, &schema, &err), AD_ERR_MEMORY);
    CHECK(tree->release == release);
    CHECK_INT(ad_schema_move(tree, &schema, &err), AD_OK);
    CHECK(tree->release == NULL);
    CHECK_INT(ad_schema_move(tree, &schema, &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "released");
    free(tree);
    ad_schema child = ad_schema_at(schema, schema.node->children[1]);
    ad_schema_unref(schema);
    CHECK_STR(child.node->format, "+l");
    CHECK(live > 0);
    ad_schema_unref(child);
    CHECK_INT(live, 0);
}

/* --- build --------------------------------------------------------------- */

static void
test_built_schema_keeps_its_children(void)
{
    char *metadata = NULL;
    const ad_metadata_pair pair = {"k", 1, "value", 5};
    CHECK_INT(ad_metadata_build(&pair, 1, &metadata, NULL), AD_OK);
    ad_schema children[] = {import(sample()), ad_schema_primitive("f")};
    const char *names[] = {NULL, "renamed"};
    ad_schema_spec spec = {.format = "+s",
                           .metadata = metadata,
                           .flags = ARROW_FLAG_NULLABLE,
                           .n_children = 2,
                           .children = children,
                           .names = names};
    ad_schema built = {0};
    check_fail_nth(1);
    CHECK_INT(ad_schema_build(&spec, &built, NULL), AD_ERR_MEMORY);
    CHECK_INT(ad_schema_build(&spec, &built, NULL), AD_OK);
    free(metadata);
    ad_schema_unref(children[0]);
    CHECK(live > 0);

    CHECK_INT(ad_schema_validate(built.node, NULL), AD_OK);
    CHECK_STR(built.node->name, "");
    CHECK_STR(built.node->children[0]->name, "root");
    CHECK_STR(built.node->children[1]->name, "renamed");
    bool found = false;
    ad_metadata_pair value;
    CHECK_INT(
        ad_metadata_find(built.node->metadata, "k", &value, &found, NULL),
        AD_OK);
    CHECK(found && value.value_length == 5);

    ad_schema values = ad_schema_at(built, built.node->children[0]);
    ad_schema_unref(built);
    ad_schema_spec indices = {
        .format = "c", .name = "x", .dictionary = &values};
    CHECK_INT(ad_schema_build(&indices, &built, NULL), AD_OK);
    ad_schema_unref(values);
    CHECK_INT(ad_schema_validate(built.node, NULL), AD_OK);
    CHECK_STR(built.node->name, "x");
    CHECK_STR(built.node->dictionary->format, "+s");
    CHECK(built.node->children == NULL && built.node->n_children == 0);
    ad_schema_unref(built);
    CHECK_INT(live, 0);
}

/* --- export -------------------------------------------------------------- */

static void
check_same(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
    bool is_equal = false;
    CHECK_INT(ad_schema_validate(a, NULL), AD_OK);
    CHECK_INT(ad_schema_equal(a, b, true, true, &is_equal, NULL), AD_OK);
    CHECK(is_equal);
}

static void
test_unmoved_export_is_freed_with_its_holder(void)
{
    ad_schema schema = import(sample());
    struct ArrowSchema *holder = NULL;
    check_fail_nth(1);
    CHECK_INT(ad_schema_export(schema, &holder, NULL), AD_ERR_MEMORY);
    CHECK_INT(ad_schema_export(schema, &holder, NULL), AD_OK);
    check_same(holder, schema.node);
    CHECK(holder->children[0]->name == schema.node->children[0]->name);
    CHECK(holder->children[0]->children == NULL);
    ad_schema_unref(schema);
    CHECK(live > 0);
    ad_schema_holder_free(holder);
    CHECK_INT(live, 0);
    ad_schema_holder_free(NULL);
}

static void
test_static_schema_is_exported(void)
{
    struct ArrowSchema *holder = NULL;
    CHECK_INT(ad_schema_export(ad_schema_primitive("g"), &holder, NULL),
              AD_OK);
    struct ArrowSchema moved = *holder;
    holder->release = NULL;
    ad_schema_holder_free(holder);
    CHECK_STR(moved.format, "g");
    moved.release(&moved);
    CHECK(moved.release == NULL);
}

/* The holder, its root, and four nodes below the root; which of them are moved
 * out, and the order of the releases. */
enum {
    HOLDER,
    ROOT,
    LEFT,
    RIGHT,
    ITEM,
    VALUES,
    N_PARTS
};

/* The holder alone keeps no schema alive once its root was moved out. */
static bool
has_node_left(const int order[N_PARTS], int i, unsigned moved_mask,
              const struct ArrowSchema out[N_PARTS])
{
    for (; i < N_PARTS; i++) {
        bool is_holder_with_root =
            order[i] == HOLDER && (moved_mask & 1u << ROOT) == 0;
        if (is_holder_with_root || out[order[i]].release != NULL) {
            return true;
        }
    }
    return false;
}

static void
check_order(const int order[N_PARTS], unsigned moved_mask)
{
    ad_schema schema = import(sample());
    struct ArrowSchema *holder = NULL;
    CHECK_INT(ad_schema_export(schema, &holder, NULL), AD_OK);
    ad_schema_unref(schema);
    struct ArrowSchema *parts[N_PARTS] = {holder, holder};
    parts[LEFT] = holder->children[0];
    parts[RIGHT] = holder->children[1];
    parts[ITEM] = parts[RIGHT]->children[0];
    parts[VALUES] = parts[ITEM]->dictionary;
    struct ArrowSchema out[N_PARTS] = {{0}};
    for (int i = ROOT; i < N_PARTS; i++) {
        if (moved_mask & 1u << i) {
            out[i] = *parts[i];
            parts[i]->release = NULL;
        }
    }
    for (int i = 0; i < N_PARTS; i++) {
        int part = order[i];
        CHECK_INT(live > 0, has_node_left(order, i, moved_mask, out));
        if (part == HOLDER) {
            ad_schema_holder_free(holder);
        } else if (out[part].release != NULL) {
            CHECK(strlen(out[part].format) > 0);
            out[part].release(&out[part]);
            CHECK(out[part].release == NULL);
        }
        bool is_done = true;
        for (int j = i + 1; j < N_PARTS; j++) {
            is_done =
                is_done && order[j] != HOLDER && out[order[j]].release == NULL;
        }
        if (is_done) {
            break;
        }
    }
    CHECK_INT(live, 0);
}

static bool
next_permutation(int *items, int n)
{
    int i = n - 2;
    while (i >= 0 && items[i] > items[i + 1]) {
        i--;
    }
    if (i < 0) {
        return false;
    }
    int j = n - 1;
    while (items[j] < items[i]) {
        j--;
    }
    int swap = items[i];
    items[i] = items[j];
    items[j] = swap;
    for (int a = i + 1, b = n - 1; a < b; a++, b--) {
        swap = items[a];
        items[a] = items[b];
        items[b] = swap;
    }
    return true;
}

static void
test_exported_nodes_are_released_in_any_order(void)
{
    int order[N_PARTS] = {HOLDER, ROOT, LEFT, RIGHT, ITEM, VALUES};
    do {
        for (unsigned mask = 0; mask < 1u << N_PARTS; mask += 2) {
            check_order(order, mask);
        }
    } while (next_permutation(order, N_PARTS));
}

static void
test_foreign_node_is_released_with_its_parent(void)
{
    ad_schema schema = import(sample());
    struct ArrowSchema *holder = NULL, *other = NULL;
    CHECK_INT(ad_schema_export(schema, &holder, NULL), AD_OK);
    CHECK_INT(ad_schema_export(schema, &other, NULL), AD_OK);
    ad_schema_unref(schema);
    struct ArrowSchema out = *holder->children[0];
    *holder->children[0] = *other;
    other->release = NULL;
    ad_schema_holder_free(other);
    ad_schema_holder_free(holder);
    CHECK(live > 0);
    out.release(&out);
    CHECK_INT(live, 0);
}

static void *
release_on_thread(void *arg)
{
    struct ArrowSchema *self = arg;
    self->release(self);
    return NULL;
}

static void
test_exported_nodes_are_released_on_several_threads(void)
{
    enum {
        N = 8
    };
    struct ArrowSchema *tree = node("+s", "", N);
    for (int i = 0; i < N; i++) {
        tree->children[i] = sample();
    }
    ad_schema schema = import(tree);
    struct ArrowSchema *holder = NULL, out[N];
    pthread_t threads[N];
    CHECK_INT(ad_schema_export(schema, &holder, NULL), AD_OK);
    ad_schema_unref(schema);
    for (int i = 0; i < N; i++) {
        out[i] = *holder->children[i];
        holder->children[i]->release = NULL;
    }
    for (int i = 0; i < N; i++) {
        CHECK(pthread_create(&threads[i], NULL, release_on_thread, &out[i]) ==
              0);
    }
    ad_schema_holder_free(holder);
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(live, 0);
}

static void
test_copy_of_a_schema(void)
{
    static const ad_metadata_pair pair = {"key", 3, "value", 5};
    ad_schema copy, words;
    ad_status status = AD_ERR_MEMORY;
    char *metadata;
    bool is_equal;
    ad_error err;
    CHECK_INT(ad_metadata_build(&pair, 1, &metadata, &err), AD_OK);
    ad_schema_spec of_words = {.format = "u", .metadata = metadata};
    CHECK_INT(ad_schema_build(&of_words, &words, &err), AD_OK);
    ad_schema children[] = {words, words};
    const char *const names[] = {"x", "y"};
    ad_schema_spec spec = {.format = "+s",
                           .name = "root",
                           .metadata = metadata,
                           .flags = ARROW_FLAG_NULLABLE,
                           .n_children = 2,
                           .children = children,
                           .names = names};
    ad_schema schema;
    CHECK_INT(ad_schema_build(&spec, &schema, &err), AD_OK);
    for (long n = 1; status != AD_OK; n++) {
        check_fail_nth(n);
        status = ad_schema_copy(schema.node, &copy, &err);
        check_fail_nth(0);
        CHECK(status == AD_OK || status == AD_ERR_MEMORY);
    }
    CHECK_INT(
        ad_schema_equal(schema.node, copy.node, true, true, &is_equal, &err),
        AD_OK);
    CHECK(is_equal);
    ad_schema_unref(schema);
    ad_schema_unref(words);
    free(metadata);
    CHECK_STR(copy.node->children[1]->name, "y");
    ad_schema_unref(copy);
}

/* --- comparison ---------------------------------------------------------- */

static void
test_comparison_of_metadata(void)
{
    char *blob = NULL;
    int32_t bad = -1;
    bool is_equal = false;
    const ad_metadata_pair pair = {"k", 1, "v", 1};
    CHECK_INT(ad_metadata_build(&pair, 1, &blob, NULL), AD_OK);
    struct ArrowSchema *a = sample(), *b = sample();
    a->children[0]->metadata = blob;
    CHECK_INT(ad_schema_equal(a, b, true, false, &is_equal, NULL), AD_OK);
    CHECK(is_equal);
    CHECK_INT(ad_schema_equal(a, b, true, true, &is_equal, NULL), AD_OK);
    CHECK(!is_equal);
    b->children[0]->metadata = (const char *)&bad;
    CHECK_INT(ad_schema_equal(a, b, true, true, &is_equal, NULL),
              AD_ERR_ARROW);
    drop(a);
    drop(b);
    free(blob);
}

static void
keep(struct ArrowSchema *schema)
{
    (void)schema;
}

/* Each level has the next one twice: few nodes, but 2^40 paths to them. */
static void
test_number_of_nested_nodes_is_limited(void)
{
    enum {
        LEVELS = 40
    };
    struct ArrowSchema levels[LEVELS + 1];
    struct ArrowSchema *lists[LEVELS][2];
    ad_error err;
    memset(levels, 0, sizeof(levels));
    for (int i = 0; i <= LEVELS; i++) {
        levels[i].format = i < LEVELS ? "+s" : "l";
        levels[i].release = keep;
        if (i < LEVELS) {
            lists[i][0] = lists[i][1] = &levels[i + 1];
            levels[i].n_children = 2;
            levels[i].children = lists[i];
        }
    }
    CHECK_INT(ad_schema_validate(&levels[0], &err), AD_ERR_ARROW);
    CHECK_HAS(err.message, "nested nodes");
    CHECK_INT(ad_schema_validate(&levels[LEVELS - 10], &err), AD_OK);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_invalid_schemas_are_refused),
        CHECK_TEST(test_number_of_nested_nodes_is_limited),
        CHECK_TEST(test_move_leaves_the_source_released),
        CHECK_TEST(test_built_schema_keeps_its_children),
        CHECK_TEST(test_unmoved_export_is_freed_with_its_holder),
        CHECK_TEST(test_static_schema_is_exported),
        CHECK_TEST(test_exported_nodes_are_released_in_any_order),
        CHECK_TEST(test_foreign_node_is_released_with_its_parent),
        CHECK_TEST(test_exported_nodes_are_released_on_several_threads),
        CHECK_TEST(test_copy_of_a_schema),
        CHECK_TEST(test_comparison_of_metadata),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
