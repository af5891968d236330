#include "support/py_owner.h"

#include <stddef.h>
#include <stdlib.h>

#include "model/array.h"
#include "support/py_call.h"

typedef struct object_owner {
    ad_owner base;
    PyObject *object;
    ad_leaf leaf;
} object_owner;

typedef struct buffer_owner {
    ad_owner base;
    Py_buffer buffer;
} buffer_owner;

static void
object_destroy_with_gil(ad_owner *base)
{
    object_owner *owner = (object_owner *)base;
    PyObject *exception = ad_py_take_exception();
    Py_DECREF(owner->object);
    ad_py_restore_exception(exception);
    free(owner);
}

static void
object_destroy(ad_owner *base)
{
    ad_py_entry entry;
    if (ad_py_enter(&entry)) {
        object_destroy_with_gil(base);
        ad_py_leave(&entry);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

static const ad_owner_ops object_ops = {
    .destroy = object_destroy,
    .destroy_with_gil = object_destroy_with_gil,
    .leaf = offsetof(object_owner, leaf),
    .name = "Python object",
};

static void
buffer_destroy(ad_owner *base)
{
    buffer_owner *owner = (buffer_owner *)base;
    ad_py_entry entry;
    if (ad_py_enter(&entry)) {
        PyBuffer_Release(&owner->buffer);
        ad_py_leave(&entry);
        free(owner);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

static const ad_owner_ops buffer_ops = {.destroy = buffer_destroy,
                                        .name = "Python buffer"};

/* --- constructors -------------------------------------------------------- */

ad_owner *
ad_py_owner_new(PyObject *object)
{
    object_owner *owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    ad_owner_init(&owner->base, &object_ops);
    owner->object = Py_NewRef(object);
    return &owner->base;
}

ad_owner *
ad_py_owner_of_buffer(PyObject *object, int flags, const Py_buffer **out)
{
    buffer_owner *owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    ad_owner_init(&owner->base, &buffer_ops);
    if (PyObject_GetBuffer(object, &owner->buffer, flags) < 0) {
        free(owner);
        return NULL;
    }
    *out = &owner->buffer;
    return &owner->base;
}

PyObject *
ad_py_owner_object(const ad_owner *owner)
{
    if (owner == NULL || owner->ops != &object_ops) {
        return NULL;
    }
    return ((const object_owner *)owner)->object;
}
