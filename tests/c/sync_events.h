/* Events and streams for test_sync.c and test_sync_order.c.
 */
#ifndef AD_TESTS_SYNC_EVENTS_H
#define AD_TESTS_SYNC_EVENTS_H

#include "check.h"
#include "mock_backend.h"
#include "stream_refs.h"
#include "order/streams.h"
#include "order/sync.h"


static const ad_stream S = {0x100};
static const ad_stream T = {0x200};

static inline ad_sync *
record(int32_t type, ad_stream stream)
{
    ad_sync *sync = NULL;
    CHECK_INT(ad_sync_record(ON(type, 0, stream), &sync, NULL), AD_OK);
    return sync;
}

static inline void
count_down(ad_owner *owner)
{
    free(owner);
}

static const ad_owner_ops count_down_ops = {.destroy = count_down,
                                            .name = "test"};

static inline ad_owner *
new_owner(void)
{
    ad_owner *owner = malloc(sizeof(*owner));
    CHECK(owner != NULL);
    ad_owner_init(owner, &count_down_ops);
    return owner;
}

#endif /* AD_TESTS_SYNC_EVENTS_H */
