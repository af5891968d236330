#include "compute/buffer_builder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/owner.h"
#include "device/backend.h"
#include "compute/bits.h"
#include "model/type.h"
#include "base/unaligned.h"

ad_builder
ad_builder_on_host(ad_device device)
{
    const ad_context host = {.device = AD_CPU};
    return (ad_builder){
        .session = {.source = host, .target = host, .memory = host},
        .is_open = true,
        .needs_runtime = device.type != ARROW_DEVICE_CPU,
        .device = device,
    };
}

/* The runtime allocates on a stream, which the host's writes do not need. */
static ad_status
open_runtime(ad_builder *self, ad_error *err)
{
    ad_session *session = &self->session;
    const struct ad_backend *backend;
    AD_RETURN_IF_ERR(ad_backend_open(self->device.type, &backend, err));
    AD_RETURN_IF_ERR(
        backend->primary_context(self->device, &session->memory, err));
    AD_RETURN_IF_ERR(
        ad_stream_own(session->memory, AD_USE_WORK, &session->on, err));
    self->needs_runtime = false;
    return AD_OK;
}

/* Keeps another owner until the end. Steals the reference, also on failure. */
static ad_status
keep(ad_builder *self, ad_owner *owner, ad_error *err)
{
    ad_status status = ad_list_reserve(&self->allocations, 1, err);
    if (status != AD_OK) {
        ad_owner_unref(owner);
        return status;
    }
    self->allocations.items[self->allocations.n++] = owner;
    return AD_OK;
}

ad_status
ad_builder_allocate(ad_builder *self, int64_t nbytes, void **out,
                    ad_error *err)
{
    ad_owner *owner;
    *out = NULL;
    if (self->needs_runtime) {
        AD_RETURN_IF_ERR(open_runtime(self, err));
    }
    AD_RETURN_IF_ERR(
        ad_session_allocate(&self->session, nbytes, out, &owner, err));
    self->nbytes += nbytes;
    return keep(self, owner, err);
}

ad_status
ad_builder_bitmap_of(ad_builder *self, const void *source, int64_t from,
                     int64_t length, void **out, ad_error *err)
{
    int64_t nbytes = ad_padded(ad_bitmap_bytes(length));
    const ad_launch launch = {
        .kernel = AD_KERNEL_COPY_BITS,
        .bit_offset = from,
        .length = length,
        .numbers = {0, AD_BITS_COPY, nbytes * 8 - length},
    };
    AD_RETURN_IF_ERR(ad_builder_allocate(self, nbytes, out, err));
    return ad_session_kernel(&self->session, source, *out, launch, err);
}

static ad_status
copy_from(ad_builder *self, ad_span source, void *target, int64_t to,
          int64_t nbytes, ad_error *err)
{
    const ad_block_copy copy = {
        .target = ad_span_at(self->session.target, target, to),
        .source = source,
        .width = (size_t)nbytes,
        .height = 1,
    };
    return ad_session_copy(&self->session, &copy, err);
}

ad_status
ad_builder_bytes(ad_builder *self, const void *source, int64_t from,
                 void *target, int64_t to, int64_t nbytes, ad_error *err)
{
    return copy_from(self, ad_span_at(self->session.source, source, from),
                     target, to, nbytes, err);
}

/* Reads `nbytes` bytes of the session's device to `out`, after all work so
 * far. Blocks. */
static ad_status
read_device(ad_builder *self, const void *source, int64_t from, int64_t nbytes,
            void *out, ad_error *err)
{
    if (self->session.backend != NULL) {
        return ad_session_read(&self->session, NULL, source, (uint64_t)from,
                               (size_t)nbytes, out, err);
    }
    memcpy(out, (const char *)source + from, (size_t)nbytes);
    return AD_OK;
}

ad_status
ad_builder_share(ad_builder *self, ad_owner *owner, ad_error *err)
{
    if (self->session.backend != NULL) {
        self->session.progress = AD_SESSION_BEGUN;
    }
    return keep(self, ad_owner_ref(owner), err);
}

ad_status
ad_builder_owner(const ad_builder *self, ad_owner **out, ad_error *err)
{
    return ad_owner_group_new(self->allocations.items, self->allocations.n,
                              out, err);
}

ad_status
ad_builder_finish(ad_builder *self, ad_sync **out, ad_error *err)
{
    *out = NULL;
    return self->is_open ? ad_session_finish(&self->session, NULL, out, err)
                         : AD_OK;
}

void
ad_builder_clear(ad_builder *self, bool failed, ad_owner *source)
{
    if (failed && self->is_open) {
        ad_session_abandon(&self->session, source, NULL, NULL);
    }
    for (size_t i = 0; i < self->allocations.n; i++) {
        if (failed && self->is_open) {
            ad_session_abandon(&self->session, NULL, NULL,
                               self->allocations.items[i]);
        }
        ad_owner_unref(self->allocations.items[i]);
    }
    free(self->allocations.items);
}

/* --- run ends ------------------------------------------------------------ */

static ad_status
fail_run_end(int64_t end, int64_t before, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "run end %" PRId64 " comes after %" PRId64, end, before);
}

static ad_status
fail_last_run(int64_t end, int64_t rows, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "the last run ends at %" PRId64 ", but there are %" PRId64
                   " rows",
                   end, rows);
}

/* Reads run end `i` of the child; 0 for -1. Blocks. */
static ad_status
read_run_end(ad_builder *builder, const struct ArrowArray *ends, int64_t width,
             int64_t i, int64_t *out, ad_error *err)
{
    int64_t number = 0;
    *out = 0;
    if (i < 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(read_device(builder, ends->buffers[1],
                                 (ends->offset + i) * width, width, &number,
                                 err));
    *out = ad_int_at(&number, (int)width, 0);
    return AD_OK;
}

/* --- finding runs -------------------------------------------------------- */

/* The result of AD_KERNEL_FIND_RUNS: each member is 1 + the number of a run,
 * or 0 for none. */
typedef struct found_ends {
    int64_t bad;
    int64_t first;
    int64_t last;
} found_ends;

static ad_status
resolve(ad_builder *builder, const ad_array *view, int64_t width,
        const found_ends *found, ad_run_ends *out, ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t before, end;
    if (found->bad != 0) {
        AD_RETURN_IF_ERR(
            read_run_end(builder, ends, width, found->bad - 2, &before, err));
        AD_RETURN_IF_ERR(
            read_run_end(builder, ends, width, found->bad - 1, &end, err));
        return fail_run_end(end, before, err);
    }
    if (found->last == 0) {
        AD_RETURN_IF_ERR(
            read_run_end(builder, ends, width, ends->length - 1, &end, err));
        return fail_last_run(end, view->offset + view->length, err);
    }
    *out = (ad_run_ends){found->first - 1, found->last - found->first + 1};
    return AD_OK;
}

/* Finds the first run that ends behind `row`. */
static int64_t
first_behind(const struct ArrowArray *ends, int64_t width, int64_t row)
{
    const char *numbers =
        (const char *)ends->buffers[1] + ends->offset * width;
    return ad_first_above(numbers, (int)width, ends->length, row);
}

/* Checks only the runs of the rows, and the one before. */
static void
find_on_host(const ad_array *view, int64_t width, found_ends *out)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t first = first_behind(ends, width, view->offset);
    int64_t last = first_behind(ends, width, view->offset + view->length - 1);
    int64_t from = first > 0 ? first - 1 : 0;
    const ad_launch launch = {
        .kernel = AD_KERNEL_FIND_RUNS,
        .source.data = (void *)ends->buffers[1],
        .source.offset = (uint64_t)((ends->offset + from) * width),
        .target.data = out,
        .length = (last < ends->length ? last + 1 : last) - from,
        .numbers = {width, -1, -1},
        .n_items = 1,
    };
    *out = (found_ends){0, 0, 0};
    if (launch.length > 0) {
        ad_kernel_run_on_host(&launch);
    }
    *out = (found_ends){
        .bad = out->bad > 0 ? from + out->bad : 0,
        .first = first + 1,
        .last = last < ends->length ? last + 1 : 0,
    };
}

static ad_status
find_on_device(ad_builder *builder, const ad_array *view, int64_t width,
               found_ends *out, ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t nbytes = (int64_t)sizeof(*out);
    void *found;
    const ad_launch launch = {
        .kernel = AD_KERNEL_FIND_RUNS,
        .source.offset = (uint64_t)(ends->offset * width),
        .length = ends->length,
        .numbers = {width, view->offset, view->offset + view->length},
    };
    AD_RETURN_IF_ERR(ad_builder_allocate(builder, nbytes, &found, err));
    AD_RETURN_IF_ERR(ad_copy_bits(&builder->session, NULL, 0, found, 0,
                                  8 * nbytes, AD_BITS_ZEROS, err));
    AD_RETURN_IF_ERR(ad_session_kernel(&builder->session, ends->buffers[1],
                                       found, launch, err));
    return read_device(builder, found, 0, nbytes, out, err);
}

ad_status
ad_find_run_ends(ad_builder *builder, const ad_array *view, ad_run_ends *out,
                 ad_error *err)
{
    int64_t width;
    found_ends found;
    *out = (ad_run_ends){0, 0};
    if (view->length == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_run_end_width(view->schema, &width, err));
    if (builder->session.backend == NULL) {
        find_on_host(view, width, &found);
    } else {
        AD_RETURN_IF_ERR(find_on_device(builder, view, width, &found, err));
    }
    return resolve(builder, view, width, &found, out, err);
}

/* --- writing run ends ---------------------------------------------------- */

ad_status
ad_run_end_width(ad_schema schema, int64_t *out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(
        ad_type_parse(schema.node->children[0]->format, &type, err));
    *out = type.bit_width / 8;
    return AD_OK;
}

ad_status
ad_write_run_ends(ad_builder *builder, const ad_array *view, ad_run_ends runs,
                  int64_t row, void *target, int64_t to, ad_error *err)
{
    const struct ArrowArray *ends = view->node->children[0];
    int64_t width;
    AD_RETURN_IF_ERR(ad_run_end_width(view->schema, &width, err));
    const ad_launch launch = {
        .kernel = AD_KERNEL_ADD,
        .source.offset = (uint64_t)((ends->offset + runs.first) * width),
        .target.offset = (uint64_t)(to * width),
        .length = runs.n,
        .numbers = {width, row - view->offset, view->offset + view->length,
                    true},
    };
    return ad_session_kernel(&builder->session, ends->buffers[1], target,
                             launch, err);
}

ad_status
ad_build_run_ends(ad_schema schema, ad_device device, int64_t n,
                  const void *ends, ad_array *out, ad_error *err)
{
    const void *buffers[] = {NULL, ends};
    const ad_array_spec spec = {
        .schema = {schema.node->children[0], schema.owner},
        .memory = {.device = device},
        .length = n,
        .n_buffers = 2,
        .buffers = buffers,
    };
    return ad_array_build(&spec, out, err);
}
