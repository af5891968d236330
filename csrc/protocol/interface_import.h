/* What __array_interface__, __cuda_array_interface__ and
 * __sycl_usm_array_interface__ share: a dict that says where a strided block
 * lies. Every field is read or refused; nothing is believed before
 * ad_tensor_check has seen it.
 */
#ifndef AD_PROTOCOL_INTERFACE_IMPORT_H
#define AD_PROTOCOL_INTERFACE_IMPORT_H

#include "protocol/protocol.h"

/* What they differ in. */
typedef struct ad_interface_rules {
    const char *name; /* of the attribute */
    int attribute;    /* AD_STR_* of it */
    /* Versions whose meaning is known. A later one may change what a field,
     * or its absence, means (version 3 of CAI did), so it is refused. */
    int64_t min_version;
    int64_t max_version;
    /* Strides count elements and a field `offset` moves the pointer (SYCL);
     * else strides count bytes and an offset other than 0 is refused. */
    bool counts_elements;
    /* Shown typestrs say the byte order ("<f4"), not only the size ("|f4").
     * Both are read. */
    bool exports_byte_order;
    /* of nothing too: NumPy before 2.3 wants one */
    bool exports_address_always;
    /* Host memory: elements can be looked at, so that those in the other byte
     * order and times with NaT are read. */
    bool is_host;
    /* A field `mask` is read, see ad_interface_add_mask, and so are elements
     * that are bits, as those of a mask may be. */
    bool has_mask;
    /* The dict is that of a mask, which has none itself. */
    bool is_mask;
    /* Device memory alone: the type that is meant where nobody says it, which
     * types are taken, and what those are called in messages. */
    int32_t device_type;
    bool (*takes)(int32_t device_type);
    const char *devices;
} ad_interface_rules;

/* A dict that has been read. */
typedef struct ad_interface {
    PyObject *dict;     /* strong; NULL: empty */
    Py_ssize_t n_known; /* fields of it that have been looked at */
    int64_t version;
    ad_element element;
    ad_tensor_descriptor descriptor; /* all but the device; points at dims */
    bool is_bits;                    /* what is claimed are the bytes ... */
    int64_t n_bits;                  /* ... of so many */
    PyObject *mask;                  /* strong, or NULL */
    int64_t dims[2 * AD_MAX_NDIM];
    char origin[AD_ORIGIN_SIZE];
} ad_interface;

/* --- import ------------------------------------------------------------- */

/* Fetch and read the dict of `object`. On AD_IMPORT_DONE the caller must call
 * ad_interface_clear. */
ad_import_result ad_interface_read(ad_state *state, PyObject *object,
                                   const ad_interface_rules *rules,
                                   ad_interface *out);
void ad_interface_clear(ad_interface *in);

/* New reference to a further field of the dict, or NULL where it is absent or
 * None. Returns 0, or -1 with an exception. */
int ad_interface_field(ad_state *state, ad_interface *in, int name,
                       PyObject **out);

/* Read an int (or what has __index__) that is at least `least`. `field` is
 * its name. Returns 0, or -1 with ExchangeError. */
int ad_interface_int(ad_state *state, const char *origin, const char *field,
                     PyObject *value, int64_t least, int64_t *out);

/* Raise ExchangeError: "<origin>: <field> is <found>, expected <expected>".
 * An exception already set becomes its cause. */
void ad_interface_wrong(ad_state *state, const char *origin, const char *field,
                        PyObject *found, const char *expected);

/* The tensor that was claimed, on `device`, kept alive by `object` (and by
 * the dict where it has fields that nobody knows: numpy's scalars keep the
 * memory in one). Call it when every field has been looked at. */
ad_import_result ad_interface_tensor(ad_state *state, PyObject *object,
                                     ad_interface *in, ad_device device,
                                     ad_tensor_value *out);

/* Where the memory lies, for who has no runtime to ask: what the caller says,
 * else what __dlpack_device__ of `object` says, else a device of the rules'
 * type whose ordinal is not known (-1), since "the current device" would be a
 * guess. Refused for a type that the rules do not take; AD_IMPORT_FAILED when
 * __dlpack_device__ gives no pair of ints, or an exception that is final. */
ad_import_result ad_interface_believe_device(ad_state *state, PyObject *object,
                                             const ad_request *request,
                                             const char *origin,
                                             const ad_interface_rules *rules,
                                             ad_device *out);

/* --- bits and masks (interface_mask.c) ------------------------------------ */

/* For a dict with is_bits: *out, the tensor of the bytes that were claimed,
 * becomes a column of bools over them. On failure *out is cleared. */
ad_import_result ad_interface_take_bits(ad_state *state,
                                        const ad_interface *in,
                                        ad_imported *out);

/* The tensor of a dict that has been read, with its sync. */
typedef ad_import_result (*ad_interface_tensor_fn)(ad_state *state,
                                                   PyObject *object,
                                                   const ad_request *request,
                                                   ad_interface *in,
                                                   ad_tensor_value *out);

/* The last step of an import: where the dict `in` has a mask, *out becomes an
 * array with those nulls, which waits for both. `make` is given the mask's own
 * dict. On failure, which is final, *out is cleared. */
ad_import_result
ad_interface_add_mask(ad_state *state, const ad_request *request,
                      const ad_interface_rules *rules, const ad_interface *in,
                      ad_interface_tensor_fn make, ad_imported *out);

/* --- export (protocol/interface_export.c) ------------------------------------------ */

/* The dict for `tensor`, or NULL with an exception. An AttributeError (see
 * ad_interface_unavailable) says why there is none. */
typedef PyObject *(*ad_interface_export_fn)(ad_state *state,
                                            const ad_tensor *tensor);

/* The attribute of `self`, a Tensor, Buffer or Array of ours: `export_dict` of
 * the tensor that it stands for. */
PyObject *ad_interface_export(PyObject *self, const ad_interface_rules *rules,
                              ad_interface_export_fn export_dict);

/* A new dict with shape, typestr, data, strides and version. */
PyObject *ad_interface_build(ad_state *state, const ad_tensor *tensor,
                             const ad_interface_rules *rules);

/* Raise AttributeError "<name> is not available: <why>"; returns NULL. */
PyObject *ad_interface_unavailable(const ad_interface_rules *rules,
                                   const char *format, ...);

/* Raise `err`: as such an AttributeError where it says that the data cannot be
 * exchanged, else as it is; returns NULL. */
PyObject *ad_interface_failed(ad_state *state, const ad_interface_rules *rules,
                              const ad_error *err);

#endif /* AD_PROTOCOL_INTERFACE_IMPORT_H */
