/* What an interactive prompt shows: values in repr(), HTML for notebooks,
 * completions, and the shape of a record batch.
 */
#ifndef AD_PYTHON_TYPES_PROMPT_H
#define AD_PYTHON_TYPES_PROMPT_H

#include "support/objects.h"

/* Whether the host can read the values at once: they are in host memory, no
 * work on them is known to be pending, and their memory is mapped. A producer's
 * struct may have a wrong address or length. Managed memory does not count: a
 * read would move it, or fail while its device works. Makes no runtime call. */
bool ad_can_show_array(const ad_array *array);
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

/* The attributes of Array for prompts; NULL entry last. module.c adds them. */
extern const PyMethodDef ad_array_prompt_methods[];
extern const PyGetSetDef ad_array_prompt_getset[];

#endif /* AD_PYTHON_TYPES_PROMPT_H */
