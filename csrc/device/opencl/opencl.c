/* OpenCL, with the handles of its C interface.
 *
 * OpenCL differs from the other runtimes:
 *
 * - Memory is a cl_mem, which allows no pointer arithmetic. Every call takes
 *   an offset beside it. SVM has addresses, see below.
 * - A cl_mem, a queue and an event work together only within one cl_context,
 *   and a device may have many contexts. A stand-in event of the queue's
 *   context replaces an event of another one. The core copies between contexts
 *   through the host.
 * - Work may not begin before clFlush. This backend flushes the queue after
 *   each event that it records, and the queue of each foreign event.
 * - All objects are reference-counted: memory, events and queues may be
 *   released while work on them is pending.
 * - A queue may be out of order. arrowdev's work is then placed between
 *   barriers.
 * - There is no call that waits until the device is idle, see `synchronize`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/arrow_c.h"
#include "abi/opencl_api.h"
#include "base/os.h"
#include "device/backend.h"
#include "device/dynlib.h"
#include "device/queue_registry.h"

/* --- the library --------------------------------------------------------- */

struct cl_api {
#define AD_CL(name, result, parameters) result(*name) parameters;
#include "abi/opencl_api.def"
};

/* One device in one context. Entries are kept for the life of the process,
 * like the queues and kernels that arrowdev has in them. */
struct opencl_context {
    struct opencl_context *next;
    ad_cl_context handle;
    ad_cl_device device; /* may be a sub-device of the device */
    int64_t id;
    bool has_svm;
    bool is_cpu;
    _Atomic(ad_cl_program) program; /* the kernels, NULL until built */
};

static inline ad_context
as_context(const struct opencl_context *cl_context)
{
    return (ad_context){{ARROW_DEVICE_OPENCL, cl_context->id},
                        cl_context->handle};
}

static const ad_symbol symbols[] = {
#define AD_CL(name, result, parameters)                                       \
    {"cl" #name, offsetof(struct cl_api, name), AD_REQUIRED},
#include "abi/opencl_api.def"
};

static const char *const sonames[] = {
    AD_LIBRARY_FILE("libOpenCL.so.1",
                    "/System/Library/Frameworks/OpenCL.framework/OpenCL",
                    "OpenCL.dll"),
    NULL};

static const ad_library library = {
    .name = "opencl",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

/* Filled by opencl_load. */
static struct cl_api cl;

static char library_path[AD_LIBRARY_PATH_SIZE];

struct platform {
    ad_cl_platform handle;
    ad_cl_device *devices;
    uint32_t n_devices;
    _Atomic(ad_cl_context) context; /* arrowdev's own, NULL until created */
};

struct root {
    ad_cl_device device;
    struct platform *platform;
    bool is_cpu;
    _Atomic(struct opencl_context *) primary;
};

/* Written once by load, read-only afterwards. */
static struct platform *platforms;
static uint32_t n_platforms;
static struct root *roots;
static size_t n_roots;
static uintptr_t *tables; /* dispatch tables; see is_object */
static size_t n_tables;

static _Atomic(struct opencl_context *) contexts; /* only ever grows */

/* --- errors -------------------------------------------------------------- */

static const char *
error_name(int32_t code)
{
    switch (code) {
#define AD_CL_ERROR(name, number)                                             \
    case number:                                                              \
        return "CL_" #name;
#include "abi/opencl_errors.def"
        default:
            return NULL;
    }
}

/* ad_fail_device with the name of OpenCL's error number. */
static ad_status
fail_call(ad_error *err, int64_t id, const char *call, int32_t code)
{
    return ad_fail_device(err, (ad_device){ARROW_DEVICE_OPENCL, id}, call,
                          code, error_name(code), NULL);
}

/* Return from a function that owns nothing if an OpenCL call failed. */
#define RETURN_IF_ERR(err, id, call, expression)                              \
    do {                                                                      \
        int32_t ad_code_ = (expression);                                      \
        if (ad_code_ != AD_CL_SUCCESS) {                                      \
            return fail_call(err, id, call, ad_code_);                        \
        }                                                                     \
    } while (0)

/* Call the function cl<name>, and return from a function that owns nothing if
 * it failed. */
#define TRY(err, id, name, ...)                                               \
    RETURN_IF_ERR(err, id, "cl" #name, cl.name(__VA_ARGS__))

/* --- handles and pointers ------------------------------------------------ */

/* The memory may be foreign, so the sanitizers must not check this read. */
__attribute__((no_sanitize("address", "thread"))) static uintptr_t
first_word(const void *pointer)
{
    return *(const volatile uintptr_t *)pointer;
}

static bool
is_table(uintptr_t word)
{
    for (size_t i = 0; i < n_tables; i++) {
        if (tables[i] == word) {
            return true;
        }
    }
    return false;
}

/* Is this number an OpenCL handle? Safe for any number: it is dereferenced
 * only where that cannot fault. Every object begins with the address of its
 * platform's dispatch table, by which libOpenCL.so.1 finds the functions. */
static bool
is_object(const void *pointer)
{
    return pointer != NULL && (uintptr_t)pointer % sizeof(void *) == 0 &&
           ad_os_can_read_word(pointer) && is_table(first_word(pointer));
}

/* Is it the address of an SVM allocation in this context? OpenCL has no query
 * for a pointer. But a buffer created over a host pointer tells whether that
 * is SVM, for any pointer, and creating it does not access the memory. */
static bool
is_svm(const struct opencl_context *cl_context, const void *pointer)
{
    int32_t code;
    uint32_t answer = 0;
    if (!cl_context->has_svm || !ad_os_can_read_word(pointer)) {
        return false;
    }
    ad_cl_mem probe = cl.CreateBuffer(
        cl_context->handle, AD_CL_MEM_USE_HOST_PTR, 1, (void *)pointer, &code);
    if (probe == NULL) {
        return false;
    }
    code = cl.GetMemObjectInfo(probe, AD_CL_MEM_USES_SVM_POINTER,
                               sizeof(answer), &answer, NULL);
    (void)cl.ReleaseMemObject(probe);
    return code == AD_CL_SUCCESS && answer != 0;
}

/* --- loading ------------------------------------------------------------- */

static ad_status
fail_no_devices(ad_error *err, const char *what)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "runtime",
                   "install an OpenCL driver; its .icd file goes to "
                   "/etc/OpenCL/vendors",
                   "%s was loaded, and found no OpenCL %s", library_path,
                   what);
}

static ad_status
list_platforms(ad_error *err)
{
    enum {
        NOT_FOUND_KHR = -1001
    };
    uint32_t n = 0;
    int32_t code = cl.GetPlatformIDs(0, NULL, &n);
    if (code == NOT_FOUND_KHR || (code == AD_CL_SUCCESS && n == 0)) {
        return fail_no_devices(err, "platform");
    }
    RETURN_IF_ERR(err, -1, "clGetPlatformIDs", code);
    ad_cl_platform *handles = calloc(n, sizeof(handles[0]));
    platforms = calloc(n, sizeof(platforms[0]));
    if (handles == NULL || platforms == NULL) {
        free(handles);
        return ad_fail_memory(err, n * sizeof(platforms[0]));
    }
    code = cl.GetPlatformIDs(n, handles, NULL);
    for (uint32_t i = 0; i < n; i++) {
        platforms[i].handle = handles[i];
    }
    free(handles);
    n_platforms = n;
    return code == AD_CL_SUCCESS
               ? AD_OK
               : fail_call(err, -1, "clGetPlatformIDs", code);
}

/* A platform that cannot list its devices (for example a driver without
 * hardware) does not prevent the use of the others. *code keeps its error. */
static ad_status
list_devices(struct platform *platform, int32_t *code, ad_error *err)
{
    enum {
        DEVICE_NOT_FOUND = -1
    };
    uint32_t n = 0;
    int32_t result =
        cl.GetDeviceIDs(platform->handle, AD_CL_DEVICE_TYPE_ALL, 0, NULL, &n);
    if (result != AD_CL_SUCCESS || n == 0) {
        *code = result == DEVICE_NOT_FOUND ? *code : result;
        return AD_OK;
    }
    platform->devices = calloc(n, sizeof(platform->devices[0]));
    if (platform->devices == NULL) {
        return ad_fail_memory(err, n * sizeof(platform->devices[0]));
    }
    TRY(err, -1, GetDeviceIDs, platform->handle, AD_CL_DEVICE_TYPE_ALL, n,
        platform->devices, NULL);
    platform->n_devices = n;
    n_roots += n;
    return AD_OK;
}

/* The platforms and devices of one driver share one dispatch table. A loader
 * that manages objects may give each kind of object its own. */
static void
add_table(const void *object)
{
    uintptr_t word = first_word(object);
    if (!is_table(word)) {
        tables[n_tables++] = word;
    }
}

/* A device that does not report its type counts as no CPU: only speed depends
 * on it. */
static bool
is_processor(ad_cl_device device)
{
    uint64_t type = 0;
    return cl.GetDeviceInfo(device, AD_CL_DEVICE_TYPE, sizeof(type), &type,
                            NULL) == AD_CL_SUCCESS &&
           (type & AD_CL_DEVICE_TYPE_CPU) != 0;
}

static ad_status
list_roots(ad_error *err)
{
    size_t n = 0;
    int32_t code = AD_CL_SUCCESS;
    for (uint32_t i = 0; i < n_platforms; i++) {
        AD_RETURN_IF_ERR(list_devices(&platforms[i], &code, err));
    }
    if (n_roots == 0) {
        RETURN_IF_ERR(err, -1, "clGetDeviceIDs", code);
        return fail_no_devices(err, "device");
    }
    roots = calloc(n_roots, sizeof(roots[0]));
    tables = calloc(n_platforms + n_roots, sizeof(tables[0]));
    if (roots == NULL || tables == NULL) {
        return ad_fail_memory(err, n_roots * sizeof(roots[0]));
    }
    for (uint32_t i = 0; i < n_platforms; i++) {
        add_table(platforms[i].handle);
        for (uint32_t j = 0; j < platforms[i].n_devices; j++) {
            roots[n].platform = &platforms[i];
            roots[n].is_cpu = is_processor(platforms[i].devices[j]);
            roots[n++].device = platforms[i].devices[j];
            add_table(platforms[i].devices[j]);
        }
    }
    return AD_OK;
}

/* Frees what a failed load has left. */
static void
reset(void)
{
    for (uint32_t i = 0; i < n_platforms; i++) {
        free(platforms[i].devices);
    }
    free(platforms);
    free(roots);
    free(tables);
    platforms = NULL;
    roots = NULL;
    tables = NULL;
    n_platforms = 0;
    n_roots = 0;
    n_tables = 0;
}

static ad_status
opencl_load(ad_error *err)
{
    reset();
    AD_RETURN_IF_ERR(ad_library_load(&library, &cl, library_path, err));
    AD_RETURN_IF_ERR(list_platforms(err));
    return list_roots(err);
}

/* --- devices ------------------------------------------------------------- */

static ad_status
find_root(ad_device device, struct root **out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_check_id(
        device, "OpenCL", n_roots,
        "the number counts the devices of all platforms, in the order of "
        "clGetPlatformIDs and clGetDeviceIDs; python -m arrowdev doctor "
        "lists them",
        err));
    *out = &roots[device.id];
    return AD_OK;
}

/* "Portable Computing Language, OpenCL 3.0 PoCL 3.1; ..." */
static ad_status
list_names(char *buffer, size_t size, ad_error *err)
{
    char name[128];
    char version[128];
    size_t used = 0;
    buffer[0] = '\0';
    for (uint32_t i = 0; i < n_platforms && used < size; i++) {
        TRY(err, -1, GetPlatformInfo, platforms[i].handle, AD_CL_PLATFORM_NAME,
            sizeof(name), name, NULL);
        TRY(err, -1, GetPlatformInfo, platforms[i].handle,
            AD_CL_PLATFORM_VERSION, sizeof(version), version, NULL);
        used += (size_t)snprintf(buffer + used, size - used, "%s%s, %s",
                                 i > 0 ? "; " : "", name, version);
    }
    return AD_OK;
}

/* Slots of the backend. The devices are all those of all platforms, as
 * clGetPlatformIDs and clGetDeviceIDs list them. */
static ad_status
opencl_describe(char *buffer, size_t size, ad_error *err)
{
    char names[512];
    AD_RETURN_IF_ERR(list_names(names, sizeof(names), err));
    snprintf(buffer, size, "%s (%s)", library_path, names);
    return AD_OK;
}

static ad_status
opencl_count(int64_t *out, ad_error *err)
{
    *out = (int64_t)n_roots;
    return AD_OK;
}

static ad_status
opencl_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    char name[256];
    struct root *root;
    AD_RETURN_IF_ERR(
        find_root((ad_device){ARROW_DEVICE_OPENCL, id}, &root, err));
    TRY(err, id, GetDeviceInfo, root->device, AD_CL_DEVICE_NAME, sizeof(name),
        name, NULL);
    snprintf(buffer, size, "%s", name);
    return AD_OK;
}

static bool
opencl_is_cpu(int64_t id)
{
    return id >= 0 && (size_t)id < n_roots && roots[id].is_cpu;
}

/* -1: neither a listed device nor a sub-device of one. */
static int64_t
index_of(ad_cl_device device)
{
    ad_cl_device parent = NULL;
    for (size_t i = 0; i < n_roots; i++) {
        if (roots[i].device == device) {
            return (int64_t)i;
        }
    }
    int32_t code = cl.GetDeviceInfo(device, AD_CL_DEVICE_PARENT_DEVICE,
                                    sizeof(parent), &parent, NULL);
    return code == AD_CL_SUCCESS && parent != NULL ? index_of(parent) : -1;
}

/* --- contexts ------------------------------------------------------------ */

static struct opencl_context *
search_contexts(struct opencl_context *from, ad_cl_context handle,
                ad_cl_device device)
{
    struct opencl_context *cl_context = from;
    while (cl_context != NULL &&
           (cl_context->handle != handle || cl_context->device != device)) {
        cl_context = cl_context->next;
    }
    return cl_context;
}

/* All entries, linked by `next`. */
static struct opencl_context *
first_entry(void)
{
    return atomic_load(&contexts);
}

static ad_status
fill_context(struct opencl_context *cl_context, ad_cl_context handle,
             ad_cl_device device, ad_error *err)
{
    enum {
        INVALID_VALUE = -30
    };
    uint64_t svm = 0;
    cl_context->id = index_of(device);
    if (cl_context->id < 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "use a device of a platform that clGetPlatformIDs "
                       "lists",
                       "the OpenCL context is on a device that no platform "
                       "lists");
    }
    /* Before OpenCL 2 there is neither this query nor SVM. */
    int32_t code = cl.GetDeviceInfo(device, AD_CL_DEVICE_SVM_CAPABILITIES,
                                    sizeof(svm), &svm, NULL);
    RETURN_IF_ERR(err, cl_context->id, "clGetDeviceInfo",
                  code != INVALID_VALUE ? code : AD_CL_SUCCESS);
    cl_context->has_svm = code == AD_CL_SUCCESS && svm != 0;
    cl_context->is_cpu = opencl_is_cpu(cl_context->id);
    TRY(err, cl_context->id, RetainContext, handle);
    cl_context->handle = handle;
    cl_context->device = device;
    return AD_OK;
}

/* The entry of `device` in `handle`, created on first need. */
static ad_status
entry_of(ad_cl_context handle, ad_cl_device device,
         struct opencl_context **out, ad_error *err)
{
    struct opencl_context *head = atomic_load(&contexts);
    *out = search_contexts(head, handle, device);
    if (*out != NULL) {
        return AD_OK;
    }
    struct opencl_context *cl_context = calloc(1, sizeof(*cl_context));
    if (cl_context == NULL) {
        return ad_fail_memory(err, sizeof(*cl_context));
    }
    ad_status status = fill_context(cl_context, handle, device, err);
    if (status != AD_OK) {
        free(cl_context);
        return status;
    }
    cl_context->next = head;
    while (!atomic_compare_exchange_weak(&contexts, &cl_context->next,
                                         cl_context)) {
        /* Other threads added entries; one of those may be the same. */
        *out = search_contexts(cl_context->next, handle, device);
        if (*out != NULL) {
            (void)cl.ReleaseContext(handle);
            free(cl_context);
            return AD_OK;
        }
    }
    *out = cl_context;
    return AD_OK;
}

static ad_status
make_context(const struct platform *platform, const ad_cl_device *devices,
             uint32_t n, ad_cl_context *out, ad_error *err)
{
    const intptr_t properties[] = {AD_CL_CONTEXT_PLATFORM,
                                   (intptr_t)platform->handle, 0};
    int32_t code;
    *out = cl.CreateContext(properties, n, devices, NULL, NULL, &code);
    return *out != NULL ? AD_OK : fail_call(err, -1, "clCreateContext", code);
}

/* A thread that loses the race releases its own context. */
static ad_status
platform_context(struct platform *platform, ad_cl_context *out, ad_error *err)
{
    ad_cl_context known = atomic_load(&platform->context);
    if (known == NULL) {
        AD_RETURN_IF_ERR(make_context(platform, platform->devices,
                                      platform->n_devices, out, err));
        if (atomic_compare_exchange_strong(&platform->context, &known, *out)) {
            return AD_OK;
        }
        (void)cl.ReleaseContext(*out);
    }
    *out = known;
    return AD_OK;
}

/* The entry of arrowdev's own context on a device. One context holds all
 * devices of a platform, so copies between them are direct. */
static ad_status
primary_entry(ad_device device, struct opencl_context **out, ad_error *err)
{
    struct root *root;
    ad_cl_context handle;
    AD_RETURN_IF_ERR(find_root(device, &root, err));
    *out = atomic_load(&root->primary);
    if (*out != NULL) {
        return AD_OK;
    }
    if (platform_context(root->platform, &handle, NULL) == AD_OK) {
        AD_RETURN_IF_ERR(entry_of(handle, root->device, out, err));
    } else {
        /* One of the platform's devices is unavailable: use this device
         * alone. */
        AD_RETURN_IF_ERR(
            make_context(root->platform, &root->device, 1, &handle, err));
        ad_status status = entry_of(handle, root->device, out, err);
        (void)cl.ReleaseContext(handle);
        AD_RETURN_IF_ERR(status);
    }
    struct opencl_context *none = NULL;
    if (!atomic_compare_exchange_strong(&root->primary, &none, *out)) {
        *out = none;
    }
    return AD_OK;
}

/* *n is at least 1: there is no context without a device. */
static ad_status
context_devices(ad_cl_context handle, ad_cl_device **out, size_t *n,
                ad_error *err)
{
    size_t nbytes = 0;
    *out = NULL;
    *n = 0;
    TRY(err, -1, GetContextInfo, handle, AD_CL_CONTEXT_DEVICES, 0, NULL,
        &nbytes);
    *out = malloc(nbytes);
    if (*out == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    int32_t code =
        cl.GetContextInfo(handle, AD_CL_CONTEXT_DEVICES, nbytes, *out, NULL);
    if (code != AD_CL_SUCCESS) {
        free(*out);
        return fail_call(err, -1, "clGetContextInfo", code);
    }
    *n = nbytes / sizeof((*out)[0]);
    return AD_OK;
}

/* The entry of the device `id` in `handle`. If the context lacks that device,
 * or `id` is -1: the entry of its first device. */
static ad_status
entry_in(ad_cl_context handle, int64_t id, struct opencl_context **out,
         ad_error *err)
{
    ad_cl_device *devices;
    size_t n;
    struct opencl_context *cl_context = atomic_load(&contexts);
    while (cl_context != NULL &&
           (cl_context->handle != handle || cl_context->id != id)) {
        cl_context = cl_context->next;
    }
    if (cl_context != NULL) {
        *out = cl_context;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(context_devices(handle, &devices, &n, err));
    ad_cl_device chosen = devices[0];
    for (size_t i = 0; i < n && id >= 0; i++) {
        if (index_of(devices[i]) == id) {
            chosen = devices[i];
            break;
        }
    }
    free(devices);
    return entry_of(handle, chosen, out, err);
}

/* The entry of a context. Without a handle: the primary one. */
static ad_status
entry_at(ad_context context, struct opencl_context **out, ad_error *err)
{
    if (context.handle == NULL) {
        return primary_entry(context.device, out, err);
    }
    return entry_in(context.handle, context.device.id, out, err);
}

/* --- the queue registry -------------------------------------------------- */

static void
forget_queue(void *queue)
{
    (void)cl.ReleaseCommandQueue(queue);
}

static ad_status
finish_queue(void *queue, int64_t id, ad_error *err)
{
    TRY(err, id, Finish, queue);
    return AD_OK;
}

static ad_queue_registry registry = {
    .forget = forget_queue,
    .finish = finish_queue,
    .lock = AD_MUTEX_INIT,
};

static void
register_queue(ad_cl_queue queue, int64_t id, bool is_own)
{
    const ad_queue_entry added = {
        .queue = queue,
        .key = (uintptr_t)queue,
        .id = id,
        .is_own = is_own,
    };
    if (!ad_queue_registry_find(&registry, added.key, NULL) &&
        cl.RetainCommandQueue(queue) == AD_CL_SUCCESS) {
        ad_queue_registry_add(&registry, &added);
    }
}

/* Slot of the backend. Waits for arrowdev's own queues on the device and for
 * its registered foreign ones. Work on other queues is not waited for, so the
 * backend lacks AD_CAP_CONTEXT_IDLE. */
static ad_status
opencl_synchronize(ad_context context, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(find_root(context.device, &root, err));
    return ad_queue_registry_finish(&registry, context.device.id, err);
}

/* Properties of a queue. */
typedef struct opencl_queue {
    ad_cl_queue handle;
    struct opencl_context *cl_context;
    bool is_in_order;
} opencl_queue;

static inline ad_cl_queue
handle_of(ad_stream stream)
{
    return (ad_cl_queue)stream.handle;
}

enum {
    INVALID_COMMAND_QUEUE = -36,
    INVALID_EVENT = -58
};

/* A number that is not a handle must not be dereferenced. */
static ad_status
fail_handle(const void *handle, const char *what, int32_t code, ad_error *err)
{
    char subject[80];
    snprintf(subject, sizeof(subject), "%p is no %s of OpenCL's; using it",
             handle, what);
    fail_call(err, -1, subject, code);
    ad_error_hint(err, "pass the handle of a %s that is alive", what);
    return AD_ERR_DEVICE;
}

static ad_status
check_queue(ad_stream stream, ad_error *err)
{
    return is_object(handle_of(stream))
               ? AD_OK
               : fail_handle(handle_of(stream), "command queue",
                             INVALID_COMMAND_QUEUE, err);
}

static ad_status
check_event(ad_event event, ad_error *err)
{
    return is_object(event.handle)
               ? AD_OK
               : fail_handle(event.handle, "event", INVALID_EVENT, err);
}

/* --- queues -------------------------------------------------------------- */

/* Fails for a number that is not a queue. */
static ad_status
queue_of(ad_stream stream, opencl_queue *out, ad_error *err)
{
    ad_cl_context handle;
    ad_cl_device device;
    uint64_t properties;
    AD_RETURN_IF_ERR(check_queue(stream, err));
    out->handle = handle_of(stream);
    TRY(err, -1, GetCommandQueueInfo, out->handle, AD_CL_QUEUE_CONTEXT,
        sizeof(handle), &handle, NULL);
    TRY(err, -1, GetCommandQueueInfo, out->handle, AD_CL_QUEUE_DEVICE,
        sizeof(device), &device, NULL);
    TRY(err, -1, GetCommandQueueInfo, out->handle, AD_CL_QUEUE_PROPERTIES,
        sizeof(properties), &properties, NULL);
    /* A runtime that does not validate handles answers for other objects
     * too. */
    if (!is_object(handle) || !is_object(device)) {
        return fail_handle(out->handle, "command queue", INVALID_COMMAND_QUEUE,
                           err);
    }
    out->is_in_order =
        (properties & AD_CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    return entry_of(handle, device, &out->cl_context, err);
}

static ad_status
opencl_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                      ad_error *err)
{
    opencl_queue queue;
    AD_RETURN_IF_ERR(queue_of(stream, &queue, err));
    *out = as_context(queue.cl_context);
    AD_RETURN_IF_ERR(ad_queue_check_device(out->device, hint.device, err));
    register_queue(queue.handle, queue.cl_context->id, false);
    return AD_OK;
}

static ad_status
opencl_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    struct opencl_context *cl_context;
    int32_t code;
    AD_RETURN_IF_ERR(entry_at(context, &cl_context, err));
    ad_cl_queue queue = cl.CreateCommandQueue(cl_context->handle,
                                              cl_context->device, 0, &code);
    if (queue == NULL) {
        return fail_call(err, cl_context->id, "clCreateCommandQueue", code);
    }
    register_queue(queue, cl_context->id, true);
    out->handle = (uintptr_t)queue;
    return AD_OK;
}

static void
opencl_stream_destroy(ad_context context, ad_stream stream)
{
    (void)cl.ReleaseCommandQueue(handle_of(stream));
}

/* --- events -------------------------------------------------------------- */

/* A barrier rather than a marker: what the queue's user submits next may use
 * the result of our work, also on an out-of-order queue. */
static ad_status
opencl_event_record(ad_context context, ad_stream stream, ad_event *event,
                    ad_error *err)
{
    ad_cl_queue queue = handle_of(stream);
    ad_cl_event barrier;
    AD_RETURN_IF_ERR(check_queue(stream, err));
    TRY(err, context.device.id, EnqueueBarrierWithWaitList, queue, 0, NULL,
        &barrier);
    int32_t code = cl.Flush(queue);
    if (code != AD_CL_SUCCESS) {
        (void)cl.ReleaseEvent(barrier);
        return fail_call(err, context.device.id, "clFlush", code);
    }
    event->handle = barrier;
    return AD_OK;
}

/* Without a flush the work may never begin. A user event has no queue. */
static ad_status
flush_for(ad_context context, ad_cl_event event, ad_error *err)
{
    ad_cl_queue queue = NULL;
    TRY(err, context.device.id, GetEventInfo, event, AD_CL_EVENT_COMMAND_QUEUE,
        sizeof(queue), &queue, NULL);
    if (queue != NULL) {
        TRY(err, context.device.id, Flush, queue);
    }
    return AD_OK;
}

/* Callback on an event of another context: completes its stand-in. */
static void
pass_on(ad_cl_event event, int32_t status, void *stand_in)
{
    (void)cl.SetUserEventStatus(stand_in,
                                status < 0 ? status : AD_CL_COMPLETE);
    (void)cl.ReleaseEvent(stand_in);
}

static ad_status
make_stand_in(const opencl_queue *queue, ad_cl_event event, ad_cl_event *out,
              ad_error *err)
{
    int64_t id = queue->cl_context->id;
    int32_t code;
    *out = cl.CreateUserEvent(queue->cl_context->handle, &code);
    if (*out == NULL) {
        return fail_call(err, id, "clCreateUserEvent", code);
    }
    code = cl.RetainEvent(*out);
    if (code != AD_CL_SUCCESS) {
        (void)cl.ReleaseEvent(*out);
        return fail_call(err, id, "clRetainEvent", code);
    }
    code = cl.SetEventCallback(event, AD_CL_COMPLETE, pass_on, *out);
    if (code != AD_CL_SUCCESS) {
        (void)cl.ReleaseEvent(*out);
        (void)cl.ReleaseEvent(*out);
        return fail_call(err, id, "clSetEventCallback", code);
    }
    return AD_OK;
}

static ad_status
event_status(ad_context context, ad_event event, int32_t *out, ad_error *err)
{
    TRY(err, context.device.id, GetEventInfo, event.handle,
        AD_CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(*out), out, NULL);
    RETURN_IF_ERR(err, context.device.id, "the work that the event stands for",
                  *out < 0 ? *out : AD_CL_SUCCESS);
    return AD_OK;
}

/* An event of the queue's context that stands for `event`, which may belong to
 * another context or platform. NULL: the event is complete. The caller owns
 * the result. */
static ad_status
event_for(const opencl_queue *queue, ad_event event, ad_cl_event *out,
          ad_error *err)
{
    ad_context context = as_context(queue->cl_context);
    ad_cl_context handle;
    int32_t status;
    *out = NULL;
    /* A wait list may ignore an event that has already failed. */
    AD_RETURN_IF_ERR(event_status(context, event, &status, err));
    if (status == AD_CL_COMPLETE) {
        return AD_OK;
    }
    TRY(err, context.device.id, GetEventInfo, event.handle,
        AD_CL_EVENT_CONTEXT, sizeof(handle), &handle, NULL);
    AD_RETURN_IF_ERR(flush_for(context, event.handle, err));
    if (handle != queue->cl_context->handle) {
        return make_stand_in(queue, event.handle, out, err);
    }
    TRY(err, context.device.id, RetainEvent, event.handle);
    *out = event.handle;
    return AD_OK;
}

static ad_status
opencl_stream_wait(ad_context context, ad_stream stream, ad_event event,
                   ad_error *err)
{
    opencl_queue queue;
    ad_cl_event dependency;
    AD_RETURN_IF_ERR(check_event(event, err));
    AD_RETURN_IF_ERR(queue_of(stream, &queue, err));
    AD_RETURN_IF_ERR(event_for(&queue, event, &dependency, err));
    if (dependency == NULL) {
        return AD_OK;
    }
    int32_t code =
        cl.EnqueueBarrierWithWaitList(queue.handle, 1, &dependency, NULL);
    (void)cl.ReleaseEvent(dependency);
    RETURN_IF_ERR(err, queue.cl_context->id, "clEnqueueBarrierWithWaitList",
                  code);
    return AD_OK;
}

static ad_status
opencl_event_query(ad_context context, ad_event event, bool *out,
                   ad_error *err)
{
    int32_t status;
    AD_RETURN_IF_ERR(check_event(event, err));
    AD_RETURN_IF_ERR(event_status(context, event, &status, err));
    *out = status == AD_CL_COMPLETE;
    return status == AD_CL_QUEUED ? flush_for(context, event.handle, err)
                                  : AD_OK;
}

/* The result of clWaitForEvents does not say how the work failed. */
static ad_status
opencl_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    ad_cl_event handle = event.handle;
    int32_t status;
    AD_RETURN_IF_ERR(check_event(event, err));
    int32_t code = cl.WaitForEvents(1, &handle);
    AD_RETURN_IF_ERR(event_status(context, event, &status, err));
    RETURN_IF_ERR(err, context.device.id, "clWaitForEvents", code);
    return AD_OK;
}

static void
opencl_event_destroy(ad_context context, ad_event event)
{
    (void)cl.ReleaseEvent(event.handle);
}

/* --- classification ------------------------------------------------------ */

/* A foreign pointer is a cl_mem or the address of SVM, and the runtime tells
 * which. SVM is used through a cl_mem over it, which OpenCL defines to be the
 * same memory. So there is one kind of copy and one kind of kernel argument.
 */

static ad_status
buffer_context(ad_cl_mem memory, ad_cl_context *out, ad_error *err)
{
    enum {
        INVALID_MEM = -38
    };
    uint32_t type;
    TRY(err, -1, GetMemObjectInfo, memory, AD_CL_MEM_TYPE, sizeof(type), &type,
        NULL);
    if (type != AD_CL_MEM_OBJECT_BUFFER) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "copy it to a buffer first "
                       "(clEnqueueCopyImageToBuffer)",
                       "the handle is of an image, a pipe or of no memory at "
                       "all, expected a buffer's");
    }
    TRY(err, -1, GetMemObjectInfo, memory, AD_CL_MEM_CONTEXT, sizeof(*out),
        out, NULL);
    /* A runtime that does not validate handles answers for other objects
     * too. */
    return is_object(*out)
               ? AD_OK
               : fail_call(err, -1, "clGetMemObjectInfo", INVALID_MEM);
}

/* The entry that the SVM belongs to. NULL: no known entry. */
static struct opencl_context *
find_svm(const void *pointer, ad_context hint)
{
    struct opencl_context *cl_context;
    if ((hint.handle != NULL || hint.device.id >= 0) &&
        entry_at(hint, &cl_context, NULL) == AD_OK &&
        is_svm(cl_context, pointer)) {
        return cl_context;
    }
    for (cl_context = first_entry(); cl_context != NULL;
         cl_context = cl_context->next) {
        if (is_svm(cl_context, pointer)) {
            break;
        }
    }
    return cl_context;
}

static ad_status
opencl_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                ad_error *err)
{
    struct opencl_context *cl_context;
    ad_cl_context handle;
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED};
    if (is_object(pointer)) {
        out->kind = AD_MEMORY_DEVICE;
        AD_RETURN_IF_ERR(buffer_context((ad_cl_mem)pointer, &handle, err));
    } else {
        cl_context = find_svm(pointer, hint);
        if (cl_context == NULL) {
            return AD_OK;
        }
        out->kind = AD_MEMORY_MANAGED;
        handle = cl_context->handle;
    }
    AD_RETURN_IF_ERR(entry_in(handle, hint.device.id, &cl_context, err));
    out->context = as_context(cl_context);
    return AD_OK;
}

/* A span in the form that OpenCL's calls take. */
typedef struct view {
    ad_cl_mem memory; /* NULL: host memory */
    ad_cl_context handle;
    bool is_ours; /* created over SVM */
} view;

static void
close_view(const view *self)
{
    /* Enqueued work keeps a reference. */
    if (self->is_ours) {
        (void)cl.ReleaseMemObject(self->memory);
    }
}

static ad_status
open_svm(const opencl_queue *queue, const ad_span *span, size_t nbytes,
         view *out, ad_error *err)
{
    int32_t code;
    const struct opencl_context *cl_context =
        find_svm(span->data, as_context(queue->cl_context));
    if (cl_context == NULL) {
        return ad_fail_on(
            err, span->context.device, "device",
            "check that it was not freed; SVM is named by the address "
            "that clSVMAlloc returned, with an offset beside it, and "
            "found once a queue of its context was passed as stream=",
            "%p is neither a cl_mem nor SVM of a context that was seen",
            span->data);
    }
    /* No larger than needed, since OpenCL does not tell the size of an
     * allocation. */
    out->memory = cl.CreateBuffer(cl_context->handle, AD_CL_MEM_USE_HOST_PTR,
                                  span->offset + nbytes, span->data, &code);
    if (out->memory == NULL) {
        return fail_call(err, cl_context->id, "clCreateBuffer", code);
    }
    out->handle = cl_context->handle;
    out->is_ours = true;
    return AD_OK;
}

static ad_status
open_view(const opencl_queue *queue, const ad_span *span, size_t nbytes,
          view *out, ad_error *err)
{
    *out = (view){.handle = queue->cl_context->handle};
    if (span->context.device.type != ARROW_DEVICE_OPENCL) {
        return AD_OK;
    }
    if (is_object(span->data)) {
        out->memory = span->data;
        return buffer_context(out->memory, &out->handle, err);
    }
    return open_svm(queue, span, nbytes, out, err);
}

/* --- order --------------------------------------------------------------- */

/* Work submitted next runs after all work that is now on the queue. */
static ad_status
keep_order(const opencl_queue *queue, ad_error *err)
{
    if (!queue->is_in_order) {
        TRY(err, queue->cl_context->id, EnqueueBarrierWithWaitList,
            queue->handle, 0, NULL, NULL);
    }
    return AD_OK;
}

/* --- copies -------------------------------------------------------------- */

typedef struct request {
    ad_cl_queue queue;
    int64_t id; /* of the device, for messages */
    ad_block_copy block;
    ad_cl_mem target; /* NULL: host memory */
    ad_cl_mem source; /* NULL: host memory */
} request;

static inline char *
host_address(const ad_span *span)
{
    return (char *)span->data + span->offset;
}

static ad_status
enqueue_run(const request *r, ad_error *err)
{
    const ad_span *target = &r->block.target;
    const ad_span *source = &r->block.source;
    if (r->source == NULL) {
        TRY(err, r->id, EnqueueWriteBuffer, r->queue, r->target, false,
            target->offset, r->block.width, host_address(source), 0, NULL,
            NULL);
    } else if (r->target == NULL) {
        TRY(err, r->id, EnqueueReadBuffer, r->queue, r->source, false,
            source->offset, r->block.width, host_address(target), 0, NULL,
            NULL);
    } else {
        TRY(err, r->id, EnqueueCopyBuffer, r->queue, r->source, r->target,
            source->offset, target->offset, r->block.width, 0, NULL, NULL);
    }
    return AD_OK;
}

static ad_status
enqueue_rows(const request *r, ad_error *err)
{
    static const size_t zero[3];
    const ad_block_copy *b = &r->block;
    const size_t region[] = {b->width, b->height, 1};
    const size_t to[] = {b->target.offset % b->target_pitch,
                         b->target.offset / b->target_pitch, 0};
    const size_t from[] = {b->source.offset % b->source_pitch,
                           b->source.offset / b->source_pitch, 0};
    if (r->source == NULL) {
        TRY(err, r->id, EnqueueWriteBufferRect, r->queue, r->target, false, to,
            zero, region, b->target_pitch, 0, b->source_pitch, 0,
            host_address(&b->source), 0, NULL, NULL);
    } else if (r->target == NULL) {
        TRY(err, r->id, EnqueueReadBufferRect, r->queue, r->source, false,
            from, zero, region, b->source_pitch, 0, b->target_pitch, 0,
            host_address(&b->target), 0, NULL, NULL);
    } else {
        TRY(err, r->id, EnqueueCopyBufferRect, r->queue, r->source, r->target,
            from, to, region, b->source_pitch, 0, b->target_pitch, 0, 0, NULL,
            NULL);
    }
    return AD_OK;
}

static ad_status
fail_context(const opencl_queue *queue, ad_error *err)
{
    return ad_fail_on(
        err, as_context(queue->cl_context).device, "stream",
        "pass a queue of the cl_context that the memory is in, or none",
        "the queue is of another cl_context than the memory, and OpenCL "
        "takes the two only together");
}

static ad_status
copy_views(const opencl_queue *queue, const view *target, const view *source,
           const ad_block_copy *copy, ad_error *err)
{
    request r = {.queue = queue->handle,
                 .id = queue->cl_context->id,
                 .block = *copy,
                 .target = target->memory,
                 .source = source->memory};
    if (target->handle != queue->cl_context->handle ||
        source->handle != queue->cl_context->handle) {
        return fail_context(queue, err);
    }
    AD_RETURN_IF_ERR(keep_order(queue, err));
    /* Rows without gaps between them are one row. */
    if (copy->target_pitch == copy->width &&
        copy->source_pitch == copy->width) {
        r.block.width *= r.block.height;
        r.block.height = 1;
    }
    return r.block.height == 1 ? enqueue_run(&r, err) : enqueue_rows(&r, err);
}

static ad_status
opencl_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
            ad_error *err)
{
    opencl_queue queue;
    view target, source;
    size_t last = copy->height - 1;
    if (copy->width == 0 || copy->height == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(queue_of(stream, &queue, err));
    AD_RETURN_IF_ERR(open_view(&queue, &copy->target,
                               last * copy->target_pitch + copy->width,
                               &target, err));
    ad_status status =
        open_view(&queue, &copy->source,
                  last * copy->source_pitch + copy->width, &source, err);
    if (status == AD_OK) {
        status = copy_views(&queue, &target, &source, copy, err);
        close_view(&source);
    }
    close_view(&target);
    return status;
}

/* --- kernels ------------------------------------------------------------- */

static ad_status
fail_build(const struct opencl_context *cl_context, ad_cl_program program,
           int32_t code, ad_error *err)
{
    char log[2048] = "";
    ad_status status =
        fail_call(err, cl_context->id, "building the kernels", code);
    if (err == NULL) {
        return status;
    }
    err->status = AD_ERR_EXCHANGE;
    ad_error_reason(err, "kernel");
    (void)cl.GetProgramBuildInfo(program, cl_context->device,
                                 AD_CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log,
                                 NULL);
    size_t n = 0;
    while (log[n] != '\0' && log[n] != '\n' && n < 200) {
        n++;
    }
    ad_error_hint(err,
                  "copy the data to the host (to(\"cpu\")) and do it there; "
                  "the compiler says: %.*s",
                  n > 0 ? (int)n : 7, n > 0 ? log : "nothing");
    return AD_ERR_EXCHANGE;
}

/* A thread that loses the race releases its own program. */
static ad_status
find_program(struct opencl_context *cl_context, ad_cl_program *out,
             ad_error *err)
{
    const char *text = ad_kernels_opencl;
    int32_t code;
    *out = atomic_load(&cl_context->program);
    if (*out != NULL) {
        return AD_OK;
    }
    ad_cl_program program =
        cl.CreateProgramWithSource(cl_context->handle, 1, &text, NULL, &code);
    if (program == NULL) {
        return fail_call(err, cl_context->id, "clCreateProgramWithSource",
                         code);
    }
    code = cl.BuildProgram(program, 1, &cl_context->device,
                           cl_context->is_cpu ? AD_KERNELS_ON_PROCESSOR : "",
                           NULL, NULL);
    if (code != AD_CL_SUCCESS) {
        ad_status status = fail_build(cl_context, program, code, err);
        (void)cl.ReleaseProgram(program);
        return status;
    }
    if (atomic_compare_exchange_strong(&cl_context->program, out, program)) {
        *out = program;
    } else {
        (void)cl.ReleaseProgram(program);
    }
    return AD_OK;
}

/* The memory arguments of a launch. */
typedef struct views {
    view source;
    view values;
    view target;
} views;

static int32_t
set_arguments(ad_cl_kernel kernel, const ad_launch *launch, const views *on)
{
    const int64_t source_offset = (int64_t)launch->source.offset;
    const int64_t values_offset = (int64_t)launch->values.offset;
    const int64_t target_offset = (int64_t)launch->target.offset;
    const struct {
        size_t size;
        const void *value;
    } arguments[] = {
        {sizeof(on->source.memory), &on->source.memory},
        {sizeof(source_offset), &source_offset},
        {sizeof(on->values.memory), &on->values.memory},
        {sizeof(values_offset), &values_offset},
        {sizeof(on->target.memory), &on->target.memory},
        {sizeof(target_offset), &target_offset},
        {sizeof(launch->bit_offset), &launch->bit_offset},
        {sizeof(launch->length), &launch->length},
    };
    const uint32_t n = sizeof(arguments) / sizeof(arguments[0]);
    int32_t code = AD_CL_SUCCESS;
    for (uint32_t i = 0; i < n && code == AD_CL_SUCCESS; i++) {
        code =
            cl.SetKernelArg(kernel, i, arguments[i].size, arguments[i].value);
    }
    for (uint32_t i = 0; i < AD_N_NUMBERS && code == AD_CL_SUCCESS; i++) {
        code = cl.SetKernelArg(kernel, n + i, sizeof(launch->numbers[i]),
                               &launch->numbers[i]);
    }
    return code;
}

/* A cl_kernel holds its arguments, so each launch creates its own. */
static ad_status
run_kernel(const opencl_queue *queue, const ad_launch *launch, const views *on,
           ad_error *err)
{
    static const size_t one = 1;
    ad_cl_program program;
    int32_t code;
    int64_t id = queue->cl_context->id;
    if (on->target.handle != queue->cl_context->handle ||
        on->values.handle != queue->cl_context->handle ||
        on->source.handle != queue->cl_context->handle) {
        return fail_context(queue, err);
    }
    AD_RETURN_IF_ERR(find_program(queue->cl_context, &program, err));
    AD_RETURN_IF_ERR(keep_order(queue, err));
    ad_cl_kernel kernel =
        cl.CreateKernel(program, ad_kernel_name(launch->kernel), &code);
    if (kernel == NULL) {
        return fail_call(err, id, "clCreateKernel", code);
    }
    const char *call = "clSetKernelArg";
    code = set_arguments(kernel, launch, on);
    if (code == AD_CL_SUCCESS) {
        bool is_cpu = queue->cl_context->is_cpu;
        const size_t n_items = (size_t)launch->n_items;
        call = "clEnqueueNDRangeKernel";
        code =
            cl.EnqueueNDRangeKernel(queue->handle, kernel, 1, NULL, &n_items,
                                    is_cpu ? &one : NULL, 0, NULL, NULL);
    }
    (void)cl.ReleaseKernel(kernel);
    RETURN_IF_ERR(err, id, call, code);
    return AD_OK;
}

static ad_status
opencl_launch(ad_context context, ad_stream stream, const ad_launch *launch,
              ad_error *err)
{
    opencl_queue queue;
    views on = {0};
    AD_RETURN_IF_ERR(queue_of(stream, &queue, err));
    ad_status status =
        open_view(&queue, &launch->target, ad_launch_target_size(launch),
                  &on.target, err);
    if (status == AD_OK) {
        status = open_view(&queue, &launch->source,
                           ad_launch_source_size(launch), &on.source, err);
    }
    if (status == AD_OK) {
        status = open_view(&queue, &launch->values,
                           ad_launch_values_size(launch), &on.values, err);
    }
    if (status == AD_OK) {
        status = run_kernel(&queue, launch, &on, err);
    }
    close_view(&on.values);
    close_view(&on.source);
    close_view(&on.target);
    return status;
}

/* --- memory -------------------------------------------------------------- */

static bool
is_out_of_memory(int32_t code)
{
    enum {
        MEM_OBJECT_ALLOCATION_FAILURE = -4,
        OUT_OF_RESOURCES = -5,
        OUT_OF_HOST_MEMORY = -6,
        INVALID_BUFFER_SIZE = -61
    };
    return code == MEM_OBJECT_ALLOCATION_FAILURE || code == OUT_OF_RESOURCES ||
           code == OUT_OF_HOST_MEMORY || code == INVALID_BUFFER_SIZE;
}

static ad_status
opencl_allocate(ad_context context, ad_stream stream, size_t nbytes,
                void **out, ad_error *err)
{
    struct opencl_context *cl_context;
    int32_t code;
    AD_RETURN_IF_ERR(entry_at(context, &cl_context, err));
    ad_cl_mem memory = cl.CreateBuffer(
        cl_context->handle, AD_CL_MEM_READ_WRITE, nbytes, NULL, &code);
    if (memory == NULL) {
        return is_out_of_memory(code)
                   ? ad_fail_device_memory(err, as_context(cl_context).device,
                                           nbytes)
                   : fail_call(err, cl_context->id, "clCreateBuffer", code);
    }
    *out = memory;
    return AD_OK;
}

/* Enqueued work keeps a reference. */
static void
opencl_deallocate(ad_context context, ad_stream stream, void *data,
                  size_t nbytes)
{
    (void)cl.ReleaseMemObject(data);
}

/* --- the runtime --------------------------------------------------------- */

static ad_status
opencl_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    struct opencl_context *cl_context;
    AD_RETURN_IF_ERR(primary_entry(device, &cl_context, err));
    *out = as_context(cl_context);
    return AD_OK;
}

const struct ad_backend ad_backend_opencl = {
    .name = "opencl",
    .device_types = (const int32_t[]){ARROW_DEVICE_OPENCL, 0},
    .capabilities = AD_CAP_ORDERED_DEALLOCATE,
    .load = opencl_load,
    .describe = opencl_describe,
    .count = opencl_count,
    .device_name = opencl_device_name,
    .runs_on_host = opencl_is_cpu,
    .primary_context = opencl_primary_context,
    .synchronize = opencl_synchronize,
    .classify = opencl_classify,
    .allocate = opencl_allocate,
    .deallocate = opencl_deallocate,
    .copy = opencl_copy,
    .launch = opencl_launch,
    .stream_context = opencl_stream_context,
    .stream_create = opencl_stream_create,
    .stream_destroy = opencl_stream_destroy,
    .stream_wait = opencl_stream_wait,
    .event_record = opencl_event_record,
    .event_query = opencl_event_query,
    .event_synchronize = opencl_event_synchronize,
    .event_destroy = opencl_event_destroy,
};
