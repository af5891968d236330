/* What processes share on the stand-in drivers, and how they name it.
 *
 * Each process has a board: a file in which it says which of its memory and
 * events are alive, and how far the work is that was recorded in its events.
 * Other processes open the board, and the memory itself, by the descriptors of
 * the process that shares them (/proc/PID/fd/N). So, unlike on a GPU, a use of
 * what that process has freed is detected.
 */
#ifndef FD_IPC_H
#define FD_IPC_H

#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"

enum {
    FD_N_MEMORIES = 1 << 16,
    FD_N_EVENTS = 1 << 10,
    FD_N_RECORDS = 64
};

typedef enum fd_name_kind {
    FD_NAME_MEMORY = 1,
    FD_NAME_EVENT,
    FD_NAME_POOL,
    FD_NAME_POINTER, /* memory of a pool */
    FD_NAME_PHYSICAL
} fd_name_kind;

/* The content of a handle of 64 bytes. */
struct fd_name {
    uint32_t magic; /* with the kind */
    int32_t pid;
    int32_t board; /* descriptors of that process */
    int32_t file;
    uint32_t place;
    uint32_t device; /* as fd_device_number() numbers them */
    uint64_t check;
    uint64_t offset; /* in the file */
    uint64_t nbytes;
    uint64_t pool;
    uint64_t reserved;
};

/* The objects that come after one another in a place are told apart by a
 * random number. It stays until the place is used again. */
struct fd_place {
    _Atomic uint64_t check;
    atomic_bool is_live;
    atomic_bool is_ready; /* memory: its stream has allocated it */
};

typedef struct fd_shared_memory {
    fd_place place;
    fd_name name; /* a handle that was changed is refused */
} fd_shared_memory;

typedef struct fd_record {
    uint64_t number;
    int pid;
    int code; /* FD_NOT_READY: pending */
} fd_record;

/* `records` is a ring: the n-th record is at n % FD_N_RECORDS. */
typedef struct fd_shared_event {
    fd_place place;
    uint64_t n_records; /* guarded by the lock of the board, as all below */
    fd_record records[FD_N_RECORDS];
} fd_shared_event;

typedef struct fd_board {
    _Atomic uint64_t magic;
    pthread_mutex_t lock; /* between processes; survives that one is killed */
    fd_shared_memory memories[FD_N_MEMORIES];
    fd_shared_event events[FD_N_EVENTS];
} fd_board;

fd_name fd_name_new(fd_name_kind kind, int device);
bool fd_name_is(const fd_name *name, fd_name_kind kind);

uint64_t fd_random(void); /* not 0 */

/* The board of this process, or NULL without memory. */
fd_board *fd_board_own_locked(int *file);

/* That of the process which made the name, or NULL. */
fd_board *fd_board_of_locked(const fd_name *name);

/* Its file with the memory, or -1. The caller closes it. */
int fd_name_open_file(const fd_name *name);

void fd_board_lock(fd_board *board);
void fd_board_unlock(fd_board *board);

/* Give the place to a new object. */
void fd_place_take(fd_place *place, bool is_ready);

/* Whether the object that had this number was freed. */
static inline bool
fd_place_has(const fd_place *place, uint64_t check)
{
    return atomic_load(&place->check) == check && atomic_load(&place->is_live);
}

#endif /* FD_IPC_H */
