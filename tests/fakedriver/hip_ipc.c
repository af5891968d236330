/* libamdhip64: memory and events of other processes, virtual memory. */
#include "hip_face.h"

#include "ipc.h"

/* --- legacy handles ---------------------------------------------------------- */

/* "devPtr - Base pointer to previously allocated device memory". The codes are
 * those of AMD's source (hip_memory.cpp, hip_event.hpp). */
static int
export_base(fd_name *out, void *base)
{
    fd_allocation a;
    if (base == NULL) {
        return FD_INVALID_VALUE;
    }
    int code = fd_allocation_at(base, &a) && a.base == base
                   ? fd_ipc_export(base, out)
                   : FD_INVALID_VALUE;
    return code == FD_INVALID_VALUE ? FD_INVALID_DEVICE_POINTER : code;
}

static int
open_memory(void **out, const fd_name *handle, unsigned flags)
{
    int code = flags == 1 ? fd_ipc_open(handle, out) : FD_INVALID_VALUE;
    return code == FD_INVALID_HANDLE ? FD_INVALID_DEVICE_POINTER : code;
}

static int
export_event(fd_name *out, uintptr_t event)
{
    int code = fd_event_export(event, out);
    return code == FD_INVALID_VALUE ? FD_INVALID_CONFIGURATION : code;
}

static int
open_event(uintptr_t *out, const fd_name *handle)
{
    int code = fd_event_import(handle, out);
    return code == FD_INVALID_HANDLE ? FD_INVALID_VALUE : code;
}

FD_EXPORT int
hipIpcGetMemHandle(fd_name *out, void *base)
{
    HIP_CALL(0, export_base(out, base));
}

FD_EXPORT int
hipIpcOpenMemHandle(void **out, fd_name handle, unsigned flags)
{
    HIP_CALL(0, open_memory(out, &handle, flags));
}

FD_EXPORT int
hipIpcCloseMemHandle(void *base)
{
    HIP_CALL(0, fd_ipc_close(__func__, base));
}

FD_EXPORT int
hipIpcGetEventHandle(fd_name *out, uintptr_t event)
{
    HIP_CALL(0, export_event(out, event));
}

FD_EXPORT int
hipIpcOpenEventHandle(uintptr_t *out, fd_name handle)
{
    HIP_CALL(0, open_event(out, &handle));
}

/* --- pools --------------------------------------------------------------------- */

FD_EXPORT int
hipMemPoolExportToShareableHandle(int *out, fd_pool *pool, int kind,
                                  unsigned flags)
{
    HIP_CALL(0,
             flags != 0 ? FD_INVALID_VALUE : fd_pool_export(pool, kind, out));
}

FD_EXPORT int
hipMemPoolImportFromShareableHandle(fd_pool **out, void *handle, int kind,
                                    unsigned flags)
{
    HIP_CALL(0, flags != 0 ? FD_INVALID_VALUE
                           : fd_pool_import((int)(intptr_t)handle, kind, out));
}

FD_EXPORT int
hipMemPoolExportPointer(fd_name *out, void *pointer)
{
    HIP_CALL(0, fd_pool_export_pointer(pointer, out));
}

FD_EXPORT int
hipMemPoolImportPointer(void **out, fd_pool *pool, fd_name *name)
{
    HIP_CALL(0, fd_pool_import_pointer(pool, name, out));
}

FD_EXPORT int
hipMemPoolSetAccess(fd_pool *pool, const fd_access *access, size_t n)
{
    HIP_CALL(0, fd_pool_check(pool));
}

/* --- virtual memory -------------------------------------------------------------- */

FD_EXPORT int
hipMemGetAllocationGranularity(size_t *out,
                               const fd_physical_properties *properties,
                               int option)
{
    HIP_CALL(0, option != 0 && option != 1
                    ? FD_INVALID_VALUE
                    : fd_physical_granularity(out, properties));
}

FD_EXPORT int
hipMemCreate(uint64_t *out, size_t nbytes,
             const fd_physical_properties *properties,
             unsigned long long flags)
{
    HIP_CALL(0, flags != 0 ? FD_INVALID_VALUE
                           : fd_physical_create(out, nbytes, properties));
}

FD_EXPORT int
hipMemRelease(uint64_t handle)
{
    HIP_CALL(0, fd_physical_release(handle));
}

FD_EXPORT int
hipMemRetainAllocationHandle(uint64_t *out, void *address)
{
    HIP_CALL(0, fd_physical_retain(out, address));
}

FD_EXPORT int
hipMemGetAllocationPropertiesFromHandle(fd_physical_properties *out,
                                        uint64_t handle)
{
    HIP_CALL(0, fd_physical_describe(handle, out));
}

FD_EXPORT int
hipMemExportToShareableHandle(int *out, uint64_t handle, int kind,
                              unsigned long long flags)
{
    HIP_CALL(0, flags != 0 ? FD_INVALID_VALUE
                           : fd_physical_export(handle, kind, out));
}

FD_EXPORT int
hipMemImportFromShareableHandle(uint64_t *out, void *handle, int kind)
{
    HIP_CALL(0, fd_physical_import((int)(intptr_t)handle, kind, out));
}

FD_EXPORT int
hipMemAddressReserve(void **out, size_t nbytes, size_t alignment, void *wanted,
                     unsigned long long flags)
{
    HIP_CALL(0, flags != 0 ? FD_INVALID_VALUE
                           : fd_address_reserve(out, nbytes, alignment));
}

FD_EXPORT int
hipMemAddressFree(void *base, size_t nbytes)
{
    HIP_CALL(0, fd_address_free(base, nbytes));
}

FD_EXPORT int
hipMemMap(void *base, size_t nbytes, size_t offset, uint64_t handle,
          unsigned long long flags)
{
    HIP_CALL(0, flags != 0 ? FD_INVALID_VALUE
                           : fd_map(base, nbytes, offset, handle));
}

FD_EXPORT int
hipMemUnmap(void *base, size_t nbytes)
{
    HIP_CALL(0, fd_unmap(__func__, base, nbytes));
}

FD_EXPORT int
hipMemSetAccess(void *base, size_t nbytes, const fd_access *access, size_t n)
{
    HIP_CALL(0, fd_set_access(base, nbytes, access, n));
}
