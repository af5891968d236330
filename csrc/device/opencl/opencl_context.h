/* Shared by OpenCL's files: the library, its devices, the known contexts, and
 * the classification of foreign handles and pointers.
 */
#ifndef AD_DEVICE_OPENCL_OPENCL_CONTEXT_H
#define AD_DEVICE_OPENCL_OPENCL_CONTEXT_H

#include "abi/arrow_c.h"
#include "abi/opencl_api.h"
#include "device/backend.h"

struct ad_cl_api {
#define AD_CL(name, result, parameters) result(*name) parameters;
#include "abi/opencl_api.def"
};

/* Filled by ad_opencl_load. */
extern struct ad_cl_api ad_cl;

ad_status ad_opencl_load(ad_error *err);

/* --- errors -------------------------------------------------------------- */

/* ad_fail_device with the name of OpenCL's error number. */
ad_status ad_opencl_fail(ad_error *err, int64_t id, const char *call,
                         int32_t code);

/* Return from a function that owns nothing if an OpenCL call failed. */
#define AD_CL_RETURN_IF_ERR(err, id, call, expression)                        \
    do {                                                                      \
        int32_t ad_code_ = (expression);                                      \
        if (ad_code_ != AD_CL_SUCCESS) {                                      \
            return ad_opencl_fail(err, id, call, ad_code_);                   \
        }                                                                     \
    } while (0)

/* Call the function cl<name>, and return from a function that owns nothing if
 * it failed. */
#define AD_CL_TRY(err, id, name, ...)                                         \
    AD_CL_RETURN_IF_ERR(err, id, "cl" #name, ad_cl.name(__VA_ARGS__))

/* --- devices ------------------------------------------------------------- */

/* Slots of the backend. The devices are all those of all platforms, as
 * clGetPlatformIDs and clGetDeviceIDs list them. */
ad_status ad_opencl_describe(char *buffer, size_t size, ad_error *err);
ad_status ad_opencl_count(int64_t *out, ad_error *err);
ad_status ad_opencl_device_name(int64_t id, char *buffer, size_t size,
                                ad_error *err);
bool ad_opencl_is_cpu(int64_t id);

/* --- contexts ------------------------------------------------------------ */

/* One device in one context. Entries are kept for the life of the process,
 * like the queues and kernels that arrowdev has in them. */
struct ad_opencl_context {
    struct ad_opencl_context *next;
    ad_cl_context handle;
    ad_cl_device device; /* may be a sub-device of the device */
    int64_t id;
    bool has_svm;
    bool is_cpu;
    _Atomic(ad_cl_program) program; /* the kernels, NULL until built */
};

static inline ad_context
ad_opencl_as_context(const struct ad_opencl_context *cl_context)
{
    return (ad_context){{ARROW_DEVICE_OPENCL, cl_context->id},
                        cl_context->handle};
}

/* The entry of arrowdev's own context on a device. One context holds all
 * devices of a platform, so copies between them are direct. */
AD_MUST_CHECK ad_status ad_opencl_primary_context(
    ad_device device, struct ad_opencl_context **out, ad_error *err);

/* The entry of `device` in `handle`, created on first need. */
AD_MUST_CHECK ad_status ad_opencl_context(ad_cl_context handle,
                                          ad_cl_device device,
                                          struct ad_opencl_context **out,
                                          ad_error *err);

/* The entry of a context. Without a handle: the primary one. */
AD_MUST_CHECK ad_status ad_opencl_context_at(ad_context context,
                                             struct ad_opencl_context **out,
                                             ad_error *err);

/* The entry of the device `id` in `handle`. If the context lacks that device,
 * or `id` is -1: the entry of its first device. */
AD_MUST_CHECK ad_status ad_opencl_context_in(ad_cl_context handle, int64_t id,
                                             struct ad_opencl_context **out,
                                             ad_error *err);

/* All entries, linked by `next`. */
struct ad_opencl_context *ad_opencl_contexts(void);

/* --- handles and pointers ------------------------------------------------ */

/* Is this number an OpenCL handle? Safe for any number: it is dereferenced
 * only where that cannot fault. Every object begins with the address of its
 * platform's dispatch table, by which libOpenCL.so.1 finds the functions. */
bool ad_opencl_is_object(const void *pointer);

/* Is it the address of an SVM allocation in this context? The query is one
 * that OpenCL answers for any pointer. */
bool ad_opencl_is_svm(const struct ad_opencl_context *cl_context,
                      const void *pointer);

/* --- the queue registry -------------------------------------------------- */

/* Register a queue, see device/queue_registry.h. */
void ad_opencl_register_queue(ad_cl_queue queue, int64_t id, bool is_own);

/* Slot of the backend. Waits for arrowdev's own queues on the device and for
 * its registered foreign ones. Work on other queues is not waited for, so the
 * backend lacks AD_CAP_CONTEXT_IDLE. */
ad_status ad_opencl_synchronize(ad_context context, ad_error *err);

/* --- queues (opencl.c) and memory (opencl_memory.c) ---------------------- */

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

#endif /* AD_DEVICE_OPENCL_OPENCL_CONTEXT_H */
