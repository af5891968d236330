#include "support/py_call.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/os.h"
#include "base/process.h"
#include "base/thread_local.h"
#include "base/wait.h"
#include "model/array.h"

static ad_mutex lock = AD_MUTEX_INIT;    /* of the list */
ad_interpreter *_Atomic ad_interpreters; /* newest first */
static AD_THREAD_LOCAL int n_calls_here; /* this thread's, to the main one */

/* --- interpreters -------------------------------------------------------- */

/* The one that is current in this state. An ended one has no state. */
ad_interpreter *
ad_interpreter_find(const PyInterpreterState *state)
{
    ad_mutex_lock(&lock);
    ad_interpreter *found = ad_interpreters;
    while (found != NULL && found->state != state) {
        found = found->next;
    }
    ad_mutex_unlock(&lock);
    return found;
}

ad_interpreter *
ad_interpreter_main(void)
{
    ad_mutex_lock(&lock);
    ad_interpreter *found = ad_interpreters;
    while (found != NULL && !found->is_main) {
        found = found->next;
    }
    ad_mutex_unlock(&lock);
    return found;
}

ad_interpreter *
ad_interpreter_of_thread(void)
{
    PyThreadState *last = ad_py_attached();
    if (last == NULL && Py_IsInitialized()) {
        last = PyGILState_GetThisThreadState();
    }
    return last != NULL
               ? ad_interpreter_find(PyThreadState_GetInterpreter(last))
               : ad_interpreter_main();
}

bool
ad_interpreter_wants_messages(void)
{
    ad_mutex_lock(&lock);
    ad_interpreter *it = ad_interpreters;
    while (it != NULL &&
           (it->state == NULL || atomic_load(&it->log_state) == AD_LOG_OFF)) {
        it = it->next;
    }
    ad_mutex_unlock(&lock);
    return it != NULL;
}

/* The child has no other threads. The thread that forks may be within a call,
 * for example in a signal handler. */
static void
forget_calls(void)
{
    ad_mutex_init(&lock);
    for (ad_interpreter *it = ad_interpreters; it != NULL; it = it->next) {
        atomic_store(&it->n_calls, it->is_main ? n_calls_here : 0);
    }
}

static ad_child_hook child_hook = {.run = forget_calls};

#if AD_PY_HAS_INTERPRETERS
#define END_NAME "arrowdev.interpreter"

/* The interpreter drops its dict after all modules. From now on its address
 * may be that of another one. */
static void
mark_ended(PyObject *capsule)
{
    ad_interpreter *self = PyCapsule_GetPointer(capsule, END_NAME);
    atomic_store(&self->state, NULL);
    Py_CLEAR(self->stream_scopes);
    Py_CLEAR(self->logging_name);
}

static int
watch_end(ad_interpreter *self)
{
    PyObject *dict = PyInterpreterState_GetDict(self->state);
    PyObject *capsule = PyCapsule_New(self, END_NAME, mark_ended);
    int result = -1;
    if (dict != NULL && capsule != NULL) {
        result = PyDict_SetItemString(dict, END_NAME, capsule);
    } else if (capsule != NULL) {
        PyErr_NoMemory();
    }
    Py_XDECREF(capsule);
    return result;
}
#endif

/* The main interpreter has no end that anything outlives. */
static ad_interpreter *
interpreter_new(PyInterpreterState *state)
{
    ad_interpreter *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    self->state = state;
    self->is_main = state == PyInterpreterState_Main();
#if PY_VERSION_HEX >= 0x030f0000
    self->view = PyInterpreterView_FromCurrent();
    if (self->view == NULL) {
        free(self);
        return NULL;
    }
#endif
#if AD_PY_HAS_INTERPRETERS
    if (!self->is_main && watch_end(self) < 0) {
#if PY_VERSION_HEX >= 0x030f0000
        PyInterpreterView_Close(self->view);
#endif
        free(self);
        return NULL;
    }
#endif
    return self;
}

ad_interpreter *
ad_interpreter_enroll(void)
{
    PyInterpreterState *state = PyInterpreterState_Get();
    ad_interpreter *self = ad_interpreter_find(state);
    (void)ad_process_add_child_hook(&child_hook);
    if (self != NULL) {
        atomic_store(&self->stopped_by, 0);
        return self;
    }
    self = interpreter_new(state);
    if (self == NULL) {
        return NULL;
    }
    ad_mutex_lock(&lock);
    if (ad_interpreters != NULL) {
        atomic_store(&ad_has_interpreters, true);
    }
    self->next = ad_interpreters;
    ad_interpreters = self;
    ad_mutex_unlock(&lock);
    return self;
}

/* --- attaching ----------------------------------------------------------- */

static bool
is_stopped_by_another(const ad_interpreter *self)
{
    unsigned long thread = atomic_load(&self->stopped_by);
    return thread != 0 && thread != PyThread_get_thread_ident();
}

static bool
is_attached_to(const ad_interpreter *self)
{
    PyThreadState *mine = ad_py_attached();
#if AD_PY_HAS_INTERPRETERS
    return mine != NULL && PyThreadState_GetInterpreter(mine) == self->state;
#else
    return mine != NULL;
#endif
}

/* The finalizing thread may attach while it holds the GIL, although
 * Py_IsInitialized() is false by then. Any other thread that asks for the GIL
 * of an interpreter that finalizes hangs, or ends by pthread_exit(), which
 * aborts the process in a noexcept function of C++. */
static bool
may_ask_for_gil(const ad_interpreter *self)
{
    return Py_IsInitialized() && !ad_py_is_finalizing() &&
           self->state != NULL && !is_stopped_by_another(self);
}

#if PY_VERSION_HEX >= 0x030f0000

/* A release keeps the interpreter from finalizing until it is over. A call
 * does so only until it has begun: the exit does not wait for ever for one
 * that never returns. */
static bool
ensure(ad_py_call *self, bool may_take_long)
{
    if (!may_take_long) {
        self->token = PyThreadState_EnsureFromView(self->where->view);
        return self->token != NULL;
    }
    PyInterpreterGuard *guard = PyInterpreterGuard_FromView(self->where->view);
    if (guard == NULL) {
        return false;
    }
    self->token = PyThreadState_Ensure(guard);
    PyInterpreterGuard_Close(guard);
    return self->token != NULL;
}

static void
undo(ad_py_call *self)
{
    PyThreadState_Release(self->token);
}

#elif AD_PY_HAS_INTERPRETERS

/* PyGILState_Ensure() attaches to the interpreter of the state that the thread
 * has, or to the main one. */
static bool
is_by_gil_state(const ad_interpreter *where)
{
    PyThreadState *last = PyGILState_GetThisThreadState();
    return last != NULL ? PyThreadState_GetInterpreter(last) == where->state
                        : where->is_main;
}

static bool
ensure(ad_py_call *self, bool Py_UNUSED(may_take_long))
{
    self->own = self->other = NULL;
    if (is_by_gil_state(self->where)) {
        self->gil = PyGILState_Ensure();
        return true;
    }
    self->own = PyThreadState_New(self->where->state);
    if (self->own == NULL) {
        return false;
    }
    if (ad_py_has_gil()) {
        self->other = PyEval_SaveThread();
    }
    PyEval_RestoreThread(self->own);
    return true;
}

static void
undo(ad_py_call *self)
{
    if (self->own == NULL) {
        PyGILState_Release(self->gil);
        return;
    }
    PyThreadState_Clear(self->own);
    PyThreadState_DeleteCurrent();
    if (self->other != NULL) {
        PyEval_RestoreThread(self->other);
    }
}

#else

static bool
ensure(ad_py_call *self, bool Py_UNUSED(may_take_long))
{
    self->gil = PyGILState_Ensure();
    return true;
}

static void
undo(ad_py_call *self)
{
    PyGILState_Release(self->gil);
}

#endif

static void
count(ad_interpreter *where, int change)
{
    atomic_fetch_add(&where->n_calls, change);
    n_calls_here += where->is_main ? change : 0;
}

/* The call is counted before the check, so that either this thread sees the
 * stop, or the stopping thread sees the call and waits for it. */
static bool
attach(ad_interpreter *where, ad_py_call *self,
       bool is_allowed(const ad_interpreter *where), bool may_take_long)
{
    if (where == NULL) {
        return false;
    }
    count(where, 1);
    self->where = where;
    if (!is_allowed(where) || !ensure(self, may_take_long)) {
        count(where, -1);
        return false;
    }
    return true;
}

static void
detach(ad_py_call *self)
{
    undo(self);
    count(self->where, -1);
}

bool
ad_py_enter(ad_interpreter *where, ad_py_entry *self)
{
    self->is_attached = where == NULL || !is_attached_to(where);
    if (self->is_attached &&
        !attach(where, &self->call, may_ask_for_gil, false)) {
        return false;
    }
    self->exception = ad_py_take_exception();
    return true;
}

void
ad_py_leave(ad_py_entry *self)
{
    ad_py_restore_exception(self->exception);
    if (self->is_attached) {
        detach(&self->call);
    }
}

/* After the stop a thread that holds the GIL is refused as well: a thread that
 * reads an endless iterable is almost always in a call, and the stop would
 * wait in vain. */
static bool
may_call(const ad_interpreter *where)
{
    if (atomic_load(&where->stopped_by) != 0) {
        return !is_stopped_by_another(where) && is_attached_to(where);
    }
    return is_attached_to(where) || may_ask_for_gil(where);
}

bool
ad_py_call_begin(ad_interpreter *where, ad_py_call *self)
{
    return attach(where, self, may_call, true);
}

void
ad_py_call_end(ad_py_call *self)
{
    detach(self);
}

/* A sub-interpreter does not end within a call on this thread. */
void
ad_py_calls_stop(ad_interpreter *where, int64_t deadline)
{
    int n_own = where->is_main ? n_calls_here : 0;
    atomic_store(&where->stopped_by, PyThread_get_thread_ident());
    while (atomic_load(&where->n_calls) > n_own && ad_now() < deadline) {
        ad_sleep(1000000);
    }
}

/* --- owners of Python objects -------------------------------------------- */

typedef struct object_owner {
    ad_owner base;
    PyObject *object;
    ad_interpreter *where;
    ad_leaf leaf;
} object_owner;

typedef struct buffer_owner {
    ad_owner base;
    ad_interpreter *where;
    Py_buffer buffer;
} buffer_owner;

static inline void
drop_object(ad_owner *base)
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
    if (ad_py_enter(((object_owner *)base)->where, &entry)) {
        drop_object(base);
        ad_py_leave(&entry);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

/* The GIL may be that of another interpreter. */
static void
object_destroy_with_gil(ad_owner *base)
{
    if (ad_py_is_ambiguous()) {
        object_destroy(base);
    } else {
        drop_object(base);
    }
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
    if (ad_py_enter(owner->where, &entry)) {
        PyBuffer_Release(&owner->buffer);
        ad_py_leave(&entry);
        free(owner);
    }
    /* Without an interpreter the owner is leaked on purpose. */
}

static const ad_owner_ops buffer_ops = {.destroy = buffer_destroy,
                                        .name = "Python buffer"};

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
    owner->where = ad_interpreter_here();
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
    owner->where = ad_interpreter_here();
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
    const object_owner *self = (const object_owner *)owner;
    return self->where == ad_interpreter_here() ? self->object : NULL;
}

/* --- helpers written in Python ------------------------------------------- */

PyObject *
ad_find_helper(const char *submodule, const char *function)
{
    char name[64];
    PyOS_snprintf(name, sizeof(name), "arrowdev.%s", submodule);
    PyObject *module = PyImport_ImportModule(name);
    if (module == NULL) {
        return NULL;
    }
    PyObject *callable = PyObject_GetAttrString(module, function);
    Py_DECREF(module);
    return callable;
}

PyObject *
ad_call_helper(const char *submodule, const char *function,
               PyObject *const *args, size_t n_args)
{
    PyObject *callable = ad_find_helper(submodule, function);
    if (callable == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(callable, args, n_args, NULL);
    Py_DECREF(callable);
    return result;
}
