#include <stdlib.h>

#include "model/array.h"

/* One allocation for everything in an export: the holder, the nodes below the
 * root, and the lists of pointers to them. Buffer lists are not copied: the
 * reference on the owner keeps the originals alive. */
typedef struct arena {
    atomic_size_t live; /* nodes that are not released, plus the holder */
    ad_owner *owner;
    ad_sync *sync;
    struct ArrowDeviceArray holder;
    struct ArrowArray nodes[];
} arena;

static void
arena_drop(arena *self, size_t n)
{
    /* A thread that drops all remaining references has no competitor, so a
     * plain load is enough. The common case (no node moved out) needs no
     * locked instruction. */
    if (atomic_load_explicit(&self->live, memory_order_acquire) != n &&
        atomic_fetch_sub_explicit(&self->live, n, memory_order_acq_rel) != n) {
        return;
    }
    ad_sync_unref(self->sync);
    ad_owner_unref(self->owner);
    free(self);
}

static void node_release(struct ArrowArray *node);

static inline bool
is_ours(const struct ArrowArray *node, const arena *self)
{
    return node->release == node_release && node->private_data == self;
}

static inline bool
is_leaf(const struct ArrowArray *node)
{
    return node->n_children == 0 && node->dictionary == NULL;
}

/* Not inlined, so that mark() can be for a leaf. */
static __attribute__((noinline)) size_t mark_below(struct ArrowArray *node,
                                                   arena *self);

/* Marks a node and the nodes below it that were not moved out as released;
 * returns their number. */
static inline size_t
mark(struct ArrowArray *node, arena *self)
{
    if (!is_ours(node, self)) {
        /* The node was moved out or released already. Or a consumer placed a
         * struct of its own here, which is released with its parent, as the
         * specification says. */
        if (node->release != NULL) {
            node->release(node);
        }
        return 0;
    }
    node->release = NULL;
    return is_leaf(node) ? 1 : 1 + mark_below(node, self);
}

static size_t
mark_below(struct ArrowArray *node, arena *self)
{
    size_t n = 0;
    for (int64_t i = 0; i < node->n_children; i++) {
        n += mark(node->children[i], self);
    }
    if (node->dictionary != NULL) {
        n += mark(node->dictionary, self);
    }
    return n;
}

/* `node` may be a consumer's copy; the nodes below it are in the arena. */
static void
node_release(struct ArrowArray *node)
{
    arena *self = node->private_data;
    arena_drop(self, mark(node, self));
}

void
ad_array_holder_free(struct ArrowDeviceArray *holder)
{
    arena *self = (arena *)((char *)holder - offsetof(arena, holder));
    arena_drop(self, 1 + mark(&holder->array, self));
}

static size_t
count_below(const struct ArrowArray *node)
{
    size_t n = (size_t)node->n_children;
    for (int64_t i = 0; i < node->n_children; i++) {
        const struct ArrowArray *child = node->children[i];
        if (!is_leaf(child)) {
            n += count_below(child);
        }
    }
    if (node->dictionary != NULL) {
        n += 1 + count_below(node->dictionary);
    }
    return n;
}

typedef struct cursor {
    arena *arena;
    struct ArrowArray *node;  /* next free node */
    struct ArrowArray **list; /* next free pointer */
} cursor;

static void fill_below(cursor *at, struct ArrowArray *node);

static inline void
fill(cursor *at, struct ArrowArray *node, const struct ArrowArray *source)
{
    *node = *source;
    node->release = node_release;
    node->private_data = at->arena;
    if (!is_leaf(node)) {
        fill_below(at, node);
    }
}

/* Copies the nodes below `node`, whose fields were just copied and still point
 * to the originals. */
static void
fill_below(cursor *at, struct ArrowArray *node)
{
    int64_t n = node->n_children;
    struct ArrowArray **sources = node->children;
    struct ArrowArray **list = at->list;
    struct ArrowArray *children = at->node;
    at->list += n;
    at->node += n;
    node->children = list;
    for (int64_t i = 0; i < n; i++) {
        list[i] = &children[i];
        fill(at, &children[i], sources[i]);
    }
    if (node->dictionary != NULL) {
        struct ArrowArray *dictionary = at->node++;
        fill(at, dictionary, node->dictionary);
        node->dictionary = dictionary;
    }
}

/* A slice of a batch is the offset of the struct, and pyarrow and pandas
 * accept no record batch with an offset. If the struct has no bitmap of its
 * own, its columns can be sliced instead. */
static bool
is_sliced_batch(const ad_array *array)
{
    return !ad_array_is_whole(array) && array->node->n_children > 0 &&
           array->schema.node->format[1] == 's' &&
           ad_array_validity(array) == NULL;
}

static void
cut_columns(struct ArrowArray *batch, const struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < batch->n_children; i++) {
        struct ArrowArray *column = batch->children[i];
        bool is_null_type = schema->children[i]->format[0] == 'n';
        column->offset += batch->offset;
        column->length = batch->length;
        if (is_null_type) {
            column->null_count = column->length;
        } else if (column->null_count != 0) {
            column->null_count = -1;
        }
    }
    batch->offset = 0;
}

ad_status
ad_array_export(const ad_array *array, struct ArrowDeviceArray **holder,
                ad_error *err)
{
    void *event = NULL; /* nothing to wait for */
    if (!ad_sync_is_done(array->sync)) {
        AD_RETURN_IF_ERR(ad_sync_event(array->sync, &event, err));
    }
    size_t n = is_leaf(array->node) ? 0 : count_below(array->node);
    size_t nbytes = sizeof(arena) + n * (sizeof(struct ArrowArray) +
                                         sizeof(struct ArrowArray *));
    arena *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    atomic_init(&self->live, n + 2);
    self->owner = ad_owner_ref(array->owner);
    self->sync = ad_sync_ref(array->sync);
    struct ArrowDeviceArray *out = &self->holder;
    cursor at = {self, self->nodes, (struct ArrowArray **)&self->nodes[n]};
    fill(&at, &out->array, array->node);
    out->array.offset = array->offset;
    out->array.length = array->length;
    out->array.null_count = array->null_count;
    if (is_sliced_batch(array)) {
        cut_columns(&out->array, array->schema.node);
    }
    out->device_id = array->device.id;
    out->device_type = array->device.type;
    out->sync_event = event;
    out->reserved[0] = out->reserved[1] = out->reserved[2] = 0;
    *holder = out;
    return AD_OK;
}
