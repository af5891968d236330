/* The only place where an ad_error becomes a Python exception.
 */
#ifndef AD_SUPPORT_ERRORS_H
#define AD_SUPPORT_ERRORS_H

#include "base/status.h"
#include "support/state.h"

/* Create the exception classes and put them into state and module. */
int ad_errors_init(ad_state *state, PyObject *module);

/* Raise *err and return NULL. An exception that is set already becomes the
 * cause (__cause__) of the new one. */
PyObject *ad_raise(ad_state *state, const ad_error *err);

/* Raise ExchangeError with reason, hint (may be NULL) and a formatted text
 * (PyErr_Format codes); an exception already set becomes its cause. Returns
 * NULL. */
PyObject *ad_raise_exchange(ad_state *state, const char *reason,
                            const char *hint, const char *format, ...);

/* Raise `exception` (stolen; may be NULL with an exception set) because of
 * `cause` (stolen, may be NULL). Returns NULL. */
PyObject *ad_raise_with_cause(PyObject *exception, PyObject *cause);

/* The raised exception must not be taken for a producer's refusal: it is a
 * MemoryError, a DeviceError, or no Exception at all (KeyboardInterrupt). */
bool ad_exception_is_final(ad_state *state);

#endif /* AD_SUPPORT_ERRORS_H */
