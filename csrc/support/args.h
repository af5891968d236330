/* Arguments of METH_FASTCALL | METH_KEYWORDS functions.
 *
 * Keyword names are compared by pointer first (both sides are interned), so a
 * call costs a few compares. No format strings, no tuple, no dict.
 */
#ifndef AD_SUPPORT_ARGS_H
#define AD_SUPPORT_ARGS_H

#include "support/state.h"

#define AD_MAX_PARAMETERS 10

typedef struct ad_signature {
    const char *function; /* "array()", for messages */
    int8_t n_positional_only;
    int8_t n_positional; /* positional-only ones included */
    int8_t n_required;   /* the first so many must be given */
    int8_t n_parameters;
    /* Unknown keywords are fine when their value is None; otherwise
     * NotImplementedError (the PyCapsule protocol's **kwargs). */
    bool ignores_none;
    /* AD_STR_* of every parameter; positional-only ones may be anything. */
    uint8_t names[AD_MAX_PARAMETERS];
} ad_signature;

/* Put borrowed references into values[0 .. n_parameters), NULL where nothing
 * was given. Returns 0, or -1 with TypeError. */
int ad_parse_args(ad_state *state, const ad_signature *signature,
                  PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
                  PyObject **values);

/* NULL or None. */
static inline bool
ad_is_none(PyObject *value)
{
    return value == NULL || value == Py_None;
}

/* The UTF-8 text of a str, borrowed from it; NULL with ValueError where a NUL
 * character would cut it short. */
const char *ad_c_string(PyObject *text);

/* Read None / False / True into an ad_copy; -1 with TypeError. */
int ad_parse_copy(PyObject *value, int *out);

/* A new tuple of the items of a sequence: importing an item may run code that
 * changes a list under our feet. NULL with TypeError(message). */
PyObject *ad_as_tuple(PyObject *sequence, const char *message);

/* A new tuple of values[0 .. n) times `factor`, or NULL. */
PyObject *ad_int_tuple(const int64_t *values, int32_t n, int64_t factor);

/* Read a number of things; -1 with TypeError, ValueError where 64 bits cannot
 * hold it, or what its __index__ raises. */
int ad_parse_count(PyObject *value, const char *name, int64_t *out);

/* Read None or a bool; *out is -1 for None. Returns -1 with TypeError. */
int ad_parse_optional_bool(PyObject *value, const char *name, int *out);

#endif /* AD_SUPPORT_ARGS_H */
