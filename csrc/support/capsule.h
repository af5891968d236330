/* Capsules, driven by one table: name, name after consumption, free function.
 *
 * A consumed Arrow capsule keeps its name; its struct is moved out, and the
 * `release` in the capsule set to NULL. A consumed capsule of DLPack or of an
 * async handler, whose struct must stay in place, is renamed.
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

/* Free what a capsule of this kind owns. The GIL is held, except for DLPack,
 * which needs none. */
void ad_capsule_free(ad_capsule_kind kind, void *pointer);

/* A new capsule that owns `pointer`: an export holder for the Arrow kinds
 * (ad_schema_export, ad_array_export, ...), a managed tensor for DLPack, or a
 * handler whose only owner is the capsule. On failure `pointer` is freed, and
 * the result is NULL with an exception. */
PyObject *ad_capsule_new(ad_capsule_kind kind, void *pointer);

/* Is the object a capsule with the name of a live one of this kind? Another
 * thread may consume it next. */
bool ad_capsule_has_name(PyObject *object, ad_capsule_kind kind);

/* Borrow the struct in the capsule. NULL with an ExchangeError that names the
 * object found, if `capsule` is not a capsule, has another name, or was
 * consumed (named "used_...", or `release` is NULL). `origin` names the source
 * of the capsule ("__dlpack__ of Foo"). The caller holds the lock of the
 * capsule (Py_BEGIN_CRITICAL_SECTION) until it has read or moved the struct,
 * because another thread may consume the same capsule. */
void *ad_capsule_get(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
                     const char *origin);

/* Consume a capsule of DLPack or of an async handler: rename it, so that the
 * caller is the only owner of the contents. The caller must then call the
 * deleter or `release`, on failure too. NULL as in ad_capsule_get. */
void *ad_capsule_consume(ad_state *state, PyObject *capsule,
                         ad_capsule_kind kind, const char *origin);

/* Is the object a tuple of two capsules, of any kind? */
static inline bool
ad_is_capsule_pair(PyObject *object)
{
    return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2 &&
           PyCapsule_CheckExact(PyTuple_GET_ITEM(object, 0)) &&
           PyCapsule_CheckExact(PyTuple_GET_ITEM(object, 1));
}

#endif /* AD_SUPPORT_CAPSULE_H */
