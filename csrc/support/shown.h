/* Text of foreign origin that a person reads: names, types, and the errors of
 * other libraries. Written as it is, it could move the cursor of a terminal,
 * forge a line or reverse the order of what follows.
 */
#ifndef AD_SUPPORT_SHOWN_H
#define AD_SUPPORT_SHOWN_H

#include <stdarg.h>

#include "support/compat.h"

typedef enum ad_line_rule {
    AD_ONE_LINE,
    AD_KEEPS_LINES /* a newline stays: the full text of an error */
} ad_line_rule;

/* The text with escapes, as repr() has them, in place of the characters that
 * str.isprintable() rejects; the same object if there are none. Idempotent: a
 * backslash stays. The argument is stolen and may be NULL with an exception,
 * as the result. */
PyObject *ad_shown(PyObject *steal, ad_line_rule rule);

/* The same for UTF-8 (NULL: ""); invalid bytes are escaped as surrogates. */
PyObject *ad_shown_utf8(const char *text);

/* PyErr_Format with the text as of ad_shown(). Returns NULL. */
PyObject *ad_raise_shown(PyObject *exception_type, const char *format, ...);

/* _shown(text, keeps_lines=False) for helpers in Python. */
PyObject *ad_function_shown(PyObject *module, PyObject *args);

#endif /* AD_SUPPORT_SHOWN_H */
