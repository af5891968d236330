#include "core/array_copy.h"

#include <stdlib.h>
#include <string.h>

#include "core/array_buffers.h"
#include "core/memory.h"
#include "core/owner_group.h"
#include "device/backend.h"

static ad_status copy_node(const ad_array *array, ad_array *out,
                           ad_error *err);

static ad_status
copy_buffer(const ad_array *array, int64_t i, const void **buffer,
            ad_owner **owner, ad_error *err)
{
    int64_t nbytes;
    ad_memory *memory;
    const void *source = array->node->buffers[i];
    if (source == NULL) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_array_buffer_size(array, i, &nbytes, err));
    AD_RETURN_IF_ERR(
        ad_memory_new(nbytes > 0 ? nbytes : AD_ALIGNMENT, &memory, err));
    if (nbytes == 0) {
        memset(memory->data, 0, AD_ALIGNMENT); /* a valid first offset */
    } else {
        memcpy(memory->data, source, (size_t)nbytes);
    }
    *buffer = memory->data;
    *owner = &memory->base;
    return AD_OK;
}

/* The parts of a node while its copy is put together. */
typedef struct parts {
    const void **buffers;
    ad_owner **owners;
    ad_array *children;
    ad_array dictionary;
    ad_owner *group;
    int64_t n_buffers;
    int64_t n_children;
} parts;

static void
parts_clear(parts *p)
{
    for (int64_t i = 0; p->owners != NULL && i < p->n_buffers; i++) {
        ad_owner_unref(p->owners[i]);
    }
    for (int64_t i = 0; p->children != NULL && i < p->n_children; i++) {
        ad_array_clear(&p->children[i]);
    }
    ad_array_clear(&p->dictionary);
    ad_owner_unref(p->group);
    free(p->buffers);
    free(p->owners);
    free(p->children);
}

static ad_status
parts_fill(const ad_array *array, parts *p, ad_error *err)
{
    p->n_buffers = array->node->n_buffers;
    p->n_children = array->node->n_children;
    p->buffers = calloc((size_t)p->n_buffers + 1, sizeof(*p->buffers));
    p->owners = calloc((size_t)p->n_buffers + 1, sizeof(*p->owners));
    p->children = calloc((size_t)p->n_children + 1, sizeof(*p->children));
    if (p->buffers == NULL || p->owners == NULL || p->children == NULL) {
        return ad_fail_memory(err, (size_t)(p->n_buffers + p->n_children + 2) *
                                       sizeof(ad_array));
    }
    for (int64_t i = 0; i < p->n_buffers; i++) {
        AD_RETURN_IF_ERR(
            copy_buffer(array, i, &p->buffers[i], &p->owners[i], err));
    }
    for (int64_t i = 0; i < p->n_children; i++) {
        ad_array child;
        AD_RETURN_IF_ERR(ad_array_child(array, i, &child, err));
        ad_status status = copy_node(&child, &p->children[i], err);
        ad_array_clear(&child);
        AD_RETURN_IF_ERR(status);
    }
    if (array->node->dictionary != NULL) {
        ad_array values;
        AD_RETURN_IF_ERR(ad_array_dictionary(array, &values, err));
        ad_status status = copy_node(&values, &p->dictionary, err);
        ad_array_clear(&values);
        AD_RETURN_IF_ERR(status);
    }
    return ad_owner_group_new(p->owners, (size_t)p->n_buffers, &p->group, err);
}

static ad_status
copy_node(const ad_array *array, ad_array *out, ad_error *err)
{
    parts p = {0};
    ad_status status = parts_fill(array, &p, err);
    if (status == AD_OK) {
        const ad_array_spec spec = {
            .schema = array->schema,
            .device = array->device,
            .length = array->length,
            .offset = array->offset,
            .null_count = array->null_count,
            .n_buffers = p.n_buffers,
            .buffers = p.buffers,
            .owner = p.group,
            .n_children = p.n_children,
            .children = p.children,
            .dictionary = p.dictionary.node != NULL ? &p.dictionary : NULL,
        };
        status = ad_array_build(&spec, out, err);
    }
    parts_clear(&p);
    return status;
}

ad_status
ad_array_copy(const ad_array *array, ad_array *out, ad_error *err)
{
    if (!ad_host_accessible(array->device)) {
        char name[AD_DEVICE_NAME_SIZE];
        ad_fail(err, AD_ERR_EXCHANGE, "device",
                "copy it in the producing library",
                "memory on %s cannot be copied: no runtime for it is "
                "supported by this version",
                ad_device_format(array->device, name));
        ad_error_device(err, array->device);
        return AD_ERR_EXCHANGE;
    }
    AD_RETURN_IF_ERR(ad_sync_require_ready(array->sync, "a host copy", err));
    return copy_node(array, out, err);
}
