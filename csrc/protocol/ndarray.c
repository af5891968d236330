#include "protocol/ndarray.h"

#include "support/py_call.h"

/* --- the table of NumPy's C API ------------------------------------------ */

typedef struct element {
    ad_dl_dtype dtype;
    char format; /* of the column; '\0': it needs more than a format */
} element;

#define INTEGERS(number, type, signed_format, unsigned_format)                \
    [number] = {{AD_DL_INT, 8 * sizeof(type), 1}, signed_format},             \
    [number + 1] = {{AD_DL_UINT, 8 * sizeof(type), 1}, unsigned_format}

/* Indexed by NumPy's type number. */
static const element elements[] = {
    [0] = {{AD_DL_BOOL, 8, 1}, '\0'},
    INTEGERS(1, char, 'c', 'C'),
    INTEGERS(3, short, 's', 'S'),
    INTEGERS(5, int, 'i', 'I'),
    INTEGERS(7, long, sizeof(long) == 8 ? 'l' : 'i',
             sizeof(long) == 8 ? 'L' : 'I'),
    INTEGERS(9, long long, 'l', 'L'),
    [11] = {{AD_DL_FLOAT, 32, 1}, 'f'},
    [12] = {{AD_DL_FLOAT, 64, 1}, 'g'},
    [14] = {{AD_DL_COMPLEX, 64, 1}, '\0'},
    [15] = {{AD_DL_COMPLEX, 128, 1}, '\0'},
    [23] = {{AD_DL_FLOAT, 16, 1}, 'e'},
};

#define N_ELEMENTS (int)(sizeof(elements) / sizeof(elements[0]))

/* NumPy's table of functions; NULL without an exception. */
static void **
find_table(void)
{
    void **table = NULL;
    const char *const names[] = {"numpy._core._multiarray_umath",
                                 "numpy.core._multiarray_umath"};
    for (size_t i = 0; table == NULL && i < 2; i++) {
        PyObject *module = ad_py_imported(names[i]);
        PyObject *capsule = module != NULL
                                ? PyObject_GetAttrString(module, "_ARRAY_API")
                                : NULL;
        if (capsule != NULL && PyCapsule_CheckExact(capsule)) {
            table = PyCapsule_GetPointer(capsule, NULL);
        }
        Py_XDECREF(capsule);
        Py_XDECREF(module);
    }
    PyErr_Clear();
    return table;
}

/* The descriptors of plain elements in native byte order, by number. Each is
 * one object; any other of the same number may have fields, which are no plain
 * elements. NULL with an exception. */
static PyObject *
find_descriptors(void **table)
{
    PyObject *(*descr_of)(int) = (PyObject * (*)(int)) table[AD_NUMPY_DESCR];
    PyObject *all = PyTuple_New(N_ELEMENTS);
    for (int i = 0; all != NULL && i < N_ELEMENTS; i++) {
        PyObject *descr =
            elements[i].dtype.bits != 0 ? descr_of(i) : Py_NewRef(Py_None);
        if (descr == NULL) {
            Py_CLEAR(all);
        } else {
            PyTuple_SET_ITEM(all, i, descr);
        }
    }
    return all;
}

void
ad_ndarray_learn(ad_state *state, PyTypeObject *type)
{
    bool is_known = ad_py_once(&state->ndarray_type) != NULL;
    void **table = is_known ? NULL : find_table();
    if (table == NULL || table[AD_NUMPY_TYPE] != type) {
        return;
    }
    unsigned version = ((unsigned (*)(void))table[AD_NUMPY_VERSION])();
    if (version != 0x01000009 && version != 0x02000000) {
        return;
    }
    PyObject *descriptors = find_descriptors(table);
    if (descriptors == NULL) {
        PyErr_Clear();
        return;
    }
    /* In this order: whoever finds the type finds the descriptors. */
    ad_py_set_once(&state->numpy_descriptors, descriptors);
    ad_py_set_once(&state->ndarray_type, Py_NewRef((PyObject *)type));
}

/* --- import -------------------------------------------------------------- */

/* The elements, or NULL for others than plain ones and for unaligned ones. */
static inline const element *
plain_element(const ad_state *state, const ad_numpy_array *array)
{
    int number = array->descr->type_num;
    return (unsigned)number < (unsigned)N_ELEMENTS &&
                   PyTuple_GET_ITEM(state->numpy_descriptors, number) ==
                       (PyObject *)array->descr &&
                   (array->flags & AD_NUMPY_ALIGNED) != 0
               ? &elements[number]
               : NULL;
}

/* As the buffer protocol says it: what will be read-only after a deprecation
 * is so now. */
static inline bool
is_readonly(const ad_numpy_array *array)
{
    return (array->flags & (AD_NUMPY_WRITEABLE | AD_NUMPY_WARN_ON_WRITE)) !=
           AD_NUMPY_WRITEABLE;
}

bool
ad_ndarray_describe(const ad_state *state, PyObject *object,
                    ad_tensor_descriptor *out, int64_t *strides)
{
    const ad_numpy_array *array = (const ad_numpy_array *)object;
    const element *type = plain_element(state, array);
    if (type == NULL || (unsigned)array->nd > AD_MAX_NDIM) {
        return false;
    }
    int64_t nbytes = type->dtype.bits / 8;
    for (int i = 0; i < array->nd; i++) {
        int64_t stride = array->strides[i];
        if (stride == nbytes) {
            strides[i] = 1; /* a division costs as much as all the rest */
        } else if (stride % nbytes == 0) {
            strides[i] = stride / nbytes;
        } else {
            return false;
        }
    }
    *out = (ad_tensor_descriptor){
        .data = array->data,
        .dtype = type->dtype,
        .ndim = array->nd,
        .memory = {.device = AD_CPU, .readonly = is_readonly(array)},
        .shape = (const int64_t *)array->dimensions,
        .strides = strides,
    };
    return true;
}

int
ad_ndarray_column(const ad_state *state, PyObject *object, ad_array *out)
{
    const ad_numpy_array *array = (const ad_numpy_array *)object;
    const element *type = plain_element(state, array);
    uintptr_t start;
    if (type == NULL || type->format == '\0' || array->nd != 1) {
        return 0;
    }
    int64_t n = array->dimensions[0];
    int64_t nbytes = type->dtype.bits / 8;
    if ((array->strides[0] != nbytes && n != 1) ||
        !ad_is_run(array->data, 0, n, nbytes, &start)) {
        return 0;
    }
    ad_owner *owner = ad_py_owner_new(object);
    if (owner == NULL) {
        return -1;
    }
    ad_array_of_leaf((ad_memory){owner, NULL, AD_CPU, is_readonly(array)},
                     &ad_schema_primitives[(int)type->format], array->data, n,
                     out);
    return 1;
}
