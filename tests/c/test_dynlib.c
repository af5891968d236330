/* Loading a runtime's library: where it is looked for, and what a failure
 * says. The library with cos() plays the
 * runtime. */

#include "device/dynlib.h"

#ifdef __linux__
#include <dlfcn.h>
#endif
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

typedef struct api {
    double (*cosine)(double);
    void (*missing)(void);
} api;

#ifdef _WIN32
#define LIBRARY "msvcrt.dll"
#define STEM "msvcrt"
#else
#define LIBRARY "libm.so.6"
#define STEM "libm"
#endif

static const char *const sonames[] = {"libad-not-here.so.1", LIBRARY, NULL};
static const char *const nowhere[] = {"libad-not-here.so.1",
                                      "libad-not-there.so", NULL};

static const ad_symbol symbols[] = {
    {"cos", offsetof(api, cosine), AD_REQUIRED},
    {"ad_no_such_symbol", offsetof(api, missing), AD_OPTIONAL},
};
static const ad_symbol too_many[] = {
    {"cos", offsetof(api, cosine), AD_REQUIRED},
    {"ad_no_such_symbol", offsetof(api, missing), AD_REQUIRED},
};

/* "NAME=value"; without a value as good as unset. */
static void
set(const char *variable)
{
    static char kept[4][64];
    static int at;
    at = (at + 1) % 4;
    CHECK(strlen(variable) < sizeof(kept[0]));
    strcpy(kept[at], variable);
    CHECK_INT(putenv(kept[at]), 0);
}

static ad_status
load(const char *const *names, const ad_symbol *list, api *out, char *path,
     ad_error *err)
{
    const ad_library library = {
        .name = "mock", .sonames = names, .symbols = list, .n_symbols = 2};
    return ad_library_load(&library, out, path, err);
}

static void
test_symbols_are_found(void)
{
    void (*junk)(void) = (void (*)(void))test_symbols_are_found;
    api found = {.missing = junk};
    char path[AD_LIBRARY_PATH_SIZE];
    set("ARROWDEV_MOCK_LIBRARY=");
    CHECK_INT(load(sonames, symbols, &found, path, NULL), AD_OK);
    CHECK(found.cosine(0.0) == 1.0);
    CHECK(found.missing == NULL);
    CHECK_HAS(path, STEM);
}

static void
test_missing_symbol_names_itself(void)
{
    api found;
    ad_error err;
    CHECK_INT(load(sonames, too_many, &found, NULL, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "runtime");
    CHECK_HAS(err.message, "has no symbol \"ad_no_such_symbol\", which the "
                           "mock backend needs");
    CHECK_HAS(err.message, STEM);
}

static void
test_all_failures_are_told(void)
{
    api found;
    ad_error err;
    CHECK_INT(load(nowhere, symbols, &found, NULL, &err), AD_ERR_EXCHANGE);
    CHECK_STR(err.reason, "runtime");
    CHECK_HAS(err.message, "the mock runtime cannot be loaded");
    CHECK_HAS(err.message, "libad-not-here.so.1");
    CHECK_HAS(err.message, "libad-not-there.so");
    CHECK_HAS(err.hint, "ARROWDEV_MOCK_LIBRARY");
}

static void
test_variable_overrides(void)
{
    api found;
    ad_error err;
    set("ARROWDEV_MOCK_LIBRARY=" LIBRARY);
    CHECK_INT(load(nowhere, symbols, &found, NULL, NULL), AD_OK);
    /* What it names is not there: nothing else is tried. */
    set("ARROWDEV_MOCK_LIBRARY=/nonexistent/libmock.so");
    CHECK_INT(load(sonames, symbols, &found, NULL, &err), AD_ERR_EXCHANGE);
    CHECK_HAS(err.message, "ARROWDEV_MOCK_LIBRARY");
    CHECK_HAS(err.message, "/nonexistent/libmock.so");
    CHECK_HAS(err.hint, "unset ARROWDEV_MOCK_LIBRARY");
    set("ARROWDEV_MOCK_LIBRARY=");
    CHECK_INT(load(sonames, symbols, &found, NULL, NULL), AD_OK);
    set("ARROWDEV_MOCK_LIBRARY=");
}

#ifdef __linux__

/* Two copies of a runtime in one process do not know each other's streams. */
static void
test_library_of_a_wheel_is_found(void)
{
    static const char *const renamed[] = {"libad-mock.so", NULL};
    char folder[] = "/tmp/ad-dynlib-XXXXXX";
    char target[64], command[256], path[AD_LIBRARY_PATH_SIZE];
    api found;
    ad_error err;
    ad_library library = {.name = "mock",
                          .sonames = renamed,
                          .symbols = symbols,
                          .n_symbols = 2,
                          .is_in_wheels = true};
    CHECK_INT(load(sonames, symbols, &found, path, NULL), AD_OK);
    CHECK(mkdtemp(folder) != NULL);
    snprintf(target, sizeof(target), "%s/libad-mock-1a2b3c.so.6", folder);
    CHECK(snprintf(command, sizeof(command), "cp '%s' '%s'", path, target) <
          (int)sizeof(command));
    CHECK_INT(system(command), 0);
    /* The file alone does not suffice: it has to be in the process. */
    CHECK_INT(ad_library_load(&library, &found, NULL, &err), AD_ERR_EXCHANGE);
    CHECK(dlopen(target, RTLD_NOW | RTLD_LOCAL) != NULL);
    CHECK_INT(ad_library_load(&library, &found, path, &err), AD_OK);
    CHECK_STR(path, target);
    CHECK(found.cosine(0.0) == 1.0);
    library.is_in_wheels = false;
    CHECK_INT(ad_library_load(&library, &found, path, &err), AD_ERR_EXCHANGE);
    CHECK_INT(remove(target), 0);
    CHECK_INT(remove(folder), 0);
}

#endif

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_symbols_are_found),
        CHECK_TEST(test_missing_symbol_names_itself),
        CHECK_TEST(test_all_failures_are_told),
        CHECK_TEST(test_variable_overrides),
#ifdef __linux__
        CHECK_TEST(test_library_of_a_wheel_is_found),
#endif
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
