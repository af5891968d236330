/* ad.Array: the type, its attributes and the sequence protocol. Methods that
 * make other arrays are in array_methods.c. */
#include "python/types/array_methods.h"

#include <stddef.h>
#include <structmember.h>

#include "model/array.h"
#include "compute/bits.h"
#include "model/type.h"
#include "protocol/protocol.h"
#include "python/types/common_getters.h"
#include "support/helpers.h"
#include "device/backend.h"

static void
array_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ad_state *state = ((ad_array_object *)self)->state;
    if (((ad_array_object *)self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_XDECREF(((ad_array_object *)self)->schema_capsule);
    Py_XDECREF(((ad_array_object *)self)->as_tensor);
    ad_array_drop(ad_array_of(self));
    ad_array_object_free(state, self);
    Py_DECREF(type);
}

/* --- attributes ---------------------------------------------------------- */

static PyObject *
get_schema(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_schema_object_new(ad_state_of(self),
                                ad_schema_ref(ad_array_of(self)->schema));
}

static PyObject *
get_offset(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(ad_array_of(self)->offset);
}

int64_t
ad_array_known_null_count(ad_array *array)
{
    if (array->null_count < 0) {
        if (ad_array_has_no_nulls(array)) {
            array->null_count = 0;
        } else if (ad_host_accessible(array->device) &&
                   ad_sync_is_done(array->sync)) {
            array->null_count = ad_array_count_nulls_host(array);
        }
    }
    return array->null_count;
}

static PyObject *
get_null_count(PyObject *self, void *Py_UNUSED(closure))
{
    int64_t count = ad_array_known_null_count(ad_array_of(self));
    if (count < 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(count);
}

static PyObject *
get_nbytes(PyObject *self, void *Py_UNUSED(closure))
{
    int64_t nbytes;
    ad_error err;
    if (ad_array_nbytes(ad_array_of(self), &nbytes, &err) != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    if (nbytes == AD_SIZE_UNKNOWN) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(nbytes);
}

static PyObject *
make_buffer(PyObject *self, int64_t i)
{
    const ad_array *array = ad_array_of(self);
    const void *data = array->node->buffers[i];
    if (data == NULL) {
        Py_RETURN_NONE;
    }
    ad_state *state = ad_state_of(self);
    int64_t nbytes;
    ad_error err;
    if (ad_array_buffer_size(array, i, &nbytes, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    uint32_t flags = AD_TENSOR_IMMUTABLE |
                     (array->readonly ? (uint32_t)AD_TENSOR_READONLY : 0);
    return ad_buffer_object_new(state, (void *)data, 0, nbytes, array->device,
                                flags, array->owner, array->sync);
}

static PyObject *
get_buffers(PyObject *self, void *Py_UNUSED(closure))
{
    Py_ssize_t n = (Py_ssize_t)ad_array_of(self)->node->n_buffers;
    PyObject *buffers = PyTuple_New(n);
    for (Py_ssize_t i = 0; buffers != NULL && i < n; i++) {
        PyObject *buffer = make_buffer(self, i);
        if (buffer == NULL) {
            Py_CLEAR(buffers);
            break;
        }
        PyTuple_SET_ITEM(buffers, i, buffer);
    }
    return buffers;
}

static PyObject *
get_children(PyObject *self, void *Py_UNUSED(closure))
{
    ad_state *state = ad_state_of(self);
    const ad_array *array = ad_array_of(self);
    Py_ssize_t n = (Py_ssize_t)array->node->n_children;
    PyObject *children = PyTuple_New(n);
    for (Py_ssize_t i = 0; children != NULL && i < n; i++) {
        ad_array child;
        ad_error err;
        PyObject *item = ad_array_child(array, i, &child, &err) == AD_OK
                             ? ad_array_object_new(state, &child)
                             : ad_raise(state, &err);
        if (item == NULL) {
            Py_CLEAR(children);
            break;
        }
        PyTuple_SET_ITEM(children, i, item);
    }
    return children;
}

static PyObject *
get_dictionary(PyObject *self, void *Py_UNUSED(closure))
{
    ad_state *state = ad_state_of(self);
    const ad_array *array = ad_array_of(self);
    ad_array values;
    ad_error err;
    if (array->node->dictionary == NULL) {
        Py_RETURN_NONE;
    }
    if (ad_array_dictionary(array, &values, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_array_object_new(state, &values);
}

static Py_ssize_t
array_length(PyObject *self)
{
    return (Py_ssize_t)ad_array_of(self)->length;
}

static PyObject *
array_repr(PyObject *self)
{
    const ad_array *array = ad_array_of(self);
    char device[AD_DEVICE_NAME_SIZE];
    ad_text type = {0};
    ad_error err;
    if (ad_type_print(array->schema.node, &type, &err) != AD_OK) {
        ad_text_clear(&type);
        return ad_raise(ad_state_of(self), &err);
    }
    PyObject *result = PyUnicode_FromFormat(
        "<arrowdev.Array %s, length %lld, on %s%s>", ad_text_string(&type),
        (long long)array->length, ad_device_format(array->device, device),
        ad_readiness(array->sync));
    ad_text_clear(&type);
    return result;
}

/* --- subscripts ---------------------------------------------------------- */

static PyObject *
subscript_slice(PyObject *self, PyObject *key)
{
    ad_state *state = ad_state_of(self);
    const ad_array *array = ad_array_of(self);
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
        return NULL;
    }
    Py_ssize_t length =
        PySlice_AdjustIndices((Py_ssize_t)array->length, &start, &stop, step);
    if (step != 1) {
        PyErr_Format(PyExc_ValueError,
                     "an Array can be sliced with a step of 1 only, not %zd, "
                     "because slices share memory; make it an "
                     "arrowdev.tensor() first",
                     step);
        return NULL;
    }
    ad_array slice;
    ad_error err;
    if (ad_array_slice(array, start, length, &slice, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_array_object_new(state, &slice);
}

static PyObject *
array_item(PyObject *self, Py_ssize_t i)
{
    const ad_array *array = ad_array_of(self);
    if (i < 0 || i >= array->length) {
        /* CPython has added the length to a negative index. */
        i -= i < 0 ? (Py_ssize_t)array->length : 0;
        PyErr_Format(PyExc_IndexError,
                     "index %zd is out of range for an Array of length %lld",
                     i, (long long)array->length);
        return NULL;
    }
    PyObject *index = PyLong_FromSsize_t(i);
    if (index == NULL) {
        return NULL;
    }
    PyObject *args[] = {self, index};
    PyObject *result = ad_call_helper("_pylist", "scalar", args, 2);
    Py_DECREF(index);
    return result;
}

static PyObject *
array_subscript(PyObject *self, PyObject *key)
{
    if (PySlice_Check(key)) {
        return subscript_slice(self, key);
    }
    if (PyUnicode_Check(key)) {
        return ad_array_get_field(self, key);
    }
    if (!PyIndex_Check(key)) {
        PyErr_Format(PyExc_TypeError,
                     "an Array is indexed by int, slice or field name, not "
                     "%.200s",
                     Py_TYPE(key)->tp_name);
        return NULL;
    }
    Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return array_item(self, i < 0 ? i + array_length(self) : i);
}

/* --- the type ------------------------------------------------------------ */

static PyGetSetDef array_getset[] = {
    {"schema", get_schema, NULL, "The Schema.", NULL},
    {"offset", get_offset, NULL, "First row within the buffers, in elements.",
     NULL},
    {"null_count", get_null_count, NULL,
     "Number of nulls; None when the producer did not count them and the\n"
     "bitmap is not the host's to read. On host memory they are counted once.",
     NULL},
    {"nbytes", get_nbytes, NULL,
     "Bytes that all buffers of the tree hold for rows up to the last one;\n"
     "None when that is only known from memory that the host cannot read.",
     NULL},
    {"buffers", get_buffers, NULL,
     "Buffers of this node, in the order of the Arrow C data interface, as a\n"
     "tuple of Buffer or None. They start at row 0, not at `offset`.",
     NULL},
    {"children", get_children, NULL,
     "Children as the producer has them: not cut to this array's slice. See\n"
     "field() for a column.",
     NULL},
    {"dictionary", get_dictionary, NULL,
     "Values of a dictionary-encoded array, or None.", NULL},
    {"validity", ad_array_get_validity, NULL,
     "The validity bitmap as a bool Array (true = valid), or None.", NULL},
    AD_COMMON_GETSET,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ad_array_object, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_members, array_members},
    {Py_tp_getset, array_getset},
    {Py_tp_methods, ad_array_methods},
    {Py_mp_length, array_length},
    {Py_mp_subscript, array_subscript},
    {Py_sq_length, array_length},
    {Py_sq_item, array_item},
    {Py_bf_getbuffer, ad_buffer_get},
    {Py_bf_releasebuffer, ad_buffer_release},
    {Py_tp_doc,
     "A typed Arrow array on a device: a column, or a record batch (struct).\n"
     "Immutable, made by arrowdev.array() or arrowdev.record_batch().\n\n"
     "Exchanges by the Arrow PyCapsule protocol, device and host, and, where\n"
     "the type has a tensor, by DLPack, the array interfaces and the buffer\n"
     "protocol; hasattr() tells which of them this array can serve."},
    {0, NULL},
};

/* IMMUTABLETYPE is set once the protocols have added their methods. */
PyType_Spec ad_array_type_spec = {
    .name = "arrowdev.Array",
    .basicsize = sizeof(ad_array_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};
