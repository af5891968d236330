/* Ranges of NVTX around what a trace records, so that Nsight shows the same
 * names. Only where the program has loaded libnvToolsExt, or imported `nvtx`.
 */
#ifndef AD_PYTHON_FUNCTIONS_TRACE_NVTX_H
#define AD_PYTHON_FUNCTIONS_TRACE_NVTX_H

#include <stdbool.h>

#include "support/state.h"

/* A range that has begun, with what ends it; zeroed where there is no NVTX. */
typedef struct ad_nvtx_range {
    int (*pop)(void);     /* of the library */
    PyObject *pop_python; /* of the module of this interpreter */
} ad_nvtx_range;

/* Looks for the library and the module, or forgets them. With the GIL. */
void ad_nvtx_find(bool on);

/* Begins a range and ends it, on one thread. A pending exception stays. */
ad_nvtx_range ad_nvtx_push(const char *name);
void ad_nvtx_pop(ad_nvtx_range *range);

#endif /* AD_PYTHON_FUNCTIONS_TRACE_NVTX_H */
