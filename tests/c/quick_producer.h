/* A producer of a device stream with almost no cost: it returns the same batch
 * of int64 columns forever, and its release only marks the batch as released.
 * A benchmark with it measures the stream. Included by one file of a program.
 */
#ifndef AD_TESTS_QUICK_PRODUCER_H
#define AD_TESTS_QUICK_PRODUCER_H

#include "abi/arrow_c.h"

#define MAX_COLUMNS 32

static struct ArrowSchema column_schema;
static struct ArrowSchema *column_schemas[MAX_COLUMNS];
static struct ArrowArray columns[MAX_COLUMNS];
static struct ArrowArray *column_list[MAX_COLUMNS];
static const void *struct_buffers[1];
static const void *column_buffers[2];
static int64_t data[4];
static struct ArrowDeviceArray batch;
static int n_columns;

static void
release_schema(struct ArrowSchema *self)
{
    self->release = NULL;
}

static void
release_array(struct ArrowArray *self)
{
    self->release = NULL;
}

static int
get_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *out)
{
    *out = (struct ArrowSchema){
        .format = "+s",
        .name = "",
        .n_children = n_columns,
        .children = column_schemas,
        .release = release_schema,
    };
    return 0;
}

static int
get_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *out)
{
    *out = batch;
    return 0;
}

static const char *
get_last_error(struct ArrowDeviceArrayStream *self)
{
    return NULL;
}

static void
release_stream(struct ArrowDeviceArrayStream *self)
{
    self->release = NULL;
}

static struct ArrowDeviceArrayStream
quick_producer(int n)
{
    n_columns = n;
    column_buffers[1] = data;
    column_schema = (struct ArrowSchema){
        .format = "l", .name = "x", .flags = 2, .release = release_schema};
    for (int i = 0; i < n; i++) {
        column_schemas[i] = &column_schema;
        columns[i] = (struct ArrowArray){
            .length = 4,
            .n_buffers = 2,
            .buffers = column_buffers,
            .release = release_array,
        };
        column_list[i] = &columns[i];
    }
    batch = (struct ArrowDeviceArray){
        .array = {.length = 4,
                  .n_buffers = 1,
                  .n_children = n,
                  .buffers = struct_buffers,
                  .children = column_list,
                  .release = release_array},
        .device_id = -1,
        .device_type = ARROW_DEVICE_CPU,
    };
    return (struct ArrowDeviceArrayStream){ARROW_DEVICE_CPU, get_schema,
                                           get_next,         get_last_error,
                                           release_stream,   NULL};
}

#endif /* AD_TESTS_QUICK_PRODUCER_H */
