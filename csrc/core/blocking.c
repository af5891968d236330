#include "core/blocking.h"

#include <stddef.h>

static ad_blocking_hooks hooks;

void
ad_blocking_set_hooks(ad_blocking_hooks new_hooks)
{
    hooks = new_hooks;
}

void *
ad_blocking_begin(void)
{
    return hooks.begin != NULL ? hooks.begin() : NULL;
}

void
ad_blocking_end(void *ticket)
{
    if (ticket != NULL) {
        hooks.end(ticket);
    }
}
