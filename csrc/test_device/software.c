#include "test_device/software.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/arrow_c.h"
#include "device/backend.h"
#include "test_device/engine.h"

/* The slot's name, taken from the function's name. */
#define SLOT (&__func__[sizeof("software_") - 1])

/* Every slot begins with this, so that each can be made to fail. */
#define ENTER(device)                                                         \
    do {                                                                      \
        int code_ = ad_engine_enter(SLOT);                                    \
        if (code_ != 0) {                                                     \
            return ad_software_fail(err, device, SLOT, code_);                \
        }                                                                     \
    } while (0)

char ad_software_tag; /* only its address is used */
static atomic_int n_shown;

/* --- errors -------------------------------------------------------------- */

static bool
is_known(int code)
{
    return code >= 0 && code < AD_ENGINE_N_STATUS;
}

const char *
ad_software_error_name(int code)
{
    static const char *const names[AD_ENGINE_N_STATUS] = {
#define NAME(status) [AD_ENGINE_##status] = "SOFTWARE_ERROR_" #status,
        AD_ENGINE_STATUSES(NAME)
#undef NAME
    };
    return is_known(code) ? names[code] : "SOFTWARE_ERROR_UNKNOWN";
}

static const char *const hints[AD_ENGINE_N_STATUS] = {
    [AD_ENGINE_UNSUPPORTED] = "the software device requires Linux: it guards "
                              "its memory with memfd_create",
    [AD_ENGINE_FORKED] = "start the process with the multiprocessing method "
                         "\"spawn\"",
    [AD_ENGINE_INVALID_DEVICE] = "software_device(devices=n) provides the "
                                 "devices 0 to n - 1",
    [AD_ENGINE_INVALID_QUEUE] = "a queue must outlive the arrays that are "
                                "exported on it",
    [AD_ENGINE_INVALID_EVENT] = "an event lives until its array is released; "
                                "was it released or destroyed too early?",
    [AD_ENGINE_ILLEGAL_ADDRESS] = "memory was freed while work on it was "
                                  "pending: something did not wait",
    [AD_ENGINE_TIMEOUT] = "is a queue held, or an event never fired?",
    [AD_ENGINE_INJECTED] = "requested with fail_at()",
};

ad_status
ad_software_fail(ad_error *err, int64_t device, const char *call, int code)
{
    const ad_device where = {ARROW_DEVICE_EXT_DEV, device};
    if (code == AD_ENGINE_OUT_OF_MEMORY) {
        ad_fail(err, AD_ERR_MEMORY, NULL, NULL,
                "%s failed: SOFTWARE_ERROR_OUT_OF_MEMORY (%d)", call, code);
        ad_error_device(err, where);
        return AD_ERR_MEMORY;
    }
    return ad_fail_device(err, where, call, code, ad_software_error_name(code),
                          is_known(code) ? hints[code] : NULL);
}

static ad_status
result(ad_error *err, ad_context context, const char *call, int code)
{
    return code == AD_ENGINE_OK
               ? AD_OK
               : ad_software_fail(err, context.device.id, call, code);
}

/* By errno. */
static ad_status
fail_descriptor(ad_device device, ad_error *err)
{
    return ad_fail_on(
        err, device, "share",
        "release some of what was shared or attached, or raise "
        "the limit (ulimit -n)",
        "a file descriptor of the software device cannot be had: "
        "%s",
        strerror(errno));
}

/* --- the runtime --------------------------------------------------------- */

static ad_status
software_load(ad_error *err)
{
    if (ad_engine_is_forked()) {
        return ad_fail(err, AD_ERR_EXCHANGE, "runtime",
                       hints[AD_ENGINE_FORKED],
                       "the software devices were started before this process "
                       "was forked, and cannot be used in it");
    }
    return AD_OK;
}

static ad_status
software_describe(char *buffer, size_t size, ad_error *err)
{
    ENTER(-1);
    snprintf(buffer, size, "the software device of arrowdev.testing");
    return AD_OK;
}

static ad_status
software_count(int64_t *out, ad_error *err)
{
    ENTER(-1);
    *out = atomic_load(&n_shown);
    return AD_OK;
}

static ad_status
software_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    ENTER(id);
    snprintf(buffer, size, "software device %lld", (long long)id);
    return AD_OK;
}

static ad_status
software_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    ENTER(device.id);
    if (device.id < 0 || device.id >= ad_engine_n_devices()) {
        return ad_fail_on(
            err, device, "device", "ad.devices() lists the existing ones",
            "there is no software device %lld: there are %d of them",
            (long long)device.id, ad_engine_n_devices());
    }
    *out = (ad_context){.device = {ARROW_DEVICE_EXT_DEV, device.id}};
    return AD_OK;
}

static ad_status
software_synchronize(ad_context context, ad_error *err)
{
    ENTER(context.device.id);
    return result(err, context, SLOT,
                  ad_engine_synchronize((int)context.device.id, NULL, -1));
}

/* --- memory -------------------------------------------------------------- */

static ad_status
software_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                  ad_error *err)
{
    static const ad_memory_kind kinds[] = {
        [AD_ENGINE_DEVICE] = AD_MEMORY_DEVICE,
        [AD_ENGINE_PINNED] = AD_MEMORY_PINNED,
        [AD_ENGINE_MANAGED] = AD_MEMORY_MANAGED,
        [AD_ENGINE_REGISTERED] = AD_MEMORY_PINNED,
    };
    ENTER(hint.device.id);
    ad_engine_allocation found;
    if (!ad_engine_find(pointer, &found)) {
        *out =
            (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED, .context = hint};
        return AD_OK;
    }
    *out = (ad_memory_info){
        .kind = kinds[found.kind],
        .context = {.device = {ARROW_DEVICE_EXT_DEV, found.device}},
        .host_accessible = found.kind != AD_ENGINE_DEVICE,
    };
    return AD_OK;
}

/* New memory has no earlier use to wait for on the stream. */
static ad_status
software_allocate(ad_context context, ad_stream stream, size_t nbytes,
                  void **out, ad_error *err)
{
    ENTER(context.device.id);
    return result(err, context, SLOT,
                  ad_engine_allocate((int)context.device.id, nbytes,
                                     AD_ENGINE_DEVICE, &ad_software_tag, out));
}

/* Calls that cannot fail are only logged. */
static void
software_deallocate(ad_context context, ad_stream stream, void *data,
                    size_t nbytes)
{
    (void)ad_engine_enter(SLOT);
    /* Pending work detects the free when it runs. */
    ad_engine_free_after(stream.handle, data);
}

static char *
address_of(const ad_span *span)
{
    return (char *)((uintptr_t)span->data + span->offset); /* NULL, too */
}

static ad_status
software_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
              ad_error *err)
{
    ENTER(context.device.id);
    return result(err, context, SLOT,
                  ad_engine_copy_for_arrowdev(
                      stream.handle, address_of(&copy->target),
                      copy->target_pitch, address_of(&copy->source),
                      copy->source_pitch, copy->width, copy->height));
}

static int
run_launch(void *arg)
{
    ad_launch *launch = arg;
    int status = AD_ENGINE_ILLEGAL_ADDRESS;
    if (ad_engine_may_touch(address_of(&launch->source),
                            ad_launch_source_size(launch)) &&
        ad_engine_may_touch(address_of(&launch->values),
                            ad_launch_values_size(launch)) &&
        ad_engine_may_touch(address_of(&launch->target),
                            ad_launch_target_size(launch))) {
        launch->source.data = ad_engine_inside(launch->source.data);
        launch->values.data = ad_engine_inside(launch->values.data);
        launch->target.data = ad_engine_inside(launch->target.data);
        ad_kernel_run_on_host(launch);
        status = AD_ENGINE_OK;
    }
    free(launch);
    return status;
}

/* Columns or rows of a matrix that is gathered, at most. */
enum {
    MAX_STRIPS = 64
};

/* `n` elements, `step` bytes apart. */
static ad_engine_use
read_of(const char *first, int64_t step, int64_t n, int64_t size)
{
    return (ad_engine_use){
        .access = AD_ENGINE_READ,
        .data = step < 0 ? first + (n - 1) * step : first,
        .pitch = (size_t)(step < 0 ? -step : step),
        .width = (size_t)size,
        .height = step != 0 ? (size_t)n : 1,
    };
}

/* What a gather reads, by columns or by rows. A matrix with many of both, and
 * one whose last row has fewer, is left out: no byte between its elements may
 * count as read. */
static size_t
uses_of_gather(const ad_launch *launch, ad_engine_use *out)
{
    const int64_t *p = launch->numbers;
    const char *data = address_of(&launch->source);
    int64_t n_columns = launch->length < p[0] ? launch->length : p[0];
    int64_t n_rows = launch->length / n_columns;
    bool by_columns = n_columns <= MAX_STRIPS;
    size_t n = 0;
    if (launch->length % n_columns == 0 &&
        (by_columns || n_rows <= MAX_STRIPS)) {
        for (int64_t i = 0; i < (by_columns ? n_columns : n_rows); i++) {
            out[n++] = by_columns
                           ? read_of(data + i * p[2], p[1], n_rows, p[3])
                           : read_of(data + i * p[1], p[2], n_columns, p[3]);
        }
    }
    return n;
}

static ad_engine_use
use_of(ad_engine_access access, const ad_span *span, size_t nbytes,
       int64_t begin)
{
    nbytes -= nbytes > 0 ? (size_t)begin : 0;
    uintptr_t data = (uintptr_t)address_of(span) + (uintptr_t)begin;
    return (ad_engine_use){.access = access,
                           .data = (const char *)data,
                           .pitch = nbytes,
                           .width = nbytes,
                           .height = 1};
}

/* Bitmaps begin with the byte of the first bit. */
static size_t
uses_of_launch(const ad_launch *launch, ad_engine_use *out)
{
    ad_kernel kernel = launch->kernel;
    bool has_bits =
        kernel == AD_KERNEL_UNPACK_BITS || kernel == AD_KERNEL_COUNT_BITS ||
        kernel == AD_KERNEL_COPY_BITS || kernel == AD_KERNEL_FILL_NULLS;
    int64_t first = launch->bit_offset / 8;
    int64_t first_target = kernel == AD_KERNEL_PACK_BITS ? first
                           : kernel == AD_KERNEL_COPY_BITS
                               ? launch->numbers[0] / 8
                               : 0;
    size_t n = 0;
    if (kernel == AD_KERNEL_GATHER) {
        n = uses_of_gather(launch, out);
    } else if (launch->source.data != NULL) {
        out[n++] = use_of(AD_ENGINE_READ, &launch->source,
                          ad_launch_source_size(launch), has_bits ? first : 0);
    }
    out[n++] = use_of(AD_ENGINE_READ, &launch->values,
                      ad_launch_values_size(launch), 0);
    out[n++] = use_of(AD_ENGINE_WRITE, &launch->target,
                      ad_launch_target_size(launch), first_target);
    return n;
}

static ad_status
software_launch(ad_context context, ad_stream stream, const ad_launch *launch,
                ad_error *err)
{
    ad_engine_use uses[MAX_STRIPS + 2];
    ENTER(context.device.id);
    ad_launch *own = malloc(sizeof(*own));
    if (own == NULL) {
        return ad_fail_memory(err, sizeof(*own));
    }
    *own = *launch;
    int code = ad_engine_enqueue_use(stream.handle, run_launch, own, uses,
                                     uses_of_launch(launch, uses));
    if (code != AD_ENGINE_OK) {
        free(own);
    }
    return result(err, context, SLOT, code);
}

/* --- streams ------------------------------------------------------------- */

static ad_status
software_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                        ad_error *err)
{
    ENTER(hint.device.id);
    ad_engine_queue queue;
    int code = ad_engine_queue_get(stream.handle, &queue);
    if (code != AD_ENGINE_OK) {
        return ad_software_fail(err, hint.device.id, SLOT, code);
    }
    if (hint.device.id >= 0 && hint.device.id != queue.device) {
        return ad_fail_on(
            err, hint.device, "stream",
            "pass a queue of the device that the data are on",
            "a queue of ext_dev:%d was given for data on ext_dev:%lld",
            queue.device, (long long)hint.device.id);
    }
    *out = (ad_context){.device = {ARROW_DEVICE_EXT_DEV, queue.device}};
    return AD_OK;
}

static ad_status
software_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    ENTER(context.device.id);
    uint64_t queue = 0;
    int code = ad_engine_queue_create((int)context.device.id, &ad_software_tag,
                                      NULL, &queue);
    out->handle = (uintptr_t)queue;
    return result(err, context, SLOT, code);
}

static void
software_stream_destroy(ad_context context, ad_stream stream)
{
    (void)ad_engine_enter(SLOT);
    (void)ad_engine_queue_destroy(stream.handle);
}

static ad_status
software_stream_wait(ad_context context, ad_stream stream, ad_event event,
                     ad_error *err)
{
    ENTER(context.device.id);
    return result(
        err, context, SLOT,
        ad_engine_queue_wait(stream.handle, ad_engine_event_at(event.handle)));
}

/* --- events -------------------------------------------------------------- */

static ad_status
software_event_record(ad_context context, ad_stream stream, ad_event *event,
                      ad_error *err)
{
    ENTER(context.device.id);
    uint64_t handle = ad_engine_event_at(event->handle);
    const uint64_t *address = event->handle;
    int code = AD_ENGINE_OK;
    if (address == NULL) {
        code = ad_engine_event_create((int)context.device.id, &ad_software_tag,
                                      NULL, &handle);
        if (code == AD_ENGINE_OK) {
            code = ad_engine_event_address(handle, &address);
        }
    }
    if (code == AD_ENGINE_OK) {
        code = ad_engine_event_record(handle, stream.handle);
    }
    if (code == AD_ENGINE_OK) {
        event->handle = (void *)address;
    } else if (event->handle == NULL) {
        (void)ad_engine_event_destroy(handle);
    }
    return result(err, context, SLOT, code);
}

static ad_status
software_event_query(ad_context context, ad_event event, bool *out,
                     ad_error *err)
{
    ENTER(context.device.id);
    int code = ad_engine_event_query_late(ad_engine_event_at(event.handle));
    *out = code == AD_ENGINE_OK;
    return code == AD_ENGINE_NOT_READY ? AD_OK
                                       : result(err, context, SLOT, code);
}

static ad_status
software_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    ENTER(context.device.id);
    return result(
        err, context, SLOT,
        ad_engine_event_synchronize(ad_engine_event_at(event.handle), -1));
}

static void
software_event_destroy(ad_context context, ad_event event)
{
    (void)ad_engine_enter(SLOT);
    (void)ad_engine_event_destroy(ad_engine_event_at(event.handle));
}

static bool
software_claims_event(const void *sync_event)
{
    return ad_engine_event_at(sync_event) != 0;
}

/* --- other processes ----------------------------------------------------- */

static ad_status
software_device_uuid(int64_t id, unsigned char out[AD_UUID_SIZE],
                     ad_error *err)
{
    ENTER(id);
    memset(out, 0, AD_UUID_SIZE);
    snprintf((char *)out, AD_UUID_SIZE, "software %d", (int)id);
    return AD_OK;
}

/* The file is that of all device memory. */
static ad_status
software_memory_export(ad_context context, const void *pointer,
                       ad_ipc_memory *out, ad_error *err)
{
    ENTER(context.device.id);
    ad_engine_allocation found;
    int file;
    int code =
        ad_engine_memory_file(pointer, &file, &out->file_offset, &found);
    if (code != AD_ENGINE_OK) {
        return ad_software_fail(err, context.device.id, SLOT, code);
    }
    out->kind = AD_IPC_FILE;
    out->base = found.base;
    out->nbytes = found.nbytes;
    out->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    return out->file >= 0 ? AD_OK : fail_descriptor(context.device, err);
}

static ad_status
software_memory_open(ad_context context, const ad_ipc_memory *memory,
                     void **out, ad_error *err)
{
    ENTER(context.device.id);
    return result(err, context, SLOT,
                  ad_engine_map((int)context.device.id, memory->file,
                                memory->file_offset, memory->nbytes,
                                AD_ENGINE_DEVICE, &ad_software_tag, out));
}

static void
software_memory_close(ad_context context, const ad_ipc_memory *memory,
                      void *data)
{
    (void)ad_engine_enter(SLOT);
    (void)ad_engine_free(data);
}

/* A pair of sockets stands for an event: a byte is in it once the work is
 * done. It is never read, so that any number of processes can wait for it. The
 * queue has the other end; if its process ends before, there is no byte. */
static int
run_signal(void *end)
{
    int file = (int)(intptr_t)end;
    (void)!send(file, "", 1, MSG_NOSIGNAL); /* to nobody who still waits */
    close(file);
    return AD_ENGINE_OK;
}

static ad_status
software_event_export(ad_context context, ad_stream stream, ad_event *event,
                      ad_ipc_event *out, ad_error *err)
{
    int ends[2];
    ENTER(context.device.id);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return fail_descriptor(context.device, err);
    }
    int code = ad_engine_enqueue(stream.handle, run_signal,
                                 (void *)(intptr_t)ends[1]);
    if (code != AD_ENGINE_OK) {
        close(ends[0]);
        close(ends[1]);
        return ad_software_fail(err, context.device.id, SLOT, code);
    }
    event->handle = NULL;
    *out = (ad_ipc_event){.file = ends[0]};
    return AD_OK;
}

static int
run_wait(void *end)
{
    int file = (int)(intptr_t)end;
    struct pollfd waited = {.fd = file, .events = POLLIN};
    char byte;
    while (poll(&waited, 1, -1) < 0 && errno == EINTR) {
    }
    bool is_done = recv(file, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    close(file);
    return is_done ? AD_ENGINE_OK : AD_ENGINE_WORK_FAILED;
}

/* An event of this process behind work that waits for the socket, on a queue of
 * its own. */
static int
open_event(int device, int file, ad_event *out)
{
    uint64_t queue, event;
    const uint64_t *address;
    int code = ad_engine_queue_create(device, &ad_software_tag, NULL, &queue);
    if (code != AD_ENGINE_OK) {
        return code;
    }
    code = ad_engine_event_create(device, &ad_software_tag, NULL, &event);
    if (code == AD_ENGINE_OK) {
        int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
        code = own < 0
                   ? AD_ENGINE_INVALID_VALUE
                   : ad_engine_enqueue(queue, run_wait, (void *)(intptr_t)own);
        if (code != AD_ENGINE_OK && own >= 0) {
            close(own);
        }
        if (code == AD_ENGINE_OK) {
            code = ad_engine_event_record(event, queue);
        }
        if (code == AD_ENGINE_OK) {
            code = ad_engine_event_address(event, &address);
        }
        if (code == AD_ENGINE_OK) {
            out->handle = (void *)address;
        } else {
            (void)ad_engine_event_destroy(event);
        }
    }
    (void)ad_engine_queue_destroy(queue); /* its work still runs */
    return code;
}

static ad_status
software_event_open(ad_context context, const ad_ipc_event *event,
                    ad_event *out, ad_error *err)
{
    ENTER(context.device.id);
    return result(err, context, SLOT,
                  open_event((int)context.device.id, event->file, out));
}

/* The slots that are logged. */
/* clang-format off */
#define SLOTS(X)                                                              \
    X(describe) X(count) X(device_name) X(primary_context) X(synchronize)     \
    X(classify) X(allocate) X(deallocate) X(copy) X(launch)                   \
    X(stream_context) X(stream_create) X(stream_destroy) X(stream_wait)       \
    X(event_record) X(event_query) X(event_synchronize) X(event_destroy)      \
    X(device_uuid) X(memory_export) X(memory_open) X(memory_close)            \
    X(event_export) X(event_open)
/* clang-format on */

const char *const ad_software_calls[] = {
#define NAME(slot) #slot,
    SLOTS(NAME)
#undef NAME
        NULL,
};

static const int32_t software_types[] = {ARROW_DEVICE_EXT_DEV, 0};

static const struct ad_backend backend = {
    .name = "software",
    .device_types = software_types,
    .capabilities = AD_CAP_IN_ORDER | AD_CAP_SYNC_EVENT_IS_HANDLE |
                    AD_CAP_EVENTS_REUSABLE | AD_CAP_ORDERED_DEALLOCATE |
                    AD_CAP_CONTEXT_IDLE,
    .load = software_load,
#define SLOT_OF(name) .name = software_##name,
    SLOTS(SLOT_OF)
#undef SLOT_OF
        .claims_event = software_claims_event,
};

/* --- start and end --------------------------------------------------------- */

ad_status
ad_software_start(int n_devices, ad_error *err)
{
    int code = ad_engine_start(n_devices);
    if (code != AD_ENGINE_OK) {
        return ad_software_fail(err, -1, "start", code);
    }
    atomic_store(&n_shown, n_devices);
    return ad_backend_register(&backend, err);
}

void
ad_software_hide(void)
{
    atomic_store(&n_shown, 0);
}
