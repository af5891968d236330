/* A CUDA driver and a HIP runtime in which nothing works, like the library in
 * the folder "stubs" of the CUDA toolkit. Every function that arrowdev uses
 * exists and only returns a code. GPU_STUB sets the codes, as in
 * "cuInit=100,*=34"; the default is 0. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int
code_of(const char *name)
{
    const char *entry = getenv("GPU_STUB");
    while (entry != NULL && *entry != '\0') {
        size_t length = strcspn(entry, "=");
        if (*entry == '*' ||
            (length == strlen(name) && memcmp(entry, name, length) == 0)) {
            return atoi(entry + length + 1);
        }
        entry += strcspn(entry, ",");
        entry += *entry == ',';
    }
    return 0;
}

#define STUB(member, exported)                                                \
    int member(void) __asm__(exported);                                       \
    __attribute__((visibility("default"))) int member(void)                   \
    {                                                                         \
        return code_of(exported);                                             \
    }

#define AD_CUDA_COMMON(member, exported, need, parameters)                    \
    STUB(cuda_##member, exported)
#define AD_CUDA(member, exported, need, parameters)                           \
    STUB(cuda_##member, exported)
#include "abi/cuda_api.def"

#define AD_HIP_COMMON(member, exported, need, parameters)                     \
    STUB(hip_##member, exported)
#define AD_HIP(member, exported, need, parameters) STUB(hip_##member, exported)
#define AD_HIP_RETURNS(result, member, exported, need, parameters)            \
    result named_##member parameters __asm__(exported);
#include "abi/hip_api.def"

const char *
named_error_name(int code)
{
    return code == 999 ? "hipErrorUnknown" : NULL;
}
