#include "kernels/kernels.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "base/owner.h"
#include "kernels/cpu_vectors.h"
#include "kernels/generated/kernels_ptx.h"

/* --- sources for OpenCL and HIP ------------------------------------------ */

#define AD_TEXT(...) #__VA_ARGS__ "\n"

#define PARAMETERS                                                            \
    "#define AD_PARAMETERS AD_GLOBAL const ad_byte *source, "                 \
    "ad_i64 source_offset, AD_GLOBAL const ad_byte *values, "                 \
    "ad_i64 values_offset, AD_GLOBAL ad_byte *target, "                       \
    "ad_i64 target_offset, ad_i64 bit_offset, ad_i64 length, "                \
    "ad_i64 p0, ad_i64 p1, ad_i64 p2, ad_i64 p3\n"

/* The end is computed once: with a call in the condition, compilers do not
 * vectorize the loop. */
#define EACH                                                                  \
    "#define AD_EACH(i, n) for (ad_i64 i = AD_BEGIN(n), "                     \
    "i##_end = AD_END(n); i < i##_end; i += AD_STEP)\n"

#define WORDS                                                                 \
    "#define AD_POPCOUNT_WORDS ad_popcount_strided\n"                         \
    "typedef struct __attribute__((aligned(16))) {\n"                         \
    "    ad_u64 low;\n"                                                       \
    "    ad_u64 high;\n"                                                      \
    "} ad_pair;\n"                                                            \
    "#ifdef __clang__\n"                                                      \
    "#define AD_UNROLL _Pragma(\"unroll 8\")\n"                               \
    "#else\n"                                                                 \
    "#define AD_UNROLL\n"                                                     \
    "#endif\n"

#define SHARE_OF_MANY                                                         \
    "#define AD_BEGIN(n) AD_ITEM\n"                                           \
    "#define AD_END(n) (n)\n"                                                 \
    "#define AD_STEP AD_ITEMS\n" EACH

#define SHARE_OF_FEW                                                          \
    "#define SHARE(n) (((n) + AD_ITEMS - 1) / AD_ITEMS)\n"                    \
    "#define AD_BEGIN(n) (AD_ITEM * SHARE(n))\n"                              \
    "#define AD_END(n) min(AD_BEGIN(n) + SHARE(n), (ad_i64)(n))\n"            \
    "#define AD_STEP 1\n" EACH

/* Processors access words at any address. */
#define LOOSE_ACCESS(SIZE, TYPE)                                              \
    "typedef struct __attribute__((packed)) {\n"                              \
    "    " TYPE " value;\n"                                                   \
    "} loose_" SIZE ";\n"                                                     \
    "AD_FUNCTION ad_u64\n"                                                    \
    "ad_load_" SIZE "(AD_GLOBAL const ad_byte *from)\n"                       \
    "{\n"                                                                     \
    "    return ((AD_GLOBAL const loose_" SIZE " *)from)->value;\n"           \
    "}\n"                                                                     \
    "AD_FUNCTION void\n"                                                      \
    "ad_store_" SIZE "(AD_GLOBAL ad_byte *to, ad_u64 value)\n"                \
    "{\n"                                                                     \
    "    ((AD_GLOBAL loose_" SIZE " *)to)->value = (" TYPE ")value;\n"        \
    "}\n"

/* Other devices access unaligned words byte by byte. */
#define DEVICE_ACCESS(SIZE, TYPE)                                             \
    "AD_FUNCTION ad_u64\n"                                                    \
    "ad_load_" SIZE "(AD_GLOBAL const ad_byte *from)\n"                       \
    "{\n"                                                                     \
    "    ad_u64 value = 0;\n"                                                 \
    "    if (((ad_u64)from & (" SIZE " - 1)) == 0) {\n"                       \
    "        return *(AD_GLOBAL const " TYPE " *)from;\n"                     \
    "    }\n"                                                                 \
    "    if (" SIZE " == 8 && ((ad_u64)from & 3) == 0) {\n"                   \
    "        return *(AD_GLOBAL const ad_u32 *)from |\n"                      \
    "               (ad_u64)((AD_GLOBAL const ad_u32 *)from)[1] << 32;\n"     \
    "    }\n"                                                                 \
    "    for (int i = 0; i < " SIZE "; i++) {\n"                              \
    "        value |= (ad_u64)from[i] << (8 * i);\n"                          \
    "    }\n"                                                                 \
    "    return value;\n"                                                     \
    "}\n"                                                                     \
    "AD_FUNCTION void\n"                                                      \
    "ad_store_" SIZE "(AD_GLOBAL ad_byte *to, ad_u64 value)\n"                \
    "{\n"                                                                     \
    "    if (((ad_u64)to & (" SIZE " - 1)) == 0) {\n"                         \
    "        *(AD_GLOBAL " TYPE " *)to = (" TYPE ")value;\n"                  \
    "        return;\n"                                                       \
    "    }\n"                                                                 \
    "    for (int i = 0; i < " SIZE "; i++) {\n"                              \
    "        to[i] = (ad_byte)(value >> (8 * i));\n"                          \
    "    }\n"                                                                 \
    "}\n"

#define FOR_EACH_SIZE(ACCESS)                                                 \
    ACCESS("2", "ad_u16") ACCESS("4", "ad_u32") ACCESS("8", "ad_u64")

#define LOAD_SHIFTED(HIGH)                                                    \
    "AD_FUNCTION ad_u64\n"                                                    \
    "ad_load_shifted(AD_GLOBAL const ad_byte *from, int shift)\n"             \
    "{\n"                                                                     \
    "    return ad_load_8(from) >> shift | " HIGH ";\n"                       \
    "}\n"

/* The second word can be vectorized like the first; a single byte cannot. */
#define ON_PROCESSOR                                                          \
    "#define AD_ON_DEVICE 0\n" WORDS SHARE_OF_FEW FOR_EACH_SIZE(LOOSE_ACCESS) \
        LOAD_SHIFTED("ad_load_8(from + 1) << (8 - shift)")

#define ON_DEVICE                                                             \
    "#define AD_ON_DEVICE 1\n" WORDS SHARE_OF_MANY FOR_EACH_SIZE(             \
        DEVICE_ACCESS) LOAD_SHIFTED("(ad_u64)from[8] << (64 - shift)")

/* kernels.inc assumes that the lowest byte of a word is first in memory. */
const char ad_kernels_opencl[] =
    "#ifndef __ENDIAN_LITTLE__\n"
    "#error the kernels are for little-endian devices\n"
    "#endif\n"
    "typedef uchar ad_byte;\n"
    "typedef long ad_i64;\n"
    "typedef ulong ad_u64;\n"
    "typedef uint ad_u32;\n"
    "typedef ushort ad_u16;\n"
    "#define AD_KERNEL __kernel\n"
    "#define AD_FUNCTION static\n"
    "#define AD_GLOBAL __global\n"
    "#define AD_ITEM ((ad_i64)get_global_id(0))\n"
    "#define AD_ITEMS ((ad_i64)get_global_size(0))\n"
    "#define AD_POPCOUNT(word) popcount(word)\n" PARAMETERS
    "#ifdef AD_ON_PROCESSOR\n" ON_PROCESSOR "#else\n" ON_DEVICE "#endif\n"
#include "kernels/kernels.inc"
    ;

const char ad_kernels_hip[] =
    "typedef unsigned char ad_byte;\n"
    "typedef long long ad_i64;\n"
    "typedef unsigned long long ad_u64;\n"
    "typedef unsigned int ad_u32;\n"
    "typedef unsigned short ad_u16;\n"
    "#define AD_KERNEL extern \"C\" __global__\n"
    "#define AD_FUNCTION static __device__\n"
    "#define AD_GLOBAL\n"
    "#define restrict __restrict__\n"
    "#define AD_ITEM ((ad_i64)blockIdx.x * blockDim.x + threadIdx.x)\n"
    "#define AD_ITEMS ((ad_i64)gridDim.x * blockDim.x)\n"
    "#define AD_POPCOUNT(word) __popcll(word)\n" PARAMETERS ON_DEVICE
#include "kernels/kernels.inc"
    ;

#undef AD_TEXT

/* --- kernels for the host ------------------------------------------------ */

/* Tests build the steps of devices for the host. */
#ifndef AD_ON_DEVICE
#define AD_ON_DEVICE 0
#endif

#define AD_UNROLL
#define AD_POPCOUNT(word) __builtin_popcountll(word)
#define AD_POPCOUNT_WORDS(words, first, n, step)                              \
    (AD_ON_DEVICE ? ad_popcount_strided(words, first, n, step)                \
                  : popcount_words(words, first, n, step))

#define AD_TEXT(...) __VA_ARGS__
#define AD_KERNEL static
#define AD_FUNCTION static inline
#define AD_GLOBAL
#define AD_ITEM item
#define AD_ITEMS n_items
#define AD_BEGIN(n) AD_ITEM
#define AD_END(n) (n)
#define AD_STEP AD_ITEMS
#define AD_EACH(i, n) for (ad_i64 i = AD_BEGIN(n); i < (n); i += AD_STEP)
/* No kernel uses all parameters. */
#define UNUSED __attribute__((unused))
#define NUMBER UNUSED ad_i64
#define AD_PARAMETERS                                                         \
    const ad_byte *source, ad_i64 source_offset,                              \
        UNUSED const ad_byte *values, NUMBER values_offset, ad_byte *target,  \
        ad_i64 target_offset, NUMBER bit_offset, ad_i64 length, NUMBER p0,    \
        NUMBER p1, NUMBER p2, NUMBER p3, ad_i64 item, ad_i64 n_items

typedef unsigned char ad_byte;
typedef int64_t ad_i64;
typedef uint64_t ad_u64;
typedef uint32_t ad_u32;
typedef uint16_t ad_u16;
typedef struct __attribute__((aligned(16))) {
    ad_u64 low;
    ad_u64 high;
} ad_pair;

#define ACCESS(SIZE, TYPE, TO_HOST, TO_LITTLE)                                \
    static inline ad_u64 ad_load_##SIZE(const ad_byte *from)                  \
    {                                                                         \
        TYPE value;                                                           \
        memcpy(&value, from, SIZE);                                           \
        return TO_HOST(value);                                                \
    }                                                                         \
    static inline void ad_store_##SIZE(ad_byte *to, ad_u64 wide)              \
    {                                                                         \
        TYPE value = TO_LITTLE((TYPE)wide);                                   \
        memcpy(to, &value, SIZE);                                             \
    }

ACCESS(2, uint16_t, le16toh, htole16)
ACCESS(4, uint32_t, le32toh, htole32)
ACCESS(8, uint64_t, le64toh, htole64)

static inline ad_u64
ad_load_shifted(const ad_byte *from, int shift)
{
    return ad_load_8(from) >> shift | ad_load_8(from + 1) << (8 - shift);
}

/* Not every supported processor has a popcount instruction. So the words are
 * first added bit by bit, four to a step (Harley-Seal). They are vectors, for
 * which the compiler chooses registers of any width. */
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

/* Adds three bits at every position; the sum is *high and *low. */
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
popcount_words(const ad_u64 *words, ad_i64 first, ad_i64 n, ad_i64 step)
{
    ad_i64 total = 0;
    if (step == 1) {
        first += ad_vector_count_bits(words + first, n - first, &total);
        return total + popcount_run(words + first, n - first);
    }
    for (ad_i64 i = first; i < n; i += step) {
        total += __builtin_popcountll(words[i]);
    }
    return total;
}

#include "kernels/kernels.inc"

/* --- table of kernels ---------------------------------------------------- */

/* On a device that is no processor: the rows of one step of a work item, or 0
 * if they depend on the size of an element, and the greatest number of items.
 * Kernels that only read have as many items as run at the same time. */
static const struct {
    const char *name;
    void (*run)(AD_PARAMETERS);
    int64_t per_step;
    int64_t most;
} kernels[AD_N_KERNELS] = {
#define ROW(tag, name, per_step, most)                                        \
    [AD_KERNEL_##tag] = {"ad_" #name, ad_##name, per_step, most}
    ROW(UNPACK_BITS, unpack_bits, 16, 1 << 20),
    ROW(COUNT_BITS, count_bits, 8 * 64, 1 << 18),
    ROW(PACK_BITS, pack_bits, 16, 1 << 20),
    ROW(COPY_BITS, copy_bits, 128, 1 << 20),
    ROW(FILL_NULLS, fill_nulls, 0, 1 << 20),
    ROW(GATHER, gather, 0, 1 << 20),
    ROW(CHECK_OFFSETS, check_offsets, 0, 1 << 18),
    ROW(ADD, add, 0, 1 << 20),
    ROW(FIND_RUNS, find_runs, 0, 1 << 18),
    ROW(REDUCE, reduce, 64, AD_FEW_RESULTS),
#undef ROW
};

const char *
ad_kernel_name(ad_kernel kernel)
{
    return kernels[kernel].name;
}

static int64_t
rows_per_step(const ad_launch *launch)
{
    const int64_t *p = launch->numbers;
    switch (launch->kernel) {
        case AD_KERNEL_FILL_NULLS:
            return p[1] == 1 ? 16 / p[0] : 1;
        case AD_KERNEL_GATHER:
            return p[2] == p[3] && p[3] <= 16 ? 16 / p[3]
                   : p[3] == 1                ? 8
                   : p[3] == 2 || p[3] == 4   ? 4
                   : p[3] == 8                ? 2
                                              : 1;
        case AD_KERNEL_CHECK_OFFSETS:
            return 32 / p[0];
        case AD_KERNEL_ADD:
        case AD_KERNEL_FIND_RUNS:
            return 16 / p[0];
        default:
            return kernels[launch->kernel].per_step;
    }
}

int64_t
ad_kernel_n_items(const ad_launch *launch)
{
    int64_t most = kernels[launch->kernel].most;
    int64_t n = launch->length / rows_per_step(launch) + 1;
    int64_t rounded =
        (n + AD_KERNEL_GROUP - 1) / AD_KERNEL_GROUP * AD_KERNEL_GROUP;
    return n <= AD_KERNEL_GROUP ? n : rounded < most ? rounded : most;
}

/* Bytes from the first element of a matrix to the end of the last one. */
static int64_t
gathered_size(const ad_launch *launch)
{
    const int64_t *p = launch->numbers;
    int64_t n_rows = (launch->length + p[0] - 1) / p[0];
    int64_t n_columns = launch->length < p[0] ? launch->length : p[0];
    int64_t size = p[3];
    size += p[1] > 0 ? (n_rows - 1) * p[1] : 0;
    size += p[2] > 0 ? (n_columns - 1) * p[2] : 0;
    return size;
}

size_t
ad_launch_source_size(const ad_launch *launch)
{
    const int64_t *p = launch->numbers;
    int64_t n = launch->length;
    switch (launch->kernel) {
        case AD_KERNEL_PACK_BITS:
            return (size_t)n;
        case AD_KERNEL_GATHER:
            return (size_t)gathered_size(launch);
        case AD_KERNEL_CHECK_OFFSETS:
            return (size_t)((n + 1) * p[0]);
        case AD_KERNEL_ADD:
        case AD_KERNEL_FIND_RUNS:
            return (size_t)(n * p[0]);
        case AD_KERNEL_REDUCE:
            return (size_t)n * sizeof(int64_t);
        default:
            return (size_t)ad_bitmap_bytes(launch->bit_offset + n);
    }
}

size_t
ad_launch_values_size(const ad_launch *launch)
{
    const int64_t *p = launch->numbers;
    return launch->kernel == AD_KERNEL_FILL_NULLS && p[1] == 1
               ? (size_t)(launch->length * p[0])
               : 0;
}

size_t
ad_launch_target_size(const ad_launch *launch)
{
    const int64_t *p = launch->numbers;
    int64_t n = launch->length;
    switch (launch->kernel) {
        case AD_KERNEL_UNPACK_BITS:
            return (size_t)n;
        case AD_KERNEL_PACK_BITS:
            return (size_t)ad_bitmap_bytes(launch->bit_offset + n);
        case AD_KERNEL_COPY_BITS:
            return (size_t)ad_bitmap_bytes(p[0] + n + p[2]);
        case AD_KERNEL_FILL_NULLS:
            return (size_t)((p[1] > 0 ? n * p[1] : n / -p[1]) * p[0]);
        case AD_KERNEL_GATHER:
            return (size_t)(n * p[3]);
        case AD_KERNEL_ADD:
            return (size_t)(n * p[0]);
        case AD_KERNEL_FIND_RUNS:
            return 3 * sizeof(int64_t);
        default: /* one number per work item */
            return (size_t)launch->n_items * sizeof(int64_t);
    }
}

static void
run_text(const ad_launch *launch)
{
    const int64_t *p = launch->numbers;
    for (int64_t item = 0; item < launch->n_items; item++) {
        kernels[launch->kernel].run(
            launch->source.data, (int64_t)launch->source.offset,
            launch->values.data, (int64_t)launch->values.offset,
            launch->target.data, (int64_t)launch->target.offset,
            launch->bit_offset, launch->length, p[0], p[1], p[2], p[3], item,
            launch->n_items);
    }
}

/* Skips the first `n` bits, rows or elements, which are done. */
static void
advance(ad_launch *self, int64_t n)
{
    self->length -= n;
    self->bit_offset += n;
    switch (self->kernel) {
        case AD_KERNEL_UNPACK_BITS:
            self->target.offset += (uint64_t)n;
            break;
        case AD_KERNEL_PACK_BITS:
            self->source.offset += (uint64_t)n;
            break;
        case AD_KERNEL_COPY_BITS:
            self->numbers[0] += n;
            break;
        case AD_KERNEL_FILL_NULLS:
            self->values.offset += (uint64_t)(n * self->numbers[0]);
            self->target.offset += (uint64_t)(n * self->numbers[0]);
            break;
        default:
            break;
    }
}

/* Runs the bits before the first whole byte of the target. */
static void
run_head(ad_launch *self, int64_t target_bit)
{
    ad_launch head = *self;
    head.length = (8 - target_bit % 8) % 8;
    head.length = head.length < self->length ? head.length : self->length;
    if (head.length > 0) {
        run_text(&head);
        advance(self, head.length);
    }
}

/* Fills the last rows, fewer than 64 of at most 8 bytes, in a block of their
 * own. One by one they would take longer than all rows before them. */
static void
fill_tail(const ad_launch *self)
{
    const ad_byte *bits = (ad_byte *)self->source.data + self->source.offset;
    const ad_byte *values = (ad_byte *)self->values.data + self->values.offset;
    ad_byte *target = (ad_byte *)self->target.data + self->target.offset;
    ad_byte block[64 * 8] = {0};
    int64_t n = self->length;
    size_t nbytes = (size_t)(n * self->numbers[0]);
    ad_u64 valid = 0;
    for (int64_t i = 0; i < n; i += 8) {
        int64_t few = n - i < 8 ? n - i : 8;
        valid |= ad_load_few(bits, self->bit_offset + i, few) << i;
    }
    memcpy(block, values, nbytes);
    ad_fill_64(block, block, valid, self->numbers[0], (ad_u64)self->numbers[2],
               0);
    memcpy(target, block, nbytes);
}

static void
run_fill(ad_launch *self, const ad_byte *bits, ad_byte *target)
{
    const ad_byte *values = (ad_byte *)self->values.data + self->values.offset;
    int64_t size = self->numbers[0];
    advance(self,
            ad_vector_fill(bits, self->bit_offset, values, target,
                           self->length, size, (uint64_t)self->numbers[2]));
    if (size <= 8 && self->length < 64) {
        fill_tail(self);
        self->length = 0;
    }
}

/* Runs the part for which there are vector instructions. */
static void
run_fast(ad_launch *self)
{
    const ad_byte *source = (ad_byte *)self->source.data + self->source.offset;
    ad_byte *target = (ad_byte *)self->target.data + self->target.offset;
    const int64_t *p = self->numbers;
    int64_t bit = self->bit_offset;
    int64_t n = self->length;
    switch (self->kernel) {
        case AD_KERNEL_UNPACK_BITS:
            advance(self, ad_vector_unpack(source, bit, target, n));
            break;
        case AD_KERNEL_PACK_BITS:
            advance(self,
                    ad_vector_pack(source, target + bit / 8, n, p[0] != 0));
            break;
        case AD_KERNEL_COPY_BITS:
            advance(self,
                    ad_vector_copy_bits(source, bit, target + p[0] / 8, n));
            break;
        case AD_KERNEL_FILL_NULLS:
            run_fill(self, source, target);
            break;
        default:
            break;
    }
}

/* Kernels add offsets to memories before they know whether they use them, and
 * NULL + 0 is undefined. */
static ad_launch
with_addresses(const ad_launch *launch)
{
    static ad_byte nothing;
    ad_launch self = *launch;
    if (self.source.data == NULL) {
        self.source.data = &nothing;
    }
    if (self.values.data == NULL) {
        self.values.data = &nothing;
    }
    if (self.target.data == NULL) {
        self.target.data = &nothing;
    }
    return self;
}

void
ad_kernel_run_on_host(const ad_launch *launch)
{
    ad_launch rest = with_addresses(launch);
    bool is_whole = launch->n_items == 1;
    if (is_whole && rest.kernel == AD_KERNEL_PACK_BITS) {
        run_head(&rest, rest.bit_offset);
    } else if (is_whole && rest.kernel == AD_KERNEL_COPY_BITS) {
        is_whole = rest.numbers[1] == AD_BITS_COPY;
        if (is_whole) {
            run_head(&rest, rest.numbers[0]);
        }
    } else if (rest.kernel == AD_KERNEL_FILL_NULLS) {
        is_whole = is_whole && rest.numbers[1] == 1;
    }
    if (is_whole) {
        run_fast(&rest);
    }
    bool has_more = rest.kernel == AD_KERNEL_COPY_BITS && rest.numbers[2] > 0;
    if (rest.length > 0 || has_more) {
        run_text(&rest);
    }
}

int64_t
ad_bitmap_count_zeros(const void *bitmap, int64_t offset, int64_t length)
{
    int64_t n_set = 0;
    const ad_launch launch = {
        .kernel = AD_KERNEL_COUNT_BITS,
        .source = {.context = {.device = AD_CPU}, .data = (void *)bitmap},
        .target = {.context = {.device = AD_CPU}, .data = &n_set},
        .bit_offset = offset,
        .length = length,
        .n_items = 1,
    };
    if (length > 0) {
        ad_kernel_run_on_host(&launch);
    }
    return length - n_set;
}
