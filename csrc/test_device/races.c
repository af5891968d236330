/* The search for races and what queues have run, for Python: who calls, and
 * what was found.
 */
#include <string.h>

#include "python/functions/for_test_device.h"
#include "test_device/engine.h"
#include "test_device/module.h"

/* Returns the number of the line that makes a call, as an int. A reference of
 * the running search, which changes only where no work is enqueued. */
static PyObject *here;

/* What was raised while `here` ran, and the thread. */
typedef struct raised {
    PyObject *exception;
    unsigned long thread;
} raised;

/* The main thread calls this as soon as it is back in Python. */
static int
raise_in_main_thread(void *argument)
{
    raised found = *(raised *)argument;
    PyMem_RawFree(argument);
    /* Unlike ad_py_restore_exception() this sets the __context__. */
    PyErr_SetObject((PyObject *)Py_TYPE(found.exception), found.exception);
    Py_DECREF(found.exception);
    if (found.thread == PyThread_get_thread_ident()) {
        return -1;
    }
    /* Only the main thread runs handlers, so this is an error of `here`. */
    PyErr_WriteUnraisable(NULL);
    return 0;
}

/* The handler of a signal may have run in `here`. Its exception cannot end the
 * engine's call, as work may be half enqueued, and must not be lost. */
static void
raise_later(void)
{
    raised *found = PyMem_RawMalloc(sizeof(*found));
    if (found == NULL) {
        PyErr_WriteUnraisable(NULL);
        return;
    }
    *found = (raised){.exception = ad_py_take_exception(),
                      .thread = PyThread_get_thread_ident()};
    if (Py_AddPendingCall(raise_in_main_thread, found) < 0) { /* too many */
        ad_py_restore_exception(found->exception);
        PyErr_WriteUnraisable(NULL);
        PyMem_RawFree(found);
    }
}

static uint32_t
ask_here(void)
{
    PyObject *function = Py_XNewRef(here);
    PyObject *number = function != NULL ? PyObject_CallNoArgs(function) : NULL;
    unsigned long result = number != NULL ? PyLong_AsUnsignedLong(number) : 0;
    if (PyErr_Occurred()) {
        raise_later();
        result = 0;
    }
    Py_XDECREF(number);
    Py_XDECREF(function);
    return (uint32_t)result;
}

/* Threads that Python does not know, as the one of the deferred releases, have
 * no line. */
static uint32_t
find_place(void)
{
    ad_py_entry entry;
    if (PyGILState_GetThisThreadState() == NULL ||
        !ad_py_enter(ad_interpreter_main(), &entry)) {
        return 0;
    }
    uint32_t result = ask_here();
    ad_py_leave(&entry);
    return result;
}

static int
start_runs(void)
{
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = ad_engine_runs_start();
    Py_END_ALLOW_THREADS
    return code;
}

/* watch(here, searches, records): find races, and record what queues run; `here`
 * returns the number of a line. Without memory nothing is begun. */
PyObject *
ad_testing_watch(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *function;
    int searches;
    int records;
    if (!PyArg_ParseTuple(args, "Opp:watch", &function, &searches, &records)) {
        return NULL;
    }
    if (records && start_runs() != AD_ENGINE_OK) {
        return PyErr_NoMemory();
    }
    Py_XSETREF(here, Py_NewRef(function));
    ad_engine_set_place(find_place);
    if (searches) {
        Py_BEGIN_ALLOW_THREADS
        ad_engine_races_start();
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

/* unwatch(): the races that were found stay. */
PyObject *
ad_testing_unwatch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    ad_engine_set_place(NULL);
    Py_BEGIN_ALLOW_THREADS
    ad_engine_races_stop();
    ad_engine_runs_stop();
    Py_END_ALLOW_THREADS
    Py_CLEAR(here);
    Py_RETURN_NONE;
}

static PyObject *
party_tuple(const ad_engine_party *party)
{
    return Py_BuildValue(
        "(iiOiKIILLK)", (int)party->access, party->queue,
        party->is_own ? Py_True : Py_False, party->device,
        (unsigned long long)party->handle, (unsigned int)party->place,
        (unsigned int)party->made_at, (long long)party->enqueued,
        (long long)party->recorded, (unsigned long long)party->recorded_by);
}

static PyObject *
race_tuple(const ad_engine_race *race)
{
    return Py_BuildValue(
        "(NNKInKnOO)", party_tuple(&race->first), party_tuple(&race->second),
        (unsigned long long)race->allocation, (unsigned int)race->made_at,
        (Py_ssize_t)race->nbytes, (unsigned long long)race->begin,
        (Py_ssize_t)race->n_common, race->is_after_free ? Py_True : Py_False,
        race->waits_too_early ? Py_True : Py_False);
}

static PyObject *
race_list(const ad_engine_race *races, size_t n)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        if (ad_py_append(list, race_tuple(&races[i])) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

enum {
    CAPACITY = 64
};

static PyObject *
races_after(PyObject *n_seen,
            size_t find(size_t from, ad_engine_race *out, size_t capacity))
{
    ad_engine_race found[CAPACITY];
    size_t from = PyLong_AsSize_t(n_seen);
    if (from == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return race_list(found, find(from, found, CAPACITY));
}

/* races(n): what was found after the first n races, at most 64 of it. */
PyObject *
ad_testing_races(PyObject *Py_UNUSED(module), PyObject *n_seen)
{
    return races_after(n_seen, ad_engine_races);
}

/* races_unawaited(n): the same of writes to memory of the host that nobody
 * waited for. */
PyObject *
ad_testing_races_unawaited(PyObject *Py_UNUSED(module), PyObject *n_seen)
{
    return races_after(n_seen, ad_engine_races_unawaited);
}

/* races_dropped(): accesses that were forgotten; -1: without memory the search
 * has ended. */
PyObject *
ad_testing_races_dropped(PyObject *Py_UNUSED(module),
                         PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSsize_t((Py_ssize_t)ad_engine_races_dropped());
}

/* queue_numbers(n): device, handle, number and whether it is arrowdev's, of at
 * most 64 queues after the first n. */
PyObject *
ad_testing_queue_numbers(PyObject *Py_UNUSED(module), PyObject *n_seen)
{
    ad_engine_queue_number found[CAPACITY];
    size_t from = PyLong_AsSize_t(n_seen);
    if (from == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    size_t n = ad_engine_queue_numbers(from, found, CAPACITY);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *one = Py_BuildValue(
            "(iKiO)", found[i].device, (unsigned long long)found[i].handle,
            found[i].number, found[i].is_own ? Py_True : Py_False);
        if (ad_py_append(list, one) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* runs(n): the number after the last one, and at most 64 runs of work from
 * number n on. */
PyObject *
ad_testing_runs(PyObject *Py_UNUSED(module), PyObject *from)
{
    ad_engine_run runs[CAPACITY];
    uint64_t next;
    uint64_t first = PyLong_AsUnsignedLongLong(from);
    if (first == (uint64_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    size_t n = ad_engine_runs(first, runs, CAPACITY, &next);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *run = Py_BuildValue(
            "(sKiInLLL)", runs[i].name, (unsigned long long)runs[i].queue,
            runs[i].device, (unsigned int)runs[i].place,
            (Py_ssize_t)runs[i].nbytes, (long long)runs[i].enqueued,
            (long long)runs[i].start, (long long)runs[i].end);
        if (ad_py_append(list, run) < 0) {
            Py_CLEAR(list);
        }
    }
    return list != NULL ? Py_BuildValue("(KN)", (unsigned long long)next, list)
                        : NULL;
}
