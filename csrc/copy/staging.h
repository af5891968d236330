/* Staging copies: bytes of host memory that are set aside, so that a copy that
 * is enqueued reads them and not the memory of the user. Blocks for small
 * copies to the host are of the same kind.
 *
 * Where the runtime would wait for the stream in order to stage pageable
 * memory (AD_CAP_STAGES), many bytes are set aside in pinned memory. The
 * backend keeps its blocks for the next copies. Only for the core.
 */
#ifndef AD_COPY_STAGING_H
#define AD_COPY_STAGING_H

#include "base/owner.h"
#include "base/status.h"
#include "device/backend.h"

/* The bytes that are set aside in pinned memory at one time. */
#define AD_STAGING_MAX ((size_t)256 << 20)

/* The newest one owns those before it. They are released once the copies have
 * read them. */
typedef struct ad_staging_copy {
    ad_owner base;
    struct ad_staging_copy *next;
    void *data;
    size_t nbytes;
    ad_context context; /* of pinned memory; AD_CPU: malloc */
} ad_staging_copy;

/* A pinned block that copies to the host write, or NULL if there is none. */
void *ad_staging_block(ad_staging_copy **newest, ad_context context,
                       size_t nbytes);

/* Sets the bytes aside that `copy` reads from host memory, and lets it read
 * them there. Work in `context` reads them. With `is_optional` only pinned
 * memory will do, and without it the copy stays as it is. */
AD_MUST_CHECK ad_status ad_staging_add(ad_staging_copy **newest,
                                       ad_context context, ad_block_copy *copy,
                                       bool is_optional, ad_error *err);

#endif /* AD_COPY_STAGING_H */
