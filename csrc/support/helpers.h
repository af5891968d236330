/* Helpers written in Python: arrowdev.<submodule>.<function>. */
#ifndef AD_SUPPORT_HELPERS_H
#define AD_SUPPORT_HELPERS_H

#include <stddef.h>

#include "support/compat.h"

/* Find a helper. Returns a new reference, or NULL with an exception. */
PyObject *ad_find_helper(const char *submodule, const char *function);

/* Call a helper. Returns a new reference, or NULL with an exception. */
PyObject *ad_call_helper(const char *submodule, const char *function,
                         PyObject *const *args, size_t n_args);

#endif /* AD_SUPPORT_HELPERS_H */
