/* protocol/: one file per exchange protocol.
 *
 * A protocol imports foreign objects as an ad_array or an ad_tensor, and
 * exports ours. Its file ends with a `const ad_protocol`, and protocols.def
 * has a line for it. What protocols share is declared here and in arrow.h,
 * dlpack_tensor.h and array_interface.h; none knows the Python types above.
 * A protocol file may call Python methods and fetch, match and clear
 * exceptions. Input is untrusted until it is checked. The GIL is held, and
 * released around calls that may block.
 */
#ifndef AD_PROTOCOL_PROTOCOL_H
#define AD_PROTOCOL_PROTOCOL_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "order/streams.h"
#include "order/memory.h"
#include "model/tensor.h"
#include "support/args.h"
#include "support/capsule.h"
#include "support/errors.h"
#include "support/objects.h"
#include "support/py_call.h"
#include "support/state.h"

/* A parsed stream= argument. The meaning of a number, and whether an object's
 * stream is of the right kind, depend on the device. */
typedef enum ad_stream_argument_kind {
    AD_STREAM_ABSENT, /* left out, or None */
    AD_STREAM_OFF,    /* the int -1: no synchronization */
    AD_STREAM_NUMBER, /* with DLPack's meaning for the type of the device */
    AD_STREAM_OBJECT  /* a stream or queue object of a known kind */
} ad_stream_argument_kind;

typedef struct ad_stream_argument {
    ad_stream_argument_kind kind;
    bool is_too_large;   /* a number that 64 bits cannot hold */
    int32_t device_type; /* of an object's stream */
    ad_stream stream;
    PyObject *value;  /* borrowed: the argument; NULL: absent */
    PyObject *object; /* borrowed: keeps the stream alive; NULL for an int */
} ad_stream_argument;

/* The options of array(), tensor(), ... */
typedef struct ad_request {
    ad_copy copy;
    ad_nulls nulls; /* what becomes of nulls that a tensor would drop */
    ad_stream_argument stream;
    ad_schema schema;  /* borrowed; the requested schema, if it has a node */
    bool wants_column; /* an array, if the tensor is one as it stands */
    bool wants_tensor; /* the N-d protocols are asked before Arrow's, except of
                          a library of columns */
    bool wants_rows;   /* the caller refuses a tensor without dimensions */
    bool wants_batch;  /* Arrow's batch is what is asked for, whatever shape
                          the object has otherwise */
    bool has_device;   /* the caller names the device of the memory */
    ad_device device;
    char order; /* 'C' or 'F': that of a copy for copy=True; 0: 'C' */
} ad_request;

/* The result of an import: an array or a tensor; owns its references. */
typedef struct ad_imported {
    bool is_array;
    ad_array array;
    ad_tensor_value tensor;
} ad_imported;

typedef enum ad_import_result {
    AD_IMPORT_FAILED = -1, /* exception set; final: nothing else is tried */
    AD_IMPORT_REFUSED = 0, /* exception set; the next protocol is tried. An
                              AttributeError where the attribute is absent
                              means "not offered after all" */
    AD_IMPORT_DONE = 1     /* *out is filled */
} ad_import_result;

typedef struct ad_protocol ad_protocol;

/* Imports `object`. `slot` describes its type (borrowed). Pending work is
 * recorded in the sync; ad_finish_tensor and ad_import drop it for stream=-1,
 * and ad_apply_device_order lets the stream of the request wait for it. Device
 * memory gets a device owner (order/device_owner.h). These errors are final:
 * MemoryError, RecursionError, DeviceError, exceptions outside Exception, a
 * malformed struct, capsules or dicts against the protocol, and a loss of
 * meaning (nulls, requires_grad, conjugate). A producer's own exception is a
 * refusal. */
typedef ad_import_result (*ad_import_fn)(const ad_protocol *self,
                                         ad_state *state, PyObject *object,
                                         const ad_type_slot *slot,
                                         const ad_request *request,
                                         ad_imported *out);

struct ad_protocol {
    /* The attribute that shows the protocol, for messages and look-up. */
    const char *name;
    /* AD_STR_* of the attribute that is looked up, or -1: probe() decides. */
    int attribute;
    /* Returns whether the type supports the protocol, besides the attribute,
     * and records further facts of the type. Called once for a type. Optional
     * if there is an attribute. */
    bool (*probe)(ad_state *state, PyTypeObject *type, ad_type_slot *slot);
    /* Optional: export only when NULL. */
    ad_import_fn import;
    const void *rules; /* optional: for `import` */
    /* Optional: attributes of our objects: methods that always exist, and
     * getters that raise AttributeError if the object cannot be exported.
     * Static tables that end with a NULL entry. Buffer has those of Tensor. */
    const PyMethodDef *array_methods;
    const PyGetSetDef *array_getset;
    const PyMethodDef *tensor_methods;
    const PyGetSetDef *tensor_getset;
};

enum {
#define AD_PROTOCOL(tag) AD_PROTOCOL_##tag,
#include "protocol/protocols.def"
#undef AD_PROTOCOL
    AD_N_PROTOCOLS
};

#define AD_PROTOCOL(tag) extern const ad_protocol ad_protocol_##tag;
#include "protocol/protocols.def"
#undef AD_PROTOCOL

/* All protocols, in order of preference. */
extern const ad_protocol *const ad_protocols[AD_N_PROTOCOLS];

/* Those that ad_import() tries: the same, or, while a trace is on, copies with
 * another `import` (python/functions/trace_points.c). */
extern const ad_protocol *ad_imports[AD_N_PROTOCOLS];

/* --- dispatch (protocol.c) ----------------------------------------------- */

/* Every protocol. */
#define AD_ALL_PROTOCOLS ((uint32_t)((1ULL << AD_N_PROTOCOLS) - 1))
#define AD_PROTOCOL_BIT(tag) ((uint32_t)1 << AD_PROTOCOL_##tag)

/* Those of columns, and those of tensors. */
#define AD_ARROW_PROTOCOLS                                                    \
    (AD_PROTOCOL_BIT(arrow_device_array) | AD_PROTOCOL_BIT(arrow_array) |     \
     AD_PROTOCOL_BIT(arrow_device_stream) | AD_PROTOCOL_BIT(arrow_stream))
#define AD_ND_PROTOCOLS                                                       \
    (AD_PROTOCOL_BIT(dlpack_exchange) | AD_PROTOCOL_BIT(dlpack) |             \
     AD_PROTOCOL_BIT(sycl_usm) | AD_PROTOCOL_BIT(cuda_array_interface) |      \
     AD_PROTOCOL_BIT(array_interface) | AD_PROTOCOL_BIT(buffer))

/* The refusals of the protocols of an object: the first exception, and a line
 * for each. {0}: none. */
typedef struct ad_refusals {
    PyObject *first;
    PyObject *text;
} ad_refusals;

/* Records and clears the pending exception, unless it says that the attribute
 * of the protocol is absent. -1: it is final. */
int ad_refusals_add(ad_state *state, ad_refusals *tried, PyObject *object,
                    const ad_protocol *protocol);
/* Raises ExchangeError, "refused", whose cause is the first, and clears. There
 * must be one. Returns NULL. */
PyObject *ad_refusals_raise(ad_state *state, ad_refusals *tried,
                            PyObject *object);
void ad_refusals_clear(ad_refusals *tried);

/* What to do with an object that offers no protocol: "; <hint>", or "". */
const char *ad_import_hint(PyObject *object);

/* Imports one of our own objects directly, any other object by the protocols
 * in `among` that it offers, in order of preference, until one succeeds.
 * Returns 0 with *out filled, or -1 with TypeError (no protocol),
 * ExchangeError (all refused; the first refusal is the cause and all are
 * listed), or the final error of a protocol. */
int ad_import(ad_state *state, PyObject *object, const ad_request *request,
              uint32_t among, ad_imported *out);

/* The last step of a caller of ad_import, for the imported data or data
 * derived from them: the stream of the request, or this thread's current
 * stream, waits for the data, and the owner records the stream. Host memory is
 * ready on every stream. -1 with an exception. */
int ad_apply_device_order(ad_state *state, const ad_request *request,
                          const ad_memory *memory);

static inline int
ad_apply_stream_order(ad_state *state, const ad_request *request,
                      const ad_memory *memory)
{
    bool may_have_stream =
        request->stream.kind != AD_STREAM_ABSENT || ad_stream_has_scopes();
    return memory->device.type == AD_CPU.type || !may_have_stream
               ? 0
               : ad_apply_device_order(state, request, memory);
}

/* Makes *imported an array with the validity of the mask. copy=True is served
 * by the import of the data or by the caller. On failure *imported is
 * unchanged. */
AD_MUST_CHECK ad_status ad_imported_apply_mask(ad_imported *imported,
                                               const ad_mask *mask,
                                               ad_copy copy, ad_error *err);

/* Drops the result of ad_import. */
void ad_imported_clear(ad_imported *imported);

/* The protocols that the instance offers, by look-up only: bit i of *out is
 * protocol i. Cheap for recently used types. Returns 0, or -1 if the look-up
 * raised a final exception (MemoryError, KeyboardInterrupt). */
int ad_offers(ad_state *state, PyObject *object, uint32_t *out);

/* Copies the slot of a type, whose `type` is borrowed: any code that runs
 * afterwards may evict it from the cache. */
void ad_type_slot_get(ad_state *state, PyTypeObject *type, ad_type_slot *out);

/* --- shared by protocol files (protocol.c) ------------------------------- */

/* AD_IMPORT_REFUSED or AD_IMPORT_FAILED for the exception that is set. */
ad_import_result ad_import_exception(ad_state *state);

/* What Arrow data say is checked against what else the object says of itself
 * (meaning.c). `offers` are the protocols that were to be tried; `name` is the
 * one that gave the array. Returns 0, or -1 with an exception: the shapes or
 * the element types differ, or the values are Python objects of polars. */
int ad_meaning_check(ad_state *state, PyObject *object,
                     const ad_type_slot *slot, uint32_t offers,
                     const ad_request *request, const char *name,
                     const ad_array *array);

/* The converse for an object of which an N-d protocol gave *imported: where
 * the Arrow protocols in `offers` know of nulls, which a tensor cannot express,
 * the import is refused (ExchangeError, "nulls"), or *imported becomes Arrow's
 * array if nulls are to be filled. A stream is read where there is no array.
 * Returns 0, or -1 with an exception and *imported as it was. */
int ad_meaning_check_nulls(ad_state *state, PyObject *object,
                           const ad_type_slot *slot, uint32_t offers,
                           const ad_request *request, const char *name,
                           ad_imported *imported);

/* -1 with ExchangeError if a type that polars exports stands for Python
 * objects: it has their addresses. */
int ad_meaning_check_polars(ad_state *state, const struct ArrowSchema *node);

/* The numbers of a pandas.Series as NumPy holds them (numpy.c), without
 * a copy. 1 with *out filled; 0 without an exception if Arrow has to say what
 * they are: other types, missing values; -1 with an exception. */
int ad_pandas_block_import(ad_state *state, PyObject *object,
                           const ad_request *request, ad_imported *out);

/* Raises `err` and returns AD_IMPORT_FAILED. */
ad_import_result ad_import_error(ad_state *state, const ad_error *err);

/* "__dlpack__ of numpy.ndarray", for messages; returns `buffer`. */
#define AD_ORIGIN_SIZE 128
const char *ad_origin(const char *attribute, PyObject *object, char *buffer);

/* Replaces the tensor by a contiguous copy in `order` on its device, made on
 * `stream` (NULL: absent); `why` is the reason in messages. On failure -1 with
 * an exception, and the tensor is cleared. */
int ad_replace_by_copy(ad_state *state, const ad_stream_argument *stream,
                       char order, const char *why, ad_tensor_value *value);

/* The last step of every import of a tensor: stream=-1 drops the sync, and
 * copy=True copies on the device of the memory, unless the producer has made a
 * copy. The sync of that copy is always kept. On failure *value is cleared. */
ad_import_result ad_finish_tensor(ad_state *state, const ad_request *request,
                                  ad_tensor_value *value);

/* The same for host memory. Elements in the other byte order are swapped,
 * which takes a copy, and times become an array. *out holds the tensor before
 * and the result afterwards. */
ad_import_result ad_finish_strange_elements(ad_state *state,
                                            const ad_request *request,
                                            const ad_element *element,
                                            ad_imported *out);

static inline ad_import_result
ad_finish_elements(ad_state *state, const ad_request *request,
                   const ad_element *element, ad_imported *out)
{
    return element->is_swapped || element->time != NULL
               ? ad_finish_strange_elements(state, request, element, out)
               : ad_finish_tensor(state, request, &out->tensor);
}

/* Fails for a batch (AD_ERR_EXCHANGE, "dtype"), which `what` would show as a
 * matrix without names. numpy.asarray(), cupy.asarray() and cudf.DataFrame()
 * take whatever has a buffer or an array interface; DLPack is asked for by
 * functions that make tensors. */
AD_MUST_CHECK ad_status ad_refuse_batch(const ad_array *array,
                                        const char *what, ad_error *err);

/* --- stream arguments (stream_argument.c) -------------------------------- */

/* The refusals of a stream= argument are raised here. A stream of another
 * device is refused by the runtime of the data (stream_context in
 * device/backend.h). */

/* Parses a stream= argument (NULL and None: absent) before the device of the
 * data is known. No runtime is called. -1 with TypeError: an unknown kind. */
int ad_parse_stream(ad_state *state, PyObject *value, ad_stream_argument *out);

/* Parses a stream argument that is not absent, for data on `device`; for a
 * device type of 0, objects only. -1 with TypeError (an unknown kind),
 * ValueError (a number without a meaning on the device) or ExchangeError (an
 * object of another device type). */
int ad_parse_stream_of(ad_state *state, PyObject *value, ad_device device,
                       ad_stream_argument *out);

/* The stream of the argument on `device`. out->keep is a new reference on an
 * owner of the object (NULL for an int); drop it with ad_stream_ref_clear. -1
 * with MemoryError. */
int ad_stream_argument_ref(const ad_stream_argument *argument,
                           ad_device device, ad_stream_ref *out);

/* The choice for work on `device`, with the errors of ad_parse_stream_of; NULL
 * is absent. Absent and stream=-1 are "not given". stream=-1 sets *no_sync; if
 * no_sync is NULL the work needs a stream, and stream=-1 is refused
 * (ValueError). Returns -1 with an exception. */
int ad_choose_stream(ad_state *state, const ad_stream_argument *argument,
                     ad_device device, bool *no_sync, ad_stream_ref *out);

/* CuPy's current stream on the device, for this thread. *object is a new
 * reference. 1 found, 0 where CuPy is not imported or does not tell, -1 with an
 * exception that is final. */
int ad_cupy_stream(ad_state *state, ad_device device, PyObject **object,
                   ad_stream_argument *out);

/* ad_parse_stream and ad_choose_stream at once. */
int ad_read_stream(ad_state *state, PyObject *value, ad_device device,
                   bool *no_sync, ad_stream_ref *out);

/* Drops the reference; a pending exception stays set. */
static inline void
ad_stream_ref_clear(ad_stream_ref *self)
{
    ad_owner_unref(self->keep);
    self->kind = AD_REF_NONE;
    self->keep = NULL;
}

/* Returns whether the type or one of its bases has this name (NULL: any) and
 * is of this module or one of its submodules. Sets no exception. */
bool ad_is_subclass(PyTypeObject *type, const char *module, const char *name);

/* Returns whether the stream argument is the int -1 (no synchronization). */
bool ad_stream_is_no_sync(PyObject *value);

/* The stream of a request for memory on `device`: NULL if it is absent, or
 * belongs to the device to which the data will move. */
const ad_stream_argument *ad_request_stream(const ad_request *request,
                                            ad_device device);

/* The stream of a request for arrowdev's copies; NULL: absent or -1. */
const ad_stream_argument *ad_request_copy_stream(const ad_request *request);

/* The current stream of the library of this type, if the type or one of its
 * bases has an exchange table of DLPack (dlpack_exchange.c). Returns 1, 0 if
 * there is no table or it states no stream, or -1 with an exception. */
int ad_library_stream(ad_state *state, PyTypeObject *type, ad_device device,
                      ad_stream_ref *out);

/* A new dpctl.SyclQueue over `stream` (sycl_usm.c). NULL without an exception
 * if dpctl is not imported, which this does not do. */
PyObject *ad_sycl_queue_new(ad_stream stream);

/* Returns whether there is nothing to order: host memory that is ready. */
static inline bool
ad_is_plain(const ad_memory *memory)
{
    return memory->device.type == AD_CPU.type && memory->sync == NULL;
}

/* Exported by buffer.c for the type slots of Array, Tensor and Buffer. */
int ad_buffer_get(PyObject *self, Py_buffer *view, int flags);
void ad_buffer_release(PyObject *self, Py_buffer *view);

#endif /* AD_PROTOCOL_PROTOCOL_H */
