/* The engine of the software device, from several threads. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "test_device/engine.h"
#include "test_device/software.h"

enum {
    LIMIT = 20000 /* ms; no wait of a test is longer */
};

static uint64_t
new_queue(int device)
{
    uint64_t queue;
    CHECK_INT(ad_engine_queue_create(device, NULL, NULL, &queue),
              AD_ENGINE_OK);
    return queue;
}

static uint64_t
new_event(void)
{
    uint64_t event;
    CHECK_INT(ad_engine_event_create(0, NULL, NULL, &event), AD_ENGINE_OK);
    return event;
}

static void *
new_memory(size_t nbytes)
{
    void *memory;
    CHECK_INT(ad_engine_allocate(0, nbytes, AD_ENGINE_DEVICE, NULL, &memory),
              AD_ENGINE_OK);
    return memory;
}

static void
finish(uint64_t queue)
{
    CHECK_INT(ad_engine_queue_synchronize(queue, LIMIT), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_destroy(queue), AD_ENGINE_OK);
}

static int
increment(void *counter)
{
    atomic_fetch_add((atomic_int *)counter, 1);
    return 0;
}

static int
fail(void *unused)
{
    return 1234;
}

/* --- before anything else ------------------------------------------------ */

static void
test_not_started(void)
{
    uint64_t handle;
    CHECK_INT(ad_engine_n_devices(), 0);
    CHECK_INT(ad_engine_queue_create(0, NULL, NULL, &handle),
              AD_ENGINE_NOT_STARTED);
    CHECK_INT(ad_engine_event_query(7), AD_ENGINE_NOT_STARTED);
    CHECK(!ad_engine_find(&handle, &(ad_engine_allocation){0}));
    CHECK_INT(ad_engine_start(0), AD_ENGINE_INVALID_VALUE);
    CHECK_INT(ad_engine_start(2), AD_ENGINE_OK);
    CHECK_INT(ad_engine_start(1), AD_ENGINE_OK);
    CHECK_INT(ad_engine_n_devices(), 2);
}

/* --- queues -------------------------------------------------------------- */

static void
test_delay(void)
{
    uint64_t queue = new_queue(0);
    uint64_t event = new_event();
    atomic_int n = 0;
    ad_engine_queue found;
    CHECK_INT(ad_engine_queue_set_delay(queue, -1), AD_ENGINE_INVALID_VALUE);
    CHECK_INT(ad_engine_queue_set_delay(queue, 50000), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_get(queue, &found), AD_ENGINE_OK);
    CHECK_INT(found.delay, 50000);
    int64_t begin;
    int64_t end;
    CHECK_INT(ad_engine_event_record(event, queue), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_time(event, &begin), AD_ENGINE_OK);
    CHECK_INT(ad_engine_enqueue(queue, increment, &n), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_record(event, queue), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_synchronize(event, LIMIT), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_time(event, &end), AD_ENGINE_OK);
    CHECK(end - begin >= 50000000);
    /* A delay that has begun ends when it is taken away. */
    CHECK_INT(ad_engine_queue_set_delay(queue, 3600000000), AD_ENGINE_OK);
    CHECK_INT(ad_engine_enqueue(queue, increment, &n), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_synchronize(queue, 20), AD_ENGINE_TIMEOUT);
    CHECK_INT(ad_engine_queue_set_delay(queue, 0), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_destroy(event), AD_ENGINE_OK);
    finish(queue);
    CHECK_INT(atomic_load(&n), 2);
}

static void
test_event_addresses(void)
{
    uint64_t event = new_event();
    const uint64_t *address;
    CHECK_INT(ad_engine_event_address(event, &address), AD_ENGINE_OK);
    CHECK(*address == event);
    CHECK(ad_engine_event_at(address) == event);
    CHECK(ad_engine_event_at((const char *)address + 1) == 0);
    CHECK(ad_engine_event_at(&event) == 0);
    CHECK(ad_engine_event_at((const void *)8) == 0);
    CHECK_INT(ad_engine_event_destroy(event), AD_ENGINE_OK);
    CHECK(ad_engine_event_at(address) == 0);
}

static void
test_failed_work_is_remembered(void)
{
    uint64_t first = new_queue(0);
    uint64_t second = new_queue(0);
    uint64_t event = new_event();
    atomic_int n = 0;
    CHECK_INT(ad_engine_enqueue(first, fail, NULL), AD_ENGINE_OK);
    CHECK_INT(ad_engine_enqueue(first, increment, &n), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_record(event, first), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_wait(second, event), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_synchronize(event, LIMIT),
              AD_ENGINE_WORK_FAILED);
    CHECK_INT(ad_engine_event_query(event), AD_ENGINE_WORK_FAILED);
    CHECK_INT(ad_engine_queue_synchronize(second, LIMIT),
              AD_ENGINE_WORK_FAILED);
    CHECK_INT(ad_engine_synchronize(0, NULL, LIMIT), AD_ENGINE_WORK_FAILED);
    CHECK_INT(atomic_load(&n), 1);
    ad_engine_reset();
    CHECK_INT(ad_engine_event_query(event), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_destroy(event), AD_ENGINE_OK);
    finish(first);
    finish(second);
}

static void
test_tags_and_data(void)
{
    int one;
    int other;
    uint64_t queues[4];
    CHECK_INT(ad_engine_queue_create(0, &one, NULL, &queues[0]), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_create(1, &one, NULL, &queues[1]), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_create(1, &other, &one, &queues[2]),
              AD_ENGINE_OK);
    uint64_t found[4];
    CHECK_INT(ad_engine_queue_list(-1, &one, found, 4), 2);
    CHECK_INT(ad_engine_queue_list(1, &one, found, 4), 1);
    CHECK(found[0] == queues[1]);
    CHECK_INT(ad_engine_queue_list(1, NULL, found, 1), 2);
    ad_engine_queue got;
    CHECK_INT(ad_engine_queue_get(queues[2], &got), AD_ENGINE_OK);
    CHECK(got.data == &one);
    ad_engine_counts counts;
    ad_engine_count(&one, &counts);
    CHECK_INT(counts.queues, 2);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(ad_engine_queue_destroy(queues[i]), AD_ENGINE_OK);
    }
}

/* --- memory -------------------------------------------------------------- */

static void
test_addresses_come_back_late(void)
{
    void *first = new_memory(1);
    CHECK_INT(ad_engine_free(first), AD_ENGINE_OK);
    for (int i = 0; i < 100; i++) {
        void *next = new_memory(1);
        CHECK(next != first);
        CHECK_INT(ad_engine_free(next), AD_ENGINE_OK);
    }
}

/* Runs round the arena more than once, with memory of all ages alive. */
static void
test_the_arena_goes_round(void)
{
    enum {
        KEPT = 7,
        ROUNDS = 200
    };
    const size_t nbytes = (size_t)1 << 30;
    CHECK_INT(ad_engine_set_memory_limit(0, SIZE_MAX), AD_ENGINE_OK);
    char *kept[KEPT] = {NULL};
    for (int i = 0; i < ROUNDS; i++) {
        char *memory = new_memory(nbytes - (size_t)(i % 5) * 12345);
        for (int k = 0; k < KEPT; k++) {
            CHECK(kept[k] == NULL || memory + nbytes <= kept[k] ||
                  kept[k] + nbytes - 5 * 12345 <= memory);
        }
        int slot = i * 3 % KEPT;
        if (kept[slot] != NULL) {
            CHECK_INT(ad_engine_free(kept[slot]), AD_ENGINE_OK);
        }
        kept[slot] = memory;
    }
    for (int k = 0; k < KEPT; k++) {
        CHECK_INT(ad_engine_free(kept[k]), AD_ENGINE_OK);
    }
    ad_engine_reset();
}

static void
test_memory_runs_out(void)
{
    size_t limit;
    size_t left;
    CHECK_INT(ad_engine_set_memory_limit(0, 10000), AD_ENGINE_OK);
    void *memory = new_memory(6000);
    void *more;
    CHECK_INT(ad_engine_allocate(0, 4001, AD_ENGINE_DEVICE, NULL, &more),
              AD_ENGINE_OUT_OF_MEMORY);
    CHECK_INT(ad_engine_memory(0, &limit, &left), AD_ENGINE_OK);
    CHECK(limit == 10000 && left == 4000);
    CHECK_INT(ad_engine_allocate(0, 9999, AD_ENGINE_PINNED, NULL, &more),
              AD_ENGINE_OK);
    CHECK_INT(ad_engine_free(more), AD_ENGINE_OK);
    CHECK_INT(ad_engine_allocate(1, 9999, AD_ENGINE_DEVICE, NULL, &more),
              AD_ENGINE_OK);
    CHECK_INT(ad_engine_free(more), AD_ENGINE_OK);
    CHECK_INT(ad_engine_free(memory), AD_ENGINE_OK);
    CHECK_INT(ad_engine_allocate(0, 0, AD_ENGINE_DEVICE, NULL, &more),
              AD_ENGINE_INVALID_VALUE);
    CHECK_INT(ad_engine_allocate(0, SIZE_MAX, AD_ENGINE_PINNED, NULL, &more),
              AD_ENGINE_OUT_OF_MEMORY);
    ad_engine_reset();
}

static void
test_registered_memory(void)
{
    static char host[100];
    ad_engine_allocation found;
    CHECK_INT(ad_engine_register(host, 100, 0, NULL), AD_ENGINE_OK);
    CHECK_INT(ad_engine_register(host + 99, 1, 0, NULL),
              AD_ENGINE_INVALID_VALUE);
    CHECK(ad_engine_find(host + 99, &found));
    CHECK_INT(found.kind, AD_ENGINE_REGISTERED);
    CHECK(ad_engine_inside(host) == host);
    CHECK_INT(ad_engine_free(host), AD_ENGINE_INVALID_POINTER);
    CHECK_INT(ad_engine_unregister(host), AD_ENGINE_OK);
    CHECK(!ad_engine_find(host, &found));
}

static void
test_copies_and_fills(void)
{
    uint64_t queue = new_queue(0);
    char *memory = new_memory(64);
    char *pinned;
    CHECK_INT(
        ad_engine_allocate(0, 64, AD_ENGINE_PINNED, NULL, (void **)&pinned),
        AD_ENGINE_OK);
    char host[64] = {0};
    CHECK_INT(ad_engine_fill(queue, memory, 0x0201, 2, 32), AD_ENGINE_OK);
    CHECK_INT(ad_engine_fill(queue, memory, 7, 3, 1), AD_ENGINE_INVALID_VALUE);
    CHECK_INT(ad_engine_fill(queue, memory, 7, 1, 65),
              AD_ENGINE_INVALID_POINTER);
    /* Columns 1 and 2 of 8 rows of 8 bytes. */
    CHECK_INT(ad_engine_copy(queue, pinned, 2, memory + 1, 8, 2, 8),
              AD_ENGINE_OK);
    CHECK_INT(ad_engine_copy(queue, host, 64, memory, 64, 64, 1),
              AD_ENGINE_OK);
    CHECK_INT(ad_engine_copy(queue, host, 1, memory + 1, 8, 8, 8),
              AD_ENGINE_INVALID_POINTER);
    CHECK_INT(ad_engine_copy(queue, host, 64, memory, SIZE_MAX / 2, 1, 8),
              AD_ENGINE_INVALID_POINTER);
    CHECK_INT(ad_engine_queue_synchronize(queue, LIMIT), AD_ENGINE_OK);
    for (int i = 0; i < 64; i++) {
        CHECK_INT(host[i], i % 2 + 1);
    }
    for (int i = 0; i < 16; i++) {
        CHECK_INT(pinned[i], 2 - i % 2);
    }
    CHECK_INT(ad_engine_free(memory), AD_ENGINE_OK);
    CHECK_INT(ad_engine_free(pinned), AD_ENGINE_OK);
    finish(queue);
}

/* It lies between pages that nothing may touch. */
static void
test_first_memory(void)
{
    uint64_t queue = new_queue(0);
    char *first = new_memory(64);
    char *page = (char *)((uintptr_t)first & ~(uintptr_t)4095);
    CHECK(!ad_engine_may_touch(first - 8, 16));
    CHECK(!ad_engine_may_touch(first - 8, 8));
    CHECK(!ad_engine_may_touch(page + 4096, 1));
    CHECK(!ad_engine_may_touch(page - 4096 - 8, 16)); /* into the arena */
    CHECK_INT(ad_engine_copy(queue, first, 8, first - 8, 8, 8, 1),
              AD_ENGINE_INVALID_POINTER);
    CHECK_INT(ad_engine_write(queue, NULL, NULL, 0), AD_ENGINE_OK);
    CHECK_INT(ad_engine_write(1, first, "a", 0), AD_ENGINE_INVALID_QUEUE);
    CHECK_INT(ad_engine_free(first), AD_ENGINE_OK);
    finish(queue);
}

/* The work ends first, or finds no memory. */
static void
test_free_during_work(void)
{
    uint64_t queue = new_queue(0);
    for (int i = 0; i < 300; i++) {
        char *from = new_memory(1 << 16);
        char *to = new_memory(1 << 16);
        CHECK_INT(ad_engine_fill(queue, from, 7, 1, 1 << 16), AD_ENGINE_OK);
        CHECK_INT(
            ad_engine_copy(queue, to, 1 << 16, from, 1 << 16, 1 << 16, 1),
            AD_ENGINE_OK);
        for (volatile int pause = 0; pause < 50 * i; pause++) {
        }
        CHECK_INT(ad_engine_free(from), AD_ENGINE_OK);
        CHECK_INT(ad_engine_free(to), AD_ENGINE_OK);
    }
    int status = ad_engine_queue_synchronize(queue, LIMIT);
    CHECK(status == AD_ENGINE_OK || status == AD_ENGINE_ILLEGAL_ADDRESS);
    ad_engine_reset(); /* forgets the failed work */
    finish(queue);
}

/* Its work is done, so that there is nothing to wait for. Numbers that never
 * were a queue are refused. */
static void
test_wait_for_a_destroyed_queue(void)
{
    uint64_t queue = new_queue(0);
    uint64_t gone = new_queue(0);
    uint64_t event = new_event();
    CHECK_INT(ad_engine_queue_destroy(gone), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_wait_queue(queue, gone), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_wait_queue(gone, queue),
              AD_ENGINE_INVALID_QUEUE);
    const uint64_t others[] = {0, 1, 2, event, gone + 1, gone + (1 << 24)};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK_INT(ad_engine_queue_wait_queue(queue, others[i]),
                  AD_ENGINE_INVALID_QUEUE);
    }
    CHECK_INT(ad_engine_event_destroy(event), AD_ENGINE_OK);
    finish(queue);
}

static void
test_ordered_free(void)
{
    uint64_t queue = new_queue(0);
    char *memory = new_memory(64);
    char host[64] = {0};
    CHECK_INT(ad_engine_queue_hold(queue), AD_ENGINE_OK);
    CHECK_INT(ad_engine_fill(queue, memory, 5, 1, 64), AD_ENGINE_OK);
    CHECK_INT(ad_engine_copy(queue, host, 64, memory, 64, 64, 1),
              AD_ENGINE_OK);
    CHECK_INT(ad_engine_free_ordered(1, memory), AD_ENGINE_INVALID_QUEUE);
    CHECK_INT(ad_engine_free_ordered(queue, memory), AD_ENGINE_OK);
    CHECK_INT(ad_engine_free_ordered(queue, memory),
              AD_ENGINE_INVALID_POINTER);
    CHECK_INT(ad_engine_free(memory), AD_ENGINE_INVALID_POINTER);
    CHECK(!ad_engine_find(memory, &(ad_engine_allocation){0}));
    CHECK(ad_engine_may_touch(memory, 64));
    CHECK_INT(ad_engine_queue_release(queue), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_synchronize(queue, LIMIT), AD_ENGINE_OK);
    CHECK_INT(host[63], 5);
    CHECK(!ad_engine_may_touch(memory, 64));
    finish(queue);
}

/* --- failures, log, counts ----------------------------------------------- */

static void
test_failures_on_demand(void)
{
    CHECK_INT(ad_engine_enter("a"), 0);
    CHECK_INT(ad_engine_fail_at(2, NULL, 77, false), AD_ENGINE_OK);
    CHECK_INT(ad_engine_enter("a"), 0);
    CHECK_INT(ad_engine_enter("b"), 77);
    CHECK_INT(ad_engine_enter("b"), 0);
    CHECK_INT(ad_engine_fail_at(1, "b", 78, true), AD_ENGINE_OK);
    CHECK_INT(ad_engine_enter("a"), 0);
    CHECK_INT(ad_engine_enter("b"), 78);
    CHECK_INT(ad_engine_enter("b"), 78);
    ad_engine_reset();
    CHECK_INT(ad_engine_enter("b"), 0);
    CHECK_INT(ad_engine_fail_at(1, "", 1, false), AD_ENGINE_INVALID_VALUE);
}

static void
test_log(void)
{
    const char *names[8192];
    ad_engine_set_log(true);
    uint64_t before = ad_engine_n_calls();
    for (int i = 0; i < 5000; i++) {
        (void)ad_engine_enter(i % 2 == 0 ? "even" : "odd");
    }
    ad_engine_set_log(false);
    (void)ad_engine_enter("unseen");
    CHECK_INT(ad_engine_n_calls() - before, 5001);
    CHECK_INT(ad_engine_log(names, 8192), 4096);
    CHECK_STR(names[4095], "odd");
    CHECK_INT(ad_engine_log(names, 1), 1);
    CHECK_STR(names[0], "odd");
}

static void
test_names_of_statuses(void)
{
    for (int i = 0; i < AD_ENGINE_N_STATUS; i++) {
        CHECK(ad_software_error_name(i) != NULL);
    }
    CHECK_STR(ad_software_error_name(AD_ENGINE_TIMEOUT),
              "SOFTWARE_ERROR_TIMEOUT");
    CHECK_STR(ad_software_error_name(-1), "SOFTWARE_ERROR_UNKNOWN");
}

static void
test_allocations_that_fail(void)
{
    uint64_t queue = new_queue(0);
    atomic_int n = 0;
    CHECK_INT(ad_engine_queue_hold(queue), AD_ENGINE_OK);
    CHECK_INT(ad_engine_enqueue(queue, increment, &n), AD_ENGINE_OK);
    uint64_t event = new_event();
    check_fail_nth(1);
    CHECK_INT(ad_engine_event_record(event, queue), AD_ENGINE_OUT_OF_MEMORY);
    check_fail_nth(2);
    CHECK_INT(ad_engine_event_record(event, queue), AD_ENGINE_OUT_OF_MEMORY);
    CHECK_INT(ad_engine_event_query(event), AD_ENGINE_OK);
    void *memory;
    check_fail_nth(1);
    CHECK_INT(ad_engine_allocate(0, 8, AD_ENGINE_DEVICE, NULL, &memory),
              AD_ENGINE_OUT_OF_MEMORY);
    memory = new_memory(8);
    check_fail_nth(1);
    CHECK_INT(ad_engine_free_ordered(queue, memory), AD_ENGINE_OUT_OF_MEMORY);
    CHECK_INT(ad_engine_free(memory), AD_ENGINE_OK);
    check_fail_nth(0);
    CHECK_INT(ad_engine_queue_release(queue), AD_ENGINE_OK);
    CHECK_INT(ad_engine_event_destroy(event), AD_ENGINE_OK);
    finish(queue);
    CHECK_INT(atomic_load(&n), 1);
}

/* --- many threads -------------------------------------------------------- */

/* Each thread passes a value through its own queue and one that all share. */
static void *
churn(void *shared)
{
    uint64_t all = *(uint64_t *)shared;
    for (int i = 0; i < 50; i++) {
        uint64_t own = new_queue(i % 2);
        uint64_t event = new_event();
        int32_t *memory = new_memory(4 * 100);
        int32_t host[100];
        CHECK_INT(ad_engine_fill(own, memory, (uint64_t)i, 4, 100),
                  AD_ENGINE_OK);
        CHECK_INT(ad_engine_event_record(event, own), AD_ENGINE_OK);
        CHECK_INT(ad_engine_queue_wait(all, event), AD_ENGINE_OK);
        CHECK_INT(ad_engine_copy(all, host, 400, memory, 400, 400, 1),
                  AD_ENGINE_OK);
        CHECK_INT(ad_engine_event_record(event, all), AD_ENGINE_OK);
        CHECK_INT(ad_engine_queue_wait(own, event), AD_ENGINE_OK);
        CHECK_INT(ad_engine_free_ordered(own, memory), AD_ENGINE_OK);
        CHECK_INT(ad_engine_event_synchronize(event, LIMIT), AD_ENGINE_OK);
        CHECK_INT(host[99], i);
        CHECK_INT(ad_engine_event_destroy(event), AD_ENGINE_OK);
        CHECK_INT(ad_engine_queue_destroy(own), AD_ENGINE_OK);
    }
    return NULL;
}

static void
test_many_threads(void)
{
    enum {
        N = 8
    };
    uint64_t all = new_queue(0);
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        CHECK(pthread_create(&threads[i], NULL, churn, &all) == 0);
    }
    for (int i = 0; i < N; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_INT(ad_engine_synchronize(-1, NULL, LIMIT), AD_ENGINE_OK);
    finish(all);
}

static void
test_nothing_is_left(void)
{
    ad_engine_counts counts;
    ad_engine_count(NULL, &counts);
    CHECK_INT(counts.queues, 0);
    CHECK_INT(counts.events, 0);
    CHECK_INT(counts.allocations, 0);
    CHECK_INT(counts.bytes, 0);
    CHECK_INT(counts.pending, 0);
}

/* --- other processes ----------------------------------------------------- */

/* Memory of this process, as the other one is told of it. */
typedef struct shared_memory {
    int file;
    uint64_t offset;
    size_t nbytes;
} shared_memory;

enum {
    SHARED = 10000 /* bytes: no whole pages */
};

static int to_peer;
static pid_t peer;

static void
check_bytes(uint64_t queue, char *memory, int expected)
{
    static char host[SHARED];
    CHECK_INT(ad_engine_copy(queue, host, SHARED, memory, SHARED, SHARED, 1),
              AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_synchronize(queue, LIMIT), AD_ENGINE_OK);
    CHECK(host[0] == expected && host[SHARED - 1] == expected);
}

/* Work of the other process reads 7 and writes 9. */
static void
be_the_peer(int to_parent)
{
    shared_memory told;
    if (read(to_parent, &told, sizeof(told)) != sizeof(told)) {
        exit(1);
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), told.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_INT(ad_engine_start(1), AD_ENGINE_OK);
    CHECK_INT(ad_engine_set_memory_limit(0, 1), AD_ENGINE_OK);
    char *memory;
    CHECK_INT(ad_engine_map(0, file, told.offset, told.nbytes,
                            AD_ENGINE_DEVICE, NULL, (void **)&memory),
              AD_ENGINE_OK);
    close(file);
    uint64_t queue = new_queue(0);
    check_bytes(queue, memory, 7);
    CHECK_INT(ad_engine_fill(queue, memory, 9, 1, SHARED), AD_ENGINE_OK);
    CHECK_INT(ad_engine_free_ordered(queue, memory), AD_ENGINE_OK);
    finish(queue);
    test_nothing_is_left();
    exit(0);
}

/* Before the engine starts: no forked child has one. */
static void
start_peer(void)
{
    int ends[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peer = fork();
    CHECK(peer >= 0);
    if (peer == 0) {
        close(ends[0]);
        be_the_peer(ends[1]);
    }
    close(ends[1]);
    to_peer = ends[0];
}

static void
test_memory_of_another_process(void)
{
    uint64_t queue = new_queue(1);
    char *memory = new_memory(SHARED);
    ad_engine_allocation found;
    shared_memory told = {.nbytes = SHARED};
    CHECK_INT(ad_engine_fill(queue, memory, 7, 1, SHARED), AD_ENGINE_OK);
    CHECK_INT(ad_engine_queue_synchronize(queue, LIMIT), AD_ENGINE_OK);
    CHECK_INT(ad_engine_memory_file(memory + SHARED - 1, &told.file,
                                    &told.offset, &found),
              AD_ENGINE_OK);
    CHECK(found.base == memory && found.nbytes == SHARED);
    CHECK(write(to_peer, &told, sizeof(told)) == sizeof(told));
    int status;
    CHECK(waitpid(peer, &status, 0) == peer && status == 0);
    check_bytes(queue, memory, 9); /* also once the other process freed it */
    CHECK_INT(ad_engine_free(memory), AD_ENGINE_OK);
    CHECK_INT(ad_engine_memory_file(memory, &told.file, &told.offset, &found),
              AD_ENGINE_INVALID_POINTER);
    finish(queue);
}

/* It is passed on, and its addresses fault once it is freed. */
static void
test_mapped_file(void)
{
    enum {
        PAGE = 4096
    };
    int file = memfd_create("mapped", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(file >= 0 && ftruncate(file, 3 * PAGE) == 0 &&
          fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    char *pinned;
    CHECK_INT(ad_engine_map(1, file, PAGE, PAGE + 1, AD_ENGINE_PINNED, NULL,
                            (void **)&pinned),
              AD_ENGINE_OK);
    pinned[PAGE] = 5;
    char byte = 0;
    CHECK(pread(file, &byte, 1, (off_t)2 * PAGE) == 1 && byte == 5);
    close(file);
    int passed;
    uint64_t offset;
    ad_engine_allocation found;
    CHECK_INT(ad_engine_memory_file(pinned + PAGE, &passed, &offset, &found),
              AD_ENGINE_OK);
    CHECK(offset == PAGE && found.base == pinned && found.device == 1);
    CHECK(pread(passed, &byte, 1, (off_t)2 * PAGE) == 1 && byte == 5);
    int both[2];
    CHECK_INT(pipe(both), 0);
    CHECK(write(both[1], pinned + PAGE, 1) == 1);
    CHECK_INT(ad_engine_free(pinned), AD_ENGINE_OK);
    CHECK(write(both[1], pinned + PAGE, 1) == -1);
    CHECK(fcntl(passed, F_GETFD) == -1);
    close(both[0]);
    close(both[1]);
}

static void
test_files_that_cannot_be_mapped(void)
{
    enum {
        PAGE = 4096
    };
    int file = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(file >= 0 && ftruncate(file, 2 * PAGE) == 0 &&
          fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    int shrinks = memfd_create("unsealed", MFD_CLOEXEC);
    CHECK(shrinks >= 0 && ftruncate(shrinks, 2 * PAGE) == 0);
    int read_only = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int no_file = open("/dev/zero", O_RDWR | O_CLOEXEC);
    const struct {
        int device;
        int file;
        uint64_t offset;
        size_t nbytes;
        ad_engine_kind kind;
        int status;
    } all[] = {
        {9, file, 0, PAGE, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_DEVICE},
        {0, -1, 0, PAGE, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, shrinks, 0, PAGE, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, no_file, 0, PAGE, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, read_only, 0, PAGE, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, file, 0, 0, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, file, 1, PAGE, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, file, PAGE, PAGE + 1, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, file, PAGE, SIZE_MAX, AD_ENGINE_DEVICE, AD_ENGINE_INVALID_VALUE},
        {0, file, UINT64_MAX - PAGE + 1, PAGE, AD_ENGINE_DEVICE,
         AD_ENGINE_INVALID_VALUE},
        {0, file, 0, PAGE, AD_ENGINE_REGISTERED, AD_ENGINE_INVALID_VALUE},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        void *out = NULL;
        CHECK_INT(ad_engine_map(all[i].device, all[i].file, all[i].offset,
                                all[i].nbytes, all[i].kind, NULL, &out),
                  all[i].status);
        CHECK(out == NULL);
    }
    close(file);
    close(read_only);
    close(no_file);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_not_started),
        CHECK_TEST(test_first_memory),
        CHECK_TEST(test_delay),
        CHECK_TEST(test_event_addresses),
        CHECK_TEST(test_failed_work_is_remembered),
        CHECK_TEST(test_tags_and_data),
        CHECK_TEST(test_addresses_come_back_late),
        CHECK_TEST(test_the_arena_goes_round),
        CHECK_TEST(test_memory_runs_out),
        CHECK_TEST(test_registered_memory),
        CHECK_TEST(test_copies_and_fills),
        CHECK_TEST(test_free_during_work),
        CHECK_TEST(test_wait_for_a_destroyed_queue),
        CHECK_TEST(test_ordered_free),
        CHECK_TEST(test_failures_on_demand),
        CHECK_TEST(test_log),
        CHECK_TEST(test_names_of_statuses),
        CHECK_TEST(test_allocations_that_fail),
        CHECK_TEST(test_many_threads),
        CHECK_TEST(test_memory_of_another_process),
        CHECK_TEST(test_mapped_file),
        CHECK_TEST(test_files_that_cannot_be_mapped),
        CHECK_TEST(test_nothing_is_left),
    };
    start_peer();
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
