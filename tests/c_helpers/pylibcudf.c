/* An array whose release drops a Python reference, and that does not ask for
 * the GIL: those of pylibcudf do so (PylibcudfArrowDeviceArrayRelease in
 * pylibcudf/libcudf/interop.pxd of RAPIDS 26.08). Without the GIL this one
 * counts, where the other would crash, and keeps the reference. Loaded with
 * ctypes.PyDLL. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdlib.h>

#include "abi/arrow_c.h"

typedef struct column {
    const void *buffers[2];
    PyObject *owner;
} column;

static atomic_int n_released;
static atomic_int n_without_gil;

static void
release_array(struct ArrowArray *self)
{
    column *column = self->private_data;
    if (PyGILState_Check()) {
        Py_DECREF(column->owner);
    } else {
        atomic_fetch_add(&n_without_gil, 1);
    }
    atomic_fetch_add(&n_released, 1);
    self->release = NULL;
    free(column);
}

static void
release_schema(struct ArrowSchema *self)
{
    self->release = NULL;
}

/* An int64 column in the memory of `owner`. */
void
helper_column(struct ArrowSchema *schema, struct ArrowArray *array,
              PyObject *owner, const void *bits, const void *data,
              int64_t length, int64_t null_count)
{
    column *column = malloc(sizeof(*column));
    column->buffers[0] = bits;
    column->buffers[1] = data;
    column->owner = Py_NewRef(owner);
    *schema = (struct ArrowSchema){
        .format = "l",
        .name = "",
        .flags = ARROW_FLAG_NULLABLE,
        .release = release_schema,
    };
    *array = (struct ArrowArray){
        .length = length,
        .null_count = null_count,
        .n_buffers = 2,
        .buffers = column->buffers,
        .release = release_array,
        .private_data = column,
    };
}

int
helper_released(void)
{
    return n_released;
}

int
helper_released_without_gil(void)
{
    return n_without_gil;
}
