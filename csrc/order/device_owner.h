/* The second edge: "the consumer is done".
 *
 * A device owner wraps the owner of device memory and records each stream on
 * which the memory was handed out. At its last reference:
 *   nothing recorded, or only the free stream   the memory is
 *   released
 *                                                      at once
 *   the free stream is known                     it waits for an event
 *                                                      recorded on each
 *                                                      recorded stream, and
 *                                                      the release follows; no
 *                                                      host block
 *   else                                               the release of the
 *   memory is deferred
 *                                                      until the events are
 *                                                      complete
 *                                                      (order/deferred_release.h)
 * An event that cannot be recorded (a destroyed stream, another thread's
 * per-thread stream, one that is being captured) counts as: wait until the
 * whole context is idle; where the runtime cannot wait for that, the memory is
 * kept for good.
 */
#ifndef AD_ORDER_DEVICE_OWNER_H
#define AD_ORDER_DEVICE_OWNER_H

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"
#include "order/streams.h"

/* Wrap `inner`, whose reference is taken over on success. `free_stream` is the
 * stream in whose order the memory is released and used again, if it is
 * known. For memory without a backend `inner` itself is returned. */
AD_MUST_CHECK ad_status ad_device_owner_new(
    ad_owner *inner, ad_context context, const ad_stream_choice *free_stream,
    ad_owner **out, ad_error *err);

/* The same in one allocation: *inner is an owner of `size` bytes, of which the
 * caller sets all but the base, and ops->destroy ends with free(); *out wraps
 * it, or is *inner itself. The context's handle and the free stream are not
 * known. */
AD_MUST_CHECK ad_status ad_device_owner_alloc(size_t size,
                                              const ad_owner_ops *ops,
                                              ad_device device,
                                              ad_owner **inner, ad_owner **out,
                                              ad_error *err);

/* Work on `stream` in `context` uses the memory of `owner` from now on, until
 * it is released. Finds the device owners in a group too; a no-op for owners
 * of host memory and of memory that lives forever (NULL). Takes a reference on
 * `keep`. Recording a stream again costs a few loads. */
AD_MUST_CHECK ad_status ad_owner_record_stream(ad_owner *owner,
                                               ad_context context,
                                               ad_stream stream,
                                               ad_owner *keep, ad_error *err);

#endif /* AD_ORDER_DEVICE_OWNER_H */
