#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* 16 bytes at any address; the compiler chooses the registers. */
typedef uint64_t words_2
    __attribute__((vector_size(16), aligned(1), may_alias));

#define HIGH_BITS 0x8080808080808080u

static inline uint64_t
word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

bool
ad_is_ascii(const void *bytes, size_t n)
{
    const char *at = bytes;
    words_2 all = {0, 0};
    for (; n >= 64; at += 64, n -= 64) {
        const words_2 *words = (const words_2 *)at;
        all |= (words[0] | words[1]) | (words[2] | words[3]);
    }
    uint64_t rest = all[0] | all[1];
    for (; n >= 8; at += 8, n -= 8) {
        rest |= word_at(at);
    }
    if (at - (const char *)bytes >= 8) {
        rest |= word_at(at + n - 8); /* overlaps the bytes before `at` */
        n = 0;
    }
    for (; n > 0; at++, n--) {
        rest |= (unsigned char)*at;
    }
    return (rest & HIGH_BITS) == 0;
}

/* --- validation ---------------------------------------------------------- */

/* A shift-based automaton: each byte has a word, and a state is the bit
 * position of its successor in that word. One byte costs one shift and no
 * branch. */
enum {
    BROKEN = 0, /* final: a transition that no word has gives 0 */
    WHOLE = 6,
    NEED_1 = 12,
    NEED_2 = 18,
    NEED_3 = 24,
    AFTER_E0 = 30,
    AFTER_ED = 36,
    AFTER_F0 = 42,
    AFTER_F4 = 48,
};

#define FROM(state, next) ((uint64_t)(next) << (state))
#define CONTINUE                                                              \
    (FROM(NEED_1, WHOLE) | FROM(NEED_2, NEED_1) | FROM(NEED_3, NEED_2))

static const uint64_t words[256] = {
    [0x00 ... 0x7f] = FROM(WHOLE, WHOLE),
    [0x80 ... 0x8f] =
        CONTINUE | FROM(AFTER_ED, NEED_1) | FROM(AFTER_F4, NEED_2),
    [0x90 ... 0x9f] =
        CONTINUE | FROM(AFTER_ED, NEED_1) | FROM(AFTER_F0, NEED_2),
    [0xa0 ... 0xbf] =
        CONTINUE | FROM(AFTER_E0, NEED_1) | FROM(AFTER_F0, NEED_2),
    [0xc2 ... 0xdf] = FROM(WHOLE, NEED_1),
    [0xe0] = FROM(WHOLE, AFTER_E0),
    [0xe1 ... 0xec] = FROM(WHOLE, NEED_2),
    [0xed] = FROM(WHOLE, AFTER_ED),
    [0xee ... 0xef] = FROM(WHOLE, NEED_2),
    [0xf0] = FROM(WHOLE, AFTER_F0),
    [0xf1 ... 0xf3] = FROM(WHOLE, NEED_3),
    [0xf4] = FROM(WHOLE, AFTER_F4),
};

static inline uint64_t
run(uint64_t state, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        state = words[bytes[i]] >> (state & 63);
    }
    return state & 63;
}

#define AT_ONCE 64

/* Whether the bytes from at[0] on are valid after the bytes before them, of
 * which up to three matter. The number of iterations is constant, so compilers
 * vectorize the loop. */
static bool
follow(const uint8_t *at)
{
    uint8_t broken = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        uint8_t byte = at[i];
        uint8_t before = at[i - 1];
        uint8_t is_asked_for =
            (before >= 0xc0) | (at[i - 2] >= 0xe0) | (at[i - 3] >= 0xf0);
        uint8_t continues = (byte & 0xc0) == 0x80;
        broken |= is_asked_for ^ continues;
        broken |= (byte == 0xc0) | (byte == 0xc1) | (byte > 0xf4);
        broken |= (before == 0xe0) & (byte < 0xa0);
        broken |= (before == 0xed) & (byte > 0x9f);
        broken |= (before == 0xf0) & (byte < 0x90);
        broken |= (before == 0xf4) & (byte > 0x8f);
    }
    return broken == 0;
}

static bool
continues(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

static size_t
unfinished(const uint8_t *end)
{
    size_t n = 1;
    while (n < 4 && continues(end[-(ptrdiff_t)n])) {
        n++;
    }
    return n;
}

/* The state after all bytes; WHOLE where they are valid. */
static uint64_t
state_after(const uint8_t *bytes, size_t n)
{
    size_t i = 3;
    if (n < AT_ONCE + 3) {
        return ad_is_ascii(bytes, n) ? WHOLE : run(WHOLE, bytes, n);
    }
    if (run(WHOLE, bytes, 3) == BROKEN) {
        return BROKEN;
    }
    for (; n - i >= AT_ONCE; i += AT_ONCE) {
        if (!ad_is_ascii(bytes + i - 3, AT_ONCE + 3) && !follow(bytes + i)) {
            return BROKEN;
        }
    }
    i -= unfinished(bytes + i);
    return run(WHOLE, bytes + i, n - i);
}

size_t
ad_utf8_prefix(const void *bytes, size_t n)
{
    const uint8_t *start = bytes;
    size_t n_valid = 0;
    if (state_after(start, n) == WHOLE) {
        return n;
    }
    uint64_t state = WHOLE;
    for (size_t i = 0; i < n && state != BROKEN; i++) {
        state = run(state, start + i, 1);
        if (state == WHOLE) {
            n_valid = i + 1;
        }
    }
    return n_valid;
}
