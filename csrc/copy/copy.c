#include "copy/copy.h"

#include <inttypes.h>
#include <string.h>

#include "order/device_owner.h"
#include "base/log.h"
#include "base/owner.h"
#include "copy/session.h"

static const char operation[] = "a copy";

/* --- ways to copy -------------------------------------------------------- */

/* A strided copy as blocks. A block is one loop over rows of `width` bytes;
 * the other loops go around the blocks. */
typedef struct blocks {
    ad_loops loops; /* around the blocks, without the loop of the rows */
    size_t width;
    ad_loop rows;
    int64_t n; /* number of blocks */
} blocks;

/* Up to FEW_PIECES operations are enqueued one by one without looking for
 * another way. More than MAX_PIECES are refused: the overhead would exceed the
 * cost of the copies. */
#define FEW_PIECES 256
#define MAX_PIECES 65536

/* A limit that all runtimes accept. */
#define MAX_PITCH INT32_MAX

/* Shorter rows are too small for one bus transfer each, and a device copies
 * them one by one. Up to FEW_ROWS of them are not worth building the
 * kernels. */
#define SHORT_ROW 64
#define FEW_ROWS 1024

/* An extent may be copied whole if it is at most DENSE times as large as the
 * elements, or at most SMALL bytes. */
#define DENSE 4
#define SMALL (1 << 20)

static ad_loop
take_loop(ad_loops *loops, int32_t k)
{
    ad_loop taken = loops->at[k];
    loops->n--;
    memmove(&loops->at[k], &loops->at[k + 1],
            (size_t)(loops->n - k) * sizeof(ad_loop));
    return taken;
}

/* Takes the loop that leaves the fewest blocks, of those that a pitch can
 * express: rows may not overlap or run backwards. */
static void
take_rows(blocks *self)
{
    int32_t best = -1;
    for (int32_t k = 0; k < self->loops.n; k++) {
        const ad_loop *loop = &self->loops.at[k];
        if (loop->extent > 1 && loop->stride >= (int64_t)self->width &&
            loop->stride <= MAX_PITCH &&
            (best < 0 || loop->extent > self->loops.at[best].extent)) {
            best = k;
        }
    }
    self->rows =
        best < 0 ? (ad_loop){.extent = 1} : take_loop(&self->loops, best);
}

static ad_status
plan_blocks(const ad_tensor *tensor, char order, blocks *out, ad_error *err)
{
    if (ad_tensor_is_contiguous(tensor, order)) {
        *out = (blocks){
            .width = (size_t)ad_tensor_nbytes(tensor),
            .rows = {.extent = 1},
            .n = 1,
        };
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_loops_plan(tensor, order, &out->loops, err));
    out->width = out->loops.size;
    if (out->loops.at[out->loops.n - 1].stride == (int64_t)out->width) {
        out->width *= (size_t)take_loop(&out->loops, out->loops.n - 1).extent;
    }
    take_rows(out);
    out->n = 1;
    for (int32_t k = 0; k < out->loops.n; k++) {
        /* This cannot overflow: there are no more blocks than elements. */
        out->n *= out->loops.at[k].extent;
    }
    return AD_OK;
}

typedef enum way {
    WAY_BLOCKS, /* block by block, copied by the runtime */
    WAY_KERNEL, /* element by element, within one device */
    WAY_HOST    /* made contiguous in host memory first */
} way;

static ad_status
fail_scattered(const ad_tensor *tensor, int64_t n, ad_error *err)
{
    return ad_fail_on(
        err, tensor->memory.device, "strides",
        "make it contiguous in the producing library",
        "the tensor's strides scatter its elements so that a copy would "
        "take %" PRId64 " transfers, or one of far more memory than "
        "they fill",
        n);
}

/* Number of operations that the runtime needs for the plan. */
static int64_t
count_pieces(const ad_tensor *tensor, ad_device target, const blocks *plan)
{
    ad_device working = ad_host_accessible(tensor->memory.device)
                            ? target
                            : tensor->memory.device;
    bool by_row =
        (ad_backend_for(working.type)->capabilities & AD_CAP_COPY_BY_ROW) != 0;
    return by_row ? plan->n * plan->rows.extent : plan->n;
}

/* A launch covers the two innermost loops; each turn of the others is a
 * launch. */
static int64_t
count_launches(const ad_loops *loops)
{
    int64_t n = 1;
    for (int32_t k = 0; k < loops->n - 2; k++) {
        n *= loops->at[k].extent;
    }
    return n;
}

/* `kernels`: kernels are available, as far as is known. */
static ad_status
choose_way(const ad_tensor *tensor, ad_device target, char order, bool kernels,
           const blocks *plan, way *out, ad_error *err)
{
    ad_loops elements;
    bool from_host = ad_host_accessible(tensor->memory.device);
    bool is_bus = from_host || ad_host_accessible(target);
    int64_t n = count_pieces(tensor, target, plan);
    int64_t n_rows = plan->n * plan->rows.extent;
    bool is_narrow = plan->width < SHORT_ROW && (is_bus || n_rows > FEW_ROWS);
    int64_t low, high;
    *out = WAY_BLOCKS;
    if (n_rows == 1 || (n <= FEW_PIECES && !is_narrow)) {
        return AD_OK;
    }
    if (kernels && ad_device_equal(tensor->memory.device, target) && !is_bus &&
        ad_loops_plan(tensor, order, &elements, NULL) == AD_OK &&
        count_launches(&elements) <= FEW_PIECES) {
        *out = WAY_KERNEL;
        return AD_OK;
    }
    if (n <= FEW_PIECES && !is_bus) {
        return AD_OK;
    }
    ad_tensor_extent(tensor, &low, &high);
    if (from_host || high - low <= SMALL ||
        (high - low) / DENSE <= ad_tensor_nbytes(tensor)) {
        *out = WAY_HOST;
        return AD_OK;
    }
    return n <= MAX_PIECES && plan->rows.extent <= INT32_MAX
               ? AD_OK
               : fail_scattered(tensor, n, err);
}

/* --- block by block ------------------------------------------------------ */

static ad_status
run_blocks(ad_session *session, const blocks *plan, ad_span source,
           ad_span target, ad_error *err)
{
    int64_t index[AD_MAX_NDIM + 2] = {0};
    ad_block_copy block = {
        .target = target,
        .source = source,
        .width = plan->width,
        .height = (size_t)plan->rows.extent,
        .target_pitch = (size_t)plan->rows.pitch,
        .source_pitch = (size_t)plan->rows.stride,
    };
    for (;;) {
        AD_RETURN_IF_ERR(ad_session_copy(session, &block, err));
        int32_t k = plan->loops.n - 1;
        for (; k >= 0 && ++index[k] == plan->loops.at[k].extent; k--) {
            const ad_loop *done = &plan->loops.at[k];
            block.source.offset -= (uint64_t)(done->stride * (index[k] - 1));
            block.target.offset -= (uint64_t)(done->pitch * (index[k] - 1));
            index[k] = 0;
        }
        if (k < 0) {
            return AD_OK;
        }
        block.source.offset += (uint64_t)plan->loops.at[k].stride;
        block.target.offset += (uint64_t)plan->loops.at[k].pitch;
    }
}

/* --- element by element -------------------------------------------------- */

static ad_status
run_gather(ad_session *session, const ad_loops *loops, ad_span source,
           void *target, ad_error *err)
{
    const ad_loop *rows = &loops->at[loops->n - 2];
    const ad_loop *columns = &loops->at[loops->n - 1];
    int64_t n = count_launches(loops);
    int64_t plane = rows->extent * columns->extent;
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = (int64_t)source.offset;
        int64_t rest = i;
        for (int32_t k = loops->n - 3; k >= 0; k--) {
            offset += rest % loops->at[k].extent * loops->at[k].stride;
            rest /= loops->at[k].extent;
        }
        const ad_launch launch = {
            .kernel = AD_KERNEL_GATHER,
            .source.offset = (uint64_t)offset,
            .target.offset = (uint64_t)(i * plane) * loops->size,
            .length = plane,
            .numbers = {columns->extent, rows->stride, columns->stride,
                        (int64_t)loops->size},
        };
        AD_RETURN_IF_ERR(
            ad_session_kernel(session, source.data, target, launch, err));
    }
    return AD_OK;
}

/* The first element, as a span whose offset is never negative. */
static ad_span
first_element(const ad_tensor *tensor, ad_context context)
{
    int64_t low, high;
    ad_span span = {context, tensor->data, tensor->byte_offset};
    if (!ad_device_uses_handles(tensor->memory.device.type)) {
        ad_tensor_extent(tensor, &low, &high);
        span.data = (char *)ad_tensor_address(tensor) + low;
        span.offset = (uint64_t)-low;
    }
    return span;
}

static ad_status copy_via_host(const ad_tensor *tensor, ad_device target,
                               const ad_stream_ref *stream, char order,
                               bool is_scattered, ad_tensor_value *out,
                               ad_error *err);

/* Copies with the runtime's copies or with a kernel. */
static ad_status
run_work(ad_session *session, const ad_tensor *tensor, char order,
         const blocks *plan, way how, void *target, ad_error *err)
{
    ad_loops elements;
    ad_span first = first_element(tensor, session->source);
    if (how == WAY_BLOCKS) {
        return run_blocks(session, plan, first,
                          ad_span_at(session->target, target, 0), err);
    }
    AD_RETURN_IF_ERR(ad_loops_plan(tensor, order, &elements, err));
    return run_gather(session, &elements, first, target, err);
}

static ad_status
copy_on_stream(const ad_tensor *tensor, ad_device target,
               const ad_stream_ref *stream, char order, const blocks *plan,
               way how, ad_tensor_value *out, ad_error *err)
{
    const ad_session_request request = {
        .source = tensor->memory.device,
        .data = tensor->data,
        .sync = tensor->memory.sync,
        .target = target,
        .stream = stream,
        .is_borrowed = true,
        .operation = operation,
    };
    bool from_host = ad_is_host_memory(tensor->memory.device);
    ad_session session;
    bool is_open;
    void *data = NULL;
    ad_owner *owner = NULL;
    ad_sync *sync = NULL;
    AD_RETURN_IF_ERR(ad_session_try_open(&request, &is_open, &session, err));
    if (!is_open) {
        return copy_via_host(tensor, target, stream, order, false, out, err);
    }
    ad_session_begin_calls(&session);
    ad_status status = ad_session_allocate(&session, ad_tensor_nbytes(tensor),
                                           &data, &owner, err);
    if (status == AD_OK && !from_host && !session.to_host) {
        status =
            ad_owner_record_stream(tensor->memory.owner, &session.on, err);
    }
    if (status == AD_OK) {
        status = run_work(&session, tensor, order, plan, how, data, err);
    }
    if (status == AD_OK) {
        status = ad_session_mark_end(&session, err);
    }
    ad_session_end_calls(&session);
    if (status == AD_OK) {
        status = ad_session_finish(
            &session, from_host ? tensor->memory.owner : NULL, &sync, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(&session, tensor->memory.owner, NULL, owner);
        ad_owner_unref(owner);
        return status;
    }
    ad_tensor_set_copy(
        tensor, order, data,
        (ad_memory){.owner = owner, .sync = sync, .device = target}, out);
    return AD_OK;
}

/* --- through the host ---------------------------------------------------- */

/* Copies the whole byte range of the elements, with its gaps. */
static ad_status
fetch_extent(const ad_tensor *tensor, const ad_stream_ref *stream,
             ad_tensor_value *out, ad_error *err)
{
    int64_t low, high, dims[2] = {0, 1};
    ad_tensor bytes = *tensor;
    ad_tensor_extent(tensor, &low, &high);
    dims[0] = high - low;
    bytes.dtype = (ad_dl_dtype){AD_DL_UINT, 8, 1};
    bytes.flags = 0;
    bytes.ndim = 1;
    bytes.shape = &dims[0];
    bytes.strides = &dims[1];
    if (ad_device_uses_handles(tensor->memory.device.type)) {
        bytes.byte_offset += (uint64_t)low;
    } else {
        bytes.data = (char *)ad_tensor_address(tensor) + low;
        bytes.byte_offset = 0;
    }
    AD_RETURN_IF_ERR(
        ad_tensor_copy_to(&bytes, AD_CPU, stream, 'C', NULL, out, err));
    out->tensor.data = (char *)out->tensor.data - low;
    return AD_OK;
}

/* Makes a contiguous copy in host memory. */
static ad_status
contiguous_on_host(const ad_tensor *tensor, const ad_stream_ref *stream,
                   char order, ad_tensor_value *out, ad_error *err)
{
    ad_tensor_value extent;
    ad_tensor on_host = *tensor;
    if (ad_host_accessible(tensor->memory.device)) {
        return ad_tensor_copy(tensor, order, out, err);
    }
    AD_RETURN_IF_ERR(fetch_extent(tensor, stream, &extent, err));
    on_host.data = extent.tensor.data;
    on_host.byte_offset = 0;
    on_host.memory.device = AD_CPU;
    on_host.memory.sync = NULL;
    ad_status status = ad_tensor_copy(&on_host, order, out, err);
    ad_tensor_clear(&extent.tensor);
    return status;
}

/* One runtime or context copies to the host, another one from it. Scattered
 * elements are made contiguous there. */
static ad_status
copy_via_host(const ad_tensor *tensor, ad_device target,
              const ad_stream_ref *stream, char order, bool is_scattered,
              ad_tensor_value *out, ad_error *err)
{
    ad_tensor_value on_host;
    bool is_shared = ad_device_equal(tensor->memory.device, target);
    AD_RETURN_IF_ERR(
        is_scattered ? contiguous_on_host(tensor, is_shared ? stream : NULL,
                                          order, &on_host, err)
                     : ad_tensor_copy_to(tensor, AD_CPU, NULL, order, NULL,
                                         &on_host, err));
    ad_status status = ad_tensor_copy_to(&on_host.tensor, target, stream,
                                         order, NULL, out, err);
    ad_tensor_clear(&on_host.tensor);
    return status;
}

/* --- entry --------------------------------------------------------------- */

/* No bytes are copied, but the device has to exist, and where consumers look
 * the address up, an allocation. */
static ad_status
copy_empty(const ad_tensor *tensor, ad_device target, char order,
           ad_tensor_value *out, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context primary;
    ad_stream_ref stream;
    void *data = NULL;
    ad_owner *owner = NULL;
    if (!ad_device_equal(target, AD_CPU)) {
        AD_RETURN_IF_ERR(ad_backend_open(target.type, &backend, err));
        AD_RETURN_IF_ERR(backend->primary_context(target, &primary, err));
    }
    if (ad_device_traits(target.type) & AD_ALLOCATIONS) {
        AD_RETURN_IF_ERR(ad_stream_own(primary, AD_USE_WORK, &stream, err));
        AD_RETURN_IF_ERR(
            ad_device_memory_new(primary, &stream, 0, &data, &owner, err));
    }
    ad_tensor_set_copy(tensor, order, data,
                       (ad_memory){.owner = owner, .device = target}, out);
    return AD_OK;
}

static ad_status
copy_to(const ad_tensor *tensor, ad_device target, const ad_stream_ref *stream,
        char order, ad_tensor_value *out, ad_error *err)
{
    blocks plan;
    way how;
    AD_RETURN_IF_ERR(ad_tensor_require_size(tensor, err));
    if (order == 0) {
        order = !ad_tensor_is_contiguous(tensor, 'C') &&
                        ad_tensor_is_contiguous(tensor, 'F')
                    ? 'F'
                    : 'C';
    }
    if (ad_tensor_size(tensor) == 0) {
        return copy_empty(tensor, target, order, out, err);
    }
    if (ad_host_accessible(tensor->memory.device) &&
        ad_device_equal(target, AD_CPU)) {
        return ad_tensor_copy(tensor, order, out, err);
    }
    if (ad_session_is_via_host(tensor->memory.device, target)) {
        return copy_via_host(tensor, target, stream, order, false, out, err);
    }
    AD_RETURN_IF_ERR(plan_blocks(tensor, order, &plan, err));
    AD_RETURN_IF_ERR(
        choose_way(tensor, target, order, true, &plan, &how, err));
    if (how == WAY_KERNEL) {
        ad_error unused;
        ad_error *why = err != NULL ? err : &unused;
        ad_status status = copy_on_stream(tensor, target, stream, order, &plan,
                                          how, out, why);
        /* There may be no compiler, or the driver is too old. */
        if (status == AD_OK || !ad_error_has_reason(why, "kernel")) {
            return status;
        }
        AD_RETURN_IF_ERR(
            choose_way(tensor, target, order, false, &plan, &how, err));
    }
    if (how == WAY_BLOCKS) {
        return copy_on_stream(tensor, target, stream, order, &plan, how, out,
                              err);
    }
    return ad_device_equal(target, AD_CPU)
               ? contiguous_on_host(tensor, stream, order, out, err)
               : copy_via_host(tensor, target, stream, order, true, out, err);
}

ad_status
ad_tensor_copy_to(const ad_tensor *tensor, ad_device target,
                  const ad_stream_ref *stream, char order, const char *why,
                  ad_tensor_value *out, ad_error *err)
{
    AD_RETURN_IF_ERR(copy_to(tensor, target, stream, order, out, err));
    if (why != NULL) {
        AD_LOG_COPY(ad_tensor_nbytes(tensor), tensor->memory.device, target,
                    why);
    }
    return AD_OK;
}
