#include "support/capsule.h"

#include <string.h>

#include "base/wait.h"
#include "model/array.h"
#include "stream/array_stream.h"
#include "model/schema.h"
#include "support/errors.h"

/* Does the capsule still have its name? A consumer that restores the name
 * after a failure may use a copy of it. The name after consumption has another
 * first letter. */
static bool
is_live(PyObject *capsule, const char *name)
{
    const char *found = PyCapsule_GetName(capsule);
    return found == name ||
           (found != NULL && found[0] == name[0] && strcmp(found, name) == 0);
}

/* X(kind, struct, name, name after consumption (NULL: `release` tells), how to
 * free `it`, whether `it` is released) */
#define AD_CAPSULE_KINDS(X)                                                   \
    X(SCHEMA, struct ArrowSchema, "arrow_schema", NULL,                       \
      ad_schema_holder_free(it), it->release == NULL)                         \
    /* An arrow_array is the first member of a device array's holder. */      \
    X(ARRAY, struct ArrowArray, "arrow_array", NULL,                          \
      ad_array_holder_free_with_gil((void *)it), it->release == NULL)         \
    X(STREAM, struct ArrowArrayStream, "arrow_array_stream", NULL,            \
      ad_array_stream_holder_free(it), it->release == NULL)                   \
    X(DEVICE_ARRAY, struct ArrowDeviceArray, "arrow_device_array", NULL,      \
      ad_array_holder_free_with_gil(it), it->array.release == NULL)           \
    X(DEVICE_STREAM, struct ArrowDeviceArrayStream,                           \
      "arrow_device_array_stream", NULL, ad_device_stream_holder_free(it),    \
      it->release == NULL)                                                    \
    X(DLPACK, ad_dl_managed, "dltensor", "used_dltensor",                     \
      if (it->deleter != NULL) it->deleter(it), false)                        \
    X(DLPACK_VERSIONED, ad_dl_managed_versioned, "dltensor_versioned",        \
      "used_dltensor_versioned", if (it->deleter != NULL) it->deleter(it),    \
      false)                                                                  \
    X(ASYNC_HANDLER, struct ArrowAsyncDeviceStreamHandler,                    \
      "arrowdev_async_device_stream_handler",                                 \
      "used_arrowdev_async_device_stream_handler", AD_RELEASE(it, release),   \
      it->release == NULL)

/* One destructor per kind, so that no destructor looks up its kind. */
#define X(KIND, TYPE, NAME, USED, FREE, IS_RELEASED)                          \
    static void free_##KIND(void *pointer)                                    \
    {                                                                         \
        TYPE *it = pointer;                                                   \
        FREE;                                                                 \
    }                                                                         \
    static bool is_released_##KIND(const void *pointer)                       \
    {                                                                         \
        const TYPE *it = pointer;                                             \
        (void)it;                                                             \
        return IS_RELEASED;                                                   \
    }                                                                         \
    static void destroy_##KIND(PyObject *capsule)                             \
    {                                                                         \
        if (is_live(capsule, NAME)) {                                         \
            free_##KIND(PyCapsule_GetPointer(capsule, NAME));                 \
        }                                                                     \
    }
AD_CAPSULE_KINDS(X)
#undef X

static const struct {
    const char *name;
    const char *used_name;
    void (*free)(void *pointer);
    bool (*is_released)(const void *pointer);
    PyCapsule_Destructor destroy;
} kinds[] = {
#define X(KIND, TYPE, NAME, USED, FREE, IS_RELEASED)                          \
    [AD_CAPSULE_##KIND] = {NAME, USED, free_##KIND, is_released_##KIND,       \
                           destroy_##KIND},
    AD_CAPSULE_KINDS(X)
#undef X
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
        PyCapsule_New(pointer, kinds[kind].name, kinds[kind].destroy);
    if (capsule == NULL) {
        kinds[kind].free(pointer);
    }
    return capsule;
}

void
ad_capsule_free(ad_capsule_kind kind, void *pointer)
{
    kinds[kind].free(pointer);
}

bool
ad_capsule_has_name(PyObject *object, ad_capsule_kind kind)
{
    return AD_PY_LOCKED(object, PyCapsule_IsValid(object, kinds[kind].name));
}

static const char *
used_hint(ad_capsule_kind kind)
{
    return kind == AD_CAPSULE_ASYNC_HANDLER
               ? "a handler is for one stream; make a new one with "
                 "arrowdev.aio.consumer()"
               : "a capsule can be consumed once; ask the producer again";
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
        is_used ? used_hint(kind) : NULL,
        "%s: found a capsule named %s%.100s%s, expected \"%s\"", origin, quote,
        found != NULL ? found : "(none)", quote, name);
}

void *
ad_capsule_get(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
               const char *origin)
{
    const char *name = kinds[kind].name;
    void *pointer = PyCapsule_CheckExact(capsule)
                        ? PyCapsule_GetPointer(capsule, name)
                        : NULL;
    if (pointer == NULL) {
        PyErr_Clear(); /* ours says more */
        return fail_name(state, capsule, kind, origin);
    }
    if (kinds[kind].is_released(pointer)) {
        return ad_raise_exchange(
            state, "consumed", used_hint(kind),
            "%s: the struct in the capsule \"%s\" is released", origin, name);
    }
    return pointer;
}

void *
ad_capsule_consume(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
                   const char *origin)
{
    void *pointer;
    Py_BEGIN_CRITICAL_SECTION(capsule);
    pointer = ad_capsule_get(state, capsule, kind, origin);
    if (pointer != NULL &&
        PyCapsule_SetName(capsule, kinds[kind].used_name) < 0) {
        pointer = NULL;
    }
    Py_END_CRITICAL_SECTION();
    return pointer;
}
