/* Declarations of libOpenCL.so.1.
 *
 * The struct tags are those of Khronos' headers, so that a test can compare
 * each function of opencl_api.def with them.
 */
#ifndef AD_ABI_OPENCL_API_H
#define AD_ABI_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *ad_cl_platform;
typedef struct _cl_device_id *ad_cl_device;
typedef struct _cl_context *ad_cl_context;
typedef struct _cl_command_queue *ad_cl_queue;
typedef struct _cl_mem *ad_cl_mem;
typedef struct _cl_event *ad_cl_event;
typedef struct _cl_program *ad_cl_program;
typedef struct _cl_kernel *ad_cl_kernel;

typedef void ad_cl_context_notify(const char *, const void *, size_t, void *);
typedef void ad_cl_event_notify(ad_cl_event, int32_t, void *);
typedef void ad_cl_program_notify(ad_cl_program, void *);

enum {
    AD_CL_SUCCESS = 0,
    AD_CL_COMPLETE = 0, /* execution status; negative: error */
    AD_CL_QUEUED = 3,
    AD_CL_MEM_READ_WRITE = 1 << 0,
    AD_CL_MEM_USE_HOST_PTR = 1 << 3,
    AD_CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE = 1 << 0,
    AD_CL_PLATFORM_VERSION = 0x0901,
    AD_CL_PLATFORM_NAME = 0x0902,
    AD_CL_DEVICE_TYPE = 0x1000,
    AD_CL_DEVICE_TYPE_CPU = 1 << 1,
    AD_CL_DEVICE_NAME = 0x102b,
    AD_CL_DEVICE_PARENT_DEVICE = 0x1042,
    AD_CL_DEVICE_SVM_CAPABILITIES = 0x1053,
    AD_CL_CONTEXT_DEVICES = 0x1081,
    AD_CL_CONTEXT_PLATFORM = 0x1084,
    AD_CL_QUEUE_CONTEXT = 0x1090,
    AD_CL_QUEUE_DEVICE = 0x1091,
    AD_CL_QUEUE_PROPERTIES = 0x1093,
    AD_CL_MEM_OBJECT_BUFFER = 0x10f0,
    AD_CL_MEM_TYPE = 0x1100,
    AD_CL_MEM_CONTEXT = 0x1106,
    AD_CL_MEM_USES_SVM_POINTER = 0x1109,
    AD_CL_PROGRAM_BUILD_LOG = 0x1183,
    AD_CL_EVENT_COMMAND_QUEUE = 0x11d0,
    AD_CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11d3,
    AD_CL_EVENT_CONTEXT = 0x11d4
};

/* CL_DEVICE_TYPE_ALL is a 64-bit value, which does not fit an enumerator. */
#define AD_CL_DEVICE_TYPE_ALL UINT64_C(0xffffffff)

#endif /* AD_ABI_OPENCL_API_H */
