#include "device/gpu/gpu.h"

#include "base/thread_local.h"
#include "base/wait.h"

/* --- errors -------------------------------------------------------------- */

/* A kernel or the device has failed: nothing runs in the process any more, on
 * any thread. cuda.h: "This leaves the process in an inconsistent state and
 * any further CUDA work will return the same error." Of errors that cannot be
 * corrected it says less, but their memory is lost. */
static bool
is_broken(int code)
{
    switch (code) {
        case AD_GPU_ECC_UNCORRECTABLE:
        case AD_GPU_NVLINK_UNCORRECTABLE:
        case AD_GPU_CONTAINED:
        case AD_GPU_ILLEGAL_ADDRESS:
        case AD_GPU_LAUNCH_TIMEOUT:
        case AD_GPU_ASSERT:
        case AD_GPU_TENSOR_MEMORY_LEAK:
        case AD_GPU_MPS_CLIENT_TERMINATED:
        case AD_GPU_EXTERNAL_DEVICE:
            return true;
        default:
            return code >= AD_GPU_HARDWARE_STACK_ERROR &&
                   code <= AD_GPU_LAUNCH_FAILED;
    }
}

static const char *
hint_for(int code)
{
    if (is_broken(code)) {
        return "a kernel that was started earlier, or the device, has failed; "
               "the device can be used again by a new process only";
    }
    switch (code) {
        case AD_GPU_DEVICE_UNAVAILABLE:
            return "another process may have the device for itself: see its "
                   "compute mode in nvidia-smi";
        case AD_CUDA_NOT_PERMITTED:
            return "the thread runs a host function of a stream, in which "
                   "CUDA permits no call: do it elsewhere";
        case AD_GPU_DEINITIALIZED:
            return "the runtime has shut down: drop what lies on the device "
                   "before the process ends";
        case AD_GPU_INVALID_CONTEXT:
        case AD_GPU_CONTEXT_IS_DESTROYED:
            return "the context that it belongs to is gone, or not current on "
                   "this thread: keep the library that made it from "
                   "resetting the device";
        case AD_GPU_INVALID_HANDLE:
            return "a stream or an event was destroyed, or belongs to another "
                   "device: keep the object it came from alive while it is "
                   "used";
        default:
            return NULL;
    }
}

static const char *
hint_for_capture(int code)
{
    switch (code) {
        case AD_GPU_CAPTURE_INVALIDATED:
            return "the capture was broken before: end it, and find out what "
                   "the first error was";
        case AD_GPU_CAPTURE_IMPLICIT:
            return "the legacy default stream cannot be used while a stream "
                   "that waits for it is captured: pass another (stream=...)";
        case AD_GPU_CAPTURED_EVENT:
            return "the data are made by a graph that is being captured: wait "
                   "for them on a stream of the same capture (stream=...), or "
                   "once the graph was launched";
        default:
            return "do it before the capture begins or after it has ended";
    }
}

static AD_THREAD_LOCAL unsigned int n_refused;

bool
ad_gpu_is_ok(int code)
{
    if (code == AD_CUDA_NOT_PERMITTED) {
        n_refused++;
    }
    return code == AD_GPU_SUCCESS;
}

unsigned int
ad_gpu_n_refused(void)
{
    return n_refused;
}

ad_status
ad_gpu_fail(const struct ad_gpu *gpu, ad_device device, ad_gpu_result result,
            ad_error *err)
{
    gpu->forget_error();
    (void)ad_gpu_is_ok(result.code);
    ad_fail_device(err, device, result.call, result.code,
                   gpu->error_name(result.code), hint_for(result.code));
    if (result.code < AD_GPU_CAPTURE_UNSUPPORTED ||
        result.code > AD_GPU_CAPTURE_WRONG_THREAD) {
        return AD_ERR_DEVICE;
    }
    if (err != NULL) {
        err->status = AD_ERR_EXCHANGE;
        ad_error_reason(err, "capture");
        ad_error_hint(err, "%s", hint_for_capture(result.code));
    }
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_fail_start(const struct ad_gpu *gpu, ad_gpu_result result,
                  const char *hint, ad_error *err)
{
    const char *name = gpu->error_name(result.code);
    gpu->forget_error();
    ad_fail(err, AD_ERR_EXCHANGE, "runtime", hint,
            "the %s runtime is installed and does not start: %s failed: %s "
            "(%d)",
            gpu->name, result.call,
            name != NULL ? name : "an error without a name", result.code);
    if (err != NULL) {
        err->code = result.code;
    }
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_check_id(const struct ad_gpu *gpu, ad_device device, ad_error *err)
{
    return ad_check_id(device, gpu->name, (size_t)*gpu->n_devices,
                       device.id < 0
                           ? "say which one: ad.devices() lists those that "
                             "are there"
                           : "ad.devices() lists those that are there",
                       err);
}

ad_status
ad_gpu_fail_stream(const struct ad_gpu *gpu, ad_stream stream,
                   ad_device wanted, ad_device found, ad_error *err)
{
    char on[AD_DEVICE_NAME_SIZE], for_data[AD_DEVICE_NAME_SIZE];
    ad_device_format(wanted, for_data);
    ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
            "%s stream 0x%zx runs on %s, but is named for data on %s",
            gpu->name, (size_t)stream.handle, ad_device_format(found, on),
            for_data);
    ad_error_hint(err, "pass a stream of %s", for_data);
    ad_error_device(err, wanted);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_gpu_fail_kind(const struct ad_gpu *gpu, ad_device device, int kind,
                 ad_error *err)
{
    return ad_fail_on(
        err, device, "device",
        "copy the data to device, pinned or managed memory",
        "%s says that the pointer is to memory of kind %d; device, pinned "
        "and managed memory are known",
        gpu->name, kind);
}

/* What ad_gpu_begin_calls has made current on this thread. */
static AD_THREAD_LOCAL struct {
    const struct ad_gpu *gpu; /* NULL: nothing */
    unsigned int depth;
    ad_gpu_scope scope;
} held;

const ad_context *
ad_gpu_held(const struct ad_gpu *gpu)
{
    return held.gpu == gpu ? &held.scope.entered : NULL;
}

static ad_gpu_result
enter(const struct ad_gpu *gpu, ad_context context, ad_gpu_scope *scope)
{
    const ad_context *current = ad_gpu_held(gpu);
    bool is_held =
        current != NULL && context.handle == current->handle &&
        (context.handle != NULL || context.device.id == current->device.id);
    return is_held ? (ad_gpu_result){AD_GPU_SUCCESS, NULL}
                   : gpu->enter(context, scope);
}

void
ad_gpu_begin_calls(ad_context context)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    if (held.depth++ != 0) {
        return;
    }
    held.scope = (ad_gpu_scope){.entered = context};
    if (gpu->enter(context, &held.scope).code == AD_GPU_SUCCESS) {
        held.gpu = gpu;
    } else {
        gpu->forget_error();
    }
}

void
ad_gpu_end_calls(ad_context context)
{
    const struct ad_gpu *gpu = held.gpu;
    if (--held.depth == 0 && gpu != NULL) {
        held.gpu = NULL;
        ad_gpu_leave(gpu, &held.scope);
    }
}

ad_status
ad_gpu_enter(const struct ad_gpu *gpu, ad_context context, ad_gpu_scope *scope,
             ad_error *err)
{
    *scope = (ad_gpu_scope){.is_moved = false};
    ad_gpu_result result = enter(gpu, context, scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

static void
relax(const struct ad_gpu *gpu, ad_gpu_scope *scope)
{
    scope->mode = AD_GPU_CAPTURE_MODE_RELAXED;
    if (gpu->calls->exchange_capture_mode != NULL) {
        scope->is_relaxed =
            gpu->calls->exchange_capture_mode(&scope->mode) == AD_GPU_SUCCESS;
        if (!scope->is_relaxed) {
            gpu->forget_error();
        }
    }
}

/* Between ad_gpu_begin_calls and ad_gpu_end_calls the thread is relaxed once,
 * on first need. */
void
ad_gpu_relax(const struct ad_gpu *gpu, ad_gpu_scope *scope)
{
    scope->is_relaxed = false;
    if (held.gpu != gpu) {
        relax(gpu, scope);
    } else if (!held.scope.is_relaxed) {
        relax(gpu, &held.scope);
    }
}

/* A call may report the failure of earlier work, but only once. */
void
ad_gpu_restore(const struct ad_gpu *gpu, const ad_gpu_scope *scope)
{
    int mode = scope->mode;
    if (gpu->calls->exchange_capture_mode(&mode) != AD_GPU_SUCCESS) {
        gpu->forget_error();
        (void)gpu->calls->exchange_capture_mode(&mode);
    }
}

/* --- contexts ------------------------------------------------------------ */

ad_status
ad_gpu_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(device);
    void *handle;
    if (device.id < 0 && device.type != gpu->device_type) {
        /* Pinned and managed memory may come without an ordinal. */
        AD_RETURN_IF_ERR(
            ad_gpu_check(gpu, device, gpu->current(&handle, &device.id), err));
        device.id = device.id < 0 ? 0 : device.id;
    }
    AD_RETURN_IF_ERR(ad_gpu_check_id(gpu, device, err));
    AD_RETURN_IF_ERR(
        ad_gpu_check(gpu, device, gpu->primary(device.id, &handle), err));
    *out = (ad_context){device, handle};
    return AD_OK;
}

/* A destroyed context has no pending work. */
ad_status
ad_gpu_synchronize(ad_context context, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_result result = enter(gpu, context, &scope);
    if (result.code == AD_GPU_SUCCESS) {
        ad_gpu_relax(gpu, &scope);
        result =
            (ad_gpu_result){gpu->calls->synchronize(), gpu->names.synchronize};
        ad_gpu_memory_trim(gpu, context.device.id);
        ad_gpu_leave(gpu, &scope);
    }
    if (context.handle != NULL && ad_gpu_is_gone(result.code)) {
        gpu->forget_error();
        return AD_OK;
    }
    return ad_gpu_check(gpu, context.device, result, err);
}

/* A destroyed context has destroyed its streams and events. */
static void
destroy(ad_context context, int (*call)(void *), void *handle)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    if (ad_gpu_enter(gpu, context, &scope, NULL) == AD_OK) {
        if (!ad_gpu_is_ok(call(handle))) {
            gpu->forget_error();
        }
        ad_gpu_leave(gpu, &scope);
    }
}

/* --- streams ------------------------------------------------------------- */

ad_status
ad_gpu_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    void *made = NULL;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result = {
        gpu->calls->stream_create(&made, AD_GPU_STREAM_NON_BLOCKING),
        gpu->names.stream_create};
    ad_gpu_leave(gpu, &scope);
    out->handle = (uintptr_t)made;
    return ad_gpu_check(gpu, context.device, result, err);
}

void
ad_gpu_stream_destroy(ad_context context, ad_stream stream)
{
    destroy(context, ad_gpu_of(context.device)->calls->stream_destroy,
            ad_gpu_handle(stream));
}

/* --- foreign streams and events ------------------------------------------ */

/* A stream with a handle of its own belongs to a fixed context, so a call on
 * it needs no current context. A default stream is a different one in each
 * context. */
static inline bool
has_handle(ad_context context, ad_stream stream)
{
    return !ad_stream_is_default(context.device, stream);
}

/* A call on handles has returned `code`. Is the call to be made again in the
 * stream's own context, which this function enters? The call may have failed
 * because of the current context: there is none, or it is destroyed or
 * broken. */
static bool
enters_after(const struct ad_gpu *gpu, ad_context context, int code,
             ad_gpu_scope *scope)
{
    if (!ad_gpu_is_gone(code) && !is_broken(code)) {
        return false;
    }
    gpu->forget_error();
    /* Foreign events have no context. A query must not create one: an unused
     * primary context takes memory and time. */
    ad_gpu_result result = context.handle == NULL
                               ? gpu->enter_existing(context, scope)
                               : enter(gpu, context, scope);
    return result.code == AD_GPU_SUCCESS && scope->is_moved;
}

/* A call on a stream with its argument: an event, or where the capture state
 * goes. */
typedef ad_gpu_result (*stream_call)(const struct ad_gpu *gpu,
                                     ad_stream stream, void *argument);

static inline ad_gpu_result
ask_capture(const struct ad_gpu *gpu, ad_stream stream, void *state)
{
    return (ad_gpu_result){
        gpu->calls->stream_is_capturing(ad_gpu_handle(stream), state),
        gpu->names.stream_is_capturing};
}

static inline ad_gpu_result
wait_for(const struct ad_gpu *gpu, ad_stream stream, void *event)
{
    return (ad_gpu_result){
        gpu->calls->stream_wait(ad_gpu_handle(stream), event, 0),
        gpu->names.stream_wait};
}

static inline ad_gpu_result
record(const struct ad_gpu *gpu, ad_stream stream, void *event)
{
    return (ad_gpu_result){
        gpu->calls->event_record(event, ad_gpu_handle(stream)),
        gpu->names.event_record};
}

/* The legacy stream must not be used while a stream that waits for it is
 * captured, since its use invalidates the capture. A query of its capture
 * state is allowed. */
static ad_gpu_result
ask_legacy(const struct ad_gpu *gpu, ad_context context, ad_stream stream)
{
    int state = 0;
    bool is_legacy = ad_stream_is_default(context.device, stream) &&
                     !ad_stream_is_per_thread(context.device, stream);
    return is_legacy ? ask_capture(gpu, stream, &state)
                     : (ad_gpu_result){AD_GPU_SUCCESS, NULL};
}

/* The uncommon case is a separate function, so that the common one needs
 * neither a stack frame nor a scope. */
#define SELDOM __attribute__((noinline, cold))

/* Makes a call in the stream's own context: on a default stream, or after
 * `result`. */
static SELDOM ad_status
call_inside(ad_context context, ad_stream stream, stream_call call,
            void *argument, ad_gpu_result result, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope = {.is_moved = false};
    bool is_inside;
    if (has_handle(context, stream)) {
        is_inside = enters_after(gpu, context, result.code, &scope);
    } else {
        result = enter(gpu, context, &scope);
        if (result.code == AD_GPU_SUCCESS && call != ask_capture) {
            result = ask_legacy(gpu, context, stream);
        }
        is_inside = result.code == AD_GPU_SUCCESS;
    }
    if (is_inside) {
        result = call(gpu, stream, argument);
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

static inline ad_status
call_on(ad_context context, ad_stream stream, stream_call call, void *argument,
        ad_error *err)
{
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    if (has_handle(context, stream)) {
        result = call(ad_gpu_of(context.device), stream, argument);
        if (result.code == AD_GPU_SUCCESS) {
            return AD_OK;
        }
    }
    return call_inside(context, stream, call, argument, result, err);
}

ad_status
ad_gpu_stream_is_capturing(ad_context context, ad_stream stream, bool *out,
                           ad_error *err)
{
    int state = 0; /* 1: active, 2: invalidated, but not ended yet */
    ad_status status = call_on(context, stream, ask_capture, &state, err);
    *out = state != 0;
    return status;
}

ad_status
ad_gpu_stream_wait(ad_context context, ad_stream stream, ad_event event,
                   ad_error *err)
{
    return call_on(context, stream, wait_for, event.handle, err);
}

/* --- events -------------------------------------------------------------- */

/* cuEventCreate: without BLOCKING_SYNC such events "will provide the best
 * performance when used with cuStreamWaitEvent() and cuEventQuery()". HIP keeps
 * its default fences, which make the work visible to the system. */
#define EVENT_FLAGS AD_GPU_EVENT_DISABLE_TIMING

/* The runtime creates an event in the current context. */
static SELDOM ad_status
record_first(ad_context context, ad_stream stream, ad_event *event,
             ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    void *made = NULL;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_result result = ask_legacy(gpu, context, stream);
    if (result.code == AD_GPU_SUCCESS) {
        result = (ad_gpu_result){gpu->calls->event_create(&made, EVENT_FLAGS),
                                 gpu->names.event_create};
    }
    if (result.code == AD_GPU_SUCCESS) {
        result = record(gpu, stream, made);
        if (result.code == AD_GPU_SUCCESS) {
            event->handle = made;
        } else {
            (void)gpu->calls->event_destroy(made);
        }
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

/* Record on a default stream without a look at the current context: if it is
 * another one, the record fails. */
static bool
record_where_current(ad_context context, ad_stream stream, ad_event event)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    return ask_legacy(gpu, context, stream).code == AD_GPU_SUCCESS &&
           record(gpu, stream, event.handle).code == AD_GPU_SUCCESS;
}

ad_status
ad_gpu_event_record(ad_context context, ad_stream stream, ad_event *event,
                    ad_error *err)
{
    if (event->handle == NULL) {
        return record_first(context, stream, event, err);
    }
    if (!has_handle(context, stream) &&
        ad_gpu_of(context.device)->record_checks_context &&
        record_where_current(context, stream, *event)) {
        return AD_OK;
    }
    return call_on(context, stream, record, event->handle, err);
}

/* Calls a function of an event, which may be foreign. Called while the thread
 * is relaxed. */
static int
ask_event(const struct ad_gpu *gpu, ad_context context, int (*call)(void *),
          ad_event event)
{
    ad_gpu_scope scope = {.is_moved = false};
    int code = call(event.handle);
    if (enters_after(gpu, context, code, &scope)) {
        code = call(event.handle);
    }
    ad_gpu_leave(gpu, &scope);
    return code;
}

ad_status
ad_gpu_event_query(ad_context context, ad_event event, bool *out,
                   ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_relax(gpu, &scope);
    ad_gpu_result result = {
        ask_event(gpu, context, gpu->calls->event_query, event),
        gpu->names.event_query};
    ad_gpu_leave(gpu, &scope);
    *out = result.code == AD_GPU_SUCCESS;
    if (result.code == AD_GPU_NOT_READY) {
        gpu->forget_error();
        return AD_OK;
    }
    return ad_gpu_check(gpu, context.device, result, err);
}

/* The runtime's wait for an event without BLOCKING_SYNC takes a processor, and
 * nothing tells the flags of a foreign event. A second event with that flag
 * would need a stream that waits for the first one, and so a hardware queue. So
 * the host polls. The runtime's wait for the completed event returns at once;
 * with it the runtime gives unused memory of pools back. */
ad_status
ad_gpu_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    const int64_t begun = ad_wait_now();
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_result result = {AD_GPU_NOT_READY, gpu->names.event_query};
    ad_gpu_relax(gpu, &scope);
    for (;;) {
        result.code = ask_event(gpu, context, gpu->calls->event_query, event);
        if (result.code != AD_GPU_NOT_READY) {
            break;
        }
        gpu->forget_error();
        ad_wait_pause(begun);
    }
    if (result.code == AD_GPU_SUCCESS) {
        result = (ad_gpu_result){
            ask_event(gpu, context, gpu->calls->event_synchronize, event),
            gpu->names.event_synchronize};
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}

void
ad_gpu_event_destroy(ad_context context, ad_event event)
{
    destroy(context, ad_gpu_of(context.device)->calls->event_destroy,
            event.handle);
}
