/* __array_interface__, version 3: host memory by pointer. */
#include "protocol/interface_import.h"
#include "device/backend.h"

static ad_import_result
make_tensor(ad_state *state, PyObject *object, const ad_request *request,
            ad_interface *in, ad_tensor_value *out)
{
    return ad_interface_tensor(state, object, in, AD_CPU, out);
}

static PyObject *
export_dict(ad_state *state, const ad_tensor *tensor,
            const ad_interface_rules *rules)
{
    ad_error err;
    if (!ad_host_accessible(tensor->device)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            rules, "the host cannot read memory of %s",
            ad_device_format(tensor->device, name));
    }
    /* The consumer reads the memory right after the look-up. */
    if (ad_sync_wait(tensor->sync, rules->name, &err) != AD_OK) {
        return ad_interface_failed(state, rules, &err);
    }
    return ad_interface_build(state, tensor, rules);
}

static const ad_interface_rules rules = {
    .name = "__array_interface__",
    .attribute = AD_STR_array_interface,
    .order_field = -1,
    .make_tensor = make_tensor,
    .export_dict = export_dict,
    .min_version = 3,
    .max_version = 3,
    .exports_byte_order = true,
    .exports_address_always = true,
    .is_host = true,
    .has_mask = true,
};

static const PyGetSetDef getset[] = {
    {"__array_interface__", ad_interface_get, NULL,
     PyDoc_STR("Array interface, version 3 (host-accessible memory)."),
     (void *)&rules},
    {0},
};

const ad_protocol ad_protocol_array_interface = {
    .name = "__array_interface__",
    .attribute = AD_STR_array_interface,
    .import = ad_interface_import,
    .rules = &rules,
    .array_getset = getset,
    .tensor_getset = getset,
};
