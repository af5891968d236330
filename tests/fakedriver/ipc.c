/* Boards, and memory of other processes. */
#define _GNU_SOURCE /* memfd_create */
#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0xadf0c300u
#define BOARD_MAGIC UINT64_C(0xadf0c3b0a2d00001)

_Static_assert(sizeof(fd_name) == 64, "the size of a handle");

/* --- boards ------------------------------------------------------------------ */

/* Mapped as long as the process lives. */
typedef struct known_board {
    struct known_board *next;
    dev_t device;
    ino_t inode;
    fd_board *board;
} known_board;

static known_board *known; /* of other processes */
static fd_board *own;
static int own_file = -1;
static size_t last_memory;

uint64_t
fd_random(void)
{
    uint64_t number = 0;
    while (number == 0) {
        if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
            number = (uint64_t)getpid() << 32 | 1;
        }
    }
    return number;
}

static fd_board *
map_board(int file)
{
    void *mapped = mmap(NULL, sizeof(fd_board), PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);
    return mapped != MAP_FAILED ? mapped : NULL;
}

/* A process that is killed while it holds the lock leaves the board as it
 * is. */
static void
make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

fd_board *
fd_board_own_locked(int *file)
{
    if (own == NULL) {
        int fresh =
            memfd_create("arrowdev stand-in", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fresh < 0) {
            return NULL;
        }
        own =
            ftruncate(fresh, sizeof(fd_board)) == 0 ? map_board(fresh) : NULL;
        if (own == NULL) {
            close(fresh);
            return NULL;
        }
        (void)fcntl(fresh, F_ADD_SEALS, F_SEAL_SHRINK);
        own_file = fresh;
        make_lock(&own->lock);
        atomic_store(&own->magic, BOARD_MAGIC);
    }
    *file = own_file;
    return own;
}

/* The process may have ended, or the name may be invented. */
static int
open_of(int pid, int file)
{
    char path[64];
    struct stat found;
    if (pid <= 0 || file < 0) {
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, file);
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened >= 0 &&
        (fstat(opened, &found) != 0 || !S_ISREG(found.st_mode))) {
        close(opened);
        opened = -1;
    }
    return opened;
}

int
fd_name_open_file(const fd_name *name)
{
    return open_of(name->pid, name->file);
}

static fd_board *
find_board(const struct stat *file)
{
    for (const known_board *k = known; k != NULL; k = k->next) {
        if (k->device == file->st_dev && k->inode == file->st_ino) {
            return k->board;
        }
    }
    return NULL;
}

static fd_board *
add_board(int file, const struct stat *stat)
{
    fd_board *board =
        stat->st_size == sizeof(fd_board) ? map_board(file) : NULL;
    known_board *k = malloc(sizeof(*k));
    if (board == NULL || k == NULL ||
        atomic_load(&board->magic) != BOARD_MAGIC) {
        if (board != NULL) {
            munmap(board, sizeof(*board));
        }
        free(k);
        return NULL;
    }
    *k = (known_board){known, stat->st_dev, stat->st_ino, board};
    known = k;
    return board;
}

fd_board *
fd_board_of_locked(const fd_name *name)
{
    struct stat found;
    if (name->pid == getpid()) {
        return name->board == own_file ? own : NULL;
    }
    int file = open_of(name->pid, name->board);
    if (file < 0) {
        return NULL;
    }
    fd_board *board = NULL;
    if (fstat(file, &found) == 0) {
        board = find_board(&found);
        board = board != NULL ? board : add_board(file, &found);
    }
    close(file);
    return board;
}

void
fd_board_lock(fd_board *board)
{
    if (pthread_mutex_lock(&board->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&board->lock);
    }
}

void
fd_board_unlock(fd_board *board)
{
    pthread_mutex_unlock(&board->lock);
}

void
fd_place_take(fd_place *place, bool is_ready)
{
    atomic_store(&place->check, fd_random());
    atomic_store(&place->is_ready, is_ready);
    atomic_store(&place->is_live, true);
}

fd_name
fd_name_new(fd_name_kind kind, int device)
{
    return (fd_name){
        .magic = MAGIC + kind,
        .pid = getpid(),
        .board = own_file,
        .file = -1,
        .device = (uint32_t)fd_device_number(device),
    };
}

bool
fd_name_is(const fd_name *name, fd_name_kind kind)
{
    return name->magic == MAGIC + kind;
}

/* --- memory of this process --------------------------------------------------- */

/* Places are used again as late as possible. */
static int
share_locked(fd_allocation *a)
{
    int file;
    fd_board *board = fd_board_own_locked(&file);
    for (size_t i = 0; a->place == NULL && board != NULL && i < FD_N_MEMORIES;
         i++) {
        fd_place *place =
            &board->memories[++last_memory % FD_N_MEMORIES].place;
        if (!atomic_load(&place->is_live)) {
            fd_place_take(place, a->is_ready);
            a->place = place;
            a->check = atomic_load(&place->check);
        }
    }
    return a->place != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

static int
name_locked(fd_allocation *a, fd_name *out)
{
    ad_engine_allocation found;
    fd_name name;
    int code = share_locked(a);
    if (code != FD_OK) {
        return code;
    }
    fd_shared_memory *shared = (fd_shared_memory *)a->place;
    name = fd_name_new(FD_NAME_MEMORY, a->device);
    name.check = a->check;
    name.place = (uint32_t)(shared - own->memories);
    name.nbytes = a->nbytes;
    code = fd_code(
        ad_engine_memory_file(a->base, &name.file, &name.offset, &found));
    if (code == FD_OK) {
        shared->name = *out = name;
    }
    return code;
}

/* "Takes a pointer to the base of an existing device memory allocation created
 * with cuMemAlloc" (cuIpcGetMemHandle): no other memory has such a name. */
bool
fd_is_legacy_capable(const fd_allocation *a)
{
    return a->kind == FD_DEVICE && a->physical == NULL && !a->is_foreign &&
           (a->pool == NULL || fd_face_here.names_pool_memory);
}

int
fd_ipc_export(const void *pointer, fd_name *out)
{
    fd_lock();
    fd_allocation *a = fd_allocation_find_locked(pointer);
    int code = a != NULL && !a->is_leaving && fd_is_legacy_capable(a)
                   ? name_locked(a, out)
                   : FD_INVALID_VALUE;
    fd_unlock();
    return code;
}

/* "Constructs shareData_out for sharing a specific allocation from an already
 * shared memory pool" (cuMemPoolExportPointer). */
int
fd_pool_export_pointer(const void *pointer, fd_name *out)
{
    fd_lock();
    fd_allocation *a = fd_allocation_find_locked(pointer);
    int code = FD_INVALID_VALUE;
    if (a != NULL && a->base == pointer && !a->is_leaving && !a->is_foreign &&
        a->pool != NULL && a->pool->shared != 0) {
        code = name_locked(a, out);
    }
    if (code == FD_OK) {
        out->magic = MAGIC + FD_NAME_POINTER;
        out->pool = a->pool->shared;
    }
    fd_unlock();
    return code;
}

/* --- memory of other processes --------------------------------------------------- */

static fd_place *
find_place_locked(const fd_name *name)
{
    fd_name memory = *name; /* as the board has it */
    memory.magic = MAGIC + FD_NAME_MEMORY;
    memory.pool = 0;
    fd_board *board = fd_board_of_locked(name);
    fd_shared_memory *shared = board != NULL && name->place < FD_N_MEMORIES
                                   ? &board->memories[name->place]
                                   : NULL;
    return shared != NULL && fd_place_has(&shared->place, name->check) &&
                   memcmp(&shared->name, &memory, sizeof(memory)) == 0
               ? &shared->place
               : NULL;
}

/* "If the memory handle has already been opened by the current context, the
 * reference count on the handle is incremented by 1 and the existing device
 * pointer is returned" (cuIpcOpenMemHandle). */
static fd_allocation *
find_opened_locked(const fd_place *place, const fd_context *context)
{
    fd_allocation *a = fd_allocation_list_locked();
    while (a != NULL && !(a->place == place && a->context == context &&
                          a->is_foreign && a->pool == NULL)) {
        a = a->next;
    }
    return a;
}

static int
map_locked(const fd_name *name, fd_place *place, fd_context *context,
           fd_allocation **out)
{
    void *base;
    int device = fd_device_here((int)name->device);
    int file = fd_name_open_file(name);
    if (device < 0 || file < 0) {
        if (file >= 0) {
            close(file);
        }
        return device < 0 ? FD_INVALID_DEVICE : FD_INVALID_HANDLE;
    }
    int code = fd_code(ad_engine_map(device, file, name->offset, name->nbytes,
                                     AD_ENGINE_DEVICE, context, &base));
    close(file);
    if (code != FD_OK) {
        return code;
    }
    *out = fd_allocation_add_locked(base, name->nbytes, FD_DEVICE, context,
                                    device);
    if (*out == NULL) {
        ad_engine_free(base);
        return FD_OUT_OF_MEMORY;
    }
    (*out)->place = place;
    (*out)->check = name->check;
    (*out)->is_foreign = true;
    return FD_OK;
}

/* "CUipcMemHandles from each CUdevice in a given process may only be opened by
 * one CUcontext per CUdevice per other process" (cuIpcOpenMemHandle). The code
 * is not documented. */
static void
check_context_locked(const fd_name *name, const fd_context *context)
{
    const fd_shared_memory *first = fd_board_of_locked(name)->memories;
    const fd_allocation *a = fd_allocation_list_locked();
    for (; a != NULL; a = a->next) {
        const fd_shared_memory *other = (const fd_shared_memory *)a->place;
        if (a->n_opens > 0 && a->context != context &&
            a->context->device == context->device && other >= first &&
            other < first + FD_N_MEMORIES &&
            other->name.device == name->device) {
            fd_violation("two contexts of device %d opened memory of process "
                         "%d",
                         context->device, name->pid);
            return;
        }
    }
}

static int
open_locked(const fd_name *name, fd_context *context, void **out)
{
    fd_place *place = find_place_locked(name);
    if (place == NULL) {
        return FD_INVALID_HANDLE;
    }
    fd_allocation *a = find_opened_locked(place, context);
    check_context_locked(name, context);
    int code = a != NULL ? FD_OK : map_locked(name, place, context, &a);
    if (code == FD_OK) {
        a->n_opens++;
        *out = a->base;
    }
    return code;
}

/* A process cannot open its own handle: 201, as seen on both drivers. */
int
fd_ipc_open(const fd_name *name, void **out)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code == FD_OK && !fd_name_is(name, FD_NAME_MEMORY)) {
        code = FD_INVALID_VALUE;
    }
    if (code == FD_OK && name->pid == getpid()) {
        code = FD_INVALID_CONTEXT;
    }
    if (code == FD_OK && name->pool != 0) {
        code = FD_INVALID_HANDLE;
    }
    code = code == FD_OK ? fd_capture_allows() : code;
    if (code == FD_OK) {
        fd_lock();
        code = open_locked(name, context, out);
        fd_unlock();
    }
    return code;
}

int
fd_ipc_close(const char *name, void *base)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code != FD_OK) {
        return code;
    }
    fd_lock();
    fd_allocation *a = fd_allocation_find_locked(base);
    bool is_opened = a != NULL && a->base == base && a->n_opens > 0;
    bool is_last = is_opened && a->n_opens == 1;
    if (is_opened && !is_last) {
        a->n_opens--;
    }
    fd_unlock();
    if (!is_opened) {
        return FD_INVALID_VALUE;
    }
    return is_last ? fd_free_opened(name, base) : FD_OK;
}

int
fd_pool_import_pointer(fd_pool *pool, const fd_name *name, void **out)
{
    fd_context *context;
    fd_allocation *a;
    int code = fd_context_current(&context);
    code = code == FD_OK ? fd_pool_check(pool) : code;
    code = code == FD_OK ? fd_capture_allows() : code;
    if (code != FD_OK) {
        return code;
    }
    if (!pool->is_imported || !fd_name_is(name, FD_NAME_POINTER) ||
        name->pool != pool->shared) {
        return FD_INVALID_VALUE;
    }
    fd_lock();
    fd_place *place = find_place_locked(name);
    code = place != NULL ? map_locked(name, place, context, &a)
                         : FD_INVALID_VALUE;
    if (code == FD_OK) {
        a->pool = pool;
        *out = a->base;
    }
    fd_unlock();
    return code;
}

/* --- frees --------------------------------------------------------------------- */

/* "Calling cuMemFree on an exported memory region before calling
 * cuIpcCloseMemHandle in the importing context will result in undefined
 * behavior" (cuIpcGetMemHandle). "The imported memory must be freed from all
 * importing processes before being freed in the exporting process"
 * (cuMemPoolImportPointer). */
void
fd_ipc_free_locked(fd_allocation *a, const char *name)
{
    if (a->place == NULL) {
        return;
    }
    if (!a->is_foreign) {
        atomic_store(&a->place->is_live, false);
    } else if (!fd_place_has(a->place, a->check)) {
        fd_violation("%s of memory at %p, which the process that shares it "
                     "has freed before",
                     name, (void *)a->base);
    }
}

void
fd_ipc_ready_locked(fd_allocation *a)
{
    if (a->place != NULL) {
        atomic_store(&a->place->is_ready, true);
    }
}

bool
fd_ipc_may_use_locked(const fd_allocation *a, const char *name)
{
    if (!a->is_foreign) {
        return true;
    }
    if (!fd_place_has(a->place, a->check)) {
        fd_violation("%s used memory at %p, which the process that shares it "
                     "has freed",
                     name, (void *)a->base);
        return false;
    }
    if (!atomic_load(&a->place->is_ready)) {
        fd_violation("%s used memory at %p before its stream-ordered "
                     "allocation was reached",
                     name, (void *)a->base);
    }
    return true;
}
