/* Device owners: memory is released after its consumers are done.
 *
 * A device owner wraps the owner of device memory and records each stream on
 * which the memory was handed out. When the last reference is dropped:
 *   - With no recorded stream, or only the free stream, the memory is released
 *     at once. A use on the producer's stream is not recorded.
 *   - With a known free stream, that stream waits for an event on each
 *     recorded stream, and the release follows. The host does not block.
 *   - Otherwise the release is deferred until the events are complete
 *     (order/deferred_release.h).
 * On a stream that is being captured the event is recorded after the capture.
 * For another thread's per-thread stream it is recorded on the legacy stream.
 * No event can be recorded on a destroyed stream, or for a per-thread stream
 * whose thread has ended. The memory then waits until somebody waits for the
 * whole context (order/deferred_release.h). Where the runtime cannot do that,
 * the memory is kept for the life of the process.
 */
#ifndef AD_ORDER_DEVICE_OWNER_H
#define AD_ORDER_DEVICE_OWNER_H

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"
#include "order/streams.h"
#include "order/sync.h"

/* Wrap `inner` and take over its reference on success. The memory is released
 * and reused in the order of `free_stream`; NULL where it is not known. For
 * memory without a backend *out is `inner` itself. */
AD_MUST_CHECK ad_status ad_device_owner_new(ad_owner *inner,
                                            ad_context context,
                                            const ad_stream_ref *free_stream,
                                            ad_owner **out, ad_error *err);

/* Allocate an owner and its device owner in one block. *inner has `size`
 * bytes; the caller sets all but the base, and ops->destroy ends with free().
 * *out wraps *inner, or is *inner itself. The context's handle and the free
 * stream may not be known. */
AD_MUST_CHECK ad_status ad_device_owner_alloc(size_t size,
                                              const ad_owner_ops *ops,
                                              ad_context context,
                                              const ad_stream_ref *free_stream,
                                              ad_owner **inner, ad_owner **out,
                                              ad_error *err);

/* The library that gave the memory of `owner` away answers for later work on
 * its current stream, `producer`, which exists now, in a known context: uses
 * on it are not recorded. Nothing is released in the order of this stream.
 * Does nothing for an owner that is shared or has recorded a stream: arrowdev
 * has given that memory away itself. */
void ad_device_owner_set_producer(ad_owner *owner,
                                  const ad_stream_ref *producer);

/* Is there a device owner that records the uses of this owner's memory? False
 * means "not known" without memory for the search of a large tree. */
bool ad_owner_records(ad_owner *owner);

/* Record that work on the stream uses the memory of `owner` until the memory
 * is released. Applies to the device owners in a group too. Does nothing for
 * owners of host memory and for NULL. Takes a reference on the stream's
 * object. Recording a stream again costs a few loads. */
AD_MUST_CHECK ad_status ad_owner_record_stream(ad_owner *owner,
                                               const ad_stream_ref *on,
                                               ad_error *err);

/* The same for a consumer's stream, which may be being captured now. Memory
 * that is used in a capture only is not kept after its release in the same
 * capture: the graph's user keeps it, and the stream may be destroyed. */
AD_MUST_CHECK ad_status ad_owner_record_consumer(ad_owner *owner,
                                                 const ad_stream_ref *on,
                                                 ad_error *err);

/* A consumer that has named no stream gives the memory of `owner`, on
 * `device`, back. Its work may be pending on any stream for which the legacy
 * stream waits, so that one is recorded, of the context that is current on
 * this thread. `written` is the sync of the memory's content, for which the
 * consumer may not have waited; NULL: the legacy stream waits for it. Does
 * nothing on devices without a legacy stream. Cannot fail: where the stream
 * cannot be recorded, the memory waits for the whole context. */
void ad_owner_record_unnamed(ad_owner *owner, ad_device device,
                             ad_sync *written);

/* --- memory that arrowdev allocates -------------------------------------- */

/* Allocate `nbytes` of uninitialised memory in `context`, for later work on
 * the stream. *owner is a device owner whose free stream it is. For 0 bytes
 * *out and *owner are NULL, except on devices with AD_ALLOCATIONS. When
 * memory runs out the call waits for the deferred releases and tries once
 * more, then fails with AD_ERR_MEMORY. */
AD_MUST_CHECK ad_status ad_device_memory_new(ad_context context,
                                             const ad_stream_ref *on,
                                             int64_t nbytes, void **out,
                                             ad_owner **owner, ad_error *err);

/* Free memory of the backend's allocate(). The GIL is released meanwhile.
 * False, and nothing is done, where the runtime permits no call on this
 * thread: the destroy function that calls this ends with
 * ad_release_elsewhere() then. Not in a forked child. */
AD_MUST_CHECK bool ad_device_memory_free(ad_context context, ad_stream stream,
                                         void *data, size_t nbytes);

#endif /* AD_ORDER_DEVICE_OWNER_H */
