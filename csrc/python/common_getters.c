#include "python/common_getters.h"

#include "core/array.h"
#include "protocol/protocol.h"
#include "python/functions.h"

static inline ad_device
device_of(PyObject *self)
{
    return ad_is_array(ad_state_of(self), self) ? ad_array_of(self)->device
                                                : ad_tensor_of(self)->device;
}

static inline ad_sync *
sync_of(PyObject *self)
{
    return ad_is_array(ad_state_of(self), self) ? ad_array_of(self)->sync
                                                : ad_tensor_of(self)->sync;
}

PyObject *
ad_get_device(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_device_object_new(ad_state_of(self), device_of(self));
}

PyObject *
ad_get_device_type(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_device_type_member(ad_state_of(self), device_of(self).type);
}

PyObject *
ad_get_device_id(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(device_of(self).id);
}

PyObject *
ad_get_sync_event(PyObject *self, void *Py_UNUSED(closure))
{
    const ad_sync *sync = sync_of(self);
    if (sync == NULL || sync->kind != AD_SYNC_EVENT) {
        Py_RETURN_NONE;
    }
    return PyLong_FromVoidPtr(sync->handle);
}

static int
require_ready(PyObject *self, const char *what)
{
    ad_error err;
    if (ad_sync_require_ready(sync_of(self), what, &err) != AD_OK) {
        ad_raise(ad_state_of(self), &err);
        return -1;
    }
    return 0;
}

PyObject *
ad_is_ready(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (require_ready(self, "is_ready()") < 0) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

PyObject *
ad_synchronize(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (require_ready(self, "synchronize()") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *
ad_wait(PyObject *self, PyObject *stream)
{
    const ad_sync *sync = sync_of(self);
    intptr_t number;
    if (ad_stream_number(ad_state_of(self), stream, device_of(self).type,
                         &number) < 0) {
        return NULL;
    }
    bool is_ordered = sync != NULL && sync->kind == AD_SYNC_STREAM &&
                      (intptr_t)sync->handle == number;
    if (!is_ordered && require_ready(self, "wait()") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static const ad_signature to_signature = {
    .function = "to()",
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_device, AD_STR_stream},
};

PyObject *
ad_to(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
      PyObject *kwnames)
{
    ad_state *state = ad_state_of(self);
    PyObject *values[2];
    ad_device target;
    if (ad_parse_args(state, &to_signature, args, n_args, kwnames, values) <
            0 ||
        ad_parse_device(state, values[0], &target) < 0) {
        return NULL;
    }
    if (!ad_is_none(values[1]) && ad_stream_check(state, values[1]) < 0) {
        return NULL;
    }
    if (ad_check_device(state, device_of(self), target) < 0) {
        return NULL;
    }
    return Py_NewRef(self);
}

static const ad_signature numpy_signature = {
    .function = "__array__()",
    .n_positional = 2,
    .n_parameters = 2,
    .names = {AD_STR_dtype, AD_STR_copy},
};

PyObject *
ad_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
         PyObject *kwnames)
{
    PyObject *values[2];
    if (ad_parse_args(ad_state_of(self), &numpy_signature, args, n_args,
                      kwnames, values) < 0) {
        return NULL;
    }
    PyObject *helper_args[] = {self, values[0] != NULL ? values[0] : Py_None,
                               values[1] != NULL ? values[1] : Py_None};
    return ad_call_helper("_convert", "as_numpy", helper_args, 3);
}

static const ad_signature into_signature = {
    .function = "into()",
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 3,
    .names = {AD_STR_cls, AD_STR_stream, AD_STR_copy},
};

PyObject *
ad_into(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
        PyObject *kwnames)
{
    ad_state *state = ad_state_of(self);
    PyObject *values[3];
    int copy = AD_COPY_IF_NEEDED;
    if (ad_parse_args(state, &into_signature, args, n_args, kwnames, values) <
            0 ||
        (!ad_is_none(values[1]) && ad_stream_check(state, values[1]) < 0) ||
        (values[2] != NULL && ad_parse_copy(values[2], &copy) < 0)) {
        return NULL;
    }
    return ad_convert_into(state, self, values[0],
                           ad_is_none(values[1]) ? NULL : values[1], copy);
}
