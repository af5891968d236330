/* Tests the slots of the CUDA or HIP backend with the library that is found: a
 * stand-in driver or a GPU's driver. Argument: "cuda" or "rocm". A separate
 * program, see test_gpu_backend.py. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/backend.h"

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: check failed: %s: %s\n", __FILE__,        \
                    __LINE__, #condition, error.message);                     \
            exit(1);                                                          \
        }                                                                     \
    } while (0)
#define OK(call) CHECK((call) == AD_OK)

static ad_error error;
static const struct ad_backend *gpu;
static ad_device first;
static int64_t n_devices;

/* --- the runtime as the calling program sees it -------------------------- */

static void *library;
static bool is_hip;

static void *
symbol(const char *cuda, const char *hip)
{
    return dlsym(library, is_hip ? hip : cuda);
}

static void
open_library(void)
{
    const char *path =
        getenv(is_hip ? "ARROWDEV_HIP_LIBRARY" : "ARROWDEV_CUDA_LIBRARY");
    const char *name = is_hip ? "libamdhip64.so" : "libcuda.so.1";
    library = dlopen(path != NULL ? path : name, RTLD_NOW);
    CHECK(library != NULL);
}

/* The current context, or device. */
static void *
now_current(void)
{
    int (*get)(void *) =
        (int (*)(void *))symbol("cuCtxGetCurrent", "hipGetDevice");
    void *found = NULL;
    CHECK(get != NULL && get(&found) == 0);
    return found;
}

static void
make_current(int64_t id)
{
    ad_context context;
    OK(gpu->primary_context((ad_device){first.type, id}, &context, &error));
    if (is_hip) {
        int (*set)(int) = (int (*)(int))symbol("", "hipSetDevice");
        CHECK(set((int)id) == 0);
    } else {
        int (*set)(void *) = (int (*)(void *))symbol("cuCtxSetCurrent", "");
        CHECK(set(context.handle) == 0);
    }
}

/* --- helpers ------------------------------------------------------------- */

enum {
    N = 1 << 16
};

static ad_context
primary_of(int64_t id)
{
    ad_context context;
    OK(gpu->primary_context((ad_device){first.type, id}, &context, &error));
    return context;
}

static ad_stream
new_stream(ad_context context)
{
    ad_stream stream;
    OK(gpu->stream_create(context, &stream, &error));
    CHECK(stream.handle > 2);
    return stream;
}

static ad_span
new_memory(ad_context context, ad_stream stream, size_t nbytes)
{
    ad_span span = {.context = context};
    OK(gpu->allocate(context, stream, nbytes, &span.data, &error));
    CHECK(((uintptr_t)span.data & 63) == 0);
    return span;
}

static ad_span
on_host(void *data)
{
    return (ad_span){.context = {AD_CPU, NULL}, .data = data};
}

static void
copy(ad_context context, ad_stream stream, ad_span target, ad_span source,
     size_t nbytes)
{
    const ad_block_copy run = {target, source, nbytes, 1, 0, 0};
    OK(gpu->copy(context, stream, &run, &error));
}

static unsigned char *
pattern(size_t n, unsigned seed)
{
    unsigned char *bytes = malloc(n);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (unsigned char)(i * 31 + i / 251 + seed);
    }
    return bytes;
}

static ad_stream
default_stream(void)
{
    return (ad_stream){is_hip ? AD_STREAM_NULL : AD_STREAM_LEGACY};
}

/* Wait for the work on the stream. */
static void
finish(ad_context context, ad_stream stream)
{
    ad_event event = {NULL};
    OK(gpu->event_record(context, stream, &event, &error));
    OK(gpu->event_synchronize(context, event, &error));
    gpu->event_destroy(context, event);
}

/* Polls until the event is done, for a limited time. */
static void
until_done(ad_context context, ad_event event)
{
    for (int i = 0; i < 20000; i++) {
        bool is_done;
        OK(gpu->event_query(context, event, &is_done, &error));
        if (is_done) {
            return;
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    CHECK(!"the event is never done");
}

/* --- tests --------------------------------------------------------------- */

static void
test_devices(void)
{
    char text[256];
    ad_context context;
    OK(gpu->describe(text, sizeof(text), &error));
    printf("%s\n", text);
    OK(gpu->device_name(0, text, sizeof(text), &error));
    CHECK(strlen(text) > 0);
    printf("%s, %d device(s)\n", text, (int)n_devices);
    CHECK(gpu->device_name(n_devices, text, sizeof(text), &error) ==
          AD_ERR_EXCHANGE);
    CHECK(gpu->primary_context((ad_device){first.type, n_devices}, &context,
                               &error) == AD_ERR_EXCHANGE);
    CHECK(strcmp(error.reason, "device") == 0);
    CHECK(gpu->primary_context((ad_device){first.type, -1}, &context,
                               &error) == AD_ERR_EXCHANGE);
    ad_context primary = primary_of(0);
    CHECK(ad_context_equal(primary, primary_of(0)));
}

static void
test_there_and_back(void)
{
    ad_context context = primary_of(0);
    ad_stream stream = new_stream(context);
    ad_span memory = new_memory(context, stream, N);
    unsigned char *out = pattern(N, 1), *in = calloc(1, N);
    ad_event event = {NULL};
    copy(context, stream, memory, on_host(out), N);
    copy(context, stream, on_host(in), memory, N);
    OK(gpu->event_record(context, stream, &event, &error));
    CHECK(event.handle != NULL);
    OK(gpu->event_synchronize(context, event, &error));
    CHECK(memcmp(in, out, N) == 0);

    /* Copy a part, and record the same event again. */
    void *same = event.handle;
    ad_span part = memory;
    part.offset = 1000;
    memset(in, 0, N);
    copy(context, stream, on_host(in), part, 17);
    OK(gpu->event_record(context, stream, &event, &error));
    CHECK(event.handle == same);
    until_done(context, event);
    CHECK(memcmp(in, out + 1000, 17) == 0 && in[17] == 0);

    /* An event with an unknown context. */
    const ad_context unknown = {context.device, NULL};
    OK(gpu->event_synchronize(unknown, event, &error));
    until_done(unknown, event);

    gpu->event_destroy(context, event);
    gpu->deallocate(context, stream, memory.data, N);
    finish(context, stream);
    OK(gpu->synchronize(context, &error));
    gpu->stream_destroy(context, stream);
    free(out);
    free(in);
}

static void
test_rows(void)
{
    enum {
        ROWS = 37,
        WIDTH = 29,
        PITCH = 64,
        TIGHT = 31
    };
    ad_context context = primary_of(0);
    ad_stream stream = new_stream(context);
    ad_span a = new_memory(context, stream, ROWS * PITCH);
    ad_span b = new_memory(context, stream, ROWS * TIGHT);
    unsigned char *out = pattern(ROWS * PITCH, 2), *in = calloc(ROWS, WIDTH);
    ad_block_copy block = {a, on_host(out), WIDTH, ROWS, PITCH, PITCH};
    OK(gpu->copy(context, stream, &block, &error));
    block = (ad_block_copy){b, a, WIDTH, ROWS, TIGHT, PITCH};
    OK(gpu->copy(context, stream, &block, &error));
    block = (ad_block_copy){on_host(in), b, WIDTH, ROWS, WIDTH, TIGHT};
    OK(gpu->copy(context, stream, &block, &error));
    finish(context, stream);
    for (int row = 0; row < ROWS; row++) {
        CHECK(memcmp(in + row * WIDTH, out + row * PITCH, WIDTH) == 0);
    }
    block.width = 0;
    OK(gpu->copy(context, stream, &block, &error));
    gpu->deallocate(context, stream, a.data, ROWS * PITCH);
    gpu->deallocate(context, stream, b.data, ROWS * TIGHT);
    gpu->stream_destroy(context, stream);
    free(out);
    free(in);
}

static void
test_order_of_streams(void)
{
    ad_context context = primary_of(0);
    ad_context other = primary_of(n_devices - 1);
    ad_stream one = new_stream(context), two = new_stream(other);
    ad_span memory = new_memory(context, one, N);
    unsigned char *out = pattern(N, 3), *in = calloc(1, N);
    ad_event ready = {NULL}, done = {NULL};
    copy(context, one, memory, on_host(out), N);
    OK(gpu->event_record(context, one, &ready, &error));
    OK(gpu->stream_wait(other, two, ready, &error));
    OK(gpu->event_record(other, two, &done, &error));
    gpu->event_destroy(context, ready);
    OK(gpu->stream_wait(context, one, done, &error));
    copy(context, one, on_host(in), memory, N);
    finish(context, one);
    CHECK(memcmp(in, out, N) == 0);
    gpu->event_destroy(other, done);
    gpu->deallocate(context, one, memory.data, N);
    gpu->stream_destroy(context, one);
    gpu->stream_destroy(other, two);
    free(out);
    free(in);
}

static void
test_peers(void)
{
    enum {
        ROWS = 16,
        PITCH = N / ROWS,
        WIDTH = PITCH - 5
    };
    if (n_devices < 2) {
        printf("one device: no peers\n");
        return;
    }
    ad_context a = primary_of(0), b = primary_of(1);
    ad_stream stream_a = new_stream(a), stream_b = new_stream(b);
    ad_span on_a = new_memory(a, stream_a, N),
            on_b = new_memory(b, stream_b, N);
    unsigned char *out = pattern(N, 4), *in = calloc(1, N);
    copy(a, stream_a, on_a, on_host(out), N);
    finish(a, stream_a);
    /* Pool memory does not name its context. */
    on_a.context.handle = NULL;
    copy(b, stream_b, on_b, on_a, N);
    copy(b, stream_b, on_host(in), on_b, N);
    finish(b, stream_b);
    CHECK(memcmp(in, out, N) == 0);

    memset(in, 0, N);
    copy(b, stream_b, on_b, on_host(in), N);
    const ad_block_copy block = {on_b, on_a, WIDTH, ROWS, PITCH, PITCH};
    OK(gpu->copy(b, stream_b, &block, &error));
    copy(b, stream_b, on_host(in), on_b, N);
    finish(b, stream_b);
    for (int row = 0; row < ROWS; row++) {
        CHECK(memcmp(in + row * PITCH, out + row * PITCH, WIDTH) == 0);
        CHECK(in[row * PITCH + WIDTH] == 0);
    }
    gpu->deallocate(a, stream_a, on_a.data, N);
    gpu->deallocate(b, stream_b, on_b.data, N);
    gpu->stream_destroy(a, stream_a);
    gpu->stream_destroy(b, stream_b);
    free(out);
    free(in);
}

static void
check_kind(int64_t id, int32_t type, ad_memory_kind kind)
{
    ad_context context;
    ad_memory_info info;
    OK(gpu->primary_context((ad_device){type, id}, &context, &error));
    CHECK(context.device.type == type);
    ad_stream stream = new_stream(context);
    ad_span memory = new_memory(context, stream, N);
    const char *inner = (const char *)memory.data + 100;
    OK(gpu->classify(inner, context, &info, &error));
    CHECK(info.kind == kind);
    CHECK(ad_device_equal(info.context.device, context.device));
    CHECK(info.host_accessible == (kind != AD_MEMORY_DEVICE));
    if (info.host_accessible) {
        memset(memory.data, 1, N);
    }
    gpu->deallocate(context, stream, memory.data, N);
    gpu->stream_destroy(context, stream);
}

static void
test_pointers(void)
{
    ad_memory_info info;
    int64_t last = n_devices - 1;
    unsigned char *host = pattern(N, 5);
    check_kind(last, gpu->device_types[0], AD_MEMORY_DEVICE);
    check_kind(0, gpu->device_types[1], AD_MEMORY_PINNED);
    if (gpu->device_types[2] != 0) {
        check_kind(0, gpu->device_types[2], AD_MEMORY_MANAGED);
    }
    const void *unknown[] = {host, &info, NULL, (void *)&test_pointers};
    for (size_t i = 0; i < 4; i++) {
        OK(gpu->classify(unknown[i], primary_of(0), &info, &error));
        CHECK(info.kind == AD_MEMORY_UNREGISTERED);
        CHECK(!info.host_accessible);
    }
    free(host);
}

static void
test_contexts_of_streams(void)
{
    ad_context found;
    int64_t last = n_devices - 1;
    ad_context primary = primary_of(last);
    ad_stream stream = new_stream(primary);
    const ad_context not_said = {{first.type, -1}, NULL};
    const ad_context pinned = {{gpu->device_types[1], 0}, NULL};
    OK(gpu->stream_context(stream, primary, &found, &error));
    CHECK(ad_context_equal(found, primary));
    OK(gpu->stream_context(stream, not_said, &found, &error));
    CHECK(ad_context_equal(found, primary));
    OK(gpu->stream_context(stream, pinned, &found, &error));
    CHECK(ad_context_equal(found, primary));
    OK(gpu->stream_context(default_stream(), primary, &found, &error));
    CHECK(ad_context_equal(found, primary));
    const ad_context without = {primary.device, NULL};
    OK(gpu->stream_context(default_stream(), without, &found, &error));
    CHECK(ad_context_equal(found, primary));
    if (n_devices > 1) {
        CHECK(gpu->stream_context(stream, primary_of(0), &found, &error) ==
              AD_ERR_EXCHANGE);
        CHECK(strcmp(error.reason, "stream") == 0);
    }
    gpu->stream_destroy(primary, stream);
}

static void
test_default_stream(void)
{
    ad_context context = primary_of(0);
    ad_stream stream = default_stream();
    ad_event event = {NULL};
    bool is_capturing = true;
    OK(gpu->stream_is_capturing(context, stream, &is_capturing, &error));
    CHECK(!is_capturing);
    OK(gpu->event_record(context, stream, &event, &error));
    OK(gpu->stream_wait(context, stream, event, &error));
    finish(context, stream);
    gpu->event_destroy(context, event);
}

static void
test_kernels(void)
{
    ad_context context = primary_of(n_devices - 1);
    ad_stream stream = new_stream(context);
    ad_span bits = new_memory(context, stream, N), bytes;
    unsigned char *out = pattern(N, 6);
    copy(context, stream, bits, on_host(out), N);
    const int64_t lengths[] = {1, 7, 64, 1000, 8 * N - 13};
    for (size_t i = 0; i < 5; i++) {
        int64_t length = lengths[i];
        int64_t groups = (length + 7) / 8;
        unsigned char *in = calloc(1, (size_t)length);
        bytes = new_memory(context, stream, (size_t)length);
        const ad_launch launch = {
            .kernel = AD_KERNEL_UNPACK_BITS,
            .source = bits,
            .target = bytes,
            .bit_offset = 13,
            .length = length,
            .n_items =
                groups <= AD_KERNEL_GROUP ? groups : 4 * AD_KERNEL_GROUP,
        };
        if (gpu->launch(context, stream, &launch, &error) != AD_OK) {
            /* The only valid reason is a missing compiler. */
            CHECK(is_hip);
            CHECK(strcmp(error.reason, "kernel") == 0);
            printf("no kernels: %s\n", error.message);
            free(in);
            gpu->deallocate(context, stream, bytes.data, (size_t)length);
            break;
        }
        copy(context, stream, on_host(in), bytes, (size_t)length);
        finish(context, stream);
        for (int64_t j = 0; j < length; j++) {
            CHECK(in[j] == ((out[(j + 13) / 8] >> ((j + 13) % 8)) & 1));
        }
        gpu->deallocate(context, stream, bytes.data, (size_t)length);
        free(in);
    }
    gpu->deallocate(context, stream, bits.data, N);
    gpu->stream_destroy(context, stream);
    free(out);
}

static void
test_errors(void)
{
    ad_context context = primary_of(0);
    void *data;
    CHECK(gpu->allocate(context, default_stream(), (size_t)1 << 60, &data,
                        &error) == AD_ERR_MEMORY);
    CHECK(error.has_device && strstr(error.message, "allocate") != NULL);
    const ad_context nowhere = {{first.type, n_devices}, NULL};
    ad_event event = {NULL};
    CHECK(gpu->event_record(nowhere, default_stream(), &event, &error) ==
          AD_ERR_DEVICE);
    CHECK(error.code == 101 && event.handle == NULL);
}

static void
test_capture(void)
{
    ad_context context = primary_of(0);
    ad_stream stream = new_stream(context);
    ad_event before = {NULL}, inside = {NULL};
    bool is_capturing = false;
    void *graph = NULL;
    int (*begin)(void *, int) = (int (*)(void *, int))symbol(
        "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
    int (*end)(void *, void **) = (int (*)(void *, void **))symbol(
        "cuStreamEndCapture", "hipStreamEndCapture");
    CHECK(begin != NULL && end != NULL);
    OK(gpu->event_record(context, stream, &before, &error));
    finish(context, stream);
    CHECK(begin((void *)stream.handle, 2 /* relaxed */) == 0);
    OK(gpu->stream_is_capturing(context, stream, &is_capturing, &error));
    CHECK(is_capturing);
    OK(gpu->event_record(context, stream, &inside, &error));
    OK(gpu->stream_wait(context, stream, inside, &error));
    CHECK(gpu->event_synchronize(context, inside, &error) == AD_ERR_EXCHANGE);
    CHECK(strcmp(error.reason, "capture") == 0);
    CHECK(error.code >= 900 && error.code <= 908);
    CHECK(strstr(error.hint, "stream=") != NULL);
    (void)end((void *)stream.handle, &graph);
    gpu->event_destroy(context, before);
    gpu->event_destroy(context, inside);
    gpu->stream_destroy(context, stream);
}

static void
test_names_of_devices(void)
{
    unsigned char name[AD_UUID_SIZE], same[AD_UUID_SIZE], other[AD_UUID_SIZE];
    OK(gpu->device_uuid(n_devices - 1, name, &error));
    OK(gpu->device_uuid(n_devices - 1, same, &error));
    CHECK(memcmp(name, same, AD_UUID_SIZE) == 0);
    if (n_devices > 1) {
        OK(gpu->device_uuid(0, other, &error));
        CHECK(memcmp(name, other, AD_UUID_SIZE) != 0);
    }
    CHECK(gpu->device_uuid(n_devices, other, &error) == AD_ERR_EXCHANGE);
}

/* Two processes are in tests/gpu_cuda and gpu_hip. */
static void
test_memory_for_other_processes(void)
{
    ad_context context = primary_of(n_devices - 1);
    ad_stream stream = new_stream(context);
    ad_span memory = new_memory(context, stream, 4096);
    ad_ipc_memory found;
    finish(context, stream);
    ad_status status =
        gpu->memory_export(context, (char *)memory.data + 100, &found, &error);
    if (status == AD_OK) {
        CHECK(found.base == memory.data && found.nbytes >= 4096);
        CHECK((found.file >= 0) == (found.kind != AD_IPC_LEGACY));
        CHECK(!is_hip || found.kind == AD_IPC_LEGACY);
    } else { /* without arrowdev's own pool */
        CHECK(status == AD_ERR_EXCHANGE);
        CHECK(strcmp(error.reason, "share") == 0 && error.hint[0] != '\0');
        CHECK(found.file == -1);
    }
    if (found.file >= 0) {
        CHECK((fcntl(found.file, F_GETFD) & FD_CLOEXEC) != 0);
        close(found.file);
    }
    gpu->deallocate(context, stream, memory.data, 4096);
    gpu->stream_destroy(context, stream);
}

/* What another process says. */
static void
test_memory_that_cannot_be(void)
{
    ad_context context = primary_of(n_devices - 1);
    const ad_ipc_memory wrong[] = {
        {.kind = AD_IPC_LEGACY, .file = -1},
        {.kind = AD_IPC_LEGACY, .file = -1, .nbytes = SIZE_MAX},
        {.kind = AD_IPC_LEGACY,
         .file = -1,
         .base = (void *)(UINTPTR_MAX - 7),
         .nbytes = 8},
        {.kind = AD_IPC_LEGACY, .file = 0, .nbytes = 8},
        {.kind = AD_IPC_POOL, .file = -1, .nbytes = 8},
        {.kind = AD_IPC_VMM, .file = -1, .nbytes = 8},
        {.kind = AD_IPC_FILE, .file = 0, .nbytes = 8},
        {.kind = (ad_ipc_kind)17, .file = -1, .nbytes = 8},
        {.kind = (ad_ipc_kind)-1, .file = 0, .nbytes = 8},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        void *data;
        memset(&error, 0, sizeof(error));
        CHECK(gpu->memory_open(context, &wrong[i], &data, &error) ==
              AD_ERR_EXCHANGE);
        CHECK(strcmp(error.reason, "share") == 0);
    }
}

static void
test_event_for_other_processes(void)
{
    ad_context context = primary_of(n_devices - 1);
    ad_stream stream = new_stream(context);
    ad_event event = {NULL};
    ad_ipc_event name;
    void *graph = NULL;
    int (*begin)(void *, int) = (int (*)(void *, int))symbol(
        "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
    int (*end)(void *, void **) = (int (*)(void *, void **))symbol(
        "cuStreamEndCapture", "hipStreamEndCapture");
    OK(gpu->event_export(context, stream, &event, &name, &error));
    CHECK(event.handle != NULL && name.file == -1);
    OK(gpu->event_synchronize(context, event, &error));
    gpu->event_destroy(context, event);
    event.handle = NULL;
    CHECK(begin((void *)stream.handle, 2 /* relaxed */) == 0);
    CHECK(gpu->event_export(context, stream, &event, &name, &error) ==
          AD_ERR_EXCHANGE);
    CHECK(strcmp(error.reason, "capture") == 0 && event.handle == NULL);
    CHECK(end((void *)stream.handle, &graph) == 0); /* not broken */
    gpu->stream_destroy(context, stream);
}

/* --- failures on demand, with a stand-in only ---------------------------- */

static void (*fail_at)(uint64_t n, const char *name, int code, int stay);

static ad_context failing_context;
static ad_stream failing_stream;
static ad_event failing_event;

static ad_status
do_record(void)
{
    ad_event event = {NULL};
    ad_status status =
        gpu->event_record(failing_context, failing_stream, &event, &error);
    CHECK(event.handle == NULL);
    return status;
}

static ad_status
do_record_again(void)
{
    void *same = failing_event.handle;
    ad_status status = gpu->event_record(failing_context, failing_stream,
                                         &failing_event, &error);
    CHECK(failing_event.handle == same);
    return status;
}

static ad_status
do_query(void)
{
    bool is_done;
    return gpu->event_query(failing_context, failing_event, &is_done, &error);
}

static ad_status
do_wait(void)
{
    return gpu->stream_wait(failing_context, failing_stream, failing_event,
                            &error);
}

static ad_status
do_synchronize(void)
{
    return gpu->event_synchronize(failing_context, failing_event, &error);
}

static ad_status
do_create(void)
{
    ad_stream stream;
    return gpu->stream_create(failing_context, &stream, &error);
}

static ad_status
do_copy(void)
{
    char bytes[16] = {0};
    const ad_block_copy block = {on_host(bytes), on_host(bytes), 8, 1, 0, 0};
    return gpu->copy(failing_context, failing_stream, &block, &error);
}

static ad_status
do_classify(void)
{
    ad_memory_info info;
    return gpu->classify(&error, failing_context, &info, &error);
}

static ad_status
do_idle(void)
{
    return gpu->synchronize(failing_context, &error);
}

static ad_status
do_name(void)
{
    unsigned char name[AD_UUID_SIZE];
    return gpu->device_uuid(failing_context.device.id, name, &error);
}

static ad_status
do_export_memory(void)
{
    ad_ipc_memory found;
    ad_span memory = new_memory(failing_context, failing_stream, 64);
    finish(failing_context, failing_stream);
    ad_status status =
        gpu->memory_export(failing_context, memory.data, &found, &error);
    CHECK(found.file == -1);
    ad_error first_error = error;
    gpu->deallocate(failing_context, failing_stream, memory.data, 64);
    error = first_error;
    return status;
}

static ad_status
do_export_event(void)
{
    ad_event event = {NULL};
    ad_ipc_event name;
    ad_status status = gpu->event_export(failing_context, failing_stream,
                                         &event, &name, &error);
    CHECK(event.handle == NULL);
    return status;
}

static ad_status
do_open_event(void)
{
    ad_event event = {NULL};
    const ad_ipc_event name = {.file = -1};
    ad_status status = gpu->event_open(failing_context, &name, &event, &error);
    CHECK(event.handle == NULL);
    return status;
}

static const struct {
    const char *cuda;
    const char *hip;
    ad_status (*run)(void);
} failures[] = {
    {"cuDeviceGetUuid_v2", "hipDeviceGetUuid", do_name},
    {"cuMemGetAddressRange_v2", "hipMemGetAddressRange", do_export_memory},
    {"cuIpcGetEventHandle", "hipIpcGetEventHandle", do_export_event},
    {"cuEventCreate", "hipEventCreateWithFlags", do_export_event},
    {"cuEventRecord", "hipEventRecord", do_export_event},
    {"cuIpcOpenEventHandle", "hipIpcOpenEventHandle", do_open_event},
    {"cuEventCreate", "hipEventCreateWithFlags", do_record},
    {"cuEventRecord", "hipEventRecord", do_record},
    {"cuEventRecord", "hipEventRecord", do_record_again},
    {"cuEventQuery", "hipEventQuery", do_query},
    {"cuStreamWaitEvent", "hipStreamWaitEvent", do_wait},
    {"cuEventSynchronize", "hipEventSynchronize", do_synchronize},
    {"cuStreamCreate", "hipStreamCreateWithFlags", do_create},
    {"cuMemcpyAsync", "hipMemcpyAsync", do_copy},
    {"cuPointerGetAttributes", "hipPointerGetAttributes", do_classify},
    {"cuCtxSynchronize", "hipDeviceSynchronize", do_idle},
    {"cuCtxGetCurrent", "hipGetDevice", do_record},
};

static const struct {
    int code;
    ad_status status;
    const char *reason;
    const char *hint;
} codes[] = {
    {400, AD_ERR_DEVICE, NULL, "destroyed"},
    {700, AD_ERR_DEVICE, NULL, "new process"},
    {704, AD_ERR_DEVICE, NULL, NULL},
    {719, AD_ERR_DEVICE, NULL, "new process"},
    {709, AD_ERR_DEVICE, NULL, "resetting"},
    {999, AD_ERR_DEVICE, NULL, NULL},
    {906, AD_ERR_EXCHANGE, "capture", "legacy default stream"},
    {900, AD_ERR_EXCHANGE, "capture", "before the capture begins"},
    {901, AD_ERR_EXCHANGE, "capture", "was broken before"},
    {907, AD_ERR_EXCHANGE, "capture", "a stream of the same capture"},
};

static void
test_failures(void)
{
    fail_at = (void (*)(uint64_t, const char *, int, int))symbol(
        "fake_fail_at", "fake_fail_at");
    if (fail_at == NULL) {
        printf("no failures on demand\n");
        return;
    }
    failing_context = primary_of(n_devices - 1);
    failing_stream = new_stream(failing_context);
    failing_event.handle = NULL;
    OK(gpu->event_record(failing_context, failing_stream, &failing_event,
                         &error));
    void *before = now_current();
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        const char *call = is_hip ? failures[i].hip : failures[i].cuda;
        for (size_t j = 0; j < sizeof(codes) / sizeof(codes[0]); j++) {
            memset(&error, 0, sizeof(error));
            fail_at(1, call, codes[j].code, 1);
            ad_status status = failures[i].run();
            fail_at(0, NULL, 0, 0);
            /* A destroyed context has nothing to wait for. */
            if (failures[i].run == do_idle && codes[j].code == 709 &&
                failing_context.handle != NULL) {
                CHECK(status == AD_OK);
                CHECK(now_current() == before);
                continue;
            }
            CHECK(status == codes[j].status);
            CHECK(error.status == codes[j].status);
            CHECK(error.code == codes[j].code);
            CHECK(strstr(error.message, call) != NULL);
            CHECK(error.has_device);
            CHECK(strcmp(error.reason,
                         codes[j].reason != NULL ? codes[j].reason : "") == 0);
            CHECK(codes[j].hint == NULL
                      ? error.hint[0] == '\0'
                      : strstr(error.hint, codes[j].hint) != NULL);
            CHECK(now_current() == before);
        }
    }
    gpu->event_destroy(failing_context, failing_event);
    gpu->stream_destroy(failing_context, failing_stream);
}

/* Calls on handles fail because of the current context, which is none or that
 * of another device. They are repeated in the right context. */
static void
test_context_to_blame(void)
{
    const int of_context[] = {201, 709, 719};
    void *before = now_current();
    failing_context = primary_of(n_devices - 1);
    if (fail_at == NULL || n_devices < 2 ||
        (is_hip ? (int64_t)(intptr_t)before == n_devices - 1
                : before == failing_context.handle)) {
        return;
    }
    failing_stream = new_stream(failing_context);
    failing_event.handle = NULL;
    OK(gpu->event_record(failing_context, failing_stream, &failing_event,
                         &error));
    for (size_t j = 0; j < 3; j++) {
        fail_at(1, is_hip ? "hipEventRecord" : "cuEventRecord", of_context[j],
                0);
        OK(do_record_again());
        fail_at(1, is_hip ? "hipStreamWaitEvent" : "cuStreamWaitEvent",
                of_context[j], 0);
        OK(do_wait());
        CHECK(now_current() == before);
    }
    gpu->event_destroy(failing_context, failing_event);
    gpu->stream_destroy(failing_context, failing_stream);
}

static void
check_stand_in(void)
{
    char words[4096] = "";
    size_t (*ask)(char *, size_t) = (size_t(*)(char *, size_t))symbol(
        "fake_violations", "fake_violations");
    if (ask != NULL && ask(words, sizeof(words)) != 0) {
        fprintf(stderr, "violations: %s\n", words);
        exit(1);
    }
    ask =
        (size_t(*)(char *, size_t))symbol("fake_stub_hits", "fake_stub_hits");
    if (ask != NULL && ask(words, sizeof(words)) != 0) {
        fprintf(stderr, "functions that the stand-in lacks: %s\n", words);
        exit(1);
    }
}

int
main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"devices", test_devices},
        {"there and back", test_there_and_back},
        {"rows", test_rows},
        {"order of streams", test_order_of_streams},
        {"peers", test_peers},
        {"pointers", test_pointers},
        {"places of streams", test_contexts_of_streams},
        {"default stream", test_default_stream},
        {"kernels", test_kernels},
        {"errors", test_errors},
        {"capture", test_capture},
        {"names of devices", test_names_of_devices},
        {"memory for other processes", test_memory_for_other_processes},
        {"memory that cannot be", test_memory_that_cannot_be},
        {"event for other processes", test_event_for_other_processes},
        {"failures", test_failures},
        {"context to blame", test_context_to_blame},
    };
    CHECK(argc == 2 && ad_device_parse(argv[1], &first));
    if (ad_backend_open(first.type, &gpu, &error) != AD_OK) {
        printf("%s\n", error.message);
        return 77;
    }
    OK(gpu->count(&n_devices, &error));
    if (n_devices == 0) {
        printf("the library finds no device\n");
        return 77;
    }
    /* First with no current context (CUDA), then with the last device
     * current. */
    is_hip = strcmp(gpu->name, "hip") == 0;
    open_library();
    for (int round = 0; round < 2; round++) {
        void *before = now_current();
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
            tests[i].run();
            CHECK(now_current() == before);
            printf("ok %s\n", tests[i].name);
        }
        make_current(n_devices - 1);
    }
    check_stand_in();
    return 0;
}
