/* Arrow by capsules: arrays as pairs, from __arrow_c_device_array__,
 * __arrow_c_array__ and as they are; streams, of which an import makes one
 * array; __arrow_c_schema__ on export; and requested_schema, as consumer and as
 * producer. ArrayStream, which reads a stream batch by batch, is in
 * python/types/array_stream_type.c. */
#include "protocol/arrow.h"

#include <errno.h>

#include "base/text.h"
#include "compute/concat.h"
#include "model/extension.h"
#include "model/schema_cast.h"
#include "support/py_call.h"
#include "support/py_stream.h"

/* --- requested_schema, as consumer --------------------------------------- */

static PyObject *
call_with_schema(ad_state *state, PyObject *object, PyObject *name,
                 ad_schema schema)
{
    PyObject *capsule = ad_schema_capsule(state, schema);
    if (capsule == NULL) {
        return NULL;
    }
    PyObject *args[] = {object, capsule};
    PyObject *kwnames = PyTuple_Pack(1, AD_STR(state, requested_schema));
    PyObject *result = NULL;
    if (kwnames != NULL) {
        result = PyObject_VectorcallMethod(name, args, 1, kwnames);
        Py_DECREF(kwnames);
    }
    Py_DECREF(capsule);
    return result;
}

/* Fills *out with the schema of a stream that nobody has taken yet. False if
 * there is none: the import says why. */
static bool
read_schema(PyObject *capsule, bool is_device, struct ArrowSchema *out)
{
    ad_stream_struct stream;
    int code = EINVAL;
    if (!ad_stream_struct_borrow(capsule, is_device, &stream)) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS
    if (is_device && stream.device.get_schema != NULL) {
        code = stream.device.get_schema(&stream.device, out);
    } else if (!is_device && stream.host.get_schema != NULL) {
        code = stream.host.get_schema(&stream.host, out);
    }
    Py_END_ALLOW_THREADS
    ad_stream_struct_give_back(capsule, &stream);
    return code == 0;
}

/* Sets *out to what is to be asked for, see ad_schema_cast_request(). An
 * answer without a valid schema is left to the import, which says what is
 * wrong with it. -1 with an exception. */
static int
find_request(ad_state *state, PyObject *answer, ad_schema wanted,
             ad_schema *out)
{
    const char *schema_name = ad_capsule_name(AD_CAPSULE_SCHEMA);
    struct ArrowSchema storage = {.release = NULL};
    struct ArrowSchema *own = NULL;
    PyObject *capsule = PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) == 2
                            ? PyTuple_GET_ITEM(answer, 0)
                            : answer;
    if (read_schema(answer, true, &storage) ||
        read_schema(answer, false, &storage)) {
        own = &storage;
    }
    ad_status status = AD_OK;
    ad_error err;
    Py_BEGIN_CRITICAL_SECTION(capsule);
    if (capsule != answer && PyCapsule_IsValid(capsule, schema_name)) {
        own = PyCapsule_GetPointer(capsule, schema_name);
    }
    if (own != NULL && ad_schema_validate(own, &err) == AD_OK) {
        status = ad_schema_cast_request(own, wanted.node, out, &err);
    }
    Py_END_CRITICAL_SECTION();
    if (storage.release != NULL) {
        storage.release(&storage);
    }
    return ad_raise_status(state, status, &err);
}

/* Producers match the fields of a type by name, and make nulls of fields that
 * they do not have. So the type of the data themselves is looked at first: new
 * names are put on after the import, by position. */
static PyObject *
call_for_fields(ad_state *state, PyObject *object, PyObject *name,
                ad_schema wanted)
{
    ad_schema request = {0};
    PyObject *answer = PyObject_CallMethodNoArgs(object, name);
    if (answer == NULL || find_request(state, answer, wanted, &request) < 0) {
        Py_XDECREF(answer);
        return NULL;
    }
    if (request.node == NULL) {
        return answer;
    }
    PyObject *other = call_with_schema(state, object, name, request);
    ad_schema_unref(request);
    if (other == NULL && !ad_exception_is_final(state)) {
        PyErr_Clear();
        return answer;
    }
    PyObject *saved = ad_py_take_exception();
    Py_DECREF(answer);
    ad_py_restore_exception(saved);
    return other;
}

PyObject *
ad_arrow_call(ad_state *state, PyObject *object, int method,
              const ad_request *request)
{
    PyObject *name = state->strings[method];
    if (request->schema.node != NULL) {
        if (ad_schema_cast_has_fields(request->schema.node)) {
            return call_for_fields(state, object, name, request->schema);
        }
        PyObject *result =
            call_with_schema(state, object, name, request->schema);
        if (result != NULL || ad_exception_is_final(state)) {
            return result;
        }
        PyErr_Clear();
    }
    return PyObject_CallMethodNoArgs(object, name);
}

int
ad_arrow_check_nanoarrow(PyObject *object)
{
    PyObject *result =
        ad_call_helper("_libraries", "require_no_views", &object, 1);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* --- import of an array -------------------------------------------------- */

/* With the locks of both capsules. */
static inline ad_import_result
move_pair(ad_state *state, PyObject *first, PyObject *second,
          ad_capsule_kind kind, const char *origin, ad_array *out)
{
    struct ArrowSchema *schema =
        ad_capsule_get(state, first, AD_CAPSULE_SCHEMA, origin);
    if (schema == NULL) {
        return AD_IMPORT_FAILED;
    }
    void *pointer = ad_capsule_get(state, second, kind, origin);
    if (pointer == NULL) {
        return AD_IMPORT_FAILED;
    }
    ad_error err;
    ad_status status;
    if (kind == AD_CAPSULE_DEVICE_ARRAY) {
        status =
            ad_array_import(schema, pointer, state->interpreter, out, &err);
    } else {
        struct ArrowArray *host = pointer;
        struct ArrowDeviceArray array;
        ad_device_array_from_host(host, &array);
        status =
            ad_array_import(schema, &array, state->interpreter, out, &err);
        if (status != AD_OK) {
            *host = array.array; /* the capsule still owns it */
        }
    }
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

/* Takes the array from (schema, array) capsules. Nothing is taken over unless
 * the whole pair is valid. */
static ad_import_result
import_pair(ad_state *state, PyObject *pair, ad_capsule_kind kind,
            const char *origin, ad_array *out)
{
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        ad_raise_exchange(state, "protocol", NULL,
                          "%s: found %.200s, expected a tuple of two capsules "
                          "(\"arrow_schema\", \"%s\")",
                          origin, Py_TYPE(pair)->tp_name,
                          ad_capsule_name(kind));
        return AD_IMPORT_FAILED;
    }
    PyObject *first = PyTuple_GET_ITEM(pair, 0);
    PyObject *second = PyTuple_GET_ITEM(pair, 1);
    ad_import_result result;
    Py_BEGIN_CRITICAL_SECTION2(first, second);
    result = move_pair(state, first, second, kind, origin, out);
    Py_END_CRITICAL_SECTION2();
    return result;
}

static ad_import_result
import_array(const ad_protocol *self, ad_state *state, PyObject *object,
             const ad_type_slot *slot, const ad_request *request,
             ad_imported *out)
{
    if (slot->is_nanoarrow && ad_arrow_check_nanoarrow(object) < 0) {
        return AD_IMPORT_FAILED;
    }
    PyObject *pair = ad_arrow_call(state, object, self->attribute, request);
    if (pair == NULL) {
        return ad_import_exception(state);
    }
    char buffer[AD_ORIGIN_SIZE];
    const char *origin = self->name;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        origin = ad_origin(self->name, object, buffer); /* slow */
    }
    out->is_array = true;
    ad_import_result result =
        import_pair(state, pair,
                    self->attribute == AD_STR_arrow_c_device_array
                        ? AD_CAPSULE_DEVICE_ARRAY
                        : AD_CAPSULE_ARRAY,
                    origin, &out->array);
    Py_DECREF(pair);
    return result;
}

static bool
probe_capsules(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    return type == &PyTuple_Type;
}

static ad_import_result
import_capsules(const ad_protocol *self, ad_state *state, PyObject *object,
                const ad_type_slot *slot, const ad_request *request,
                ad_imported *out)
{
    if (!ad_is_capsule_pair(object)) {
        PyErr_SetString(PyExc_TypeError,
                        "a tuple must be a pair of capsules (\"arrow_schema\" "
                        "and \"arrow_device_array\" or \"arrow_array\")");
        return AD_IMPORT_REFUSED;
    }
    bool is_host =
        ad_capsule_has_name(PyTuple_GET_ITEM(object, 1), AD_CAPSULE_ARRAY);
    out->is_array = true;
    return import_pair(state, object,
                       is_host ? AD_CAPSULE_ARRAY : AD_CAPSULE_DEVICE_ARRAY,
                       "pair of capsules", &out->array);
}

/* --- import of a stream -------------------------------------------------- */

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
import_stream(const ad_protocol *self, ad_state *state, PyObject *object,
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

/* --- requested_schema, as producer --------------------------------------- */

int
ad_arrow_parse(ad_state *state, const char *function, bool ignores_none,
               PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames,
               PyObject **requested)
{
    const ad_signature signature = {
        .function = function,
        .n_positional = 1,
        .ignores_none = ignores_none,
        AD_PARAMETER_NAMES(AD_STR_requested_schema),
    };
    PyObject *values[1] = {NULL};
    if ((n_args != 0 || kwnames != NULL) &&
        ad_parse_args(state, &signature, args, n_args, kwnames, values) < 0) {
        return -1;
    }
    *requested = ad_is_none(values[0]) ? NULL : values[0];
    return 0;
}

/* The first type with the same kind of values in another layout. */
static ad_type_id
family_of(ad_type_id id)
{
    static const ad_type_id families[][2] = {
        {AD_TYPE_INT8, AD_TYPE_DECIMAL},
        {AD_TYPE_BINARY, AD_TYPE_FIXED_BINARY},
        {AD_TYPE_UTF8, AD_TYPE_UTF8_VIEW},
        {AD_TYPE_DATE32, AD_TYPE_DATE64},
        {AD_TYPE_TIME32, AD_TYPE_TIME64},
        {AD_TYPE_LIST, AD_TYPE_FIXED_LIST},
        {AD_TYPE_SPARSE_UNION, AD_TYPE_DENSE_UNION},
    };
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (id >= families[i][0] && id <= families[i][1]) {
            return families[i][0];
        }
    }
    return id;
}

/* Bools of one byte (arrow.bool8), another representation of bit bools. */
static bool
is_bool8(const struct ArrowSchema *node)
{
    ad_extension extension;
    return ad_extension_read(node, &extension, NULL) == AD_OK &&
           extension.kind == AD_EXTENSION_BOOL8;
}

/* Refuses `wanted` where it is no representation of the same data: here, and
 * in the columns of a batch. `name` is the column's, or empty. */
static int
check_node(ad_state *state, const struct ArrowSchema *node,
           const struct ArrowSchema *wanted, const char *name)
{
    ad_error err;
    ad_type ours;
    ad_type theirs;
    const struct ArrowSchema *values = ad_schema_cast_values(node);
    const struct ArrowSchema *answer = ad_schema_cast_values(wanted);
    if (ad_type_parse(values->format, &ours, &err) != AD_OK ||
        ad_type_parse(answer->format, &theirs, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    bool are_alike = (theirs.id == AD_TYPE_BOOL && is_bool8(node)) ||
                     ad_schema_cast_fits_type(node, wanted, AD_CAST_STORAGE);
    bool are_structs =
        ours.id == AD_TYPE_STRUCT && theirs.id == AD_TYPE_STRUCT;
    if (are_structs && values->n_children != answer->n_children) {
        char fields[AD_COUNT_SIZE];
        ad_raise_exchange(
            state, "requested_schema",
            "leave requested_schema out and select afterwards",
            "requested_schema has %s, but the data have %lld",
            ad_count_text(answer->n_children, "field", "fields", fields),
            (long long)values->n_children);
        return -1;
    }
    if (!are_alike && family_of(ours.id) != family_of(theirs.id)) {
        ad_raise_exchange(state, "requested_schema",
                          "leave requested_schema out and convert afterwards",
                          "requested_schema has the format \"%s\"%s%s, which "
                          "is no representation of data with the format "
                          "\"%s\"",
                          wanted->format,
                          name[0] != '\0' ? " for the field " : "", name,
                          node->format);
        return -1;
    }
    for (int64_t i = 0; are_structs && i < values->n_children; i++) {
        const char *column = values->children[i]->name;
        if (check_node(state, values->children[i], answer->children[i],
                       column != NULL ? column : "") < 0) {
            return -1;
        }
    }
    return 0;
}

/* Returns the struct in the capsule, or NULL with an exception. The caller has
 * the lock of the capsule while it uses the struct. */
static const struct ArrowSchema *
check_requested(ad_state *state, ad_schema schema, PyObject *requested)
{
    struct ArrowSchema *wanted = ad_capsule_get(
        state, requested, AD_CAPSULE_SCHEMA, "requested_schema");
    if (wanted == NULL) {
        return NULL;
    }
    ad_error err;
    if (ad_schema_validate(wanted, &err) != AD_OK) {
        ad_raise(state, &err);
        return NULL;
    }
    return check_node(state, schema.node, wanted, "") == 0 ? wanted : NULL;
}

/* Answers the request by a schema cast if that suffices: 1 with the cast array
 * in *out, which owns its references; 0 if the array itself is exported (as
 * requested, or as the best effort); -1 with an exception. No data are
 * accessed. With the lock of the capsule. */
static int
answer_request(ad_state *state, const ad_array *array, PyObject *requested,
               ad_array *out)
{
    const struct ArrowSchema *wanted =
        check_requested(state, array->schema, requested);
    ad_schema schema;
    ad_error err;
    bool is_same;
    if (wanted == NULL) {
        return -1;
    }
    ad_status status = ad_schema_equal(array->schema.node, wanted, true, true,
                                       &is_same, &err);
    int64_t null_count =
        ad_array_has_no_nulls(array) ? 0 : ad_array_null_count(array);
    if (status == AD_OK &&
        (is_same || ad_schema_cast_check(array, null_count, wanted,
                                         AD_CAST_STORAGE) != AD_CAST_FITS)) {
        return 0;
    }
    if (status == AD_OK) {
        status = ad_schema_copy(wanted, &schema, &err);
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    ad_array_share(array, out);
    ad_schema_unref(out->schema);
    out->schema = schema;
    return 1;
}

int
ad_arrow_check_requested(ad_state *state, ad_schema schema,
                         PyObject *requested)
{
    if (requested == NULL) {
        return 0;
    }
    const struct ArrowSchema *wanted =
        AD_PY_LOCKED(requested, check_requested(state, schema, requested));
    return wanted != NULL ? 0 : -1;
}

/* --- export -------------------------------------------------------------- */

/* The capsule of a schema, and its struct, from the last export. */
typedef struct schema_cache {
    PyObject **capsule;
    struct ArrowSchema **holder;
} schema_cache;

/* The schema's capsule. The cached one is reused, with its struct refilled in
 * place, if there is no other reference. A new capsule would be a third of the
 * cost of exporting one column. */
static inline PyObject *
cached_schema_capsule(ad_state *state, ad_schema schema, schema_cache cache)
{
    const char *name = ad_capsule_name(AD_CAPSULE_SCHEMA);
    PyObject *cached = *cache.capsule;
    if (cached != NULL && Py_REFCNT(cached) == 1 &&
        PyCapsule_GetName(cached) == name && /* not renamed by a consumer */
        ad_schema_holder_renew(*cache.holder, schema)) {
        return Py_NewRef(cached);
    }
    PyObject *capsule = ad_schema_capsule(state, schema);
    if (capsule != NULL) {
        *cache.holder = PyCapsule_GetPointer(capsule, name);
        Py_XSETREF(*cache.capsule, Py_NewRef(capsule));
    }
    return capsule;
}

/* Static schemas belong to no array; the module caches their capsule. Free
 * threads could take the same reference at once, so they get new capsules. */
static inline PyObject *
schema_capsule(ad_state *state, ad_schema schema, ad_array_object *object)
{
    if (AD_FREE_THREADED || (schema.owner != NULL && object == NULL)) {
        return ad_schema_capsule(state, schema);
    }
    const schema_cache cache =
        schema.owner == NULL
            ? (schema_cache){&state->schema_capsule, &state->schema_holder}
            : (schema_cache){&object->schema_capsule, &object->schema_holder};
    return cached_schema_capsule(state, schema, cache);
}

/* `object` has the array, and caches the schema's capsule; or NULL. */
static inline PyObject *
export_pair(ad_state *state, const ad_array *array, ad_capsule_kind kind,
            ad_array_object *object)
{
    ad_error err;
    struct ArrowDeviceArray *holder;
    if (ad_array_export(array, &holder, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    PyObject *second = ad_capsule_new(kind, holder);
    if (second == NULL) {
        return NULL;
    }
    PyObject *first = schema_capsule(state, array->schema, object);
    PyObject *pair = first != NULL ? PyTuple_New(2) : NULL;
    if (pair == NULL) {
        Py_XDECREF(first);
        Py_DECREF(second);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, first);
    PyTuple_SET_ITEM(pair, 1, second);
    return pair;
}

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

/* A capsule of `kind` with this array as the only batch of a stream. */
static PyObject *
export_as_stream(ad_state *state, const ad_array *array, ad_capsule_kind kind)
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

/* Exports for a requested schema, or for none. */
static PyObject *
export_requested(ad_state *state, const ad_array *array, PyObject *requested,
                 ad_capsule_kind kind, ad_array_object *object)
{
    ad_array answer;
    int is_other =
        requested != NULL
            ? AD_PY_LOCKED(requested,
                           answer_request(state, array, requested, &answer))
            : 0;
    if (is_other < 0) {
        return NULL;
    }
    if (is_other) {
        array = &answer;
        object = NULL;
    }
    PyObject *result =
        kind == AD_CAPSULE_STREAM || kind == AD_CAPSULE_DEVICE_STREAM
            ? export_as_stream(state, array, kind)
            : export_pair(state, array, kind, object);
    if (is_other) {
        ad_array_clear(&answer);
    }
    return result;
}

/* Exports an Array (or a Tensor, as a device array) as capsules of `kind`, as
 * the method `function` is asked to. A struct without an event waits for the
 * data. */
static PyObject *
export_object(PyObject *self, const char *function, ad_capsule_kind kind,
              PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    ad_state *state = ad_state_of(self);
    bool is_host = kind == AD_CAPSULE_ARRAY || kind == AD_CAPSULE_STREAM;
    PyObject *requested;
    ad_array array;
    ad_error err;
    if (ad_arrow_parse(state, function, !is_host, args, n_args, kwnames,
                       &requested) < 0) {
        return NULL;
    }
    if (ad_is_array(state, self)) {
        ad_array_object *object = (ad_array_object *)self;
        if (is_host && object->array.memory.sync != NULL &&
            ad_sync_wait(object->array.memory.sync, function, &err) != AD_OK) {
            return ad_raise(state, &err);
        }
        return export_requested(state, &object->array, requested, kind,
                                object);
    }
    if (ad_self_as_array(state, self, &array) < 0) {
        return NULL;
    }
    PyObject *result = export_requested(state, &array, requested, kind, NULL);
    ad_array_clear(&array);
    return result;
}

/* Without arguments, which is the common call, nothing is parsed or asked. */
static PyObject *
export_device_array(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                    PyObject *kwnames)
{
    const ad_capsule_kind kind = AD_CAPSULE_DEVICE_ARRAY;
    if (n_args == 0 && kwnames == NULL && ad_is_own_array(self)) {
        ad_array_object *object = (ad_array_object *)self;
        return export_pair(object->state, &object->array, kind, object);
    }
    return export_object(self, "__arrow_c_device_array__()", kind, args,
                         n_args, kwnames);
}

/* Defines export_<tag>, the method __arrow_c_<tag>__. */
#define DEFINE_EXPORT(tag, kind)                                              \
    static PyObject *export_##tag(PyObject *self, PyObject *const *args,      \
                                  Py_ssize_t n_args, PyObject *kwnames)       \
    {                                                                         \
        return export_object(self, "__arrow_c_" #tag "__()", kind, args,      \
                             n_args, kwnames);                                \
    }

DEFINE_EXPORT(array, AD_CAPSULE_ARRAY)
DEFINE_EXPORT(device_stream, AD_CAPSULE_DEVICE_STREAM)
DEFINE_EXPORT(stream, AD_CAPSULE_STREAM)

static PyObject *
export_schema(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ad_state *state = ad_state_of(self);
    ad_array array;
    if (ad_self_as_array(state, self, &array) < 0) {
        return NULL;
    }
    PyObject *result = ad_schema_capsule(state, array.schema);
    ad_array_clear(&array);
    return result;
}

/* --- the methods --------------------------------------------------------- */

static const PyMethodDef device_array_methods[] = {
    {"__arrow_c_device_array__", AD_METHOD(export_device_array),
     "__arrow_c_device_array__($self, requested_schema=None, **kwargs)\n--\n"
     "\n"
     "Export as a pair of capsules (\"arrow_schema\", "
     "\"arrow_device_array\").\n"
     "\n"
     "Nothing is copied and nothing is waited for: the event goes out with\n"
     "the array. Unknown keyword arguments are accepted when they are None.\n"
     "\n"
     "Raises\n------\n"
     "ExchangeError\n    requested_schema is no representation of the same\n"
     "    data, or work is pending of which no event can be made.\n"
     "NotImplementedError\n    A keyword argument that is not known.\n"
     "\n"
     "Source: Arrow PyCapsule interface, \"Device support\"."},
    {"__arrow_c_schema__", export_schema, METH_NOARGS,
     "__arrow_c_schema__($self)\n--\n\n"
     "Export the type as a capsule \"arrow_schema\". The type of a Tensor is\n"
     "that of arrowdev.array(tensor)."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef host_array_method = {
    "__arrow_c_array__", AD_METHOD(export_array),
    "__arrow_c_array__($self, requested_schema=None)\n--\n\n"
    "Export host memory as a pair of capsules (\"arrow_schema\", "
    "\"arrow_array\")."};

/* The getter of an Array's method that needs host memory. The closure is the
 * PyMethodDef. */
static PyObject *
host_method(PyObject *self, void *closure)
{
    PyMethodDef *method = closure;
    if (ad_array_offers_host(ad_state_of(self), self, method->ml_name) < 0) {
        return NULL;
    }
    return PyCFunction_New(method, self);
}

static const PyGetSetDef host_array_getset[] = {
    {"__arrow_c_array__", host_method, NULL,
     "Method that exports host memory as a pair of capsules "
     "(\"arrow_schema\", \"arrow_array\"); AttributeError where the memory "
     "is not the host's.",
     &host_array_method},
    {NULL, NULL, NULL, NULL, NULL},
};

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
    {"__arrow_c_stream__", host_method, NULL,
     "Method that exports host memory as a capsule \"arrow_array_stream\" of "
     "one array; AttributeError if the memory is not host memory.",
     &stream_method},
    {NULL, NULL, NULL, NULL, NULL},
};

/* --- the protocols ------------------------------------------------------- */

const ad_protocol ad_protocol_arrow_device_array = {
    .name = "__arrow_c_device_array__",
    .attribute = AD_STR_arrow_c_device_array,
    .import = import_array,
    .array_methods = device_array_methods,
    .tensor_methods = device_array_methods,
};

const ad_protocol ad_protocol_arrow_array = {
    .name = "__arrow_c_array__",
    .attribute = AD_STR_arrow_c_array,
    .import = import_array,
    .array_getset = host_array_getset,
};

const ad_protocol ad_protocol_capsules = {
    .name = "a pair of capsules",
    .attribute = -1,
    .probe = probe_capsules,
    .import = import_capsules,
};

const ad_protocol ad_protocol_arrow_device_stream = {
    .name = "__arrow_c_device_stream__",
    .attribute = AD_STR_arrow_c_device_stream,
    .import = import_stream,
    .array_methods = device_stream_methods,
};

const ad_protocol ad_protocol_arrow_stream = {
    .name = "__arrow_c_stream__",
    .attribute = AD_STR_arrow_c_stream,
    .import = import_stream,
    .array_getset = stream_getset,
};
