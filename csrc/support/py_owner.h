/* Owners that hold Python things. Like every release that takes the GIL (see
 * ad_py_enter) they check for finalization, preserve a pending exception, and
 * leak on purpose rather than call into an interpreter that is gone.
 */
#ifndef AD_SUPPORT_PY_OWNER_H
#define AD_SUPPORT_PY_OWNER_H

#include "base/owner.h"
#include "support/compat.h"

/* An owner that holds one strong reference. NULL with MemoryError. */
ad_owner *ad_py_owner_new(PyObject *object);

/* An owner that holds a Py_buffer; takes it over by bitwise move on success.
 * NULL with MemoryError: the buffer is still the caller's. */
ad_owner *ad_py_owner_from_buffer(Py_buffer *buffer);

/* The object behind an owner made by ad_py_owner_new (borrowed), else NULL. */
PyObject *ad_py_owner_object(const ad_owner *owner);

#endif /* AD_SUPPORT_PY_OWNER_H */
