/* __array_interface__, version 3: host memory by pointer. */
#include "protocol/interface_import.h"
#include "device/backend.h"

static const ad_interface_rules rules = {
    .name = "__array_interface__",
    .attribute = AD_STR_array_interface,
    .min_version = 3,
    .max_version = 3,
    .exports_byte_order = true,
    .exports_address_always = true,
    .is_host = true,
    .has_mask = true,
};

static ad_import_result
make_tensor(ad_state *state, PyObject *object, const ad_request *request,
            ad_interface *in, ad_tensor_value *out)
{
    (void)request;
    return ad_interface_tensor(state, object, in, AD_CPU, out);
}

static ad_import_result
import_object(ad_state *state, PyObject *object, const ad_type_slot *slot,
              const ad_request *request, ad_imported *out)
{
    ad_interface in;
    (void)slot;
    ad_import_result result = ad_interface_read(state, object, &rules, &in);
    if (result != AD_IMPORT_DONE) {
        return result;
    }
    out->is_array = false;
    result = make_tensor(state, object, request, &in, &out->tensor);
    if (result == AD_IMPORT_DONE) {
        result = in.is_bits
                     ? ad_interface_take_bits(state, &in, out)
                     : ad_finish_elements(state, request, &in.element, out);
    }
    if (result == AD_IMPORT_DONE) {
        result = ad_interface_add_mask(state, request, &rules, &in,
                                       make_tensor, out);
    }
    ad_interface_clear(&in);
    return result;
}

static PyObject *
export_dict(ad_state *state, const ad_tensor *tensor)
{
    ad_error err;
    if (!ad_host_accessible(tensor->device)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            &rules, "the host cannot read memory of %s",
            ad_device_format(tensor->device, name));
    }
    /* The consumer reads the memory right after the look-up. */
    if (ad_sync_wait(tensor->sync, rules.name, &err) != AD_OK) {
        return ad_interface_failed(state, &rules, &err);
    }
    return ad_interface_build(state, tensor, &rules);
}

static PyObject *
get_interface(PyObject *self, void *closure)
{
    (void)closure;
    return ad_interface_export(self, &rules, export_dict);
}

static const PyGetSetDef getset[] = {
    {"__array_interface__", get_interface, NULL,
     PyDoc_STR("Array interface, version 3 (host-accessible memory)."), NULL},
    {0},
};

const ad_protocol ad_protocol_array_interface = {
    .name = "__array_interface__",
    .attribute = AD_STR_array_interface,
    .import = import_object,
    .array_getset = getset,
    .tensor_getset = getset,
};
