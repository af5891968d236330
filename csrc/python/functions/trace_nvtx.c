#include "support/state.h"

#include "python/functions/trace_nvtx.h"

#include <stdatomic.h>

#include "base/os.h"
#include "support/compat.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* The library stays loaded, and these are set once. */
static int (*_Atomic push_c)(const char *name);
static int (*_Atomic pop_c)(void);

/* What the trace that is on has found. */
static atomic_bool has_library;
static atomic_bool has_module;

static bool
find_library(void)
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
find_module(void)
{
    PyObject *module = ad_py_imported("nvtx");
    Py_XDECREF(module);
    return module != NULL;
}

void
ad_nvtx_find(bool on)
{
    atomic_store(&has_library, on && find_library());
    atomic_store(&has_module, on && find_module());
}

/* The functions are looked up in the interpreter that calls, and are kept
 * nowhere: those of another one must not be touched. */
static PyObject *
begin_python(const char *name)
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

ad_nvtx_range
ad_nvtx_push(const char *name)
{
    ad_nvtx_range range = {0};
    if (atomic_load(&has_library)) {
        range.pop = atomic_load(&pop_c);
        (void)atomic_load (&push_c)(name);
    } else if (atomic_load(&has_module)) {
        PyObject *exception = ad_py_take_exception();
        range.pop_python = begin_python(name);
        ad_py_restore_exception(exception);
    }
    return range;
}

void
ad_nvtx_pop(ad_nvtx_range *range)
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
