/* Import and export by DLPack's C exchange API, without Python calls. By its
 * contract the functions are called with the GIL held, except the allocator,
 * which uses no Python object. */
#include "protocol/dlpack_tensor.h"

#include "abi/arrow_c.h"
#include "order/device_owner.h"
#include "base/owner.h"
#include "device/backend.h"

#define CAPSULE_NAME "dlpack_exchange_api"

/* --- import -------------------------------------------------------------- */

#define MAX_TABLES 64 /* in one chain */

/* The first table of the chain with our major version, or NULL. */
static const ad_dl_exchange_api *
find_table(const ad_dl_exchange_header *header)
{
    /* The limit guards against an endless chain. */
    for (int i = 0; i < MAX_TABLES && header != NULL &&
                    header->version.major > AD_DL_MAJOR;
         i++) {
        header = header->prev_api;
    }
    if (header == NULL || header->version.major != AD_DL_MAJOR) {
        return NULL;
    }
    const ad_dl_exchange_api *api = (const ad_dl_exchange_api *)header;
    bool is_usable = api->managed_tensor_from_py_object_no_sync != NULL &&
                     api->managed_tensor_to_py_object_no_sync != NULL &&
                     api->current_work_stream != NULL;
    return is_usable ? api : NULL;
}

/* The table in the type's own dict, or NULL; sets no exception. The table of a
 * base class is not used, since a subclass may behave differently. */
static const ad_dl_exchange_api *
table_of(ad_state *state, PyTypeObject *type)
{
    const ad_dl_exchange_api *api = NULL;
    PyObject *dict = ad_py_type_dict(type);
    if (dict == NULL) {
        return NULL;
    }
    PyObject *capsule =
        ad_py_dict_item(dict, AD_STR(state, dlpack_c_exchange_api));
    if (capsule != NULL && PyCapsule_IsValid(capsule, CAPSULE_NAME)) {
        api = find_table(PyCapsule_GetPointer(capsule, CAPSULE_NAME));
    }
    PyErr_Clear();
    Py_XDECREF(capsule);
    Py_DECREF(dict);
    return api;
}

static bool
probe(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    slot->exchange_api = table_of(state, type);
    ad_dlpack_probe(state, type, slot);
    return slot->exchange_api != NULL;
}

/* *out is the caller's. */
static ad_import_result
fetch(ad_state *state, PyObject *object, const ad_dl_exchange_api *api,
      ad_dl_managed_versioned **out)
{
    *out = NULL;
    int result = api->managed_tensor_from_py_object_no_sync(object, out);
    /* A function that sets an exception has failed, even if it returns 0. */
    if (PyErr_Occurred()) {
        if (result == 0 && *out != NULL) {
            ad_dlpack_delete(*out, true);
        }
        return ad_import_exception(state);
    }
    if (result != 0 || *out == NULL) {
        ad_raise_exchange(state, "protocol", NULL,
                          "the DLPack exchange API of %.200s gave neither a "
                          "tensor nor an error",
                          Py_TYPE(object)->tp_name);
        return AD_IMPORT_FAILED;
    }
    return AD_IMPORT_DONE;
}

/* Checks the flags that the tensor cannot express. */
static inline ad_import_result
check_meaning(ad_state *state, PyObject *object, const ad_type_slot *slot,
              ad_dl_dtype dtype)
{
    if (dtype.code == AD_DL_COMPLEX) {
        /* torch's table exports conjugate views without their flag;
         * __dlpack__, which comes next, reports it. */
        ad_raise_exchange(state, "conjugate", NULL,
                          "complex tensors are not taken from the exchange "
                          "API, which ignores the conjugate bit");
        return AD_IMPORT_REFUSED;
    }
    if (slot->has_gradient && ad_dlpack_may_have_flags(dtype)) {
        return ad_dlpack_check_flags(state, object, slot, false);
    }
    return AD_IMPORT_DONE;
}

/* The current stream of the library of this table. *out is not given if memory
 * of this device is exchanged without streams, or there is no stream. Returns
 * 0, or -1 with an exception. */
static inline int
ask_stream(ad_state *state, const ad_dl_exchange_api *api, ad_device device,
           ad_stream_ref *out)
{
    uint32_t traits = ad_device_traits(device.type);
    void *stream = NULL;
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
    /* DLPack defines no streams for the types without such a trait: their data
     * count as ready. */
    if ((traits & AD_NO_STREAMS) ||
        !(traits & (AD_CUDA_STREAMS | AD_ROCM_STREAMS | AD_QUEUES))) {
        return 0;
    }
    int result =
        api->current_work_stream(device.type, (int32_t)device.id, &stream);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (result != 0) {
        ad_raise_exchange(state, "protocol", NULL,
                          "current_work_stream failed without an error");
        return -1;
    }
    /* NULL is the default stream, which has another number on CUDA. */
    if (stream == NULL) {
        (void)ad_default_stream(device, out);
    } else {
        *out = ad_stream_named((ad_context){device, NULL},
                               (ad_stream){(uintptr_t)stream}, NULL);
    }
    return 0;
}

int
ad_library_stream(ad_state *state, PyTypeObject *type, ad_device device,
                  ad_stream_ref *out)
{
    const ad_dl_exchange_api *api = NULL;
    PyObject *bases = ad_py_type_mro(type);
    for (Py_ssize_t i = 0;
         api == NULL && bases != NULL && i < PyTuple_GET_SIZE(bases); i++) {
        api = table_of(state, (PyTypeObject *)PyTuple_GET_ITEM(bases, i));
    }
    Py_XDECREF(bases);
    if (api == NULL) {
        return 0;
    }
    return ask_stream(state, api, device, out) < 0 ? -1
                                                   : ad_stream_is_given(out);
}

/* The current stream of the library, or the one that the caller states. */
static inline int
find_stream(ad_state *state, const ad_type_slot *slot,
            const ad_request *request, ad_device device, ad_stream_ref *out)
{
    if (!slot->ignores_streams ||
        (ad_device_traits(device.type) & AD_NO_STREAMS)) {
        return ask_stream(state, slot->exchange_api, device, out);
    }
    if (ad_dlpack_require_stream(state, slot, request, device) !=
        AD_IMPORT_DONE) {
        return -1;
    }
    return ad_choose_stream(state, &request->stream, device, NULL, out);
}

/* The API does not synchronize: work may be pending on the producer's current
 * stream. */
static ad_import_result
note_stream(ad_state *state, const ad_type_slot *slot,
            const ad_request *request, ad_device device, ad_owner *owner,
            ad_sync **sync)
{
    ad_error err;
    ad_stream_ref producer;
    if (device.type == ARROW_DEVICE_CPU ||
        request->stream.kind == AD_STREAM_OFF) {
        return AD_IMPORT_DONE;
    }
    if (find_stream(state, slot, request, device, &producer) < 0) {
        return slot->ignores_streams ? AD_IMPORT_FAILED
                                     : ad_import_exception(state);
    }
    ad_status status = ad_stream_is_given(&producer)
                           ? ad_pending_on(device, &producer, sync, &err)
                           : AD_OK;
    ad_stream_ref_clear(&producer);
    if (status == AD_OK && !slot->ignores_streams && *sync != NULL &&
        (*sync)->is_own) {
        ad_device_owner_set_producer(owner, &(*sync)->on);
    }
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

static ad_import_result
exchange_import(const ad_protocol *self, ad_state *state, PyObject *object,
                const ad_type_slot *slot, const ad_request *request,
                ad_imported *out)
{
    ad_array *array = &out->array;
    ad_tensor *tensor = &out->tensor.tensor;
    ad_dl_managed_versioned *managed;
    ad_error err;
    ad_import_result result =
        fetch(state, object, slot->exchange_api, &managed);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    ad_dl_dtype dtype = managed->dl_tensor.dtype;
    out->is_array =
        request->wants_column && ad_dlpack_take_column(managed, &out->array);
    if (!out->is_array &&
        ad_dlpack_take(managed, true, &out->tensor, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    result = check_meaning(state, object, slot, dtype);
    if (result == AD_IMPORT_DONE) {
        result = out->is_array
                     ? note_stream(state, slot, request, array->memory.device,
                                   array->memory.owner, &array->memory.sync)
                     : note_stream(state, slot, request, tensor->memory.device,
                                   tensor->memory.owner, &tensor->memory.sync);
    }
    if (result != AD_IMPORT_DONE) {
        ad_imported_clear(out);
        return result;
    }
    return out->is_array ? AD_IMPORT_DONE
                         : ad_dlpack_check_copy(state, request, &out->tensor);
}

/* --- export to a class of another library -------------------------------- */

/* The library uses the data on its current stream. For a library without one
 * the host waits, unless the stream of the caller waits already. */
static int
order_library(ad_state *state, const ad_type_slot *slot,
              const ad_tensor *tensor, bool has_stream)
{
    static const char what[] = "the C exchange API of another library";
    ad_error err;
    ad_status status = AD_OK;
    ad_stream_ref consumer = {.kind = AD_REF_NONE};
    if (slot->ignores_streams && has_stream) {
        return 0;
    }
    if (!slot->ignores_streams &&
        ask_stream(state, slot->exchange_api, tensor->memory.device,
                   &consumer) < 0) {
        return -1;
    }
    if (ad_stream_is_given(&consumer)) {
        status = ad_use(&tensor->memory, &consumer, what, &err);
    } else {
        status = ad_sync_wait(tensor->memory.sync, what, &err);
    }
    return ad_raise_status(state, status, &err);
}

PyObject *
ad_dlpack_exchange_into(ad_state *state, const ad_type_slot *slot,
                        const ad_tensor *tensor, bool has_stream)
{
    const ad_dl_exchange_api *api = slot->exchange_api;
    ad_error err;
    void *managed = NULL;
    void *object = NULL;
    if (!ad_is_plain(&tensor->memory) &&
        order_library(state, slot, tensor, has_stream) < 0) {
        return NULL;
    }
    if (ad_dlpack_give(tensor, true, false, &managed, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    if (ad_dlpack_hand_over(api->managed_tensor_to_py_object_no_sync, managed,
                            &object) == 0) {
        return object;
    }
    if (!PyErr_Occurred() || !ad_exception_is_final(state)) {
        ad_raise_exchange(state, "refused",
                          tensor->memory.device.type == ARROW_DEVICE_CPU
                              ? NULL
                              : "bring the data to the host with .to(\"cpu\")",
                          "the class refused a tensor through its DLPack "
                          "exchange API");
    }
    return NULL;
}

/* --- our own table ------------------------------------------------------- */

/* The tensor of an arbitrary object, for a consumer that uses the stream that
 * current_work_stream below returns. NULL with an exception. */
static const ad_tensor *
tensor_for_consumer(PyObject *object)
{
    ad_error err;
    ad_state *state = ad_state_current();
    if (state == NULL) {
        return NULL;
    }
    if (!ad_is_tensor(state, object)) {
        state = ad_state_of_tensor_type(Py_TYPE(object));
    }
    if (state == NULL) {
        PyErr_Format(PyExc_TypeError,
                     "expected an arrowdev.Tensor, not %.200s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    const ad_tensor *tensor = ad_tensor_of(object);
    if (!ad_is_plain(&tensor->memory) &&
        ad_use_on_thread(&tensor->memory, "the DLPack exchange API", &err) !=
            AD_OK) {
        ad_raise(ad_state_current(), &err);
        return NULL;
    }
    return tensor;
}

static int
managed_from_py(void *py_object, ad_dl_managed_versioned **out)
{
    ad_error err;
    void *managed = NULL;
    const ad_tensor *tensor = tensor_for_consumer(py_object);
    *out = NULL;
    if (tensor == NULL) {
        return -1;
    }
    if (ad_dlpack_give(tensor, true, false, &managed, &err) != AD_OK) {
        ad_raise(ad_state_current(), &err);
        return -1;
    }
    *out = managed;
    return 0;
}

static int
tensor_from_py(void *py_object, ad_dl_tensor *out)
{
    ad_error err;
    const ad_tensor *tensor = tensor_for_consumer(py_object);
    if (tensor == NULL) {
        return -1;
    }
    if (ad_dlpack_view(tensor, out, &err) != AD_OK) {
        ad_raise(ad_state_current(), &err);
        return -1;
    }
    return 0;
}

/* The stream that current_work_stream returns. */
static bool
stream_of_thread(ad_device device, ad_stream_ref *out)
{
    return ad_stream_current(device, out) || ad_default_stream(device, out);
}

/* If streams are queues, there is no default stream that both sides share. */
static ad_status
fail_no_queue(ad_device device, const char *what, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(
        err, device, "stream",
        "do it inside `with arrowdev.use_stream(queue):`",
        "%s on %s through the DLPack exchange API, and this thread has "
        "no current queue there",
        what, ad_device_format(device, name));
}

/* Takes the tensor; its producer used the stream of current_work_stream. */
static ad_status
take_pending(ad_dl_managed_versioned *managed, ad_tensor_value *out,
             ad_error *err)
{
    ad_stream_ref producer;
    ad_tensor *tensor = &out->tensor;
    AD_RETURN_IF_ERR(ad_dlpack_take(managed, true, out, err));
    uint32_t traits = ad_device_traits(tensor->memory.device.type);
    ad_status status = AD_OK;
    if (traits & AD_NO_STREAMS) {
        return AD_OK;
    }
    if (stream_of_thread(tensor->memory.device, &producer)) {
        status = ad_pending_on(tensor->memory.device, &producer,
                               &tensor->memory.sync, err);
    } else if (traits & AD_QUEUES) {
        status =
            fail_no_queue(tensor->memory.device,
                          "work may be pending on data that come in", err);
    }
    if (status != AD_OK) {
        ad_tensor_clear(tensor);
    }
    return status;
}

int
ad_dlpack_to_py(ad_dl_managed_versioned *managed, void **out_py_object)
{
    ad_error err;
    ad_tensor_value value;
    ad_state *state = ad_state_current();
    *out_py_object = NULL;
    if (state == NULL) {
        /* The contract steals the tensor even on failure. */
        ad_dlpack_delete(managed, true);
        return -1;
    }
    if (take_pending(managed, &value, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    *out_py_object = ad_tensor_object_new(state, &value.tensor);
    return *out_py_object != NULL ? 0 : -1;
}

/* Memory that the consumer may write on the stream of current_work_stream. */
static ad_status
allocate_on_device(ad_device device, int64_t nbytes, ad_tensor *tensor,
                   ad_error *err)
{
    const struct ad_backend *backend;
    ad_context primary;
    ad_stream_ref stream;
    AD_RETURN_IF_ERR(ad_backend_open(device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->primary_context(device, &primary, err));
    if (!stream_of_thread(device, &stream)) {
        if (ad_device_traits(device.type) & AD_QUEUES) {
            return fail_no_queue(device, "memory was asked for", err);
        }
        AD_RETURN_IF_ERR(ad_stream_own(primary, AD_USE_WORK, &stream, err));
    }
    return ad_device_memory_new(primary, &stream, nbytes, &tensor->data,
                                &tensor->memory.owner, err);
}

static ad_status
allocate_on_host(int64_t nbytes, ad_tensor *tensor, ad_error *err)
{
    ad_host_block *memory = NULL;
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    tensor->data = memory->data;
    tensor->memory.owner = &memory->base;
    return AD_OK;
}

/* Allocates a row-major tensor of the prototype's shape, type and device. */
static ad_status
allocate(const ad_dl_tensor *prototype, void **out, ad_error *err)
{
    ad_tensor_value value;
    ad_tensor *tensor = &value.tensor;
    ad_tensor_descriptor descriptor = {
        .data = &value, /* not NULL; never read */
        .dtype = prototype->dtype,
        .ndim = prototype->ndim,
        .memory = {.device = {prototype->device.device_type,
                              prototype->device.device_id}},
        .shape = prototype->shape,
    };
    bool is_host = descriptor.memory.device.type == ARROW_DEVICE_CPU;
    if (is_host) {
        descriptor.memory.device = AD_CPU;
    }
    AD_RETURN_IF_ERR(ad_tensor_check(&descriptor, "prototype", &value, err));
    int64_t nbytes = ad_tensor_nbytes(tensor);
    if (is_host) {
        AD_RETURN_IF_ERR(allocate_on_host(nbytes, tensor, err));
    } else {
        AD_RETURN_IF_ERR(
            allocate_on_device(descriptor.memory.device, nbytes, tensor, err));
    }
    ad_status status = ad_dlpack_give(tensor, true, false, out, err);
    ad_tensor_clear(tensor);
    return status;
}

static int
managed_allocator(ad_dl_tensor *prototype, ad_dl_managed_versioned **out,
                  void *error_ctx,
                  void (*set_error)(void *error_ctx, const char *kind,
                                    const char *message))
{
    ad_error err;
    void *managed = NULL;
    *out = NULL;
    if (allocate(prototype, &managed, &err) != AD_OK) {
        if (set_error != NULL) {
            set_error(error_ctx,
                      err.status == AD_ERR_MEMORY ? "MemoryError"
                                                  : "BufferError",
                      err.message);
        }
        return -1;
    }
    *out = managed;
    return 0;
}

/* NULL means no stream on the CPU, and the default stream elsewhere. */
static int
current_work_stream(int32_t device_type, int32_t device_id, void **out_stream)
{
    ad_device device = {device_type, device_id};
    ad_stream_ref current;
    *out_stream =
        device_type != ARROW_DEVICE_CPU && ad_stream_current(device, &current)
            ? (void *)current.stream.handle
            : NULL;
    return 0;
}

static const ad_dl_exchange_api exchange_api = {
    .header = {.version = {AD_DL_MAJOR, AD_DL_MINOR}},
    .managed_tensor_allocator = managed_allocator,
    .managed_tensor_from_py_object_no_sync = managed_from_py,
    .managed_tensor_to_py_object_no_sync = ad_dlpack_to_py,
    .dltensor_from_py_object_no_sync = tensor_from_py,
    .current_work_stream = current_work_stream,
};

int
ad_dlpack_exchange_init(ad_state *state)
{
    state->exchange_api_capsule =
        PyCapsule_New((void *)&exchange_api, CAPSULE_NAME, NULL);
    return state->exchange_api_capsule != NULL ? 0 : -1;
}

const ad_protocol ad_protocol_dlpack_exchange = {
    .name = "__dlpack_c_exchange_api__",
    .attribute = -1,
    .probe = probe,
    .import = exchange_import,
};
