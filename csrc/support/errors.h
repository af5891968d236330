/* Our exceptions. Only ad_raise() and ad_raise_text() give an exception the
 * fields of an ad_error, and ad_error_describe() takes them out of one;
 * elsewhere the text becomes that of another exception, or of a result.
 */
#ifndef AD_SUPPORT_ERRORS_H
#define AD_SUPPORT_ERRORS_H

#include "base/status.h"
#include "support/state.h"

/* Create the exception classes and put them into state and module. */
int ad_errors_init(ad_state *state, PyObject *module);

/* Raise *err. An exception that is already set becomes the cause (__cause__)
 * of the new one. Returns NULL. */
PyObject *ad_raise(ad_state *state, const ad_error *err);

/* The same with `text` (stolen; may be NULL with an exception set), which may
 * be longer than an ad_error, in place of the message. The hint follows unless
 * the text has it. */
PyObject *ad_raise_text(ad_state *state, const ad_error *err, PyObject *text);

/* If `exception` is one of ours, give *err its class and its fields; the
 * message stays. */
void ad_error_describe(ad_state *state, PyObject *exception, ad_error *err);

/* Raise *err unless the status is AD_OK. Returns 0, or -1. */
static inline int
ad_raise_status(ad_state *state, ad_status status, const ad_error *err)
{
    return status == AD_OK || ad_raise(state, err) != NULL ? 0 : -1;
}

/* Raise ExchangeError with reason, hint (may be NULL) and a formatted text
 * (PyErr_Format codes); an exception already set becomes its cause. Returns
 * NULL. */
PyObject *ad_raise_exchange(ad_state *state, const char *reason,
                            const char *hint, const char *format, ...);

/* Raise `exception` (stolen; may be NULL with an exception set) with the cause
 * `cause` (stolen, may be NULL). Returns NULL. */
PyObject *ad_raise_with_cause(PyObject *exception, PyObject *cause);

/* Put a prefix (PyErr_Format codes) before the text of the current exception,
 * if it is an Exception (not KeyboardInterrupt) and its only argument is a
 * str. */
void ad_prefix_exception(const char *format, ...);

/* True if the current exception must not count as a producer's refusal: a
 * MemoryError, a RecursionError, a DeviceError, or a BaseException that is not
 * an Exception (KeyboardInterrupt). */
bool ad_exception_is_final(ad_state *state);

#endif /* AD_SUPPORT_ERRORS_H */
