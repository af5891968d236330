#include <stddef.h>
#include <stdio.h>

#include "device/backend.h"

ad_status
ad_fail_no_backend(ad_device device, const char *reason, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(
        err, device, reason,
        "copy it to the host in the producing library, or hand it to a "
        "consumer that takes memory of this device",
        "memory on %s is carried as data; no runtime for it in this "
        "version",
        ad_device_format(device, name));
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
    return ad_fail_on(err, device, reason, NULL,
                      "the %s runtime cannot %s (asked for on %s)",
                      backend->name, what, ad_device_format(device, name));
}

static ad_status
refuse(ad_device device, const char *what, ad_error *err)
{
    return refuse_as(device, "runtime", what, err);
}

/* Only the stand-in lacks a required slot. */
static ad_status
fail_absent(ad_error *err)
{
    return ad_fail(err, AD_ERR_EXCHANGE, "runtime", NULL,
                   "there is no runtime for this type of device in this "
                   "version");
}

/* Every slot of struct ad_backend, in declaration order: its result and
 * parameters, and the statement that its default consists of. */
#define SLOTS(X)                                                              \
    X(load, ad_status, (ad_error * err), return fail_absent(err))             \
    X(describe, ad_status, (char *buffer, size_t size, ad_error *err),        \
      return fail_absent(err))                                                \
    X(count, ad_status, (int64_t * out, ad_error * err),                      \
      return fail_absent(err))                                                \
    X(device_name, ad_status,                                                 \
      (int64_t id, char *buffer, size_t size, ad_error *err),                 \
      return fail_absent(err))                                                \
    X(device_usable, ad_status, (int64_t id, ad_error * err), return AD_OK)   \
    X(runs_on_host, bool, (int64_t id), return false)                         \
    X(describe_current, ad_status,                                            \
      (char *buffer, size_t size, ad_error *err), *buffer = '\0';             \
      return AD_OK)                                                           \
    X(primary_context, ad_status,                                             \
      (ad_device device, ad_context * out, ad_error * err),                   \
      return refuse(device, "tell where work goes", err))                     \
    X(synchronize, ad_status, (ad_context context, ad_error * err),           \
      return refuse(context.device, "wait for the device", err))              \
    X(classify, ad_status,                                                    \
      (const void *pointer, ad_context hint, ad_memory_info *out,             \
       ad_error *err),                                                        \
      return refuse(hint.device, "tell what a pointer is", err))              \
    X(allocate, ad_status,                                                    \
      (ad_context context, ad_stream stream, size_t nbytes, void **out,       \
       ad_error *err),                                                        \
      return refuse(context.device, "allocate memory", err))                  \
    X(deallocate, void,                                                       \
      (ad_context context, ad_stream stream, void *data, size_t nbytes), )    \
    X(copy, ad_status,                                                        \
      (ad_context context, ad_stream stream, const ad_block_copy *copy,       \
       ad_error *err),                                                        \
      return refuse(context.device, "copy memory", err))                      \
    X(copy_with_event, ad_status,                                             \
      (ad_context context, ad_stream stream, const ad_block_copy *copy,       \
       bool host_waits, ad_event *event, ad_error *err),                      \
      return refuse(context.device, "copy memory", err))                      \
    X(launch, ad_status,                                                      \
      (ad_context context, ad_stream stream, const ad_launch *launch,         \
       ad_error *err),                                                        \
      return refuse_as(context.device, "kernel", "run kernels", err))         \
    X(launch_with_event, ad_status,                                           \
      (ad_context context, ad_stream stream, const ad_launch *launch,         \
       ad_event *event, ad_error *err),                                       \
      return refuse_as(context.device, "kernel", "run kernels", err))         \
    X(begin_calls, void, (ad_context context), )                              \
    X(end_calls, void, (ad_context context), )                                \
    X(stream_context, ad_status,                                              \
      (ad_stream stream, ad_context hint, ad_context * out, ad_error * err),  \
      return refuse(hint.device, "tell where a stream runs", err))            \
    X(likely_context, bool,                                                   \
      (ad_stream stream, ad_device device, ad_context * out), return false)   \
    X(stream_id, bool,                                                        \
      (ad_context context, ad_stream stream, uint64_t * out), return false)   \
    X(n_refused, unsigned int, (void), return 0)                              \
    X(stream_is_idle, bool, (ad_context context, ad_stream stream),           \
      return false)                                                           \
    X(stream_create, ad_status,                                               \
      (ad_context context, ad_stream * out, ad_error * err),                  \
      return refuse(context.device, "create streams", err))                   \
    X(stream_destroy, void, (ad_context context, ad_stream stream), )         \
    X(stream_is_capturing, ad_status,                                         \
      (ad_context context, ad_stream stream, bool *out, ad_error *err),       \
      *out = false;                                                           \
      return AD_OK)                                                           \
    X(stream_wait, ad_status,                                                 \
      (ad_context context, ad_stream stream, ad_event event, ad_error * err), \
      return refuse(context.device, "let a stream wait for an event", err))   \
    X(event_record, ad_status,                                                \
      (ad_context context, ad_stream stream, ad_event * event,                \
       ad_error * err),                                                       \
      return refuse(context.device, "record events", err))                    \
    X(event_query, ad_status,                                                 \
      (ad_context context, ad_event event, bool *out, ad_error *err),         \
      return refuse(context.device, "query events", err))                     \
    X(event_synchronize, ad_status,                                           \
      (ad_context context, ad_event event, ad_error * err),                   \
      return refuse(context.device, "wait for events", err))                  \
    X(event_destroy, void, (ad_context context, ad_event event), )            \
    X(claims_event, bool, (const void *sync_event), return true)

#define DEFINE(slot, result, parameters, statement)                           \
    static result default_##slot parameters                                   \
    {                                                                         \
        statement;                                                            \
    }
SLOTS(DEFINE)

/* A slot missing from the list would stay NULL. */
#define COUNT(slot, result, parameters, statement) +1
_Static_assert((0 SLOTS(COUNT)) * sizeof(void (*)(void)) ==
                   sizeof(struct ad_backend) -
                       offsetof(struct ad_backend, load),
               "a slot of struct ad_backend has no default");

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
#define FILL(slot, result, parameters, statement)                             \
    if (backend->slot == NULL) {                                              \
        backend->slot = default_##slot;                                       \
    }
    SLOTS(FILL)
}
