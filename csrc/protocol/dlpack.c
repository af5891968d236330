/* __dlpack__ and __dlpack_device__, both ways. */
#include "protocol/dlpack_tensor.h"

#include <limits.h>
#include <string.h>

#include "abi/arrow_c.h"

/* Read a tuple of two ints; numbers out of range become the nearest limit,
 * which no device or version has. -1 with TypeError or ValueError. */
static int
read_pair(PyObject *value, const char *name, long long out[2])
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

/* --- import: whose work has to be waited for ----------------------------- */

/* What is passed to the producer as `stream`, and what follows from it. */
typedef struct order {
    PyObject *stream; /* owned; NULL: nothing is passed */
    PyObject *queue;  /* owned; devices whose streams are objects */
    intptr_t number;  /* the same for devices whose streams are numbers */
    bool is_off;      /* the caller said -1: no synchronization */
} order;

static void
order_clear(order *self)
{
    Py_CLEAR(self->stream);
    Py_CLEAR(self->queue);
}

static ad_import_result
plan_order(ad_state *state, PyObject *object, PyObject *wanted,
           int32_t device_type, order *out)
{
    if (ad_dlpack_has_no_streams(device_type)) {
        return AD_IMPORT_DONE;
    }
    if (ad_dlpack_default_stream(device_type, &out->number)) {
        /* Never None: torch takes an omitted stream for -1, and there is no
         * stream of our own without a runtime. */
        if (wanted != NULL &&
            ad_stream_number(state, wanted, device_type, &out->number) < 0) {
            return AD_IMPORT_FAILED;
        }
        out->is_off = out->number == -1;
        out->stream = PyLong_FromSsize_t(out->number);
        return out->stream != NULL ? AD_IMPORT_DONE : AD_IMPORT_FAILED;
    }
    if (wanted == NULL) {
        int found =
            ad_py_lookup_attr(object, AD_STR(state, sycl_queue), &out->queue);
        return found < 0 ? ad_import_exception(state) : AD_IMPORT_DONE;
    }
    out->is_off = ad_stream_is_off(wanted);
    if (!out->is_off) {
        out->stream = Py_NewRef(wanted);
        out->queue = Py_NewRef(wanted);
    }
    return AD_IMPORT_DONE;
}

static ad_status
attach_queue(ad_tensor *tensor, PyObject *queue, ad_error *err)
{
    ad_owner *keep = ad_py_owner_new(queue);
    if (keep == NULL) {
        PyErr_Clear();
        return ad_fail_memory(err, sizeof(*keep));
    }
    ad_status status = ad_sync_new(AD_SYNC_QUEUE, tensor->device, queue, keep,
                                   &tensor->sync, err);
    ad_owner_unref(keep);
    return status;
}

/* Attach to the tensor what its consumers have to wait for. The device of the
 * struct decides, whatever __dlpack_device__ said. */
static ad_status
attach_order(const order *order, ad_tensor *tensor, ad_error *err)
{
    int32_t type = tensor->device.type;
    intptr_t number;
    if (ad_dlpack_has_no_streams(type) || order->is_off) {
        return AD_OK;
    }
    if (ad_dlpack_default_stream(type, &number)) {
        return ad_dlpack_set_stream(
            tensor, order->stream != NULL ? order->number : number, err);
    }
    if (order->queue != NULL) {
        return attach_queue(tensor, order->queue, err);
    }
    if (type == ARROW_DEVICE_ONEAPI) {
        /* Without a queue this protocol promises nothing here. */
        ad_fail(err, AD_ERR_EXCHANGE, "stream",
                "pass stream=queue, or synchronize and pass stream=-1",
                "work may be pending on the data, and __dlpack__ of an "
                "object without sycl_queue does not say on which queue");
        ad_error_device(err, tensor->device);
        return AD_ERR_EXCHANGE;
    }
    /* DLPack knows no streams for the other types: what it hands out there
     * is ready as far as the protocol can say anything. */
    return AD_OK;
}

static ad_import_result
settle_order(ad_state *state, const order *order, ad_tensor *tensor)
{
    ad_error err;
    if (attach_order(order, tensor, &err) == AD_OK) {
        return AD_IMPORT_DONE;
    }
    ad_tensor_clear(tensor);
    ad_raise(state, &err);
    return ad_import_exception(state);
}

/* --- import: the call ---------------------------------------------------- */

static ad_import_result
ask_device(ad_state *state, PyObject *object, int32_t *device_type)
{
    PyObject *device =
        PyObject_CallMethodNoArgs(object, AD_STR(state, dlpack_device));
    if (device == NULL) {
        return ad_import_exception(state);
    }
    long long pair[2];
    int result = read_pair(device, "the result", pair);
    Py_DECREF(device);
    if (result < 0 || pair[0] < INT32_MIN || pair[0] > INT32_MAX) {
        char origin[AD_ORIGIN_SIZE];
        ad_raise_exchange(state, "protocol", NULL,
                          "%s does not give a (device type, device id)",
                          ad_origin("__dlpack_device__", object, origin));
        return AD_IMPORT_FAILED;
    }
    *device_type = (int32_t)pair[0];
    return AD_IMPORT_DONE;
}

/* New reference to a tuple of names. The two that are always used are kept in
 * the state. */
static PyObject *
make_kwnames(ad_state *state, PyObject *const *names, Py_ssize_t n)
{
    PyObject **cache = NULL;
    if (names[0] == AD_STR(state, max_version) && n == 1) {
        cache = &state->dlpack_kwnames;
    } else if (names[0] == AD_STR(state, max_version) && n == 2 &&
               names[1] == AD_STR(state, stream)) {
        cache = &state->dlpack_kwnames_stream;
    }
    if (cache != NULL && *cache != NULL) {
        return Py_NewRef(*cache);
    }
    PyObject *kwnames = PyTuple_New(n);
    for (Py_ssize_t i = 0; kwnames != NULL && i < n; i++) {
        PyTuple_SET_ITEM(kwnames, i, Py_NewRef(names[i]));
    }
    if (cache != NULL) {
        *cache = Py_XNewRef(kwnames);
    }
    return kwnames;
}

/* object.__dlpack__() with the keywords that are not NULL. */
static PyObject *
call_dlpack(ad_state *state, PyObject *object, PyObject *max_version,
            PyObject *stream, PyObject *copy)
{
    PyObject *names[3];
    PyObject *args[5]; /* one in front for the callee, self, the values */
    Py_ssize_t n = 0;
    args[1] = object;
    if (max_version != NULL) {
        names[n] = AD_STR(state, max_version);
        args[2 + n++] = max_version;
    }
    if (stream != NULL) {
        names[n] = AD_STR(state, stream);
        args[2 + n++] = stream;
    }
    if (copy != NULL) {
        names[n] = AD_STR(state, copy);
        args[2 + n++] = copy;
    }
    PyObject *kwnames = NULL;
    if (n > 0) {
        kwnames = make_kwnames(state, names, n);
        if (kwnames == NULL) {
            return NULL;
        }
    }
    PyObject *capsule =
        PyObject_VectorcallMethod(AD_STR(state, dlpack), args + 1,
                                  1 | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
    Py_XDECREF(kwnames);
    return capsule;
}

/* Make `first` the cause of the exception that is set. */
static void
chain(PyObject *first)
{
    PyObject *second = ad_py_take_exception();
    PyException_SetContext(second, Py_NewRef(first));
    PyException_SetCause(second, first);
    ad_py_restore_exception(second);
}

/* Ask for all that is wanted, and once more for less where the producer does
 * not know the keywords. What `copy` asks for is checked afterwards. */
static PyObject *
request_capsule(ad_state *state, PyObject *object, ad_copy copy,
                PyObject *stream)
{
    PyObject *copy_value = copy == AD_COPY_ALWAYS  ? Py_True
                           : copy == AD_COPY_NEVER ? Py_False
                                                   : NULL;
    PyObject *capsule =
        call_dlpack(state, object, state->max_version, stream, copy_value);
    if (capsule == NULL && copy == AD_COPY_ALWAYS &&
        PyErr_ExceptionMatches(PyExc_BufferError)) {
        PyErr_Clear(); /* it cannot copy, so the copy is made here */
        capsule = call_dlpack(state, object, state->max_version, stream, NULL);
    }
    if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return capsule;
    }
    PyObject *first = ad_py_take_exception();
    capsule = call_dlpack(state, object, NULL, stream, NULL);
    if (capsule == NULL) {
        chain(first);
    } else {
        Py_DECREF(first);
    }
    return capsule;
}

static void *
consume(ad_state *state, PyObject *object, PyObject *capsule,
        bool *is_versioned)
{
    *is_versioned = PyCapsule_IsValid(
        capsule, ad_capsule_name(AD_CAPSULE_DLPACK_VERSIONED));
    if (*is_versioned) {
        return ad_capsule_consume_dlpack(
            state, capsule, AD_CAPSULE_DLPACK_VERSIONED, "__dlpack__");
    }
    ad_capsule_kind kind = AD_CAPSULE_DLPACK;
    char origin[AD_ORIGIN_SIZE] = "__dlpack__";
    if (!PyCapsule_IsValid(capsule, ad_capsule_name(kind))) {
        /* Only for its message, which is to name the kind that was meant. */
        const char *name =
            PyCapsule_CheckExact(capsule) ? PyCapsule_GetName(capsule) : NULL;
        if (name == NULL || strcmp(name, "used_dltensor") != 0) {
            kind = AD_CAPSULE_DLPACK_VERSIONED;
        }
        ad_origin("__dlpack__", object, origin);
    }
    return ad_capsule_consume_dlpack(state, capsule, kind, origin);
}

static ad_import_result
fetch(ad_state *state, PyObject *object, ad_copy copy, PyObject *stream,
      ad_tensor_value *out)
{
    ad_error err;
    bool is_versioned;
    PyObject *capsule = request_capsule(state, object, copy, stream);
    if (capsule == NULL) {
        return ad_import_exception(state);
    }
    void *managed = consume(state, object, capsule, &is_versioned);
    Py_DECREF(capsule);
    if (managed == NULL) {
        return AD_IMPORT_FAILED;
    }
    if (ad_dlpack_take(managed, is_versioned, out, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    return AD_IMPORT_DONE;
}

static ad_import_result
dlpack_import(ad_state *state, PyObject *object, const ad_type_slot *slot,
              const ad_request *request, ad_imported *out)
{
    order order = {0};
    int32_t device_type = 0;
    ad_import_result result = AD_IMPORT_DONE;
    out->is_array = false;
    if (slot->has_torch_flags) {
        /* Before the call, so that it is our clear refusal that is seen. */
        result = ad_dlpack_check_flags(state, object, true);
    }
    if (result == AD_IMPORT_DONE) {
        result = ask_device(state, object, &device_type);
    }
    if (result == AD_IMPORT_DONE) {
        result =
            plan_order(state, object, request->stream, device_type, &order);
    }
    if (result == AD_IMPORT_DONE) {
        result =
            fetch(state, object, request->copy, order.stream, &out->tensor);
    }
    if (result == AD_IMPORT_DONE) {
        result = settle_order(state, &order, &out->tensor.tensor);
    }
    if (result == AD_IMPORT_DONE) {
        result = ad_dlpack_check_copy(state, request->copy, &out->tensor);
    }
    order_clear(&order);
    return result;
}

/* --- export -------------------------------------------------------------- */

typedef struct export_request {
    PyObject *stream; /* borrowed; NULL or None: not given */
    bool is_versioned;
    ad_copy copy;
    bool has_device;
    long long device[2];
} export_request;

static int
read_version(PyObject *value, bool *is_versioned)
{
    long long version[2];
    *is_versioned = false;
    if (ad_is_none(value)) {
        return 0;
    }
    if (read_pair(value, "max_version", version) < 0) {
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
read_request(PyObject *const *values, export_request *out)
{
    int copy = AD_COPY_IF_NEEDED;
    out->stream = values[0];
    if (read_version(values[1], &out->is_versioned) < 0) {
        return -1;
    }
    out->has_device = !ad_is_none(values[2]);
    if (out->has_device &&
        read_pair(values[2], "dl_device", out->device) < 0) {
        return -1;
    }
    if (!ad_is_none(values[3]) && ad_parse_copy(values[3], &copy) < 0) {
        return -1;
    }
    out->copy = (ad_copy)copy;
    return 0;
}

/* Is the queue that the consumer named the one that the work is pending on? */
static bool
is_same_queue(const ad_sync *sync, PyObject *stream)
{
    return sync != NULL && sync->kind == AD_SYNC_QUEUE &&
           sync->handle == (void *)stream;
}

/* May a consumer on this stream have the data without waiting? Nothing can be
 * made to wait without a runtime. */
static int
check_stream(ad_state *state, const ad_tensor *tensor, PyObject *stream)
{
    bool is_given = !ad_is_none(stream);
    if (!is_given && tensor->sync == NULL) {
        return 0;
    }
    if (is_given && ad_stream_is_off(stream)) {
        return 0;
    }
    int32_t type = tensor->device.type;
    if (is_given && type == ARROW_DEVICE_CPU) {
        ad_raise_exchange(state, "stream", "leave stream out, or pass None",
                          "stream=%R was asked for, and the memory is on the "
                          "host, where there are no streams",
                          stream);
        return -1;
    }
    ad_error err;
    intptr_t number;
    ad_status status;
    if (!ad_dlpack_default_stream(type, &number)) {
        if (is_given && is_same_queue(tensor->sync, stream)) {
            return 0;
        }
        status = ad_sync_require_ready(tensor->sync, "__dlpack__", &err);
    } else {
        if (is_given && ad_stream_number(state, stream, type, &number) < 0) {
            return -1;
        }
        status =
            ad_dlpack_require_stream(tensor->sync, number, "__dlpack__", &err);
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

/* Show the memory as that of the device that was asked for, where this takes
 * no copy: it lies there, or it is to be host memory and the host can read
 * it. */
static ad_status
choose_device(ad_tensor *view, const long long *wanted, ad_error *err)
{
    ad_dl_device device;
    AD_RETURN_IF_ERR(ad_dlpack_device(view->device, &device, err));
    if (wanted[0] == device.device_type && wanted[1] == device.device_id) {
        return AD_OK;
    }
    if (wanted[0] == ARROW_DEVICE_CPU && wanted[1] == 0 &&
        ad_device_is_host(view->device)) {
        AD_RETURN_IF_ERR(ad_sync_require_ready(
            view->sync, "__dlpack__(dl_device=(1, 0))", err));
        view->device = AD_CPU;
        return AD_OK;
    }
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_EXCHANGE, "device",
            "leave dl_device out, or copy in the producing library",
            "dl_device=(%lld, %lld) was asked for, the memory is on %s, and "
            "no runtime is loaded that could copy it there",
            wanted[0], wanted[1], ad_device_format(view->device, name));
    ad_error_device(err, view->device);
    return AD_ERR_EXCHANGE;
}

static ad_status
copy_on_host(const ad_tensor *view, ad_tensor_value *out, ad_error *err)
{
    if (view->device.type == ARROW_DEVICE_CPU) {
        return ad_tensor_copy(view, 'C', out, err);
    }
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_EXCHANGE, "copy",
            "pass copy=None and copy in the consuming library",
            "copy=True was asked for, and memory on %s cannot be copied "
            "without a runtime for it",
            ad_device_format(view->device, name));
    ad_error_device(err, view->device);
    return AD_ERR_EXCHANGE;
}

static ad_status
make_managed(const ad_tensor *tensor, const export_request *request,
             void **out, ad_error *err)
{
    ad_tensor view;
    if (request->has_device) {
        view = *tensor; /* borrows all that it points to */
        AD_RETURN_IF_ERR(choose_device(&view, request->device, err));
        tensor = &view;
    }
    if (request->copy != AD_COPY_ALWAYS) {
        return ad_dlpack_give(tensor, request->is_versioned, false, out, err);
    }
    ad_tensor_value copied;
    AD_RETURN_IF_ERR(copy_on_host(tensor, &copied, err));
    ad_status status =
        ad_dlpack_give(&copied.tensor, request->is_versioned, true, out, err);
    ad_tensor_clear(&copied.tensor);
    return status;
}

static PyObject *
export_tensor(ad_state *state, const ad_tensor *tensor,
              const export_request *request)
{
    ad_error err;
    void *managed = NULL;
    if (check_stream(state, tensor, request->stream) < 0) {
        return NULL;
    }
    if (make_managed(tensor, request, &managed, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_capsule_new(request->is_versioned ? AD_CAPSULE_DLPACK_VERSIONED
                                                : AD_CAPSULE_DLPACK,
                          managed);
}

static PyObject *
dlpack_method(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
              PyObject *kwnames)
{
    static const ad_signature signature = {
        .function = "__dlpack__()",
        .n_parameters = 4,
        .names = {AD_STR_stream, AD_STR_max_version, AD_STR_dl_device,
                  AD_STR_copy},
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
    ad_device own = ad_is_tensor(state, self) ? ad_tensor_of(self)->device
                                              : ad_array_of(self)->device;
    if (ad_dlpack_device(own, &device, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *pair = PyTuple_New(2);
    PyObject *type = PyLong_FromLong(device.device_type);
    PyObject *id = PyLong_FromLong(device.device_id);
    if (pair == NULL || type == NULL || id == NULL) {
        Py_XDECREF(pair);
        Py_XDECREF(type);
        Py_XDECREF(id);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, type);
    PyTuple_SET_ITEM(pair, 1, id);
    return pair;
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

/* Not const only because PyCFunction_New does not take it so. */
static PyMethodDef methods[] = {
    [METHOD_DLPACK] = {"__dlpack__",
                       (PyCFunction)(void (*)(void))dlpack_method,
                       METH_FASTCALL | METH_KEYWORDS, dlpack_doc},
    [METHOD_DLPACK_DEVICE] = {"__dlpack_device__", dlpack_device_method,
                              METH_NOARGS, dlpack_device_doc},
    {NULL, NULL, 0, NULL},
};

/* An Array has these only while it can be seen as a tensor. */
static PyObject *
array_method(PyObject *self, void *closure)
{
    PyMethodDef *method = closure;
    if (ad_array_offers_tensor(ad_state_of(self), self, method->ml_name) < 0) {
        return NULL;
    }
    return PyCFunction_New(method, self);
}

static const PyGetSetDef array_getset[] = {
    {"__dlpack__", array_method, NULL,
     "Method as Tensor.__dlpack__; AttributeError, which says why, where\n"
     "this array is no tensor without a copy.",
     &methods[METHOD_DLPACK]},
    {"__dlpack_device__", array_method, NULL,
     "Method as Tensor.__dlpack_device__; there when __dlpack__ is.",
     &methods[METHOD_DLPACK_DEVICE]},
    {NULL, NULL, NULL, NULL, NULL},
};

const ad_protocol ad_protocol_dlpack = {
    .name = "__dlpack__",
    .attribute = AD_STR_dlpack,
    .import = dlpack_import,
    .array_getset = array_getset,
    .tensor_methods = methods,
};
