/* An exception that ended a stream: its errno and text for a consumer in C,
 * and the exception itself for a reader in Python, which raises it again.
 */
#ifndef AD_SUPPORT_SAVED_EXCEPTION_H
#define AD_SUPPORT_SAVED_EXCEPTION_H

#include "base/status.h"
#include "support/state.h"

typedef struct ad_saved_exception {
    PyObject *exception; /* NULL: none, or taken */
    char *text;          /* "ValueError: broken"; NULL: not available */
    int code;            /* errno */
} ad_saved_exception;

/* Save the current exception, and fail with the error "`who` raised ...". */
AD_MUST_CHECK ad_status ad_save_exception(ad_state *state,
                                          ad_saved_exception *self,
                                          const char *who, ad_error *err);

/* Fail because `who` cannot be called: the interpreter is about to
 * finalize. */
AD_MUST_CHECK ad_status ad_fail_exit(const char *who, ad_error *err);

/* The same; stores the errno in `self` as well. */
AD_MUST_CHECK ad_status ad_save_exit(ad_saved_exception *self, const char *who,
                                     ad_error *err);

/* Takes the GIL to release an exception; leaks the exception if the GIL is no
 * longer available. */
void ad_saved_exception_clear(ad_saved_exception *self);

#endif /* AD_SUPPORT_SAVED_EXCEPTION_H */
