/* A source of batches that waits for what an async stream brings: what
 * AsyncArrayStream.to_stream() makes of it.
 *
 * It may be asked on any thread, with or without the GIL, and waits without.
 * While it does, Python's signal handlers run where they always do; and it ends
 * with an error when the interpreter is about to go.
 */
#ifndef AD_PYTHON_STREAMS_ASYNC_SOURCE_H
#define AD_PYTHON_STREAMS_ASYNC_SOURCE_H

#include "stream/array_stream.h"
#include "async/consumer_queue.h"
#include "support/saved_exception.h"

/* Is an error with this code what the producer said in on_error? Then *said is
 * all of it. */
bool ad_async_is_reported(ad_consumer_queue *queue, int code,
                          ad_async_error *said);

/* Raise it, whole. Returns NULL. */
PyObject *ad_async_raise_reported(ad_state *state, const ad_async_error *said);

/* A stream that reads the queue from then on, and cancels it when it is
 * closed. Blocks until the schema is there. A batch with metadata, which a
 * pull stream cannot pass on, is an error, unless `drops_metadata`. */
AD_MUST_CHECK ad_status ad_async_source_stream(ad_state *state,
                                               ad_consumer_queue *queue,
                                               bool drops_metadata,
                                               ad_array_stream **out,
                                               ad_error *err);

#endif /* AD_PYTHON_STREAMS_ASYNC_SOURCE_H */
