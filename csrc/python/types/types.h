/* What the types share, so that they cannot differ, and what module.c adds to
 * them.
 */
#ifndef AD_PYTHON_TYPES_TYPES_H
#define AD_PYTHON_TYPES_TYPES_H

#include "support/objects.h"

/* --- Array, Tensor and Buffer (common_getters.c) -------------------------- */

/* Attributes and methods of device and event; NULL entry last. */
extern const PyMethodDef ad_common_methods[];
extern const PyGetSetDef ad_common_getset[];

/* __reduce_ex__: calls _pickle.py. */
PyObject *ad_reduce(PyObject *self, PyObject *protocol);

/* __copy__: the object itself. */
PyObject *ad_copy_is_self(PyObject *self, PyObject *ignored);

/* int() and float(): ad_scalar() as a number. */
PyObject *ad_scalar_as_int(PyObject *self);
PyObject *ad_scalar_as_float(PyObject *self);

/* A text of a schema (NULL: empty) as a str. Bytes that are not UTF-8 become
 * surrogates. */
PyObject *ad_decode_text(const char *text);

/* For repr(): ", after event", or "" if no pending work is known. */
const char *ad_readiness(const ad_sync *sync);

/* --- prompts (prompt.c) -------------------------------------------------- */

/* What an interactive prompt shows: values in repr(), HTML for notebooks,
 * completions, and the shape of a record batch. */

/* Whether the host can read the values at once: they are in host memory, no
 * work on them is known to be pending, and their memory is mapped. A producer's
 * struct may have a wrong address or length. Managed memory does not count: a
 * read would move it, or fail while its device works. Makes no runtime call. */
bool ad_can_show_tensor(const ad_tensor *tensor);

/* Appends to `steal` the result of arrowdev._repr.<function>(self), which is a
 * str, and ">". New reference, or NULL with an exception. */
PyObject *ad_append_values(PyObject *steal, const char *function,
                           PyObject *self);

/* The type in a repr: ad_type_print(), cut to a limit. New reference, or NULL
 * with an exception. */
PyObject *ad_short_type(PyObject *self, const struct ArrowSchema *node);

/* A Schema as an HTML table. New reference, or NULL with an exception. */
PyObject *ad_html_of_schema(PyObject *schema, const char *caption);

PyObject *ad_array_repr(PyObject *self);

/* Returns 0, or -1 with AttributeError for `attribute` of an Array that is no
 * struct. */
int ad_require_batch(PyObject *self, const char *attribute);

/* The attributes of Array for prompts; NULL entry last. module.c adds them. */
extern const PyMethodDef ad_array_prompt_methods[];
extern const PyGetSetDef ad_array_prompt_getset[];

#endif /* AD_PYTHON_TYPES_TYPES_H */
