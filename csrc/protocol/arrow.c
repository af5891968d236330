#include "protocol/arrow.h"

#include "model/extension.h"
#include "model/schema_cast.h"

/* --- as a consumer --------------------------------------------------------- */

static PyObject *
call_with_schema(ad_state *state, PyObject *object, PyObject *name,
                 ad_schema schema)
{
    struct ArrowSchema *holder;
    ad_error err;
    if (ad_schema_export(schema, &holder, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *capsule = ad_capsule_new(AD_CAPSULE_SCHEMA, holder);
    if (capsule == NULL) {
        return NULL;
    }
    PyObject *args[] = {object, capsule};
    PyObject *kwnames = PyTuple_Pack(1, AD_STR(state, requested_schema));
    PyObject *result = NULL;
    if (kwnames != NULL) {
        result = PyObject_VectorcallMethod(name, args, 1, kwnames);
        Py_DECREF(kwnames);
    }
    Py_DECREF(capsule);
    return result;
}

PyObject *
ad_arrow_call(ad_state *state, PyObject *object, int method,
              const ad_request *request)
{
    PyObject *name = state->strings[method];
    if (request->schema.node != NULL) {
        PyObject *result =
            call_with_schema(state, object, name, request->schema);
        if (result != NULL || ad_exception_is_final(state)) {
            return result;
        }
        PyErr_Clear();
    }
    return PyObject_CallMethodNoArgs(object, name);
}

/* --- as a producer --------------------------------------------------------- */

int
ad_arrow_parse(ad_state *state, const ad_signature *signature,
               PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
               PyObject **requested)
{
    PyObject *values[1] = {NULL};
    if ((n_args != 0 || kwnames != NULL) &&
        ad_parse_args(state, signature, args, n_args, kwnames, values) < 0) {
        return -1;
    }
    *requested = ad_is_none(values[0]) ? NULL : values[0];
    return 0;
}

/* Types whose values are the same kind of thing, in another layout. */
static int
family_of(ad_type_id id)
{
    switch (id) {
        case AD_TYPE_UTF8:
        case AD_TYPE_LARGE_UTF8:
        case AD_TYPE_UTF8_VIEW:
            return AD_TYPE_UTF8;
        case AD_TYPE_BINARY:
        case AD_TYPE_LARGE_BINARY:
        case AD_TYPE_BINARY_VIEW:
        case AD_TYPE_FIXED_BINARY:
            return AD_TYPE_BINARY;
        case AD_TYPE_LIST:
        case AD_TYPE_LARGE_LIST:
        case AD_TYPE_LIST_VIEW:
        case AD_TYPE_LARGE_LIST_VIEW:
        case AD_TYPE_FIXED_LIST:
            return AD_TYPE_LIST;
        case AD_TYPE_INT8:
        case AD_TYPE_INT16:
        case AD_TYPE_INT32:
        case AD_TYPE_INT64:
        case AD_TYPE_UINT8:
        case AD_TYPE_UINT16:
        case AD_TYPE_UINT32:
        case AD_TYPE_UINT64:
        case AD_TYPE_FLOAT16:
        case AD_TYPE_FLOAT32:
        case AD_TYPE_FLOAT64:
        case AD_TYPE_DECIMAL:
            return AD_TYPE_INT64;
        case AD_TYPE_SPARSE_UNION:
        case AD_TYPE_DENSE_UNION:
            return AD_TYPE_SPARSE_UNION;
        case AD_TYPE_DATE32:
        case AD_TYPE_DATE64:
            return AD_TYPE_DATE32;
        case AD_TYPE_TIME32:
        case AD_TYPE_TIME64:
            return AD_TYPE_TIME32;
        default:
            return id;
    }
}

/* The type of the values, seen through dictionaries and run ends. */
static const struct ArrowSchema *
values_of(const struct ArrowSchema *node)
{
    for (int depth = 0; depth < AD_MAX_DEPTH; depth++) {
        ad_type type;
        if (node->dictionary != NULL) {
            node = node->dictionary;
        } else if (ad_type_parse(node->format, &type, NULL) == AD_OK &&
                   type.id == AD_TYPE_RUN_END) {
            node = node->children[1];
        } else {
            break;
        }
    }
    return node;
}

/* Bools of one byte, which bits are another representation of. */
static bool
is_bool8(const struct ArrowSchema *node)
{
    ad_extension extension;
    return ad_extension_read(node, &extension, NULL) == AD_OK &&
           extension.kind == AD_EXTENSION_BOOL8;
}

int
ad_arrow_check_requested(ad_state *state, ad_schema schema,
                         PyObject *requested)
{
    if (requested == NULL) {
        return 0;
    }
    struct ArrowSchema *wanted = ad_capsule_get(
        state, requested, AD_CAPSULE_SCHEMA, "requested_schema");
    if (wanted == NULL) {
        return -1;
    }
    ad_error err;
    if (ad_schema_validate(wanted, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    ad_type ours;
    ad_type theirs;
    if (ad_type_parse(values_of(schema.node)->format, &ours, &err) != AD_OK ||
        ad_type_parse(values_of(wanted)->format, &theirs, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    bool are_alike =
        (theirs.id == AD_TYPE_BOOL && is_bool8(schema.node)) ||
        ad_schema_cast_fits_type(schema.node, wanted, AD_CAST_STORAGE);
    int64_t n_fields = values_of(schema.node)->n_children;
    int64_t n_wanted = values_of(wanted)->n_children;
    if (ours.id == AD_TYPE_STRUCT && theirs.id == AD_TYPE_STRUCT &&
        n_fields != n_wanted) {
        ad_raise_exchange(state, "requested_schema",
                          "leave requested_schema out and select afterwards",
                          "requested_schema has %lld fields, but the data "
                          "have %lld",
                          (long long)n_wanted, (long long)n_fields);
        return -1;
    }
    if (!are_alike && family_of(ours.id) != family_of(theirs.id)) {
        ad_raise_exchange(state, "requested_schema",
                          "leave requested_schema out and convert afterwards",
                          "requested_schema has the format \"%s\", which is "
                          "no representation of data with the format \"%s\"",
                          wanted->format, schema.node->format);
        return -1;
    }
    return 0;
}

int
ad_arrow_answer(ad_state *state, const ad_array *array, PyObject *requested,
                ad_array *out)
{
    const struct ArrowSchema *wanted;
    ad_schema schema;
    ad_error err;
    bool is_same;
    if (requested == NULL) {
        return 0;
    }
    if (ad_arrow_check_requested(state, array->schema, requested) < 0) {
        return -1;
    }
    wanted = ad_capsule_get(state, requested, AD_CAPSULE_SCHEMA,
                            "requested_schema");
    ad_status status = ad_schema_equal(array->schema.node, wanted, true, true,
                                       &is_same, &err);
    int64_t null_count = ad_array_has_no_nulls(array) ? 0 : array->null_count;
    if (status == AD_OK &&
        (is_same || ad_schema_cast_check(array, null_count, wanted,
                                         AD_CAST_STORAGE) != AD_CAST_FITS)) {
        return 0;
    }
    if (status == AD_OK) {
        status = ad_schema_copy(wanted, &schema, &err);
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    ad_array_share(array, out);
    ad_schema_unref(out->schema);
    out->schema = schema;
    return 1;
}

int
ad_arrow_wait(ad_state *state, const ad_array *array, const char *method)
{
    ad_error err;
    if (array->sync != NULL &&
        ad_sync_wait(array->sync, method, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}
