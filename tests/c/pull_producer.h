/* The scripted producer of test_array_stream.c and test_array_stream_sources.c. */
#ifndef AD_TESTS_PULL_PRODUCER_H
#define AD_TESTS_PULL_PRODUCER_H

#include "stream/array_stream.h"
#include "trees.h"

#define TYPE ARROW_DEVICE_EXT_DEV /* no runtime is loaded for it */

static ad_error err;
static int event;

/* A producer in C of `n_batches` batches of int64, with optional faults. */
typedef struct producer {
    int32_t device_type;
    int n_batches;
    int n_given;
    int n_released;
    int n_calls; /* of get_next */
    int n_asked; /* for the schema */
    int schema_code;
    int fail_at; /* this call of get_next returns next_code; -1: none */
    int next_code;
    int other_type_at; /* this batch is on `other_type`; -1: none */
    int32_t other_type;
    int other_schema_at; /* this batch has another schema; -1: none */
    int n_columns;       /* 0: a plain int64 */
    bool has_no_events;
    const char *message;
} producer;

static inline int
get_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out)
{
    producer *p = self->private_data;
    p->n_asked++;
    if (p->schema_code == 0) {
        *out =
            tree_take_schema(p->n_columns > 0 ? tree_wide_schema(p->n_columns)
                                              : tree_schema("l", "", 0));
    }
    return p->schema_code;
}

static inline int
get_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out)
{
    producer *p = self->private_data;
    if (p->n_calls++ == p->fail_at) {
        return p->next_code;
    }
    if (p->n_given == p->n_batches) {
        out->array.release = NULL;
        return 0;
    }
    struct ArrowArray *array =
        p->n_given == p->other_schema_at ? tree_array(2, false, 3, 0)
        : p->n_columns > 0               ? tree_wide_array(p->n_columns, 2)
                                         : tree_ints(2);
    *out = tree_take_array(array, p->has_no_events ? NULL : &event);
    out->device_type =
        p->n_given == p->other_type_at ? p->other_type : p->device_type;
    out->device_id = p->n_given;
    p->n_given++;
    return 0;
}

static const char *
get_last_error(struct ArrowDeviceArrayStream *self)
{
    return ((producer *)self->private_data)->message;
}

static inline void
release(struct ArrowDeviceArrayStream *self)
{
    producer *p = self->private_data;
    CHECK_INT(p->n_released, 0);
    p->n_released++;
    self->release = NULL;
}

static inline producer
sound(int n_batches)
{
    return (producer){.device_type = TYPE,
                      .n_batches = n_batches,
                      .fail_at = -1,
                      .other_type_at = -1,
                      .other_type = ARROW_DEVICE_VPI,
                      .other_schema_at = -1};
}

static inline struct ArrowDeviceArrayStream
struct_of(producer *p)
{
    return (struct ArrowDeviceArrayStream){
        p->device_type, get_schema, get_next, get_last_error, release, p};
}

static inline ad_array_stream *
open_stream(producer *p)
{
    struct ArrowDeviceArrayStream foreign = struct_of(p);
    ad_array_stream *stream;
    CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, &err),
              AD_OK);
    CHECK(foreign.release == NULL);
    return stream;
}

/* The struct of an export. */
static inline struct ArrowDeviceArrayStream
export_of(ad_array_stream *stream)
{
    struct ArrowDeviceArrayStream *holder;
    CHECK_INT(ad_array_stream_export_device(stream, &holder, &err), AD_OK);
    struct ArrowDeviceArrayStream out = *holder;
    holder->release = NULL;
    ad_device_stream_holder_free(holder);
    return out;
}

#endif /* AD_TESTS_PULL_PRODUCER_H */
