#include <string.h>

#include "copy/copy.h"
#include "copy/session.h"

ad_status
ad_read_device(ad_device device, const void *data, ad_owner *source,
               uint64_t offset, size_t nbytes, ad_sync *sync,
               const ad_stream_choice *stream, void *out, ad_error *err)
{
    const ad_session_request request = {
        .source = device,
        .data = data,
        .sync = sync,
        .target = AD_CPU,
        .stream = stream,
        .consumer = "reading device memory",
    };
    ad_owner *owner;
    ad_session session;
    void *bounce;
    ad_sync *none;
    if (nbytes == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    /* Not the caller's memory: after a failure the runtime may still write. */
    AD_RETURN_IF_ERR(
        ad_session_allocate(&session, (int64_t)nbytes, &bounce, &owner, err));
    const ad_block_copy copy = {
        .target = ad_span_at(session.target, bounce, 0),
        .source = ad_span_at(session.source, data, (int64_t)offset),
        .width = nbytes,
        .height = 1,
    };
    ad_status status = ad_session_copy(&session, &copy, err);
    if (status == AD_OK) {
        status = ad_session_finish(&session, NULL, &none, err);
    }
    if (status == AD_OK) {
        memcpy(out, bounce, nbytes);
    } else {
        ad_session_abandon(&session, source, NULL, owner);
    }
    ad_owner_unref(owner);
    return status;
}
