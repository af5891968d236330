/* What x86 processors with AVX2 do faster than any compiler makes of the
 * kernels' text. For kernels.c only.
 *
 * Each function does a multiple of its step from the beginning, and returns how
 * much; nothing where the processor is another one. Bytes are read and written
 * as the text would.
 */
#ifndef AD_DEVICE_CPU_X86_H
#define AD_DEVICE_CPU_X86_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define AD_AVX2 __attribute__((target("avx2,popcnt")))

static inline bool
ad_x86_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
}

/* 32 bits of `bits` from number `at` on; no byte is read that holds none of
 * them. */
static inline uint32_t
ad_x86_load_bits(const unsigned char *bits, int64_t at)
{
    int shift = (int)(at % 8);
    uint32_t low;
    memcpy(&low, bits + at / 8, sizeof(low));
    return shift == 0
               ? low
               : low >> shift | (uint32_t)bits[at / 8 + 4] << (32 - shift);
}

/* Each of 32 bits as a byte of 0 or 0xff. */
AD_AVX2 static inline __m256i
ad_x86_widen(uint32_t bits)
{
    const __m256i order = _mm256_setr_epi64x(
        0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), order);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, each), each);
}

AD_AVX2 static int64_t
ad_x86_unpack(const unsigned char *bits, int64_t at, unsigned char *bytes,
              int64_t n)
{
    const __m256i one = _mm256_set1_epi8(1);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i wide = ad_x86_widen(ad_x86_load_bits(bits, at + i));
        _mm256_storeu_si256((__m256i *)(bytes + i),
                            _mm256_and_si256(wide, one));
    }
    return i;
}

AD_AVX2 static int64_t
ad_x86_pack(const unsigned char *bytes, unsigned char *bits, int64_t n,
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

/* To a whole byte. What the shift to the right lacks at the top of each 64 bits
 * is in the byte behind them, and the rest of that word is the same as what is
 * there. */
AD_AVX2 static int64_t
ad_x86_copy_bits(const unsigned char *source, int64_t from,
                 unsigned char *target, int64_t n)
{
    const unsigned char *first = source + from / 8;
    int shift = (int)(from % 8);
    const __m128i right = _mm_cvtsi32_si128(shift);
    const __m128i left = _mm_cvtsi32_si128(8 - shift);
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
                            _mm256_or_si256(_mm256_srl_epi64(low, right),
                                            _mm256_sll_epi64(high, left)));
    }
    return i;
}

AD_AVX2 static int64_t
ad_x86_popcount(const uint64_t *words, int64_t n)
{
    int64_t a = 0, b = 0, c = 0, d = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        a += __builtin_popcountll(words[i]);
        b += __builtin_popcountll(words[i + 1]);
        c += __builtin_popcountll(words[i + 2]);
        d += __builtin_popcountll(words[i + 3]);
    }
    for (; i < n; i++) {
        a += __builtin_popcountll(words[i]);
    }
    return a + b + c + d;
}

/* The lowest 32 / size bits as that many elements of all zeros or ones. */
AD_AVX2 static inline __m256i
ad_x86_keep(uint32_t valid, int size)
{
    const __m256i bit_8 = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i bit_4 = _mm256_setr_epi64x(1, 2, 4, 8);
    const __m256i bit_16 =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                          4096, 8192, 16384, INT16_MIN);
    __m256i bits = _mm256_set1_epi32((int)valid);
    switch (size) {
        case 1:
            return ad_x86_widen(valid);
        case 2:
            bits = _mm256_set1_epi16((short)valid);
            return _mm256_cmpeq_epi16(_mm256_and_si256(bits, bit_16), bit_16);
        case 4:
            return _mm256_cmpeq_epi32(_mm256_and_si256(bits, bit_8), bit_8);
        default:
            bits = _mm256_set1_epi64x((int64_t)valid);
            return _mm256_cmpeq_epi64(_mm256_and_si256(bits, bit_4), bit_4);
    }
}

/* Elements of 1, 2, 4 or 8 bytes; `value` is repeated. */
AD_AVX2 static inline int64_t
ad_x86_fill_of(const unsigned char *bits, int64_t at, unsigned char *to,
               int64_t n, int size, uint64_t value)
{
    const __m256i fill = _mm256_set1_epi64x((int64_t)value);
    int per_vector = 32 / size;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        uint32_t valid = ad_x86_load_bits(bits, at + i);
        for (int k = 0; k < size && valid != UINT32_MAX; k++) {
            __m256i *here = (__m256i *)(to + i * size + 32 * k);
            __m256i keep = ad_x86_keep(valid >> (k * per_vector % 32), size);
            _mm256_storeu_si256(
                here,
                _mm256_blendv_epi8(fill, _mm256_loadu_si256(here), keep));
        }
    }
    return i;
}

/* With the size as a constant the loop within is written out. */
AD_AVX2 static int64_t
ad_x86_fill(const unsigned char *bits, int64_t at, unsigned char *to,
            int64_t n, int64_t size, uint64_t value)
{
    switch (size) {
        case 1:
            return ad_x86_fill_of(bits, at, to, n, 1, value);
        case 2:
            return ad_x86_fill_of(bits, at, to, n, 2, value);
        case 4:
            return ad_x86_fill_of(bits, at, to, n, 4, value);
        case 8:
            return ad_x86_fill_of(bits, at, to, n, 8, value);
        default:
            return 0;
    }
}

#else

static inline bool
ad_x86_has_avx2(void)
{
    return false;
}

static inline int64_t
ad_x86_unpack(const unsigned char *bits, int64_t at, unsigned char *bytes,
              int64_t n)
{
    (void)bits, (void)at, (void)bytes, (void)n;
    return 0;
}

static inline int64_t
ad_x86_pack(const unsigned char *bytes, unsigned char *bits, int64_t n,
            bool flip)
{
    (void)bytes, (void)bits, (void)n, (void)flip;
    return 0;
}

static inline int64_t
ad_x86_copy_bits(const unsigned char *source, int64_t from,
                 unsigned char *target, int64_t n)
{
    (void)source, (void)from, (void)target, (void)n;
    return 0;
}

static inline int64_t
ad_x86_popcount(const uint64_t *words, int64_t n)
{
    (void)words, (void)n;
    return 0;
}

static inline int64_t
ad_x86_fill(const unsigned char *bits, int64_t at, unsigned char *to,
            int64_t n, int64_t size, uint64_t value)
{
    (void)bits, (void)at, (void)to, (void)n, (void)size, (void)value;
    return 0;
}

#endif

#endif /* AD_DEVICE_CPU_X86_H */
