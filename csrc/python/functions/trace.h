/* The Python side of a trace (base/trace.h, docs/trace.md). For _trace.py.
 */
#ifndef AD_PYTHON_FUNCTIONS_TRACE_H
#define AD_PYTHON_FUNCTIONS_TRACE_H

#include "support/state.h"

/* _trace_start(capacity, folders): the folder of arrowdev, then those of all
 * other code that is not the user's. */
PyObject *ad_function_trace_start(PyObject *module, PyObject *args);
/* _trace_stop(): the events as dicts, how many full rings have dropped, and how
 * many were lost for want of memory. None if the trace has ended, see below. */
PyObject *ad_function_trace_stop(PyObject *module, PyObject *ignored);

/* Ends a trace that this sub-interpreter leaves open: the next one may be of
 * another interpreter, and must not find its objects. */
void ad_trace_at_exit(void);

#endif /* AD_PYTHON_FUNCTIONS_TRACE_H */
