/* __sycl_usm_array_interface__, version 1 (dpctl, dpnp): the only protocol
 * that carries the queue. It comes in as the sync of the tensor, and goes out
 * again as `syclobj`; a context or filter string likewise.
 */
#include "protocol/interface_dict.h"

static const ad_interface_rules rules = {
    .name = "__sycl_usm_array_interface__",
    .attribute = AD_STR_sycl_usm_array_interface,
    .min_version = 1,
    .max_version = 1,
    .counts_elements = true,
};

/* The dict says no ordinal, and to ask the queue would take a runtime. */
static ad_import_result
find_device(ad_state *state, PyObject *object, const ad_request *request,
            const char *origin, ad_device *out)
{
    *out = (ad_device){ARROW_DEVICE_ONEAPI, -1};
    if (request->has_device) {
        *out = request->device;
    } else if (ad_interface_dlpack_device(state, object, origin, out) < 0) {
        return AD_IMPORT_FAILED;
    }
    if (out->type != ARROW_DEVICE_ONEAPI) {
        char name[AD_DEVICE_NAME_SIZE];
        ad_raise_exchange(
            state, "device", NULL,
            "%s: expected memory of a oneAPI device, but %s "
            "says %s",
            origin, request->has_device ? "the caller" : "__dlpack_device__()",
            ad_device_format(*out, name));
        return AD_IMPORT_REFUSED;
    }
    return AD_IMPORT_DONE;
}

/* The queue behind a stream= argument: itself, or its .sycl_queue. */
static PyObject *
wanted_queue(ad_state *state, PyObject *stream)
{
    PyObject *queue;
    int found = ad_py_lookup_attr(stream, AD_STR(state, sycl_queue), &queue);
    if (found < 0) {
        return NULL;
    }
    return found > 0 ? queue : Py_NewRef(stream);
}

/* Work on the producer's own queue needs no more than it carries; to make
 * another queue wait takes a runtime. */
static int
check_wanted_queue(ad_state *state, const ad_request *request,
                   PyObject *syclobj, const char *origin)
{
    if (request->stream == NULL || ad_stream_is_off(request->stream)) {
        return 0;
    }
    PyObject *queue = wanted_queue(state, request->stream);
    if (queue == NULL) {
        return -1;
    }
    int same = PyObject_RichCompareBool(queue, syclobj, Py_EQ);
    Py_DECREF(queue);
    if (same == 0) {
        ad_raise_exchange(state, "stream",
                          "leave stream= out, or synchronize first",
                          "%s: another queue cannot be made to wait for "
                          "syclobj",
                          origin);
    }
    return same == 1 ? 0 : -1;
}

static int
attach_queue(ad_state *state, ad_tensor *tensor, PyObject *syclobj)
{
    ad_error err;
    ad_owner *keep = ad_py_owner_new(syclobj);
    if (keep == NULL) {
        return -1;
    }
    ad_status status = ad_sync_new(AD_SYNC_QUEUE, tensor->device, syclobj,
                                   keep, &tensor->sync, &err);
    ad_owner_unref(keep);
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

static ad_import_result
make_tensor(ad_state *state, PyObject *object, const ad_request *request,
            ad_interface *in, PyObject *syclobj, ad_tensor_value *out)
{
    ad_device device;
    if (syclobj == NULL) {
        ad_interface_wrong(state, in->origin, "syclobj", NULL,
                           "a queue, a context or a filter string");
        return AD_IMPORT_FAILED;
    }
    ad_import_result result =
        find_device(state, object, request, in->origin, &device);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    if (check_wanted_queue(state, request, syclobj, in->origin) < 0) {
        return AD_IMPORT_FAILED;
    }
    result = ad_interface_tensor(state, object, in, device, out);
    if (result == AD_IMPORT_DONE &&
        attach_queue(state, &out->tensor, syclobj) < 0) {
        ad_tensor_clear(&out->tensor);
        return AD_IMPORT_FAILED;
    }
    return result;
}

static ad_import_result
import_object(ad_state *state, PyObject *object, const ad_type_slot *slot,
              const ad_request *request, ad_imported *out)
{
    ad_interface in;
    PyObject *syclobj;
    (void)slot;
    ad_import_result result = ad_interface_read(state, object, &rules, &in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    if (ad_interface_field(state, &in, AD_STR_syclobj, &syclobj) < 0) {
        ad_interface_clear(&in);
        return AD_IMPORT_FAILED;
    }
    out->is_array = false;
    result = make_tensor(state, object, request, &in, syclobj, &out->tensor);
    Py_XDECREF(syclobj);
    ad_interface_clear(&in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    return ad_finish_host_tensor(state, request, &out->tensor);
}

/* Borrowed; NULL where no queue object came along. */
static PyObject *
queue_of(const ad_tensor *tensor)
{
    if (tensor->sync == NULL || tensor->sync->kind != AD_SYNC_QUEUE) {
        return NULL;
    }
    return ad_py_owner_object(tensor->sync->keep);
}

static PyObject *
show(ad_state *state, const ad_tensor *tensor)
{
    if (tensor->device.type != ARROW_DEVICE_ONEAPI) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            &rules, "memory of %s is not oneAPI's",
            ad_device_format(tensor->device, name));
    }
    PyObject *syclobj = queue_of(tensor);
    if (syclobj == NULL) {
        return ad_interface_unavailable(&rules,
                                        "the data came without a SYCL queue");
    }
    PyObject *dict = ad_interface_build(state, tensor, &rules);
    PyObject *zero = PyLong_FromLong(0);
    if (dict != NULL &&
        (zero == NULL ||
         PyDict_SetItem(dict, AD_STR(state, offset), zero) < 0 ||
         PyDict_SetItem(dict, AD_STR(state, syclobj), syclobj) < 0)) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(zero);
    return dict;
}

static PyObject *
get_interface(PyObject *self, void *closure)
{
    (void)closure;
    return ad_interface_show(self, &rules, show);
}

static const PyGetSetDef getset[] = {
    {"__sycl_usm_array_interface__", get_interface, NULL,
     PyDoc_STR("SYCL USM array interface, version 1 (oneAPI memory)."), NULL},
    {0},
};

const ad_protocol ad_protocol_sycl_usm = {
    .name = "__sycl_usm_array_interface__",
    .attribute = AD_STR_sycl_usm_array_interface,
    .import = import_object,
    .array_getset = getset,
    .tensor_getset = getset,
};
