/* libDPCTLSyclInterface.so with functions that can be made to fail. They then
 * return NULL, 0 or false, as dpctl's do. All others jump to the real library,
 * whose path is in the environment variable REAL_SYCL_LIBRARY. */
#include "abi/sycl_api.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define JUMP(name) "jmp *slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name)                                                            \
    "adrp x16, slot_" #name "\nldr x16, [x16, :lo12:slot_" #name "]\nbr x16\n"
#else
#error "no jump for this machine"
#endif

#define AD_SYCL(name, need, result, parameters)                               \
    __attribute__((visibility("hidden"), used)) void *slot_##name;            \
    __asm__(".globl DPCTL" #name "\n.type DPCTL" #name                        \
            ", %function\nDPCTL" #name ":\n" JUMP(name));
#include "abi/sycl_api.def"
#undef AD_SYCL

static const struct {
    const char *name;
    void **slot;
} slots[] = {
#define AD_SYCL(name, need, result, parameters) {#name, &slot_##name},
#include "abi/sycl_api.def"
#undef AD_SYCL
};

static void *real;

static void *
fail(void)
{
    return NULL;
}

/* Make the function DPCTL<name> fail, or work again. Returns 0 if there is no
 * such function. */
int
failing_sycl_set(const char *name, int fails)
{
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        if (strcmp(slots[i].name, name) == 0) {
            char exported[128];
            snprintf(exported, sizeof(exported), "DPCTL%s", name);
            *slots[i].slot =
                fails ? (void *)(uintptr_t)fail : dlsym(real, exported);
            return 1;
        }
    }
    return 0;
}

__attribute__((constructor)) static void
start(void)
{
    const char *names = getenv("FAILING_SYCL");
    real = dlopen(getenv("REAL_SYCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (real == NULL) {
        fprintf(stderr, "failing_sycl: %s\n", dlerror());
        abort();
    }
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        failing_sycl_set(slots[i].name,
                         names != NULL && strcmp(names, slots[i].name) == 0);
    }
}
