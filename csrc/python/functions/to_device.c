/* .to() of an array and of a tensor: another name, or a copy. */
#include "python/functions/functions.h"

#include "copy/copy.h"

/* Choose the kind of move. For an alias on the host, wait for the data as
 * well, because the host reads without an event. */
static ad_status
plan(const ad_memory *memory, ad_device target, ad_copy copy, bool is_copied,
     ad_move *out, ad_error *err)
{
    ad_device found = memory->device;
    *out = ad_move_for(found, target);
    if (copy == AD_COPY_ALWAYS && !(is_copied && *out == AD_MOVE_NONE)) {
        *out = AD_MOVE_COPY;
    }
    if (*out == AD_MOVE_ALIAS && ad_device_equal(target, AD_CPU)) {
        return ad_sync_wait(memory->sync, "host memory", err);
    }
    if (*out == AD_MOVE_COPY && copy == AD_COPY_NEVER) {
        char from[AD_DEVICE_NAME_SIZE];
        char to[AD_DEVICE_NAME_SIZE];
        return ad_fail_on(
            err, found, "copy",
            "leave copy=False out, or leave the data where they are",
            "the memory is on %s, and to have it on %s takes a copy",
            ad_device_format(found, from), ad_device_format(target, to));
    }
    return AD_OK;
}

/* plan() has waited for an alias on the host, which needs no event. */
static void
alias(ad_device target, ad_memory *memory)
{
    memory->device = target;
    if (ad_device_equal(target, AD_CPU)) {
        ad_memory_drop_sync(memory);
    }
}

static void
clear(ad_array *array, ad_tensor_value *value)
{
    if (array != NULL) {
        ad_array_clear(array);
    } else {
        ad_tensor_clear(&value->tensor);
    }
}

/* Replace the array or tensor by a copy on `target`. */
static ad_status
copy_there(ad_array *array, ad_tensor_value *value, ad_device target,
           const ad_stream_ref *choice, ad_error *err)
{
    if (array != NULL) {
        ad_array copied;
        AD_RETURN_IF_ERR(
            ad_array_copy_to(array, target, choice, &copied, err));
        ad_array_clear(array);
        *array = copied;
        return AD_OK;
    }
    ad_tensor_value copied;
    const char *why = ad_device_equal(value->tensor.memory.device, target)
                          ? "copy=True was passed"
                          : "the tensor was asked for on that device";
    AD_RETURN_IF_ERR(ad_tensor_copy_to(&value->tensor, target, choice, 0, why,
                                       &copied, err));
    ad_tensor_clear(&value->tensor);
    ad_tensor_share(&copied.tensor, value);
    ad_tensor_clear(&copied.tensor);
    return AD_OK;
}

int
ad_move_to(ad_state *state, ad_array *array, ad_tensor_value *value,
           ad_device target, const ad_stream_argument *stream, ad_copy copy)
{
    ad_memory *memory = array != NULL ? &array->memory : &value->tensor.memory;
    bool is_copied =
        array == NULL && (value->tensor.flags & AD_TENSOR_COPIED) != 0;
    ad_stream_ref choice;
    ad_move what;
    ad_error err;
    ad_status status = plan(memory, target, copy, is_copied, &what, &err);
    if (status == AD_OK && what == AD_MOVE_ALIAS) {
        alias(target, memory);
    } else if (status == AD_OK && what == AD_MOVE_COPY) {
        if (ad_choose_stream(state, stream,
                             ad_device_of_copy(memory->device, target), NULL,
                             &choice) < 0) {
            clear(array, value);
            return -1;
        }
        status = copy_there(array, value, target, &choice, &err);
        ad_stream_ref_clear(&choice);
    }
    int result = ad_raise_status(state, status, &err);
    if (result < 0) {
        clear(array, value);
    }
    return result;
}
