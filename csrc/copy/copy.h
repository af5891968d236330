/* copy/: copies of memory to another device or to the host.
 *
 * Each copy has one session, with its runtime, context and stream. Arrays and
 * tensors are copied, moved and read back in sessions. Trees must have passed
 * the checks of model/. Work is enqueued after the data's event, and the
 * result has an event of its own; the host waits only for results in its
 * memory. Any thread may call this; it has no lock of its own.
 */

/* Copies between devices: to(), copy=True, dl_device=, device=.
 *
 * The copy is enqueued on the consumer's stream (ad_stream_choose). That
 * stream waits for the data first, and the result carries an event recorded on
 * it. Results in host memory are valid on return, because the host waits. A
 * copy between two runtimes, or between two contexts that cannot access each
 * other's memory, goes through the host and blocks. Only the bytes of the
 * selected rows are copied.
 *
 * CPU memory has been read on return: the host waits if the stream is idle,
 * otherwise the bytes are first copied to staging memory. Other host memory is
 * kept alive until it has been read. Copies are refused on a stream that is
 * being captured. Wherever a stream may be chosen, NULL means that none was
 * given.
 */
#ifndef AD_COPY_COPY_H
#define AD_COPY_COPY_H

#include "model/array.h"
#include "order/streams.h"
#include "model/tensor.h"

/* Makes a contiguous copy on `target`, which may be the tensor's own device.
 * `order` is 'C' or 'F'; 0 selects 'F' if the tensor is contiguous in that
 * order, else 'C'. Strided tensors are copied by pitched copies. Where there
 * would be too many of them, or very short rows between device and host, the
 * whole extent goes through the host, which blocks. Fails with
 * AD_ERR_EXCHANGE, "strides", where the extent is too large as well. `why` is
 * the reason for the logger (base/log.h); NULL: another call reports it. */
AD_MUST_CHECK ad_status ad_tensor_copy_to(const ad_tensor *tensor,
                                          ad_device target,
                                          const ad_stream_ref *stream,
                                          char order, const char *why,
                                          ad_tensor_value *out, ad_error *err);

/* Copies the whole tree to `target`, with the rows of `array` only (see
 * ad_plan_make()): every node of the copy has offset 0, and the bits after the
 * last row are zeros. All buffers share one allocation, each aligned to 64
 * bytes; on devices that name memory by handles, each buffer has its own
 * allocation. Bits in device memory are moved by a kernel; where there is
 * none, the copy goes through the host. On a device, the size of
 * variable-length data is read from its last offset, and the offsets of a
 * slice, its views and run ends are rebased on the host: all block. The sizes
 * of a view's buffers may be in host or device memory; the copy has them on
 * the target. `why` is the reason in messages; NULL: the user asked for the
 * copy, or for the device. */
AD_MUST_CHECK ad_status ad_array_copy_to(const ad_array *array,
                                         ad_device target,
                                         const ad_stream_ref *stream,
                                         const char *why, ad_array *out,
                                         ad_error *err);

/* How memory on `found` becomes memory on `target`. */
typedef enum ad_move {
    AD_MOVE_NONE,
    AD_MOVE_ALIAS, /* the same memory under another device */
    AD_MOVE_COPY
} ad_move;

ad_move ad_move_for(ad_device found, ad_device target);

/* An array that is being moved to another device. */
typedef struct ad_array_move {
    ad_array array;  /* the result; not to be used before the end */
    bool is_awaited; /* the host waits for it at the end */
    bool is_written; /* the array is a copy, which may still be in progress */
    ad_owner *staging; /* owns `from`, where the work of the copy writes; NULL:
                          it writes the array itself */
    const void *from;  /* `nbytes` bytes, which the end copies to `to` */
    void *to;
    size_t nbytes;
    ad_host_block *bits; /* a list of bits that the end moves to their place,
                            or NULL */
} ad_array_move;

/* Begins a move without waiting, not even for a result in host memory. The
 * work is enqueued on `stream`, or on arrowdev's own stream whatever the
 * current one is. ad_array_move_end() returns the array. Where copies to
 * pageable memory block (CUDA, HIP), the work writes to pinned memory, and the
 * end copies the bytes. The call still blocks where there is no pinned memory,
 * and where ad_array_copy_to() says so. The array's memory does not change
 * before it is released; if the array `is_borrowed`, its CPU memory may change
 * once the call has returned. */
AD_MUST_CHECK ad_status ad_array_move_begin(const ad_array *array,
                                            bool is_borrowed, ad_device target,
                                            const ad_stream_ref *stream,
                                            ad_array_move *out, ad_error *err);

/* Call exactly one of these for each move. The first waits for an array in
 * host memory and returns it. The second abandons the move; the memory is kept
 * alive while it is being written. Both consume the move, also on failure. */
AD_MUST_CHECK ad_status ad_array_move_end(ad_array_move *move, ad_array *out,
                                          ad_error *err);
void ad_array_move_drop(ad_array_move *move);

/* Reads a few bytes of device memory once it is ready. Blocks; refused during
 * graph capture. `owner` (of the memory) and `stream` may be NULL. If the read
 * fails, the owner is kept alive until the device is done. */
AD_MUST_CHECK ad_status ad_read_device(ad_device device, const void *data,
                                       ad_owner *owner, uint64_t offset,
                                       size_t nbytes, ad_sync *sync,
                                       const ad_stream_ref *stream, void *out,
                                       ad_error *err);

#endif /* AD_COPY_COPY_H */
