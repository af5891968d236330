/* ad.Device, and the IntEnum ad.DeviceType. */
#include "support/objects.h"

#include "abi/arrow_c.h"
#include "support/args.h"
#include "python/types/device_methods.h"
#include "python/functions/functions.h"
#include "support/helpers.h"
#include "support/parse.h"

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

static PyMethodDef device_methods[] = {
    {"empty", (PyCFunction)(void (*)(void))ad_device_empty,
     METH_FASTCALL | METH_KEYWORDS,
     "empty($self, nbytes, *, stream=None)\n--\n\n"
     "A Buffer of uninitialised memory on this device, for use on `stream`\n"
     "(default: use_stream()'s, else arrowdev's own).\n\n"
     "Raises MemoryError when there is none left, ExchangeError where there is\n"
     "no runtime, DeviceError when it fails, ValueError for nbytes < 0."},
    {"synchronize", ad_device_synchronize, METH_NOARGS,
     "synchronize($self)\n--\n\n"
     "Block the host until all work on the device is done. Errors as empty()."},
    {"__reduce__", device_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
device_get_type(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_device_type_member(ad_state_of(self), device_of(self).type);
}

static PyObject *
device_get_id(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(device_of(self).id);
}

static PyGetSetDef device_getset[] = {
    {"type", device_get_type, NULL,
     "The specification's device type: a DeviceType, or a plain int for a\n"
     "type that it does not name.",
     NULL},
    {"id", device_get_id, NULL,
     "The ordinal; -1 for the CPU, and where an interface did not say.", NULL},
    {"name", ad_device_get_name, NULL,
     "What the runtime calls it (\"NVIDIA H200\"); where there is no runtime,\n"
     "the same as str(device): \"cuda:0\".",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot device_slots[] = {
    {Py_tp_repr, device_repr},
    {Py_tp_str, device_str},
    {Py_tp_hash, device_hash},
    {Py_tp_richcompare, device_compare},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_getset},
    {Py_tp_doc,
     "A device: a type and an ordinal. Made by arrowdev.device().\n\n"
     "Devices compare equal when type and ordinal are the same; CPU ids -1\n"
     "and 0 are one and the same device."},
    {0, NULL},
};

static PyType_Spec device_spec = {
    .name = "arrowdev.Device",
    .basicsize = sizeof(ad_device_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = device_slots,
};

/* DeviceType = enum.IntEnum("DeviceType", [(name, value), ...]) */
static PyObject *
make_enum(PyObject *module)
{
    static const struct {
        const char *name;
        int value;
    } rows[] = {
#define AD_DEVICE_TYPE(tag, number, text, traits) {#tag, number},
#include "base/device_types.def"
#undef AD_DEVICE_TYPE
    };
    PyObject *result = NULL;
    PyObject *keywords = NULL;
    PyObject *args = NULL;
    PyObject *int_enum = NULL;
    PyObject *members = PyList_New(0);
    if (members == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        PyObject *pair = Py_BuildValue("(si)", rows[i].name, rows[i].value);
        if (pair == NULL || PyList_Append(members, pair) < 0) {
            Py_XDECREF(pair);
            goto done;
        }
        Py_DECREF(pair);
    }
    PyObject *enum_module = PyImport_ImportModule("enum");
    if (enum_module == NULL) {
        goto done;
    }
    int_enum = PyObject_GetAttrString(enum_module, "IntEnum");
    Py_DECREF(enum_module);
    keywords = Py_BuildValue("{s:s}", "module", "arrowdev");
    args = Py_BuildValue("(sO)", "DeviceType", members);
    if (int_enum != NULL && keywords != NULL && args != NULL) {
        result = PyObject_Call(int_enum, args, keywords);
    }
    PyObject *doc = PyUnicode_FromString(
        "Device types with the values of the specification, which DLPack "
        "shares.\n\n"
        "Source: specification, \"ArrowDeviceType\".");
    if (result != NULL &&
        (doc == NULL || PyObject_SetAttrString(result, "__doc__", doc) < 0 ||
         PyModule_AddObjectRef(module, "DeviceType", result) < 0)) {
        Py_CLEAR(result);
    }
    Py_XDECREF(doc);
done:
    Py_XDECREF(int_enum);
    Py_XDECREF(keywords);
    Py_XDECREF(args);
    Py_DECREF(members);
    return result;
}

static PyObject *
members_by_value(PyObject *enumeration)
{
    PyObject *members = PyDict_New();
    PyObject *iterator = PyObject_GetIter(enumeration);
    PyObject *member = NULL;
    while (members != NULL && iterator != NULL &&
           (member = PyIter_Next(iterator)) != NULL) {
        int failed = PyDict_SetItem(members, member, member) < 0;
        Py_DECREF(member);
        if (failed) {
            break;
        }
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) {
        Py_CLEAR(members);
    }
    return members;
}

int
ad_device_type_init(ad_state *state, PyObject *module)
{
    state->device_type = PyType_FromModuleAndSpec(module, &device_spec, NULL);
    if (state->device_type == NULL ||
        PyModule_AddObjectRef(module, "Device", state->device_type) < 0) {
        return -1;
    }
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
