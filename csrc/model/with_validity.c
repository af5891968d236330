#include "model/with_validity.h"

#include <stdlib.h>
#include <string.h>

static ad_status
build(const ad_array *array, const ad_rebuild *change,
      const void *const *buffers, const ad_array *children,
      const ad_array *dictionary, ad_array *out, ad_error *err)
{
    const ad_array_spec spec = {
        .schema = array->schema,
        .device = array->device,
        .length = array->length,
        .offset = array->offset,
        .null_count = change->null_count,
        .n_buffers = array->node->n_buffers,
        .buffers = buffers,
        .owner = change->owner,
        .n_children = array->node->n_children,
        .children = children,
        .dictionary = array->node->dictionary != NULL ? dictionary : NULL,
        .sync = change->sync,
        .readonly = array->readonly,
    };
    return ad_array_build(&spec, out, err);
}

ad_status
ad_array_rebuild(const ad_array *array, const ad_rebuild *change,
                 ad_array *out, ad_error *err)
{
    const struct ArrowArray *node = array->node;
    size_t n_children = (size_t)node->n_children;
    size_t n_buffers = (size_t)node->n_buffers;
    ad_array *below = calloc(n_children + 1, sizeof(*below));
    const void **buffers = malloc(n_buffers * sizeof(*buffers));
    ad_status status = AD_OK;
    if (below == NULL || buffers == NULL) {
        status = ad_fail_memory(err, (n_children + 1) * sizeof(*below));
        goto done;
    }
    for (size_t i = 0; i < n_children && status == AD_OK; i++) {
        status = ad_array_child(array, (int64_t)i, &below[i], err);
    }
    if (status == AD_OK && node->dictionary != NULL) {
        status = ad_array_dictionary(array, &below[n_children], err);
    }
    if (status == AD_OK) {
        memcpy(buffers, node->buffers, n_buffers * sizeof(*buffers));
        buffers[0] = change->validity;
        status =
            build(array, change, buffers, below, &below[n_children], out, err);
    }

done:
    for (size_t i = 0; below != NULL && i <= n_children; i++) {
        ad_array_clear(&below[i]);
    }
    free(buffers);
    free(below);
    return status;
}
