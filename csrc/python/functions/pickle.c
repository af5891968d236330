/* What arrowdev/_pickle.py pickles: the parts of a Schema, and of an Array,
 * Tensor or Buffer in host memory; and the objects made of such parts. The
 * parts may have been cut or changed, and are trusted no more than a foreign
 * struct. */
#include "python/functions/functions.h"

#include <inttypes.h>
#include <stdlib.h>

#include "copy/copy.h"
#include "copy/copy_tree.h"
#include "model/metadata.h"
#include "support/py_call.h"
#include "validate/validate.h"

/* --- the parts of a schema ----------------------------------------------- */

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

/* (format, name, metadata, flags, children, dictionary), or NULL with an
 * exception. */
static PyObject *
schema_parts(ad_state *state, const struct ArrowSchema *node)
{
    PyObject *children = PyTuple_New((Py_ssize_t)node->n_children);
    for (int64_t i = 0; children != NULL && i < node->n_children; i++) {
        PyObject *child = schema_parts(state, node->children[i]);
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
        node->dictionary != NULL ? schema_parts(state, node->dictionary)
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
    return schema_parts(state, ((ad_schema_object *)value)->schema.node);
}

/* --- the parts of an array ----------------------------------------------- */

/* What a buffer that is there and has no bytes points to. It has room for the
 * first offset of an array without rows. */
static const _Alignas(AD_ALIGNMENT) unsigned char zeros[AD_ALIGNMENT];

typedef struct parts {
    ad_buffer_map map;
    ad_state *state;
    ad_plan plan;
    ad_memory memory;  /* of all pieces */
    PyObject *numbers; /* a list of int, see array_parts() */
    PyObject *buffers; /* a list of Buffer or None */
} parts;

static PyObject *
buffer_of_piece(const parts *self, const ad_piece *piece)
{
    const char *data = (const char *)piece->source + piece->offset;
    if (piece->source == NULL) {
        return Py_NewRef(Py_None);
    }
    if (piece->nbytes <= 0) {
        data = (const char *)zeros;
    }
    return ad_buffer_object_new(self->state, (void *)data, 0,
                                piece->nbytes > 0 ? piece->nbytes : 0, 0,
                                &self->memory);
}

static ad_status
add_node(ad_buffer_map *map, ad_mapped_node *node, ad_error *err)
{
    parts *self = (parts *)map;
    int64_t n = node->spec.n_buffers;
    const ad_piece *pieces = ad_plan_next(&self->plan, node);
    const int64_t numbers[] = {node->spec.length, node->spec.offset,
                               node->spec.null_count, n};
    bool is_done = true;
    for (size_t i = 0; is_done && i < 4; i++) {
        is_done =
            ad_py_append(self->numbers, PyLong_FromLongLong(numbers[i])) == 0;
    }
    for (int64_t i = 0; is_done && i < n; i++) {
        is_done = ad_py_append(self->buffers,
                               buffer_of_piece(self, &pieces[i])) == 0;
    }
    if (!is_done) {
        PyErr_Clear();
        return ad_fail_memory(err, (size_t)n * sizeof(ad_tensor_object));
    }
    return AD_OK;
}

/* The bytes that a copy would copy are the parts. */
static ad_status
take_parts(parts *self, const ad_array *array, ad_error *err)
{
    ad_plan *plan = &self->plan;
    AD_RETURN_IF_ERR(ad_plan_make(array, NULL, plan, err));
    AD_RETURN_IF_ERR(ad_list_reserve(&plan->allocations, 1, err));
    plan->allocations.items[plan->allocations.n++] =
        ad_owner_ref(array->memory.owner);
    AD_RETURN_IF_ERR(ad_owner_group_new(plan->allocations.items,
                                        plan->allocations.n,
                                        &self->memory.owner, err));
    return ad_map_buffers(array, &self->map, NULL, err);
}

/* (schema, numbers, buffers). `schema` has the parts of the type. `numbers` has
 * length, offset, null count and number of buffers of each node, a node before
 * its children, which are before its dictionary. `buffers` has the buffers of
 * all nodes. */
static PyObject *
array_parts(ad_state *state, const ad_array *array)
{
    parts self = {
        .map = {add_node},
        .state = state,
        .memory = {.device = AD_CPU, .readonly = array->memory.readonly},
        .numbers = PyList_New(0),
        .buffers = PyList_New(0),
    };
    PyObject *result = NULL;
    ad_error err;
    if (self.numbers != NULL && self.buffers != NULL) {
        ad_status status = take_parts(&self, array, &err);
        result = status == AD_OK
                     ? Py_BuildValue("(NNN)",
                                     schema_parts(state, array->schema.node),
                                     PyList_AsTuple(self.numbers),
                                     PyList_AsTuple(self.buffers))
                     : ad_raise(state, &err);
    }
    ad_plan_clear(&self.plan);
    ad_owner_unref(self.memory.owner);
    Py_XDECREF(self.numbers);
    Py_XDECREF(self.buffers);
    return result;
}

/* --- the parts of a tensor ----------------------------------------------- */

#define KEPT_FLAGS (AD_TENSOR_IMMUTABLE | AD_TENSOR_SUBBYTE_PADDED)
/* Stands for memory.readonly beside the flags of a pickle. */
#define PICKLED_READONLY 1U

/* (dtype, shape, order, flags, buffer). A tensor that is contiguous in neither
 * order is copied to row-major order. */
static PyObject *
tensor_parts(ad_state *state, const ad_tensor *tensor)
{
    ad_tensor_value value;
    ad_error err;
    char dtype[AD_DTYPE_NAME_SIZE];
    int64_t low, high;
    ad_status status = ad_tensor_require_size(tensor, &err);
    if (status == AD_OK && (ad_tensor_is_contiguous(tensor, 'C') ||
                            ad_tensor_is_contiguous(tensor, 'F'))) {
        ad_tensor_share(tensor, &value);
    } else if (status == AD_OK) {
        status =
            ad_tensor_copy_to(tensor, tensor->memory.device, NULL, 'C',
                              "a pickle has contiguous memory", &value, &err);
    }
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    const ad_tensor *block = &value.tensor;
    ad_tensor_extent(block, &low, &high);
    uint32_t flags = (tensor->flags & KEPT_FLAGS) |
                     (tensor->memory.readonly ? PICKLED_READONLY : 0);
    ad_memory memory = block->memory; /* borrowed */
    memory.readonly = tensor->memory.readonly;
    PyObject *result =
        Py_BuildValue("(sNsIN)", ad_dtype_format(block->dtype, dtype),
                      ad_int_tuple(block->shape, block->ndim, 1),
                      ad_tensor_is_contiguous(block, 'C') ? "C" : "F", flags,
                      ad_buffer_object_new(state, ad_tensor_address(block), 0,
                                           high, 0, &memory));
    ad_tensor_clear(&value.tensor);
    return result;
}

PyObject *
ad_function_parts(PyObject *module, PyObject *value)
{
    ad_state *state = ad_state_of_module(module);
    if (ad_is_array(state, value)) {
        return array_parts(state, ad_array_of(value));
    }
    if (ad_is_tensor(state, value)) {
        return tensor_parts(state, ad_tensor_of(value));
    }
    PyErr_Format(PyExc_TypeError, "no Array, Tensor or Buffer: %.200s",
                 Py_TYPE(value)->tp_name);
    return NULL;
}

/* --- a schema of its parts ----------------------------------------------- */

/* The schema that is being built. `used` is a set of addresses of parts. */
typedef struct building {
    ad_state *state;
    PyObject *used;
} building;

static int build_schema(building *self, PyObject *parts, int depth,
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
build_schemas_below(building *self, PyObject *children, PyObject *dictionary,
                    int depth, ad_schema *below)
{
    Py_ssize_t n = PyTuple_GET_SIZE(children);
    if ((n > 0 && use_once(self, children) < 0) ||
        (dictionary != Py_None && use_once(self, dictionary) < 0)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (build_schema(self, PyTuple_GET_ITEM(children, i), depth + 1,
                         &below[i]) < 0) {
            return -1;
        }
    }
    return dictionary == Py_None
               ? 0
               : build_schema(self, dictionary, depth + 1, &below[n]);
}

static int
build_schema(building *self, PyObject *parts, int depth, ad_schema *out)
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
    int result = build_schemas_below(self, children, dictionary, depth, below);
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

/* A validated schema of such parts. Returns 0, or -1 with an exception. */
static int
schema_of_parts(ad_state *state, PyObject *parts, ad_schema *out)
{
    ad_error err;
    building self = {.state = state, .used = PySet_New(NULL)};
    int result = self.used != NULL ? build_schema(&self, parts, 1, out) : -1;
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
    return schema_of_parts(state, parts, &schema) == 0
               ? ad_schema_object_new(state, schema)
               : NULL;
}

/* --- an array of its parts ----------------------------------------------- */

/* A buffer of the pickle, or none. */
typedef struct pickled {
    const void *data;
    int64_t nbytes;
    ad_memory memory; /* with references of its own */
} pickled;

/* Own memory that is ready, or is on a device, needs no Py_buffer, and no GIL
 * when it is released. */
static bool
is_own_buffer(ad_state *state, PyObject *item)
{
    return Py_TYPE(item) == (PyTypeObject *)state->buffer_type &&
           (ad_memory_of(item)->device.type != AD_CPU.type ||
            ad_memory_of(item)->sync == NULL) &&
           !(ad_tensor_of(item)->flags & AD_TENSOR_SIZE_UNKNOWN);
}

static int
read_memory(ad_state *state, PyObject *item, pickled *out)
{
    const Py_buffer *view;
    *out = (pickled){.memory.device = AD_CPU};
    if (item == Py_None) {
        return 0;
    }
    if (is_own_buffer(state, item)) {
        const ad_tensor *tensor = ad_tensor_of(item);
        out->memory = ad_memory_ref(&tensor->memory);
        out->nbytes = ad_tensor_size(tensor);
        out->data = out->nbytes > 0 || out->memory.device.type != AD_CPU.type
                        ? ad_tensor_address(tensor)
                        : zeros;
        return 0;
    }
    out->memory.owner = ad_py_owner_of_buffer(item, PyBUF_SIMPLE, &view);
    if (out->memory.owner == NULL) {
        return -1;
    }
    out->data = view->len > 0 ? view->buf : zeros;
    out->nbytes = view->len;
    out->memory.readonly = view->readonly;
    return 0;
}

typedef struct reading {
    int64_t *numbers;
    size_t n_numbers;
    size_t number; /* the next one */
    pickled *buffers;
    size_t n_buffers;
    size_t buffer; /* the next one */
} reading;

static ad_status build_node(reading *self, ad_schema schema, ad_array *out,
                            ad_error *err);

/* Builds the children and, after them, the dictionary. */
static ad_status
build_below(reading *self, const struct ArrowSchema *schema, ad_owner *owner,
            ad_array *below, ad_error *err)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        AD_RETURN_IF_ERR(build_node(
            self, (ad_schema){schema->children[i], owner}, &below[i], err));
    }
    return schema->dictionary == NULL
               ? AD_OK
               : build_node(self, (ad_schema){schema->dictionary, owner},
                            &below[schema->n_children], err);
}

/* The next n buffers of the pickle as those of one node. */
static ad_status
take_buffers(reading *self, size_t n, ad_array_spec *spec,
             const void **addresses, ad_owner **owners, ad_error *err)
{
    const pickled *buffers = &self->buffers[self->buffer];
    self->buffer += n;
    for (size_t i = 0; i < n; i++) {
        addresses[i] = buffers[i].data;
        owners[i] = buffers[i].memory.owner;
        spec->memory.readonly |= buffers[i].memory.readonly;
    }
    spec->buffers = addresses;
    return ad_owner_group_new(owners, n, &spec->memory.owner, err);
}

static ad_status
build_node(reading *self, ad_schema schema, ad_array *out, ad_error *err)
{
    const int64_t *numbers = &self->numbers[self->number];
    size_t n_below = (size_t)schema.node->n_children + 1;
    self->number += 4;
    if (self->number > self->n_numbers || numbers[3] < 0 ||
        (uint64_t)numbers[3] > self->n_buffers - self->buffer) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the pickle has fewer nodes or buffers than the type");
    }
    size_t n = (size_t)numbers[3];
    size_t nbytes =
        n_below * sizeof(ad_array) + n * (sizeof(void *) + sizeof(ad_owner *));
    ad_array *below = calloc(1, nbytes);
    if (below == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    const void **addresses = (const void **)&below[n_below];
    ad_array_spec spec = {
        .schema = schema,
        .memory = {.device = AD_CPU},
        .length = numbers[0],
        .offset = numbers[1],
        .null_count = numbers[2],
        .n_buffers = (int64_t)n,
        .n_children = schema.node->n_children,
        .children = below,
        .dictionary =
            schema.node->dictionary != NULL ? &below[n_below - 1] : NULL,
    };
    ad_status status = take_buffers(self, n, &spec, addresses,
                                    (ad_owner **)&addresses[n], err);
    if (status == AD_OK) {
        status = build_below(self, schema.node, schema.owner, below, err);
    }
    if (status == AD_OK) {
        status = ad_array_build(&spec, out, err);
    }
    ad_owner_unref(spec.memory.owner);
    for (size_t i = 0; i < n_below; i++) {
        ad_array_clear(&below[i]);
    }
    free(below);
    return status;
}

/* Checks that no buffer is shorter than the rows need. What a buffer needs may
 * be read from another one of the node, which is checked first: sizes of views
 * are last, offsets before their data. */
static ad_status
check_sizes(const ad_array *array, const pickled **next, ad_error *err)
{
    const pickled *buffers = *next;
    int64_t n = array->node->n_buffers;
    *next += n;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (n > 3 ? i + n - 1 : i) % n; /* more than 3: views */
        int64_t needed;
        AD_RETURN_IF_ERR(ad_array_buffer_size(array, at, &needed, err));
        if (needed > buffers[at].nbytes) {
            return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                           "buffer %" PRId64 " has %" PRId64
                           " bytes, but its rows need %" PRId64,
                           at, buffers[at].nbytes, needed);
        }
    }
    int64_t n_below =
        array->node->n_children + (array->node->dictionary != NULL);
    for (int64_t i = 0; i < n_below; i++) {
        ad_array below;
        AD_RETURN_IF_ERR(ad_array_below(array, i, &below, err));
        ad_status status = check_sizes(&below, next, err);
        ad_array_clear(&below);
        AD_RETURN_IF_ERR(status);
    }
    return AD_OK;
}

static ad_status
build_array(reading *self, ad_schema schema, ad_array *out, ad_error *err)
{
    const pickled *next = self->buffers;
    AD_RETURN_IF_ERR(build_node(self, schema, out, err));
    ad_status status = ad_array_validate(schema.node, out->node, err);
    if (status == AD_OK &&
        (self->number != self->n_numbers || self->buffer != self->n_buffers)) {
        status = ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                         "the pickle has more nodes or buffers than the type");
    }
    if (status == AD_OK) {
        status = check_sizes(out, &next, err);
    }
    if (status == AD_OK) {
        status = ad_array_validate_references(out, err);
    }
    if (status != AD_OK) {
        ad_array_clear(out);
    }
    return status;
}

/* Reads the tuples of numbers and buffers. 0, or -1 with an exception. */
static int
read_tuples(ad_state *state, PyObject *numbers, PyObject *buffers,
            reading *out)
{
    size_t n_numbers = (size_t)PyTuple_GET_SIZE(numbers);
    size_t n_buffers = (size_t)PyTuple_GET_SIZE(buffers);
    out->numbers = calloc(n_numbers + 1, sizeof(*out->numbers));
    out->buffers = calloc(n_buffers + 1, sizeof(*out->buffers));
    if (out->numbers == NULL || out->buffers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n_numbers; i++) {
        PyObject *item = PyTuple_GET_ITEM(numbers, (Py_ssize_t)i);
        if (ad_parse_count(item, "a number", &out->numbers[i]) < 0) {
            return -1;
        }
    }
    out->n_numbers = n_numbers;
    for (size_t i = 0; i < n_buffers; i++) {
        PyObject *item = PyTuple_GET_ITEM(buffers, (Py_ssize_t)i);
        if (read_memory(state, item, &out->buffers[i]) < 0) {
            return -1;
        }
        out->n_buffers = i + 1;
        if (out->buffers[i].memory.device.type != AD_CPU.type) {
            PyErr_SetString(PyExc_ValueError,
                            "the buffers of a pickled array are on the host");
            return -1;
        }
    }
    return 0;
}

PyObject *
ad_function_array_of_parts(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    reading self = {0};
    PyObject *parts, *numbers, *buffers;
    ad_schema schema;
    PyObject *result = NULL;
    ad_array array;
    ad_error err;
    if (!PyArg_ParseTuple(args, "OO!O!", &parts, &PyTuple_Type, &numbers,
                          &PyTuple_Type, &buffers) ||
        schema_of_parts(state, parts, &schema) < 0) {
        return NULL;
    }
    if (read_tuples(state, numbers, buffers, &self) == 0) {
        result = build_array(&self, schema, &array, &err) == AD_OK
                     ? ad_array_object_new(state, &array)
                     : ad_raise(state, &err);
    }
    for (size_t i = 0; i < self.n_buffers; i++) {
        ad_memory_drop(&self.buffers[i].memory);
    }
    ad_schema_unref(schema);
    free(self.numbers);
    free(self.buffers);
    return result;
}

/* --- a tensor of its parts ----------------------------------------------- */

static void
set_column_major(ad_tensor *tensor)
{
    int64_t stride = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        tensor->strides[i] = stride;
        stride *= tensor->shape[i];
    }
}

/* Makes a tensor over the whole of `block`. */
static ad_status
build_tensor(const ad_tensor_descriptor *descriptor, char order,
             const pickled *block, ad_tensor_value *out, ad_error *err)
{
    int64_t low, high;
    AD_RETURN_IF_ERR(ad_tensor_check(descriptor, "the pickle", out, err));
    if (order != 'C' && order != 'F') {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "the pickle has no order of elements");
    }
    if (order == 'F' && ad_tensor_size(&out->tensor) > 0) {
        set_column_major(&out->tensor);
    }
    ad_tensor_extent(&out->tensor, &low, &high);
    if (high != block->nbytes) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "the pickle has %" PRId64
                       " bytes of elements, but its shape needs %" PRId64,
                       block->nbytes, high);
    }
    return AD_OK;
}

PyObject *
ad_function_tensor_of_parts(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    int is_buffer, order;
    ad_tensor_descriptor descriptor = {.memory = {.device = AD_CPU}};
    int64_t shape[AD_MAX_NDIM];
    const char *dtype;
    PyObject *dims, *item;
    pickled block;
    ad_tensor_value value;
    ad_error err;
    if (!PyArg_ParseTuple(args, "psO!CIO", &is_buffer, &dtype, &PyTuple_Type,
                          &dims, &order, &descriptor.flags, &item)) {
        return NULL;
    }
    if (!ad_dtype_from_name(dtype, &descriptor.dtype)) {
        return PyErr_Format(PyExc_ValueError,
                            "the pickle has an unknown dtype, '%.100s'",
                            dtype);
    }
    if ((descriptor.ndim = ad_parse_dims(dims, "shape", shape)) < 0 ||
        read_memory(state, item, &block) < 0) {
        return NULL;
    }
    descriptor.data = (void *)block.data;
    descriptor.shape = shape;
    descriptor.memory.device = block.memory.device;
    descriptor.memory.readonly =
        block.memory.readonly || (descriptor.flags & PICKLED_READONLY);
    descriptor.flags &= KEPT_FLAGS;
    ad_status status =
        build_tensor(&descriptor, (char)order, &block, &value, &err);
    value.tensor.memory.owner = block.memory.owner;
    value.tensor.memory.sync = block.memory.sync;
    if (status == AD_OK && is_buffer && descriptor.ndim != 1) {
        status = ad_fail(&err, AD_ERR_VALUE, NULL, NULL,
                         "a Buffer of %d dimensions", descriptor.ndim);
    }
    if (status != AD_OK) {
        ad_memory_drop(&block.memory);
        return ad_raise(state, &err);
    }
    return ad_tensor_object_of_type(
        is_buffer ? state->buffer_type : state->tensor_type, &value.tensor);
}
