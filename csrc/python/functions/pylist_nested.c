/* Rows of lists, structs, maps, unions, runs and dictionaries. */
#include "python/functions/pylist.h"

#include "base/unaligned.h"
#include "python/types/common_getters.h"

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
    return ad_pylist_refuse_too_many(&self->below[0], total);
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
        *out = ad_pylist_of(&self->below[0], first, size);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

/* ad_pylist_complete() for a tuple or a dict that is complete from the start.
 * A dict is tracked once it has a value that may be a part of a cycle. */
static PyObject *
complete_tracked(ad_pylist *list, PyObject *object)
{
    if (!list->is_collecting || !PyObject_GC_IsTracked(object)) {
        return object;
    }
    PyObject_GC_UnTrack(object);
    return ad_pylist_complete(list, object);
}

/* Pairs, not dicts: keys and field names may repeat. */
static PyObject *
read_entry(ad_pylist_reader *entries, int64_t row)
{
    PyObject *values[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        ad_pylist_reader *below = &entries->below[i];
        if (ad_pylist_read(below, below->array.offset + row, 1, &values[i]) <
            0) {
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
    if (ad_pylist_open_below(self) < 0) {
        return -1;
    }
    ad_pylist_reader *child = &self->below[0];
    if (self->type.id == AD_TYPE_MAP) {
        child->fill = fill_entries;
        if (ad_pylist_open_below(child) < 0) {
            return -1;
        }
    }
    return ad_pylist_count_unstored(child);
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
                   : ad_pylist_of(child, child->array.offset + i * size, size);
        if (*out == NULL) {
            return -1;
        }
    }
    return 0;
}

PyObject *
ad_pylist_of_tensor(ad_pylist_reader *child, const ad_pylist_tensor *tensor,
                    int32_t level, int64_t first)
{
    PyObject *result = NULL;
    if (level == tensor->ndim) {
        return ad_pylist_read(child, first, 1, &result) < 0 ? NULL : result;
    }
    int64_t extent = tensor->shape[level];
    int64_t stride = tensor->strides[level];
    if (level == tensor->ndim - 1 && stride == 1) {
        return ad_pylist_of(child, first, extent);
    }
    result = PyList_New((Py_ssize_t)extent);
    if (result == NULL) {
        return NULL;
    }
    PyObject_GC_UnTrack(result);
    for (int64_t i = 0; i < extent; i++) {
        PyObject *value =
            ad_pylist_of_tensor(child, tensor, level + 1, first + i * stride);
        if (value == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        PyList_SET_ITEM(result, (Py_ssize_t)i, value);
    }
    return ad_pylist_complete(child->list, result);
}

static int
fill_tensors(ad_pylist_reader *self, int64_t row, int64_t n, PyObject **out)
{
    ad_pylist_reader *child = &self->below[0];
    for (int64_t i = row; i < row + n; i++, out++) {
        *out = ad_pylist_is_null(self, i)
                   ? Py_NewRef(Py_None)
                   : ad_pylist_of_tensor(child, self->tensor, 0,
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
    if (ad_pylist_read(child, child->array.offset + 2 * row, 2, pair) == 0) {
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
    return ad_pylist_open_below(self);
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
        int status =
            ad_pylist_read(below, below->array.offset + row, 1, &value);
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
    return ad_pylist_open_below(self);
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
    return ad_pylist_read(child, child->array.offset + position, 1, out);
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
    return self->helper != NULL ? ad_pylist_open_below(self) : -1;
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
            if (ad_pylist_read(values, at, 1, &value) < 0) {
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
    if (ad_pylist_open_below(self) < 0) {
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
    if (ad_pylist_read(words, words->array.offset + index, 1, out) < 0) {
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
int
ad_pylist_open_dictionary(ad_pylist_reader *self)
{
    self->fill = fill_words;
    if (ad_pylist_open_below(self) < 0) {
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

/* ------------------------------------------------------------------------- */

int
ad_pylist_open_nested(ad_pylist_reader *self)
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
