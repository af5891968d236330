/* What is written in Python: arrowdev.<submodule>.<function>.
 */
#ifndef AD_SUPPORT_HELPERS_H
#define AD_SUPPORT_HELPERS_H

#include <stddef.h>

#include "support/compat.h"

/* A new reference, or NULL. */
PyObject *ad_find_helper(const char *submodule, const char *function);

/* Call it. New reference, or NULL. */
PyObject *ad_call_helper(const char *submodule, const char *function,
                         PyObject *const *args, size_t n_args);

#endif /* AD_SUPPORT_HELPERS_H */
