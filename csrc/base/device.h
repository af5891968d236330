/* A device as a value: the specification's type and an ordinal.
 *
 * Unknown types are carried as plain numbers and never interpreted. For the
 * CPU the id is -1, "no identifier". For a device type that has ordinals, -1
 * means "not known". Only an interface that does not name the device (the
 * CUDA Array Interface) produces that value.
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

/* The size of the buffer for ad_device_format. */
#define AD_DEVICE_NAME_SIZE 48

/* "cuda", or NULL for a type that the specification does not name. */
const char *ad_device_type_name(int32_t type);

/* Write "cpu", "cuda:0", "cuda" (id not known) or "device(99):0". Returns
 * `buffer`, which must hold AD_DEVICE_NAME_SIZE bytes. */
const char *ad_device_format(ad_device device, char *buffer);

/* Read "cpu", "cuda" (ordinal 0) or "cuda:1"; case does not matter. */
bool ad_device_parse(const char *text, ad_device *out);

/* Whether both are the same device. CPU ids -1 and 0 are equal. */
static inline bool
ad_device_equal(ad_device a, ad_device b)
{
    return a.type == b.type &&
           (a.id == b.id || (a.type == AD_CPU.type && a.id <= 0 && b.id <= 0 &&
                             a.id >= -1 && b.id >= -1));
}

/* Properties of device types that are known without a runtime
 * (device_types.def). */
typedef enum ad_device_trait {
    AD_HOST_READS = 1 << 0,   /* the host may dereference pointers to it */
    AD_HANDLES = 1 << 1,      /* memory is named by an opaque handle (cl_mem,
                                 VkBuffer, MTLBuffer); an offset must never be
                                 added to it */
    AD_DLPACK_ID_0 = 1 << 2,  /* DLPack uses device id 0 (host, pinned and
                                 managed memory) */
    AD_NO_STREAMS = 1 << 3,   /* DLPack exchanges it ready, without a stream */
    AD_CUDA_STREAMS = 1 << 4, /* DLPack's stream numbers for CUDA */
    AD_ROCM_STREAMS = 1 << 5, /* DLPack's stream numbers for ROCm */
    AD_QUEUES = 1 << 6,       /* streams are objects (SyclQueue, ...) */
    AD_NO_NUMBERS = 1 << 7,   /* a number cannot name a stream, because an
                                 invalid one cannot be detected */
    AD_DEFAULT_STREAMS = 1 << 8, /* the handles of ad_default_stream_handle
                                    are valid; each context has its own
                                    streams */
    AD_NO_EVENTS = 1 << 9,       /* the specification names no event type */
    AD_ALLOCATIONS = 1 << 10,    /* consumers take a pointer for the start of
                                    an allocation that the runtime knows, also
                                    where there are no elements */
    AD_CONTEXTS = 1 << 11        /* memory belongs to a context of its device,
                                    and streams of other contexts cannot
                                    access it */
} ad_device_trait;

#define AD_N_DEVICE_TYPES 32

/* Indexed by type; for ad_device_traits. */
extern const uint16_t ad_traits_of_device_types[AD_N_DEVICE_TYPES];

/* 0 for a type that the specification does not name. */
static inline uint32_t
ad_device_traits(int32_t type)
{
    /* A negative type becomes a large number. */
    return (uint32_t)type < AD_N_DEVICE_TYPES ? ad_traits_of_device_types[type]
                                              : 0;
}

/* Whether the ordinal of a device that has one is not known. */
static inline bool
ad_device_is_unknown(ad_device device)
{
    uint32_t numbered = AD_CUDA_STREAMS | AD_ROCM_STREAMS | AD_NO_NUMBERS;
    uint32_t traits = ad_device_traits(device.type);
    return device.id < 0 && device.type != AD_CPU.type &&
           (traits & numbered) != 0 && (traits & AD_DLPACK_ID_0) == 0;
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

/* Whether streams of both types are of the same kind: numbers of the same
 * runtime, or queues of the same type. */
bool ad_streams_are_alike(int32_t device_type, int32_t other);

/* Whether memory of the type `found` is accessible from devices of the type
 * `from`: pinned and managed memory is, from the host and from its runtime. */
bool ad_device_type_reaches(int32_t from, int32_t found);

/* Whether host-accessible memory on `found` has the same address on the
 * device `wanted`. This holds for pinned and managed memory of the same
 * runtime (unified addressing). */
bool ad_device_is_another_name(ad_device found, ad_device wanted);

/* The device that runs a copy: the target, or the source where the target is
 * the host. The stream number of the copy belongs to this device. */
ad_device ad_device_of_copy(ad_device source, ad_device target);

/* The device id in DLPack: 0 for host, pinned and managed memory. */
static inline int64_t
ad_device_dlpack_id(ad_device device)
{
    return ad_device_traits(device.type) & AD_DLPACK_ID_0 ? 0 : device.id;
}

#endif /* AD_BASE_DEVICE_H */
