#include "compute/fill.h"

#include <string.h>

#include "base/owner.h"
#include "order/device_owner.h"
#include "copy/session.h"

static const char operation[] = "filling nulls";

/* The kernels fill whole elements of these sizes. */
static ad_status
check_size(size_t size, ad_device device, ad_error *err)
{
    if (size == 1 || size == 2 || size == 4 || size == 8 || size == 16) {
        return AD_OK;
    }
    return ad_fail_on(
        err, device, "dtype", "use nulls=\"ignore\" and the array's .validity",
        "nulls are filled in elements of 1, 2, 4, 8 or 16 bytes, "
        "and these have %s%zu",
        size == 0 ? "less than " : "", size == 0 ? 1 : size);
}

/* `size` has passed check_size. */
static ad_launch
fill_launch(const ad_fill *fill, const void *value, size_t size)
{
    unsigned char repeated[16];
    ad_launch launch = {
        .kernel = AD_KERNEL_FILL_NULLS,
        .bit_offset = fill->offset,
        .length = fill->n_rows,
        .numbers = {(int64_t)size},
    };
    for (size_t i = 0; i < sizeof(repeated); i += size) {
        memcpy(repeated + i, value, size);
    }
    launch.numbers[1] = fill->n_rows > fill->n_elements
                            ? -(fill->n_rows / fill->n_elements)
                            : fill->n_elements / fill->n_rows;
    memcpy(&launch.numbers[2], repeated, sizeof(repeated));
    return launch;
}

static ad_status
run_fill(ad_session *session, const ad_array *array, const ad_fill *fill,
         ad_launch launch, void *target, ad_error *err)
{
    const ad_session_request also =
        ad_session_within(array->memory.device, fill->validity,
                          array->memory.sync, NULL, operation);
    AD_RETURN_IF_ERR(ad_session_use(session, &also, array->memory.owner, err));
    return ad_session_kernel(session, fill->validity, target, launch, err);
}

ad_status
ad_nulls_fill(const ad_array *array, const ad_fill *fills, size_t n,
              const void *value, size_t size, ad_tensor *target, ad_error *err)
{
    ad_session_request request =
        ad_session_within(target->memory.device, target->data,
                          target->memory.sync, NULL, operation);
    ad_session session;
    ad_sync *sync;
    request.others_pending = !ad_sync_is_done(array->memory.sync);
    AD_RETURN_IF_ERR(check_size(size, array->memory.device, err));
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    ad_status status =
        session.backend == NULL
            ? AD_OK
            : ad_owner_record_stream(target->memory.owner, &session.on, err);
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        ad_launch launch = fill_launch(&fills[i], value, size);
        if (launch.numbers[1] == 1) {
            launch.values.data = target->data;
        }
        status =
            run_fill(&session, array, &fills[i], launch, target->data, err);
    }
    if (status == AD_OK) {
        status = ad_session_finish(&session, NULL, &sync, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(&session, array->memory.owner, NULL,
                           target->memory.owner);
        return status;
    }
    if (sync != NULL) {
        ad_sync_unref(target->memory.sync);
        target->memory.sync = sync;
    }
    return AD_OK;
}

/* Without a session, which takes longer than filling a thousand rows. */
static ad_status
copy_filled_on_host(const ad_array *array, const ad_fill *fill,
                    ad_launch launch, int64_t nbytes, ad_allocation *out,
                    ad_error *err)
{
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_sync_wait(array->memory.sync, operation, err));
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    launch.source.data = (void *)fill->validity;
    launch.target.data = memory->data;
    launch.n_items = 1;
    ad_kernel_run_on_host(&launch);
    *out = (ad_allocation){.data = memory->data, .owner = &memory->base};
    return AD_OK;
}

ad_status
ad_nulls_copy_filled(const ad_array *array, const ad_fill *fill,
                     const void *value, size_t size, const ad_tensor *values,
                     ad_allocation *out, ad_error *err)
{
    const ad_session_request request =
        ad_session_within(array->memory.device, values->data,
                          array->memory.sync, NULL, operation);
    AD_RETURN_IF_ERR(check_size(size, array->memory.device, err));
    int64_t nbytes = fill->n_rows * (int64_t)size;
    ad_launch launch = fill_launch(fill, value, size);
    launch.values.data = values->data;
    launch.values.offset = values->byte_offset;
    *out = (ad_allocation){0};
    if (ad_host_accessible(array->memory.device)) {
        return copy_filled_on_host(array, fill, launch, nbytes, out, err);
    }
    ad_session session;
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    ad_status status =
        ad_session_allocate(&session, nbytes, &out->data, &out->owner, err);
    if (status == AD_OK) {
        status = run_fill(&session, array, fill, launch, out->data, err);
    }
    return ad_session_end(&session, status, array->memory.owner, NULL, out,
                          err);
}
