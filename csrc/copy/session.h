/* A copy in progress: which runtime does it, where, and on which stream. For
 * core only.
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
    const void *data; /* any pointer or handle of the source; may be NULL */
    ad_sync *sync;    /* of the source */
    ad_device target;
    const ad_stream_choice *stream; /* may be NULL */
    bool may_go_via_host;           /* see via_host */
    /* the host is not to wait, see to_host */
    bool non_blocking;
    bool is_kept; /* memory of the CPU does not change until it is released */
    const char *consumer; /* for messages: "a copy" */
} ad_session_request;

typedef struct ad_session {
    const struct ad_backend *backend; /* NULL: host to host */
    ad_context context;               /* where `stream` runs */
    ad_stream stream;
    ad_owner *keep;    /* of the stream; borrowed, may be NULL */
    ad_context source; /* for spans; AD_CPU: host memory */
    ad_context target;
    ad_context memory; /* where the result is allocated; AD_CPU: by malloc */
    bool to_host;      /* the host waits for the result */
    /* may_go_via_host: two contexts that do not meet. The session is not open;
     * the way leads through the host */
    bool via_host;
    /* the source is memory of the CPU, which its user may change as soon as
     * the call returns */
    bool is_borrowed;
    bool has_queried; /* is_idle is known */
    bool is_idle; /* nothing was on the stream when the copy of borrowed memory
                     began: the host waits for it */
    /* else its bytes, from which it is copied */
    struct ad_staging_copy *staging;
    bool has_begun;  /* the runtime was given work */
    bool has_waited; /* the host has, for what came before */
    ad_event last;   /* of the last piece of work, where work has events; else
                        NULL */
} ad_session;

/* Host memory of any kind, which no device can move away. */
bool ad_is_host_memory(ad_device device);

/* Any buffer of the tree, to ask the runtime where it lies; or NULL. */
const void *ad_array_some_buffer(const ad_array *array);

/* Two runtimes have to meet in host memory. */
bool ad_session_is_via_host(ad_device source, ad_device target);

/* The same runtime's copy, or the host's: choose a stream and let it wait for
 * the source (host to host: wait). Refused while the stream is captured. */
AD_MUST_CHECK ad_status ad_session_open(const ad_session_request *request,
                                        ad_session *out, ad_error *err);

/* Memory on the target; 0 bytes: NULL. */
AD_MUST_CHECK ad_status ad_session_allocate(const ad_session *session,
                                            int64_t nbytes, void **data,
                                            ad_owner **owner, ad_error *err);

/* One block; between two runs of host memory it is done on return. */
AD_MUST_CHECK ad_status ad_session_copy(ad_session *session,
                                        const ad_block_copy *copy,
                                        ad_error *err);

/* The work to come reads or writes this memory of the request's source device,
 * too: it is done after `sync`, and `owner` records the stream. `data` may be
 * NULL. AD_ERR_EXCHANGE, "stream", for memory of another context. */
AD_MUST_CHECK ad_status ad_session_use(ad_session *session,
                                       const ad_session_request *memory,
                                       ad_owner *owner, ad_error *err);

/* A kernel from `source` to `target`; the launch's spans say the offsets only,
 * but for `values`, which says where they are, too; its number of work items
 * may be 0: as many as are good. No launch where there is nothing to do. */
AD_MUST_CHECK ad_status ad_session_kernel(ad_session *session,
                                          const void *source, void *target,
                                          ad_launch launch, ad_error *err);

/* As many work items as are good for a launch there; 1 on the host. */
int64_t ad_session_items(const ad_session *session, const ad_launch *launch);

/* After the last copy. *out is what to wait for; NULL where the result is in
 * host memory, for which the host waited. `host` keeps host memory that was
 * read, and is kept until it has been. Blocks where borrowed memory is being
 * read. */
AD_MUST_CHECK ad_status ad_session_finish(ad_session *session, ad_owner *host,
                                          ad_sync **out, ad_error *err);

/* Instead of finish, where something failed on the way: keep what work that
 * was begun may still read or write. */
void ad_session_abandon(ad_session *session, ad_owner *source, ad_owner *host,
                        ad_owner *target);

/* ad_array_copy_to() for ad_array_move_begin(): also where out->device is the
 * host's, out->sync says when the memory will have been written. */
AD_MUST_CHECK ad_status ad_array_copy_non_blocking(
    const ad_array *array, bool is_borrowed, ad_device target,
    const ad_stream_choice *stream, ad_array *out, ad_error *err);

/* Does the stream run on the source's device? Then it is the one that a read
 * of the source would choose, unless the caller named it. */
bool ad_session_sees_source(const ad_session *session);

/* A few bytes of the source, to host memory, once what is on the stream is
 * done. Blocks. `source` owns them (it may be NULL): where the read fails, it is
 * kept until the device is done. */
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
