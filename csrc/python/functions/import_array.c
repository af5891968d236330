/* arrowdev.array(): any object as an Array. */
#include <string.h>

#include "model/extension.h"
#include "model/schema_cast.h"
#include "model/type.h"
#include "protocol/ndarray.h"
#include "python/functions/functions.h"
#include "support/args.h"

int
ad_parse_request(ad_state *state, PyObject *device, PyObject *stream,
                 PyObject *copy, ad_request *out)
{
    int copy_value = AD_COPY_IF_NEEDED;
    *out = (ad_request){.copy = AD_COPY_IF_NEEDED};
    if (ad_parse_stream(state, stream, &out->stream) < 0) {
        return -1;
    }
    if (!ad_is_none(device)) {
        if (ad_parse_device(state, device, &out->device) < 0) {
            return -1;
        }
        out->has_device = true;
    }
    if (copy != NULL && ad_parse_copy(copy, &copy_value) < 0) {
        return -1;
    }
    out->copy = (ad_copy)copy_value;
    return 0;
}

/* Convert a tensor through the bridge. A move to another device and a copy
 * made by the producer each satisfy copy=True. */
static int
bridge_to_array(ad_state *state, ad_tensor *tensor, const ad_request *request,
                ad_array *out)
{
    bool moves = request->has_device &&
                 !ad_device_equal(tensor->memory.device, request->device);
    bool is_copied = (tensor->flags & AD_TENSOR_COPIED) != 0;
    ad_copy copy = request->copy;
    ad_error err;
    if (request->wants_rows && tensor->ndim == 0) {
        ad_tensor_clear(tensor);
        ad_raise_exchange(state, "ndim",
                          "read a dataset as a whole, as in "
                          "arrowdev.array(x[...]); arrowdev.array(x) takes an "
                          "array",
                          "a single value is no batch, which has rows");
        return -1;
    }
    if (copy == AD_COPY_ALWAYS && (moves || is_copied)) {
        copy = AD_COPY_IF_NEEDED;
    }
    if (ad_array_from_tensor_steal(tensor, copy, out, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return moves ? ad_move_to(state, out, NULL, request->device,
                              ad_request_copy_stream(request), request->copy)
                 : 0;
}

/* Convert the import result into an array on the requested device, copied if
 * requested. Takes over `imported`, on failure too. */
static int
imported_as_array(ad_state *state, ad_imported *imported,
                  const ad_request *request, ad_array *out)
{
    if (!imported->is_array) {
        return bridge_to_array(state, &imported->tensor.tensor, request, out);
    }
    *out = imported->array;
    if (!request->has_device && request->copy != AD_COPY_ALWAYS) {
        return 0;
    }
    return ad_move_to(state, out, NULL,
                      request->has_device ? request->device
                                          : out->memory.device,
                      ad_request_copy_stream(request), request->copy);
}

/* --- type= --------------------------------------------------------------- */

static bool
holds_bytes_of_bool(const struct ArrowSchema *node)
{
    ad_extension extension;
    return strcmp(node->format, "c") == 0 &&
           ad_extension_read(node, &extension, NULL) == AD_OK &&
           (extension.kind == AD_EXTENSION_BOOL8 ||
            (extension.kind == AD_EXTENSION_DLPACK &&
             extension.dtype.code == AD_DL_BOOL));
}

/* Pack bools of one byte into bits if bits are requested and a copy is
 * allowed. */
static ad_status
pack_if_bools(ad_array *array, ad_schema wanted, ad_copy copy, ad_error *err)
{
    if (copy == AD_COPY_NEVER || strcmp(wanted.node->format, "b") != 0 ||
        !holds_bytes_of_bool(array->schema.node)) {
        return AD_OK;
    }
    ad_array bits;
    AD_RETURN_IF_ERR(ad_array_pack_bools(array, NULL, &bits, err));
    ad_array_clear(array);
    *array = bits;
    return AD_OK;
}

static ad_status
fail_cast(const ad_array *array, ad_schema wanted, ad_schema_cast_result why,
          ad_error *err)
{
    ad_text from = {0};
    ad_text to = {0};
    ad_status status = ad_type_print(array->schema.node, &from, err);
    if (status == AD_OK) {
        status = ad_type_print(wanted.node, &to, err);
    }
    if (status != AD_OK) {
        goto done;
    }
    status = AD_ERR_EXCHANGE;
    if (why == AD_CAST_LOSES_NULLS) {
        ad_fail(err, status, "nulls",
                "ask for a nullable type, or fill the nulls first",
                "the data have (or may have) nulls, and the type that was "
                "asked for is not nullable");
    } else if (why == AD_CAST_MOVES_ELEMENTS) {
        ad_fail(err, status, "dtype",
                ad_extension_is_put_in_order(array->schema.node, wanted.node)
                    ? "leave the type out; arrowdev.tensor(x, order=\"C\") "
                      "lays the elements out in order, which needs no "
                      "permutation"
                    : "leave the type out, or convert in the producing "
                      "library",
                "the data are %s, not %s: the same storage would mean other "
                "elements, or the same ones at other indices",
                ad_text_string(&from), ad_text_string(&to));
    } else if (why == AD_CAST_MOVES_FIELDS) {
        ad_fail(err, status, "dtype",
                "take the columns with .field(...), and put them together "
                "anew with arrowdev.record_batch()",
                "the data are %s, not %s: a field of the data has another "
                "position there",
                ad_text_string(&from), ad_text_string(&to));
    } else {
        ad_fail(err, status, "dtype",
                ad_schema_cast_is_view(array->schema.node, wanted.node)
                    ? "leave the type out and use .view(type) for the same "
                      "bytes, or convert in the producing library"
                    : "convert in the producing library",
                "the data are %s, not %s", ad_text_string(&from),
                ad_text_string(&to));
    }
    ad_error_dtype(err, ad_text_string(&from));
done:
    ad_text_clear(&from);
    ad_text_clear(&to);
    return status;
}

/* Give the array the requested type. Names, nullability, metadata and
 * extensions change without a copy, bools become bits by a copy, and every
 * other conversion is refused. */
static int
apply_type(ad_state *state, ad_array *array, ad_schema wanted, ad_copy copy)
{
    ad_error err;
    ad_status status = pack_if_bools(array, wanted, copy, &err);
    if (status == AD_OK) {
        ad_schema_cast_result found =
            ad_schema_cast_check(array, ad_array_known_null_count(array),
                                 wanted.node, AD_CAST_LAYOUT);
        if (found == AD_CAST_FITS) {
            ad_schema_unref(array->schema);
            array->schema = ad_schema_ref(wanted);
            return 0;
        }
        status = fail_cast(array, wanted, found, &err);
    }
    return ad_raise_status(state, status, &err);
}

/* --- validity= ----------------------------------------------------------- */

/* Import the validity argument: any boolean object, true where valid. Returns
 * 0, or -1 with an exception. */
static int
import_mask(ad_state *state, PyObject *validity, const ad_stream_ref *stream,
            ad_mask *out)
{
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    ad_imported imported;
    ad_error err;
    if (ad_import(state, validity, &request, AD_ALL_PROTOCOLS, &imported) <
        0) {
        ad_prefix_exception("validity: ");
        return -1;
    }
    ad_status status =
        imported.is_array
            ? ad_mask_from_array(&imported.array, stream, out, &err)
            : ad_mask_from_tensor(&imported.tensor.tensor, false, stream, out,
                                  &err);
    ad_imported_clear(&imported);
    return ad_raise_status(state, status, &err);
}

/* A mask on the device of the data is applied before the data move. Any other
 * mask is applied after the move, on the device of the result. On failure the
 * caller clears *array. */
static int
apply_mask(ad_state *state, const ad_request *request,
           const ad_stream_ref *stream, const ad_mask *mask, ad_array *array)
{
    ad_array masked;
    ad_error err;
    bool is_there = ad_device_equal(array->memory.device, mask->device);
    bool moves = request->has_device || request->copy == AD_COPY_ALWAYS;
    ad_device target =
        request->has_device ? request->device : array->memory.device;
    const ad_stream_argument *work = ad_request_copy_stream(request);
    if (moves && !is_there &&
        ad_move_to(state, array, NULL, target, work, request->copy) < 0) {
        return -1;
    }
    if (ad_array_apply_mask(array, mask, is_there && moves ? NULL : stream,
                            &masked, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    ad_array_clear(array);
    *array = masked;
    return moves && is_there
               ? ad_move_to(state, array, NULL, target, work, request->copy)
               : 0;
}

/* Apply the validity argument, and move the array to the requested device. On
 * failure the caller clears *array. */
static int
apply_validity(ad_state *state, ad_array *array, PyObject *validity,
               const ad_request *request)
{
    ad_stream_ref choice;
    ad_mask mask;
    ad_device working =
        request->has_device ? request->device : array->memory.device;
    const ad_stream_argument *stream = ad_device_equal(working, AD_CPU)
                                           ? NULL
                                           : ad_request_copy_stream(request);
    int result = ad_choose_stream(state, stream, working, NULL, &choice);
    if (result == 0) {
        result = import_mask(state, validity, &choice, &mask);
        if (result == 0) {
            result = apply_mask(state, request, &choice, &mask, array);
            ad_mask_clear(&mask);
        }
        ad_stream_ref_clear(&choice);
    }
    return result;
}

/* --- the import ---------------------------------------------------------- */

int
ad_import_array(ad_state *state, PyObject *object, const ad_request *request,
                ad_schema wanted, PyObject *validity, ad_array *out)
{
    bool has_validity = !ad_is_none(validity);
    ad_request here = *request;
    ad_imported imported;
    /* A producer may convert to the requested type, which is a copy. */
    if (request->copy != AD_COPY_NEVER) {
        here.schema = wanted;
    }
    here.wants_column =
        request->copy != AD_COPY_ALWAYS && !request->has_device;
    if (has_validity) { /* apply_mask() moves the data */
        here.has_device = false;
        here.copy = request->copy == AD_COPY_ALWAYS ? AD_COPY_IF_NEEDED
                                                    : request->copy;
    }
    if (ad_import(state, object, &here, AD_ALL_PROTOCOLS, &imported) < 0 ||
        imported_as_array(state, &imported, &here, out) < 0) {
        return -1;
    }
    if ((wanted.node == NULL ||
         apply_type(state, out, wanted, here.copy) == 0) &&
        (!has_validity ||
         apply_validity(state, out, validity, request) == 0) &&
        ad_apply_stream_order(state, request, &out->memory) == 0) {
        return 0;
    }
    ad_array_clear(out);
    return -1;
}

/* ad_as_array() with other options than a copy. */
static int
as_array(ad_state *state, PyObject *value, ad_schema wanted,
         const ad_request *request, ad_array *out)
{
    ad_copy copy = request->copy;
    if (ad_is_array(state, value) && wanted.node == NULL &&
        copy != AD_COPY_ALWAYS) {
        ad_array_share(ad_array_of(value), out);
        return 0;
    }
    if (ad_is_ndarray(state, value) && wanted.node == NULL &&
        copy != AD_COPY_ALWAYS) {
        int result = ad_ndarray_column(state, value, out);
        if (result != 0) {
            return result < 0 ? -1 : 0;
        }
    }
    return ad_import_array(state, value, request, wanted, NULL, out);
}

int
ad_as_array(ad_state *state, PyObject *value, ad_schema wanted, ad_copy copy,
            ad_array *out)
{
    const ad_request request = {.copy = copy};
    return as_array(state, value, wanted, &request, out);
}

int
ad_as_batch(ad_state *state, PyObject *value, ad_schema wanted, ad_array *out)
{
    static const ad_request request = {.copy = AD_COPY_IF_NEEDED,
                                       .wants_rows = true};
    return as_array(state, value, wanted, &request, out);
}

/* Without any option. The result is in imported.array, where the import has
 * written it. */
static PyObject *
import_plain(ad_state *state, PyObject *object)
{
    static const ad_request request = {.copy = AD_COPY_IF_NEEDED,
                                       .wants_column = true};
    ad_imported imported;
    if (ad_import(state, object, &request, AD_ALL_PROTOCOLS, &imported) < 0 ||
        (!imported.is_array &&
         bridge_to_array(state, &imported.tensor.tensor, &request,
                         &imported.array) < 0)) {
        return NULL;
    }
    return ad_array_object_in_order(state, &imported.array);
}

PyObject *
ad_as_array_object(ad_state *state, PyObject *value, ad_copy copy)
{
    ad_array array;
    if (ad_is_array(state, value) && copy != AD_COPY_ALWAYS) {
        return Py_NewRef(value);
    }
    if (copy == AD_COPY_IF_NEEDED && !ad_is_ndarray(state, value)) {
        return import_plain(state, value);
    }
    return ad_as_array(state, value, (ad_schema){0}, copy, &array) == 0
               ? ad_array_object_new(state, &array)
               : NULL;
}

PyObject *
ad_array_object_in_order(ad_state *state, ad_array *steal)
{
    static const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    if (ad_apply_stream_order(state, &request, &steal->memory) < 0) {
        ad_array_clear(steal);
        return NULL;
    }
    return ad_array_object_new(state, steal);
}

static const ad_signature array_signature = {
    .function = "array()",
    .n_positional_only = 2,
    .n_positional = 2,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_type, AD_STR_device,
                       AD_STR_stream, AD_STR_copy, AD_STR_validity),
};

PyObject *
ad_function_array(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                  PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    if (n_args == 1 && kwnames == NULL) {
        return ad_as_array_object(state, args[0], AD_COPY_IF_NEEDED);
    }
    PyObject *values[6];
    ad_request request;
    ad_schema wanted = {0};
    ad_array array;
    if (ad_parse_args(state, &array_signature, args, n_args, kwnames, values) <
            0 ||
        (!ad_is_none(values[1]) &&
         ad_parse_schema(state, values[1], &wanted) < 0)) {
        return NULL;
    }
    int result =
        ad_parse_request(state, values[2], values[3], values[4], &request);
    if (result == 0) {
        result = ad_import_array(state, values[0], &request, wanted, values[5],
                                 &array);
    }
    ad_schema_unref(wanted);
    return result == 0 ? ad_array_object_new(state, &array) : NULL;
}
