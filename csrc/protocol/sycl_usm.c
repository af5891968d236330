/* __sycl_usm_array_interface__, version 1 (dpctl, dpnp): the only protocol
 * that carries the queue. An event is recorded on it, and the queue is
 * exported again as `syclobj`. A context or filter string in its place is
 * exported unchanged; since it does not tell whether work is pending, the data
 * do not count as ready for other protocols.
 */
#include "protocol/array_interface.h"

#include <string.h>

#include "abi/arrow_c.h"
#include "order/device_owner.h"
#include "order/streams.h"
#include "device/backend.h"

/* --- import -------------------------------------------------------------- */

/* `syclobj` and the context of the memory. */
typedef struct source {
    PyObject *syclobj;   /* borrowed */
    ad_stream_ref queue; /* given if syclobj is a queue that the runtime
                               accepts; owns `keep` */
    ad_context context;
} source;

/* One word of a filter string: a backend, a kind of device, or a number. */
static bool
is_filter_word(const char *word, size_t n)
{
    static const char *const words[] = {
        "*",           "opencl", "level_zero", "cuda", "hip",
        "native_cpu",  "host",   "cpu",        "gpu",  "acc",
        "accelerator", "fpga",   "custom",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0) {
            return true;
        }
    }
    return n > 0 && strspn(word, "0123456789") >= n;
}

/* "backend:kind:number", where each part is optional. */
static bool
is_filter_string(PyObject *syclobj)
{
    const char *rest =
        PyUnicode_Check(syclobj) ? PyUnicode_AsUTF8(syclobj) : NULL;
    if (rest == NULL) {
        PyErr_Clear(); /* the str has lone surrogates */
        return false;
    }
    for (;;) {
        size_t n = strcspn(rest, ":");
        if (!is_filter_word(rest, n)) {
            return false;
        }
        if (rest[n] == '\0') {
            return true;
        }
        rest += n + 1;
    }
}

/* Reads a queue. A context or a filter string only names the device of the
 * memory, not pending work. */
static int
read_syclobj(ad_state *state, const char *origin, source *in)
{
    ad_device device = {ARROW_DEVICE_ONEAPI, -1};
    ad_stream_argument argument;
    if (is_filter_string(in->syclobj) ||
        ad_is_subclass(Py_TYPE(in->syclobj), "dpctl", "SyclContext")) {
        return 0;
    }
    bool may_be_queue =
        !PyUnicode_Check(in->syclobj) && !PyLong_Check(in->syclobj);
    if (!may_be_queue ||
        ad_parse_stream_of(state, in->syclobj, device, &argument) < 0) {
        if (!may_be_queue || PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            ad_interface_wrong(state, origin, "syclobj", in->syclobj,
                               "a dpctl.SyclQueue, a dpctl.SyclContext or a "
                               "filter string such as \"level_zero:gpu:0\"");
        }
        return -1;
    }
    return ad_backend_is_there(device.type)
               ? ad_stream_argument_ref(&argument, device, &in->queue)
               : 0;
}

/* Asks SYCL for the device of the memory; UNREGISTERED if it is unknown or
 * SYCL is not available. If `queue` is given, the memory must be of its
 * context. */
static ad_status
locate(const void *pointer, const ad_stream_ref *queue, ad_memory_info *out,
       ad_error *err)
{
    const struct ad_backend *backend;
    ad_context hint = {{ARROW_DEVICE_ONEAPI, -1}, NULL};
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED, .context = hint};
    if (!ad_backend_is_there(hint.device.type)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_backend_open(hint.device.type, &backend, err));
    if (ad_stream_is_given(queue)) {
        AD_RETURN_IF_ERR(
            backend->stream_context(queue->stream, hint, &hint, err));
    }
    AD_RETURN_IF_ERR(backend->classify(pointer, hint, out, err));
    if (out->kind == AD_MEMORY_UNREGISTERED ||
        (ad_stream_is_given(queue) && out->context.handle != hint.handle)) {
        out->kind = AD_MEMORY_UNREGISTERED;
        out->context = hint;
    }
    return AD_OK;
}

static ad_import_result
find_context(ad_state *state, PyObject *object, const ad_request *request,
             const ad_interface *in, source *from)
{
    ad_error err;
    ad_memory_info info;
    if (locate(in->descriptor.data, &from->queue, &info, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    from->context = info.context;
    if (info.kind != AD_MEMORY_UNREGISTERED) {
        return AD_IMPORT_DONE;
    }
    if (!ad_stream_is_given(&from->queue)) {
        /* The context of the memory is unknown. */
        from->context.handle = NULL;
        return ad_interface_believe_device(state, object, request, in,
                                           &from->context.device);
    }
    if (in->descriptor.data == NULL) {
        return AD_IMPORT_DONE; /* size 0, else ad_interface_tensor fails */
    }
    ad_raise_exchange(state, "device",
                      "pass an object whose memory is alive, and whose queue "
                      "is of the context that it was allocated in",
                      "%s: the context of syclobj has no memory at the "
                      "address %p in data",
                      in->origin, in->descriptor.data);
    return AD_IMPORT_FAILED;
}

/* Work may be pending on the queue: an event tells when it is done, and delays
 * work that is submitted to the queue later. Any other syclobj is kept
 * unchanged. */
static ad_status
attach_sync(ad_tensor *tensor, const source *from, ad_error *err)
{
    if (ad_stream_is_given(&from->queue)) {
        ad_stream_ref on = from->queue;
        on.context = from->context;
        return ad_sync_pending(&on, &tensor->memory.sync, err);
    }
    ad_owner *keep = ad_py_owner_new(from->syclobj);
    if (keep == NULL) {
        PyErr_Clear();
        return ad_fail_memory(err, sizeof(*keep));
    }
    ad_status status =
        ad_sync_new(AD_SYNC_UNKNOWN, tensor->memory.device, from->syclobj,
                    keep, &tensor->memory.sync, err);
    ad_owner_unref(keep);
    return status;
}

/* USM is not freed in the order of a queue, so there is no free stream. */
static ad_status
attach_edges(ad_tensor *tensor, const source *from, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_device_owner_new(tensor->memory.owner, from->context,
                                         NULL, &tensor->memory.owner, err));
    return attach_sync(tensor, from, err);
}

static ad_import_result
make_from(ad_state *state, PyObject *object, const ad_request *request,
          ad_interface *in, source *from, ad_tensor_value *out)
{
    ad_error err;
    if (from->syclobj == NULL) {
        ad_interface_wrong(state, in->origin, "syclobj", NULL,
                           "a queue, a context or a filter string");
        return AD_IMPORT_FAILED;
    }
    if (read_syclobj(state, in->origin, from) < 0) {
        return AD_IMPORT_FAILED;
    }
    ad_import_result result = find_context(state, object, request, in, from);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    result = ad_interface_tensor(state, object, in, from->context.device, out);
    if (result == AD_IMPORT_DONE &&
        attach_edges(&out->tensor, from, &err) != AD_OK) {
        ad_tensor_clear(&out->tensor);
        return ad_import_error(state, &err);
    }
    return result;
}

static ad_import_result
make_tensor(ad_state *state, PyObject *object, const ad_request *request,
            ad_interface *in, ad_tensor_value *out)
{
    source from = {.syclobj = in->fields[AD_FIELD_ORDER]};
    ad_import_result result =
        make_from(state, object, request, in, &from, out);
    ad_owner_unref(from.queue.keep);
    return result;
}

/* --- export -------------------------------------------------------------- */

/* The syclobj of the import: a new reference, or NULL without an exception.
 * The object that keeps an event may also be of another kind. */
static PyObject *
object_that_came(const ad_tensor *tensor)
{
    const ad_sync *sync = tensor->memory.sync;
    PyObject *object = sync != NULL && sync->on.keep != NULL
                           ? ad_py_owner_object(sync->on.keep)
                           : NULL;
    bool is_taken =
        object != NULL &&
        (sync->kind == AD_SYNC_QUEUE || sync->kind == AD_SYNC_UNKNOWN ||
         PyObject_HasAttrString(object, "is_in_order"));
    return is_taken ? Py_NewRef(object) : NULL;
}

/* dpctl.SyclQueue if dpctl is imported already, else NULL without an
 * exception. (None in sys.modules blocks the import.) */
static PyObject *
queue_class(void)
{
    PyObject *dpctl = ad_py_imported("dpctl");
    PyObject *queue = dpctl != NULL && dpctl != Py_None
                          ? PyObject_GetAttrString(dpctl, "SyclQueue")
                          : NULL;
    Py_XDECREF(dpctl);
    return queue;
}

PyObject *
ad_sycl_queue_new(ad_stream stream)
{
    PyObject *type = queue_class();
    if (type == NULL) {
        return NULL;
    }
    /* The queue object copies the handle, so the capsule frees nothing. */
    PyObject *capsule =
        PyCapsule_New((void *)stream.handle, "SyclQueueRef", NULL);
    PyObject *queue =
        capsule != NULL ? PyObject_CallOneArg(type, capsule) : NULL;
    Py_XDECREF(capsule);
    Py_DECREF(type);
    return queue;
}

/* arrowdev's own stream in the context of the memory, which waits for the
 * data. */
static ad_status
make_stream(const ad_tensor *tensor, const char *what, ad_stream_ref *out,
            ad_error *err)
{
    const ad_stream_ref none = {.kind = AD_REF_NONE};
    ad_memory_info info;
    AD_RETURN_IF_ERR(locate(ad_tensor_address(tensor), &none, &info, err));
    if (info.kind == AD_MEMORY_UNREGISTERED) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device", NULL,
                       "the data came without a SYCL queue, and SYCL has no "
                       "memory at their address");
    }
    AD_RETURN_IF_ERR(ad_stream_shared(info.context, out, err));
    AD_RETURN_IF_ERR(ad_sync_order(tensor->memory.sync, out, what, err));
    return ad_owner_record_stream(tensor->memory.owner, out, err);
}

/* Creates a queue object for data that have only an event, or no pending work.
 */
static PyObject *
make_queue(ad_state *state, const ad_tensor *tensor,
           const ad_interface_rules *rules)
{
    ad_error err;
    ad_stream_ref on;
    PyObject *type = queue_class();
    if (type == NULL) {
        return PyErr_Occurred()
                   ? NULL
                   : ad_interface_unavailable(
                         rules, "the data came without a SYCL queue, and "
                                "dpctl, which could make one, is not "
                                "imported");
    }
    Py_DECREF(type);
    return make_stream(tensor, rules->name, &on, &err) == AD_OK
               ? ad_sycl_queue_new(on.stream)
               : ad_interface_failed(state, rules, &err);
}

/* The consumer will use the exported queue. */
static PyObject *
find_queue(ad_state *state, const ad_tensor *tensor,
           const ad_interface_rules *rules)
{
    ad_error err;
    PyObject *queue = object_that_came(tensor);
    if (queue == NULL) {
        return make_queue(state, tensor, rules);
    }
    if (tensor->memory.sync->kind == AD_SYNC_EVENT &&
        ad_owner_record_stream(tensor->memory.owner, &tensor->memory.sync->on,
                               &err) != AD_OK) {
        Py_DECREF(queue);
        return ad_interface_failed(state, rules, &err);
    }
    return queue;
}

static PyObject *
export_dict(ad_state *state, const ad_tensor *tensor,
            const ad_interface_rules *rules)
{
    if (!(ad_device_traits(tensor->memory.device.type) & rules->traits)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            rules, "memory of %s is not oneAPI's",
            ad_device_format(tensor->memory.device, name));
    }
    PyObject *syclobj = find_queue(state, tensor, rules);
    PyObject *dict =
        syclobj != NULL ? ad_interface_build(state, tensor, rules) : NULL;
    if (dict != NULL &&
        (ad_py_set_item(dict, AD_STR(state, offset), PyLong_FromLong(0)) < 0 ||
         PyDict_SetItem(dict, AD_STR(state, syclobj), syclobj) < 0)) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(syclobj);
    return dict;
}

static const ad_interface_rules rules = {
    .name = "__sycl_usm_array_interface__",
    .attribute = AD_STR_sycl_usm_array_interface,
    .order_field = AD_STR_syclobj,
    .make_tensor = make_tensor,
    .export_dict = export_dict,
    .min_version = 1,
    .max_version = 1,
    .counts_elements = true,
    .device_type = ARROW_DEVICE_ONEAPI,
    .traits = AD_NO_NUMBERS,
    .devices = "oneAPI",
};

static const PyGetSetDef getset[] = {
    {"__sycl_usm_array_interface__", ad_interface_get, NULL,
     PyDoc_STR("SYCL USM array interface, version 1 (oneAPI memory)."),
     (void *)&rules},
    {0},
};

const ad_protocol ad_protocol_sycl_usm = {
    .name = "__sycl_usm_array_interface__",
    .attribute = AD_STR_sycl_usm_array_interface,
    .import = ad_interface_import,
    .rules = &rules,
    .array_getset = getset,
    .tensor_getset = getset,
};
