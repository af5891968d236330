#include "support/objects.h"

#include "support/capsule.h"
#include "support/errors.h"

/* Reuse the memory of a freed Array, so that a loop over a stream allocates
 * one Array only. */
static PyObject *
allocate(ad_state *state)
{
    PyTypeObject *type = (PyTypeObject *)state->array_type;
    PyObject *self = state->spare_array;
    state->spare_array = NULL;
    return self != NULL ? PyObject_Init(self, type)
                        : (PyObject *)PyObject_New(ad_array_object, type);
}

void
ad_array_object_free(ad_state *state, PyObject *self)
{
    if (state->spare_array == NULL) {
        state->spare_array = self;
    } else {
        PyObject_Free(self);
    }
}

PyObject *
ad_array_object_new(ad_state *state, ad_array *steal)
{
    ad_array_object *self = (ad_array_object *)allocate(state);
    if (self == NULL) {
        ad_array_clear(steal);
        return NULL;
    }
    self->array = *steal;
    self->state = state;
    self->schema_capsule = NULL;
    self->as_tensor = NULL;
    self->weakrefs = NULL;
    return (PyObject *)self;
}

static PyObject *
tensor_object_alloc(PyObject *type, const ad_tensor *tensor)
{
    ad_tensor_object *self = PyObject_NewVar(
        ad_tensor_object, (PyTypeObject *)type, 2 * (Py_ssize_t)tensor->ndim);
    if (self == NULL) {
        return NULL;
    }
    self->weakrefs = NULL;
    self->tensor = *tensor;
    self->tensor.flags &=
        ~(uint32_t)AD_TENSOR_COPIED; /* true of the import only */
    self->tensor.shape = self->dims;
    self->tensor.strides = self->dims + tensor->ndim;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        self->tensor.shape[i] = tensor->shape[i];
        self->tensor.strides[i] = tensor->strides[i];
    }
    return (PyObject *)self;
}

PyObject *
ad_tensor_object_new(ad_state *state, ad_tensor *steal)
{
    return ad_tensor_object_like(state->tensor_type, steal);
}

PyObject *
ad_tensor_object_like(PyObject *type, ad_tensor *steal)
{
    PyObject *self = tensor_object_alloc(type, steal);
    if (self == NULL) {
        ad_tensor_clear(steal);
    }
    return self;
}

PyObject *
ad_buffer_object_new(ad_state *state, void *data, uint64_t byte_offset,
                     int64_t nbytes, ad_device device, uint32_t flags,
                     ad_owner *owner, ad_sync *sync)
{
    int64_t shape = nbytes < 0 ? 0 : nbytes;
    int64_t stride = 1;
    const ad_tensor tensor = {
        .data = data,
        .byte_offset = byte_offset,
        .dtype = {AD_DL_UINT, 8, 1},
        .ndim = 1,
        .flags = flags | (nbytes < 0 ? AD_TENSOR_SIZE_UNKNOWN : 0),
        .device = device,
        .shape = &shape,
        .strides = &stride,
        .owner = owner,
        .sync = sync,
    };
    PyObject *self = tensor_object_alloc(state->buffer_type, &tensor);
    if (self != NULL) {
        ad_owner_ref(owner);
        ad_sync_ref(sync);
    }
    return self;
}

PyObject *
ad_schema_object_new(ad_state *state, ad_schema steal)
{
    ad_schema_object *self =
        PyObject_New(ad_schema_object, (PyTypeObject *)state->schema_type);
    if (self == NULL) {
        ad_schema_unref(steal);
        return NULL;
    }
    self->schema = steal;
    return (PyObject *)self;
}

PyObject *
ad_schema_capsule(ad_state *state, ad_schema schema)
{
    struct ArrowSchema *holder;
    ad_error err;
    if (ad_schema_export(schema, &holder, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_capsule_new(AD_CAPSULE_SCHEMA, holder);
}

PyObject *
ad_device_object_new(ad_state *state, ad_device device)
{
    ad_device_object *self =
        PyObject_New(ad_device_object, (PyTypeObject *)state->device_type);
    if (self != NULL) {
        self->device = device;
    }
    return (PyObject *)self;
}

PyObject *
ad_device_type_member(ad_state *state, int32_t type)
{
    PyObject *number = PyLong_FromLong(type);
    if (number == NULL) {
        return NULL;
    }
    PyObject *member =
        PyDict_GetItemWithError(state->device_type_members, number);
    if (member != NULL) {
        Py_DECREF(number);
        return Py_NewRef(member);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(number);
    }
    return number;
}

PyObject *
ad_tuple_of(PyObject *self, int64_t n,
            PyObject *(*item)(PyObject *self, int64_t i))
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (int64_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *made = item(self, i);
        if (made == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, made);
        }
    }
    return tuple;
}
