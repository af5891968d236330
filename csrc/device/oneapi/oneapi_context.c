#include "device/oneapi/oneapi_context.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/dynlib.h"

/* --- the library --------------------------------------------------------- */

static const ad_symbol symbols[] = {
#define AD_SYCL(name, need, result, parameters)                               \
    {"DPCTL" #name, offsetof(struct ad_sycl_api, name), AD_##need},
#include "abi/sycl_api.def"
};

/* dpctl's package loads the library by path, so it is found by this name. */
static const char *const sonames[] = {"libDPCTLSyclInterface.so", NULL};

static const ad_library library = {
    .name = "oneapi",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
    .advice = "import dpctl first, which brings it",
};

struct ad_sycl_api ad_sycl;

static char library_path[AD_LIBRARY_PATH_SIZE];

struct root {
    ad_sycl_device device;
    bool has_usm;
    bool is_cpu;
    /* in dpctl's default context */
    _Atomic(struct ad_oneapi_context *) primary;
};

static struct root *roots;
static size_t n_roots;
static _Atomic(struct ad_oneapi_context *) contexts; /* only ever grows */

/* --- errors -------------------------------------------------------------- */

/* The last asynchronous error of arrowdev's own queues. Foreign queues report
 * to their creators. */
static atomic_int async_code;

static void
remember_async_error(int code)
{
    atomic_store(&async_code, code);
}

ad_status
ad_oneapi_fail_call(ad_error *err, int64_t id, const char *call)
{
    int code = atomic_exchange(&async_code, 0);
    return ad_fail_device(err, (ad_device){ARROW_DEVICE_ONEAPI, id}, call,
                          code,
                          code != 0 ? "what SYCL reported last"
                                    : "dpctl keeps the reason to itself",
                          "set DPCTL_VERBOSITY=error in the environment to "
                          "see SYCL's own message on stderr");
}

/* --- devices ------------------------------------------------------------- */

static ad_status
list_roots(ad_error *err)
{
    ad_sycl_devices all = ad_sycl.DeviceMgr_GetDevices(AD_SYCL_ALL_DEVICES);
    if (all == NULL) {
        return ad_oneapi_fail_call(err, -1, "DPCTLDeviceMgr_GetDevices");
    }
    ad_status status = AD_OK;
    size_t n = ad_sycl.DeviceVector_Size(all);
    roots = calloc(n > 0 ? n : 1, sizeof(*roots));
    if (roots == NULL) {
        status = ad_fail_memory(err, n * sizeof(*roots));
    }
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        roots[i].device = ad_sycl.DeviceVector_GetAt(all, i);
        if (roots[i].device == NULL) {
            status = ad_oneapi_fail_call(err, (int64_t)i,
                                         "DPCTLDeviceVector_GetAt");
            break;
        }
        roots[i].has_usm =
            ad_sycl.Device_HasAspect(roots[i].device, AD_SYCL_HAS_USM_DEVICE);
        roots[i].is_cpu =
            ad_sycl.Device_HasAspect(roots[i].device, AD_SYCL_IS_CPU);
        n_roots = i + 1;
    }
    ad_sycl.DeviceVector_Delete(all);
    return status;
}

/* Frees what a failed load has left. */
static void
reset(void)
{
    for (size_t i = 0; i < n_roots; i++) {
        ad_sycl.Device_Delete(roots[i].device);
    }
    free(roots);
    roots = NULL;
    n_roots = 0;
}

ad_status
ad_oneapi_load(ad_error *err)
{
    reset();
    AD_RETURN_IF_ERR(ad_library_load(&library, &ad_sycl, library_path, err));
    return list_roots(err);
}

bool
ad_oneapi_is_cpu(int64_t id)
{
    return id >= 0 && (size_t)id < n_roots && roots[id].is_cpu;
}

static ad_status
find_root(ad_device device, struct root **out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_check_id(
        device, "SYCL", n_roots,
        n_roots == 0
            ? "see that a driver is installed: dpctl.get_devices() is empty "
              "too"
            : "see dpctl.get_devices(); the number is the index there",
        err));
    *out = &roots[device.id];
    return AD_OK;
}

ad_status
ad_oneapi_describe(char *buffer, size_t size, ad_error *err)
{
    const char *version = ad_sycl.Service_GetDPCPPVersion != NULL
                              ? ad_sycl.Service_GetDPCPPVersion()
                              : NULL;
    snprintf(buffer, size, "%s (DPC++ %s)", library_path,
             version != NULL ? version : "of an unknown version");
    if (version != NULL) {
        ad_sycl.CString_Delete(version);
    }
    return AD_OK;
}

ad_status
ad_oneapi_count(int64_t *out, ad_error *err)
{
    *out = (int64_t)n_roots;
    return AD_OK;
}

ad_status
ad_oneapi_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(
        find_root((ad_device){ARROW_DEVICE_ONEAPI, id}, &root, err));
    const char *name = ad_sycl.Device_GetName(root->device);
    if (name == NULL) {
        return ad_oneapi_fail_call(err, id, "DPCTLDevice_GetName");
    }
    snprintf(buffer, size, "%s", name);
    ad_sycl.CString_Delete(name);
    return AD_OK;
}

ad_status
ad_oneapi_fail_no_usm(ad_device device, ad_error *err)
{
    return ad_fail_on(err, device, "device",
                      "choose another of dpctl.get_devices()",
                      "this SYCL device has no unified shared memory");
}

ad_status
ad_oneapi_device_usable(int64_t id, ad_error *err)
{
    const ad_device device = {ARROW_DEVICE_ONEAPI, id};
    struct root *root;
    AD_RETURN_IF_ERR(find_root(device, &root, err));
    return root->has_usm ? AD_OK : ad_oneapi_fail_no_usm(device, err);
}

int64_t
ad_oneapi_index(ad_sycl_device device)
{
    for (size_t i = 0; i < n_roots; i++) {
        if (ad_sycl.Device_AreEq(device, roots[i].device)) {
            return (int64_t)i;
        }
    }
    ad_sycl_device parent = ad_sycl.Device_GetParentDevice != NULL
                                ? ad_sycl.Device_GetParentDevice(device)
                                : NULL;
    if (parent == NULL) {
        return -1;
    }
    int64_t index = ad_oneapi_index(parent);
    ad_sycl.Device_Delete(parent);
    return index;
}

/* --- contexts ------------------------------------------------------------ */

static struct ad_oneapi_context *
search_contexts(struct ad_oneapi_context *from, ad_sycl_context handle,
                int64_t id)
{
    struct ad_oneapi_context *sycl_context = from;
    while (sycl_context != NULL &&
           (sycl_context->id != id ||
            !ad_sycl.Context_AreEq(sycl_context->handle, handle))) {
        sycl_context = sycl_context->next;
    }
    return sycl_context;
}

/* The only entry of this context and device. Takes over both handles on
 * success. Lock-free: a thread that loses the race searches the added
 * entries. */
static ad_status
find_entry(ad_sycl_context handle, ad_sycl_device device, int64_t id,
           struct ad_oneapi_context **out, ad_error *err)
{
    struct ad_oneapi_context *head = atomic_load(&contexts);
    struct ad_oneapi_context *found = search_contexts(head, handle, id);
    struct ad_oneapi_context *sycl_context = NULL;
    if (found == NULL) {
        sycl_context = calloc(1, sizeof(*sycl_context));
        if (sycl_context == NULL) {
            return ad_fail_memory(err, sizeof(*sycl_context));
        }
        sycl_context->handle = handle;
        sycl_context->device = device;
        sycl_context->id = id;
        sycl_context->has_usm = roots[id].has_usm;
        sycl_context->is_cpu =
            roots[id].is_cpu && ad_sycl.Queue_SubmitNDRange != NULL;
    }
    while (found == NULL) {
        sycl_context->next = head;
        if (atomic_compare_exchange_weak(&contexts, &head, sycl_context)) {
            *out = sycl_context;
            return AD_OK;
        }
        found = search_contexts(head, handle, id);
    }
    free(sycl_context);
    ad_sycl.Context_Delete(handle);
    ad_sycl.Device_Delete(device);
    *out = found;
    return AD_OK;
}

ad_status
ad_oneapi_primary_context(ad_device device, struct ad_oneapi_context **out,
                          ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(find_root(device, &root, err));
    *out = atomic_load(&root->primary);
    if (*out != NULL) {
        return AD_OK;
    }
    ad_sycl_context handle = ad_sycl.DeviceMgr_GetCachedContext(root->device);
    ad_sycl_device copy = ad_sycl.Device_Copy(root->device);
    ad_status status =
        handle == NULL || copy == NULL
            ? ad_oneapi_fail_call(err, device.id,
                                  "DPCTLDeviceMgr_GetCachedContext")
            : find_entry(handle, copy, device.id, out, err);
    if (status == AD_OK) {
        atomic_store(&root->primary, *out);
        return AD_OK;
    }
    if (handle != NULL) {
        ad_sycl.Context_Delete(handle);
    }
    if (copy != NULL) {
        ad_sycl.Device_Delete(copy);
    }
    return status;
}

struct ad_oneapi_context *
ad_oneapi_contexts(void)
{
    for (size_t i = 0; i < n_roots; i++) {
        const ad_device device = {ARROW_DEVICE_ONEAPI, (int64_t)i};
        struct ad_oneapi_context *unused;
        /* Where this fails, no library has memory. */
        if (ad_oneapi_primary_context(device, &unused, NULL) != AD_OK) {
            continue;
        }
    }
    return atomic_load(&contexts);
}

ad_status
ad_oneapi_context(ad_context context, struct ad_oneapi_context **out,
                  ad_error *err)
{
    if (context.handle == NULL) {
        return ad_oneapi_primary_context(context.device, out, err);
    }
    *out = context.handle;
    return AD_OK;
}

/* --- queues -------------------------------------------------------------- */

static void
forget_queue(void *queue)
{
    ad_sycl.Queue_Delete(queue);
}

/* Copies of queue handles, which share the queue and keep it alive. They serve
 * to find a queue's context by its hash alone, and to wait for all queues. The
 * hash is an address, which is not reused while the copy lives. */
static ad_queue_registry registry = {
    .forget = forget_queue,
    .finish = ad_oneapi_finish_queue,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static void
register_queue(ad_sycl_queue queue, size_t hash,
               struct ad_oneapi_context *sycl_context, bool is_own)
{
    const ad_queue_entry added = {
        .queue = ad_sycl.Queue_Copy(queue),
        .key = hash,
        .id = sycl_context->id,
        .where = sycl_context,
        .is_own = is_own,
    };
    if (added.queue != NULL) {
        ad_queue_registry_add(&registry, &added);
    }
}

static ad_status
ask_queue(ad_sycl_queue queue, struct ad_oneapi_context **out, ad_error *err)
{
    ad_sycl_device device = ad_sycl.Queue_GetDevice(queue);
    ad_sycl_context handle = ad_sycl.Queue_GetContext(queue);
    ad_status status;
    int64_t id = device != NULL ? ad_oneapi_index(device) : -1;
    if (device == NULL || handle == NULL) {
        status = ad_oneapi_fail_call(err, -1, "DPCTLQueue_GetDevice");
    } else if (id < 0) {
        status = ad_fail(err, AD_ERR_EXCHANGE, "stream",
                         "make the queue for one of dpctl.get_devices()",
                         "the queue's device is none that SYCL lists");
    } else {
        status = find_entry(handle, device, id, out, err);
    }
    if (status != AD_OK) {
        if (device != NULL) {
            ad_sycl.Device_Delete(device);
        }
        if (handle != NULL) {
            ad_sycl.Context_Delete(handle);
        }
    }
    return status;
}

ad_status
ad_oneapi_queue_context(ad_sycl_queue queue, struct ad_oneapi_context **out,
                        ad_error *err)
{
    void *sycl_context;
    size_t hash = ad_sycl.Queue_Hash(queue);
    if (ad_queue_registry_find(&registry, hash, &sycl_context)) {
        *out = sycl_context;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ask_queue(queue, out, err));
    register_queue(queue, hash, *out, false);
    return AD_OK;
}

ad_status
ad_oneapi_synchronize(ad_context context, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(find_root(context.device, &root, err));
    return ad_queue_registry_finish(&registry, context.device.id, err);
}

ad_status
ad_oneapi_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    struct ad_oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(ad_oneapi_context(context, &sycl_context, err));
    /* Without a handler an asynchronous error ends the process. */
    ad_sycl_queue queue =
        ad_sycl.Queue_Create(sycl_context->handle, sycl_context->device,
                             remember_async_error, AD_SYCL_IN_ORDER);
    if (queue == NULL) {
        return ad_oneapi_fail_call(err, sycl_context->id, "DPCTLQueue_Create");
    }
    register_queue(queue, ad_sycl.Queue_Hash(queue), sycl_context, true);
    out->handle = (uintptr_t)queue;
    return AD_OK;
}
