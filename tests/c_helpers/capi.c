/* The functions of arrowdev.h for tests/capi: structs and options are
 * addresses, 0 for NULL. The last argument of most functions says that an
 * exception is set before the call. */
#include "arrowdev.h"

#include <pthread.h>

#define AT(type, address) ((type *)(uintptr_t)(address))

typedef unsigned long long address;

static void
begin(int has_exception)
{
    if (has_exception) {
        PyErr_SetString(PyExc_LookupError, "set before the call");
    }
}

/* A call that returns 0 or -1. A result that contradicts the exception is an
 * error of its own. */
static PyObject *
finish(int result)
{
    if (result != 0 && result != -1) {
        return PyErr_Format(PyExc_AssertionError, "returned %d", result);
    }
    if ((result == 0) == (PyErr_Occurred() != NULL)) {
        PyErr_Clear();
        return PyErr_Format(PyExc_AssertionError,
                            "returned %d, which contradicts the exception",
                            result);
    }
    return result == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
export_array(PyObject *module, PyObject *args)
{
    PyObject *obj;
    address options, schema, array;
    int has_exception = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OKKK|i", &obj, &options, &schema, &array,
                          &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    return finish(ArrowDev_ExportDeviceArray(
        obj, AT(ArrowDevOptions, options), AT(struct ArrowSchema, schema),
        AT(struct ArrowDeviceArray, array)));
}

static PyObject *
import_array(PyObject *module, PyObject *args)
{
    address schema, array;
    int has_exception = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK|i", &schema, &array, &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    return ArrowDev_ImportDeviceArray(AT(struct ArrowSchema, schema),
                                      AT(struct ArrowDeviceArray, array));
}

static PyObject *
export_stream(PyObject *module, PyObject *args)
{
    PyObject *obj;
    address options, stream;
    int has_exception = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OKK|i", &obj, &options, &stream,
                          &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    return finish(ArrowDev_ExportDeviceStream(
        obj, AT(ArrowDevOptions, options),
        AT(struct ArrowDeviceArrayStream, stream)));
}

static PyObject *
import_stream(PyObject *module, PyObject *args)
{
    address stream;
    int has_exception = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "K|i", &stream, &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    return ArrowDev_ImportDeviceStream(
        AT(struct ArrowDeviceArrayStream, stream));
}

/* The address of the tensor. */
static PyObject *
export_dlpack(PyObject *module, PyObject *args)
{
    PyObject *obj;
    address options;
    int has_exception = 0;
    DLManagedTensorVersioned *tensor = AT(DLManagedTensorVersioned, 1);
    (void)module;
    if (!PyArg_ParseTuple(args, "OK|i", &obj, &options, &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    PyObject *result = finish(
        ArrowDev_ExportDLPack(obj, AT(ArrowDevOptions, options), &tensor));
    if (result == NULL) {
        return tensor == NULL
                   ? NULL
                   : PyErr_Format(PyExc_AssertionError, "*out is not NULL");
    }
    Py_DECREF(result);
    return PyLong_FromVoidPtr(tensor);
}

static PyObject *
import_dlpack(PyObject *module, PyObject *args)
{
    address tensor;
    int has_exception = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "K|i", &tensor, &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    return ArrowDev_ImportDLPack(AT(DLManagedTensorVersioned, tensor));
}

static PyObject *
into(PyObject *module, PyObject *args)
{
    PyObject *obj, *cls;
    address options;
    int has_exception = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOK|i", &obj, &cls, &options,
                          &has_exception)) {
        return NULL;
    }
    begin(has_exception);
    return ArrowDev_Into(obj, (PyTypeObject *)cls,
                         AT(ArrowDevOptions, options));
}

/* The next three export the object and import the structs again. */
static PyObject *
pass_array(PyObject *module, PyObject *obj)
{
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    (void)module;
    return ArrowDev_ExportDeviceArray(obj, NULL, &schema, &array) == 0
               ? ArrowDev_ImportDeviceArray(&schema, &array)
               : NULL;
}

static PyObject *
pass_stream(PyObject *module, PyObject *obj)
{
    struct ArrowDeviceArrayStream stream;
    (void)module;
    return ArrowDev_ExportDeviceStream(obj, NULL, &stream) == 0
               ? ArrowDev_ImportDeviceStream(&stream)
               : NULL;
}

static PyObject *
pass_tensor(PyObject *module, PyObject *obj)
{
    DLManagedTensorVersioned *tensor;
    (void)module;
    return ArrowDev_ExportDLPack(obj, NULL, &tensor) == 0
               ? ArrowDev_ImportDLPack(tensor)
               : NULL;
}

/* Arguments of NULL for objects. */
static PyObject *
null_objects(PyObject *module, PyObject *which)
{
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    struct ArrowDeviceArrayStream stream;
    DLManagedTensorVersioned *tensor;
    (void)module;
    switch (PyLong_AsLong(which)) {
        case 0:
            return finish(
                ArrowDev_ExportDeviceArray(NULL, NULL, &schema, &array));
        case 1:
            return finish(ArrowDev_ExportDeviceStream(NULL, NULL, &stream));
        case 2:
            return finish(ArrowDev_ExportDLPack(NULL, NULL, &tensor));
        case 3:
            return ArrowDev_Into(NULL, &PyLong_Type, NULL);
        case 4:
            return ArrowDev_Into(which, NULL, NULL);
        default:
            return finish(ArrowDev_ExportDLPack(which, NULL, NULL));
    }
}

typedef struct wait {
    const struct ArrowDeviceArray *array;
    void *stream;
    int code;
    char text[1024];
} wait;

static void *
run_wait(void *arg)
{
    wait *self = (wait *)arg;
    self->code = ArrowDev_StreamWait(self->array, self->stream);
    (void)snprintf(self->text, sizeof(self->text), "%s", ArrowDev_LastError());
    return NULL;
}

/* (errno, text), on a thread that Python does not know or on this one, without
 * the GIL. */
static PyObject *
stream_wait(PyObject *module, PyObject *args)
{
    address array, stream;
    int on_thread;
    wait wait;
    pthread_t thread;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKp", &array, &stream, &on_thread)) {
        return NULL;
    }
    wait.array = AT(const struct ArrowDeviceArray, array);
    wait.stream = AT(void, stream);
    Py_BEGIN_ALLOW_THREADS
    if (on_thread && pthread_create(&thread, NULL, run_wait, &wait) == 0) {
        (void)pthread_join(thread, NULL);
    } else {
        (void)run_wait(&wait);
    }
    Py_END_ALLOW_THREADS
    return Py_BuildValue("is", wait.code, wait.text);
}

static PyObject *
import_again(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return finish(ArrowDev_Import());
}

static PyMethodDef methods[] = {
    {"export_array", export_array, METH_VARARGS, NULL},
    {"import_array", import_array, METH_VARARGS, NULL},
    {"export_stream", export_stream, METH_VARARGS, NULL},
    {"import_stream", import_stream, METH_VARARGS, NULL},
    {"export_dlpack", export_dlpack, METH_VARARGS, NULL},
    {"import_dlpack", import_dlpack, METH_VARARGS, NULL},
    {"into", into, METH_VARARGS, NULL},
    {"pass_array", pass_array, METH_O, NULL},
    {"pass_stream", pass_stream, METH_O, NULL},
    {"pass_tensor", pass_tensor, METH_O, NULL},
    {"null_objects", null_objects, METH_O, NULL},
    {"stream_wait", stream_wait, METH_VARARGS, NULL},
    {"import_again", import_again, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    return PyModule_AddIntConstant(module, "version", ARROWDEV_API_VERSION) < 0
               ? -1
               : ArrowDev_Import();
}

/* ISO C has no conversion of a function to void *. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, NULL},
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "capi",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_capi(void)
{
    slots[0].value = (void *)(uintptr_t)execute;
    return PyModuleDef_Init(&definition);
}
