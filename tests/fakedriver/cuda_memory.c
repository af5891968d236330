/* libcuda: memory, pools, pointer attributes. */
#include "cuda_face.h"

#include <string.h>

/* --- memory ---------------------------------------------------------------------- */

int
cuMemAlloc_v2(uintptr_t *out, size_t nbytes)
{
    FD_ENTER(0);
    return fd_allocate(nbytes, FD_DEVICE, 0, (void **)out);
}

int
cuMemAllocPitch_v2(uintptr_t *out, size_t *pitch, size_t width, size_t height,
                   unsigned element)
{
    FD_ENTER(0);
    *pitch = (width + 511) / 512 * 512;
    return fd_allocate(*pitch * height, FD_DEVICE, 0, (void **)out);
}

int
cuMemFree_v2(uintptr_t base)
{
    FD_ENTER(0);
    return base == 0 ? FD_OK : fd_free(__func__, (void *)base, FD_DEVICE);
}

int
cuMemGetInfo_v2(size_t *left, size_t *total)
{
    FD_ENTER(0);
    return fd_memory_info(left, total);
}

int
cuMemGetAddressRange_v2(uintptr_t *base, size_t *nbytes, uintptr_t pointer)
{
    fd_allocation a;
    FD_ENTER(0);
    if (!fd_allocation_at((void *)pointer, &a)) {
        return FD_NOT_FOUND;
    }
    if (base != NULL) {
        *base = (uintptr_t)a.base;
    }
    if (nbytes != NULL) {
        *nbytes = a.nbytes;
    }
    return FD_OK;
}

int
cuMemAllocManaged(uintptr_t *out, size_t nbytes, unsigned flags)
{
    FD_ENTER(0);
    return flags == 1 || flags == 2
               ? fd_allocate(nbytes, FD_MANAGED, flags, (void **)out)
               : FD_INVALID_VALUE;
}

int
cuMemHostAlloc(void **out, size_t nbytes, unsigned flags)
{
    FD_ENTER(0);
    return fd_allocate(nbytes, FD_PINNED, flags, out);
}

int
cuMemAllocHost_v2(void **out, size_t nbytes)
{
    FD_ENTER(0);
    return fd_allocate(nbytes, FD_PINNED, 0, out);
}

int
cuMemFreeHost(void *base)
{
    FD_ENTER(0);
    return fd_free(__func__, base, FD_PINNED);
}

static bool
is_host(const fd_allocation *a)
{
    return a->kind == FD_PINNED || a->kind == FD_REGISTERED;
}

int
cuMemHostGetDevicePointer_v2(uintptr_t *out, void *pointer, unsigned flags)
{
    fd_allocation a;
    FD_ENTER(0);
    if (!fd_allocation_at(pointer, &a) || !is_host(&a)) {
        return FD_INVALID_VALUE;
    }
    *out = (uintptr_t)pointer;
    return FD_OK;
}

int
cuMemHostGetFlags(unsigned *out, void *pointer)
{
    fd_allocation a;
    FD_ENTER(0);
    if (!fd_allocation_at(pointer, &a) || !is_host(&a)) {
        return FD_INVALID_VALUE;
    }
    *out = a.flags;
    return FD_OK;
}

int
cuMemHostRegister_v2(void *base, size_t nbytes, unsigned flags)
{
    FD_ENTER(0);
    return fd_register(base, nbytes, flags);
}

int
cuMemHostUnregister(void *base)
{
    FD_ENTER(0);
    return fd_unregister(__func__, base);
}

/* --- pools ------------------------------------------------------------------------ */

int
cuMemAllocAsync(uintptr_t *out, size_t nbytes, uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_allocate_ordered(__func__, nbytes, NULL, stream, (void **)out);
}

int
cuMemAllocFromPoolAsync(uintptr_t *out, size_t nbytes, fd_pool *pool,
                        uintptr_t stream)
{
    FD_ENTER(stream);
    return pool == NULL ? FD_INVALID_VALUE
                        : fd_allocate_ordered(__func__, nbytes, pool, stream,
                                              (void **)out);
}

int
cuMemFreeAsync(uintptr_t base, uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_free_ordered(__func__, (void *)base, stream);
}

int
cuDeviceGetDefaultMemPool(fd_pool **out, int device)
{
    FD_ENTER(0);
    return fd_pool_default(device, out);
}

int
cuDeviceGetMemPool(fd_pool **out, int device)
{
    FD_ENTER(0);
    return fd_pool_current(device, out);
}

int
cuDeviceSetMemPool(int device, fd_pool *pool)
{
    FD_ENTER(0);
    return fd_pool_set_current(device, pool);
}

/* Only pools of device memory. */
static bool
is_device_pool(const cu_location *location, int type)
{
    return location != NULL && location->type == 1 && type == 1;
}

int
cuMemGetMemPool(fd_pool **out, const cu_location *location, int type)
{
    FD_ENTER(0);
    return is_device_pool(location, type) ? fd_pool_current(location->id, out)
                                          : FD_NOT_SUPPORTED;
}

int
cuMemGetDefaultMemPool(fd_pool **out, const cu_location *location, int type)
{
    FD_ENTER(0);
    return is_device_pool(location, type) ? fd_pool_default(location->id, out)
                                          : FD_NOT_SUPPORTED;
}

int
cuMemPoolCreate(fd_pool **out, const fd_pool_properties *properties)
{
    FD_ENTER(0);
    return fd_pool_create(properties, out);
}

int
cuMemPoolDestroy(fd_pool *pool)
{
    FD_ENTER(0);
    return fd_pool_destroy(pool);
}

int
cuMemPoolGetAttribute(fd_pool *pool, int attribute, void *out)
{
    FD_ENTER(0);
    return fd_pool_get(pool, attribute, out);
}

int
cuMemPoolSetAttribute(fd_pool *pool, int attribute, void *value)
{
    FD_ENTER(0);
    return fd_pool_set(pool, attribute, value);
}

int
cuMemPoolTrimTo(fd_pool *pool, size_t keep)
{
    FD_ENTER(0);
    return fd_pool_trim(pool, keep);
}

int
cuMemPoolSetAccess(fd_pool *pool, const void *access, size_t n)
{
    FD_ENTER(0);
    return fd_pool_check(pool);
}

int
cuMemPoolGetAccess(int *out, fd_pool *pool, const cu_location *location)
{
    FD_ENTER(0);
    int code = fd_pool_check(pool);
    if (code == FD_OK) {
        *out = 3; /* read and write */
    }
    return code;
}

/* --- pointers ---------------------------------------------------------------------- */

static void
write(void *out, uint64_t value, size_t size)
{
    memcpy(out, &value, size);
}

static int
memory_type(const fd_allocation *a)
{
    return is_host(a) ? CU_HOST : CU_DEVICE;
}

/* Of mapped memory it is the addresses that were reserved, as DALI's tests found
 * (cu_vm_test.cc), whereas cuMemGetAddressRange gives what one handle backs
 * (libfabric #12473). */
static fd_range
range_of(const fd_allocation *a)
{
    fd_range range = {.start = a->base, .nbytes = a->nbytes};
    if (a->physical != NULL) {
        (void)fd_reserved_at(a->base, &range.start, &range.nbytes);
    }
    return range;
}

static int
allowed_handles(const fd_allocation *a)
{
    return a->physical != NULL ? fd_physical_handles(a->physical)
           : a->pool != NULL && !a->is_foreign ? a->pool->handles
                                               : 0;
}

/* For known memory. Memory of a pool belongs to no context. */
static int
get_attribute(void *out, int attribute, uintptr_t pointer,
              const fd_allocation *a)
{
    bool on_host = a->kind != FD_DEVICE;
    bool is_placed = a->kind != FD_MANAGED || fd_managed_has_device();
    uintptr_t context =
        a->pool == NULL && is_placed ? (uintptr_t)a->context : 0;
    switch (attribute) {
        case 1:
            write(out, context, 8);
            return FD_OK;
        case 2:
            write(out, (uint64_t)memory_type(a), 4);
            return FD_OK;
        case 3:
            write(out, pointer, 8);
            return FD_OK;
        case 4: /* the host address, if there is one */
            write(out, on_host ? pointer : 0, 8);
            return on_host ? FD_OK : FD_INVALID_VALUE;
        case 6:
            write(out, 0, 4);
            return FD_OK;
        case 10:
            write(out, fd_is_legacy_capable(a), 4);
            return FD_OK;
        case 7:
            write(out, a->id, 8);
            return FD_OK;
        case 8:
            write(out, a->kind == FD_MANAGED, 4);
            return FD_OK;
        case 9:
            write(out, (uint64_t)(is_placed ? a->device : -2), 4);
            return FD_OK;
        case 11:
            write(out, (uintptr_t)range_of(a).start, 8);
            return FD_OK;
        case 12:
            write(out, range_of(a).nbytes, 8);
            return FD_OK;
        case 13:
            write(out, 1, 4);
            return FD_OK;
        case 14:
            write(out, (uint64_t)allowed_handles(a), 8);
            return FD_OK;
        case 17:
            write(out, (uintptr_t)a->pool, 8);
            return FD_OK;
        case 18:
            write(out, a->nbytes, 8);
            return FD_OK;
        case 19:
            write(out, (uintptr_t)a->base, 8);
            return FD_OK;
        default:
            return FD_NOT_SUPPORTED;
    }
}

/* The values that the plural form writes for unknown memory. Reserved addresses
 * have a range without memory. */
static int
write_unknown(void *out, int attribute, uintptr_t pointer)
{
    void *base = NULL;
    size_t nbytes = 0;
    (void)fd_reserved_at((void *)pointer, &base, &nbytes);
    switch (attribute) {
        case 11:
            write(out, (uintptr_t)base, 8);
            return FD_OK;
        case 12:
            write(out, nbytes, 8);
            return FD_OK;
        case 9:
            write(out, (uint64_t)-2, 4);
            return FD_OK;
        case 2:
        case 6:
        case 8:
        case 10:
        case 13:
            write(out, 0, 4);
            return FD_OK;
        default:
            write(out, 0, 8);
            return FD_OK;
    }
}

int
cuPointerGetAttribute(void *out, int attribute, uintptr_t pointer)
{
    fd_allocation a;
    FD_ENTER(0);
    return fd_allocation_at((void *)pointer, &a)
               ? get_attribute(out, attribute, pointer, &a)
               : FD_INVALID_VALUE;
}

/* Attributes that do not fit the memory are written as zeros, without an
 * error. */
int
cuPointerGetAttributes(unsigned n, const int *attributes, void **out,
                       uintptr_t pointer)
{
    fd_allocation a;
    FD_ENTER(0);
    bool is_known = fd_allocation_at((void *)pointer, &a);
    int code = FD_OK;
    for (unsigned i = 0; i < n && code == FD_OK; i++) {
        code = is_known ? get_attribute(out[i], attributes[i], pointer, &a)
                        : write_unknown(out[i], attributes[i], pointer);
        code = code == FD_INVALID_VALUE ? FD_OK : code;
    }
    return code;
}

int
cuPointerSetAttribute(const void *value, int attribute, uintptr_t pointer)
{
    fd_allocation a;
    FD_ENTER(0);
    return fd_allocation_at((void *)pointer, &a) ? FD_OK : FD_INVALID_VALUE;
}
