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

/* The name of the call, taken from the function's name. */
#define SLOT (&__func__[sizeof("software_") - 1])

/* Every function begins with this, so that each can be made to fail. */
#define ENTER()                                                               \
    do {                                                                      \
        int code_ = ad_engine_enter(SLOT);                                    \
        if (code_ != 0) {                                                     \
            return result(error, SLOT, code_);                                \
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

static int
result(arrowdev_error *error, const char *call, int code)
{
    if (code == AD_ENGINE_OK) {
        return ARROWDEV_OK;
    }
    snprintf(error->call, sizeof(error->call), "%s", call);
    snprintf(error->text, sizeof(error->text), "%s",
             ad_software_error_name(code));
    if (code == AD_ENGINE_OUT_OF_MEMORY) {
        return ARROWDEV_NO_MEMORY;
    }
    error->code = code;
    snprintf(error->hint, sizeof(error->hint), "%s",
             is_known(code) && hints[code] != NULL ? hints[code] : "");
    return ARROWDEV_FAILED;
}

/* By errno. */
static int
refuse_descriptor(arrowdev_error *error)
{
    snprintf(error->text, sizeof(error->text),
             "a file descriptor of the software device cannot be had: %s",
             strerror(errno));
    snprintf(error->hint, sizeof(error->hint),
             "release some of what was shared or attached, or raise the limit "
             "(ulimit -n)");
    return ARROWDEV_REFUSED;
}

/* --- the runtime --------------------------------------------------------- */

/* open_device is left out, so a device is its number. */
static int
number(void *device)
{
    return (int)(intptr_t)device;
}

static int
software_load(void *self, arrowdev_error *error)
{
    if (ad_engine_is_forked()) {
        snprintf(error->text, sizeof(error->text),
                 "the software devices were started before this process was "
                 "forked, and cannot be used in it");
        snprintf(error->hint, sizeof(error->hint), "%s",
                 hints[AD_ENGINE_FORKED]);
        return ARROWDEV_REFUSED;
    }
    return ARROWDEV_OK;
}

static int
software_describe(void *self, char *buffer, size_t size, arrowdev_error *error)
{
    ENTER();
    snprintf(buffer, size, "the software device of arrowdev.testing");
    return ARROWDEV_OK;
}

static int
software_device_count(void *self, int64_t *out, arrowdev_error *error)
{
    ENTER();
    *out = atomic_load(&n_shown);
    return ARROWDEV_OK;
}

static int
software_device_name(void *self, int64_t id, char *buffer, size_t size,
                     arrowdev_error *error)
{
    ENTER();
    snprintf(buffer, size, "software device %lld", (long long)id);
    return ARROWDEV_OK;
}

static int
software_synchronize(void *self, void *device, arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  ad_engine_synchronize(number(device), NULL, -1));
}

/* --- memory -------------------------------------------------------------- */

static int
software_memory_info(void *self, const void *data, arrowdev_memory_info *out,
                     arrowdev_error *error)
{
    ENTER();
    ad_engine_allocation found;
    *out = (arrowdev_memory_info){.is_known = ad_engine_find(data, &found)};
    if (out->is_known) {
        out->device_id = found.device;
        out->host_accessible = found.kind != AD_ENGINE_DEVICE;
    }
    return ARROWDEV_OK;
}

/* New memory has no earlier use to wait for on the stream. */
static int
software_allocate(void *self, void *device, void *stream, size_t nbytes,
                  void **out, arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  ad_engine_allocate(number(device), nbytes, AD_ENGINE_DEVICE,
                                     &ad_software_tag, out));
}

/* Calls that cannot fail are only logged. */
static void
software_deallocate(void *self, void *device, void *stream, void *data,
                    size_t nbytes)
{
    (void)ad_engine_enter(SLOT);
    /* Pending work detects the free when it runs. */
    ad_engine_free_after((uintptr_t)stream, data);
}

static char *
address_of(const arrowdev_span *span)
{
    return (char *)((uintptr_t)span->data + span->offset); /* NULL, too */
}

/* In, out, and on the devices. */
static int
software_copy(void *self, void *device, void *stream,
              const arrowdev_copy *copy, arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  ad_engine_copy_for_arrowdev(
                      (uintptr_t)stream, address_of(&copy->target),
                      copy->target_pitch, address_of(&copy->source),
                      copy->source_pitch, copy->width, copy->height));
}

static int
launch_inside(void *arg)
{
    arrowdev_launch *launch = arg;
    launch->source.data = ad_engine_inside(launch->source.data);
    launch->values.data = ad_engine_inside(launch->values.data);
    launch->target.data = ad_engine_inside(launch->target.data);
    launch->run(launch);
    return AD_ENGINE_OK;
}

static int
run_launch(void *arg)
{
    const arrowdev_launch *launch = arg;
    const ad_engine_range ranges[] = {
        {address_of(&launch->source), launch->source_size},
        {address_of(&launch->values), launch->values_size},
        {address_of(&launch->target), launch->target_size},
    };
    int status = ad_engine_touch(ranges, 3, launch_inside, arg);
    free(arg);
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
uses_of_gather(const arrowdev_launch *launch, ad_engine_use *out)
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
use_of(ad_engine_access access, const arrowdev_span *span, size_t nbytes,
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

static bool
runs(const arrowdev_launch *launch, const char *kernel)
{
    return strcmp(launch->kernel, kernel) == 0;
}

/* Bitmaps begin with the byte of the first bit. */
static size_t
uses_of_launch(const arrowdev_launch *launch, ad_engine_use *out)
{
    bool has_bits =
        runs(launch, "ad_unpack_bits") || runs(launch, "ad_count_bits") ||
        runs(launch, "ad_copy_bits") || runs(launch, "ad_fill_nulls");
    int64_t first = launch->bit_offset / 8;
    int64_t first_target = runs(launch, "ad_pack_bits") ? first
                           : runs(launch, "ad_copy_bits")
                               ? launch->numbers[0] / 8
                               : 0;
    size_t n = 0;
    if (runs(launch, "ad_gather")) {
        n = uses_of_gather(launch, out);
    } else if (launch->source.data != NULL) {
        out[n++] = use_of(AD_ENGINE_READ, &launch->source, launch->source_size,
                          has_bits ? first : 0);
    }
    out[n++] = use_of(AD_ENGINE_READ, &launch->values, launch->values_size, 0);
    out[n++] = use_of(AD_ENGINE_WRITE, &launch->target, launch->target_size,
                      first_target);
    return n;
}

static int
software_launch(void *self, void *device, void *stream,
                const arrowdev_launch *launch, arrowdev_error *error)
{
    ad_engine_use uses[MAX_STRIPS + 2];
    ENTER();
    arrowdev_launch *own = malloc(sizeof(*own));
    if (own == NULL) {
        return ARROWDEV_NO_MEMORY;
    }
    *own = *launch;
    int code = ad_engine_enqueue_use((uintptr_t)stream, run_launch, own, uses,
                                     uses_of_launch(launch, uses));
    if (code != AD_ENGINE_OK) {
        free(own);
    }
    return result(error, SLOT, code);
}

/* --- streams ------------------------------------------------------------- */

/* No other queue ever gets the handle. */
static int
software_stream_identity(void *self, void *stream, int64_t *device_id,
                         uint64_t *id, arrowdev_error *error)
{
    ENTER();
    ad_engine_queue queue;
    int code = ad_engine_queue_get((uintptr_t)stream, &queue);
    if (code == AD_ENGINE_OK) {
        *device_id = queue.device;
    }
    return result(error, SLOT, code);
}

static int
software_stream_create(void *self, void *device, void **stream,
                       arrowdev_error *error)
{
    ENTER();
    uint64_t queue = 0;
    int code =
        ad_engine_queue_create(number(device), &ad_software_tag, NULL, &queue);
    *stream = (void *)(uintptr_t)queue;
    return result(error, SLOT, code);
}

static void
software_stream_destroy(void *self, void *device, void *stream)
{
    (void)ad_engine_enter(SLOT);
    (void)ad_engine_queue_destroy((uintptr_t)stream);
}

static int
software_stream_wait(void *self, void *device, void *stream,
                     const arrowdev_event *event, arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  ad_engine_queue_wait((uintptr_t)stream,
                                       ad_engine_event_at(event->sync_event)));
}

/* --- events -------------------------------------------------------------- */

static int
software_event_record(void *self, void *device, void *stream,
                      void **sync_event, arrowdev_error *error)
{
    ENTER();
    uint64_t handle = ad_engine_event_at(*sync_event);
    const uint64_t *address = *sync_event;
    int code = AD_ENGINE_OK;
    if (address == NULL) {
        code = ad_engine_event_create(number(device), &ad_software_tag, NULL,
                                      &handle);
        if (code == AD_ENGINE_OK) {
            code = ad_engine_event_address(handle, &address);
        }
    }
    if (code == AD_ENGINE_OK) {
        code = ad_engine_event_record(handle, (uintptr_t)stream);
    }
    if (code == AD_ENGINE_OK) {
        *sync_event = (void *)address;
    } else if (*sync_event == NULL) {
        (void)ad_engine_event_destroy(handle);
    }
    return result(error, SLOT, code);
}

static int
software_event_query(void *self, const arrowdev_event *event, int32_t *is_done,
                     arrowdev_error *error)
{
    ENTER();
    int code =
        ad_engine_event_query_late(ad_engine_event_at(event->sync_event));
    *is_done = code == AD_ENGINE_OK;
    return code == AD_ENGINE_NOT_READY ? ARROWDEV_OK
                                       : result(error, SLOT, code);
}

static int
software_event_wait(void *self, const arrowdev_event *event,
                    arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  ad_engine_event_synchronize(
                      ad_engine_event_at(event->sync_event), -1));
}

static void
software_event_destroy(void *self, const arrowdev_event *event)
{
    (void)ad_engine_enter(SLOT);
    (void)ad_engine_event_destroy(ad_engine_event_at(event->sync_event));
}

static int32_t
software_event_is_known(void *self, const void *sync_event)
{
    return ad_engine_event_at(sync_event) != 0;
}

/* --- other processes ----------------------------------------------------- */

static int
software_device_uuid(void *self, int64_t id, unsigned char uuid[16],
                     arrowdev_error *error)
{
    ENTER();
    memset(uuid, 0, 16);
    snprintf((char *)uuid, 16, "software %d", (int)id);
    return ARROWDEV_OK;
}

/* The file is that of all device memory. */
static int
software_memory_export(void *self, void *device, const void *data,
                       arrowdev_shared *out, arrowdev_error *error)
{
    ENTER();
    ad_engine_allocation found;
    int file;
    int code = ad_engine_memory_file(data, &file, &out->file_offset, &found);
    if (code != AD_ENGINE_OK) {
        return result(error, SLOT, code);
    }
    out->base = found.base;
    out->nbytes = found.nbytes;
    out->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    return out->file >= 0 ? ARROWDEV_OK : refuse_descriptor(error);
}

static int
software_memory_open(void *self, void *device, const arrowdev_shared *memory,
                     void **out, arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  ad_engine_map(number(device), memory->file,
                                memory->file_offset, memory->nbytes,
                                AD_ENGINE_DEVICE, &ad_software_tag, out));
}

static void
software_memory_close(void *self, void *device, const arrowdev_shared *memory,
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

static int
software_event_export(void *self, void *device, void *stream,
                      void **sync_event, arrowdev_shared *out,
                      arrowdev_error *error)
{
    int ends[2];
    ENTER();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return refuse_descriptor(error);
    }
    int code = ad_engine_enqueue((uintptr_t)stream, run_signal,
                                 (void *)(intptr_t)ends[1]);
    if (code != AD_ENGINE_OK) {
        close(ends[0]);
        close(ends[1]);
        return result(error, SLOT, code);
    }
    out->file = ends[0];
    return ARROWDEV_OK;
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

/* Enqueue work that waits for the socket. */
static int
enqueue_wait(uint64_t queue, int file)
{
    int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return AD_ENGINE_INVALID_VALUE;
    }
    int code = ad_engine_enqueue(queue, run_wait, (void *)(intptr_t)own);
    if (code != AD_ENGINE_OK) {
        close(own);
    }
    return code;
}

/* An event of this process behind such work, on a queue of its own. */
static int
open_event(int device, int file, void **out)
{
    uint64_t queue, event;
    const uint64_t *address;
    int code = ad_engine_queue_create(device, &ad_software_tag, NULL, &queue);
    if (code != AD_ENGINE_OK) {
        return code;
    }
    code = ad_engine_event_create(device, &ad_software_tag, NULL, &event);
    if (code == AD_ENGINE_OK) {
        code = enqueue_wait(queue, file);
        if (code == AD_ENGINE_OK) {
            code = ad_engine_event_record(event, queue);
        }
        if (code == AD_ENGINE_OK) {
            code = ad_engine_event_address(event, &address);
        }
        if (code == AD_ENGINE_OK) {
            *out = (void *)address;
        } else {
            (void)ad_engine_event_destroy(event);
        }
    }
    (void)ad_engine_queue_destroy(queue); /* its work still runs */
    return code;
}

static int
software_event_open(void *self, void *device, const arrowdev_shared *event,
                    void **sync_event, arrowdev_error *error)
{
    ENTER();
    return result(error, SLOT,
                  open_event(number(device), event->file, sync_event));
}

/* The functions that are logged. "copy" is another one, that of copy_in,
 * copy_out and copy_within. */
/* clang-format off */
#define CALLS(X)                                                              \
    X(describe) X(device_count) X(device_name) X(synchronize)                 \
    X(memory_info) X(allocate) X(deallocate) X(launch)                        \
    X(stream_identity) X(stream_create) X(stream_destroy) X(stream_wait)      \
    X(event_record) X(event_query) X(event_wait) X(event_destroy)             \
    X(device_uuid) X(memory_export) X(memory_open) X(memory_close)            \
    X(event_export) X(event_open)
/* clang-format on */

const char *const ad_software_calls[] = {
    "copy",
#define NAME(member) #member,
    CALLS(NAME)
#undef NAME
        NULL,
};

const arrowdev_backend ad_software_table = {
    .size = sizeof(ad_software_table),
    .version = ARROWDEV_BACKEND_VERSION,
    .capabilities = ARROWDEV_CAP_IN_ORDER | ARROWDEV_CAP_EVENTS_REUSABLE |
                    ARROWDEV_CAP_ORDERED_DEALLOCATE |
                    ARROWDEV_CAP_SYNCHRONIZES_ALL | ARROWDEV_CAP_COPIES_ROWS,
    .name = "software",
    .load = software_load,
    .copy_in = software_copy,
    .copy_out = software_copy,
    .copy_within = software_copy,
    .event_is_known = software_event_is_known,
#define MEMBER_OF(name) .name = software_##name,
    CALLS(MEMBER_OF)
#undef MEMBER_OF
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
    return AD_OK;
}

void
ad_software_hide(void)
{
    atomic_store(&n_shown, 0);
}
