/* One owner that holds several others, for an array whose buffers came from
 * different objects.
 */
#ifndef AD_BASE_OWNER_GROUP_H
#define AD_BASE_OWNER_GROUP_H

#include "base/owner.h"
#include "base/status.h"

/* Takes new references on all of `owners` (NULL entries are allowed). */
AD_MUST_CHECK ad_status ad_owner_group_new(ad_owner *const *owners, size_t n,
                                           ad_owner **out, ad_error *err);

#endif /* AD_BASE_OWNER_GROUP_H */
