/* Defaults for the slots that a backend leaves NULL.
 */
#ifndef AD_DEVICE_DEFAULTS_H
#define AD_DEVICE_DEFAULTS_H

#include "device/backend.h"

/* Fill every slot that is NULL with a default. An empty struct becomes the
 * stand-in for device types without a backend. */
void ad_backend_fill(struct ad_backend *backend);

/* Fail with AD_ERR_EXCHANGE: the device has no backend. */
ad_status ad_fail_no_backend(ad_device device, const char *reason,
                             ad_error *err);

#endif /* AD_DEVICE_DEFAULTS_H */
