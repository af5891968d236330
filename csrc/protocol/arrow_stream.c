/* Arrow streams for single arrays: imports all batches of a stream as one
 * array, and exports an Array as a stream of one batch. ArrayStream is in
 * python/types/array_stream_type.c. */
#include "protocol/arrow.h"

#include "stream/array_stream.h"
#include "compute/concat.h"
#include "support/py_stream.h"

/* --- import -------------------------------------------------------------- */

ad_status
ad_array_stream_join(ad_array_stream *stream, bool may_copy, ad_array *out,
                     ad_error *err)
{
    ad_schema schema = ad_array_stream_schema(stream);
    ad_array *batches;
    size_t n;
    AD_RETURN_IF_ERR(ad_array_stream_collect(stream, &batches, &n, err));
    ad_status status = AD_OK;
    if (n == 0) {
        status = ad_array_empty(schema, out, err);
    } else if (n == 1) {
        *out = batches[0];
        batches[0] = (ad_array){0};
    } else if (may_copy) {
        status = ad_concat(schema, batches, n, out, err);
    } else {
        status =
            ad_fail(err, AD_ERR_EXCHANGE, "chunks",
                    "leave copy=False out, or read them one by one with "
                    "arrowdev.array_stream()",
                    "the stream has %zu chunks, which become one array only "
                    "by a copy",
                    n);
    }
    ad_array_list_free(batches, n);
    return status;
}

/* Runs without the GIL: the callbacks are foreign code that may block or take
 * it. */
static ad_import_result
read_stream(ad_state *state, const ad_stream_struct *steal, bool may_copy,
            ad_array *out)
{
    ad_error err;
    ad_array_stream *stream = NULL;
    ad_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ad_stream_struct_import(steal, &stream, &err);
    if (status == AD_OK) {
        status = ad_array_stream_join(stream, may_copy, out, &err);
    }
    Py_END_ALLOW_THREADS
    if (status != AD_OK) {
        ad_array_stream_raise(state, stream, &err);
    }
    ad_array_stream_unref(stream);
    return status == AD_OK ? AD_IMPORT_DONE : AD_IMPORT_FAILED;
}

static ad_import_result
import_by_method(const ad_protocol *self, ad_state *state, PyObject *object,
                 const ad_type_slot *slot, const ad_request *request,
                 ad_imported *out)
{
    if (slot->is_nanoarrow && ad_arrow_check_nanoarrow(object) < 0) {
        return AD_IMPORT_FAILED;
    }
    PyObject *capsule = ad_arrow_call(state, object, self->attribute, request);
    if (capsule == NULL) {
        return ad_import_exception(state);
    }
    ad_capsule_kind kind = self->attribute == AD_STR_arrow_c_device_stream
                               ? AD_CAPSULE_DEVICE_STREAM
                               : AD_CAPSULE_STREAM;
    ad_import_result result = AD_IMPORT_FAILED;
    char origin[AD_ORIGIN_SIZE];
    ad_stream_struct taken;
    if (ad_stream_struct_take(state, capsule, kind,
                              ad_origin(self->name, object, origin),
                              &taken) == 0) {
        out->is_array = true;
        result = read_stream(state, &taken, request->copy != AD_COPY_NEVER,
                             &out->array);
    }
    Py_DECREF(capsule);
    return result;
}

/* --- export -------------------------------------------------------------- */

PyObject *
ad_array_stream_export(ad_state *state, ad_array_stream *stream,
                       ad_capsule_kind kind)
{
    struct ArrowDeviceArrayStream *device = NULL;
    struct ArrowArrayStream *host = NULL;
    ad_error err;
    ad_status status =
        kind == AD_CAPSULE_DEVICE_STREAM
            ? ad_array_stream_export_device(stream, &device, &err)
            : ad_array_stream_export_host(stream, &host, &err);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_capsule_new(kind, device != NULL ? (void *)device : host);
}

PyObject *
ad_arrow_export_as_stream(ad_state *state, const ad_array *array,
                          ad_capsule_kind kind)
{
    ad_array_stream *stream;
    ad_error err;
    if (ad_array_stream_from_array(array, &stream, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *capsule = ad_array_stream_export(state, stream, kind);
    ad_array_stream_unref(stream);
    return capsule;
}

AD_ARROW_EXPORT(device_stream, AD_CAPSULE_DEVICE_STREAM)
AD_ARROW_EXPORT(stream, AD_CAPSULE_STREAM)

static const PyMethodDef device_stream_methods[] = {
    {"__arrow_c_device_stream__", AD_METHOD(export_device_stream),
     "__arrow_c_device_stream__($self, requested_schema=None, **kwargs)\n"
     "--\n\n"
     "Export as a capsule \"arrow_device_array_stream\" that gives this\n"
     "array once.\n\nSource: Arrow PyCapsule interface, \"Device support\"."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef stream_method = {
    "__arrow_c_stream__", AD_METHOD(export_stream),
    "__arrow_c_stream__($self, requested_schema=None)\n--\n\n"
    "Export host memory as a capsule \"arrow_array_stream\" that gives this\n"
    "array once."};

static const PyGetSetDef stream_getset[] = {
    {"__arrow_c_stream__", ad_arrow_host_method, NULL,
     "Method that exports host memory as a capsule \"arrow_array_stream\" of "
     "one array; AttributeError if the memory is not host memory.",
     &stream_method},
    {NULL, NULL, NULL, NULL, NULL},
};

const ad_protocol ad_protocol_arrow_device_stream = {
    .name = "__arrow_c_device_stream__",
    .attribute = AD_STR_arrow_c_device_stream,
    .import = import_by_method,
    .array_methods = device_stream_methods,
};

const ad_protocol ad_protocol_arrow_stream = {
    .name = "__arrow_c_stream__",
    .attribute = AD_STR_arrow_c_stream,
    .import = import_by_method,
    .array_getset = stream_getset,
};
