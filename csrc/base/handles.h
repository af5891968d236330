/* Where memory lies and work runs, and the two handles that order work.
 *
 * Streams and events are distinct one-field structs, never a bare pointer, so
 * that the compiler sees when one is passed for the other.
 */
#ifndef AD_BASE_HANDLES_H
#define AD_BASE_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/device.h"

/* A device and, where the runtime has such a thing, the context on it: a
 * CUcontext, cl_context, DPCTLSyclContextRef. Borrowed: contexts that arrowdev
 * sees are kept by the memory, stream or event they belong to, or, for the
 * one of ad_backend.primary_context, by the backend for as long as the process
 * lives. */
typedef struct ad_context {
    ad_device device;
    void *handle; /* NULL: the runtime has none */
} ad_context;

static inline bool
ad_context_equal(ad_context a, ad_context b)
{
    return ad_device_equal(a.device, b.device) && a.handle == b.handle;
}

/* A stream or queue of the runtime: CUstream, hipStream_t, cl_command_queue,
 * DPCTLSyclQueueRef, or one of the small numbers that stand for a default
 * stream. Borrowed. */
typedef struct ad_stream {
    uintptr_t handle;
} ad_stream;

/* Where device types have AD_DEFAULT_STREAMS: handles of streams that nobody
 * has to create. */
typedef enum ad_default_stream_handle {
    AD_STREAM_NULL = 0, /* one of the next two */
    AD_STREAM_LEGACY = 1,
    AD_STREAM_PER_THREAD = 2
} ad_default_stream_handle;

/* The per-thread default stream: on another thread the same handle is another
 * stream. */
static inline bool
ad_stream_is_per_thread(ad_device device, ad_stream stream)
{
    return stream.handle == AD_STREAM_PER_THREAD &&
           (ad_device_traits(device.type) & AD_DEFAULT_STREAMS) != 0;
}

/* One of the handles that mean another stream in each context. */
static inline bool
ad_stream_is_default(ad_device device, ad_stream stream)
{
    return stream.handle <= AD_STREAM_PER_THREAD &&
           (ad_device_traits(device.type) & AD_DEFAULT_STREAMS) != 0;
}

/* An event of the runtime: CUevent, hipEvent_t, cl_event, DPCTLSyclEventRef.
 * NULL: none. */
typedef struct ad_event {
    void *handle;
} ad_event;

/* A range of bytes in some context. On devices whose memory is named by
 * handles, `data` is the handle and `offset` is never added to it. */
typedef struct ad_span {
    ad_context context; /* AD_CPU: host memory, of any kind */
    void *data;
    uint64_t offset; /* bytes */
} ad_span;

#endif /* AD_BASE_HANDLES_H */
