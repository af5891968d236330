#include "model/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/wait.h"

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

#include "model/export_nodes.inc"

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
        fill_below(tree->nodes, tree, &at);
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
