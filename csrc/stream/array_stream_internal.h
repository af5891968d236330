/* The struct of an ad_array_stream, for array_stream.c and
 * array_stream_struct.c only.
 */
#ifndef AD_STREAM_ARRAY_STREAM_INTERNAL_H
#define AD_STREAM_ARRAY_STREAM_INTERNAL_H

#include <stdatomic.h>

#include "stream/array_stream.h"

typedef enum ad_array_stream_condition {
    AD_STREAM_OPEN,
    AD_STREAM_ENDED,
    AD_STREAM_FAILED /* by a failure of ours: a batch is lost */
} ad_array_stream_condition;

struct ad_array_stream {
    ad_owner base;
    /* The next batch as a struct, whose release is NULL at the end. Returns 0,
     * or an errno with `error` and the text set. */
    int (*pull)(ad_array_stream *self, struct ArrowDeviceArray *out);
    ad_schema schema;
    uint8_t *shape; /* see batch_shape.h; NULL: batches are not plain */
    int64_t n_columns;
    int32_t device_type;
    ad_array_stream_condition condition;
    /* A get_next of an exported struct runs. A release of the struct then
     * leaves its reference to the call, which drops it. */
    bool is_called;
    bool is_left;
    /* The stream reads one of the next three. The release of an unused struct
     * is NULL. */
    bool is_host;  /* a foreign struct is in `host`, not in `device` */
    bool with_gil; /* its batches on devices, see ad_array_import() */
    struct ArrowDeviceArrayStream device;
    struct ArrowArrayStream host;
    ad_batch_source *source;
    int code;        /* errno of the last failure; 0: none */
    bool is_foreign; /* the producer has the text of that failure */
    ad_error error;
};

/* A read within a read within a read ... takes stack, as does foreign code
 * between the two. So few streams cannot nest too deeply, and reads are not
 * counted. */
#define AD_FEW_STREAMS 50
extern atomic_size_t ad_streams_alive;

static inline bool
ad_stream_reads_count(void)
{
    return __builtin_expect(
        atomic_load_explicit(&ad_streams_alive, memory_order_relaxed) >
            AD_FEW_STREAMS,
        0);
}

/* Around a read that another stream does, where reads count. AD_ERR_DEPTH
 * where the stack would not suffice for more; then ad_stream_ascend() is not
 * called. */
AD_MUST_CHECK ad_status ad_stream_descend(ad_error *err);
void ad_stream_ascend(void);

/* A stream without a producer; the caller sets `pull`. NULL on failure, with
 * `err` set. */
ad_array_stream *ad_array_stream_new(ad_error *err);

/* The result of `pull` for a stream that is not open. */
int ad_array_stream_not_open(ad_array_stream *self,
                             struct ArrowDeviceArray *out);

/* Puts the stream into AD_STREAM_FAILED for self->error, since reading on
 * would skip a batch. Returns the errno. */
int ad_array_stream_fail(ad_array_stream *self);

/* Releases the batch and puts the stream into AD_STREAM_FAILED for
 * self->error, since reading on would skip the batch. Returns the errno. */
int ad_array_stream_drop_batch(ad_array_stream *self,
                               struct ArrowDeviceArray *out);

/* get_last_error of the foreign struct; NULL if it has none. */
const char *ad_array_stream_foreign_text(ad_array_stream *self);

#endif /* AD_STREAM_ARRAY_STREAM_INTERNAL_H */
