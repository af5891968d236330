/* Release callbacks that count their calls, for the structs that
 * arrowdev.testing passes to a consumer under test.
 *
 * They are in C because a consumer may release a struct while an exception is
 * set, when no Python code can run.
 */
#include <string.h>

#include "abi/arrow_c.h"
#include "abi/dlpack.h"
#include "python/testing/testing.h"

/* The `private_data` or `manager_ctx` of a struct. arrowdev/testing/_spoiling.py
 * declares the same struct in ctypes. */
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

static void
release_schema(struct ArrowSchema *self)
{
    for (int64_t i = 0; i < self->n_children; i++) {
        if (self->children[i]->release != NULL) {
            self->children[i]->release(self->children[i]);
        }
    }
    note_release(self->private_data);
    self->release = NULL;
}

static void
release_array(struct ArrowArray *self)
{
    for (int64_t i = 0; i < self->n_children; i++) {
        if (self->children[i]->release != NULL) {
            self->children[i]->release(self->children[i]);
        }
    }
    note_release(self->private_data);
    self->release = NULL;
}

static void
delete_legacy(ad_dl_managed *self)
{
    note_release(self->manager_ctx);
}

static void
delete_versioned(ad_dl_managed_versioned *self)
{
    note_release(self->manager_ctx);
}

/* --- destructors of capsules; the name may be wrong on purpose ---------------- */

static void *
content(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
}

static void
destroy_schema(PyObject *capsule)
{
    struct ArrowSchema *self = content(capsule);
    if (self->release != NULL) {
        self->release(self);
    }
}

/* Also for a device array, whose first member is its array. */
static void
destroy_array(PyObject *capsule)
{
    struct ArrowArray *self = content(capsule);
    if (self->release != NULL) {
        self->release(self);
    }
}

static void
destroy_legacy(PyObject *capsule)
{
    if (strcmp(PyCapsule_GetName(capsule), "dltensor") == 0) {
        ad_dl_managed *self = content(capsule);
        self->deleter(self);
    }
}

static void
destroy_versioned(PyObject *capsule)
{
    if (strcmp(PyCapsule_GetName(capsule), "dltensor_versioned") == 0) {
        ad_dl_managed_versioned *self = content(capsule);
        self->deleter(self);
    }
}

/* --- addresses ------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*release)(void);
    void (*destroy)(void);
} callbacks[] = {
#define GIVER(name, release, destroy)                                         \
    {                                                                         \
        name, (void (*)(void))(release), (void (*)(void))(destroy)            \
    }
    GIVER("schema", release_schema, destroy_schema),
    GIVER("array", release_array, destroy_array),
    GIVER("legacy", delete_legacy, destroy_legacy),
    GIVER("versioned", delete_versioned, destroy_versioned),
#undef GIVER
};

PyObject *
ad_testing_callbacks(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *result = PyDict_New();
    for (size_t i = 0; result != NULL && i < Py_ARRAY_LENGTH(callbacks); i++) {
        PyObject *pair = Py_BuildValue(
            "(KK)", (unsigned long long)(uintptr_t)callbacks[i].release,
            (unsigned long long)(uintptr_t)callbacks[i].destroy);
        if (pair == NULL ||
            PyDict_SetItemString(result, callbacks[i].name, pair) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(pair);
    }
    return result;
}
