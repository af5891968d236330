/* __cuda_array_interface__, version 3, and what older versions leave out.
 *
 * The dict does not name the device; see find_device().
 */
#include "protocol/interface_dict.h"

#define LEGACY_DEFAULT_STREAM 1

static const ad_interface_rules rules = {
    .name = "__cuda_array_interface__",
    .attribute = AD_STR_cuda_array_interface,
    .min_version = 0,
    .max_version = 3,
    .shows_byte_order = true,
};

static bool
is_shown(int32_t type)
{
    return type == ARROW_DEVICE_CUDA || type == ARROW_DEVICE_CUDA_HOST ||
           type == ARROW_DEVICE_CUDA_MANAGED;
}

/* torch says "cuda" on ROCm too, and offers this interface there. */
static bool
is_taken(int32_t type)
{
    return is_shown(type) || type == ARROW_DEVICE_ROCM ||
           type == ARROW_DEVICE_ROCM_HOST;
}

/* The caller knows best, then the object's own __dlpack_device__; otherwise
 * the ordinal is not known (-1): "the current device" would be a guess. */
static ad_import_result
find_device(ad_state *state, PyObject *object, const ad_request *request,
            const char *origin, ad_device *out)
{
    *out = (ad_device){ARROW_DEVICE_CUDA, -1};
    if (request->has_device) {
        *out = request->device;
    } else if (ad_interface_dlpack_device(state, object, origin, out) < 0) {
        return AD_IMPORT_FAILED;
    }
    if (!is_taken(out->type)) {
        char name[AD_DEVICE_NAME_SIZE];
        ad_raise_exchange(
            state, "device", NULL,
            "%s: expected memory of a CUDA or ROCm device, but "
            "%s says %s",
            origin, request->has_device ? "the caller" : "__dlpack_device__()",
            ad_device_format(*out, name));
        return AD_IMPORT_REFUSED;
    }
    return AD_IMPORT_DONE;
}

/* *out is the stream on which work may be pending, 0 for none. */
static int
read_stream(ad_state *state, ad_interface *in, int64_t *out)
{
    PyObject *value;
    if (ad_interface_field(state, in, AD_STR_stream, &value) < 0) {
        return -1;
    }
    if (value == NULL) {
        /* Before version 3 the interface made no statement. */
        *out = in->version < 3 ? LEGACY_DEFAULT_STREAM : 0;
        return 0;
    }
    int result = ad_interface_int(state, in->origin, "stream", value, 0, out);
    if (result == 0 && (*out == 0 || *out > INTPTR_MAX)) {
        ad_interface_wrong(state, in->origin, "stream", value,
                           "None, 1 (legacy default stream), 2 (per-thread "
                           "default stream) or a handle");
        result = -1;
    }
    Py_DECREF(value);
    return result;
}

/* Work on the producer's own stream is in order as it is, and the caller may
 * say (-1) that there is nothing to wait for. To make another stream wait
 * takes a runtime, and to forget about it is no option. */
static int
check_wanted_stream(ad_state *state, const ad_request *request,
                    ad_device device, const char *origin, int64_t *stream)
{
    intptr_t wanted;
    if (request->stream == NULL) {
        return 0;
    }
    if (ad_stream_number(state, request->stream, device.type, &wanted) < 0) {
        return -1;
    }
    if (wanted == -1) {
        *stream = 0;
    }
    if (*stream == 0 || wanted == *stream) {
        return 0;
    }
    ad_raise_exchange(state, "stream",
                      "leave stream= out, or synchronize first and pass "
                      "stream=-1",
                      "%s: stream %lld cannot be made to wait for stream %lld",
                      origin, (long long)wanted, (long long)*stream);
    return -1;
}

static int
attach_stream(ad_state *state, ad_tensor *tensor, int64_t stream)
{
    ad_error err;
    if (stream == 0) {
        return 0;
    }
    if (ad_sync_new(AD_SYNC_STREAM, tensor->device, (void *)(intptr_t)stream,
                    tensor->owner, &tensor->sync, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

static ad_import_result
make_tensor(ad_state *state, PyObject *object, const ad_request *request,
            ad_interface *in, ad_tensor_value *out)
{
    int64_t stream;
    ad_device device;
    ad_import_result result =
        find_device(state, object, request, in->origin, &device);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    if (read_stream(state, in, &stream) < 0 ||
        check_wanted_stream(state, request, device, in->origin, &stream) < 0) {
        return AD_IMPORT_FAILED;
    }
    result = ad_interface_tensor(state, object, in, device, out);
    if (result == AD_IMPORT_DONE &&
        attach_stream(state, &out->tensor, stream) < 0) {
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
    (void)slot;
    ad_import_result result = ad_interface_read(state, object, &rules, &in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    out->is_array = false;
    result = make_tensor(state, object, request, &in, &out->tensor);
    ad_interface_clear(&in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    return ad_finish_host_tensor(state, request, &out->tensor);
}

static PyObject *
show_stream(const ad_sync *sync)
{
    if (sync == NULL) {
        return Py_NewRef(Py_None);
    }
    if (sync->kind != AD_SYNC_STREAM) {
        return ad_interface_unavailable(
            &rules, "there is no stream that waits for the event of the data");
    }
    return PyLong_FromLongLong((intptr_t)sync->handle);
}

static PyObject *
show(ad_state *state, const ad_tensor *tensor)
{
    if (!is_shown(tensor->device.type)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            &rules, "memory of %s is not CUDA's",
            ad_device_format(tensor->device, name));
    }
    PyObject *stream = show_stream(tensor->sync);
    if (stream == NULL) {
        return NULL;
    }
    PyObject *dict = ad_interface_build(state, tensor, &rules);
    if (dict != NULL &&
        PyDict_SetItem(dict, AD_STR(state, stream), stream) < 0) {
        Py_CLEAR(dict);
    }
    Py_DECREF(stream);
    return dict;
}

static PyObject *
get_interface(PyObject *self, void *closure)
{
    (void)closure;
    return ad_interface_show(self, &rules, show);
}

static const PyGetSetDef getset[] = {
    {"__cuda_array_interface__", get_interface, NULL,
     PyDoc_STR("CUDA Array Interface, version 3 (CUDA, pinned, managed)."),
     NULL},
    {0},
};

const ad_protocol ad_protocol_cuda_array_interface = {
    .name = "__cuda_array_interface__",
    .attribute = AD_STR_cuda_array_interface,
    .import = import_object,
    .array_getset = getset,
    .tensor_getset = getset,
};
