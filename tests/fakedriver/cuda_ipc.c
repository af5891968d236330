/* libcuda: memory and events of other processes, virtual memory. */
#include "cuda_face.h"

/* --- legacy handles ---------------------------------------------------------- */

int
cuIpcGetMemHandle(fd_name *out, uintptr_t pointer)
{
    FD_ENTER(0);
    return fd_ipc_export((void *)pointer, out);
}

/* "Must be specified as CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS" */
int
cuIpcOpenMemHandle_v2(uintptr_t *out, fd_name handle, unsigned flags)
{
    FD_ENTER(0);
    return flags == 1 ? fd_ipc_open(&handle, (void **)out) : FD_INVALID_VALUE;
}

int
cuIpcCloseMemHandle(uintptr_t base)
{
    FD_ENTER(0);
    return fd_ipc_close(__func__, (void *)base);
}

int
cuIpcGetEventHandle(fd_name *out, uintptr_t event)
{
    FD_ENTER(0);
    return fd_event_export(event, out);
}

int
cuIpcOpenEventHandle(uintptr_t *out, fd_name handle)
{
    FD_ENTER(0);
    return fd_event_import(&handle, out);
}

/* --- pools --------------------------------------------------------------------- */

int
cuMemPoolExportToShareableHandle(int *out, fd_pool *pool, int kind,
                                 unsigned long long flags)
{
    FD_ENTER(0);
    return flags != 0 ? FD_INVALID_VALUE : fd_pool_export(pool, kind, out);
}

int
cuMemPoolImportFromShareableHandle(fd_pool **out, void *handle, int kind,
                                   unsigned long long flags)
{
    FD_ENTER(0);
    return flags != 0 ? FD_INVALID_VALUE
                      : fd_pool_import((int)(intptr_t)handle, kind, out);
}

int
cuMemPoolExportPointer(fd_name *out, uintptr_t pointer)
{
    FD_ENTER(0);
    return fd_pool_export_pointer((void *)pointer, out);
}

int
cuMemPoolImportPointer(uintptr_t *out, fd_pool *pool, fd_name *name)
{
    FD_ENTER(0);
    return fd_pool_import_pointer(pool, name, (void **)out);
}

/* --- virtual memory -------------------------------------------------------------- */

int
cuMemGetAllocationGranularity(size_t *out,
                              const fd_physical_properties *properties,
                              int option)
{
    FD_ENTER(0);
    return option != 0 && option != 1
               ? FD_INVALID_VALUE
               : fd_physical_granularity(out, properties);
}

int
cuMemCreate(uint64_t *out, size_t nbytes,
            const fd_physical_properties *properties, unsigned long long flags)
{
    FD_ENTER(0);
    return flags != 0 ? FD_INVALID_VALUE
                      : fd_physical_create(out, nbytes, properties);
}

int
cuMemRelease(uint64_t handle)
{
    FD_ENTER(0);
    return fd_physical_release(handle);
}

int
cuMemRetainAllocationHandle(uint64_t *out, void *address)
{
    FD_ENTER(0);
    return fd_physical_retain(out, address);
}

int
cuMemGetAllocationPropertiesFromHandle(fd_physical_properties *out,
                                       uint64_t handle)
{
    FD_ENTER(0);
    return fd_physical_describe(handle, out);
}

int
cuMemExportToShareableHandle(int *out, uint64_t handle, int kind,
                             unsigned long long flags)
{
    FD_ENTER(0);
    return flags != 0 ? FD_INVALID_VALUE
                      : fd_physical_export(handle, kind, out);
}

int
cuMemImportFromShareableHandle(uint64_t *out, void *handle, int kind)
{
    FD_ENTER(0);
    return fd_physical_import((int)(intptr_t)handle, kind, out);
}

/* The wanted address is a hint. */
int
cuMemAddressReserve(uintptr_t *out, size_t nbytes, size_t alignment,
                    uintptr_t wanted, unsigned long long flags)
{
    FD_ENTER(0);
    return flags != 0 ? FD_INVALID_VALUE
                      : fd_address_reserve((void **)out, nbytes, alignment);
}

int
cuMemAddressFree(uintptr_t base, size_t nbytes)
{
    FD_ENTER(0);
    return fd_address_free((void *)base, nbytes);
}

int
cuMemMap(uintptr_t base, size_t nbytes, size_t offset, uint64_t handle,
         unsigned long long flags)
{
    FD_ENTER(0);
    return flags != 0 ? FD_INVALID_VALUE
                      : fd_map((void *)base, nbytes, offset, handle);
}

int
cuMemUnmap(uintptr_t base, size_t nbytes)
{
    FD_ENTER(0);
    return fd_unmap(__func__, (void *)base, nbytes);
}

int
cuMemSetAccess(uintptr_t base, size_t nbytes, const fd_access *access,
               size_t n)
{
    FD_ENTER(0);
    return fd_set_access((void *)base, nbytes, access, n);
}

int
cuMemGetAccess(unsigned long long *out, const cu_location *location,
               uintptr_t pointer)
{
    FD_ENTER(0);
    return location->type != 1
               ? FD_INVALID_VALUE
               : fd_get_access(out, location->id, (void *)pointer);
}
