/* Contexts of the mock backend, and streams in them. */
#ifndef AD_TESTS_STREAM_REFS_H
#define AD_TESTS_STREAM_REFS_H

#include "order/stream_ref.h"
#include "order/sync.h"

#define CONTEXT(type, id)                                                     \
    ((ad_context){{type, id}, (void *)(uintptr_t)(0x1000 + (id))})

/* A pointer to the stream, which lives as long as the block. */
#define ON_OF(context, stream, keep)                                          \
    ((ad_stream_ref[1]){ad_stream_named(context, stream, keep)})
#define ON(type, id, stream) ON_OF(CONTEXT(type, id), stream, NULL)
/* In a context that is not known, on the device of the data. */
#define ON_DATA(sync, stream)                                                 \
    ON_OF(((ad_context){((const ad_sync *)(sync))->on.context.device, NULL}), \
          stream, NULL)

#endif
