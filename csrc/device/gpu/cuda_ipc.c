/* CUDA's device memory for other processes.
 *
 * There are three ways, and an allocation has one of them at most. Memory of a
 * pool: the pool's descriptor and the bytes of a pointer. Memory of the virtual
 * memory management: a descriptor. Memory of cuMemAlloc: a handle of 64 bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/wait.h"
#include "device/gpu/cuda.h"

#define NEED(member)                                                          \
    AD_GPU_NEED(&ad_gpu_cuda, ad_cuda, ad_cuda_names, member, device, err)

static ad_status
check(ad_device device, ad_gpu_result result, ad_error *err)
{
    return ad_gpu_check(&ad_gpu_cuda, device, result, err);
}

static ad_status
refuse(ad_device device, const char *what, ad_error *err)
{
    return ad_gpu_fail_share(&ad_gpu_cuda, device, what, err);
}

/* Does the driver say that it does not export this? */
static bool
is_refusal(int code)
{
    return code == AD_GPU_INVALID_VALUE || code == AD_GPU_NOT_SUPPORTED;
}

/* The functions below are called while the context is current and the thread
 * is relaxed. */

/* --- export -------------------------------------------------------------- */

/* *value, which has room for every type, stays as it is where an old driver
 * does not know the attribute. */
static ad_status
ask(ad_device device, const void *pointer, int attribute, uint64_t *value,
    ad_error *err)
{
    void *into[] = {value};
    ad_gpu_result result =
        CUDA(pointer_attributes, 1, &attribute, into, (uintptr_t)pointer);
    return result.code == AD_GPU_INVALID_VALUE ? AD_OK
                                               : check(device, result, err);
}

/* *out is a random number of this process. */
static ad_status
process_number(uint64_t *out, ad_error *err)
{
    static _Atomic uint64_t known;
    uint64_t made;
    *out = atomic_load(&known);
    if (*out != 0) {
        return AD_OK;
    }
    if (!ad_os_random(&made, sizeof(made))) {
        return ad_fail(err, AD_ERR_EXCHANGE, "share", NULL,
                       "the system has no random number");
    }
    made |= 1;
    *out = atomic_compare_exchange_strong(&known, out, made) ? made : *out;
    return AD_OK;
}

/* A number that is the allocation's alone, among those of all processes, for
 * as long as another one has it open: it is not freed meanwhile. The bytes that
 * name a pointer tell the allocations of two processes apart in no documented
 * way. */
static ad_status
allocation_number(const void *base, uint64_t *out, ad_error *err)
{
    AD_RETURN_IF_ERR(process_number(out, err));
    *out += (uintptr_t)base;
    return AD_OK;
}

static ad_status
export_pool(ad_device device, void *pool, ad_ipc_memory *out, ad_error *err)
{
    struct ad_gpu_ipc_handle name;
    int file = -1;
    NEED(pool_export);
    NEED(pool_export_pointer);
    AD_RETURN_IF_ERR(allocation_number(out->base, &out->file_offset, err));
    ad_gpu_result result =
        CUDA(pool_export, &file, pool, AD_GPU_FILE_DESCRIPTOR, 0);
    if (is_refusal(result.code)) {
        return refuse(device,
                      "memory of a pool without descriptors, such as the "
                      "default pool (torch: backend:cudaMallocAsync) or one "
                      "of another process,",
                      err);
    }
    AD_RETURN_IF_ERR(check(device, result, err));
    result = CUDA(pool_export_pointer, &name, (uintptr_t)out->base);
    if (result.code != AD_GPU_SUCCESS) {
        ad_os_close(file);
        return check(device, result, err);
    }
    ad_os_close_on_exec(file);
    out->kind = AD_IPC_POOL;
    out->file = file;
    memcpy(out->bytes, name.bytes, sizeof(out->bytes));
    return AD_OK;
}

static bool
is_of_handle(uint64_t handle, const void *pointer)
{
    uint64_t found = 0;
    bool is_there =
        ad_cuda.handle_retain(&found, (void *)pointer) == AD_GPU_SUCCESS;
    if (is_there) {
        (void)ad_cuda.handle_release(found);
    }
    return is_there && found == handle;
}

/* Are both ends of the range memory of this handle? */
static bool
is_one_handle(uint64_t handle, const ad_ipc_memory *range)
{
    return is_of_handle(handle, range->base) &&
           is_of_handle(handle, (const char *)range->base + range->nbytes - 1);
}

static ad_status
export_handle(ad_device device, uint64_t handle, ad_ipc_memory *out,
              ad_error *err)
{
    struct ad_cuda_allocation properties = {.handle_types = 0};
    int file = -1;
    ad_gpu_result result = CUDA(handle_properties, &properties, handle);
    AD_RETURN_IF_ERR(check(device, result, err));
    if ((properties.handle_types & AD_GPU_FILE_DESCRIPTOR) == 0) {
        return refuse(device,
                      "memory of cuMemCreate without a descriptor as its type "
                      "of handle",
                      err);
    }
    if (!is_one_handle(handle, out)) {
        return refuse(device,
                      "memory that consists of several allocations of "
                      "cuMemCreate",
                      err);
    }
    result = CUDA(handle_export, &file, handle, AD_GPU_FILE_DESCRIPTOR, 0);
    AD_RETURN_IF_ERR(check(device, result, err));
    ad_os_close_on_exec(file);
    out->kind = AD_IPC_VMM;
    out->file = file;
    return AD_OK;
}

static ad_status
export_vmm(ad_device device, uint64_t handle, ad_ipc_memory *out,
           ad_error *err)
{
    ad_status status = export_handle(device, handle, out, err);
    (void)ad_cuda.handle_release(handle);
    return status;
}

static ad_status
export_legacy(ad_device device, ad_ipc_memory *out, ad_error *err)
{
    static const char what[] =
        "device memory without a handle for them, such as that of "
        "another process,";
    struct ad_gpu_ipc_handle name;
    uint64_t has_handle = 1;
    NEED(ipc_get_memory);
    AD_RETURN_IF_ERR(ask(device, out->base, AD_CUDA_POINTER_HAS_IPC_HANDLE,
                         &has_handle, err));
    if (has_handle == 0) {
        return refuse(device, what, err);
    }
    ad_gpu_result result = CUDA(ipc_get_memory, &name, (uintptr_t)out->base);
    if (is_refusal(result.code)) {
        return refuse(device, what, err);
    }
    AD_RETURN_IF_ERR(check(device, result, err));
    out->kind = AD_IPC_LEGACY;
    memcpy(out->bytes, name.bytes, sizeof(out->bytes));
    return AD_OK;
}

static bool
has_vmm(void)
{
    return ad_cuda.handle_retain != NULL && ad_cuda.handle_release != NULL &&
           ad_cuda.handle_properties != NULL && ad_cuda.handle_export != NULL;
}

static ad_status
export_inside(ad_device device, const void *pointer, ad_ipc_memory *out,
              ad_error *err)
{
    uint64_t base = 0;
    uint64_t pool = 0;
    uint64_t handle = 0;
    NEED(memory_range);
    ad_gpu_result result =
        CUDA(memory_range, &base, &out->nbytes, (uintptr_t)pointer);
    AD_RETURN_IF_ERR(check(device, result, err));
    out->base = (const void *)(uintptr_t)base;
    AD_RETURN_IF_ERR(ask(device, pointer, AD_CUDA_POINTER_POOL, &pool, err));
    if (pool != 0) {
        return export_pool(device, (void *)(uintptr_t)pool, out, err);
    }
    if (has_vmm()) {
        result = CUDA(handle_retain, &handle, (void *)pointer);
        if (result.code == AD_GPU_SUCCESS) {
            return export_vmm(device, handle, out, err);
        }
        if (!is_refusal(result.code)) {
            return check(device, result, err);
        }
    }
    return export_legacy(device, out, err);
}

ad_status
ad_cuda_memory_export(ad_context context, const void *pointer,
                      ad_ipc_memory *out, ad_error *err)
{
    ad_memory_info info;
    ad_gpu_scope scope;
    *out = (ad_ipc_memory){.file = -1};
    AD_RETURN_IF_ERR(ad_cuda_classify(pointer, context, &info, err));
    AD_RETURN_IF_ERR(ad_gpu_check_exported(&ad_gpu_cuda, &info, err));
    AD_RETURN_IF_ERR(ad_gpu_enter(&ad_gpu_cuda, info.context, &scope, err));
    ad_gpu_relax(&ad_gpu_cuda, &scope);
    ad_status status = export_inside(info.context.device, pointer, out, err);
    ad_gpu_leave(&ad_gpu_cuda, &scope);
    return status;
}

/* --- import -------------------------------------------------------------- */

/* For functions that take a descriptor as a pointer. */
static void *
as_pointer(int file)
{
    return (void *)(intptr_t)file;
}

static struct ad_cuda_access
access_of(ad_device device)
{
    return (struct ad_cuda_access){AD_GPU_LOCATION_DEVICE, (int)device.id,
                                   AD_CUDA_ACCESS_READ_WRITE};
}

/* Does the driver say that less memory is there than the other process does?
 * Of imported memory it may say nothing. */
static bool
is_too_short(uint64_t data, size_t nbytes)
{
    uint64_t base = 0;
    size_t size = 0;
    return ad_cuda.memory_range != NULL &&
           ad_cuda.memory_range(&base, &size, data) == AD_GPU_SUCCESS &&
           !ad_gpu_holds(base, size, data, nbytes);
}

static ad_status
fail_short(ad_device device, ad_error *err)
{
    return ad_gpu_fail_imported(&ad_gpu_cuda, device,
                                "its allocation is shorter", err);
}

/* --- import: memory of a pool --------------------------------------------- */

/* cuda-python #2783: "importing the same IPC allocation twice returns duplicate
 * pointers and the first cuMemFreeAsync unmaps the memory for both (nvbug
 * 5570902)". So an allocation is imported once at a time, and its opens are
 * counted here. */
typedef struct import {
    struct import *next;
    uint64_t number; /* of the allocation */
    void *pool;
    uint64_t data;
    size_t nbytes;
    unsigned int n_open;
    bool is_busy; /* a thread imports or frees it, without the lock */
} import;

static ad_mutex lock = AD_MUTEX_INIT;
static import *imports;

static import **
find_locked(uint64_t number)
{
    import **link = &imports;
    while (*link != NULL && (*link)->number != number) {
        link = &(*link)->next;
    }
    return link;
}

/* Takes the allocation for this thread alone. `spare` is entered where it is
 * not imported yet. Waits while another thread imports or frees it. */
static import *
take_import(uint64_t number, import *spare)
{
    const int64_t begun = ad_now();
    import *found;
    ad_mutex_lock(&lock);
    while ((found = *find_locked(number)) != NULL && found->is_busy) {
        ad_mutex_unlock(&lock);
        ad_wait_pause(begun);
        ad_mutex_lock(&lock);
    }
    if (found == NULL && spare != NULL) {
        found = spare;
        found->next = imports;
        imports = found;
    }
    if (found != NULL) {
        found->is_busy = true;
    }
    ad_mutex_unlock(&lock);
    return found;
}

/* Gives it back, and forgets it if it is not open. */
static void
give_import(import *self)
{
    ad_mutex_lock(&lock);
    self->is_busy = false;
    if (self->n_open == 0) {
        *find_locked(self->number) = self->next;
    } else {
        self = NULL;
    }
    ad_mutex_unlock(&lock);
    free(self);
}

static ad_status
import_pointer(ad_device device, const ad_ipc_memory *memory, import *self,
               ad_error *err)
{
    const struct ad_cuda_access access = access_of(device);
    struct ad_gpu_ipc_handle name;
    memcpy(name.bytes, memory->bytes, sizeof(name.bytes));
    ad_gpu_result result = CUDA(pool_set_access, self->pool, &access, 1);
    if (result.code == AD_GPU_SUCCESS) {
        result = CUDA(pool_import_pointer, &self->data, self->pool, &name);
    }
    AD_RETURN_IF_ERR(check(device, result, err));
    if (is_too_short(self->data, memory->nbytes)) {
        (void)ad_cuda.memory_free(self->data);
        return fail_short(device, err);
    }
    self->nbytes = memory->nbytes;
    return AD_OK;
}

static ad_status
import_pool(ad_device device, const ad_ipc_memory *memory, import *self,
            ad_error *err)
{
    ad_gpu_result result =
        CUDA(pool_import, &self->pool, as_pointer(memory->file),
             AD_GPU_FILE_DESCRIPTOR, 0);
    AD_RETURN_IF_ERR(check(device, result, err));
    ad_status status = import_pointer(device, memory, self, err);
    if (status != AD_OK) {
        (void)ad_cuda.common.pool_destroy(self->pool);
    }
    return status;
}

static ad_status
open_pool(ad_device device, const ad_ipc_memory *memory, uint64_t *out,
          ad_error *err)
{
    NEED(pool_import);
    NEED(pool_import_pointer);
    NEED(pool_set_access);
    import *spare = calloc(1, sizeof(*spare));
    if (spare == NULL) {
        return ad_fail_memory(err, sizeof(*spare));
    }
    spare->number = memory->file_offset;
    import *self = take_import(memory->file_offset, spare);
    ad_status status = AD_OK;
    if (self == spare) {
        status = import_pool(device, memory, self, err);
    } else {
        free(spare);
        status =
            self->nbytes == memory->nbytes ? AD_OK : fail_short(device, err);
    }
    if (status == AD_OK) {
        self->n_open++;
        *out = self->data;
    }
    give_import(self);
    return status;
}

/* cuMemPoolImportPointer: "The imported memory must be freed from all importing
 * processes before being freed in the exporting process." So it is freed at
 * once, and not in the order of a stream. Returns the code of the call. */
static int
close_pool(const ad_ipc_memory *memory)
{
    int code = AD_GPU_SUCCESS;
    import *self = take_import(memory->file_offset, NULL);
    if (self->n_open == 1) {
        code = ad_cuda.memory_free(self->data);
        if (code != AD_CUDA_NOT_PERMITTED) {
            (void)ad_cuda.common.pool_destroy(self->pool);
        }
    }
    if (code != AD_CUDA_NOT_PERMITTED) {
        self->n_open--;
    }
    give_import(self);
    return code;
}

/* --- import: memory of the virtual memory management ---------------------- */

static ad_gpu_result
map_at(ad_device device, uint64_t handle, uint64_t address, size_t nbytes)
{
    const struct ad_cuda_access access = access_of(device);
    ad_gpu_result result = CUDA(memory_map, address, nbytes, 0, handle, 0);
    if (result.code == AD_GPU_SUCCESS) {
        result = CUDA(memory_set_access, address, nbytes, &access, 1);
        if (result.code != AD_GPU_SUCCESS) {
            (void)ad_cuda.memory_unmap(address, nbytes);
        }
    }
    return result;
}

static ad_gpu_result
map_handle(ad_device device, uint64_t handle, size_t nbytes, uint64_t *out)
{
    uint64_t address = 0;
    ad_gpu_result result = CUDA(address_reserve, &address, nbytes, 0, 0, 0);
    if (result.code != AD_GPU_SUCCESS) {
        return result;
    }
    result = map_at(device, handle, address, nbytes);
    if (result.code == AD_GPU_SUCCESS) {
        *out = address;
    } else {
        (void)ad_cuda.address_free(address, nbytes);
    }
    return result;
}

/* The mapping keeps the memory, so the handle is released at once. The driver
 * refuses to map more than there is. */
static ad_status
open_vmm(ad_device device, const ad_ipc_memory *memory, uint64_t *out,
         ad_error *err)
{
    uint64_t handle = 0;
    NEED(handle_import);
    NEED(handle_release);
    NEED(address_reserve);
    NEED(address_free);
    NEED(memory_map);
    NEED(memory_unmap);
    NEED(memory_set_access);
    ad_gpu_result result =
        CUDA(handle_import, &handle, as_pointer(memory->file),
             AD_GPU_FILE_DESCRIPTOR);
    if (result.code == AD_GPU_SUCCESS) {
        result = map_handle(device, handle, memory->nbytes, out);
        (void)ad_cuda.handle_release(handle);
    }
    return check(device, result, err);
}

static int
close_vmm(const ad_ipc_memory *memory, uint64_t data)
{
    int code = ad_cuda.memory_unmap(data, memory->nbytes);
    return code == AD_GPU_SUCCESS ? ad_cuda.address_free(data, memory->nbytes)
                                  : code;
}

/* --- import: memory of cuMemAlloc ----------------------------------------- */

/* The driver counts how often a handle is open. */
static ad_status
open_legacy(ad_device device, const ad_ipc_memory *memory, uint64_t *out,
            ad_error *err)
{
    struct ad_gpu_ipc_handle name;
    NEED(ipc_open_memory);
    NEED(ipc_close_memory);
    memcpy(name.bytes, memory->bytes, sizeof(name.bytes));
    ad_gpu_result result =
        CUDA(ipc_open_memory, out, name, AD_CUDA_IPC_PEER_ACCESS);
    AD_RETURN_IF_ERR(check(device, result, err));
    if (is_too_short(*out, memory->nbytes)) {
        (void)ad_cuda.ipc_close_memory(*out);
        return fail_short(device, err);
    }
    return AD_OK;
}

/* --- slots ---------------------------------------------------------------- */

static ad_status
open_inside(ad_device device, const ad_ipc_memory *memory, uint64_t *out,
            ad_error *err)
{
    switch (memory->kind) {
        case AD_IPC_POOL:
            return open_pool(device, memory, out, err);
        case AD_IPC_VMM:
            return open_vmm(device, memory, out, err);
        default:
            return open_legacy(device, memory, out, err);
    }
}

ad_status
ad_cuda_memory_open(ad_context context, const ad_ipc_memory *memory,
                    void **out, ad_error *err)
{
    const ad_device device = context.device;
    ad_gpu_scope scope;
    uint64_t data = 0;
    AD_RETURN_IF_ERR(ad_gpu_check_imported(&ad_gpu_cuda, device, memory, err));
    AD_RETURN_IF_ERR(ad_gpu_enter(&ad_gpu_cuda, context, &scope, err));
    ad_gpu_relax(&ad_gpu_cuda, &scope);
    ad_status status = open_inside(device, memory, &data, err);
    ad_gpu_leave(&ad_gpu_cuda, &scope);
    *out = (void *)(uintptr_t)data;
    return status;
}

static int
close_inside(const ad_ipc_memory *memory, uint64_t data)
{
    switch (memory->kind) {
        case AD_IPC_POOL:
            return close_pool(memory);
        case AD_IPC_VMM:
            return close_vmm(memory, data);
        default:
            return ad_cuda.ipc_close_memory(data);
    }
}

/* Memory of a destroyed context is gone. It is forgotten here all the same. */
void
ad_cuda_memory_close(ad_context context, const ad_ipc_memory *memory,
                     void *data)
{
    ad_gpu_scope scope;
    ad_error err;
    bool has_entered =
        ad_gpu_enter(&ad_gpu_cuda, context, &scope, &err) == AD_OK;
    if (has_entered || err.code != AD_CUDA_NOT_PERMITTED) {
        ad_gpu_relax(&ad_gpu_cuda, &scope);
        (void)ad_gpu_is_ok(close_inside(memory, (uintptr_t)data));
        ad_gpu_leave(&ad_gpu_cuda, &scope);
    }
}
