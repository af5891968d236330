/* A producer as the example "Exporting a simple int32 device array" of the
 * specification writes it: with the calls of the CUDA runtime, of which there
 * is a small one here, over the driver that the process has loaded. */
#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "abi/arrow_c.h"

/* --- the CUDA runtime ----------------------------------------------------- */

typedef void *cuda_event;
typedef void *cuda_stream;

static void *
driver(const char *name)
{
    static void *library;
    if (library == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW);
    }
    void *function = library != NULL ? dlsym(library, name) : NULL;
    assert(function != NULL);
    return function;
}

static int
cuda_malloc(void **out, size_t size)
{
    int (*call)(void **, size_t);
    *(void **)&call = driver("cuMemAlloc_v2");
    return call(out, size);
}

static int
cuda_free(const void *memory)
{
    int (*call)(const void *);
    *(void **)&call = driver("cuMemFree_v2");
    return call(memory);
}

static int
cuda_get_device(int *out)
{
    int (*call)(int *);
    *(void **)&call = driver("cuCtxGetDevice");
    return call(out);
}

static int
cuda_event_create(cuda_event *out)
{
    int (*call)(cuda_event *, unsigned int);
    *(void **)&call = driver("cuEventCreate");
    return call(out, 0);
}

static int
cuda_event_record(cuda_event event, cuda_stream stream)
{
    int (*call)(cuda_event, cuda_stream);
    *(void **)&call = driver("cuEventRecord");
    return call(event, stream);
}

static int
cuda_event_destroy(cuda_event event)
{
    int (*call)(cuda_event);
    *(void **)&call = driver("cuEventDestroy_v2");
    return call(event);
}

/* --- the producer --------------------------------------------------------- */

static int n_released;

int releases(void);
void *allocate(int64_t nbytes);
void export_int32(void *memory, cuda_stream stream, int64_t length,
                  struct ArrowDeviceArray *out);

int
releases(void)
{
    return n_released;
}

void *
allocate(int64_t nbytes)
{
    void *memory = NULL;
    return cuda_malloc(&memory, (size_t)nbytes) == 0 ? memory : NULL;
}

/* The event, then the memory, then the list of buffers. */
static void
release_int32(struct ArrowArray *array)
{
    cuda_event *event = array->private_data;
    int status = cuda_event_destroy(*event);
    assert(status == 0);
    status = cuda_free(array->buffers[1]);
    assert(status == 0);
    (void)status;
    free(event);
    free((void *)array->buffers);
    array->release = NULL;
    n_released++;
}

/* The producer's work is on `stream`. The consumer gets a pointer to the event,
 * which the release destroys. */
void
export_int32(void *memory, cuda_stream stream, int64_t length,
             struct ArrowDeviceArray *out)
{
    int device = -1;
    cuda_event *event = malloc(sizeof(*event));
    const void **buffers = calloc(2, sizeof(*buffers));
    assert(event != NULL && buffers != NULL);
    int status = cuda_get_device(&device);
    assert(status == 0);
    status = cuda_event_create(event);
    assert(status == 0);
    status = cuda_event_record(*event, stream);
    assert(status == 0);
    (void)status;
    buffers[1] = memory;
    *out = (struct ArrowDeviceArray){
        .array =
            {
                .length = length,
                .n_buffers = 2,
                .buffers = buffers,
                .release = release_int32,
                .private_data = event,
            },
        .device_id = device,
        .device_type = ARROW_DEVICE_CUDA,
        .sync_event = event,
    };
}
