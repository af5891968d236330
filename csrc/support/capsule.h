/* Capsules, driven by one table: name, name once used, what frees them.
 *
 * Arrow: the capsule keeps its name; the struct inside is moved out by setting
 * its `release` to NULL. DLPack, and handlers of async streams, which must stay
 * where they are: the capsule is renamed when consumed.
 */
#ifndef AD_SUPPORT_CAPSULE_H
#define AD_SUPPORT_CAPSULE_H

#include "abi/arrow_c.h"
#include "abi/dlpack.h"
#include "support/state.h"

typedef enum ad_capsule_kind {
    AD_CAPSULE_SCHEMA,
    AD_CAPSULE_ARRAY,
    AD_CAPSULE_STREAM,
    AD_CAPSULE_DEVICE_ARRAY,
    AD_CAPSULE_DEVICE_STREAM,
    AD_CAPSULE_DLPACK,
    AD_CAPSULE_DLPACK_VERSIONED,
    AD_CAPSULE_ASYNC_HANDLER
} ad_capsule_kind;

/* The name of a live capsule of this kind. */
const char *ad_capsule_name(ad_capsule_kind kind);

/* A new capsule that owns `pointer`: a holder of the core for the Arrow kinds
 * (ad_schema_export, ad_array_export, ...), a managed tensor for DLPack, a
 * handler that nobody else releases. On failure `pointer` is freed and NULL returned with an exception. */
PyObject *ad_capsule_new(ad_capsule_kind kind, void *pointer);

/* Borrow the struct inside. NULL with ExchangeError, which names what was
 * found, when `capsule` is no capsule, has another name, or was consumed
 * ("used_...", or a struct whose release is NULL). `origin` names where it
 * came from ("__dlpack__ of Foo"). */
void *ad_capsule_get(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
                     const char *origin);

/* Consume a capsule of DLPack or of an async handler: rename it first, so that
 * nobody else can own what is in it; from then on the caller must call the
 * deleter or `release`, on failure too. NULL as in ad_capsule_get. */
void *ad_capsule_consume(ad_state *state, PyObject *capsule,
                         ad_capsule_kind kind, const char *origin);

/* A tuple of two capsules, whatever is in them. */
static inline bool
ad_is_capsule_pair(PyObject *object)
{
    return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2 &&
           PyCapsule_CheckExact(PyTuple_GET_ITEM(object, 0)) &&
           PyCapsule_CheckExact(PyTuple_GET_ITEM(object, 1));
}

#endif /* AD_SUPPORT_CAPSULE_H */
