#define _GNU_SOURCE /* syscall under -std=c11 */

#include "device/opencl/opencl_context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/dynlib.h"
#include "device/queue_registry.h"

/* --- the library --------------------------------------------------------- */

static const ad_symbol symbols[] = {
#define AD_CL(name, result, parameters)                                       \
    {"cl" #name, offsetof(struct ad_cl_api, name), AD_REQUIRED},
#include "abi/opencl_api.def"
};

static const char *const sonames[] = {"libOpenCL.so.1", NULL};

static const ad_library library = {
    .name = "opencl",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

struct ad_cl_api ad_cl;

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
    _Atomic(struct ad_opencl_context *) primary;
};

/* Written once by load, read-only afterwards. */
static struct platform *platforms;
static uint32_t n_platforms;
static struct root *roots;
static size_t n_roots;
static uintptr_t *tables; /* dispatch tables; see ad_opencl_is_object */
static size_t n_tables;

static _Atomic(struct ad_opencl_context *) contexts; /* only ever grows */

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

ad_status
ad_opencl_fail(ad_error *err, int64_t id, const char *call, int32_t code)
{
    return ad_fail_device(err, (ad_device){ARROW_DEVICE_OPENCL, id}, call,
                          code, error_name(code), NULL);
}

/* --- handles and pointers ------------------------------------------------ */

/* The kernel reads the mask before it checks `how`, which is invalid. So the
 * call changes nothing, and its error tells whether the address is
 * readable. */
static bool
is_readable(const void *pointer)
{
    const int no_how = -1;
    int saved = errno;
    long result = syscall(SYS_rt_sigprocmask, no_how, pointer, NULL, 8);
    bool is_fault = result != 0 && errno == EFAULT;
    errno = saved;
    return !is_fault;
}

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

bool
ad_opencl_is_object(const void *pointer)
{
    return pointer != NULL && (uintptr_t)pointer % sizeof(void *) == 0 &&
           is_readable(pointer) && is_table(first_word(pointer));
}

/* OpenCL has no query for a pointer. But a buffer created over a host pointer
 * tells whether that is SVM, and creating it does not access the memory. */
bool
ad_opencl_is_svm(const struct ad_opencl_context *cl_context,
                 const void *pointer)
{
    int32_t code;
    uint32_t answer = 0;
    if (!cl_context->has_svm || !is_readable(pointer)) {
        return false;
    }
    ad_cl_mem probe = ad_cl.CreateBuffer(
        cl_context->handle, AD_CL_MEM_USE_HOST_PTR, 1, (void *)pointer, &code);
    if (probe == NULL) {
        return false;
    }
    code = ad_cl.GetMemObjectInfo(probe, AD_CL_MEM_USES_SVM_POINTER,
                                  sizeof(answer), &answer, NULL);
    (void)ad_cl.ReleaseMemObject(probe);
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
    int32_t code = ad_cl.GetPlatformIDs(0, NULL, &n);
    if (code == NOT_FOUND_KHR || (code == AD_CL_SUCCESS && n == 0)) {
        return fail_no_devices(err, "platform");
    }
    AD_CL_RETURN_IF_ERR(err, -1, "clGetPlatformIDs", code);
    ad_cl_platform *handles = calloc(n, sizeof(handles[0]));
    platforms = calloc(n, sizeof(platforms[0]));
    if (handles == NULL || platforms == NULL) {
        free(handles);
        return ad_fail_memory(err, n * sizeof(platforms[0]));
    }
    code = ad_cl.GetPlatformIDs(n, handles, NULL);
    for (uint32_t i = 0; i < n; i++) {
        platforms[i].handle = handles[i];
    }
    free(handles);
    n_platforms = n;
    return code == AD_CL_SUCCESS
               ? AD_OK
               : ad_opencl_fail(err, -1, "clGetPlatformIDs", code);
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
    int32_t result = ad_cl.GetDeviceIDs(platform->handle,
                                        AD_CL_DEVICE_TYPE_ALL, 0, NULL, &n);
    if (result != AD_CL_SUCCESS || n == 0) {
        *code = result == DEVICE_NOT_FOUND ? *code : result;
        return AD_OK;
    }
    platform->devices = calloc(n, sizeof(platform->devices[0]));
    if (platform->devices == NULL) {
        return ad_fail_memory(err, n * sizeof(platform->devices[0]));
    }
    AD_CL_TRY(err, -1, GetDeviceIDs, platform->handle, AD_CL_DEVICE_TYPE_ALL,
              n, platform->devices, NULL);
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
    return ad_cl.GetDeviceInfo(device, AD_CL_DEVICE_TYPE, sizeof(type), &type,
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
        AD_CL_RETURN_IF_ERR(err, -1, "clGetDeviceIDs", code);
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

ad_status
ad_opencl_load(ad_error *err)
{
    reset();
    AD_RETURN_IF_ERR(ad_library_load(&library, &ad_cl, library_path, err));
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
        AD_CL_TRY(err, -1, GetPlatformInfo, platforms[i].handle,
                  AD_CL_PLATFORM_NAME, sizeof(name), name, NULL);
        AD_CL_TRY(err, -1, GetPlatformInfo, platforms[i].handle,
                  AD_CL_PLATFORM_VERSION, sizeof(version), version, NULL);
        used += (size_t)snprintf(buffer + used, size - used, "%s%s, %s",
                                 i > 0 ? "; " : "", name, version);
    }
    return AD_OK;
}

ad_status
ad_opencl_describe(char *buffer, size_t size, ad_error *err)
{
    char names[512];
    AD_RETURN_IF_ERR(list_names(names, sizeof(names), err));
    snprintf(buffer, size, "%s (%s)", library_path, names);
    return AD_OK;
}

ad_status
ad_opencl_count(int64_t *out, ad_error *err)
{
    *out = (int64_t)n_roots;
    return AD_OK;
}

ad_status
ad_opencl_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    char name[256];
    struct root *root;
    AD_RETURN_IF_ERR(
        find_root((ad_device){ARROW_DEVICE_OPENCL, id}, &root, err));
    AD_CL_TRY(err, id, GetDeviceInfo, root->device, AD_CL_DEVICE_NAME,
              sizeof(name), name, NULL);
    snprintf(buffer, size, "%s", name);
    return AD_OK;
}

bool
ad_opencl_is_cpu(int64_t id)
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
    int32_t code = ad_cl.GetDeviceInfo(device, AD_CL_DEVICE_PARENT_DEVICE,
                                       sizeof(parent), &parent, NULL);
    return code == AD_CL_SUCCESS && parent != NULL ? index_of(parent) : -1;
}

/* --- contexts ------------------------------------------------------------ */

static struct ad_opencl_context *
search_contexts(struct ad_opencl_context *from, ad_cl_context handle,
                ad_cl_device device)
{
    struct ad_opencl_context *cl_context = from;
    while (cl_context != NULL &&
           (cl_context->handle != handle || cl_context->device != device)) {
        cl_context = cl_context->next;
    }
    return cl_context;
}

struct ad_opencl_context *
ad_opencl_contexts(void)
{
    return atomic_load(&contexts);
}

static ad_status
fill_context(struct ad_opencl_context *cl_context, ad_cl_context handle,
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
    int32_t code = ad_cl.GetDeviceInfo(device, AD_CL_DEVICE_SVM_CAPABILITIES,
                                       sizeof(svm), &svm, NULL);
    AD_CL_RETURN_IF_ERR(err, cl_context->id, "clGetDeviceInfo",
                        code != INVALID_VALUE ? code : AD_CL_SUCCESS);
    cl_context->has_svm = code == AD_CL_SUCCESS && svm != 0;
    cl_context->is_cpu = ad_opencl_is_cpu(cl_context->id);
    AD_CL_TRY(err, cl_context->id, RetainContext, handle);
    cl_context->handle = handle;
    cl_context->device = device;
    return AD_OK;
}

ad_status
ad_opencl_context(ad_cl_context handle, ad_cl_device device,
                  struct ad_opencl_context **out, ad_error *err)
{
    struct ad_opencl_context *head = atomic_load(&contexts);
    *out = search_contexts(head, handle, device);
    if (*out != NULL) {
        return AD_OK;
    }
    struct ad_opencl_context *cl_context = calloc(1, sizeof(*cl_context));
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
            (void)ad_cl.ReleaseContext(handle);
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
    *out = ad_cl.CreateContext(properties, n, devices, NULL, NULL, &code);
    return *out != NULL ? AD_OK
                        : ad_opencl_fail(err, -1, "clCreateContext", code);
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
        (void)ad_cl.ReleaseContext(*out);
    }
    *out = known;
    return AD_OK;
}

ad_status
ad_opencl_primary_context(ad_device device, struct ad_opencl_context **out,
                          ad_error *err)
{
    struct root *root;
    ad_cl_context handle;
    AD_RETURN_IF_ERR(find_root(device, &root, err));
    *out = atomic_load(&root->primary);
    if (*out != NULL) {
        return AD_OK;
    }
    if (platform_context(root->platform, &handle, NULL) == AD_OK) {
        AD_RETURN_IF_ERR(ad_opencl_context(handle, root->device, out, err));
    } else {
        /* One of the platform's devices is unavailable: use this device
         * alone. */
        AD_RETURN_IF_ERR(
            make_context(root->platform, &root->device, 1, &handle, err));
        ad_status status = ad_opencl_context(handle, root->device, out, err);
        (void)ad_cl.ReleaseContext(handle);
        AD_RETURN_IF_ERR(status);
    }
    struct ad_opencl_context *none = NULL;
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
    AD_CL_TRY(err, -1, GetContextInfo, handle, AD_CL_CONTEXT_DEVICES, 0, NULL,
              &nbytes);
    *out = malloc(nbytes);
    if (*out == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    int32_t code = ad_cl.GetContextInfo(handle, AD_CL_CONTEXT_DEVICES, nbytes,
                                        *out, NULL);
    if (code != AD_CL_SUCCESS) {
        free(*out);
        return ad_opencl_fail(err, -1, "clGetContextInfo", code);
    }
    *n = nbytes / sizeof((*out)[0]);
    return AD_OK;
}

ad_status
ad_opencl_context_in(ad_cl_context handle, int64_t id,
                     struct ad_opencl_context **out, ad_error *err)
{
    ad_cl_device *devices;
    size_t n;
    struct ad_opencl_context *cl_context = atomic_load(&contexts);
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
    return ad_opencl_context(handle, chosen, out, err);
}

ad_status
ad_opencl_context_at(ad_context context, struct ad_opencl_context **out,
                     ad_error *err)
{
    if (context.handle == NULL) {
        return ad_opencl_primary_context(context.device, out, err);
    }
    return ad_opencl_context_in(context.handle, context.device.id, out, err);
}

/* --- the queue registry -------------------------------------------------- */

static void
forget_queue(void *queue)
{
    (void)ad_cl.ReleaseCommandQueue(queue);
}

static ad_status
finish_queue(void *queue, int64_t id, ad_error *err)
{
    AD_CL_TRY(err, id, Finish, queue);
    return AD_OK;
}

static ad_queue_registry registry = {
    .forget = forget_queue,
    .finish = finish_queue,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

void
ad_opencl_register_queue(ad_cl_queue queue, int64_t id, bool is_own)
{
    const ad_queue_entry added = {
        .queue = queue,
        .key = (uintptr_t)queue,
        .id = id,
        .is_own = is_own,
    };
    if (!ad_queue_registry_find(&registry, added.key, NULL) &&
        ad_cl.RetainCommandQueue(queue) == AD_CL_SUCCESS) {
        ad_queue_registry_add(&registry, &added);
    }
}

ad_status
ad_opencl_synchronize(ad_context context, ad_error *err)
{
    struct root *root;
    AD_RETURN_IF_ERR(find_root(context.device, &root, err));
    return ad_queue_registry_finish(&registry, context.device.id, err);
}
