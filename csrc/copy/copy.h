/* copy/: memory brought to another device, or to the host.
 *
 * One session per copy says which runtime works, in which context and on which
 * stream; arrays and tensors are copied, moved or read back through it.
 * Assumes trees that model/ has checked. Enqueues behind the data's event and
 * gives the result an event of its own; the host waits only where its memory
 * is the target. Any thread; no lock of its own.
 */

/* Copies between devices: to(), copy=True, dl_device=, device=.
 *
 * The copy is enqueued on the consumer's stream (ad_stream_choose), which waits
 * for the data first, and the result carries an event recorded there. Results
 * in host memory are valid on return: the host waits. Between two runtimes, and
 * two contexts that cannot reach each other's memory, the way leads through the
 * host, which blocks. Only the bytes of the rows that are meant are copied.
 * Memory of the CPU has been read on return: where the stream has nothing else
 * to do the host waits for that, else the bytes are copied first. Other host
 * memory is kept until it has been read. Refused on a stream that is being
 * captured. Where a stream may be chosen, NULL is: none was given.
 */
#ifndef AD_COPY_COPY_H
#define AD_COPY_COPY_H

#include "model/array.h"
#include "order/streams.h"
#include "model/tensor.h"

/* A contiguous copy ('C' or 'F'; 0: 'F' if it is contiguous so, else 'C') on
 * `target`, which may be the device it is on. Strided tensors are copied by
 * pitched copies; where those would be many, or of very short rows between
 * device and host, the whole extent goes through the host, which blocks.
 * AD_ERR_EXCHANGE, "strides", where that would be too much as well. */
AD_MUST_CHECK ad_status ad_tensor_copy_to(const ad_tensor *tensor,
                                          ad_device target,
                                          const ad_stream_choice *stream,
                                          char order, ad_tensor_value *out,
                                          ad_error *err);

/* A copy of the whole tree on `target`. Offsets into bitmaps stay modulo 8;
 * dictionaries and children go along. One allocation for all buffers, each
 * aligned to 64 bytes; where memory is named by handles, one for each. The size
 * of variable-length data on a device is read from its last offset, and offsets
 * of rows in the middle are counted anew on the host: both block. The sizes of
 * a view's buffers may lie on the host or the device; the copy has them where
 * it is. */
AD_MUST_CHECK ad_status ad_array_copy_to(const ad_array *array,
                                         ad_device target,
                                         const ad_stream_choice *stream,
                                         ad_array *out, ad_error *err);

/* What it takes to have on `target` what is on `found`. */
typedef enum ad_move {
    AD_MOVE_NONE,
    AD_MOVE_ALIAS, /* the same memory by another name */
    AD_MOVE_COPY
} ad_move;

ad_move ad_move_for(ad_device found, ad_device target);

/* An array on its way to another device. */
typedef struct ad_array_move {
    ad_array array;  /* as it will be; not to be touched before the end */
    bool is_awaited; /* by the host, at the end */
    bool is_written; /* it is a copy, perhaps one that is being written */
} ad_array_move;

/* Begin, and do not wait, not for a result in host memory either: the work is
 * enqueued on `stream`, or on arrowdev's own, whatever is current, and whoever
 * wants the array calls ad_array_move_end(). Where a
 * runtime cannot copy to pageable memory behind the caller's back (CUDA, HIP),
 * and where ad_array_copy_to() says so, this blocks nevertheless. The array's
 * memory does not change before it is released; if it `is_borrowed`, that of
 * the CPU may, from the return on. */
AD_MUST_CHECK ad_status ad_array_move_begin(const ad_array *array,
                                            bool is_borrowed, ad_device target,
                                            const ad_stream_choice *stream,
                                            ad_array_move *out, ad_error *err);

/* Exactly one of these: wait for it where it is the host's, and take it; or
 * give it up, whose memory is kept for as long as it is being written. Used
 * up on failure, too. */
AD_MUST_CHECK ad_status ad_array_move_end(ad_array_move *move, ad_array *out,
                                          ad_error *err);
void ad_array_move_drop(ad_array_move *move);

/* Read a few bytes of device memory, once it is ready. Blocks; refused during
 * graph capture. `owner` of the memory and `stream` may be NULL: where the read
 * fails, the owner is kept until the device is done. */
AD_MUST_CHECK ad_status ad_read_device(ad_device device, const void *data,
                                       ad_owner *owner, uint64_t offset,
                                       size_t nbytes, ad_sync *sync,
                                       const ad_stream_choice *stream,
                                       void *out, ad_error *err);

#endif /* AD_COPY_COPY_H */
