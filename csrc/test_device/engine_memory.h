/* What engine.c and engine_memory.c need of each other. */
#ifndef AD_TEST_DEVICE_ENGINE_MEMORY_H
#define AD_TEST_DEVICE_ENGINE_MEMORY_H

#include "test_device/engine.h"

enum {
    AD_ENGINE_MAX_DEVICES = 64
};

/* Take the lock of the engine. On FORKED or NOT_STARTED the lock is not
 * held. */
int ad_engine_lock(void);
/* The same; INVALID_DEVICE unless it is a device. */
int ad_engine_lock_device(int device);
void ad_engine_unlock(void);

/* Map the arena, once. */
int ad_engine_arena_start_locked(void);

/* Visit the live allocations that are not about to be freed. */
void ad_engine_memory_each_locked(
    void (*visit)(const ad_engine_allocation *allocation, uint32_t argument),
    uint32_t argument);

void ad_engine_memory_reset_locked(void);
void ad_engine_memory_count_locked(const void *tag, ad_engine_counts *out);

#endif /* AD_TEST_DEVICE_ENGINE_MEMORY_H */
