/* Device owners over the mock backend, for tests of order/device_owner.h. */
#ifndef AD_TESTS_OWNERS_H
#define AD_TESTS_OWNERS_H

#include "order/device_owner.h"

#include "check.h"
#include "mock_backend.h"
#include "stream_refs.h"
#include "tracked.h"


static const ad_stream P = {0x100}; /* the producer's */
static const ad_stream S = {0x200};
static const ad_stream T = {0x300};

static atomic_int n_released;

static inline ad_owner *
owner_of(int32_t type, const ad_stream *producer)
{
    ad_stream_ref free_stream = {.kind = AD_REF_NONE};
    ad_owner *owner;
    if (producer != NULL) {
        free_stream = ad_stream_named(CONTEXT(type, 0), *producer, NULL);
    }
    atomic_store(&n_released, 0);
    CHECK_INT(ad_device_owner_new(tracked_new(&n_released), CONTEXT(type, 0),
                                  &free_stream, &owner, NULL),
              AD_OK);
    return owner;
}

static inline void
record_on(ad_owner *owner, int32_t type, ad_stream stream)
{
    CHECK_INT(ad_owner_record_stream(owner, ON(type, 0, stream), NULL), AD_OK);
}

#endif
