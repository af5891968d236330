/* The software device, ARROW_DEVICE_EXT_DEV: a backend on top of the engine.
 *
 * It is a table as any package may register one. Until arrowdev.testing does
 * so, EXT_DEV is a device type without a backend. Other frameworks use EXT_DEV
 * too, so only pointers and events in the engine's registry are claimed.
 *
 * Streams are the engine's queue handles. `sync_event` is the address of an
 * event as ad_engine_event_address() returns it: 8 bytes that hold the event's
 * handle while it lives.
 */
#ifndef AD_TEST_DEVICE_SOFTWARE_H
#define AD_TEST_DEVICE_SOFTWARE_H

#include "../../arrowdev/include/arrowdev_backend.h"
#include "base/status.h"

extern const arrowdev_backend ad_software_table;

/* Provide `n_devices` devices, and show them in ad.devices(). Hidden devices
 * keep working for objects that outlive a test. */
AD_MUST_CHECK ad_status ad_software_start(int n_devices, ad_error *err);
void ad_software_hide(void);

/* "SOFTWARE_ERROR_INVALID_QUEUE" */
const char *ad_software_error_name(int code);

/* Fail with the status that `call` of the engine returned: AD_ERR_MEMORY or
 * AD_ERR_DEVICE. */
ad_status ad_software_fail(ad_error *err, int64_t device, const char *call,
                           int code);

/* Its address is the tag of the queues, events and memory that the backend
 * creates, which tells them from those of a test. */
extern char ad_software_tag;

/* The names of all calls, as fail_at() and the log use them. Ends with
 * NULL. */
extern const char *const ad_software_calls[];

#endif /* AD_TEST_DEVICE_SOFTWARE_H */
