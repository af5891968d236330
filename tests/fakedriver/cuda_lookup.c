/* cuGetProcAddress, twins, and stubs for missing functions. */
#include "cuda_face.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "controls.h"

const fd_face fd_face_here = {
    .visible = "CUDA_VISIBLE_DEVICES",
    .refuses_in_host_function = true,
};

/* --- twins: NULL is the per-thread default stream ------------------------------ */

#define FD_PLAIN(name, version, symbol, parameters)
#define FD_OLD(name, version)
#define FD_TWIN(name, version, symbol, suffix, parameters, arguments)         \
    int symbol##suffix parameters                                             \
    {                                                                         \
        fd_null_is_per_thread++;                                              \
        int code = symbol arguments;                                          \
        fd_null_is_per_thread--;                                              \
        return code;                                                          \
    }
#include "cuda_functions.def"
#undef FD_PLAIN
#undef FD_OLD
#undef FD_TWIN

/* --- the table ------------------------------------------------------------------- */

typedef void (*function)(void);

typedef struct entry {
    const char *name;
    int version;
    function plain; /* NULL: an unsupported ABI */
    function twin;
} entry;

#define FD_PLAIN(name, version, symbol, parameters)                           \
    {#name, version, (function)symbol, NULL},
#define FD_TWIN(name, version, symbol, suffix, parameters, arguments)         \
    {#name, version, (function)symbol, (function)symbol##suffix},
#define FD_OLD(name, version) {#name, version, NULL, NULL},
static const entry entries[] = {
#include "cuda_functions.def"
};
#undef FD_PLAIN
#undef FD_OLD
#undef FD_TWIN

/* --- stubs ------------------------------------------------------------------------- */

/* Each missing name that is looked up gets its own function, which knows the
 * name: a caller gets 801, and the test finds the function's name. */
#define STUBS_8(X, n)                                                         \
    X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define STUBS_64(X, n)                                                        \
    STUBS_8(X, n##0)                                                          \
    STUBS_8(X, n##1)                                                          \
    STUBS_8(X, n##2)                                                          \
    STUBS_8(X, n##3)                                                          \
    STUBS_8(X, n##4) STUBS_8(X, n##5) STUBS_8(X, n##6) STUBS_8(X, n##7)
#define STUBS(X)                                                              \
    STUBS_64(X, 00)                                                           \
    STUBS_64(X, 01)                                                           \
    STUBS_64(X, 02)                                                           \
    STUBS_64(X, 03)                                                           \
    STUBS_64(X, 04)                                                           \
    STUBS_64(X, 05)                                                           \
    STUBS_64(X, 06)                                                           \
    STUBS_64(X, 07)                                                           \
    STUBS_64(X, 010) STUBS_64(X, 011) STUBS_64(X, 012) STUBS_64(X, 013)

static char *stub_names[0x300];

/* The numbers are octal, so that macros can paste them together. */
#define DEFINE(n)                                                             \
    static int stub_##n(void)                                                 \
    {                                                                         \
        fd_log_stub(stub_names[n]);                                           \
        return FD_NOT_SUPPORTED;                                              \
    }
#define POINT(n) [n] = stub_##n,

STUBS(DEFINE)
static int (*const stubs[])(void) = {STUBS(POINT)};

static pthread_mutex_t stubs_lock = PTHREAD_MUTEX_INITIALIZER;

static function
stub_for(const char *name)
{
    function found = NULL;
    pthread_mutex_lock(&stubs_lock);
    for (size_t i = 0; i < sizeof(stubs) / sizeof(stubs[0]); i++) {
        if (stub_names[i] == NULL) {
            stub_names[i] = strdup(name);
        }
        if (stub_names[i] != NULL && strcmp(stub_names[i], name) == 0) {
            found = (function)stubs[i];
            break;
        }
    }
    pthread_mutex_unlock(&stubs_lock);
    return found;
}

/* --- look-up ---------------------------------------------------------------------- */

enum {
    FLAG_PER_THREAD = 2,
    FOUND = 0,
    FOUND_NOTHING = 1,
    FOUND_NEWER = 2
};

static const entry *
find(const char *name, int version, int *found)
{
    const entry *best = NULL;
    *found = FOUND_NOTHING;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const entry *e = &entries[i];
        if (strcmp(e->name, name) != 0) {
            continue;
        }
        if (e->version > version || e->version > fd_version()) {
            *found = *found == FOUND ? FOUND : FOUND_NEWER;
        } else if (best == NULL || e->version > best->version) {
            best = e;
            *found = FOUND;
        }
    }
    return best;
}

int
cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                    int *found)
{
    int state;
    const entry *e = find(name, version, &state);
    function result = NULL;
    if (e != NULL && e->plain != NULL) {
        bool wants_twin = (flags & FLAG_PER_THREAD) != 0 && e->twin != NULL;
        result = wants_twin ? e->twin : e->plain;
    } else if (state != FOUND_NEWER && strncmp(name, "cu", 2) == 0) {
        result = stub_for(name);
        state = FOUND;
    }
    if (found != NULL) {
        *found = state;
    }
    *out = (void *)result;
    return result != NULL || found != NULL ? FD_OK : FD_NOT_FOUND;
}
