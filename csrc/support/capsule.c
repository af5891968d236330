#include "support/capsule.h"

#include <string.h>

#include "model/array.h"
#include "stream/array_stream.h"
#include "model/schema.h"
#include "support/errors.h"

static void
free_schema(void *pointer)
{
    ad_schema_holder_free(pointer);
}

static void
free_device_array(void *pointer)
{
    ad_array_holder_free(pointer);
}

static void
free_stream(void *pointer)
{
    ad_stream_holder_free(pointer);
}

static void
free_device_stream(void *pointer)
{
    ad_device_stream_holder_free(pointer);
}

static void
free_dlpack(void *pointer)
{
    ad_dl_managed *managed = pointer;
    if (managed->deleter != NULL) {
        managed->deleter(managed);
    }
}

static void
free_dlpack_versioned(void *pointer)
{
    ad_dl_managed_versioned *managed = pointer;
    if (managed->deleter != NULL) {
        managed->deleter(managed);
    }
}

static void
free_handler(void *pointer)
{
    struct ArrowAsyncDeviceStreamHandler *handler = pointer;
    if (handler->release != NULL) {
        handler->release(handler);
    }
}

/* One row per kind. */
static const struct {
    const char *name;
    const char *used_name; /* NULL: `release` tells */
    void (*free)(void *pointer);
} kinds[] = {
    [AD_CAPSULE_SCHEMA] = {"arrow_schema", NULL, free_schema},
    /* An arrow_array is the first member of a device array's holder. */
    [AD_CAPSULE_ARRAY] = {"arrow_array", NULL, free_device_array},
    [AD_CAPSULE_STREAM] = {"arrow_array_stream", NULL, free_stream},
    [AD_CAPSULE_DEVICE_ARRAY] = {"arrow_device_array", NULL,
                                 free_device_array},
    [AD_CAPSULE_DEVICE_STREAM] = {"arrow_device_array_stream", NULL,
                                  free_device_stream},
    [AD_CAPSULE_DLPACK] = {"dltensor", "used_dltensor", free_dlpack},
    [AD_CAPSULE_DLPACK_VERSIONED] = {"dltensor_versioned",
                                     "used_dltensor_versioned",
                                     free_dlpack_versioned},
    [AD_CAPSULE_ASYNC_HANDLER] = {"arrowdev_async_device_stream_handler",
                                  "used_arrowdev_async_device_stream_handler",
                                  free_handler},
};

/* Does the capsule still have its name? A consumer that restores the name
 * after a failure may use a copy of it. */
static bool
is_live(PyObject *capsule, const char *name)
{
    const char *found = PyCapsule_GetName(capsule);
    return found == name || (found != NULL && strcmp(found, name) == 0);
}

/* One destructor per kind, so that no destructor looks up its kind. */
#define AD_CAPSULE_DESTRUCTOR(function, kind)                                 \
    static void function(PyObject *capsule)                                   \
    {                                                                         \
        if (is_live(capsule, kinds[kind].name)) {                             \
            kinds[kind].free(                                                 \
                PyCapsule_GetPointer(capsule, kinds[kind].name));             \
        }                                                                     \
    }

AD_CAPSULE_DESTRUCTOR(destroy_schema, AD_CAPSULE_SCHEMA)
AD_CAPSULE_DESTRUCTOR(destroy_array, AD_CAPSULE_ARRAY)
AD_CAPSULE_DESTRUCTOR(destroy_stream, AD_CAPSULE_STREAM)
AD_CAPSULE_DESTRUCTOR(destroy_device_array, AD_CAPSULE_DEVICE_ARRAY)
AD_CAPSULE_DESTRUCTOR(destroy_device_stream, AD_CAPSULE_DEVICE_STREAM)
AD_CAPSULE_DESTRUCTOR(destroy_dlpack, AD_CAPSULE_DLPACK)
AD_CAPSULE_DESTRUCTOR(destroy_dlpack_versioned, AD_CAPSULE_DLPACK_VERSIONED)
AD_CAPSULE_DESTRUCTOR(destroy_handler, AD_CAPSULE_ASYNC_HANDLER)

static const PyCapsule_Destructor destructors[] = {
    [AD_CAPSULE_SCHEMA] = destroy_schema,
    [AD_CAPSULE_ARRAY] = destroy_array,
    [AD_CAPSULE_STREAM] = destroy_stream,
    [AD_CAPSULE_DEVICE_ARRAY] = destroy_device_array,
    [AD_CAPSULE_DEVICE_STREAM] = destroy_device_stream,
    [AD_CAPSULE_DLPACK] = destroy_dlpack,
    [AD_CAPSULE_DLPACK_VERSIONED] = destroy_dlpack_versioned,
    [AD_CAPSULE_ASYNC_HANDLER] = destroy_handler,
};

const char *
ad_capsule_name(ad_capsule_kind kind)
{
    return kinds[kind].name;
}

PyObject *
ad_capsule_new(ad_capsule_kind kind, void *pointer)
{
    PyObject *capsule =
        PyCapsule_New(pointer, kinds[kind].name, destructors[kind]);
    if (capsule == NULL) {
        kinds[kind].free(pointer);
    }
    return capsule;
}

/* Is the Arrow struct at `pointer` released? */
static bool
is_released(ad_capsule_kind kind, const void *pointer)
{
    switch (kind) {
        case AD_CAPSULE_SCHEMA:
            return ((const struct ArrowSchema *)pointer)->release == NULL;
        case AD_CAPSULE_ARRAY:
        case AD_CAPSULE_DEVICE_ARRAY:
            return ((const struct ArrowArray *)pointer)->release == NULL;
        case AD_CAPSULE_STREAM:
            return ((const struct ArrowArrayStream *)pointer)->release == NULL;
        case AD_CAPSULE_DEVICE_STREAM:
            return ((const struct ArrowDeviceArrayStream *)pointer)->release ==
                   NULL;
        case AD_CAPSULE_ASYNC_HANDLER:
            return ((const struct ArrowAsyncDeviceStreamHandler *)pointer)
                       ->release == NULL;
        case AD_CAPSULE_DLPACK:
        case AD_CAPSULE_DLPACK_VERSIONED:
            break;
    }
    return false;
}

static void *
fail_name(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
          const char *origin)
{
    const char *name = kinds[kind].name;
    if (!PyCapsule_CheckExact(capsule)) {
        return ad_raise_exchange(
            state, "protocol", NULL,
            "%s: found %.200s, expected a capsule named \"%s\"", origin,
            Py_TYPE(capsule)->tp_name, name);
    }
    const char *found = PyCapsule_GetName(capsule);
    bool is_used = found != NULL && kinds[kind].used_name != NULL &&
                   strcmp(found, kinds[kind].used_name) == 0;
    const char *quote = found != NULL ? "\"" : "";
    return ad_raise_exchange(
        state, is_used ? "consumed" : "protocol",
        is_used ? "a capsule can be consumed once; ask the producer again"
                : NULL,
        "%s: found a capsule named %s%.100s%s, expected \"%s\"", origin, quote,
        found != NULL ? found : "(none)", quote, name);
}

void *
ad_capsule_get(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
               const char *origin)
{
    const char *name = kinds[kind].name;
    if (!PyCapsule_CheckExact(capsule) || !is_live(capsule, name)) {
        return fail_name(state, capsule, kind, origin);
    }
    void *pointer = PyCapsule_GetPointer(capsule, name);
    if (pointer != NULL && is_released(kind, pointer)) {
        return ad_raise_exchange(
            state, "consumed",
            "a capsule can be consumed once; ask the producer again",
            "%s: the struct in the capsule \"%s\" is released", origin, name);
    }
    return pointer;
}

void *
ad_capsule_consume(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
                   const char *origin)
{
    void *pointer = ad_capsule_get(state, capsule, kind, origin);
    if (pointer != NULL &&
        PyCapsule_SetName(capsule, kinds[kind].used_name) < 0) {
        return NULL;
    }
    return pointer;
}
