/* ad_tensor: a strided N-dimensional block on a device, the common model of
 * DLPack, the array interfaces and the buffer protocol.
 *
 * It is a value. `shape` and `strides` point into storage of the holder: an
 * ad_tensor_value on the stack, or the Python object.
 */
#ifndef AD_MODEL_TENSOR_H
#define AD_MODEL_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/device.h"
#include "model/dtype.h"
#include "base/owner.h"
#include "base/status.h"
#include "order/memory.h"
#include "order/sync.h"

#define AD_MAX_NDIM 64

enum {
    /* Immutable by Arrow's convention only: exported as read-only where the
     * protocol has a flag. */
    AD_TENSOR_IMMUTABLE = 1 << 1,
    /* The data are a copy made for this exchange. */
    AD_TENSOR_COPIED = 1 << 2,
    /* Each lane of fewer than 8 bits takes one byte. */
    AD_TENSOR_SUBBYTE_PADDED = 1 << 3,
    /* A Buffer whose size is in memory that the host cannot read. It has an
     * address, but cannot be exchanged. */
    AD_TENSOR_SIZE_UNKNOWN = 1 << 4
};

/* Whether `n` elements of `nbytes`, one after another from `byte_offset` on,
 * are a part of the address space; *start is the first one. False if there are
 * none, and for sizes that are nearly too large. */
static inline bool
ad_is_run(const void *data, uint64_t byte_offset, int64_t n, int64_t nbytes,
          uintptr_t *start)
{
    uintptr_t end;
    return n > 0 && n <= INT64_MAX / 32 && data != NULL &&
           !__builtin_add_overflow((uintptr_t)data, byte_offset, start) &&
           !__builtin_add_overflow(*start, n * nbytes, &end);
}

typedef struct ad_tensor {
    ad_memory memory; /* first, as in ad_array */
    void *data; /* pointer or opaque handle; without elements NULL, or where
                   the device has AD_ALLOCATIONS any pointer */
    uint64_t byte_offset; /* only for handles; pointers include it */
    ad_dl_dtype dtype;
    int32_t ndim;
    uint32_t flags;
    int64_t *shape;
    int64_t *strides; /* in elements; not NULL if ndim > 0 */
} ad_tensor;

/* A tensor with storage for its dimensions. */
typedef struct ad_tensor_value {
    ad_tensor tensor;
    int64_t dims[2 * AD_MAX_NDIM];
} ad_tensor_value;

/* Copies the tensor to *out, with references and dimensions of its own. */
void ad_tensor_share(const ad_tensor *tensor, ad_tensor_value *out);

/* Drops the references on owner and sync. */
void ad_tensor_clear(ad_tensor *tensor);

/* Unchecked input from a producer. */
typedef struct ad_tensor_descriptor {
    void *data;
    uint64_t byte_offset;
    ad_dl_dtype dtype;
    int32_t ndim;
    uint32_t flags;
    ad_memory memory;       /* becomes the tensor's; no new references */
    const int64_t *shape;   /* NULL only when ndim is 0 */
    const int64_t *strides; /* NULL: contiguous row-major */
} ad_tensor_descriptor;

/* Checks a descriptor and makes a tensor of it in *out: ndim in
 * 0..AD_MAX_NDIM; lanes and bits not 0; no negative extent; no overflow of the
 * element count, the byte size, or any address that the strides reach; data
 * not NULL if there are elements; bool of 8 bits. Strides
 * of dimensions of extent 1 become canonical, and those of a tensor without
 * elements only if their products would overflow. `what` names the source in
 * messages ("DLTensor"). Fails with AD_ERR_EXCHANGE. */
AD_MUST_CHECK ad_status ad_tensor_check(const ad_tensor_descriptor *descriptor,
                                        const char *what, ad_tensor_value *out,
                                        ad_error *err);

/* Whether a protocol that has a flag for it says that the memory must not be
 * written. A consumer that cannot see the flag of a producer (memory.readonly)
 * is refused. */
static inline bool
ad_tensor_is_readonly(const ad_tensor *tensor)
{
    return tensor->memory.readonly ||
           (tensor->flags & AD_TENSOR_IMMUTABLE) != 0;
}

/* Fails if AD_TENSOR_SIZE_UNKNOWN is set. */
AD_MUST_CHECK ad_status ad_tensor_require_size(const ad_tensor *tensor,
                                               ad_error *err);

/* Number of elements: the product of the shape; 1 for 0-d. */
int64_t ad_tensor_size(const ad_tensor *tensor);

/* Bytes of the elements, packed; sub-byte types are rounded up once. */
int64_t ad_tensor_nbytes(const ad_tensor *tensor);

/* The range of bytes that the elements occupy, relative to data + byte_offset:
 * the lowest, and one past the highest. Both are 0 for an empty tensor. */
void ad_tensor_extent(const ad_tensor *tensor, int64_t *low, int64_t *high);

/* True if the tensor is contiguous in C (row-major) or F (column-major)
 * order. */
bool ad_tensor_is_contiguous(const ad_tensor *tensor, char order);

/* Address of the first element: data, or data + byte_offset. Not for handle
 * devices. */
static inline void *
ad_tensor_address(const ad_tensor *tensor)
{
    return tensor->data == NULL ? NULL
                                : (char *)tensor->data + tensor->byte_offset;
}

/* Copies the elements of a host tensor to `target`, contiguous in `order`.
 * Only for elements of whole bytes. */
AD_MUST_CHECK ad_status ad_tensor_copy_contiguous(const ad_tensor *tensor,
                                                  char order, void *target,
                                                  ad_error *err);

/* Copies a host tensor to new memory, contiguous in `order` ('C' or 'F'). The
 * copy is writable and flagged AD_TENSOR_COPIED. */
AD_MUST_CHECK ad_status ad_tensor_copy(const ad_tensor *tensor, char order,
                                       ad_tensor_value *out, ad_error *err);

/* The same for a host tensor whose elements are not in this machine's byte
 * order; the bytes are swapped. Only for types with a typestr. */
AD_MUST_CHECK ad_status ad_tensor_copy_swapped(const ad_tensor *tensor,
                                               char order,
                                               ad_tensor_value *out,
                                               ad_error *err);

/* --- for the files that copy tensors ------------------------------------- */

/* One loop. Each iteration advances the source by `stride` bytes and the
 * contiguous target by `pitch`. */
typedef struct ad_loop {
    int64_t extent;
    int64_t stride;
    int64_t pitch;
} ad_loop;

/* Outermost loop first. Dimensions that the source traverses at one stride are
 * merged into one loop. There are always at least two loops, if necessary with
 * extent 1. */
typedef struct ad_loops {
    int32_t n;
    ad_loop at[AD_MAX_NDIM + 2];
    size_t size; /* bytes per element */
} ad_loops;

/* Bits of one element in memory; `flags` are the tensor's. */
uint32_t ad_element_bits(ad_dl_dtype dtype, uint32_t flags);

/* Plans the loops for a tensor with elements and a target in `order`, 'C' or
 * 'F'. Fails with AD_ERR_EXCHANGE for elements that share bytes. */
AD_MUST_CHECK ad_status ad_loops_plan(const ad_tensor *tensor, char order,
                                      ad_loops *out, ad_error *err);

/* Makes *out a contiguous copy of the tensor's shape and type over `data`.
 * Takes over `memory`. */
void ad_tensor_set_copy(const ad_tensor *tensor, char order, void *data,
                        ad_memory memory, ad_tensor_value *out);

#endif /* AD_MODEL_TENSOR_H */
