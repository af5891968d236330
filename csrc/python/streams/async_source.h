/* A batch source that reads an async stream, for AsyncArrayStream.to_stream().
 *
 * next() may be called on any thread, with or without the GIL, and waits
 * without it. Python's signal handlers run during the wait. The wait ends with
 * an error before the interpreter is finalized.
 */
#ifndef AD_PYTHON_STREAMS_ASYNC_SOURCE_H
#define AD_PYTHON_STREAMS_ASYNC_SOURCE_H

#include "stream/array_stream.h"
#include "async/consumer.h"
#include "support/py_stream.h"

/* Raises an error of the queue; an error of the producer with its complete
 * text, its code and its metadata. Returns NULL. */
PyObject *ad_async_raise(ad_state *state, ad_consumer_queue *queue,
                         const ad_error *err);

/* A stream that reads the queue from now on and cancels it when closed. Blocks
 * until the schema arrives. A pull stream cannot pass on the metadata of a
 * batch: a batch with metadata is an error unless `drops_metadata`. */
AD_MUST_CHECK ad_status ad_async_source_stream(ad_state *state,
                                               ad_consumer_queue *queue,
                                               bool drops_metadata,
                                               ad_array_stream **out,
                                               ad_error *err);

#endif /* AD_PYTHON_STREAMS_ASYNC_SOURCE_H */
