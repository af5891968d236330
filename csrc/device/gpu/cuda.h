/* What the files of the CUDA backend share: the driver library's functions, and
 * the slots that cuda_ipc.c implements.
 */
#ifndef AD_DEVICE_GPU_CUDA_H
#define AD_DEVICE_GPU_CUDA_H

#include "device/gpu/gpu.h"

struct ad_cuda_calls {
    struct ad_gpu_calls common;
#define AD_CUDA(member, exported, need, parameters) int(*member) parameters;
#include "abi/cuda_api.def"
};

/* The exported names, for messages. */
struct ad_cuda_names {
#define AD_CUDA(member, exported, need, parameters) const char *member;
#include "abi/cuda_api.def"
};

extern struct ad_cuda_calls ad_cuda; /* written by load() only */
extern const struct ad_cuda_names ad_cuda_names;

/* The result of a call of the driver. */
#define CUDA(member, ...)                                                     \
    (ad_gpu_result)                                                           \
    {                                                                         \
        ad_cuda.member(__VA_ARGS__), ad_cuda_names.member                     \
    }

/* --- slots of struct ad_backend ------------------------------------------ */

ad_status ad_cuda_classify(const void *pointer, ad_context hint,
                           ad_memory_info *out, ad_error *err);
ad_status ad_cuda_memory_export(ad_context context, const void *pointer,
                                ad_ipc_memory *out, ad_error *err);
ad_status ad_cuda_memory_open(ad_context context, const ad_ipc_memory *memory,
                              void **out, ad_error *err);
void ad_cuda_memory_close(ad_context context, const ad_ipc_memory *memory,
                          void *data);

#endif /* AD_DEVICE_GPU_CUDA_H */
