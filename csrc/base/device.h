/* A device as a value: the specification's type and an ordinal.
 *
 * Unknown types are carried as plain numbers and never interpreted. An id of
 * -1 means "no identifier" (always so for the CPU), and, for a device type
 * that has ordinals, "not known": only an interface that does not say which
 * device it means (the CUDA Array Interface) produces that.
 */
#ifndef AD_BASE_DEVICE_H
#define AD_BASE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ad_device {
    int32_t type; /* ARROW_DEVICE_*, or any other number */
    int64_t id;
} ad_device;

#define AD_CPU ((ad_device){1, -1})

/* Enough for every name that ad_device_format writes. */
#define AD_DEVICE_NAME_SIZE 48

/* "cuda", or NULL for a type that the specification does not name. */
const char *ad_device_type_name(int32_t type);

/* Write "cpu", "cuda:0", "cuda" (id not known) or "device(99):0". Returns
 * `buffer`, which must hold AD_DEVICE_NAME_SIZE bytes. */
const char *ad_device_format(ad_device device, char *buffer);

/* Read "cpu", "cuda" (ordinal 0) or "cuda:1"; case does not matter. */
bool ad_device_parse(const char *text, ad_device *out);

/* The same device: ids -1 and 0 are one and the same CPU. */
bool ad_device_equal(ad_device a, ad_device b);

/* What differs between device types without asking a runtime
 * (device_types.def). */
typedef enum ad_device_trait {
    AD_HOST_READS = 1 << 0,   /* the host may dereference pointers to it */
    AD_HANDLES = 1 << 1,      /* memory is named by an opaque handle (cl_mem,
                                 VkBuffer, MTLBuffer), to which an offset must
                                 never be added */
    AD_DLPACK_ID_0 = 1 << 2,  /* DLPack: host, pinned, managed: device id 0 */
    AD_NO_STREAMS = 1 << 3,   /* DLPack exchanges it without a stream, ready */
    AD_CUDA_STREAMS = 1 << 4, /* stream numbers as DLPack has them on CUDA */
    AD_ROCM_STREAMS = 1 << 5, /* ... and on ROCm */
    AD_QUEUES = 1 << 6,       /* streams are objects (SyclQueue, ...) */
    AD_NO_NUMBERS = 1 << 7,   /* ... and no number can stand for one, since a
                                 wrong one could not be told from a right one */
    AD_DEFAULT_STREAMS = 1 << 8 /* the handles of ad_default_stream_handle are
                                   streams, others in each context */
} ad_device_trait;

#define AD_N_DEVICE_TYPES 32

/* By type, for what follows. */
extern const uint16_t ad_traits_of_device_types[AD_N_DEVICE_TYPES];

/* 0 for a type that the specification does not name. */
static inline uint32_t
ad_device_traits(int32_t type)
{
    /* A negative one becomes large. */
    return (uint32_t)type < AD_N_DEVICE_TYPES ? ad_traits_of_device_types[type]
                                              : 0;
}

/* The host may dereference pointers to this memory, once it is ready. */
static inline bool
ad_host_accessible(ad_device device)
{
    return (ad_device_traits(device.type) & AD_HOST_READS) != 0;
}

static inline bool
ad_device_uses_handles(int32_t type)
{
    return (ad_device_traits(type) & AD_HANDLES) != 0;
}

/* Streams of both types are of one kind: numbers of the same runtime, or
 * queues of the same type. */
bool ad_streams_are_alike(int32_t device_type, int32_t other);

/* Memory of `found`, which the host reaches, is reached from the device
 * `wanted` under the same address: pinned and managed memory of its runtime
 * (unified addressing). */
bool ad_device_is_another_name(ad_device found, ad_device wanted);

/* Where the work of a copy runs, and so what the number of a stream means: on
 * the target, and for the host on the source. */
ad_device ad_device_of_copy(ad_device source, ad_device target);

/* The id that DLPack wants: 0 for host, pinned and managed memory. */
int64_t ad_device_dlpack_id(ad_device device);

#endif /* AD_BASE_DEVICE_H */
