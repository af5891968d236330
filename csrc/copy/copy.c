#include "copy/copy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "order/device_owner.h"
#include "base/log.h"
#include "base/owner.h"
#include "copy/session.h"
#include "order/deferred_release.h"
#include "base/wait.h"
#include "copy/copy_tree.h"

static const char operation[] = "a copy";

/* --- tensors: ways to copy ----------------------------------------------- */

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

static ad_status copy_tensor_via_host(const ad_tensor *tensor,
                                      ad_device target,
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
copy_tensor_on_stream(const ad_tensor *tensor, ad_device target,
                      const ad_stream_ref *stream, char order,
                      const blocks *plan, way how, ad_tensor_value *out,
                      ad_error *err)
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
        return copy_tensor_via_host(tensor, target, stream, order, false, out,
                                    err);
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
copy_tensor_via_host(const ad_tensor *tensor, ad_device target,
                     const ad_stream_ref *stream, char order,
                     bool is_scattered, ad_tensor_value *out, ad_error *err)
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

/* --- copies of tensors --------------------------------------------------- */

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
        return copy_tensor_via_host(tensor, target, stream, order, false, out,
                                    err);
    }
    AD_RETURN_IF_ERR(plan_blocks(tensor, order, &plan, err));
    AD_RETURN_IF_ERR(
        choose_way(tensor, target, order, true, &plan, &how, err));
    if (how == WAY_KERNEL) {
        ad_error unused;
        ad_error *why = err != NULL ? err : &unused;
        ad_status status = copy_tensor_on_stream(tensor, target, stream, order,
                                                 &plan, how, out, why);
        /* There may be no compiler, or the driver is too old. */
        if (status == AD_OK || !ad_error_has_reason(why, "kernel")) {
            return status;
        }
        AD_RETURN_IF_ERR(
            choose_way(tensor, target, order, false, &plan, &how, err));
    }
    if (how == WAY_BLOCKS) {
        return copy_tensor_on_stream(tensor, target, stream, order, &plan, how,
                                     out, err);
    }
    return ad_device_equal(target, AD_CPU)
               ? contiguous_on_host(tensor, stream, order, out, err)
               : copy_tensor_via_host(tensor, target, stream, order, true, out,
                                      err);
}

ad_status
ad_tensor_copy_to(const ad_tensor *tensor, ad_device target,
                  const ad_stream_ref *stream, char order, const char *why,
                  ad_tensor_value *out, ad_error *err)
{
    int64_t start = ad_log_start();
    AD_RETURN_IF_ERR(copy_to(tensor, target, stream, order, out, err));
    if (why != NULL) {
        AD_LOG_COPY(ad_tensor_nbytes(tensor), tensor->memory.device, target,
                    why, start);
    }
    return AD_OK;
}

/* --- arrays: the job of a copy ------------------------------------------- */

/* So many small copies to the host are worth a pinned block. */
#define MANY_PIECES 4

/* A buffer without bytes still holds a valid first offset. */
static const uint64_t zeros[AD_ALIGNMENT / sizeof(uint64_t)];

typedef struct job {
    ad_buffer_map map; /* maps to the copied tree */
    ad_session session;
    ad_plan plan;
    int64_t nbytes; /* size of the common allocation */
    void *pinned;   /* the work writes here in its place; or NULL */
    bool is_ahead;  /* of its consumer: ad_array_move_end() takes the result */
    ad_owner **owners;
    size_t n_owners;
    ad_owner *memory; /* owns all memory of the copy */
    ad_owner *host;   /* owns the host memory that is read */
    ad_device device; /* device of the copy */
    ad_sync *sync;
    ad_host_block *bits; /* a list of loose_bits; NULL: none */
} job;

/* Places the pieces one after the other, as in a common allocation. */
static ad_status
place_pieces(job *self, ad_error *err)
{
    size_t n = self->plan.pieces.n;
    for (size_t i = 0; i < n; i++) {
        ad_piece *piece = &self->plan.pieces.items[i];
        if (piece->source == NULL) {
            piece->nbytes = 0;
        } else if (piece->nbytes <= 0) {
            piece->source = zeros;
            piece->offset = 0;
            piece->nbytes = sizeof(zeros);
            piece->on_host = true;
        }
        piece->target_offset = self->nbytes;
        if (piece->nbytes > INT64_MAX - AD_ALIGNMENT ||
            __builtin_add_overflow(self->nbytes, ad_padded(piece->nbytes),
                                   &self->nbytes)) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "the sizes of all buffers overflow 64 bits");
        }
    }
    self->owners = calloc(n + 1, sizeof(*self->owners));
    return self->owners == NULL
               ? ad_fail_memory(err, (n + 1) * sizeof(*self->owners))
               : AD_OK;
}

/* --- memory -------------------------------------------------------------- */

/* Where the runtime writes the piece. */
static void *
target_of(const job *self, const ad_piece *piece)
{
    return self->pinned != NULL ? self->pinned : piece->target;
}

/* Arrow recommends zero padding. On devices that would double the number of
 * operations. */
static void
clear_padding(const job *self)
{
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        const ad_piece *at = &self->plan.pieces.items[i];
        if (at->nbytes > 0) {
            memset((char *)target_of(self, at) + at->target_offset +
                       at->nbytes,
                   0, (size_t)(ad_padded(at->nbytes) - at->nbytes));
        }
    }
}

static ad_status
allocate_each(job *self, ad_error *err)
{
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        ad_piece *at = &self->plan.pieces.items[i];
        at->target_offset = 0;
        if (at->nbytes > 0) {
            AD_RETURN_IF_ERR(
                ad_session_allocate(&self->session, at->nbytes, &at->target,
                                    &self->owners[self->n_owners], err));
            self->n_owners++;
        }
    }
    return AD_OK;
}

static ad_status
allocate_once(job *self, ad_error *err)
{
    void *data;
    AD_RETURN_IF_ERR(ad_session_allocate(&self->session, self->nbytes, &data,
                                         &self->owners[0], err));
    self->n_owners = 1;
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        self->plan.pieces.items[i].target = data;
    }
    return AD_OK;
}

static ad_status
allocate(job *self, ad_error *err)
{
    bool uses_handles =
        ad_device_uses_handles(self->session.memory.device.type);
    AD_RETURN_IF_ERR(uses_handles ? allocate_each(self, err)
                                  : allocate_once(self, err));
    if (self->n_owners == 1) {
        self->memory = ad_owner_ref(self->owners[0]);
        return AD_OK;
    }
    return ad_owner_group_new(self->owners, self->n_owners, &self->memory,
                              err);
}

/* --- copying ------------------------------------------------------------- */

/* Copies to pageable memory block one by one. Many small ones, and those ahead
 * of their consumer, go to one pinned block, which the host reads when all are
 * done. The result does not stay there: pinned memory ends with its context,
 * and a forked child may not have it (ROCm/rocm-systems#356). */
static void *
find_pinned(job *self)
{
    int64_t n = 0;
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        const ad_piece *at = &self->plan.pieces.items[i];
        n += at->nbytes > 0 && !at->on_host;
    }
    bool are_many =
        n >= MANY_PIECES && self->nbytes / n <= (int64_t)AD_STAGED_AT_ONCE;
    return are_many || (self->is_ahead && n > 0)
               ? ad_session_pinned(&self->session, self->nbytes)
               : NULL;
}

static ad_status
copy_piece(job *self, const ad_piece *at, void *target, int64_t target_offset,
           ad_error *err)
{
    const ad_context host = {.device = AD_CPU};
    ad_context context = at->on_host ? host : self->session.source;
    const ad_block_copy copy = {
        .target = ad_span_at(self->session.target, target, target_offset),
        .source = ad_span_at(context, at->source, at->offset),
        .width = (size_t)at->nbytes,
        .height = 1,
    };
    return ad_session_copy(&self->session, &copy, err);
}

/* Copies the rows' bits to the first ones of the piece, by a kernel, which
 * reads memory of its own device only: other bytes are copied there before. */
static ad_status
copy_bits(job *self, const ad_piece *at, ad_error *err)
{
    ad_session session = self->session;
    const void *source = at->source;
    ad_owner *bytes = NULL;
    ad_launch launch = {
        .kernel = AD_KERNEL_COPY_BITS,
        .target.offset = (uint64_t)at->target_offset,
        .bit_offset = at->offset * 8 + at->shift,
        .length = at->n_bits,
        .numbers = {0, AD_BITS_COPY, at->nbytes * 8 - at->n_bits},
    };
    if (!ad_device_equal(session.source.device, session.target.device)) {
        void *copy;
        AD_RETURN_IF_ERR(ad_session_allocate(&self->session, at->nbytes, &copy,
                                             &bytes, err));
        ad_status status = copy_piece(self, at, copy, 0, err);
        if (status != AD_OK) {
            ad_session_abandon(&self->session, NULL, NULL, bytes);
            ad_owner_unref(bytes);
            return status;
        }
        self->session.source = session.target;
        source = copy;
        launch.bit_offset = at->shift;
    }
    ad_status status =
        ad_session_kernel(&self->session, source, at->target, launch, err);
    self->session.source = session.source;
    ad_owner_unref(bytes);
    return status;
}

static ad_status
copy_pieces(job *self, ad_error *err)
{
    bool by_kernel = !ad_host_accessible(self->device);
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        const ad_piece *at = &self->plan.pieces.items[i];
        AD_RETURN_IF_ERR(at->n_bits > 0 && by_kernel
                             ? copy_bits(self, at, err)
                             : copy_piece(self, at, target_of(self, at),
                                          at->target_offset, err));
    }
    return AD_OK;
}

/* --- bits in host memory ------------------------------------------------- */

/* The bytes of a bitmap that was copied as it is. */
typedef struct loose_bits {
    uint8_t *data;
    int shift; /* number of the rows' first bit */
    int64_t n; /* rows */
    int64_t nbytes;
} loose_bits;

static void
settle(const loose_bits *self)
{
    uint8_t *data = self->data;
    int shift = self->shift;
    int64_t end = ad_bitmap_bytes(self->n);
    for (int64_t i = 0; shift != 0 && i < self->nbytes; i++) {
        int next = i + 1 < self->nbytes ? data[i + 1] : 0;
        data[i] = (uint8_t)(data[i] >> shift | next << (8 - shift));
    }
    if (self->n % 8 != 0) {
        data[end - 1] &= (uint8_t)((1 << self->n % 8) - 1);
    }
    memset(data + end, 0, (size_t)(self->nbytes - end));
}

/* Lists the bits that the host settles once they are in its memory. */
static ad_status
list_bits(job *self, ad_error *err)
{
    size_t n = 0;
    ad_host_block *list;
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        n += self->plan.pieces.items[i].n_bits > 0;
    }
    if (n == 0 || !ad_host_accessible(self->device)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_host_block_new((int64_t)(n * sizeof(loose_bits)), &list, err));
    self->bits = list;
    loose_bits *next = list->data;
    for (size_t i = 0; i < self->plan.pieces.n; i++) {
        const ad_piece *at = &self->plan.pieces.items[i];
        if (at->n_bits > 0) {
            *next++ = (loose_bits){
                .data = (uint8_t *)at->target + at->target_offset,
                .shift = at->shift,
                .n = at->n_bits,
                .nbytes = at->nbytes,
            };
        }
    }
    return AD_OK;
}

static void
settle_bits(const ad_host_block *list)
{
    int64_t nbytes = list != NULL ? list->nbytes : 0;
    for (int64_t i = 0; i < nbytes / (int64_t)sizeof(loose_bits); i++) {
        settle((const loose_bits *)list->data + i);
    }
}

/* Keeps the host memory that the copy reads: the plan's own, and the source if
 * it is host memory. */
static ad_status
keep_host_memory(job *self, const ad_array *array, ad_error *err)
{
    bool from_host = ad_is_host_memory(array->memory.device);
    size_t n = self->plan.allocations.n;
    if (n == 0) {
        self->host = from_host ? ad_owner_ref(array->memory.owner) : NULL;
        return AD_OK;
    }
    ad_owner *allocations;
    AD_RETURN_IF_ERR(ad_owner_group_new(self->plan.allocations.items, n,
                                        &allocations, err));
    ad_owner *const owners[] = {allocations,
                                from_host ? array->memory.owner : NULL};
    ad_status status = ad_owner_group_new(owners, 2, &self->host, err);
    ad_owner_unref(allocations);
    return status;
}

/* Record the stream before its work begins: work that cannot be recorded must
 * not begin. */
static ad_status
record_stream(const job *self, const ad_array *array, ad_error *err)
{
    const ad_session *session = &self->session;
    if (session->backend == NULL || session->to_host ||
        ad_is_host_memory(array->memory.device)) {
        return AD_OK;
    }
    return ad_owner_record_stream(array->memory.owner, &session->on, err);
}

static ad_status
submit(job *self, const ad_array *array, ad_error *err)
{
    AD_RETURN_IF_ERR(allocate(self, err));
    AD_RETURN_IF_ERR(keep_host_memory(self, array, err));
    AD_RETURN_IF_ERR(list_bits(self, err));
    AD_RETURN_IF_ERR(record_stream(self, array, err));
    self->pinned = find_pinned(self);
    if (ad_device_equal(self->session.memory.device, AD_CPU)) {
        clear_padding(self);
    }
    AD_RETURN_IF_ERR(copy_pieces(self, err));
    return ad_session_mark_end(&self->session, err);
}

static ad_status
run(job *self, const ad_array *array, ad_error *err)
{
    AD_RETURN_IF_ERR(place_pieces(self, err));
    ad_session_begin_calls(&self->session);
    ad_status status = submit(self, array, err);
    ad_session_end_calls(&self->session);
    AD_RETURN_IF_ERR(status);
    AD_RETURN_IF_ERR(
        ad_session_finish(&self->session, self->host, &self->sync, err));
    if (self->pinned != NULL && !self->is_ahead) {
        memcpy(self->plan.pieces.items[0].target, self->pinned,
               (size_t)self->nbytes);
    }
    if (!self->is_ahead) {
        settle_bits(self->bits);
    }
    return AD_OK;
}

/* Builds a node of the copied tree. */
static ad_status
take_pieces(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    job *self = (job *)map;
    const ad_piece *pieces = ad_plan_next(&self->plan, node);
    for (int64_t i = 0; i < node->spec.n_buffers; i++) {
        node->buffers[i] =
            pieces[i].nbytes > 0
                ? (const char *)pieces[i].target + pieces[i].target_offset
                : NULL;
    }
    node->spec.memory.device = self->device;
    node->spec.memory.owner = self->memory;
    node->spec.memory.sync = self->sync;
    node->spec.memory.readonly = false;
    return AD_OK;
}

/* --- copies of arrays ---------------------------------------------------- */

static void
job_clear(job *self)
{
    for (size_t i = 0; self->owners != NULL && i < self->n_owners; i++) {
        ad_owner_unref(self->owners[i]);
    }
    free(self->owners);
    ad_owner_unref(self->memory);
    ad_owner_unref(self->host);
    ad_owner_unref(self->bits != NULL ? &self->bits->base : NULL);
    ad_sync_unref(self->sync);
    ad_owner_unref(ad_session_take_staging(&self->session));
    ad_plan_clear(&self->plan);
}

/* Two runtimes, or two contexts without shared memory: one copies to the host,
 * the other from it. */
static ad_status
copy_array_via_host(const ad_array *array, ad_device target,
                    const ad_stream_ref *stream, const char *why,
                    ad_array *out, ad_error *err)
{
    ad_array on_host;
    AD_RETURN_IF_ERR(
        ad_array_copy_to(array, AD_CPU, NULL, why, &on_host, err));
    ad_status status =
        ad_array_copy_to(&on_host, target, stream, why, out, err);
    ad_array_clear(&on_host);
    return status;
}

/* The end of the move settles the bits and reads the staging buffer. */
static void
hand_over(job *self, ad_array_move *ahead)
{
    ahead->bits = self->bits;
    self->bits = NULL;
    if (self->pinned == NULL) {
        return;
    }
    ahead->staging = ad_session_take_staging(&self->session);
    ahead->from = self->pinned;
    ahead->to = self->plan.pieces.items[0].target;
    ahead->nbytes = (size_t)self->nbytes;
}

static const char *
default_reason(const ad_array *array, ad_device target)
{
    return ad_device_equal(array->memory.device, target)
               ? "copy=True was passed"
               : "the array was asked for on that device";
}

/* With `ahead`, whose array `out` is, the host does not wait: out->sync signals
 * that the memory has been written, also where it is host memory. */
static ad_status
copy_array_on_stream(const ad_array *array, ad_device target,
                     const ad_stream_ref *stream, bool is_borrowed,
                     const char *why, ad_array_move *ahead, ad_array *out,
                     ad_error *err)
{
    const ad_session_request request = {
        .source = array->memory.device,
        .data = ad_node_some_buffer(array->node),
        .sync = array->memory.sync,
        .target = target,
        .stream = stream,
        .non_blocking = ahead != NULL,
        .is_borrowed = is_borrowed,
        .operation = operation,
    };
    job self = {
        .map = {take_pieces}, .device = target, .is_ahead = ahead != NULL};
    bool is_open;
    int64_t start = ad_log_start();
    if (ad_session_is_via_host(array->memory.device, target)) {
        return copy_array_via_host(array, target, stream, why, out, err);
    }
    AD_RETURN_IF_ERR(
        ad_session_try_open(&request, &is_open, &self.session, err));
    if (!is_open) {
        return copy_array_via_host(array, target, stream, why, out, err);
    }
    /* The plan reads sizes in this session if no stream was given and the
     * stream runs on the source's device. Otherwise it opens a session of its
     * own, because work on the caller's stream may take long. */
    bool is_given = ad_stream_is_given(stream);
    bool reads = !is_given && self.session.backend != NULL &&
                 ad_device_equal(self.session.source.device,
                                 self.session.on.context.device);
    ad_status status =
        ad_plan_make(array, reads ? &self.session : NULL, &self.plan, err);
    if (status == AD_OK) {
        status = run(&self, array, err);
    }
    if (status == AD_OK) {
        status = ad_map_buffers(array, &self.map, out, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(&self.session, array->memory.owner, self.host,
                           self.memory);
    } else if (ahead != NULL) {
        hand_over(&self, ahead);
    }
    int64_t nbytes = self.nbytes;
    job_clear(&self);
    if (status == AD_OK) {
        AD_LOG_COPY(nbytes, array->memory.device, target,
                    why != NULL ? why : default_reason(array, target), start);
    }
    return status;
}

static ad_status
copy_array(const ad_array *array, ad_device target,
           const ad_stream_ref *stream, bool is_borrowed, const char *why,
           ad_array_move *ahead, ad_array *out, ad_error *err)
{
    ad_error unused;
    ad_error *failure = err != NULL ? err : &unused;
    ad_status status = copy_array_on_stream(array, target, stream, is_borrowed,
                                            why, ahead, out, failure);
    /* Bits need a kernel. The host can move them, too. */
    return status != AD_OK && ad_error_has_reason(failure, "kernel")
               ? copy_array_via_host(array, target, stream, why, out, err)
               : status;
}

ad_status
ad_array_copy_to(const ad_array *array, ad_device target,
                 const ad_stream_ref *stream, const char *why, ad_array *out,
                 ad_error *err)
{
    return copy_array(array, target, stream, true, why, NULL, out, err);
}

/* --- moves: begun now, ended or dropped later ---------------------------- */

ad_move
ad_move_for(ad_device found, ad_device target)
{
    if (ad_device_equal(found, target)) {
        return AD_MOVE_NONE;
    }
    bool is_host =
        ad_device_equal(target, AD_CPU) && ad_host_accessible(found);
    return is_host || ad_device_is_another_name(found, target) ? AD_MOVE_ALIAS
                                                               : AD_MOVE_COPY;
}

ad_status
ad_array_move_begin(const ad_array *array, bool is_borrowed, ad_device target,
                    const ad_stream_ref *stream, ad_array_move *out,
                    ad_error *err)
{
    ad_move how = ad_move_for(array->memory.device, target);
    *out = (ad_array_move){
        .is_awaited = how != AD_MOVE_NONE && ad_host_accessible(target),
        .is_written = how == AD_MOVE_COPY,
    };
    if (how == AD_MOVE_COPY) {
        ad_stream_hide_current();
        ad_status status = copy_array(array, target, stream, is_borrowed, NULL,
                                      out, &out->array, err);
        ad_stream_show_current();
        return status;
    }
    ad_array_share(array, &out->array);
    out->array.memory.device = target;
    return AD_OK;
}

/* Host memory does not track its writers, device memory does: the owner is
 * released after the write. */
void
ad_array_move_drop(ad_array_move *self)
{
    ad_sync *sync = self->array.memory.sync;
    if (self->is_written && self->is_awaited && !ad_sync_is_done(sync)) {
        ad_sync *const syncs[] = {ad_sync_ref(sync)};
        ad_defer_release(ad_owner_ref(self->staging != NULL
                                          ? self->staging
                                          : self->array.memory.owner),
                         sync->on.context, syncs, 1);
    }
    ad_owner_unref(self->staging);
    self->staging = NULL;
    ad_owner_unref(self->bits != NULL ? &self->bits->base : NULL);
    self->bits = NULL;
    ad_array_clear(&self->array);
}

/* The bytes may be many, so that other threads run. */
static void
read_staging(const ad_array_move *self)
{
    void *saved = ad_wait_begin();
    memcpy(self->to, self->from, self->nbytes);
    ad_wait_end(saved);
}

ad_status
ad_array_move_end(ad_array_move *self, ad_array *out, ad_error *err)
{
    if (self->is_awaited) {
        ad_status status =
            ad_sync_wait(self->array.memory.sync, "host memory", err);
        if (status != AD_OK) {
            ad_array_move_drop(self);
            return status;
        }
        ad_sync_unref(self->array.memory.sync);
        self->array.memory.sync = NULL;
    }
    if (self->staging != NULL) {
        read_staging(self);
        ad_owner_unref(self->staging);
    }
    settle_bits(self->bits);
    ad_owner_unref(self->bits != NULL ? &self->bits->base : NULL);
    *out = self->array;
    *self = (ad_array_move){.staging = NULL};
    return AD_OK;
}
