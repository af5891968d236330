/* The rows of a host array, and the elements of a host tensor, as Python
 * objects: a reader, and the values of types without children.
 *
 * A column has one reader for each node of its tree. A reader gets ready when
 * its first row is read, so that what no row refers to is never looked at. The
 * contents of buffers are not trusted: a row is checked before it is followed.
 */
#ifndef AD_PYTHON_FUNCTIONS_PYLIST_H
#define AD_PYTHON_FUNCTIONS_PYLIST_H

#include "compute/bits.h"
#include "model/extension.h"
#include "model/type.h"
#include "python/functions/functions.h"

/* The end of a hint: in nested data another array has the attribute that
 * helps. */
#define AD_PYLIST_WHERE                                                       \
    ", or that of the .children or the .dictionary which holds the values"

typedef struct ad_pylist {
    ad_state *state;
    int64_t n_rows;     /* that the caller asked for */
    int64_t n_made;     /* values since the last look at signals */
    int64_t n_unstored; /* values without bytes of their own, so far */
    bool is_collecting; /* the garbage collector is on */
    PyObject **hidden;  /* from it, see complete() */
    size_t n_hidden;
    size_t capacity;
} ad_pylist;

typedef struct ad_pylist_reader ad_pylist_reader;

/* The dimensions of a tensor, or of a row of arrow.fixed_shape_tensor. */
typedef struct ad_pylist_tensor {
    int32_t ndim;
    int64_t shape[AD_MAX_NDIM];
    int64_t strides[AD_MAX_NDIM]; /* in values */
} ad_pylist_tensor;

/* Writes rows [row, row + n), counted from the start of the buffers, to `out`,
 * which is zeroed; new references. 0, or -1 with an exception: `out` may have
 * values then, too. */
typedef int ad_pylist_fill(ad_pylist_reader *self, int64_t row, int64_t n,
                           PyObject **out);

struct ad_pylist_reader {
    ad_pylist_fill *fill;
    ad_pylist *list;
    const void *validity; /* NULL: no nulls */
    const void *first;    /* the buffer after that */
    const void *second;
    int64_t size;             /* bytes of the strings, or of one value */
    ad_array array;           /* borrowed, and without an event */
    ad_pylist_reader *parent; /* NULL: the root */
    int64_t index;            /* among the children; -1: the dictionary */
    ad_pylist_reader *below;  /* the children, then the dictionary */
    int64_t n_below;
    PyObject *helper; /* dictionaries: the words so far, or NULL. Structs: a
                         dict of the names, with None. Unions: bytes, the child
                         of each type id. Times and decimals: what makes a
                         value of a number, or NULL */
    PyObject *names;  /* structs: a tuple */
    ad_pylist_tensor *tensor; /* fixed-size lists with a shape */
    int64_t n_unstored;       /* count_per_row() */
    int64_t run;              /* run ends: the last run that was read ... */
    int64_t run_begin;        /* ... and its first row */
    ad_type type;
};

static inline bool
ad_pylist_is_null(const ad_pylist_reader *self, int64_t row)
{
    return self->validity != NULL && !ad_bitmap_get(self->validity, row);
}

/* Get a reader of a type without children ready, and set its fill(). 0, or -1
 * with an exception. */
int ad_pylist_open_values(ad_pylist_reader *self);

/* Raise InvalidArrowError, with the path of the node and the row. An import
 * checks the structure of arrays, not each row. Returns -1. */
int ad_pylist_malformed(const ad_pylist_reader *self, int64_t row,
                        const char *format, ...) AD_PRINTF(3, 4);

/* Read the extension of the node. 0, or -1 with an exception. */
int ad_pylist_read_extension(const ad_pylist_reader *self, ad_extension *out);

/* What reads elements at self->first; NULL for those that Python has no value
 * for. */
ad_pylist_fill *ad_pylist_fill_of(ad_dl_dtype dtype);

/* Raise NotImplementedError for elements that Python has no value for. Returns
 * -1. */
int ad_pylist_no_value(ad_dl_dtype dtype, const char *instead);

#endif /* AD_PYTHON_FUNCTIONS_PYLIST_H */
