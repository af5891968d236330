#include "python/functions/trace.h"

#include <string.h>

#include "base/trace.h"
#include "python/functions/trace_points.h"
#include "support/compat.h"
#include "support/py_call.h"
#include "support/waiting.h"

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h> /* PyFrame_GetBack */
#endif

/* --- the line of the user ------------------------------------------------ */

/* Folders of code that is not the user's, arrowdev's first. Set by the first
 * trace and never freed: a thread may still read it when a trace ends. */
#define MAX_FOLDERS 24
static struct {
    const char *path;
    size_t length;
} folders[MAX_FOLDERS];
static size_t n_folders;

typedef enum code_kind {
    OWN,
    LIBRARY,
    USER
} code_kind;

static code_kind
kind_of_code(PyCodeObject *code)
{
    Py_ssize_t length;
    const char *path = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
    if (path == NULL) {
        PyErr_Clear();
        return USER;
    }
    for (size_t i = 0; i < n_folders; i++) {
        if (strncmp(path, folders[i].path, folders[i].length) == 0) {
            return i == 0 ? OWN : LIBRARY;
        }
    }
    return USER;
}

static int32_t
place_in(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    return PyFrame_GetLasti(frame);
#else
    return PyFrame_GetLineNumber(frame);
#endif
}

static int
line_of(const ad_trace_event *event)
{
#if PY_VERSION_HEX >= 0x030b0000
    return PyCode_Addr2Line((PyCodeObject *)event->code, event->where);
#else
    return event->where;
#endif
}

/* The references on `code` and `consumer` are the caller's. */
static void
find_line(ad_trace_event *event)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame != NULL && event->code == NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        code_kind kind = kind_of_code(code);
        if (kind == USER) {
            event->code = code;
            event->where = place_in(frame);
        } else if (kind == LIBRARY && event->consumer == NULL) {
            event->consumer = code;
        } else {
            Py_DECREF(code);
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
}

/* The interpreter that a trace is of, until its events are collected, or NULL.
 * Objects of others are not kept. */
static ad_interpreter *_Atomic traced;
static PyObject *traced_module; /* of it */

/* Adds the event with the line, if this thread can tell it. */
void
ad_trace_add_python(ad_trace_event *event)
{
    if (!ad_py_has_gil() || ad_py_is_finalizing() ||
        ad_interpreter_here() != atomic_load(&traced)) {
        event->from = event->to = NULL;
        ad_trace_add(event);
        return;
    }
    PyObject *exception = ad_py_take_exception();
    find_line(event);
    PyObject *code = event->code;
    PyObject *consumer = event->consumer;
    void **objects[] = {&event->from, &event->to, &event->code,
                        &event->consumer};
    ad_trace_ring *ring = ad_trace_begin(event);
    if (ring != NULL) {
        for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++) {
            if (ad_trace_keep(ring, objects[i])) {
                Py_INCREF((PyObject *)*objects[i]);
            }
        }
        ad_trace_end(ring, event);
    }
    Py_XDECREF(code);
    Py_XDECREF(consumer);
    ad_py_restore_exception(exception);
}

/* A copy may be made while this thread has given the GIL up. It takes it for
 * the line, as for a message (base/log.h). */
static void
add_from_core(ad_trace_event *event)
{
    ad_interpreter *of = atomic_load(&traced);
    ad_py_entry entry;
    bool has_entered = event->kind == AD_TRACE_COPY && !ad_py_has_gil() &&
                       PyGILState_GetThisThreadState() != NULL &&
                       ad_interpreter_of_thread() == of &&
                       ad_py_enter(of, &entry);
    ad_trace_add_python(event);
    if (has_entered) {
        ad_py_leave(&entry);
    }
}

/* --- begin and end ------------------------------------------------------- */

static int
add_folder(PyObject *path)
{
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(path, &length);
    if (text == NULL) {
        return -1;
    }
    if (n_folders < MAX_FOLDERS) {
        folders[n_folders].path = strdup(text);
        folders[n_folders].length = (size_t)length;
        n_folders += folders[n_folders].path != NULL;
    }
    return 0;
}

static int
add_folders(PyObject *paths)
{
    const Py_ssize_t n = n_folders == 0 ? PyTuple_GET_SIZE(paths) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (add_folder(PyTuple_GET_ITEM(paths, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *
ad_function_trace_start(PyObject *module, PyObject *args)
{
    Py_ssize_t capacity;
    PyObject *paths;
    if (!PyArg_ParseTuple(args, "nO!", &capacity, &PyTuple_Type, &paths)) {
        return NULL;
    }
    ad_interpreter *none = NULL;
    if (!atomic_compare_exchange_strong(&traced, &none,
                                        ad_interpreter_here())) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a trace is on already, in another interpreter, and a "
                        "process has one at a time");
        return NULL;
    }
    atomic_store(&ad_trace_add_with_line, add_from_core);
    if (add_folders(paths) < 0 || ad_trace_points_set(module, true) < 0) {
        atomic_store(&traced, NULL);
        return NULL;
    }
    traced_module = Py_NewRef(module);
    ad_trace_start((size_t)capacity);
    Py_RETURN_NONE;
}

/* --- what a trace gives -------------------------------------------------- */

static const char *const kinds[] = {
    [AD_TRACE_IMPORT] = "import",
    [AD_TRACE_EXPORT] = "export",
    [AD_TRACE_CONVERT] = "convert",
    [AD_TRACE_COPY] = "copy",
    [AD_TRACE_WAIT] = "wait",
    [AD_TRACE_STREAM_WAIT] = "stream wait",
    [AD_TRACE_RECORDED] = "event recorded",
    [AD_TRACE_COMPLETE] = "event complete",
    [AD_TRACE_REFUSAL] = "refusal",
    [AD_TRACE_RELEASE] = "release",
    [AD_TRACE_DEFERRED] = "deferred release",
};

static PyObject *
object_or_none(void *object)
{
    return object != NULL ? object : Py_None;
}

static PyObject *
text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *
shape_of(const ad_trace_event *event)
{
    int32_t n =
        event->ndim < AD_TRACE_DIMENSIONS ? event->ndim : AD_TRACE_DIMENSIONS;
    if (n < 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *shape = PyList_New(n);
    for (int32_t i = 0; shape != NULL && i < n; i++) {
        PyObject *extent = PyLong_FromLongLong(event->shape[i]);
        if (extent == NULL) {
            Py_CLEAR(shape);
        } else {
            PyList_SET_ITEM(shape, i, extent);
        }
    }
    return shape;
}

static PyObject *
name_of_device(ad_device device)
{
    char name[AD_DEVICE_NAME_SIZE];
    return device.type == 0
               ? Py_NewRef(Py_None)
               : PyUnicode_FromString(ad_device_format(device, name));
}

static bool
append_event(void *data, size_t ring, uint64_t thread,
             const ad_trace_event *event)
{
    PyObject *dict = Py_BuildValue(
        "{sssnsKsLsLszsOsOsOsisOsNsKsKsLsNsNsKsKsNsNsN}", /* */
        "kind", kinds[event->kind], "ring", (Py_ssize_t)ring, "thread",
        (unsigned long long)thread, "start", (long long)event->start, "end",
        (long long)event->end, "name", event->name, "from",
        object_or_none(event->from), "to", object_or_none(event->to), "code",
        object_or_none(event->code), "line",
        event->code != NULL ? line_of(event) : 0, "consumer",
        object_or_none(event->consumer), "is_done",
        PyBool_FromLong(event->is_done), "memory",
        (unsigned long long)event->memory, "address",
        (unsigned long long)(uintptr_t)event->address, "bytes",
        (long long)event->nbytes, "device", name_of_device(event->device),
        "target", name_of_device(event->target), "stream",
        (unsigned long long)event->stream, "event",
        (unsigned long long)(uintptr_t)event->event, "shape", shape_of(event),
        "type", text_of(event->type), "why", text_of(event->why));
    if (dict == NULL) {
        return false;
    }
    int result = PyList_Append(data, dict);
    Py_DECREF(dict);
    return result == 0;
}

static void
drop_object(void *Py_UNUSED(data), void *object)
{
    Py_DECREF((PyObject *)object);
}

/* False: an event was not taken, and an exception may say why. */
static bool
end_trace(ad_trace_visitor *visitor)
{
    ad_trace_stop();
    (void)ad_trace_points_set(traced_module, false);
    Py_CLEAR(traced_module);
    bool is_complete = ad_trace_collect(visitor);
    atomic_store(&traced, NULL);
    return is_complete;
}

static bool
drop_event(void *Py_UNUSED(data), size_t Py_UNUSED(ring),
           uint64_t Py_UNUSED(thread), const ad_trace_event *Py_UNUSED(event))
{
    return false;
}

void
ad_trace_at_exit(void)
{
    ad_interpreter *here = ad_interpreter_here();
    if (!here->is_main && atomic_load(&traced) == here) {
        ad_trace_visitor visitor = {.event = drop_event,
                                    .object = drop_object};
        (void)end_trace(&visitor);
    }
}

/* Without memory the trace ends, too. */
PyObject *
ad_function_trace_stop(PyObject *Py_UNUSED(module),
                       PyObject *Py_UNUSED(ignored))
{
    PyObject *events = PyList_New(0);
    ad_trace_visitor visitor = {
        .event = events != NULL ? append_event : drop_event,
        .object = drop_object,
        .data = events,
    };
    bool is_on = atomic_load(&traced) == ad_interpreter_here();
    if ((is_on && !end_trace(&visitor)) || events == NULL) {
        Py_XDECREF(events);
        return NULL;
    }
    return Py_BuildValue("NKK", events, (unsigned long long)visitor.dropped,
                         (unsigned long long)visitor.lost);
}
