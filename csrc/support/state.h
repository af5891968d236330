/* support/: the lowest layer that uses Python.
 *
 * Module state, errors as exceptions, arguments, capsules, owners of Python
 * objects, calls into Python from foreign threads, waits that run signal
 * handlers, constructors of our objects. The GIL is held unless a contract
 * says otherwise; only py_call.c asks for it. errors.c turns an ad_error into
 * an exception of ours. The GIL is the only lock; builds without it have the
 * locks of compat.h.
 */

/* The state of the module: types, exceptions, interned strings, and the cache
 * of the protocols that types offer. One field list per kind, so that state,
 * traverse and clear cannot differ.
 */
#ifndef AD_SUPPORT_STATE_H
#define AD_SUPPORT_STATE_H

#include <stdatomic.h>

#include "abi/dlpack.h"
#include "support/compat.h"

/* Strong references. */
#define AD_STATE_OBJECTS(X)                                                   \
    X(array_type)                                                             \
    X(ndarray_type)      /* NULL: see protocol/numpy.h */                     \
    X(numpy_descriptors) /* a tuple */                                        \
    X(torch_descriptors) /* a tuple: requires_grad, is_neg, is_conj */        \
    X(array_stream_type)                                                      \
    X(async_consumer_type)                                                    \
    X(async_producer_type)                                                    \
    X(tensor_type)                                                            \
    X(buffer_type)                                                            \
    X(schema_type)                                                            \
    X(device_type)                                                            \
    X(stream_type)                                                            \
    X(device_type_enum)                                                       \
    X(device_type_members)                                                    \
    X(exchange_error)                                                         \
    X(device_error)                                                           \
    X(invalid_arrow_error)                                                    \
    X(schema_capsule)                                                         \
    X(max_version)                                                            \
    X(dlpack_kwnames)                                                         \
    X(dlpack_kwnames_stream)                                                  \
    X(convert_helper)                                                         \
    X(kind_of_helper)                                                         \
    X(exchange_api_capsule)

enum {
#define AD_STRING(tag, text) AD_STR_##tag,
#include "support/strings.def"
#undef AD_STRING
    AD_N_STRINGS
};

/* Cache entry: the protocols that one type offers. */
typedef struct ad_type_slot {
    PyTypeObject *type;   /* strong; NULL: empty */
    unsigned int version; /* of the type's attributes when probed */
    uint32_t offers;      /* bit i: protocol i of protocols.def */
    int8_t first;         /* protocol to try before all others, or -1 */
    bool may_have_dict;   /* instances may have attributes of their own */
    bool has_own_lookup;  /* a __getattr__ may offer more protocols */
    bool has_torch_flags; /* requires_grad, is_neg: check before use */
    bool has_gradient;    /* requires_grad, torch's or another library's */
    bool has_torch_descriptors; /* they are state->torch_descriptors */
    bool takes_no_sync;         /* __dlpack__ takes stream=-1 */
    bool is_cupy;               /* its library is CuPy */
    bool ignores_streams;       /* by DLPack; see ad_dlpack_require_stream */
    bool has_tensorflow_dtype;  /* ask it before __dlpack__ is called */
    bool has_borrowed_memory;   /* its tensors do not keep it */
    bool has_numpy_itemsize;    /* the same: NumPy divides by it */
    bool is_column;             /* of a library of columns: Arrow first */
    bool is_polars;             /* its Arrow data may be Python objects */
    bool is_nanoarrow;          /* see ad_arrow_check_nanoarrow */
    bool has_numpy_block;       /* pandas.Series, see numpy.c */
    bool has_array_method;      /* __array__: it may have several dimensions */
    const ad_dl_exchange_api *exchange_api; /* of this very type, or NULL */
} ad_type_slot;

#define AD_N_TYPE_SLOTS 8

typedef struct ad_state *_Atomic ad_state_link;

typedef struct ad_state {
#define X(name) PyObject *name;
    AD_STATE_OBJECTS(X)
#undef X
    PyObject *strings[AD_N_STRINGS];
    struct ad_interpreter *interpreter; /* see py_call.h */
    ad_py_mutex lock; /* of the members that are set after the import */
    ad_type_slot slots[AD_N_TYPE_SLOTS];
    unsigned int next_slot;
    PyObject *spare_array;             /* memory of a freed Array, or NULL */
    struct ArrowSchema *schema_holder; /* in schema_capsule */
    ad_state_link next;                /* state.c: list of modules */
} ad_state;

/* Borrowed interned string: AD_STR(state, dlpack). */
#define AD_STR(state, tag) ((state)->strings[AD_STR_##tag])

/* State behind a module, and behind an instance of one of our types (which
 * cannot be subclassed). */
static inline ad_state *
ad_state_of_module(PyObject *module)
{
    return (ad_state *)PyModule_GetState(module);
}

static inline ad_state *
ad_state_of(PyObject *self)
{
    return (ad_state *)PyType_GetModuleState(Py_TYPE(self));
}

/* For functions without a module argument, which other libraries find in a
 * capsule: the state of the module that was loaded last into this thread's
 * interpreter, or NULL with an exception. */
ad_state *ad_state_current(void);

/* The state of the module that has this type as Tensor or Buffer, or NULL. */
ad_state *ad_state_of_tensor_type(PyTypeObject *type);

/* Add the state of a loaded module; remove it before the module is freed. */
void ad_state_add(ad_state *state);
void ad_state_remove(ad_state *state);

#endif /* AD_SUPPORT_STATE_H */
