/* Modules and kernels: arrowdev's own, run by its host code. A module is
 * recognized by its text, not by its address. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fd_function {
    fd_module *module;
    ad_kernel kernel;
    bool is_there;
};

struct fd_module {
    fd_module *next;
    fd_context *context;
    fd_function functions[AD_N_KERNELS];
};

static fd_module *modules;

static bool
has_entry(const char *text, const char *name)
{
    char wanted[128];
    snprintf(wanted, sizeof(wanted), ".entry %s(", name);
    return strstr(text, wanted) != NULL;
}

int
fd_module_load(const char *image, fd_module **out)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code != FD_OK) {
        return code;
    }
    if (image == NULL || strncmp(image, ".version ", 9) != 0) {
        return FD_NO_BINARY;
    }
    code = fd_capture_allows();
    if (code != FD_OK) {
        return code;
    }
    fd_module *module = calloc(1, sizeof(*module));
    if (module == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    bool is_known = false;
    for (int i = 0; i < AD_N_KERNELS; i++) {
        bool is_there = has_entry(image, ad_kernel_name((ad_kernel)i));
        module->functions[i] = (fd_function){module, (ad_kernel)i, is_there};
        is_known = is_known || is_there;
    }
    if (!is_known) {
        free(module);
        return FD_NO_BINARY;
    }
    module->context = context;
    fd_lock();
    module->next = modules;
    modules = module;
    fd_unlock();
    *out = module;
    return FD_OK;
}

static bool
is_module_locked(const fd_module *module)
{
    const fd_module *m = modules;
    while (m != NULL && m != module) {
        m = m->next;
    }
    return m != NULL;
}

int
fd_module_unload(fd_module *module)
{
    fd_lock();
    int code = is_module_locked(module) ? fd_capture_allows_locked()
                                        : FD_INVALID_HANDLE;
    if (code == FD_OK) {
        fd_module **link = &modules;
        while (*link != module) {
            link = &(*link)->next;
        }
        *link = module->next;
        free(module);
    }
    fd_unlock();
    return code;
}

int
fd_module_function(fd_module *module, const char *name, fd_function **out)
{
    int code = FD_NOT_FOUND;
    fd_lock();
    if (!is_module_locked(module)) {
        code = FD_INVALID_HANDLE;
    }
    for (int i = 0; i < AD_N_KERNELS && code == FD_NOT_FOUND; i++) {
        if (module->functions[i].is_there &&
            strcmp(name, ad_kernel_name((ad_kernel)i)) == 0) {
            *out = &module->functions[i];
            code = FD_OK;
        }
    }
    fd_unlock();
    return code;
}

static int
run_launch(fd_operation *o)
{
    ad_launch launch = o->u.launch;
    launch.source.data = ad_engine_inside(launch.source.data);
    launch.values.data = ad_engine_inside(launch.values.data);
    launch.target.data = ad_engine_inside(launch.target.data);
    ad_kernel_run_on_host(&launch);
    return AD_ENGINE_OK;
}

/* The parameters of every kernel, as kernels.h lists them. */
static ad_launch
unpack_arguments(ad_kernel kernel, int64_t n_items, void **arguments)
{
    ad_launch launch = {.kernel = kernel, .n_items = n_items};
    ad_span *const spans[] = {&launch.source, &launch.values, &launch.target};
    for (int i = 0; i < 3; i++) {
        memcpy(&spans[i]->data, arguments[2 * i], 8);
        memcpy(&spans[i]->offset, arguments[2 * i + 1], 8);
    }
    memcpy(&launch.bit_offset, arguments[6], 8);
    memcpy(&launch.length, arguments[7], 8);
    for (int i = 0; i < AD_N_NUMBERS; i++) {
        memcpy(&launch.numbers[i], arguments[8 + i], 8);
    }
    return launch;
}

static int
check_function(const fd_function *function, uintptr_t handle)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    if (!is_module_locked(function->module) ||
        function->module->context != stream->context) {
        code = FD_INVALID_HANDLE;
    }
    fd_unlock();
    return code;
}

/* A device reads and writes memory of the host with HMM or ATS only. */
static void
check_access(const char *name, const char *start, size_t nbytes)
{
    fd_lock();
    bool is_known = fd_allocation_find_locked(start) != NULL;
    fd_unlock();
    if (nbytes > 0 && !is_known && !fd_accesses_pageable()) {
        fd_violation("%s of memory at %p, which the device cannot access",
                     name, start);
    }
}

int
fd_launch(const char *name, fd_function *function, int64_t n_items,
          void **arguments, uintptr_t stream)
{
    if (function == NULL || arguments == NULL || n_items <= 0) {
        return FD_INVALID_VALUE;
    }
    int code = check_function(function, stream);
    if (code != FD_OK) {
        return code;
    }
    ad_launch launch = unpack_arguments(function->kernel, n_items, arguments);
    char *source = (char *)launch.source.data + launch.source.offset;
    char *values = (char *)launch.values.data + launch.values.offset;
    char *target = (char *)launch.target.data + launch.target.offset;
    check_access(name, source, ad_launch_source_size(&launch));
    check_access(name, target, ad_launch_target_size(&launch));
    const fd_operation o = {
        .name = name,
        .run = run_launch,
        .ranges = {{target, ad_launch_target_size(&launch), true},
                   {source, ad_launch_source_size(&launch), false},
                   {values, ad_launch_values_size(&launch), false}},
        .u.launch = launch,
    };
    return fd_submit(stream, &o);
}
