/* A runtime's library as a table of functions.
 *
 * A backend lists each symbol once, in an X-macro list
 * (csrc/abi/cuda_api.def):
 *
 *   X(event_record, "cuEventRecord", AD_REQUIRED, (CUevent, CUstream))
 *
 * The list gives both the struct of function pointers and the array of
 * ad_symbol that fills it:
 *
 *   #define X(field, exported, need, arguments) CUresult (*field) arguments;
 *   #define X(field, exported, need, arguments)                    \
 *       {exported, offsetof(struct cuda_api, field), need},
 *
 * The pointer of an optional symbol that is missing is NULL, which disables
 * one capability of the backend.
 */
#ifndef AD_DEVICE_DYNLIB_H
#define AD_DEVICE_DYNLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The file of a library on this system. */
#if defined(_WIN32)
#define AD_LIBRARY_FILE(of_linux, of_macos, of_windows) of_windows
#elif defined(__APPLE__)
#define AD_LIBRARY_FILE(of_linux, of_macos, of_windows) of_macos
#else
#define AD_LIBRARY_FILE(of_linux, of_macos, of_windows) of_linux
#endif

#define AD_REQUIRED true
#define AD_OPTIONAL false

typedef struct ad_symbol {
    const char *name;
    size_t offset; /* of the function pointer in the backend's struct */
    bool required;
} ad_symbol;

typedef struct ad_library {
    /* The backend's name, for messages. ARROWDEV_<NAME>_LIBRARY overrides the
     * library that is loaded. */
    const char *name;
    const char *const *sonames; /* in order of preference, ends in NULL */
    const ad_symbol *symbols;
    size_t n_symbols;
    /* Wheels bring the library along under a name with a hash. */
    bool is_in_wheels;
    /* Advice when no library is found. NULL: "install its driver". */
    const char *advice;
} ad_library;

/* Size of the buffer for a library's path. Longer paths are cut. */
#define AD_LIBRARY_PATH_SIZE 512

/* Load the library and fill the struct at `api`. If the environment variable
 * is set, only the library it names is tried. Otherwise a library of one of
 * these names that is in the process already is used (with `is_in_wheels` also
 * one whose file has the first name with a hash in it), and then the names are
 * searched along the linker's path. The library is never closed. `path`
 * (AD_LIBRARY_PATH_SIZE bytes, or NULL) receives the path of the loaded
 * library.
 *
 * AD_ERR_EXCHANGE, reason "runtime": no library could be loaded (the message
 * says why for each), or a required symbol is missing (the message names
 * it). */
AD_MUST_CHECK ad_status ad_library_load(const ad_library *library, void *api,
                                        char *path, ad_error *err);

#endif /* AD_DEVICE_DYNLIB_H */
