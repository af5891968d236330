/* A runtime's library as a table of functions.
 *
 * A backend spells each symbol once, in an X-list (csrc/abi/cuda_api.def):
 *
 *   X(event_record, "cuEventRecord", AD_REQUIRED, (CUevent, CUstream))
 *
 * from which it makes both the struct of function pointers and the list of
 * ad_symbol that fills it:
 *
 *   #define X(field, exported, need, arguments) CUresult (*field) arguments;
 *   #define X(field, exported, need, arguments)                    \
 *       {exported, offsetof(struct cuda_api, field), need},
 *
 * An optional symbol that is missing leaves NULL, which switches off one
 * capability of the backend.
 */
#ifndef AD_DEVICE_DYNLIB_H
#define AD_DEVICE_DYNLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define AD_REQUIRED true
#define AD_OPTIONAL false

typedef struct ad_symbol {
    const char *name;
    size_t offset; /* of the function pointer in the backend's struct */
    bool required;
} ad_symbol;

typedef struct ad_library {
    /* The backend's name, for messages; ARROWDEV_<NAME>_LIBRARY overrides what
     * is loaded. */
    const char *name;
    const char *const *sonames; /* in order of preference; ends in NULL */
    const ad_symbol *symbols;
    size_t n_symbols;
    /* What to do where there is none; NULL: "install its driver". */
    const char *advice;
} ad_library;

/* The largest path that is kept for people. */
#define AD_LIBRARY_PATH_SIZE 512

/* Load the library and fill the struct at `api`. Looked for in this order: the
 * environment variable, and then nothing else; a library of one of these names
 * that is in the process already; the names, through the linker's search path.
 * It is never closed again. `path` (AD_LIBRARY_PATH_SIZE bytes, or NULL) says
 * what was loaded, *handle (or NULL) is for further dlsym calls.
 *
 * AD_ERR_EXCHANGE, reason "runtime": nothing could be loaded (the message says
 * why for each), or a required symbol is missing (the message names it). */
AD_MUST_CHECK ad_status ad_library_load(const ad_library *library, void *api,
                                        void **handle, char *path,
                                        ad_error *err);

#endif /* AD_DEVICE_DYNLIB_H */
