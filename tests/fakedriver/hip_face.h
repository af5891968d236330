/* The HIP face: shared declarations. Handles are as in the CUDA face. */
#ifndef FD_HIP_FACE_H
#define FD_HIP_FACE_H

#include "driver.h"

/* Save an error for hipGetLastError(). */
int fd_hip_result(int code);

/* Enter, or return with the error; CODE is the body of the function. */
#define HIP_CALL(stream, CODE)                                                \
    do {                                                                      \
        int code = fd_enter(__func__, (uintptr_t)(stream));                   \
        return fd_hip_result(code != FD_OK ? code : (CODE));                  \
    } while (0)

typedef struct hip_pointer {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
    int is_managed;
    unsigned flags;
} hip_pointer;

#endif /* FD_HIP_FACE_H */
