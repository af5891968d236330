/* Shared by the two DLPack protocols: a managed tensor as an ad_tensor and
 * back, and the rules for both ways of import.
 */
#ifndef AD_PROTOCOL_DLPACK_TENSOR_H
#define AD_PROTOCOL_DLPACK_TENSOR_H

#include "protocol/protocol.h"

/* --- managed tensors ----------------------------------------------------- */

/* Takes over a managed tensor (legacy or versioned): its deleter runs with the
 * last reference on the owner of *out, or during this call on failure. Shape,
 * strides and pointer are copied, since some producers export a live view of
 * them. Device memory gets a device owner without a free stream, since a
 * deleter does not state the stream that reuses the memory. A tensor of
 * ad_dlpack_give is deleted at once, and *out gets the owner that was exported:
 * uses are recorded where the memory is released. Needs no GIL. */
AD_MUST_CHECK ad_status ad_dlpack_take(void *managed, bool is_versioned,
                                       ad_tensor_value *out, ad_error *err);

/* The same as a column, for a tensor that is one without a copy and without a
 * change of meaning: one dimension without gaps, of plain numbers. False:
 * nothing was taken over. */
bool ad_dlpack_take_column(ad_dl_managed_versioned *managed, ad_array *out);

/* Calls the deleter of a managed tensor. Needs no GIL. */
void ad_dlpack_delete(void *managed, bool is_versioned);

/* Creates a managed tensor of either kind over the memory of `tensor`, in one
 * block, with new references on owner and sync. `is_copy`: the memory was
 * allocated for this exchange. Fails if a legacy consumer would miss a flag,
 * or if the id of the device is unknown. The caller orders the consumer's use.
 * Neither this function nor the deleter needs the GIL. */
AD_MUST_CHECK ad_status ad_dlpack_give(const ad_tensor *tensor,
                                       bool is_versioned, bool is_copy,
                                       void **out, ad_error *err);

/* Lets another library's function create an object from a versioned tensor of
 * ad_dlpack_give. On failure the tensor is deleted exactly once, whether or
 * not the function has deleted it: implementations differ. Returns 0 or -1. */
int ad_dlpack_hand_over(ad_dl_to_py_fn to_py, void *managed, void **object);

/* As ad_dlpack_give, but a DLTensor without owner or flags, valid as long as
 * the dimensions of `tensor`. */
AD_MUST_CHECK ad_status ad_dlpack_view(const ad_tensor *tensor,
                                       ad_dl_tensor *out, ad_error *err);

/* The device in DLPack's form. Fails if its id is unknown. */
AD_MUST_CHECK ad_status ad_dlpack_device(ad_device device, ad_dl_device *out,
                                         ad_error *err);

/* --- import -------------------------------------------------------------- */

/* Records whether the type has flags that DLPack cannot express (torch's
 * requires_grad, negative and conjugate bits), see ad_dlpack_check_flags, and
 * whether it ignores streams. */
void ad_dlpack_probe(ad_state *state, PyTypeObject *type, ad_type_slot *slot);

/* For device memory of a type that ignores streams: without a stream in the
 * request, returns AD_IMPORT_FAILED with ExchangeError. */
ad_import_result ad_dlpack_require_stream(ad_state *state,
                                          const ad_type_slot *slot,
                                          const ad_request *request,
                                          ad_device device);

/* Returns whether elements of this type can have such flags. */
bool ad_dlpack_may_have_flags(ad_dl_dtype dtype);

/* Reads the flags of an object whose type has them. AD_IMPORT_DONE: none is
 * set. */
ad_import_result ad_dlpack_check_flags(ad_state *state, PyObject *object,
                                       const ad_type_slot *slot,
                                       bool may_be_conjugate);

/* Enforces the `copy` of the request: AD_IMPORT_DONE, or refused with `tensor`
 * cleared. If the producer did not copy, the copy is made here. */
ad_import_result ad_dlpack_check_copy(ad_state *state,
                                      const ad_request *request,
                                      ad_tensor_value *tensor);

/* --- the C exchange API (dlpack_exchange.c) ------------------------------ */

/* Creates an object of the class of `slot`, which has a table, over the memory
 * of `tensor`, with new references. The current stream of that library waits
 * for the data. For a class that ignores streams the host waits, unless the
 * caller has named a stream, which waits already (`has_stream`). Returns a new
 * reference, or NULL with an exception. */
PyObject *ad_dlpack_exchange_into(ad_state *state, const ad_type_slot *slot,
                                  const ad_tensor *tensor, bool has_stream);

/* A function of arrowdev's own table: a new Tensor over a versioned tensor,
 * which is taken over, on failure too. Work may be pending on it on this
 * thread's current stream, or else on the default stream. Returns 0, or -1
 * with an exception. */
int ad_dlpack_to_py(ad_dl_managed_versioned *managed, void **out_py_object);

/* Creates state->exchange_api_capsule, arrowdev's own table, whose functions
 * accept the types of every state of ad_state_add(). Returns 0 or -1. */
int ad_dlpack_exchange_init(ad_state *state);

#endif /* AD_PROTOCOL_DLPACK_TENSOR_H */
