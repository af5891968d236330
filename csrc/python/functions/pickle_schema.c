/* The parts of a Schema that arrowdev/_pickle.py pickles, and back. */
#include "python/functions/functions.h"

#include <stdlib.h>

#include "model/metadata.h"
#include "support/errors.h"

/* --- parts --------------------------------------------------------------- */

static PyObject *
bytes_of(const char *text)
{
    return PyBytes_FromString(text != NULL ? text : "");
}

static PyObject *
metadata_parts(ad_state *state, const char *blob)
{
    return blob != NULL ? ad_metadata_as_pairs(state, blob)
                        : Py_NewRef(Py_None);
}

PyObject *
ad_schema_parts(ad_state *state, const struct ArrowSchema *node)
{
    PyObject *children = PyTuple_New((Py_ssize_t)node->n_children);
    for (int64_t i = 0; children != NULL && i < node->n_children; i++) {
        PyObject *child = ad_schema_parts(state, node->children[i]);
        if (child == NULL) {
            Py_CLEAR(children);
        } else {
            PyTuple_SET_ITEM(children, (Py_ssize_t)i, child);
        }
    }
    if (children == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "(NNNLNN)", bytes_of(node->format), bytes_of(node->name),
        metadata_parts(state, node->metadata), (long long)node->flags,
        children,
        node->dictionary != NULL ? ad_schema_parts(state, node->dictionary)
                                 : Py_NewRef(Py_None));
}

PyObject *
ad_function_schema_parts(PyObject *module, PyObject *value)
{
    ad_state *state = ad_state_of_module(module);
    if (Py_TYPE(value) != (PyTypeObject *)state->schema_type) {
        PyErr_Format(PyExc_TypeError, "no Schema: %.200s",
                     Py_TYPE(value)->tp_name);
        return NULL;
    }
    return ad_schema_parts(state, ((ad_schema_object *)value)->schema.node);
}

/* --- a schema of its parts ----------------------------------------------- */

/* The schema that is being built. `used` is a set of addresses of parts. */
typedef struct building {
    ad_state *state;
    PyObject *used;
} building;

static int build_node(building *self, PyObject *parts, int depth,
                      ad_schema *out);

static int
fail_parts(void)
{
    PyErr_SetString(PyExc_ValueError, "these are no parts of a Schema");
    return -1;
}

/* No part that has others appears twice in a pickle. If such parts were
 * shared, the size of the schema could grow exponentially with their depth. */
static int
use_once(building *self, PyObject *part)
{
    Py_ssize_t n_before = PySet_GET_SIZE(self->used);
    PyObject *address = PyLong_FromVoidPtr(part);
    int result = address != NULL ? PySet_Add(self->used, address) : -1;
    Py_XDECREF(address);
    return result == 0 && PySet_GET_SIZE(self->used) == n_before ? fail_parts()
                                                                 : result;
}

/* Makes a malloc'ed blob of a list of pairs; NULL of None. */
static int
build_metadata(ad_state *state, PyObject *pairs, char **out)
{
    *out = NULL;
    if (pairs == Py_None) {
        return 0;
    }
    return PyList_Check(pairs) ? ad_metadata_from_pairs(state, pairs, out)
                               : fail_parts();
}

/* Builds the children and, after them, the dictionary. */
static int
build_below(building *self, PyObject *children, PyObject *dictionary,
            int depth, ad_schema *below)
{
    Py_ssize_t n = PyTuple_GET_SIZE(children);
    if ((n > 0 && use_once(self, children) < 0) ||
        (dictionary != Py_None && use_once(self, dictionary) < 0)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (build_node(self, PyTuple_GET_ITEM(children, i), depth + 1,
                       &below[i]) < 0) {
            return -1;
        }
    }
    return dictionary == Py_None
               ? 0
               : build_node(self, dictionary, depth + 1, &below[n]);
}

static int
build_node(building *self, PyObject *parts, int depth, ad_schema *out)
{
    PyObject *metadata, *children, *dictionary;
    long long flags;
    ad_schema_spec spec = {0};
    char *blob = NULL;
    ad_error err;
    if (!PyTuple_Check(parts) || depth > AD_MAX_DEPTH) {
        return fail_parts();
    }
    if (!PyArg_ParseTuple(parts, "yyOLO!O", &spec.format, &spec.name,
                          &metadata, &flags, &PyTuple_Type, &children,
                          &dictionary)) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(children);
    ad_schema *below = PyMem_Calloc((size_t)n + 1, sizeof(*below));
    if (below == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int result = build_below(self, children, dictionary, depth, below);
    if (result == 0) {
        result = build_metadata(self->state, metadata, &blob);
    }
    if (result == 0) {
        spec.flags = flags;
        spec.n_children = n;
        spec.children = below;
        spec.dictionary = dictionary != Py_None ? &below[n] : NULL;
        spec.metadata = blob;
        result = ad_raise_status(self->state,
                                 ad_schema_build(&spec, out, &err), &err);
    }
    for (Py_ssize_t i = 0; i <= n; i++) {
        ad_schema_unref(below[i]);
    }
    PyMem_Free(below);
    free(blob);
    return result;
}

int
ad_schema_of_parts(ad_state *state, PyObject *parts, ad_schema *out)
{
    ad_error err;
    building self = {.state = state, .used = PySet_New(NULL)};
    int result = self.used != NULL ? build_node(&self, parts, 1, out) : -1;
    Py_XDECREF(self.used);
    if (result < 0) {
        return -1;
    }
    ad_status status = ad_schema_validate(out->node, &err);
    if (status != AD_OK) {
        ad_schema_unref(*out);
    }
    return ad_raise_status(state, status, &err);
}

PyObject *
ad_function_schema_of_parts(PyObject *module, PyObject *parts)
{
    ad_state *state = ad_state_of_module(module);
    ad_schema schema;
    return ad_schema_of_parts(state, parts, &schema) == 0
               ? ad_schema_object_new(state, schema)
               : NULL;
}
