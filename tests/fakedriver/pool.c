/* Memory pools: they record the owner of memory, and how much is mapped. The
 * guide: "When more than the release threshold bytes of memory are held by the
 * memory pool, the allocator will try to release memory back to the OS on the
 * next call to stream, event or device synchronize." The default is 0. */
#define _GNU_SOURCE /* memfd_create */

#include "ipc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)2 << 20)

static fd_pool *pools; /* never freed */
static uint64_t n_maps;
static fd_pool *defaults[FD_MAX_DEVICES];
static fd_pool *current[FD_MAX_DEVICES];

static fd_pool *
new_locked(int device)
{
    fd_pool *pool = calloc(1, sizeof(*pool));
    if (pool != NULL) {
        pool->device = device;
        pool->is_live = true;
        pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
        pool->next = pools;
        pools = pool;
    }
    return pool;
}

int
fd_pool_create(const fd_pool_properties *properties, fd_pool **out)
{
    if (properties->location != 1 || properties->allocation != 1) {
        return FD_NOT_SUPPORTED; /* only pools of device memory */
    }
    if (properties->id < 0 || properties->id >= fd_n_devices()) {
        return FD_INVALID_DEVICE;
    }
    int code = fd_capture_allows();
    if (code != FD_OK) {
        return code;
    }
    fd_lock();
    *out = new_locked(properties->id);
    if (*out != NULL) {
        (*out)->handles = properties->handles;
    }
    fd_unlock();
    return *out != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

int
fd_pool_default(int device, fd_pool **out)
{
    if (device < 0 || device >= fd_n_devices()) {
        return FD_INVALID_DEVICE;
    }
    fd_lock();
    if (defaults[device] == NULL) {
        defaults[device] = new_locked(device);
        if (defaults[device] != NULL) {
            defaults[device]->is_default = true;
        }
    }
    *out = defaults[device];
    fd_unlock();
    return *out != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

int
fd_pool_current(int device, fd_pool **out)
{
    int code = fd_pool_default(device, out);
    if (code == FD_OK && current[device] != NULL) {
        *out = current[device];
    }
    return code;
}

int
fd_pool_check(const fd_pool *pool)
{
    fd_lock();
    const fd_pool *p = pools;
    while (p != NULL && p != pool) {
        p = p->next;
    }
    bool is_good = p != NULL && p->is_live;
    fd_unlock();
    return is_good ? FD_OK : FD_INVALID_VALUE;
}

int
fd_pool_set_current(int device, fd_pool *pool)
{
    int code = fd_pool_check(pool);
    if (code == FD_OK && pool->is_imported) {
        code = FD_INVALID_VALUE; /* no allocations are made from it */
    }
    if (code == FD_OK && pool->device != device) {
        code = FD_INVALID_DEVICE;
    }
    if (code == FD_OK) {
        current[device] = pool;
    }
    return code;
}

int
fd_pool_destroy(fd_pool *pool)
{
    int code = fd_pool_check(pool);
    if (code == FD_OK && pool->is_default) {
        code = FD_INVALID_VALUE;
    }
    if (code == FD_OK) {
        pool->is_live = false;
        if (current[pool->device] == pool) {
            current[pool->device] = NULL;
        }
    }
    return code;
}

/* The reset of a device destroys its pools. The default one is made anew. */
void
fd_pools_end_locked(int device)
{
    for (fd_pool *pool = pools; pool != NULL; pool = pool->next) {
        pool->is_live = pool->is_live && pool->device != device;
    }
    defaults[device] = current[device] = NULL;
}

/* --- other processes --------------------------------------------------------- */

enum {
    BY_FILE = 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
};

/* A file with the name of the pool. */
static int
export_locked(fd_pool *pool, int *out)
{
    int board;
    if (fd_board_own_locked(&board) == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    pool->shared = pool->shared != 0 ? pool->shared : fd_random();
    fd_name name = fd_name_new(FD_NAME_POOL, pool->device);
    name.pool = pool->shared;
    int file = memfd_create("arrowdev stand-in pool", MFD_CLOEXEC);
    if (file >= 0 && write(file, &name, sizeof(name)) != sizeof(name)) {
        close(file);
        file = -1;
    }
    *out = file >= 0 ? file : *out;
    return file >= 0 ? FD_OK : FD_OUT_OF_MEMORY;
}

int
fd_pool_export(fd_pool *pool, int kind, int *out)
{
    int code = fd_pool_check(pool);
    if (code != FD_OK) {
        return code;
    }
    if (kind != BY_FILE || (pool->handles & kind) == 0) {
        return FD_INVALID_VALUE;
    }
    fd_lock();
    code = export_locked(pool, out);
    fd_unlock();
    return code;
}

int
fd_pool_import(int file, int kind, fd_pool **out)
{
    fd_name name;
    if (kind != BY_FILE ||
        pread(file, &name, sizeof(name), 0) != sizeof(name) ||
        !fd_name_is(&name, FD_NAME_POOL)) {
        return FD_INVALID_VALUE;
    }
    int device = fd_device_here((int)name.device);
    if (device < 0) {
        return FD_INVALID_DEVICE;
    }
    fd_lock();
    *out = new_locked(device);
    if (*out != NULL) {
        (*out)->shared = name.pool;
        (*out)->is_imported = true;
    }
    fd_unlock();
    return *out != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

size_t
fd_pool_count_imported(void)
{
    size_t n = 0;
    fd_lock();
    for (const fd_pool *pool = pools; pool != NULL; pool = pool->next) {
        n += pool->is_imported && pool->is_live;
    }
    fd_unlock();
    return n;
}

/* --- attributes ------------------------------------------------------------ */

int
fd_pool_get(fd_pool *pool, int attribute, void *out)
{
    int code = fd_pool_check(pool);
    if (code != FD_OK) {
        return code;
    }
    if (attribute >= 1 && attribute <= 3) {
        memcpy(out, &pool->reuse[attribute - 1], sizeof(int));
        return FD_OK;
    }
    const uint64_t sizes[] = {pool->threshold, pool->reserved,
                              pool->reserved_high, pool->used,
                              pool->used_high};
    if (attribute < 4 || attribute > 8) {
        return FD_INVALID_VALUE;
    }
    memcpy(out, &sizes[attribute - 4], sizeof(uint64_t));
    return FD_OK;
}

int
fd_pool_set(fd_pool *pool, int attribute, const void *value)
{
    int code = fd_pool_check(pool);
    if (code != FD_OK) {
        return code;
    }
    if (attribute >= 1 && attribute <= 3) {
        memcpy(&pool->reuse[attribute - 1], value, sizeof(int));
    } else if (attribute == 4) {
        memcpy(&pool->threshold, value, sizeof(uint64_t));
    } else {
        code = FD_INVALID_VALUE;
    }
    return code;
}

/* --- mapped memory --------------------------------------------------------- */

void
fd_pool_take_locked(fd_pool *pool, size_t nbytes)
{
    pool->used += nbytes;
    if (pool->used > pool->used_high) {
        pool->used_high = pool->used;
    }
    if (pool->used > pool->reserved) {
        pool->reserved = (pool->used + PAGE - 1) / PAGE * PAGE;
        n_maps++;
    }
    if (pool->reserved > pool->reserved_high) {
        pool->reserved_high = pool->reserved;
    }
}

void
fd_pool_give_locked(fd_pool *pool, size_t nbytes)
{
    pool->used -= nbytes;
}

static void
release_locked(fd_pool *pool, uint64_t keep)
{
    size_t used = (pool->used + PAGE - 1) / PAGE * PAGE;
    if (pool->reserved > keep) {
        pool->reserved = keep > used ? keep : used;
    }
}

void
fd_pools_release(void)
{
    fd_lock();
    for (fd_pool *pool = pools; pool != NULL; pool = pool->next) {
        release_locked(pool, pool->threshold);
    }
    fd_unlock();
}

int
fd_pool_trim(fd_pool *pool, size_t keep)
{
    int code = fd_pool_check(pool);
    if (code == FD_OK) {
        fd_lock();
        release_locked(pool, keep);
        fd_unlock();
    }
    return code;
}

uint64_t
fd_pool_maps(void)
{
    fd_lock();
    uint64_t n = n_maps;
    fd_unlock();
    return n;
}
