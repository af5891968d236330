/* Shared by __array_interface__, __cuda_array_interface__ and
 * __sycl_usm_array_interface__: a dict that describes a strided block of
 * memory. Every field is read or refused, and ad_tensor_check validates the
 * result before its use.
 */
#ifndef AD_PROTOCOL_ARRAY_INTERFACE_H
#define AD_PROTOCOL_ARRAY_INTERFACE_H

#include "protocol/protocol.h"

typedef struct ad_interface ad_interface;
typedef struct ad_interface_rules ad_interface_rules;

/* Returns the tensor of a dict that has been read, with its sync. */
typedef ad_import_result (*ad_interface_tensor_fn)(ad_state *state,
                                                   PyObject *object,
                                                   const ad_request *request,
                                                   ad_interface *in,
                                                   ad_tensor_value *out);

/* The dict for `tensor`, or NULL with an exception. An AttributeError (see
 * ad_interface_unavailable) names the reason. */
typedef PyObject *(*ad_interface_export_fn)(ad_state *state,
                                            const ad_tensor *tensor,
                                            const ad_interface_rules *rules);

/* The differences of the three interfaces. */
struct ad_interface_rules {
    const char *name; /* of the attribute */
    int attribute;    /* AD_STR_* of it */
    int order_field;  /* AD_STR_* of the field that orders the work, or -1 */
    ad_interface_tensor_fn make_tensor;
    ad_interface_export_fn export_dict;
    /* The known versions. A later version may change the meaning of a field or
     * of its absence (as version 3 of CAI did), so it is refused. */
    int64_t min_version;
    int64_t max_version;
    /* Strides count elements, and a field `offset` is added to the pointer
     * (SYCL); else strides count bytes, and an offset must be 0. */
    bool counts_elements;
    /* Exported typestrs contain the byte order ("<f4"), not only the size
     * ("|f4"). Import accepts both. */
    bool exports_byte_order;
    /* even without elements: NumPy before 2.3 requires an address */
    bool exports_address_always;
    /* Host memory: the elements are readable, so that the other byte order and
     * times with NaT are supported. */
    bool is_host;
    /* The field `mask` is supported, an array with those nulls, and so are
     * elements of one bit, which a mask may have. */
    bool has_mask;
    /* Device memory only: the default device type, the traits of which an
     * accepted type has one, and the name of these types in messages. */
    int32_t device_type;
    uint32_t traits;
    const char *devices;
};

typedef enum ad_interface_field {
    AD_FIELD_VERSION,
    AD_FIELD_TYPESTR,
    AD_FIELD_SHAPE,
    AD_FIELD_DATA,
    AD_FIELD_STRIDES, /* from here on None is the same as absent */
    AD_FIELD_ORDER,   /* `stream` or `syclobj`, see order_field */
    AD_FIELD_DESCR,
    AD_FIELD_OFFSET,
    AD_FIELD_MASK,
    AD_N_FIELDS
} ad_interface_field;

/* A dict that has been read. */
struct ad_interface {
    const ad_interface_rules *rules;
    PyObject *dict;                /* strong; NULL: empty */
    PyObject *fields[AD_N_FIELDS]; /* strong; NULL: absent */
    Py_ssize_t n_known;            /* number of the dict's keys among them */
    bool is_mask; /* of another dict; cannot have a mask itself */
    int64_t version;
    ad_element element;
    ad_tensor_descriptor descriptor; /* all but the device; points at dims */
    ad_owner *memory;     /* of a buffer in the field data; NULL: a pointer */
    int64_t memory_start; /* of the descriptor's data in the buffer */
    int64_t memory_size;  /* of the buffer */
    bool is_bits;         /* descriptor describes bytes of bits */
    int64_t n_bits;       /* number of these bits */
    int64_t dims[2 * AD_MAX_NDIM];
    char origin[AD_ORIGIN_SIZE];
};

/* --- import ------------------------------------------------------------- */

/* The import function of the three protocols; `rules` of the protocol are its
 * ad_interface_rules. */
ad_import_result ad_interface_import(const ad_protocol *self, ad_state *state,
                                     PyObject *object,
                                     const ad_type_slot *slot,
                                     const ad_request *request,
                                     ad_imported *out);

/* Reads an int (or an object with __index__) that is at least `least`. `field`
 * is its name. Returns 0, or -1 with ExchangeError. */
int ad_interface_int(ad_state *state, const char *origin, const char *field,
                     PyObject *value, int64_t least, int64_t *out);

/* Raises ExchangeError: "<origin>: <field> is <found>, expected <expected>".
 * A pending exception becomes its cause. */
void ad_interface_wrong(ad_state *state, const char *origin, const char *field,
                        PyObject *found, const char *expected);

/* The tensor of the descriptor, on `device`. `object` keeps it alive, together
 * with the dict if that has unknown fields: numpy's scalars keep the memory in
 * one. */
ad_import_result ad_interface_tensor(ad_state *state, PyObject *object,
                                     ad_interface *in, ad_device device,
                                     ad_tensor_value *out);

/* The device of the memory without a runtime: the one of the request, else
 * that of __dlpack_device__ of `object`, else a device of the rules' type with
 * an unknown ordinal (-1), since "the current device" would be a guess (0 if
 * there is no memory).
 * Refused for a type that the rules do not accept; AD_IMPORT_FAILED if
 * __dlpack_device__ returns no pair of ints or raises a final exception. */
ad_import_result ad_interface_believe_device(ad_state *state, PyObject *object,
                                             const ad_request *request,
                                             const ad_interface *in,
                                             ad_device *out);

/* --- export -------------------------------------------------------------- */

/* The getter of the attribute of a Tensor, Buffer or Array; the closure is the
 * ad_interface_rules. */
PyObject *ad_interface_get(PyObject *self, void *rules);

/* A new dict with shape, typestr, data, strides and version. */
PyObject *ad_interface_build(ad_state *state, const ad_tensor *tensor,
                             const ad_interface_rules *rules);

/* Raises AttributeError "<name> is not available: <why>"; returns NULL. */
PyObject *ad_interface_unavailable(const ad_interface_rules *rules,
                                   const char *format, ...);

/* Raises `err`, as such an AttributeError if it is AD_ERR_EXCHANGE, else
 * unchanged; returns NULL. */
PyObject *ad_interface_failed(ad_state *state, const ad_interface_rules *rules,
                              const ad_error *err);

#endif /* AD_PROTOCOL_ARRAY_INTERFACE_H */
