/* An exception that ended a stream: its errno and its text for a consumer in C,
 * itself for a reader who can raise it again.
 */
#ifndef AD_SUPPORT_SAVED_EXCEPTION_H
#define AD_SUPPORT_SAVED_EXCEPTION_H

#include "base/status.h"
#include "support/state.h"

typedef struct ad_saved_exception {
    PyObject *exception; /* NULL: there was none, or it was taken */
    char *text;          /* "ValueError: broken"; NULL: could not be had */
    int code;            /* errno */
} ad_saved_exception;

/* Save the exception that is set, and make an error of it: "`who` raised ...".
 */
AD_MUST_CHECK ad_status ad_save_exception(ad_state *state,
                                          ad_saved_exception *self,
                                          const char *who, ad_error *err);

/* `who` cannot be called, because the interpreter is about to go. */
AD_MUST_CHECK ad_status ad_fail_exit(const char *who, ad_error *err);

/* The same, for those who ask what is saved. */
AD_MUST_CHECK ad_status ad_save_exit(ad_saved_exception *self, const char *who,
                                     ad_error *err);

/* Takes the GIL where it is needed; leaks the exception where that cannot be
 * had any more. */
void ad_saved_exception_clear(ad_saved_exception *self);

#endif /* AD_SUPPORT_SAVED_EXCEPTION_H */
