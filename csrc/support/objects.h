/* The instances of our Python types, and how to make them.
 *
 * Array and Schema hold a view of a core value; Tensor and Buffer hold an
 * ad_tensor with its dimensions in line. All are immutable, cannot be
 * subclassed and hold no references to Python objects but through owners, so
 * they take no part in garbage collection.
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
    ad_array array;
    ad_state *state;          /* a loop has no time to look it up */
    PyObject *schema_capsule; /* of the last export, see arrow_array.c */
    PyObject *as_tensor;      /* that an attribute found it to be, or NULL */
    PyObject *weakrefs;
} ad_array_object;

typedef struct ad_tensor_object {
    PyObject_VAR_HEAD ad_tensor tensor; /* shape and strides point at dims */
    PyObject *weakrefs;
    int64_t dims[]; /* shape, then strides */
} ad_tensor_object;

typedef struct ad_schema_object {
    PyObject_HEAD
    ad_schema schema;
} ad_schema_object;

typedef struct ad_device_object {
    PyObject_HEAD
    ad_device device;
} ad_device_object;

/* Create the type and its state slot. Return 0 or -1. */
int ad_array_type_init(ad_state *state, PyObject *module);
int ad_tensor_types_init(ad_state *state, PyObject *module); /* and Buffer */
int ad_schema_type_init(ad_state *state, PyObject *module);
int ad_device_type_init(ad_state *state, PyObject *module);
int ad_stream_type_init(ad_state *state, PyObject *module); /* use_stream */
int ad_array_stream_type_init(ad_state *state, PyObject *module);

/* Constructors. The core value is taken over, on failure too. */
PyObject *ad_array_object_new(ad_state *state, ad_array *steal);
/* Frees the memory of an Array, whose members are released. */
void ad_array_object_free(ad_state *state, PyObject *self);
PyObject *ad_tensor_object_new(ad_state *state, ad_tensor *steal);
/* ... of this very type, Tensor or Buffer. */
PyObject *ad_tensor_object_like(PyObject *type, ad_tensor *steal);
PyObject *ad_schema_object_new(ad_state *state, ad_schema steal);
PyObject *ad_device_object_new(ad_state *state, ad_device device);

/* A Buffer over `nbytes` at `data` (and `byte_offset` for handles). Takes new
 * references on owner and sync. `flags` are AD_TENSOR_*. */
PyObject *ad_buffer_object_new(ad_state *state, void *data,
                               uint64_t byte_offset, int64_t nbytes,
                               ad_device device, uint32_t flags,
                               ad_owner *owner, ad_sync *sync);

/* New reference: the DeviceType member, or a plain int for unknown types. */
PyObject *ad_device_type_member(ad_state *state, int32_t type);

static inline bool
ad_is_array(ad_state *state, PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)state->array_type;
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

/* The tensor that `self` (a Tensor, Buffer or Array of ours) stands for, with
 * references of its own. An Array goes through the bridge without a copy and
 * with nulls refused. Returns 0, or -1 with an exception. */
int ad_self_as_tensor(ad_state *state, PyObject *self, ad_tensor_value *out);

/* The same as an array, for a Tensor's Arrow side (without a copy). */
int ad_self_as_array(ad_state *state, PyObject *self, ad_array *out);

/* For the attributes of an Array that only some arrays can serve: 0 when this
 * one can be seen as a tensor without a copy, as far as can be told without
 * waiting or reading device memory; else -1 with an AttributeError that says
 * why (`attribute` is its name). The method that is called next finds the
 * tensor in the object. */
int ad_array_offers_tensor(ad_state *state, PyObject *self,
                           const char *attribute);

/* Likewise for what only host memory can serve: 0 when the host may read this
 * Array's memory now. */
int ad_array_offers_host(ad_state *state, PyObject *self,
                         const char *attribute);

#endif /* AD_SUPPORT_OBJECTS_H */
