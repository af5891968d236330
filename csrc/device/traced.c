/* The slots for events, as they are while a trace is on: each calls the slot of
 * the backend itself and adds what happened. Other threads may be in these when
 * a trace ends, and calls of theirs add nothing then. */
#include "base/os.h"
#include "base/trace.h"
#include "device/backend.h"

static const struct ad_backend *
of(ad_context context)
{
    return ad_backend_untraced(context.device.type);
}

static ad_trace_event
new_event(ad_trace_kind kind, ad_context context, ad_stream stream,
          ad_event event, int64_t start)
{
    return (ad_trace_event){
        .kind = kind,
        .trace = ad_trace_number(),
        .start = start,
        .end = ad_now(),
        .device = context.device,
        .stream = stream.handle,
        .event = (const void *)event.handle,
        .ndim = -1,
    };
}

static void
add(ad_trace_kind kind, ad_context context, ad_stream stream, ad_event event,
    int64_t start)
{
    const ad_trace_event entry =
        new_event(kind, context, stream, event, start);
    ad_trace_add(&entry);
}

static void
add_wait(ad_context context, ad_stream stream, ad_event event, int64_t start)
{
    ad_trace_event entry =
        new_event(AD_TRACE_STREAM_WAIT, context, stream, event, start);
    ad_trace_add_stream_wait(&entry);
}

static const ad_stream no_stream = {0};

static ad_status
record(ad_context context, ad_stream stream, ad_event *event, ad_error *err)
{
    int64_t start = ad_now();
    AD_RETURN_IF_ERR(of(context)->event_record(context, stream, event, err));
    add(AD_TRACE_RECORDED, context, stream, *event, start);
    return AD_OK;
}

static ad_status
copy_with_event(ad_context context, ad_stream stream,
                const ad_block_copy *copy, bool host_waits, ad_event *event,
                ad_error *err)
{
    int64_t start = ad_now();
    AD_RETURN_IF_ERR(of(context)->copy_with_event(context, stream, copy,
                                                  host_waits, event, err));
    if (event->handle != NULL) {
        add(AD_TRACE_RECORDED, context, stream, *event, start);
    }
    return AD_OK;
}

static ad_status
launch_with_event(ad_context context, ad_stream stream,
                  const ad_launch *launch, ad_event *event, ad_error *err)
{
    int64_t start = ad_now();
    AD_RETURN_IF_ERR(
        of(context)->launch_with_event(context, stream, launch, event, err));
    if (event->handle != NULL) {
        add(AD_TRACE_RECORDED, context, stream, *event, start);
    }
    return AD_OK;
}

static ad_status
stream_wait(ad_context context, ad_stream stream, ad_event event,
            ad_error *err)
{
    int64_t start = ad_now();
    AD_RETURN_IF_ERR(of(context)->stream_wait(context, stream, event, err));
    add_wait(context, stream, event, start);
    return AD_OK;
}

static ad_status
stream_wait_in(ad_context context, ad_stream stream, ad_event event,
               ad_context where, ad_error *err)
{
    int64_t start = ad_now();
    AD_RETURN_IF_ERR(
        of(context)->stream_wait_in(context, stream, event, where, err));
    add_wait(context, stream, event, start);
    return AD_OK;
}

static ad_status
query(ad_context context, ad_event event, bool *out, ad_error *err)
{
    AD_RETURN_IF_ERR(of(context)->event_query(context, event, out, err));
    if (*out) {
        add(AD_TRACE_COMPLETE, context, no_stream, event, ad_now());
    }
    return AD_OK;
}

static ad_status
synchronize(ad_context context, ad_event event, ad_error *err)
{
    AD_RETURN_IF_ERR(of(context)->event_synchronize(context, event, err));
    add(AD_TRACE_COMPLETE, context, no_stream, event, ad_now());
    return AD_OK;
}

/* Other threads may read a slot meanwhile. */
#define SET(slot, function)                                                   \
    __atomic_store_n(&backend->slot, on ? (function) : untraced->slot,        \
                     __ATOMIC_RELEASE)

void
ad_backend_set_traced(struct ad_backend *backend,
                      const struct ad_backend *untraced, bool on)
{
    SET(event_record, record);
    SET(copy_with_event, copy_with_event);
    SET(launch_with_event, launch_with_event);
    SET(stream_wait, stream_wait);
    SET(stream_wait_in, stream_wait_in);
    SET(event_query, query);
    SET(event_synchronize, synchronize);
}
