/* Streams in Python: import from a capsule, failures as exceptions, releases.
 */
#ifndef AD_SUPPORT_PY_STREAM_H
#define AD_SUPPORT_PY_STREAM_H

#include <stdatomic.h>

#include "stream/array_stream.h"
#include "support/capsule.h"
#include "support/state.h"

/* The struct of a stream, of either kind. */
typedef struct ad_stream_struct {
    bool is_device;
    struct ad_interpreter *interpreter; /* of the capsule */
    union {
        struct ArrowDeviceArrayStream device;
        struct ArrowArrayStream host;
    };
} ad_stream_struct;

/* Move the struct out of a stream capsule of `kind`, of `origin` (see
 * ad_capsule_get). Returns 0, or -1 with an exception. */
int ad_stream_struct_take(ad_state *state, PyObject *capsule,
                          ad_capsule_kind kind, const char *origin,
                          ad_stream_struct *out);

/* The same for a short use of a stream that nobody has taken yet. False,
 * without an exception, for any other object. Meanwhile no other thread takes
 * the stream. */
bool ad_stream_struct_borrow(PyObject *capsule, bool is_device,
                             ad_stream_struct *out);
void ad_stream_struct_give_back(PyObject *capsule, ad_stream_struct *borrowed);

/* Import the struct, which is taken over, also on failure. Call without the
 * GIL, because foreign code runs that may block. */
AD_MUST_CHECK ad_status ad_stream_struct_import(const ad_stream_struct *steal,
                                                ad_array_stream **out,
                                                ad_error *err);

/* Raise the failure of a call on `stream` (NULL if the stream could not be
 * made), with the producer's full text, its errno as `code`, and the exception
 * of its Python code as the cause. An ExchangeError or InvalidArrowError of its
 * Python code is raised itself, and the next read raises one with its fields.
 * Returns NULL. */
PyObject *ad_array_stream_raise(ad_state *state, ad_array_stream *stream,
                                const ad_error *err);

/* --- the exception that ended a stream ----------------------------------- */

/* Its errno and text for a consumer in C, and the exception itself for a
 * reader in Python, which raises it again. */
typedef struct ad_saved_exception {
    _Atomic(PyObject *) exception;      /* NULL: none, or taken */
    struct ad_interpreter *interpreter; /* of the exception */
    char *text; /* "ValueError: broken"; NULL: not available */
    int code;   /* errno */
} ad_saved_exception;

/* Save the current exception, and fail with the error "`who` raised ...", or,
 * if `who` is NULL, with the text of the exception. The error has the class and
 * the fields of an exception of ours. */
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

#endif /* AD_SUPPORT_PY_STREAM_H */
