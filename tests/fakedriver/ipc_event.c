/* Events that processes share: each record is on the board of the process that
 * created the event, whichever process recorded it. */
#define _GNU_SOURCE
#include "ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NO_TIMING = 2,
    INTERPROCESS = 4
};

/* An event as this process knows it. */
struct fd_event_link {
    fd_board *board;
    fd_shared_event *shared;
    uint64_t check;
    uint64_t recorded; /* the number of this event's own last record */
    bool is_foreign;
};

static size_t last_event;

static fd_event_link *
new_link(fd_board *board, fd_shared_event *shared, bool is_foreign)
{
    fd_event_link *link = calloc(1, sizeof(*link));
    if (link != NULL) {
        *link = (fd_event_link){.board = board,
                                .shared = shared,
                                .check = atomic_load(&shared->place.check),
                                .is_foreign = is_foreign};
    }
    return link;
}

/* --- sharing ------------------------------------------------------------------- */

int
fd_event_share_locked(fd_event *event)
{
    int file;
    fd_board *board = fd_board_own_locked(&file);
    for (size_t i = 0; board != NULL && i < FD_N_EVENTS; i++) {
        fd_shared_event *shared = &board->events[++last_event % FD_N_EVENTS];
        if (atomic_load(&shared->place.is_live)) {
            continue;
        }
        fd_board_lock(board);
        shared->n_records = 0;
        memset(shared->records, 0, sizeof(shared->records));
        fd_place_take(&shared->place, true);
        fd_board_unlock(board);
        event->link = new_link(board, shared, false);
        if (event->link == NULL) {
            atomic_store(&shared->place.is_live, false);
        }
        break;
    }
    return event->link != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

void
fd_event_unshare_locked(fd_event *event)
{
    if (event->link != NULL && !event->link->is_foreign) {
        atomic_store(&event->link->shared->place.is_live, false);
    }
    free(event->link);
    event->link = NULL;
}

/* An event of another process "behaves like a locally created event with the
 * CU_EVENT_DISABLE_TIMING flag specified" (cuIpcOpenEventHandle), so it is not
 * shared in turn. */
int
fd_event_export(uintptr_t handle, fd_name *out)
{
    fd_event *event;
    fd_lock();
    int code = fd_event_find_locked(handle, &event);
    if (code == FD_OK && (event->flags & INTERPROCESS) == 0) {
        code = FD_INVALID_VALUE;
    }
    if (code == FD_OK) {
        const fd_event_link *link = event->link;
        *out = fd_name_new(FD_NAME_EVENT, event->context->device);
        out->check = link->check;
        out->place = (uint32_t)(link->shared - link->board->events);
    }
    fd_unlock();
    return code;
}

static int
link_locked(fd_event *event, const fd_name *name)
{
    if (!fd_name_is(name, FD_NAME_EVENT)) {
        return FD_INVALID_VALUE;
    }
    if (name->pid == getpid()) {
        return FD_INVALID_CONTEXT;
    }
    fd_board *board = fd_board_of_locked(name);
    if (board == NULL || name->place >= FD_N_EVENTS ||
        !fd_place_has(&board->events[name->place].place, name->check)) {
        return FD_INVALID_HANDLE;
    }
    event->link = new_link(board, &board->events[name->place], true);
    return event->link != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

int
fd_event_import(const fd_name *name, uintptr_t *out)
{
    uintptr_t handle;
    fd_event *event;
    int code = fd_event_create(NO_TIMING, &handle);
    if (code != FD_OK) {
        return code;
    }
    fd_lock();
    code = fd_event_find_locked(handle, &event);
    code = code == FD_OK ? link_locked(event, name) : code;
    fd_unlock();
    if (code == FD_OK || fd_face_here.leaves_event) {
        *out = handle;
    } else {
        fd_event_destroy(handle);
    }
    return code;
}

/* "Performing operations on the imported event after the exported event has
 * been freed with cuEventDestroy will result in undefined behavior"
 * (cuIpcGetEventHandle). */
int
fd_event_check_locked(const fd_event *event)
{
    const fd_event_link *link = event->link;
    if (link == NULL || fd_place_has(&link->shared->place, link->check)) {
        return FD_OK;
    }
    fd_violation("%s used event %#zx, which the process that shares it has "
                 "destroyed",
                 fd_call_name(), (size_t)event->handle);
    return FD_INVALID_HANDLE;
}

/* --- records ------------------------------------------------------------------- */

typedef struct done_work {
    fd_board *board;
    fd_shared_event *shared;
    uint64_t check;
    uint64_t number;
    const fd_context *context;
} done_work;

static void
finish_record(const done_work *work, int code)
{
    fd_board_lock(work->board);
    fd_record *record = &work->shared->records[work->number % FD_N_RECORDS];
    if (atomic_load(&work->shared->place.check) == work->check &&
        record->number == work->number) {
        record->code = code;
    }
    fd_board_unlock(work->board);
}

static int
run_done(void *argument)
{
    done_work *work = argument;
    finish_record(work, work->context->broken);
    free(work);
    return AD_ENGINE_OK;
}

/* A zombie runs nothing either. */
static bool
is_running(int pid)
{
    char path[32];
    char line[256];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    const char *read = fgets(line, sizeof(line), file);
    fclose(file);
    const char *state = read != NULL ? strrchr(line, ')') : NULL;
    return state != NULL && state[1] == ' ' && state[2] != 'Z' &&
           state[2] != 'X';
}

/* The number of a new record, or 0 if too many are pending. Those of a process
 * that has ended are lost. */
static uint64_t
begin_record(const fd_event_link *link)
{
    uint64_t number = 0;
    fd_board_lock(link->board);
    fd_record *record =
        &link->shared->records[(link->shared->n_records + 1) % FD_N_RECORDS];
    if (record->code != FD_NOT_READY || !is_running(record->pid)) {
        number = ++link->shared->n_records;
        *record = (fd_record){number, getpid(), FD_NOT_READY};
    }
    fd_board_unlock(link->board);
    return number;
}

int
fd_event_note_locked(fd_event *event, const fd_stream *stream)
{
    fd_event_link *link = event->link;
    if (link == NULL) {
        return FD_OK;
    }
    done_work *work = malloc(sizeof(*work));
    uint64_t number = work != NULL ? begin_record(link) : 0;
    if (number == 0) {
        free(work);
        return FD_OUT_OF_MEMORY;
    }
    *work = (done_work){link->board, link->shared, link->check, number,
                        stream->context};
    link->recorded = number;
    int code = fd_code(ad_engine_enqueue(stream->queue, run_done, work));
    if (code != FD_OK) {
        finish_record(work, code);
        free(work);
    }
    return code;
}

/* --- waits --------------------------------------------------------------------- */

bool
fd_event_is_elsewhere_locked(const fd_event *event, fd_remote *out)
{
    const fd_event_link *link = event->link;
    if (link == NULL) {
        return false;
    }
    fd_board_lock(link->board);
    *out = (fd_remote){link->board, link->shared, link->check,
                       link->shared->n_records};
    fd_board_unlock(link->board);
    return out->number != link->recorded;
}

/* Work of a process that has ended is lost. */
int
fd_remote_query(const fd_remote *remote)
{
    fd_board_lock(remote->board);
    fd_record record = remote->shared->records[remote->number % FD_N_RECORDS];
    bool is_known =
        atomic_load(&remote->shared->place.check) == remote->check &&
        record.number == remote->number;
    fd_board_unlock(remote->board);
    if (!is_known) {
        return FD_INVALID_HANDLE;
    }
    return record.code != FD_NOT_READY || is_running(record.pid)
               ? record.code
               : FD_LAUNCH_FAILED;
}

int
fd_remote_wait(const fd_remote *remote, int64_t limit_ms)
{
    const struct timespec pause = {0, 500000};
    struct timespec begin;
    struct timespec now;
    int code = fd_remote_query(remote);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (code == FD_NOT_READY && !fd_is_stopping()) {
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t ms = (now.tv_sec - begin.tv_sec) * 1000LL +
                     (now.tv_nsec - begin.tv_nsec) / 1000000;
        code = fd_remote_query(remote);
        if (code == FD_NOT_READY && limit_ms >= 0 && ms > limit_ms) {
            code = FD_TIMEOUT;
        }
    }
    return code;
}

static int
run_wait(fd_operation *o)
{
    int code = fd_remote_wait(&o->u.remote, -1);
    return code == FD_OK || code == FD_NOT_READY ? AD_ENGINE_OK
                                                 : AD_ENGINE_WORK_FAILED;
}

int
fd_remote_submit_locked(fd_stream *stream, const fd_remote *remote)
{
    const fd_operation o = {
        .name = "the wait for an event of another process",
        .run = run_wait,
        .u.remote = *remote,
    };
    return fd_submit_locked(stream, &o);
}
