/* The one place where a thread that may know no Python attaches itself, to call
 * an iterator, or to release an object.
 */
#ifndef AD_SUPPORT_PY_CALL_H
#define AD_SUPPORT_PY_CALL_H

#include <time.h>

#include "support/compat.h"

/* Attach this thread to the interpreter, or say that this cannot be done any
 * more. For releases: PyGILState_Release(*gil) ends it. */
bool ad_py_enter(PyGILState_STATE *gil);

/* The same for calls that take their time: the interpreter waits for them
 * before it goes. Once it is about to go, the answer is no, but for the thread
 * that ends it, while that is attached. */
bool ad_py_call_begin(PyGILState_STATE *gil);
void ad_py_call_end(PyGILState_STATE gil);

/* Calls are possible from now on. */
void ad_py_call_start(void);

/* No more calls but by this thread. Wait until those that others have begun are
 * over, or until `deadline`, of CLOCK_REALTIME. Call without the GIL. */
void ad_py_call_stop(const struct timespec *deadline);

#endif /* AD_SUPPORT_PY_CALL_H */
