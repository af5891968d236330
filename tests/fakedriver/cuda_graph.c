/* libcuda: modules, kernels, capture, graphs. */
#include "cuda_face.h"

/* --- kernels --------------------------------------------------------------------------- */

int
cuModuleLoadData(fd_module **out, const void *image)
{
    FD_ENTER(0);
    return fd_module_load(image, out);
}

int
cuModuleLoadDataEx(fd_module **out, const void *image, unsigned n,
                   int *options, void **values)
{
    FD_ENTER(0);
    return fd_module_load(image, out);
}

int
cuModuleUnload(fd_module *module)
{
    FD_ENTER(0);
    return fd_module_unload(module);
}

int
cuModuleGetFunction(fd_function **out, fd_module *module, const char *name)
{
    FD_ENTER(0);
    return fd_module_function(module, name, out);
}

int
cuModuleGetLoadingMode(int *out)
{
    FD_ENTER(0);
    *out = 1; /* eager */
    return FD_OK;
}

int
cuLaunchKernel(fd_function *function, unsigned grid_x, unsigned grid_y,
               unsigned grid_z, unsigned block_x, unsigned block_y,
               unsigned block_z, unsigned shared, uintptr_t stream,
               void **arguments, void **extra)
{
    FD_ENTER(stream);
    bool is_flat = grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1;
    if (!is_flat || extra != NULL || block_x > 1024) {
        return FD_INVALID_VALUE;
    }
    return fd_launch(__func__, function, (int64_t)grid_x * block_x, arguments,
                     stream);
}

/* --- capture ----------------------------------------------------------------------------- */

int
cuStreamIsCapturing(uintptr_t stream, int *out)
{
    uint64_t id;
    fd_graph *graph;
    FD_ENTER(stream);
    return fd_capture_info(stream, out, &id, &graph);
}

int
cuStreamBeginCapture_v2(uintptr_t stream, int mode)
{
    FD_ENTER(stream);
    return fd_capture_begin(stream, mode);
}

int
cuStreamEndCapture(uintptr_t stream, fd_graph **out)
{
    FD_ENTER(stream);
    return fd_capture_end(stream, out);
}

static int
capture_info(uintptr_t stream, int *status, uint64_t *id, fd_graph **graph)
{
    uint64_t ignored_id;
    fd_graph *ignored_graph;
    return fd_capture_info(stream, status, id != NULL ? id : &ignored_id,
                           graph != NULL ? graph : &ignored_graph);
}

/* Graphs have no separate nodes: queries for them return none. */
int
cuStreamGetCaptureInfo_v2(uintptr_t stream, int *status, uint64_t *id,
                          fd_graph **graph, const void ***dependencies,
                          size_t *n)
{
    FD_ENTER(stream);
    return dependencies != NULL || n != NULL
               ? FD_NOT_SUPPORTED
               : capture_info(stream, status, id, graph);
}

int
cuStreamGetCaptureInfo_v3(uintptr_t stream, int *status, uint64_t *id,
                          fd_graph **graph, const void ***dependencies,
                          const void **edges, size_t *n)
{
    FD_ENTER(stream);
    return dependencies != NULL || edges != NULL || n != NULL
               ? FD_NOT_SUPPORTED
               : capture_info(stream, status, id, graph);
}

int
cuThreadExchangeStreamCaptureMode(int *mode)
{
    FD_ENTER(0);
    return fd_capture_exchange_mode(mode);
}

/* --- graphs ------------------------------------------------------------------------------- */

int
cuGraphCreate(fd_graph **out, unsigned flags)
{
    FD_ENTER(0);
    return fd_graph_create(out);
}

int
cuGraphDestroy(fd_graph *graph)
{
    FD_ENTER(0);
    return fd_graph_destroy(graph);
}

int
cuGraphInstantiateWithFlags(fd_graph **out, fd_graph *graph,
                            unsigned long long flags)
{
    FD_ENTER(0);
    return fd_graph_instantiate(graph, out);
}

int
cuGraphInstantiateWithParams(fd_graph **out, fd_graph *graph,
                             cu_instantiate *options)
{
    FD_ENTER(0);
    options->result = 0;
    options->error_node = NULL;
    return fd_graph_instantiate(graph, out);
}

int
cuGraphLaunch(fd_graph *graph, uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_graph_launch(graph, stream);
}

int
cuGraphUpload(fd_graph *graph, uintptr_t stream)
{
    size_t n;
    FD_ENTER(stream);
    return fd_graph_count(graph, &n);
}

int
cuGraphExecDestroy(fd_graph *graph)
{
    FD_ENTER(0);
    return fd_graph_destroy(graph);
}

int
cuGraphGetNodes(fd_graph *graph, void **nodes, size_t *n)
{
    FD_ENTER(0);
    return nodes != NULL ? FD_NOT_SUPPORTED : fd_graph_count(graph, n);
}
