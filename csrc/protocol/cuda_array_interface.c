/* __cuda_array_interface__, version 3, and older versions with fewer fields.
 *
 * The dict does not name the device; see find_context().
 */
#include "protocol/array_interface.h"

#include "abi/arrow_c.h"
#include "order/device_owner.h"
#include "device/backend.h"
#include "support/py_call.h"

/* Asks the runtime of this type, if available, for the device of the
 * memory. */
static ad_status
ask_runtime(int32_t type, const void *pointer, ad_memory_info *out,
            ad_error *err)
{
    const struct ad_backend *backend;
    ad_context hint = {{type, -1}, NULL};
    AD_RETURN_IF_ERR(ad_backend_open(type, &backend, err));
    return backend->classify(pointer, hint, out, err);
}

/* Asks the runtimes. *found: one of them is available. */
static ad_status
locate(const ad_interface *in, bool *found, ad_context *out, ad_error *err)
{
    static const int32_t types[] = {ARROW_DEVICE_CUDA, ARROW_DEVICE_ROCM};
    ad_memory_info info = {.kind = AD_MEMORY_UNREGISTERED};
    ad_memory_info pageable = info; /* where a runtime accesses it */
    *found = false;
    for (int i = 0; i < 2 && info.kind == AD_MEMORY_UNREGISTERED; i++) {
        if (ad_backend_is_there(types[i])) {
            AD_RETURN_IF_ERR(
                ask_runtime(types[i], in->descriptor.data, &info, err));
            *found = true;
            pageable = pageable.host_accessible ? pageable : info;
        }
    }
    info = info.kind == AD_MEMORY_UNREGISTERED ? pageable : info;
    if (*found && info.kind == AD_MEMORY_UNREGISTERED &&
        !info.host_accessible) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "pass an object whose memory is alive and was "
                       "allocated by the runtime of its device",
                       "%s: no CUDA or ROCm device has memory at the address "
                       "%p in data",
                       in->origin, in->descriptor.data);
    }
    *out = info.context;
    return AD_OK;
}

/* The device of the memory, which the dict does not contain. */
static ad_import_result
find_context(ad_state *state, PyObject *object, const ad_request *request,
             const ad_interface *in, ad_context *out)
{
    ad_error err;
    bool found = false;
    if (in->descriptor.data != NULL &&
        locate(in, &found, out, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    if (found) {
        return AD_IMPORT_DONE;
    }
    out->handle = NULL;
    return ad_interface_believe_device(state, object, request, in,
                                       &out->device);
}

/* Without a stream work counts as pending on the legacy one. By version 3 the
 * data are ready then, but numba, cuDF and pylibcudf state none while work on
 * their default stream is pending. Versions before 3 have no rule. An object
 * of these with __dlpack__ gets here if that was refused, as by torch for a
 * device that is not the current one, and may work on a stream that the legacy
 * one does not wait for. */
static int
find_unstated_stream(ad_state *state, PyObject *object, const ad_interface *in,
                     ad_device device, ad_stream_ref *out)
{
    PyObject *method = NULL;
    int result = device.id >= 0
                     ? ad_library_stream(state, Py_TYPE(object), device, out)
                     : 0;
    if (result == 0) {
        result =
            in->version < 3
                ? ad_py_lookup_attr(object, AD_STR(state, dlpack), &method)
                : 0;
        Py_XDECREF(method);
        if (result == 0) {
            (void)ad_default_stream(device, out);
        } else if (result > 0) {
            ad_raise_exchange(state, "stream",
                              "synchronize and pass stream=-1",
                              "%s: version %d does not state the stream on "
                              "which work may be pending, and __dlpack__, "
                              "which has one, was refused",
                              in->origin, (int)in->version);
            result = -1;
        }
    }
    return result < 0 ? -1 : 0;
}

/* The stream on which work may be pending; not given if none is. *is_stated:
 * the dict names it. */
static int
read_stream(ad_state *state, PyObject *object, const ad_interface *in,
            ad_device device, bool no_sync, bool *is_stated,
            ad_stream_ref *out)
{
    PyObject *value = in->fields[AD_FIELD_ORDER];
    int64_t number;
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
    *is_stated = value != NULL;
    if (value == NULL) {
        return in->descriptor.data == NULL || no_sync
                   ? 0
                   : find_unstated_stream(state, object, in, device, out);
    }
    int result =
        ad_interface_int(state, in->origin, "stream", value, 0, &number);
    bool is_handle =
        !PyBool_Check(value) && number != 0 && number <= INTPTR_MAX;
    if (result == 0 && !is_handle) {
        ad_interface_wrong(state, in->origin, "stream", value,
                           "None, 1 (legacy default stream), 2 (per-thread "
                           "default stream) or a handle");
        result = -1;
    }
    *out = ad_stream_named((ad_context){device, NULL},
                           (ad_stream){(uintptr_t)number}, NULL);
    return result;
}

/* By version 3 the memory is reused in the order of the stream in the dict, so
 * it is released in that order. */
static ad_status
attach_edges(ad_tensor *tensor, ad_context context,
             const ad_stream_ref *stream, bool is_stated, bool no_sync,
             ad_error *err)
{
    ad_stream_ref on = *stream;
    AD_RETURN_IF_ERR(ad_device_owner_new(tensor->memory.owner, context,
                                         is_stated ? stream : NULL,
                                         &tensor->memory.owner, err));
    if (!ad_stream_is_given(stream) || no_sync) {
        return AD_OK;
    }
    on.context = context;
    return ad_sync_pending(&on, &tensor->memory.sync, err);
}

static ad_import_result
make_tensor(ad_state *state, PyObject *object, const ad_request *request,
            ad_interface *in, ad_tensor_value *out)
{
    bool no_sync = request->stream.kind == AD_STREAM_OFF;
    bool is_stated;
    ad_stream_ref stream;
    ad_context context;
    ad_error err;
    ad_import_result result =
        find_context(state, object, request, in, &context);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    if (read_stream(state, object, in, context.device, no_sync, &is_stated,
                    &stream) < 0) {
        return AD_IMPORT_FAILED;
    }
    result = ad_interface_tensor(state, object, in, context.device, out);
    if (result == AD_IMPORT_DONE &&
        attach_edges(&out->tensor, context, &stream, is_stated, no_sync,
                     &err) != AD_OK) {
        ad_tensor_clear(&out->tensor);
        return ad_import_error(state, &err);
    }
    return result;
}

/* A stream that waits for the data, or the stream of the work itself. The
 * legacy stream waits, too: some consumers work there, whatever is shown
 * (pylibcudf's gpumemoryview, torch.as_tensor). */
static ad_status
choose_stream(ad_sync *sync, ad_stream_ref *out, ad_error *err)
{
    if (sync->kind == AD_SYNC_STREAM) {
        *out = sync->on;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_sync_stream(sync, out, err));
    const ad_stream_ref legacy = ad_stream_legacy_ref(sync->on.context.device);
    return ad_sync_order(sync, &legacy, "consumers on the legacy stream", err);
}

/* None if the data are ready; else the stream that the consumer uses, or lets
 * its own stream wait for, by version 3. */
static PyObject *
export_stream(ad_state *state, const ad_tensor *tensor,
              const ad_interface_rules *rules)
{
    ad_sync *sync = tensor->memory.sync;
    ad_stream_ref on;
    ad_error err;
    bool is_done = ad_sync_is_done(sync);
    if (!is_done && sync->kind == AD_SYNC_EVENT &&
        ad_sync_query(sync, &is_done, &err) != AD_OK) {
        return ad_interface_failed(state, rules, &err);
    }
    /* Such consumers also drop the object while their work is pending. */
    ad_owner_record_unnamed(tensor->memory.owner, tensor->memory.device, NULL);
    if (is_done) {
        return Py_NewRef(Py_None);
    }
    if (choose_stream(sync, &on, &err) != AD_OK ||
        ad_owner_record_stream(tensor->memory.owner, &on, &err) != AD_OK) {
        return ad_interface_failed(state, rules, &err);
    }
    return PyLong_FromSize_t(on.stream.handle);
}

static PyObject *
export_dict(ad_state *state, const ad_tensor *tensor,
            const ad_interface_rules *rules)
{
    if (!(ad_device_traits(tensor->memory.device.type) & AD_CUDA_STREAMS)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            rules, "memory of %s is not CUDA's",
            ad_device_format(tensor->memory.device, name));
    }
    /* The dict first, so that a failure needs no runtime call. */
    PyObject *dict = ad_interface_build(state, tensor, rules);
    if (dict != NULL &&
        ad_py_set_item(dict, AD_STR(state, stream),
                       export_stream(state, tensor, rules)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* torch uses the name "cuda" on ROCm too, and offers this interface there. */
static const ad_interface_rules rules = {
    .name = "__cuda_array_interface__",
    .attribute = AD_STR_cuda_array_interface,
    .order_field = AD_STR_stream,
    .make_tensor = make_tensor,
    .export_dict = export_dict,
    .min_version = 0,
    .max_version = 3,
    .exports_byte_order = true,
    .device_type = ARROW_DEVICE_CUDA,
    .traits = AD_CUDA_STREAMS | AD_ROCM_STREAMS,
    .has_mask = true,
    .devices = "CUDA or ROCm",
};

/* --- nulls --------------------------------------------------------------- */

/* Returns whether the array has a bitmap that may contain nulls. */
static bool
may_have_nulls(ad_state *state, PyObject *self)
{
    return ad_is_array(state, self) &&
           !ad_array_has_no_nulls(ad_array_of(self)) &&
           ad_array_validity(ad_array_of(self)) != NULL;
}

/* The bits of the rows, starting at a whole byte. */
static PyObject *
build_mask(ad_state *state, PyObject *self, PyObject *stream)
{
    const ad_array *array = ad_array_of(self);
    const char *bits = ad_array_validity(array);
    if (array->offset % 8 != 0) {
        return ad_interface_unavailable(
            &rules,
            "the validity bits begin within a byte, which the mask cannot "
            "say; .compact() makes an array whose bits do not");
    }
    PyObject *dict = Py_BuildValue(
        "{s(L)sss(NO)sOsisO}", "shape", (long long)array->length, "typestr",
        "|t1", "data", PyLong_FromVoidPtr((void *)(bits + array->offset / 8)),
        Py_True, "strides", Py_None, "version", 3, "stream", stream);
    if (dict == NULL) {
        return NULL;
    }
    PyObject *args[] = {self, dict};
    PyObject *mask = ad_call_helper("_cuda_mask", "CudaMask", args, 2);
    Py_DECREF(dict);
    return mask;
}

/* The data as if the rows had no nulls; other obstacles still apply. */
static PyObject *
export_with_mask(ad_state *state, PyObject *self)
{
    const ad_bridge_options options = {.copy = AD_COPY_NEVER};
    ad_array rows = ad_array_borrow(ad_array_of(self));
    ad_tensor_value value;
    ad_error err;
    ad_array_set_null_count(&rows, 0);
    if (ad_tensor_from_array(&rows, &options, &value, &err) != AD_OK) {
        return ad_interface_failed(state, &rules, &err);
    }
    PyObject *dict =
        value.tensor.ndim == 1
            ? export_dict(state, &value.tensor, &rules)
            : ad_interface_unavailable(
                  &rules, "%s",
                  "it has nulls, and the mask of several dimensions has an "
                  "element for each of the data, not one per row");
    ad_tensor_clear(&value.tensor);
    if (dict == NULL) {
        return NULL;
    }
    PyObject *stream = PyDict_GetItem(dict, AD_STR(state, stream));
    if (ad_py_set_item(dict, AD_STR(state, mask),
                       build_mask(state, self, stream)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
get_interface(PyObject *self, void *closure)
{
    ad_state *state = ad_state_of(self);
    return may_have_nulls(state, self) ? export_with_mask(state, self)
                                       : ad_interface_get(self, closure);
}

static const PyGetSetDef getset[] = {
    {"__cuda_array_interface__", get_interface, NULL,
     PyDoc_STR("CUDA Array Interface, version 3 (CUDA, pinned, managed). A\n"
               "column with nulls comes with its bits as the mask."),
     (void *)&rules},
    {0},
};

const ad_protocol ad_protocol_cuda_array_interface = {
    .name = "__cuda_array_interface__",
    .attribute = AD_STR_cuda_array_interface,
    .import = ad_interface_import,
    .rules = &rules,
    .array_getset = getset,
    .tensor_getset = getset,
};
