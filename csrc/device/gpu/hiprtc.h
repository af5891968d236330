/* HIP's run-time compiler, if it is installed.
 */
#ifndef AD_DEVICE_GPU_HIPRTC_H
#define AD_DEVICE_GPU_HIPRTC_H

#include "base/status.h"

/* Build `source` for the current device. *out is the code object, which the
 * caller frees. Fails with AD_ERR_EXCHANGE, reason "kernel", if there is no
 * compiler or it rejects the source. */
AD_MUST_CHECK ad_status ad_hiprtc_build(const char *source, void **out,
                                        ad_error *err);

#endif /* AD_DEVICE_GPU_HIPRTC_H */
