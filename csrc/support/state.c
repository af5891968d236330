/* The modules that are loaded. */
#include "support/state.h"

/* The newest module comes first: one that is imported again has its own state.
 * The list is protected by the GIL of the main interpreter; other interpreters
 * are not supported. */
static ad_state *newest;

ad_state *
ad_state_current(void)
{
    if (newest == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "arrowdev is not loaded any more");
    }
    return newest;
}

void
ad_state_add(ad_state *state)
{
    state->next = newest;
    newest = state;
}

void
ad_state_remove(ad_state *state)
{
    ad_state **link = &newest;
    while (*link != NULL && *link != state) {
        link = &(*link)->next;
    }
    if (*link == state) {
        *link = state->next;
    }
}
