/* The table of arrowdev.h: the functions of the module for extensions in C,
 * which exchange structs instead of capsules. */
#include "python/functions/functions.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../arrowdev/include/arrowdev.h"
#include "base/wait.h"
#include "protocol/dlpack_tensor.h"
#include "python/types/array_stream_type.h"

/* --- options ------------------------------------------------------------- */

/* A greater size is no size of a struct. */
#define MAX_OPTIONS 1024

/* The options that a function follows. */
enum {
    TAKES_COPY = 1,
    TAKES_NULLS = 2
};

/* The state and the options of a call. */
typedef struct call {
    ad_state *state;
    ad_request request;
    ad_tensor_options tensor;
    PyObject *stream; /* borrowed; may be NULL */
} call;

static int
fail_option(const char *text, long long found)
{
    PyErr_Format(PyExc_ValueError, text, found);
    return -1;
}

/* Copies the options of a caller whose struct may be longer. */
static int
read_struct(const ArrowDevOptions *given, ArrowDevOptions *out)
{
    const size_t known = sizeof(*out);
    const unsigned char *bytes = (const unsigned char *)given;
    if (given->size < known || given->size > MAX_OPTIONS) {
        PyErr_Format(PyExc_ValueError,
                     "size of the ArrowDevOptions is %zu, expected "
                     "sizeof(ArrowDevOptions), which is %zu here",
                     given->size, known);
        return -1;
    }
    for (size_t i = known; i < given->size; i++) {
        if (bytes[i] != 0) {
            return fail_option("byte %lld of the ArrowDevOptions is an option "
                               "of a newer arrowdev.h; leave it 0, or upgrade "
                               "arrowdev",
                               (long long)i);
        }
    }
    *out = *given;
    return 0;
}

static int
check_values(const ArrowDevOptions *read)
{
    if (read->copy < AD_COPY_IF_NEEDED || read->copy > AD_COPY_ALWAYS) {
        return fail_option("copy of the ArrowDevOptions is %lld, expected "
                           "ARROWDEV_COPY_*",
                           read->copy);
    }
    if (read->nulls < AD_NULLS_RAISE || read->nulls > AD_NULLS_FILL) {
        return fail_option("nulls of the ArrowDevOptions is %lld, expected "
                           "ARROWDEV_NULLS_*",
                           read->nulls);
    }
    if (read->reserved != 0) {
        return fail_option("reserved of the ArrowDevOptions is %lld, expected "
                           "0",
                           read->reserved);
    }
    if ((read->nulls == AD_NULLS_FILL) == ad_is_none(read->fill_value)) {
        return fail_option("nulls of the ArrowDevOptions is %lld, but "
                           "ARROWDEV_NULLS_FILL and fill_value go together",
                           read->nulls);
    }
    return 0;
}

/* Refuses options that a function with these TAKES_* does not follow. */
static int
check_followed(const ArrowDevOptions *read, int takes)
{
    if (read->nulls != AD_NULLS_RAISE && !(takes & TAKES_NULLS)) {
        return fail_option("nulls of the ArrowDevOptions is %lld, but Arrow "
                           "structs keep nulls; leave it 0",
                           read->nulls);
    }
    if (read->copy != AD_COPY_IF_NEEDED && !(takes & TAKES_COPY)) {
        return fail_option("copy of the ArrowDevOptions is %lld, but a stream "
                           "is not copied as a whole; leave it 0",
                           read->copy);
    }
    return 0;
}

static int
read_options(const ArrowDevOptions *given, int takes, call *out)
{
    ArrowDevOptions read;
    if (read_struct(given, &read) < 0 || check_values(&read) < 0 ||
        check_followed(&read, takes) < 0) {
        return -1;
    }
    if (ad_parse_request(out->state, NULL, read.stream, NULL, &out->request) <
        0) {
        return -1;
    }
    bool is_host = read.device_type == ARROW_DEVICE_CPU;
    out->request.copy = (ad_copy)read.copy;
    out->request.has_device = read.device_type != 0;
    out->request.device =
        is_host ? AD_CPU : (ad_device){read.device_type, read.device_id};
    out->tensor.bridge.nulls = (ad_nulls)read.nulls;
    out->tensor.fill_value =
        ad_is_none(read.fill_value) ? NULL : read.fill_value;
    out->stream = read.stream;
    return 0;
}

/* --- calls --------------------------------------------------------------- */

/* The state, or NULL with an exception: the one that is set already, or
 * SystemError for an argument of NULL. */
static ad_state *
enter(const void *first, const void *second)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (first == NULL || second == NULL) {
        PyErr_BadInternalCall();
        return NULL;
    }
    return ad_state_current();
}

/* Begins a call with options; `state` is the result of enter(). Returns 0, or
 * -1 with an exception. */
static int
begin(ad_state *state, const ArrowDevOptions *options, int takes, call *out)
{
    *out = (call){.state = state};
    if (state == NULL) {
        return -1;
    }
    return options != NULL ? read_options(options, takes, out) : 0;
}

/* --- arrays -------------------------------------------------------------- */

static int
give_array(ad_state *state, const ad_array *array, struct ArrowSchema *schema,
           struct ArrowDeviceArray *out)
{
    ad_error err;
    if (ad_schema_export_to(array->schema, schema, &err) == AD_OK) {
        if (ad_array_export_to(array, out, &err) == AD_OK) {
            return 0;
        }
        AD_RELEASE(schema, release);
    }
    ad_raise(state, &err);
    return -1;
}

/* Not inlined: the frame is large, and most calls do not need it. */
static __attribute__((noinline)) int
export_any(ad_state *state, PyObject *object, const ArrowDevOptions *options,
           struct ArrowSchema *schema, struct ArrowDeviceArray *out)
{
    call call;
    ad_array array;
    if (begin(state, options, TAKES_COPY, &call) < 0 ||
        ad_import_array(state, object, &call.request, (ad_schema){0}, NULL,
                        &array) < 0) {
        return -1;
    }
    int result = give_array(state, &array, schema, out);
    ad_array_clear(&array);
    return result;
}

static int
export_device_array(PyObject *object, const ArrowDevOptions *options,
                    struct ArrowSchema *schema, struct ArrowDeviceArray *out)
{
    if (schema != NULL) {
        schema->release = NULL;
    }
    if (out != NULL) {
        out->array.release = NULL;
    }
    ad_state *state = enter(object, schema != NULL ? out : NULL);
    if (state != NULL && options == NULL && ad_is_array(state, object)) {
        return give_array(state, ad_array_of(object), schema, out);
    }
    return export_any(state, object, options, schema, out);
}

static PyObject *
import_device_array(struct ArrowSchema *schema, struct ArrowDeviceArray *array)
{
    ad_state *state = enter(schema, array);
    ad_array imported;
    ad_error err;
    if (state != NULL) {
        if (ad_array_import(schema, array, NULL, &imported, &err) == AD_OK) {
            return ad_array_object_in_order(state, &imported);
        }
        ad_raise(state, &err);
    }
    if (array != NULL) {
        AD_RELEASE(&array->array, release);
        array->array.release = NULL;
    }
    if (schema != NULL) {
        AD_RELEASE(schema, release);
        schema->release = NULL;
    }
    return NULL;
}

/* --- streams ------------------------------------------------------------- */

/* The stream of any object, on the device of the request. */
static PyObject *
find_stream(const call *call, PyObject *object)
{
    PyObject *stream = ad_array_stream_from_object(call->state, object);
    if (stream != NULL && call->request.has_device) {
        Py_SETREF(stream, ad_array_stream_object_to(
                              call->state, stream, call->request.device,
                              AD_PREFETCH, call->stream));
    }
    return stream;
}

static int
export_device_stream(PyObject *object, const ArrowDevOptions *options,
                     struct ArrowDeviceArrayStream *out)
{
    call call;
    struct ArrowDeviceArrayStream *holder;
    ad_error err;
    if (out != NULL) {
        out->release = NULL;
    }
    if (begin(enter(object, out), options, 0, &call) < 0) {
        return -1;
    }
    if (call.request.stream.kind != AD_STREAM_ABSENT &&
        !call.request.has_device) {
        PyErr_SetString(PyExc_ValueError,
                        "stream of the ArrowDevOptions is for copies to "
                        "another device; name that, or leave stream out");
        return -1;
    }
    PyObject *stream = find_stream(&call, object);
    ad_array_stream *handed =
        stream != NULL ? ad_array_stream_hand_over(stream) : NULL;
    Py_XDECREF(stream);
    if (handed == NULL) {
        return -1;
    }
    ad_status status = ad_array_stream_export_device(handed, &holder, &err);
    ad_array_stream_unref(handed);
    if (status == AD_OK) {
        *out = *holder;
        holder->release = NULL;
        ad_device_stream_holder_free(holder);
    }
    return ad_raise_status(call.state, status, &err);
}

static PyObject *
import_device_stream(struct ArrowDeviceArrayStream *stream)
{
    ad_state *state = enter(stream, stream);
    ad_array_stream *imported;
    ad_status status;
    ad_error err;
    if (state == NULL) {
        if (stream != NULL) {
            AD_RELEASE(stream, release);
            stream->release = NULL;
        }
        return NULL;
    }
    if (stream->release == NULL) {
        (void)ad_fail(&err, AD_ERR_ARROW, NULL, NULL,
                      "stream is released (its release callback is NULL)");
        return ad_raise(state, &err);
    }
    struct ArrowDeviceArrayStream taken = *stream;
    stream->release = NULL;
    Py_BEGIN_ALLOW_THREADS
    status = ad_array_stream_from_device(&taken, false, &imported, &err);
    Py_END_ALLOW_THREADS
    return status == AD_OK ? ad_array_stream_object_new(state, imported)
                           : ad_array_stream_raise(state, NULL, &err);
}

/* --- tensors ------------------------------------------------------------- */

_Static_assert(sizeof(DLManagedTensorVersioned) ==
                   sizeof(ad_dl_managed_versioned),
               "the struct of arrowdev.h is that of abi/dlpack.h");

static int
export_dlpack(PyObject *object, const ArrowDevOptions *options,
              DLManagedTensorVersioned **out)
{
    call call;
    ad_imported imported;
    void *managed = NULL;
    ad_error err;
    if (out != NULL) {
        *out = NULL;
    }
    if (begin(enter(object, out), options, TAKES_COPY | TAKES_NULLS, &call) <
            0 ||
        ad_import_tensor(call.state, object, &call.request, AD_ALL_PROTOCOLS,
                         &call.tensor, &imported) < 0) {
        return -1;
    }
    ad_tensor *tensor = &imported.tensor.tensor;
    ad_status status = AD_OK;
    /* The struct has no event. */
    if (call.request.stream.kind == AD_STREAM_ABSENT &&
        !ad_is_plain(&tensor->memory)) {
        status =
            ad_use_on_thread(&tensor->memory, "ArrowDev_ExportDLPack()", &err);
    }
    if (status == AD_OK) {
        status = ad_dlpack_give(tensor, true,
                                (tensor->flags & AD_TENSOR_COPIED) != 0,
                                &managed, &err);
    }
    ad_tensor_clear(tensor);
    *out = managed;
    return ad_raise_status(call.state, status, &err);
}

static PyObject *
import_dlpack(DLManagedTensorVersioned *tensor)
{
    void *object = NULL;
    if (enter(tensor, tensor) != NULL) {
        return ad_dlpack_to_py((ad_dl_managed_versioned *)tensor, &object) == 0
                   ? object
                   : NULL;
    }
    if (tensor != NULL) {
        ad_dlpack_delete(tensor, true);
    }
    return NULL;
}

static PyObject *
into(PyObject *object, PyTypeObject *cls, const ArrowDevOptions *options)
{
    call call;
    return begin(enter(object, cls), options, TAKES_COPY | TAKES_NULLS,
                 &call) == 0
               ? ad_convert(call.state, object, (PyObject *)cls, &call.request,
                            &call.tensor)
               : NULL;
}

/* --- streams of devices -------------------------------------------------- */

/* The message of a thread's last failure: too large for a thread-local. */
static pthread_key_t wait_error;
static bool has_wait_error;

#define WAIT_ERROR_SIZE                                                       \
    (sizeof(((ad_error *)0)->message) + sizeof(((ad_error *)0)->hint) + 2)

static void
keep_wait_error(const ad_error *err)
{
    char *text = has_wait_error ? pthread_getspecific(wait_error) : NULL;
    if (text == NULL && has_wait_error) {
        text = malloc(WAIT_ERROR_SIZE);
        if (text != NULL && pthread_setspecific(wait_error, text) != 0) {
            free(text);
            text = NULL;
        }
    }
    if (text != NULL) {
        (void)snprintf(text, WAIT_ERROR_SIZE, "%s%s%s", err->message,
                       err->hint[0] != '\0' ? "; " : "", err->hint);
    }
}

static int
stream_wait(const struct ArrowDeviceArray *array, void *stream)
{
    ad_error err;
    ad_sync *sync;
    ad_status status;
    if (array == NULL || array->array.release == NULL) {
        status = ad_fail(&err, AD_ERR_VALUE, NULL, NULL,
                         array == NULL ? "the array is NULL"
                                       : "the array is released");
    } else if (array->sync_event == NULL ||
               array->device_type == ARROW_DEVICE_CPU) {
        return 0;
    } else {
        const ad_device device = {array->device_type, array->device_id};
        status = ad_sync_new(AD_SYNC_EVENT, device, array->sync_event, NULL,
                             &sync, &err);
        if (status == AD_OK) {
            const ad_stream_ref on =
                ad_stream_named((ad_context){device, NULL},
                                (ad_stream){(uintptr_t)stream}, NULL);
            status = ad_sync_order(sync, &on, "ArrowDev_StreamWait()", &err);
            ad_sync_unref(sync);
        }
    }
    if (status == AD_OK) {
        return 0;
    }
    keep_wait_error(&err);
    return ad_array_stream_errno(&err);
}

static const char *
last_error(void)
{
    const char *text = has_wait_error ? pthread_getspecific(wait_error) : NULL;
    return text != NULL ? text : "";
}

/* --- backends of others -------------------------------------------------- */

static int
register_backend(int32_t device_type, const arrowdev_backend *backend)
{
    ad_state *state = enter(backend, backend);
    return state != NULL
               ? ad_register_backend(state, device_type, backend, false)
               : -1;
}

/* --- the table ----------------------------------------------------------- */

static const ArrowDevAPI table = {
    .version = ARROWDEV_API_VERSION,
    .package = ARROWDEV_VERSION,
    .export_device_array = export_device_array,
    .import_device_array = import_device_array,
    .export_device_stream = export_device_stream,
    .import_device_stream = import_device_stream,
    .export_dlpack = export_dlpack,
    .import_dlpack = import_dlpack,
    .into = into,
    .stream_wait = stream_wait,
    .last_error = last_error,
    .register_backend = register_backend,
};

int
ad_c_api_init(PyObject *module)
{
    if (!has_wait_error) {
        has_wait_error = pthread_key_create(&wait_error, free) == 0;
    }
    return ad_py_set_attr(
        module, "_C_API",
        PyCapsule_New((void *)&table, "arrowdev._C_API", NULL));
}
