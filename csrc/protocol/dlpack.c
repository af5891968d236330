/* __dlpack__ and __dlpack_device__ of other libraries; our own are in
 * dlpack_export.c. */
#include "protocol/dlpack_tensor.h"

#include <string.h>

#include "abi/arrow_c.h"
#include "device/backend.h"
#include "order/device_owner.h"
#include "order/streams.h"

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
    int result = ad_dlpack_read_pair(device, "the result", pair);
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

/* --- the protocol -------------------------------------------------------- */

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

const ad_protocol ad_protocol_dlpack = {
    .name = "__dlpack__",
    .attribute = AD_STR_dlpack,
    .probe = probe,
    .import = dlpack_import,
    .array_getset = ad_dlpack_array_getset,
    .tensor_methods = ad_dlpack_methods,
};
