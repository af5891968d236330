/* Arrow C++ as the other end of an async stream, for C. Batches have one
 * column of int64; the first value of batch i is i.
 */
#ifndef AD_TESTS_ARROW_PEER_H
#define AD_TESTS_ARROW_PEER_H

#include "abi/arrow_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct arrow_script {
    long n_batches;
    long fail_at; /* this batch is an error; -1: none */
    int delay_ms; /* before each batch */
    int is_async; /* batches come from another thread, as unfinished futures */
} arrow_script;

/* Start a producer on its own thread. */
void *arrow_producer_start(struct ArrowAsyncDeviceStreamHandler *handler,
                           const arrow_script *script);
/* Wait for it, at most 20 s: 0, or -1 with a failure in `text`, or -2. */
int arrow_producer_join(void *producer, char *text, int size);

void *arrow_consumer_new(struct ArrowAsyncDeviceStreamHandler *handler,
                         int queue_size);
/* Read up to n batches (-1: all). Returns their number, and the error's text
 * or "". -1: no batch came for 10 s. -2: a batch had the wrong value. */
long arrow_consumer_read(void *consumer, long n, int delay_ms, char *text,
                         int size);
void arrow_consumer_drop(void *consumer);

#ifdef __cplusplus
}
#endif

#endif /* AD_TESTS_ARROW_PEER_H */
