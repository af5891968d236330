/* The software device, ARROW_DEVICE_EXT_DEV: what arrowdev.testing needs to
 * know beside the engine.
 *
 * There is none before arrowdev.testing made some with ad_software_start();
 * until then EXT_DEV is a device type without a runtime. Other frameworks use
 * EXT_DEV too: only pointers and events of the engine's registry are claimed.
 *
 * Streams are the engine's queue handles. `sync_event` is the address of an
 * event as ad_engine_event_address() tells it: 8 bytes that hold the event's
 * handle while it lives.
 */
#ifndef AD_DEVICE_SOFTWARE_SOFTWARE_H
#define AD_DEVICE_SOFTWARE_SOFTWARE_H

#include "base/status.h"

/* Have `n_devices` devices, and show them in ad.devices(). Devices that are
 * shown no more go on working, for what lives longer than a test. */
AD_MUST_CHECK ad_status ad_software_start(int n_devices, ad_error *err);
void ad_software_hide(void);

/* "SOFTWARE_ERROR_INVALID_QUEUE" */
const char *ad_software_error_name(int code);

/* Fail for what `call` of the engine returned: AD_ERR_MEMORY, else
 * AD_ERR_DEVICE. */
ad_status ad_software_fail(ad_error *err, int64_t device, const char *call,
                           int code);

/* The tag of queues, events and memory that the backend made, so that they
 * can be told from those of a test. */
void *ad_software_tag(void);

/* The names of all calls, as fail_at() and the log have them; ends with NULL. */
extern const char *const ad_software_calls[];

#endif /* AD_DEVICE_SOFTWARE_SOFTWARE_H */
