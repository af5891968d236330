#include "model/with_validity.h"

#include "model/map_buffers.h"

typedef struct replacement {
    ad_buffer_map map;
    const ad_validity_change *change;
} replacement;

static ad_status
replace(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    const ad_validity_change *change = ((replacement *)map)->change;
    node->buffers[0] = change->validity;
    node->spec.null_count = change->null_count;
    node->spec.owner = change->owner;
    node->spec.sync = change->sync;
    node->shares_below = true;
    return AD_OK;
}

ad_status
ad_array_with_validity(const ad_array *array, const ad_validity_change *change,
                       ad_array *out, ad_error *err)
{
    replacement self = {{replace}, change};
    return ad_map_buffers(array, &self.map, out, err);
}
