/* compute/: buffers whose contents are new.
 *
 * The buffer builder, bits, run ends, concat and trim. Loops do the work on
 * the host, kernels on a device. Device work is asynchronous unless a function
 * is documented to block. Assumes trees that model/ has checked, but trusts no
 * offset that it reads. Any thread; no lock of its own.
 */

/* Allocates and fills the buffers of a new array, on one device or on the
 * host.
 */
#ifndef AD_COMPUTE_BUFFER_BUILDER_H
#define AD_COMPUTE_BUFFER_BUILDER_H

#include "base/list.h"
#include "copy/session.h"
#include "model/array.h"

typedef struct ad_builder {
    ad_session session;
    bool is_open;
    bool needs_runtime; /* on the host: memory of `device` needs its runtime,
                           which is not open yet */
    ad_device device;
    int64_t nbytes; /* allocated so far */
    AD_LIST(ad_owner *) allocations;
} ad_builder;

/* A builder whose work the host does, in memory of `device` that the host can
 * write. Pinned and managed memory need their runtime from the first
 * allocation on. Waits for no event. */
ad_builder ad_builder_on_host(ad_device device);

/* Allocates memory on the session's target; NULL for 0 bytes. */
AD_MUST_CHECK ad_status ad_builder_allocate(ad_builder *self, int64_t nbytes,
                                            void **out, ad_error *err);

/* Copies the bits [from, from + length) of `source` to a new bitmap that is
 * padded with zeros to a multiple of 64 bytes; length > 0. */
AD_MUST_CHECK ad_status ad_builder_bitmap_of(ad_builder *self,
                                             const void *source, int64_t from,
                                             int64_t length, void **out,
                                             ad_error *err);

/* Copies `nbytes` bytes between these byte offsets. */
AD_MUST_CHECK ad_status ad_builder_bytes(ad_builder *self, const void *source,
                                         int64_t from, void *target,
                                         int64_t to, int64_t nbytes,
                                         ad_error *err);

/* Keeps `owner`, whose memory the result shares. The builder's event then
 * covers that memory too, even if nothing was allocated. */
AD_MUST_CHECK ad_status ad_builder_share(ad_builder *self, ad_owner *owner,
                                         ad_error *err);

/* Creates an owner of all that the builder keeps. */
AD_MUST_CHECK ad_status ad_builder_owner(const ad_builder *self,
                                         ad_owner **out, ad_error *err);

/* Ends the work: *out is the event to wait for, or NULL. */
AD_MUST_CHECK ad_status ad_builder_finish(ad_builder *self, ad_sync **out,
                                          ad_error *err);

/* Drops all references. `failed`: enqueued work may still use that memory, and
 * `source`, whose release is deferred. */
void ad_builder_clear(ad_builder *self, bool failed, ad_owner *source);

/* --- run ends ------------------------------------------------------------ */

/* The runs [first, first + n), counted from the child's own offset. */
typedef struct ad_run_ends {
    int64_t first;
    int64_t n;
} ad_run_ends;

/* Bytes of a run end. */
AD_MUST_CHECK ad_status ad_run_end_width(ad_schema schema, int64_t *out,
                                         ad_error *err);

/* Finds the runs that hold the rows of a run-end encoded array; no runs if it
 * has no rows. On a device a kernel checks all run ends, and the host waits.
 * AD_ERR_ARROW: the run ends do not increase, or end before the last row. */
AD_MUST_CHECK ad_status ad_find_run_ends(ad_builder *builder,
                                         const ad_array *view,
                                         ad_run_ends *out, ad_error *err);

/* Writes the ends of `runs` to integer `to` and the following ones of
 * `target`, as work of the session. The view's first row becomes row `row`,
 * and the last run ends with the view's last row. */
AD_MUST_CHECK ad_status ad_write_run_ends(ad_builder *builder,
                                          const ad_array *view,
                                          ad_run_ends runs, int64_t row,
                                          void *target, int64_t to,
                                          ad_error *err);

/* Builds the child of `n` run ends from the buffer `ends`, which it does not
 * own. */
AD_MUST_CHECK ad_status ad_build_run_ends(ad_schema schema, ad_device device,
                                          int64_t n, const void *ends,
                                          ad_array *out, ad_error *err);

#endif /* AD_COMPUTE_BUFFER_BUILDER_H */
