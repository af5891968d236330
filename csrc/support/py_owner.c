#include "support/py_owner.h"

#include <stdlib.h>

#include "support/py_call.h"

typedef struct object_owner {
    ad_owner base;
    PyObject *object;
} object_owner;

typedef struct buffer_owner {
    ad_owner base;
    Py_buffer buffer;
} buffer_owner;

static void
object_destroy(ad_owner *base)
{
    object_owner *owner = (object_owner *)base;
    PyGILState_STATE gil;
    if (ad_py_enter(&gil)) {
        PyObject *saved = ad_py_save_exception();
        Py_DECREF(owner->object);
        ad_py_reset_exception(saved);
        PyGILState_Release(gil);
        free(owner);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

static const ad_owner_ops object_ops = {.destroy = object_destroy,
                                        .name = "Python object"};

static void
buffer_destroy(ad_owner *base)
{
    buffer_owner *owner = (buffer_owner *)base;
    PyGILState_STATE gil;
    if (ad_py_enter(&gil)) {
        PyObject *saved = ad_py_save_exception();
        PyBuffer_Release(&owner->buffer);
        ad_py_reset_exception(saved);
        PyGILState_Release(gil);
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
ad_py_owner_from_buffer(Py_buffer *buffer)
{
    buffer_owner *owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    ad_owner_init(&owner->base, &buffer_ops);
    owner->buffer = *buffer;
    /* The shape and strides of CPython and NumPy may point into the old
     * Py_buffer (at `len`, for 1-D data), so they must not be read from now
     * on. */
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
