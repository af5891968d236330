/* The instances of arrowdev's Python types, and their constructors.
 *
 * Array and Schema hold a view of a core value; Tensor and Buffer hold an
 * ad_tensor with its dimensions in line. All are immutable, cannot be
 * subclassed, and hold foreign Python objects only through owners, so they do
 * not take part in garbage collection.
 */
#ifndef AD_SUPPORT_OBJECTS_H
#define AD_SUPPORT_OBJECTS_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "model/schema.h"
#include "model/tensor.h"
#include "support/state.h"

typedef struct ad_array_object {
    PyObject_HEAD
    ad_state *state; /* a look-up is too slow in a loop */
    ad_array array;
    PyObject *schema_capsule;          /* of the last export, see arrow.c */
    struct ArrowSchema *schema_holder; /* in that capsule */
    PyObject *as_tensor;               /* set once, by an attribute; or NULL */
    PyObject *weakrefs;
} ad_array_object;

typedef struct ad_tensor_object {
    PyObject_VAR_HEAD ad_tensor tensor; /* shape and strides point at dims */
    PyObject *weakrefs;
    int64_t dims[]; /* shape, then strides */
} ad_tensor_object;

/* What Array, Tensor and Buffer have in common: one memory, at one place. */
typedef struct ad_memory_object {
    PyObject_VAR_HEAD ad_memory memory;
} ad_memory_object;

#define AD_MEMORY_IS_FIRST(TYPE, SHAPE)                                       \
    _Static_assert(offsetof(TYPE, SHAPE.memory) ==                            \
                       offsetof(ad_memory_object, memory),                    \
                   "ad_memory_of() reads the memory of " #TYPE)
AD_MEMORY_IS_FIRST(ad_array_object, array);
AD_MEMORY_IS_FIRST(ad_tensor_object, tensor);

typedef struct ad_schema_object {
    PyObject_HEAD
    ad_schema schema;
} ad_schema_object;

typedef struct ad_device_object {
    PyObject_HEAD
    ad_device device;
} ad_device_object;

/* Constructors. They take over the core value, on failure too. */
PyObject *ad_array_object_new(ad_state *state, ad_array *steal);
/* The tp_dealloc of Array. */
void ad_array_object_dealloc(PyObject *self);
PyObject *ad_tensor_object_new(ad_state *state, ad_tensor *steal);
/* The same for `type`, which is Tensor or Buffer. */
PyObject *ad_tensor_object_of_type(PyObject *type, ad_tensor *steal);
PyObject *ad_schema_object_new(ad_state *state, ad_schema steal);
PyObject *ad_device_object_new(ad_state *state, ad_device device);

/* A capsule "arrow_schema" with an export of the schema, or NULL with an
 * exception. */
PyObject *ad_schema_capsule(ad_state *state, ad_schema schema);

/* A Buffer over `nbytes` at `data` (and `byte_offset` for handles). `flags`
 * are AD_TENSOR_*. Takes new references on the memory. */
PyObject *ad_buffer_object_new(ad_state *state, void *data,
                               uint64_t byte_offset, int64_t nbytes,
                               uint32_t flags, const ad_memory *memory);

/* A tuple of item(self, 0 .. n), which are new references or NULL with an
 * exception. */
PyObject *ad_tuple_of(PyObject *self, int64_t n,
                      PyObject *(*item)(PyObject *self, int64_t i));

/* New reference: the DeviceType member, or a plain int for unknown types. */
PyObject *ad_device_type_member(ad_state *state, int32_t type);

static inline bool
ad_is_array(ad_state *state, PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)state->array_type;
}

/* The same for an object of ours, whose state is not known yet. */
static inline bool
ad_is_own_array(PyObject *object)
{
    return Py_TYPE(object)->tp_dealloc == ad_array_object_dealloc;
}

/* Tensor or Buffer: both hold an ad_tensor. */
static inline bool
ad_is_tensor(ad_state *state, PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)state->tensor_type ||
           Py_TYPE(object) == (PyTypeObject *)state->buffer_type;
}

static inline ad_array *
ad_array_of(PyObject *object)
{
    return &((ad_array_object *)object)->array;
}

static inline ad_tensor *
ad_tensor_of(PyObject *object)
{
    return &((ad_tensor_object *)object)->tensor;
}

/* The memory of an Array, Tensor or Buffer. */
static inline const ad_memory *
ad_memory_of(PyObject *object)
{
    return &((ad_memory_object *)object)->memory;
}

/* The tensor that `self` (a Tensor, Buffer or Array) stands for, with
 * references of its own. The bridge converts an Array without a copy and
 * refuses nulls. Returns 0, or -1 with an exception. */
int ad_self_as_tensor(ad_state *state, PyObject *self, ad_tensor_value *out);

/* The same as an array, without a copy, for Arrow exports of a Tensor. */
int ad_self_as_array(ad_state *state, PyObject *self, ad_array *out);

/* Check that an Array can be viewed as a tensor without a copy, for attributes
 * that not every Array has. The check neither waits nor reads device memory.
 * Returns 0, or -1 with an AttributeError that names `attribute` and the
 * reason. The object keeps the tensor for the method call that follows. */
int ad_array_offers_tensor(ad_state *state, PyObject *self,
                           const char *attribute);

/* The same for attributes that need host memory: check that the host can read
 * the memory of the Array, and can wait for its event. */
int ad_array_offers_host(ad_state *state, PyObject *self,
                         const char *attribute);

/* Check that the host can read the memory, once it has waited for the event.
 * Returns 0, or -1 with ExchangeError, whose message begins with `what`. */
int ad_require_host_for(ad_state *state, const ad_memory *memory,
                        const char *what);

#endif /* AD_SUPPORT_OBJECTS_H */
