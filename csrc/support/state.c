/* The modules that are loaded. */
#include "support/state.h"

#include "base/os.h"
#include "base/wait.h"
#include "support/py_call.h"

/* The newest module comes first: one that is imported again has its own state.
 * Several interpreters may each have some. */
static ad_state_link newest;
static ad_mutex lock = AD_MUTEX_INIT; /* of the list */

static ad_state *
newest_here(void)
{
    const ad_interpreter *here = ad_interpreter_here();
    ad_mutex_lock(&lock);
    ad_state *state = newest;
    while (state != NULL && state->interpreter != here) {
        state = state->next;
    }
    ad_mutex_unlock(&lock);
    return state;
}

ad_state *
ad_state_current(void)
{
    ad_state *found =
        ad_py_is_ambiguous()
            ? newest_here()
            : atomic_load_explicit(&newest, memory_order_acquire);
    if (found == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "arrowdev is not loaded any more");
    }
    return found;
}

ad_state *
ad_state_of_tensor_type(PyTypeObject *type)
{
    ad_mutex_lock(&lock);
    ad_state *state = newest;
    while (state != NULL && state->tensor_type != (PyObject *)type &&
           state->buffer_type != (PyObject *)type) {
        state = state->next;
    }
    ad_mutex_unlock(&lock);
    return state;
}

void
ad_state_add(ad_state *state)
{
    ad_mutex_lock(&lock);
    state->next = newest;
    atomic_store_explicit(&newest, state, memory_order_release);
    ad_mutex_unlock(&lock);
}

void
ad_state_remove(ad_state *state)
{
    ad_mutex_lock(&lock);
    ad_state_link *link = &newest;
    while (*link != NULL && *link != state) {
        link = &(*link)->next;
    }
    if (*link == state) {
        atomic_store_explicit(link, state->next, memory_order_release);
    }
    ad_mutex_unlock(&lock);
}
