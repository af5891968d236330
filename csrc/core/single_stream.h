/* A stream of one array: what consumers that only take streams are given, and
 * how a foreign stream is read when an array is wanted.
 *
 * Boxes as in schema.h: the consumer moves the struct out or leaves it, and
 * the box is freed in either case.
 */
#ifndef AD_CORE_SINGLE_STREAM_H
#define AD_CORE_SINGLE_STREAM_H

#include "abi/arrow_c.h"
#include "core/array.h"
#include "core/status.h"

/* A device stream that gives `array` once. */
AD_MUST_CHECK ad_status ad_device_stream_export(
    const ad_array *array, struct ArrowDeviceArrayStream **box, ad_error *err);
void ad_device_stream_box_free(struct ArrowDeviceArrayStream *box);

/* A host stream that gives `array`, which must be host memory, once. */
AD_MUST_CHECK ad_status ad_stream_export(const ad_array *array,
                                         struct ArrowArrayStream **box,
                                         ad_error *err);
void ad_stream_box_free(struct ArrowArrayStream *box);

/* Read a stream to its end as one array: none gives an empty array, one
 * chunk is taken as it is, several fail with AD_ERR_EXCHANGE. Takes over the
 * stream: it is released on success and on failure. May call foreign code
 * that blocks. */
AD_MUST_CHECK ad_status ad_device_stream_read_single(
    struct ArrowDeviceArrayStream *stream, ad_array *out, ad_error *err);
AD_MUST_CHECK ad_status ad_stream_read_single(struct ArrowArrayStream *stream,
                                              ad_array *out, ad_error *err);

#endif /* AD_CORE_SINGLE_STREAM_H */
