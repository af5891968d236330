/* Array.to_pylist() and array[i]; Tensor.tolist() and item(): values in host
 * memory as Python objects. The types with children are here, those without in
 * pylist_values.c. */
#include "python/functions/pylist.h"

#include <stdio.h>

#include "base/unaligned.h"
#include "order/sync.h"
#include "python/types/types.h"
#include "support/py_call.h"

/* Values between two looks at signals and at other threads. */
#define CHUNK 65536

/* The most values that are made of no bytes, such as the rows of a null
 * array. */
#define MAX_UNSTORED 100000000

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

/* Count the values without bytes of their own that each row has, before
 * rows are refused for them. 0, or -1 with an exception. */
static int
count_per_row(ad_pylist_reader *self)
{
    ad_error err;
    ad_status status = count_unstored(&self->array, &self->n_unstored, &err);
    return ad_raise_status(self->list->state, status, &err);
}

/* Refuse `n` rows of `self` with ExchangeError if they, and all that came
 * before, are more values without bytes than memory can hold. 0, or -1. */
static int
refuse_too_many(ad_pylist_reader *self, int64_t n)
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

/* --- rows ---------------------------------------------------------------- */

/* Run signal handlers, and let other threads run. */
static int
pause_reading(ad_pylist *list)
{
    list->n_made = 0;
    Py_BEGIN_ALLOW_THREADS;
    Py_END_ALLOW_THREADS;
    return PyErr_CheckSignals();
}

/* Calls fill(), in pieces between which the main thread runs signal
 * handlers. */
static int
fill_long(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    while (n > 0) {
        int64_t piece = Py_MIN(n, CHUNK);
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

static inline int
read_values(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    self->list->n_made += n;
    return self->list->n_made < CHUNK ? self->fill(self, row, n, out)
                                      : fill_long(self, row, n, out);
}

/* Other code can find each object that the garbage collector tracks, and must
 * find none with empty places: a new list is untracked until it is complete.
 *
 * Pass on a container that is a part of the result and complete. With the
 * collector on, it is tracked only when the whole result is there, since a
 * collector that runs again and again while millions of containers are made
 * takes more time than all else. Returns `object`, or NULL with an exception,
 * and then the reference is gone. */
static PyObject *
complete(ad_pylist *list, PyObject *object)
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

/* A new list of rows of `self`, or NULL with an exception. */
static PyObject *
list_of(ad_pylist_reader *self, int64_t row, int64_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    if (list == NULL) {
        return NULL;
    }
    PyObject_GC_UnTrack(list);
    if (read_values(self, row, n, ((PyListObject *)list)->ob_item) < 0) {
        Py_DECREF(list);
        return NULL;
    }
    return complete(self->list, list);
}

/* --- readers ------------------------------------------------------------- */

static ad_pylist_fill open_and_fill;

/* Make the readers of the children and of the dictionary. 0, or -1 with an
 * exception. */
static int
open_below(ad_pylist_reader *self)
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

/* --- lists --------------------------------------------------------------- */

/* The values of a row, counted from the start of the child's buffers. */
static int
find_list(const ad_pylist_reader *self, int64_t row, int64_t *first,
          int64_t *size)
{
    bool is_wide = self->type.wide_offsets;
    const ad_array *child = &self->below[0].array;
    int64_t start = ad_offset_at(self->first, is_wide, row);
    int64_t stop;
    if (self->type.layout == AD_LAYOUT_LIST) {
        stop = ad_offset_at(self->first, is_wide, row + 1);
    } else if (__builtin_add_overflow(
                   start, ad_offset_at(self->second, is_wide, row), &stop)) {
        stop = INT64_MAX;
    }
    if (start < 0 || start > stop || stop > child->length) {
        return ad_pylist_malformed(
            self, row,
            "its values run from %lld to %lld, expected from 0 to %lld",
            (long long)start, (long long)stop, (long long)child->length);
    }
    *first = child->offset + start;
    *size = stop - start;
    return 0;
}

/* Refuse the lists of some rows, if their values have no bytes and are too
 * many. */
static int
refuse_long_lists(ad_pylist_reader *self, int64_t row, int64_t n)
{
    int64_t total = 0;
    if (self->below[0].n_unstored == 0) {
        return 0;
    }
    for (int64_t i = row; i < row + n; i++) {
        int64_t first, size;
        if (ad_pylist_is_null(self, i)) {
            continue;
        }
        if (find_list(self, i, &first, &size) < 0) {
            return -1;
        }
        total = size > INT64_MAX - total ? INT64_MAX : total + size;
    }
    return refuse_too_many(&self->below[0], total);
}

static int
fill_lists(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    if (refuse_long_lists(self, row, n) < 0) {
        return -1;
    }
    for (int64_t i = row; i < row + n; i++, out++) {
        int64_t first, size;
        if (ad_pylist_is_null(self, i)) {
            *out = Py_NewRef(Py_None);
            continue;
        }
        if (find_list(self, i, &first, &size) < 0) {
            return -1;
        }
        *out = list_of(&self->below[0], first, size);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

/* The same for a tuple or a dict that is complete from the start.
 * A dict is tracked once it has a value that may be a part of a cycle. */
static PyObject *
complete_tracked(ad_pylist *list, PyObject *object)
{
    if (!list->is_collecting || !PyObject_GC_IsTracked(object)) {
        return object;
    }
    PyObject_GC_UnTrack(object);
    return complete(list, object);
}

/* Pairs, not dicts: keys and field names may repeat. */
static PyObject *
read_entry(ad_pylist_reader *entries, int64_t row)
{
    PyObject *values[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        ad_pylist_reader *below = &entries->below[i];
        if (read_values(below, below->array.offset + row, 1, &values[i]) < 0) {
            goto done;
        }
    }
    PyObject *pair = PyTuple_New(2);
    if (pair != NULL) {
        PyTuple_SET_ITEM(pair, 0, values[0]);
        PyTuple_SET_ITEM(pair, 1, values[1]);
        return complete_tracked(entries->list, pair);
    }
done:
    Py_XDECREF(values[0]);
    Py_XDECREF(values[1]);
    return NULL;
}

/* The rows of a map's child. The map has no null entries. */
static int
fill_entries(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    for (int64_t i = row; i < row + n; i++, out++) {
        *out = read_entry(self, i);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

static int
open_lists(ad_pylist_reader *self)
{
    self->fill = fill_lists;
    if (open_below(self) < 0) {
        return -1;
    }
    ad_pylist_reader *child = &self->below[0];
    if (self->type.id == AD_TYPE_MAP) {
        child->fill = fill_entries;
        if (open_below(child) < 0) {
            return -1;
        }
    }
    return count_per_row(child);
}

/* --- fixed-size lists ---------------------------------------------------- */

static int
fill_fixed_lists(ad_pylist_reader *self, int64_t row, int64_t n,
                 PyObject **out)
{
    ad_pylist_reader *child = &self->below[0];
    int64_t size = self->type.list_size;
    for (int64_t i = row; i < row + n; i++, out++) {
        *out = ad_pylist_is_null(self, i)
                   ? Py_NewRef(Py_None)
                   : list_of(child, child->array.offset + i * size, size);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

/* The nested lists of a tensor, one level for each dimension from `level` on;
 * of no dimension the value itself. `first` is the row of its first value.
 * NULL with an exception. */
static PyObject *
lists_of_tensor(ad_pylist_reader *child, const ad_pylist_tensor *tensor,
                int32_t level, int64_t first)
{
    PyObject *result = NULL;
    if (level == tensor->ndim) {
        return read_values(child, first, 1, &result) < 0 ? NULL : result;
    }
    int64_t extent = tensor->shape[level];
    int64_t stride = tensor->strides[level];
    if (level == tensor->ndim - 1 && stride == 1) {
        return list_of(child, first, extent);
    }
    result = PyList_New((Py_ssize_t)extent);
    if (result == NULL) {
        return NULL;
    }
    PyObject_GC_UnTrack(result);
    for (int64_t i = 0; i < extent; i++) {
        PyObject *value =
            lists_of_tensor(child, tensor, level + 1, first + i * stride);
        if (value == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        PyList_SET_ITEM(result, (Py_ssize_t)i, value);
    }
    return complete(child->list, result);
}

static int
fill_tensors(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    ad_pylist_reader *child = &self->below[0];
    for (int64_t i = row; i < row + n; i++, out++) {
        *out = ad_pylist_is_null(self, i)
                   ? Py_NewRef(Py_None)
                   : lists_of_tensor(child, self->tensor, 0,
                                     child->array.offset +
                                         i * self->type.list_size);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
read_complex(ad_pylist_reader *self, int64_t row)
{
    ad_pylist_reader *child = &self->below[0];
    PyObject *pair[2] = {NULL, NULL};
    PyObject *result = NULL;
    if (read_values(child, child->array.offset + 2 * row, 2, pair) == 0) {
        if (PyFloat_Check(pair[0]) && PyFloat_Check(pair[1])) {
            result = PyComplex_FromDoubles(PyFloat_AS_DOUBLE(pair[0]),
                                           PyFloat_AS_DOUBLE(pair[1]));
        } else {
            ad_pylist_malformed(self, row,
                                "a part of the complex number is null");
        }
    }
    Py_XDECREF(pair[0]);
    Py_XDECREF(pair[1]);
    return result;
}

static int
fill_complex(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    for (int64_t i = row; i < row + n; i++, out++) {
        *out = ad_pylist_is_null(self, i) ? Py_NewRef(Py_None)
                                          : read_complex(self, i);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

static int
open_fixed_lists(ad_pylist_reader *self)
{
    ad_extension extension;
    if (ad_pylist_read_extension(self, &extension) < 0) {
        return -1;
    }
    self->fill = fill_fixed_lists;
    if (extension.kind == AD_EXTENSION_DLPACK) {
        if (extension.dtype.code != AD_DL_COMPLEX ||
            extension.dtype.lanes != 1 || extension.dtype.bits < 64) {
            return ad_pylist_no_value(extension.dtype,
                                      ".children[0]" AD_PYLIST_WHERE);
        }
        self->fill = fill_complex;
    } else if (extension.kind == AD_EXTENSION_FIXED_SHAPE_TENSOR) {
        self->fill = fill_tensors;
        self->tensor = PyMem_Malloc(sizeof(*self->tensor));
        if (self->tensor == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->tensor->ndim = extension.ndim;
        ad_extension_row(&extension, self->tensor->shape,
                         self->tensor->strides);
    }
    return open_below(self);
}

/* --- structs ------------------------------------------------------------- */

/* Every dict begins as a copy of one with all names, so that it need not
 * grow. */
static PyObject *
read_struct(ad_pylist_reader *self, int64_t row)
{
    PyObject *dict = PyDict_Copy(self->helper);
    for (int64_t i = 0; dict != NULL && i < self->n_below; i++) {
        ad_pylist_reader *below = &self->below[i];
        PyObject *value = NULL;
        int status = read_values(below, below->array.offset + row, 1, &value);
        if (status == 0) {
            PyObject *name = PyTuple_GET_ITEM(self->names, (Py_ssize_t)i);
            status = PyDict_SetItem(dict, name, value);
        }
        Py_XDECREF(value);
        if (status < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict != NULL ? complete_tracked(self->list, dict) : NULL;
}

static int
fill_structs(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    for (int64_t i = row; i < row + n; i++, out++) {
        *out = ad_pylist_is_null(self, i) ? Py_NewRef(Py_None)
                                          : read_struct(self, i);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

static int
refuse_repeated_name(const struct ArrowSchema *schema, PyObject *name)
{
    Py_ssize_t count = 0;
    for (int64_t i = 0; i < schema->n_children; i++) {
        PyObject *other = ad_decode_text(schema->children[i]->name);
        if (other == NULL) {
            return -1;
        }
        count += PyUnicode_Compare(name, other) == 0;
        Py_DECREF(other);
    }
    PyObject *shown = PyUnicode_Substring(name, 0, 100);
    if (shown != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "%zd children are named %R, and a dict keeps one of "
                     "them; take each by its index: .field(i).to_pylist()",
                     count, shown);
        Py_DECREF(shown);
    }
    return -1;
}

static int
open_structs(ad_pylist_reader *self)
{
    const struct ArrowSchema *schema = self->array.schema.node;
    self->fill = fill_structs;
    self->helper = PyDict_New();
    self->names = PyTuple_New((Py_ssize_t)schema->n_children);
    if (self->helper == NULL || self->names == NULL) {
        return -1;
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        PyObject *name = ad_decode_text(schema->children[i]->name);
        if (name == NULL) {
            return -1;
        }
        PyTuple_SET_ITEM(self->names, (Py_ssize_t)i, name);
        int is_repeated = PyDict_Contains(self->helper, name);
        if (is_repeated != 0) {
            return is_repeated < 0 ? -1 : refuse_repeated_name(schema, name);
        }
        if (PyDict_SetItem(self->helper, name, Py_None) < 0) {
            return -1;
        }
    }
    return open_below(self);
}

/* --- unions -------------------------------------------------------------- */

static int
read_union(ad_pylist_reader *self, int64_t row, PyObject **out)
{
    int8_t id = ((const int8_t *)self->first)[row];
    const int8_t *child_of = (const int8_t *)PyBytes_AS_STRING(self->helper);
    int child_index = id < 0 ? -1 : child_of[id];
    if (child_index < 0) {
        return ad_pylist_malformed(self, row,
                                   "its type id is %d, expected one of %s", id,
                                   self->type.suffix);
    }
    ad_pylist_reader *child = &self->below[child_index];
    int64_t position = self->type.id == AD_TYPE_DENSE_UNION
                           ? ad_offset_at(self->second, false, row)
                           : row;
    if (position < 0 || position >= child->array.length) {
        return ad_pylist_malformed(
            self, row,
            "its offset is %lld, but the child of type id %d has %lld values",
            (long long)position, id, (long long)child->array.length);
    }
    return read_values(child, child->array.offset + position, 1, out);
}

static int
fill_unions(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    for (int64_t i = 0; i < n; i++) {
        if (read_union(self, row + i, &out[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
open_unions(ad_pylist_reader *self)
{
    int8_t ids[128];
    int8_t child_of[128]; /* a char has no sign on AArch64 */
    int n;
    ad_error err;
    if (ad_type_union_ids(&self->type, ids, &n, &err) != AD_OK) {
        ad_raise(self->list->state, &err);
        return -1;
    }
    memset(child_of, -1, sizeof(child_of));
    for (int i = 0; i < n; i++) {
        child_of[ids[i]] = (int8_t)i;
    }
    self->fill = fill_unions;
    self->helper =
        PyBytes_FromStringAndSize((const char *)child_of, sizeof(child_of));
    return self->helper != NULL ? open_below(self) : -1;
}

/* --- run ends ------------------------------------------------------------ */

/* The end of a run that begins at row `begin`, or -1 with an exception. */
static int64_t
read_run_end(const ad_pylist_reader *self, int64_t run, int64_t begin)
{
    const ad_pylist_reader *ends = &self->below[0];
    const ad_array *array = &ends->array;
    int64_t row = array->offset + run;
    if (ad_pylist_is_null(ends, row)) {
        return ad_pylist_malformed(
            ends, row, "the run ends at None, after %lld", (long long)begin);
    }
    int64_t end = ad_int_at(array->node->buffers[1], (int)self->size, row);
    if (end <= begin) {
        return ad_pylist_malformed(ends, row,
                                   "the run ends at %lld, after %lld",
                                   (long long)end, (long long)begin);
    }
    return end;
}

/* Goes back to the run of a row. The runs before self->run have been checked:
 * their ends ascend. */
static void
go_back(ad_pylist_reader *self, int64_t row)
{
    const ad_array *ends = &self->below[0].array;
    int width = (int)self->size;
    const char *numbers =
        (const char *)ends->node->buffers[1] + ends->offset * width;
    self->run = ad_first_above(numbers, width, self->run, row);
    self->run_begin =
        self->run > 0 ? ad_int_at(numbers, width, self->run - 1) : 0;
}

/* Each run is read once. The search goes on from the run of the last call,
 * because rows are mostly read in order. */
static int
fill_runs(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    ad_pylist_reader *values = &self->below[1];
    int64_t n_runs = Py_MIN(self->below[0].array.length, values->array.length);
    const int64_t last = row + n;
    if (row < self->run_begin) {
        go_back(self, row);
    }
    while (row < last) {
        if (self->run >= n_runs) {
            return ad_pylist_malformed(self, row,
                                       "the last run ends before it, at %lld",
                                       (long long)self->run_begin);
        }
        int64_t end = read_run_end(self, self->run, self->run_begin);
        if (end < 0) {
            return -1;
        }
        if (row < end) {
            PyObject *value = NULL;
            int64_t at = values->array.offset + self->run;
            if (read_values(values, at, 1, &value) < 0) {
                return -1;
            }
            for (; row < Py_MIN(end, last); row++) {
                *out++ = Py_NewRef(value);
            }
            Py_DECREF(value);
        }
        if (end <= last) {
            self->run++;
            self->run_begin = end;
        }
    }
    return 0;
}

static int
open_runs(ad_pylist_reader *self)
{
    ad_type ends;
    ad_error err;
    self->fill = fill_runs;
    if (open_below(self) < 0) {
        return -1;
    }
    const ad_array *array = &self->below[0].array;
    if (ad_type_parse(array->schema.node->format, &ends, &err) != AD_OK) {
        ad_raise(self->list->state, &err);
        return -1;
    }
    self->below[0].validity = ad_array_validity(array);
    self->size = ends.bit_width / 8;
    return 0;
}

/* --- dictionaries -------------------------------------------------------- */

/* The index of a row; below 0 for one past 2^63, too. */
static int64_t
index_at(const ad_pylist_reader *self, int64_t row)
{
    switch (self->type.id) {
        case AD_TYPE_UINT8:
            return ((const ad_at_any_u8 *)self->first)[row];
        case AD_TYPE_UINT16:
            return ((const ad_at_any_u16 *)self->first)[row];
        case AD_TYPE_UINT32:
            return ((const ad_at_any_u32 *)self->first)[row];
        default:
            return ad_int_at(self->first, self->type.bit_width / 8, row);
    }
}

static int
read_word(ad_pylist_reader *self, int64_t index, PyObject **out)
{
    ad_pylist_reader *words = &self->below[self->n_below - 1];
    PyObject **known = self->helper != NULL
                           ? &((PyListObject *)self->helper)->ob_item[index]
                           : NULL;
    if (known != NULL && *known != NULL) {
        *out = Py_NewRef(*known);
        return 0;
    }
    if (read_values(words, words->array.offset + index, 1, out) < 0) {
        return -1;
    }
    if (known != NULL) {
        *known = Py_NewRef(*out);
    }
    return 0;
}

/* Words that no index uses are not decoded. */
static int
fill_words(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    int64_t n_words = self->below[self->n_below - 1].array.length;
    for (int64_t i = row; i < row + n; i++, out++) {
        if (ad_pylist_is_null(self, i)) {
            *out = Py_NewRef(Py_None);
            continue;
        }
        int64_t index = index_at(self, i);
        if (index < 0 || index >= n_words) {
            bool is_large = index < 0 && self->type.id == AD_TYPE_UINT64;
            return ad_pylist_malformed(
                self, i,
                is_large ? "index %llu into a dictionary of %lld values"
                         : "index %lld into a dictionary of %lld values",
                (long long)index, (long long)n_words);
        }
        if (read_word(self, index, out) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Each word is made once, unless there are more of them than rows. */
static int
open_dictionary(ad_pylist_reader *self)
{
    self->fill = fill_words;
    if (open_below(self) < 0) {
        return -1;
    }
    int64_t n_words = self->below[self->n_below - 1].array.length;
    if (n_words <= self->list->n_rows) {
        self->helper = PyList_New((Py_ssize_t)n_words);
        if (self->helper == NULL) {
            return -1;
        }
        PyObject_GC_UnTrack(self->helper); /* it has empty places */
    }
    return 0;
}

/* --- the first row of a reader ------------------------------------------- */

static int
open_nested(ad_pylist_reader *self)
{
    switch (self->type.id) {
        case AD_TYPE_FIXED_LIST:
            return open_fixed_lists(self);
        case AD_TYPE_STRUCT:
            return open_structs(self);
        case AD_TYPE_SPARSE_UNION:
        case AD_TYPE_DENSE_UNION:
            return open_unions(self);
        case AD_TYPE_RUN_END:
            return open_runs(self);
        default:
            return open_lists(self);
    }
}

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
    int is_open = array->node->dictionary != NULL ? open_dictionary(self)
                  : self->type.id >= AD_TYPE_LIST
                      ? open_nested(self)
                      : ad_pylist_open_values(self);
    return is_open < 0 ? -1 : self->fill(self, row, n, out);
}

/* --- entry points -------------------------------------------------------- */

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
    ad_pylist_reader root = {
        .fill = open_and_fill,
        .list = &list,
        .array = ad_array_borrow(ad_array_of(self)),
    };
    root.array.memory.sync = NULL; /* it was waited for */
    row += root.array.offset;
    PyObject *result = NULL;
    if (count_per_row(&root) == 0 &&
        refuse_too_many(&root, list.n_rows) == 0) {
        if (n >= 0) {
            result = list_of(&root, row, n);
        } else if (read_values(&root, row, 1, &result) < 0) {
            Py_CLEAR(result);
        }
    }
    clear_reader(&root);
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
    ad_pylist_reader root = {
        .fill = ad_pylist_fill_of(tensor->dtype),
        .list = &list,
        .first = ad_tensor_address(tensor),
    };
    ad_pylist_tensor dimensions;
    dimensions.ndim = ndim;
    if (wait_for_host(list.state, &tensor->memory, what) < 0) {
        return NULL;
    }
    if (root.fill == NULL) {
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
                           ? lists_of_tensor(&root, &dimensions, 0, 0)
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
