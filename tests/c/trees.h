/* Trees of a producer in which every node and every list is its own
 * allocation, so that the sanitizers detect a use or a second release after
 * the release. Buffers are addresses that must not be read. Live nodes are
 * counted.
 */
#ifndef AD_TESTS_TREES_H
#define AD_TESTS_TREES_H

#include <stdarg.h>
#include <stdatomic.h>

#include "check.h"
#include "model/array.h"

#define TREE_MAX_CHILDREN 8

static atomic_int live_schemas;
static atomic_int live_arrays;

/* Device memory: a read of it crashes. */
static inline const void *
tree_buffer(int i)
{
    return (const void *)(uintptr_t)(64 * (i + 1));
}

static void
tree_release_schema(struct ArrowSchema *node)
{
    CHECK(node->release == tree_release_schema);
    for (int64_t i = 0; i < node->n_children; i++) {
        if (node->children[i]->release != NULL) {
            node->children[i]->release(node->children[i]);
        }
        free(node->children[i]);
    }
    if (node->dictionary != NULL) {
        node->dictionary->release(node->dictionary);
        free(node->dictionary);
    }
    free(node->private_data);
    node->release = NULL;
    atomic_fetch_sub(&live_schemas, 1);
}

/* Copies of the counts, because a test may change those in the struct. */
typedef struct tree_private {
    struct ArrowArray **children;
    int64_t n_children;
    struct ArrowArray *dictionary;
    const void **buffers;
} tree_private;

static void
tree_release_array(struct ArrowArray *node)
{
    CHECK(node->release == tree_release_array);
    tree_private *own = node->private_data;
    for (int64_t i = 0; i < own->n_children; i++) {
        if (own->children[i]->release != NULL) {
            own->children[i]->release(own->children[i]);
        }
        free(own->children[i]);
    }
    if (own->dictionary != NULL) {
        if (own->dictionary->release != NULL) {
            own->dictionary->release(own->dictionary);
        }
        free(own->dictionary);
    }
    free(own->children);
    free(own->buffers);
    free(own);
    node->release = NULL;
    atomic_fetch_sub(&live_arrays, 1);
}

/* A schema node with n children (struct ArrowSchema *), which it consumes. */
static inline struct ArrowSchema *
tree_schema(const char *format, const char *name, int n, ...)
{
    struct ArrowSchema *node = calloc(1, sizeof(*node));
    node->format = format;
    node->name = name;
    node->flags = ARROW_FLAG_NULLABLE;
    node->n_children = n;
    if (n > 0) {
        node->children = malloc((size_t)n * sizeof(*node->children));
    }
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) {
        node->children[i] = va_arg(args, struct ArrowSchema *);
    }
    va_end(args);
    node->private_data = node->children;
    node->release = tree_release_schema;
    atomic_fetch_add(&live_schemas, 1);
    return node;
}

/* An array node. Without `bitmap`, buffers[0] is NULL if the layout permits
 * it. */
static inline struct ArrowArray *
tree_array_n(int64_t length, bool bitmap, int n_buffers, int64_t n)
{
    struct ArrowArray *node = calloc(1, sizeof(*node));
    tree_private *own = calloc(1, sizeof(*own));
    node->length = length;
    node->n_buffers = n_buffers;
    node->n_children = own->n_children = n;
    own->buffers = malloc((size_t)(n_buffers + 1) * sizeof(void *));
    own->children = malloc((size_t)(n + 1) * sizeof(struct ArrowArray *));
    node->buffers = own->buffers;
    node->children = own->children;
    for (int i = 0; i < n_buffers; i++) {
        node->buffers[i] = i > 0 || bitmap ? tree_buffer(i) : NULL;
    }
    node->private_data = own;
    node->release = tree_release_array;
    atomic_fetch_add(&live_arrays, 1);
    return node;
}

static inline struct ArrowArray *
tree_array(int64_t length, bool bitmap, int n_buffers, int n, ...)
{
    struct ArrowArray *node = tree_array_n(length, bitmap, n_buffers, n);
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) {
        node->children[i] = va_arg(args, struct ArrowArray *);
    }
    va_end(args);
    return node;
}

/* A column of 64-bit integers without nulls. */
static inline struct ArrowArray *
tree_ints(int64_t length)
{
    return tree_array(length, false, 2, 0);
}

static inline struct ArrowSchema *
tree_schema_dictionary(struct ArrowSchema *node, struct ArrowSchema *values)
{
    node->dictionary = values;
    return node;
}

static inline struct ArrowArray *
tree_array_dictionary(struct ArrowArray *node, struct ArrowArray *values)
{
    node->dictionary = values;
    ((tree_private *)node->private_data)->dictionary = values;
    return node;
}

/* A flat struct of n columns of int64. */
static inline struct ArrowSchema *
tree_wide_schema(int n)
{
    struct ArrowSchema *node = tree_schema("+s", "", 0);
    node->n_children = n;
    node->children = malloc((size_t)(n + 1) * sizeof(*node->children));
    node->private_data = node->children;
    for (int i = 0; i < n; i++) {
        node->children[i] = tree_schema("l", "column", 0);
    }
    return node;
}

static inline struct ArrowArray *
tree_wide_array(int n, int64_t length)
{
    struct ArrowArray *node = tree_array_n(length, false, 1, n);
    for (int i = 0; i < n; i++) {
        node->children[i] = tree_ints(length);
    }
    return node;
}

/* Moves the root out of its allocation. */
static inline struct ArrowSchema
tree_take_schema(struct ArrowSchema *node)
{
    struct ArrowSchema root = *node;
    free(node);
    return root;
}

static inline struct ArrowDeviceArray
tree_take_array(struct ArrowArray *node, void *event)
{
    struct ArrowDeviceArray root = {
        .array = *node,
        .device_id = 3,
        .device_type = ARROW_DEVICE_CUDA,
        .sync_event = event,
        .reserved = {-1, 7, 7},
    };
    free(node);
    return root;
}

static inline void
tree_import(struct ArrowSchema *schema, struct ArrowArray *array, void *event,
            ad_array *out)
{
    struct ArrowSchema s = tree_take_schema(schema);
    struct ArrowDeviceArray a = tree_take_array(array, event);
    ad_error err = {0};
    if (ad_array_import(&s, &a, false, out, &err) != AD_OK) {
        fprintf(stderr, "import failed: %s: %s\n", err.path, err.message);
        exit(1);
    }
    CHECK(s.release == NULL);
    CHECK(a.array.release == NULL);
}

static inline void
tree_check_all_gone(void)
{
    CHECK_INT(atomic_load(&live_schemas), 0);
    CHECK_INT(atomic_load(&live_arrays), 0);
}

/* An owner that records its destruction. */
typedef struct tree_owner {
    ad_owner base;
    bool destroyed;
} tree_owner;

static void
tree_owner_destroy(ad_owner *self)
{
    tree_owner *owner = (tree_owner *)self;
    CHECK(!owner->destroyed);
    owner->destroyed = true;
}

static const ad_owner_ops tree_owner_ops = {.destroy = tree_owner_destroy,
                                            .name = "test"};

static inline void
tree_owner_init(tree_owner *owner)
{
    ad_owner_init(&owner->base, &tree_owner_ops);
    owner->destroyed = false;
}

#endif /* AD_TESTS_TREES_H */
