/* OpenCL's memory: spans, copies and kernels.
 */
#ifndef AD_DEVICE_OPENCL_OPENCL_MEMORY_H
#define AD_DEVICE_OPENCL_OPENCL_MEMORY_H

#include "device/backend.h"
#include "device/opencl/opencl_context.h"

/* Properties of a queue. */
typedef struct ad_opencl_queue {
    ad_cl_queue handle;
    struct ad_opencl_context *cl_context;
    bool is_in_order;
} ad_opencl_queue;

/* Fails for a number that is not a queue. */
AD_MUST_CHECK ad_status ad_opencl_queue_of(ad_stream stream,
                                           ad_opencl_queue *out,
                                           ad_error *err);

/* Slots of the backend. */
ad_status ad_opencl_classify(const void *pointer, ad_context hint,
                             ad_memory_info *out, ad_error *err);
ad_status ad_opencl_copy(ad_context context, ad_stream stream,
                         const ad_block_copy *copy, ad_error *err);
ad_status ad_opencl_launch(ad_context context, ad_stream stream,
                           const ad_launch *launch, ad_error *err);

#endif /* AD_DEVICE_OPENCL_OPENCL_MEMORY_H */
