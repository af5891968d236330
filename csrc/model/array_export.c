#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "model/array.h"

#define NODE struct ArrowArray

/* Buffer lists are not copied: the reference on the owner keeps the originals
 * alive. */
typedef struct contents {
    ad_owner *owner;
    ad_sync *sync;
} contents;

typedef struct arena {
    atomic_size_t live;
    contents kept;
    struct ArrowDeviceArray holder;
    struct ArrowArray nodes[];
} arena;

static inline void
drop_contents(contents kept)
{
    ad_sync_unref(kept.sync);
    ad_owner_unref(kept.owner);
}

#include "model/export_nodes.inc"

void
ad_array_holder_free(struct ArrowDeviceArray *holder)
{
    arena *self = (arena *)((char *)holder - offsetof(arena, holder));
    arena_drop(self, HOLDER + mark(&holder->array, self));
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

/* Consumers take the id -1 for "this type has no ids". */
static ad_status
fail_unknown_device(const ad_array *array, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(
        err, array->device, "device",
        "name the device when you import, as in device=\"cuda:0\"",
        "an Arrow device array needs the id of the device, and that of %s is "
        "not known",
        ad_device_format(array->device, name));
}

ad_status
ad_array_export(const ad_array *array, struct ArrowDeviceArray **holder,
                ad_error *err)
{
    void *event = NULL; /* nothing to wait for */
    if (!ad_sync_is_done(array->sync)) {
        AD_RETURN_IF_ERR(ad_sync_event(array->sync, &event, err));
    }
    if (ad_device_is_unknown(array->device)) {
        return fail_unknown_device(array, err);
    }
    size_t n = count_below(array->node);
    size_t nbytes = sizeof(arena) + n * (sizeof(struct ArrowArray) +
                                         sizeof(struct ArrowArray *));
    arena *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    atomic_init(&self->live, HOLDER + n + 1);
    self->kept =
        (contents){ad_owner_ref(array->owner), ad_sync_ref(array->sync)};
    struct ArrowDeviceArray *out = &self->holder;
    copy_node(&out->array, array->node, self);
    if (n > 0) {
        cursor at = {self->nodes, (struct ArrowArray **)&self->nodes[n]};
        fill_below(&out->array, self, &at);
    }
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
