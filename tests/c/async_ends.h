/* Scripted ends of an async stream: a foreign producer that makes the calls of
 * a test, and a foreign handler that records its calls. Every task, schema and
 * array is counted.
 */
#ifndef AD_TESTS_ASYNC_ENDS_H
#define AD_TESTS_ASYNC_ENDS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "async/consumer.h"
#include "model/metadata.h"
#include "tracked.h"
#include "trees.h"

static atomic_int live_tasks;
static atomic_int n_null_extracts; /* extract_data with NULL */

/* A metadata blob with one pair. */
static inline char *
blob_of(const char *key, const char *value)
{
    ad_metadata_pair pair = {key, (int32_t)strlen(key), value,
                             (int32_t)strlen(value)};
    char *blob;
    CHECK_INT(ad_metadata_build(&pair, 1, &blob, NULL), AD_OK);
    return blob;
}

static inline void
check_blob(const char *blob, const char *key, const char *value)
{
    ad_metadata_pair pair;
    bool found;
    CHECK(blob != NULL);
    CHECK_INT(ad_metadata_find(blob, key, &pair, &found, NULL), AD_OK);
    CHECK(found);
    CHECK_INT(pair.value_length, strlen(value));
    CHECK(memcmp(pair.value, value, strlen(value)) == 0);
}

/* The first rule that the producer broke; false: none. */
static inline bool
consumer_fault(ad_async_consumer *self, ad_error *out)
{
    ad_mutex_lock(&self->mutex);
    *out = self->fault;
    ad_mutex_unlock(&self->mutex);
    return out->status != AD_OK;
}

static inline bool
consumer_is_released(ad_async_consumer *self)
{
    ad_mutex_lock(&self->mutex);
    bool is_released = self->state == AD_ASYNC_RELEASED;
    ad_mutex_unlock(&self->mutex);
    return is_released;
}

/* A batch of `length` int64 on the host. */
static inline struct ArrowDeviceArray
batch_of(int64_t length)
{
    struct ArrowDeviceArray batch = tree_take_array(tree_ints(length), NULL);
    batch.device_type = ARROW_DEVICE_CPU;
    batch.device_id = -1;
    return batch;
}

static inline ad_array
array_of(int64_t length)
{
    struct ArrowSchema schema = tree_take_schema(tree_schema("l", "", 0));
    struct ArrowDeviceArray batch = batch_of(length);
    ad_array array;
    CHECK_INT(ad_array_import(&schema, &batch, false, &array, NULL), AD_OK);
    return array;
}

/* --- a foreign task -------------------------------------------------------- */

typedef struct fake_task {
    struct ArrowDeviceArray batch;
    int code;     /* what extract_data returns */
    bool is_void; /* returns 0 without an array, as Arrow C++ does */
} fake_task;

static int
fake_extract(struct ArrowAsyncTask *self, struct ArrowDeviceArray *out)
{
    fake_task *task = self->private_data;
    int code = task->code;
    atomic_fetch_add(&n_null_extracts, out == NULL);
    if (out != NULL && code == 0 && !task->is_void) {
        *out = task->batch;
    } else {
        task->batch.array.release(&task->batch.array);
    }
    free(task);
    atomic_fetch_sub(&live_tasks, 1);
    return code;
}

static inline struct ArrowAsyncTask
fake_task_of(struct ArrowDeviceArray batch)
{
    fake_task *task = calloc(1, sizeof(*task));
    task->batch = batch;
    atomic_fetch_add(&live_tasks, 1);
    return (struct ArrowAsyncTask){fake_extract, task};
}

/* --- a foreign producer ----------------------------------------------------- */

typedef struct fake_producer {
    struct ArrowAsyncProducer shown;
    struct ArrowAsyncDeviceStreamHandler *handler;
    atomic_long n_requests;
    atomic_long n_requested;
    atomic_int n_cancels;
    void (*on_request)(struct fake_producer *self);
    void (*on_cancel)(struct fake_producer *self);
} fake_producer;

static void
fake_request(struct ArrowAsyncProducer *shown, int64_t n)
{
    fake_producer *self = shown->private_data;
    atomic_fetch_add(&self->n_requests, 1);
    atomic_fetch_add(&self->n_requested, n);
    if (self->on_request != NULL) {
        self->on_request(self);
    }
}

static void
fake_cancel(struct ArrowAsyncProducer *shown)
{
    fake_producer *self = shown->private_data;
    atomic_fetch_add(&self->n_cancels, 1);
    if (self->on_cancel != NULL) {
        self->on_cancel(self);
    }
}

static inline void
fake_producer_init(fake_producer *self, ad_async_consumer *consumer)
{
    memset(self, 0, sizeof(*self));
    self->shown.device_type = ARROW_DEVICE_CPU;
    self->shown.request = fake_request;
    self->shown.cancel = fake_cancel;
    self->shown.private_data = self;
    self->handler = ad_async_consumer_handler(consumer);
    self->handler->producer = &self->shown;
}

static inline int
say_schema(fake_producer *self, const char *format)
{
    struct ArrowSchema schema = tree_take_schema(tree_schema(format, "x", 0));
    return self->handler->on_schema(self->handler, &schema);
}

static inline int
say_task(fake_producer *self, struct ArrowDeviceArray batch,
         const char *metadata)
{
    struct ArrowAsyncTask task = fake_task_of(batch);
    int code = self->handler->on_next_task(self->handler, &task, metadata);
    if (code != 0) { /* as every known producer; the consumer must not */
        struct ArrowDeviceArray refused = {0};
        CHECK_INT(task.extract_data(&task, &refused), 0);
        refused.array.release(&refused.array);
    }
    return code;
}

static inline int
say_batch(fake_producer *self, int64_t length)
{
    return say_task(self, batch_of(length), NULL);
}

static inline int
say_end(fake_producer *self)
{
    return self->handler->on_next_task(self->handler, NULL, NULL);
}

static inline void
say_error(fake_producer *self, int code, const char *message)
{
    self->handler->on_error(self->handler, code, message, NULL);
}

/* Overwrites the producer's struct, so that a later use is detected. */
static inline void
say_release(fake_producer *self)
{
    self->handler->release(self->handler);
    self->handler = NULL;
    memset(&self->shown, 0xdb, sizeof(self->shown));
}

static inline void
check_nothing_lives(void)
{
    CHECK_INT(atomic_load(&live_tasks), 0);
    tree_check_all_gone();
}

#endif /* AD_TESTS_ASYNC_ENDS_H */
