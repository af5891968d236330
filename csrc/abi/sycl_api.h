/* Declarations of libDPCTLSyclInterface.so, dpctl's C interface to SYCL.
 *
 * A DPCTLSycl...Ref is the address of a C++ object: an ad_sycl_event is a
 * `sycl::event *`, which is also the `sync_event` of a oneAPI device array.
 * The struct tags are dpctl's own, so that a test can declare every function
 * of sycl_api.def after its header.
 */
#ifndef AD_ABI_SYCL_API_H
#define AD_ABI_SYCL_API_H

#include <stdbool.h>
#include <stddef.h>

typedef struct DPCTLOpaqueSyclDevice *ad_sycl_device;
typedef struct DPCTLOpaqueSyclContext *ad_sycl_context;
typedef struct DPCTLOpaqueSyclQueue *ad_sycl_queue;
typedef struct DPCTLOpaqueSyclEvent *ad_sycl_event;
typedef struct DPCTLOpaqueSyclUSM *ad_sycl_usm;
typedef struct DPCTLOpaqueSyclKernel *ad_sycl_kernel;
typedef struct DPCTLOpaqueSyclKernelBundle *ad_sycl_bundle;
typedef struct DPCTLDeviceVector *ad_sycl_devices;
typedef void ad_sycl_error_handler(int);
typedef unsigned ad_sycl_arg_type; /* an enum */

enum {
    AD_SYCL_ALL_DEVICES = 63 | 31 << 16, /* of all types and backends */
    AD_SYCL_IN_ORDER = 2,
    AD_SYCL_UNKNOWN = 0, /* event status */
    AD_SYCL_COMPLETE = 3,
    AD_SYCL_USM_UNKNOWN = 0,
    AD_SYCL_USM_DEVICE = 1,
    AD_SYCL_USM_SHARED = 2,
    AD_SYCL_USM_HOST = 3,
    AD_SYCL_IS_CPU = 1, /* aspects */
    AD_SYCL_HAS_USM_DEVICE = 12,
    AD_SYCL_ARG_INT64 = 6,
    AD_SYCL_ARG_POINTER = 10
};

#endif /* AD_ABI_SYCL_API_H */
