/* A copy session: the runtime, contexts and stream of one copy. Only for the
 * core.
 */
#ifndef AD_COPY_SESSION_H
#define AD_COPY_SESSION_H

#include "model/array.h"
#include "base/owner.h"
#include "order/streams.h"
#include "order/sync.h"
#include "device/backend.h"

typedef struct ad_session_request {
    ad_device source;
    const void *data;    /* any pointer or handle of the source; may be NULL */
    ad_sync *sync;       /* of the source */
    bool others_pending; /* memory for ad_session_use() is not ready */
    ad_device target;
    const ad_stream_ref *stream; /* may be NULL */
    bool non_blocking;           /* the host does not wait, see to_host */
    bool is_borrowed; /* CPU memory may change once the call has returned */
    const char *operation; /* for messages: "a copy" */
} ad_session_request;

/* The CPU memory that a device reads:
 *
 * | state    | bytes are staged     | the memory itself is read            |
 * |----------|----------------------|--------------------------------------|
 * | FREELY   | never                | until the end of the work            |
 * | PAGEABLE | if the stream is busy| until the end of the work            |
 * | BORROWED | if the stream is busy| until ad_session_finish() at most    |
 */
typedef enum ad_session_reading {
    AD_READS_FREELY,   /* the runtime does not stage it, or there is none */
    AD_READS_PAGEABLE, /* the runtime stages it, and the call may block */
    AD_READS_BORROWED  /* the caller may change it after the return */
} ad_session_reading;

/* The stream, as far as it is known when the first CPU memory is read. */
typedef enum ad_session_activity {
    AD_STREAM_UNKNOWN, /* not queried yet */
    AD_STREAM_BUSY,    /* the bytes are staged */
    AD_STREAM_IDLE     /* a copy runs at once, and the host waits for it */
} ad_session_activity;

/* The work of the session. Each state follows the one before it. */
typedef enum ad_session_progress {
    AD_SESSION_OPEN,  /* the runtime has no work of the session */
    AD_SESSION_BEGUN, /* it has: memory is kept until the work is done */
    AD_SESSION_WAITED /* the host has waited for what was before a copy to it */
} ad_session_progress;

typedef struct ad_session {
    const struct ad_backend *backend; /* NULL: host to host */
    ad_stream_ref on;                 /* the stream; its object is borrowed */
    bool is_own_stream;               /* of arrowdev's own, for `use` */
    ad_stream_use use;
    ad_context source; /* for spans; AD_CPU: host memory */
    ad_context target;
    ad_context memory; /* where the result is allocated; AD_CPU: malloc */
    bool to_host;      /* the host waits for the result */
    ad_session_reading reading;
    ad_session_activity activity;
    ad_session_progress progress;
    struct ad_staging_buffer *staging; /* which copies read or write */
    ad_sync *end;                      /* see ad_session_mark_end */
    ad_event last; /* event of the last operation, where operations have
                      events; else NULL */
} ad_session;

/* New memory, with its own references to the owner and the event. */
typedef struct ad_allocation {
    void *data;
    ad_owner *owner;
    ad_sync *sync;
} ad_allocation;

/* A request for work from memory of `device` to memory of the same device. */
static inline ad_session_request
ad_session_within(ad_device device, const void *data, ad_sync *sync,
                  const ad_stream_ref *stream, const char *operation)
{
    return (ad_session_request){
        .source = device,
        .data = data,
        .sync = sync,
        .target = device,
        .stream = stream,
        .is_borrowed = true,
        .operation = operation,
    };
}

/* True for host memory of any kind that no device can migrate. */
bool ad_is_host_memory(ad_device device);

/* Any buffer of the tree, for asking the runtime about its memory; or NULL. */
const void *ad_node_some_buffer(const struct ArrowArray *node);

/* The devices belong to two runtimes, whose only common memory is the
 * host's. */
bool ad_session_is_via_host(ad_device source, ad_device target);

/* Opens a session of the runtime's copy, or of the host's. Chooses a stream
 * and orders it after the source (host to host: waits). Refused while the
 * stream is being captured. */
AD_MUST_CHECK ad_status ad_session_open(const ad_session_request *request,
                                        ad_session *out, ad_error *err);

/* The same for a caller that can copy through the host. *is_open is false, and
 * there is no session, where no stream can access both memories. */
AD_MUST_CHECK ad_status ad_session_try_open(const ad_session_request *request,
                                            bool *is_open, ad_session *out,
                                            ad_error *err);

/* Allocates memory on the target; for 0 bytes *data is NULL. */
AD_MUST_CHECK ad_status ad_session_allocate(ad_session *session,
                                            int64_t nbytes, void **data,
                                            ad_owner **owner, ad_error *err);

/* Copies one block. A copy between two host memories is complete on return. */
AD_MUST_CHECK ad_status ad_session_copy(ad_session *session,
                                        const ad_block_copy *copy,
                                        ad_error *err);

/* A pinned staging buffer of the session, to which copies to the host do not
 * block; NULL if there is none. It is read once the sync of
 * ad_session_finish() is done. */
void *ad_session_pinned(ad_session *session, int64_t nbytes);

/* Take over the owner of the session's staging buffers, or NULL. */
ad_owner *ad_session_take_staging(ad_session *session);

/* The following work also reads or writes `memory`, on the request's source
 * device. Orders that work after `sync`, and `owner` records the stream.
 * `data` may be NULL. Fails with AD_ERR_EXCHANGE, "stream", for memory of
 * another context. */
AD_MUST_CHECK ad_status ad_session_use(ad_session *session,
                                       const ad_session_request *memory,
                                       ad_owner *owner, ad_error *err);

/* Launches a kernel from `source` to `target`. The spans of `launch` give
 * offsets only, except `values`, which also gives its address. A number of
 * work items of 0 means a suitable number. Nothing is launched for length
 * 0. */
AD_MUST_CHECK ad_status ad_session_kernel(ad_session *session,
                                          const void *source, void *target,
                                          ad_launch launch, ad_error *err);

/* A suitable number of work items for the launch; 1 on the host. */
int64_t ad_session_items(const ad_session *session, const ad_launch *launch);

/* Between the two calls the runtime is not asked before each call what is
 * current. Only for a session on a stream of arrowdev's own, and around calls
 * that do not wait for other work. */
void ad_session_begin_calls(const ad_session *session);
void ad_session_end_calls(const ad_session *session);

/* Records the end of the work, before ad_session_finish(), which waits for it
 * if it has to. */
AD_MUST_CHECK ad_status ad_session_mark_end(ad_session *session,
                                            ad_error *err);

/* Ends the session after the last copy. *out is the sync to wait for; NULL
 * where the result is in host memory, since the host has waited for it. `host`
 * owns host memory that the copies read, and is kept alive until they have
 * read it. Blocks while borrowed memory is being read. */
AD_MUST_CHECK ad_status ad_session_finish(ad_session *session, ad_owner *host,
                                          ad_sync **out, ad_error *err);

/* Replaces ad_session_finish() after a failure: keeps alive the memory that
 * enqueued work may still read or write. May be called several times, once for
 * each set of owners. */
void ad_session_abandon(ad_session *session, ad_owner *source, ad_owner *host,
                        ad_owner *target);

/* Ends a session that has written the new memory *made. If `status` is AD_OK,
 * made->sync becomes the sync to wait for. After a failure *made is dropped
 * and emptied, and it, `source` and `other` are kept alive as by
 * ad_session_abandon(). Returns the status of the work and its end. */
AD_MUST_CHECK ad_status ad_session_end(ad_session *session, ad_status status,
                                       ad_owner *source, ad_owner *other,
                                       ad_allocation *made, ad_error *err);

/* Reads a few bytes of the source into host memory after the work on the
 * stream. Blocks. `source` owns the bytes and may be NULL. If the read fails,
 * it is kept alive until the device is done. */
AD_MUST_CHECK ad_status ad_session_read(const ad_session *session,
                                        ad_owner *source, const void *data,
                                        uint64_t offset, size_t nbytes,
                                        void *out, ad_error *err);

static inline ad_span
ad_span_at(ad_context context, const void *data, int64_t offset)
{
    return (ad_span){context, (void *)data, (uint64_t)offset};
}

#endif /* AD_COPY_SESSION_H */
