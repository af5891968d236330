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

/* An owner that holds a Py_buffer, which it takes over by bitwise move. On
 * failure NULL with MemoryError; the caller keeps the buffer. */
ad_owner *ad_py_owner_from_buffer(Py_buffer *buffer);

/* The object behind an owner made by ad_py_owner_new (borrowed), else NULL. */
PyObject *ad_py_owner_object(const ad_owner *owner);

#endif /* AD_SUPPORT_PY_OWNER_H */
