/* The device kernels: one text (kernels.inc) for every runtime.
 *
 * The text is written in the subset that C and OpenCL C share. OpenCL and SYCL
 * build it from source, HIP builds it with a prelude of its own, CUDA takes PTX
 * made from it (kernels_ptx.h), and compiled for the host it is the CPU's.
 */
#ifndef AD_KERNELS_KERNELS_H
#define AD_KERNELS_KERNELS_H

#include <stdint.h>

#include "core/place.h"

/* All kernels have the parameters of ad_launch:
 *   (const uchar *source, long source_offset, uchar *target,
 *    long target_offset, long bit_offset, long length)
 * with the offsets in bytes. */
typedef enum ad_kernel {
    /* target[i] = bit (bit_offset + i) of source, as a byte of 0 or 1. */
    AD_KERNEL_UNPACK_BITS,
    /* Each work item w counts set bits in its share of the bits [bit_offset,
     * bit_offset + length) and writes an int64 to target[w], which is aligned
     * to 8 bytes. */
    AD_KERNEL_COUNT_BITS,
    AD_N_KERNELS
} ad_kernel;

typedef struct ad_launch {
    ad_kernel kernel;
    ad_span source;
    ad_span target;
    int64_t bit_offset;
    int64_t length;  /* > 0 */
    int64_t n_items; /* work items; the kernel loops with their number as
                        stride. At most AD_KERNEL_GROUP, or a multiple of it:
                        exactly so many run, with no test in the kernel */
} ad_launch;

/* Work items of one group (CUDA: block) at most. */
#define AD_KERNEL_GROUP 256

/* Name of a kernel in every text and module: "ad_unpack_bits". */
const char *ad_kernel_name(ad_kernel kernel);

/* The texts; static. */
const char *ad_kernels_opencl(void); /* OpenCL C 1.2, SYCL's too */
const char *ad_kernels_hip(void);    /* for hiprtc, extern "C" */
const char *ad_kernels_ptx(void);    /* sm_50 */

/* Run one here and now; both spans are memory that this thread may touch. */
void ad_kernel_run_on_host(const ad_launch *launch);

#endif /* AD_KERNELS_KERNELS_H */
