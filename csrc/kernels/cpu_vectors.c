#include "kernels/cpu_vectors.h"

#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>

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
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_processor);
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

/* --- two columns --------------------------------------------------------- */

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

/* --- entries ------------------------------------------------------------- */

int64_t
ad_vector_unpack(const unsigned char *bits, int64_t at, unsigned char *bytes,
                 int64_t n)
{
    return VECTORS_AVX2(unpack_avx2(bits, at, bytes, n));
}

int64_t
ad_vector_pack(const unsigned char *bytes, unsigned char *bits, int64_t n,
               bool flip)
{
    return VECTORS_AVX2(pack_avx2(bytes, bits, n, flip));
}

int64_t
ad_vector_copy_bits(const unsigned char *source, int64_t from,
                    unsigned char *target, int64_t n)
{
    return VECTORS_AVX2(copy_bits_avx2(source, from, target, n));
}

int64_t
ad_vector_count_bits(const uint64_t *words, int64_t n, int64_t *total)
{
    return VECTORS_AVX2(count_avx2(words, n, total));
}

int64_t
ad_vector_fill(const unsigned char *bits, int64_t at,
               const unsigned char *from, unsigned char *to, int64_t n,
               int64_t size, uint64_t value)
{
    return VECTORS_AVX2(fill_avx2(bits, at, from, to, n, size, value));
}

int64_t
ad_vector_zip(const char *a, const char *b, int64_t n, int64_t size, char *to)
{
    return VECTORS(zip_sse2(a, b, n, size, to));
}

int64_t
ad_vector_take_every_second(const char *from, char *to, int64_t n,
                            int64_t size)
{
    return VECTORS(take_sse2(from, to, n, size));
}
