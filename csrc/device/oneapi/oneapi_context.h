/* oneAPI: the library, its devices, contexts and queues. Only oneapi.c and
 * device/oneapi/oneapi_context.c use this header.
 */
#ifndef AD_DEVICE_ONEAPI_ONEAPI_CONTEXT_H
#define AD_DEVICE_ONEAPI_ONEAPI_CONTEXT_H

#include <stdatomic.h>

#include "abi/arrow_c.h"
#include "abi/sycl_api.h"
#include "device/backend.h"
#include "device/queue_registry.h"

struct ad_sycl_api {
#define AD_SYCL(name, need, result, parameters) result(*name) parameters;
#include "abi/sycl_api.def"
};

/* Filled by ad_oneapi_load. */
extern struct ad_sycl_api ad_sycl;

/* A context, and the device in it that receives the work. ad_context.handle
 * points to this struct. There is one per context and device; it lives as long
 * as the process. */
struct ad_oneapi_context {
    struct ad_oneapi_context *next;
    ad_sycl_context handle;
    ad_sycl_device device;
    int64_t id; /* of the root device */
    bool has_usm;
    bool is_cpu;
    atomic_bool kernels_failed;
    _Atomic(ad_sycl_kernel) kernels[AD_N_KERNELS];
};

/* --- the library and its devices ----------------------------------------- */

AD_MUST_CHECK ad_status ad_oneapi_load(ad_error *err);

/* Slots of the backend. The root devices are in dpctl's order, so an id is the
 * one that dpctl and dpnp give as __dlpack_device__()[1]. */
ad_status ad_oneapi_describe(char *buffer, size_t size, ad_error *err);
ad_status ad_oneapi_count(int64_t *out, ad_error *err);
ad_status ad_oneapi_device_name(int64_t id, char *buffer, size_t size,
                                ad_error *err);
ad_status ad_oneapi_device_usable(int64_t id, ad_error *err);
bool ad_oneapi_is_cpu(int64_t id);

/* Index of a device, or of the root device of a sub-device. -1: none. */
int64_t ad_oneapi_index(ad_sycl_device device);

/* Fail: the device has no unified shared memory. */
ad_status ad_oneapi_fail_no_usm(ad_device device, ad_error *err);

/* Fail for a call that returned NULL. dpctl does not give the reason. */
ad_status ad_oneapi_fail_call(ad_error *err, int64_t id, const char *call);

/* --- contexts ------------------------------------------------------------ */

/* The context for work that names only a device: dpctl's default context,
 * which dpnp's arrays are in. */
AD_MUST_CHECK ad_status ad_oneapi_primary_context(
    ad_device device, struct ad_oneapi_context **out, ad_error *err);

/* All entries, newest first, linked by `next`. The primary contexts are among
 * them, except of devices where SYCL cannot create one. */
struct ad_oneapi_context *ad_oneapi_contexts(void);

static inline ad_context
ad_oneapi_as_context(struct ad_oneapi_context *sycl_context)
{
    return (ad_context){{ARROW_DEVICE_ONEAPI, sycl_context->id}, sycl_context};
}

/* The entry of a context. Without a handle: the primary context of its
 * device. */
AD_MUST_CHECK ad_status ad_oneapi_context(ad_context context,
                                          struct ad_oneapi_context **out,
                                          ad_error *err);

/* --- queues -------------------------------------------------------------- */

/* The context that a queue runs in. Registers the queue. */
AD_MUST_CHECK ad_status ad_oneapi_queue_context(ad_sycl_queue queue,
                                                struct ad_oneapi_context **out,
                                                ad_error *err);

/* Wait for the work on a queue of the device `id`. Blocks. */
AD_MUST_CHECK ad_status ad_oneapi_finish_queue(void *queue, int64_t id,
                                               ad_error *err);

/* Slot of the backend. Waits for arrowdev's own queues on the device and for
 * its registered foreign ones. Work on other queues is not waited for, so the
 * backend lacks AD_CAP_CONTEXT_IDLE. */
ad_status ad_oneapi_synchronize(ad_context context, ad_error *err);

/* Slot of the backend. The queue is in order. */
ad_status ad_oneapi_stream_create(ad_context context, ad_stream *out,
                                  ad_error *err);

#endif /* AD_DEVICE_ONEAPI_ONEAPI_CONTEXT_H */
