/* python/: what a user sees: types, functions, the module.
 *
 * types/ has a heap type per file, functions/ the functions of the module,
 * streams/ what feeds a stream from Python, testing/ what arrowdev.testing is
 * made of. Parses arguments, calls the layers below and wraps the result;
 * decides nothing about memory. The GIL is held. Objects are immutable, but
 * for streams, of which one reader at a time is let in.
 */

/* The module's functions, and what they share with methods.
 */
#ifndef AD_PYTHON_FUNCTIONS_FUNCTIONS_H
#define AD_PYTHON_FUNCTIONS_FUNCTIONS_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "protocol/protocol.h"
#include "support/args.h"
#include "support/objects.h"

/* Import anything as an Array object of ours, by the rules of array(). New
 * reference. */
PyObject *ad_as_array_object(ad_state *state, PyObject *value);

/* The same with array()'s copy=. */
PyObject *ad_as_array_object_copy(ad_state *state, PyObject *value,
                                  ad_copy copy);

/* The same as a core value of the asked-for type, which is borrowed; a `wanted`
 * without a node asks for none. -1 with an exception. */
int ad_as_array_typed(ad_state *state, PyObject *value, ad_schema wanted,
                      ad_array *out);

/* x.into(cls): an instance of another library's class. */
PyObject *ad_convert_into(ad_state *state, PyObject *self, PyObject *cls,
                          const ad_stream_argument *stream, int copy);

/* arrowdev.array_stream(obj, /, *, schema=None, device_type=None) */
PyObject *ad_function_array_stream(PyObject *module, PyObject *const *args,
                                   Py_ssize_t n_args, PyObject *kwnames);

/* arrowdev.concat_streams(streams, /, *, schema=None) */
PyObject *ad_function_concat_streams(PyObject *module, PyObject *const *args,
                                     Py_ssize_t n_args, PyObject *kwnames);

/* arrowdev.device(value) */
PyObject *ad_function_device(PyObject *module, PyObject *value);

/* arrowdev.use_stream(stream, device) */
PyObject *ad_function_use_stream(PyObject *module, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames);

/* The PyMethodDef table of the module, NULL entry last. */
extern PyMethodDef ad_module_functions[];

/* arrowdev.concat() (python/functions/concat.c). */
PyObject *ad_function_concat(PyObject *module, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);

#endif /* AD_PYTHON_FUNCTIONS_FUNCTIONS_H */
