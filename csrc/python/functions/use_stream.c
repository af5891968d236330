/* arrowdev.use_stream(): the current stream, as a context manager.
 *
 * A context variable holds the active scopes as a tuple, the innermost last.
 * Each asyncio task therefore has scopes of its own, although tasks share a
 * thread; a new task starts with the scopes of the code that creates it.
 */
#include "order/streams.h"
#include "device/backend.h"
#include "python/functions/functions.h"
#include "support/args.h"
#include "support/py_call.h"

typedef struct stream_object {
    PyObject_HEAD
    ad_stream_ref on;
} stream_object;

/* The context variable of an interpreter; set by the first import into it. */
static inline PyObject *
scopes_in_use(void)
{
    return ad_interpreter_here()->stream_scopes;
}

/* Ask the runtime for the stream's context; `hint` says what is known of it.
 * Returns 0, or -1 with an exception. */
static int
ask_context(ad_state *state, ad_stream stream, ad_device hint,
            ad_context *context)
{
    const struct ad_backend *backend;
    ad_error err;
    ad_status status = ad_backend_open(hint.type, &backend, &err);
    if (status == AD_OK) {
        status = backend->stream_context(stream, (ad_context){hint, NULL},
                                         context, &err);
    }
    return ad_raise_status(state, status, &err);
}

/* Find the device of a stream if the caller does not name one. */
static int
find_device(ad_state *state, const ad_stream_argument *argument,
            ad_device *out)
{
    ad_context context;
    if (ask_context(state, argument->stream,
                    (ad_device){argument->device_type, -1}, &context) < 0) {
        return -1;
    }
    if (context.device.id < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "a default stream runs on any device; say which with "
                        "device=");
        return -1;
    }
    *out = context.device;
    return 0;
}

/* Check that the stream belongs to the device: a stream of another device
 * would order nothing. Without a runtime there is nobody to ask. */
static int
check_context(ad_state *state, ad_stream stream, ad_device device)
{
    ad_context context;
    return ad_backend_is_there(device.type)
               ? ask_context(state, stream, device, &context)
               : 0;
}

static int
read_arguments(ad_state *state, PyObject *stream, PyObject *device,
               stream_object *out)
{
    ad_stream_argument argument;
    ad_device where = {0, -1};
    bool has_device = !ad_is_none(device);
    if (has_device && ad_parse_device(state, device, &where) < 0) {
        return -1;
    }
    if (ad_parse_stream_of(state, stream, where, &argument) < 0) {
        return -1;
    }
    if (argument.kind == AD_STREAM_OFF) {
        PyErr_SetString(PyExc_ValueError,
                        "stream=-1 names no stream that could be used");
        return -1;
    }
    int result = has_device ? check_context(state, argument.stream, where)
                            : find_device(state, &argument, &where);
    return result < 0 ? -1
                      : ad_stream_argument_ref(&argument, where, &out->on);
}

static void
stream_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    atomic_fetch_sub(&ad_n_stream_scopes, 1);
    ad_owner_unref(((stream_object *)object)->on.keep);
    type->tp_free(object);
    Py_DECREF(type);
}

/* --- current stream ------------------------------------------------------ */

/* The index in `scopes` of the innermost scope of this device, or -1. */
static Py_ssize_t
find_innermost(PyObject *scopes, ad_device device)
{
    device = ad_device_of_runtime(device);
    Py_ssize_t i = PyTuple_GET_SIZE(scopes) - 1;
    while (i >= 0) {
        stream_object *scope = (stream_object *)PyTuple_GET_ITEM(scopes, i);
        if (ad_device_equal(ad_device_of_runtime(scope->on.context.device),
                            device)) {
            break;
        }
        i--;
    }
    return i;
}

static bool
current_of(ad_device device, ad_stream_ref *out)
{
    PyObject *scopes = NULL;
    Py_ssize_t i = -1;
    if (PyContextVar_Get(scopes_in_use(), NULL, &scopes) == 0) {
        i = find_innermost(scopes, device);
    }
    if (i >= 0) {
        stream_object *scope = (stream_object *)PyTuple_GET_ITEM(scopes, i);
        *out = ad_stream_named((ad_context){device, NULL}, scope->on.stream,
                               scope->on.keep);
    }
    Py_XDECREF(scopes); /* the context holds a reference */
    return i >= 0;
}

/* Consumers written in C may call this without the GIL. */
static bool
find_current(ad_device device, ad_stream_ref *out)
{
    ad_py_entry entry;
    if (!ad_py_enter(ad_interpreter_of_thread(), &entry)) {
        return false;
    }
    bool is_found = current_of(device, out);
    ad_py_leave(&entry);
    return is_found;
}

/* Returns a new reference; the default is an empty tuple. */
static PyObject *
get_scopes(void)
{
    PyObject *scopes = NULL;
    return PyContextVar_Get(scopes_in_use(), NULL, &scopes) == 0 ? scopes
                                                                 : NULL;
}

/* Steals `scopes`, which may be NULL with an exception. */
static int
set_scopes(PyObject *scopes)
{
    PyObject *token =
        scopes != NULL ? PyContextVar_Set(scopes_in_use(), scopes) : NULL;
    Py_XDECREF(scopes);
    Py_XDECREF(token);
    return token != NULL ? 0 : -1;
}

static PyObject *
stream_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PyObject *before = get_scopes();
    PyObject *mine = before != NULL ? PyTuple_Pack(1, object) : NULL;
    PyObject *after = mine != NULL ? PySequence_Concat(before, mine) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(mine);
    return set_scopes(after) == 0 ? Py_NewRef(object) : NULL;
}

/* The index in `scopes` of the last entry that is `object`, or -1. */
static Py_ssize_t
find_entry(PyObject *scopes, PyObject *object)
{
    Py_ssize_t i = PyTuple_GET_SIZE(scopes) - 1;
    while (i >= 0 && PyTuple_GET_ITEM(scopes, i) != object) {
        i--;
    }
    return i;
}

static PyObject *
without(PyObject *scopes, Py_ssize_t i)
{
    PyObject *head = PyTuple_GetSlice(scopes, 0, i);
    PyObject *tail = PyTuple_GetSlice(scopes, i + 1, PyTuple_GET_SIZE(scopes));
    PyObject *rest =
        head != NULL && tail != NULL ? PySequence_Concat(head, tail) : NULL;
    Py_XDECREF(head);
    Py_XDECREF(tail);
    return rest;
}

/* Remove the scope's own entry in any case, and no other one. Blocks of
 * different devices may end in any order. Blocks of one device must nest:
 * otherwise work between the two ends has run on an unexpected stream. */
static PyObject *
stream_exit(PyObject *object, PyObject *Py_UNUSED(args))
{
    PyObject *scopes = get_scopes();
    if (scopes == NULL) {
        return NULL;
    }
    Py_ssize_t i = find_entry(scopes, object);
    bool is_innermost =
        find_innermost(scopes, ((stream_object *)object)->on.context.device) ==
        i;
    int result = i >= 0 ? set_scopes(without(scopes, i)) : 0;
    Py_DECREF(scopes);
    if (result < 0) {
        return NULL;
    }
    if (i < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this use_stream() is not in use here: it has not "
                        "been entered, or on another thread or in another "
                        "asyncio task, where it has to be left as well");
        return NULL;
    }
    if (!is_innermost) {
        PyErr_SetString(PyExc_RuntimeError,
                        "use_stream() blocks of one device must be left in "
                        "the reverse order of entering them: this one was "
                        "left while another one inside of it is still in use "
                        "(it stays so)");
        return NULL;
    }
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
                                ((stream_object *)object)->on.context.device);
}

static PyObject *
stream_repr(PyObject *object)
{
    char device[AD_DEVICE_NAME_SIZE];
    return PyUnicode_FromFormat(
        "<arrowdev.use_stream() of %s>",
        ad_device_format(((stream_object *)object)->on.context.device,
                         device));
}

static PyGetSetDef stream_getset[] = {
    {"device", stream_get_device, NULL, "The Device that it is used for.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_repr, stream_repr},
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
ad_stream_scope_type_init(ad_state *state, PyObject *module)
{
    ad_interpreter *here = ad_interpreter_here();
    if (here->stream_scopes == NULL) { /* first import */
        PyObject *none = PyTuple_New(0);
        here->stream_scopes =
            none != NULL ? PyContextVar_New("arrowdev.use_stream", none)
                         : NULL;
        Py_XDECREF(none);
        if (here->stream_scopes == NULL) {
            return -1;
        }
        ad_stream_set_current(find_current);
    }
    state->stream_type = PyType_FromModuleAndSpec(module, &stream_spec, NULL);
    return state->stream_type != NULL ? 0 : -1;
}

/* --- the function -------------------------------------------------------- */

static const ad_signature signature = {
    .function = "use_stream()",
    .n_positional = 2,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_stream, AD_STR_device),
};

static PyObject *
function_use_stream(ad_state *state, PyObject *const *values)
{
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
    atomic_fetch_add(&ad_n_stream_scopes, 1);
    self->on.keep = NULL;
    if (read_arguments(state, values[0], values[1], self) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

AD_ENTRY(ad_function_use_stream, ad_state_of_module, signature,
         function_use_stream(state, values));
