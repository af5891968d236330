/* The functions of _core that the test device calls (csrc/test_device/, the
 * extension arrowdev.testing._device). _core exports no symbol, so a table of
 * their addresses, in the capsule _core._for_test_device, takes the place of
 * the linker: test_device/core.c defines each function under its own name, by
 * a call through the table. The contracts are those of the headers below.
 *
 * What has state of the process is called this way, so that the process has
 * it once: deferred releases, fork hooks, threads, calls into Python.
 */
#ifndef AD_PYTHON_FUNCTIONS_FOR_TEST_DEVICE_H
#define AD_PYTHON_FUNCTIONS_FOR_TEST_DEVICE_H

#include "async/async_stream.h"
#include "base/os.h"
#include "base/process.h"
#include "device/backend.h"
#include "order/deferred_release.h"
#include "support/errors.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* X(result, name, parameters, arguments) */
#define AD_FOR_TEST_DEVICE(X)                                                 \
    /* device/backend.h */                                                    \
    X(ad_status, ad_fail_device,                                              \
      (ad_error * err, ad_device device, const char *call, int code,          \
       const char *name, const char *hint),                                   \
      (err, device, call, code, name, hint))                                  \
    /* order/deferred_release.h */                                            \
    X(bool, ad_deferred_is_any, (void), ())                                   \
    X(ad_status, ad_deferred_wait, (ad_context context, ad_error * err),      \
      (context, err))                                                         \
    /* async/async_stream.h */                                                \
    X(const ad_async_step *, ad_async_step_of,                                \
      (ad_async_state state, ad_async_event event), (state, event))           \
    X(const char *, ad_async_state_name, (ad_async_state state), (state))     \
    X(const char *, ad_async_event_name, (ad_async_event event), (event))     \
    /* base/process.h */                                                      \
    X(int, ad_process_add_child_hook, (ad_child_hook * hook), (hook))         \
    /* base/os.h */                                                           \
    X(int, ad_thread_start,                                                   \
      (void *(*run)(void *context), void *context, ad_thread *out),           \
      (run, context, out))                                                    \
    X(int, ad_cond_init, (ad_cond * cond), (cond))                            \
    X(int64_t, ad_now, (void), ())                                            \
    /* support/waiting.h */                                                   \
    X(bool, ad_run_signal_handlers, (void), ())                               \
    X(void, ad_raise_interruption, (void), ())                                \
    /* support/py_call.h, support/errors.h, support/state.h */                \
    X(ad_interpreter *, ad_interpreter_main, (void), ())                      \
    X(bool, ad_py_enter, (ad_interpreter * where, ad_py_entry * self),        \
      (where, self))                                                          \
    X(void, ad_py_leave, (ad_py_entry * self), (self))                        \
    X(PyObject *, ad_raise, (ad_state * state, const ad_error *err),          \
      (state, err))                                                           \
    X(ad_state *, ad_state_current, (void), ())

#define AD_FOR_TEST_DEVICE_NAME "arrowdev._core._for_test_device"

/* Both extensions are built from one tree. The first two members are compared,
 * in case they were not. */
typedef struct ad_for_test_device {
    size_t size;         /* of the table */
    const char *version; /* of the package */
#define AD_MEMBER(result, name, parameters, arguments)                        \
    result(*name) parameters;
    AD_FOR_TEST_DEVICE(AD_MEMBER)
#undef AD_MEMBER
} ad_for_test_device;

/* Put the capsule into the module. Returns 0, or -1 with an exception. */
int ad_for_test_device_init(PyObject *module);

#endif /* AD_PYTHON_FUNCTIONS_FOR_TEST_DEVICE_H */
