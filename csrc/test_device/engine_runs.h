/* What the queues have run, for a trace. The lock of the engine is held. */
#ifndef AD_TEST_DEVICE_ENGINE_RUNS_H
#define AD_TEST_DEVICE_ENGINE_RUNS_H

#include "test_device/engine.h"

/* Work with these uses, enqueued at `place` at this time. */
ad_engine_run ad_runs_of(const ad_engine_use *uses, size_t n, uint32_t place,
                         int64_t enqueued);

/* Nothing while no runs are recorded. */
void ad_runs_add_locked(ad_engine_run run);

#endif /* AD_TEST_DEVICE_ENGINE_RUNS_H */
