/* Tables of backends, in an arrowdev whose struct has a function more than the
 * one of arrowdev_backend.h: it is of version 2, and this file of version 1. */
#include "check.h"
#include "device/backend.h"
#include "device/foreign.h"

typedef struct later_backend {
    arrowdev_backend first;
    int (*later)(void *self);
    uint64_t newest; /* which no version has */
} later_backend;

#define LATER_SIZE offsetof(later_backend, newest)

static int
count_devices(void *self, int64_t *out, arrowdev_error *error)
{
    *out = *(const int64_t *)self;
    return ARROWDEV_OK;
}

static int64_t n_devices = 3;

static later_backend
sound(size_t size, uint32_t version)
{
    return (later_backend){.first = {.size = size,
                                     .version = version,
                                     .name = "sound",
                                     .self = &n_devices,
                                     .device_count = count_devices}};
}

/* On the heap at its exact size, so that a read past the end is detected. */
static ad_status
register_exactly(int32_t type, const later_backend *table, size_t nbytes,
                 ad_error *err)
{
    arrowdev_backend *exact = malloc(nbytes);
    memcpy(exact, table, nbytes);
    ad_status status = ad_foreign_register(type, exact, false, err);
    free(exact);
    return status;
}

static void
check_works(int32_t type)
{
    const struct ad_backend *backend;
    char text[64];
    int64_t n = 0;
    CHECK_INT(ad_backend_open(type, &backend, NULL), AD_OK);
    CHECK_INT(backend->count(&n, NULL), AD_OK);
    CHECK_INT(n, n_devices);
    CHECK_INT(backend->describe(text, sizeof(text), NULL), AD_OK);
    CHECK_STR(text, "sound");
}

static void
test_table_of_the_first_version(void)
{
    const later_backend table = sound(sizeof(arrowdev_backend), 1);
    CHECK_INT(register_exactly(28, &table, table.first.size, NULL), AD_OK);
    check_works(28);
}

static void
test_table_of_the_same_version(void)
{
    const later_backend table = sound(LATER_SIZE, 2);
    CHECK_INT(register_exactly(27, &table, LATER_SIZE, NULL), AD_OK);
    check_works(27);
}

static void
test_longer_table_with_nothing_new(void)
{
    const later_backend table = sound(sizeof(table), 2);
    CHECK_INT(register_exactly(26, &table, sizeof(table), NULL), AD_OK);
    check_works(26);
}

static void
check_refused(const later_backend *table, size_t nbytes, const char *message)
{
    const struct ad_backend *backend;
    ad_error err = {0};
    CHECK_INT(register_exactly(25, table, nbytes, &err), AD_ERR_VALUE);
    CHECK_HAS(err.message, message);
    CHECK_INT(ad_backend_open(25, &backend, NULL), AD_ERR_EXCHANGE);
}

static void
test_too_short(void)
{
    const size_t size = sizeof(arrowdev_backend) - 1;
    const later_backend table = sound(size, 1);
    char expected[64];
    snprintf(expected, sizeof(expected), "is %zu, expected %zu to 4096", size,
             size + 1);
    check_refused(&table, size, expected);
}

static void
test_too_new(void)
{
    const later_backend newer = sound(LATER_SIZE, 3);
    check_refused(&newer, LATER_SIZE, "is 3, and this arrowdev knows 1 to 2");
    later_backend longer = sound(sizeof(longer), 2);
    char expected[64];
    longer.newest = 1;
    snprintf(expected, sizeof(expected), "byte %zu of the arrowdev_backend",
             LATER_SIZE);
    check_refused(&longer, sizeof(longer), expected);
}

int
main(void)
{
    const check_test tests[] = {
        CHECK_TEST(test_table_of_the_first_version),
        CHECK_TEST(test_table_of_the_same_version),
        CHECK_TEST(test_longer_table_with_nothing_new),
        CHECK_TEST(test_too_short),
        CHECK_TEST(test_too_new),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
