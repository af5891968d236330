/* What the two DLPack protocols share: a managed tensor as an ad_tensor and
 * back, and the rules that hold on both ways in.
 */
#ifndef AD_PROTOCOL_DLPACK_TENSOR_H
#define AD_PROTOCOL_DLPACK_TENSOR_H

#include "protocol/protocol.h"

/* --- managed tensors ----------------------------------------------------- */

/* Take over a managed tensor (legacy or versioned): its deleter runs with the
 * last reference on the owner of *out, or right here on failure. Shape,
 * strides and pointer are copied, since some producers hand out a live view
 * of theirs. Device memory gets a device owner, whose producer is not known:
 * a deleter says nothing of the stream on which the memory is used again.
 * Needs no GIL. */
AD_MUST_CHECK ad_status ad_dlpack_take(void *managed, bool is_versioned,
                                       ad_tensor_value *out, ad_error *err);

/* A managed tensor of either kind over the memory of `tensor`, in one block;
 * takes references of its own on owner and sync. `is_copy`: the memory was
 * made for this very exchange. Fails where a flag would be lost on a legacy
 * consumer, and for a device whose id is not known. Whether the consumer has
 * to wait is the caller's business. Needs no GIL; nor does the deleter. */
AD_MUST_CHECK ad_status ad_dlpack_give(const ad_tensor *tensor,
                                       bool is_versioned, bool is_copy,
                                       void **out, ad_error *err);

/* Let another library's function make an object of a versioned tensor of
 * ad_dlpack_give. On failure the tensor is deleted exactly once, whether or
 * not the function has done so: implementations differ. Returns 0 or -1. */
int ad_dlpack_hand_over(ad_dl_to_py_fn to_py, void *managed, void **object);

/* As ad_dlpack_give, but a bare view without owner or flags, valid while the
 * dimensions of `tensor` are. */
AD_MUST_CHECK ad_status ad_dlpack_view(const ad_tensor *tensor,
                                       ad_dl_tensor *out, ad_error *err);

/* The device as DLPack writes it. Fails for one whose id is not known. */
AD_MUST_CHECK ad_status ad_dlpack_device(ad_device device, ad_dl_device *out,
                                         ad_error *err);

/* --- import -------------------------------------------------------------- */

/* The type marks tensors in ways that DLPack cannot express (torch's
 * requires_grad, negative and conjugate bits): ask ad_dlpack_check_flags. */
bool ad_dlpack_type_has_flags(ad_state *state, PyTypeObject *type);

/* May elements of this type be so marked? */
bool ad_dlpack_may_have_flags(ad_dl_dtype dtype);

/* Ask an object whose type has such marks. AD_IMPORT_DONE: none is set. */
ad_import_result ad_dlpack_check_flags(ad_state *state, PyObject *object,
                                       bool may_be_conjugate);

/* Hold the producer to what `copy` asked for: AD_IMPORT_DONE, or refused,
 * with `tensor` cleared. A copy that it did not make is made here. */
ad_import_result ad_dlpack_check_copy(ad_state *state,
                                      const ad_request *request,
                                      ad_tensor_value *tensor);

/* --- export (dlpack_export.c) -------------------------------------------- */

/* The methods of Tensor, and the getters of Array that give them. Not const
 * only because PyCFunction_New does not take it so. */
extern PyMethodDef ad_dlpack_methods[];
extern const PyGetSetDef ad_dlpack_array_getset[];

/* Read a tuple of two ints; numbers out of range become the nearest limit,
 * which no device or version has. -1 with TypeError or ValueError. */
int ad_dlpack_read_pair(PyObject *value, const char *name, long long out[2]);

/* --- the C exchange API (dlpack_exchange.c) ------------------------------ */

/* The table in the type's own dict (a subclass may have changed what the
 * table of its base does not know of), or NULL; sets no exception. */
const ad_dl_exchange_api *ad_dlpack_exchange_of(ad_state *state,
                                                PyTypeObject *type);

/* An object of the class that offers `api` over the memory of `tensor`, which
 * gains references. The stream on which the class works now waits for the
 * data. Returns a new reference, or NULL with an exception. */
PyObject *ad_dlpack_exchange_into(ad_state *state,
                                  const ad_dl_exchange_api *api,
                                  const ad_tensor *tensor);

/* Make state->exchange_api_capsule, our own table, whose functions serve the
 * types of this state from now on. Returns 0 or -1. */
int ad_dlpack_exchange_init(ad_state *state);

/* Called when the module is freed: the functions raise from now on. */
void ad_dlpack_exchange_clear(ad_state *state);

#endif /* AD_PROTOCOL_DLPACK_TENSOR_H */
