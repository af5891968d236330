#include "model/schema.h"

#include <stdlib.h>
#include <string.h>

/* One exported tree. `refs` counts the live nodes, including moved ones, and
 * the holder. The nodes and the lists of children follow in the same block. */
typedef struct arena {
    atomic_size_t refs;
    ad_owner *owner;
    struct ArrowSchema nodes[]; /* nodes[0] is the holder */
} arena;

static void release_node(struct ArrowSchema *node);

static inline bool
is_leaf(const struct ArrowSchema *node)
{
    return (node->n_children | (intptr_t)node->dictionary) == 0;
}

size_t
ad_schema_count_nodes(const struct ArrowSchema *node)
{
    size_t n = 1;
    for (int64_t i = 0; i < node->n_children; i++) {
        const struct ArrowSchema *child = node->children[i];
        if (is_leaf(child)) {
            n++;
        } else {
            n += ad_schema_count_nodes(child);
        }
    }
    if (node->dictionary != NULL) {
        n += ad_schema_count_nodes(node->dictionary);
    }
    return n;
}

/* The unused part of the block. */
typedef struct room {
    struct ArrowSchema *nodes;
    struct ArrowSchema **lists;
} room;

/* The last two members are not copied, since they are overwritten at once:
 * stores dominate the cost of a wide export. `children` and `dictionary` point
 * into the source until fill_below replaces them. */
static inline void
copy_node(struct ArrowSchema *target, const struct ArrowSchema *source,
          arena *tree)
{
    memcpy(target, source, offsetof(struct ArrowSchema, release));
    target->release = release_node;
    target->private_data = tree;
}

static void
fill_below(struct ArrowSchema *node, arena *tree, room *free_room)
{
    int64_t n = node->n_children;
    struct ArrowSchema **source = node->children;
    struct ArrowSchema **list = free_room->lists;
    struct ArrowSchema *below = free_room->nodes;
    bool is_flat = true;
    free_room->nodes += n;
    free_room->lists += n;
    for (int64_t i = 0; i < n; i++) {
        copy_node(&below[i], source[i], tree);
        list[i] = &below[i];
        is_flat = is_flat && is_leaf(&below[i]);
    }
    node->children = n > 0 ? list : NULL;
    if (node->dictionary != NULL) {
        struct ArrowSchema *values = free_room->nodes++;
        copy_node(values, node->dictionary, tree);
        fill_below(values, tree, free_room);
        node->dictionary = values;
    }
    for (int64_t i = 0; i < n && !is_flat; i++) {
        if (!is_leaf(&below[i])) {
            fill_below(&below[i], tree, free_room);
        }
    }
}

/* --- release ------------------------------------------------------------ */

static size_t drop_below(struct ArrowSchema *node, arena *tree);

/* Releases a node in its parent's list and returns the number of nodes of
 * `tree` that this released. A consumer may have moved the node out, and even
 * moved a foreign struct in, which is released with its own callback. */
static inline size_t
drop(struct ArrowSchema *node, arena *tree)
{
    if (node->release == release_node && node->private_data == tree) {
        node->release = NULL;
        if (is_leaf(node)) {
            return 1;
        }
        return 1 + drop_below(node, tree);
    }
    if (node->release != NULL) {
        node->release(node);
    }
    return 0;
}

static size_t
drop_below(struct ArrowSchema *node, arena *tree)
{
    size_t n = 0;
    for (int64_t i = 0; i < node->n_children; i++) {
        n += drop(node->children[i], tree);
    }
    if (node->dictionary != NULL) {
        n += drop(node->dictionary, tree);
    }
    return n;
}

static void
unref(arena *tree, size_t n)
{
    /* A thread that drops all remaining references has no competitor, so a
     * plain load is enough. */
    if (n == 0 ||
        (atomic_load_explicit(&tree->refs, memory_order_acquire) != n &&
         atomic_fetch_sub_explicit(&tree->refs, n, memory_order_acq_rel) !=
             n)) {
        return;
    }
    ad_owner_unref(tree->owner);
    free(tree);
}

static void
release_node(struct ArrowSchema *node)
{
    arena *tree = node->private_data;
    node->release = NULL;
    unref(tree, 1 + drop_below(node, tree));
}

/* --- entry points ------------------------------------------------------- */

ad_status
ad_schema_export(ad_schema schema, struct ArrowSchema **holder, ad_error *err)
{
    bool is_single = is_leaf(schema.node);
    size_t n_nodes = is_single ? 1 : ad_schema_count_nodes(schema.node);
    size_t nbytes = sizeof(arena) + n_nodes * sizeof(struct ArrowSchema) +
                    (n_nodes - 1) * sizeof(struct ArrowSchema *);
    arena *tree = malloc(nbytes);
    if (tree == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    atomic_init(&tree->refs, n_nodes + 1);
    tree->owner = ad_owner_ref(schema.owner);
    copy_node(tree->nodes, schema.node, tree);
    if (!is_single) {
        room free_room = {tree->nodes + 1,
                          (struct ArrowSchema **)(tree->nodes + n_nodes)};
        fill_below(tree->nodes, tree, &free_room);
    }
    *holder = tree->nodes;
    return AD_OK;
}

bool
ad_schema_holder_renew(struct ArrowSchema *holder, ad_schema schema)
{
    arena *tree = (arena *)((char *)holder - offsetof(arena, nodes));
    size_t refs = atomic_load_explicit(&tree->refs, memory_order_acquire);
    bool is_unmoved = holder->release == release_node && refs == 2;
    bool is_released = holder->release == NULL && refs == 1;
    if (!is_leaf(schema.node) || tree->owner != schema.owner ||
        !(is_unmoved || is_released)) {
        return false;
    }
    copy_node(holder, schema.node, tree);
    atomic_store_explicit(&tree->refs, 2, memory_order_relaxed);
    return true;
}

void
ad_schema_holder_free(struct ArrowSchema *holder)
{
    if (holder != NULL) {
        arena *tree = (arena *)((char *)holder - offsetof(arena, nodes));
        unref(tree, 1 + drop(holder, tree));
    }
}
