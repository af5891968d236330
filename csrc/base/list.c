#include "base/list.h"

#include <stdlib.h>
#include <string.h>

#define SMALLEST 64 /* bytes */

static size_t
larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* memcpy copies the item pointer, because its type is not known here. */
ad_status
ad_list_grow(void *items, size_t item_size, size_t wanted, size_t *room,
             ad_error *err)
{
    void *old;
    if (wanted <= *room) {
        return AD_OK;
    }
    size_t longer = larger(larger(2 * *room, wanted), SMALLEST / item_size);
    memcpy(&old, items, sizeof(old));
    void *moved = realloc(old, longer * item_size);
    if (moved == NULL) {
        return ad_fail_memory(err, longer * item_size);
    }
    memcpy(items, &moved, sizeof(moved));
    *room = longer;
    return AD_OK;
}
