#include "python/moving.h"

#include "core/transfer.h"
#include "device/backend.h"

int
ad_read_choice(ad_state *state, PyObject *stream, ad_device device,
               ad_stream_choice *out)
{
    ad_stream_argument argument;
    *out = (ad_stream_choice){.is_given = false};
    if (ad_is_none(stream)) {
        return 0;
    }
    if (ad_parse_stream(state, stream, device, &argument) < 0) {
        return -1;
    }
    if (argument.is_off) {
        PyErr_SetString(PyExc_ValueError,
                        "stream=-1 names no stream to work on; leave stream "
                        "out for arrowdev's own");
        return -1;
    }
    return ad_stream_argument_choice(&argument, out);
}

void
ad_choice_clear(ad_stream_choice *choice)
{
    PyObject *saved = ad_py_save_exception();
    ad_owner_unref(choice->keep);
    ad_py_reset_exception(saved);
    *choice = (ad_stream_choice){.is_given = false};
}

/* What a move comes down to. */
typedef enum move {
    MOVE_NONE,
    MOVE_RELABEL, /* the same memory by another name */
    MOVE_COPY
} move;

/* Pinned and managed memory is reached by the device of its runtime under the
 * same address (unified addressing). */
static bool
is_another_name(ad_device found, ad_device target)
{
    const struct ad_backend *backend = ad_backend_for(found.type);
    return ad_host_accessible(found) &&
           backend == ad_backend_for(target.type) &&
           target.type == backend->device_types[0] && found.id == target.id &&
           !ad_device_equal(found, AD_CPU);
}

/* Decide, and do what a relabel takes: the host waits where it is the host
 * that will read. */
static ad_status
plan(ad_device found, ad_device target, ad_sync *sync, ad_copy copy,
     bool is_copied, move *out, ad_error *err)
{
    bool is_there = ad_device_equal(found, target);
    bool to_host = ad_device_equal(target, AD_CPU) &&
                   ad_host_accessible(found) && !is_there;
    *out = MOVE_NONE;
    if (copy == AD_COPY_ALWAYS && !(is_copied && is_there)) {
        *out = MOVE_COPY;
    } else if (to_host) {
        *out = MOVE_RELABEL;
        return ad_sync_wait(sync, "host memory", err);
    } else if (is_another_name(found, target)) {
        *out = MOVE_RELABEL;
    } else if (!is_there) {
        *out = MOVE_COPY;
    }
    if (*out == MOVE_COPY && copy == AD_COPY_NEVER) {
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

/* A number means what it means on the device that does the work. */
static ad_device
working_device(ad_device found, ad_device target)
{
    return ad_device_equal(target, AD_CPU) ? found : target;
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
    move what;
    if (plan(array->device, target, array->sync, copy, false, &what, &err) !=
        AD_OK) {
        return fail_array(state, array, &err);
    }
    if (what == MOVE_RELABEL) {
        relabel(target, &array->device, &array->sync);
    }
    if (what != MOVE_COPY) {
        return 0;
    }
    ad_stream_choice choice;
    if (ad_read_choice(state, stream, working_device(array->device, target),
                       &choice) < 0) {
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
    move what;
    if (plan(tensor->device, target, tensor->sync, copy,
             (tensor->flags & AD_TENSOR_COPIED) != 0, &what, &err) != AD_OK) {
        return fail_tensor(state, tensor, &err);
    }
    if (what == MOVE_RELABEL) {
        relabel(target, &tensor->device, &tensor->sync);
    }
    if (what != MOVE_COPY) {
        return 0;
    }
    ad_stream_choice choice;
    if (ad_read_choice(state, stream, working_device(tensor->device, target),
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
