/* Memory that the host cannot access, the registry of live allocations, and
 * the work that copies and fills. */
#define _GNU_SOURCE /* memfd_create, fallocate */
#include "test_device/engine_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "test_device/engine_races.h"

enum {
    PAGE = 4096,
    /* New memory is filled up to this size, so that a read of uninitialised
     * bytes is noticed. */
    MAX_PATTERN = 1 << 20,
    PATTERN = 0xcd
};

static const size_t default_limit = (size_t)4 << 30;

typedef struct allocation {
    ad_engine_allocation public;
    size_t n_mapped;   /* whole pages; of registered memory: its bytes */
    bool is_leaving;   /* an ordered free is on its way */
    size_t n_touching; /* operations that touch it now */
    bool is_gone;      /* freed; the last of them closes its pages */
    int file;          /* of another process, mapped here; -1: the arena's */
    uint64_t file_offset;
} allocation;

static struct {
    char *base;  /* the public view; NULL: not mapped */
    size_t size; /* of one view, also the distance between the views */
    int fd;
    size_t cursor;              /* where the search for a gap begins */
    AD_LIST(allocation *) live; /* sorted by address */
    size_t limits[AD_ENGINE_MAX_DEVICES]; /* 0: the default */
    size_t used[AD_ENGINE_MAX_DEVICES];
} memory;

/* --- the arena ----------------------------------------------------------- */

#ifdef __linux__

/* A core dump does not need the two views, and a child has no device. */
static void
leave_out(char *base, size_t distance, size_t n)
{
    madvise(base, n, MADV_DONTDUMP);
    madvise(base + distance, n, MADV_DONTDUMP);
    madvise(base + distance, n, MADV_DONTFORK);
}

static bool
map_arena_locked(size_t size)
{
    int fd = memfd_create("arrowdev software device",
                          MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char *both = mmap(NULL, 2 * size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || both == MAP_FAILED || ftruncate(fd, (off_t)size) != 0 ||
        mmap(both, size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) != both ||
        mmap(both + size, size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) !=
            both + size) {
        if (both != MAP_FAILED) {
            munmap(both, 2 * size);
        }
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    leave_out(both, size, size);
    /* No process that maps it can be made to fault. */
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    memory.base = both;
    memory.size = size;
    memory.fd = fd;
    return true;
}

int
ad_engine_arena_start_locked(void)
{
    /* This only reserves addresses. Smaller sizes are tried where the address
     * space is limited. */
    for (size_t size = (size_t)64 << 30; size >= (size_t)64 << 20; size /= 4) {
        if (memory.base != NULL || map_arena_locked(size)) {
            return AD_ENGINE_OK;
        }
    }
    return AD_ENGINE_OUT_OF_MEMORY;
}

#else

static void
leave_out(char *base, size_t distance, size_t n)
{
}

int
ad_engine_arena_start_locked(void)
{
    return AD_ENGINE_UNSUPPORTED;
}

#endif

static bool
is_in_arena(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)memory.base < memory.size;
}

void *
ad_engine_inside(const void *pointer)
{
    char *address = (char *)pointer;
    return is_in_arena(pointer) ? address + memory.size : address;
}

/* --- the registry -------------------------------------------------------- */

/* Index of the first allocation that begins after `address`. */
static size_t
position_locked(uintptr_t address)
{
    size_t low = 0;
    size_t high = memory.live.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)memory.live.items[middle]->public.base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static allocation *
find_locked(const void *pointer)
{
    size_t position = position_locked((uintptr_t)pointer);
    if (position == 0) {
        return NULL;
    }
    allocation *a = memory.live.items[position - 1];
    uintptr_t distance = (uintptr_t)pointer - (uintptr_t)a->public.base;
    return distance < a->public.nbytes && !a->is_gone ? a : NULL;
}

static allocation *
find_base_locked(const void *base)
{
    allocation *a = find_locked(base);
    return a != NULL && a->public.base == base && !a->is_leaving ? a : NULL;
}

/* Takes ownership of `a` on success. */
static int
insert_locked(allocation *a)
{
    if (ad_list_reserve(&memory.live, 1, NULL) != AD_OK) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    size_t position = position_locked((uintptr_t)a->public.base);
    memmove(&memory.live.items[position + 1], &memory.live.items[position],
            (memory.live.n - position) * sizeof(memory.live.items[0]));
    memory.live.items[position] = a;
    memory.live.n++;
    return AD_ENGINE_OK;
}

static void
remove_locked(allocation *a)
{
    size_t position = position_locked((uintptr_t)a->public.base) - 1;
    memory.live.n--;
    memmove(&memory.live.items[position], &memory.live.items[position + 1],
            (memory.live.n - position) * sizeof(memory.live.items[0]));
}

bool
ad_engine_find(const void *pointer, ad_engine_allocation *out)
{
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return false;
    }
    const allocation *a = find_locked(pointer);
    bool is_found = a != NULL && !a->is_leaving;
    if (is_found) {
        *out = a->public;
    }
    ad_engine_unlock();
    return is_found;
}

static bool
may_touch_locked(const void *pointer, size_t nbytes)
{
    if (!is_in_arena(pointer)) {
        bool reaches_in = (uintptr_t)pointer < (uintptr_t)memory.base &&
                          nbytes > (size_t)(memory.base - (char *)pointer);
        return (uintptr_t)pointer >= PAGE && !reaches_in;
    }
    const allocation *a = find_locked(pointer);
    return a != NULL &&
           nbytes <= a->public.nbytes -
                         ((uintptr_t)pointer - (uintptr_t)a->public.base);
}

bool
ad_engine_may_touch(const void *pointer, size_t nbytes)
{
    if (nbytes == 0) {
        return true;
    }
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return false;
    }
    bool result = may_touch_locked(pointer, nbytes);
    ad_engine_unlock();
    return result;
}

int
ad_engine_peek(void *target, const void *source, size_t nbytes)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (nbytes > 0 && !may_touch_locked(source, nbytes)) {
        status = AD_ENGINE_INVALID_POINTER;
    } else if (nbytes > 0) {
        memcpy(target, ad_engine_inside(source), nbytes);
    }
    ad_engine_unlock();
    return status;
}

/* --- allocating ---------------------------------------------------------- */

static allocation *
new_allocation(ad_engine_allocation public)
{
    allocation *a = calloc(1, sizeof(*a));
    if (a != NULL) {
        a->public = public;
        a->file = -1;
    }
    return a;
}

static void
drop(allocation *a)
{
    if (a->file >= 0) {
        close(a->file);
    }
    free(a);
}

static size_t *
used_of(const allocation *a)
{
    bool counts = a->file < 0 && (a->public.kind == AD_ENGINE_DEVICE ||
                                  a->public.kind == AD_ENGINE_MANAGED);
    return counts ? &memory.used[a->public.device] : NULL;
}

static size_t
limit_locked(int device)
{
    size_t limit = memory.limits[device];
    return limit != 0 ? limit : default_limit;
}

/* The offset of a gap of n bytes in [from, to), or SIZE_MAX. */
static size_t
gap_locked(size_t from, size_t to, size_t n)
{
    size_t at = from;
    size_t first = position_locked((uintptr_t)memory.base + from - 1);
    for (size_t i = first; i <= memory.live.n; i++) {
        bool is_more = i < memory.live.n &&
                       is_in_arena(memory.live.items[i]->public.base);
        size_t end = to;
        if (is_more) {
            size_t begin = (size_t)((char *)memory.live.items[i]->public.base -
                                    memory.base);
            end = begin < to ? begin : to;
        }
        if (end >= at && end - at >= n) {
            return at;
        }
        if (!is_more || end == to) {
            return SIZE_MAX;
        }
        at = end + memory.live.items[i]->n_mapped + PAGE;
    }
    return SIZE_MAX;
}

/* Reserves addresses for n bytes, between unmapped pages. The search
 * is circular, so that freed addresses are reused as late as possible. */
static size_t
place_locked(size_t n)
{
    size_t begin = memory.cursor > PAGE ? memory.cursor : PAGE;
    size_t offset = gap_locked(begin, memory.size, n + PAGE);
    if (offset == SIZE_MAX) {
        offset = gap_locked(PAGE, memory.size, n + PAGE);
    }
    if (offset != SIZE_MAX) {
        memory.cursor = offset + n + PAGE;
    }
    return offset;
}

static bool
open_pages(allocation *a)
{
    char *base = a->public.base;
    if (mprotect(base + memory.size, a->n_mapped, PROT_READ | PROT_WRITE) !=
        0) {
        return false;
    }
    return a->public.kind == AD_ENGINE_DEVICE ||
           mprotect(base, a->n_mapped, PROT_READ | PROT_WRITE) == 0;
}

static bool
map_pages(const allocation *a, char *at, int protection)
{
    return mmap(at, a->n_mapped, protection, MAP_SHARED | MAP_FIXED, a->file,
                (off_t)a->file_offset) == at;
}

static int
open_foreign(const allocation *a)
{
    char *base = a->public.base;
    int both = PROT_READ | PROT_WRITE;
    if (!map_pages(a, base + memory.size, both) ||
        !map_pages(a, base,
                   a->public.kind == AD_ENGINE_DEVICE ? PROT_NONE : both)) {
        return errno == ENOMEM ? AD_ENGINE_OUT_OF_MEMORY
                               : AD_ENGINE_INVALID_VALUE;
    }
    leave_out(base, memory.size, a->n_mapped);
    return AD_ENGINE_OK;
}

/* The addresses become inaccessible pages of the arena again. */
static void
close_foreign(const allocation *a)
{
    char *base = a->public.base;
    allocation own = *a;
    own.file = memory.fd;
    own.file_offset = (uint64_t)(base - memory.base);
    (void)map_pages(&own, base, PROT_NONE);
    (void)map_pages(&own, base + memory.size, PROT_NONE);
    leave_out(base, memory.size, a->n_mapped);
}

static void
close_pages(const allocation *a)
{
    char *base = a->public.base;
    if (a->file >= 0) {
        close_foreign(a);
        return;
    }
    mprotect(base + memory.size, a->n_mapped, PROT_NONE);
    if (a->public.kind != AD_ENGINE_DEVICE) {
        mprotect(base, a->n_mapped, PROT_NONE);
    }
#ifdef __linux__
    fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              base - memory.base, (off_t)a->n_mapped);
#endif
}

/* Opens the pages, which are given addresses. */
static int
enter_locked(allocation *a)
{
    size_t nbytes = a->public.nbytes;
    if (nbytes > memory.size - 2 * PAGE) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    a->n_mapped = (nbytes + PAGE - 1) / PAGE * PAGE;
    size_t offset = place_locked(a->n_mapped);
    if (offset == SIZE_MAX) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    a->public.base = memory.base + offset;
    int status = a->file >= 0    ? open_foreign(a)
                 : open_pages(a) ? AD_ENGINE_OK
                                 : AD_ENGINE_OUT_OF_MEMORY;
    if (status != AD_ENGINE_OK) {
        close_pages(a);
    }
    return status;
}

static int
allocate_locked(allocation *a)
{
    size_t nbytes = a->public.nbytes;
    size_t *used = used_of(a);
    if (used != NULL && (*used > limit_locked(a->public.device) ||
                         nbytes > limit_locked(a->public.device) - *used)) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    int status = enter_locked(a);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (a->file < 0) {
        memset(ad_engine_inside(a->public.base), PATTERN,
               nbytes < MAX_PATTERN ? nbytes : MAX_PATTERN);
    }
    status = insert_locked(a);
    if (status != AD_ENGINE_OK) {
        close_pages(a);
    } else if (used != NULL) {
        *used += nbytes;
    }
    return status;
}

/* Takes ownership of `a`, which is NULL without memory. */
static int
allocate(allocation *a, void **out)
{
    if (a == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    uint32_t place = ad_races_here();
    int status = ad_engine_lock_device(a->public.device);
    if (status == AD_ENGINE_OK) {
        status = allocate_locked(a);
        if (status == AD_ENGINE_OK) {
            ad_races_allocated_locked(&a->public, place);
            *out = a->public.base;
        }
        ad_engine_unlock();
    }
    if (status != AD_ENGINE_OK) {
        drop(a);
    }
    return status;
}

int
ad_engine_allocate(int device, size_t nbytes, ad_engine_kind kind, void *tag,
                   void **out)
{
    if (nbytes == 0 || kind == AD_ENGINE_REGISTERED) {
        return AD_ENGINE_INVALID_VALUE;
    }
    return allocate(
        new_allocation((ad_engine_allocation){
            .nbytes = nbytes, .device = device, .kind = kind, .tag = tag}),
        out);
}

/* Makes the addresses free. */
static void
give_back_locked(allocation *a)
{
    remove_locked(a);
    if (a->public.kind != AD_ENGINE_REGISTERED) {
        close_pages(a);
    }
    drop(a);
}

static void
free_locked(allocation *a)
{
    size_t *used = used_of(a);
    if (used != NULL) {
        *used -= a->public.nbytes;
    }
    a->is_gone = true;
    if (a->n_touching == 0) {
        give_back_locked(a);
    }
}

/* `behind`: a destroyed queue whose work is done; 0: none. */
static int
free_kind(void *base, bool is_registered, uint64_t behind)
{
    uint32_t place = ad_races_here();
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    allocation *a = find_base_locked(base);
    if (a == NULL ||
        (a->public.kind == AD_ENGINE_REGISTERED) != is_registered) {
        status = AD_ENGINE_INVALID_POINTER;
    } else {
        ad_races_freed_locked(base, place, ad_races_ended_locked(behind));
        free_locked(a);
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_free(void *base)
{
    return free_kind(base, false, 0);
}

static int
run_free(void *base)
{
    int status = ad_engine_lock();
    if (status == AD_ENGINE_OK) {
        free_locked(find_locked(base)); /* leaving: no other thread frees it */
        ad_engine_unlock();
    }
    return status;
}

/* `nbytes` gets the size of the allocation, unless it is NULL. */
static int
set_leaving(void *base, bool is_leaving, size_t *nbytes)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    allocation *a = find_locked(base);
    if (a == NULL || a->public.base != base || a->is_leaving == is_leaving ||
        a->public.kind == AD_ENGINE_REGISTERED) {
        status = AD_ENGINE_INVALID_POINTER;
    } else {
        a->is_leaving = is_leaving;
        if (nbytes != NULL) {
            *nbytes = a->public.nbytes;
        }
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_free_ordered(uint64_t queue, void *base)
{
    size_t nbytes;
    int status = set_leaving(base, true, &nbytes);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    const ad_engine_use use = {AD_ENGINE_FREE, base, nbytes, nbytes, 1, false};
    status = ad_engine_enqueue_last(queue, run_free, base, &use, 1);
    if (status != AD_ENGINE_OK) {
        (void)set_leaving(base, false, NULL);
    }
    return status;
}

void
ad_engine_free_after(uint64_t queue, void *base)
{
    int code = ad_engine_free_ordered(queue, base);
    if (code == AD_ENGINE_INVALID_QUEUE) {
        (void)free_kind(base, false, queue);
    } else if (code == AD_ENGINE_OUT_OF_MEMORY &&
               ad_engine_queue_synchronize(queue, -1) != AD_ENGINE_TIMEOUT) {
        (void)ad_engine_free(base);
    }
}

int
ad_engine_register(void *base, size_t nbytes, int device, void *tag)
{
    if (base == NULL || nbytes == 0 ||
        nbytes > UINTPTR_MAX - (uintptr_t)base) {
        return AD_ENGINE_INVALID_VALUE;
    }
    allocation *a =
        new_allocation((ad_engine_allocation){.base = base,
                                              .nbytes = nbytes,
                                              .device = device,
                                              .kind = AD_ENGINE_REGISTERED,
                                              .tag = tag});
    if (a == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    a->n_mapped = nbytes;
    int status = ad_engine_lock_device(device);
    if (status == AD_ENGINE_OK) {
        size_t next = position_locked((uintptr_t)base);
        if (is_in_arena(base) || find_locked(base) != NULL ||
            (next < memory.live.n &&
             (uintptr_t)memory.live.items[next]->public.base <
                 (uintptr_t)base + nbytes)) {
            status = AD_ENGINE_INVALID_VALUE;
        } else {
            status = insert_locked(a);
        }
        ad_engine_unlock();
    }
    if (status != AD_ENGINE_OK) {
        free(a);
    }
    return status;
}

int
ad_engine_unregister(void *base)
{
    return free_kind(base, true, 0);
}

/* --- touching ------------------------------------------------------------ */

/* Host memory has no allocation that counts. */
static int
begin_touch_locked(const ad_engine_range *ranges, size_t n, allocation **found)
{
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].nbytes > 0 &&
            !may_touch_locked(ranges[i].data, ranges[i].nbytes)) {
            return AD_ENGINE_ILLEGAL_ADDRESS;
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool is_counted = ranges[i].nbytes > 0 && is_in_arena(ranges[i].data);
        found[i] = is_counted ? find_locked(ranges[i].data) : NULL;
        if (found[i] != NULL) {
            found[i]->n_touching++;
        }
    }
    return AD_ENGINE_OK;
}

static void
end_touch_locked(allocation *a)
{
    if (a != NULL && --a->n_touching == 0 && a->is_gone) {
        give_back_locked(a);
    }
}

int
ad_engine_touch(const ad_engine_range *ranges, size_t n, ad_engine_work work,
                void *arg)
{
    allocation *found[AD_ENGINE_MAX_RANGES];
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    status = begin_touch_locked(ranges, n, found);
    ad_engine_unlock();
    if (status == AD_ENGINE_OK) {
        status = work(arg);
        if (ad_engine_lock() == AD_ENGINE_OK) {
            for (size_t i = 0; i < n; i++) {
                end_touch_locked(found[i]);
            }
            ad_engine_unlock();
        }
    }
    return status;
}

/* --- other processes ------------------------------------------------------ */

int
ad_engine_memory_file(const void *pointer, int *file, uint64_t *offset,
                      ad_engine_allocation *out)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    const allocation *a = find_locked(pointer);
    if (a == NULL || a->is_leaving || a->public.kind == AD_ENGINE_REGISTERED) {
        status = AD_ENGINE_INVALID_POINTER;
    } else {
        bool is_own = a->file < 0;
        *file = is_own ? memory.fd : a->file;
        *offset = is_own ? (uint64_t)((char *)a->public.base - memory.base)
                         : a->file_offset;
        *out = a->public;
    }
    ad_engine_unlock();
    return status;
}

/* Whether all the pages exist, and stay: no access to them can fault. */
static bool
has_pages(int file, uint64_t offset, size_t nbytes)
{
    struct stat found;
    int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
           fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
           offset % PAGE == 0 && nbytes > 0 &&
           offset <= (uint64_t)found.st_size &&
           nbytes <= (uint64_t)found.st_size - offset;
}

int
ad_engine_map(int device, int file, uint64_t offset, size_t nbytes,
              ad_engine_kind kind, void *tag, void **out)
{
    if (kind == AD_ENGINE_REGISTERED || !has_pages(file, offset, nbytes)) {
        return AD_ENGINE_INVALID_VALUE;
    }
    allocation *a = new_allocation((ad_engine_allocation){
        .nbytes = nbytes, .device = device, .kind = kind, .tag = tag});
    if (a == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    a->file_offset = offset;
    a->file = fcntl(file, F_DUPFD_CLOEXEC, 3);
    if (a->file < 0) {
        drop(a);
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    return allocate(a, out);
}

/* --- limits, reset and count --------------------------------------------- */

int
ad_engine_set_memory_limit(int device, size_t nbytes)
{
    int status = ad_engine_lock_device(device);
    if (status == AD_ENGINE_OK) {
        memory.limits[device] = nbytes;
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_memory(int device, size_t *limit, size_t *left)
{
    int status = ad_engine_lock_device(device);
    if (status == AD_ENGINE_OK) {
        size_t used = memory.used[device];
        *limit = limit_locked(device);
        *left = *limit > used ? *limit - used : 0;
        ad_engine_unlock();
    }
    return status;
}

void
ad_engine_memory_each_locked(void (*visit)(const ad_engine_allocation *,
                                           uint32_t),
                             uint32_t argument)
{
    for (size_t i = 0; i < memory.live.n; i++) {
        const allocation *a = memory.live.items[i];
        if (!a->is_leaving && !a->is_gone) {
            visit(&a->public, argument);
        }
    }
}

void
ad_engine_memory_reset_locked(void)
{
    memset(memory.limits, 0, sizeof(memory.limits));
}

void
ad_engine_memory_count_locked(const void *tag, ad_engine_counts *out)
{
    for (size_t i = 0; i < memory.live.n; i++) {
        const ad_engine_allocation *a = &memory.live.items[i]->public;
        if (a->kind != AD_ENGINE_REGISTERED &&
            !memory.live.items[i]->is_gone && (tag == NULL || a->tag == tag)) {
            out->allocations++;
            out->bytes += a->nbytes;
        }
    }
}

/* --- work that moves bytes ----------------------------------------------- */

/* Enqueues work whose ranges were checked. On failure frees `arg`. */
static int
submit(uint64_t queue, ad_engine_work work, void *arg,
       const ad_engine_use *uses, size_t n, bool is_valid)
{
    int status = AD_ENGINE_INVALID_POINTER;
    if (ad_engine_is_forked()) {
        status = AD_ENGINE_FORKED;
    } else if (is_valid) {
        status = ad_engine_enqueue_use(queue, work, arg, uses, n);
    } else {
        ad_engine_refuse_use(queue, uses, n);
    }
    if (status != AD_ENGINE_OK) {
        free(arg);
    }
    return status;
}

typedef struct copy_work {
    char *target;
    const char *source;
    size_t target_pitch;
    size_t source_pitch;
    size_t width;
    size_t height;
    char bytes[]; /* of ad_engine_write */
} copy_work;

/* Bytes from the first to the last one. False on overflow. */
static bool
extent(size_t pitch, size_t width, size_t height, size_t *out)
{
    size_t rows;
    return !__builtin_mul_overflow(pitch, height - 1, &rows) &&
           !__builtin_add_overflow(rows, width, out);
}

static bool
ranges_of(const copy_work *c, ad_engine_range out[2])
{
    out[0].data = c->target;
    out[1].data = c->source;
    return extent(c->target_pitch, c->width, c->height, &out[0].nbytes) &&
           extent(c->source_pitch, c->width, c->height, &out[1].nbytes);
}

static bool
may_copy(const copy_work *c)
{
    ad_engine_range ranges[2];
    return ranges_of(c, ranges) &&
           ad_engine_may_touch(ranges[0].data, ranges[0].nbytes) &&
           ad_engine_may_touch(ranges[1].data, ranges[1].nbytes);
}

static int
copy_rows(void *arg)
{
    const copy_work *c = arg;
    char *target = ad_engine_inside(c->target);
    const char *source = ad_engine_inside(c->source);
    for (size_t i = 0; i < c->height; i++) {
        memmove(target + i * c->target_pitch, source + i * c->source_pitch,
                c->width);
    }
    return AD_ENGINE_OK;
}

static int
run_copy(void *arg)
{
    ad_engine_range ranges[2];
    int status = ranges_of(arg, ranges)
                     ? ad_engine_touch(ranges, 2, copy_rows, arg)
                     : AD_ENGINE_ILLEGAL_ADDRESS;
    free(arg);
    return status;
}

static int
require_live_queue(uint64_t queue)
{
    return ad_engine_queue_is_live(queue) ? AD_ENGINE_OK
                                          : AD_ENGINE_INVALID_QUEUE;
}

static int
copy_blocks(uint64_t queue, void *target, size_t target_pitch,
            const void *source, size_t source_pitch, size_t width,
            size_t height, bool is_waited_for)
{
    if (width == 0 || height == 0) {
        return require_live_queue(queue);
    }
    copy_work *c = malloc(sizeof(*c));
    if (c == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    *c =
        (copy_work){target, source, target_pitch, source_pitch, width, height};
    const ad_engine_use uses[] = {
        {AD_ENGINE_READ, source, source_pitch, width, height, is_waited_for},
        {AD_ENGINE_WRITE, target, target_pitch, width, height, is_waited_for},
    };
    return submit(queue, run_copy, c, uses, 2, may_copy(c));
}

int
ad_engine_copy(uint64_t queue, void *target, size_t target_pitch,
               const void *source, size_t source_pitch, size_t width,
               size_t height)
{
    return copy_blocks(queue, target, target_pitch, source, source_pitch,
                       width, height, false);
}

int
ad_engine_copy_for_arrowdev(uint64_t queue, void *target, size_t target_pitch,
                            const void *source, size_t source_pitch,
                            size_t width, size_t height)
{
    return copy_blocks(queue, target, target_pitch, source, source_pitch,
                       width, height, true);
}

int
ad_engine_write(uint64_t queue, void *target, const void *source,
                size_t nbytes)
{
    if (nbytes == 0) {
        return require_live_queue(queue);
    }
    copy_work *c = malloc(sizeof(*c) + nbytes);
    if (c == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    *c = (copy_work){target, c->bytes, nbytes, nbytes, nbytes, 1};
    memcpy(c->bytes, source, nbytes);
    const ad_engine_use use = {AD_ENGINE_WRITE, target, nbytes,
                               nbytes,          1,      false};
    return submit(queue, run_copy, c, &use, 1, may_copy(c));
}

typedef struct fill_work {
    char *target;
    uint64_t pattern;
    size_t size;
    size_t n;
} fill_work;

static int
fill(void *arg)
{
    const fill_work *f = arg;
    char *target = ad_engine_inside(f->target);
    for (size_t i = 0; i < f->n; i++) {
        /* Little-endian, like all of arrowdev's data. */
        memcpy(target + i * f->size, &f->pattern, f->size);
    }
    return AD_ENGINE_OK;
}

static int
run_fill(void *arg)
{
    const fill_work *f = arg;
    const ad_engine_range range = {f->target, f->n * f->size};
    int status = ad_engine_touch(&range, 1, fill, arg);
    free(arg);
    return status;
}

int
ad_engine_fill(uint64_t queue, void *target, uint64_t pattern, size_t size,
               size_t n)
{
    if ((size != 1 && size != 2 && size != 4 && size != 8) ||
        n > SIZE_MAX / size) {
        return AD_ENGINE_INVALID_VALUE;
    }
    fill_work *f = malloc(sizeof(*f));
    if (f == NULL) {
        return AD_ENGINE_OUT_OF_MEMORY;
    }
    *f = (fill_work){target, pattern, size, n};
    const ad_engine_use use = {AD_ENGINE_WRITE, target, n * size,
                               n * size,        1,      false};
    return submit(queue, run_fill, f, &use, 1,
                  ad_engine_may_touch(target, n * size));
}
