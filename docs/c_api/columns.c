/* An extension in C: total() takes a column of any library, squares() makes
 * one. */
#include "arrowdev.h"

#include <stdlib.h>
#include <string.h>

static PyObject *
total(PyObject *module, PyObject *obj)
{
    /* On the host, whatever device the column is on. */
    const ArrowDevOptions options = {.size = sizeof(options),
                                     .device_type = ARROW_DEVICE_CPU};
    struct ArrowSchema schema;
    struct ArrowDeviceArray data;
    long long sum = 0;
    (void)module;
    if (ArrowDev_ExportDeviceArray(obj, &options, &schema, &data) < 0) {
        return NULL;
    }
    const struct ArrowArray *array = &data.array;
    int is_int64 = strcmp(schema.format, "l") == 0;
    if (is_int64 && array->length > 0) {
        const uint8_t *validity = array->buffers[0];
        const int64_t *values = array->buffers[1];
        for (int64_t i = array->offset; i < array->offset + array->length;
             i++) {
            if (validity == NULL || (validity[i / 8] >> (i % 8) & 1)) {
                sum += values[i];
            }
        }
    }
    schema.release(&schema);
    data.array.release(&data.array);
    if (!is_int64) {
        PyErr_SetString(PyExc_TypeError, "expected a column of int64");
        return NULL;
    }
    return PyLong_FromLongLong(sum);
}

/* The memory of a column of squares: the list of buffers, then the values. */
typedef struct squares_memory {
    const void *buffers[2];
    int64_t values[];
} squares_memory;

static void
release_array(struct ArrowArray *array)
{
    free(array->private_data);
    array->release = NULL;
}

static void
release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static PyObject *
squares(PyObject *module, PyObject *count)
{
    Py_ssize_t n = PyLong_AsSsize_t(count);
    (void)module;
    if (n < 0 || n > 1 << 20) {
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_ValueError,
                                               "expected 0 to %d", 1 << 20);
    }
    squares_memory *memory =
        malloc(sizeof(*memory) + (size_t)n * sizeof(int64_t));
    if (memory == NULL) {
        return PyErr_NoMemory();
    }
    memory->buffers[0] = NULL; /* no nulls */
    memory->buffers[1] = memory->values;
    for (Py_ssize_t i = 0; i < n; i++) {
        memory->values[i] = i * i;
    }
    struct ArrowSchema schema = {.format = "l",
                                 .name = "square",
                                 .flags = ARROW_FLAG_NULLABLE,
                                 .release = release_schema};
    struct ArrowDeviceArray data = {.array = {.length = n,
                                              .n_buffers = 2,
                                              .buffers = memory->buffers,
                                              .release = release_array,
                                              .private_data = memory},
                                    .device_id = -1,
                                    .device_type = ARROW_DEVICE_CPU};
    return ArrowDev_ImportDeviceArray(&schema, &data); /* takes both over */
}

static PyMethodDef methods[] = {
    {"total", total, METH_O, "The sum of a column of int64."},
    {"squares", squares, METH_O, "A column of the first n squares."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "columns",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit_columns(void)
{
    if (ArrowDev_Import() < 0) {
        return NULL;
    }
    return PyModule_Create(&definition);
}
