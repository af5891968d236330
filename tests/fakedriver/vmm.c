/* Virtual memory management: addresses that are reserved, and physical memory
 * that is mapped there. Each piece of physical memory is a file, which other
 * processes get as it is, so the memory lives until the last one closes it. */
#define _GNU_SOURCE /* memfd_create */
#include "ipc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    PINNED = 1, /* CU_MEM_ALLOCATION_TYPE_PINNED */
    ON_DEVICE = 1,
    BY_FILE = 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
};

#define GRANULARITY ((size_t)2 << 20)

/* Freed with its last handle and its last mapping. */
struct fd_physical {
    fd_physical *next;
    uint64_t handle;
    int file; /* the memory, and a page with its name */
    size_t nbytes;
    int device;
    int handles; /* kinds that other processes take it by */
    int n_handles;
    int n_maps;
};

typedef struct reserved {
    struct reserved *next;
    void *memory; /* the engine's, which is larger than needed */
    char *base;
    size_t nbytes;
} reserved;

static fd_physical *physicals;
static reserved *reservations;
static uint64_t last_handle;

static bool
is_multiple(uint64_t value)
{
    return value % GRANULARITY == 0;
}

/* --- physical memory ----------------------------------------------------------- */

static fd_physical *
find_locked(uint64_t handle)
{
    fd_physical *p = physicals;
    while (p != NULL && (p->handle != handle || p->n_handles == 0)) {
        p = p->next;
    }
    return p;
}

static void
drop_locked(fd_physical *physical)
{
    if (physical->n_handles > 0 || physical->n_maps > 0) {
        return;
    }
    fd_physical **link = &physicals;
    while (*link != physical) {
        link = &(*link)->next;
    }
    *link = physical->next;
    close(physical->file);
    free(physical);
}

/* Takes the file on success. */
static int
add_physical(int file, size_t nbytes, int device, int handles, uint64_t *out)
{
    fd_physical *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    fd_lock();
    *p = (fd_physical){.next = physicals,
                       .handle = ++last_handle,
                       .file = file,
                       .nbytes = nbytes,
                       .device = device,
                       .handles = handles,
                       .n_handles = 1};
    physicals = p;
    *out = p->handle;
    fd_unlock();
    return FD_OK;
}

static int
check_properties(const fd_physical_properties *properties)
{
    if (properties->type != PINNED || properties->location != ON_DEVICE) {
        return FD_NOT_SUPPORTED; /* only memory of a device */
    }
    if (properties->handles != 0 && properties->handles != BY_FILE) {
        return FD_NOT_SUPPORTED;
    }
    return properties->id >= 0 && properties->id < fd_n_devices()
               ? FD_OK
               : FD_INVALID_DEVICE;
}

int
fd_physical_granularity(size_t *out, const fd_physical_properties *properties)
{
    *out = GRANULARITY;
    return check_properties(properties);
}

int
fd_physical_create(uint64_t *out, size_t nbytes,
                   const fd_physical_properties *properties)
{
    int code = check_properties(properties);
    if (code != FD_OK) {
        return code;
    }
    if (nbytes == 0 || !is_multiple(nbytes)) {
        return FD_INVALID_VALUE;
    }
    int file = memfd_create("arrowdev stand-in memory",
                            MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fd_name name = fd_name_new(FD_NAME_PHYSICAL, properties->id);
    name.nbytes = nbytes;
    bool is_made =
        file >= 0 && ftruncate(file, (off_t)(nbytes + PAGE)) == 0 &&
        pwrite(file, &name, sizeof(name), (off_t)nbytes) == sizeof(name) &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
    code = is_made ? add_physical(file, nbytes, properties->id,
                                  properties->handles, out)
                   : FD_OUT_OF_MEMORY;
    if (code != FD_OK && file >= 0) {
        close(file);
    }
    return code;
}

int
fd_physical_release(uint64_t handle)
{
    fd_lock();
    fd_physical *p = find_locked(handle);
    if (p != NULL) {
        p->n_handles--;
        drop_locked(p);
    }
    fd_unlock();
    return p != NULL ? FD_OK : FD_INVALID_VALUE;
}

int
fd_physical_retain(uint64_t *out, const void *address)
{
    fd_lock();
    const fd_allocation *a = fd_allocation_find_locked(address);
    bool is_mapped = a != NULL && a->physical != NULL;
    if (is_mapped) {
        a->physical->n_handles++;
        *out = a->physical->handle;
    }
    fd_unlock();
    return is_mapped ? FD_OK : FD_INVALID_VALUE;
}

int
fd_physical_describe(uint64_t handle, fd_physical_properties *out)
{
    fd_lock();
    const fd_physical *p = find_locked(handle);
    if (p != NULL) {
        *out = (fd_physical_properties){.type = PINNED,
                                        .handles = p->handles,
                                        .location = ON_DEVICE,
                                        .id = p->device};
    }
    fd_unlock();
    return p != NULL ? FD_OK : FD_INVALID_VALUE;
}

int
fd_physical_handles(const fd_physical *physical)
{
    return physical->handles;
}

int
fd_physical_export(uint64_t handle, int kind, int *out)
{
    int code = FD_INVALID_VALUE;
    fd_lock();
    const fd_physical *p = find_locked(handle);
    if (p != NULL && kind == BY_FILE && (p->handles & kind) != 0) {
        *out = fcntl(p->file, F_DUPFD_CLOEXEC, 3);
        code = *out >= 0 ? FD_OK : FD_OUT_OF_MEMORY;
    }
    fd_unlock();
    return code;
}

int
fd_physical_import(int file, int kind, uint64_t *out)
{
    struct stat found;
    fd_name name;
    if (kind != BY_FILE || fstat(file, &found) != 0 ||
        !S_ISREG(found.st_mode) || found.st_size < PAGE ||
        pread(file, &name, sizeof(name), found.st_size - PAGE) !=
            sizeof(name) ||
        !fd_name_is(&name, FD_NAME_PHYSICAL) ||
        name.nbytes != (uint64_t)found.st_size - PAGE) {
        return FD_INVALID_VALUE;
    }
    int device = fd_device_here((int)name.device);
    if (device < 0) {
        return FD_INVALID_DEVICE;
    }
    int own = fcntl(file, F_DUPFD_CLOEXEC, 3);
    if (own < 0) {
        return FD_OUT_OF_MEMORY;
    }
    int code = add_physical(own, name.nbytes, device, BY_FILE, out);
    if (code != FD_OK) {
        close(own);
    }
    return code;
}

/* --- addresses ----------------------------------------------------------------- */

static reserved *
reservation_of_locked(const void *address)
{
    reserved *r = reservations;
    const char *at = address;
    while (r != NULL && !(at >= r->base && at < r->base + r->nbytes)) {
        r = r->next;
    }
    return r;
}

int
fd_address_reserve(void **out, size_t nbytes, size_t alignment)
{
    if (nbytes == 0 || !is_multiple(nbytes) ||
        (alignment & (alignment - 1)) != 0 || alignment > GRANULARITY) {
        return FD_INVALID_VALUE;
    }
    reserved *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    /* Pinned: it does not count as memory of the device. */
    int status = ad_engine_allocate(0, nbytes + GRANULARITY, AD_ENGINE_PINNED,
                                    NULL, &r->memory);
    if (status != AD_ENGINE_OK) {
        free(r);
        return fd_code(status);
    }
    r->base = (char *)(((uintptr_t)r->memory + GRANULARITY - 1) / GRANULARITY *
                       GRANULARITY);
    r->nbytes = nbytes;
    mprotect(r->memory, nbytes + GRANULARITY, PROT_NONE);
    mprotect(ad_engine_inside(r->memory), nbytes + GRANULARITY, PROT_NONE);
    fd_lock();
    r->next = reservations;
    reservations = r;
    fd_unlock();
    *out = r->base;
    return FD_OK;
}

static bool
is_unmapped_locked(const char *base, size_t nbytes)
{
    for (const fd_allocation *a = fd_allocation_list_locked(); a != NULL;
         a = a->next) {
        if (a->base < base + nbytes && base < a->base + a->nbytes) {
            return false;
        }
    }
    return true;
}

int
fd_address_free(void *base, size_t nbytes)
{
    fd_lock();
    reserved *r = reservation_of_locked(base);
    bool is_free = r != NULL && r->base == base && r->nbytes == nbytes &&
                   is_unmapped_locked(base, nbytes);
    if (is_free) {
        reserved **link = &reservations;
        while (*link != r) {
            link = &(*link)->next;
        }
        *link = r->next;
        ad_engine_free(r->memory);
        free(r);
    }
    fd_unlock();
    return is_free ? FD_OK : FD_INVALID_VALUE;
}

/* --- mappings ------------------------------------------------------------------ */

static bool
map_inside(char *base, size_t nbytes, int file, uint64_t offset)
{
    char *inside = ad_engine_inside(base);
    bool is_mapped = mmap(inside, nbytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                          file, (off_t)offset) == inside;
    madvise(inside, nbytes, MADV_DONTFORK);
    madvise(inside, nbytes, MADV_DONTDUMP);
    return is_mapped;
}

static int
map_locked(char *base, size_t nbytes, fd_physical *physical)
{
    const reserved *r = reservation_of_locked(base);
    if (physical == NULL || r == NULL ||
        nbytes > (size_t)(r->base + r->nbytes - base) ||
        nbytes > physical->nbytes || !is_unmapped_locked(base, nbytes)) {
        return FD_INVALID_VALUE;
    }
    fd_allocation *a = fd_allocation_add_locked(base, nbytes, FD_DEVICE, NULL,
                                                physical->device);
    if (a == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    a->physical = physical;
    physical->n_maps++;
    if (!map_inside(base, nbytes, physical->file, 0)) {
        fd_allocation_free_locked(a, "a failed cuMemMap");
        return FD_OUT_OF_MEMORY;
    }
    return FD_OK;
}

/* The offset "currently must be zero". */
int
fd_map(void *base, size_t nbytes, size_t offset, uint64_t handle)
{
    if (nbytes == 0 || !is_multiple(nbytes) || !is_multiple((uintptr_t)base) ||
        offset != 0) {
        return FD_INVALID_VALUE;
    }
    fd_lock();
    int code = map_locked(base, nbytes, find_locked(handle));
    fd_unlock();
    return code;
}

/* The pages of the arena are there again. */
void
fd_unmap_locked(const fd_allocation *a)
{
    int file;
    uint64_t offset;
    ad_engine_allocation found;
    if (ad_engine_memory_file(a->base, &file, &offset, &found) ==
        AD_ENGINE_OK) {
        offset += (uint64_t)(a->base - (char *)found.base);
        (void)map_inside(a->base, a->nbytes, file, offset);
    }
}

void
fd_physical_unmapped_locked(fd_physical *physical)
{
    physical->n_maps--;
    drop_locked(physical);
}

/* Whether mappings, whole ones, are all that is in the range. */
static bool
is_of_mappings_locked(char *base, size_t nbytes)
{
    char *at = base;
    while (at < base + nbytes) {
        const fd_allocation *a = fd_allocation_find_locked(at);
        if (a == NULL || a->physical == NULL || a->base != at) {
            return false;
        }
        at += a->nbytes;
    }
    return at == base + nbytes;
}

int
fd_unmap(const char *name, void *base, size_t nbytes)
{
    char *at = base;
    fd_lock();
    bool is_valid = nbytes > 0 && is_of_mappings_locked(base, nbytes);
    while (is_valid && at < (char *)base + nbytes) {
        fd_allocation *a = fd_allocation_find_locked(at);
        at += a->nbytes;
        fd_allocation_free_locked(a, name);
    }
    fd_unlock();
    return is_valid ? FD_OK : FD_INVALID_VALUE;
}

static int
set_access_locked(fd_allocation *a, const fd_access *access)
{
    if (access->location != ON_DEVICE || access->id < 0 ||
        access->id >= fd_n_devices() ||
        (access->flags & ~FD_READ_WRITE) != 0 || access->flags == 2) {
        return FD_INVALID_VALUE;
    }
    bool is_used = false;
    a->access[access->id] = (unsigned char)access->flags;
    for (int i = 0; i < FD_MAX_DEVICES; i++) {
        is_used |= a->access[i] != 0;
    }
    mprotect(ad_engine_inside(a->base), a->nbytes,
             is_used ? PROT_READ | PROT_WRITE : PROT_NONE);
    return FD_OK;
}

int
fd_set_access(void *base, size_t nbytes, const fd_access *access, size_t n)
{
    fd_lock();
    int code = nbytes > 0 && n > 0 && is_of_mappings_locked(base, nbytes)
                   ? FD_OK
                   : FD_INVALID_VALUE;
    for (char *at = base; code == FD_OK && at < (char *)base + nbytes;) {
        fd_allocation *a = fd_allocation_find_locked(at);
        for (size_t i = 0; i < n && code == FD_OK; i++) {
            code = set_access_locked(a, &access[i]);
        }
        at += a->nbytes;
    }
    fd_unlock();
    return code;
}

int
fd_get_access(unsigned long long *out, int device, const void *address)
{
    fd_lock();
    const fd_allocation *a = fd_allocation_find_locked(address);
    bool is_known = a != NULL && a->physical != NULL && device >= 0 &&
                    device < fd_n_devices();
    if (is_known) {
        *out = a->access[device];
    }
    fd_unlock();
    return is_known ? FD_OK : FD_INVALID_VALUE;
}

/* --- use ------------------------------------------------------------------------- */

bool
fd_reserved_at(const void *address, void **base, size_t *nbytes)
{
    fd_lock();
    const reserved *r = reservation_of_locked(address);
    if (r != NULL) {
        *base = r->base;
        *nbytes = r->nbytes;
    }
    fd_unlock();
    return r != NULL;
}

static bool
is_allowed(const fd_allocation *a, int device, unsigned access)
{
    bool is_given = device >= 0 && (a->access[device] & access) == access;
    for (int i = 0; device < 0 && i < FD_MAX_DEVICES; i++) {
        is_given |= (a->access[i] & access) == access;
    }
    return is_given;
}

bool
fd_mapped_locked(const void *start, size_t nbytes, int device, bool is_written)
{
    const char *end = (const char *)start + nbytes;
    if (reservation_of_locked(start) == NULL) {
        return true;
    }
    for (const char *at = start; at < end;) {
        const fd_allocation *a = fd_allocation_find_locked(at);
        if (a == NULL || a->physical == NULL ||
            !is_allowed(a, device, is_written ? FD_READ_WRITE : FD_READ)) {
            return false;
        }
        at = a->base + a->nbytes;
    }
    return true;
}

size_t
fd_vmm_count(void)
{
    size_t n = 0;
    fd_lock();
    for (const fd_physical *p = physicals; p != NULL; p = p->next) {
        n += (size_t)p->n_handles;
    }
    for (const reserved *r = reservations; r != NULL; r = r->next) {
        n++;
    }
    fd_unlock();
    return n;
}
