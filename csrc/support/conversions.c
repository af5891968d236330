/* Views of a Tensor as an array and of an Array as a tensor, and the
 * attributes that an Array can serve. */
#include "support/objects.h"

#include "device/backend.h"
#include "support/errors.h"

int
ad_self_as_tensor(ad_state *state, PyObject *self, ad_tensor_value *out)
{
    ad_error err;
    ad_status status;
    PyObject *found = ad_is_tensor(state, self)
                          ? self
                          : ((ad_array_object *)self)->as_tensor;
    if (found == NULL) {
        const ad_bridge_options options = {.copy = AD_COPY_NEVER};
        status = ad_tensor_from_array(ad_array_of(self), &options, out, &err);
    } else {
        status = ad_tensor_require_size(ad_tensor_of(found), &err);
        if (status == AD_OK) {
            ad_tensor_share(ad_tensor_of(found), out);
        }
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

int
ad_self_as_array(ad_state *state, PyObject *self, ad_array *out)
{
    if (ad_is_array(state, self)) {
        ad_array_share(ad_array_of(self), out);
        return 0;
    }
    ad_tensor_value value;
    if (ad_self_as_tensor(state, self, &value) < 0) {
        return -1;
    }
    ad_error err;
    ad_status status =
        ad_array_from_tensor(&value.tensor, AD_COPY_NEVER, out, &err);
    ad_tensor_clear(&value.tensor);
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

/* Raise AttributeError with the reason in *err. Returns -1. */
static int
not_offered(const char *attribute, const ad_error *err)
{
    PyErr_Format(PyExc_AttributeError, "this arrowdev.Array has no %s: %s%s%s",
                 attribute, err->message, err->hint[0] != '\0' ? "; " : "",
                 err->hint);
    return -1;
}

int
ad_array_offers_tensor(ad_state *state, PyObject *self, const char *attribute)
{
    const ad_array *array = ad_array_of(self);
    ad_dl_dtype dtype;
    if (((ad_array_object *)self)->as_tensor != NULL) {
        return 0;
    }
    /* Plain columns without nulls, the common case, need no trial. */
    if (array->null_count == 0 && array->node->n_children == 0 &&
        ad_array_tensor_dtype(array, &dtype) && dtype.code != AD_DL_BOOL) {
        return 0;
    }
    const ad_bridge_options options = {.copy = AD_COPY_NEVER};
    ad_tensor_value value;
    ad_error err;
    if (ad_array_reads_offsets(array) &&
        !(ad_host_accessible(array->device) && ad_sync_is_done(array->sync))) {
        ad_fail(&err, AD_ERR_EXCHANGE, "dtype", "arrowdev.tensor() reads them",
                "whether its lists are of one length stands in offsets that "
                "would have to be waited for");
        return not_offered(attribute, &err);
    }
    if (ad_tensor_from_array(array, &options, &value, &err) != AD_OK) {
        return not_offered(attribute, &err);
    }
    ((ad_array_object *)self)->as_tensor =
        ad_tensor_object_new(state, &value.tensor);
    return ((ad_array_object *)self)->as_tensor != NULL ? 0 : -1;
}

int
ad_array_offers_host(ad_state *state, PyObject *self, const char *attribute)
{
    (void)state;
    const ad_array *array = ad_array_of(self);
    ad_error err;
    if (!ad_host_accessible(array->device)) {
        char name[AD_DEVICE_NAME_SIZE];
        ad_fail(&err, AD_ERR_EXCHANGE, "device", NULL,
                "its memory is on %s, which the host cannot read",
                ad_device_format(array->device, name));
        return not_offered(attribute, &err);
    }
    if (!ad_sync_can_wait(array->sync)) {
        ad_fail(&err, AD_ERR_EXCHANGE, "event", NULL,
                "the data are ready only after an event, and no runtime is "
                "there with which the host could wait for it");
        return not_offered(attribute, &err);
    }
    return 0;
}
