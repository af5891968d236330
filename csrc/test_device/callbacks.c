/* Callbacks of the structs that arrowdev.testing passes to a consumer under
 * test. They are in C because a consumer may release a struct while an
 * exception is set, when no Python code can run.
 */
#include <string.h>

#include "abi/arrow_c.h"
#include "abi/dlpack.h"
#include "support/py_call.h"
#include "test_device/module.h"

/* --- releases that count their calls ------------------------------------- */

/* The `private_data` or `manager_ctx` of a struct.
 * arrowdev/testing/_spoiling.py declares the same struct in ctypes. */
typedef struct record {
    int64_t released;
    void *data; /* overwritten by the release, or NULL */
    int64_t nbytes;
} record;

static void
note_release(record *self)
{
    __atomic_fetch_add(&self->released, 1, __ATOMIC_RELAXED);
    if (self->data != NULL) {
        memset(self->data, 0xcd, (size_t)self->nbytes);
    }
}

static void *
content(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
}

/* The release of a struct, and the destructor of its capsule. */
#define ARROW(type)                                                           \
    static void type##_note(struct type *self)                                \
    {                                                                         \
        for (int64_t i = 0; i < self->n_children; i++) {                      \
            if (self->children[i]->release != NULL) {                         \
                self->children[i]->release(self->children[i]);                \
            }                                                                 \
        }                                                                     \
        note_release(self->private_data);                                     \
        self->release = NULL;                                                 \
    }                                                                         \
    static void type##_destroy(PyObject *capsule)                             \
    {                                                                         \
        struct type *self = content(capsule);                                 \
        if (self->release != NULL) {                                          \
            self->release(self);                                              \
        }                                                                     \
    }

ARROW(ArrowSchema)
ARROW(ArrowArray) /* also for a device array, whose first member it is */

/* The same. A capsule that was renamed is consumed. */
#define DLPACK(type, capsule_name)                                            \
    static void type##_note(type *self)                                       \
    {                                                                         \
        note_release(self->manager_ctx);                                      \
    }                                                                         \
    static void type##_destroy(PyObject *capsule)                             \
    {                                                                         \
        if (strcmp(PyCapsule_GetName(capsule), capsule_name) == 0) {          \
            type *self = content(capsule);                                    \
            self->deleter(self);                                              \
        }                                                                     \
    }

DLPACK(ad_dl_managed, "dltensor")
DLPACK(ad_dl_managed_versioned, "dltensor_versioned")

/* --- guards of callbacks in Python --------------------------------------- */

/* A ctypes callback of a scripted stream loses an exception that is set
 * (pyarrow releases arrays while one is), and must not be called after the
 * interpreter has ended. So these functions call it.
 *
 * `private_data` of every such struct is a cell. It is never freed, so that a
 * late call is detected and does not crash. arrowdev/testing/_recording.py
 * declares the same struct in ctypes. */
typedef struct cell {
    void *callbacks[2]; /* in the order of the struct's members */
    int64_t number;
} cell;

#define RELEASE(type)                                                         \
    static void type##_release(struct type *self)                             \
    {                                                                         \
        cell *where = self->private_data;                                     \
        ad_py_entry entry;                                                    \
        if (ad_py_enter(ad_interpreter_main(), &entry)) {                     \
            ((void (*)(struct type *))where->callbacks[0])(self);             \
            ad_py_leave(&entry);                                              \
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
    ad_py_entry entry;
    if (ad_py_enter(ad_interpreter_main(), &entry)) {
        ((void (*)(struct ArrowAsyncProducer *, int64_t))where->callbacks[0])(
            self, n);
        ad_py_leave(&entry);
    }
}

static void
producer_cancel(struct ArrowAsyncProducer *self)
{
    cell *where = self->private_data;
    ad_py_entry entry;
    if (ad_py_enter(ad_interpreter_main(), &entry)) {
        ((void (*)(struct ArrowAsyncProducer *))where->callbacks[1])(self);
        ad_py_leave(&entry);
    }
}

static int
task_extract_data(struct ArrowAsyncTask *self, struct ArrowDeviceArray *out)
{
    cell *where = self->private_data;
    int result = EINVAL;
    ad_py_entry entry;
    if (ad_py_enter(ad_interpreter_main(), &entry)) {
        result = ((int (*)(struct ArrowAsyncTask *, struct ArrowDeviceArray *))
                      where->callbacks[0])(self, out);
        ad_py_leave(&entry);
    }
    return result;
}

/* --- addresses ----------------------------------------------------------- */

static const struct {
    const char *name;
    void (*function)(void);
} callbacks[] = {
#define X(name, function)                                                     \
    {                                                                         \
        name, (void (*)(void))(function)                                      \
    }
    X("schema.release", ArrowSchema_note),
    X("schema.destroy", ArrowSchema_destroy),
    X("array.release", ArrowArray_note),
    X("array.destroy", ArrowArray_destroy),
    X("legacy.release", ad_dl_managed_note),
    X("legacy.destroy", ad_dl_managed_destroy),
    X("versioned.release", ad_dl_managed_versioned_note),
    X("versioned.destroy", ad_dl_managed_versioned_destroy),
    X("ArrowSchema.release", ArrowSchema_release),
    X("ArrowArray.release", ArrowArray_release),
    X("ArrowArrayStream.release", ArrowArrayStream_release),
    X("ArrowDeviceArrayStream.release", ArrowDeviceArrayStream_release),
    X("ArrowAsyncDeviceStreamHandler.release",
      ArrowAsyncDeviceStreamHandler_release),
    X("ArrowAsyncProducer.request", producer_request),
    X("ArrowAsyncProducer.cancel", producer_cancel),
    X("ArrowAsyncTask.extract_data", task_extract_data),
#undef X
};

/* callbacks(): the addresses, by name. */
PyObject *
ad_testing_callbacks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *table = PyDict_New();
    for (size_t i = 0; table != NULL && i < Py_ARRAY_LENGTH(callbacks); i++) {
        PyObject *address = PyLong_FromUnsignedLongLong(
            (unsigned long long)(uintptr_t)callbacks[i].function);
        if (address == NULL ||
            PyDict_SetItemString(table, callbacks[i].name, address) < 0) {
            Py_CLEAR(table);
        }
        Py_XDECREF(address);
    }
    return table;
}
