/* An ad_array_stream from the inside: for array_stream.c, which reads, and
 * array_stream_export.c, which shows it to others.
 */
#ifndef AD_STREAM_ARRAY_STREAM_INTERNAL_H
#define AD_STREAM_ARRAY_STREAM_INTERNAL_H

#include "stream/array_stream.h"

typedef enum ad_stream_condition {
    AD_STREAM_OPEN,
    AD_STREAM_ENDED,
    AD_STREAM_FAILED, /* by a failure of ours: the batch that was to come is lost */
    AD_STREAM_CLOSED
} ad_stream_condition;

struct ad_array_stream {
    ad_owner base;
    /* The next batch as a struct, whose release is NULL at the end: 0, or an
     * errno with `error` and the text filled in. */
    int (*pull)(ad_array_stream *self, struct ArrowDeviceArray *out);
    ad_schema schema;
    uint8_t *shape; /* of plain batches, see batch_shape.h; NULL: of others */
    int64_t n_columns;
    int32_t device_type;
    ad_stream_condition condition;
    /* What is read; released ones have no release. At most one is live. */
    struct ArrowDeviceArrayStream device;
    struct ArrowArrayStream host;
    ad_batch_source *source;
    int code;        /* of the last failure; 0: none */
    bool is_foreign; /* its text is the producer's to give */
    ad_error error;
};

/* A batch cannot be handed out, as self->error says: release it, and stay
 * failed. Returns the errno. */
int ad_array_stream_drop_batch(ad_array_stream *self,
                               struct ArrowDeviceArray *out);

/* The stream that such a struct is an export of; NULL: it is somebody
 * else's. */
ad_array_stream *
ad_array_stream_behind_device(const struct ArrowDeviceArrayStream *stream);
ad_array_stream *
ad_array_stream_behind_host(const struct ArrowArrayStream *stream);

#endif /* AD_STREAM_ARRAY_STREAM_INTERNAL_H */
