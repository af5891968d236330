#include "test_device/engine_runs.h"

#include <stdlib.h>

#include "test_device/engine_memory.h"

enum {
    CAPACITY = 1 << 16
};

/* A ring. */
static struct {
    ad_engine_run *items; /* NULL: nothing is recorded */
    uint64_t n;
} runs;

/* A copy reads and writes; a kernel has a second source, which may be
 * empty. */
ad_engine_run
ad_runs_of(const ad_engine_use *uses, size_t n, uint32_t place,
           int64_t enqueued)
{
    ad_engine_run run = {.name = "work", .place = place, .enqueued = enqueued};
    if (n > 0) {
        const ad_engine_use *last = &uses[n - 1];
        run.name = last->access == AD_ENGINE_FREE ? "release"
                   : n == 1                       ? "write"
                   : n == 2                       ? "copy"
                                                  : "kernel";
        run.nbytes = last->width * last->height;
    }
    return run;
}

void
ad_runs_add_locked(ad_engine_run run)
{
    if (runs.items != NULL) {
        runs.items[runs.n++ % CAPACITY] = run;
    }
}

int
ad_engine_runs_start(void)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (runs.items == NULL) {
        runs.items = calloc(CAPACITY, sizeof(*runs.items));
    }
    runs.n = 0;
    status = runs.items != NULL ? AD_ENGINE_OK : AD_ENGINE_OUT_OF_MEMORY;
    ad_engine_unlock();
    return status;
}

void
ad_engine_runs_stop(void)
{
    if (ad_engine_lock() == AD_ENGINE_OK) {
        free(runs.items);
        runs.items = NULL;
        ad_engine_unlock();
    }
}

size_t
ad_engine_runs(uint64_t from, ad_engine_run *out, size_t capacity,
               uint64_t *next)
{
    size_t n = 0;
    *next = from;
    if (ad_engine_lock() == AD_ENGINE_OK) {
        uint64_t oldest = runs.n > CAPACITY ? runs.n - CAPACITY : 0;
        uint64_t i = from > oldest ? from : oldest;
        while (runs.items != NULL && n < capacity && i < runs.n) {
            out[n++] = runs.items[i++ % CAPACITY];
        }
        *next = i;
        ad_engine_unlock();
    }
    return n;
}
