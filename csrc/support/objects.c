#include "support/objects.h"

#include "device/backend.h"
#include "support/capsule.h"
#include "support/errors.h"
#include "support/shown.h"

/* Reuse the memory of a freed Array, so that a loop over a stream allocates
 * one Array only. Free threads have pools of their own for that. */
static PyObject *
allocate(ad_state *state)
{
    PyTypeObject *type = (PyTypeObject *)state->array_type;
    PyObject *spare = AD_FREE_THREADED ? NULL : state->spare_array;
    if (spare == NULL) {
        return (PyObject *)PyObject_New(ad_array_object, type);
    }
    state->spare_array = NULL;
    return PyObject_Init(spare, type);
}

void
ad_array_object_dealloc(PyObject *object)
{
    ad_array_object *self = (ad_array_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    ad_state *state = self->state;
    ad_py_clear_weakrefs(object, &self->weakrefs);
    Py_XDECREF(self->schema_capsule);
    Py_XDECREF(self->as_tensor);
    ad_array_drop(&self->array);
    if (!AD_FREE_THREADED && state->spare_array == NULL) {
        state->spare_array = object;
    } else {
        PyObject_Free(object);
    }
    Py_DECREF(type);
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
    return ad_tensor_object_of_type(state->tensor_type, steal);
}

PyObject *
ad_tensor_object_of_type(PyObject *type, ad_tensor *steal)
{
    PyObject *self = tensor_object_alloc(type, steal);
    if (self == NULL) {
        ad_tensor_clear(steal);
    }
    return self;
}

PyObject *
ad_buffer_object_new(ad_state *state, void *data, uint64_t byte_offset,
                     int64_t nbytes, uint32_t flags, const ad_memory *memory)
{
    int64_t shape = nbytes < 0 ? 0 : nbytes;
    int64_t stride = 1;
    const ad_tensor tensor = {
        .data = data,
        .byte_offset = byte_offset,
        .dtype = {AD_DL_UINT, 8, 1},
        .ndim = 1,
        .flags = flags | (nbytes < 0 ? AD_TENSOR_SIZE_UNKNOWN : 0),
        .shape = &shape,
        .strides = &stride,
        .memory = *memory,
    };
    PyObject *self = tensor_object_alloc(state->buffer_type, &tensor);
    if (self != NULL) {
        ad_memory_ref(memory);
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
    PyObject *member = ad_py_dict_item(state->device_type_members, number);
    if (member != NULL) {
        Py_DECREF(number);
        return member;
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

/* --- views of a Tensor as an array and of an Array as a tensor ----------- */

int
ad_self_as_tensor(ad_state *state, PyObject *self, ad_tensor_value *out)
{
    ad_error err;
    ad_status status;
    PyObject *found = ad_is_tensor(state, self)
                          ? self
                          : ad_py_once(&((ad_array_object *)self)->as_tensor);
    if (found == NULL) {
        const ad_bridge_options options = {.copy = AD_COPY_NEVER};
        status = ad_tensor_from_array(ad_array_of(self), &options, out, &err);
    } else {
        status = ad_tensor_require_size(ad_tensor_of(found), &err);
        if (status == AD_OK) {
            ad_tensor_share(ad_tensor_of(found), out);
        }
    }
    return ad_raise_status(state, status, &err);
}

int
ad_self_as_array(ad_state *state, PyObject *self, ad_array *out)
{
    if (ad_is_array(state, self)) {
        ad_array_share(ad_array_of(self), out);
        return 0;
    }
    ad_tensor_value value;
    if (ad_self_as_tensor(state, self, &value) < 0) {
        return -1;
    }
    ad_error err;
    ad_status status =
        ad_array_from_tensor(&value.tensor, AD_COPY_NEVER, out, &err);
    ad_tensor_clear(&value.tensor);
    return ad_raise_status(state, status, &err);
}

/* Raise AttributeError with the reason in *err. Returns -1. */
static int
not_offered(const char *attribute, const ad_error *err)
{
    ad_raise_shown(PyExc_AttributeError,
                   "this arrowdev.Array has no %s: %s%s%s", attribute,
                   err->message, err->hint[0] != '\0' ? "; " : "", err->hint);
    return -1;
}

int
ad_array_offers_tensor(ad_state *state, PyObject *self, const char *attribute)
{
    const ad_array *array = ad_array_of(self);
    const struct ArrowSchema *schema = array->schema.node;
    if (ad_py_once(&((ad_array_object *)self)->as_tensor) != NULL) {
        return 0;
    }
    /* Plain columns without nulls, the common case, need no trial. */
    const ad_dtype_info *row = ad_dtype_by_format(schema->format);
    if (ad_array_null_count(array) == 0 && schema->dictionary == NULL &&
        schema->metadata == NULL && row != NULL &&
        row->dtype.code != AD_DL_BOOL) {
        return 0;
    }
    const ad_bridge_options options = {.copy = AD_COPY_NEVER};
    ad_tensor_value value;
    ad_error err;
    if (ad_array_reads_offsets(array) &&
        !(ad_host_accessible(array->memory.device) &&
          ad_sync_is_done(array->memory.sync))) {
        ad_fail(&err, AD_ERR_EXCHANGE, "dtype", "arrowdev.tensor() reads them",
                "whether its lists are of one length stands in offsets that "
                "would have to be waited for");
        return not_offered(attribute, &err);
    }
    if (ad_tensor_from_array(array, &options, &value, &err) != AD_OK) {
        return not_offered(attribute, &err);
    }
    PyObject *tensor = ad_tensor_object_new(state, &value.tensor);
    if (tensor == NULL) {
        return -1;
    }
    ad_py_set_once(&((ad_array_object *)self)->as_tensor, tensor);
    return 0;
}

int
ad_require_host_for(ad_state *state, const ad_memory *memory, const char *what)
{
    static const char hint[] = "bring the data to the host with .to(\"cpu\")";
    char name[AD_DEVICE_NAME_SIZE];
    ad_error err;
    bool is_cpu = memory->device.type == ARROW_DEVICE_CPU;
    if (!ad_host_accessible(memory->device)) {
        ad_fail_on(&err, memory->device, "device", hint,
                   "%s needs host memory, found memory of %s", what,
                   ad_device_format(memory->device, name));
    } else if (!ad_sync_can_wait(memory->sync)) {
        ad_fail_on(&err, memory->device, is_cpu ? "event" : "device", hint,
                   "%s needs data that are ready; they are so only after an "
                   "event, and no runtime is there with which the host could "
                   "wait for it",
                   what);
    } else {
        return 0;
    }
    ad_raise(state, &err);
    return -1;
}

int
ad_array_offers_host(ad_state *state, PyObject *self, const char *attribute)
{
    const ad_array *array = ad_array_of(self);
    ad_error err;
    if (!ad_host_accessible(array->memory.device)) {
        char name[AD_DEVICE_NAME_SIZE];
        ad_fail(&err, AD_ERR_EXCHANGE, "device", NULL,
                "its memory is on %s, which the host cannot read",
                ad_device_format(array->memory.device, name));
        return not_offered(attribute, &err);
    }
    if (!ad_sync_can_wait(array->memory.sync)) {
        ad_fail(&err, AD_ERR_EXCHANGE, "event", NULL,
                "the data are ready only after an event, and no runtime is "
                "there with which the host could wait for it");
        return not_offered(attribute, &err);
    }
    return 0;
}
