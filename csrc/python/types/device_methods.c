#include "python/types/device_methods.h"

#include <string.h>

#include "order/device_memory.h"
#include "base/memory.h"
#include "order/deferred_release.h"
#include "order/sync.h"
#include "device/backend.h"
#include "support/args.h"
#include "support/errors.h"
#include "python/functions/to_device.h"

#define LINE_SIZE 256

static inline ad_device
device_of(PyObject *self)
{
    return ((ad_device_object *)self)->device;
}

PyObject *
ad_device_get_name(PyObject *self, void *Py_UNUSED(closure))
{
    const struct ad_backend *backend;
    ad_device device = device_of(self);
    char line[LINE_SIZE];
    ad_error err;
    if (device.id >= 0 &&
        ad_backend_open(device.type, &backend, &err) == AD_OK &&
        backend->device_name(device.id, line, sizeof(line), &err) == AD_OK) {
        return PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace");
    }
    return PyUnicode_FromString(ad_device_format(device, line));
}

/* --- memory -------------------------------------------------------------- */

/* A new allocation, its owner, and the event after which it may be used. */
typedef struct block {
    void *data;
    ad_owner *owner;
    ad_sync *sync;
} block;

static ad_status
allocate_host(int64_t nbytes, block *out, ad_error *err)
{
    ad_memory *memory;
    AD_RETURN_IF_ERR(ad_memory_new(nbytes, &memory, err));
    *out = (block){.data = memory->data, .owner = &memory->base};
    return AD_OK;
}

static ad_status
allocate_device(ad_device device, const ad_stream_choice *choice,
                int64_t nbytes, block *out, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context context;
    ad_stream_choice on;
    *out = (block){.data = NULL};
    AD_RETURN_IF_ERR(ad_backend_open(device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->primary_context(device, &context, err));
    AD_RETURN_IF_ERR(ad_stream_choose(context, choice, &on, &context, err));
    AD_RETURN_IF_ERR(ad_stream_require_no_capture(context, on.stream,
                                                  "Device.empty()", err));
    AD_RETURN_IF_ERR(ad_device_memory_new(context, on.stream, on.keep, nbytes,
                                          &out->data, &out->owner, err));
    if (nbytes == 0) {
        return AD_OK;
    }
    ad_status status = ad_sync_record(context, on.stream, &out->sync, err);
    if (status != AD_OK) {
        ad_owner_unref(out->owner);
    }
    return status;
}

static const ad_signature empty_signature = {
    .function = "Device.empty()",
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_nbytes, AD_STR_stream},
};

PyObject *
ad_device_empty(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                PyObject *kwnames)
{
    ad_state *state = ad_state_of(self);
    ad_device device = device_of(self);
    PyObject *values[2];
    ad_stream_choice choice;
    ad_error err;
    block memory;
    if (ad_parse_args(state, &empty_signature, args, n_args, kwnames, values) <
        0) {
        return NULL;
    }
    if (PyBool_Check(values[0])) {
        return PyErr_Format(PyExc_TypeError,
                            "nbytes must be an int, not a bool");
    }
    long long nbytes = PyLong_AsLongLong(values[0]);
    if (nbytes == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (nbytes < 0) {
        return PyErr_Format(PyExc_ValueError,
                            "nbytes must not be negative, found %lld", nbytes);
    }
    if (ad_read_choice(state, values[1], device, NULL, &choice) < 0) {
        return NULL;
    }
    ad_status status =
        ad_device_equal(device, AD_CPU)
            ? allocate_host(nbytes, &memory, &err)
            : allocate_device(device, &choice, nbytes, &memory, &err);
    ad_choice_clear(&choice);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *buffer = ad_buffer_object_new(
        state, memory.data, 0, nbytes, device, 0, memory.owner, memory.sync);
    ad_sync_unref(memory.sync);
    ad_owner_unref(memory.owner);
    return buffer;
}

/* --- waiting ------------------------------------------------------------- */

PyObject *
ad_device_synchronize(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const struct ad_backend *backend;
    ad_device device = device_of(self);
    ad_context context;
    ad_error err;
    ad_status status = ad_backend_open(device.type, &backend, &err);
    if (status == AD_OK) {
        status = backend->primary_context(device, &context, &err);
    }
    if (status == AD_OK) {
        status = ad_context_synchronize(backend, context, &err);
    }
    if (status != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    Py_RETURN_NONE;
}

/* --- listing devices ----------------------------------------------------- */

static int
append_devices(ad_state *state, PyObject *list,
               const struct ad_backend *backend, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        ad_device device = {backend->device_types[0], i};
        if (backend->device_usable(i, NULL) != AD_OK) {
            continue;
        }
        if (ad_device_equal(device, AD_CPU)) {
            device = AD_CPU;
        }
        PyObject *object = ad_device_object_new(state, device);
        if (object == NULL || PyList_Append(list, object) < 0) {
            Py_XDECREF(object);
            return -1;
        }
        Py_DECREF(object);
    }
    return 0;
}

PyObject *
ad_function_devices(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    ad_state *state = ad_state_of_module(module);
    size_t n;
    const struct ad_backend *const *backends = ad_backends(&n);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        const struct ad_backend *backend;
        int64_t count;
        ad_error err;
        /* A runtime that is missing or fails has no usable device; `python -m
         * arrowdev doctor` reports the reason. */
        if (ad_backend_open(backends[i]->device_types[0], &backend, &err) !=
                AD_OK ||
            backend->count(&count, &err) != AD_OK) {
            continue;
        }
        if (append_devices(state, list, backend, count) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* The message and the hint. */
static PyObject *
reason_of(const ad_error *err)
{
    return err->hint[0] != '\0'
               ? PyUnicode_FromFormat("%s (%s)", err->message, err->hint)
               : PyUnicode_FromString(err->message);
}

/* [(id, reason why it is unusable or None), ...] */
static PyObject *
describe_devices(const struct ad_backend *backend, int64_t n)
{
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list != NULL && i < n; i++) {
        ad_error err;
        PyObject *why = backend->device_usable(i, &err) == AD_OK
                            ? Py_NewRef(Py_None)
                            : reason_of(&err);
        PyObject *row =
            why != NULL ? Py_BuildValue("(LN)", (long long)i, why) : NULL;
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

/* (name, device type, reason why it is unusable or None, description or None,
 * devices, description of the current context) */
static PyObject *
describe_runtime(const struct ad_backend *filled)
{
    const struct ad_backend *backend;
    char line[LINE_SIZE] = "";
    char current[LINE_SIZE] = "";
    int64_t count = 0;
    ad_error err;
    ad_status status =
        ad_backend_open(filled->device_types[0], &backend, &err);
    if (status == AD_OK) {
        status = backend->describe(line, sizeof(line), &err);
    }
    if (status == AD_OK) {
        status = backend->count(&count, &err);
    }
    if (status == AD_OK) {
        status = backend->describe_current(current, sizeof(current), &err);
    }
    int type = filled->device_types[0];
    if (status == AD_OK) {
        return Py_BuildValue("(siOsNs)", filled->name, type, Py_None, line,
                             describe_devices(backend, count), current);
    }
    return Py_BuildValue("(siNO[]s)", filled->name, type, reason_of(&err),
                         Py_None, "");
}

PyObject *
ad_function_runtimes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    size_t n;
    const struct ad_backend *const *backends = ad_backends(&n);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *row = describe_runtime(backends[i]);
        if (row == NULL || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}
