/* What the Arrow protocol files share: requested_schema, both ways, and pairs
 * of capsules.
 */
#ifndef AD_PROTOCOL_ARROW_H
#define AD_PROTOCOL_ARROW_H

#include "protocol/protocol.h"
#include "stream/array_stream.h"

/* obj.<method>(), or with requested_schema=<capsule> when the request wishes
 * for a schema; a producer that cannot take the argument is asked again
 * without it. New reference, or NULL with the producer's exception. */
PyObject *ad_arrow_call(ad_state *state, PyObject *object, int method,
                        const ad_request *request);

/* The one parameter of the Arrow methods, and their **kwargs. NULL or a
 * borrowed capsule in *requested; -1 with an exception. */
int ad_arrow_parse(ad_state *state, const ad_signature *signature,
                   PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
                   PyObject **requested);

/* Best effort, as the specification has it: 0 when data of `schema` may be
 * handed out to somebody who asked for the schema in `requested` (NULL:
 * nothing asked); -1 with ExchangeError when the two can never be the same
 * data. */
int ad_arrow_check_requested(ad_state *state, ad_schema schema,
                             PyObject *requested);

/* The same for an array, which is cast to another schema where that is all it
 * takes: 1 with the answer in *out, which has references of its own; 0 where
 * the array itself is the answer (the best that can be done, or what was asked
 * for); -1 with an exception. No data are touched. */
int ad_arrow_answer(ad_state *state, const ad_array *array,
                    PyObject *requested, ad_array *out);

/* The host waits for the data of a struct that cannot say that it would have
 * to; `method` is for the message. 0, or -1 with an exception. */
int ad_arrow_wait(ad_state *state, const ad_array *array, const char *method);

/* The parameters of the two methods of streams. */
extern const ad_signature ad_device_stream_signature;
extern const ad_signature ad_host_stream_signature;

/* A capsule of `kind` that reads `stream` from here on, or NULL with an
 * exception. */
PyObject *ad_stream_export(ad_state *state, ad_array_stream *stream,
                           ad_capsule_kind kind);

/* Read to the end, as one array; AD_ERR_EXCHANGE, "chunks", where that takes a
 * copy and none is allowed. Call without the GIL. */
AD_MUST_CHECK ad_status ad_stream_join(ad_array_stream *stream, bool may_copy,
                                       ad_array *out, ad_error *err);

#endif /* AD_PROTOCOL_ARROW_H */
