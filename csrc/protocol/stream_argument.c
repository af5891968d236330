/* stream= arguments: an int with DLPack's meaning for the device, or one of
 * the stream objects that are known. */
#include "protocol/protocol.h"

#include <string.h>

#include "abi/arrow_c.h"

static bool
is_cuda(int32_t device_type)
{
    return device_type == ARROW_DEVICE_CUDA ||
           device_type == ARROW_DEVICE_CUDA_HOST ||
           device_type == ARROW_DEVICE_CUDA_MANAGED;
}

static bool
is_rocm(int32_t device_type)
{
    return device_type == ARROW_DEVICE_ROCM ||
           device_type == ARROW_DEVICE_ROCM_HOST;
}

static int
check_number(long long number, int32_t device_type)
{
    if (number < -1) {
        PyErr_Format(PyExc_ValueError,
                     "stream must be -1 (no synchronization) or a stream "
                     "number, not %lld",
                     number);
        return -1;
    }
    if (is_cuda(device_type) && number == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "stream 0 is ambiguous on CUDA; pass 1 for the "
                        "legacy default stream or 2 for the per-thread "
                        "default stream");
        return -1;
    }
    if (is_rocm(device_type) && (number == 1 || number == 2)) {
        PyErr_Format(PyExc_ValueError,
                     "stream %lld has no meaning on ROCm; pass 0 for the "
                     "default stream",
                     number);
        return -1;
    }
    return 0;
}

/* An integer attribute of a stream object, 0 meaning the legacy default
 * stream. 1 found, 0 no such attribute, -1 error. */
static int
read_handle(PyObject *value, int32_t device_type, intptr_t *out)
{
    long long handle = PyLong_AsLongLong(value);
    if (handle == -1 && PyErr_Occurred()) {
        return -1;
    }
    *out = handle == 0 && is_cuda(device_type) ? 1 : (intptr_t)handle;
    return 1;
}

/* __cuda_stream__() gives (version, handle). */
static int
read_cuda_stream_protocol(ad_state *state, PyObject *stream,
                          int32_t device_type, intptr_t *out)
{
    PyObject *method = NULL;
    int found = ad_py_lookup_attr(stream, AD_STR(state, cuda_stream), &method);
    if (found <= 0) {
        return found;
    }
    PyObject *pair = PyObject_CallNoArgs(method);
    Py_DECREF(method);
    if (pair == NULL) {
        return -1;
    }
    int result = -1;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_TypeError,
                     "__cuda_stream__() of %.200s must return (version, "
                     "handle), not %R",
                     Py_TYPE(stream)->tp_name, pair);
    } else {
        result = read_handle(PyTuple_GET_ITEM(pair, 1), device_type, out);
    }
    Py_DECREF(pair);
    return result;
}

/* Is the class defined in this library (top-level module)? */
static bool
is_from(PyObject *object, const char *library)
{
    PyObject *module =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    const char *name = module != NULL && PyUnicode_Check(module)
                           ? PyUnicode_AsUTF8(module)
                           : NULL;
    size_t n = strlen(library);
    bool result = name != NULL && strncmp(name, library, n) == 0 &&
                  (name[n] == '\0' || name[n] == '.');
    PyErr_Clear();
    Py_XDECREF(module);
    return result;
}

/* .cuda_stream of whatever has one, or .ptr of CuPy's streams. */
static int
read_attribute(PyObject *stream, int32_t device_type, intptr_t *out)
{
    PyObject *name =
        PyUnicode_FromString(is_from(stream, "cupy") ? "ptr" : "cuda_stream");
    PyObject *value = NULL;
    if (name == NULL) {
        return -1;
    }
    int found = ad_py_lookup_attr(stream, name, &value);
    Py_DECREF(name);
    if (found <= 0) {
        return found;
    }
    int result = read_handle(value, device_type, out);
    Py_DECREF(value);
    return result;
}

int
ad_stream_number(ad_state *state, PyObject *stream, int32_t device_type,
                 intptr_t *out)
{
    if (PyLong_CheckExact(stream)) {
        long long number = PyLong_AsLongLong(stream);
        if ((number == -1 && PyErr_Occurred()) ||
            check_number(number, device_type) < 0) {
            return -1;
        }
        *out = (intptr_t)number;
        return 0;
    }
    int found = read_cuda_stream_protocol(state, stream, device_type, out);
    if (found == 0) {
        found = read_attribute(stream, device_type, out);
    }
    if (found == 0) {
        PyErr_Format(PyExc_TypeError,
                     "stream must be an int or a stream object with "
                     "__cuda_stream__ or .cuda_stream, not %.200s",
                     Py_TYPE(stream)->tp_name);
    }
    return found > 0 ? 0 : -1;
}

bool
ad_stream_is_off(PyObject *stream)
{
    if (!PyLong_Check(stream)) {
        return false;
    }
    int overflow;
    return PyLong_AsLongAndOverflow(stream, &overflow) == -1 && overflow == 0;
}

int
ad_stream_check(ad_state *state, PyObject *stream)
{
    static const char *const libraries[] = {"torch", "cupy",     "numba",
                                            "dpctl", "pyopencl", "dpnp"};
    if (PyLong_Check(stream) && !PyBool_Check(stream)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        if (is_from(stream, libraries[i])) {
            return 0;
        }
    }
    static const char *const names[] = {"__cuda_stream__", "cuda_stream",
                                        "sycl_queue"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (PyObject_HasAttrString(stream, names[i])) {
            return 0;
        }
    }
    PyErr_Format(PyExc_TypeError,
                 "stream must be an int, an object with __cuda_stream__, "
                 ".cuda_stream or .sycl_queue, or a stream or queue of torch, "
                 "CuPy, numba, dpctl or pyopencl, not %.200s",
                 Py_TYPE(stream)->tp_name);
    return -1;
}
