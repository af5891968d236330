/* The logger "arrowdev" behind the messages of base/log.h.
 */
#ifndef AD_SUPPORT_LOGGING_H
#define AD_SUPPORT_LOGGING_H

#include "support/state.h"

/* Set the hooks of the messages. Returns 0, or -1 with an exception. */
int ad_logging_init(void);

/* Connect the logger now if the program has imported logging: the threads that
 * read a stream may never hold the GIL. Call with the GIL. */
void ad_logging_connect(void);

/* Write a message whose parts are Python objects (PyErr_Format codes), if
 * ad_log_is_on(). Call with the GIL and without an exception. While the
 * interpreter finalizes the message is dropped. */
void ad_log_python(const char *format, ...);

/* A refusal, for the logger and for a trace: `name` is "refusal (<reason>)", or
 * "refusal". The rest as ad_log_python(). */
void ad_log_refusal(const char *name, const char *format, ...);

/* For _log.py, which follows the logger's level: turn messages on or off; with
 * None, ask connect() before each. */
PyObject *ad_function_log_turn(PyObject *module, PyObject *is_on);

/* For helpers in Python: write a message if messages are on. */
PyObject *ad_function_log(PyObject *module, PyObject *text);

#endif /* AD_SUPPORT_LOGGING_H */
