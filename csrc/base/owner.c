#include "base/owner.h"

#include <stdlib.h>

typedef struct owner_group {
    ad_owner base;
    size_t n;
    ad_owner *owners[];
} owner_group;

static void
group_destroy(ad_owner *base)
{
    owner_group *group = (owner_group *)base;
    for (size_t i = 0; i < group->n; i++) {
        ad_owner_unref(group->owners[i]);
    }
    free(group);
}

static ad_owner *const *
group_members(const ad_owner *base, size_t *n)
{
    const owner_group *group = (const owner_group *)base;
    *n = group->n;
    return group->owners;
}

static const ad_owner_ops group_ops = {
    .destroy = group_destroy,
    .members = group_members,
    .name = "group",
};

ad_status
ad_owner_group_new(ad_owner *const *owners, size_t n, ad_owner **out,
                   ad_error *err)
{
    size_t nbytes = sizeof(owner_group) + n * sizeof(owners[0]);
    owner_group *group = malloc(nbytes);
    if (group == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&group->base, &group_ops);
    group->n = n;
    for (size_t i = 0; i < n; i++) {
        group->owners[i] = ad_owner_ref(owners[i]);
    }
    *out = &group->base;
    return AD_OK;
}
