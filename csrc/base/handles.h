/* Contexts, streams, events and spans.
 *
 * Streams and events are distinct one-field structs and never bare pointers,
 * so that the compiler rejects one in place of the other.
 */
#ifndef AD_BASE_HANDLES_H
#define AD_BASE_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/device.h"

/* A device and, where the runtime has contexts, a context on it: a CUcontext,
 * cl_context or DPCTLSyclContextRef. The handle is borrowed. The memory,
 * stream or event of a context keeps it alive. The backend keeps the context
 * of ad_backend.primary_context alive for the life of the process.
 *
 * A value has three words and is passed in memory: a copy of members that were
 * written just before waits for them. Where that counts, functions take a
 * pointer. */
typedef struct ad_context {
    ad_device device;
    void *handle; /* NULL: the runtime has no contexts, or not known */
} ad_context;

static inline bool
ad_context_equal(ad_context a, ad_context b)
{
    return ad_device_equal(a.device, b.device) && a.handle == b.handle;
}

/* A borrowed stream or queue of the runtime: CUstream, hipStream_t,
 * cl_command_queue, DPCTLSyclQueueRef, or the small number of a default
 * stream. */
typedef struct ad_stream {
    uintptr_t handle;
} ad_stream;

/* Handles of the streams that the runtime provides, for device types with
 * AD_DEFAULT_STREAMS. */
typedef enum ad_default_stream_handle {
    AD_STREAM_NULL = 0, /* one of the next two, as the runtime chooses */
    AD_STREAM_LEGACY = 1,
    AD_STREAM_PER_THREAD = 2
} ad_default_stream_handle;

/* Whether this is the per-thread default stream, whose handle names a
 * different stream on each thread. */
static inline bool
ad_stream_is_per_thread(ad_device device, ad_stream stream)
{
    return stream.handle == AD_STREAM_PER_THREAD &&
           (ad_device_traits(device.type) & AD_DEFAULT_STREAMS) != 0;
}

/* Whether this is a default stream, whose handle names a different stream in
 * each context. */
static inline bool
ad_stream_is_default(ad_device device, ad_stream stream)
{
    return stream.handle <= AD_STREAM_PER_THREAD &&
           (ad_device_traits(device.type) & AD_DEFAULT_STREAMS) != 0;
}

/* The legacy default stream of a device type with AD_DEFAULT_STREAMS. It waits
 * for the blocking streams of its context, per-thread ones among them. HIP has
 * it as the NULL stream. */
static inline ad_stream
ad_stream_legacy(ad_device device)
{
    const bool has_handle =
        (ad_device_traits(device.type) & AD_CUDA_STREAMS) != 0;
    return (ad_stream){has_handle ? AD_STREAM_LEGACY : AD_STREAM_NULL};
}

/* An event of the runtime: CUevent, hipEvent_t, cl_event or
 * DPCTLSyclEventRef. NULL means no event. */
typedef struct ad_event {
    void *handle;
} ad_event;

/* The start of a range of bytes in a context. On devices whose memory is named
 * by handles, `data` is the handle and `offset` is never added to it. */
typedef struct ad_span {
    ad_context context; /* AD_CPU: host memory of any kind */
    void *data;
    uint64_t offset; /* bytes */
} ad_span;

#endif /* AD_BASE_HANDLES_H */
