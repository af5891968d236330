/* protocol/: one file per exchange protocol.
 *
 * A protocol turns foreign objects into an ad_array or an ad_tensor and shows
 * ours; one file ends in one `const ad_protocol`, and protocols.def has a line
 * for it. Protocols know neither each other nor the Python types above. What
 * comes in is hostile until it is checked. The GIL is held, and given up round
 * calls that may block.
 */

/* The contract of a protocol: one file ending in one `const ad_protocol`, one
 * line in protocols.def. Protocols and devices never meet; a protocol turns
 * foreign objects into an ad_array or an ad_tensor, and shows ours.
 *
 * A protocol file may call Python methods and fetch, match and clear
 * exceptions. It never looks into another protocol's objects.
 */
#ifndef AD_PROTOCOL_PROTOCOL_H
#define AD_PROTOCOL_PROTOCOL_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "order/streams.h"
#include "model/tensor.h"
#include "support/args.h"
#include "support/capsule.h"
#include "support/errors.h"
#include "support/objects.h"
#include "support/py_owner.h"
#include "support/state.h"

/* A stream= argument, read once. What a number means, and whether an object's
 * stream is of the right kind, is for a device to say. */
typedef enum ad_stream_kind {
    AD_STREAM_ABSENT, /* left out, or None */
    AD_STREAM_OFF,    /* the int -1: no synchronization */
    AD_STREAM_NUMBER, /* with DLPack's meaning for the type of the device */
    AD_STREAM_OBJECT  /* a stream or queue object of a kind that is known */
} ad_stream_kind;

typedef struct ad_stream_argument {
    ad_stream_kind kind;
    bool is_too_large;   /* a number that 64 bits cannot hold */
    int32_t device_type; /* that an object's stream is of */
    ad_stream stream;
    PyObject *value;  /* borrowed: what was passed; NULL: nothing */
    PyObject *object; /* borrowed: has to live as long as the stream is used;
                         NULL for an int */
} ad_stream_argument;

/* What the caller of array(), tensor(), ... asked for. */
typedef struct ad_request {
    ad_copy copy;
    ad_stream_argument stream;
    ad_schema schema; /* borrowed; wished for, if it has a node */
    bool has_device;  /* the caller names the device of the memory */
    ad_device device;
} ad_request;

/* What came in: an array or a tensor, with references of its own. */
typedef struct ad_imported {
    bool is_array;
    ad_array array;
    ad_tensor_value tensor;
} ad_imported;

typedef enum ad_import_result {
    AD_IMPORT_FAILED = -1, /* exception set; final: nothing else is tried */
    AD_IMPORT_REFUSED = 0, /* exception set; the next protocol is tried. An
                              AttributeError means "not offered after all" */
    AD_IMPORT_DONE = 1     /* *out is filled */
} ad_import_result;

/* Import `object`. `slot` is what is known of its type (borrowed). What has to
 * be waited for is noted in the sync; that stream=-1 drops it is the business
 * of ad_finish_tensor and ad_import, and that the stream of the request waits
 * for it that of ad_apply_stream_order. Device memory has a device owner
 * (order/device_owner.h). Final are: MemoryError, DeviceError, exceptions that
 * are no Exception, a malformed struct, capsules or dicts that are not what
 * the protocol says, and a meaning that would be lost (nulls, requires_grad,
 * conjugate). A producer's own exception is a refusal. */
typedef ad_import_result (*ad_import_fn)(ad_state *state, PyObject *object,
                                         const ad_type_slot *slot,
                                         const ad_request *request,
                                         ad_imported *out);

typedef struct ad_protocol {
    /* What an object has that speaks it: for messages, and for look-up. */
    const char *name;
    /* AD_STR_* of the attribute that is looked up, or -1: offers() decides. */
    int attribute;
    /* Optional: does this type speak it? (no attribute, or more than one) */
    bool (*offers)(ad_state *state, PyTypeObject *type);
    /* Optional: note what else is to be known of the type, once. */
    void (*probe_type)(ad_state *state, PyTypeObject *type,
                       ad_type_slot *slot);
    /* Optional: export only when NULL. */
    ad_import_fn import;
    /* Optional: attributes of our objects; methods that are always there, and
     * getters that raise AttributeError where the object cannot serve. Static
     * tables with a NULL entry last. Buffer has what Tensor has. */
    const PyMethodDef *array_methods;
    const PyGetSetDef *array_getset;
    const PyMethodDef *tensor_methods;
    const PyGetSetDef *tensor_getset;
} ad_protocol;

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

/* --- dispatch (protocol.c) ----------------------------------------------- */

/* Every protocol. */
#define AD_ALL_PROTOCOLS ((uint32_t)((1ULL << AD_N_PROTOCOLS) - 1))
#define AD_PROTOCOL_BIT(tag) ((uint32_t)1 << AD_PROTOCOL_##tag)

/* Import anything: our own objects, else the protocols in `among` that the
 * object offers, in order of preference, until one succeeds. Returns 0 with
 * *out filled, or -1 with TypeError (offers nothing), ExchangeError (all
 * refused; the first refusal is the cause and all are named), or the final
 * error of a protocol. */
int ad_import(ad_state *state, PyObject *object, const ad_request *request,
              uint32_t among, ad_imported *out);

/* The last step of who called ad_import: what is handed out, be it what was
 * imported or was made of it, will be used on the stream of the request, or
 * this thread's current one. That stream waits for it, and the owner records
 * the stream. Host memory is ready on every stream. -1 with an exception. */
int ad_apply_device_order(ad_state *state, const ad_request *request,
                          ad_device device, ad_sync *sync, ad_owner *owner);

static inline int
ad_apply_stream_order(ad_state *state, const ad_request *request,
                      ad_device device, ad_sync *sync, ad_owner *owner)
{
    return device.type == AD_CPU.type
               ? 0
               : ad_apply_device_order(state, request, device, sync, owner);
}

/* Drop what ad_import filled. */
void ad_imported_clear(ad_imported *imported);

/* The protocols that this very object offers, by look-up only: bit i of *out
 * is protocol i. Cheap for types seen lately. Returns 0, or -1 when the look-up
 * raised what is final (MemoryError, KeyboardInterrupt). */
int ad_offers(ad_state *state, PyObject *object, uint32_t *out);

/* What is known of a type. Points into the cache, where the next call may
 * replace it, or at *scratch (whose `type` is borrowed) when the type cannot
 * be cached. */
const ad_type_slot *ad_type_slot_of_type(ad_state *state, PyTypeObject *type,
                                         ad_type_slot *scratch);

/* --- what protocol files share (protocol.c, protocol/byteswap.c) ------------------------------ */

/* AD_IMPORT_REFUSED or AD_IMPORT_FAILED for the exception that is set. */
ad_import_result ad_import_exception(ad_state *state);

/* Raise `err` and return AD_IMPORT_FAILED. */
ad_import_result ad_import_error(ad_state *state, const ad_error *err);

/* "__dlpack__ of numpy.ndarray", for messages; returns `buffer`. */
#define AD_ORIGIN_SIZE 128
const char *ad_origin(const char *attribute, PyObject *object, char *buffer);

/* Last step of every import of a tensor: what stream=-1 says need not be
 * waited for is dropped, and the copy is made that copy=True asks for, where
 * the memory lies, unless the producer made one. That copy is waited for in any
 * case. On failure *value is cleared. */
ad_import_result ad_finish_tensor(ad_state *state, const ad_request *request,
                                  ad_tensor_value *value);

/* The same for host memory whose elements may be in the other byte order, or
 * be times: those are swapped, which takes a copy, and become an array, in
 * *out, which holds the tensor as it was read. */
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

/* --- streams that a caller names (stream_argument.c) --------------------- */

/* Read a stream= argument (NULL and None: absent) when the device of the data
 * is not known yet. No runtime is called. -1 with TypeError: nothing that is
 * known. */
int ad_parse_stream(ad_state *state, PyObject *value, ad_stream_argument *out);

/* Read the stream of an argument that is there, for data on `device`; for a
 * device type of 0, objects only. -1 with TypeError (nothing that is known),
 * ValueError (a number that has no meaning there) or ExchangeError (an object
 * of another kind of device). */
int ad_parse_stream_of(ad_state *state, PyObject *value, ad_device device,
                       ad_stream_argument *out);

/* What core takes. choice->keep is a new reference on an owner of the object
 * (NULL for an int); drop it with ad_choice_clear. -1 with MemoryError. */
int ad_stream_argument_choice(const ad_stream_argument *argument,
                              ad_stream_choice *out);

/* The choice for work on `device`, with the errors of ad_parse_stream_of; NULL
 * is absent. Absent and -1 are "not given"; for -1 *no_sync is set, and where
 * no_sync is NULL work has to run somewhere, and -1 is refused (ValueError).
 * -1 with an exception. */
int ad_choose_stream(ad_state *state, const ad_stream_argument *argument,
                     ad_device device, bool *no_sync, ad_stream_choice *out);

/* ad_parse_stream and ad_choose_stream at once. */
int ad_read_choice(ad_state *state, PyObject *value, ad_device device,
                   bool *no_sync, ad_stream_choice *out);

/* Keeps the exception that is set. */
void ad_choice_clear(ad_stream_choice *choice);

/* Is one of the object's classes the one of this name in this library
 * (top-level module)? */
bool ad_is_of_class(PyObject *object, const char *library, const char *name);

/* The stream argument that says "no synchronization": the int -1. */
bool ad_stream_is_no_sync(PyObject *value);

/* The stream of a request as far as it is meant for memory on `device`: NULL
 * where it was left out, or is for the device to which the data will move. */
const ad_stream_argument *ad_request_stream(const ad_request *request,
                                            ad_device device);

/* The stream of a request for copies of our own; NULL: none, or -1. */
const ad_stream_argument *ad_request_copy_stream(const ad_request *request);

/* --- order (order.c) ------------------------------------------------------ */

/* The stream that a consumer on this type of device means who says None: the
 * legacy default one. False where there is no such thing. */
bool ad_default_stream(int32_t device_type, ad_stream *out);

/* Which device types CUDA's interfaces mean when they do not say: ROCM where
 * HIP is there and CUDA is not, as with torch's builds for it. */
int32_t ad_cuda_means(void);

/* Somebody is going to work with these data on `consumer`: that stream waits
 * for them, the host does not, and their owner records the stream. A stream of
 * another device is refused (AD_ERR_EXCHANGE, "stream"), whether anything is
 * pending or not. `what` is for the message. */
AD_MUST_CHECK ad_status ad_order_use(ad_device device, ad_sync *sync,
                                     ad_owner *owner,
                                     const ad_stream_choice *consumer,
                                     const char *what, ad_error *err);

/* The same for a consumer who works on this thread's current stream, or else
 * the default one. Where there is none, or memory is exchanged without
 * streams, the host waits. */
AD_MUST_CHECK ad_status ad_order_thread(const ad_tensor *tensor,
                                        const char *what, ad_error *err);

/* Work on the data of this tensor may be pending on a stream of `producer`:
 * note it in the sync. */
AD_MUST_CHECK ad_status ad_order_pending(ad_tensor *tensor,
                                         const ad_stream_choice *producer,
                                         ad_error *err);

/* Nothing to order: host memory that is ready. */
static inline bool
ad_is_plain(ad_device device, const ad_sync *sync)
{
    return device.type == AD_CPU.type && sync == NULL;
}

/* Exported by buffer.c for the type slots of Array, Tensor and Buffer. */
int ad_buffer_get(PyObject *self, Py_buffer *view, int flags);
void ad_buffer_release(PyObject *self, Py_buffer *view);

#endif /* AD_PROTOCOL_PROTOCOL_H */
