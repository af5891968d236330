/* What Arrow data mean, by what else their object says of itself.
 *
 * Some libraries export an N-d object by Arrow as rows: Pillow an image as its
 * pixels, with a byte of padding as a channel; xarray an array as a table. A
 * caller who wants a column would get other data than one who wants a tensor.
 * So the descriptors of both kinds are compared, not their values; and a tensor
 * is only taken if Arrow knows of no nulls in it. Libraries of columns are
 * known (is_column of the type's slot), and nearly all others have one kind, so
 * this costs nothing where it is not needed.
 */
#include "protocol/protocol.h"

#include <stdio.h>
#include <string.h>

/* --- descriptors --------------------------------------------------------- */

/* What one protocol says of the data. */
typedef struct descriptor {
    const char *name; /* of the protocol; NULL: the attribute `shape` */
    bool has_dtype;
    ad_dl_dtype dtype;
    int32_t ndim;
    int64_t shape[AD_MAX_NDIM]; /* -1: not known */
} descriptor;

static void
describe_array(const ad_array *array, descriptor *out)
{
    out->has_dtype = ad_array_tensor_dtype(array, &out->dtype);
    ad_array_tensor_shape(array, &out->ndim, out->shape);
}

static void
describe(const ad_imported *imported, descriptor *out)
{
    const ad_tensor *tensor = &imported->tensor.tensor;
    if (imported->is_array) {
        describe_array(&imported->array, out);
        return;
    }
    out->has_dtype = true;
    out->dtype = tensor->dtype;
    out->ndim = tensor->ndim;
    memcpy(out->shape, tensor->shape,
           (size_t)tensor->ndim * sizeof(tensor->shape[0]));
}

/* Asks the protocols of tensors. 1 with *out filled, 0 if none gives data, -1
 * with an exception. A refusal is no contradiction: the data may have nulls. */
static int
ask_protocols(ad_state *state, PyObject *object, const ad_type_slot *slot,
              uint32_t offers, descriptor *out)
{
    /* The memory is not read: nothing has to wait. */
    const ad_request request = {.copy = AD_COPY_IF_NEEDED,
                                .stream = {.kind = AD_STREAM_OFF}};
    for (; offers != 0; offers &= offers - 1) {
        const ad_protocol *protocol = ad_protocols[__builtin_ctz(offers)];
        ad_imported imported;
        if (protocol->import == NULL) {
            continue;
        }
        if (protocol->import(protocol, state, object, slot, &request,
                             &imported) == AD_IMPORT_DONE) {
            out->name = protocol->name;
            describe(&imported, out);
            ad_imported_clear(&imported);
            return 1;
        }
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(state->device_error) &&
            ad_exception_is_final(state)) {
            return -1;
        }
        PyErr_Clear();
    }
    return 0;
}

/* Reads x.shape, a tuple of ints. Results as above. */
static int
ask_shape(ad_state *state, PyObject *object, descriptor *out)
{
    PyObject *shape = NULL;
    int found = ad_py_lookup_attr(object, AD_STR(state, shape), &shape);
    if (found < 0 && !ad_exception_is_final(state)) {
        PyErr_Clear();
        found = 0;
    }
    if (found <= 0 || !PyTuple_Check(shape) ||
        PyTuple_GET_SIZE(shape) > AD_MAX_NDIM) {
        Py_XDECREF(shape);
        return found < 0 ? -1 : 0;
    }
    out->name = NULL;
    out->has_dtype = false;
    out->ndim = (int32_t)PyTuple_GET_SIZE(shape);
    for (int32_t i = 0; i < out->ndim && found > 0; i++) {
        PyObject *extent = PyTuple_GET_ITEM(shape, i);
        out->shape[i] =
            PyLong_CheckExact(extent) ? PyLong_AsLongLong(extent) : -1;
        found = out->shape[i] >= 0;
    }
    PyErr_Clear();
    Py_DECREF(shape);
    return found;
}

static bool
are_alike(const descriptor *a, const descriptor *b)
{
    bool result = a->ndim == b->ndim && (!a->has_dtype || !b->has_dtype ||
                                         ad_dtype_equal(a->dtype, b->dtype));
    for (int32_t i = 0; i < a->ndim && result; i++) {
        result =
            a->shape[i] < 0 || b->shape[i] < 0 || a->shape[i] == b->shape[i];
    }
    return result;
}

/* --- the message --------------------------------------------------------- */

#define DESCRIPTION_SIZE 200

/* "uint8 of shape (2, 4) by __dlpack__", or "the shape (2, 4)"; long shapes are
 * cut. */
static const char *
format_descriptor(const descriptor *d, char buffer[DESCRIPTION_SIZE])
{
    char name[AD_DTYPE_NAME_SIZE];
    const char *what = d->has_dtype ? ad_dtype_format(d->dtype, name) : "data";
    int n =
        snprintf(buffer, 60, "%s%s shape (", d->name != NULL ? what : "the",
                 d->name != NULL ? " of" : "");
    for (int32_t i = 0; i < d->ndim && n < 120; i++) {
        const char *comma = i > 0 ? ", " : "";
        n += d->shape[i] < 0 ? snprintf(buffer + n, 30, "%s?", comma)
                             : snprintf(buffer + n, 30, "%s%lld", comma,
                                        (long long)d->shape[i]);
    }
    snprintf(buffer + n, (size_t)(DESCRIPTION_SIZE - n), "%s)%s%s",
             d->ndim == 1 ? "," : "", d->name != NULL ? " by " : "",
             d->name != NULL ? d->name : "");
    return buffer;
}

/* What to pass instead. */
static const char *
find_hint(PyObject *object, const ad_request *request, const descriptor *other)
{
    if (other->name != NULL) {
        return request->wants_tensor ? "leave copy=False out"
                                     : "arrowdev.tensor(x) takes the latter";
    }
    return PyObject_HasAttrString(object, "data")
               ? "pass x.data; arrowdev.record_batch(x) takes the table"
               : "pass numpy.asarray(x); arrowdev.record_batch(x) takes the "
                 "table";
}

static int
fail_agreement(ad_state *state, PyObject *object, const ad_request *request,
               const descriptor *arrow, const descriptor *other)
{
    char by_arrow[DESCRIPTION_SIZE];
    char by_other[DESCRIPTION_SIZE];
    ad_raise_exchange(state, "shape", find_hint(object, request, other),
                      "%.200s has two meanings: %s, and %s",
                      Py_TYPE(object)->tp_name,
                      format_descriptor(arrow, by_arrow),
                      format_descriptor(other, by_other));
    return -1;
}

/* --- Python objects ------------------------------------------------------ */

/* polars has no fixed-size binary of its own. */
static bool
has_addresses(const struct ArrowSchema *node)
{
    bool found = strcmp(node->format, "w:8") == 0;
    for (int64_t i = 0; i < node->n_children && !found; i++) {
        found = has_addresses(node->children[i]);
    }
    return found;
}

int
ad_meaning_check_polars(ad_state *state, const struct ArrowSchema *node)
{
    if (!has_addresses(node)) {
        return 0;
    }
    ad_raise_exchange(state, "dtype",
                      "cast the column in polars, or leave it out",
                      "the data have a column of polars Object: addresses of "
                      "Python objects");
    return -1;
}

/* --- the check ----------------------------------------------------------- */

int
ad_meaning_check(ad_state *state, PyObject *object, const ad_type_slot *slot,
                 uint32_t offers, const ad_request *request, const char *name,
                 const ad_array *array)
{
    if (slot->is_polars) {
        return ad_meaning_check_polars(state, array->schema.node);
    }
    bool is_nd = (offers & AD_ND_PROTOCOLS) != 0;
    if (slot->is_column || (!is_nd && !slot->has_array_method) ||
        (request->wants_batch && !is_nd &&
         strcmp(array->schema.node->format, "+s") == 0)) {
        return 0;
    }
    descriptor arrow = {.name = name};
    descriptor other;
    int found = is_nd ? ask_protocols(state, object, slot,
                                      offers & AD_ND_PROTOCOLS, &other)
                      : ask_shape(state, object, &other);
    if (found <= 0) {
        return found;
    }
    describe_array(array, &arrow);
    return are_alike(&arrow, &other)
               ? 0
               : fail_agreement(state, object, request, &arrow, &other);
}

/* --- nulls --------------------------------------------------------------- */

/* Asks the protocols of columns, of which arrays come before streams. 1 with
 * *out filled and *name, 0 if all refuse, -1 with an exception: one that gives
 * something else than Arrow data might have given nulls. */
static int
ask_arrow(ad_state *state, PyObject *object, const ad_type_slot *slot,
          uint32_t offers, ad_imported *out, const char **name)
{
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    for (; offers != 0; offers &= offers - 1) {
        const ad_protocol *protocol = ad_protocols[__builtin_ctz(offers)];
        *name = protocol->name;
        switch (
            protocol->import(protocol, state, object, slot, &request, out)) {
            case AD_IMPORT_DONE:
                return 1;
            case AD_IMPORT_REFUSED:
                PyErr_Clear();
                break;
            case AD_IMPORT_FAILED:
                return -1;
        }
    }
    return 0;
}

int
ad_meaning_check_nulls(ad_state *state, PyObject *object,
                       const ad_type_slot *slot, uint32_t offers,
                       const ad_request *request, const char *name,
                       ad_imported *imported)
{
    descriptor arrow, tensor;
    ad_imported column;
    ad_error err;
    offers &= AD_ARROW_PROTOCOLS;
    if (offers == 0 || slot->is_column || request->nulls == AD_NULLS_IGNORE) {
        return 0;
    }
    int found = ask_arrow(state, object, slot, offers, &column, &arrow.name);
    if (found <= 0) {
        return found;
    }
    ad_status status = ad_array_require_no_nulls(&column.array, &err);
    if (status == AD_OK) {
        ad_imported_clear(&column);
        return 0;
    }
    if (!ad_error_has_reason(&err, "nulls")) {
        ad_imported_clear(&column);
        return ad_raise_status(state, status, &err);
    }
    describe_array(&column.array, &arrow);
    describe(imported, &tensor);
    if (request->nulls == AD_NULLS_FILL && are_alike(&arrow, &tensor)) {
        ad_imported_clear(imported);
        *imported = column;
        return 0;
    }
    ad_imported_clear(&column);
    ad_error_prefix(&err, "%.80s is a tensor by %s, but by %s ",
                    Py_TYPE(object)->tp_name, name, arrow.name);
    ad_raise(state, &err);
    return -1;
}
