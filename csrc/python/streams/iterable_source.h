/* Python iterators as sources of batches, for array_stream(), and as lists of
 * streams, for concat_streams().
 *
 * next() may be called on any thread, with or without the GIL. An exception of
 * the iterator becomes the failure of the stream, and is saved for a consumer
 * that can raise it again.
 */
#ifndef AD_PYTHON_STREAMS_ITERABLE_SOURCE_H
#define AD_PYTHON_STREAMS_ITERABLE_SOURCE_H

#include "stream/adapters.h"
#include "support/py_stream.h"

/* The type of all elements, and the number of elements so far. */
typedef struct ad_element_rules {
    ad_schema schema; /* owned; without a node until the first element */
    bool is_given;    /* the caller gave the schema: elements are cast to it */
    bool is_mapped;   /* elements are results of a function, for messages */
    long long n_taken;
} ad_element_rules;

/* Import `element`; the first one decides the schema unless it is given. -1
 * with an exception that names the element. */
int ad_element_import(ad_state *state, ad_element_rules *rules,
                      PyObject *element, ad_array *out);

/* A stream over the elements of `iterable`, or over the results of `function`
 * (NULL: none) for them. The elements are cast to the type `wanted`
 * (borrowed); if it has no node, the first element decides the type. `given`
 * is the device type; if it is NULL, the first element decides, or
 * `device_type` for an empty iterable. The first element is taken now unless
 * both are given. NULL with an exception. */
ad_array_stream *ad_iterable_stream(ad_state *state, PyObject *iterable,
                                    PyObject *function, ad_schema wanted,
                                    const int32_t *given, int32_t device_type);

bool ad_is_iterable_source(const ad_batch_source *source);

/* A list over an iterable of objects that array_stream() accepts. NULL with an
 * exception. */
ad_array_stream_list *ad_iterable_stream_list(ad_state *state,
                                              PyObject *iterable);

/* For garbage collection; visits nothing for sources of another kind. */
int ad_iterable_traverse(ad_batch_source *source, visitproc visit, void *arg);

#endif /* AD_PYTHON_STREAMS_ITERABLE_SOURCE_H */
