/* Foreign threads attach to the interpreter here, to call Python code or to
 * release an object: with them, the owners of Python objects, and calls of
 * helpers that are written in Python.
 */
#ifndef AD_SUPPORT_PY_CALL_H
#define AD_SUPPORT_PY_CALL_H

#include <stdint.h>

#include "base/owner.h"
#include "support/compat.h"

/* Attach this thread to the interpreter for a release or another short piece
 * of work, and set a pending exception aside. The interpreter waits for the
 * work that has begun before it finalizes. Returns false in a thread that does
 * not hold the GIL once the interpreter is about to finalize. */
typedef struct ad_py_entry {
    bool is_attached; /* false: the thread holds the GIL anyway */
    PyGILState_STATE gil;
    PyObject *exception;
} ad_py_entry;

bool ad_py_enter(ad_py_entry *self);
void ad_py_leave(ad_py_entry *self);

/* The same for calls that may take long. Once the interpreter is about to
 * finalize, the result is false in threads that hold the GIL, too, except in
 * the thread that has called ad_py_calls_stop. */
bool ad_py_call_begin(PyGILState_STATE *gil);
void ad_py_call_end(PyGILState_STATE gil);

/* Allow calls from now on. */
void ad_py_calls_allow(void);

/* Refuse new calls and entries of other threads, and wait until those that
 * they have begun are over, or until the time `deadline` of ad_now(). Call
 * without the GIL. */
void ad_py_calls_stop(int64_t deadline);

/* --- owners of Python objects -------------------------------------------- */

/* Like every release that takes the GIL (see ad_py_enter) they check for
 * finalization, preserve a pending exception, and leak on purpose rather than
 * call into a finalized interpreter. */

/* An owner that holds one strong reference. NULL with MemoryError. */
ad_owner *ad_py_owner_new(PyObject *object);

/* An owner of the buffer that `object` exports with these PyBUF_ flags, which
 * `*out` borrows. The Py_buffer is filled where it stays, because its shape
 * and strides may point into it. NULL with an exception. */
ad_owner *ad_py_owner_of_buffer(PyObject *object, int flags,
                                const Py_buffer **out);

/* The object behind an owner made by ad_py_owner_new (borrowed), else NULL. */
PyObject *ad_py_owner_object(const ad_owner *owner);

/* --- helpers written in Python: arrowdev.<submodule>.<function> ---------- */

/* Find a helper. Returns a new reference, or NULL with an exception. */
PyObject *ad_find_helper(const char *submodule, const char *function);

/* Call a helper. Returns a new reference, or NULL with an exception. */
PyObject *ad_call_helper(const char *submodule, const char *function,
                         PyObject *const *args, size_t n_args);

#endif /* AD_SUPPORT_PY_CALL_H */
