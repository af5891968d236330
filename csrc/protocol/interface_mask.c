/* Bits ('|t1') as the elements of an interface's dict, and its mask: an object
 * with the same interface, of one bool per element ('|b1', or uint8) or of
 * bits, true where valid. It has a pointer and, on a device, a stream of its
 * own.
 *
 * Every failure is final: a later protocol would import the data without the
 * mask.
 */
#include "protocol/interface_import.h"
#include "base/text.h"

#define HINT                                                                  \
    "pass the data without the mask, and the mask as validity= (true where "  \
    "valid)"

static int64_t
length_of(const ad_interface *in)
{
    return in->is_bits ? in->n_bits : in->dims[0];
}

static ad_import_result
check(ad_state *state, const ad_interface *data, const ad_interface *mask)
{
    ad_dl_dtype dtype = mask->descriptor.dtype;
    int64_t n = length_of(mask);
    char name[AD_DTYPE_NAME_SIZE];
    if (data->descriptor.ndim != 1 || mask->descriptor.ndim != 1) {
        char dimensions[AD_COUNT_SIZE];
        ad_raise_exchange(state, "nulls",
                          "pass the data without the mask, and as validity= "
                          "one flag per row (true where valid)",
                          "%s: the mask has %s and the data have %d, "
                          "expected one: Arrow has a validity bit per row",
                          data->origin,
                          ad_count_text(mask->descriptor.ndim, "dimension",
                                        "dimensions", dimensions),
                          (int)data->descriptor.ndim);
        return AD_IMPORT_FAILED;
    }
    if ((dtype.code != AD_DL_BOOL && dtype.code != AD_DL_UINT) ||
        dtype.bits != 8) {
        ad_raise_exchange(state, "dtype", HINT,
                          "%s: elements of the mask are %s, expected bools "
                          "('|b1') or bits ('|t1')",
                          data->origin, ad_dtype_format(dtype, name));
        return AD_IMPORT_FAILED;
    }
    if (n != length_of(data)) {
        char elements[AD_COUNT_SIZE];
        ad_raise_exchange(state, "malformed", HINT,
                          "%s: the mask has %s, expected one for each of %lld",
                          data->origin,
                          ad_count_text(n, "element", "elements", elements),
                          (long long)length_of(data));
        return AD_IMPORT_FAILED;
    }
    return AD_IMPORT_DONE;
}

/* The mask keeps only references of the tensor. */
static ad_status
as_flags(const ad_interface *in, const ad_tensor *tensor, ad_mask *out,
         ad_error *err)
{
    if (!in->is_bits) {
        return ad_mask_from_tensor(tensor, false, NULL, out, err);
    }
    *out = (ad_mask){
        .device = tensor->memory.device,
        .data = tensor->data,
        .length = in->n_bits,
        .is_bits = true,
        .owner = ad_owner_ref(tensor->memory.owner),
        .sync = ad_sync_ref(tensor->memory.sync),
    };
    return AD_OK;
}

static ad_import_result
apply(ad_state *state, const ad_request *request, const ad_interface *in,
      const ad_tensor *tensor, ad_imported *out)
{
    ad_mask mask;
    ad_error err;
    if (as_flags(in, tensor, &mask, &err) != AD_OK) {
        return ad_import_error(state, &err);
    }
    ad_status status = ad_imported_apply_mask(out, &mask, request->copy, &err);
    ad_mask_clear(&mask);
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

static ad_import_result
import_mask(ad_state *state, const ad_request *request,
            const ad_interface *data, ad_imported *out)
{
    const ad_interface_rules *rules = data->rules;
    PyObject *mask = data->fields[AD_FIELD_MASK];
    ad_interface in;
    ad_tensor_value value;
    ad_import_result result = ad_interface_read(state, mask, rules, true, &in);
    if (result == AD_IMPORT_REFUSED &&
        PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        ad_raise_exchange(state, "nulls", HINT,
                          "%s: mask is of type %.80s, expected None or an "
                          "object with %s",
                          data->origin, Py_TYPE(mask)->tp_name, rules->name);
        return AD_IMPORT_FAILED;
    }
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    result = check(state, data, &in);
    if (result == AD_IMPORT_DONE) {
        result = rules->make_tensor(state, mask, request, &in, &value);
    }
    if (result == AD_IMPORT_DONE) {
        result = apply(state, request, &in, &value.tensor, out);
        ad_tensor_clear(&value.tensor);
    }
    ad_interface_clear(&in);
    return result;
}

ad_import_result
ad_interface_take_bits(ad_state *state, const ad_interface *in,
                       ad_imported *out)
{
    ad_tensor *tensor = &out->tensor.tensor;
    const void *buffers[] = {NULL, tensor->data};
    const ad_array_spec spec = {
        .schema = ad_schema_primitive("b"),
        .length = in->n_bits,
        .n_buffers = 2,
        .buffers = buffers,
        .memory = tensor->memory,
    };
    ad_error err;
    ad_status status = ad_array_build(&spec, &out->array, &err);
    out->is_array = status == AD_OK;
    ad_tensor_clear(tensor); /* may run Python code: raise afterwards */
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

ad_import_result
ad_interface_add_mask(ad_state *state, const ad_request *request,
                      const ad_interface *in, ad_imported *out)
{
    if (in->fields[AD_FIELD_MASK] == NULL ||
        import_mask(state, request, in, out) == AD_IMPORT_DONE) {
        return AD_IMPORT_DONE;
    }
    ad_imported_clear(out);
    return AD_IMPORT_FAILED;
}
