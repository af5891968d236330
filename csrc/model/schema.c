#include "model/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/wait.h"
#include "model/metadata.h"
#include "model/type.h"

/* --- validation --------------------------------------------------------- */

static ad_status validate_node(const struct ArrowSchema *node, int depth,
                               int64_t *budget, ad_error *err);

static ad_status
check_child_count(const struct ArrowSchema *node, const ad_type *type,
                  ad_error *err)
{
    int64_t n = node->n_children;
    int64_t expected = type->n_children;
    char count[AD_COUNT_SIZE];
    if (n < 0 || n > INT32_MAX) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema of format \"%.80s\" claims %s", node->format,
                       ad_count_text(n, "child", "children", count));
    }
    if (type->layout == AD_LAYOUT_SPARSE_UNION ||
        type->layout == AD_LAYOUT_DENSE_UNION) {
        int8_t ids[128];
        int n_ids;
        AD_RETURN_IF_ERR(ad_type_union_ids(type, ids, &n_ids, err));
        expected = n_ids;
    }
    if (expected >= 0 && n != expected) {
        return ad_fail(
            err, AD_ERR_ARROW, NULL, NULL,
            "schema of format \"%.80s\" has %s instead of %lld", node->format,
            ad_count_text(n, "child", "children", count), (long long)expected);
    }
    if (n > 0 && node->children == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema of format \"%.80s\" has %s but "
                       "the list of children is NULL",
                       node->format,
                       ad_count_text(n, "child", "children", count));
    }
    return AD_OK;
}

/* The complete check for the most common columns. */
static inline bool
is_sound_leaf(const struct ArrowSchema *node)
{
    return node != NULL && node->release != NULL && node->n_children == 0 &&
           node->dictionary == NULL && ad_type_of_letter(node->format) != NULL;
}

static ad_status
validate_children(const struct ArrowSchema *node, int depth, int64_t *budget,
                  ad_error *err)
{
    for (int64_t i = 0; i < node->n_children; i++) {
        const struct ArrowSchema *child = node->children[i];
        ad_status status;
        if (is_sound_leaf(child) && depth < AD_MAX_DEPTH) {
            continue;
        }
        if (child == NULL) {
            status =
                ad_fail(err, AD_ERR_ARROW, NULL, NULL, "child schema is NULL");
        } else {
            status = validate_node(child, depth + 1, budget, err);
        }
        if (status != AD_OK) {
            ad_error_path_prepend(err, "children[%lld]", (long long)i);
            return status;
        }
    }
    return AD_OK;
}

static ad_status
check_map(const struct ArrowSchema *node, ad_error *err)
{
    const struct ArrowSchema *entries = node->children[0];
    if (strcmp(entries->format, "+s") == 0 && entries->n_children == 2) {
        return AD_OK;
    }
    char count[AD_COUNT_SIZE];
    ad_fail(err, AD_ERR_ARROW, NULL, NULL,
            "the child of a map has format \"%.80s\" and %s instead of being "
            "a struct of two",
            entries->format,
            ad_count_text(entries->n_children, "child", "children", count));
    ad_error_path_prepend(err, "children[0]");
    return AD_ERR_ARROW;
}

static ad_status
check_run_ends(const struct ArrowSchema *node, ad_error *err)
{
    const char *format = node->children[0]->format;
    if (strchr("sil", format[0]) != NULL && format[1] == '\0') {
        return AD_OK;
    }
    ad_fail(err, AD_ERR_ARROW, NULL, NULL,
            "run ends have format \"%.80s\" instead of an int16, int32 or "
            "int64",
            format);
    ad_error_path_prepend(err, "children[0]");
    return AD_ERR_ARROW;
}

static ad_status
validate_dictionary(const struct ArrowSchema *node, const ad_type *type,
                    int depth, int64_t *budget, ad_error *err)
{
    if (type->id < AD_TYPE_INT8 || type->id > AD_TYPE_UINT64) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema with a dictionary has indices of format "
                       "\"%.80s\" instead of an integer",
                       node->format);
    }
    ad_status status = validate_node(node->dictionary, depth + 1, budget, err);
    if (status != AD_OK) {
        ad_error_path_prepend(err, "dictionary");
    }
    return status;
}

static ad_status
validate_node(const struct ArrowSchema *node, int depth, int64_t *budget,
              ad_error *err)
{
    ad_type type;
    if (node->release == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema is released (its release callback is NULL)");
    }
    if (depth > AD_MAX_DEPTH) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema is nested deeper than %d levels", AD_MAX_DEPTH);
    }
    /* A node with several parents counts once for each path to it, and the
     * number of paths can double at each level. */
    if (--*budget < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema has more than %d nested nodes", AD_MAX_NESTED);
    }
    AD_RETURN_IF_ERR(ad_type_parse(node->format, &type, err));
    if (node->n_children != 0 || type.n_children != 0) {
        AD_RETURN_IF_ERR(check_child_count(node, &type, err));
        AD_RETURN_IF_ERR(validate_children(node, depth, budget, err));
        if (type.id == AD_TYPE_MAP) {
            AD_RETURN_IF_ERR(check_map(node, err));
        } else if (type.id == AD_TYPE_RUN_END) {
            AD_RETURN_IF_ERR(check_run_ends(node, err));
        }
    }
    if (node->dictionary != NULL) {
        return validate_dictionary(node, &type, depth, budget, err);
    }
    return AD_OK;
}

ad_status
ad_schema_validate(const struct ArrowSchema *node, ad_error *err)
{
    if (node == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "schema is NULL");
    }
    int64_t budget = AD_MAX_NESTED;
    return validate_node(node, 1, &budget, err);
}

/* --- import ------------------------------------------------------------- */

typedef struct imported {
    ad_owner base;
    struct ArrowSchema root;
} imported;

static void
imported_destroy(ad_owner *self)
{
    imported *tree = (imported *)self;
    AD_RELEASE(&tree->root, release);
    free(tree);
}

static const ad_owner_ops imported_ops = {.destroy = imported_destroy,
                                          .name = "imported schema"};

static inline void skip_import(struct ArrowSchema *node);

ad_status
ad_schema_move(struct ArrowSchema *src, ad_schema *out, ad_error *err)
{
    if (src->release == NULL) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "schema is released (its release callback is NULL)");
    }
    imported *tree = malloc(sizeof(*tree));
    if (tree == NULL) {
        return ad_fail_memory(err, sizeof(*tree));
    }
    ad_owner_init(&tree->base, &imported_ops);
    tree->root = *src;
    src->release = NULL;
    skip_import(&tree->root);
    *out = (ad_schema){&tree->root, &tree->base};
    return AD_OK;
}

/* --- built nodes --------------------------------------------------------- */

/* Marks nodes in static memory or in a built tree as not released. Such nodes
 * are only copied from and never exported, so this is never called. */
static void
never_released(struct ArrowSchema *node)
{
}

#define PRIMITIVE(letter)                                                     \
    [letter] = {                                                              \
        .format = (const char[]){letter, '\0'},                               \
        .name = "",                                                           \
        .flags = ARROW_FLAG_NULLABLE,                                         \
        .release = never_released,                                            \
    }

const struct ArrowSchema ad_schema_primitives[128] = {
    PRIMITIVE('c'), PRIMITIVE('C'), PRIMITIVE('s'), PRIMITIVE('S'),
    PRIMITIVE('i'), PRIMITIVE('I'), PRIMITIVE('l'), PRIMITIVE('L'),
    PRIMITIVE('e'), PRIMITIVE('f'), PRIMITIVE('g'), PRIMITIVE('b'),
};

/* One block with this struct, copies of the nodes below, the list of them, the
 * owners of the memory that the copies point to, and the strings. */
typedef struct built {
    ad_owner base;
    size_t n_owners;
    ad_owner **owners;
    struct ArrowSchema root;
    struct ArrowSchema below[];
} built;

static void
built_destroy(ad_owner *self)
{
    built *tree = (built *)self;
    for (size_t i = 0; i < tree->n_owners; i++) {
        ad_owner_unref(tree->owners[i]);
    }
    free(tree);
}

static const ad_owner_ops built_ops = {.destroy = built_destroy,
                                       .name = "built schema"};

static const char *
copy_bytes(char **at, const char *bytes, size_t n)
{
    char *copy = *at;
    memcpy(copy, bytes, n);
    *at += n;
    return copy;
}

static const char *
override_name(const ad_schema_spec *spec, int64_t i)
{
    return spec->names != NULL ? spec->names[i] : NULL;
}

static size_t
string_bytes(const ad_schema_spec *spec, size_t metadata_size)
{
    size_t n = metadata_size + strlen(spec->format) + 1;
    n += spec->name != NULL ? strlen(spec->name) + 1 : 1;
    for (int64_t i = 0; i < spec->n_children; i++) {
        const char *name = override_name(spec, i);
        n += name != NULL ? strlen(name) + 1 : 0;
    }
    return n;
}

static void
fill_built(built *tree, size_t i, ad_schema source)
{
    tree->below[i] = *source.node;
    tree->below[i].release = never_released;
    tree->below[i].private_data = NULL;
    tree->owners[i] = ad_owner_ref(source.owner);
    tree->n_owners = i + 1;
}

static void
fill_children(built *tree, struct ArrowSchema **list,
              const ad_schema_spec *spec, char **strings)
{
    for (int64_t i = 0; i < spec->n_children; i++) {
        const char *name = override_name(spec, i);
        fill_built(tree, (size_t)i, spec->children[i]);
        if (name != NULL) {
            tree->below[i].name = copy_bytes(strings, name, strlen(name) + 1);
        }
        list[i] = &tree->below[i];
    }
    tree->root.n_children = spec->n_children;
    tree->root.children = spec->n_children > 0 ? list : NULL;
}

ad_status
ad_schema_build(const ad_schema_spec *spec, ad_schema *out, ad_error *err)
{
    int64_t metadata_size;
    AD_RETURN_IF_ERR(ad_metadata_size(spec->metadata, &metadata_size, err));
    size_t n_children = (size_t)spec->n_children;
    size_t n_below = n_children + (spec->dictionary != NULL);
    size_t nbytes =
        sizeof(built) +
        n_below * (sizeof(struct ArrowSchema) + sizeof(ad_owner *)) +
        n_children * sizeof(struct ArrowSchema *) +
        string_bytes(spec, (size_t)metadata_size);
    built *tree = malloc(nbytes);
    if (tree == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&tree->base, &built_ops);
    tree->n_owners = 0;
    tree->owners = (ad_owner **)(tree->below + n_below);
    struct ArrowSchema **list =
        (struct ArrowSchema **)(tree->owners + n_below);
    char *strings = (char *)(list + n_children);

    const char *name = spec->name != NULL ? spec->name : "";
    tree->root = (struct ArrowSchema){
        .format = copy_bytes(&strings, spec->format, strlen(spec->format) + 1),
        .name = copy_bytes(&strings, name, strlen(name) + 1),
        .flags = spec->flags,
        .release = never_released,
    };
    if (spec->metadata != NULL) {
        tree->root.metadata =
            copy_bytes(&strings, spec->metadata, (size_t)metadata_size);
    }
    fill_children(tree, list, spec, &strings);
    if (spec->dictionary != NULL) {
        fill_built(tree, n_children, *spec->dictionary);
        tree->root.dictionary = &tree->below[n_children];
    }
    *out = (ad_schema){&tree->root, &tree->base};
    return AD_OK;
}

ad_status
ad_schema_copy(const struct ArrowSchema *node, ad_schema *out, ad_error *err)
{
    size_t n = (size_t)node->n_children + (node->dictionary != NULL);
    ad_schema *below = calloc(n + 1, sizeof(*below));
    ad_status status = AD_OK;
    if (below == NULL) {
        return ad_fail_memory(err, (n + 1) * sizeof(*below));
    }
    for (int64_t i = 0; i < node->n_children && status == AD_OK; i++) {
        status = ad_schema_copy(node->children[i], &below[i], err);
    }
    if (status == AD_OK && node->dictionary != NULL) {
        status = ad_schema_copy(node->dictionary, &below[n - 1], err);
    }
    if (status == AD_OK) {
        const ad_schema_spec spec = {
            .format = node->format,
            .name = node->name,
            .metadata = node->metadata,
            .flags = node->flags,
            .n_children = node->n_children,
            .children = below,
            .dictionary = node->dictionary != NULL ? &below[n - 1] : NULL,
        };
        status = ad_schema_build(&spec, out, err);
    }
    for (size_t i = 0; i < n; i++) {
        ad_schema_unref(below[i]);
    }
    free(below);
    return status;
}

/* --- comparison --------------------------------------------------------- */

static bool
equal_names(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

static bool
equal_own(const struct ArrowSchema *a, const struct ArrowSchema *b,
          bool check_name)
{
    const int64_t known = ARROW_FLAG_DICTIONARY_ORDERED | ARROW_FLAG_NULLABLE |
                          ARROW_FLAG_MAP_KEYS_SORTED;
    return strcmp(a->format, b->format) == 0 &&
           ((a->flags ^ b->flags) & known) == 0 &&
           a->n_children == b->n_children &&
           (a->dictionary == NULL) == (b->dictionary == NULL) &&
           (!check_name || equal_names(a->name, b->name));
}

/* Whether the names of the children tell them apart: those of fields do. Those
 * of a list's items, of run ends and of a map's entries, keys and values do
 * not. */
static bool
names_children(const struct ArrowSchema *node, bool is_of_map)
{
    const char *format = node->format;
    return strncmp(format, "+u", 2) == 0 ||
           (strcmp(format, "+s") == 0 && !is_of_map);
}

/* `is_of_map`: the nodes are the entries of maps. */
static ad_status
equal_tree(const struct ArrowSchema *a, const struct ArrowSchema *b,
           bool check_name, bool check_metadata, bool is_of_map, bool *out,
           ad_error *err)
{
    *out = a == b;
    if (a == b) {
        return AD_OK;
    }
    *out = equal_own(a, b, check_name);
    if (*out && check_metadata) {
        AD_RETURN_IF_ERR(
            ad_metadata_equal(a->metadata, b->metadata, out, err));
    }
    bool check_names = check_metadata || names_children(a, is_of_map);
    bool is_map = strcmp(a->format, "+m") == 0;
    for (int64_t i = 0; i < a->n_children && *out; i++) {
        AD_RETURN_IF_ERR(equal_tree(a->children[i], b->children[i],
                                    check_names, check_metadata, is_map, out,
                                    err));
    }
    /* The name of a dictionary's values has no meaning. */
    if (*out && a->dictionary != NULL) {
        AD_RETURN_IF_ERR(equal_tree(a->dictionary, b->dictionary, false,
                                    check_metadata, false, out, err));
    }
    return AD_OK;
}

ad_status
ad_schema_equal(const struct ArrowSchema *a, const struct ArrowSchema *b,
                bool check_name, bool check_metadata, bool *out, ad_error *err)
{
    return equal_tree(a, b, check_name, check_metadata, false, out, err);
}

bool
ad_schema_all(const struct ArrowSchema *a, const struct ArrowSchema *b,
              bool (*test)(const struct ArrowSchema *a,
                           const struct ArrowSchema *b))
{
    bool holds = test(a, b);
    for (int64_t i = 0; holds && i < a->n_children; i++) {
        holds = ad_schema_all(a->children[i], b->children[i], test);
    }
    return holds && (a->dictionary == NULL ||
                     ad_schema_all(a->dictionary, b->dictionary, test));
}

/* --- export ----------------------------------------------------------- */

#define NODE struct ArrowSchema

typedef ad_owner *contents;

typedef struct arena {
    atomic_size_t live;
    contents kept;
    struct ArrowSchema nodes[]; /* nodes[0] is the holder */
} arena;

static inline void
drop_contents(contents kept)
{
    ad_owner_unref(kept);
}

static inline void
note_consumer(const arena *self)
{
    /* No device works on a schema. */
}

static inline int64_t
difference(const struct ArrowSchema *parent, const struct ArrowSchema *child)
{
    return 0;
}

#include "model/export_nodes.inc"

static const struct ArrowSchema *
imported_node(const ad_owner *owner)
{
    return owner->ops == &imported_ops ? &((const imported *)owner)->root
                                       : NULL;
}

size_t
ad_schema_count_nodes(const struct ArrowSchema *node)
{
    return 1 + count_below(node);
}

ad_status
ad_schema_export(ad_schema schema, struct ArrowSchema **holder, ad_error *err)
{
    bool is_single = is_leaf(schema.node);
    size_t n_nodes = ad_schema_count_nodes(schema.node);
    size_t nbytes = sizeof(arena) + n_nodes * sizeof(struct ArrowSchema) +
                    (n_nodes - 1) * sizeof(struct ArrowSchema *);
    arena *tree = malloc(nbytes);
    if (tree == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    atomic_init(&tree->live, HOLDER + n_nodes);
    tree->kept = ad_owner_ref(schema.owner);
    copy_node(tree->nodes, schema.node, tree);
    if (!is_single) {
        cursor at = {tree->nodes + 1,
                     (struct ArrowSchema **)(tree->nodes + n_nodes)};
        (void)fill_below(tree->nodes, tree, &at);
    }
    *holder = tree->nodes;
    return AD_OK;
}

bool
ad_schema_holder_renew(struct ArrowSchema *holder, ad_schema schema)
{
    arena *tree = (arena *)((char *)holder - offsetof(arena, nodes));
    size_t live = atomic_load_explicit(&tree->live, memory_order_acquire);
    bool is_unmoved = holder->release == node_release && live == HOLDER + 1;
    bool is_released = holder->release == NULL && live == HOLDER;
    if (!is_leaf(schema.node) || tree->kept != schema.owner ||
        !(is_unmoved || is_released)) {
        return false;
    }
    if (is_released) {
        ad_owner_ref(schema.owner);
    }
    copy_node(holder, schema.node, tree);
    atomic_store_explicit(&tree->live, HOLDER + 1, memory_order_relaxed);
    return true;
}

void
ad_schema_holder_free(struct ArrowSchema *holder)
{
    if (holder != NULL) {
        arena *tree = (arena *)((char *)holder - offsetof(arena, nodes));
        arena_drop(tree, HOLDER + mark(holder, tree));
    }
}

ad_status
ad_schema_export_to(ad_schema schema, struct ArrowSchema *out, ad_error *err)
{
    struct ArrowSchema *holder;
    if (is_leaf(schema.node)) {
        copy_single(out, schema.node, schema.owner);
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_schema_export(schema, &holder, err));
    *out = *holder;
    leave_holder((arena *)((char *)holder - offsetof(arena, nodes)));
    return AD_OK;
}
