/* The module arrowdev.testing._device: the software device as functions, and
 * the states of an async stream. */
#include "test_device/module.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../../arrowdev/include/arrowdev.h"
#include "abi/arrow_c.h"
#include "async/async_stream.h"
#include "order/deferred_release.h"
#include "support/waiting.h"
#include "test_device/software.h"
#include "test_device/engine.h"

/* The device is unknown here; the message names the call. */
static PyObject *
raise_code(const char *call, int code)
{
    ad_error err;
    (void)ad_software_fail(&err, -1, call, code);
    err.has_device = false;
    return ad_testing_raise(&err);
}

/* backend(): the capsule for register_backend(). */
PyObject *
ad_testing_backend(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return ArrowDev_BackendCapsule(ARROW_DEVICE_EXT_DEV, &ad_software_table);
}

PyObject *
ad_testing_start(PyObject *Py_UNUSED(module), PyObject *args)
{
    int n_devices;
    ad_error err;
    if (!PyArg_ParseTuple(args, "i:start", &n_devices)) {
        return NULL;
    }
    if (ad_software_start(n_devices, &err) != AD_OK) {
        return ad_testing_raise(&err);
    }
    ad_engine_set_log(true);
    Py_RETURN_NONE;
}

/* --- functions of integers ----------------------------------------------- */

static void *
pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* -1 means all devices. Numbers that are out of range become INT_MAX, which is
 * not a device. */
static int
device_id(uint64_t number)
{
    int64_t id = (int64_t)number;
    return id >= -1 && id < INT_MAX ? (int)id : INT_MAX;
}

/* A function of up to 5 integers, which may set a result. */
typedef int (*engine_call)(const uint64_t *a, int64_t *out);

/* clang-format off */
#define CALL(name) static int call_##name(const uint64_t *a, int64_t *out)

#define PASS_ONE(name)                                                        \
    CALL(name)                                                                \
    {                                                                         \
        return ad_engine_##name(a[0]);                                        \
    }

/* The second argument is a handle, or a time as an int64. */
#define PASS_TWO(name)                                                        \
    CALL(name)                                                                \
    {                                                                         \
        return ad_engine_##name(a[0], a[1]);                                  \
    }

PASS_ONE(queue_destroy)
PASS_ONE(queue_hold)
PASS_ONE(queue_release)
PASS_ONE(event_destroy)
PASS_ONE(event_arm)
PASS_ONE(event_fire)
PASS_TWO(queue_set_delay)
PASS_TWO(queue_synchronize)
PASS_TWO(queue_wait)
PASS_TWO(queue_wait_queue)
PASS_TWO(event_record)
PASS_TWO(event_synchronize)

CALL(reset)
{
    ad_engine_reset();
    ad_engine_set_patience((int64_t)a[0]);
    return AD_ENGINE_OK;
}

/* Runs the deferred releases, too. */
static int
wait_for_deferred(int device)
{
    int code = AD_ENGINE_OK;
    for (int i = 0; code == AD_ENGINE_OK && i < ad_engine_n_devices(); i++) {
        const ad_context context = {{ARROW_DEVICE_EXT_DEV, i}, NULL};
        if ((device < 0 || device == i) &&
            ad_deferred_wait(context, NULL) != AD_OK) {
            code = AD_ENGINE_WORK_FAILED;
        }
    }
    return code;
}

CALL(synchronize)
{
    int device = device_id(a[0]);
    int code = ad_engine_synchronize(device, NULL, (int64_t)a[1]);
    /* A release may defer another one, also on a device that was waited for
     * before. Abandoned releases, and those of other devices, stay. */
    for (int i = 0; code == AD_ENGINE_OK && i < 8 && ad_deferred_is_any(); i++) {
        code = wait_for_deferred(device);
    }
    return code == AD_ENGINE_OK
               ? ad_engine_synchronize(device, NULL, (int64_t)a[1])
               : code;
}

CALL(set_memory_limit)
{
    return ad_engine_set_memory_limit(device_id(a[0]), (size_t)a[1]);
}

CALL(memory_left)
{
    size_t limit;
    size_t left = 0;
    int code = ad_engine_memory(device_id(a[0]), &limit, &left);
    *out = (int64_t)left;
    return code;
}

CALL(allocate)
{
    void *memory = NULL;
    int code = ad_engine_allocate(device_id(a[0]), (size_t)a[1],
                                  (ad_engine_kind)a[2], NULL, &memory);
    *out = (int64_t)(uintptr_t)memory;
    return code;
}

CALL(free)
{
    return ad_engine_free(pointer(a[0]));
}

CALL(free_ordered)
{
    return ad_engine_free_ordered(a[0], pointer(a[1]));
}

CALL(queue_create)
{
    return ad_engine_queue_create(device_id(a[0]), NULL, NULL, (uint64_t *)out);
}

CALL(queue_delay)
{
    ad_engine_queue found = {0};
    int code = ad_engine_queue_get(a[0], &found);
    *out = found.delay;
    return code;
}

/* Sets *out to 1 if the work is done, to 0 if it is pending. */
static int
answer(int code, int64_t *out)
{
    *out = code == AD_ENGINE_OK;
    return code == AD_ENGINE_NOT_READY ? AD_ENGINE_OK : code;
}

/* Sets *out to 1 if an operation was done, to 0 if none is due. */
CALL(queue_step)
{
    return answer(ad_engine_queue_step(a[0]), out);
}

CALL(queue_query)
{
    return answer(ad_engine_queue_query(a[0]), out);
}

CALL(queue_is_busy)
{
    return ad_engine_queue_is_busy(a[0], out);
}

CALL(copy)
{
    return ad_engine_copy(a[0], pointer(a[1]), (size_t)a[3], pointer(a[2]),
                          (size_t)a[3], (size_t)a[3], 1);
}

CALL(fill)
{
    return ad_engine_fill(a[0], pointer(a[1]), a[2], (size_t)a[3],
                          (size_t)a[4]);
}

CALL(event_create)
{
    return ad_engine_event_create(device_id(a[0]), NULL, NULL, (uint64_t *)out);
}

CALL(event_address)
{
    const uint64_t *address = NULL;
    int code = ad_engine_event_address(a[0], &address);
    *out = (int64_t)(uintptr_t)address;
    return code;
}

/* The handle of the event at this address; 0: none. */
CALL(event_at)
{
    *out = (int64_t)ad_engine_event_at(pointer(a[0]));
    return AD_ENGINE_OK;
}

CALL(event_query)
{
    return answer(ad_engine_event_query(a[0]), out);
}

CALL(n_calls)
{
    *out = (int64_t)ad_engine_n_calls();
    return AD_ENGINE_OK;
}
/* clang-format on */

static const struct {
    const char *name;
    int n_args;
    engine_call function;
    bool waits;
} engine_calls[] = {
/* clang-format off */
#define X(name, n_args) {#name, n_args, call_##name, false}
#define WAIT(name) {#name, 2, call_##name, true}
    X(reset, 1),
    WAIT(synchronize),
    X(set_memory_limit, 2),
    X(memory_left, 1),
    X(allocate, 3),
    X(free, 1),
    X(free_ordered, 2),
    X(queue_create, 1),
    X(queue_destroy, 1),
    X(queue_hold, 1),
    X(queue_release, 1),
    X(queue_set_delay, 2),
    X(queue_delay, 1),
    WAIT(queue_synchronize),
    X(queue_step, 1),
    X(queue_query, 1),
    X(queue_is_busy, 1),
    X(queue_wait, 2),
    X(queue_wait_queue, 2),
    X(copy, 4),
    X(fill, 5),
    X(event_create, 1),
    X(event_destroy, 1),
    X(event_address, 1),
    X(event_record, 2),
    X(event_at, 1),
    X(event_query, 1),
    WAIT(event_synchronize),
    X(event_arm, 1),
    X(event_fire, 1),
    X(n_calls, 0),
#undef WAIT
#undef X
    /* clang-format on */
};

enum {
    N_ENGINE_CALLS = sizeof(engine_calls) / sizeof(engine_calls[0])
};

/* The interval at which a wait checks for signals. */
#define SLICE_MS 50

/* Waits in slices and takes the GIL after each, since the engine's own wait
 * cannot be interrupted. a[1] is the timeout of all slices together. */
static int
wait_in_slices(engine_call wait, uint64_t *a, bool *is_interrupted)
{
    int64_t given = (int64_t)a[1];
    int64_t left = given < 0 ? ad_engine_patience() : given;
    int code;
    do {
        int64_t slice = left < 0 || left > SLICE_MS ? SLICE_MS : left;
        a[1] = (uint64_t)slice;
        left -= left < 0 ? 0 : slice;
        Py_BEGIN_ALLOW_THREADS
        code = wait(a, NULL);
        Py_END_ALLOW_THREADS
        *is_interrupted =
            code == AD_ENGINE_TIMEOUT && ad_run_signal_handlers();
    } while (code == AD_ENGINE_TIMEOUT && left != 0 && !*is_interrupted);
    return code;
}

int
ad_testing_wait(uint64_t queue, int64_t timeout_ms, bool *is_interrupted)
{
    uint64_t wait[] = {queue, (uint64_t)timeout_ms};
    *is_interrupted = false;
    return wait_in_slices(call_queue_synchronize, wait, is_interrupted);
}

void
ad_testing_run_behind(uint64_t queue, int (*work)(void *arg), void *arg)
{
    if (ad_engine_enqueue_last(queue, work, arg, NULL, 0) ==
        AD_ENGINE_INVALID_QUEUE) {
        (void)work(arg);
    }
}

static int
make_call(int i, uint64_t *a, int64_t *out, bool *is_interrupted)
{
    int code;
    *is_interrupted = false;
    if (engine_calls[i].waits) {
        return wait_in_slices(engine_calls[i].function, a, is_interrupted);
    }
    Py_BEGIN_ALLOW_THREADS
    code = engine_calls[i].function(a, out);
    Py_END_ALLOW_THREADS
    return code;
}

/* end(timeout_ms): end a block. Reset the engine, and hide the devices; later
 * waits last at most timeout_ms. One call, so that no signal handler runs in
 * between. */
PyObject *
ad_testing_end(PyObject *module, PyObject *timeout_ms)
{
    int64_t milliseconds = PyLong_AsLongLong(timeout_ms);
    if (milliseconds == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_DECREF(ad_testing_unwatch(module, NULL));
    Py_BEGIN_ALLOW_THREADS
    ad_engine_reset();
    ad_engine_set_patience(milliseconds);
    ad_software_hide();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* call(name, *integers): calls a function of the engine. */
PyObject *
ad_testing_call(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    long long values[5] = {0};
    if (!PyArg_ParseTuple(args, "s|LLLLL:call", &name, &values[0], &values[1],
                          &values[2], &values[3], &values[4])) {
        return NULL;
    }
    int i = 0;
    while (i < N_ENGINE_CALLS && strcmp(engine_calls[i].name, name) != 0) {
        i++;
    }
    if (i == N_ENGINE_CALLS ||
        PyTuple_GET_SIZE(args) != engine_calls[i].n_args + 1) {
        PyErr_Format(PyExc_TypeError, "the engine has no call %s of %zd", name,
                     PyTuple_GET_SIZE(args) - 1);
        return NULL;
    }
    uint64_t integers[5];
    for (int k = 0; k < 5; k++) {
        integers[k] = (uint64_t)values[k];
    }
    int64_t out = 0;
    bool is_interrupted;
    int code = make_call(i, integers, &out, &is_interrupted);
    if (is_interrupted) {
        ad_raise_interruption();
        return NULL;
    }
    if (code != AD_ENGINE_OK) {
        return raise_code(engine_calls[i].name, code);
    }
    return PyLong_FromLongLong(out);
}

/* --- bytes --------------------------------------------------------------- */

/* write(queue, address, data): reads `data` at once; the queue writes
 * it later. */
PyObject *
ad_testing_write(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long queue;
    unsigned long long address;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "KKy*:write", &queue, &address, &data)) {
        return NULL;
    }
    int code =
        ad_engine_write(queue, pointer(address), data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    if (code != AD_ENGINE_OK) {
        return raise_code("write", code);
    }
    Py_RETURN_NONE;
}

/* The target of a copy that nobody waits for any more. */
static int
free_target(void *target)
{
    free(target);
    return AD_ENGINE_OK;
}

/* read(queue, address, nbytes, timeout_ms): reads bytes after the
 * work that is on the queue. */
PyObject *
ad_testing_read(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long queue;
    unsigned long long address;
    Py_ssize_t nbytes;
    long long timeout_ms;
    if (!PyArg_ParseTuple(args, "KKnL:read", &queue, &address, &nbytes,
                          &timeout_ms)) {
        return NULL;
    }
    if (nbytes < 0) {
        return PyErr_Format(PyExc_ValueError,
                            "nbytes must not be negative, found %zd", nbytes);
    }
    size_t n = (size_t)nbytes;
    char *target = malloc(n > 0 ? n : 1);
    if (target == NULL) {
        return PyErr_NoMemory();
    }
    bool is_interrupted = false;
    int code = ad_engine_copy(queue, target, n, pointer(address), n, n, 1);
    if (code == AD_ENGINE_OK) {
        code = ad_testing_wait(queue, timeout_ms, &is_interrupted);
    }
    PyObject *bytes = code == AD_ENGINE_OK
                          ? PyBytes_FromStringAndSize(target, nbytes)
                          : NULL;
    if (code == AD_ENGINE_TIMEOUT) {
        ad_testing_run_behind(queue, free_target, target);
    } else {
        free(target);
    }
    if (is_interrupted) {
        ad_raise_interruption();
        return NULL;
    }
    return code == AD_ENGINE_OK ? bytes : raise_code("read", code);
}

/* peek(address, nbytes): the bytes that are there now. */
PyObject *
ad_testing_peek(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTuple(args, "Kn:peek", &address, &nbytes)) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, nbytes);
    if (bytes == NULL) {
        return NULL;
    }
    int code = ad_engine_peek(PyBytes_AS_STRING(bytes), pointer(address),
                              (size_t)nbytes);
    if (code != AD_ENGINE_OK) {
        Py_DECREF(bytes);
        return raise_code("peek", code);
    }
    return bytes;
}

/* find(address): (base, nbytes, device, kind), or None. */
PyObject *
ad_testing_find(PyObject *Py_UNUSED(module), PyObject *address)
{
    void *where = PyLong_AsVoidPtr(address);
    ad_engine_allocation found;
    if (where == NULL && PyErr_Occurred()) {
        return NULL;
    }
    if (!ad_engine_find(where, &found)) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(Nnii)", PyLong_FromVoidPtr(found.base),
                         (Py_ssize_t)found.nbytes, found.device,
                         (int)found.kind);
}

/* --- failures, log and counts -------------------------------------------- */

/* Sets an exception if there is no call of this name. */
static bool
is_known_call(const char *call)
{
    char list[512] = "";
    for (const char *const *known = ad_software_calls; *known != NULL;
         known++) {
        size_t n = strlen(list);
        if (strcmp(*known, call) == 0) {
            return true;
        }
        snprintf(list + n, sizeof(list) - n, "%s%s", n > 0 ? ", " : "",
                 *known);
    }
    PyErr_Format(PyExc_ValueError,
                 "arrowdev makes no call '%s' to the device, expected one of "
                 "%s",
                 call, list);
    return false;
}

/* fail_at(n, call or None, stay) */
PyObject *
ad_testing_fail_at(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long n;
    const char *call;
    int stay;
    if (!PyArg_ParseTuple(args, "Kzp:fail_at", &n, &call, &stay)) {
        return NULL;
    }
    if (call != NULL && !is_known_call(call)) {
        return NULL;
    }
    int code = ad_engine_fail_at(n, call, AD_ENGINE_INJECTED, stay != 0);
    if (code != AD_ENGINE_OK) {
        return raise_code("fail_at", code);
    }
    Py_RETURN_NONE;
}

/* calls(): returns the last calls of the backend, oldest first. */
PyObject *
ad_testing_calls(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    enum {
        CAPACITY = 4096
    };
    const char **names = PyMem_Calloc(CAPACITY, sizeof(names[0]));
    if (names == NULL) {
        return PyErr_NoMemory();
    }
    size_t n = ad_engine_log(names, CAPACITY);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        if (ad_py_append(list, PyUnicode_FromString(names[i])) < 0) {
            Py_CLEAR(list);
        }
    }
    PyMem_Free(names);
    return list;
}

/* live(): counts queues, events, allocations, bytes and pending work,
 * and the queues and events that arrowdev keeps for itself. */
PyObject *
ad_testing_live(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    ad_engine_counts all;
    ad_engine_counts own;
    ad_engine_count(&ad_software_tag, &own);
    ad_engine_count(NULL, &all);
    return Py_BuildValue("(nnnnnnn)", (Py_ssize_t)(all.queues - own.queues),
                         (Py_ssize_t)(all.events - own.events),
                         (Py_ssize_t)all.allocations, (Py_ssize_t)all.bytes,
                         (Py_ssize_t)all.pending, (Py_ssize_t)own.queues,
                         (Py_ssize_t)own.events);
}

/* --- async states -------------------------------------------------------- */

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

/* Returns {(state, event): (next state, id of the broken rule or None, its
 * text or None)}. */
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

/* --- the module ---------------------------------------------------------- */

static int
module_exec(PyObject *Py_UNUSED(module))
{
    return ad_testing_find_core();
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* docs/internals/threads.md */
#endif
    {0, NULL},
};

static PyMethodDef module_functions[] = {
#define ENTRY(name, flags) {#name, ad_testing_##name, flags, NULL},
    AD_TESTING_FUNCTIONS(ENTRY)
#undef ENTRY
        {NULL, NULL, 0, NULL},
};

#define MODULE_DOC "The C side of arrowdev.testing."

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,   .m_name = "arrowdev.testing._device",
    .m_doc = MODULE_DOC,     .m_methods = module_functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__device(void)
{
    return PyModuleDef_Init(&module_def);
}

#if PY_VERSION_HEX >= 0x030f0000

PyABIInfo_VAR(abi_info);

/* The same as slots (PEP 793, PEP 820), which CPython 3.15 looks for first. */
static PySlot export_slots[] = {
    PySlot_STATIC_DATA(Py_mod_abi, &abi_info),
    PySlot_STATIC_DATA(Py_mod_name, "arrowdev.testing._device"),
    PySlot_STATIC_DATA(Py_mod_doc, MODULE_DOC),
    PySlot_STATIC_DATA(Py_mod_methods, module_functions),
    PySlot_STATIC_DATA(Py_mod_slots, module_slots),
    PySlot_END,
};

PyMODEXPORT_FUNC
PyModExport__device(void)
{
    return export_slots;
}

#endif
