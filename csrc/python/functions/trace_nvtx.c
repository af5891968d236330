#include "support/state.h"

#include "python/functions/trace_nvtx.h"

#include <dlfcn.h>

#include "support/py_call.h"
#include "support/waiting.h"

/* Found by the last trace. A library stays loaded, a module alive, so that a
 * range that has begun can end. */
static int (*push_c)(const char *name);
static int (*pop_c)(void);
static PyObject *push_python;
static PyObject *pop_python;
static bool is_on;

static void
find_library(void)
{
    void *library = dlopen("libnvToolsExt.so.1", RTLD_NOLOAD | RTLD_NOW);
    if (library != NULL) {
        push_c = (int (*)(const char *))dlsym(library, "nvtxRangePushA");
        pop_c = (int (*)(void))dlsym(library, "nvtxRangePop");
    }
    if (push_c == NULL || pop_c == NULL) {
        push_c = NULL;
    }
}

static void
find_module(void)
{
    PyObject *module = ad_py_imported("nvtx");
    Py_CLEAR(push_python);
    if (module == NULL) {
        return;
    }
    PyObject *push = PyObject_GetAttrString(module, "push_range");
    PyObject *pop =
        push != NULL ? PyObject_GetAttrString(module, "pop_range") : NULL;
    Py_DECREF(module);
    if (pop == NULL) {
        Py_XDECREF(push);
        ad_pass_on_exception();
        return;
    }
    Py_XSETREF(push_python, push);
    Py_XSETREF(pop_python, pop);
}

void
ad_nvtx_find(bool on)
{
    is_on = on;
    if (on) {
        find_library();
        find_module();
    }
}

/* `name` NULL: no argument. */
static void
call_python(PyObject *function, const char *name)
{
    PyObject *exception = ad_py_take_exception();
    PyObject *result = name != NULL
                           ? PyObject_CallFunction(function, "s", name)
                           : PyObject_CallNoArgs(function);
    if (result == NULL) {
        ad_pass_on_exception();
    }
    Py_XDECREF(result);
    ad_py_restore_exception(exception);
}

bool
ad_nvtx_push(const char *name)
{
    if (!is_on || (push_c == NULL && push_python == NULL)) {
        return false;
    }
    if (push_c != NULL) {
        (void)push_c(name);
    } else {
        call_python(push_python, name);
    }
    return true;
}

void
ad_nvtx_pop(void)
{
    if (push_c != NULL) {
        (void)pop_c();
    } else {
        call_python(pop_python, NULL);
    }
}
