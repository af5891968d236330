/* Memory pools: they only record the owner of memory. */
#include "driver.h"

#include <stdlib.h>

static fd_pool *pools; /* never freed */
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
fd_pool_create(int device, fd_pool **out)
{
    if (device < 0 || device >= fd_n_devices()) {
        return FD_INVALID_DEVICE;
    }
    fd_lock();
    *out = new_locked(device);
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
