/* Owners of Python objects and buffers. Like every release that takes the GIL
 * (see ad_py_enter) they check for finalization, preserve a pending exception,
 * and leak on purpose rather than call into a finalized interpreter.
 */
#ifndef AD_SUPPORT_PY_OWNER_H
#define AD_SUPPORT_PY_OWNER_H

#include "base/owner.h"
#include "support/compat.h"

/* An owner that holds one strong reference. NULL with MemoryError. */
ad_owner *ad_py_owner_new(PyObject *object);

/* An owner of the buffer that `object` exports with these PyBUF_ flags, which
 * `*out` borrows. The Py_buffer is filled where it stays, because its shape
 * and strides may point into it. NULL with an exception. */
ad_owner *ad_py_owner_of_buffer(PyObject *object, int flags,
                                const Py_buffer **out);

/* The object behind an owner made by ad_py_owner_new (borrowed), else NULL. */
PyObject *ad_py_owner_object(const ad_owner *owner);

#endif /* AD_SUPPORT_PY_OWNER_H */
