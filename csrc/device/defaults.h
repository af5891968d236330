/* What stands in for the slots that a backend leaves out.
 */
#ifndef AD_DEVICE_DEFAULTS_H
#define AD_DEVICE_DEFAULTS_H

#include "device/backend.h"

/* Put a default into every slot that is NULL; of an empty struct it makes the
 * stand-in for device types without a backend. */
void ad_backend_fill(struct ad_backend *backend);

/* Fail with AD_ERR_EXCHANGE: there is no backend for the device. */
ad_status ad_fail_no_backend(ad_device device, const char *reason,
                             ad_error *err);

#endif /* AD_DEVICE_DEFAULTS_H */
