#include "python/functions/to_device.h"

#include "copy/copy.h"

/* Decide, and do what a relabel takes: the host waits where it is the host
 * that will read. */
static ad_status
plan(ad_device found, ad_device target, ad_sync *sync, ad_copy copy,
     bool is_copied, ad_move *out, ad_error *err)
{
    *out = ad_move_for(found, target);
    if (copy == AD_COPY_ALWAYS && !(is_copied && *out == AD_MOVE_NONE)) {
        *out = AD_MOVE_COPY;
    }
    if (*out == AD_MOVE_RELABEL && ad_device_equal(target, AD_CPU)) {
        return ad_sync_wait(sync, "host memory", err);
    }
    if (*out == AD_MOVE_COPY && copy == AD_COPY_NEVER) {
        char from[AD_DEVICE_NAME_SIZE];
        char to[AD_DEVICE_NAME_SIZE];
        ad_fail(err, AD_ERR_EXCHANGE, "copy",
                "leave copy=False out, or leave the data where they are",
                "the memory is on %s, and to have it on %s takes a copy",
                ad_device_format(found, from), ad_device_format(target, to));
        ad_error_device(err, found);
        return AD_ERR_EXCHANGE;
    }
    return AD_OK;
}

/* What came in by another name waits for nothing on the host. */
static void
relabel(ad_device target, ad_device *device, ad_sync **sync)
{
    *device = target;
    if (ad_device_equal(target, AD_CPU)) {
        ad_sync_unref(*sync);
        *sync = NULL;
    }
}

static int
fail_array(ad_state *state, ad_array *array, const ad_error *err)
{
    if (err != NULL) {
        ad_raise(state, err);
    }
    PyObject *saved = ad_py_save_exception();
    ad_array_clear(array);
    ad_py_reset_exception(saved);
    return -1;
}

int
ad_move_array(ad_state *state, ad_array *array, ad_device target,
              PyObject *stream, ad_copy copy)
{
    ad_error err;
    ad_move what;
    if (plan(array->device, target, array->sync, copy, false, &what, &err) !=
        AD_OK) {
        return fail_array(state, array, &err);
    }
    if (what == AD_MOVE_RELABEL) {
        relabel(target, &array->device, &array->sync);
    }
    if (what != AD_MOVE_COPY) {
        return 0;
    }
    ad_stream_choice choice;
    if (ad_read_choice(state, stream, ad_device_of_copy(array->device, target),
                       NULL, &choice) < 0) {
        return fail_array(state, array, NULL);
    }
    ad_array copied;
    ad_status status = ad_array_copy_to(array, target, &choice, &copied, &err);
    ad_choice_clear(&choice);
    if (status != AD_OK) {
        return fail_array(state, array, &err);
    }
    ad_array_clear(array);
    *array = copied;
    return 0;
}

static int
fail_tensor(ad_state *state, ad_tensor *tensor, const ad_error *err)
{
    if (err != NULL) {
        ad_raise(state, err);
    }
    PyObject *saved = ad_py_save_exception();
    ad_tensor_clear(tensor);
    ad_py_reset_exception(saved);
    return -1;
}

int
ad_move_tensor(ad_state *state, ad_tensor_value *value, ad_device target,
               PyObject *stream, ad_copy copy)
{
    ad_tensor *tensor = &value->tensor;
    ad_error err;
    ad_move what;
    if (plan(tensor->device, target, tensor->sync, copy,
             (tensor->flags & AD_TENSOR_COPIED) != 0, &what, &err) != AD_OK) {
        return fail_tensor(state, tensor, &err);
    }
    if (what == AD_MOVE_RELABEL) {
        relabel(target, &tensor->device, &tensor->sync);
    }
    if (what != AD_MOVE_COPY) {
        return 0;
    }
    ad_stream_choice choice;
    if (ad_read_choice(state, stream,
                       ad_device_of_copy(tensor->device, target), NULL,
                       &choice) < 0) {
        return fail_tensor(state, tensor, NULL);
    }
    ad_tensor_value copied;
    ad_status status =
        ad_tensor_copy_to(tensor, target, &choice, 0, &copied, &err);
    ad_choice_clear(&choice);
    if (status != AD_OK) {
        return fail_tensor(state, tensor, &err);
    }
    ad_tensor_clear(tensor);
    ad_tensor_share(&copied.tensor, value);
    ad_tensor_clear(&copied.tensor);
    return 0;
}
