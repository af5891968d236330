/* test_device/: the C side of arrowdev.testing, an extension of its own.
 *
 * The software device (engine*.c, and software.c, its backend), the races that
 * are found on it (races.c), a producer and a consumer of arrays on it, and C
 * callbacks of scripted streams. Built from
 * this tree as arrowdev.testing._device, so that _core has no code for tests.
 * core.c calls _core, both.c has what both extensions have. engine*.c and
 * software.c are plain C, which the stand-in drivers and the C tests compile,
 * too. The engine has one lock; functions of Python hold the GIL.
 */

/* The functions of the module, and what its files share. */
#ifndef AD_TEST_DEVICE_MODULE_H
#define AD_TEST_DEVICE_MODULE_H

#include "base/status.h"
#include "support/compat.h"

#define AD_TESTING_FUNCTIONS(X)                                               \
    X(backend, METH_NOARGS)                                                   \
    X(start, METH_VARARGS)                                                    \
    X(end, METH_O)                                                            \
    X(call, METH_VARARGS)                                                     \
    X(write, METH_VARARGS)                                                    \
    X(read, METH_VARARGS)                                                     \
    X(find, METH_O)                                                           \
    X(peek, METH_VARARGS)                                                     \
    X(fail_at, METH_VARARGS)                                                  \
    X(calls, METH_NOARGS)                                                     \
    X(live, METH_NOARGS)                                                      \
    X(watch, METH_VARARGS)                                                    \
    X(unwatch, METH_NOARGS)                                                   \
    X(runs, METH_O)                                                           \
    X(races, METH_O)                                                          \
    X(races_unawaited, METH_O)                                                \
    X(races_dropped, METH_NOARGS)                                             \
    X(queue_numbers, METH_O)                                                  \
    X(async_states, METH_NOARGS)                                              \
    X(callbacks, METH_NOARGS)                                                 \
    X(produce, METH_VARARGS)                                                  \
    X(consume, METH_VARARGS)

#define AD_TESTING_DECLARE(name, flags)                                       \
    PyObject *ad_testing_##name(PyObject *module, PyObject *arguments);

AD_TESTING_FUNCTIONS(AD_TESTING_DECLARE)

/* Wait for the work of a queue, at most timeout_ms (< 0: the patience of the
 * engine), as ad_engine_queue_synchronize. TIMEOUT and *is_interrupted: the
 * handler of a signal has raised; see ad_raise_interruption. */
int ad_testing_wait(uint64_t queue, int64_t timeout_ms, bool *is_interrupted);

/* Run work(arg) behind the work of a queue, or now if the queue is gone and has
 * none. What cannot be enqueued for lack of memory is never run. */
void ad_testing_run_behind(uint64_t queue, int (*work)(void *arg), void *arg);

/* Find the table of _core. Returns 0, or -1 with an exception. */
int ad_testing_find_core(void);

/* Raise *err as an exception of _core. Returns NULL. */
PyObject *ad_testing_raise(const ad_error *err);

#endif /* AD_TEST_DEVICE_MODULE_H */
