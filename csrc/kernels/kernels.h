/* kernels/: the work on elements, for devices and for the host.
 *
 * kernels.inc is written once, in what C and OpenCL C share. It is compiled
 * for the host, shipped as text to OpenCL, SYCL and HIP, and as PTX in
 * generated/ (tools/make_ptx.py). Host code assumes memory that the host may
 * read; it allocates nothing, takes no lock, and any thread may call it.
 */

/* The device kernels: one text (kernels.inc) for every runtime.
 *
 * The text is written in the subset that C and OpenCL C share. OpenCL and SYCL
 * build it from source, HIP builds it with a prelude of its own, CUDA takes PTX
 * made from it (kernels_ptx.h), and compiled for the host it is the CPU's.
 */
#ifndef AD_KERNELS_KERNELS_H
#define AD_KERNELS_KERNELS_H

#include <stdint.h>

#include "base/handles.h"

/* All kernels have the parameters of ad_launch:
 *   (const uchar *source, long source_offset, const uchar *values,
 *    long values_offset, uchar *target, long target_offset, long bit_offset,
 *    long length, long p0, long p1, long p2, long p3)
 * with the offsets in bytes. */
typedef enum ad_kernel {
    /* target[i] = bit (bit_offset + i) of source, as a byte of 0 or 1. */
    AD_KERNEL_UNPACK_BITS,
    /* Each work item w counts set bits in its share of the bits [bit_offset,
     * bit_offset + length) and writes an int64 to target[w], which is aligned
     * to 8 bytes. */
    AD_KERNEL_COUNT_BITS,
    /* Bit (bit_offset + i) of target = source[i] != 0, or with p0 not 0 its
     * opposite. The other bits of the first and of the last byte become 0. */
    AD_KERNEL_PACK_BITS,
    /* Bits [bit_offset, bit_offset + length) of source go to [p0, p0 + length)
     * of target; p1 says how (ad_bits_operation). The p2 bits behind them,
     * up to a whole byte, become 0, all others stay. */
    AD_KERNEL_COPY_BITS,
    /* Put the value p2, p3 into target where bit (bit_offset + row) of source
     * is 0. p0: bytes per element: 1, 2, 4, 8 or 16. p1: elements per row, or,
     * negative, rows per element. p2: the first 8 bytes of the value, which a
     * shorter one is repeated in; p3: the next. `length` counts rows. With p1
     * 1 all others are taken from `values`, which is the target itself or does
     * not overlap it; else they stay. */
    AD_KERNEL_FILL_NULLS,
    /* target[i] = the element of source at row i / p0, column i % p0, of p3
     * bytes; from row to row there are p1 bytes, from column to column p2. */
    AD_KERNEL_GATHER,
    /* Source has length + 1 offsets of p0 (4 or 8) bytes, none of which may be
     * negative, smaller than the one before, or larger than p1. Each work item
     * w writes an int64 to target[w], aligned to 8 bytes: the first of its
     * rows that this is not true of, else length + 1. */
    AD_KERNEL_CHECK_OFFSETS,
    /* target[i] = source[i] + p1, integers of p0 (1, 2, 4 or 8) bytes that
     * wrap. Source and target may be the same. With p3 not 0 they are signed
     * and of 2 bytes at least, and those above p2 count as p2. */
    AD_KERNEL_ADD,
    /* target[i] = source[i], views of 16 bytes, where those of more than 12
     * bytes have p1 added to the index of their buffer. If that is not in [0,
     * p0), p3 + i is written to the int64 at byte p2 of the target, whatever
     * its offset, of several such i any one; but where bit (bit_offset + i) of
     * `values` is 0, the view becomes 0 instead. With bit_offset -1 there are
     * no such bits. */
    AD_KERNEL_RAISE_VIEWS,
    /* target[i] = values[i], each an int32, an offset into the child that
     * source[i], a type id of a byte, stands for. At byte p1 of the target,
     * whatever its offset, there is for each of the ids [0, p0) a uint32 that
     * the offset has to be below (0: there is no such id), and one that is
     * added to it. Faults are written down as above. */
    AD_KERNEL_RAISE_OFFSETS,
    /* Source has run ends of p0 (2, 4 or 8) bytes. Three int64 of the target,
     * aligned to 8 bytes, are written where something is found: 1 + any run
     * that does not end behind the one before (the first: behind 0), 1 + the
     * first that ends behind row p1, and 1 + the first that ends at row p2 or
     * behind. */
    AD_KERNEL_FIND_RUNS,
    AD_N_KERNELS
} ad_kernel;

typedef enum ad_bits_operation {
    AD_BITS_COPY,
    AD_BITS_AND,  /* with what is there */
    AD_BITS_ONES, /* source is not looked at */
    AD_BITS_ZEROS /* nor here */
} ad_bits_operation;

#define AD_N_NUMBERS 4

typedef struct ad_launch {
    ad_kernel kernel;
    ad_span source;
    ad_span values; /* a second source, where the kernel has one */
    ad_span target;
    int64_t bit_offset;
    int64_t length;                /* > 0 */
    int64_t numbers[AD_N_NUMBERS]; /* p0 to p3 */
    int64_t n_items; /* work items, between whom the work is shared out:
                        exactly so many run, with no test in the kernel. At
                        most AD_KERNEL_GROUP, or a multiple of it; any number
                        where each is a group of its own, see
                        AD_KERNELS_ON_PROCESSOR */
} ad_launch;

/* Bytes behind the offset of each span that the kernel reads and writes, at
 * most; a gather with negative strides reads bytes before it, too. */
size_t ad_launch_source_size(const ad_launch *launch);
size_t ad_launch_values_size(const ad_launch *launch);
size_t ad_launch_target_size(const ad_launch *launch);

/* Work items of one group (CUDA: block) at most. */
#define AD_KERNEL_GROUP 256

/* Name of a kernel in every text and module: "ad_unpack_bits". */
const char *ad_kernel_name(ad_kernel kernel);

/* The texts; static. */
const char *ad_kernels_opencl(void); /* OpenCL C 1.2, SYCL's too */
const char *ad_kernels_hip(void);    /* for hiprtc, extern "C" */
const char *ad_kernels_ptx(void);    /* sm_50 */

/* On a processor OpenCL's text is built with this option: a work item is given
 * a run of neighbours then, and is a group of its own. */
#define AD_KERNELS_ON_PROCESSOR "-DAD_ON_PROCESSOR"

/* Run one here and now; its spans are memory that this thread may touch. */
void ad_kernel_run_on_host(const ad_launch *launch);

#endif /* AD_KERNELS_KERNELS_H */
