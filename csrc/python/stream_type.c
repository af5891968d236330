/* arrowdev.use_stream(): the thread's current stream, as a context manager. */
#include "device/backend.h"
#include "python/functions.h"
#include "python/moving.h"

#include <pythread.h>

typedef struct stream_object {
    PyObject_HEAD
    ad_device device;
    ad_stream stream;
    PyObject *object;     /* of the stream; NULL for a number */
    unsigned long thread; /* that entered */
    Py_ssize_t depth;     /* how often it has been entered */
} stream_object;

/* Where the stream runs, for a caller who did not say. */
static int
find_device(ad_state *state, const ad_stream_argument *argument,
            ad_device *out)
{
    const struct ad_backend *backend;
    ad_place hint = {argument->device, NULL};
    ad_place place;
    ad_error err;
    ad_status status = ad_backend_open(hint.device.type, &backend, &err);
    if (status == AD_OK) {
        status = backend->stream_place(argument->stream, hint, &place, &err);
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    if (place.device.id < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "a default stream runs on any device; say which with "
                        "device=");
        return -1;
    }
    *out = place.device;
    return 0;
}

/* A stream that runs elsewhere than its user says would order nothing. */
static int
check_place(ad_state *state, ad_stream stream, ad_device device)
{
    const struct ad_backend *backend;
    ad_place place;
    ad_error err;
    if (!ad_backend_is_there(device.type)) {
        return 0; /* the statement is all that there is */
    }
    ad_status status = ad_backend_open(device.type, &backend, &err);
    if (status == AD_OK) {
        status = backend->stream_place(stream, (ad_place){device, NULL},
                                       &place, &err);
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

static int
read_arguments(ad_state *state, PyObject *stream, PyObject *device,
               stream_object *out)
{
    ad_stream_argument argument;
    bool has_device = !ad_is_none(device);
    out->device = (ad_device){0, -1};
    if (has_device && ad_parse_device(state, device, &out->device) < 0) {
        return -1;
    }
    if (!has_device && PyLong_Check(stream)) {
        PyErr_SetString(PyExc_ValueError,
                        "a stream number says nothing about its device; say "
                        "which with device=, as in device=\"cuda:0\"");
        return -1;
    }
    if (ad_parse_stream(state, stream, out->device, &argument) < 0) {
        return -1;
    }
    if (argument.is_off) {
        PyErr_SetString(PyExc_ValueError,
                        "stream=-1 names no stream that could be used");
        return -1;
    }
    out->stream = argument.stream;
    out->object = Py_XNewRef(argument.object);
    return has_device ? check_place(state, out->stream, out->device)
                      : find_device(state, &argument, &out->device);
}

static void
stream_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((stream_object *)object)->object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
stream_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    stream_object *self = (stream_object *)object;
    ad_state *state = ad_state_of(object);
    unsigned long thread = PyThread_get_thread_ident();
    ad_owner *keep = NULL;
    ad_error err;
    if (self->depth > 0 && self->thread != thread) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this use_stream() is in use on another thread; make "
                        "one for each thread");
        return NULL;
    }
    if (self->object != NULL) {
        keep = ad_py_owner_new(self->object);
        if (keep == NULL) {
            return NULL;
        }
    }
    ad_status status = ad_stream_push(self->device, self->stream, keep, &err);
    ad_owner_unref(keep);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    self->thread = thread;
    self->depth++;
    return Py_NewRef(object);
}

static PyObject *
stream_exit(PyObject *object, PyObject *Py_UNUSED(args))
{
    stream_object *self = (stream_object *)object;
    if (self->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this use_stream() has not been entered");
        return NULL;
    }
    if (self->thread != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this use_stream() was entered on another thread, "
                        "where it is still in use");
        return NULL;
    }
    self->depth--;
    ad_stream_pop(self->device);
    Py_RETURN_NONE;
}

static PyMethodDef stream_methods[] = {
    {"__enter__", stream_enter, METH_NOARGS, NULL},
    {"__exit__", stream_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
stream_get_device(PyObject *object, void *Py_UNUSED(closure))
{
    return ad_device_object_new(ad_state_of(object),
                                ((stream_object *)object)->device);
}

static PyGetSetDef stream_getset[] = {
    {"device", stream_get_device, NULL, "The Device that it is used for.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_getset},
    {Py_tp_doc, "What arrowdev.use_stream() returns: enter it with `with`."},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "arrowdev.StreamScope",
    .basicsize = sizeof(stream_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = stream_slots,
};

int
ad_stream_type_init(ad_state *state, PyObject *module)
{
    state->stream_type = PyType_FromModuleAndSpec(module, &stream_spec, NULL);
    return state->stream_type != NULL ? 0 : -1;
}

/* --- the function ---------------------------------------------------------- */

static const ad_signature signature = {
    .function = "use_stream()",
    .n_positional = 2,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_stream, AD_STR_device},
};

PyObject *
ad_function_use_stream(PyObject *module, PyObject *const *args,
                       Py_ssize_t n_args, PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[2];
    if (ad_parse_args(state, &signature, args, n_args, kwnames, values) < 0) {
        return NULL;
    }
    if (values[0] == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "use_stream() needs a stream, not None");
        return NULL;
    }
    stream_object *self =
        PyObject_New(stream_object, (PyTypeObject *)state->stream_type);
    if (self == NULL) {
        return NULL;
    }
    self->object = NULL;
    self->depth = 0;
    if (read_arguments(state, values[0], values[1], self) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}
