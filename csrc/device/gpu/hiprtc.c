#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/dynlib.h"
#include "device/gpu/gpu.h"

struct hiprtc_calls {
#define AD_HIPRTC(member, exported, result, parameters)                       \
    result(*member) parameters;
#include "abi/hiprtc_api.def"
};

static const ad_symbol symbols[] = {
#define AD_HIPRTC(member, exported, result, parameters)                       \
    {exported, offsetof(struct hiprtc_calls, member), AD_REQUIRED},
#include "abi/hiprtc_api.def"
};

/* Before ROCm 5.3 the compiler was part of the runtime. */
static const char *const sonames[] = {
    "libhiprtc.so",     "libhiprtc.so.7",   "libhiprtc.so.6", "libhiprtc.so.5",
    "libamdhip64.so.5", "libamdhip64.so.4", "libamdhip64.so", NULL,
};

static const ad_library library = {
    .name = "hiprtc",
    .sonames = sonames,
    .symbols = symbols,
    .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

static struct hiprtc_calls hiprtc;
static ad_error load_error;
static ad_status load_status;

static void
load(void)
{
    load_status = ad_library_load(&library, &hiprtc, NULL, &load_error);
}

/* The first line of the compiler's log, or "". */
static void
read_log(void *program, char *buffer, size_t size)
{
    size_t length = 0;
    buffer[0] = '\0';
    if (hiprtc.log_size(program, &length) != 0 || length == 0) {
        return;
    }
    char *log = calloc(1, length + 1);
    if (log != NULL && hiprtc.log(program, log) == 0) {
        log[strcspn(log, "\n")] = '\0';
        strncat(buffer, log, size - 1);
    }
    free(log);
}

static ad_status
fail(const char *call, int code, const char *log, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "kernel",
            "copy the data to the host first with .to(\"cpu\")",
            "arrowdev's kernels cannot be built for this device: %s failed: "
            "%s (%d)%s%s",
            call, hiprtc.error_string(code), code, log[0] != '\0' ? ": " : "",
            log);
    if (err != NULL) {
        err->code = code;
    }
    return AD_ERR_EXCHANGE;
}

static ad_status
compile(void *program, void **out, ad_error *err)
{
    char log[256];
    size_t size = 0;
    int code = hiprtc.program_compile(program, 0, NULL);
    if (code != 0) {
        read_log(program, log, sizeof(log));
        return fail("hiprtcCompileProgram", code, log, err);
    }
    code = hiprtc.code_size(program, &size);
    if (code != 0) {
        return fail("hiprtcGetCodeSize", code, "", err);
    }
    *out = malloc(size);
    if (*out == NULL) {
        return ad_fail_memory(err, size);
    }
    code = hiprtc.code(program, *out);
    if (code != 0) {
        free(*out);
        *out = NULL;
        return fail("hiprtcGetCode", code, "", err);
    }
    return AD_OK;
}

ad_status
ad_hiprtc_build(const char *source, void **out, ad_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *program = NULL;
    pthread_once(&once, load);
    if (load_status != AD_OK) {
        return ad_fail(err, AD_ERR_EXCHANGE, "kernel",
                       "install ROCm's libhiprtc, or copy the data to the "
                       "host first with .to(\"cpu\")",
                       "arrowdev's kernels cannot be built: %s",
                       load_error.message);
    }
    int code =
        hiprtc.program_create(&program, source, "arrowdev.hip", 0, NULL, NULL);
    if (code != 0) {
        return fail("hiprtcCreateProgram", code, "", err);
    }
    ad_status status = compile(program, out, err);
    (void)hiprtc.program_destroy(&program);
    return status;
}
