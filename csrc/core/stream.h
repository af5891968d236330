/* Which stream: the caller's, the thread's, or arrowdev's own.
 */
#ifndef AD_CORE_STREAM_H
#define AD_CORE_STREAM_H

#include <stdbool.h>

#include "core/owner.h"
#include "core/place.h"
#include "core/status.h"

/* A stream that somebody named, and what keeps it. */
typedef struct ad_stream_choice {
    bool is_given;
    ad_stream stream;
    ad_owner *keep; /* the stream's object; borrowed, may be NULL */
} ad_stream_choice;

/* The per-thread default stream (2 on CUDA and ROCm): on another thread the
 * same number is another stream. */
static inline bool
ad_stream_is_per_thread(ad_device device, ad_stream stream)
{
    return stream.handle == 2 && (ad_device_traits(device.type) &
                                  (AD_CUDA_STREAMS | AD_ROCM_STREAMS)) != 0;
}

/* A number that no other thread of this process has or will have. */
uint64_t ad_thread_number(void);

/* arrowdev's own stream in a place: in order, does not synchronize with
 * default streams, made on first use, lives as long as the process. */
AD_MUST_CHECK ad_status ad_stream_own(ad_place place, ad_stream *out,
                                      ad_error *err);

/* --- use_stream ------------------------------------------------------------ */

/* Make `stream` this thread's current one for `device`, until the matching
 * pop. Takes a reference on `keep`. */
AD_MUST_CHECK ad_status ad_stream_push(ad_device device, ad_stream stream,
                                       ad_owner *keep, ad_error *err);

/* Undo the last push on this thread; it must be the one of this device. */
void ad_stream_pop(ad_device device);

/* This thread's current stream for `device`, if there is one. */
bool ad_stream_current(ad_device device, ad_stream_choice *out);

/* `wanted` if it is given, else the thread's current stream, else arrowdev's
 * own; and the place in which that stream runs (`place` is where it is
 * expected). */
AD_MUST_CHECK ad_status ad_stream_choose(ad_place place,
                                         const ad_stream_choice *wanted,
                                         ad_stream *out, ad_place *out_place,
                                         ad_error *err);

#endif /* AD_CORE_STREAM_H */
