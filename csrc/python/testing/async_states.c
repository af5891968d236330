/* The state machine of an async stream, for the scripted producers and handlers
 * of arrowdev.testing. */
#include "python/testing/testing.h"

#include "async/states.h"

static int
add_step(PyObject *steps, ad_async_state state, ad_async_event event)
{
    const ad_async_step *step = ad_async_step_of(state, event);
    int result = -1;
    PyObject *key = Py_BuildValue("(ss)", ad_async_state_name(state),
                                  ad_async_event_name(event));
    PyObject *value = Py_BuildValue("(szz)", ad_async_state_name(step->next),
                                    step->rule_id, step->rule);
    if (key != NULL && value != NULL) {
        result = PyDict_SetItem(steps, key, value);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    return result;
}

/* Returns {(state, event): (next state, id of the broken rule or None, its text
 * or None)}. */
PyObject *
ad_testing_async_states(PyObject *Py_UNUSED(module),
                        PyObject *Py_UNUSED(ignored))
{
    PyObject *steps = PyDict_New();
    for (int state = 0; steps != NULL && state < AD_ASYNC_N_STATES; state++) {
        for (int event = 0; event < AD_ASYNC_N_EVENTS; event++) {
            if (add_step(steps, state, event) < 0) {
                Py_CLEAR(steps);
                break;
            }
        }
    }
    return steps;
}
