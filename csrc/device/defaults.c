#include "device/defaults.h"

#include <stddef.h>
#include <stdio.h>

ad_status
ad_fail_no_backend(ad_device device, const char *reason, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_EXCHANGE, reason,
            "copy it to the host in the producing library, or hand it to a "
            "consumer that takes memory of this device",
            "memory on %s is carried as data; no runtime for it in this "
            "version",
            ad_device_format(device, name));
    ad_error_device(err, device);
    return AD_ERR_EXCHANGE;
}

/* `what` completes "the runtime cannot ...". */
static ad_status
refuse_as(ad_device device, const char *reason, const char *what,
          ad_error *err)
{
    const struct ad_backend *backend = ad_backend_for(device.type);
    char name[AD_DEVICE_NAME_SIZE];
    if (backend->device_types[0] == 0) {
        return ad_fail_no_backend(device, reason, err);
    }
    ad_fail(err, AD_ERR_EXCHANGE, reason, NULL,
            "the %s runtime cannot %s (asked for on %s)", backend->name, what,
            ad_device_format(device, name));
    ad_error_device(err, device);
    return AD_ERR_EXCHANGE;
}

static ad_status
refuse(ad_device device, const char *what, ad_error *err)
{
    return refuse_as(device, "runtime", what, err);
}

/* --- required slots, which only the stand-in lacks ----------------------- */

static ad_status
fail_absent(ad_error *err)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                   "there is no runtime for this type of device in this "
                   "version");
}

static ad_status
absent_load(ad_error *err)
{
    return fail_absent(err);
}

static ad_status
absent_describe(char *buffer, size_t size, ad_error *err)
{
    (void)buffer;
    (void)size;
    return fail_absent(err);
}

static ad_status
absent_count(int64_t *out, ad_error *err)
{
    (void)out;
    return fail_absent(err);
}

static ad_status
absent_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    (void)id;
    (void)buffer;
    (void)size;
    return fail_absent(err);
}

static ad_status
absent_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    (void)out;
    return refuse(device, "tell where work goes", err);
}

static ad_status
absent_synchronize(ad_context context, ad_error *err)
{
    return refuse(context.device, "wait for the device", err);
}

/* --- memory -------------------------------------------------------------- */

static ad_status
no_classify(const void *pointer, ad_context hint, ad_memory_info *out,
            ad_error *err)
{
    (void)pointer;
    (void)out;
    return refuse(hint.device, "tell what a pointer is", err);
}

static ad_status
no_allocate(ad_context context, ad_stream stream, size_t nbytes, void **out,
            ad_error *err)
{
    (void)stream;
    (void)nbytes;
    (void)out;
    return refuse(context.device, "allocate memory", err);
}

static void
no_deallocate(ad_context context, ad_stream stream, void *data)
{
    (void)context;
    (void)stream;
    (void)data;
}

static ad_status
no_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
        ad_error *err)
{
    (void)stream;
    (void)copy;
    return refuse(context.device, "copy memory", err);
}

static ad_status
no_copy_with_event(ad_context context, ad_stream stream,
                   const ad_block_copy *copy, bool host_waits, ad_event *event,
                   ad_error *err)
{
    (void)host_waits;
    (void)event;
    return no_copy(context, stream, copy, err);
}

static ad_status
no_launch(ad_context context, ad_stream stream, const ad_launch *launch,
          ad_error *err)
{
    (void)stream;
    (void)launch;
    return refuse_as(context.device, "kernel", "run kernels", err);
}

static ad_status
no_launch_with_event(ad_context context, ad_stream stream,
                     const ad_launch *launch, ad_event *event, ad_error *err)
{
    (void)event;
    return no_launch(context, stream, launch, err);
}

/* --- streams ------------------------------------------------------------- */

static ad_status
no_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                  ad_error *err)
{
    (void)stream;
    (void)out;
    return refuse(hint.device, "tell where a stream runs", err);
}

static bool
no_likely_context(ad_stream stream, ad_device device, ad_context *out)
{
    (void)stream;
    (void)device;
    (void)out;
    return false;
}

static ad_status
no_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    (void)out;
    return refuse(context.device, "create streams", err);
}

static void
no_stream_destroy(ad_context context, ad_stream stream)
{
    (void)context;
    (void)stream;
}

/* A runtime without graphs captures no stream. */
static ad_status
no_stream_is_capturing(ad_context context, ad_stream stream, bool *out,
                       ad_error *err)
{
    (void)context;
    (void)stream;
    (void)err;
    *out = false;
    return AD_OK;
}

static ad_status
no_stream_wait(ad_context context, ad_stream stream, ad_event event,
               ad_error *err)
{
    (void)stream;
    (void)event;
    return refuse(context.device, "let a stream wait for an event", err);
}

/* --- events -------------------------------------------------------------- */

static ad_status
no_event_record(ad_context context, ad_stream stream, ad_event *event,
                ad_error *err)
{
    (void)stream;
    (void)event;
    return refuse(context.device, "record events", err);
}

static ad_status
no_event_query(ad_context context, ad_event event, bool *out, ad_error *err)
{
    (void)event;
    (void)out;
    return refuse(context.device, "query events", err);
}

static ad_status
no_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    (void)event;
    return refuse(context.device, "wait for events", err);
}

static void
no_event_destroy(ad_context context, ad_event event)
{
    (void)context;
    (void)event;
}

static ad_status
any_device_usable(int64_t id, ad_error *err)
{
    (void)id;
    (void)err;
    return AD_OK;
}

static bool
not_on_host(int64_t id)
{
    (void)id;
    return false;
}

static ad_status
nothing_is_current(char *buffer, size_t size, ad_error *err)
{
    (void)err;
    snprintf(buffer, size, "%s", "");
    return AD_OK;
}

static bool
any_claims_event(const void *sync_event)
{
    (void)sync_event;
    return true;
}

/* Every slot of struct ad_backend, in declaration order, with its default. */
#define SLOTS(X)                                                              \
    X(load, absent_load)                                                      \
    X(describe, absent_describe)                                              \
    X(count, absent_count)                                                    \
    X(device_name, absent_device_name)                                        \
    X(device_usable, any_device_usable)                                       \
    X(runs_on_host, not_on_host)                                              \
    X(describe_current, nothing_is_current)                                   \
    X(primary_context, absent_primary_context)                                \
    X(synchronize, absent_synchronize)                                        \
    X(classify, no_classify)                                                  \
    X(allocate, no_allocate)                                                  \
    X(deallocate, no_deallocate)                                              \
    X(copy, no_copy)                                                          \
    X(copy_with_event, no_copy_with_event)                                    \
    X(launch, no_launch)                                                      \
    X(launch_with_event, no_launch_with_event)                                \
    X(stream_context, no_stream_context)                                      \
    X(likely_context, no_likely_context)                                      \
    X(stream_create, no_stream_create)                                        \
    X(stream_destroy, no_stream_destroy)                                      \
    X(stream_is_capturing, no_stream_is_capturing)                            \
    X(stream_wait, no_stream_wait)                                            \
    X(event_record, no_event_record)                                          \
    X(event_query, no_event_query)                                            \
    X(event_synchronize, no_event_synchronize)                                \
    X(event_destroy, no_event_destroy)                                        \
    X(claims_event, any_claims_event)

/* A slot missing from the list would stay NULL. */
#define COUNT(slot, stand_in) +1
_Static_assert((0 SLOTS(COUNT)) * sizeof(void (*)(void)) ==
                   sizeof(struct ad_backend) -
                       offsetof(struct ad_backend, load),
               "a slot of struct ad_backend has no default");
#undef COUNT

void
ad_backend_fill(struct ad_backend *backend)
{
    static const int32_t no_types[] = {0};
    if (backend->name == NULL) {
        backend->name = "absent";
    }
    if (backend->device_types == NULL) {
        backend->device_types = no_types;
    }
#define FILL(slot, stand_in)                                                  \
    if (backend->slot == NULL) {                                              \
        backend->slot = stand_in;                                             \
    }
    SLOTS(FILL)
#undef FILL
}
