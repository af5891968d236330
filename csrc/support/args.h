/* Arguments of METH_FASTCALL | METH_KEYWORDS functions.
 *
 * Keyword names are compared by pointer first (both sides are interned), so a
 * call costs a few comparisons. No format strings, no tuple, no dict.
 */
#ifndef AD_SUPPORT_ARGS_H
#define AD_SUPPORT_ARGS_H

#include "support/state.h"
#include "base/device.h"
#include "model/schema.h"

/* The type of such a function. */
typedef PyObject *ad_fastcall(PyObject *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);

#define AD_MAX_PARAMETERS 10

/* The function and flags of an entry of a method table. */
#define AD_METHOD(function)                                                   \
    (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

typedef struct ad_signature {
    const char *function; /* "array()", for messages */
    int8_t n_positional_only;
    int8_t n_positional; /* positional-only ones included */
    int8_t n_required;   /* required parameters, which come first */
    int8_t n_parameters;
    /* Accept unknown keywords whose value is None, and raise
     * NotImplementedError for any other value (the PyCapsule protocol's
     * **kwargs). */
    bool ignores_none;
    /* AD_STR_* of each parameter; ignored for positional-only ones. */
    uint8_t names[AD_MAX_PARAMETERS];
} ad_signature;

/* The parameters of an ad_signature: the AD_STR_* of each. */
#define AD_PARAMETER_NAMES(...)                                               \
    .n_parameters = sizeof((uint8_t[]){__VA_ARGS__}), .names = {__VA_ARGS__}

/* Put borrowed references into values[0 .. n_parameters), NULL for an omitted
 * argument. Returns 0, or -1 with an exception. */
int ad_parse_args(ad_state *state, const ad_signature *signature,
                  PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
                  PyObject **values);

/* Defines `entry`, an ad_fastcall that parses the arguments and returns the
 * result of `call`, which uses self, state and values. */
#define AD_ENTRY(entry, state_of, signature, call)                            \
    PyObject *entry(PyObject *self, PyObject *const *args, Py_ssize_t n_args, \
                    PyObject *kwnames)                                        \
    {                                                                         \
        ad_state *state = state_of(self);                                     \
        PyObject *values[AD_MAX_PARAMETERS];                                  \
        return ad_parse_args(state, &(signature), args, n_args, kwnames,      \
                             values) == 0                                     \
                   ? (call)                                                   \
                   : NULL;                                                    \
    }                                                                         \
    _Static_assert(true, "")

/* NULL or None. */
static inline bool
ad_is_none(PyObject *value)
{
    return value == NULL || value == Py_None;
}

/* The UTF-8 text of a str, borrowed from it. NULL with an exception,
 * ValueError if the text has a NUL character. */
const char *ad_c_string(PyObject *text);

/* Parse None, False or True as an ad_copy. Returns 0, or -1 with TypeError. */
int ad_parse_copy(PyObject *value, int *out);

/* A new tuple of the items of a sequence, because the import of an item may
 * run code that changes a list. NULL with TypeError(message). */
PyObject *ad_as_tuple(PyObject *sequence, const char *message);

/* A new tuple of values[0 .. n) times `factor`, or NULL. */
PyObject *ad_int_tuple(const int64_t *values, int32_t n, int64_t factor);

/* Parse a count. Returns 0, or -1 with TypeError, ValueError for a number
 * beyond 64 bits, or an exception of its __index__. */
int ad_parse_count(PyObject *value, const char *name, int64_t *out);

/* Parse None or a bool; *out is -1 for None. Returns 0, or -1 with
 * TypeError. */
int ad_parse_optional_bool(PyObject *value, const char *name, int *out);

/* Parse a bool; NULL (omitted) leaves *out unchanged. Returns 0, or -1 with
 * TypeError. */
int ad_parse_bool(PyObject *value, const char *name, bool *out);

/* Parse a device: a str, a (type, id) tuple, a Device, or a device of another
 * library (arrowdev/_device.py). Returns 0, or -1 with TypeError, ValueError
 * or the exception of that library. */
int ad_parse_device(ad_state *state, PyObject *value, ad_device *out);

/* Parse a type: a format string, a common name, a Schema, any object with
 * __arrow_c_schema__, or a mapping or list of named types, which make a struct
 * that is not nullable, as that of a record batch. *out is a new reference. Returns 0, or -1 with an
 * exception. */
int ad_parse_schema(ad_state *state, PyObject *value, ad_schema *out);

#endif /* AD_SUPPORT_ARGS_H */
