/* What arrowdev/_share.py needs of the core: memory files, and what is
 * published. */
#include "python/functions/functions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "share/device_memory.h"
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

/* The tensor of a Buffer, or NULL with TypeError. */
static const ad_tensor *
any_buffer(ad_state *state, PyObject *object)
{
    if (Py_TYPE(object) != (PyTypeObject *)state->buffer_type) {
        PyErr_Format(PyExc_TypeError, "no Buffer: %.200s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return ad_tensor_of(object);
}

/* The same for one on the host, whose size is known. */
static const ad_tensor *
host_buffer(ad_state *state, PyObject *object)
{
    ad_error err;
    const ad_tensor *tensor = any_buffer(state, object);
    if (tensor == NULL) {
        return NULL;
    }
    if (tensor->memory.device.type != AD_CPU.type) {
        PyErr_SetString(PyExc_TypeError, "a Buffer that is not on the host");
        return NULL;
    }
    if (ad_tensor_require_size(tensor, &err) != AD_OK) {
        ad_raise(state, &err);
        return NULL;
    }
    return tensor;
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
    int64_t size = ad_tensor_size(tensor);
    ad_mapping *mapping =
        size > 0 ? ad_mapping_find(data, (size_t)size) : NULL;
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

/* --- what another process sends ------------------------------------------ */

#define FILES_CAPSULE "arrowdev.files"

/* Descriptors that came with a message; -1 where one was taken. */
typedef struct received {
    size_t n;
    int files[AD_MAX_SENT_FILES];
} received;

static void
free_received(PyObject *capsule)
{
    received *self = PyCapsule_GetPointer(capsule, FILES_CAPSULE);
    for (size_t i = 0; i < self->n; i++) {
        if (self->files[i] >= 0) {
            close(self->files[i]);
        }
    }
    free(self);
}

/* A capsule with one descriptor, which it takes over, on failure too; None for
 * -1. */
static PyObject *
capsule_of_file(int file)
{
    if (file < 0) {
        return Py_NewRef(Py_None);
    }
    received *self = calloc(1, sizeof(*self));
    PyObject *capsule = self != NULL
                            ? PyCapsule_New(self, FILES_CAPSULE, free_received)
                            : PyErr_NoMemory();
    if (capsule == NULL) {
        free(self);
        close(file);
        return NULL;
    }
    self->n = 1;
    self->files[0] = file;
    return capsule;
}

static void
keep_files(struct msghdr *message, received *out)
{
    for (struct cmsghdr *it = CMSG_FIRSTHDR(message); it != NULL;
         it = CMSG_NXTHDR(message, it)) {
        if (it->cmsg_level == SOL_SOCKET && it->cmsg_type == SCM_RIGHTS) {
            size_t n = (it->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(out->files + out->n, CMSG_DATA(it), n * sizeof(int));
            out->n += n;
        }
    }
}

/* (socket): the message that is there, a capsule with its descriptors, their
 * number, and the flags of recvmsg(). The capsule has the descriptors before
 * any code of Python's runs. */
PyObject *
ad_function_receive(PyObject *module, PyObject *socket)
{
    union {
        struct cmsghdr first; /* for the alignment */
        char bytes[CMSG_SPACE(sizeof(int) * AD_MAX_SENT_FILES)];
    } control;
    int fd = (int)PyLong_AsLong(socket);
    received *self =
        fd == -1 && PyErr_Occurred() ? NULL : calloc(1, sizeof(*self));
    PyObject *text = self != NULL
                         ? PyBytes_FromStringAndSize(NULL, AD_MAX_SENT_BYTES)
                         : NULL;
    PyObject *capsule = text != NULL
                            ? PyCapsule_New(self, FILES_CAPSULE, free_received)
                            : NULL;
    if (capsule == NULL) {
        free(self);
        Py_XDECREF(text);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    struct iovec room = {PyBytes_AS_STRING(text), AD_MAX_SENT_BYTES};
    struct msghdr message = {.msg_iov = &room,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n >= 0) {
        keep_files(&message, self);
        _PyBytes_Resize(&text, n);
    } else {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_CLEAR(text);
    }
    if (text == NULL) {
        Py_DECREF(capsule);
        return NULL;
    }
    return Py_BuildValue("(NNni)", text, capsule, (Py_ssize_t)self->n,
                         message.msg_flags);
}

/* The descriptor i, which the caller closes; -1 with ValueError. */
static int
take_file(PyObject *capsule, Py_ssize_t i)
{
    received *self = PyCapsule_GetPointer(capsule, FILES_CAPSULE);
    if (self == NULL) {
        return -1;
    }
    int file = i >= 0 && (size_t)i < self->n ? self->files[i] : -1;
    if (file < 0) {
        PyErr_Format(PyExc_ValueError, "there is no file %zd", i);
    } else {
        self->files[i] = -1;
    }
    return file;
}

/* (files, i): the descriptor, which is the caller's. */
PyObject *
ad_function_take_file(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t i;
    if (!PyArg_ParseTuple(args, "On", &capsule, &i)) {
        return NULL;
    }
    int file = take_file(capsule, i);
    return file >= 0 ? PyLong_FromLong(file) : NULL;
}

/* The descriptor i of the capsule, or -1 if i is -1; and a descriptor of its
 * own of the connection. The caller closes both. Returns 0, or -1 with an
 * exception. */
static int
take_both(PyObject *capsule, Py_ssize_t i, int connection, int *file, int *own)
{
    *file = -1;
    *own = fcntl(connection, F_DUPFD_CLOEXEC, 0);
    if (*own < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (i != -1 && (*file = take_file(capsule, i)) < 0) {
        close(*own);
        return -1;
    }
    return 0;
}

/* (files, i, nbytes, is_writable, connection): a Buffer over the file i, which
 * keeps a connection of its own. */
PyObject *
ad_function_map_file(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *capsule;
    int is_writable, connection, own, file;
    Py_ssize_t i, nbytes;
    ad_mapping *mapping;
    ad_error err;
    if (!PyArg_ParseTuple(args, "Onnpi", &capsule, &i, &nbytes, &is_writable,
                          &connection)) {
        return NULL;
    }
    if (nbytes < 0 || i < 0) {
        return PyErr_Format(PyExc_ValueError, "a negative size or number");
    }
    if (take_both(capsule, i, connection, &file, &own) < 0) {
        return NULL;
    }
    return ad_memory_file_map(file, (size_t)nbytes, is_writable, own, &mapping,
                              &err) == AD_OK
               ? buffer_of_mapping(state, mapping)
               : ad_raise(state, &err);
}

/* The Buffer of a row, [file, offset, nbytes] or None. */
static PyObject *
buffer_of_row(ad_state *state, PyObject *files, PyObject *row,
              ad_device device)
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
        const ad_memory nowhere = {.device = device, .readonly = true};
        return ad_buffer_object_new(state, NULL, 0, 0, 0, &nowhere);
    }
    const ad_tensor *file =
        numbers[0] >= 0 && numbers[0] < PyTuple_GET_SIZE(files)
            ? any_buffer(state,
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

/* (files, rows, device): the Buffers of the rows, in the memory of Buffers on
 * the device that span the files, or the allocations. */
PyObject *
ad_function_buffers_in_files(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *files, *rows, *place;
    ad_device device;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &files, &PyList_Type,
                          &rows, &place) ||
        ad_parse_device(state, place, &device) < 0) {
        return NULL;
    }
    PyObject *result = PyTuple_New(PyList_GET_SIZE(rows));
    for (Py_ssize_t i = 0; result != NULL && i < PyTuple_GET_SIZE(result);
         i++) {
        PyObject *buffer =
            buffer_of_row(state, files, PyList_GET_ITEM(rows, i), device);
        if (buffer == NULL) {
            Py_CLEAR(result);
        } else {
            PyTuple_SET_ITEM(result, i, buffer);
        }
    }
    return result;
}

/* --- memory and events of devices ---------------------------------------- */

#define OWNER_CAPSULE "arrowdev.owner"
#define SYNC_CAPSULE "arrowdev.sync"

static void
free_owner(PyObject *capsule)
{
    ad_owner_unref(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

/* Takes over the reference, on failure too. */
static PyObject *
capsule_of_owner(ad_owner *steal, const char *name)
{
    PyObject *capsule = PyCapsule_New(steal, name, free_owner);
    if (capsule == NULL) {
        ad_owner_unref(steal);
    }
    return capsule;
}

/* (buffer): the allocation in which it lies, for other processes: address,
 * size, ad_ipc_kind, offset in the file, bytes; and a capsule with the
 * descriptor of the file, or None. */
PyObject *
ad_function_export_memory(PyObject *module, PyObject *buffer)
{
    ad_state *state = ad_state_of_module(module);
    const ad_tensor *tensor = any_buffer(state, buffer);
    ad_ipc_memory memory;
    ad_error err;
    if (tensor == NULL) {
        return NULL;
    }
    if (ad_device_memory_export(tensor->memory.device,
                                ad_tensor_address(tensor), &memory,
                                &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return Py_BuildValue(
        "(KKiKy#N)", (unsigned long long)(uintptr_t)memory.base,
        (unsigned long long)memory.nbytes, (int)memory.kind,
        (unsigned long long)memory.file_offset, (const char *)memory.bytes,
        (Py_ssize_t)AD_IPC_BYTES, capsule_of_file(memory.file));
}

/* The memory of an Array, Tensor or Buffer, or NULL with TypeError. */
static const ad_memory *
any_memory(ad_state *state, PyObject *value)
{
    if (!ad_is_array(state, value) && !ad_is_tensor(state, value)) {
        PyErr_SetString(PyExc_TypeError, "no Array, Tensor or Buffer");
        return NULL;
    }
    return ad_memory_of(value);
}

/* (value): None if the work on its memory is done. Else the bytes of an event
 * behind that work, a capsule with a descriptor or None, and a capsule that
 * keeps the event. */
PyObject *
ad_function_export_event(PyObject *module, PyObject *value)
{
    ad_state *state = ad_state_of_module(module);
    ad_ipc_event event;
    ad_owner *keep;
    ad_error err;
    const ad_memory *memory = any_memory(state, value);
    if (memory == NULL) {
        return NULL;
    }
    if (ad_sync_export(memory->sync, &keep, &event, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    if (keep == NULL) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(y#NN)", (const char *)event.bytes,
                         (Py_ssize_t)AD_IPC_BYTES, capsule_of_file(event.file),
                         capsule_of_owner(keep, OWNER_CAPSULE));
}

/* (device): its UUID, as bytes. */
PyObject *
ad_function_device_uuid(PyObject *module, PyObject *object)
{
    ad_state *state = ad_state_of_module(module);
    unsigned char uuid[AD_UUID_SIZE];
    const struct ad_backend *backend;
    ad_device device;
    ad_error err;
    if (ad_parse_device(state, object, &device) < 0) {
        return NULL;
    }
    if (ad_backend_open(device.type, &backend, &err) != AD_OK ||
        backend->device_uuid(device.id, uuid, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return PyBytes_FromStringAndSize((const char *)uuid, AD_UUID_SIZE);
}

/* (type, uuid): the Device. */
PyObject *
ad_function_device_of_uuid(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    const char *uuid;
    Py_ssize_t n;
    ad_device device;
    ad_error err;
    int type;
    if (!PyArg_ParseTuple(args, "iy#", &type, &uuid, &n)) {
        return NULL;
    }
    if (n != AD_UUID_SIZE) {
        return PyErr_Format(PyExc_ValueError, "a UUID has %d bytes",
                            AD_UUID_SIZE);
    }
    return ad_device_of_uuid(type, (const unsigned char *)uuid, &device,
                             &err) == AD_OK
               ? ad_device_object_new(state, device)
               : ad_raise(state, &err);
}

/* Returns 0, or -1 with ValueError. */
static int
read_bytes(const char *bytes, Py_ssize_t n, unsigned char out[AD_IPC_BYTES])
{
    if (n != AD_IPC_BYTES) {
        PyErr_Format(PyExc_ValueError, "%d bytes name it, not %zd",
                     AD_IPC_BYTES, n);
        return -1;
    }
    memcpy(out, bytes, AD_IPC_BYTES);
    return 0;
}

/* (files, i, bytes, device, connection): a capsule with the sync of an event.
 * i is -1 if it has no descriptor. */
PyObject *
ad_function_open_event(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *capsule, *place;
    const char *bytes;
    Py_ssize_t i, n;
    int connection, own;
    ad_device device;
    ad_ipc_event event;
    ad_sync *sync;
    ad_error err;
    if (!PyArg_ParseTuple(args,
                          "On"
                          "y#Oi",
                          &capsule, &i, &bytes, &n, &place, &connection) ||
        read_bytes(bytes, n, event.bytes) < 0 ||
        ad_parse_device(state, place, &device) < 0 ||
        take_both(capsule, i, connection, &event.file, &own) < 0) {
        return NULL;
    }
    return ad_sync_open(device, &event, own, &sync, &err) == AD_OK
               ? capsule_of_owner(&sync->base, SYNC_CAPSULE)
               : ad_raise(state, &err);
}

/* (files, i, kind, offset in the file, nbytes, bytes, device, sync or None,
 * is_writable, connection): a Buffer over an allocation. i is -1 if it has no
 * descriptor. */
PyObject *
ad_function_open_memory(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *capsule, *place, *sync;
    const char *bytes;
    unsigned long long offset;
    Py_ssize_t i, nbytes, n;
    int kind, is_writable, connection, own;
    ad_ipc_memory from = {0};
    ad_memory memory = {0};
    void *data;
    ad_error err;
    if (!PyArg_ParseTuple(args, "OniKny#OOpi", &capsule, &i, &kind, &offset,
                          &nbytes, &bytes, &n, &place, &sync, &is_writable,
                          &connection) ||
        read_bytes(bytes, n, from.bytes) < 0 ||
        ad_parse_device(state, place, &memory.device) < 0) {
        return NULL;
    }
    if (nbytes <= 0 || kind < 0 || kind > AD_IPC_LEGACY) {
        return PyErr_Format(PyExc_ValueError, "no allocation of a device");
    }
    memory.sync =
        sync != Py_None ? PyCapsule_GetPointer(sync, SYNC_CAPSULE) : NULL;
    if (PyErr_Occurred() ||
        take_both(capsule, i, connection, &from.file, &own) < 0) {
        return NULL;
    }
    from.kind = (ad_ipc_kind)kind;
    from.file_offset = offset;
    from.nbytes = (size_t)nbytes;
    if (ad_device_memory_open(memory.device, &from, own, &data, &memory.owner,
                              &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    memory.readonly = !is_writable;
    PyObject *buffer =
        ad_buffer_object_new(state, data, 0, nbytes, 0, &memory);
    ad_owner_unref(memory.owner);
    return buffer;
}

/* (value): whether its producer flagged the memory as read-only. */
PyObject *
ad_function_is_readonly(PyObject *module, PyObject *value)
{
    const ad_memory *memory = any_memory(ad_state_of_module(module), value);
    return memory != NULL ? PyBool_FromLong(memory->readonly) : NULL;
}

/* (buffer, nbytes, is_writable): the first bytes of the same memory, flagged
 * anew. */
PyObject *
ad_function_view_buffer(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *buffer;
    Py_ssize_t nbytes;
    int is_writable;
    if (!PyArg_ParseTuple(args, "Onp", &buffer, &nbytes, &is_writable)) {
        return NULL;
    }
    const ad_tensor *tensor = any_buffer(state, buffer);
    if (tensor == NULL) {
        return NULL;
    }
    ad_memory memory = tensor->memory; /* borrowed */
    memory.readonly = !is_writable;
    return ad_buffer_object_new(state, ad_tensor_address(tensor), 0, nbytes, 0,
                                &memory);
}

/* --- what is published --------------------------------------------------- */

#define CAPSULE "arrowdev.published"

/* A descriptor of its own of the file in which a Buffer lies. Unless it is to
 * be writable, it admits no writable mapping. -1 with an exception. */
static int
open_file(ad_state *state, PyObject *buffer, int is_writable)
{
    const ad_tensor *tensor = host_buffer(state, buffer);
    ad_mapping *mapping = tensor != NULL && ad_tensor_size(tensor) > 0
                              ? ad_mapping_find(ad_tensor_address(tensor),
                                                (size_t)ad_tensor_size(tensor))
                              : NULL;
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

/* A duplicate of the descriptor of an int, or of a capsule with one; -1 with
 * an exception. */
static int
duplicate_file(PyObject *item)
{
    int file;
    if (PyCapsule_CheckExact(item)) {
        received *held = PyCapsule_GetPointer(item, FILES_CAPSULE);
        file = held != NULL ? held->files[0] : -1;
    } else {
        file = (int)PyLong_AsLong(item);
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
    }
    return file;
}

/* Those of a tuple of Buffers in memory files, of ints that are descriptors,
 * and of capsules with one. Returns 0, or -1 with an exception. */
static int
open_files(ad_state *state, PyObject *items, int is_writable, int *files,
           size_t *n)
{
    for (*n = 0; *n < (size_t)PyTuple_GET_SIZE(items); ++*n) {
        PyObject *item = PyTuple_GET_ITEM(items, (Py_ssize_t)*n);
        files[*n] = PyLong_Check(item) || PyCapsule_CheckExact(item)
                        ? duplicate_file(item)
                        : open_file(state, item, is_writable);
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
 * server, and the token. `files`: see open_files(). */
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

/* (token): the object that this process has published under it, or None. */
PyObject *
ad_function_published_object(PyObject *module, PyObject *token)
{
    if (!PyBytes_Check(token) || PyBytes_GET_SIZE(token) != AD_TOKEN_SIZE) {
        return PyErr_Format(PyExc_TypeError, "no token");
    }
    ad_owner *owner =
        ad_published_owner((const unsigned char *)PyBytes_AS_STRING(token));
    PyObject *object = owner != NULL ? ad_py_owner_object(owner) : NULL;
    PyObject *result = Py_NewRef(object != NULL ? object : Py_None);
    ad_owner_unref(owner);
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
