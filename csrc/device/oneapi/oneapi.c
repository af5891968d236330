/* oneAPI (SYCL) through libDPCTLSyclInterface.so, dpctl's C interface.
 *
 * SYCL differs from the other runtimes:
 *
 * - A queue is out of order unless it was created in order. A barrier waits
 *   for all earlier work on the queue and delays all later work. So a barrier
 *   precedes each command of this backend on a queue that needs one.
 * - Handles are the addresses of C++ values that share one object: two
 *   DPCTLSyclContextRefs may be one context. So a context's handle is a struct
 *   oneapi_context, of which there is one per context and device.
 * - Failed functions return NULL without a reason. Some let the C++ exception
 *   escape, which ends the process. Those are called only where they cannot
 *   fail (USM_GetPointerType, USM_GetPointerDevice, free_with_context), or not
 *   at all (Queue_Wait, malloc_host).
 * - There is no call that waits until the device is idle, see `synchronize`.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/arrow_c.h"
#include "abi/sycl_api.h"
#include "device/backend.h"
#include "device/dynlib.h"
#include "device/queue_registry.h"

/* --- the library --------------------------------------------------------- */

struct sycl_api {
#define AD_SYCL(name, need, result, parameters) result(*name) parameters;
#include "abi/sycl_api.def"
};

/* A context, and the device in it that receives the work. ad_context.handle
 * points to this struct. There is one per context and device; it lives as long
 * as the process. */
struct oneapi_context {
    struct oneapi_context *next;
    ad_sycl_context handle;
    ad_sycl_device device;
    int64_t id; /* of the root device */
    bool has_usm;
    bool is_cpu;
    atomic_bool kernels_failed;
    _Atomic(ad_sycl_kernel) kernels[AD_N_KERNELS];
};

static inline ad_context
as_context(struct oneapi_context *sycl_context)
{
    return (ad_context){{ARROW_DEVICE_ONEAPI, sycl_context->id}, sycl_context};
}

static const ad_symbol symbols[] = {
#define AD_SYCL(name, need, result, parameters)                               \
    {"DPCTL" #name, offsetof(struct sycl_api, name), AD_##need},
#include "abi/sycl_api.def"
};

/* dpctl's package loads the library by path, so it is found by this name. */
static const char *const sonames[] = {
    AD_LIBRARY_FILE("libDPCTLSyclInterface.so", "libDPCTLSyclInterface.dylib",
                    "DPCTLSyclInterface.dll"),
    NULL};

static const ad_library library = {
    .name = "oneapi",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
    .advice = "import dpctl first, which brings it",
};

/* Filled by oneapi_load. */
static struct sycl_api sycl;

static char library_path[AD_LIBRARY_PATH_SIZE];

struct root {
    ad_sycl_device device;
    bool has_usm;
    bool is_cpu;
    /* in dpctl's default context */
    _Atomic(struct oneapi_context *) primary;
};

static struct root *roots;
static size_t n_roots;
static _Atomic(struct oneapi_context *) contexts; /* only ever grows */

/* --- errors -------------------------------------------------------------- */

/* The last asynchronous error of arrowdev's own queues. Foreign queues report
 * to their creators. */
static atomic_int async_code;

static void
remember_async_error(int code)
{
    atomic_store(&async_code, code);
}

/* Fail for a call that returned NULL. dpctl does not give the reason. */
static ad_status
fail_call(ad_error *err, int64_t id, const char *call)
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
    ad_sycl_devices all = sycl.DeviceMgr_GetDevices(AD_SYCL_ALL_DEVICES);
    if (all == NULL) {
        return fail_call(err, -1, "DPCTLDeviceMgr_GetDevices");
    }
    ad_status status = AD_OK;
    size_t n = sycl.DeviceVector_Size(all);
    roots = calloc(n > 0 ? n : 1, sizeof(*roots));
    if (roots == NULL) {
        status = ad_fail_memory(err, n * sizeof(*roots));
    }
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        roots[i].device = sycl.DeviceVector_GetAt(all, i);
        if (roots[i].device == NULL) {
            status = fail_call(err, (int64_t)i, "DPCTLDeviceVector_GetAt");
            break;
        }
        roots[i].has_usm =
            sycl.Device_HasAspect(roots[i].device, AD_SYCL_HAS_USM_DEVICE);
        roots[i].is_cpu =
            sycl.Device_HasAspect(roots[i].device, AD_SYCL_IS_CPU);
        n_roots = i + 1;
    }
    sycl.DeviceVector_Delete(all);
    return status;
}

/* Frees what a failed load has left. */
static void
reset(void)
{
    for (size_t i = 0; i < n_roots; i++) {
        sycl.Device_Delete(roots[i].device);
    }
    free(roots);
    roots = NULL;
    n_roots = 0;
}

static ad_status
oneapi_load(ad_error *err)
{
    reset();
    AD_RETURN_IF_ERR(ad_library_load(&library, &sycl, library_path, err));
    return list_roots(err);
}

static bool
oneapi_is_cpu(int64_t id)
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

/* Slots of the backend. The root devices are in dpctl's order, so an id is the
 * one that dpctl and dpnp give as __dlpack_device__()[1]. */
static ad_status
oneapi_describe(char *buffer, size_t size, ad_error *err)
{
    const char *version = sycl.Service_GetDPCPPVersion != NULL
                              ? sycl.Service_GetDPCPPVersion()
                              : NULL;
    snprintf(buffer, size, "%s (DPC++ %s)", library_path,
             version != NULL ? version : "of an unknown version");
    if (version != NULL) {
        sycl.CString_Delete(version);
    }
    return AD_OK;
}

static ad_status
oneapi_count(int64_t *out, ad_error *err)
{
    *out = (int64_t)n_roots;
    return AD_OK;
}

static ad_status
oneapi_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(
        find_root((ad_device){ARROW_DEVICE_ONEAPI, id}, &root, err));
    const char *name = sycl.Device_GetName(root->device);
    if (name == NULL) {
        return fail_call(err, id, "DPCTLDevice_GetName");
    }
    snprintf(buffer, size, "%s", name);
    sycl.CString_Delete(name);
    return AD_OK;
}

/* Fail: the device has no unified shared memory. */
static ad_status
fail_no_usm(ad_device device, ad_error *err)
{
    return ad_fail_on(err, device, "device",
                      "choose another of dpctl.get_devices()",
                      "this SYCL device has no unified shared memory");
}

static ad_status
oneapi_device_usable(int64_t id, ad_error *err)
{
    const ad_device device = {ARROW_DEVICE_ONEAPI, id};
    struct root *root;
    AD_RETURN_IF_ERR(find_root(device, &root, err));
    return root->has_usm ? AD_OK : fail_no_usm(device, err);
}

/* Index of a device, or of the root device of a sub-device. -1: none. */
static int64_t
index_of(ad_sycl_device device)
{
    for (size_t i = 0; i < n_roots; i++) {
        if (sycl.Device_AreEq(device, roots[i].device)) {
            return (int64_t)i;
        }
    }
    ad_sycl_device parent = sycl.Device_GetParentDevice != NULL
                                ? sycl.Device_GetParentDevice(device)
                                : NULL;
    if (parent == NULL) {
        return -1;
    }
    int64_t index = index_of(parent);
    sycl.Device_Delete(parent);
    return index;
}

/* --- contexts ------------------------------------------------------------ */

static struct oneapi_context *
search_contexts(struct oneapi_context *from, ad_sycl_context handle,
                int64_t id)
{
    struct oneapi_context *sycl_context = from;
    while (sycl_context != NULL &&
           (sycl_context->id != id ||
            !sycl.Context_AreEq(sycl_context->handle, handle))) {
        sycl_context = sycl_context->next;
    }
    return sycl_context;
}

/* The only entry of this context and device. Takes over both handles on
 * success. Lock-free: a thread that loses the race searches the added
 * entries. */
static ad_status
find_entry(ad_sycl_context handle, ad_sycl_device device, int64_t id,
           struct oneapi_context **out, ad_error *err)
{
    struct oneapi_context *head = atomic_load(&contexts);
    struct oneapi_context *found = search_contexts(head, handle, id);
    struct oneapi_context *sycl_context = NULL;
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
            roots[id].is_cpu && sycl.Queue_SubmitNDRange != NULL;
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
    sycl.Context_Delete(handle);
    sycl.Device_Delete(device);
    *out = found;
    return AD_OK;
}

/* The context for work that names only a device: dpctl's default context,
 * which dpnp's arrays are in. */
static ad_status
primary_entry(ad_device device, struct oneapi_context **out, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(find_root(device, &root, err));
    *out = atomic_load(&root->primary);
    if (*out != NULL) {
        return AD_OK;
    }
    ad_sycl_context handle = sycl.DeviceMgr_GetCachedContext(root->device);
    ad_sycl_device copy = sycl.Device_Copy(root->device);
    ad_status status =
        handle == NULL || copy == NULL
            ? fail_call(err, device.id, "DPCTLDeviceMgr_GetCachedContext")
            : find_entry(handle, copy, device.id, out, err);
    if (status == AD_OK) {
        atomic_store(&root->primary, *out);
        return AD_OK;
    }
    if (handle != NULL) {
        sycl.Context_Delete(handle);
    }
    if (copy != NULL) {
        sycl.Device_Delete(copy);
    }
    return status;
}

/* All entries, newest first, linked by `next`. The primary contexts are among
 * them, except of devices where SYCL cannot create one. */
static struct oneapi_context *
first_entry(void)
{
    for (size_t i = 0; i < n_roots; i++) {
        const ad_device device = {ARROW_DEVICE_ONEAPI, (int64_t)i};
        struct oneapi_context *unused;
        /* Where this fails, no library has memory. */
        if (primary_entry(device, &unused, NULL) != AD_OK) {
            continue;
        }
    }
    return atomic_load(&contexts);
}

/* The entry of a context. Without a handle: the primary context of its
 * device. */
static ad_status
entry_of(ad_context context, struct oneapi_context **out, ad_error *err)
{
    if (context.handle == NULL) {
        return primary_entry(context.device, out, err);
    }
    *out = context.handle;
    return AD_OK;
}

/* --- events -------------------------------------------------------------- */

static inline ad_sycl_queue
queue_of(ad_stream stream)
{
    return (ad_sycl_queue)stream.handle;
}

/* A queue is an address. A number that cannot be one is not dereferenced. */
static ad_status
check_queue(ad_stream stream, ad_device device, ad_error *err)
{
    return stream.handle >= 4096
               ? AD_OK
               : ad_fail_on(err, device, "stream",
                            "pass a dpctl.SyclQueue, or an object with "
                            ".sycl_queue",
                            "oneAPI has no streams with numbers");
}

/* The barrier that all ordering between queues is built from. */
static ad_status
submit_barrier(ad_context context, ad_sycl_queue queue, ad_sycl_event *event,
               ad_error *err)
{
    *event = sycl.Queue_SubmitBarrier(queue);
    return *event != NULL
               ? AD_OK
               : fail_call(err, context.device.id, "DPCTLQueue_SubmitBarrier");
}

static ad_status
oneapi_event_record(ad_context context, ad_stream stream, ad_event *event,
                    ad_error *err)
{
    ad_sycl_event barrier;
    AD_RETURN_IF_ERR(check_queue(stream, context.device, err));
    AD_RETURN_IF_ERR(submit_barrier(context, queue_of(stream), &barrier, err));
    event->handle = barrier;
    return AD_OK;
}

static ad_status
oneapi_stream_wait(ad_context context, ad_stream stream, ad_event event,
                   ad_error *err)
{
    AD_RETURN_IF_ERR(check_queue(stream, context.device, err));
    ad_sycl_event dependency = event.handle;
    ad_sycl_event barrier =
        sycl.Queue_SubmitBarrierForEvents(queue_of(stream), &dependency, 1);
    if (barrier == NULL) {
        return fail_call(err, context.device.id,
                         "DPCTLQueue_SubmitBarrierForEvents");
    }
    sycl.Event_Delete(barrier);
    return AD_OK;
}

/* Status 0 is "unknown": dpctl caught an exception. */
static ad_status
event_status(ad_context context, ad_sycl_event event, unsigned *out,
             ad_error *err)
{
    *out = sycl.Event_GetCommandExecutionStatus(event);
    return *out != AD_SYCL_UNKNOWN
               ? AD_OK
               : fail_call(err, context.device.id,
                           "DPCTLEvent_GetCommandExecutionStatus");
}

static ad_status
oneapi_event_query(ad_context context, ad_event event, bool *out,
                   ad_error *err)
{
    unsigned status;
    AD_RETURN_IF_ERR(event_status(context, event.handle, &status, err));
    *out = status == AD_SYCL_COMPLETE;
    return AD_OK;
}

/* Event_Wait does not report how the work ended. */
static ad_status
oneapi_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    unsigned status;
    sycl.Event_Wait(event.handle);
    AD_RETURN_IF_ERR(event_status(context, event.handle, &status, err));
    return status == AD_SYCL_COMPLETE
               ? AD_OK
               : fail_call(err, context.device.id, "DPCTLEvent_Wait");
}

static void
oneapi_event_destroy(ad_context context, ad_event event)
{
    sycl.Event_Delete(event.handle);
}

/* Wait for the work on a queue of the device `id`. Blocks. */
static ad_status
finish_queue(void *queue, int64_t id, ad_error *err)
{
    const ad_context context = {.device = {ARROW_DEVICE_ONEAPI, id}};
    ad_sycl_event barrier;
    AD_RETURN_IF_ERR(submit_barrier(context, queue, &barrier, err));
    ad_status status =
        oneapi_event_synchronize(context, (ad_event){.handle = barrier}, err);
    sycl.Event_Delete(barrier);
    return status;
}

/* --- queues -------------------------------------------------------------- */

static void
forget_queue(void *queue)
{
    sycl.Queue_Delete(queue);
}

/* Copies of queue handles, which share the queue and keep it alive. They serve
 * to find a queue's context by its hash alone, and to wait for all queues. The
 * hash is an address, which is not reused while the copy lives. */
static ad_queue_registry registry = {
    .forget = forget_queue,
    .finish = finish_queue,
    .lock = AD_MUTEX_INIT,
};

static void
register_queue(ad_sycl_queue queue, size_t hash,
               struct oneapi_context *sycl_context, bool is_own)
{
    const ad_queue_entry added = {
        .queue = sycl.Queue_Copy(queue),
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
ask_queue(ad_sycl_queue queue, struct oneapi_context **out, ad_error *err)
{
    ad_sycl_device device = sycl.Queue_GetDevice(queue);
    ad_sycl_context handle = sycl.Queue_GetContext(queue);
    ad_status status;
    int64_t id = device != NULL ? index_of(device) : -1;
    if (device == NULL || handle == NULL) {
        status = fail_call(err, -1, "DPCTLQueue_GetDevice");
    } else if (id < 0) {
        status = ad_fail(err, AD_ERR_EXCHANGE, "stream",
                         "make the queue for one of dpctl.get_devices()",
                         "the queue's device is none that SYCL lists");
    } else {
        status = find_entry(handle, device, id, out, err);
    }
    if (status != AD_OK) {
        if (device != NULL) {
            sycl.Device_Delete(device);
        }
        if (handle != NULL) {
            sycl.Context_Delete(handle);
        }
    }
    return status;
}

/* The context that a queue runs in. Registers the queue. */
static ad_status
entry_of_queue(ad_sycl_queue queue, struct oneapi_context **out, ad_error *err)
{
    void *sycl_context;
    size_t hash = sycl.Queue_Hash(queue);
    if (ad_queue_registry_find(&registry, hash, &sycl_context)) {
        *out = sycl_context;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ask_queue(queue, out, err));
    register_queue(queue, hash, *out, false);
    return AD_OK;
}

/* Slot of the backend. Waits for arrowdev's own queues on the device and for
 * its registered foreign ones. Work on other queues is not waited for, so the
 * backend lacks AD_CAP_CONTEXT_IDLE. */
static ad_status
oneapi_synchronize(ad_context context, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(find_root(context.device, &root, err));
    return ad_queue_registry_finish(&registry, context.device.id, err);
}

/* Slot of the backend. The queue is in order. */
static ad_status
oneapi_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    struct oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(entry_of(context, &sycl_context, err));
    /* Without a handler an asynchronous error ends the process. */
    ad_sycl_queue queue =
        sycl.Queue_Create(sycl_context->handle, sycl_context->device,
                          remember_async_error, AD_SYCL_IN_ORDER);
    if (queue == NULL) {
        return fail_call(err, sycl_context->id, "DPCTLQueue_Create");
    }
    register_queue(queue, sycl.Queue_Hash(queue), sycl_context, true);
    out->handle = (uintptr_t)queue;
    return AD_OK;
}

static ad_status
oneapi_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                      ad_error *err)
{
    struct oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(check_queue(stream, hint.device, err));
    AD_RETURN_IF_ERR(entry_of_queue(queue_of(stream), &sycl_context, err));
    *out = as_context(sycl_context);
    return ad_queue_check_device(out->device, hint.device, err);
}

static void
oneapi_stream_destroy(ad_context context, ad_stream stream)
{
    sycl.Queue_Delete(queue_of(stream));
}

/* stream_is_capturing stays NULL: SYCL's graphs can capture a queue, but dpctl
 * has no call for it. */

/* --- memory -------------------------------------------------------------- */

/* Does the pointer belong to this context? */
static bool
classify_in(const void *pointer, struct oneapi_context *sycl_context,
            ad_memory_info *out)
{
    static const ad_memory_kind kinds[] = {
        [AD_SYCL_USM_UNKNOWN] = AD_MEMORY_UNREGISTERED,
        [AD_SYCL_USM_DEVICE] = AD_MEMORY_DEVICE,
        [AD_SYCL_USM_SHARED] = AD_MEMORY_MANAGED,
        [AD_SYCL_USM_HOST] = AD_MEMORY_PINNED,
    };
    ad_sycl_usm usm = (ad_sycl_usm)(uintptr_t)pointer;
    /* The query throws on a device without USM. */
    unsigned type = sycl_context->has_usm
                        ? sycl.USM_GetPointerType(usm, sycl_context->handle)
                        : AD_SYCL_USM_UNKNOWN;
    if (type == AD_SYCL_USM_UNKNOWN || type > AD_SYCL_USM_HOST) {
        return false;
    }
    out->kind = kinds[type];
    out->context = as_context(sycl_context);
    out->host_accessible = type != AD_SYCL_USM_DEVICE;
    if (type != AD_SYCL_USM_HOST) {
        /* Several devices may share the context. */
        ad_sycl_device device =
            sycl.USM_GetPointerDevice(usm, sycl_context->handle);
        int64_t id = device != NULL ? index_of(device) : -1;
        if (id >= 0) {
            out->context.device.id = id;
        }
        if (device != NULL) {
            sycl.Device_Delete(device);
        }
    }
    return true;
}

static ad_status
oneapi_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                ad_error *err)
{
    struct oneapi_context *sycl_context = NULL;
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED};
    if (pointer == NULL) {
        return AD_OK;
    }
    if (hint.handle != NULL || hint.device.id >= 0) {
        AD_RETURN_IF_ERR(entry_of(hint, &sycl_context, err));
        if (classify_in(pointer, sycl_context, out)) {
            return AD_OK;
        }
    }
    for (sycl_context = first_entry(); sycl_context != NULL;
         sycl_context = sycl_context->next) {
        if (classify_in(pointer, sycl_context, out)) {
            break;
        }
    }
    return AD_OK;
}

static ad_status
oneapi_allocate(ad_context context, ad_stream stream, size_t nbytes,
                void **out, ad_error *err)
{
    struct oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(entry_of(context, &sycl_context, err));
    if (!sycl_context->has_usm) {
        return fail_no_usm(context.device, err);
    }
    *out = sycl.aligned_alloc_device(64, nbytes, queue_of(stream));
    if (*out == NULL) {
        return ad_fail_device_memory(err, context.device, nbytes);
    }
    return AD_OK;
}

/* OpenCL's free waits for the work that uses the memory. That work may follow
 * dpctl's host tasks, which wait for the interpreter. */
static void
oneapi_deallocate(ad_context context, ad_stream stream, void *data,
                  size_t nbytes)
{
    struct oneapi_context *sycl_context;
    /* The memory was allocated there, so the entry exists. */
    if (entry_of(context, &sycl_context, NULL) == AD_OK) {
        sycl.free_with_context(data, sycl_context->handle);
    }
}

/* Work submitted next runs after all work that is now on the queue. *after is
 * an event that it must depend on, or NULL if the queue's own order suffices.
 * A barrier alone does not suffice: SYCL does not delay a copy without
 * dependencies while the barrier itself waits for a host task, as dpctl's
 * are. */
static ad_status
keep_order(ad_context context, ad_sycl_queue queue, ad_sycl_event *after,
           ad_error *err)
{
    *after = NULL;
    return sycl.Queue_IsInOrder(queue)
               ? AD_OK
               : submit_barrier(context, queue, after, err);
}

static void
forget(ad_sycl_event event)
{
    if (event != NULL) {
        sycl.Event_Delete(event);
    }
}

/* `last` is the event of the previous copy, or NULL. It becomes the event of
 * this copy, which runs after the previous one on any queue. `after`: see
 * keep_order(). */
static ad_status
copy_run(ad_context context, ad_sycl_queue queue, char *target,
         const char *source, size_t nbytes, ad_sycl_event after,
         ad_sycl_event *last, ad_error *err)
{
    const ad_sycl_event both[] = {after, *last};
    size_t n = after == NULL ? 0 : *last == NULL ? 1 : 2;
    ad_sycl_event done =
        sycl.Queue_MemcpyWithEvents(queue, target, source, nbytes, both, n);
    if (done == NULL) {
        return fail_call(err, context.device.id,
                         "DPCTLQueue_MemcpyWithEvents");
    }
    forget(*last);
    *last = done;
    return AD_OK;
}

/* OpenCL for CPUs divides a copy into equal parts. 62,497 bytes, a prime
 * number, are copied one by one, in 40 times the time of 62,464. */
#define EVEN_BYTES 256

static ad_status
copy_row(ad_context context, ad_sycl_queue queue, char *target,
         const char *source, size_t nbytes, ad_sycl_event after,
         ad_sycl_event *last, ad_error *err)
{
    size_t uneven = nbytes % EVEN_BYTES;
    if (uneven > 0 && nbytes > 4 * EVEN_BYTES &&
        oneapi_is_cpu(context.device.id)) {
        nbytes -= uneven;
        AD_RETURN_IF_ERR(copy_run(context, queue, target + nbytes,
                                  source + nbytes, uneven, after, last, err));
    }
    return copy_run(context, queue, target, source, nbytes, after, last, err);
}

/* SYCL has pitched copies and dpctl does not: one copy per row. */
static ad_status
copy_rows(ad_context context, ad_sycl_queue queue, const ad_block_copy *copy,
          ad_sycl_event *last, ad_error *err)
{
    char *target = (char *)copy->target.data + copy->target.offset;
    const char *source = (const char *)copy->source.data + copy->source.offset;
    size_t width = copy->width;
    size_t height = copy->height;
    ad_sycl_event after;
    if (copy->target_pitch == width && copy->source_pitch == width) {
        width *= height;
        height = height > 0;
    }
    AD_RETURN_IF_ERR(keep_order(context, queue, &after, err));
    ad_status status = AD_OK;
    for (size_t row = 0; row < height && width > 0 && status == AD_OK; row++) {
        status = copy_row(context, queue, target + row * copy->target_pitch,
                          source + row * copy->source_pitch, width, after,
                          last, err);
    }
    forget(after);
    return status;
}

/* Takes over the event of the last work. Returns it if later work on the queue
 * runs after it, or if the host waits for it. Otherwise releases it and
 * returns NULL. */
static ad_sycl_event
keep_if_enough(ad_sycl_queue queue, bool host_waits, ad_sycl_event last)
{
    if (last != NULL && !host_waits && !sycl.Queue_IsInOrder(queue)) {
        forget(last);
        return NULL;
    }
    return last;
}

static ad_status
oneapi_copy_with_event(ad_context context, ad_stream stream,
                       const ad_block_copy *copy, bool host_waits,
                       ad_event *event, ad_error *err)
{
    ad_sycl_event last = NULL;
    ad_sycl_queue queue = queue_of(stream);
    ad_status status = copy_rows(context, queue, copy, &last, err);
    if (status != AD_OK) {
        forget(last);
        last = NULL;
    }
    event->handle = keep_if_enough(queue, host_waits, last);
    return status;
}

/* --- kernels ------------------------------------------------------------- */

static ad_status
fail_kernel(ad_error *err, struct oneapi_context *sycl_context)
{
    return ad_fail_on(err, as_context(sycl_context).device, "kernel",
                      "copy the data to the host (to(\"cpu\")) and do it "
                      "there; DPCTL_VERBOSITY=error shows why",
                      "the kernels cannot be built from OpenCL C for this "
                      "SYCL device");
}

/* Builds all kernels. A thread that loses the race deletes its own. */
static void
build_kernels(struct oneapi_context *sycl_context)
{
    if (sycl.KernelBundle_CreateFromOCLSource == NULL ||
        sycl.KernelBundle_GetKernel == NULL ||
        sycl.KernelBundle_Delete == NULL || sycl.Kernel_Delete == NULL ||
        sycl.Queue_SubmitRange == NULL) {
        atomic_store(&sycl_context->kernels_failed, true);
        return;
    }
    ad_sycl_bundle bundle = sycl.KernelBundle_CreateFromOCLSource(
        sycl_context->handle, sycl_context->device, ad_kernels_opencl,
        sycl_context->is_cpu ? AD_KERNELS_ON_PROCESSOR : "");
    for (int i = 0; i < AD_N_KERNELS && bundle != NULL; i++) {
        ad_sycl_kernel none = NULL;
        ad_sycl_kernel kernel =
            sycl.KernelBundle_GetKernel(bundle, ad_kernel_name((ad_kernel)i));
        if (kernel != NULL && !atomic_compare_exchange_strong(
                                  &sycl_context->kernels[i], &none, kernel)) {
            sycl.Kernel_Delete(kernel);
        }
    }
    if (bundle != NULL) {
        sycl.KernelBundle_Delete(bundle);
    }
    for (int i = 0; i < AD_N_KERNELS; i++) {
        if (atomic_load(&sycl_context->kernels[i]) == NULL) {
            atomic_store(&sycl_context->kernels_failed, true);
        }
    }
}

static ad_status
find_kernel(struct oneapi_context *sycl_context, ad_kernel which,
            ad_sycl_kernel *out, ad_error *err)
{
    *out = atomic_load(&sycl_context->kernels[which]);
    if (*out == NULL && !atomic_load(&sycl_context->kernels_failed)) {
        build_kernels(sycl_context);
        *out = atomic_load(&sycl_context->kernels[which]);
    }
    return *out != NULL ? AD_OK : fail_kernel(err, sycl_context);
}

static ad_status
run_kernel(ad_context context, ad_stream stream, const ad_launch *launch,
           ad_sycl_event *done, ad_error *err)
{
    struct oneapi_context *sycl_context;
    ad_sycl_kernel kernel;
    ad_sycl_event after;
    AD_RETURN_IF_ERR(entry_of(context, &sycl_context, err));
    AD_RETURN_IF_ERR(find_kernel(sycl_context, launch->kernel, &kernel, err));
    AD_RETURN_IF_ERR(keep_order(context, queue_of(stream), &after, err));

    ad_launch copy = *launch;
    int64_t *p = copy.numbers;
    /* Pointers are passed by value, numbers by address. */
    void *arguments[] = {
        copy.source.data,
        &copy.source.offset,
        copy.values.data,
        &copy.values.offset,
        copy.target.data,
        &copy.target.offset,
        &copy.bit_offset,
        &copy.length,
        &p[0],
        &p[1],
        &p[2],
        &p[3],
    };
    static const ad_sycl_arg_type types[] = {
        AD_SYCL_ARG_POINTER, AD_SYCL_ARG_INT64,   AD_SYCL_ARG_POINTER,
        AD_SYCL_ARG_INT64,   AD_SYCL_ARG_POINTER, AD_SYCL_ARG_INT64,
        AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64,
        AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64};
    const size_t n = sizeof(types) / sizeof(types[0]);
    const size_t range[3] = {(size_t)launch->n_items, 1, 1};
    static const size_t one[3] = {1, 1, 1};
    const size_t n_after = after != NULL;
    *done = sycl_context->is_cpu
                ? sycl.Queue_SubmitNDRange(kernel, queue_of(stream), arguments,
                                           types, n, range, one, 1, &after,
                                           n_after)
                : sycl.Queue_SubmitRange(kernel, queue_of(stream), arguments,
                                         types, n, range, 1, &after, n_after);
    forget(after);
    return *done != NULL
               ? AD_OK
               : fail_call(err, sycl_context->id,
                           sycl_context->is_cpu ? "DPCTLQueue_SubmitNDRange"
                                                : "DPCTLQueue_SubmitRange");
}

static ad_status
oneapi_launch_with_event(ad_context context, ad_stream stream,
                         const ad_launch *launch, ad_event *event,
                         ad_error *err)
{
    ad_sycl_event done;
    AD_RETURN_IF_ERR(run_kernel(context, stream, launch, &done, err));
    event->handle = keep_if_enough(queue_of(stream), false, done);
    return AD_OK;
}

/* --- the runtime --------------------------------------------------------- */

static ad_status
oneapi_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    struct oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(primary_entry(device, &sycl_context, err));
    *out = as_context(sycl_context);
    return AD_OK;
}

const struct ad_backend ad_backend_oneapi = {
    .name = "oneapi",
    .device_types = (const int32_t[]){ARROW_DEVICE_ONEAPI, 0},
    .capabilities = AD_CAP_SYNC_EVENT_IS_HANDLE | AD_CAP_COPY_BY_ROW |
                    AD_CAP_WORK_HAS_EVENT | AD_CAP_WAIT_HELPS,
    .load = oneapi_load,
    .describe = oneapi_describe,
    .count = oneapi_count,
    .device_name = oneapi_device_name,
    .device_usable = oneapi_device_usable,
    .runs_on_host = oneapi_is_cpu,
    .primary_context = oneapi_primary_context,
    .synchronize = oneapi_synchronize,
    .classify = oneapi_classify,
    .allocate = oneapi_allocate,
    .deallocate = oneapi_deallocate,
    .copy_with_event = oneapi_copy_with_event,
    .launch_with_event = oneapi_launch_with_event,
    .stream_context = oneapi_stream_context,
    .stream_create = oneapi_stream_create,
    .stream_destroy = oneapi_stream_destroy,
    .stream_wait = oneapi_stream_wait,
    .event_record = oneapi_event_record,
    .event_query = oneapi_event_query,
    .event_synchronize = oneapi_event_synchronize,
    .event_destroy = oneapi_event_destroy,
};
