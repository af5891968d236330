/* What no implementation can do without: the calls of CPython, of the allocator
 * and of the peer that an exchange needs, and nothing else. Nothing is checked
 * and nothing is described, so the results are only to be dropped, except those
 * of Tensor. One thread, as in floor.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "abi/arrow_c.h"
#include "abi/dlpack.h"

/* --- a pair of capsules --------------------------------------------------- */

/* One allocation per export. The destructor runs with the GIL. */
typedef struct block {
    struct ArrowDeviceArray array;
    PyObject *object;               /* or NULL */
    ad_dl_managed_versioned *taken; /* or NULL */
} block;

static PyObject *schema_capsule;

static void
drop_block(PyObject *capsule)
{
    block *self = PyCapsule_GetPointer(capsule, "arrow_device_array");
    Py_XDECREF(self->object);
    if (self->taken != NULL) {
        self->taken->deleter(self->taken);
    }
    free(self);
}

/* Takes over both. */
static PyObject *
make_pair(PyObject *object, ad_dl_managed_versioned *taken)
{
    block *self = malloc(sizeof(*self));
    PyObject *pair = PyTuple_New(2);
    if (self == NULL || pair == NULL) {
        return PyErr_NoMemory();
    }
    self->object = object;
    self->taken = taken;
    PyTuple_SET_ITEM(pair, 0, Py_NewRef(schema_capsule));
    PyTuple_SET_ITEM(pair, 1,
                     PyCapsule_New(self, "arrow_device_array", drop_block));
    return pair;
}

/* --- Array: array(x), and its one method ---------------------------------- */

typedef struct array_object {
    PyObject_HEAD
    PyObject *object;
    ad_dl_managed_versioned *taken;
} array_object;

static PyObject *spare; /* the memory of a freed Array */
static PyTypeObject array_type;

static void
array_dealloc(PyObject *self)
{
    Py_XDECREF(((array_object *)self)->object);
    if (spare == NULL) {
        spare = self;
    } else {
        PyObject_Free(self);
    }
}

static PyObject *
new_array(PyObject *object, ad_dl_managed_versioned *taken)
{
    array_object *self;
    if (spare != NULL) {
        self = (array_object *)PyObject_Init(spare, &array_type);
        spare = NULL;
    } else {
        self = PyObject_New(array_object, &array_type);
    }
    self->object = object;
    self->taken = taken;
    return (PyObject *)self;
}

static PyObject *
array_export(PyObject *self, PyObject *const *args, Py_ssize_t n,
             PyObject *names)
{
    array_object *array = (array_object *)self;
    ad_dl_managed_versioned *taken = array->taken;
    array->taken = NULL;
    return make_pair(Py_XNewRef(array->object), taken);
}

#define METHOD(function)                                                      \
    (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef array_methods[] = {
    {"__arrow_c_device_array__", METHOD(array_export), NULL},
    {NULL},
};

static PyTypeObject array_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "bare.Array",
    .tp_basicsize = sizeof(array_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = array_dealloc,
    .tp_methods = array_methods,
};

static PyObject *
array(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return new_array(Py_NewRef(args[0]), NULL);
}

/* --- the C exchange API of another class ---------------------------------- */

static const ad_dl_exchange_api *table;
static PyObject *flags[2]; /* requires_grad and is_neg of the class */

static PyObject *
use(PyObject *module, PyObject *type)
{
    PyObject *capsule =
        PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    table = capsule != NULL
                ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
                : NULL;
    if (table == NULL) {
        return NULL;
    }
    flags[0] = PyObject_GetAttrString(type, "requires_grad");
    flags[1] = PyObject_GetAttrString(type, "is_neg");
    PyErr_Clear(); /* only torch's class has them */
    Py_RETURN_NONE;
}

static PyObject *
take(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    ad_dl_managed_versioned *managed;
    if (table->managed_tensor_from_py_object_no_sync(args[0], &managed) != 0) {
        return NULL;
    }
    return new_array(NULL, managed);
}

/* A tensor of floats may have flags. */
static PyObject *
take_checked(PyObject *module, PyObject *const *args, Py_ssize_t n,
             PyObject *names)
{
    PyObject *found = take(module, args, n, names);
    Py_DECREF(Py_TYPE(flags[0])->tp_descr_get(flags[0], args[0], NULL));
    Py_DECREF(PyObject_Vectorcall(flags[1], args, 1, NULL));
    return found;
}

/* --- a runtime ------------------------------------------------------------ */

/* As in devices.c. */
typedef struct runtime_call {
    int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t);
    uintptr_t arguments[4];
} runtime_call;

static const runtime_call *calls;
static Py_ssize_t n_calls;

/* use_calls(address, number): the runtime's calls of an exchange. */
static PyObject *
use_calls(PyObject *module, PyObject *args)
{
    return PyArg_ParseTuple(args, "nn", (Py_ssize_t *)&calls, &n_calls)
               ? Py_NewRef(Py_None)
               : NULL;
}

static int
make_calls(void)
{
    int code = 0;
    for (Py_ssize_t i = 0; i < n_calls; i++) {
        const uintptr_t *a = calls[i].arguments;
        code |= calls[i].function(a[0], a[1], a[2], a[3]);
    }
    return code;
}

/* take() of device memory: on which stream work is pending, an event there. */
static PyObject *
take_on_device(PyObject *module, PyObject *const *args, Py_ssize_t n,
               PyObject *names)
{
    void *stream;
    PyObject *found = take(module, args, n, names);
    if (table->current_work_stream(ARROW_DEVICE_CUDA, 0, &stream) != 0 ||
        make_calls() != 0) {
        return NULL;
    }
    return found;
}

/* --- Tensor: ten zeros ----------------------------------------------------- */

static int64_t zeros[10], shape[] = {10}, strides[] = {1};

static void
delete_tensor(ad_dl_managed_versioned *self)
{
    free(self);
}

static ad_dl_managed_versioned *
give(void)
{
    ad_dl_managed_versioned *self = malloc(sizeof(*self));
    *self = (ad_dl_managed_versioned){
        .version = {AD_DL_MAJOR, AD_DL_MINOR},
        .deleter = delete_tensor,
        .dl_tensor = {.data = zeros,
                      .device = {ARROW_DEVICE_CPU, 0},
                      .ndim = 1,
                      .dtype = {AD_DL_INT, 64, 1},
                      .shape = shape,
                      .strides = strides},
    };
    return self;
}

static void
drop_tensor(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        delete_tensor(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    }
}

static PyObject *
tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n,
              PyObject *names)
{
    return PyCapsule_New(give(), "dltensor_versioned", drop_tensor);
}

/* __dlpack__(stream=number) of device memory, which the stream waits for. */
static PyObject *
tensor_on_stream(PyObject *self, PyObject *const *args, Py_ssize_t n,
                 PyObject *names)
{
    int overflow;
    return PyLong_AsLongLongAndOverflow(args[0], &overflow) < 0 ||
                   make_calls() != 0
               ? NULL
               : tensor_dlpack(self, args, n, names);
}

static PyObject *
tensor_device(PyObject *self, PyObject *none)
{
    return Py_BuildValue("(ii)", ARROW_DEVICE_CPU, 0);
}

static PyMethodDef tensor_methods[] = {
    {"__dlpack__", METHOD(tensor_dlpack), NULL},
    {"on_stream", METHOD(tensor_on_stream), NULL},
    {"__dlpack_device__", tensor_device, METH_NOARGS, NULL},
    {NULL},
};

static PyTypeObject tensor_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "bare.Tensor",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = tensor_methods,
};

static PyObject *
into(PyObject *module, PyObject *none)
{
    void *object = NULL;
    (void)table->managed_tensor_to_py_object_no_sync(give(), &object);
    return object;
}

/* --- the module ------------------------------------------------------------ */

static PyMethodDef functions[] = {
    {"array", METHOD(array), NULL},
    {"use", use, METH_O, NULL},
    {"take", METHOD(take), NULL},
    {"take_checked", METHOD(take_checked), NULL},
    {"use_calls", use_calls, METH_VARARGS, NULL},
    {"take_on_device", METHOD(take_on_device), NULL},
    {"into", into, METH_NOARGS, NULL},
    {NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "bare",
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_bare(void)
{
    static struct ArrowSchema schema;
    PyObject *module = PyModule_Create(&definition);
    schema_capsule = PyCapsule_New(&schema, "arrow_schema", NULL);
    return module != NULL && schema_capsule != NULL &&
                   PyModule_AddType(module, &array_type) == 0 &&
                   PyModule_AddType(module, &tensor_type) == 0
               ? module
               : NULL;
}
