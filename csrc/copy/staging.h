/* Staging buffers of copies that are enqueued.
 *
 * A copy from the host reads a staging buffer and not the memory of the user,
 * which may change. Many small copies to the host write a staging buffer
 * together, as do copies ahead of their consumer; the host reads it when they
 * are done. Where the runtime would wait for the stream in order to stage
 * pageable memory itself (AD_CAP_STAGES), large buffers are pinned; the backend
 * keeps their memory for the next copies. Only for the core.
 */
#ifndef AD_COPY_STAGING_H
#define AD_COPY_STAGING_H

#include "base/owner.h"
#include "base/status.h"
#include "device/backend.h"

/* The most bytes of pinned staging buffers at one time. */
#define AD_STAGING_MAX ((size_t)256 << 20)

/* The newest one owns those before it. They are released after the copies. */
typedef struct ad_staging_buffer {
    ad_owner base;
    struct ad_staging_buffer *next;
    void *data;
    size_t nbytes;
    ad_context context; /* of pinned memory; AD_CPU: malloc */
} ad_staging_buffer;

/* The memory of a new pinned buffer, or NULL where there is none. */
void *ad_staging_pinned(ad_staging_buffer **newest, ad_context context,
                        size_t nbytes);

/* Copy the bytes that `copy`, in `context`, reads from host memory to a new
 * buffer, and change *copy to read them there. With `is_optional` only a
 * pinned buffer serves, and without one *copy stays as it is. */
AD_MUST_CHECK ad_status ad_staging_add(ad_staging_buffer **newest,
                                       ad_context context, ad_block_copy *copy,
                                       bool is_optional, ad_error *err);

#endif /* AD_COPY_STAGING_H */
