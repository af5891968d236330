/* ad.Device, and the IntEnum ad.DeviceType. */
#include "support/objects.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "abi/arrow_c.h"
#include "base/owner.h"
#include "device/backend.h"
#include "order/deferred_release.h"
#include "order/device_owner.h"
#include "order/sync.h"
#include "protocol/protocol.h"
#include "python/functions/functions.h"
#include "support/py_call.h"
#include "support/args.h"
#include "support/shown.h"

#define LINE_SIZE 256

static ad_device
device_of(PyObject *self)
{
    return ((ad_device_object *)self)->device;
}

static PyObject *
device_str(PyObject *self)
{
    char name[AD_DEVICE_NAME_SIZE];
    return PyUnicode_FromString(ad_device_format(device_of(self), name));
}

static PyObject *
device_repr(PyObject *self)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_device device = device_of(self);
    ad_device named;
    ad_device_format(device, name);
    if (ad_device_parse(name, &named) && ad_device_equal(device, named)) {
        return PyUnicode_FromFormat("arrowdev.device(\"%s\")", name);
    }
    return PyUnicode_FromFormat("arrowdev.device((%d, %lld))",
                                (int)device.type, (long long)device.id);
}

static Py_hash_t
device_hash(PyObject *self)
{
    ad_device device = device_of(self);
    bool is_cpu = device.type == ARROW_DEVICE_CPU && device.id <= 0;
    Py_hash_t id = is_cpu ? 0 : (Py_hash_t)device.id;
    Py_hash_t hash = (Py_hash_t)device.type * 1000003 + id;
    return hash == -1 ? -2 : hash;
}

static PyObject *
device_compare(PyObject *self, PyObject *other, int op)
{
    if (Py_TYPE(other) != Py_TYPE(self) || (op != Py_EQ && op != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool equal = ad_device_equal(device_of(self), device_of(other));
    return PyBool_FromLong(equal == (op == Py_EQ));
}

/* Exceptions have a device, and must survive pickling. */
static PyObject *
device_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ad_device device = device_of(self);
    PyObject *function = ad_find_helper("_core", "device");
    return function == NULL
               ? NULL
               : Py_BuildValue("N((iL))", function, (int)device.type,
                               (long long)device.id);
}

static PyObject *
device_get_name(PyObject *self, void *Py_UNUSED(closure))
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

/* A new allocation. */
typedef struct block {
    void *data;
    ad_memory memory; /* its sync: after which it may be used */
} block;

static ad_status
allocate_host(int64_t nbytes, block *out, ad_error *err)
{
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    *out = (block){
        .data = memory->data,
        .memory = {.owner = &memory->base, .device = AD_CPU},
    };
    return AD_OK;
}

static ad_status
allocate_device(ad_device device, const ad_stream_ref *choice, int64_t nbytes,
                block *out, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context memory;
    ad_stream_ref on;
    *out = (block){.memory = {.device = device}};
    AD_RETURN_IF_ERR(ad_backend_open(device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->primary_context(device, &memory, err));
    AD_RETURN_IF_ERR(ad_stream_choose(memory, choice, AD_USE_WORK, &on, err));
    memory.handle = on.context.handle; /* the type may be pinned or managed */
    AD_RETURN_IF_ERR(ad_stream_require_no_capture(&on, "Device.empty()", err));
    AD_RETURN_IF_ERR(ad_device_memory_new(memory, &on, nbytes, &out->data,
                                          &out->memory.owner, err));
    if (nbytes == 0) {
        return AD_OK;
    }
    ad_status status = ad_sync_record(&on, &out->memory.sync, err);
    if (status != AD_OK) {
        ad_owner_unref(out->memory.owner);
    }
    return status;
}

static const ad_signature empty_signature = {
    .function = "Device.empty()",
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_nbytes, AD_STR_stream, AD_STR_shared),
};

/* Memory that another process can map, see share/. */
static PyObject *
shared_empty(ad_state *state, ad_device device, int64_t nbytes)
{
    ad_error err;
    if (ad_device_equal(device, AD_CPU)) {
        return ad_memory_file_buffer(state, nbytes);
    }
    ad_fail_on(&err, device, "device", "leave shared=True out",
               "only memory of the host can be shared with another process");
    return ad_raise(state, &err);
}

static PyObject *
device_empty(ad_state *state, PyObject *self, PyObject *const *values)
{
    ad_device device = device_of(self);
    ad_stream_ref choice;
    bool is_shared = false;
    ad_error err;
    block made;
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
    if (ad_parse_bool(values[2], "shared", &is_shared) < 0 ||
        ad_read_stream(state, values[1], device, NULL, &choice) < 0) {
        return NULL;
    }
    if (is_shared) {
        ad_stream_ref_clear(&choice);
        return shared_empty(state, device, nbytes);
    }
    ad_status status =
        ad_device_equal(device, AD_CPU)
            ? allocate_host(nbytes, &made, &err)
            : allocate_device(device, &choice, nbytes, &made, &err);
    ad_stream_ref_clear(&choice);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *buffer =
        ad_buffer_object_new(state, made.data, 0, nbytes, 0, &made.memory);
    ad_memory_drop(&made.memory);
    return buffer;
}

static AD_ENTRY(call_device_empty, ad_state_of, empty_signature,
                device_empty(state, self, values));

/* --- waiting ------------------------------------------------------------- */

static PyObject *
device_synchronize(PyObject *self, PyObject *Py_UNUSED(ignored))
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
        status = ad_context_synchronize(context, &err);
    }
    if (status != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    Py_RETURN_NONE;
}

/* --- the type ------------------------------------------------------------ */

static PyMethodDef device_methods[] = {
    {"empty", AD_METHOD(call_device_empty),
     "empty($self, nbytes, *, stream=None, shared=False)\n--\n\n"
     "A Buffer of `nbytes` bytes of uninitialized memory on this device, for\n"
     "use on `stream` (default: that of use_stream(), else arrowdev's own).\n"
     "`shared`: zeros in a memory file, which share() hands on without a "
     "copy.\n\n"
     "Raises ValueError for nbytes < 0, MemoryError if the device has too\n"
     "little memory left, ExchangeError if the device has no runtime or its\n"
     "memory cannot be shared, and DeviceError if the runtime fails.\n\n"
     "Returns\n-------\nBuffer\n\n"
     "Examples\n--------\n"
     ">>> ad.device(\"cpu\").empty(16).nbytes\n"
     "16"},
    {"synchronize", device_synchronize, METH_NOARGS,
     "synchronize($self)\n--\n\n"
     "Block the host until all work on the device is complete. Raises\n"
     "ExchangeError if the device has no runtime, DeviceError if it fails.\n"
     "On CUDA and ROCm this breaks every capture into a graph that is in\n"
     "progress on the device, as any wait for a whole device does."},
    {"__reduce__", device_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
device_get_type(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_device_type_member(ad_state_of(self), device_of(self).type);
}

static PyGetSetDef device_getset[] = {
    {"type", device_get_type, NULL,
     "Device type of the specification: a DeviceType, or a plain int for a\n"
     "type that the specification does not name.",
     NULL},
    {"name", device_get_name, NULL,
     "Name that the runtime gives the device (\"NVIDIA H200\"); without a\n"
     "runtime the same as str(device): \"cuda:0\".",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef device_members[] = {
    {"id", T_LONGLONG, offsetof(ad_device_object, device.id), READONLY,
     "Ordinal of the device; -1 for the CPU, and if the interface that the\n"
     "memory came by names none."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot device_slots[] = {
    {Py_tp_repr, device_repr},
    {Py_tp_str, device_str},
    {Py_tp_hash, device_hash},
    {Py_tp_richcompare, device_compare},
    {Py_tp_methods, device_methods},
    {Py_tp_members, device_members},
    {Py_tp_getset, device_getset},
    {Py_tp_doc,
     "A device: a type and an ordinal. arrowdev.device() creates it.\n\n"
     "Devices with the same type and ordinal are equal. The ordinals -1 and 0\n"
     "of the CPU are the same device."},
    {0, NULL},
};

PyType_Spec ad_device_type_spec = {
    .name = "arrowdev.Device",
    .basicsize = sizeof(ad_device_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = device_slots,
};

/* --- DeviceType ---------------------------------------------------------- */

/* DeviceType = enum.IntEnum("DeviceType", [(name, value), ...]) */
static PyObject *
make_enum(PyObject *module)
{
    PyObject *result = NULL;
    PyObject *enums = PyImport_ImportModule("enum");
    PyObject *int_enum =
        enums != NULL ? PyObject_GetAttrString(enums, "IntEnum") : NULL;
    PyObject *keywords = Py_BuildValue("{s:s}", "module", "arrowdev");
    PyObject *args = Py_BuildValue("(s["
#define AD_DEVICE_TYPE(tag, number, text, traits) "(si)"
#include "base/device_types.def"
#undef AD_DEVICE_TYPE
                                   "])",
                                   "DeviceType"
#define AD_DEVICE_TYPE(tag, number, text, traits) , #tag, number
#include "base/device_types.def"
#undef AD_DEVICE_TYPE
    );
    PyObject *doc = PyUnicode_FromString(
        "Device types with the values of the specification, which DLPack "
        "shares. DLPack alone names MAIA and TRAINIUM.\n\n"
        "Source: specification, \"ArrowDeviceType\".");
    if (int_enum != NULL && keywords != NULL && args != NULL && doc != NULL) {
        result = PyObject_Call(int_enum, args, keywords);
    }
    if (result != NULL &&
        (PyObject_SetAttrString(result, "__doc__", doc) < 0 ||
         PyModule_AddObjectRef(module, "DeviceType", result) < 0)) {
        Py_CLEAR(result);
    }
    Py_XDECREF(enums);
    Py_XDECREF(int_enum);
    Py_XDECREF(keywords);
    Py_XDECREF(args);
    Py_XDECREF(doc);
    return result;
}

static PyObject *
members_by_value(PyObject *enumeration)
{
    PyObject *members = PyDict_New();
    PyObject *pairs = PyObject_CallFunctionObjArgs(
        (PyObject *)&PyZip_Type, enumeration, enumeration, NULL);
    if (members != NULL &&
        (pairs == NULL || PyDict_MergeFromSeq2(members, pairs, 1) < 0)) {
        Py_CLEAR(members);
    }
    Py_XDECREF(pairs);
    return members;
}

int
ad_device_type_enum_init(ad_state *state, PyObject *module)
{
    state->device_type_enum = make_enum(module);
    if (state->device_type_enum == NULL) {
        return -1;
    }
    state->device_type_members = members_by_value(state->device_type_enum);
    return state->device_type_members != NULL ? 0 : -1;
}

/* --- functions ----------------------------------------------------------- */

PyObject *
ad_function_device(PyObject *module, PyObject *value)
{
    ad_state *state = ad_state_of_module(module);
    ad_device device;
    if (ad_parse_device(state, value, &device) < 0) {
        return NULL;
    }
    return ad_device_object_new(state, device);
}

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
        if (ad_py_append(list, ad_device_object_new(state, device)) < 0) {
            return -1;
        }
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
    return ad_shown(
        err->hint[0] != '\0'
            ? PyUnicode_FromFormat("%s (%s)", err->message, err->hint)
            : PyUnicode_FromString(err->message),
        AD_ONE_LINE);
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
        if (ad_py_append(list, Py_BuildValue("(LN)", (long long)i, why)) < 0) {
            Py_CLEAR(list);
        }
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
        if (ad_py_append(list, describe_runtime(backends[i])) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}
