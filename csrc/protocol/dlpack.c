/* __dlpack__ and __dlpack_device__: of other libraries, and our own. */
#include "protocol/dlpack_tensor.h"

#include <limits.h>
#include <string.h>

#include "abi/arrow_c.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "order/device_owner.h"
#include "order/streams.h"

/* Reads a tuple of two ints; numbers out of range become the nearest limit,
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

/* --- import: order ------------------------------------------------------- */

/* The `stream` argument for the producer, and its consequences. */
typedef struct order {
    PyObject *passed; /* owned; NULL: nothing is passed */
    ad_stream_ref on; /* the stream of pending work; `keep` is owned */
    bool no_sync;     /* the caller passed stream=-1 */
    bool is_own;      /* `on` is an import stream, or the default one */
    ad_import_stream import;
} order;

/* `sync` is the tensor's, or NULL. The result is that of
 * ad_import_stream_give(). */
static bool
order_clear(order *self, ad_sync *sync)
{
    bool is_there = sync != NULL && sync->is_own &&
                    ad_stream_equal(&sync->on, &self->import.on);
    bool is_alive =
        ad_import_stream_give(&self->import, is_there ? sync : NULL);
    Py_CLEAR(self->passed);
    ad_stream_ref_clear(&self->on);
    return is_alive;
}

static bool
has_numbers(int32_t device_type)
{
    return ad_device_traits(device_type) & (AD_CUDA_STREAMS | AD_ROCM_STREAMS);
}

/* The producer takes a number or the queue's object. */
static int
pass_stream(order *self, int32_t device_type)
{
    PyObject *object = ad_py_owner_object(self->on.keep);
    self->passed = object != NULL && !has_numbers(device_type)
                       ? Py_NewRef(object)
                       : PyLong_FromSize_t(self->on.stream.handle);
    return self->passed != NULL ? 0 : -1;
}

/* An import stream; without a runtime the default stream. */
static ad_status
find_own_stream(ad_device device, order *out, ad_error *err)
{
    const struct ad_backend *backend;
    out->is_own = true;
    if (!ad_backend_is_there(device.type)) {
        (void)ad_default_stream(device, &out->on);
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_backend_open(device.type, &backend, err));
    AD_RETURN_IF_ERR(ad_import_stream_take(device, &out->import, err));
    out->on = out->import.on;
    return AD_OK;
}

static int
plan_wanted(ad_state *state, const ad_type_slot *slot,
            const ad_stream_argument *wanted, ad_device device, order *out)
{
    ad_error err;
    if (ad_choose_stream(state, wanted, device, &out->no_sync, &out->on) < 0) {
        return -1;
    }
    if (!out->no_sync) {
        return pass_stream(out, device.type);
    }
    if (!has_numbers(device.type)) {
        return 0;
    }
    if (slot->takes_no_sync) {
        /* Always explicit: torch takes an omitted stream for -1, and None for
         * the default stream. */
        out->passed = PyLong_FromLong(-1);
        return out->passed != NULL ? 0 : -1;
    }
    /* jax passes -1 to the driver as the handle of a stream. */
    return find_own_stream(device, out, &err) == AD_OK
               ? pass_stream(out, device.type)
               : ad_raise_status(state, err.status, &err);
}

/* Gives a producer without a queue arrowdev's own one to order its work on.
 * Without dpctl, and for torch, which takes numbers only, none is passed. */
static ad_import_result
plan_own_queue(ad_state *state, const ad_type_slot *slot, ad_device device,
               order *out)
{
    ad_error err;
    if (!(ad_device_traits(device.type) & AD_NO_NUMBERS) ||
        !ad_backend_is_there(device.type) || slot->has_torch_flags) {
        return AD_IMPORT_DONE;
    }
    if (find_own_stream(device, out, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    out->passed = ad_sycl_queue_new(out->on.stream);
    out->is_own = out->passed != NULL;
    if (!out->is_own) {
        out->on.kind = AD_REF_NONE;
    }
    return PyErr_Occurred() ? ad_import_exception(state) : AD_IMPORT_DONE;
}

/* The queue of an object that has one: the only possible order is a barrier on
 * it, since an absent stream means "no synchronization" to the producer. */
static ad_import_result
plan_queue(ad_state *state, PyObject *object, const ad_type_slot *slot,
           ad_device device, order *out)
{
    PyObject *queue;
    int found = ad_py_lookup_attr(object, AD_STR(state, sycl_queue), &queue);
    if (found == 0) {
        return plan_own_queue(state, slot, device, out);
    }
    if (found > 0) {
        found = ad_read_stream(state, queue, device, &out->no_sync, &out->on);
        Py_DECREF(queue);
    }
    return found < 0 ? ad_import_exception(state) : AD_IMPORT_DONE;
}

static ad_import_result
plan_order(ad_state *state, PyObject *object, const ad_type_slot *slot,
           const ad_request *request, ad_device device, order *out)
{
    uint32_t traits = ad_device_traits(device.type);
    const ad_stream_argument *wanted = ad_request_stream(request, device);
    ad_error err;
    int result;
    if (traits & AD_NO_STREAMS) {
        return AD_IMPORT_DONE;
    }
    if (ad_dlpack_require_stream(state, slot, request, device) !=
        AD_IMPORT_DONE) {
        return AD_IMPORT_FAILED;
    }
    if (wanted != NULL) {
        result = plan_wanted(state, slot, wanted, device, out);
    } else if (ad_stream_current(device, &out->on)) {
        ad_owner_ref(out->on.keep);
        result = pass_stream(out, device.type);
    } else if (has_numbers(device.type)) {
        if (find_own_stream(device, out, &err) != AD_OK) {
            return ad_import_error(state, &err);
        }
        result = pass_stream(out, device.type);
    } else if (traits & AD_QUEUES) {
        return plan_queue(state, object, slot, device, out);
    } else {
        /* DLPack defines no streams for the other types: their data count as
         * ready. */
        return AD_IMPORT_DONE;
    }
    return result < 0 ? AD_IMPORT_FAILED : AD_IMPORT_DONE;
}

/* Records in the tensor's sync the work that its consumers have to wait
 * for. */
static ad_status
attach_order(const order *order, ad_device said, ad_tensor *tensor,
             ad_error *err)
{
    ad_stream_ref on = order->on;
    int32_t type = tensor->memory.device.type;
    if ((ad_device_traits(type) & AD_NO_STREAMS) || order->no_sync) {
        return AD_OK;
    }
    /* The device of the struct decides, not __dlpack_device__(). If they
     * differ, the stream that was passed does not apply. */
    if (!ad_streams_are_alike(said.type, type)) {
        on = (ad_stream_ref){.kind = AD_REF_NONE};
    }
    if (ad_stream_is_given(&on) ||
        ad_default_stream(tensor->memory.device, &on)) {
        AD_RETURN_IF_ERR(ad_pending_on(tensor->memory.device, &on,
                                       &tensor->memory.sync, err));
        /* The producer may have added our stream to its capture. */
        return order->is_own
                   ? ad_sync_require_no_capture(
                         tensor->memory.sync, "an import without stream=", err)
                   : AD_OK;
    }
    if (ad_device_traits(type) & AD_NO_NUMBERS) {
        /* Without a queue the protocol guarantees nothing on this device. */
        return ad_fail_on(
            err, tensor->memory.device, "stream",
            "pass stream=queue, or synchronize and pass stream=-1",
            "work may be pending on the data, and __dlpack__ of an "
            "object without sycl_queue does not say on which queue");
    }
    return AD_OK;
}

static ad_import_result
apply_stream_order(ad_state *state, const order *order, ad_device said,
                   ad_tensor *tensor)
{
    ad_error err;
    if (attach_order(order, said, tensor, &err) == AD_OK) {
        return AD_IMPORT_DONE;
    }
    ad_tensor_clear(tensor);
    ad_raise(state, &err);
    return ad_import_exception(state);
}

/* CuPy's pool uses memory again in the order of the stream on which it was
 * allocated. Its users order their work on another current stream by
 * themselves, and arrowdev leaves that to them. Where CuPy names no stream,
 * each use is recorded. */
static ad_import_result
set_cupy_stream(ad_state *state, const ad_tensor *tensor)
{
    ad_stream_argument current;
    ad_context context;
    PyObject *object;
    ad_device device = ad_device_of_runtime(tensor->memory.device);
    const struct ad_backend *backend = ad_backend_in_use(device.type);
    if (backend == NULL || !has_numbers(device.type)) {
        return AD_IMPORT_DONE;
    }
    int found = ad_cupy_stream(state, device, &object, &current);
    if (found > 0) {
        Py_DECREF(object);
        if (backend->primary_context(device, &context, NULL) == AD_OK) {
            const ad_stream_ref producer =
                ad_stream_named(context, current.stream, NULL);
            ad_device_owner_set_producer(tensor->memory.owner, &producer);
        }
    }
    return found < 0 ? ad_import_exception(state) : AD_IMPORT_DONE;
}

/* --- import: the call ---------------------------------------------------- */

static ad_import_result
ask_device(ad_state *state, PyObject *object, ad_device *out)
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
    *out = (ad_device){(int32_t)pair[0], pair[1]};
    return AD_IMPORT_DONE;
}

/* New reference to a tuple of names. The two most frequent tuples are cached
 * in the state. */
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
    PyObject *args[5]; /* a slot for the callee, self, the values */
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

/* arrowdev copies after the pending work whenever it can, since producers copy
 * out of order (dpnp does not wait for its own queue; in torch the stream
 * waits only for the work before the copy). Without a runtime the producer
 * copies, unless work is known to be pending on a queue. */
static ad_copy
copy_to_ask_for(ad_copy wanted, ad_device said, const order *order)
{
    uint32_t traits = ad_device_traits(said.type);
    bool is_ours = !(traits & AD_NO_STREAMS) &&
                   (((traits & AD_QUEUES) && ad_stream_is_given(&order->on)) ||
                    ad_backend_is_there(said.type));
    return wanted == AD_COPY_ALWAYS && is_ours ? AD_COPY_IF_NEEDED : wanted;
}

/* TensorFlow (2.21) ends the process where the elements are no plain bytes:
 * its __dlpack__ has a fatal check. To NumPy they are objects, or nothing. */
static ad_import_result
check_tensorflow_dtype(ad_state *state, PyObject *object)
{
    PyObject *dtype = PyObject_GetAttr(object, AD_STR(state, dtype));
    if (dtype == NULL) {
        return ad_import_exception(state);
    }
    PyObject *as_numpy =
        PyObject_GetAttr(dtype, AD_STR(state, as_numpy_dtype));
    ad_import_result result = AD_IMPORT_FAILED;
    if (as_numpy != NULL && as_numpy != (PyObject *)&PyBaseObject_Type) {
        result = AD_IMPORT_DONE;
    } else if (as_numpy != NULL || !ad_exception_is_final(state)) {
        PyErr_Clear();
        ad_raise_exchange(state, "dtype",
                          "of strings, pass pyarrow.array(x.numpy())",
                          "%.200s has elements of %S, which are no plain "
                          "bytes in memory",
                          Py_TYPE(object)->tp_name, dtype);
    }
    Py_XDECREF(as_numpy);
    Py_DECREF(dtype);
    return result;
}

/* Calls __dlpack__ with all keywords, and again with fewer if the producer
 * does not know them. The caller checks `copy` afterwards. */
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
        PyErr_Clear(); /* the producer cannot copy, so arrowdev copies */
        capsule = call_dlpack(state, object, state->max_version, stream, NULL);
    }
    /* An unknown keyword is the class itself; pyarrow refuses data by a
     * subclass. */
    if (capsule != NULL || PyErr_Occurred() != PyExc_TypeError) {
        return capsule;
    }
    PyObject *first = ad_py_take_exception();
    capsule = call_dlpack(state, object, NULL, stream, NULL);
    if (capsule == NULL) {
        ad_raise_with_cause(ad_py_take_exception(), first);
    } else {
        Py_DECREF(first);
    }
    return capsule;
}

static void *
consume(ad_state *state, PyObject *object, PyObject *capsule,
        bool *is_versioned)
{
    *is_versioned = ad_capsule_has_name(capsule, AD_CAPSULE_DLPACK_VERSIONED);
    if (*is_versioned) {
        return ad_capsule_consume(state, capsule, AD_CAPSULE_DLPACK_VERSIONED,
                                  "__dlpack__");
    }
    ad_capsule_kind kind = AD_CAPSULE_DLPACK;
    char origin[AD_ORIGIN_SIZE] = "__dlpack__";
    if (!ad_capsule_has_name(capsule, kind)) {
        /* Only for the message, which names the expected kind. */
        const char *name = NULL;
        Py_BEGIN_CRITICAL_SECTION(capsule);
        if (PyCapsule_CheckExact(capsule)) {
            name = PyCapsule_GetName(capsule);
        }
        Py_END_CRITICAL_SECTION();
        if (name == NULL || strcmp(name, "used_dltensor") != 0) {
            kind = AD_CAPSULE_DLPACK_VERSIONED;
        }
        ad_origin("__dlpack__", object, origin);
    }
    return ad_capsule_consume(state, capsule, kind, origin);
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

/* NumPy's __dlpack__ divides by the size of an element, which ends the process
 * where that is 0 (dtype "V0"). */
static ad_import_result
check_numpy_itemsize(ad_state *state, PyObject *object)
{
    PyObject *itemsize = PyObject_GetAttrString(object, "itemsize");
    long n = itemsize != NULL ? PyLong_AsLong(itemsize) : -1;
    Py_XDECREF(itemsize);
    if (n < 0 && PyErr_Occurred()) {
        return ad_import_exception(state);
    }
    if (n == 0) {
        ad_raise_exchange(state, "dtype", NULL,
                          "%.200s has elements of 0 bytes",
                          Py_TYPE(object)->tp_name);
        return AD_IMPORT_FAILED;
    }
    return AD_IMPORT_DONE;
}

/* What the producer's __dlpack__ answers by a crash, or says less of than an
 * error of ours. */
static ad_import_result
check_before_call(ad_state *state, PyObject *object, const ad_type_slot *slot)
{
    return slot->has_torch_flags
               ? ad_dlpack_check_flags(state, object, slot, true)
           : slot->has_tensorflow_dtype ? check_tensorflow_dtype(state, object)
           : slot->has_numpy_itemsize   ? check_numpy_itemsize(state, object)
                                        : AD_IMPORT_DONE;
}

/* The tensors of an OrtValue over a NumPy array (onnxruntime 1.32) keep neither
 * of them. */
static ad_import_result
keep_object(ad_state *state, PyObject *object, ad_tensor *tensor)
{
    ad_owner *const owners[] = {tensor->memory.owner, ad_py_owner_new(object)};
    ad_owner *both = NULL;
    ad_error err;
    if (owners[1] == NULL) {
        ad_tensor_clear(tensor);
        return AD_IMPORT_FAILED;
    }
    ad_status status = ad_owner_group_new(owners, 2, &both, &err);
    ad_owner_unref(owners[1]);
    if (status != AD_OK) {
        ad_tensor_clear(tensor);
        return ad_import_error(state, &err);
    }
    ad_owner_unref(tensor->memory.owner);
    tensor->memory.owner = both;
    return AD_IMPORT_DONE;
}

/* *is_alive: false where the stream of the import was dead. */
static ad_import_result
import_once(ad_state *state, PyObject *object, const ad_type_slot *slot,
            const ad_request *request, ad_imported *out, bool *is_alive)
{
    order order = {0};
    ad_device said = AD_CPU;
    ad_import_result result = check_before_call(state, object, slot);
    out->is_array = false;
    if (result == AD_IMPORT_DONE) {
        result = ask_device(state, object, &said);
    }
    if (result == AD_IMPORT_DONE) {
        result = plan_order(state, object, slot, request, said, &order);
    }
    if (result == AD_IMPORT_DONE) {
        ad_copy copy = copy_to_ask_for(request->copy, said, &order);
        result = fetch(state, object, copy, order.passed, &out->tensor);
    }
    if (result == AD_IMPORT_DONE && slot->has_borrowed_memory) {
        result = keep_object(state, object, &out->tensor.tensor);
    }
    if (result == AD_IMPORT_DONE) {
        result = apply_stream_order(state, &order, said, &out->tensor.tensor);
    }
    if (result == AD_IMPORT_DONE && slot->is_cupy) {
        result = set_cupy_stream(state, &out->tensor.tensor);
        if (result != AD_IMPORT_DONE) {
            ad_tensor_clear(&out->tensor.tensor);
        }
    }
    if (result == AD_IMPORT_DONE) {
        result = ad_dlpack_check_copy(state, request, &out->tensor);
    }
    *is_alive = order_clear(&order, result == AD_IMPORT_DONE
                                        ? out->tensor.tensor.memory.sync
                                        : NULL);
    return result;
}

/* Only its use shows that an import stream died, as by a reset of the device.
 * The producer's call or the event of the import has failed by then, so the
 * import is made once more, with a new stream. */
static ad_import_result
dlpack_import(const ad_protocol *self, ad_state *state, PyObject *object,
              const ad_type_slot *slot, const ad_request *request,
              ad_imported *out)
{
    bool is_alive;
    ad_import_result result =
        import_once(state, object, slot, request, out, &is_alive);
    if (result != AD_IMPORT_DONE && !is_alive &&
        PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        result = import_once(state, object, slot, request, out, &is_alive);
    }
    return result;
}

/* --- import: what is known of a type ------------------------------------- */

/* Whether __dlpack__ of the type is known to take stream=-1. */
static bool
takes_no_sync(ad_state *state, PyTypeObject *type)
{
    return type == (PyTypeObject *)state->tensor_type ||
           type == (PyTypeObject *)state->buffer_type ||
           type == (PyTypeObject *)state->array_type ||
           ad_is_subclass(type, "torch", "Tensor");
}

static bool
probe(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    ad_dlpack_probe(state, type, slot);
    slot->has_numpy_itemsize = ad_is_subclass(type, "numpy", "ndarray");
    slot->is_cupy = ad_is_subclass(type, "cupy", "ndarray");
    slot->takes_no_sync = slot->is_cupy || takes_no_sync(state, type);
    return true;
}

/* --- export: the request ------------------------------------------------- */

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
read_device(PyObject *value, ad_device *out)
{
    long long pair[2];
    if (read_pair(value, "dl_device", pair) < 0) {
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

/* --- export: order ------------------------------------------------------- */

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

/* --- the methods, and the protocol --------------------------------------- */

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

/* Not const, since PyCFunction_New takes no const pointer. */
static PyMethodDef methods[] = {
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
    .probe = probe,
    .import = dlpack_import,
    .array_getset = array_getset,
    .tensor_methods = methods,
};
