#include "kernels/kernels.h"

#include <endian.h>
#include <string.h>

#include "kernels/kernels_ptx.h"

/* --- the text for others --------------------------------------------------- */

#define AD_TEXT(...) #__VA_ARGS__ "\n"

#define PARAMETERS                                                            \
    "#define AD_PARAMETERS AD_GLOBAL const ad_byte *source, "                 \
    "ad_i64 source_offset, AD_GLOBAL ad_byte *target, "                       \
    "ad_i64 target_offset, ad_i64 bit_offset, ad_i64 length\n"

/* What devices do alike: stores that are not aligned are done in bytes, and
 * popcount is an instruction. */
#define DEVICE_HELPERS                                                        \
    "AD_FUNCTION void\n"                                                      \
    "ad_store_8(AD_GLOBAL ad_byte *to, ad_u64 value)\n"                       \
    "{\n"                                                                     \
    "    if (((ad_u64)to & 7) == 0) {\n"                                      \
    "        *(AD_GLOBAL ad_u64 *)to = value;\n"                              \
    "        return;\n"                                                       \
    "    }\n"                                                                 \
    "    for (int i = 0; i < 8; i++) {\n"                                     \
    "        to[i] = (ad_byte)(value >> (8 * i));\n"                          \
    "    }\n"                                                                 \
    "}\n"                                                                     \
    "AD_FUNCTION ad_i64\n"                                                    \
    "ad_popcount_words(AD_GLOBAL const ad_u64 *words, ad_i64 first,\n"        \
    "                  ad_i64 n, ad_i64 step)\n"                              \
    "{\n"                                                                     \
    "    ad_i64 total = 0;\n"                                                 \
    "    for (ad_i64 i = first; i < n; i += step) {\n"                        \
    "        total += (ad_i64)AD_POPCOUNT(words[i]);\n"                       \
    "    }\n"                                                                 \
    "    return total;\n"                                                     \
    "}\n"

static const char opencl_text[] =
    "typedef uchar ad_byte;\n"
    "typedef long ad_i64;\n"
    "typedef ulong ad_u64;\n"
    "#define AD_KERNEL __kernel\n"
    "#define AD_FUNCTION static\n"
    "#define AD_GLOBAL __global\n"
    "#define AD_ITEM ((ad_i64)get_global_id(0))\n"
    "#define AD_ITEMS ((ad_i64)get_global_size(0))\n"
    "#define AD_POPCOUNT(word) popcount(word)\n" PARAMETERS DEVICE_HELPERS
#include "kernels/kernels.inc"
    ;

static const char hip_text[] =
    "typedef unsigned char ad_byte;\n"
    "typedef long long ad_i64;\n"
    "typedef unsigned long long ad_u64;\n"
    "#define AD_KERNEL extern \"C\" __global__\n"
    "#define AD_FUNCTION static __device__\n"
    "#define AD_GLOBAL\n"
    "#define AD_ITEM ((ad_i64)blockIdx.x * blockDim.x + threadIdx.x)\n"
    "#define AD_ITEMS ((ad_i64)gridDim.x * blockDim.x)\n"
    "#define AD_POPCOUNT(word) __popcll(word)\n" PARAMETERS DEVICE_HELPERS
#include "kernels/kernels.inc"
    ;

#undef AD_TEXT

const char *
ad_kernels_opencl(void)
{
    return opencl_text;
}

const char *
ad_kernels_hip(void)
{
    return hip_text;
}

const char *
ad_kernels_ptx(void)
{
    return kernels_ptx;
}

/* --- the text for the host ------------------------------------------------- */

#define AD_TEXT(...) __VA_ARGS__
#define AD_KERNEL static
#define AD_FUNCTION static inline
#define AD_GLOBAL
#define AD_ITEM item
#define AD_ITEMS n_items
#define AD_PARAMETERS                                                         \
    const ad_byte *source, ad_i64 source_offset, ad_byte *target,             \
        ad_i64 target_offset, ad_i64 bit_offset, ad_i64 length, ad_i64 item,  \
        ad_i64 n_items

typedef unsigned char ad_byte;
typedef int64_t ad_i64;
typedef uint64_t ad_u64;

static inline void
ad_store_8(ad_byte *to, ad_u64 value)
{
    value = htole64(value);
    memcpy(to, &value, 8);
}

/* Not every processor that this may run on has an instruction for it, so the
 * words are first added up, bit by bit, four to a step; as vectors, for which
 * the compiler finds registers of any width. */
typedef ad_u64 words_2 __attribute__((vector_size(16), aligned(8), may_alias));

static inline words_2
popcount_2(words_2 x)
{
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    x += x >> 8;
    x += x >> 16;
    x += x >> 32;
    return x & 0x7f;
}

/* *high and *low become the sum of three bits in every position. */
static inline void
add_3(words_2 *high, words_2 *low, words_2 a, words_2 b)
{
    words_2 sum = *low ^ a;
    *high = (*low & a) | (sum & b);
    *low = sum ^ b;
}

static ad_i64
popcount_run(const ad_u64 *words, ad_i64 n)
{
    const words_2 *pairs = (const words_2 *)words;
    words_2 total = {0}, ones = {0}, twos = {0}, fours = {0};
    ad_i64 i = 0;
    for (; i + 16 <= n; i += 16, pairs += 8) {
        words_2 twos_a, twos_b, fours_a, fours_b, eights;
        add_3(&twos_a, &ones, pairs[0], pairs[1]);
        add_3(&twos_b, &ones, pairs[2], pairs[3]);
        add_3(&fours_a, &twos, twos_a, twos_b);
        add_3(&twos_a, &ones, pairs[4], pairs[5]);
        add_3(&twos_b, &ones, pairs[6], pairs[7]);
        add_3(&fours_b, &twos, twos_a, twos_b);
        add_3(&eights, &fours, fours_a, fours_b);
        total += popcount_2(eights);
    }
    total = 8 * total + 4 * popcount_2(fours) + 2 * popcount_2(twos) +
            popcount_2(ones);
    for (; i < n; i++) {
        total[0] += (ad_u64)__builtin_popcountll(words[i]);
    }
    return (ad_i64)(total[0] + total[1]);
}

static ad_i64
ad_popcount_words(const ad_u64 *words, ad_i64 first, ad_i64 n, ad_i64 step)
{
    ad_i64 total = 0;
    if (step == 1) {
        return popcount_run(words + first, n - first);
    }
    for (ad_i64 i = first; i < n; i += step) {
        total += __builtin_popcountll(words[i]);
    }
    return total;
}

#include "kernels/kernels.inc"

/* --- all of them ----------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(AD_PARAMETERS);
} kernels[AD_N_KERNELS] = {
    [AD_KERNEL_UNPACK_BITS] = {"ad_unpack_bits", ad_unpack_bits},
    [AD_KERNEL_COUNT_BITS] = {"ad_count_bits", ad_count_bits},
};

const char *
ad_kernel_name(ad_kernel kernel)
{
    return kernels[kernel].name;
}

void
ad_kernel_run_on_host(const ad_launch *launch)
{
    for (int64_t item = 0; item < launch->n_items; item++) {
        kernels[launch->kernel].run(
            launch->source.data, (int64_t)launch->source.offset,
            launch->target.data, (int64_t)launch->target.offset,
            launch->bit_offset, launch->length, item, launch->n_items);
    }
}
