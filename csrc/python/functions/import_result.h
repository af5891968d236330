/* What array(), tensor() and convert() share: from what was asked for, through
 * the protocols, to what is handed out.
 */
#ifndef AD_PYTHON_FUNCTIONS_IMPORT_RESULT_H
#define AD_PYTHON_FUNCTIONS_IMPORT_RESULT_H

#include "protocol/protocol.h"

/* Read device=, stream= and copy= (each may be NULL) into a request. -1 with
 * TypeError or ValueError. */
int ad_parse_request(ad_state *state, PyObject *device, PyObject *stream,
                     PyObject *copy, ad_request *out);

/* What was imported, as an array on the device that was asked for, copied if
 * that was asked for; `imported` is used up. -1 with an exception. */
int ad_imported_as_array(ad_state *state, ad_imported *imported,
                         const ad_request *request, ad_array *out);

/* ad_apply_stream_order for an array of ours that is about to be handed out.
 * -1 with an exception, and nothing is held any more. */
int ad_apply_array_order(ad_state *state, const ad_request *request,
                         ad_array *array);

/* What tensor() was asked for, beyond the request. bridge.order is 0 once it
 * has been seen to. */
typedef struct ad_tensor_options {
    ad_bridge_options bridge;
    PyObject *fill_value;             /* borrowed, or NULL */
    const ad_stream_argument *stream; /* where copies are made, or NULL */
    int readonly;                     /* -1: as it is */
} ad_tensor_options;

/* What was imported, as a tensor, in place: afterwards imported->tensor is
 * what counts. -1 with an exception, and nothing is held any more. */
int ad_imported_as_tensor(ad_state *state, ad_imported *imported,
                          ad_tensor_options *options);

/* Replace the tensor by a copy when one was asked for, or when the order
 * demands it. -1 with an exception, and nothing is held any more. */
int ad_apply_layout(ad_state *state, const ad_tensor_options *options,
                    ad_tensor_value *value);

/* arrowdev.array(), tensor(), from_dlpack(), convert(). */
PyObject *ad_function_array(PyObject *module, PyObject *const *args,
                            Py_ssize_t n_args, PyObject *kwnames);
PyObject *ad_function_tensor(PyObject *module, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);
PyObject *ad_function_from_dlpack(PyObject *module, PyObject *const *args,
                                  Py_ssize_t n_args, PyObject *kwnames);
PyObject *ad_function_convert(PyObject *module, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);

#endif /* AD_PYTHON_FUNCTIONS_IMPORT_RESULT_H */
