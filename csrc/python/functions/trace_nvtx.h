/* Ranges of NVTX around what a trace records, so that Nsight shows the same
 * names. Only where the program has loaded libnvToolsExt, or imported `nvtx`.
 */
#ifndef AD_PYTHON_FUNCTIONS_TRACE_NVTX_H
#define AD_PYTHON_FUNCTIONS_TRACE_NVTX_H

#include <stdbool.h>

/* Looks for the library, or forgets it. With the GIL. */
void ad_nvtx_find(bool on);

/* Begins a range. False where there is no NVTX; else end it with
 * ad_nvtx_pop(), on the same thread. A pending exception stays. */
bool ad_nvtx_push(const char *name);
void ad_nvtx_pop(void);

#endif /* AD_PYTHON_FUNCTIONS_TRACE_NVTX_H */
