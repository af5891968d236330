/* Array.to_pylist() and array[i]; Tensor.tolist() and item(). */
#include "python/functions/pylist.h"

#include <stdarg.h>
#include <stdio.h>

#include "order/sync.h"
#include "support/py_call.h"

/* The most values that are made of no bytes, such as the rows of a null
 * array. */
#define MAX_UNSTORED 100000000

/* --- errors -------------------------------------------------------------- */

/* Write the path to *err, and "row 2 (7 in its buffers)" to its message. */
static void
describe_row(const ad_pylist_reader *self, int64_t row, ad_error *err)
{
    int64_t offset = self->array.offset;
    ad_fail(err, AD_ERR_ARROW, NULL, NULL, "row %lld",
            (long long)(row - offset));
    if (offset != 0) {
        size_t n = strlen(err->message);
        PyOS_snprintf(err->message + n, sizeof(err->message) - n,
                      " (%lld in its buffers)", (long long)row);
    }
    for (; self->parent != NULL; self = self->parent) {
        if (self->index < 0) {
            ad_error_path_prepend(err, "dictionary");
        } else {
            ad_error_path_prepend(err, "children[%lld]",
                                  (long long)self->index);
        }
    }
}

int
ad_pylist_malformed(const ad_pylist_reader *self, int64_t row,
                    const char *format, ...)
{
    ad_error err;
    va_list args;
    describe_row(self, row, &err);
    size_t n = strlen(err.message);
    n += (size_t)PyOS_snprintf(err.message + n, sizeof(err.message) - n, ": ");
    va_start(args, format);
    PyOS_vsnprintf(err.message + n, sizeof(err.message) - n, format, args);
    va_end(args);
    ad_raise(self->list->state, &err);
    return -1;
}

int
ad_pylist_name_row(const ad_pylist_reader *self, int64_t row)
{
    ad_error err;
    describe_row(self, row, &err);
    ad_prefix_exception("%s%s%s: ", err.path, err.path[0] != '\0' ? ": " : "",
                        err.message);
    return -1;
}

int
ad_pylist_read_extension(const ad_pylist_reader *self, ad_extension *out)
{
    ad_error err;
    ad_status status = ad_extension_read(self->array.schema.node, out, &err);
    return ad_raise_status(self->list->state, status, &err);
}

int
ad_pylist_no_value(ad_dl_dtype dtype, const char *instead)
{
    char name[AD_DTYPE_NAME_SIZE];
    PyErr_Format(PyExc_NotImplementedError, "no Python value for %s; use %s",
                 ad_dtype_format(dtype, name), instead);
    return -1;
}

/* --- values without bytes ------------------------------------------------ */

static int64_t
add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t
multiply(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* The lists within one row of a tensor without elements. */
static ad_status
count_empty_lists(const ad_array *array, int64_t *out, ad_error *err)
{
    ad_extension extension;
    int64_t shape[AD_MAX_NDIM], strides[AD_MAX_NDIM];
    *out = 0;
    AD_RETURN_IF_ERR(ad_extension_read(array->schema.node, &extension, err));
    if (extension.kind != AD_EXTENSION_FIXED_SHAPE_TENSOR) {
        return AD_OK;
    }
    ad_extension_row(&extension, shape, strides);
    int64_t n = 1;
    for (int32_t i = 0; i < extension.ndim && shape[i] != 0; i++) {
        n = multiply(n, shape[i]);
        *out = add(*out, n);
        if (i + 1 == extension.ndim) {
            *out = 0; /* there are elements */
        }
    }
    return AD_OK;
}

/* Values without bytes of their own in one row. Those of lists are counted
 * when their offsets are read. */
static ad_status
count_unstored(const ad_array *array, int64_t *out, ad_error *err)
{
    ad_type type;
    int64_t below = 0;
    AD_RETURN_IF_ERR(ad_type_parse(array->schema.node->format, &type, err));
    bool has_bytes = type.layout == AD_LAYOUT_FIXED
                         ? type.bit_width != 0
                         : type.layout != AD_LAYOUT_NONE &&
                               type.layout != AD_LAYOUT_VALIDITY;
    *out = !has_bytes && ad_array_validity(array) == NULL;
    if (type.layout != AD_LAYOUT_VALIDITY) {
        return AD_OK;
    }
    if (type.id == AD_TYPE_FIXED_LIST) {
        AD_RETURN_IF_ERR(count_empty_lists(array, &below, err));
        *out = add(*out, below);
    }
    for (int64_t i = 0; i < array->node->n_children; i++) {
        ad_array child = ad_array_borrow_below(array, i, 0, 0);
        AD_RETURN_IF_ERR(count_unstored(&child, &below, err));
        *out = add(*out, type.id == AD_TYPE_FIXED_LIST
                             ? multiply(below, type.list_size)
                             : below);
    }
    return AD_OK;
}

int
ad_pylist_count_unstored(ad_pylist_reader *self)
{
    ad_error err;
    ad_status status = count_unstored(&self->array, &self->n_unstored, &err);
    return ad_raise_status(self->list->state, status, &err);
}

int
ad_pylist_refuse_too_many(ad_pylist_reader *self, int64_t n)
{
    ad_pylist *list = self->list;
    int64_t n_unstored = multiply(self->n_unstored, n);
    list->n_unstored = add(list->n_unstored, n_unstored);
    if (list->n_unstored <= MAX_UNSTORED || n_unstored == 0) {
        return 0;
    }
    ad_text name = {0};
    ad_error err;
    ad_status status = ad_type_print(self->array.schema.node, &name, &err);
    if (status == AD_OK) {
        int64_t before = list->n_unstored - n_unstored;
        char others[48] = "";
        if (before > 0 && list->n_unstored != INT64_MAX) {
            PyOS_snprintf(others, sizeof(others), " after %lld others",
                          (long long)before);
        }
        ad_raise_exchange(
            list->state, "size",
            "take fewer rows, with .slice(), or read .schema and len()",
            "%lld rows of %s are %lld values without stored bytes%s, of which "
            "at most %d are made",
            (long long)n, ad_text_string(&name), (long long)n_unstored, others,
            MAX_UNSTORED);
    } else {
        ad_raise(list->state, &err);
    }
    ad_text_clear(&name);
    return -1;
}

/* --- readers ------------------------------------------------------------- */

/* The first fill() of every reader: it finds out how the values are stored. */
static int
open_and_fill(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    const ad_array *array = &self->array;
    ad_error err;
    ad_status status =
        ad_type_parse(array->schema.node->format, &self->type, &err);
    if (status != AD_OK) {
        return ad_raise_status(self->list->state, status, &err);
    }
    self->validity = ad_array_validity(array);
    int i = self->type.has_validity;
    self->first = i < array->node->n_buffers ? array->node->buffers[i] : NULL;
    i++;
    self->second = i < array->node->n_buffers ? array->node->buffers[i] : NULL;
    int is_open =
        array->node->dictionary != NULL ? ad_pylist_open_dictionary(self)
        : self->type.id >= AD_TYPE_LIST ? ad_pylist_open_nested(self)
                                        : ad_pylist_open_values(self);
    return is_open < 0 ? -1 : self->fill(self, row, n, out);
}

int
ad_pylist_open_below(ad_pylist_reader *self)
{
    const struct ArrowArray *node = self->array.node;
    bool has_dictionary = node->dictionary != NULL;
    int64_t n = node->n_children + has_dictionary;
    self->below = PyMem_Calloc((size_t)n, sizeof(*self->below));
    if (self->below == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->n_below = n;
    for (int64_t i = 0; i < n; i++) {
        ad_pylist_reader *below = &self->below[i];
        below->index = i < node->n_children ? i : -1;
        int64_t length = below->index < 0 ? node->dictionary->length
                                          : node->children[i]->length;
        below->array =
            ad_array_borrow_below(&self->array, below->index, 0, length);
        below->fill = open_and_fill;
        below->list = self->list;
        below->parent = self;
    }
    return 0;
}

static void
clear_reader(ad_pylist_reader *self)
{
    for (int64_t i = 0; i < self->n_below; i++) {
        clear_reader(&self->below[i]);
    }
    PyMem_Free(self->below);
    PyMem_Free(self->tensor);
    Py_XDECREF(self->helper);
    Py_XDECREF(self->names);
}

/* Run signal handlers, and let other threads run. */
static int
pause_reading(ad_pylist *list)
{
    list->n_made = 0;
    Py_BEGIN_ALLOW_THREADS;
    Py_END_ALLOW_THREADS;
    return PyErr_CheckSignals();
}

int
ad_pylist_fill_long(ad_pylist_reader *self, int64_t row, int64_t n,
                    PyObject **out)
{
    while (n > 0) {
        int64_t piece = Py_MIN(n, AD_PYLIST_CHUNK);
        if (pause_reading(self->list) < 0 ||
            self->fill(self, row, piece, out) < 0) {
            return -1;
        }
        row += piece;
        out += piece;
        n -= piece;
    }
    return 0;
}

PyObject *
ad_pylist_complete(ad_pylist *list, PyObject *object)
{
    if (!list->is_collecting) {
        PyObject_GC_Track(object);
        return object;
    }
    if (list->n_hidden == list->capacity) {
        size_t capacity = list->capacity != 0 ? 2 * list->capacity : 8;
        PyObject **grown =
            PyMem_Realloc(list->hidden, capacity * sizeof(*grown));
        if (grown == NULL) {
            Py_DECREF(object);
            return PyErr_NoMemory();
        }
        list->hidden = grown;
        list->capacity = capacity;
    }
    list->hidden[list->n_hidden++] = object;
    return object;
}

/* Let the collector track the result, if there is one. On an error its parts
 * have been freed. */
static void
track_all(ad_pylist *list, PyObject *result)
{
    const size_t ahead = 16;
    for (size_t i = 0; result != NULL && i < list->n_hidden; i++) {
        if (i + ahead < list->n_hidden) { /* the collector's header */
            __builtin_prefetch((char *)list->hidden[i + ahead] - 16, 1);
        }
        PyObject_GC_Track(list->hidden[i]);
    }
    PyMem_Free(list->hidden);
}

PyObject *
ad_pylist_of(ad_pylist_reader *self, int64_t row, int64_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    if (list == NULL) {
        return NULL;
    }
    PyObject_GC_UnTrack(list);
    if (ad_pylist_read(self, row, n, ((PyListObject *)list)->ob_item) < 0) {
        Py_DECREF(list);
        return NULL;
    }
    return ad_pylist_complete(self->list, list);
}

/* --- entry points -------------------------------------------------------- */

/* Wait until the host can read the memory, or refuse for `what`. */
static int
wait_for_host(ad_state *state, const ad_memory *memory, const char *what)
{
    ad_error err;
    return ad_require_host_for(state, memory, what) < 0
               ? -1
               : ad_raise_status(state, ad_sync_wait(memory->sync, what, &err),
                                 &err);
}

/* `n` rows as a list, or for -1 the row as it is. */
static PyObject *
read_rows(PyObject *self, int64_t row, int64_t n)
{
    ad_pylist list = {
        .state = ad_state_of(self),
        .n_rows = n < 0 ? 1 : n,
        .is_collecting = PyGC_IsEnabled(),
    };
    if (wait_for_host(list.state, ad_memory_of(self),
                      n < 0 ? "a value of an Array" : "to_pylist()") < 0) {
        return NULL;
    }
    ad_pylist_reader reader = {
        .fill = open_and_fill,
        .list = &list,
        .array = ad_array_borrow(ad_array_of(self)),
    };
    reader.array.memory.sync = NULL; /* it was waited for */
    row += reader.array.offset;
    PyObject *result = NULL;
    if (ad_pylist_count_unstored(&reader) == 0 &&
        ad_pylist_refuse_too_many(&reader, list.n_rows) == 0) {
        if (n >= 0) {
            result = ad_pylist_of(&reader, row, n);
        } else if (ad_pylist_read(&reader, row, 1, &result) < 0) {
            Py_CLEAR(result);
        }
    }
    clear_reader(&reader);
    track_all(&list, result);
    return result;
}

PyObject *
ad_array_to_pylist(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return read_rows(self, 0, ad_array_of(self)->length);
}

PyObject *
ad_array_row(PyObject *self, int64_t row)
{
    return read_rows(self, row, -1);
}

/* --- tensors ------------------------------------------------------------- */

/* Elements that share their bytes with others, or the lists of a tensor
 * without elements. */
static int64_t
count_unstored_of(const ad_tensor *tensor)
{
    int64_t low, high;
    int64_t n_elements = 1;
    int64_t n_lists = 0;
    for (int32_t i = 0; i < tensor->ndim && n_elements != 0; i++) {
        n_lists = add(n_lists, n_elements);
        n_elements = multiply(n_elements, tensor->shape[i]);
    }
    if (n_elements == 0) {
        return n_lists;
    }
    ad_tensor_extent(tensor, &low, &high);
    return n_elements - (high - low) / (ad_dtype_bits(tensor->dtype) / 8);
}

static int
refuse_unstored(ad_state *state, const ad_tensor *tensor)
{
    int64_t n = count_unstored_of(tensor);
    if (n <= MAX_UNSTORED) {
        return 0;
    }
    ad_raise_exchange(state, "size", "index the Tensor to take a part of it",
                      "the result has %lld values without stored bytes, of "
                      "which at most %d are made",
                      (long long)n, MAX_UNSTORED);
    return -1;
}

/* A 0-d tensor is its element. */
static PyObject *
read_tensor(PyObject *self, int32_t ndim, const char *what)
{
    const ad_tensor *tensor = ad_tensor_of(self);
    ad_pylist list = {
        .state = ad_state_of(self),
        .is_collecting = PyGC_IsEnabled(),
    };
    ad_pylist_reader reader = {
        .fill = ad_pylist_fill_of(tensor->dtype),
        .list = &list,
        .first = ad_tensor_address(tensor),
    };
    ad_pylist_tensor dimensions;
    dimensions.ndim = ndim;
    if (wait_for_host(list.state, &tensor->memory, what) < 0) {
        return NULL;
    }
    if (reader.fill == NULL) {
        ad_pylist_no_value(tensor->dtype,
                           "arrowdev.array(x), whose .buffers or .children "
                           "have what is stored");
        return NULL;
    }
    for (int32_t i = 0; i < ndim; i++) {
        dimensions.shape[i] = tensor->shape[i];
        dimensions.strides[i] = tensor->strides[i];
    }
    PyObject *result = refuse_unstored(list.state, tensor) == 0
                           ? ad_pylist_of_tensor(&reader, &dimensions, 0, 0)
                           : NULL;
    track_all(&list, result);
    return result;
}

PyObject *
ad_tensor_tolist(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return read_tensor(self, ad_tensor_of(self)->ndim, "tolist()");
}

PyObject *
ad_tensor_item(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const ad_tensor *tensor = ad_tensor_of(self);
    int64_t size = ad_tensor_size(tensor);
    if (size == 1) {
        return read_tensor(self, 0, "item()");
    }
    PyObject *shape = ad_int_tuple(tensor->shape, tensor->ndim, 1);
    if (shape != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "item() is the only element of a Tensor, and this one "
                     "has %lld, of shape %S; index it, or use tolist()",
                     (long long)size, shape);
        Py_DECREF(shape);
    }
    return NULL;
}

PyObject *
ad_scalar(PyObject *self)
{
    ad_state *state = ad_state_of(self);
    char found[24] = "an Array";
    if (!ad_is_array(state, self)) {
        int ndim = (int)ad_tensor_of(self)->ndim;
        bool is_buffer = Py_TYPE(self) == (PyTypeObject *)state->buffer_type;
        if (ndim == 0) {
            return read_tensor(self, 0, "the number of a Tensor");
        }
        PyOS_snprintf(found, sizeof(found),
                      is_buffer ? "a Buffer" : "a %d-d Tensor", ndim);
    }
    PyErr_Format(PyExc_TypeError,
                 "only a 0-d Tensor is a number, found %s; "
                 "arrowdev.array(x)[i] is the value of a row",
                 found);
    return NULL;
}
