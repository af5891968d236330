/* kernels/: operations on elements, for devices and for the host.
 *
 * kernels.inc is written once, in the common subset of C and OpenCL C. It is
 * compiled for the host, shipped as source to OpenCL, SYCL and HIP, and as PTX
 * in generated/ (tools/make_ptx.py). Host code requires memory that the host
 * can read; it allocates nothing, takes no lock, and any thread may call it.
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
    /* Each work item w counts the set bits in its share of the bits
     * [bit_offset, bit_offset + length) and writes an int64 to target[w],
     * which is aligned to 8 bytes. */
    AD_KERNEL_COUNT_BITS,
    /* Bit (bit_offset + i) of target = (source[i] != 0), inverted if p0 is not
     * 0. The other bits of the first and of the last byte become 0. */
    AD_KERNEL_PACK_BITS,
    /* Bits [bit_offset, bit_offset + length) of source are written to bits
     * [p0, p0 + length) of target; p1 is the operation (ad_bits_operation).
     * The next p2 bits, up to a whole byte, become 0. All other bits are
     * unchanged. */
    AD_KERNEL_COPY_BITS,
    /* Writes a value to target where bit (bit_offset + row) of source is 0.
     * p0: bytes per element: 1, 2, 4, 8 or 16. p1: elements per row or, if
     * negative, rows per element. p2: the first 8 bytes of the value, in which
     * a shorter value is repeated; p3: the next 8. `length` counts rows. If p1
     * is 1, the other elements are copied from `values`, which is the target
     * itself or does not overlap it; else they are unchanged. */
    AD_KERNEL_FILL_NULLS,
    /* target[i] = the element of source at row i / p0 and column i % p0, of p3
     * bytes. Rows are p1 bytes apart, columns p2 bytes. */
    AD_KERNEL_GATHER,
    /* Source has length + 1 offsets of p0 (4 or 8) bytes. None may be
     * negative, smaller than the previous one, or larger than p1. Each work
     * item w writes an int64 to target[w], aligned to 8 bytes: the first of
     * its rows that violates this, else length + 1. */
    AD_KERNEL_CHECK_OFFSETS,
    /* target[i] = source[i] + p1, integers of p0 (1, 2, 4 or 8) bytes that
     * wrap around. Source and target may be the same. If p3 is not 0, the
     * integers are signed, of 2 bytes at least, and values above p2 are
     * clamped to p2. */
    AD_KERNEL_ADD,
    /* Source has run ends of p0 (2, 4 or 8) bytes. Three int64 of the target,
     * aligned to 8 bytes, are written if there is such a run: 1 + the index of
     * any run that does not end after the previous one (the first run: after
     * 0); 1 + the first that ends after row p1; and 1 + the first that ends at
     * row p2 or later. */
    AD_KERNEL_FIND_RUNS,
    /* Source has `length` int64. Each work item w adds up its share (p0 is 0),
     * or finds its smallest (p0 is 1), and writes an int64 to target[w]. Both
     * are aligned to 8 bytes. */
    AD_KERNEL_REDUCE,
    AD_N_KERNELS
} ad_kernel;

typedef enum ad_bits_operation {
    AD_BITS_COPY,
    AD_BITS_AND,  /* with the bits of the target */
    AD_BITS_ONES, /* source is not read */
    AD_BITS_ZEROS /* source is not read */
} ad_bits_operation;

#define AD_N_NUMBERS 4

typedef struct ad_launch {
    ad_kernel kernel;
    ad_span source;
    ad_span values; /* a second source, for kernels that have one */
    ad_span target;
    int64_t bit_offset;
    int64_t length;                /* > 0 */
    int64_t numbers[AD_N_NUMBERS]; /* p0 to p3 */
    int64_t n_items; /* number of work items that share the work. Exactly this
                        many run; the kernels do not test for it. At most
                        AD_KERNEL_GROUP, or a multiple of it. Any number if
                        each work item is a group of its own, see
                        AD_KERNELS_ON_PROCESSOR */
} ad_launch;

/* Greatest number of bytes after the offset of each span that the kernel reads
 * or writes. A gather with negative strides also reads bytes before the
 * offset. */
size_t ad_launch_source_size(const ad_launch *launch);
size_t ad_launch_values_size(const ad_launch *launch);
size_t ad_launch_target_size(const ad_launch *launch);

/* Greatest number of work items in a group (CUDA: block). */
#define AD_KERNEL_GROUP 256

/* Up to that many results of work items are read by the host. More are reduced
 * on the device before. */
#define AD_FEW_RESULTS (1 << 12)

/* Name of a kernel in every source and module: "ad_unpack_bits". */
const char *ad_kernel_name(ad_kernel kernel);

/* A suitable number of work items on a device that is not a processor. */
int64_t ad_kernel_n_items(const ad_launch *launch);

/* The sources. */
extern const char ad_kernels_opencl[]; /* OpenCL C 1.2, also for SYCL */
extern const char ad_kernels_hip[];    /* for hiprtc, extern "C" */
/* sm_50, a module of its own for each kernel: the driver compiles a module as
 * a whole when it is loaded. */
extern const char *const ad_kernels_ptx[AD_N_KERNELS];

/* Build option of the OpenCL source on a processor. Each work item then has a
 * contiguous share, and is a group of its own. */
#define AD_KERNELS_ON_PROCESSOR "-DAD_ON_PROCESSOR"

/* Runs a kernel on this thread; its spans must be host memory. */
void ad_kernel_run_on_host(const ad_launch *launch);

/* Counts the zeros among the bits [offset, offset + length) of a bitmap in
 * host memory. */
int64_t ad_bitmap_count_zeros(const void *bitmap, int64_t offset,
                              int64_t length);

/* --- elements in host memory --------------------------------------------- */

/* Copies `n` elements of `size` bytes. Neighbours are `from_step` bytes apart
 * in the source and `to_step` bytes apart in the target. */
void ad_move_elements(char *target, int64_t to_step, const char *source,
                      int64_t from_step, int64_t n, size_t size);

/* Interleaves `n` contiguous columns of `n_rows` elements of `size` bytes. The
 * rows of n elements are `pitch` bytes apart. */
void ad_interleave(const char *const *columns, int64_t n, int64_t n_rows,
                   int64_t size, char *target, int64_t pitch);

#endif /* AD_KERNELS_KERNELS_H */
