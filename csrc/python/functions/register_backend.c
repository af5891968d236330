/* arrowdev.register_backend(), and the search for backends among the entry
 * points of installed packages. */
#include <stdio.h>

#include "base/wait.h"
#include "device/backend.h"
#include "device/foreign.h"
#include "python/functions/functions.h"
#include "support/py_call.h"
#include "support/shown.h"
#include "support/waiting.h"

/* A table, with the device type as its context: ArrowDev_BackendCapsule(). */
#define CAPSULE_NAME "arrowdev_backend"

static const arrowdev_backend *
read_capsule(PyObject *capsule, int32_t *device_type)
{
    if (!PyCapsule_IsValid(capsule, CAPSULE_NAME)) {
        const char *name =
            PyCapsule_CheckExact(capsule) ? PyCapsule_GetName(capsule) : NULL;
        PyErr_Clear();
        return (const arrowdev_backend *)ad_raise_shown(
            PyExc_TypeError,
            "capsule must be a capsule \"" CAPSULE_NAME
            "\", as ArrowDev_BackendCapsule() makes it, not %.200s%s%.200s%s",
            Py_TYPE(capsule)->tp_name, name != NULL ? " \"" : "",
            name != NULL ? name : "", name != NULL ? "\"" : "");
    }
    intptr_t context = (intptr_t)PyCapsule_GetContext(capsule);
    if (context < INT32_MIN || context > INT32_MAX) {
        return (const arrowdev_backend *)PyErr_Format(
            PyExc_ValueError, "device type %zd is out of range",
            (Py_ssize_t)context);
    }
    *device_type = (int32_t)context;
    return (const arrowdev_backend *)PyCapsule_GetPointer(capsule,
                                                          CAPSULE_NAME);
}

int
ad_register_backend(ad_state *state, int32_t device_type,
                    const arrowdev_backend *table, bool again)
{
    ad_error err;
    return ad_raise_status(
        state, ad_foreign_register(device_type, table, again, &err), &err);
}

PyObject *
ad_function_register_backend(PyObject *module, PyObject *capsule)
{
    int32_t type;
    const arrowdev_backend *table = read_capsule(capsule, &type);
    if (table == NULL || ad_register_backend(ad_state_of_module(module), type,
                                             table, false) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* (capsule, device type). Two threads may find the same entry point, and each
 * start of the software device offers its table. */
PyObject *
ad_function_offer_backend(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    int wanted;
    int32_t type;
    if (!PyArg_ParseTuple(args, "Oi:_offer_backend", &capsule, &wanted)) {
        return NULL;
    }
    const arrowdev_backend *table = read_capsule(capsule, &type);
    if (table == NULL) {
        return NULL;
    }
    if (type != wanted) {
        return PyErr_Format(PyExc_ValueError,
                            "it gives a backend for the device type %d, not "
                            "%d",
                            (int)type, wanted);
    }
    if (ad_register_backend(ad_state_of_module(module), type, table, true) <
        0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- the search ---------------------------------------------------------- */

typedef struct search {
    int32_t device_type;
    char *why;
    bool is_over;
} search;

/* Returns 0, or -1 with an exception. */
static int
call_helper(search *self)
{
    PyObject *type = PyLong_FromLong(self->device_type);
    PyObject *why =
        type != NULL ? ad_call_helper("_backends", "find", &type, 1) : NULL;
    Py_XDECREF(type);
    const char *text =
        why != NULL && why != Py_None ? PyUnicode_AsUTF8(why) : "";
    if (why == NULL || text == NULL) {
        Py_XDECREF(why);
        return -1;
    }
    snprintf(self->why, AD_WHY_SIZE, "%s", text);
    Py_DECREF(why);
    return 0;
}

static void
run_search(void *argument)
{
    search *self = argument;
    self->is_over = call_helper(self) == 0;
    if (!self->is_over) {
        ad_pass_on_exception(); /* an interrupt, or no memory */
    }
}

static bool
search_entry_points(int32_t device_type, char *why)
{
    search self = {.device_type = device_type, .why = why};
    ad_interpreter *where = ad_interpreter_of_thread();
    return where != NULL && ad_call_with_gil(where, run_search, &self) &&
           self.is_over;
}

void
ad_register_backend_init(void)
{
    ad_backend_set_search(search_entry_points);
}
