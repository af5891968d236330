#include "python/functions/trace_points.h"

#include <stdlib.h>
#include <string.h>

#include "abi/dlpack.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread_local.h"
#include "copy/session.h"
#include "device/backend.h"
#include "model/array.h"
#include "model/dtype.h"
#include "model/tensor.h"
#include "protocol/protocol.h"
#include "support/capsule.h"
#include "support/compat.h"
#include "support/objects.h"
#include "support/waiting.h"

/* The import that this thread has begun, whose protocol fills it in; in it,
 * further imports are parts of it. */
static AD_THREAD_LOCAL ad_trace_event *begun;

static ad_trace_event
new_event(ad_trace_kind kind, const char *name)
{
    return (ad_trace_event){
        .kind = kind,
        .trace = ad_trace_number(),
        .start = ad_now(),
        .name = name,
        .ndim = -1,
    };
}

/* --- what an object is --------------------------------------------------- */

static void
describe_array(const ad_array *array, ad_trace_event *event)
{
    ad_text name = {0};
    ad_type type;
    event->device = array->memory.device;
    event->ndim = 1;
    event->shape[0] = array->length;
    event->address = ad_node_some_buffer(array->node);
    if (array->node->dictionary == NULL &&
        ad_type_parse(array->schema.node->format, &type, NULL) == AD_OK &&
        type.layout == AD_LAYOUT_FIXED) {
        event->nbytes = array->length * type.bit_width / 8;
        event->address = array->node->buffers[1];
    }
    if (ad_type_print(array->schema.node, &name, NULL) == AD_OK) {
        strncpy(event->type, ad_text_string(&name), sizeof(event->type) - 1);
    }
    ad_text_clear(&name);
}

static void
describe_tensor(const ad_tensor *tensor, ad_trace_event *event)
{
    char name[AD_DTYPE_NAME_SIZE];
    event->device = tensor->memory.device;
    event->ndim = tensor->ndim;
    for (int32_t i = 0; i < tensor->ndim && i < AD_TRACE_DIMENSIONS; i++) {
        event->shape[i] = tensor->shape[i];
    }
    event->address = tensor->data;
    event->nbytes = ad_tensor_nbytes(tensor);
    strncpy(event->type, ad_dtype_format(tensor->dtype, name),
            sizeof(event->type) - 1);
}

static void
describe(PyObject *object, ad_trace_event *event)
{
    ad_state *state = ad_state_current();
    if (object != NULL && ad_is_array(state, object)) {
        describe_array(ad_array_of(object), event);
    } else if (object != NULL && ad_is_tensor(state, object)) {
        describe_tensor(ad_tensor_of(object), event);
    }
}

/* --- memory that comes in ------------------------------------------------ */

/* In front of the owner of imported memory. */
typedef struct traced_owner {
    ad_owner base;
    ad_owner *inner;
    uint64_t memory;
    unsigned trace;
} traced_owner;

static void
add_release(unsigned trace, uint64_t memory, const char *name, int64_t start)
{
    const ad_trace_event event = {
        .kind = AD_TRACE_RELEASE,
        .trace = trace,
        .start = start,
        .end = ad_now(),
        .name = name,
        .memory = memory,
        .ndim = -1,
    };
    ad_trace_add(&event);
}

static void
release_owner(ad_owner *base, void (*unref)(ad_owner *owner))
{
    traced_owner self = *(traced_owner *)base;
    int64_t start = ad_trace_is_on() ? ad_now() : 0;
    free(base);
    unref(self.inner);
    if (start != 0) {
        add_release(self.trace, self.memory, "imported", start);
    }
}

static void
destroy_owner(ad_owner *base)
{
    release_owner(base, ad_owner_unref);
}

static void
destroy_owner_with_gil(ad_owner *base)
{
    release_owner(base, ad_owner_unref_with_gil);
}

static ad_owner *const *
members(const ad_owner *base, size_t *n)
{
    *n = 1;
    return &((const traced_owner *)base)->inner;
}

static const ad_owner_ops traced_ops = {
    .destroy = destroy_owner,
    .members = members,
    .destroy_with_gil = destroy_owner_with_gil,
    .name = "traced",
};

/* Without memory the release is not recorded. */
static void
trace_owner(ad_memory *memory, ad_trace_event *event)
{
    traced_owner *self = memory->owner != NULL ? malloc(sizeof(*self)) : NULL;
    event->memory = ad_trace_new_memory();
    if (self != NULL) {
        ad_owner_init(&self->base, &traced_ops);
        self->inner = memory->owner;
        self->memory = event->memory;
        self->trace = event->trace;
        memory->owner = &self->base;
    }
}

/* The same for the memory of an Array or a Tensor that nobody else knows. */
static void
trace_new_object(PyObject *object, ad_trace_event *event)
{
    ad_state *state = ad_state_current();
    if (Py_REFCNT(object) == 1 && ad_is_array(state, object)) {
        trace_owner(&ad_array_of(object)->memory, event);
    } else if (Py_REFCNT(object) == 1 && ad_is_tensor(state, object)) {
        trace_owner(&ad_tensor_of(object)->memory, event);
    }
}

static void
take_import(const ad_protocol *protocol, ad_imported *out,
            ad_trace_event *event)
{
    event->name = protocol->name;
    event->is_done = true;
    if (out->is_array) {
        trace_owner(&out->array.memory, event);
        describe_array(&out->array, event);
    } else {
        trace_owner(&out->tensor.tensor.memory, event);
        describe_tensor(&out->tensor.tensor, event);
    }
}

static const ad_protocol *untraced[AD_N_PROTOCOLS];
static ad_protocol traced[AD_N_PROTOCOLS];

/* In array(), tensor(), ... fills in their event; elsewhere, as in
 * record_batch() and in the C API, adds one. */
static ad_import_result
traced_import(const ad_protocol *self, ad_state *state, PyObject *object,
              const ad_type_slot *slot, const ad_request *request,
              ad_imported *out)
{
    const ad_protocol *protocol = untraced[self - traced];
    ad_trace_event *outer = begun;
    ad_trace_event event = new_event(AD_TRACE_IMPORT, protocol->name);
    PyTypeObject *from = (PyTypeObject *)Py_NewRef(Py_TYPE(object));
    begun = &event;
    event.is_done = true; /* a part of this one adds no event */
    ad_import_result result =
        protocol->import(protocol, state, object, slot, request, out);
    begun = outer;
    if (result == AD_IMPORT_DONE && outer == NULL) {
        event.from = from;
        take_import(protocol, out, &event);
        event.end = ad_now();
        ad_trace_add_python(&event);
    } else if (result == AD_IMPORT_DONE && !outer->is_done) {
        take_import(protocol, out, outer);
    }
    Py_DECREF(from);
    return result;
}

static void
set_protocols(bool on)
{
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        const ad_protocol *protocol = ad_protocols[i];
        if (untraced[i] == NULL) { /* by the first trace */
            untraced[i] = protocol;
            traced[i] = *protocol;
            traced[i].import = traced_import;
        }
        AD_PY_STORE(ad_imports[i],
                    on && protocol->import != NULL ? &traced[i] : protocol);
    }
}

/* --- memory that goes out ------------------------------------------------ */

/* What is behind the release of a struct in place of its own private data. The
 * struct may be moved; only its release function looks at these. */
typedef struct handed_out {
    void *private_data;
    union {
        void (*array)(struct ArrowArray *self);
        void (*legacy)(ad_dl_managed *self);
        void (*versioned)(ad_dl_managed_versioned *self);
    } release;
    uint64_t memory;
    unsigned trace;
} handed_out;

static handed_out *
hand_out(void *private_data, ad_trace_event *event)
{
    handed_out *self = malloc(sizeof(*self));
    if (self != NULL) {
        event->memory = ad_trace_new_memory();
        self->private_data = private_data;
        self->memory = event->memory;
        self->trace = event->trace;
    }
    return self;
}

/* Defines a release function that gives the struct back what was its own. */
#define DEFINE_RELEASE(function, type, data, member, field)                   \
    static void function(type *self)                                          \
    {                                                                         \
        handed_out was = *(handed_out *)self->data;                           \
        int64_t start = ad_trace_is_on() ? ad_now() : 0;                      \
        free(self->data);                                                     \
        self->data = was.private_data;                                        \
        self->member = was.release.field;                                     \
        self->member(self);                                                   \
        if (start != 0) {                                                     \
            add_release(was.trace, was.memory, "exported", start);            \
        }                                                                     \
    }

DEFINE_RELEASE(release_array, struct ArrowArray, private_data, release, array)
DEFINE_RELEASE(delete_legacy, ad_dl_managed, manager_ctx, deleter, legacy)
DEFINE_RELEASE(delete_versioned, ad_dl_managed_versioned, manager_ctx, deleter,
               versioned)

#define TRACE_RELEASE(self, data, member, field, traced_release)              \
    do {                                                                      \
        handed_out *out =                                                     \
            (self)->member != NULL ? hand_out((self)->data, event) : NULL;    \
        if (out != NULL) {                                                    \
            out->release.field = (self)->member;                              \
            (self)->data = out;                                               \
            (self)->member = traced_release;                                  \
        }                                                                     \
    } while (0)

static void
trace_capsule(PyObject *capsule, ad_trace_event *event)
{
    if (ad_capsule_has_name(capsule, AD_CAPSULE_DEVICE_ARRAY)) {
        struct ArrowDeviceArray *array = PyCapsule_GetPointer(
            capsule, ad_capsule_name(AD_CAPSULE_DEVICE_ARRAY));
        TRACE_RELEASE(&array->array, private_data, release, array,
                      release_array);
    } else if (ad_capsule_has_name(capsule, AD_CAPSULE_ARRAY)) {
        struct ArrowArray *array =
            PyCapsule_GetPointer(capsule, ad_capsule_name(AD_CAPSULE_ARRAY));
        TRACE_RELEASE(array, private_data, release, array, release_array);
    } else if (ad_capsule_has_name(capsule, AD_CAPSULE_DLPACK)) {
        ad_dl_managed *managed =
            PyCapsule_GetPointer(capsule, ad_capsule_name(AD_CAPSULE_DLPACK));
        TRACE_RELEASE(managed, manager_ctx, deleter, legacy, delete_legacy);
    } else if (ad_capsule_has_name(capsule, AD_CAPSULE_DLPACK_VERSIONED)) {
        ad_dl_managed_versioned *managed = PyCapsule_GetPointer(
            capsule, ad_capsule_name(AD_CAPSULE_DLPACK_VERSIONED));
        TRACE_RELEASE(managed, manager_ctx, deleter, versioned,
                      delete_versioned);
    }
}

static void
trace_result(PyObject *result, ad_trace_event *event)
{
    if (ad_is_capsule_pair(result)) {
        trace_capsule(PyTuple_GET_ITEM(result, 1), event);
    } else if (PyCapsule_CheckExact(result)) {
        trace_capsule(result, event);
    }
}

/* --- NVTX ----------------------------------------------------------------- */

/* Ranges around what a trace records, so that Nsight shows the same names. Only
 * where the program has loaded libnvToolsExt, or imported `nvtx`. */

/* A range that has begun, with what ends it; zeroed where there is no NVTX. */
typedef struct nvtx_range {
    int (*pop)(void);     /* of the library */
    PyObject *pop_python; /* of the module of this interpreter */
} nvtx_range;

/* The library stays loaded, and these are set once. */
static int (*_Atomic push_c)(const char *name);
static int (*_Atomic pop_c)(void);

/* What the trace that is on has found. */
static atomic_bool has_library;
static atomic_bool has_module;

static bool
find_nvtx_library(void)
{
    if (atomic_load(&push_c) == NULL) {
        void *library = ad_dl_open("libnvToolsExt.so.1", true);
        void *push =
            library != NULL ? ad_dl_symbol(library, "nvtxRangePushA") : NULL;
        void *pop =
            library != NULL ? ad_dl_symbol(library, "nvtxRangePop") : NULL;
        if (push == NULL || pop == NULL) {
            return false;
        }
        atomic_store(&pop_c, (int (*)(void))pop);
        atomic_store(&push_c, (int (*)(const char *))push);
    }
    return true;
}

static bool
find_nvtx_module(void)
{
    PyObject *module = ad_py_imported("nvtx");
    Py_XDECREF(module);
    return module != NULL;
}

/* Looks for the library and the module, or forgets them. */
static void
find_nvtx(bool on)
{
    atomic_store(&has_library, on && find_nvtx_library());
    atomic_store(&has_module, on && find_nvtx_module());
}

/* The functions are looked up in the interpreter that calls, and are kept
 * nowhere: those of another one must not be touched. */
static PyObject *
begin_python_range(const char *name)
{
    PyObject *module = ad_py_imported("nvtx");
    PyObject *pop =
        module != NULL ? PyObject_GetAttrString(module, "pop_range") : NULL;
    PyObject *result =
        pop != NULL ? PyObject_CallMethod(module, "push_range", "s", name)
                    : NULL;
    Py_XDECREF(module);
    if (result == NULL) {
        Py_CLEAR(pop);
        if (PyErr_Occurred()) {
            ad_pass_on_exception();
        }
    }
    Py_XDECREF(result);
    return pop;
}

/* Begins a range, on the thread that ends it. A pending exception stays. */
static nvtx_range
begin_range(const char *name)
{
    nvtx_range range = {0};
    if (atomic_load(&has_library)) {
        range.pop = atomic_load(&pop_c);
        (void)atomic_load (&push_c)(name);
    } else if (atomic_load(&has_module)) {
        PyObject *exception = ad_py_take_exception();
        range.pop_python = begin_python_range(name);
        ad_py_restore_exception(exception);
    }
    return range;
}

static void
end_range(nvtx_range *range)
{
    if (range->pop != NULL) {
        (void)range->pop();
    }
    if (range->pop_python == NULL) {
        return;
    }
    PyObject *exception = ad_py_take_exception();
    PyObject *result = PyObject_CallNoArgs(range->pop_python);
    if (result == NULL) {
        ad_pass_on_exception();
    }
    Py_XDECREF(result);
    Py_CLEAR(range->pop_python);
    ad_py_restore_exception(exception);
}

/* --- the points ---------------------------------------------------------- */

enum {
    MAX_POINTS = 32
};

/* A function, method or getter, and its traced form. A point stays what it is:
 * a thread may be in its call when the trace ends and when the next one begins,
 * and the traced form of a method may be bound. */
typedef struct point {
    ad_trace_kind kind;
    bool is_method; /* the first argument is `self` */
    bool has_parts; /* an import of several objects, which adds one event */
    PyMethodDef *method;
    PyMethodDef traced_method;
    PyGetSetDef *getset;
    PyGetSetDef traced_getset;
} point;

static point points[MAX_POINTS];
static size_t n_points;

/* The descriptors that lead to them, of the interpreter that is traced. Types
 * share points. */
static struct {
    PyObject *descriptor;
    point *point;
} exchanged[MAX_POINTS];
static size_t n_exchanged;

static void
finish(PyObject *subject, PyObject *result, ad_trace_event *event)
{
    bool is_known = event->memory != 0; /* a protocol has described it */
    event->end = ad_now();
    event->is_done = result != NULL;
    event->from = subject != NULL ? Py_TYPE(subject) : NULL;
    if (!is_known) {
        describe(event->kind == AD_TRACE_IMPORT ? result : subject, event);
    }
    if (!is_known && event->kind == AD_TRACE_IMPORT && result != NULL) {
        trace_new_object(result, event);
    }
    if (event->kind != AD_TRACE_EXPORT) {
        event->to = result != NULL ? Py_TYPE(result) : NULL;
    } else if (result != NULL) {
        trace_result(result, event);
    }
    ad_trace_add_python(event);
}

/* Whether the object is arrowdev's own, so that it is not imported. */
static bool
is_ours(PyObject *object)
{
    ad_state *state = ad_state_current();
    return object == NULL || ad_is_array(state, object) ||
           ad_is_tensor(state, object) ||
           Py_TYPE(object) == (PyTypeObject *)state->array_stream_type;
}

static PyObject *
call(const point *self, PyObject *object, PyObject *const *args, Py_ssize_t n,
     PyObject *kwnames)
{
    ad_fastcall *function =
        (ad_fastcall *)(void (*)(void))self->method->ml_meth;
    PyObject *subject = self->is_method ? object : n > 0 ? args[0] : NULL;
    bool is_import = self->kind == AD_TRACE_IMPORT;
    if (!ad_trace_is_on() || (is_import && (begun || is_ours(subject)))) {
        return function(object, args, n, kwnames);
    }
    ad_trace_event event = new_event(self->kind, self->method->ml_name);
    ad_trace_event *outer = begun;
    if (is_import) {
        begun = &event;
        event.is_done = self->has_parts;
    }
    nvtx_range range = begin_range(self->method->ml_name);
    PyObject *result = function(object, args, n, kwnames);
    end_range(&range);
    begun = outer;
    finish(subject, result, &event);
    return result;
}

/* A PyCFunction is not told through which PyMethodDef it was called. */
/* clang-format off */
#define FOR_EACH_POINT(X)                                                     \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)                                   \
    X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)                             \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)                           \
    X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */

#define DEFINE_CALL(i)                                                        \
    static PyObject *call_##i(PyObject *object, PyObject *const *args,        \
                              Py_ssize_t n, PyObject *kwnames)                \
    {                                                                         \
        return call(&points[i], object, args, n, kwnames);                    \
    }
FOR_EACH_POINT(DEFINE_CALL)

#define CALL(i) call_##i,
static ad_fastcall *const calls[MAX_POINTS] = {FOR_EACH_POINT(CALL)};

static PyObject *
get(PyObject *object, void *closure)
{
    const point *self = closure;
    getter function = self->getset->get;
    if (!ad_trace_is_on()) {
        return function(object, self->getset->closure);
    }
    ad_trace_event event = new_event(AD_TRACE_EXPORT, self->getset->name);
    PyObject *result = function(object, self->getset->closure);
    if (result != NULL) {
        finish(object, result, &event);
    }
    return result;
}

/* --- slots of the types -------------------------------------------------- */

static iternextfunc untraced_next;

static int
get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    ad_trace_event event = new_event(AD_TRACE_EXPORT, "buffer protocol");
    int result = ad_buffer_get(object, view, flags);
    if (result == 0 && ad_trace_is_on()) {
        finish(object, view->obj, &event);
    }
    return result;
}

static PyObject *
next_batch(PyObject *object)
{
    if (!ad_trace_is_on() || begun != NULL) {
        return untraced_next(object);
    }
    ad_trace_event event = new_event(AD_TRACE_IMPORT, "get_next");
    begun = &event;
    PyObject *result = untraced_next(object);
    begun = NULL;
    if (result != NULL) {
        finish(NULL, result, &event);
    }
    return result;
}

static void
set_slots(ad_state *state, bool on)
{
    PyObject *const types[] = {state->array_type, state->tensor_type,
                               state->buffer_type};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        PyBufferProcs *procs = ((PyTypeObject *)types[i])->tp_as_buffer;
        AD_PY_STORE(procs->bf_getbuffer, on ? get_buffer : ad_buffer_get);
    }
    PyTypeObject *stream = (PyTypeObject *)state->array_stream_type;
    if (untraced_next == NULL) {
        untraced_next = stream->tp_iternext;
    }
    AD_PY_STORE(stream->tp_iternext, on ? next_batch : untraced_next);
}

/* --- finding the points -------------------------------------------------- */

static bool
is_traced_getter(const char *name)
{
    static const char *const names[] = {"__cuda_array_interface__",
                                        "__array_interface__",
                                        "__sycl_usm_array_interface__"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool
is_fastcall(const PyMethodDef *method)
{
    return method->ml_flags == (METH_FASTCALL | METH_KEYWORDS);
}

/* A getter whose closure is a PyMethodDef gives a method. */
static void
fill_getset(point *self)
{
    self->traced_getset = *self->getset;
    if (is_traced_getter(self->getset->name)) {
        self->traced_getset.get = get;
        self->traced_getset.closure = self;
    } else {
        self->method = self->getset->closure;
        self->traced_getset.closure = &self->traced_method;
    }
}

/* The point of a function or method, or of a getter. NULL with an exception. */
static point *
find_point(PyMethodDef *method, PyGetSetDef *getset, bool is_method,
           ad_trace_kind kind)
{
    for (size_t i = 0; i < n_points; i++) {
        if (getset != NULL
                ? points[i].getset == getset
                : points[i].method == method && points[i].getset == NULL) {
            return &points[i];
        }
    }
    if (n_points == MAX_POINTS) {
        PyErr_SetString(PyExc_SystemError, "too many points of a trace");
        return NULL;
    }
    point *self = &points[n_points];
    self->kind = kind;
    self->method = method;
    self->getset = getset;
    self->is_method = is_method;
    if (getset != NULL) {
        fill_getset(self);
    }
    if (self->method != NULL) {
        self->has_parts = strcmp(self->method->ml_name, "record_batch") == 0;
        self->traced_method = *self->method;
        self->traced_method.ml_meth =
            (PyCFunction)(void (*)(void))calls[n_points];
    }
    n_points++;
    return self;
}

static int
add_point(PyObject *descriptor, point *self)
{
    if (self == NULL) {
        return -1;
    }
    if (n_exchanged == MAX_POINTS) {
        PyErr_SetString(PyExc_SystemError, "too many points of a trace");
        return -1;
    }
    exchanged[n_exchanged].descriptor = Py_NewRef(descriptor);
    exchanged[n_exchanged++].point = self;
    return 0;
}

/* What somebody has put in the place of the module's function is left alone. */
static int
add_function(PyObject *module, const char *name, ad_trace_kind kind)
{
    PyObject *function = PyObject_GetAttrString(module, name);
    int result = function != NULL ? 0 : -1;
    if (function != NULL && PyCFunction_CheckExact(function) &&
        PyCFunction_GET_SELF(function) == module) {
        PyMethodDef *method = ((PyCFunctionObject *)function)->m_ml;
        if (is_fastcall(method)) {
            point *self = find_point(method, NULL, false, kind);
            result = add_point(function, self);
        }
    }
    Py_XDECREF(function);
    return result;
}

static int
add_descriptor(PyObject *descriptor, ad_trace_kind kind)
{
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        PyGetSetDef *getset = ((PyGetSetDescrObject *)descriptor)->d_getset;
        return add_point(descriptor, find_point(NULL, getset, true, kind));
    }
    if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
        PyMethodDef *method = ((PyMethodDescrObject *)descriptor)->d_method;
        if (is_fastcall(method)) {
            point *self = find_point(method, NULL, true, kind);
            return add_point(descriptor, self);
        }
    }
    return 0;
}

static int
add_points_of(PyObject *type)
{
    static const char *const names[] = {"__arrow_c_device_array__",
                                        "__arrow_c_array__",
                                        "__arrow_c_device_stream__",
                                        "__arrow_c_stream__",
                                        "__dlpack__",
                                        "__cuda_array_interface__",
                                        "__sycl_usm_array_interface__",
                                        "__array_interface__",
                                        "into"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        ad_trace_kind kind =
            strcmp(names[i], "into") == 0 ? AD_TRACE_CONVERT : AD_TRACE_EXPORT;
        PyObject *dict = ad_py_type_dict((PyTypeObject *)type);
        PyObject *found =
            dict != NULL ? PyDict_GetItemString(dict, names[i]) : NULL;
        int result = found != NULL ? add_descriptor(found, kind) : 0;
        Py_XDECREF(dict);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

static int
find_points(ad_state *state, PyObject *module)
{
    static const char *const imports[] = {"array", "tensor", "from_dlpack",
                                          "array_stream", "record_batch"};
    PyObject *const types[] = {state->array_type, state->tensor_type,
                               state->buffer_type, state->array_stream_type};
    int result = 0;
    for (size_t i = 0; i < sizeof(imports) / sizeof(*imports) && result == 0;
         i++) {
        result = add_function(module, imports[i], AD_TRACE_IMPORT);
    }
    result = result == 0 ? add_function(module, "convert", AD_TRACE_CONVERT)
                         : result;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types) && result == 0;
         i++) {
        result = add_points_of(types[i]);
    }
    return result;
}

static void
drop_descriptors(void)
{
    for (size_t i = 0; i < n_exchanged; i++) {
        Py_CLEAR(exchanged[i].descriptor);
    }
    n_exchanged = 0;
}

static void
exchange(PyObject *descriptor, point *self, bool on)
{
    PyMethodDef *method = on ? &self->traced_method : self->method;
    if (PyCFunction_CheckExact(descriptor)) {
        AD_PY_STORE(((PyCFunctionObject *)descriptor)->m_ml, method);
    } else if (self->getset != NULL) {
        AD_PY_STORE(((PyGetSetDescrObject *)descriptor)->d_getset,
                    on ? &self->traced_getset : self->getset);
    } else {
        AD_PY_STORE(((PyMethodDescrObject *)descriptor)->d_method, method);
    }
}

int
ad_trace_points_set(PyObject *module, bool on)
{
    ad_state *state = ad_state_of_module(module);
    if (on && find_points(state, module) < 0) {
        drop_descriptors();
        return -1;
    }
    find_nvtx(on);
    for (size_t i = 0; i < n_exchanged; i++) {
        exchange(exchanged[i].descriptor, exchanged[i].point, on);
    }
    if (!on) {
        drop_descriptors();
    }
    set_slots(state, on);
    set_protocols(on);
    ad_backends_trace(on);
    return 0;
}
