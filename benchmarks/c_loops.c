/* What an extension in C pays for arrowdev.h: columns of a producer that costs
 * next to nothing are imported as an Array, and exported again. */
#include "arrowdev.h"

static int64_t values[1024];
static const void *buffers[2] = {NULL, values};

static void
release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void
release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static void
produce_column(struct ArrowSchema *schema, struct ArrowDeviceArray *array)
{
    *schema = (struct ArrowSchema){.format = "l",
                                   .name = "x",
                                   .flags = ARROW_FLAG_NULLABLE,
                                   .release = release_schema};
    *array = (struct ArrowDeviceArray){.array = {.length = 1024,
                                                 .n_buffers = 2,
                                                 .buffers = buffers,
                                                 .release = release_array},
                                       .device_id = -1,
                                       .device_type = ARROW_DEVICE_CPU};
}

static void
consume_column(struct ArrowSchema *schema, struct ArrowDeviceArray *array)
{
    schema->release(schema);
    array->array.release(&array->array);
}

/* produce(n): the producer and the consumer alone, n times. */
static PyObject *
produce(PyObject *module, PyObject *count)
{
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    (void)module;
    for (long n = PyLong_AsLong(count); n > 0; n--) {
        produce_column(&schema, &array);
        consume_column(&schema, &array);
    }
    Py_RETURN_NONE;
}

/* pass_on(n): with arrowdev between them. */
static PyObject *
pass_on(PyObject *module, PyObject *count)
{
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    (void)module;
    for (long n = PyLong_AsLong(count); n > 0; n--) {
        produce_column(&schema, &array);
        PyObject *column = ArrowDev_ImportDeviceArray(&schema, &array);
        if (column == NULL) {
            return NULL;
        }
        int result = ArrowDev_ExportDeviceArray(column, NULL, &schema, &array);
        Py_DECREF(column);
        if (result < 0) {
            return NULL;
        }
        consume_column(&schema, &array);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"produce", produce, METH_O, NULL},
    {"pass_on", pass_on, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "c_loops",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit_c_loops(void)
{
    return ArrowDev_Import() == 0 ? PyModule_Create(&definition) : NULL;
}
