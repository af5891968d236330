/* The CUDA face: the driver API's types, written from facts (no CUDA header is
 * used), and the declarations of its functions.
 *
 * Streams and events are numbers of the engine, device addresses are plain
 * addresses: on the driver's platforms all have the size of a pointer.
 */
#ifndef FD_CUDA_FACE_H
#define FD_CUDA_FACE_H

#include "driver.h"
#include "ipc.h"

typedef struct cu_location {
    int type; /* 1: device */
    int id;
} cu_location;

enum {
    CU_HOST = 1, /* memory types */
    CU_DEVICE = 2,
    CU_UNIFIED = 4
};

typedef struct cu_copy_2d {
    size_t source_x;
    size_t source_y;
    int source_type;
    const void *source_host;
    uintptr_t source_device;
    void *source_array;
    size_t source_pitch;
    size_t target_x;
    size_t target_y;
    int target_type;
    void *target_host;
    uintptr_t target_device;
    void *target_array;
    size_t target_pitch;
    size_t width;
    size_t height;
} cu_copy_2d;

typedef struct cu_instantiate {
    uint64_t flags;
    uintptr_t upload;
    void *error_node;
    int result;
} cu_instantiate;

#define FD_PLAIN(name, version, symbol, parameters)                           \
    FD_EXPORT int symbol parameters;
#define FD_TWIN(name, version, symbol, suffix, parameters, arguments)         \
    FD_EXPORT int symbol parameters;                                          \
    FD_EXPORT int symbol##suffix parameters;
#define FD_OLD(name, version)
#include "cuda_functions.def"
#undef FD_PLAIN
#undef FD_TWIN
#undef FD_OLD

#endif /* FD_CUDA_FACE_H */
