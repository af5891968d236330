/* The smallest harness: plain checks, a list of tests, and allocations that
 * can be made to fail in turn. Every test_*.c in this folder is a program.
 *
 * Built with -Wl,--wrap=malloc and friends (see tests/project/test_core_c.py), so that
 * check_fail_nth(n) makes the n-th allocation from now on return NULL.
 */
#ifndef AD_TESTS_CHECK_H
#define AD_TESTS_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s: check failed: %s\n", __FILE__,        \
                    __LINE__, __func__, #condition);                          \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

#define CHECK_INT(found, expected)                                            \
    do {                                                                      \
        long long found_ = (long long)(found);                                \
        long long expected_ = (long long)(expected);                          \
        if (found_ != expected_) {                                            \
            fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__,    \
                    __LINE__, __func__, #found, found_, expected_);           \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

#define CHECK_STR(found, expected)                                            \
    do {                                                                      \
        const char *found_ = (found);                                         \
        if (strcmp(found_, (expected)) != 0) {                                \
            fprintf(stderr, "%s:%d: %s: %s is \"%s\", not \"%s\"\n",          \
                    __FILE__, __LINE__, __func__, #found, found_,             \
                    (expected));                                              \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

/* Found text contains the expected text. */
#define CHECK_HAS(found, expected)                                            \
    do {                                                                      \
        const char *found_ = (found);                                         \
        if (strstr(found_, (expected)) == NULL) {                             \
            fprintf(stderr, "%s:%d: %s: %s is \"%s\", without \"%s\"\n",      \
                    __FILE__, __LINE__, __func__, #found, found_,             \
                    (expected));                                              \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

/* clang-format off */
#define CHECK_TEST(name) {#name, name}
/* clang-format on */

/* Run the tests, print one line each, return the exit status of main. */
int check_run(const check_test *tests, size_t n_tests);

/* Make the n-th allocation from now on fail (1 = the next); 0 = none. */
void check_fail_nth(long n);

/* The armed failure has happened. */
bool check_failed_once(void);

#endif /* AD_TESTS_CHECK_H */
