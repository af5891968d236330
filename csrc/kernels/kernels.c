#include "kernels/kernels.h"

#include <stdbool.h>
#include <string.h>

#include "base/owner.h"
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

/* --- vector instructions ------------------------------------------------- */

/* Vector instructions of some processors that no compiler generates from plain
 * C.
 *
 * Each function processes as many elements as it can, from the first on, and
 * returns their number: 0 on other processors. The caller processes the rest.
 * No byte of a bitmap is read unless it holds one of the bits. There are none
 * for Windows: its stack is aligned to 16 bytes, and gcc stores vectors of 32
 * bytes there as if it were aligned to them (bug 54412).
 */

#if defined(__x86_64__) && !defined(_WIN32)

#include <cpuid.h>
#include <immintrin.h>

#include "base/os.h"

#define AVX2 __attribute__((target("avx2,bmi2,popcnt")))

static bool is_avx2_usable;

/* __builtin_cpu_supports() reads a table of the compiler's runtime library.
 * That of zig, which builds the wheels, leaves the table empty. */
static void
ask_processor(void)
{
    const unsigned basic = bit_POPCNT | bit_OSXSAVE;
    const unsigned extended = bit_AVX2 | bit_BMI2;
    const unsigned saved = 6; /* The system saves XMM and YMM registers. */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & basic) != basic) {
        return;
    }
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    is_avx2_usable = (a & saved) == saved &&
                     __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
                     (b & extended) == extended;
}

static bool
has_avx2(void)
{
    static ad_once once = AD_ONCE_INIT;
    ad_once_call(&once, ask_processor);
    return is_avx2_usable;
}

/* 32 bits, starting at bit `shift` (less than 8). */
AVX2 static inline uint32_t
load_bits(const unsigned char *bits, int shift)
{
    uint64_t word;
    memcpy(&word, bits, sizeof(word));
    return (uint32_t)(word >> shift);
}

/* Number of rows, a multiple of 32, for which 64 bits may be loaded at each
 * step without reading a byte that holds none of the n bits. */
static inline int64_t
whole_rows(int64_t n)
{
    return n < 64 ? 0 : (n - 32) / 32 * 32;
}

/* Spreads 32 bits to bytes: each byte keeps one bit, at its own position. */
AVX2 static inline __m256i
spread(uint32_t bits)
{
    const __m256i order = _mm256_setr_epi64x(
        0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), order);
    return _mm256_and_si256(bytes, each);
}

AVX2 static int64_t
unpack_avx2(const unsigned char *bits, int64_t at, unsigned char *bytes,
            int64_t n)
{
    const __m256i one = _mm256_set1_epi8(1);
    const unsigned char *first = bits + at / 8;
    int shift = (int)(at % 8);
    int64_t end = whole_rows(n);
    for (int64_t i = 0; i < end; i += 32) {
        __m256i wide = spread(load_bits(first + i / 8, shift));
        _mm256_storeu_si256((__m256i *)(bytes + i),
                            _mm256_min_epu8(wide, one));
    }
    return end;
}

AVX2 static int64_t
pack_avx2(const unsigned char *bytes, unsigned char *bits, int64_t n,
          bool flip)
{
    const __m256i zero = _mm256_setzero_si256();
    uint32_t all = flip ? 0 : UINT32_MAX;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(bytes + i));
        uint32_t is_zero =
            (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, zero));
        uint32_t word = is_zero ^ all;
        memcpy(bits + i / 8, &word, sizeof(word));
    }
    return i;
}

/* Copies to a whole byte of the target. A right shift of a 64-bit word lacks
 * its top bits, which are in the next byte. The other bits of the word that
 * starts there agree with those already present. */
AVX2 static int64_t
copy_bits_avx2(const unsigned char *source, int64_t from,
               unsigned char *target, int64_t n)
{
    const unsigned char *first = source + from / 8;
    int shift = (int)(from % 8);
    const __m256i right = _mm256_set1_epi64x(shift);
    const __m256i left = _mm256_set1_epi64x(8 - shift);
    int64_t i = 0;
    if (shift == 0) {
        memcpy(target, first, (size_t)(n / 8));
        return n / 8 * 8;
    }
    for (; i + 256 <= n; i += 256) {
        const unsigned char *p = first + i / 8;
        __m256i low = _mm256_loadu_si256((const __m256i *)p);
        __m256i high = _mm256_loadu_si256((const __m256i *)(p + 1));
        _mm256_storeu_si256((__m256i *)(target + i / 8),
                            _mm256_or_si256(_mm256_srlv_epi64(low, right),
                                            _mm256_sllv_epi64(high, left)));
    }
    return i;
}

/* Counts the bits of each byte with a table of half bytes. */
AVX2 static inline __m256i
count_bytes(const uint64_t *words)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i half = _mm256_set1_epi8(15);
    __m256i x = _mm256_loadu_si256((const __m256i *)words);
    __m256i low = _mm256_and_si256(x, half);
    __m256i high = _mm256_and_si256(_mm256_srli_epi64(x, 4), half);
    return _mm256_add_epi8(_mm256_shuffle_epi8(table, low),
                           _mm256_shuffle_epi8(table, high));
}

AVX2 static int64_t
count_avx2(const uint64_t *words, int64_t n, int64_t *total)
{
    __m256i sums = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i a = _mm256_add_epi8(count_bytes(words + i),
                                    count_bytes(words + i + 4));
        __m256i b = _mm256_add_epi8(count_bytes(words + i + 8),
                                    count_bytes(words + i + 12));
        __m256i bytes = _mm256_add_epi8(a, b);
        sums = _mm256_add_epi64(
            sums, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
    }
    for (int k = 0; k < 4; k++) {
        *total += sums[k];
    }
    for (; i < n; i++) {
        *total += __builtin_popcountll(words[i]);
    }
    return i;
}

/* Selects `kept` where the bit of the element is set, and `fill` elsewhere;
 * the bits are the lowest ones. Each bit is moved to the sign of its
 * element. */
AVX2 static inline __m256i
select_elements(uint32_t bits, __m256i fill, __m256i kept, int size)
{
    const __m256i to_sign_4 =
        _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    const __m256i to_sign_8 = _mm256_setr_epi64x(63, 62, 61, 60);
    const __m256i bit_16 =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                          4096, 8192, 16384, INT16_MIN);
    __m256i x;
    switch (size) {
        case 1:
            x = spread(bits);
            return _mm256_blendv_epi8(
                kept, fill, _mm256_cmpeq_epi8(x, _mm256_setzero_si256()));
        case 2:
            x = _mm256_and_si256(_mm256_set1_epi16((short)bits), bit_16);
            return _mm256_blendv_epi8(fill, kept,
                                      _mm256_cmpeq_epi16(x, bit_16));
        case 4:
            x = _mm256_sllv_epi32(_mm256_set1_epi32((int)bits), to_sign_4);
            return _mm256_castps_si256(_mm256_blendv_ps(
                _mm256_castsi256_ps(fill), _mm256_castsi256_ps(kept),
                _mm256_castsi256_ps(x)));
        default:
            x = _mm256_sllv_epi64(_mm256_set1_epi64x((int64_t)bits),
                                  to_sign_8);
            return _mm256_castpd_si256(_mm256_blendv_pd(
                _mm256_castsi256_pd(fill), _mm256_castsi256_pd(kept),
                _mm256_castsi256_pd(x)));
    }
}

/* Elements of 1, 2, 4 or 8 bytes; `value` is repeated. Where they are to stay
 * what they are, `from` and `to` are the same. */
AVX2 static inline int64_t
fill_of(const unsigned char *bits, int64_t at, const unsigned char *from,
        unsigned char *to, int64_t n, int size, uint64_t value)
{
    const __m256i fill = _mm256_set1_epi64x((int64_t)value);
    const unsigned char *first = bits + at / 8;
    int shift = (int)(at % 8);
    int per_vector = 32 / size;
    int64_t end = whole_rows(n);
    for (int64_t i = 0; i < end; i += 32) {
        uint32_t valid = load_bits(first + i / 8, shift);
        if (from == to && valid == UINT32_MAX) {
            continue;
        }
        for (int k = 0; k < size; k++) {
            int64_t here = i * size + 32 * k;
            __m256i kept = _mm256_loadu_si256((const __m256i *)(from + here));
            _mm256_storeu_si256((__m256i *)(to + here),
                                select_elements(valid >> (k * per_vector % 32),
                                                fill, kept, size));
        }
    }
    return end;
}

/* With a constant size the inner loop is unrolled. */
AVX2 static int64_t
fill_avx2(const unsigned char *bits, int64_t at, const unsigned char *from,
          unsigned char *to, int64_t n, int64_t size, uint64_t value)
{
    switch (size) {
        case 1:
            return fill_of(bits, at, from, to, n, 1, value);
        case 2:
            return fill_of(bits, at, from, to, n, 2, value);
        case 4:
            return fill_of(bits, at, from, to, n, 4, value);
        case 8:
            return fill_of(bits, at, from, to, n, 8, value);
        default:
            return 0;
    }
}

/* --- vectors of two columns ---------------------------------------------- */

/* SSE2, which every x86-64 processor has. With a constant size the loop
 * contains no test of it. */
static inline __attribute__((always_inline)) int64_t
zip_elements(const char *a, const char *b, int64_t n, int64_t size, char *to)
{
    int64_t per_vector = 16 / size;
    int64_t i = 0;
    for (; i + per_vector <= n; i += per_vector) {
        __m128i x = _mm_loadu_si128((const __m128i *)(a + i * size));
        __m128i y = _mm_loadu_si128((const __m128i *)(b + i * size));
        __m128i *out = (__m128i *)(to + 2 * i * size);
        _mm_storeu_si128(out, size == 1   ? _mm_unpacklo_epi8(x, y)
                              : size == 2 ? _mm_unpacklo_epi16(x, y)
                                          : _mm_unpacklo_epi32(x, y));
        _mm_storeu_si128(out + 1, size == 1   ? _mm_unpackhi_epi8(x, y)
                                  : size == 2 ? _mm_unpackhi_epi16(x, y)
                                              : _mm_unpackhi_epi32(x, y));
    }
    return i;
}

static int64_t
zip_sse2(const char *a, const char *b, int64_t n, int64_t size, char *to)
{
    switch (size) {
        case 1:
            return zip_elements(a, b, n, 1, to);
        case 2:
            return zip_elements(a, b, n, 2, to);
        default:
            return zip_elements(a, b, n, 4, to);
    }
}

static inline __m128i
take_first(__m128i a, __m128i b, int64_t size)
{
    const __m128i low = _mm_set1_epi16(255);
    switch (size) {
        case 1:
            return _mm_packus_epi16(_mm_and_si128(a, low),
                                    _mm_and_si128(b, low));
        case 2: /* sign-extended, so that no value saturates */
            a = _mm_srai_epi32(_mm_slli_epi32(a, 16), 16);
            b = _mm_srai_epi32(_mm_slli_epi32(b, 16), 16);
            return _mm_packs_epi32(a, b);
        case 4:
            return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(a),
                                                   _mm_castsi128_ps(b), 0x88));
        default:
            return _mm_unpacklo_epi64(a, b);
    }
}

static inline __attribute__((always_inline)) int64_t
take_every_second(const char *from, char *to, int64_t n, int64_t size)
{
    int64_t per_vector = 16 / size;
    int64_t i = 0;
    for (; i + per_vector < n; i += per_vector) {
        const __m128i *pair = (const __m128i *)(from + 2 * i * size);
        _mm_storeu_si128((__m128i *)(to + i * size),
                         take_first(_mm_loadu_si128(pair),
                                    _mm_loadu_si128(pair + 1), size));
    }
    return i;
}

static int64_t
take_sse2(const char *from, char *to, int64_t n, int64_t size)
{
    switch (size) {
        case 1:
            return take_every_second(from, to, n, 1);
        case 2:
            return take_every_second(from, to, n, 2);
        case 4:
            return take_every_second(from, to, n, 4);
        default:
            return take_every_second(from, to, n, 8);
    }
}

#define VECTORS(call) (call)
#define VECTORS_AVX2(call) (has_avx2() ? (call) : 0)

#else /* no element is processed */

#define VECTORS(call) 0
#define VECTORS_AVX2(call) 0

#endif

/* --- vectors on any processor -------------------------------------------- */

/* Unpacks bits [at, at + n) to bytes of 0 or 1. */
static int64_t
vector_unpack(const unsigned char *bits, int64_t at, unsigned char *bytes,
              int64_t n)
{
    return VECTORS_AVX2(unpack_avx2(bits, at, bytes, n));
}

/* Packs bytes to bits: a bit is set if the byte is not 0; with `flip`, if it
 * is 0. Returns a multiple of 8. */
static int64_t
vector_pack(const unsigned char *bytes, unsigned char *bits, int64_t n,
            bool flip)
{
    return VECTORS_AVX2(pack_avx2(bytes, bits, n, flip));
}

/* Copies bits [from, from + n) to `target`, from its first bit on. Returns a
 * multiple of 8. */
static int64_t
vector_copy_bits(const unsigned char *source, int64_t from,
                 unsigned char *target, int64_t n)
{
    return VECTORS_AVX2(copy_bits_avx2(source, from, target, n));
}

/* Adds the number of set bits in n words to *total. */
static int64_t
vector_count_bits(const uint64_t *words, int64_t n, int64_t *total)
{
    return VECTORS_AVX2(count_avx2(words, n, total));
}

/* Fills null elements of `size` bytes: 1, 2, 4 or 8. Elements whose bit is set
 * are copied from `from`, which may be `to` itself; the others become `value`,
 * in which a shorter value is repeated. */
static int64_t
vector_fill(const unsigned char *bits, int64_t at, const unsigned char *from,
            unsigned char *to, int64_t n, int64_t size, uint64_t value)
{
    return VECTORS_AVX2(fill_avx2(bits, at, from, to, n, size, value));
}

/* Interleaves elements of 1, 2 or 4 bytes of `a` and `b`; returns the number
 * of elements of each. */
static int64_t
vector_zip(const char *a, const char *b, int64_t n, int64_t size, char *to)
{
    return VECTORS(zip_sse2(a, b, n, size, to));
}

/* Copies every second element, of 1, 2, 4 or 8 bytes, starting with the first.
 * Nothing after the last copied element is read. */
static int64_t
vector_take_every_second(const char *from, char *to, int64_t n, int64_t size)
{
    return VECTORS(take_sse2(from, to, n, size));
}

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

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE(SWAP, value) (value)
#else
#define LITTLE(SWAP, value) SWAP(value)
#endif

#define ACCESS(SIZE, TYPE, SWAP)                                              \
    static inline ad_u64 ad_load_##SIZE(const ad_byte *from)                  \
    {                                                                         \
        TYPE value;                                                           \
        memcpy(&value, from, SIZE);                                           \
        return LITTLE(SWAP, value);                                           \
    }                                                                         \
    static inline void ad_store_##SIZE(ad_byte *to, ad_u64 wide)              \
    {                                                                         \
        TYPE value = LITTLE(SWAP, (TYPE)wide);                                \
        memcpy(to, &value, SIZE);                                             \
    }

ACCESS(2, uint16_t, __builtin_bswap16)
ACCESS(4, uint32_t, __builtin_bswap32)
ACCESS(8, uint64_t, __builtin_bswap64)

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
        first += vector_count_bits(words + first, n - first, &total);
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
    advance(self, vector_fill(bits, self->bit_offset, values, target,
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
            advance(self, vector_unpack(source, bit, target, n));
            break;
        case AD_KERNEL_PACK_BITS:
            advance(self, vector_pack(source, target + bit / 8, n, p[0] != 0));
            break;
        case AD_KERNEL_COPY_BITS:
            advance(self, vector_copy_bits(source, bit, target + p[0] / 8, n));
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

/* --- interleaving of elements -------------------------------------------- */

/* Number of columns, or groups of columns, that are read together, so that a
 * cache line of the result is written once and not once per column. */
#define SIDE_BY_SIDE 16

/* Fewer columns than this are faster one by one. */
#define FEW 4

/* Rows of a tile, whose result stays in the nearest cache. */
#define TILE_ROWS 256

/* Columns of narrower elements are first interleaved to elements of this many
 * bytes. */
#define WIDE 8

static bool
is_power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

/* --- one column ---------------------------------------------------------- */

#define MOVE(NBYTES)                                                          \
    for (; n >= 4; n -= 4, source += 4 * from_step, target += 4 * to_step) {  \
        memcpy(target, source, NBYTES);                                       \
        memcpy(target + to_step, source + from_step, NBYTES);                 \
        memcpy(target + 2 * to_step, source + 2 * from_step, NBYTES);         \
        memcpy(target + 3 * to_step, source + 3 * from_step, NBYTES);         \
    }                                                                         \
    for (; n > 0; n--, source += from_step, target += to_step) {              \
        memcpy(target, source, NBYTES);                                       \
    }                                                                         \
    break

/* With a constant size memcpy is a load and a store. */
void
ad_move_elements(char *target, int64_t to_step, const char *source,
                 int64_t from_step, int64_t n, size_t size)
{
    if (from_step == (int64_t)size && to_step == (int64_t)size) {
        memcpy(target, source, (size_t)n * size);
        return;
    }
    if (from_step == 2 * to_step && to_step == (int64_t)size && size <= WIDE &&
        is_power_of_two(to_step)) {
        int64_t taken = vector_take_every_second(source, target, n, to_step);
        source += taken * from_step;
        target += taken * to_step;
        n -= taken;
    }
    switch (size) {
        case 1:
            MOVE(1);
        case 2:
            MOVE(2);
        case 4:
            MOVE(4);
        case 8:
            MOVE(8);
        case 16:
            MOVE(16);
        default:
            MOVE(size);
    }
}

/* --- any number of columns ----------------------------------------------- */

#define GATHER(NBYTES)                                                        \
    for (int64_t i = 0; i < n_rows; i++) {                                    \
        for (int64_t k = 0; k < n; k++) {                                     \
            memcpy(target + i * pitch + k * (NBYTES),                         \
                   columns[k] + i * (NBYTES), NBYTES);                        \
        }                                                                     \
    }                                                                         \
    break

/* With a constant size memcpy is a load and a store. */
static void
gather(const char *const *columns, int64_t n, int64_t n_rows, int64_t size,
       char *target, int64_t pitch)
{
    if (n == 1) {
        ad_move_elements(target, pitch, columns[0], size, n_rows,
                         (size_t)size);
        return;
    }
    switch (size) {
        case 1:
            GATHER(1);
        case 2:
            GATHER(2);
        case 4:
            GATHER(4);
        case 8:
            GATHER(8);
        case 16:
            GATHER(16);
        default:
            GATHER((size_t)size);
    }
}

/* --- two columns --------------------------------------------------------- */

#define ZIP(NBYTES)                                                           \
    for (; i < n_rows; i++) {                                                 \
        memcpy(target + 2 * i * (NBYTES), a + i * (NBYTES), NBYTES);          \
        memcpy(target + (2 * i + 1) * (NBYTES), b + i * (NBYTES), NBYTES);    \
    }                                                                         \
    break

/* Interleaves two columns of elements of 1, 2 or 4 bytes. */
static void
zip(const char *a, const char *b, int64_t n_rows, int64_t size, char *target)
{
    int64_t i = vector_zip(a, b, n_rows, size, target);
    switch (size) {
        case 1:
            ZIP(1);
        case 2:
            ZIP(2);
        default:
            ZIP(4);
    }
}

/* Interleaves `n` columns, a power of two, to one at `target` with elements n
 * times as wide. A single column is not copied. */
static const char *
zip_columns(const char *const *columns, int64_t n, int64_t row, int64_t n_rows,
            int64_t size, char *target)
{
    char halves[2][WIDE * TILE_ROWS];
    const char *from[WIDE];
    for (int64_t i = 0; i < n; i++) {
        from[i] = columns[i] + row * size;
    }
    for (int turn = 0; n > 1; n /= 2, size *= 2, turn = 1 - turn) {
        for (int64_t i = 0; i < n / 2; i++) {
            char *to = n == 2 ? target : halves[turn] + i * n_rows * 2 * size;
            zip(from[2 * i], from[2 * i + 1], n_rows, size, to);
            from[i] = to;
        }
    }
    return from[0];
}

/* --- a tile -------------------------------------------------------------- */

/* Rows of at most WIDE bytes without gaps. The columns are padded to a power
 * of two. The padding of a row is overwritten by the next row, and the last
 * row is written without it. */
static void
interleave_narrow(const char *const *columns, int64_t n, int64_t row,
                  int64_t n_rows, int64_t size, char *target)
{
    char zipped[WIDE * TILE_ROWS];
    const char *all[WIDE];
    int64_t n_all = 1;
    while (n_all < n) {
        n_all *= 2;
    }
    for (int64_t i = 0; i < n_all; i++) {
        all[i] = columns[i < n ? i : 0];
    }
    if (n > 1 && n == n_all) {
        zip_columns(all, n, row, n_rows, size, target);
        return;
    }
    const char *rows = zip_columns(all, n_all, row, n_rows, size, zipped);
    gather(&rows, 1, n_rows - 1, n_all * size, target, n * size);
    memcpy(target + (n_rows - 1) * n * size,
           rows + (n_rows - 1) * n_all * size, (size_t)(n * size));
}

/* Number of the `n` columns to zip: the greatest power of two whose result is
 * at most WIDE; 1 for elements that are not 1, 2 or 4 bytes wide. */
static int64_t
columns_to_zip(int64_t n, int64_t size)
{
    int64_t n_zipped = 1;
    while (is_power_of_two(size) && 2 * n_zipped <= n &&
           2 * n_zipped * size <= WIDE) {
        n_zipped *= 2;
    }
    return n_zipped;
}

static void
interleave_wide(const char *const *columns, int64_t n, int64_t row,
                int64_t n_rows, int64_t size, char *target, int64_t pitch)
{
    char zipped[SIDE_BY_SIDE][WIDE * TILE_ROWS];
    const char *groups[SIDE_BY_SIDE];
    int64_t step;
    for (int64_t k = 0; k < n; k += step) {
        int64_t n_zipped = columns_to_zip(n - k, size);
        int64_t n_groups = (n - k) / n_zipped;
        n_groups = n_groups < FEW            ? 1
                   : n_groups < SIDE_BY_SIDE ? n_groups
                                             : SIDE_BY_SIDE;
        step = n_groups * n_zipped;
        for (int64_t i = 0; i < n_groups; i++) {
            groups[i] = zip_columns(columns + k + i * n_zipped, n_zipped, row,
                                    n_rows, size, zipped[i]);
        }
        gather(groups, n_groups, n_rows, n_zipped * size, target + k * size,
               pitch);
    }
}

void
ad_interleave(const char *const *columns, int64_t n, int64_t n_rows,
              int64_t size, char *target, int64_t pitch)
{
    bool is_narrow =
        pitch <= WIDE && pitch == n * size && is_power_of_two(size);
    for (int64_t row = 0; row < n_rows; row += TILE_ROWS) {
        int64_t rest = n_rows - row;
        int64_t n_here = rest < TILE_ROWS ? rest : TILE_ROWS;
        char *here = target + row * pitch;
        if (is_narrow) {
            interleave_narrow(columns, n, row, n_here, size, here);
        } else {
            interleave_wide(columns, n, row, n_here, size, here, pitch);
        }
    }
}
