/* Import streams: another library orders its pending work on one of them when
 * it hands over data without a stream of the caller's.
 *
 * They are the own streams from AD_FIRST_IMPORT on. Each import takes one that
 * has no pending work, so that the work of one producer delays no data of
 * another. Where all have pending work, the import takes any. Where other
 * threads have taken all, it gets the stream for work after pending data.
 */
#ifndef AD_ORDER_IMPORT_STREAM_H
#define AD_ORDER_IMPORT_STREAM_H

#include "order/streams.h"

typedef struct ad_import_stream {
    ad_stream_ref on;
    ad_own_stream *taken; /* NULL: there is nothing to give back */
} ad_import_stream;

/* Take an import stream of the device's primary context, whose runtime is
 * open. */
AD_MUST_CHECK ad_status ad_import_stream_take(ad_device device,
                                              ad_import_stream *out,
                                              ad_error *err);

/* Give the stream back. `sync` was recorded on it after the producer's work.
 * It is NULL where the producer failed or nothing was recorded. Empties *self,
 * and does nothing where *self is empty. False where the stream had died with
 * its context, which is not known before it is used. The next import gets one
 * that lives. */
bool ad_import_stream_give(ad_import_stream *self, ad_sync *sync);

#endif /* AD_ORDER_IMPORT_STREAM_H */
