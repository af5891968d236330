/* A stand-in for HIP's run-time compiler. It compiles arrowdev's kernels to
 * the text by which the stand-in driver recognizes them (fakedriver/kernel.c).
 * The call that the environment variable FAKE_HIPRTC names fails with error
 * 6. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define KERNEL "AD_KERNEL void"

enum {
    FAILED = 6
};

typedef struct program {
    char *code;
    size_t size;
} program;

static int
check(const char *call)
{
    const char *failing = getenv("FAKE_HIPRTC");
    return failing != NULL && strcmp(failing, call) == 0 ? FAILED : 0;
}

EXPORT const char *
hiprtcGetErrorString(int code)
{
    return code == FAILED ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_SUCCESS";
}

EXPORT int
hiprtcCreateProgram(program **out, const char *source, const char *name,
                    int n_headers, const char **headers, const char **names)
{
    if (check(__func__) != 0) {
        return FAILED;
    }
    *out = calloc(1, sizeof(**out));
    (*out)->code = calloc(1, strlen(source) + 64);
    char *end = stpcpy((*out)->code, ".version of a stand-in\n");
    while ((source = strstr(source, KERNEL)) != NULL) {
        source += strlen(KERNEL);
        source += strspn(source, " \n");
        end +=
            sprintf(end, ".entry %.*s(\n", (int)strcspn(source, "("), source);
    }
    (*out)->size = (size_t)(end - (*out)->code) + 1;
    return 0;
}

EXPORT int
hiprtcDestroyProgram(program **program)
{
    free((*program)->code);
    free(*program);
    *program = NULL;
    return 0;
}

EXPORT int
hiprtcCompileProgram(program *program, int n_options, const char **options)
{
    return check(__func__);
}

EXPORT int
hiprtcGetProgramLogSize(program *program, size_t *out)
{
    *out = sizeof("arrowdev.hip:1: an error\nmore of it");
    return check(__func__);
}

EXPORT int
hiprtcGetProgramLog(program *program, char *out)
{
    strcpy(out, "arrowdev.hip:1: an error\nmore of it");
    return check(__func__);
}

EXPORT int
hiprtcGetCodeSize(program *program, size_t *out)
{
    *out = program->size;
    return check(__func__);
}

EXPORT int
hiprtcGetCode(program *program, char *out)
{
    memcpy(out, program->code, program->size);
    return check(__func__);
}
