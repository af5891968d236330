#include "device/foreign.h"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/process.h"
#include "device/backend.h"
#include "device/queue_registry.h"

/* The handle of a context. */
typedef struct foreign_device {
    struct foreign_device *next;
    int64_t id;
    void *handle; /* what open_device gave */
} foreign_device;

#define NAME_SIZE 32

typedef struct foreign {
    arrowdev_backend table;
    const arrowdev_backend *source; /* only its address is used */
    int32_t types[2];
    char name[NAME_SIZE];
    struct ad_backend backend;
    ad_mutex opening; /* held while a device is opened */
    foreign_device *_Atomic devices;
} foreign;

static foreign *_Atomic backends[AD_N_DEVICE_TYPES];

static foreign *
backend_of(int32_t type)
{
    return atomic_load_explicit(&backends[type], memory_order_acquire);
}

static ad_device
device_at(const foreign *self, int64_t id)
{
    return (ad_device){self->types[0], id};
}

/* --- errors -------------------------------------------------------------- */

static void
empty(arrowdev_error *error)
{
    error->code = 0;
    error->call[0] = error->text[0] = error->hint[0] = '\0';
}

static void
end_texts(arrowdev_error *error)
{
    error->call[sizeof(error->call) - 1] = '\0';
    error->text[sizeof(error->text) - 1] = '\0';
    error->hint[sizeof(error->hint) - 1] = '\0';
}

/* Turns the result of `slot` into a status. `reason` is that of a refusal. */
static __attribute__((cold, noinline)) ad_status
fail(const foreign *self, ad_device device, const char *slot,
     const char *reason, int result, arrowdev_error *error, ad_error *err)
{
    char where[AD_DEVICE_NAME_SIZE];
    end_texts(error);
    const char *call = error->call[0] != '\0' ? error->call : slot;
    const char *text = error->text[0] != '\0' ? error->text : NULL;
    const char *hint = error->hint[0] != '\0' ? error->hint : NULL;
    switch (result) {
        case ARROWDEV_FAILED:
            return ad_fail_device(err, device, call, error->code, text, hint);
        case ARROWDEV_NO_MEMORY:
            ad_fail(err, AD_ERR_MEMORY, NULL, hint,
                    "%s on %s failed: no memory is left%s%s", call,
                    ad_device_format(device, where), text != NULL ? ": " : "",
                    text != NULL ? text : "");
            ad_error_device(err, device);
            return AD_ERR_MEMORY;
        case ARROWDEV_REFUSED:
            return ad_fail_on(err, device, reason, hint,
                              "%s (%s of the %s "
                              "backend, on %s)",
                              text != NULL ? text : "it cannot be done", slot,
                              self->name, ad_device_format(device, where));
        default:
            return ad_fail_device(
                err, device, call, result,
                "a result that arrowdev_backend.h does not have",
                "report it to the package that has the backend");
    }
}

/* Calls a function of the table, whose last argument is &error. The name of
 * the slot is that of the function. */
#define CALL(self, device, reason, slot, ...)                                 \
    call_result(self, device, #slot, reason,                                  \
                (empty(&error), (self)->table.slot((self)->table.self,        \
                                                   __VA_ARGS__, &error)),     \
                &error, err)

/* A function that succeeds has made something. */
static ad_status
require_made(const foreign *self, ad_device device, const char *slot,
             const void *made, ad_error *err)
{
    return made != NULL ? AD_OK
                        : ad_fail_device(
                              err, device, slot, ARROWDEV_OK,
                              "it returned ARROWDEV_OK, and NULL",
                              "report it to the package that has the backend");
}

static inline ad_status
call_result(const foreign *self, ad_device device, const char *slot,
            const char *reason, int result, arrowdev_error *error,
            ad_error *err)
{
    return result == ARROWDEV_OK
               ? AD_OK
               : fail(self, device, slot, reason, result, error, err);
}

static ad_status
refuse(const foreign *self, ad_device device, const char *reason,
       const char *what, ad_error *err)
{
    char where[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(err, device, reason, NULL,
                      "the %s runtime cannot %s (asked for on %s)", self->name,
                      what, ad_device_format(device, where));
}

/* --- the runtime --------------------------------------------------------- */

static ad_status
load(const foreign *self, ad_error *err)
{
    arrowdev_error error;
    if (self->table.load == NULL) {
        return AD_OK;
    }
    empty(&error);
    return call_result(self, device_at(self, -1), "load", "runtime",
                       self->table.load(self->table.self, &error), &error,
                       err);
}

static ad_status
describe(const foreign *self, char *buffer, size_t size, ad_error *err)
{
    arrowdev_error error;
    snprintf(buffer, size, "%s", self->name);
    if (self->table.describe == NULL) {
        return AD_OK;
    }
    ad_status status =
        CALL(self, device_at(self, -1), "runtime", describe, buffer, size);
    buffer[size - 1] = '\0';
    return status;
}

/* More would be a fault of the table, and devices() lists each. */
enum {
    MAX_DEVICES = 1 << 16
};

static ad_status
count(const foreign *self, int64_t *out, ad_error *err)
{
    arrowdev_error error;
    *out = 0;
    AD_RETURN_IF_ERR(
        CALL(self, device_at(self, -1), "runtime", device_count, out));
    if (*out >= 0 && *out <= MAX_DEVICES) {
        return AD_OK;
    }
    return ad_fail_device(
        err, device_at(self, -1), "device_count", *out < 0 ? -1 : INT_MAX,
        *out < 0 ? "a negative number of devices" : "more devices than 65,536",
        "report it to the package that has the backend");
}

static ad_status
device_name(const foreign *self, int64_t id, char *buffer, size_t size,
            ad_error *err)
{
    arrowdev_error error;
    snprintf(buffer, size, "%s %lld", self->name, (long long)id);
    if (self->table.device_name == NULL) {
        return AD_OK;
    }
    ad_status status = CALL(self, device_at(self, id), "device", device_name,
                            id, buffer, size);
    buffer[size - 1] = '\0';
    return status;
}

static bool
claims_event(const foreign *self, const void *sync_event)
{
    return self->table.event_is_known == NULL ||
           self->table.event_is_known(self->table.self, sync_event) != 0;
}

static bool
runs_on_host(int64_t id)
{
    return true;
}

/* --- devices ------------------------------------------------------------- */

static foreign_device *
find_device(const foreign *self, int64_t id)
{
    foreign_device *device =
        atomic_load_explicit(&self->devices, memory_order_acquire);
    while (device != NULL && device->id != id) {
        device = device->next;
    }
    return device;
}

/* With the lock. */
static ad_status
open_locked(foreign *self, int64_t id, foreign_device **out, ad_error *err)
{
    const ad_device device = device_at(self, id);
    void *handle = (void *)(uintptr_t)id;
    arrowdev_error error;
    if (self->table.open_device != NULL) {
        AD_RETURN_IF_ERR(
            CALL(self, device, "device", open_device, id, &handle));
    }
    foreign_device *made = malloc(sizeof(*made));
    if (made == NULL) {
        if (self->table.close_device != NULL) {
            self->table.close_device(self->table.self, handle);
        }
        return ad_fail_memory(err, sizeof(*made));
    }
    *made = (foreign_device){
        .next = atomic_load(&self->devices), .id = id, .handle = handle};
    atomic_store_explicit(&self->devices, made, memory_order_release);
    *out = made;
    return AD_OK;
}

static ad_status
open_device(foreign *self, int64_t id, foreign_device **out, ad_error *err)
{
    int64_t n;
    AD_RETURN_IF_ERR(count(self, &n, err));
    AD_RETURN_IF_ERR(ad_check_id(device_at(self, id), self->name, (size_t)n,
                                 "ad.devices() lists those that are there",
                                 err));
    ad_mutex_lock(&self->opening);
    ad_status status = AD_OK;
    *out = find_device(self, id);
    if (*out == NULL) {
        status = open_locked(self, id, out, err);
    }
    ad_mutex_unlock(&self->opening);
    return status;
}

/* The device of a context, whose handle may not be known. */
static ad_status
device_of(const ad_context *context, foreign **self, foreign_device **out,
          ad_error *err)
{
    *self = backend_of(context->device.type);
    *out = context->handle;
    if (*out == NULL) {
        *out = find_device(*self, context->device.id);
    }
    return *out != NULL ? AD_OK
                        : open_device(*self, context->device.id, out, err);
}

/* Each slot on a device begins with this. */
#define ENTER(context)                                                        \
    foreign *self;                                                            \
    foreign_device *device;                                                   \
    arrowdev_error error;                                                     \
    AD_RETURN_IF_ERR(device_of(&(context), &self, &device, err))

static ad_context
context_of(const foreign *self, foreign_device *device)
{
    return (ad_context){.device = device_at(self, device->id),
                        .handle = device};
}

static ad_status
foreign_primary_context(ad_device where, ad_context *out, ad_error *err)
{
    const ad_context context = {.device = where};
    foreign *self;
    foreign_device *device;
    AD_RETURN_IF_ERR(device_of(&context, &self, &device, err));
    *out = context_of(self, device);
    return AD_OK;
}

static ad_status
foreign_synchronize(ad_context context, ad_error *err)
{
    ENTER(context);
    if (self->table.synchronize == NULL) {
        return AD_OK;
    }
    return CALL(self, context.device, "runtime", synchronize, device->handle);
}

/* --- memory -------------------------------------------------------------- */

static ad_status
foreign_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                 ad_error *err)
{
    foreign *self = backend_of(hint.device.type);
    arrowdev_memory_info info = {.is_known = 1, .device_id = hint.device.id};
    arrowdev_error error;
    if (self->table.memory_info != NULL) {
        AD_RETURN_IF_ERR(
            CALL(self, hint.device, "device", memory_info, pointer, &info));
    }
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED, .context = hint};
    if (!info.is_known) {
        return AD_OK;
    }
    out->host_accessible = info.host_accessible != 0;
    out->kind = out->host_accessible ? AD_MEMORY_MANAGED : AD_MEMORY_DEVICE;
    return foreign_primary_context(device_at(self, info.device_id),
                                   &out->context, err);
}

static ad_status
foreign_allocate(ad_context context, ad_stream stream, size_t nbytes,
                 void **out, ad_error *err)
{
    ENTER(context);
    if (self->table.allocate == NULL) {
        return refuse(self, context.device, "runtime", "allocate memory", err);
    }
    *out = NULL;
    AD_RETURN_IF_ERR(CALL(self, context.device, "device", allocate,
                          device->handle, (void *)stream.handle, nbytes, out));
    return require_made(self, context.device, "allocate", *out, err);
}

/* What was made in a context has its handle. */
static void
foreign_deallocate(ad_context context, ad_stream stream, void *data,
                   size_t nbytes)
{
    const foreign *self = backend_of(context.device.type);
    const foreign_device *device = context.handle;
    self->table.deallocate(self->table.self, device->handle,
                           (void *)stream.handle, data, nbytes);
}

/* The device of a span, NULL for the host. */
static ad_status
span_device(const ad_span *span, foreign_device **out, ad_error *err)
{
    foreign *self;
    *out = NULL;
    return ad_device_equal(span->context.device, AD_CPU)
               ? AD_OK
               : device_of(&span->context, &self, out, err);
}

static arrowdev_span
span_of(const ad_span *span)
{
    return (arrowdev_span){.data = span->data, .offset = span->offset};
}

typedef int copy_function(void *self, void *device, void *stream,
                          const arrowdev_copy *copy, arrowdev_error *error);

/* The function for a copy between these devices, NULL for the host. */
static copy_function *
find_copy(const foreign *self, const foreign_device *target,
          const foreign_device *source, const char **slot)
{
    if (source == NULL) {
        *slot = "copy_in";
        return self->table.copy_in;
    }
    *slot = target == NULL ? "copy_out" : "copy_within";
    return target == NULL ? self->table.copy_out : self->table.copy_within;
}

static ad_status
foreign_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
             ad_error *err)
{
    ENTER(context);
    foreign_device *target, *source;
    const char *slot;
    AD_RETURN_IF_ERR(span_device(&copy->target, &target, err));
    AD_RETURN_IF_ERR(span_device(&copy->source, &source, err));
    copy_function *function = find_copy(self, target, source, &slot);
    if (function == NULL) {
        return refuse(self, context.device, "runtime",
                      source == NULL   ? "copy from the host"
                      : target == NULL ? "copy to the host"
                                       : "copy on its devices",
                      err);
    }
    arrowdev_copy part = {
        .target = span_of(&copy->target),
        .source = span_of(&copy->source),
        .target_device = target != NULL ? target->handle : NULL,
        .source_device = source != NULL ? source->handle : NULL,
        .target_pitch = copy->target_pitch,
        .source_pitch = copy->source_pitch,
        .width = copy->width,
        .height = copy->height,
    };
    const bool takes_rows =
        (self->table.capabilities & ARROWDEV_CAP_COPIES_ROWS) != 0;
    size_t n_calls = takes_rows ? 1 : copy->height;
    part.height = takes_rows ? copy->height : 1;
    for (size_t i = 0; i < n_calls; i++) {
        empty(&error);
        int result = function(self->table.self, device->handle,
                              (void *)stream.handle, &part, &error);
        AD_RETURN_IF_ERR(call_result(self, context.device, slot, "device",
                                     result, &error, err));
        part.target.offset += copy->target_pitch;
        part.source.offset += copy->source_pitch;
    }
    return AD_OK;
}

/* --- kernels ------------------------------------------------------------- */

static ad_span
host_span(const arrowdev_span *span)
{
    return (ad_span){.context = {.device = AD_CPU},
                     .data = span->data,
                     .offset = span->offset};
}

static void
run_launch(const arrowdev_launch *launch)
{
    ad_launch own = {
        .kernel = (ad_kernel)launch->reserved[0],
        .source = host_span(&launch->source),
        .values = host_span(&launch->values),
        .target = host_span(&launch->target),
        .bit_offset = launch->bit_offset,
        .length = launch->length,
        .n_items = launch->n_items,
    };
    memcpy(own.numbers, launch->numbers, sizeof(own.numbers));
    ad_kernel_run_on_host(&own);
}

_Static_assert(sizeof(((ad_launch *)0)->numbers) ==
                   sizeof(((arrowdev_launch *)0)->numbers),
               "the numbers are copied");

static ad_status
foreign_launch(ad_context context, ad_stream stream, const ad_launch *launch,
               ad_error *err)
{
    ENTER(context);
    if (self->table.launch == NULL) {
        return refuse(self, context.device, "kernel", "run kernels", err);
    }
    arrowdev_launch own = {
        .kernel = ad_kernel_name(launch->kernel),
        .opencl_source = ad_kernels_opencl,
        .source = span_of(&launch->source),
        .values = span_of(&launch->values),
        .target = span_of(&launch->target),
        .bit_offset = launch->bit_offset,
        .length = launch->length,
        .n_items = launch->n_items,
        .source_size = ad_launch_source_size(launch),
        .values_size = ad_launch_values_size(launch),
        .target_size = ad_launch_target_size(launch),
        .run = run_launch,
        .reserved = {launch->kernel},
    };
    memcpy(own.numbers, launch->numbers, sizeof(own.numbers));
    return CALL(self, context.device, "kernel", launch, device->handle,
                (void *)stream.handle, &own);
}

/* --- streams ------------------------------------------------------------- */

/* `hint` may have an id of -1. */
static ad_status
identify_stream(const foreign *self, ad_stream stream, ad_device hint,
                int64_t *device_id, uint64_t *id, ad_error *err)
{
    arrowdev_error error;
    *device_id = hint.id;
    *id = 0;
    if (self->table.stream_identity == NULL) {
        return AD_OK;
    }
    return CALL(self, hint, "stream", stream_identity, (void *)stream.handle,
                device_id, id);
}

static ad_status
foreign_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                       ad_error *err)
{
    const foreign *self = backend_of(hint.device.type);
    int64_t device_id;
    uint64_t id;
    AD_RETURN_IF_ERR(
        identify_stream(self, stream, hint.device, &device_id, &id, err));
    AD_RETURN_IF_ERR(
        foreign_primary_context(device_at(self, device_id), out, err));
    return ad_queue_check_device(out->device, hint.device, err);
}

static bool
foreign_stream_id(ad_context context, ad_stream stream, uint64_t *out)
{
    int64_t device_id;
    return identify_stream(backend_of(context.device.type), stream,
                           context.device, &device_id, out, NULL) == AD_OK &&
           *out != 0;
}

static ad_status
foreign_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    ENTER(context);
    void *stream = NULL;
    AD_RETURN_IF_ERR(CALL(self, context.device, "runtime", stream_create,
                          device->handle, &stream));
    out->handle = (uintptr_t)stream;
    return require_made(self, context.device, "stream_create", stream, err);
}

static void
foreign_stream_destroy(ad_context context, ad_stream stream)
{
    const foreign *self = backend_of(context.device.type);
    const foreign_device *device = context.handle;
    self->table.stream_destroy(self->table.self, device->handle,
                               (void *)stream.handle);
}

/* --- events -------------------------------------------------------------- */

/* Own events have the context in which they were recorded; of others only the
 * device is known. */
static arrowdev_event
event_of(const ad_context *context, const foreign_device *device,
         ad_event event)
{
    return (arrowdev_event){.sync_event = event.handle,
                            .device = device->handle,
                            .is_own = context->handle != NULL};
}

static ad_status
foreign_stream_wait_in(ad_context context, ad_stream stream, ad_event event,
                       ad_context of, ad_error *err)
{
    ENTER(context);
    foreign_device *home;
    AD_RETURN_IF_ERR(device_of(&of, &self, &home, err));
    const arrowdev_event waited = event_of(&of, home, event);
    return CALL(self, context.device, "event", stream_wait, device->handle,
                (void *)stream.handle, &waited);
}

static ad_status
foreign_event_record(ad_context context, ad_stream stream, ad_event *event,
                     ad_error *err)
{
    ENTER(context);
    void *sync_event = event->handle;
    AD_RETURN_IF_ERR(CALL(self, context.device, "event", event_record,
                          device->handle, (void *)stream.handle, &sync_event));
    AD_RETURN_IF_ERR(
        require_made(self, context.device, "event_record", sync_event, err));
    event->handle = sync_event;
    return AD_OK;
}

static ad_status
foreign_event_query(ad_context context, ad_event event, bool *out,
                    ad_error *err)
{
    ENTER(context);
    const arrowdev_event asked = event_of(&context, device, event);
    int32_t is_done = 0;
    AD_RETURN_IF_ERR(
        CALL(self, context.device, "event", event_query, &asked, &is_done));
    *out = is_done != 0;
    return AD_OK;
}

/* For a runtime that cannot sleep until an event is done. */
static ad_status
poll_event(ad_context context, ad_event event, ad_error *err)
{
    int64_t pause = 20000; /* nanoseconds */
    bool is_done = false;
    for (;;) {
        AD_RETURN_IF_ERR(foreign_event_query(context, event, &is_done, err));
        if (is_done) {
            return AD_OK;
        }
        ad_sleep(pause);
        pause = pause < 500000 ? 2 * pause : 1000000;
    }
}

static ad_status
foreign_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    ENTER(context);
    if (self->table.event_wait == NULL) {
        return poll_event(context, event, err);
    }
    const arrowdev_event waited = event_of(&context, device, event);
    return CALL(self, context.device, "event", event_wait, &waited);
}

static void
foreign_event_destroy(ad_context context, ad_event event)
{
    const foreign *self = backend_of(context.device.type);
    const foreign_device *device = context.handle;
    const arrowdev_event own = event_of(&context, device, event);
    self->table.event_destroy(self->table.self, &own);
}

/* --- a runtime whose calls have done their work when they return ---------- */

static char done_event; /* only its address is used */

static ad_status
done_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    out->handle = 1;
    return AD_OK;
}

static ad_status
done_stream_wait_in(ad_context context, ad_stream stream, ad_event event,
                    ad_context of, ad_error *err)
{
    return AD_OK;
}

static ad_status
done_event_record(ad_context context, ad_stream stream, ad_event *event,
                  ad_error *err)
{
    event->handle = &done_event;
    return AD_OK;
}

static ad_status
done_event_query(ad_context context, ad_event event, bool *out, ad_error *err)
{
    *out = true;
    return AD_OK;
}

static ad_status
done_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    return AD_OK;
}

/* --- other processes ----------------------------------------------------- */

static ad_status
device_uuid(const foreign *self, int64_t id, unsigned char out[AD_UUID_SIZE],
            ad_error *err)
{
    arrowdev_error error;
    return CALL(self, device_at(self, id), "share", device_uuid, id, out);
}

static ad_status
foreign_memory_export(ad_context context, const void *pointer,
                      ad_ipc_memory *out, ad_error *err)
{
    ENTER(context);
    arrowdev_shared made = {.file = -1};
    AD_RETURN_IF_ERR(CALL(self, context.device, "share", memory_export,
                          device->handle, pointer, &made));
    *out = (ad_ipc_memory){
        .kind = made.file >= 0 ? AD_IPC_FILE : AD_IPC_LEGACY,
        .file = made.file,
        .file_offset = made.file_offset,
        .base = made.base,
        .nbytes = made.nbytes,
    };
    memcpy(out->bytes, made.bytes, sizeof(made.bytes));
    return AD_OK;
}

_Static_assert(AD_IPC_BYTES == sizeof(((arrowdev_shared *)0)->bytes),
               "the bytes are copied");

static arrowdev_shared
shared_memory(const ad_ipc_memory *memory)
{
    arrowdev_shared result = {
        .file = memory->file,
        .file_offset = memory->file_offset,
        .base = memory->base,
        .nbytes = memory->nbytes,
    };
    memcpy(result.bytes, memory->bytes, sizeof(result.bytes));
    return result;
}

static ad_status
foreign_memory_open(ad_context context, const ad_ipc_memory *memory,
                    void **out, ad_error *err)
{
    ENTER(context);
    const arrowdev_shared given = shared_memory(memory);
    *out = NULL;
    AD_RETURN_IF_ERR(CALL(self, context.device, "share", memory_open,
                          device->handle, &given, out));
    return require_made(self, context.device, "memory_open", *out, err);
}

static void
foreign_memory_close(ad_context context, const ad_ipc_memory *memory,
                     void *data)
{
    const foreign *self = backend_of(context.device.type);
    const foreign_device *device = context.handle;
    const arrowdev_shared given = shared_memory(memory);
    self->table.memory_close(self->table.self, device->handle, &given, data);
}

static ad_status
foreign_event_export(ad_context context, ad_stream stream, ad_event *event,
                     ad_ipc_event *out, ad_error *err)
{
    ENTER(context);
    arrowdev_shared made = {.file = -1};
    void *sync_event = NULL;
    AD_RETURN_IF_ERR(CALL(self, context.device, "share", event_export,
                          device->handle, (void *)stream.handle, &sync_event,
                          &made));
    event->handle = sync_event;
    out->file = made.file;
    memcpy(out->bytes, made.bytes, sizeof(made.bytes));
    return AD_OK;
}

static ad_status
foreign_event_open(ad_context context, const ad_ipc_event *event,
                   ad_event *out, ad_error *err)
{
    ENTER(context);
    arrowdev_shared given = {.file = event->file};
    memcpy(given.bytes, event->bytes, sizeof(given.bytes));
    void *sync_event = NULL;
    AD_RETURN_IF_ERR(CALL(self, context.device, "share", event_open,
                          device->handle, &given, &sync_event));
    out->handle = sync_event;
    return require_made(self, context.device, "event_open", sync_event, err);
}

/* --- slots that do not say which backend is meant ------------------------- */

/* The types that no backend of arrowdev's own serves. */
/* clang-format off */
#define TYPES(X)                                                              \
    X(5) X(6) X(7) X(8) X(9) X(12) X(15) X(16) X(17) X(18) X(19) X(20) X(21)  \
    X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */

#define DEFINE(type)                                                          \
    static ad_status load_##type(ad_error *err)                               \
    {                                                                         \
        return load(backend_of(type), err);                                   \
    }                                                                         \
    static ad_status describe_##type(char *buffer, size_t size,               \
                                     ad_error *err)                           \
    {                                                                         \
        return describe(backend_of(type), buffer, size, err);                 \
    }                                                                         \
    static ad_status count_##type(int64_t *out, ad_error *err)                \
    {                                                                         \
        return count(backend_of(type), out, err);                             \
    }                                                                         \
    static ad_status device_name_##type(int64_t id, char *buffer,             \
                                        size_t size, ad_error *err)           \
    {                                                                         \
        return device_name(backend_of(type), id, buffer, size, err);          \
    }                                                                         \
    static bool claims_event_##type(const void *sync_event)                   \
    {                                                                         \
        return claims_event(backend_of(type), sync_event);                    \
    }                                                                         \
    static ad_status device_uuid_##type(                                      \
        int64_t id, unsigned char out[AD_UUID_SIZE], ad_error *err)           \
    {                                                                         \
        return device_uuid(backend_of(type), id, out, err);                   \
    }
TYPES(DEFINE)

static bool
claims_done_event(const void *sync_event)
{
    return sync_event == &done_event;
}

#define SLOTS_OF(type)                                                        \
    [type] = {                                                                \
        .load = load_##type,                                                  \
        .describe = describe_##type,                                          \
        .count = count_##type,                                                \
        .device_name = device_name_##type,                                    \
        .claims_event = claims_event_##type,                                  \
        .device_uuid = device_uuid_##type,                                    \
    },
static const struct ad_backend of_type[AD_N_DEVICE_TYPES] = {TYPES(SLOTS_OF)};
_Static_assert(AD_N_DEVICE_TYPES == 32, "TYPES lists each type up to 31");

/* --- registration -------------------------------------------------------- */

/* The size of version 1, and one that no version will have. */
#define MIN_TABLE                                                             \
    (offsetof(arrowdev_backend, event_open) +                                 \
     sizeof(((arrowdev_backend *)NULL)->event_open))
#define MAX_TABLE 4096

static ad_status
fail_table(const char *name, ad_error *err, const char *what, const char *hint)
{
    return ad_fail(err, AD_ERR_VALUE, NULL, hint,
                   "the arrowdev_backend %s%s%s", name, name[0] ? " " : "",
                   what);
}

/* Copies the table of a caller whose struct may be shorter or longer. What a
 * shorter one does not have is NULL. */
static ad_status
read_table(const arrowdev_backend *given, arrowdev_backend *out, ad_error *err)
{
    const size_t known = sizeof(*out);
    const unsigned char *bytes = (const unsigned char *)given;
    if (given->size < MIN_TABLE || given->size > MAX_TABLE) {
        return ad_fail(err, AD_ERR_VALUE, NULL,
                       "set it to sizeof(arrowdev_backend)",
                       "size of the arrowdev_backend is %zu, expected %zu to "
                       "%d",
                       given->size, MIN_TABLE, MAX_TABLE);
    }
    if (given->version < 1 || given->version > ARROWDEV_BACKEND_VERSION) {
        return ad_fail(err, AD_ERR_VALUE, NULL,
                       given->version < 1
                           ? "set it to ARROWDEV_BACKEND_VERSION"
                           : "upgrade arrowdev",
                       "version of the arrowdev_backend is %u, and this "
                       "arrowdev knows 1 to %d",
                       (unsigned int)given->version, ARROWDEV_BACKEND_VERSION);
    }
    for (size_t i = known; i < given->size; i++) {
        if (bytes[i] != 0) {
            return ad_fail(err, AD_ERR_VALUE, NULL,
                           "leave it 0, or upgrade arrowdev",
                           "byte %zu of the arrowdev_backend is a function of "
                           "a newer arrowdev_backend.h",
                           i);
        }
    }
    memset(out, 0, known);
    memcpy(out, given, given->size < known ? given->size : known);
    return AD_OK;
}

static bool
is_word(const char *name)
{
    size_t n = name != NULL ? strlen(name) : 0;
    return n > 0 && n < NAME_SIZE &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

/* Members that are there together or not at all. */
typedef struct member {
    const char *name;
    bool is_there;
} member;

#define MEMBER(name)                                                          \
    {                                                                         \
#name, table->name != NULL                                            \
    }

static ad_status
check_together(const arrowdev_backend *table, const member *members, size_t n,
               ad_error *err)
{
    const member *there = NULL, *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        if (members[i].is_there) {
            there = there != NULL ? there : &members[i];
        } else {
            missing = missing != NULL ? missing : &members[i];
        }
    }
    if (there == NULL || missing == NULL) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_VALUE, NULL, "fill in both, or neither of them",
                   "the arrowdev_backend %s has %s, and its %s is NULL",
                   table->name, there->name, missing->name);
}

static ad_status
check_table(const arrowdev_backend *table, ad_error *err)
{
    const member memory[] = {MEMBER(allocate), MEMBER(deallocate)};
    const member order[] = {
        MEMBER(stream_create), MEMBER(stream_destroy), MEMBER(stream_wait),
        MEMBER(event_record),  MEMBER(event_query),    MEMBER(event_destroy),
        MEMBER(synchronize),
    };
    const member sharing[] = {
        MEMBER(device_uuid),  MEMBER(memory_export), MEMBER(memory_open),
        MEMBER(memory_close), MEMBER(event_export),  MEMBER(event_open),
    };
    const uint32_t known = 2 * ARROWDEV_CAP_RUNS_ON_HOST - 1;
    if (!is_word(table->name)) {
        return fail_table(
            "", err,
            "has no usable name: it has to be 1 to 31 lower-case "
            "letters, digits and underscores",
            NULL);
    }
    if (table->device_count == NULL) {
        return fail_table(table->name, err,
                          "has no device_count, which is required", NULL);
    }
    if ((table->capabilities & ~known) != 0) {
        return fail_table(table->name, err,
                          "has capabilities that this arrowdev does not know",
                          "upgrade arrowdev, or leave them out");
    }
    AD_RETURN_IF_ERR(check_together(table, memory,
                                    sizeof(memory) / sizeof(memory[0]), err));
    AD_RETURN_IF_ERR(
        check_together(table, order, sizeof(order) / sizeof(order[0]), err));
    return check_together(table, sharing, sizeof(sharing) / sizeof(sharing[0]),
                          err);
}

static uint32_t
capabilities_of(const arrowdev_backend *table)
{
    static const uint32_t same[][2] = {
        {ARROWDEV_CAP_IN_ORDER, AD_CAP_IN_ORDER},
        {ARROWDEV_CAP_EVENTS_REUSABLE, AD_CAP_EVENTS_REUSABLE},
        {ARROWDEV_CAP_ORDERED_DEALLOCATE, AD_CAP_ORDERED_DEALLOCATE},
        {ARROWDEV_CAP_SYNCHRONIZES_ALL, AD_CAP_CONTEXT_IDLE},
    };
    uint32_t result = AD_CAP_SYNC_EVENT_IS_HANDLE | AD_CAP_EVENT_HAS_CONTEXT |
                      AD_CAP_DEVICES_COME;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        result |= (table->capabilities & same[i][0]) != 0 ? same[i][1] : 0;
    }
    if ((table->capabilities & ARROWDEV_CAP_COPIES_ROWS) == 0) {
        result |= AD_CAP_COPY_BY_ROW;
    }
    if (table->stream_create == NULL) {
        result |= AD_CAP_IN_ORDER | AD_CAP_CONTEXT_IDLE;
    }
    return result;
}

static void
fill_streams(struct ad_backend *backend)
{
    backend->stream_context = foreign_stream_context;
    backend->stream_id = foreign_stream_id;
    backend->stream_create = foreign_stream_create;
    backend->stream_destroy = foreign_stream_destroy;
    backend->stream_wait_in = foreign_stream_wait_in;
    backend->event_record = foreign_event_record;
    backend->event_query = foreign_event_query;
    backend->event_synchronize = foreign_event_synchronize;
    backend->event_destroy = foreign_event_destroy;
}

static void
fill_done_streams(struct ad_backend *backend)
{
    backend->claims_event = claims_done_event;
    backend->stream_context = foreign_stream_context;
    backend->stream_create = done_stream_create;
    backend->stream_wait_in = done_stream_wait_in;
    backend->event_record = done_event_record;
    backend->event_query = done_event_query;
    backend->event_synchronize = done_event_synchronize;
}

static void
fill_sharing(struct ad_backend *backend)
{
    backend->memory_export = foreign_memory_export;
    backend->memory_open = foreign_memory_open;
    backend->memory_close = foreign_memory_close;
    backend->event_export = foreign_event_export;
    backend->event_open = foreign_event_open;
}

/* The backend of a table that was checked. */
static foreign *
make(int32_t device_type, const arrowdev_backend *table,
     const arrowdev_backend *source, ad_error *err)
{
    foreign *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        ad_fail_memory(err, sizeof(*self));
        return NULL;
    }
    self->table = *table;
    self->source = source;
    self->types[0] = device_type;
    snprintf(self->name, sizeof(self->name), "%s", table->name);
    self->table.name = self->name;
    ad_mutex_init(&self->opening);
    struct ad_backend *backend = &self->backend;
    if (device_type > 0 && device_type < AD_N_DEVICE_TYPES) {
        *backend = of_type[device_type];
    }
    backend->name = self->name;
    backend->device_types = self->types;
    backend->capabilities = capabilities_of(table);
    if ((table->capabilities & ARROWDEV_CAP_RUNS_ON_HOST) != 0) {
        backend->runs_on_host = runs_on_host;
    }
    backend->primary_context = foreign_primary_context;
    backend->synchronize = foreign_synchronize;
    backend->classify = foreign_classify;
    backend->allocate = foreign_allocate;
    backend->deallocate = foreign_deallocate;
    backend->copy = foreign_copy;
    backend->launch = foreign_launch;
    if (table->stream_create != NULL) {
        fill_streams(backend);
    } else {
        fill_done_streams(backend);
    }
    if (table->memory_export != NULL) {
        fill_sharing(backend);
    } else {
        backend->device_uuid = NULL;
    }
    return self;
}

/* With the lock. */
static ad_status
register_locked(foreign *made, bool again, bool *is_kept, ad_error *err)
{
    const int32_t type = made->types[0];
    bool has_slots = made->backend.load != NULL;
    foreign *before = has_slots ? backend_of(type) : NULL;
    if (before != NULL && again && before->source == made->source) {
        return AD_OK;
    }
    /* Where there is one, the registry refuses the second. */
    if (before == NULL && has_slots) {
        atomic_store_explicit(&backends[type], made, memory_order_release);
    }
    ad_status status = ad_backend_register(&made->backend, err);
    *is_kept = status == AD_OK;
    if (!*is_kept && before == NULL && has_slots) {
        atomic_store_explicit(&backends[type], NULL, memory_order_release);
    }
    return status;
}

static ad_mutex registering = AD_MUTEX_INIT;

/* Another thread of the parent may have held it. */
static void
after_fork(void)
{
    ad_mutex_init(&registering);
}

static void
add_hook(void)
{
    static ad_child_hook hook = {.run = after_fork};
    (void)ad_process_add_child_hook(&hook);
}

ad_status
ad_foreign_register(int32_t device_type, const arrowdev_backend *table,
                    bool again, ad_error *err)
{
    static ad_once once = AD_ONCE_INIT;
    arrowdev_backend read;
    bool is_kept = false;
    AD_RETURN_IF_ERR(read_table(table, &read, err));
    AD_RETURN_IF_ERR(check_table(&read, err));
    if (device_type == 0) { /* to the registry it ends the list of types */
        return ad_fail(err, AD_ERR_EXCHANGE, "runtime",
                       "pass one of ARROW_DEVICE_* or of kDL*",
                       "the backend %s cannot serve the device type 0: there "
                       "is no such type",
                       read.name);
    }
    foreign *made = make(device_type, &read, table, err);
    if (made == NULL) {
        return AD_ERR_MEMORY;
    }
    ad_once_call(&once, add_hook);
    ad_mutex_lock(&registering);
    ad_status status = register_locked(made, again, &is_kept, err);
    ad_mutex_unlock(&registering);
    if (!is_kept) {
        ad_mutex_destroy(&made->opening);
        free(made);
    }
    return status;
}
