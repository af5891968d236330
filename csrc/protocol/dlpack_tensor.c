#include "protocol/dlpack_tensor.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "abi/arrow_c.h"
#include "base/wait.h"
#include "base/thread_local.h"
#include "order/device_owner.h"

/* --- import -------------------------------------------------------------- */

typedef struct managed_owner {
    ad_owner base;
    void *managed;
    bool is_versioned;
    ad_leaf leaf;
} managed_owner;

void
ad_dlpack_delete(void *managed, bool is_versioned)
{
    void *exception = ad_release_begin();
    ad_capsule_free(is_versioned ? AD_CAPSULE_DLPACK_VERSIONED
                                 : AD_CAPSULE_DLPACK,
                    managed);
    ad_release_end(exception);
}

static void
managed_destroy(ad_owner *base)
{
    managed_owner *owner = (managed_owner *)base;
    ad_dlpack_delete(owner->managed, owner->is_versioned);
    free(owner);
}

static void
managed_destroy_with_gil(ad_owner *base)
{
    managed_owner *owner = (managed_owner *)base;
    PyObject *exception = ad_py_take_exception();
    ad_capsule_free(owner->is_versioned ? AD_CAPSULE_DLPACK_VERSIONED
                                        : AD_CAPSULE_DLPACK,
                    owner->managed);
    ad_py_restore_exception(exception);
    free(owner);
}

static const ad_owner_ops managed_ops = {
    .destroy = managed_destroy,
    .destroy_with_gil = managed_destroy_with_gil,
    .leaf = offsetof(managed_owner, leaf),
    .name = "DLPack tensor",
};

static inline ad_device
device_of(const ad_dl_tensor *tensor)
{
    const ad_dl_device device = tensor->device;
    return device.device_type == ARROW_DEVICE_CPU
               ? AD_CPU
               : (ad_device){device.device_type, device.device_id};
}

/* The flag for padding says nothing about types of a byte or more. */
static uint32_t
tensor_flags(const ad_dl_managed_versioned *managed)
{
    uint64_t flags = managed->flags;
    bool is_padded = (flags & AD_DL_FLAG_SUBBYTE_PADDED) &&
                     managed->dl_tensor.dtype.bits < 8;
    return (flags & AD_DL_FLAG_IS_COPIED ? AD_TENSOR_COPIED : 0) |
           (is_padded ? AD_TENSOR_SUBBYTE_PADDED : 0);
}

static ad_status
check_managed(const void *pointer, bool is_versioned, ad_tensor_value *out,
              ad_error *err)
{
    const ad_dl_tensor *tensor;
    /* A legacy capsule has no flag for read-only memory, and jax, whose arrays
     * are immutable, exports only legacy capsules. */
    uint32_t flags = AD_TENSOR_IMMUTABLE;
    bool readonly = false;
    if (is_versioned) {
        const ad_dl_managed_versioned *managed = pointer;
        /* With another major version only the deleter may be used. */
        if (managed->version.major != AD_DL_MAJOR) {
            return ad_fail(err, AD_ERR_EXCHANGE, "version",
                           "use a version of the producing library that "
                           "speaks DLPack 1",
                           "found a tensor of DLPack %" PRIu32 ".%" PRIu32
                           ", expected major version %d",
                           managed->version.major, managed->version.minor,
                           AD_DL_MAJOR);
        }
        tensor = &managed->dl_tensor;
        flags = tensor_flags(managed);
        readonly = (managed->flags & AD_DL_FLAG_READ_ONLY) != 0;
    } else {
        tensor = &((const ad_dl_managed *)pointer)->dl_tensor;
    }
    ad_tensor_descriptor descriptor = {
        .data = tensor->data,
        .byte_offset = tensor->byte_offset,
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .flags = flags,
        .memory = {.device = device_of(tensor), .readonly = readonly},
        .shape = tensor->shape,
        .strides = tensor->strides,
    };
    return ad_tensor_check(&descriptor, "DLTensor", out, err);
}

static ad_owner *take_apart(void *managed);
static bool is_own(const void *managed, bool is_versioned);
static bool is_recorded(const void *managed, ad_device device);

ad_status
ad_dlpack_take(void *managed, bool is_versioned, ad_tensor_value *out,
               ad_error *err)
{
    ad_owner *owner;
    ad_status status = check_managed(managed, is_versioned, out, err);
    if (status == AD_OK && is_own(managed, is_versioned) &&
        is_recorded(managed, out->tensor.memory.device)) {
        out->tensor.memory.owner = take_apart(managed);
        return AD_OK;
    }
    if (status == AD_OK) {
        status = ad_device_owner_alloc(
            sizeof(managed_owner), &managed_ops,
            (ad_context){.device = out->tensor.memory.device}, NULL, &owner,
            &out->tensor.memory.owner, err);
    }
    if (status != AD_OK) {
        ad_dlpack_delete(managed, is_versioned);
        return status;
    }
    ((managed_owner *)owner)->managed = managed;
    ((managed_owner *)owner)->is_versioned = is_versioned;
    return AD_OK;
}

bool
ad_dlpack_take_column(ad_dl_managed_versioned *managed, ad_array *out)
{
    const ad_dl_tensor *tensor = &managed->dl_tensor;
    const ad_device device = device_of(tensor);
    ad_owner *inner, *owner;
    uintptr_t start;
    if (managed->version.major != AD_DL_MAJOR ||
        (managed->flags & ~AD_DL_FLAG_READ_ONLY) != 0 ||
        ad_device_uses_handles(device.type) || tensor->ndim != 1 ||
        tensor->shape == NULL || tensor->dtype.lanes != 1 ||
        is_own(managed, true)) {
        return false;
    }
    const ad_dtype_info *type = ad_dtype_find(tensor->dtype);
    int64_t n = tensor->shape[0];
    if (type == NULL || type->extension != AD_DTYPE_NONE ||
        (tensor->strides != NULL && tensor->strides[0] != 1 && n != 1) ||
        !ad_is_run(tensor->data, tensor->byte_offset, n,
                   tensor->dtype.bits / 8, &start)) {
        return false;
    }
    if (ad_device_owner_alloc(sizeof(managed_owner), &managed_ops,
                              (ad_context){.device = device}, NULL, &inner,
                              &owner, NULL) != AD_OK) {
        return false; /* the caller tries in another way, and reports */
    }
    ((managed_owner *)inner)->managed = managed;
    ((managed_owner *)inner)->is_versioned = true;
    ad_array_of_leaf((ad_memory){owner, NULL, device, managed->flags != 0},
                     ad_schema_primitive(type->arrow).node,
                     (const void *)start, n, out);
    return true;
}

/* --- export -------------------------------------------------------------- */

/* One block per export; the managed tensor comes first, so that the deleter
 * gets the block. */
typedef struct export_block {
    union {
        ad_dl_managed legacy;
        ad_dl_managed_versioned versioned;
    } managed;
    ad_owner *owner;
    ad_sync *sync;
    int64_t dims[]; /* shape, then strides */
} export_block;

/* The block that this thread is handing over; NULL once it is freed. */
typedef struct hand_over {
    const void *block;
    struct hand_over *outer;
} hand_over;

static AD_THREAD_LOCAL hand_over *handed_over;

static void
free_block(export_block *block)
{
    for (hand_over *at = handed_over; at != NULL; at = at->outer) {
        if (at->block == block) {
            at->block = NULL;
        }
    }
    ad_owner *owner = block->owner;
    ad_sync *sync = block->sync;
    free(block);
    ad_sync_unref(sync);
    ad_owner_unref(owner);
}

static void
delete_legacy(ad_dl_managed *managed)
{
    free_block((export_block *)managed);
}

static void
delete_versioned(ad_dl_managed_versioned *managed)
{
    free_block((export_block *)managed);
}

/* False for a tensor of another copy of this library. */
static bool
is_own(const void *managed, bool is_versioned)
{
    return is_versioned
               ? ((const ad_dl_managed_versioned *)managed)->deleter ==
                     delete_versioned
               : ((const ad_dl_managed *)managed)->deleter == delete_legacy;
}

/* For a tensor with is_own(). False where a consumer has declared host memory
 * to be on a device: its owner records no use. */
static bool
is_recorded(const void *managed, ad_device device)
{
    return device.type == ARROW_DEVICE_CPU ||
           ad_owner_records(((const export_block *)managed)->owner);
}

/* Frees a tensor with is_own() and returns its owner. */
static ad_owner *
take_apart(void *managed)
{
    export_block *block = managed;
    ad_owner *owner = ad_owner_ref(block->owner);
    free_block(block);
    return owner;
}

static uint64_t
dlpack_flags(const ad_tensor *tensor, bool is_copy)
{
    return (ad_tensor_is_readonly(tensor) ? AD_DL_FLAG_READ_ONLY : 0) |
           (is_copy ? AD_DL_FLAG_IS_COPIED : 0) |
           (tensor->flags & AD_TENSOR_SUBBYTE_PADDED
                ? AD_DL_FLAG_SUBBYTE_PADDED
                : 0);
}

/* Refuses tensors that a consumer without flags would misinterpret. */
static ad_status
check_flagless(const ad_tensor *tensor, ad_error *err)
{
    char name[AD_DTYPE_NAME_SIZE];
    if (tensor->memory.readonly) {
        return ad_fail(err, AD_ERR_EXCHANGE, "readonly",
                       "ask for max_version=(1, 0) or later, or say that the "
                       "memory may be written with ad.tensor(x, "
                       "readonly=False)",
                       "the memory is read-only, and the consumer asked for "
                       "a form of DLPack that cannot say so");
    }
    if (tensor->flags & AD_TENSOR_SUBBYTE_PADDED) {
        ad_fail(err, AD_ERR_EXCHANGE, "dtype", "ask for max_version=(1, 3)",
                "elements of %s stand in whole bytes, and the consumer asked "
                "for a form of DLPack that cannot say so",
                ad_dtype_format(tensor->dtype, name));
        ad_error_dtype(err, name);
        return AD_ERR_EXCHANGE;
    }
    return AD_OK;
}

ad_status
ad_dlpack_device(ad_device device, ad_dl_device *out, ad_error *err)
{
    int64_t id = ad_device_dlpack_id(device);
    if (id < 0 || id > INT32_MAX) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_fail_on(
            err, device, "device",
            "name the device when you import, as in device=\"cuda:0\"",
            "DLPack needs the id of the device, and that of %s is %s",
            ad_device_format(device, name),
            id < 0 ? "not known" : "too large");
    }
    out->device_type = device.type;
    out->device_id = (int32_t)id;
    return AD_OK;
}

/* Where the consumer looks the allocation up, `data` is the lowest address
 * that negative strides reach, and byte_offset leads to the first element.
 * dpnp refuses strides that reach below `data`. */
static ad_status
fill_tensor(const ad_tensor *tensor, int64_t *shape, int64_t *strides,
            ad_dl_tensor *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_tensor_require_size(tensor, err));
    AD_RETURN_IF_ERR(
        ad_dlpack_device(tensor->memory.device, &out->device, err));
    int64_t low = 0, high;
    if (ad_device_traits(tensor->memory.device.type) & AD_ALLOCATIONS) {
        ad_tensor_extent(tensor, &low, &high);
    }
    out->data = low < 0 ? (char *)tensor->data + low : tensor->data;
    out->ndim = tensor->ndim;
    out->dtype = tensor->dtype;
    out->shape = tensor->ndim > 0 ? shape : NULL;
    out->strides = tensor->ndim > 0 ? strides : NULL;
    out->byte_offset = tensor->byte_offset - (uint64_t)low;
    return AD_OK;
}

ad_status
ad_dlpack_view(const ad_tensor *tensor, ad_dl_tensor *out, ad_error *err)
{
    if (tensor->memory.readonly ||
        (tensor->flags & AD_TENSOR_SUBBYTE_PADDED)) {
        AD_RETURN_IF_ERR(check_flagless(tensor, err));
    }
    return fill_tensor(tensor, tensor->shape, tensor->strides, out, err);
}

ad_status
ad_dlpack_give(const ad_tensor *tensor, bool is_versioned, bool is_copy,
               void **out, ad_error *err)
{
    int32_t ndim = tensor->ndim;
    if (!is_versioned) {
        AD_RETURN_IF_ERR(check_flagless(tensor, err));
    }
    export_block *block =
        malloc(sizeof(*block) + 2 * (size_t)ndim * sizeof(block->dims[0]));
    if (block == NULL) {
        return ad_fail_memory(err, sizeof(*block));
    }
    ad_dl_tensor *view;
    if (is_versioned) {
        ad_dl_managed_versioned *managed = &block->managed.versioned;
        managed->version = (ad_dl_version){AD_DL_MAJOR, AD_DL_MINOR};
        managed->manager_ctx = NULL;
        managed->deleter = delete_versioned;
        managed->flags = dlpack_flags(tensor, is_copy);
        view = &managed->dl_tensor;
    } else {
        block->managed.legacy.manager_ctx = NULL;
        block->managed.legacy.deleter = delete_legacy;
        view = &block->managed.legacy.dl_tensor;
    }
    ad_status status =
        fill_tensor(tensor, block->dims, block->dims + ndim, view, err);
    if (status != AD_OK) {
        free(block);
        return status;
    }
    for (int32_t i = 0; i < ndim; i++) {
        view->shape[i] = tensor->shape[i];
        view->strides[i] = tensor->strides[i];
    }
    block->owner = ad_owner_ref(tensor->memory.owner);
    block->sync = ad_sync_ref(tensor->memory.sync);
    *out = block;
    return AD_OK;
}

int
ad_dlpack_hand_over(ad_dl_to_py_fn to_py, void *managed, void **object)
{
    hand_over frame = {managed, handed_over};
    handed_over = &frame;
    *object = NULL;
    bool is_stolen = to_py(managed, object) == 0 && *object != NULL;
    bool failed = !is_stolen || PyErr_Occurred() != NULL;
    if (failed) {
        Py_XDECREF((PyObject *)*object); /* may free the block */
        *object = NULL;
    }
    handed_over = frame.outer;
    if (!is_stolen && frame.block != NULL) {
        /* torch's function steals on success only. */
        ad_dlpack_delete(managed, true);
    }
    return failed ? -1 : 0;
}

/* --- flags of a producer's object ---------------------------------------- */

/* The attributes of the type as a tuple; NULL, without an exception, if one is
 * missing. */
static PyObject *
find_descriptors(ad_state *state, PyTypeObject *type)
{
    const int names[] = {AD_STR_requires_grad, AD_STR_is_neg, AD_STR_is_conj};
    PyObject *found = PyTuple_New(3);
    for (int i = 0; found != NULL && i < 3; i++) {
        PyObject *value = NULL;
        if (ad_py_lookup_attr((PyObject *)type, state->strings[names[i]],
                              &value) > 0) {
            PyTuple_SET_ITEM(found, i, value);
        } else {
            Py_CLEAR(found);
        }
    }
    PyErr_Clear();
    return found;
}

/* Are they written in C, so that what they return does not depend on the
 * instance's dict or on another look-up? */
static bool
are_plain(PyObject *descriptors, PyTypeObject *type)
{
    bool result = true;
    for (int i = 0; i < 3; i++) {
        PyObject *d = PyTuple_GET_ITEM(descriptors, i);
        result = result &&
                 Py_IS_TYPE(d, i == 0 ? &PyGetSetDescr_Type
                                      : &PyMethodDescr_Type) &&
                 PyType_IsSubtype(type, PyDescr_TYPE(d));
    }
    return result;
}

static bool
are_same(PyObject *a, PyObject *b)
{
    return memcmp(&PyTuple_GET_ITEM(a, 0), &PyTuple_GET_ITEM(b, 0),
                  3 * sizeof(PyObject *)) == 0;
}

void
ad_dlpack_probe(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    PyObject *gradient = NULL;
    (void)ad_py_lookup_attr((PyObject *)type,
                            state->strings[AD_STR_requires_grad], &gradient);
    PyErr_Clear();
    slot->has_gradient = gradient != NULL;
    Py_XDECREF(gradient);
    PyObject *found = find_descriptors(state, type);
    slot->has_torch_flags = found != NULL;
    slot->has_torch_descriptors = false;
    if (found != NULL && are_plain(found, type)) {
        PyObject *known = ad_py_once(&state->torch_descriptors);
        if (known == NULL) {
            known =
                ad_py_set_once(&state->torch_descriptors, Py_NewRef(found));
        }
        slot->has_torch_descriptors = are_same(found, known);
    }
    Py_XDECREF(found);
    slot->has_tensorflow_dtype = ad_is_subclass(type, "tensorflow", "Tensor");
    slot->has_borrowed_memory =
        ad_is_subclass(type, "onnxruntime", "OrtValue");
    /* cuda-core (1.2) has no current stream: the table always says NULL, and
     * __dlpack__ makes no stream wait. */
    slot->ignores_streams =
        ad_is_subclass(type, "cuda.core", "StridedMemoryView") ||
        ad_is_subclass(type, "cuda.core", "Buffer");
}

ad_import_result
ad_dlpack_require_stream(ad_state *state, const ad_type_slot *slot,
                         const ad_request *request, ad_device device)
{
    if (!slot->ignores_streams || ad_request_stream(request, device) != NULL) {
        return AD_IMPORT_DONE;
    }
    ad_raise_exchange(state, "stream",
                      "pass the stream on which the data are ready as "
                      "stream=, or synchronize and pass stream=-1",
                      "work may be pending on the data, and %.200s does not "
                      "say on which stream",
                      slot->type->tp_name);
    return AD_IMPORT_FAILED;
}

bool
ad_dlpack_may_have_flags(ad_dl_dtype dtype)
{
    /* Integers cannot require a gradient or be conjugate; the negative bit of
     * integers needs a private function of torch. */
    return dtype.code != AD_DL_INT && dtype.code != AD_DL_UINT &&
           dtype.code != AD_DL_BOOL && dtype.code != AD_DL_OPAQUE;
}

/* The value of an attribute, or of a call of it. `descriptor` is the type's, or
 * NULL: then it is looked up. NULL without an exception: there is none. */
static PyObject *
read_flag(PyObject *object, PyObject *name, bool is_method,
          PyObject *descriptor)
{
    PyObject *value;
    if (descriptor != NULL) {
        return is_method ? PyObject_Vectorcall(descriptor, &object, 1, NULL)
                         : Py_TYPE(descriptor)
                               ->tp_descr_get(descriptor, object,
                                              (PyObject *)Py_TYPE(object));
    }
    if (is_method) {
        return PyObject_CallMethodNoArgs(object, name);
    }
    (void)ad_py_lookup_attr(object, name, &value);
    return value;
}

/* 1 true, 0 false or absent, -1 error. */
static inline int
is_true(PyObject *value)
{
    if (value == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}

ad_import_result
ad_dlpack_check_flags(ad_state *state, PyObject *object,
                      const ad_type_slot *slot, bool may_be_conjugate)
{
    static const struct {
        int name;
        bool is_method;
        const char *reason;
        const char *hint;
        const char *message;
    } flags[] = {
        {AD_STR_requires_grad, false, "requires_grad", "pass x.detach()",
         "requires a gradient, which would be lost"},
        {AD_STR_is_neg, true, "negative", "pass x.resolve_neg()",
         "has its negative bit set, so its memory holds other numbers"},
        {AD_STR_is_conj, true, "conjugate", "pass x.resolve_conj()",
         "has its conjugate bit set, so its memory holds other numbers"},
    };
    size_t n = !slot->has_torch_flags ? 1 : may_be_conjugate ? 3 : 2;
    for (size_t i = 0; i < n; i++) {
        int is_set = is_true(read_flag(
            object, state->strings[flags[i].name], flags[i].is_method,
            slot->has_torch_descriptors
                ? PyTuple_GET_ITEM(state->torch_descriptors, i)
                : NULL));
        if (is_set < 0) {
            return ad_import_exception(state);
        }
        if (is_set > 0) {
            ad_raise_exchange(state, flags[i].reason, flags[i].hint,
                              "%.200s %s", Py_TYPE(object)->tp_name,
                              flags[i].message);
            return AD_IMPORT_FAILED;
        }
    }
    return AD_IMPORT_DONE;
}

/* --- copies -------------------------------------------------------------- */

ad_import_result
ad_dlpack_check_copy(ad_state *state, const ad_request *request,
                     ad_tensor_value *value)
{
    if (request->copy == AD_COPY_IF_NEEDED) {
        return AD_IMPORT_DONE;
    }
    if (request->copy == AD_COPY_NEVER &&
        (value->tensor.flags & AD_TENSOR_COPIED)) {
        ad_tensor_clear(&value->tensor);
        ad_raise_exchange(state, "copy", "allow it with copy=None",
                          "the producer made a copy although copy=False was "
                          "asked for");
        return AD_IMPORT_REFUSED;
    }
    /* If arrowdev cannot copy, the producer of another protocol may. */
    return ad_finish_tensor(state, request, value) == AD_IMPORT_DONE
               ? AD_IMPORT_DONE
               : ad_import_exception(state);
}
