#include "python/types/types.h"

#include <string.h>

#include "order/deferred_release.h"
#include "protocol/protocol.h"
#include "python/functions/functions.h"
#include "support/py_call.h"
#include "support/args.h"

static PyObject *
get_device(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_device_object_new(ad_state_of(self), ad_memory_of(self)->device);
}

static PyObject *
get_device_type(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_device_type_member(ad_state_of(self),
                                 ad_memory_of(self)->device.type);
}

static PyObject *
get_device_id(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(ad_memory_of(self)->device.id);
}

static PyObject *
get_sync_event(PyObject *self, void *Py_UNUSED(closure))
{
    const ad_sync *sync = ad_memory_of(self)->sync;
    if (ad_sync_is_done(sync) || sync->kind != AD_SYNC_EVENT) {
        Py_RETURN_NONE;
    }
    return PyLong_FromVoidPtr(sync->handle);
}

static PyObject *
convert_scalar(PyObject *self, PyObject *(*convert)(PyObject *))
{
    PyObject *element = ad_scalar(self);
    PyObject *result = element != NULL ? convert(element) : NULL;
    Py_XDECREF(element);
    return result;
}

PyObject *
ad_scalar_as_int(PyObject *self)
{
    return convert_scalar(self, PyNumber_Long);
}

PyObject *
ad_scalar_as_float(PyObject *self)
{
    return convert_scalar(self, PyNumber_Float);
}

PyObject *
ad_decode_text(const char *text)
{
    text = text != NULL ? text : "";
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                "surrogateescape");
}

const char *
ad_readiness(const ad_sync *sync)
{
    return ad_sync_is_done(sync)          ? ""
           : sync->kind == AD_SYNC_EVENT  ? ", after event"
           : sync->kind == AD_SYNC_STREAM ? ", after stream"
                                          : ", after queue";
}

static PyObject *
is_ready(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ad_error err;
    bool is_ready;
    if (ad_sync_query(ad_memory_of(self)->sync, &is_ready, &err) != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    return PyBool_FromLong(is_ready);
}

static PyObject *
synchronize(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ad_error err;
    if (ad_sync_wait(ad_memory_of(self)->sync, "synchronize()", &err) !=
        AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    ad_deferred_drain();
    Py_RETURN_NONE;
}

static PyObject *
wait_on_stream(PyObject *self, PyObject *stream)
{
    ad_state *state = ad_state_of(self);
    const ad_memory *used = ad_memory_of(self);
    ad_stream_ref choice;
    ad_error err;
    if (stream == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "wait() needs a stream, not None; synchronize() makes "
                        "the host wait");
        return NULL;
    }
    if (ad_read_stream(state, stream, used->device, NULL, &choice) < 0) {
        return NULL;
    }
    ad_status status = ad_use(used, &choice, "wait()", &err);
    ad_stream_ref_clear(&choice);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    Py_RETURN_NONE;
}

static const ad_signature to_signature = {
    .function = "to()",
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_device, AD_STR_stream),
};

static PyObject *
array_to(ad_state *state, PyObject *self, ad_device target,
         const ad_stream_argument *stream, ad_copy copy, const char *why)
{
    ad_array moved;
    ad_array_share(ad_array_of(self), &moved);
    if (ad_move_to(state, &moved, NULL, target, stream, copy, why) < 0) {
        return NULL;
    }
    return ad_array_object_new(state, &moved);
}

static PyObject *
tensor_to(ad_state *state, PyObject *self, ad_device target,
          const ad_stream_argument *stream, ad_copy copy, const char *why)
{
    ad_tensor_value moved;
    ad_error err;
    if (ad_tensor_require_size(ad_tensor_of(self), &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    ad_tensor_share(ad_tensor_of(self), &moved);
    if (ad_move_to(state, NULL, &moved, target, stream, copy, why) < 0) {
        return NULL;
    }
    return ad_tensor_object_of_type((PyObject *)Py_TYPE(self), &moved.tensor);
}

static PyObject *
to_device(ad_state *state, PyObject *self, PyObject *const *values)
{
    ad_device target;
    ad_stream_argument stream;
    if (ad_parse_device(state, values[0], &target) < 0 ||
        ad_parse_stream(state, values[1], &stream) < 0) {
        return NULL;
    }
    if (ad_device_equal(ad_memory_of(self)->device, target)) {
        return Py_NewRef(self);
    }
    return ad_is_array(state, self) ? array_to(state, self, target, &stream,
                                               AD_COPY_IF_NEEDED, NULL)
                                    : tensor_to(state, self, target, &stream,
                                                AD_COPY_IF_NEEDED, NULL);
}

static AD_ENTRY(call_to_device, ad_state_of, to_signature,
                to_device(state, self, values));

static PyObject *
copy_here(ad_state *state, PyObject *self, const ad_stream_argument *stream,
          const char *why)
{
    ad_device here = ad_memory_of(self)->device;
    return ad_is_array(state, self)
               ? array_to(state, self, here, stream, AD_COPY_ALWAYS, why)
               : tensor_to(state, self, here, stream, AD_COPY_ALWAYS, why);
}

static PyObject *
deep_copy(PyObject *self, PyObject *Py_UNUSED(memo))
{
    return copy_here(ad_state_of(self), self, NULL,
                     "copy.deepcopy was called");
}

PyObject *
ad_function_copied(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    ad_stream_argument stream;
    PyObject *value;
    PyObject *given;
    const char *why;
    if (!PyArg_ParseTuple(args, "OsO:_copied", &value, &why, &given) ||
        ad_parse_stream(state, given, &stream) < 0) {
        return NULL;
    }
    if (!ad_is_array(state, value) && !ad_is_tensor(state, value)) {
        PyErr_SetString(PyExc_TypeError, "neither an Array nor a Tensor");
        return NULL;
    }
    /* The import before has served stream=-1, and dropped the sync. */
    return copy_here(state, value,
                     stream.kind == AD_STREAM_OFF ? NULL : &stream, why);
}

PyObject *
ad_copy_is_self(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self);
}

PyObject *
ad_reduce(PyObject *self, PyObject *protocol)
{
    PyObject *args[] = {self, protocol};
    return ad_call_helper("_pickle", "reduce", args, 2);
}

static const ad_signature into_signature = {
    .function = "into()",
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_cls, AD_STR_stream, AD_STR_copy),
};

static PyObject *
into(ad_state *state, PyObject *self, PyObject *const *values)
{
    ad_stream_argument stream;
    int copy = AD_COPY_IF_NEEDED;
    if (ad_parse_stream(state, values[1], &stream) < 0 ||
        (values[2] != NULL && ad_parse_copy(values[2], &copy) < 0)) {
        return NULL;
    }
    return ad_convert_into(state, self, values[0], &stream, copy);
}

static AD_ENTRY(call_into, ad_state_of, into_signature,
                into(state, self, values));

const PyMethodDef ad_common_methods[] = {
    {"is_ready", is_ready, METH_NOARGS,
     "is_ready($self)\n--\n\n"
     "Whether the data are ready now, without waiting.\n\n"
     "Raises ExchangeError if work is pending on a device whose runtime is\n"
     "not available, and DeviceError if the work failed.\n\n"
     "Returns\n-------\nbool\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\").is_ready()\n"
     "True"},
    {"synchronize", synchronize, METH_NOARGS,
     "synchronize($self)\n--\n\n"
     "Block the host until the data are ready. Raises as is_ready()."},
    {"wait", wait_on_stream, METH_O,
     "wait($self, stream, /)\n--\n\n"
     "Make a stream of the device wait until the data are ready. The host\n"
     "does not block. Raises as is_ready(), and TypeError for None."},
    {"to", AD_METHOD(call_to_device),
     "to($self, device, *, stream=None)\n--\n\n"
     "The same data on a device; self if they are there already.\n\n"
     "The copy runs on `stream` of the device (default: that of\n"
     "use_stream(), else arrowdev's own). A copy in host memory is complete\n"
     "on return. Pinned and managed memory becomes memory of the host or of\n"
     "its device without a copy.\n\n"
     "Raises ExchangeError if no runtime can copy there, MemoryError if the\n"
     "device has too little memory left, DeviceError if the runtime fails.\n\n"
     "Returns\n-------\nAn object of the same class.\n\n"
     "Examples\n--------\n"
     ">>> from arrowdev.testing import software_device\n"
     ">>> with software_device():\n"
     "...     there = ad.array(b\"abc\").to(\"ext_dev:0\")\n"
     "...     there.to(\"cpu\").to_pylist()\n"
     "[97, 98, 99]"},
    {"into", AD_METHOD(call_into),
     "into($self, cls, *, stream=None, copy=None)\n--\n\n"
     "The data as an instance of another library's class, such as\n"
     "torch.Tensor or pyarrow.Array, by the fastest way that the\n"
     "class offers. A UserWarning tells that the class ignores the read-only\n"
     "flag of the memory.\n\n"
     "Raises TypeError for a class that arrowdev does not know.\n\n"
     "Returns\n-------\nAn instance of `cls`.\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\").into(memoryview).tolist()\n"
     "[97, 98, 99]"},
    {"__reduce_ex__", ad_reduce, METH_O,
     "__reduce_ex__($self, protocol, /)\n--\n\n"
     "What pickle calls. Waits for the data and, if the host cannot read\n"
     "them, copies them to the host. Raises as to(\"cpu\")."},
    {"__copy__", ad_copy_is_self, METH_NOARGS,
     "__copy__($self)\n--\n\nThe object itself, which is immutable."},
    {"__deepcopy__", deep_copy, METH_O,
     "__deepcopy__($self, memo, /)\n--\n\n"
     "The same data in memory of their own on the same device. Raises as\n"
     "to()."},
    {NULL, NULL, 0, NULL},
};

const PyGetSetDef ad_common_getset[] = {
    {"device", get_device, NULL, "The Device that the memory is on.", NULL},
    {"device_type", get_device_type, NULL,
     "DeviceType of the memory (a plain int for an unknown type).", NULL},
    {"device_id", get_device_id, NULL,
     "Ordinal of the device; -1 for the CPU, and if the interface that\n"
     "the memory came by names none.",
     NULL},
    {"sync_event", get_sync_event, NULL,
     "Address of the event handle that must be waited for, or None.\n"
     "\nSource: specification, \"Synchronization event types\".",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
