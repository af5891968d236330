#include <stdlib.h>

#include "model/array.h"

void
ad_array_never_released(struct ArrowArray *node)
{
    node->release = NULL;
}

/* --- over foreign memory ------------------------------------------------ */

/* One node with copies of its children's nodes, and references on the owners
 * of everything it borrows. The same allocation contains, after `kept`: the
 * copies, the pointers to the first n_children of them, and the list of
 * buffers. */
typedef struct built {
    ad_owner base;
    struct ArrowArray node;
    size_t n_kept;
    ad_owner *kept[]; /* spec->owner, then one per copied node */
} built;

static void
built_destroy(ad_owner *base)
{
    built *self = (built *)base;
    for (size_t i = 0; i < self->n_kept; i++) {
        ad_owner_unref(self->kept[i]);
    }
    free(self);
}

static ad_owner *const *
built_members(const ad_owner *base, size_t *n)
{
    const built *self = (const built *)base;
    *n = self->n_kept;
    return self->kept;
}

static const ad_owner_ops built_ops = {
    .destroy = built_destroy,
    .members = built_members,
    .name = "built array",
};

static void
copy_view(struct ArrowArray *copy, const ad_array *view)
{
    *copy = *view->node;
    copy->offset = view->offset;
    copy->length = view->length;
    copy->null_count = ad_array_null_count(view);
    copy->release = ad_array_never_released;
    copy->private_data = NULL;
}

static size_t
built_size(const ad_array_spec *spec, size_t n_copies)
{
    return sizeof(built) + (1 + n_copies) * sizeof(ad_owner *) +
           n_copies * sizeof(struct ArrowArray) +
           (size_t)spec->n_children * sizeof(struct ArrowArray *) +
           (size_t)spec->n_buffers * sizeof(void *);
}

static void
built_fill(built *self, const ad_array_spec *spec, size_t n_copies)
{
    size_t n_children = (size_t)spec->n_children;
    struct ArrowArray *copies = (struct ArrowArray *)&self->kept[1 + n_copies];
    struct ArrowArray **list = (struct ArrowArray **)&copies[n_copies];
    const void **buffers = (const void **)&list[n_children];
    self->node = (struct ArrowArray){
        .length = spec->length,
        .null_count = spec->null_count,
        .offset = spec->offset,
        .n_buffers = spec->n_buffers,
        .n_children = spec->n_children,
        .buffers = spec->n_buffers > 0 ? buffers : NULL,
        .children = n_children > 0 ? list : NULL,
        .dictionary = spec->dictionary != NULL ? &copies[n_children] : NULL,
        .release = ad_array_never_released,
    };
    for (int64_t i = 0; i < spec->n_buffers; i++) {
        buffers[i] = spec->buffers[i];
    }
    self->n_kept = 1 + n_copies;
    self->kept[0] = spec->memory.owner;
    for (size_t i = 0; i < n_copies; i++) {
        const ad_array *view =
            i < n_children ? &spec->children[i] : spec->dictionary;
        copy_view(&copies[i], view);
        self->kept[1 + i] = ad_owner_ref(view->memory.owner);
    }
    for (size_t i = 0; i < n_children; i++) {
        list[i] = &copies[i];
    }
}

static bool
any_readonly(const ad_array_spec *spec)
{
    bool readonly = spec->memory.readonly;
    for (int64_t i = 0; i < spec->n_children; i++) {
        readonly |= spec->children[i].memory.readonly;
    }
    return readonly ||
           (spec->dictionary != NULL && spec->dictionary->memory.readonly);
}

ad_status
ad_array_build(const ad_array_spec *spec, ad_array *out, ad_error *err)
{
    size_t n_copies = (size_t)spec->n_children + (spec->dictionary != NULL);
    size_t nbytes = built_size(spec, n_copies);
    built *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&self->base, &built_ops);
    if (!spec->is_given) {
        ad_memory_ref(&spec->memory);
    }
    built_fill(self, spec, n_copies);
    *out = (ad_array){
        .node = &self->node,
        .memory = {&self->base, spec->memory.sync, spec->memory.device,
                   any_readonly(spec)},
        .schema = ad_schema_ref(spec->schema),
        .offset = spec->offset,
        .length = spec->length,
        .null_count = spec->null_count,
    };
    /* Some consumers (nanoarrow, polars) require a bitmap if the count is
     * -1. */
    if (spec->null_count == -1) {
        out->null_count = ad_array_resolve_null_count(out, -1);
        self->node.null_count = out->null_count;
    }
    return AD_OK;
}

ad_status
ad_array_build_joined(const ad_joined_inputs *inputs, ad_array_spec *spec,
                      ad_array *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_sync_join(inputs->syncs.items, inputs->syncs.n,
                                  &spec->memory.sync, err));
    spec->memory.device = inputs->has_device ? inputs->device : AD_CPU;
    ad_status status = ad_array_build(spec, out, err);
    ad_sync_unref(spec->memory.sync);
    if (status != AD_OK) {
        return status;
    }
    status = ad_array_validate(spec->schema.node, out->node, err);
    if (status != AD_OK) {
        ad_array_clear(out);
    }
    return status;
}

/* --- arrays without rows ------------------------------------------------- */

/* Memory of all buffers of an array without rows: long enough for one offset,
 * aligned and padded as Arrow recommends. */
static const _Alignas(64) unsigned char zeros[64];

/* The buffer list of every type: no bitmap, then data. Types without a bitmap
 * start at the second entry. */
static const void *const empty_buffers[] = {NULL, zeros, zeros, zeros};

/* A block of nodes, followed by the lists of pointers to them. */
typedef struct empty {
    ad_owner base;
    struct ArrowArray nodes[];
} empty;

static void
empty_destroy(ad_owner *base)
{
    free(base);
}

static const ad_owner_ops empty_ops = {.destroy = empty_destroy,
                                       .name = "empty array"};

typedef struct cursor {
    struct ArrowArray *node;  /* next free node */
    struct ArrowArray **list; /* next free pointer */
} cursor;

static ad_status
fill_empty(const struct ArrowSchema *schema, cursor *at,
           struct ArrowArray **out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    struct ArrowArray *node = at->node++;
    struct ArrowArray **list = at->list;
    at->list += schema->n_children;
    /* The cast is safe: the specification does not let consumers write to the
     * list of buffers. */
    *node = (struct ArrowArray){
        .n_buffers = type.n_buffers,
        .buffers = (const void **)&empty_buffers[type.has_validity ? 0 : 1],
        .n_children = schema->n_children,
        .children = schema->n_children > 0 ? list : NULL,
        .release = ad_array_never_released,
    };
    for (int64_t i = 0; i < schema->n_children; i++) {
        AD_RETURN_IF_ERR(fill_empty(schema->children[i], at, &list[i], err));
    }
    if (schema->dictionary != NULL) {
        AD_RETURN_IF_ERR(
            fill_empty(schema->dictionary, at, &node->dictionary, err));
    }
    *out = node;
    return AD_OK;
}

ad_status
ad_array_empty(ad_schema schema, ad_array *out, ad_error *err)
{
    struct ArrowArray *root;
    size_t n = ad_schema_count_nodes(schema.node);
    size_t nbytes = sizeof(empty) + n * (sizeof(struct ArrowArray) +
                                         sizeof(struct ArrowArray *));
    empty *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&self->base, &empty_ops);
    cursor at = {self->nodes, (struct ArrowArray **)&self->nodes[n]};
    ad_status status = fill_empty(schema.node, &at, &root, err);
    if (status != AD_OK) {
        ad_owner_unref(&self->base);
        return status;
    }
    *out = (ad_array){
        .node = root,
        .memory = {.owner = &self->base, .device = AD_CPU},
        .schema = ad_schema_ref(schema),
    };
    return AD_OK;
}
