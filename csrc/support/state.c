/* The modules that are loaded. */
#include "support/state.h"

/* The newest module comes first: one that is imported again has its own state.
 * Other interpreters are not supported. */
static ad_state_link newest;
static ad_py_mutex lock; /* of the list */

ad_state *
ad_state_current(void)
{
    ad_state *found = atomic_load_explicit(&newest, memory_order_acquire);
    if (found == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "arrowdev is not loaded any more");
    }
    return found;
}

ad_state *
ad_state_of_tensor_type(PyTypeObject *type)
{
    ad_py_lock(&lock);
    ad_state *state = newest;
    while (state != NULL && state->tensor_type != (PyObject *)type &&
           state->buffer_type != (PyObject *)type) {
        state = state->next;
    }
    ad_py_unlock(&lock);
    return state;
}

void
ad_state_add(ad_state *state)
{
    ad_py_lock(&lock);
    state->next = newest;
    atomic_store_explicit(&newest, state, memory_order_release);
    ad_py_unlock(&lock);
}

void
ad_state_remove(ad_state *state)
{
    ad_py_lock(&lock);
    ad_state_link *link = &newest;
    while (*link != NULL && *link != state) {
        link = &(*link)->next;
    }
    if (*link == state) {
        atomic_store_explicit(link, state->next, memory_order_release);
    }
    ad_py_unlock(&lock);
}
