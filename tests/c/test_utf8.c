/* UTF-8: comparison with a reference decoder, on allocations of the text's
 * exact size. */
#include <stdint.h>

#include "check.h"
#include "base/utf8.h"

/* Length of the first character, from its code point; 0 if it is invalid. */
static size_t
decode(const uint8_t *at, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = at[0] < 0x80             ? 1
                  : (at[0] & 0xe0) == 0xc0 ? 2
                  : (at[0] & 0xf0) == 0xe0 ? 3
                  : (at[0] & 0xf8) == 0xf0 ? 4
                                           : 0;
    if (size <= 1 || size > n) {
        return size <= n ? size : 0;
    }
    uint32_t point = at[0] & (0xff >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (at[i] & 0x3f);
    }
    bool is_surrogate = point >= 0xd800 && point < 0xe000;
    return point >= least[size] && point <= 0x10ffff && !is_surrogate ? size
                                                                      : 0;
}

static size_t
reference_prefix(const uint8_t *bytes, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t size = decode(bytes + i, n - i);
        if (size == 0) {
            break;
        }
        i += size;
    }
    return i;
}

static void
compare(const uint8_t *text, size_t n)
{
    uint8_t *exact = malloc(n > 0 ? n : 1);
    bool is_ascii = true;
    memcpy(exact, text, n);
    for (size_t i = 0; i < n; i++) {
        is_ascii = is_ascii && text[i] < 0x80;
    }
    CHECK_INT(ad_utf8_prefix(exact, n), reference_prefix(text, n));
    CHECK_INT(ad_is_ascii(exact, n), is_ascii);
    free(exact);
}

/* Every kind of byte at every position of a character, with other bytes around
 * it. */
static void
test_prefix_agrees_on_all_byte_combinations(void)
{
    static const uint8_t kinds[] = {
        0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
        0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
        0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff,
    };
    enum {
        N = sizeof(kinds)
    };
    for (int i = 0; i < N * N * N * N; i++) {
        const uint8_t text[] = {kinds[i % N], kinds[i / N % N],
                                kinds[i / N / N % N], kinds[i / N / N / N]};
        CHECK_INT(ad_utf8_prefix(text, 4), reference_prefix(text, 4));
    }
}

static const char *const words[] = {"a",
                                    "plain ",
                                    "\xc3\xa9",
                                    "\xe2\x82\xac",
                                    "\xed\x9f\xbf",
                                    "\xef\xbf\xbf",
                                    "\xf0\x9f\x98\x80",
                                    "\xf4\x8f\xbf\xbf"};

/* Texts of any length: valid ones, truncated ones, and ones with a random
 * byte. */
static void
test_prefix_agrees_on_random_texts(void)
{
    uint8_t text[400];
    srand(7);
    for (int turn = 0; turn < 20000; turn++) {
        size_t limit = (size_t)rand() % 380;
        size_t n = 0;
        bool is_plain = turn % 3 == 0;
        while (n < limit) {
            const char *word = words[rand() % (is_plain ? 2 : 8)];
            memcpy(text + n, word, strlen(word));
            n += strlen(word);
        }
        compare(text, n);
        if (n > 0) {
            compare(text, n - 1 - (size_t)rand() % (n < 4 ? n : 4));
            text[(size_t)rand() % n] = (uint8_t)rand();
            compare(text, n);
        }
    }
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_prefix_agrees_on_all_byte_combinations),
        CHECK_TEST(test_prefix_agrees_on_random_texts),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
