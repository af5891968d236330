/* Memory and events of one process that another one opens: what CUDA and HIP
 * share. */
#include <string.h>

#include "device/gpu/gpu.h"

_Static_assert(sizeof(struct ad_gpu_ipc_handle) == AD_IPC_BYTES,
               "a handle fills the bytes");
_Static_assert(sizeof(struct ad_gpu_uuid) == AD_UUID_SIZE, "so does a UUID");

/* --- errors -------------------------------------------------------------- */

ad_status
ad_gpu_fail_share(const struct ad_gpu *gpu, ad_device device, const char *what,
                  ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_device_format((ad_device){gpu->device_type, device.id}, name);
    ad_fail_on(err, device, "share", NULL,
               "%s cannot export %s to other processes", gpu->name, what);
    ad_error_hint(err,
                  "share a copy: .to(\"cpu\") makes one on the host, "
                  ".to(\"cpu\").to(\"%s\") one in arrowdev's pool",
                  name);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_fail_missing(const struct ad_gpu *gpu, ad_device device,
                    const char *function, ad_error *err)
{
    return ad_fail_on(err, device, "share",
                      "install a newer driver, or share a copy on the host: "
                      ".to(\"cpu\")",
                      "the %s library that is installed has no %s, which is "
                      "needed to share this with other processes",
                      gpu->name, function);
}

ad_status
ad_gpu_fail_imported(const struct ad_gpu *gpu, ad_device device,
                     const char *what, ad_error *err)
{
    return ad_fail_on(err, device, "share",
                      "attach again; both processes need this version of "
                      "arrowdev",
                      "the %s memory of another process is described wrongly: "
                      "%s",
                      gpu->name, what);
}

/* --- memory -------------------------------------------------------------- */

ad_status
ad_gpu_check_exported(const struct ad_gpu *gpu, const ad_memory_info *info,
                      ad_error *err)
{
    static const char *const others[] = {
        [AD_MEMORY_UNREGISTERED] = "memory that it does not know",
        [AD_MEMORY_PINNED] = "pinned host memory",
        [AD_MEMORY_MANAGED] = "managed memory",
    };
    return info->kind == AD_MEMORY_DEVICE
               ? AD_OK
               : ad_gpu_fail_share(gpu, info->context.device,
                                   others[info->kind], err);
}

ad_status
ad_gpu_check_imported(const struct ad_gpu *gpu, ad_device device,
                      const ad_ipc_memory *memory, ad_error *err)
{
    const bool has_file =
        memory->kind == AD_IPC_POOL || memory->kind == AD_IPC_VMM;
    const char *what = NULL;
    if (!has_file && memory->kind != AD_IPC_LEGACY) {
        what = "it is of a kind that this runtime has not";
    } else if (memory->nbytes == 0 || memory->nbytes > PTRDIFF_MAX ||
               (uintptr_t)memory->base > UINTPTR_MAX - memory->nbytes) {
        what = "no memory has its size";
    } else if (has_file != (memory->file >= 0)) {
        what = has_file ? "its descriptor is missing"
                        : "a descriptor came with it";
    }
    return what == NULL ? AD_OK : ad_gpu_fail_imported(gpu, device, what, err);
}

/* --- events -------------------------------------------------------------- */

/* Creates an event that other processes can open, and records it. On failure
 * nothing is left. */
static ad_gpu_result
record_exported(const struct ad_gpu *gpu, ad_stream stream, void **event,
                struct ad_gpu_ipc_handle *handle)
{
    const struct ad_gpu_calls *calls = gpu->calls;
    void *made = NULL;
    ad_gpu_result result = {
        calls->event_create(&made, AD_GPU_EVENT_INTERPROCESS |
                                       AD_GPU_EVENT_DISABLE_TIMING),
        gpu->names.event_create};
    if (result.code != AD_GPU_SUCCESS) {
        return result;
    }
    result = (ad_gpu_result){calls->ipc_get_event(handle, made),
                             gpu->names.ipc_get_event};
    if (result.code == AD_GPU_SUCCESS) {
        result =
            (ad_gpu_result){calls->event_record(made, ad_gpu_handle(stream)),
                            gpu->names.event_record};
    }
    if (result.code == AD_GPU_SUCCESS) {
        *event = made;
    } else {
        (void)calls->event_destroy(made);
    }
    return result;
}

ad_status
ad_gpu_event_export(ad_context context, ad_stream stream, ad_event *event,
                    ad_ipc_event *out, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    struct ad_gpu_ipc_handle handle;
    ad_gpu_scope scope;
    bool is_captured;
    void *made = NULL;
    AD_GPU_NEED(gpu, *gpu->calls, gpu->names, ipc_get_event, context.device,
                err);
    AD_RETURN_IF_ERR(
        ad_gpu_stream_is_capturing(context, stream, &is_captured, err));
    if (is_captured) {
        return ad_fail_on(err, context.device, "capture",
                          "share the data before the capture begins or after "
                          "it has ended",
                          "the stream is being captured into a graph, so no "
                          "other process can wait for its work");
    }
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result = record_exported(gpu, stream, &made, &handle);
    ad_gpu_leave(gpu, &scope);
    AD_RETURN_IF_ERR(ad_gpu_check(gpu, context.device, result, err));
    event->handle = made;
    out->file = -1;
    memcpy(out->bytes, handle.bytes, sizeof(out->bytes));
    return AD_OK;
}

/* HIP leaves an event behind where it fails to open one. */
ad_status
ad_gpu_event_open(ad_context context, const ad_ipc_event *event, ad_event *out,
                  ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    struct ad_gpu_ipc_handle handle;
    ad_gpu_scope scope;
    void *made = NULL;
    AD_GPU_NEED(gpu, *gpu->calls, gpu->names, ipc_open_event, context.device,
                err);
    memcpy(handle.bytes, event->bytes, sizeof(handle.bytes));
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result = {gpu->calls->ipc_open_event(&made, handle),
                            gpu->names.ipc_open_event};
    if (result.code == AD_GPU_SUCCESS) {
        out->handle = made;
    } else if (made != NULL) {
        (void)gpu->calls->event_destroy(made);
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}
