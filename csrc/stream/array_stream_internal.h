/* The inside of an ad_array_stream: of array_stream.c, which reads it, and of
 * array_stream_struct.c, which is built on that.
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
    /* What is read: one of these. A struct that is not has no release. */
    bool is_host; /* `host`, where it is a struct, else `device` */
    struct ArrowDeviceArrayStream device;
    struct ArrowArrayStream host;
    ad_batch_source *source;
    int code;        /* of the last failure; 0: none */
    bool is_foreign; /* its text is the producer's to give */
    ad_error error;
};

/* A stream that reads nothing yet; its `pull` is to be set. NULL with an
 * error. */
ad_array_stream *ad_array_stream_new(ad_error *err);

/* What `pull` answers where the stream is not open. */
int ad_array_stream_not_open(ad_array_stream *self,
                             struct ArrowDeviceArray *out);

/* self->error says what is wrong, and to read on would leave a batch out: the
 * stream stays failed. Returns the errno. drop_batch releases that batch. */
int ad_array_stream_fail(ad_array_stream *self);
int ad_array_stream_drop_batch(ad_array_stream *self,
                               struct ArrowDeviceArray *out);

/* get_last_error of the struct; NULL where there is none. */
const char *ad_array_stream_foreign_text(ad_array_stream *self);

#endif /* AD_STREAM_ARRAY_STREAM_INTERNAL_H */
