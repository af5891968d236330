/* NumPy's arrays, read without a call into NumPy.
 *
 * The fields that NumPy's headers let extension modules read are the same in
 * the ABI versions 1 and 2 of its C API (tests/project/test_abi.py compares
 * them). They are read only for the type and for the elements that NumPy's
 * table of that version names; any other array goes through the buffer
 * protocol.
 */
#ifndef AD_PROTOCOL_NUMPY_H
#define AD_PROTOCOL_NUMPY_H

#include "model/array.h"
#include "model/tensor.h"
#include "support/state.h"

typedef struct ad_numpy_descr {
    PyObject_HEAD
    PyTypeObject *typeobj;
    char kind;
    char type;
    char byteorder;
    char former_flags;
    int type_num;
} ad_numpy_descr;

typedef struct ad_numpy_array {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions;
    Py_ssize_t *strides; /* in bytes */
    PyObject *base;
    ad_numpy_descr *descr;
    int flags;
} ad_numpy_array;

/* Members of `flags`. */
#define AD_NUMPY_ALIGNED 0x0100
#define AD_NUMPY_WRITEABLE 0x0400
#define AD_NUMPY_WARN_ON_WRITE (1 << 31)

/* Entries of the table in `_ARRAY_API`. */
enum {
    AD_NUMPY_VERSION = 0,
    AD_NUMPY_TYPE = 2,
    AD_NUMPY_DESCR = 45
};

/* Sets state->ndarray_type, if `type` is the ndarray of a NumPy whose fields
 * are known. */
void ad_ndarray_learn(ad_state *state, PyTypeObject *type);

/* Is the object an array whose fields may be read, given its elements? Only
 * the exact type counts. */
static inline bool
ad_is_ndarray(const ad_state *state, PyObject *object)
{
    return (PyObject *)Py_TYPE(object) == ad_py_once(&state->ndarray_type);
}

/* Describes such an array of plain numbers or bools. `strides` has room for
 * AD_MAX_NDIM. False for all others. */
bool ad_ndarray_describe(const ad_state *state, PyObject *object,
                         ad_tensor_descriptor *out, int64_t *strides);

/* Such an array as a column, if it is one without a copy and without a change
 * of meaning: one dimension without gaps, of plain numbers. 1 done; 0 not one;
 * -1 with MemoryError. */
int ad_ndarray_column(const ad_state *state, PyObject *object, ad_array *out);

#endif /* AD_PROTOCOL_NUMPY_H */
