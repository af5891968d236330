/* Device owners over the mock backend, for tests of order/device_owner.h. */
#ifndef AD_TESTS_OWNERS_H
#define AD_TESTS_OWNERS_H

#include "order/device_owner.h"

#include "check.h"
#include "mock_backend.h"
#include "tracked.h"

#define CONTEXT(type, id)                                                     \
    ((ad_context){{type, id}, (void *)(uintptr_t)(0x1000 + (id))})

static const ad_stream P = {0x100}; /* the producer's */
static const ad_stream S = {0x200};
static const ad_stream T = {0x300};

static atomic_int n_released;

static inline ad_owner *
owner_of(int32_t type, const ad_stream *producer)
{
    ad_stream_choice choice = {producer != NULL, {0}, NULL};
    ad_owner *owner;
    if (producer != NULL) {
        choice.stream = *producer;
    }
    atomic_store(&n_released, 0);
    CHECK_INT(ad_device_owner_new(tracked_new(&n_released), CONTEXT(type, 0),
                                  &choice, &owner, NULL),
              AD_OK);
    return owner;
}

static inline void
record_on(ad_owner *owner, int32_t type, ad_stream stream)
{
    CHECK_INT(
        ad_owner_record_stream(owner, CONTEXT(type, 0), stream, NULL, NULL),
        AD_OK);
}

#endif
