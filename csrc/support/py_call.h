/* Foreign threads attach to an interpreter here, to call Python code or to
 * release an object: with this, the interpreters themselves, the owners of
 * Python objects, and calls of helpers that are written in Python.
 */
#ifndef AD_SUPPORT_PY_CALL_H
#define AD_SUPPORT_PY_CALL_H

#include <stdint.h>

#include "async/pump.h"
#include "base/owner.h"
#include "base/wait.h"
#include "support/compat.h"

/* --- interpreters -------------------------------------------------------- */

/* An interpreter that arrowdev was imported into: the main one, or since
 * CPython 3.12 a sub-interpreter. The struct lives as long as the process. */
typedef struct ad_interpreter {
    PyInterpreterState *_Atomic state; /* NULL once it has ended */
#if PY_VERSION_HEX >= 0x030f0000
    PyInterpreterView *view;
#endif
    bool is_main;
    atomic_int n_calls;
    atomic_ulong stopped_by; /* the thread that ends it, or 0 */
    struct ad_interpreter *next;

    /* Of their files: */
    PyObject *stream_scopes; /* python/functions/use_stream.c */
    PyObject *logging_name;  /* support/logging.c */
    atomic_int log_state;    /* the same: an ad_log_state */
    ad_async_pump_group pumps;
} ad_interpreter;

/* The interpreter of this thread, which is attached. For the first import into
 * an interpreter, and after that cheap. NULL with an exception if there is no
 * memory. */
ad_interpreter *ad_interpreter_enroll(void);

/* For ad_interpreter_here(): the newest of all, and a search. */
extern ad_interpreter *_Atomic ad_interpreters;
ad_interpreter *ad_interpreter_find(const PyInterpreterState *state);

/* Whether a thread with a GIL may not have that of the interpreter in
 * question. */
static inline bool
ad_py_is_ambiguous(void)
{
    return AD_PY_HAS_INTERPRETERS &&
           atomic_load_explicit(&ad_has_interpreters, memory_order_relaxed);
}

/* The interpreter of this thread, which is attached to one that was
 * enrolled. */
static inline ad_interpreter *
ad_interpreter_here(void)
{
    /* In this order: a second one says so before it is in the list. */
    ad_interpreter *only =
        atomic_load_explicit(&ad_interpreters, memory_order_acquire);
    return ad_py_is_ambiguous() ? ad_interpreter_find(PyInterpreterState_Get())
                                : only;
}

/* For a thread that may have no interpreter: the one that it is, or was last,
 * attached to; else the main one. NULL if arrowdev was not imported there. */
ad_interpreter *ad_interpreter_of_thread(void);

/* The main one, which alone runs signal handlers; NULL if arrowdev was not
 * imported there. */
ad_interpreter *ad_interpreter_main(void);

/* Whether the logger of any interpreter is not known to be off. */
bool ad_interpreter_wants_messages(void);

/* --- calls --------------------------------------------------------------- */

/* A thread that is attached to an interpreter by one of the functions below.
 */
typedef struct ad_py_call {
    ad_interpreter *where;
#if PY_VERSION_HEX >= 0x030f0000
    PyThreadStateToken *token;
#else
    PyGILState_STATE gil;
    PyThreadState *own;   /* NULL: by `gil` */
    PyThreadState *other; /* of the interpreter that the thread has left */
#endif
} ad_py_call;

/* Attach this thread to `where` for a release or another short piece of work,
 * and set a pending exception aside. The interpreter waits for the work that
 * has begun before it finalizes. Returns false in a thread that is not
 * attached to it once the interpreter is about to finalize, or has ended. */
typedef struct ad_py_entry {
    bool is_attached; /* false: the thread was attached anyway */
    ad_py_call call;
    PyObject *exception;
} ad_py_entry;

bool ad_py_enter(ad_interpreter *where, ad_py_entry *self);
void ad_py_leave(ad_py_entry *self);

/* The same for calls that may take long. Once the interpreter is about to
 * finalize, the result is false in threads that hold the GIL, too, except in
 * the thread that has called ad_py_calls_stop. */
bool ad_py_call_begin(ad_interpreter *where, ad_py_call *self);
void ad_py_call_end(ad_py_call *self);

/* Refuse new calls and entries of other threads, and wait until those that
 * they have begun are over, or until the time `deadline` of ad_now(). Call
 * without the GIL, on the thread that ends the interpreter. */
void ad_py_calls_stop(ad_interpreter *where, int64_t deadline);

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
