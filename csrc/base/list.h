/* A growable list.
 *
 *     AD_LIST(ad_array) arrays = {0};
 *     AD_RETURN_IF_ERR(ad_list_reserve(&arrays, 1, err));
 *     arrays.items[arrays.n++] = array;
 *     free(arrays.items);
 */
#ifndef AD_BASE_LIST_H
#define AD_BASE_LIST_H

#include <stddef.h>

#include "base/status.h"

/* {0} is an empty list. */
#define AD_LIST(type)                                                         \
    struct {                                                                  \
        type *items;                                                          \
        size_t n;                                                             \
        size_t room; /* capacity, in items */                                 \
    }

/* Make room for `extra` items after the last one. The caller must check the
 * status. AD_ERR_MEMORY leaves the list unchanged. */
#define ad_list_reserve(list, extra, err)                                     \
    ad_list_grow(&(list)->items, sizeof(*(list)->items), (list)->n + (extra), \
                 &(list)->room, err)

/* `items` is the address of the pointer to the items, each of `item_size`
 * bytes. Where *room is less than `wanted`, it at least doubles. */
AD_MUST_CHECK ad_status ad_list_grow(void *items, size_t item_size,
                                     size_t wanted, size_t *room,
                                     ad_error *err);

#endif /* AD_BASE_LIST_H */
