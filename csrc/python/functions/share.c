/* What arrowdev/_share.py needs of the core: memory files, and what is
 * published. */
#include "python/functions/functions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "share/memory_file.h"
#include "share/server.h"
#include "support/errors.h"
#include "support/py_call.h"

/* --- memory files -------------------------------------------------------- */

/* A Buffer over all of a mapping. Takes over the reference. */
static PyObject *
buffer_of_mapping(ad_state *state, ad_mapping *steal)
{
    const ad_memory memory = {.owner = &steal->base,
                              .device = AD_CPU,
                              .readonly = !steal->is_writable};
    PyObject *buffer = ad_buffer_object_new(
        state, steal->data, 0, (int64_t)steal->nbytes, 0, &memory);
    ad_owner_unref(&steal->base);
    return buffer;
}

/* The tensor of a Buffer on the host, or NULL with TypeError. */
static const ad_tensor *
host_buffer(ad_state *state, PyObject *object)
{
    ad_error err;
    if (Py_TYPE(object) != (PyTypeObject *)state->buffer_type ||
        ad_memory_of(object)->device.type != AD_CPU.type) {
        PyErr_Format(PyExc_TypeError, "no Buffer on the host: %.200s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    if (ad_tensor_require_size(ad_tensor_of(object), &err) != AD_OK) {
        ad_raise(state, &err);
        return NULL;
    }
    return ad_tensor_of(object);
}

PyObject *
ad_memory_file_buffer(ad_state *state, int64_t nbytes)
{
    ad_mapping *mapping;
    ad_error err;
    return ad_memory_file_new((size_t)nbytes, &mapping, &err) == AD_OK
               ? buffer_of_mapping(state, mapping)
               : ad_raise(state, &err);
}

static size_t
aligned(size_t nbytes)
{
    return (nbytes + AD_ALIGNMENT - 1) / AD_ALIGNMENT * AD_ALIGNMENT;
}

/* The sum of the sizes, each up to a multiple of AD_ALIGNMENT; -1 with an
 * exception. */
static int64_t
total_size(ad_state *state, PyObject *buffers)
{
    size_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(buffers); i++) {
        const ad_tensor *tensor =
            host_buffer(state, PyTuple_GET_ITEM(buffers, i));
        if (tensor == NULL) {
            return -1;
        }
        total += aligned((size_t)ad_tensor_size(tensor));
    }
    return (int64_t)total;
}

PyObject *
ad_function_copy_to_file(PyObject *module, PyObject *buffers)
{
    ad_state *state = ad_state_of_module(module);
    if (!PyTuple_Check(buffers)) {
        PyErr_SetString(PyExc_TypeError, "no tuple of Buffers");
        return NULL;
    }
    int64_t nbytes = total_size(state, buffers);
    ad_mapping *mapping;
    ad_error err;
    if (nbytes < 0) {
        return NULL;
    }
    if (ad_memory_file_new((size_t)nbytes, &mapping, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    char *end = mapping->data;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(buffers); i++) {
        const ad_tensor *tensor = ad_tensor_of(PyTuple_GET_ITEM(buffers, i));
        size_t size = (size_t)ad_tensor_size(tensor);
        if (size > 0) {
            memcpy(end, ad_tensor_address(tensor), size);
            end += aligned(size);
        }
    }
    Py_END_ALLOW_THREADS
    return buffer_of_mapping(state, mapping);
}

PyObject *
ad_function_find_file(PyObject *module, PyObject *object)
{
    const ad_tensor *tensor = host_buffer(ad_state_of_module(module), object);
    if (tensor == NULL) {
        return NULL;
    }
    const char *data = ad_tensor_address(tensor);
    ad_mapping *mapping =
        ad_mapping_find(data, (size_t)ad_tensor_size(tensor));
    if (mapping == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *result =
        Py_BuildValue("(nnnO)", (Py_ssize_t)mapping->data,
                      (Py_ssize_t)(data - (const char *)mapping->data),
                      (Py_ssize_t)mapping->nbytes,
                      mapping->is_writable ? Py_True : Py_False);
    ad_owner_unref(&mapping->base);
    return result;
}

/* (file, nbytes, is_writable, connection): takes over the file, and makes a
 * connection of its own of the other. */
PyObject *
ad_function_map_file(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    int file, is_writable, connection;
    Py_ssize_t nbytes;
    ad_mapping *mapping;
    ad_error err;
    if (!PyArg_ParseTuple(args, "inpi", &file, &nbytes, &is_writable,
                          &connection)) {
        return NULL;
    }
    int own = nbytes >= 0 ? fcntl(connection, F_DUPFD_CLOEXEC, 0) : -1;
    if (own < 0) {
        close(file);
        return nbytes < 0 ? PyErr_Format(PyExc_ValueError, "a negative size")
                          : PyErr_SetFromErrno(PyExc_OSError);
    }
    return ad_memory_file_map(file, (size_t)nbytes, is_writable, own, &mapping,
                              &err) == AD_OK
               ? buffer_of_mapping(state, mapping)
               : ad_raise(state, &err);
}

/* The Buffer of a row, [file, offset, nbytes] or None. */
static PyObject *
buffer_of_row(ad_state *state, PyObject *files, PyObject *row)
{
    int64_t numbers[3];
    if (row == Py_None) {
        return Py_NewRef(Py_None);
    }
    if (!PyList_CheckExact(row) || PyList_GET_SIZE(row) != 3) {
        return PyErr_Format(PyExc_ValueError, "a row has three numbers");
    }
    for (Py_ssize_t i = 0; i < 3; i++) {
        if (ad_parse_count(PyList_GET_ITEM(row, i), "a number", &numbers[i]) <
            0) {
            return NULL;
        }
    }
    int64_t offset = numbers[1], nbytes = numbers[2];
    if (nbytes == 0) {
        const ad_memory nowhere = {.device = AD_CPU, .readonly = true};
        return ad_buffer_object_new(state, NULL, 0, 0, 0, &nowhere);
    }
    const ad_tensor *file =
        numbers[0] >= 0 && numbers[0] < PyTuple_GET_SIZE(files)
            ? host_buffer(state,
                          PyTuple_GET_ITEM(files, (Py_ssize_t)numbers[0]))
            : NULL;
    int64_t size = file != NULL ? ad_tensor_size(file) : 0;
    if (offset < 0 || nbytes < 0 || offset > size || nbytes > size - offset) {
        return PyErr_Format(
            PyExc_ValueError, "%lld bytes at %lld are not within %lld bytes",
            (long long)nbytes, (long long)offset, (long long)size);
    }
    return ad_buffer_object_new(state,
                                (char *)ad_tensor_address(file) + offset, 0,
                                nbytes, 0, &file->memory);
}

/* (files, rows): the Buffers of the rows, in the memory of Buffers that span
 * the files. */
PyObject *
ad_function_buffers_in_files(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *files, *rows;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &files, &PyList_Type,
                          &rows)) {
        return NULL;
    }
    PyObject *result = PyTuple_New(PyList_GET_SIZE(rows));
    for (Py_ssize_t i = 0; result != NULL && i < PyTuple_GET_SIZE(result);
         i++) {
        PyObject *buffer =
            buffer_of_row(state, files, PyList_GET_ITEM(rows, i));
        if (buffer == NULL) {
            Py_CLEAR(result);
        } else {
            PyTuple_SET_ITEM(result, i, buffer);
        }
    }
    return result;
}

/* --- what is published --------------------------------------------------- */

#define CAPSULE "arrowdev.published"

/* A descriptor of its own of the file in which a Buffer lies. Unless it is to
 * be writable, it admits no writable mapping. -1 with an exception. */
static int
open_file(ad_state *state, PyObject *buffer, int is_writable)
{
    const ad_tensor *tensor = host_buffer(state, buffer);
    ad_mapping *mapping =
        tensor != NULL ? ad_mapping_find(ad_tensor_address(tensor), 0) : NULL;
    char path[40];
    if (mapping == NULL) {
        if (tensor != NULL) {
            PyErr_SetString(PyExc_ValueError, "no memory of a file");
        }
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", mapping->file);
    int file = is_writable ? fcntl(mapping->file, F_DUPFD_CLOEXEC, 0)
                           : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
    }
    ad_owner_unref(&mapping->base);
    return file;
}

/* Those of a tuple of Buffers, or ints that are descriptors. Returns 0, or -1
 * with an exception. */
static int
open_files(ad_state *state, PyObject *items, int is_writable, int *files,
           size_t *n)
{
    for (*n = 0; *n < (size_t)PyTuple_GET_SIZE(items); ++*n) {
        PyObject *item = PyTuple_GET_ITEM(items, (Py_ssize_t)*n);
        if (!PyLong_Check(item)) {
            files[*n] = open_file(state, item, is_writable);
        } else {
            files[*n] = fcntl((int)PyLong_AsLong(item), F_DUPFD_CLOEXEC, 0);
            if (files[*n] < 0 && !PyErr_Occurred()) {
                PyErr_SetFromErrno(PyExc_OSError);
            }
        }
        if (files[*n] < 0) {
            return -1;
        }
    }
    return 0;
}

static void
free_published(PyObject *capsule)
{
    ad_published *published = PyCapsule_GetPointer(capsule, CAPSULE);
    ad_published_close(published);
    ad_published_unref(published);
}

/* Takes over the descriptors. */
static PyObject *
publish(ad_state *state, const ad_publication *publication)
{
    ad_published *published;
    ad_error err;
    if (ad_publish(publication, &published, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *capsule = PyCapsule_New(published, CAPSULE, free_published);
    if (capsule == NULL) {
        ad_published_close(published);
        ad_published_unref(published);
        return NULL;
    }
    return Py_BuildValue("(Nsy#)", capsule, ad_server_name(),
                         (const char *)ad_published_token(published),
                         (Py_ssize_t)AD_TOKEN_SIZE);
}

/* (files, is_writable, message, object, uses): the capsule, the name of the
 * server, and the token. `files`: a Buffer in each, or a descriptor. */
PyObject *
ad_function_publish(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    int files[AD_MAX_SENT_FILES];
    PyObject *buffers, *object;
    const char *message;
    Py_ssize_t nbytes;
    long long uses;
    int is_writable;
    ad_publication publication = {.files = files};
    if (!PyArg_ParseTuple(args, "O!py#OL", &PyTuple_Type, &buffers,
                          &is_writable, &message, &nbytes, &object, &uses)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(buffers) > AD_MAX_SENT_FILES) {
        return PyErr_Format(PyExc_ValueError, "more than %d files",
                            AD_MAX_SENT_FILES);
    }
    if (object != Py_None &&
        (publication.owner = ad_py_owner_new(object)) == NULL) {
        return NULL;
    }
    publication.message = message;
    publication.nbytes = (size_t)nbytes;
    publication.uses = uses;
    PyObject *result = NULL;
    if (open_files(state, buffers, is_writable, files, &publication.n_files) ==
        0) {
        result = publish(state, &publication);
    } else {
        while (publication.n_files > 0) {
            close(files[--publication.n_files]);
        }
    }
    ad_owner_unref(publication.owner);
    return result;
}

PyObject *
ad_function_unpublish(PyObject *module, PyObject *capsule)
{
    ad_published *published = PyCapsule_GetPointer(capsule, CAPSULE);
    if (published == NULL) {
        return NULL;
    }
    ad_published_close(published);
    Py_RETURN_NONE;
}

PyObject *
ad_function_published_state(PyObject *module, PyObject *capsule)
{
    const ad_published *published = PyCapsule_GetPointer(capsule, CAPSULE);
    return published != NULL
               ? Py_BuildValue("(OL)",
                               ad_published_is_open(published) ? Py_True
                                                               : Py_False,
                               (long long)ad_published_connections(published))
               : NULL;
}
