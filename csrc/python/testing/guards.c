/* C functions that guard the Python callbacks of arrowdev.testing's scripted
 * streams. A ctypes callback loses an exception that is set (pyarrow releases
 * arrays while one is), and must not be called after the interpreter has ended.
 *
 * `private_data` of every such struct is a cell. It is never freed, so that a
 * late call is detected and does not crash.
 */
#include "abi/arrow_c.h"
#include "support/py_call.h"
#include "python/testing/testing.h"

/* arrowdev/testing/_recording.py declares the same struct in ctypes. */
typedef struct cell {
    void *callbacks[2]; /* in the order of the struct's members */
    int64_t number;
} cell;

typedef struct span {
    PyGILState_STATE gil;
    PyObject *exception;
} span;

static bool
begin(span *self)
{
    if (!ad_py_enter(&self->gil)) {
        return false;
    }
    self->exception = ad_py_save_exception();
    return true;
}

static void
end(span *self)
{
    ad_py_reset_exception(self->exception);
    PyGILState_Release(self->gil);
}

#define RELEASE(type)                                                         \
    static void type##_release(struct type *self)                             \
    {                                                                         \
        cell *where = self->private_data;                                     \
        span now;                                                             \
        if (begin(&now)) {                                                    \
            ((void (*)(struct type *))where->callbacks[0])(self);             \
            end(&now);                                                        \
        } else {                                                              \
            self->release = NULL;                                             \
        }                                                                     \
    }

RELEASE(ArrowSchema)
RELEASE(ArrowArray)
RELEASE(ArrowArrayStream)
RELEASE(ArrowDeviceArrayStream)
RELEASE(ArrowAsyncDeviceStreamHandler)

static void
producer_request(struct ArrowAsyncProducer *self, int64_t n)
{
    cell *where = self->private_data;
    span now;
    if (begin(&now)) {
        ((void (*)(struct ArrowAsyncProducer *, int64_t))where->callbacks[0])(
            self, n);
        end(&now);
    }
}

static void
producer_cancel(struct ArrowAsyncProducer *self)
{
    cell *where = self->private_data;
    span now;
    if (begin(&now)) {
        ((void (*)(struct ArrowAsyncProducer *))where->callbacks[1])(self);
        end(&now);
    }
}

static int
task_extract_data(struct ArrowAsyncTask *self, struct ArrowDeviceArray *out)
{
    cell *where = self->private_data;
    int result = EINVAL;
    span now;
    if (begin(&now)) {
        result = ((int (*)(struct ArrowAsyncTask *, struct ArrowDeviceArray *))
                      where->callbacks[0])(self, out);
        end(&now);
    }
    return result;
}

static const struct {
    const char *name;
    void (*function)(void);
} guards[] = {
    {"ArrowSchema.release", (void (*)(void))ArrowSchema_release},
    {"ArrowArray.release", (void (*)(void))ArrowArray_release},
    {"ArrowArrayStream.release", (void (*)(void))ArrowArrayStream_release},
    {"ArrowDeviceArrayStream.release",
     (void (*)(void))ArrowDeviceArrayStream_release},
    {"ArrowAsyncDeviceStreamHandler.release",
     (void (*)(void))ArrowAsyncDeviceStreamHandler_release},
    {"ArrowAsyncProducer.request", (void (*)(void))producer_request},
    {"ArrowAsyncProducer.cancel", (void (*)(void))producer_cancel},
    {"ArrowAsyncTask.extract_data", (void (*)(void))task_extract_data},
};

/* _testing_guards(): the addresses of the guards, by struct and member. */
PyObject *
ad_testing_guards(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *table = PyDict_New();
    for (size_t i = 0; table != NULL && i < Py_ARRAY_LENGTH(guards); i++) {
        PyObject *address = PyLong_FromUnsignedLongLong(
            (unsigned long long)(uintptr_t)guards[i].function);
        if (address == NULL ||
            PyDict_SetItemString(table, guards[i].name, address) < 0) {
            Py_CLEAR(table);
        }
        Py_XDECREF(address);
    }
    return table;
}
