#include "python/streams/stream_list.h"

#include <stdlib.h>

#include "python/types/array_stream_type.h"
#include "support/errors.h"
#include "support/py_call.h"

typedef struct py_list {
    ad_stream_list base;
    ad_state *state;
    PyObject *type;     /* of ArrayStream: keeps the module */
    PyObject *iterator; /* NULL: used up */
    long long n_taken;
    ad_kept_exception kept; /* that ended it */
} py_list;

static const char who[] = "the iterable of streams";

static ad_array_stream *
open_element(py_list *self, PyObject *element)
{
    PyObject *object = ad_array_stream_object(self->state, element);
    ad_array_stream *stream =
        object != NULL ? ad_stream_hand_over(object) : NULL;
    if (stream == NULL && !ad_exception_is_final(self->state)) {
        ad_raise_exchange(self->state, "stream", NULL,
                          "stream %lld, a %.100s, cannot be read",
                          self->n_taken, Py_TYPE(element)->tp_name);
    }
    PyObject *saved = ad_py_save_exception();
    Py_XDECREF(object);
    ad_py_reset_exception(saved);
    return stream;
}

/* NULL without an exception: the end. */
static ad_array_stream *
take_element(py_list *self)
{
    ad_array_stream *stream = NULL;
    PyObject *element =
        self->iterator != NULL ? PyIter_Next(self->iterator) : NULL;
    if (element != NULL) {
        stream = open_element(self, element);
        self->n_taken++;
    }
    PyObject *saved = ad_py_save_exception();
    Py_XDECREF(element);
    if (stream == NULL) {
        Py_CLEAR(self->iterator);
    }
    ad_py_reset_exception(saved);
    return stream;
}

static ad_status
list_next(ad_stream_list *base, ad_array_stream **out, ad_error *err)
{
    py_list *self = (py_list *)base;
    PyGILState_STATE gil;
    ad_status status = AD_OK;
    if (!ad_py_call_begin(&gil)) {
        return ad_keep_exit(&self->kept, who, err);
    }
    *out = take_element(self);
    if (PyErr_Occurred()) {
        status = ad_keep_exception(self->state, &self->kept, who, err);
    }
    ad_py_call_end(gil);
    return status;
}

static const char *
list_last_error(ad_stream_list *base, int *code)
{
    const py_list *self = (const py_list *)base;
    *code = self->kept.code;
    return self->kept.text;
}

static void
list_destroy(ad_stream_list *base)
{
    py_list *self = (py_list *)base;
    PyGILState_STATE gil;
    ad_kept_clear(&self->kept);
    if (ad_py_enter(&gil)) {
        PyObject *saved = ad_py_save_exception();
        Py_CLEAR(self->iterator);
        Py_CLEAR(self->type);
        ad_py_reset_exception(saved);
        PyGILState_Release(gil);
    }
    /* Otherwise the interpreter is gone: its objects leak on purpose. */
    free(self);
}

ad_stream_list *
ad_py_stream_list_new(ad_state *state, PyObject *iterable)
{
    PyObject *iterator = PyObject_GetIter(iterable);
    if (iterator == NULL) {
        return NULL;
    }
    py_list *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        Py_DECREF(iterator);
        PyErr_NoMemory();
        return NULL;
    }
    self->base = (ad_stream_list){list_next, list_last_error, list_destroy,
                                  &self->kept};
    self->state = state;
    self->type = Py_NewRef(state->array_stream_type);
    self->iterator = iterator;
    return &self->base;
}

int
ad_py_stream_list_traverse(ad_stream_list *list, visitproc visit, void *arg)
{
    if (list->next == list_next) {
        Py_VISIT(((py_list *)list)->iterator);
    }
    return 0;
}
