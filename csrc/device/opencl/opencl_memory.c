/* OpenCL's memory.
 *
 * A foreign pointer is a cl_mem or the address of SVM, and the runtime tells
 * which (device/opencl/opencl_context.h). SVM is used through a cl_mem over
 * it, which OpenCL defines to be the same memory. So there is one kind of copy
 * and one kind of kernel argument.
 */
#include "device/opencl/opencl_context.h"

/* --- classification ------------------------------------------------------ */

static ad_status
buffer_context(ad_cl_mem memory, ad_cl_context *out, ad_error *err)
{
    enum {
        INVALID_MEM = -38
    };
    uint32_t type;
    AD_CL_TRY(err, -1, GetMemObjectInfo, memory, AD_CL_MEM_TYPE, sizeof(type),
              &type, NULL);
    if (type != AD_CL_MEM_OBJECT_BUFFER) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "copy it to a buffer first "
                       "(clEnqueueCopyImageToBuffer)",
                       "the handle is of an image, a pipe or of no memory at "
                       "all, expected a buffer's");
    }
    AD_CL_TRY(err, -1, GetMemObjectInfo, memory, AD_CL_MEM_CONTEXT,
              sizeof(*out), out, NULL);
    /* A runtime that does not validate handles answers for other objects
     * too. */
    return ad_opencl_is_object(*out)
               ? AD_OK
               : ad_opencl_fail(err, -1, "clGetMemObjectInfo", INVALID_MEM);
}

/* The entry that the SVM belongs to. NULL: no known entry. */
static struct ad_opencl_context *
find_svm(const void *pointer, ad_context hint)
{
    struct ad_opencl_context *cl_context;
    if ((hint.handle != NULL || hint.device.id >= 0) &&
        ad_opencl_context_at(hint, &cl_context, NULL) == AD_OK &&
        ad_opencl_is_svm(cl_context, pointer)) {
        return cl_context;
    }
    for (cl_context = ad_opencl_contexts(); cl_context != NULL;
         cl_context = cl_context->next) {
        if (ad_opencl_is_svm(cl_context, pointer)) {
            break;
        }
    }
    return cl_context;
}

ad_status
ad_opencl_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                   ad_error *err)
{
    struct ad_opencl_context *cl_context;
    ad_cl_context handle;
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED};
    if (ad_opencl_is_object(pointer)) {
        out->kind = AD_MEMORY_DEVICE;
        AD_RETURN_IF_ERR(buffer_context((ad_cl_mem)pointer, &handle, err));
    } else {
        cl_context = find_svm(pointer, hint);
        if (cl_context == NULL) {
            return AD_OK;
        }
        out->kind = AD_MEMORY_MANAGED;
        handle = cl_context->handle;
    }
    AD_RETURN_IF_ERR(
        ad_opencl_context_in(handle, hint.device.id, &cl_context, err));
    out->context = ad_opencl_as_context(cl_context);
    return AD_OK;
}

/* A span in the form that OpenCL's calls take. */
typedef struct view {
    ad_cl_mem memory; /* NULL: host memory */
    ad_cl_context handle;
    bool is_ours; /* created over SVM */
} view;

static void
close_view(const view *self)
{
    /* Enqueued work keeps a reference. */
    if (self->is_ours) {
        (void)ad_cl.ReleaseMemObject(self->memory);
    }
}

static ad_status
open_svm(const ad_opencl_queue *queue, const ad_span *span, size_t nbytes,
         view *out, ad_error *err)
{
    int32_t code;
    const struct ad_opencl_context *cl_context =
        find_svm(span->data, ad_opencl_as_context(queue->cl_context));
    if (cl_context == NULL) {
        return ad_fail_on(
            err, span->context.device, "device",
            "check that it was not freed; SVM is named by the address "
            "that clSVMAlloc returned, with an offset beside it, and "
            "found once a queue of its context was passed as stream=",
            "%p is neither a cl_mem nor SVM of a context that was seen",
            span->data);
    }
    /* No larger than needed, since OpenCL does not tell the size of an
     * allocation. */
    out->memory =
        ad_cl.CreateBuffer(cl_context->handle, AD_CL_MEM_USE_HOST_PTR,
                           span->offset + nbytes, span->data, &code);
    if (out->memory == NULL) {
        return ad_opencl_fail(err, cl_context->id, "clCreateBuffer", code);
    }
    out->handle = cl_context->handle;
    out->is_ours = true;
    return AD_OK;
}

static ad_status
open_view(const ad_opencl_queue *queue, const ad_span *span, size_t nbytes,
          view *out, ad_error *err)
{
    *out = (view){.handle = queue->cl_context->handle};
    if (span->context.device.type != ARROW_DEVICE_OPENCL) {
        return AD_OK;
    }
    if (ad_opencl_is_object(span->data)) {
        out->memory = span->data;
        return buffer_context(out->memory, &out->handle, err);
    }
    return open_svm(queue, span, nbytes, out, err);
}

/* --- order --------------------------------------------------------------- */

/* Work submitted next runs after all work that is now on the queue. */
static ad_status
keep_order(const ad_opencl_queue *queue, ad_error *err)
{
    if (!queue->is_in_order) {
        AD_CL_TRY(err, queue->cl_context->id, EnqueueBarrierWithWaitList,
                  queue->handle, 0, NULL, NULL);
    }
    return AD_OK;
}

/* --- copies -------------------------------------------------------------- */

typedef struct request {
    ad_cl_queue queue;
    int64_t id; /* of the device, for messages */
    ad_block_copy block;
    ad_cl_mem target; /* NULL: host memory */
    ad_cl_mem source; /* NULL: host memory */
} request;

static inline char *
host_address(const ad_span *span)
{
    return (char *)span->data + span->offset;
}

static ad_status
enqueue_run(const request *r, ad_error *err)
{
    const ad_span *target = &r->block.target;
    const ad_span *source = &r->block.source;
    if (r->source == NULL) {
        AD_CL_TRY(err, r->id, EnqueueWriteBuffer, r->queue, r->target, false,
                  target->offset, r->block.width, host_address(source), 0,
                  NULL, NULL);
    } else if (r->target == NULL) {
        AD_CL_TRY(err, r->id, EnqueueReadBuffer, r->queue, r->source, false,
                  source->offset, r->block.width, host_address(target), 0,
                  NULL, NULL);
    } else {
        AD_CL_TRY(err, r->id, EnqueueCopyBuffer, r->queue, r->source,
                  r->target, source->offset, target->offset, r->block.width, 0,
                  NULL, NULL);
    }
    return AD_OK;
}

static ad_status
enqueue_rows(const request *r, ad_error *err)
{
    static const size_t zero[3];
    const ad_block_copy *b = &r->block;
    const size_t region[] = {b->width, b->height, 1};
    const size_t to[] = {b->target.offset % b->target_pitch,
                         b->target.offset / b->target_pitch, 0};
    const size_t from[] = {b->source.offset % b->source_pitch,
                           b->source.offset / b->source_pitch, 0};
    if (r->source == NULL) {
        AD_CL_TRY(err, r->id, EnqueueWriteBufferRect, r->queue, r->target,
                  false, to, zero, region, b->target_pitch, 0, b->source_pitch,
                  0, host_address(&b->source), 0, NULL, NULL);
    } else if (r->target == NULL) {
        AD_CL_TRY(err, r->id, EnqueueReadBufferRect, r->queue, r->source,
                  false, from, zero, region, b->source_pitch, 0,
                  b->target_pitch, 0, host_address(&b->target), 0, NULL, NULL);
    } else {
        AD_CL_TRY(err, r->id, EnqueueCopyBufferRect, r->queue, r->source,
                  r->target, from, to, region, b->source_pitch, 0,
                  b->target_pitch, 0, 0, NULL, NULL);
    }
    return AD_OK;
}

static ad_status
fail_context(const ad_opencl_queue *queue, ad_error *err)
{
    return ad_fail_on(
        err, ad_opencl_as_context(queue->cl_context).device, "stream",
        "pass a queue of the cl_context that the memory is in, or none",
        "the queue is of another cl_context than the memory, and OpenCL "
        "takes the two only together");
}

static ad_status
copy_views(const ad_opencl_queue *queue, const view *target,
           const view *source, const ad_block_copy *copy, ad_error *err)
{
    request r = {.queue = queue->handle,
                 .id = queue->cl_context->id,
                 .block = *copy,
                 .target = target->memory,
                 .source = source->memory};
    if (target->handle != queue->cl_context->handle ||
        source->handle != queue->cl_context->handle) {
        return fail_context(queue, err);
    }
    AD_RETURN_IF_ERR(keep_order(queue, err));
    /* Rows without gaps between them are one row. */
    if (copy->target_pitch == copy->width &&
        copy->source_pitch == copy->width) {
        r.block.width *= r.block.height;
        r.block.height = 1;
    }
    return r.block.height == 1 ? enqueue_run(&r, err) : enqueue_rows(&r, err);
}

ad_status
ad_opencl_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
               ad_error *err)
{
    ad_opencl_queue queue;
    view target, source;
    size_t last = copy->height - 1;
    if (copy->width == 0 || copy->height == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_opencl_queue_of(stream, &queue, err));
    AD_RETURN_IF_ERR(open_view(&queue, &copy->target,
                               last * copy->target_pitch + copy->width,
                               &target, err));
    ad_status status =
        open_view(&queue, &copy->source,
                  last * copy->source_pitch + copy->width, &source, err);
    if (status == AD_OK) {
        status = copy_views(&queue, &target, &source, copy, err);
        close_view(&source);
    }
    close_view(&target);
    return status;
}

/* --- kernels ------------------------------------------------------------- */

static ad_status
fail_build(const struct ad_opencl_context *cl_context, ad_cl_program program,
           int32_t code, ad_error *err)
{
    char log[2048] = "";
    ad_status status =
        ad_opencl_fail(err, cl_context->id, "building the kernels", code);
    if (err == NULL) {
        return status;
    }
    err->status = AD_ERR_EXCHANGE;
    ad_error_reason(err, "kernel");
    (void)ad_cl.GetProgramBuildInfo(program, cl_context->device,
                                    AD_CL_PROGRAM_BUILD_LOG, sizeof(log) - 1,
                                    log, NULL);
    size_t n = 0;
    while (log[n] != '\0' && log[n] != '\n' && n < 200) {
        n++;
    }
    ad_error_hint(err,
                  "copy the data to the host (to(\"cpu\")) and do it there; "
                  "the compiler says: %.*s",
                  n > 0 ? (int)n : 7, n > 0 ? log : "nothing");
    return AD_ERR_EXCHANGE;
}

/* A thread that loses the race releases its own program. */
static ad_status
find_program(struct ad_opencl_context *cl_context, ad_cl_program *out,
             ad_error *err)
{
    const char *text = ad_kernels_opencl;
    int32_t code;
    *out = atomic_load(&cl_context->program);
    if (*out != NULL) {
        return AD_OK;
    }
    ad_cl_program program = ad_cl.CreateProgramWithSource(
        cl_context->handle, 1, &text, NULL, &code);
    if (program == NULL) {
        return ad_opencl_fail(err, cl_context->id, "clCreateProgramWithSource",
                              code);
    }
    code = ad_cl.BuildProgram(
        program, 1, &cl_context->device,
        cl_context->is_cpu ? AD_KERNELS_ON_PROCESSOR : "", NULL, NULL);
    if (code != AD_CL_SUCCESS) {
        ad_status status = fail_build(cl_context, program, code, err);
        (void)ad_cl.ReleaseProgram(program);
        return status;
    }
    if (atomic_compare_exchange_strong(&cl_context->program, out, program)) {
        *out = program;
    } else {
        (void)ad_cl.ReleaseProgram(program);
    }
    return AD_OK;
}

/* The memory arguments of a launch. */
typedef struct views {
    view source;
    view values;
    view target;
} views;

static int32_t
set_arguments(ad_cl_kernel kernel, const ad_launch *launch, const views *on)
{
    const int64_t source_offset = (int64_t)launch->source.offset;
    const int64_t values_offset = (int64_t)launch->values.offset;
    const int64_t target_offset = (int64_t)launch->target.offset;
    const struct {
        size_t size;
        const void *value;
    } arguments[] = {
        {sizeof(on->source.memory), &on->source.memory},
        {sizeof(source_offset), &source_offset},
        {sizeof(on->values.memory), &on->values.memory},
        {sizeof(values_offset), &values_offset},
        {sizeof(on->target.memory), &on->target.memory},
        {sizeof(target_offset), &target_offset},
        {sizeof(launch->bit_offset), &launch->bit_offset},
        {sizeof(launch->length), &launch->length},
    };
    const uint32_t n = sizeof(arguments) / sizeof(arguments[0]);
    int32_t code = AD_CL_SUCCESS;
    for (uint32_t i = 0; i < n && code == AD_CL_SUCCESS; i++) {
        code = ad_cl.SetKernelArg(kernel, i, arguments[i].size,
                                  arguments[i].value);
    }
    for (uint32_t i = 0; i < AD_N_NUMBERS && code == AD_CL_SUCCESS; i++) {
        code = ad_cl.SetKernelArg(kernel, n + i, sizeof(launch->numbers[i]),
                                  &launch->numbers[i]);
    }
    return code;
}

/* A cl_kernel holds its arguments, so each launch creates its own. */
static ad_status
run_kernel(const ad_opencl_queue *queue, const ad_launch *launch,
           const views *on, ad_error *err)
{
    static const size_t one = 1;
    ad_cl_program program;
    int32_t code;
    int64_t id = queue->cl_context->id;
    if (on->target.handle != queue->cl_context->handle ||
        on->values.handle != queue->cl_context->handle ||
        on->source.handle != queue->cl_context->handle) {
        return fail_context(queue, err);
    }
    AD_RETURN_IF_ERR(find_program(queue->cl_context, &program, err));
    AD_RETURN_IF_ERR(keep_order(queue, err));
    ad_cl_kernel kernel =
        ad_cl.CreateKernel(program, ad_kernel_name(launch->kernel), &code);
    if (kernel == NULL) {
        return ad_opencl_fail(err, id, "clCreateKernel", code);
    }
    const char *call = "clSetKernelArg";
    code = set_arguments(kernel, launch, on);
    if (code == AD_CL_SUCCESS) {
        bool is_cpu = queue->cl_context->is_cpu;
        const size_t n_items = (size_t)launch->n_items;
        call = "clEnqueueNDRangeKernel";
        code = ad_cl.EnqueueNDRangeKernel(queue->handle, kernel, 1, NULL,
                                          &n_items, is_cpu ? &one : NULL, 0,
                                          NULL, NULL);
    }
    (void)ad_cl.ReleaseKernel(kernel);
    AD_CL_RETURN_IF_ERR(err, id, call, code);
    return AD_OK;
}

ad_status
ad_opencl_launch(ad_context context, ad_stream stream, const ad_launch *launch,
                 ad_error *err)
{
    ad_opencl_queue queue;
    views on = {0};
    AD_RETURN_IF_ERR(ad_opencl_queue_of(stream, &queue, err));
    ad_status status =
        open_view(&queue, &launch->target, ad_launch_target_size(launch),
                  &on.target, err);
    if (status == AD_OK) {
        status = open_view(&queue, &launch->source,
                           ad_launch_source_size(launch), &on.source, err);
    }
    if (status == AD_OK) {
        status = open_view(&queue, &launch->values,
                           ad_launch_values_size(launch), &on.values, err);
    }
    if (status == AD_OK) {
        status = run_kernel(&queue, launch, &on, err);
    }
    close_view(&on.values);
    close_view(&on.source);
    close_view(&on.target);
    return status;
}
