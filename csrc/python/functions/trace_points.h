/* What is exchanged for its traced form while a trace is on: the functions and
 * methods that import, export and convert, the buffer slots, the protocols that
 * ad_import() tries, and the releases of memory that came in or went out. All
 * of it costs nothing while no trace is on.
 */
#ifndef AD_PYTHON_FUNCTIONS_TRACE_POINTS_H
#define AD_PYTHON_FUNCTIONS_TRACE_POINTS_H

#include <stdbool.h>

#include "base/trace.h"
#include "support/state.h"

/* Puts the traced forms in place, or what was there before. -1 with an
 * exception, and nothing is changed. */
int ad_trace_points_set(PyObject *module, bool on);

/* Adds an event with the line of the user (trace.c). */
void ad_trace_add_python(ad_trace_event *event);

#endif /* AD_PYTHON_FUNCTIONS_TRACE_POINTS_H */
