/* python/: the public types and functions, and the module.
 *
 * types/ has one heap type per file, functions/ the functions of the module.
 * The code here parses arguments, calls the layers below and wraps the result;
 * it decides nothing about memory. The GIL is held. Objects are immutable,
 * except streams, which admit one reader at a time.
 */

/* The types and functions of the module, and helpers that methods share. */
#ifndef AD_PYTHON_FUNCTIONS_FUNCTIONS_H
#define AD_PYTHON_FUNCTIONS_FUNCTIONS_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "device/foreign.h"
#include "protocol/protocol.h"
#include "support/args.h"
#include "support/objects.h"

/* --- the types and the functions ----------------------------------------- */

/* The types, made by module.c. */
extern PyType_Spec ad_array_type_spec;
extern PyType_Spec ad_array_stream_type_spec;
extern PyType_Spec ad_async_consumer_type_spec;
extern PyType_Spec ad_async_producer_type_spec;
extern PyType_Spec ad_buffer_type_spec;
extern PyType_Spec ad_device_type_spec;
extern PyType_Spec ad_schema_type_spec;
extern PyType_Spec ad_tensor_type_spec;

/* The enum DeviceType, and what use_stream() returns. 0, or -1 with an
 * exception. */
int ad_device_type_enum_init(ad_state *state, PyObject *module);
int ad_stream_scope_type_init(ad_state *state, PyObject *module);

/* The PyMethodDef table of the module, NULL entry last. */
extern PyMethodDef ad_module_functions[];

ad_fastcall ad_function_array, ad_function_array_stream, ad_function_concat,
    ad_function_concat_streams, ad_function_convert, ad_function_from_dlpack,
    ad_function_record_batch, ad_function_tensor, ad_function_use_stream,
    ad_function_warn_if_readonly;
ad_fastcall ad_array_from_buffers;
PyObject *ad_function_copied(PyObject *module, PyObject *args);
/* Array.equals(other) and Tensor.equals(other) */
PyObject *ad_array_equals(PyObject *self, PyObject *object);
PyObject *ad_tensor_equals(PyObject *self, PyObject *object);
/* Array.to_pylist(), and array[row], of a row that is there. */
PyObject *ad_array_to_pylist(PyObject *self, PyObject *ignored);
PyObject *ad_array_row(PyObject *self, int64_t row);
/* Tensor.tolist() and item() */
PyObject *ad_tensor_tolist(PyObject *self, PyObject *ignored);
PyObject *ad_tensor_item(PyObject *self, PyObject *ignored);
/* The element of a 0-d Tensor; for int() and float() too, which would read the
 * memory of other objects as text. TypeError for all that is not 0-d. */
PyObject *ad_scalar(PyObject *self);
PyObject *ad_function_device(PyObject *module, PyObject *value);
PyObject *ad_function_devices(PyObject *module, PyObject *ignored);
PyObject *ad_function_runtimes(PyObject *module, PyObject *ignored);

/* --- backends of others -------------------------------------------------- */

/* Register the table, see device/foreign.h. Returns 0, or -1 with an
 * exception. */
int ad_register_backend(ad_state *state, int32_t device_type,
                        const arrowdev_backend *table, bool again);
PyObject *ad_function_register_backend(PyObject *module, PyObject *capsule);
PyObject *ad_function_offer_backend(PyObject *module, PyObject *args);

/* Let the registry search the entry points of installed packages. */
void ad_register_backend_init(void);

/* --- pickles ------------------------------------------------------------- */

/* For _pickle.py. */
PyObject *ad_function_parts(PyObject *module, PyObject *value);
PyObject *ad_function_array_of_parts(PyObject *module, PyObject *args);
PyObject *ad_function_tensor_of_parts(PyObject *module, PyObject *args);
PyObject *ad_function_schema_parts(PyObject *module, PyObject *value);
PyObject *ad_function_schema_of_parts(PyObject *module, PyObject *parts);

/* --- shared memory ------------------------------------------------------- */

/* A Buffer of `nbytes` zeros in a memory file, or NULL with an exception. */
PyObject *ad_memory_file_buffer(ad_state *state, int64_t nbytes);

/* For _share.py. */
PyObject *ad_function_copy_to_file(PyObject *module, PyObject *buffers);
PyObject *ad_function_find_file(PyObject *module, PyObject *object);
PyObject *ad_function_receive(PyObject *module, PyObject *socket);
PyObject *ad_function_take_file(PyObject *module, PyObject *args);
PyObject *ad_function_map_file(PyObject *module, PyObject *args);
PyObject *ad_function_buffers_in_files(PyObject *module, PyObject *args);
PyObject *ad_function_export_memory(PyObject *module, PyObject *buffer);
PyObject *ad_function_export_event(PyObject *module, PyObject *value);
PyObject *ad_function_device_uuid(PyObject *module, PyObject *object);
PyObject *ad_function_device_of_uuid(PyObject *module, PyObject *args);
PyObject *ad_function_open_event(PyObject *module, PyObject *args);
PyObject *ad_function_open_memory(PyObject *module, PyObject *args);
PyObject *ad_function_is_readonly(PyObject *module, PyObject *value);
PyObject *ad_function_view_buffer(PyObject *module, PyObject *args);
PyObject *ad_function_publish(PyObject *module, PyObject *args);
PyObject *ad_function_published_object(PyObject *module, PyObject *token);
PyObject *ad_function_unpublish(PyObject *module, PyObject *capsule);
PyObject *ad_function_published_state(PyObject *module, PyObject *capsule);

/* Put the table of arrowdev.h into the module. Returns 0, or -1 with an
 * exception. */
int ad_c_api_init(PyObject *module);

/* --- import -------------------------------------------------------------- */

/* Import any object as an Array by the rules of array(), as the type `wanted`
 * if that has a node, and with `validity` unless that is None or NULL. On
 * failure returns -1 with an exception. */
int ad_import_array(ad_state *state, PyObject *object,
                    const ad_request *request, ad_schema wanted,
                    PyObject *validity, ad_array *out);

/* The same without options. Returns a new reference, or NULL with an
 * exception. */
PyObject *ad_as_array_object(ad_state *state, PyObject *value, ad_copy copy);

/* The same as a core value of the type `wanted`, which is borrowed; without a
 * node it stands for any type. Returns 0, or -1 with an exception. */
int ad_as_array(ad_state *state, PyObject *value, ad_schema wanted,
                ad_copy copy, ad_array *out);

/* The same for a batch of a stream: a value without dimensions is refused. */
int ad_as_batch(ad_state *state, PyObject *value, ad_schema wanted,
                ad_array *out);

/* Parse the device, stream and copy arguments (each may be NULL) into a
 * request. Returns 0, or -1 with TypeError or ValueError. */
int ad_parse_request(ad_state *state, PyObject *device, PyObject *stream,
                     PyObject *copy, ad_request *out);

/* An Array that is returned to Python: this thread's current stream waits for
 * the data. Takes over the value, on failure too. */
PyObject *ad_array_object_in_order(ad_state *state, ad_array *steal);

/* The options of tensor() that are not in the request. bridge.order becomes 0
 * once it has been applied. */
typedef struct ad_tensor_options {
    ad_bridge_options bridge;
    PyObject *fill_value;             /* borrowed, or NULL */
    const ad_stream_argument *stream; /* for copies, or NULL */
    int readonly;                     /* -1: unchanged */
    bool no_negative_strides;         /* copy a tensor that has one */
} ad_tensor_options;

/* Parse nulls= and fill_value=. Returns 0, or -1 with ValueError. */
int ad_parse_nulls(PyObject *nulls, PyObject *fill_value,
                   ad_tensor_options *out);

/* Move the import result to the device of the request, if that has one. *copy
 * is set to what is still to be done of request->copy. On failure returns -1
 * with an exception and clears the import result. */
int ad_imported_to_device(ad_state *state, ad_imported *imported,
                          const ad_request *request, ad_copy *copy);

/* Convert the import result into a tensor in place: afterwards
 * imported->tensor holds it. On failure returns -1 with an exception and
 * clears the import result. */
int ad_imported_as_tensor(ad_state *state, ad_imported *imported,
                          ad_tensor_options *options);

/* Import any object by the protocols in `among` as a tensor: out->tensor holds
 * it. Sets options->bridge.copy and options->stream. Returns 0, or -1 with an
 * exception. */
int ad_import_tensor(ad_state *state, PyObject *object,
                     const ad_request *request, uint32_t among,
                     ad_tensor_options *options, ad_imported *out);

/* --- conversion ---------------------------------------------------------- */

/* Move `array`, or `value` if `array` is NULL, to `target` in place. The
 * memory stays as it is, or becomes known as memory of `target` (pinned and
 * managed memory), or is copied on `stream`. AD_COPY_NEVER refuses a copy.
 * AD_COPY_ALWAYS copies, unless the tensor is on `target` and its producer has
 * copied it. `why` is the reason of a copy in messages; NULL: copy=True, or the
 * device. On failure returns -1 with an exception and clears the value. */
int ad_move_to(ad_state *state, ad_array *array, ad_tensor_value *value,
               ad_device target, const ad_stream_argument *stream,
               ad_copy copy, const char *why);

/* Parse a sequence of at most AD_MAX_NDIM ints. Returns their number, or -1
 * with TypeError or ValueError. */
int ad_parse_dims(PyObject *value, const char *name, int64_t *out);

/* The number of nulls. An unknown number is counted and stored if the host can
 * read the bitmap without waiting; otherwise the result is -1. */
int64_t ad_array_known_null_count(ad_array *array);

/* x.into(cls): an instance of another library's class. */
PyObject *ad_convert_into(ad_state *state, PyObject *self, PyObject *cls,
                          const ad_stream_argument *stream, int copy);

/* convert(): the same for any object, which is imported first. */
PyObject *ad_convert(ad_state *state, PyObject *object, PyObject *cls,
                     const ad_request *request, ad_tensor_options *options);

/* A metadata blob (model/metadata.h) as a new list of pairs of bytes, in their
 * order; or NULL with InvalidArrowError. */
PyObject *ad_metadata_as_pairs(ad_state *state, const char *blob);

/* The same as a new dict from bytes to bytes, None
 * for NULL; or NULL with InvalidArrowError. */
PyObject *ad_metadata_as_dict(ad_state *state, const char *blob);

/* Make a malloc'ed blob of a mapping from bytes or str to bytes or str, NULL
 * for None. Returns 0, or -1 with an exception. */
int ad_metadata_from_mapping(ad_state *state, PyObject *mapping, char **out);
/* The same of a list of pairs. */
int ad_metadata_from_pairs(ad_state *state, PyObject *items, char **out);

#endif /* AD_PYTHON_FUNCTIONS_FUNCTIONS_H */
