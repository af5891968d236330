/* The contract of a protocol: one file ending in one `const ad_protocol`, one
 * line in protocols.def. Protocols and devices never meet; a protocol turns
 * foreign objects into an ad_array or an ad_tensor, and shows ours.
 *
 * A protocol file may call Python methods and fetch, match and clear
 * exceptions. It never looks into another protocol's objects.
 */
#ifndef AD_PROTOCOL_PROTOCOL_H
#define AD_PROTOCOL_PROTOCOL_H

#include "core/array.h"
#include "core/bridge.h"
#include "core/tensor.h"
#include "python/args.h"
#include "python/capsule.h"
#include "python/errors.h"
#include "python/objects.h"
#include "python/py_owner.h"
#include "python/state.h"

/* What the caller of array(), tensor(), ... asked for. */
typedef struct ad_request {
    ad_copy copy;
    PyObject *stream; /* borrowed; NULL when left out or None */
    PyObject *schema; /* borrowed ad.Schema that is wished for, or NULL */
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

/* Import `object`. `slot` is what is known of its type (borrowed). Final are:
 * MemoryError, DeviceError, exceptions that are no Exception, a malformed
 * struct, capsules or dicts that are not what the protocol says, and a meaning
 * that would be lost (nulls, requires_grad, conjugate). A producer's own
 * exception is a refusal. */
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

/* --- what protocol files share (protocol.c) ------------------------------ */

/* AD_IMPORT_REFUSED or AD_IMPORT_FAILED for the exception that is set. */
ad_import_result ad_import_exception(ad_state *state);

/* Raise `err` and return AD_IMPORT_FAILED. */
ad_import_result ad_import_error(ad_state *state, const ad_error *err);

/* "__dlpack__ of numpy.ndarray", for messages; returns `buffer`. */
#define AD_ORIGIN_SIZE 128
const char *ad_origin(const char *attribute, PyObject *object, char *buffer);

/* Read a DLPack-like stream argument for a device without asking a runtime:
 * an int, or an object with __cuda_stream__, .cuda_stream, ... Gives
 * the stream number in *out. 0 on success, -1 with TypeError or ValueError
 * (bare 0 where the device's protocol refuses it, negative numbers but -1). */
int ad_stream_number(ad_state *state, PyObject *stream, int32_t device_type,
                     intptr_t *out);

/* The stream argument that says "no synchronization": the int -1. */
bool ad_stream_is_off(PyObject *stream);

/* 0 for a stream argument of a kind that is known, for a device that is not
 * known yet: an int, or a stream or queue object. -1 with TypeError. */
int ad_stream_check(ad_state *state, PyObject *stream);

/* Exported by buffer.c for the type slots of Array, Tensor and Buffer. */
int ad_buffer_get(PyObject *self, Py_buffer *view, int flags);
void ad_buffer_release(PyObject *self, Py_buffer *view);

#endif /* AD_PROTOCOL_PROTOCOL_H */
