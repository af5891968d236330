/* A consumer of an async stream, and checks of its results.
 */
#ifndef AD_TESTS_ASYNC_READING_H
#define AD_TESTS_ASYNC_READING_H

#include "async_ends.h"

static atomic_int n_wakes;

static inline void
count_wake(void *context)
{
    CHECK(context == &n_wakes);
    atomic_fetch_add(&n_wakes, 1);
}

static inline ad_async_consumer *
consumer_of(int64_t queue_size)
{
    ad_async_consumer_options options = {
        .queue_size = queue_size,
        .wake = {count_wake, &n_wakes, NULL},
    };
    ad_async_consumer *self;
    atomic_store(&n_wakes, 0);
    CHECK_INT(ad_async_consumer_new(&options, &self, NULL), AD_OK);
    return self;
}

/* The same with a producer that has sent the schema int64. */
static inline ad_async_consumer *
consumer_with_schema(int64_t queue_size, fake_producer *producer)
{
    ad_async_consumer *self = consumer_of(queue_size);
    fake_producer_init(producer, self);
    CHECK_INT(say_schema(producer, "l"), 0);
    return self;
}

/* Releases the handler, closes the consumer, and checks that nothing leaks. */
static inline void
end_both(ad_async_consumer *consumer, fake_producer *producer)
{
    say_release(producer);
    ad_async_consumer_close(consumer);
    check_nothing_lives();
}

/* Sets *batch if the result is AD_ASYNC_READY. */
static inline ad_async_poll
pop(ad_async_consumer *consumer, ad_async_batch *batch)
{
    ad_async_poll poll;
    ad_error err = {0};
    if (ad_async_consumer_pop(consumer, batch, &poll, &err) != AD_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return poll;
}

static inline void
expect_batch(ad_async_consumer *consumer, int64_t length)
{
    ad_async_batch batch;
    CHECK_INT(pop(consumer, &batch), AD_ASYNC_READY);
    CHECK_INT(batch.array.length, length);
    ad_async_batch_clear(&batch);
}

static inline void
expect_poll(ad_async_consumer *consumer, ad_async_poll expected)
{
    ad_async_batch batch;
    CHECK_INT(pop(consumer, &batch), expected);
}

/* Twice, since an error stays. */
static inline void
expect_failure(ad_async_consumer *consumer, ad_status status, const char *text)
{
    ad_async_batch batch;
    ad_async_poll poll;
    ad_error err = {0};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ad_async_consumer_pop(consumer, &batch, &poll, &err),
                  status);
        CHECK_HAS(err.message, text);
    }
}

static inline void
expect_fault(ad_async_consumer *consumer, const char *text)
{
    expect_failure(consumer, AD_ERR_EXCHANGE, text);
    ad_error err;
    CHECK(consumer_fault(consumer, &err));
    CHECK_HAS(err.message, "broke a rule");
}

#endif /* AD_TESTS_ASYNC_READING_H */
