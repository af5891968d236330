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
PyObject *ad_array_html(PyObject *self, PyObject *ignored);
PyObject *ad_array_keys(PyObject *self, PyObject *ignored);
PyObject *ad_array_dir(PyObject *self, PyObject *ignored);
PyObject *ad_array_shape(PyObject *self, void *closure);
PyObject *ad_array_num_rows(PyObject *self, void *closure);
PyObject *ad_array_num_columns(PyObject *self, void *closure);
PyObject *ad_array_column_names(PyObject *self, void *closure);

#define AD_ARRAY_PROMPT_METHODS                                               \
    {"_repr_html_", ad_array_html, METH_NOARGS,                               \
     "_repr_html_($self)\n--\n\n"                                             \
     "A record batch as a table for a notebook; None for other arrays."},     \
        {"_ipython_key_completions_", ad_array_keys, METH_NOARGS,             \
         "_ipython_key_completions_($self)\n--\n\n"                           \
         "The names that [] takes."},                                         \
    {                                                                         \
        "__dir__", ad_array_dir, METH_NOARGS,                                 \
            "__dir__($self)\n--\n\n"                                          \
            "The attributes, without those of record batches for other "      \
            "arrays."                                                         \
    }

#define AD_ARRAY_PROMPT_GETSET                                                \
    {"shape", ad_array_shape, NULL,                                           \
     "(rows, columns) of a record batch. AttributeError for other arrays,\n"  \
     "which have len().",                                                     \
     NULL},                                                                   \
        {"num_rows", ad_array_num_rows, NULL,                                 \
         "Number of rows of a record batch. AttributeError for other "        \
         "arrays.",                                                           \
         NULL},                                                               \
        {"num_columns", ad_array_num_columns, NULL,                           \
         "Number of columns of a record batch. AttributeError for other\n"    \
         "arrays.",                                                           \
         NULL},                                                               \
    {                                                                         \
        "column_names", ad_array_column_names, NULL,                          \
            "Names of the columns of a record batch, as a list.\n"            \
            "AttributeError for other arrays.",                               \
            NULL                                                              \
    }

#endif /* AD_PYTHON_TYPES_PROMPT_H */
