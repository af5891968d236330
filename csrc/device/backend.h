/* The contract of a backend: what the core asks of a runtime.
 *
 * A backend is one file that ends in one `const struct ad_backend` with
 * designated initialisers, and one line in backends.def. What is to be done
 * (when to wait, what to copy, which error) is decided in core; a backend
 * answers short questions. Every slot is filled: a device type without a
 * backend gets a stand-in whose slots refuse, so callers never test for NULL.
 *
 * All slots may be called from any thread, take no ownership, and do not
 * block unless their comment says so.
 */
#ifndef AD_DEVICE_BACKEND_H
#define AD_DEVICE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/device.h"
#include "core/status.h"

struct ad_backend {
    /* ARROW_DEVICE_*; 0 in the stand-in for types without a backend. */
    int32_t device_type;

    /* A capability: the host may dereference pointers to this memory. */
    bool host_accessible;

    /* Succeed when the host may dereference the memory of `device`, and fail
     * otherwise with AD_ERR_EXCHANGE, reason "device". Required. */
    ad_status (*require_host)(ad_device device, ad_error *err);

    /* Number of devices of this type; of `device` only the type counts.
     * Required. */
    ad_status (*count)(ad_device device, int64_t *out, ad_error *err);

    /* Name of a device for people. *out is static or lives as long as the
     * process. Required. */
    ad_status (*name)(ad_device device, const char **out, ad_error *err);
};

/* The backend of a device type. Never NULL. */
const struct ad_backend *ad_backend_for(int32_t device_type);

/* --- the one place where core asks about host access -------------------- */

static inline bool
ad_host_accessible(ad_device device)
{
    return ad_backend_for(device.type)->host_accessible;
}

AD_MUST_CHECK static inline ad_status
ad_require_host(ad_device device, ad_error *err)
{
    return ad_backend_for(device.type)->require_host(device, err);
}

#endif /* AD_DEVICE_BACKEND_H */
