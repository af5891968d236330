/* python/: the public types and functions, and the module.
 *
 * types/ has one heap type per file, functions/ the functions of the module,
 * streams/ the stream sources that read Python objects, testing/ the C side of
 * arrowdev.testing. The code here parses arguments, calls the layers below and
 * wraps the result; it decides nothing about memory. The GIL is held. Objects
 * are immutable, except streams, which admit one reader at a time.
 */

/* The functions of the module, and helpers that methods share. */
#ifndef AD_PYTHON_FUNCTIONS_FUNCTIONS_H
#define AD_PYTHON_FUNCTIONS_FUNCTIONS_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "protocol/protocol.h"
#include "support/args.h"
#include "support/objects.h"

/* Import any object as an Array, by the rules of array(). Returns a new
 * reference, or NULL with an exception. */
PyObject *ad_as_array_object(ad_state *state, PyObject *value);

/* The same with the copy argument of array(). */
PyObject *ad_as_array_object_copy(ad_state *state, PyObject *value,
                                  ad_copy copy);

/* The same as a core value of the type `wanted`, which is borrowed; without a
 * node it stands for any type. Returns 0, or -1 with an exception. */
int ad_as_array_typed(ad_state *state, PyObject *value, ad_schema wanted,
                      ad_array *out);

/* The number of nulls. An unknown number is counted and stored if the host can
 * read the bitmap without waiting; otherwise the result is -1. */
int64_t ad_array_known_null_count(ad_array *array);

/* x.into(cls): an instance of another library's class. */
PyObject *ad_convert_into(ad_state *state, PyObject *self, PyObject *cls,
                          const ad_stream_argument *stream, int copy);

/* Array.from_buffers(type, length, buffers, ...) */
PyObject *ad_array_from_buffers(PyObject *cls, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames);

/* arrowdev.array_stream(obj, /, *, schema=None, device_type=None) */
PyObject *ad_function_array_stream(PyObject *module, PyObject *const *args,
                                   Py_ssize_t n_args, PyObject *kwnames);

/* arrowdev.concat_streams(streams, /, *, schema=None) */
PyObject *ad_function_concat_streams(PyObject *module, PyObject *const *args,
                                     Py_ssize_t n_args, PyObject *kwnames);

/* arrowdev.device(value) */
PyObject *ad_function_device(PyObject *module, PyObject *value);

/* arrowdev.devices(), and arrowdev._core._runtimes() for the doctor. */
PyObject *ad_function_devices(PyObject *module, PyObject *ignored);
PyObject *ad_function_runtimes(PyObject *module, PyObject *ignored);

/* arrowdev.use_stream(stream, device) */
PyObject *ad_function_use_stream(PyObject *module, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames);

/* The PyMethodDef table of the module, NULL entry last. */
extern PyMethodDef ad_module_functions[];

/* arrowdev.concat() (python/functions/concat.c). */
PyObject *ad_function_concat(PyObject *module, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);

#endif /* AD_PYTHON_FUNCTIONS_FUNCTIONS_H */
