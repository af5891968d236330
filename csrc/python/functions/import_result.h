/* Shared by array(), tensor() and convert(): from the options of a call,
 * through the protocols, to the result.
 */
#ifndef AD_PYTHON_FUNCTIONS_IMPORT_RESULT_H
#define AD_PYTHON_FUNCTIONS_IMPORT_RESULT_H

#include "protocol/protocol.h"

/* Parse the device, stream and copy arguments (each may be NULL) into a
 * request. Returns 0, or -1 with TypeError or ValueError. */
int ad_parse_request(ad_state *state, PyObject *device, PyObject *stream,
                     PyObject *copy, ad_request *out);

/* Convert the import result into an array on the requested device, copied if
 * requested. Takes over `imported`, on failure too. Returns 0, or -1 with an
 * exception. */
int ad_imported_as_array(ad_state *state, ad_imported *imported,
                         const ad_request *request, ad_array *out);

/* Call ad_apply_stream_order for an array that is about to be returned to
 * Python. On failure returns -1 with an exception and clears the array. */
int ad_apply_array_order(ad_state *state, const ad_request *request,
                         ad_array *array);

/* The options of tensor() that are not in the request. bridge.order becomes 0
 * once it has been applied. */
typedef struct ad_tensor_options {
    ad_bridge_options bridge;
    PyObject *fill_value;             /* borrowed, or NULL */
    const ad_stream_argument *stream; /* for copies, or NULL */
    int readonly;                     /* -1: unchanged */
} ad_tensor_options;

/* Convert the import result into a tensor in place: afterwards
 * imported->tensor holds it. On failure returns -1 with an exception and
 * clears the import result. */
int ad_imported_as_tensor(ad_state *state, ad_imported *imported,
                          ad_tensor_options *options);

/* Replace the tensor by a copy if one was requested or the order requires one.
 * On failure returns -1 with an exception and clears the tensor. */
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
