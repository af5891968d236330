/* base/: the foundation of all other layers.
 *
 * Status and error record, owners, device types with their traits, handles
 * (context, stream, event, span), forks, threads, interruptible waits, host
 * memory, text, UTF-8 and JSON. This layer calls no runtime and no
 * interpreter; the code around a blocking call is set as hooks (base/wait.h).
 * Any thread may call every function. Locks: one for the fork hooks, and one
 * for each wait on a helper thread. No lock is held while foreign code runs.
 */

/* Status codes and the error record of the core.
 *
 * Every function that can fail returns ad_status and takes `ad_error *err` as
 * its last argument (NULL is allowed). The layer that knows the cause writes
 * the message once: it says what was found, what was expected, and (hint) what
 * to do. Above the core one function, in support/errors.c, turns the record
 * into an exception.
 */
#ifndef AD_BASE_STATUS_H
#define AD_BASE_STATUS_H

#include <string.h>

#include "base/device.h"

typedef enum ad_status {
    AD_OK = 0,
    AD_ERR_MEMORY,   /* MemoryError */
    AD_ERR_ARROW,    /* InvalidArrowError: a malformed struct, see `path` */
    AD_ERR_EXCHANGE, /* ExchangeError: well formed, but cannot be exchanged */
    AD_ERR_DEVICE,   /* DeviceError: a runtime call failed, see `code` */
    AD_ERR_TYPE,     /* TypeError */
    AD_ERR_VALUE,    /* ValueError */
    AD_ERR_INDEX,    /* IndexError */
    AD_ERR_DEPTH,    /* RecursionError: the stack would not suffice */
    AD_ERR_INTERRUPTED /* KeyboardInterrupt, or another end of a wait */
} ad_status;

#define AD_MUST_CHECK __attribute__((warn_unused_result))

/* The compiler checks the arguments of a format. On Windows the formats are
 * C11's only with mingw's own functions. */
#ifndef __MINGW32__
#define AD_PRINTF(text, first) __attribute__((format(printf, text, first)))
#elif __USE_MINGW_ANSI_STDIO
#define AD_PRINTF(text, first) __attribute__((format(gnu_printf, text, first)))
#else
#error compile with -D__USE_MINGW_ANSI_STDIO=1
#endif

typedef struct ad_error {
    ad_status status;
    int code;        /* AD_ERR_DEVICE: the error code of the runtime */
    char reason[24]; /* a word such as "nulls", or "" */
    bool has_device;
    ad_device device;
    char dtype[48];    /* type that could not be exchanged, or "" */
    char path[256];    /* AD_ERR_ARROW: path to the bad node, "" = the root */
    char hint[320];    /* the action that helps, or "" */
    char message[512]; /* the value found and the value expected */
} ad_error;

/* Fill *err (when not NULL) and return `status`, so that a failing function
 * ends in `return ad_fail(...)`. `reason` and `hint` are copied and may be
 * NULL. Device, dtype and path start out empty. */
ad_status ad_fail(ad_error *err, ad_status status, const char *reason,
                  const char *hint, const char *format, ...) AD_PRINTF(5, 6);

/* ad_fail with AD_ERR_EXCHANGE, for an error that concerns a device. */
ad_status ad_fail_on(ad_error *err, ad_device device, const char *reason,
                     const char *hint, const char *format, ...)
    AD_PRINTF(5, 6);

/* ad_fail for a failed allocation of `nbytes`. */
ad_status ad_fail_memory(ad_error *err, size_t nbytes);

/* Replace the reason of *err (when not NULL). */
void ad_error_reason(ad_error *err, const char *reason);

/* Replace the hint of *err (when not NULL) by a formatted one. */
void ad_error_hint(ad_error *err, const char *format, ...) AD_PRINTF(2, 3);

/* Put a prefix before the message of *err (when not NULL). It names the
 * operation where the layer that failed does not know it. */
void ad_error_prefix(ad_error *err, const char *format, ...) AD_PRINTF(2, 3);

/* Whether a failed call gave this reason. */
static inline bool
ad_error_has_reason(const ad_error *err, const char *reason)
{
    return strcmp(err->reason, reason) == 0;
}

/* Attach the device, or the name of the type, that the error concerns. */
void ad_error_device(ad_error *err, ad_device device);
void ad_error_dtype(ad_error *err, const char *dtype);

/* Put one step ("children[3]", "dictionary") before err->path. Called while a
 * failed traversal unwinds, so that the path reads from the root. A path that
 * is too long keeps its deepest steps, and "..." marks the cut. */
void ad_error_path_prepend(ad_error *err, const char *format, ...)
    AD_PRINTF(2, 3);

/* `code` if it is an errno, 1 to 4095, otherwise `otherwise`: what a foreign
 * library returned goes to a reader that expects an errno. */
static inline int
ad_errno_or(long code, int otherwise)
{
    return code > 0 && code < 4096 ? (int)code : otherwise;
}

/* For functions that own no resource yet. From the first resource on, use one
 * `fail:` label. */
#define AD_RETURN_IF_ERR(expression)                                          \
    do {                                                                      \
        ad_status ad_status_ = (expression);                                  \
        if (ad_status_ != AD_OK) {                                            \
            return ad_status_;                                                \
        }                                                                     \
    } while (0)

#endif /* AD_BASE_STATUS_H */
