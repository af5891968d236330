/* Elements that no tensor has, but that can be converted in host memory: the
 * other byte order, datetime64 and timedelta64. */
#include "protocol/protocol.h"

static ad_status
swap(const ad_request *request, const ad_element *element, ad_imported *out,
     ad_error *err)
{
    ad_tensor_value swapped;
    ad_tensor *tensor = &out->tensor.tensor;
    if (request->copy == AD_COPY_NEVER) {
        return ad_element_require_plain(
            element, "that takes a copy, which copy=False rules out", err);
    }
    char order = ad_tensor_is_contiguous(tensor, 'F') ? 'F' : 'C';
    AD_RETURN_IF_ERR(ad_tensor_copy_swapped(tensor, order, &swapped, err));
    ad_tensor_clear(tensor);
    ad_tensor_share(&swapped.tensor, &out->tensor);
    ad_tensor_clear(&swapped.tensor);
    return AD_OK;
}

ad_import_result
ad_finish_strange_elements(ad_state *state, const ad_request *request,
                           const ad_element *element, ad_imported *out)
{
    ad_error err;
    ad_tensor *tensor = &out->tensor.tensor;
    ad_status status =
        element->is_swapped ? swap(request, element, out, &err) : AD_OK;
    if (status == AD_OK && element->time == NULL) {
        return ad_finish_tensor(state, request, &out->tensor);
    }
    if (status == AD_OK) {
        /* The caller serves copy=True for the array. */
        status = ad_array_from_times(
            tensor, element->time,
            request->copy == AD_COPY_NEVER ? AD_COPY_NEVER : AD_COPY_IF_NEEDED,
            &out->array, &err);
        out->is_array = status == AD_OK;
    }
    ad_tensor_clear(tensor); /* may run Python code: raise afterwards */
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}
