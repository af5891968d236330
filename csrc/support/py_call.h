/* Foreign threads attach to the interpreter here, to call Python code or to
 * release an object.
 */
#ifndef AD_SUPPORT_PY_CALL_H
#define AD_SUPPORT_PY_CALL_H

#include <time.h>

#include "support/compat.h"

/* Attach this thread to the interpreter for a release. Returns false if that
 * is no longer possible. PyGILState_Release(*gil) detaches the thread. */
bool ad_py_enter(PyGILState_STATE *gil);

/* The same for calls that may take long: the interpreter waits for them before
 * it finalizes. Once it is about to finalize, the result is false, except in
 * the thread that has called ad_py_call_stop, while that thread holds the
 * GIL. */
bool ad_py_call_begin(PyGILState_STATE *gil);
void ad_py_call_end(PyGILState_STATE gil);

/* Allow calls from now on. */
void ad_py_call_start(void);

/* Refuse new calls of other threads, and wait until the calls that they have
 * begun are over, or until `deadline` (of CLOCK_REALTIME). Call without the
 * GIL. */
void ad_py_call_stop(const struct timespec *deadline);

/* --- helpers written in Python: arrowdev.<submodule>.<function> ------------- */

/* Find a helper. Returns a new reference, or NULL with an exception. */
PyObject *ad_find_helper(const char *submodule, const char *function);

/* Call a helper. Returns a new reference, or NULL with an exception. */
PyObject *ad_call_helper(const char *submodule, const char *function,
                         PyObject *const *args, size_t n_args);

#endif /* AD_SUPPORT_PY_CALL_H */
