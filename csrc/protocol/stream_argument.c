/* stream= arguments, which are an int with DLPack's meaning for the device or
 * a known stream or queue object. */
#include "protocol/protocol.h"

#include <string.h>

#include "abi/arrow_c.h"
#include "device/backend.h"

/* --- numbers ------------------------------------------------------------- */

/* An int or an int-like object, such as NumPy's integers, but no bool and no
 * array: arrays of one element have an __index__ as well, and some a queue. */
static bool
is_number(PyObject *stream)
{
    if (PyLong_Check(stream)) {
        return !PyBool_Check(stream);
    }
    const PySequenceMethods *sequence = Py_TYPE(stream)->tp_as_sequence;
    const PyMappingMethods *mapping = Py_TYPE(stream)->tp_as_mapping;
    /* Before NumPy 2.3 its bools have an __index__, too. */
    return strncmp(Py_TYPE(stream)->tp_name, "numpy.bool", 10) != 0 &&
           PyIndex_Check(stream) &&
           (sequence == NULL || sequence->sq_length == NULL) &&
           (mapping == NULL || mapping->mp_length == NULL);
}

static int
check_number(long long number, int32_t device_type)
{
    uint32_t traits = ad_device_traits(device_type);
    if (number < -1) {
        PyErr_Format(PyExc_ValueError,
                     "stream must be -1 (no synchronization) or a stream "
                     "number, not %lld",
                     number);
        return -1;
    }
    if ((traits & AD_CUDA_STREAMS) && number == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "stream 0 is ambiguous on CUDA; pass 1 for the "
                        "legacy default stream or 2 for the per-thread "
                        "default stream");
        return -1;
    }
    if ((traits & AD_ROCM_STREAMS) && (number == 1 || number == 2)) {
        PyErr_Format(PyExc_ValueError,
                     "stream %lld has no meaning on ROCm; pass 0 for the "
                     "default stream",
                     number);
        return -1;
    }
    if ((traits & AD_NO_NUMBERS) && number != -1) {
        PyErr_Format(PyExc_TypeError,
                     "stream must be a queue object here, or -1 (no "
                     "synchronization), not the number %lld",
                     number);
        return -1;
    }
    if ((traits & AD_QUEUES) && number == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "stream 0 is no queue, and there is no default one; "
                        "pass a queue object, or -1 for no synchronization");
        return -1;
    }
    return 0;
}

/* 1 read, 0 no number, -1 with an exception. */
static int
read_number(PyObject *value, ad_stream_argument *out)
{
    if (!is_number(value)) {
        return 0;
    }
    int overflow;
    PyObject *index =
        PyLong_CheckExact(value) ? Py_NewRef(value) : PyNumber_Index(value);
    long long number =
        index != NULL ? PyLong_AsLongLongAndOverflow(index, &overflow) : 0;
    Py_XDECREF(index);
    if (index == NULL || (number == -1 && PyErr_Occurred())) {
        return -1;
    }
    *out = (ad_stream_argument){
        .kind =
            number == -1 && overflow == 0 ? AD_STREAM_OFF : AD_STREAM_NUMBER,
        .is_too_large = overflow != 0,
        .stream.handle = (uintptr_t)number,
        .value = value,
    };
    return 1;
}

static int
fit_number(const ad_stream_argument *argument, int32_t device_type)
{
    if (argument->is_too_large) {
        PyErr_Format(PyExc_ValueError,
                     "stream must be -1 (no synchronization) or a stream "
                     "number of less than 2**63, not %S",
                     argument->value);
        return -1;
    }
    if (check_number((long long)(intptr_t)argument->stream.handle,
                     device_type) < 0) {
        return -1;
    }
    if (device_type == 0 && argument->kind != AD_STREAM_OFF) {
        PyErr_SetString(PyExc_ValueError,
                        "a stream number says nothing about its device; say "
                        "which with device=, as in device=\"cuda:0\", or pass "
                        "a stream object");
        return -1;
    }
    return 0;
}

/* --- objects ------------------------------------------------------------- */

/* Steals `value`, an int (or an object with __index__) that is a handle. */
static int
take_handle(PyObject *value, int32_t device_type, ad_stream_argument *out)
{
    if (!PyIndex_Check(value)) {
        PyErr_Format(PyExc_TypeError,
                     "the handle of a stream must be an int, not %.200s",
                     Py_TYPE(value)->tp_name);
        Py_DECREF(value);
        return -1;
    }
    PyObject *number = PyNumber_Index(value);
    Py_DECREF(value);
    if (number == NULL) {
        return -1;
    }
    unsigned long long handle = PyLong_AsUnsignedLongLong(number);
    if (handle == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "the handle of a stream must be from 0 to 2**64 - 1, "
                     "not %S",
                     number);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    out->stream.handle = (uintptr_t)handle;
    out->device_type = device_type;
    return 1;
}

/* A new reference to an attribute, or to the result of a method without
 * arguments: 1 found, 0 absent, -1 with an exception. */
static int
get_member(ad_state *state, PyObject *object, int name, bool is_method,
           PyObject **out)
{
    int found = ad_py_lookup_attr(object, state->strings[name], out);
    if (found > 0 && is_method) {
        Py_SETREF(*out, PyObject_CallNoArgs(*out));
        found = *out != NULL ? 1 : -1;
    }
    return found;
}

/* The next two read one kind of object into *out, except for `object`: 1 read,
 * 0 another kind, -1 with an exception. */
static int
read_handle(ad_state *state, PyObject *object, int name, bool is_method,
            int32_t device_type, ad_stream_argument *out)
{
    PyObject *value;
    int found = get_member(state, object, name, is_method, &value);
    return found > 0 ? take_handle(value, device_type, out) : found;
}

/* The handle is the second of a pair. With a device type of 0, the first is
 * the type. */
static int
read_pair(ad_state *state, PyObject *stream, int name, bool is_method,
          const char *what, int32_t device_type, ad_stream_argument *out)
{
    PyObject *value;
    int found = get_member(state, stream, name, is_method, &value);
    if (found <= 0) {
        return found;
    }
    found = -1;
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2) {
        PyErr_Format(PyExc_TypeError, "%U of %.200s must give %s, not %R",
                     state->strings[name], Py_TYPE(stream)->tp_name, what,
                     value);
        goto done;
    }
    if (device_type == 0) {
        device_type = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(value, 0));
        if (device_type == -1 && PyErr_Occurred()) {
            goto done;
        }
    }
    found =
        take_handle(Py_NewRef(PyTuple_GET_ITEM(value, 1)), device_type, out);
done:
    Py_DECREF(value);
    return found;
}

/* Whether the class is of this module or one of its submodules. */
static bool
is_from(PyTypeObject *type, const char *module)
{
    PyObject *value = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *name = value != NULL && PyUnicode_Check(value)
                           ? PyUnicode_AsUTF8(value)
                           : NULL;
    size_t n = strlen(module);
    bool result = name != NULL && strncmp(name, module, n) == 0 &&
                  (name[n] == '\0' || name[n] == '.');
    PyErr_Clear();
    Py_XDECREF(value);
    return result;
}

/* The class is recognized by its name, so that no other library is
 * imported. */
bool
ad_is_subclass(PyTypeObject *type, const char *module, const char *name)
{
    PyObject *bases = ad_py_type_mro(type);
    bool found = false;
    for (Py_ssize_t i = 0;
         !found && bases != NULL && i < PyTuple_GET_SIZE(bases); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(bases, i);
        const char *dot = strrchr(base->tp_name, '.');
        const char *last = dot != NULL ? dot + 1 : base->tp_name;
        found =
            (name == NULL || strcmp(last, name) == 0) && is_from(base, module);
    }
    Py_XDECREF(bases);
    return found;
}

/* A dpctl.SyclQueue. Its address is that of the DPCTLSyclQueueRef. */
static int
read_sycl_queue(ad_state *state, PyObject *queue, ad_stream_argument *out)
{
    /* Contexts, devices and events have an addressof_ref() too. */
    if (!PyObject_HasAttrString(queue, "is_in_order")) {
        return 0;
    }
    if (!ad_backend_is_there(ARROW_DEVICE_ONEAPI)) {
        /* A queue exists, so the library is loaded now, even if an earlier
         * attempt did not find it. */
        ad_backend_retry(ARROW_DEVICE_ONEAPI);
    }
    int found = read_handle(state, queue, AD_STR_addressof_ref, true,
                            ARROW_DEVICE_ONEAPI, out);
    out->object = queue;
    return found;
}

static int
read_sycl(ad_state *state, PyObject *stream, ad_stream_argument *out)
{
    PyObject *queue = NULL;
    if (is_from(Py_TYPE(stream), "dpctl")) {
        int found = read_sycl_queue(state, stream, out);
        if (found != 0) {
            return found;
        }
    }
    int found = ad_py_lookup_attr(stream, AD_STR(state, sycl_queue), &queue);
    if (found <= 0) {
        return found;
    }
    if (PyLong_Check(queue)) { /* torch.xpu.Stream */
        return take_handle(queue, ARROW_DEVICE_ONEAPI, out);
    }
    if (Py_REFCNT(queue) == 1) {
        PyErr_Format(PyExc_TypeError,
                     "sycl_queue of %.200s is made anew at each look-up, so "
                     "nobody would keep it; pass the queue itself as stream",
                     Py_TYPE(stream)->tp_name);
        Py_DECREF(queue);
        return -1;
    }
    found = read_sycl_queue(state, queue, out);
    if (found == 0) {
        PyErr_Format(PyExc_TypeError,
                     "sycl_queue of %.200s must be a dpctl.SyclQueue, not "
                     "%.200s",
                     Py_TYPE(stream)->tp_name, Py_TYPE(queue)->tp_name);
        found = -1;
    }
    Py_DECREF(queue); /* its holder keeps a reference */
    return found;
}

/* Reads the object without a device: a CUDA-like stream counts as CUDA. */
static int
read_object(ad_state *state, PyObject *stream, ad_stream_argument *out)
{
    int found;
    *out = (ad_stream_argument){
        .kind = AD_STREAM_OBJECT, .value = stream, .object = stream};
    if (PyType_Check(stream) || PyBool_Check(stream)) {
        goto unknown; /* the class itself, not one of its instances */
    }
    found = read_pair(state, stream, AD_STR_cuda_stream, true,
                      "(version, handle)", ARROW_DEVICE_CUDA, out);
    if (found == 0) {
        bool is_cupy = is_from(Py_TYPE(stream), "cupy");
        found = read_handle(state, stream,
                            is_cupy ? AD_STR_ptr : AD_STR_cuda_stream_handle,
                            false, ARROW_DEVICE_CUDA, out);
    }
    if (found == 0) {
        found = read_sycl(state, stream, out);
    }
    /* All objects of pyopencl have an int_ptr. */
    if (found == 0 &&
        ad_is_subclass(Py_TYPE(stream), "pyopencl", "CommandQueue")) {
        found = read_handle(state, stream, AD_STR_int_ptr, false,
                            ARROW_DEVICE_OPENCL, out);
    }
    if (found == 0) { /* the queues of arrowdev.testing, among others */
        found = read_pair(state, stream, AD_STR_arrowdev_queue, false,
                          "(device type, handle)", 0, out);
    }
    if (found != 0) {
        return found > 0 ? 0 : -1;
    }
unknown:
    PyErr_Format(PyExc_TypeError,
                 "stream must be an int, an object with __cuda_stream__, "
                 ".cuda_stream or .sycl_queue, or a stream or queue of torch, "
                 "CuPy, numba, dpctl or pyopencl, not %.200s",
                 Py_TYPE(stream)->tp_name);
    return -1;
}

/* The device type of CUDA's interfaces if they do not state it: ROCM if HIP is
 * available and CUDA is not, as with torch's builds for ROCm. */
static int32_t
cuda_means(void)
{
    return !ad_backend_is_there(ARROW_DEVICE_CUDA) &&
                   ad_backend_is_there(ARROW_DEVICE_ROCM)
               ? ARROW_DEVICE_ROCM
               : ARROW_DEVICE_CUDA;
}

/* Adapts the stream to the device `expected`; ExchangeError if it is of
 * another device type. */
static int
fit_object(ad_state *state, ad_device expected, ad_stream_argument *out)
{
    bool is_cuda = ad_device_traits(out->device_type) & AD_CUDA_STREAMS;
    uint32_t traits = ad_device_traits(expected.type);
    /* torch and CuPy use CUDA's names for HIP streams. */
    if (is_cuda && (expected.type == 0 || (traits & AD_ROCM_STREAMS))) {
        out->device_type =
            expected.type == 0 ? cuda_means() : ARROW_DEVICE_ROCM;
        is_cuda = ad_device_traits(out->device_type) & AD_CUDA_STREAMS;
    }
    if (is_cuda && out->stream.handle == 0) {
        out->stream = ad_stream_legacy((ad_device){out->device_type, 0});
    }
    bool is_queue = ad_device_traits(out->device_type) & AD_QUEUES;
    if (is_queue && out->stream.handle == 0) {
        PyErr_Format(PyExc_ValueError, "%.200s has no queue any more",
                     Py_TYPE(out->value)->tp_name);
        return -1;
    }
    /* Host memory is ready on every stream. */
    if (expected.type == 0 || expected.type == ARROW_DEVICE_CPU ||
        ad_streams_are_alike(expected.type, out->device_type)) {
        return 0;
    }
    char name[AD_DEVICE_NAME_SIZE];
    const char *found = ad_device_type_name(out->device_type);
    ad_raise_exchange(
        state, "stream", "pass a stream or queue of the device of the data",
        "the memory is on %s, but %.200s is a stream of %s",
        ad_device_format(expected, name), Py_TYPE(out->value)->tp_name,
        found != NULL ? found : "an unknown device");
    return -1;
}

/* PyImport_GetModule() takes 400 instructions more where a module is absent. */
static bool
may_have_cupy(ad_state *state)
{
    PyObject *modules = PyImport_GetModuleDict();
    return !PyDict_CheckExact(modules) ||
           PyDict_Contains(modules, AD_STR(state, cupy)) != 0;
}

/* New reference to cupy.cuda.get_current_stream(id), or NULL, perhaps with an
 * exception. Older versions do not take the id. */
static PyObject *
ask_cupy(ad_state *state, ad_device device)
{
    PyObject *cupy = PyImport_GetModule(AD_STR(state, cupy));
    PyObject *cuda =
        cupy != NULL ? PyObject_GetAttr(cupy, AD_STR(state, cuda)) : NULL;
    PyObject *id = cuda != NULL ? PyLong_FromLongLong(device.id) : NULL;
    PyObject *stream = id != NULL
                           ? PyObject_CallMethodOneArg(
                                 cuda, AD_STR(state, get_current_stream), id)
                           : NULL;
    Py_XDECREF(id);
    Py_XDECREF(cuda);
    Py_XDECREF(cupy);
    return stream;
}

int
ad_cupy_stream(ad_state *state, ad_device device, PyObject **object,
               ad_stream_argument *out)
{
    if (device.id < 0 || !may_have_cupy(state)) {
        return 0;
    }
    PyObject *stream = ask_cupy(state, device);
    if (stream != NULL &&
        ad_parse_stream_of(state, stream, device, out) == 0) {
        *object = stream;
        return 1;
    }
    Py_XDECREF(stream);
    if (PyErr_Occurred() && ad_exception_is_final(state)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* --- shared -------------------------------------------------------------- */

int
ad_parse_stream(ad_state *state, PyObject *value, ad_stream_argument *out)
{
    if (ad_is_none(value)) {
        *out = (ad_stream_argument){.kind = AD_STREAM_ABSENT};
        return 0;
    }
    int found = read_number(value, out);
    if (found == 0) {
        return read_object(state, value, out);
    }
    return found < 0 ? -1 : 0;
}

static int
fit(ad_state *state, ad_device device, ad_stream_argument *argument)
{
    return argument->kind == AD_STREAM_OBJECT
               ? fit_object(state, device, argument)
               : fit_number(argument, device.type);
}

int
ad_parse_stream_of(ad_state *state, PyObject *value, ad_device device,
                   ad_stream_argument *out)
{
    return ad_parse_stream(state, value, out) < 0 ? -1
                                                  : fit(state, device, out);
}

int
ad_stream_argument_ref(const ad_stream_argument *argument, ad_device device,
                       ad_stream_ref *out)
{
    ad_owner *keep =
        argument->object != NULL ? ad_py_owner_new(argument->object) : NULL;
    *out = ad_stream_named((ad_context){device, NULL}, argument->stream, keep);
    return argument->object == NULL || keep != NULL ? 0 : -1;
}

/* A number that CuPy passes is that of its current stream, which ends with its
 * object. Other numbers, and CuPy's views of others' streams, keep nothing. */
static int
keep_cupy_stream(ad_state *state, ad_device device, ad_stream_ref *out)
{
    ad_stream_argument current;
    PyObject *object;
    device = ad_device_of_runtime(device);
    if (out->kind != AD_REF_GIVEN || !(ad_device_traits(device.type) &
                                       (AD_CUDA_STREAMS | AD_ROCM_STREAMS))) {
        return 0;
    }
    int found = ad_cupy_stream(state, device, &object, &current);
    if (found <= 0) {
        return found;
    }
    if (current.stream.handle == out->stream.handle &&
        ad_is_subclass(Py_TYPE(object), "cupy", "Stream")) {
        out->keep = ad_py_owner_new(object);
        out->kind = AD_REF_OBJECT;
        found = out->keep != NULL ? 0 : -1;
    }
    Py_DECREF(object);
    return found < 0 ? -1 : 0;
}

/* ad_choose_stream for an argument that may be changed. */
static int
choose(ad_state *state, ad_stream_argument *argument, ad_device device,
       bool *no_sync, ad_stream_ref *out)
{
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
    if (no_sync != NULL) {
        *no_sync = false;
    }
    if (argument->kind == AD_STREAM_ABSENT) {
        return 0;
    }
    if (fit(state, device, argument) < 0) {
        return -1;
    }
    if (argument->kind != AD_STREAM_OFF) {
        return ad_stream_argument_ref(argument, device, out) < 0
                   ? -1
                   : keep_cupy_stream(state, device, out);
    }
    if (no_sync == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "stream=-1 names no stream to work on; leave stream "
                        "out for arrowdev's own");
        return -1;
    }
    *no_sync = true;
    return 0;
}

int
ad_choose_stream(ad_state *state, const ad_stream_argument *argument,
                 ad_device device, bool *no_sync, ad_stream_ref *out)
{
    ad_stream_argument fitted = {.kind = AD_STREAM_ABSENT};
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
    if (argument != NULL) {
        fitted = *argument;
    }
    /* The queue of a stream object may have been replaced and freed since. */
    return fitted.object != fitted.value && fitted.object != NULL &&
                   read_object(state, fitted.value, &fitted) < 0
               ? -1
               : choose(state, &fitted, device, no_sync, out);
}

int
ad_read_stream(ad_state *state, PyObject *value, ad_device device,
               bool *no_sync, ad_stream_ref *out)
{
    ad_stream_argument argument;
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
    return ad_parse_stream(state, value, &argument) < 0
               ? -1
               : choose(state, &argument, device, no_sync, out);
}

bool
ad_stream_is_no_sync(PyObject *value)
{
    ad_stream_argument argument;
    int found = read_number(value, &argument);
    if (found < 0) {
        PyErr_Clear(); /* raised again when the argument is parsed */
    }
    return found > 0 && argument.kind == AD_STREAM_OFF;
}

const ad_stream_argument *
ad_request_stream(const ad_request *request, ad_device device)
{
    const ad_stream_argument *stream = &request->stream;
    if (stream->kind == AD_STREAM_ABSENT) {
        return NULL;
    }
    if (!request->has_device || stream->kind == AD_STREAM_OFF) {
        return stream;
    }
    ad_device target = request->device;
    bool stays = ad_streams_are_alike(target.type, device.type) &&
                 (target.id == device.id || device.id < 0);
    return stays || ad_device_equal(target, device) ? stream : NULL;
}

const ad_stream_argument *
ad_request_copy_stream(const ad_request *request)
{
    bool is_named = request->stream.kind == AD_STREAM_NUMBER ||
                    request->stream.kind == AD_STREAM_OBJECT;
    return is_named ? &request->stream : NULL;
}
