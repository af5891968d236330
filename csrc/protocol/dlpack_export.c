/* Our own __dlpack__ and __dlpack_device__. */
#include "protocol/dlpack_tensor.h"

#include <limits.h>

#include "abi/arrow_c.h"
#include "copy/copy.h"
#include "device/backend.h"

/* --- arguments ----------------------------------------------------------- */

int
ad_dlpack_read_pair(PyObject *value, const char *name, long long out[2])
{
    if (!PyTuple_Check(value)) {
        PyErr_Format(PyExc_TypeError,
                     "%s must be a tuple of two ints, not %.200s", name,
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    if (PyTuple_GET_SIZE(value) != 2) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be a tuple of two ints, not of %zd items", name,
                     PyTuple_GET_SIZE(value));
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        PyObject *item = PyTuple_GET_ITEM(value, i);
        if (!PyLong_Check(item)) {
            PyErr_Format(PyExc_TypeError,
                         "%s must be a tuple of two ints; item %d is a "
                         "%.200s",
                         name, i, Py_TYPE(item)->tp_name);
            return -1;
        }
        int overflow;
        out[i] = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0) {
            out[i] = overflow > 0 ? LLONG_MAX : LLONG_MIN;
        }
    }
    return 0;
}

typedef struct export_request {
    PyObject *stream; /* borrowed; NULL or None: not given */
    bool is_versioned;
    ad_copy copy;
    bool has_device;
    ad_device device;
} export_request;

static int
read_version(PyObject *value, bool *is_versioned)
{
    long long version[2];
    *is_versioned = false;
    if (ad_is_none(value)) {
        return 0;
    }
    if (ad_dlpack_read_pair(value, "max_version", version) < 0) {
        return -1;
    }
    if (version[0] < 0 || version[1] < 0) {
        PyErr_Format(PyExc_ValueError,
                     "max_version must not be negative, found %R", value);
        return -1;
    }
    *is_versioned = version[0] >= 1;
    return 0;
}

static int
read_device(PyObject *value, ad_device *out)
{
    long long pair[2];
    if (ad_dlpack_read_pair(value, "dl_device", pair) < 0) {
        return -1;
    }
    /* No device type is out of this range. */
    out->type = pair[0] > INT32_MAX || pair[0] < 0 ? -1 : (int32_t)pair[0];
    out->id = pair[1];
    return 0;
}

static int
read_request(PyObject *const *values, export_request *out)
{
    int copy = AD_COPY_IF_NEEDED;
    out->stream = values[0];
    if (read_version(values[1], &out->is_versioned) < 0) {
        return -1;
    }
    out->has_device = !ad_is_none(values[2]);
    if (out->has_device && read_device(values[2], &out->device) < 0) {
        return -1;
    }
    if (!ad_is_none(values[3]) && ad_parse_copy(values[3], &copy) < 0) {
        return -1;
    }
    out->copy = (ad_copy)copy;
    return 0;
}

/* --- order --------------------------------------------------------------- */

/* The consumer's stream. *off: no synchronization. */
static int
read_stream(ad_state *state, ad_device device, PyObject *stream, bool *off,
            ad_stream_ref *out)
{
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
    *off = false;
    if (ad_is_none(stream)) {
        /* Consumers treat pinned memory as host memory. */
        if (!(ad_device_traits(device.type) & AD_NO_STREAMS)) {
            (void)ad_default_stream(device, out);
        }
        return 0;
    }
    if (device.type == ARROW_DEVICE_CPU && !ad_stream_is_no_sync(stream)) {
        ad_raise_exchange(state, "stream", "leave stream out, or pass None",
                          "stream=%R was asked for, and the memory is on the "
                          "host, where there are no streams",
                          stream);
        return -1;
    }
    return ad_read_stream(state, stream, device, off, out);
}

/* Exports the memory under the requested device if that needs no copy: the
 * memory is there, or that device can access it. */
static ad_status
choose_device(ad_tensor *view, ad_device wanted, bool *is_there, ad_error *err)
{
    ad_dl_device own;
    AD_RETURN_IF_ERR(ad_dlpack_device(view->memory.device, &own, err));
    *is_there = true;
    if (wanted.type == own.device_type && wanted.id == own.device_id) {
        return AD_OK;
    }
    if (ad_device_is_another_name(view->memory.device, wanted)) {
        view->memory.device = wanted;
        return AD_OK;
    }
    if (ad_device_equal(wanted, AD_CPU) &&
        ad_host_accessible(view->memory.device)) {
        view->memory.device = AD_CPU;
        return AD_OK;
    }
    *is_there = false;
    return AD_OK;
}

static ad_status
check_may_copy(const ad_tensor *tensor, const export_request *request,
               ad_error *err)
{
    char from[AD_DEVICE_NAME_SIZE];
    char to[AD_DEVICE_NAME_SIZE];
    if (request->has_device && request->device.type == ARROW_DEVICE_CPU &&
        !ad_device_equal(request->device, AD_CPU)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "ask for dl_device=(1, 0)",
                       "dl_device=(1, %lld) was asked for, and there is one "
                       "host, number 0",
                       (long long)request->device.id);
    }
    if (request->copy != AD_COPY_NEVER) {
        return AD_OK;
    }
    return ad_fail_on(err, tensor->memory.device, "copy",
                      "leave copy=False or dl_device out",
                      "the memory is on %s, and to have it on %s takes a copy",
                      ad_device_format(tensor->memory.device, from),
                      ad_device_format(request->device, to));
}

/* Prepares the exported tensor of a request that names a device or a copy: the
 * tensor itself, possibly under another device, or a copy of it on the
 * consumer's stream. */
static ad_status
prepare(const ad_tensor *tensor, const export_request *request,
        const ad_stream_ref *consumer, ad_tensor_value *copied, ad_tensor *out,
        bool *is_copy, ad_error *err)
{
    bool is_there = true;
    *out = *tensor; /* borrows all that it points to */
    if (request->has_device) {
        AD_RETURN_IF_ERR(choose_device(out, request->device, &is_there, err));
    }
    *is_copy = !is_there || request->copy == AD_COPY_ALWAYS;
    if (!*is_copy) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(check_may_copy(tensor, request, err));
    ad_device target =
        request->has_device ? request->device : tensor->memory.device;
    const char *why = is_there
                          ? "the consumer of __dlpack__ passed copy=True"
                          : "the consumer of __dlpack__ asked for that device";
    AD_RETURN_IF_ERR(
        ad_tensor_copy_to(tensor, target, consumer, 'C', why, copied, err));
    *out = copied->tensor;
    return AD_OK;
}

/* Lets the consumer wait for the exported tensor. It always waits for our
 * copy: stream=-1 refers to the data, and the consumer does not know the
 * stream of the copy. */
static ad_status
order_consumer(const ad_tensor *given, const ad_stream_ref *consumer,
               bool no_sync, bool is_copy, ad_error *err)
{
    if (ad_is_plain(&given->memory) || (no_sync && !is_copy)) {
        return AD_OK;
    }
    if (!ad_stream_is_given(consumer) ||
        given->memory.device.type == ARROW_DEVICE_CPU) {
        return ad_sync_wait(given->memory.sync, "__dlpack__", err);
    }
    return ad_use(&given->memory, consumer, "__dlpack__", err);
}

static ad_status
make_managed(const ad_tensor *tensor, const export_request *request,
             const ad_stream_ref *consumer, bool no_sync, void **out,
             ad_error *err)
{
    ad_tensor_value copied;
    ad_tensor prepared;
    const ad_tensor *given = tensor;
    bool is_copy = false;
    if (request->has_device || request->copy == AD_COPY_ALWAYS) {
        AD_RETURN_IF_ERR(prepare(tensor, request, consumer, &copied, &prepared,
                                 &is_copy, err));
        given = &prepared;
    }
    ad_status status = order_consumer(given, consumer, no_sync, is_copy, err);
    if (status == AD_OK) {
        status =
            ad_dlpack_give(given, request->is_versioned, is_copy, out, err);
    }
    if (is_copy) {
        ad_tensor_clear(&copied.tensor);
    }
    return status;
}

static PyObject *
export_tensor(ad_state *state, const ad_tensor *tensor,
              const export_request *request)
{
    ad_error err;
    ad_status status;
    ad_stream_ref consumer;
    bool no_sync;
    void *managed = NULL;
    if (ad_is_plain(&tensor->memory) && !request->has_device &&
        request->copy != AD_COPY_ALWAYS && ad_is_none(request->stream)) {
        status = ad_dlpack_give(tensor, request->is_versioned, false, &managed,
                                &err);
    } else {
        ad_device working =
            request->has_device
                ? ad_device_of_copy(tensor->memory.device, request->device)
                : tensor->memory.device;
        if (read_stream(state, working, request->stream, &no_sync, &consumer) <
            0) {
            return NULL;
        }
        status =
            make_managed(tensor, request, &consumer, no_sync, &managed, &err);
        ad_stream_ref_clear(&consumer);
    }
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_capsule_new(request->is_versioned ? AD_CAPSULE_DLPACK_VERSIONED
                                                : AD_CAPSULE_DLPACK,
                          managed);
}

/* --- the methods --------------------------------------------------------- */

static PyObject *
dlpack_method(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
              PyObject *kwnames)
{
    static const ad_signature signature = {
        .function = "__dlpack__()",
        AD_PARAMETER_NAMES(AD_STR_stream, AD_STR_max_version, AD_STR_dl_device,
                           AD_STR_copy),
    };
    ad_state *state = ad_state_of(self);
    PyObject *values[4];
    export_request request;
    if (ad_parse_args(state, &signature, args, n_args, kwnames, values) < 0 ||
        read_request(values, &request) < 0) {
        return NULL;
    }
    if (ad_is_tensor(state, self)) {
        return export_tensor(state, ad_tensor_of(self), &request);
    }
    ad_tensor_value tensor;
    if (ad_self_as_tensor(state, self, &tensor) < 0) {
        return NULL;
    }
    PyObject *capsule = export_tensor(state, &tensor.tensor, &request);
    ad_tensor_clear(&tensor.tensor);
    return capsule;
}

static PyObject *
dlpack_device_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ad_state *state = ad_state_of(self);
    ad_error err;
    ad_dl_device device;
    ad_device own = ad_is_tensor(state, self)
                        ? ad_tensor_of(self)->memory.device
                        : ad_array_of(self)->memory.device;
    if (ad_dlpack_device(own, &device, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    const int64_t pair[] = {device.device_type, device.device_id};
    return ad_int_tuple(pair, 2, 1);
}

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, /, *, stream=None, max_version=None,\n"
             "           dl_device=None, copy=None)\n"
             "--\n\n"
             "A DLPack capsule over this memory: versioned when max_version "
             "is\n(1, 0) or later, else legacy.");
PyDoc_STRVAR(dlpack_device_doc, "__dlpack_device__($self, /)\n--\n\n"
                                "(device type, device id) in DLPack's "
                                "numbers.");

enum {
    METHOD_DLPACK,
    METHOD_DLPACK_DEVICE
};

PyMethodDef ad_dlpack_methods[] = {
    [METHOD_DLPACK] = {"__dlpack__", AD_METHOD(dlpack_method), dlpack_doc},
    [METHOD_DLPACK_DEVICE] = {"__dlpack_device__", dlpack_device_method,
                              METH_NOARGS, dlpack_device_doc},
    {NULL, NULL, 0, NULL},
};

/* An Array has these methods only if it can be exported as a tensor. */
static PyObject *
array_method(PyObject *self, void *closure)
{
    PyMethodDef *method = closure;
    if (ad_array_offers_tensor(ad_state_of(self), self, method->ml_name) < 0) {
        return NULL;
    }
    return PyCFunction_New(method, self);
}

const PyGetSetDef ad_dlpack_array_getset[] = {
    {"__dlpack__", array_method, NULL,
     "Method as Tensor.__dlpack__; AttributeError, which says why, where\n"
     "this array is no tensor without a copy.",
     &ad_dlpack_methods[METHOD_DLPACK]},
    {"__dlpack_device__", array_method, NULL,
     "Method as Tensor.__dlpack_device__; there when __dlpack__ is.",
     &ad_dlpack_methods[METHOD_DLPACK_DEVICE]},
    {NULL, NULL, NULL, NULL, NULL},
};
