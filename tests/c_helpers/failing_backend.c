/* A backend whose n-th call fails: wrap(capsule, device type) is a table that
 * calls another one. set(member, value) makes tables that arrowdev has to
 * refuse. */
#include "arrowdev.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static arrowdev_backend inner;
static atomic_long n_calls, n_fails; /* which call fails; 0: none */
static atomic_int result, stays;
static atomic_long n_open, n_closed;

static int
begins_to_fail(const char *name, arrowdev_error *error)
{
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    long fails = atomic_load(&n_fails);
    if (fails == 0 || n < fails || (n > fails && !atomic_load(&stays))) {
        return ARROWDEV_OK;
    }
    error->code = 42;
    snprintf(error->call, sizeof(error->call), "inner_%s", name);
    snprintf(error->text, sizeof(error->text), "AN_ERROR");
    memset(error->hint, 'h', sizeof(error->hint)); /* no 0 at its end */
    return atomic_load(&result);
}

#define PASS(name, parameters, arguments)                                     \
    static int outer_##name parameters                                        \
    {                                                                         \
        int code = begins_to_fail(#name, error);                              \
        (void)self;                                                           \
        return code != ARROWDEV_OK ? code : inner.name arguments;             \
    }

PASS(device_count, (void *self, int64_t *out, arrowdev_error *error),
     (inner.self, out, error))
PASS(synchronize, (void *self, void *device, arrowdev_error *error),
     (inner.self, device, error))
PASS(memory_info,
     (void *self, const void *data, arrowdev_memory_info *out,
      arrowdev_error *error),
     (inner.self, data, out, error))
PASS(allocate,
     (void *self, void *device, void *stream, size_t nbytes, void **out,
      arrowdev_error *error),
     (inner.self, device, stream, nbytes, out, error))
PASS(copy_in,
     (void *self, void *device, void *stream, const arrowdev_copy *copy,
      arrowdev_error *error),
     (inner.self, device, stream, copy, error))
PASS(copy_out,
     (void *self, void *device, void *stream, const arrowdev_copy *copy,
      arrowdev_error *error),
     (inner.self, device, stream, copy, error))
PASS(copy_within,
     (void *self, void *device, void *stream, const arrowdev_copy *copy,
      arrowdev_error *error),
     (inner.self, device, stream, copy, error))
PASS(launch,
     (void *self, void *device, void *stream, const arrowdev_launch *launch,
      arrowdev_error *error),
     (inner.self, device, stream, launch, error))
PASS(stream_create,
     (void *self, void *device, void **stream, arrowdev_error *error),
     (inner.self, device, stream, error))
PASS(stream_identity,
     (void *self, void *stream, int64_t *device_id, uint64_t *id,
      arrowdev_error *error),
     (inner.self, stream, device_id, id, error))
PASS(stream_wait,
     (void *self, void *device, void *stream, const arrowdev_event *event,
      arrowdev_error *error),
     (inner.self, device, stream, event, error))
PASS(event_record,
     (void *self, void *device, void *stream, void **sync_event,
      arrowdev_error *error),
     (inner.self, device, stream, sync_event, error))
PASS(event_query,
     (void *self, const arrowdev_event *event, int32_t *is_done,
      arrowdev_error *error),
     (inner.self, event, is_done, error))
PASS(event_wait,
     (void *self, const arrowdev_event *event, arrowdev_error *error),
     (inner.self, event, error))

static int
outer_load(void *self, arrowdev_error *error)
{
    (void)self;
    return begins_to_fail("load", error);
}

static int
outer_describe(void *self, char *buffer, size_t size, arrowdev_error *error)
{
    (void)self;
    memset(buffer, 'd', size); /* no 0 at its end */
    return begins_to_fail("describe", error);
}

static int
outer_open_device(void *self, int64_t id, void **device, arrowdev_error *error)
{
    int code = begins_to_fail("open_device", error);
    (void)self;
    if (code == ARROWDEV_OK) {
        *device = (void *)(uintptr_t)id;
        atomic_fetch_add(&n_open, 1);
    }
    return code;
}

static void
outer_close_device(void *self, void *device)
{
    (void)self, (void)device;
    atomic_fetch_add(&n_closed, 1);
}

/* --- a runtime without streams and events -------------------------------- */

static atomic_long n_devices;

static int
plain_device_count(void *self, int64_t *out, arrowdev_error *error)
{
    (void)self, (void)error;
    *out = atomic_load(&n_devices);
    return ARROWDEV_OK;
}

static int
plain_allocate(void *self, void *device, void *stream, size_t nbytes,
               void **out, arrowdev_error *error)
{
    (void)self, (void)device, (void)stream, (void)error;
    *out = aligned_alloc(64, (nbytes + 63) / 64 * 64);
    return ARROWDEV_OK; /* and NULL, where there is no memory */
}

static void
plain_deallocate(void *self, void *device, void *stream, void *data,
                 size_t nbytes)
{
    (void)self, (void)device, (void)stream, (void)nbytes;
    free(data);
}

static int
plain_copy(void *self, void *device, void *stream, const arrowdev_copy *copy,
           arrowdev_error *error)
{
    (void)self, (void)device, (void)stream, (void)error;
    for (size_t i = 0; i < copy->height; i++) {
        memcpy((char *)copy->target.data + copy->target.offset +
                   i * copy->target_pitch,
               (char *)copy->source.data + copy->source.offset +
                   i * copy->source_pitch,
               copy->width);
    }
    return ARROWDEV_OK;
}

static const arrowdev_backend plain_table = {
    .size = sizeof(plain_table),
    .version = ARROWDEV_BACKEND_VERSION,
    .capabilities = ARROWDEV_CAP_COPIES_ROWS | ARROWDEV_CAP_RUNS_ON_HOST,
    .name = "plain",
    .device_count = plain_device_count,
    .allocate = plain_allocate,
    .deallocate = plain_deallocate,
    .copy_in = plain_copy,
    .copy_out = plain_copy,
    .copy_within = plain_copy,
};

static PyObject *
plain(PyObject *module, PyObject *type)
{
    (void)module;
    return ArrowDev_BackendCapsule((int32_t)PyLong_AsLong(type), &plain_table);
}

static PyObject *
set_devices(PyObject *module, PyObject *n)
{
    (void)module;
    atomic_store(&n_devices, PyLong_AsLong(n));
    Py_RETURN_NONE;
}

/* --- the module ---------------------------------------------------------- */

static arrowdev_backend
wrapped(const arrowdev_backend *given)
{
    inner = *given;
    arrowdev_backend outer = *given;
#define WRAP(name) outer.name = inner.name != NULL ? outer_##name : NULL;
    WRAP(device_count)
    WRAP(synchronize)
    WRAP(memory_info)
    WRAP(allocate)
    WRAP(copy_in)
    WRAP(copy_out)
    WRAP(copy_within)
    WRAP(launch)
    WRAP(stream_create)
    WRAP(stream_identity)
    WRAP(stream_wait)
    WRAP(event_record)
    WRAP(event_query)
    WRAP(event_wait)
    outer.load = outer_load;
    outer.describe = outer_describe;
    outer.open_device = outer_open_device;
    outer.close_device = outer_close_device;
    return outer;
}

static PyObject *
wrap(PyObject *module, PyObject *args)
{
    static arrowdev_backend outer;
    PyObject *capsule;
    int type;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oi", &capsule, &type)) {
        return NULL;
    }
    const arrowdev_backend *given =
        PyCapsule_GetPointer(capsule, "arrowdev_backend");
    if (given == NULL) {
        return NULL;
    }
    outer = wrapped(given);
    return ArrowDev_BackendCapsule(type, &outer);
}

/* --- faults that check_backend() has to find ------------------------------ */

static arrowdev_backend sound;
static struct {
    void *data;
    size_t nbytes;
} freed;

static int
wait_for_nothing(void *self, void *device, void *stream,
                 const arrowdev_event *event, arrowdev_error *error)
{
    (void)self, (void)device, (void)stream, (void)event, (void)error;
    return ARROWDEV_OK;
}

static int
always_done(void *self, const arrowdev_event *event, int32_t *is_done,
            arrowdev_error *error)
{
    (void)self, (void)event, (void)error;
    *is_done = 1;
    return ARROWDEV_OK;
}

/* So that work which is not waited for harms nothing. */
static void
free_nothing(void *self, void *device, void *stream, void *data, size_t nbytes)
{
    (void)self, (void)device, (void)stream, (void)data, (void)nbytes;
}

static int
copy_in_of_a_copy(void *self, void *device, void *stream,
                  const arrowdev_copy *copy, arrowdev_error *error)
{
    arrowdev_copy kept = *copy;
    kept.source.data = malloc(copy->width);
    kept.source.offset = 0;
    memcpy(kept.source.data, (char *)copy->source.data + copy->source.offset,
           copy->width);
    return sound.copy_in(self, device, stream, &kept, error);
}

static int
copy_out_at_once(void *self, void *device, void *stream,
                 const arrowdev_copy *copy, arrowdev_error *error)
{
    (void)self, (void)device, (void)stream, (void)error;
    memcpy((char *)copy->target.data + copy->target.offset,
           (char *)copy->source.data + copy->source.offset, copy->width);
    return ARROWDEV_OK;
}

static int
copy_less(void *self, void *device, void *stream, const arrowdev_copy *copy,
          arrowdev_error *error)
{
    arrowdev_copy less = *copy;
    less.width -= less.width > 64;
    return sound.copy_out(self, device, stream, &less, error);
}

static int
allocate_askew(void *self, void *device, void *stream, size_t nbytes,
               void **out, arrowdev_error *error)
{
    int code = sound.allocate(self, device, stream, nbytes + 64, out, error);
    *out = (char *)*out + 8;
    return code;
}

static void
deallocate_askew(void *self, void *device, void *stream, void *data,
                 size_t nbytes)
{
    sound.deallocate(self, device, stream, (char *)data - 8, nbytes + 64);
}

static int
refuse_much(void *self, void *device, void *stream, size_t nbytes, void **out,
            arrowdev_error *error)
{
    return nbytes > (size_t)1 << 40
               ? ARROWDEV_REFUSED
               : sound.allocate(self, device, stream, nbytes, out, error);
}

static int
allocate_again(void *self, void *device, void *stream, size_t nbytes,
               void **out, arrowdev_error *error)
{
    if (freed.data != NULL && nbytes <= freed.nbytes) {
        *out = freed.data;
        freed.data = NULL;
        return ARROWDEV_OK;
    }
    return sound.allocate(self, device, stream, nbytes, out, error);
}

static void
free_for_the_next(void *self, void *device, void *stream, void *data,
                  size_t nbytes)
{
    (void)self, (void)device, (void)stream;
    freed.data = data;
    freed.nbytes = nbytes;
}

static int
wait_for_no_device(void *self, void *device, arrowdev_error *error)
{
    (void)self, (void)device, (void)error;
    return ARROWDEV_OK;
}

static int
launch_nothing(void *self, void *device, void *stream,
               const arrowdev_launch *launch, arrowdev_error *error)
{
    (void)self, (void)device, (void)stream, (void)launch, (void)error;
    return ARROWDEV_OK;
}

static int
no_name(void *self, int64_t id, char *buffer, size_t size,
        arrowdev_error *error)
{
    (void)self, (void)id, (void)size, (void)error;
    buffer[0] = 0;
    return ARROWDEV_OK;
}

/* A runtime in which a device is current on the thread that has opened it. */
static _Thread_local int is_current;

static int
open_on_this_thread(void *self, int64_t id, void **device,
                    arrowdev_error *error)
{
    (void)self, (void)error;
    is_current = 1;
    *device = (void *)(uintptr_t)id; /* as that of the sound one */
    return ARROWDEV_OK;
}

static int
copy_in_on_the_same_thread(void *self, void *device, void *stream,
                           const arrowdev_copy *copy, arrowdev_error *error)
{
    if (!is_current) {
        snprintf(error->text, sizeof(error->text), "NO_CURRENT_DEVICE");
        return ARROWDEV_FAILED;
    }
    return sound.copy_in(self, device, stream, copy, error);
}

/* What a runtime may do in a forked child, which has none of its threads. */
static void
wait_for_a_thread(void)
{
    for (;;) {
        pause();
    }
}

static int
load_and_hang_later(void *self, arrowdev_error *error)
{
    (void)self, (void)error;
    return pthread_atfork(NULL, NULL, wait_for_a_thread);
}

static int
load_and_abort_later(void *self, arrowdev_error *error)
{
    (void)self, (void)error;
    return pthread_atfork(NULL, NULL, abort);
}

static int
export_the_next_page(void *self, void *device, const void *data,
                     arrowdev_shared *out, arrowdev_error *error)
{
    int code = sound.memory_export(self, device, data, out, error);
    out->file_offset += 4096;
    return code;
}

/* An event that is behind no work. */
static int
export_an_old_event(void *self, void *device, void *stream, void **sync_event,
                    arrowdev_shared *out, arrowdev_error *error)
{
    void *idle = NULL;
    (void)stream;
    int code = sound.stream_create(self, device, &idle, error);
    if (code == ARROWDEV_OK) {
        code = sound.event_export(self, device, idle, sync_event, out, error);
        sound.stream_destroy(self, device, idle);
    }
    return code;
}

static int
name_no_device(void *self, int64_t id, unsigned char uuid[16],
               arrowdev_error *error)
{
    (void)self, (void)error;
    memset(uuid, 255 - (int)id, 16);
    return ARROWDEV_OK;
}

/* broken(capsule, type, fault): a backend that breaks a rule. */
static PyObject *
broken(PyObject *module, PyObject *args)
{
    static arrowdev_backend bad;
    PyObject *capsule;
    const char *fault;
    int type;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oiz", &capsule, &type, &fault)) {
        return NULL;
    }
    sound = *(const arrowdev_backend *)PyCapsule_GetPointer(
        capsule, "arrowdev_backend");
    bad = sound;
#define BREAKS(name, statement)                                               \
    if (strcmp(fault, name) == 0) {                                           \
        statement;                                                            \
    }
    BREAKS("wait", bad.stream_wait = wait_for_nothing)
    BREAKS("event", bad.event_query = always_done; bad.event_wait = NULL;
           bad.deallocate = free_nothing; bad.copy_in = copy_in_of_a_copy;
           bad.copy_out = copy_out_at_once)
    BREAKS("copies", bad.copy_out = copy_less)
    BREAKS("memory", bad.allocate = allocate_askew;
           bad.deallocate = deallocate_askew)
    BREAKS("no_memory", bad.allocate = refuse_much)
    BREAKS("release", bad.allocate = allocate_again;
           bad.deallocate = free_for_the_next;
           bad.capabilities |= ARROWDEV_CAP_ORDERED_DEALLOCATE)
    BREAKS("synchronize", bad.synchronize = wait_for_no_device)
    BREAKS("stream", bad.stream_identity = NULL)
    BREAKS("kernels", bad.launch = launch_nothing)
    BREAKS("devices", bad.device_name = no_name)
    BREAKS("threads", bad.open_device = open_on_this_thread;
           bad.copy_in = copy_in_on_the_same_thread)
    BREAKS("fork_hangs", bad.load = load_and_hang_later)
    BREAKS("fork_aborts", bad.load = load_and_abort_later)
    BREAKS("share_bytes", bad.memory_export = export_the_next_page)
    BREAKS("share_event", bad.event_export = export_an_old_event)
    BREAKS("share_nothing", bad.device_uuid = name_no_device)
    return ArrowDev_BackendCapsule(type, &bad);
}

static void
never_called(void)
{
    abort();
}

/* changed(capsule, type, {"member": None or int or str}): a table of its own,
 * with members left out or with other values; "sharing" is all functions for
 * other processes. */
static int
change(arrowdev_backend *table, const char *name, PyObject *value)
{
    long number = PyLong_Check(value) ? PyLong_AsLong(value) : 0;
#define NUMBER(member)                                                        \
    if (strcmp(name, #member) == 0) {                                         \
        table->member = number;                                               \
        return 0;                                                             \
    }
#define FUNCTION(member)                                                      \
    if (strcmp(name, #member) == 0) {                                         \
        table->member = NULL;                                                 \
        return 0;                                                             \
    }
    NUMBER(size)
    NUMBER(version)
    NUMBER(capabilities)
    FUNCTION(device_count)
    FUNCTION(synchronize)
    FUNCTION(memory_info)
    FUNCTION(allocate)
    FUNCTION(deallocate)
    FUNCTION(copy_in)
    FUNCTION(copy_out)
    FUNCTION(copy_within)
    FUNCTION(launch)
    FUNCTION(stream_create)
    FUNCTION(stream_destroy)
    FUNCTION(stream_identity)
    FUNCTION(stream_wait)
    FUNCTION(event_record)
    FUNCTION(event_query)
    FUNCTION(event_wait)
    FUNCTION(event_destroy)
#define SHARING(X)                                                            \
    X(device_uuid)                                                            \
    X(memory_export)                                                          \
    X(memory_open)                                                            \
    X(memory_close)                                                           \
    X(event_export)                                                           \
    X(event_open)
    SHARING(FUNCTION)
    if (strcmp(name, "sharing") == 0) {
#define FILL(member) table->member = (__typeof__(table->member))never_called;
        SHARING(FILL)
        return 0;
    }
    if (strcmp(name, "name") == 0) {
        table->name = value == Py_None ? NULL : PyUnicode_AsUTF8(value);
        return 0;
    }
    if (strcmp(name, "newer") == 0) { /* a function behind the table */
        *(long *)(table + 1) = number;
        return 0;
    }
    PyErr_SetString(PyExc_KeyError, name);
    return -1;
}

static PyObject *
changed(PyObject *module, PyObject *args)
{
    PyObject *capsule, *values, *name, *value;
    Py_ssize_t at = 0;
    int type;
    (void)module;
    if (!PyArg_ParseTuple(args, "OiO!", &capsule, &type, &PyDict_Type,
                          &values)) {
        return NULL;
    }
    const arrowdev_backend *given =
        PyCapsule_GetPointer(capsule, "arrowdev_backend");
    arrowdev_backend *table = calloc(2, sizeof(*table)); /* stays */
    if (given == NULL || table == NULL) {
        return NULL;
    }
    *table = *given;
    while (PyDict_Next(values, &at, &name, &value)) {
        if (change(table, PyUnicode_AsUTF8(name), value) < 0) {
            return NULL;
        }
    }
    return ArrowDev_BackendCapsule(type, table);
}

/* register(capsule, type): the function of the C API. */
static PyObject *
register_in_c(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"capsule", "type", NULL};
    PyObject *capsule;
    int type;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Oi", names, &capsule,
                                     &type)) {
        return NULL;
    }
    const arrowdev_backend *given =
        capsule == Py_None ? NULL
                           : PyCapsule_GetPointer(capsule, "arrowdev_backend");
    return ArrowDev_RegisterBackend(type, given) == 0 ? Py_NewRef(Py_None)
                                                      : NULL;
}

/* fail_at(n, result, stay): the n-th call from now on; 0: none. */
static PyObject *
fail_at(PyObject *module, PyObject *args)
{
    long n;
    int code = ARROWDEV_FAILED, stay = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "l|ip", &n, &code, &stay)) {
        return NULL;
    }
    atomic_store(&n_fails, 0);
    atomic_store(&result, code);
    atomic_store(&stays, stay);
    atomic_store(&n_fails, n > 0 ? atomic_load(&n_calls) + n : 0);
    Py_RETURN_NONE;
}

static PyObject *
counts(PyObject *module, PyObject *ignored)
{
    (void)module, (void)ignored;
    return Py_BuildValue("(lll)", atomic_load(&n_calls), atomic_load(&n_open),
                         atomic_load(&n_closed));
}

static PyObject *
size(PyObject *module, PyObject *ignored)
{
    (void)module, (void)ignored;
    return PyLong_FromSize_t(sizeof(arrowdev_backend));
}

static PyMethodDef methods[] = {{"wrap", wrap, METH_VARARGS, NULL},
                                {"changed", changed, METH_VARARGS, NULL},
                                {"register",
                                 (PyCFunction)(void (*)(void))register_in_c,
                                 METH_VARARGS | METH_KEYWORDS, NULL},
                                {"fail_at", fail_at, METH_VARARGS, NULL},
                                {"counts", counts, METH_NOARGS, NULL},
                                {"plain", plain, METH_O, NULL},
                                {"broken", broken, METH_VARARGS, NULL},
                                {"size", size, METH_NOARGS, NULL},
                                {"set_devices", set_devices, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "failing_backend",
                                    .m_methods = methods};

PyMODINIT_FUNC
PyInit_failing_backend(void)
{
    return ArrowDev_Import() < 0 ? NULL : PyModule_Create(&module);
}
