/* What streams share with the protocols of Arrow: both sides of
 * requested_schema, and whole streams. */
#ifndef AD_PROTOCOL_ARROW_H
#define AD_PROTOCOL_ARROW_H

#include "protocol/protocol.h"
#include "stream/array_stream.h"

/* Calls obj.<method>(), with requested_schema=<capsule> if the request has a
 * schema; if the producer does not take the argument, it is called again
 * without it. For a type with fields the first call is without it; another one
 * asks for the type with the producer's names if more than names differ. New
 * reference, or NULL with the producer's exception. */
PyObject *ad_arrow_call(ad_state *state, PyObject *object, int method,
                        const ad_request *request);

/* Asks an object of nanoarrow for its type, before a method of it is called: 0,
 * or -1 with ExchangeError if its export would end the process. */
int ad_arrow_check_nanoarrow(PyObject *object);

/* Parses the only parameter of the Arrow method `function`, and its **kwargs
 * if it has them (ignores_none, see ad_signature). *requested is NULL or a
 * borrowed capsule; -1 with an exception. */
int ad_arrow_parse(ad_state *state, const char *function, bool ignores_none,
                   PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
                   PyObject **requested);

/* Best effort, as the specification demands: 0 if data of `schema` can be
 * exported for the schema in `requested` (NULL: none); -1 with ExchangeError
 * if both schemas can never describe the same data. */
int ad_arrow_check_requested(ad_state *state, ad_schema schema,
                             PyObject *requested);

/* A capsule of `kind` that reads `stream` from here on, or NULL with an
 * exception. */
PyObject *ad_array_stream_export(ad_state *state, ad_array_stream *stream,
                                 ad_capsule_kind kind);

/* Reads the stream to its end as one array; AD_ERR_EXCHANGE, "chunks", if that
 * needs a copy and none is allowed. Call without the GIL. */
AD_MUST_CHECK ad_status ad_array_stream_join(ad_array_stream *stream,
                                             bool may_copy, ad_array *out,
                                             ad_error *err);

#endif /* AD_PROTOCOL_ARROW_H */
