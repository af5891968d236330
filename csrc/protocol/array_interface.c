/* NumPy's own protocols: __array_interface__, version 3, which is host memory
 * by pointer, and __array__(). */
#include "protocol/interface_import.h"
#include "device/backend.h"
#include "support/py_call.h"

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
    if (!ad_host_accessible(tensor->memory.device)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_interface_unavailable(
            rules, "the host cannot read memory of %s",
            ad_device_format(tensor->memory.device, name));
    }
    /* The consumer reads the memory right after the look-up. */
    if (ad_sync_wait(tensor->memory.sync, rules->name, &err) != AD_OK) {
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

/* --- __array__() --------------------------------------------------------- */

static const ad_signature as_numpy_signature = {
    .function = "__array__()",
    .n_positional = 2,
    AD_PARAMETER_NAMES(AD_STR_dtype, AD_STR_copy),
};

static PyObject *
as_numpy(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
         PyObject *kwnames)
{
    PyObject *values[2];
    if (ad_parse_args(ad_state_of(self), &as_numpy_signature, args, n_args,
                      kwnames, values) < 0) {
        return NULL;
    }
    PyObject *helper_args[] = {self, values[0] != NULL ? values[0] : Py_None,
                               values[1] != NULL ? values[1] : Py_None};
    return ad_call_helper("_convert", "as_numpy", helper_args, 3);
}

/* Without __array__, NumPy makes an array of one Python object of a Tensor
 * whose buffer it cannot read. So every Tensor has it, to refuse. */
static PyMethodDef methods[] = {
    {"__array__", AD_METHOD(as_numpy),
     "__array__($self, dtype=None, copy=None)\n--\n\n"
     "The data as a NumPy array, in shared memory if they have a dtype, else\n"
     "as Python objects. Raises ExchangeError, with a hint, for memory that\n"
     "the host cannot read and for record batches, whose names NumPy drops."},
    {NULL, NULL, 0, NULL},
};

/* NumPy iterates over an Array without it, which on a device says why that is
 * impossible. The rows of a batch would become dicts, of which pandas makes
 * columns of other types; so a batch has it, to refuse. */
static PyObject *
array_method(PyObject *self, void *closure)
{
    PyMethodDef *method = closure;
    if (ad_array_offers_host(ad_state_of(self), self, method->ml_name) < 0) {
        return NULL;
    }
    return PyCFunction_New(method, self);
}

static const PyGetSetDef getset[] = {
    {"__array__", array_method, NULL,
     PyDoc_STR("Method as Tensor.__array__; AttributeError, which says why, "
               "where\nthe host cannot read the memory."),
     methods},
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
    .tensor_methods = methods,
    .tensor_getset = &getset[1],
};
