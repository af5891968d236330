/* compute/: buffers whose contents are new.
 *
 * The buffer builder, bits, nulls filled, run ends, concat and trim, wherever
 * the data are: by loops on the host and by kernels on a device, where nobody
 * waits for the result. Assumes trees that model/ has checked, but believes no
 * offset that it reads. Any thread; no lock of its own.
 */

/* Buffers that are made one after the other, on one device or on the host, for
 * an array that will own them.
 */
#ifndef AD_COMPUTE_BUFFER_BUILDER_H
#define AD_COMPUTE_BUFFER_BUILDER_H

#include "base/list.h"
#include "copy/session.h"

typedef struct ad_builder {
    ad_session session;
    bool is_open;
    bool needs_runtime; /* on the host: not open yet, for memory of `device` */
    ad_device device;
    AD_LIST(ad_owner *) allocations;
} ad_builder;

/* By the host, in memory of `device`, which the host writes: pinned and managed
 * memory need their runtime from the first allocation on. Nothing is waited
 * for. */
ad_builder ad_builder_on_host(ad_device device);

/* Keep another owner until the end; takes it over, on failure too. */
AD_MUST_CHECK ad_status ad_builder_keep(ad_builder *self, ad_owner *owner,
                                        ad_error *err);

/* New memory on the session's target; NULL for 0 bytes. */
AD_MUST_CHECK ad_status ad_builder_allocate(ad_builder *self, int64_t nbytes,
                                            void **out, ad_error *err);

/* A new bitmap, padded to 64 bytes, of the bits [from, from + length) of
 * `source`; length > 0. Those behind the last are 0. */
AD_MUST_CHECK ad_status ad_builder_bitmap_of(ad_builder *self,
                                             const void *source, int64_t from,
                                             int64_t length, void **out,
                                             ad_error *err);

/* `n` bits from `source` to `target`. */
AD_MUST_CHECK ad_status ad_builder_bits(ad_builder *self, const void *source,
                                        int64_t from, void *target, int64_t to,
                                        int64_t n, ad_bits_operation how,
                                        ad_error *err);

/* `nbytes` bytes, at these offsets. */
AD_MUST_CHECK ad_status ad_builder_bytes(ad_builder *self, const void *source,
                                         int64_t from, void *target,
                                         int64_t to, int64_t nbytes,
                                         ad_error *err);

/* Host memory to `target`, which reads it until the end at the latest: it is
 * to be kept. */
AD_MUST_CHECK ad_status ad_builder_upload(ad_builder *self, const void *source,
                                          void *target, int64_t to,
                                          int64_t nbytes, ad_error *err);

/* `nbytes` bytes of the session's device to `out`, after all that was begun.
 * Blocks. */
AD_MUST_CHECK ad_status ad_builder_read(ad_builder *self, const void *source,
                                        int64_t from, int64_t nbytes,
                                        void *out, ad_error *err);

/* The result has memory of `owner` in it: keep that, and let the event say when
 * it is ready, too, though nothing may have been made. */
AD_MUST_CHECK ad_status ad_builder_share(ad_builder *self, ad_owner *owner,
                                         ad_error *err);

/* An owner of all that was made, and of `first` and `second` (which may be
 * NULL) in front of it. */
AD_MUST_CHECK ad_status ad_builder_owner(const ad_builder *self,
                                         ad_owner *first, ad_owner *second,
                                         ad_owner **out, ad_error *err);

/* After the last: *out is the event to wait for, or NULL. */
AD_MUST_CHECK ad_status ad_builder_finish(ad_builder *self, ad_sync **out,
                                          ad_error *err);

/* Drop what is held. `failed`: work that was begun may still use it, and
 * `source`. */
void ad_builder_clear(ad_builder *self, bool failed, ad_owner *source);

#endif /* AD_COMPUTE_BUFFER_BUILDER_H */
