/* Arrow arrays as pairs of capsules: __arrow_c_device_array__,
 * __arrow_c_array__, and a bare pair; __arrow_c_schema__ on export; and the
 * requested_schema of arrays and streams, as producer. */
#include "protocol/arrow.h"

#include "model/extension.h"
#include "model/schema_cast.h"
#include "base/text.h"

/* --- import -------------------------------------------------------------- */

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
        status = ad_array_import(schema, pointer, true, out, &err);
    } else {
        struct ArrowArray *host = pointer;
        struct ArrowDeviceArray array;
        ad_device_array_from_host(host, &array);
        status = ad_array_import(schema, &array, true, out, &err);
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
import_by_method(const ad_protocol *self, ad_state *state, PyObject *object,
                 const ad_type_slot *slot, const ad_request *request,
                 ad_imported *out)
{
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

/* --- requested_schema ---------------------------------------------------- */

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
            ? ad_arrow_export_as_stream(state, array, kind)
            : export_pair(state, array, kind, object);
    if (is_other) {
        ad_array_clear(&answer);
    }
    return result;
}

PyObject *
ad_arrow_export(PyObject *self, const char *function, ad_capsule_kind kind,
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
    return ad_arrow_export(self, "__arrow_c_device_array__()", kind, args,
                           n_args, kwnames);
}

AD_ARROW_EXPORT(array, AD_CAPSULE_ARRAY)

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

PyObject *
ad_arrow_host_method(PyObject *self, void *closure)
{
    PyMethodDef *method = closure;
    if (ad_array_offers_host(ad_state_of(self), self, method->ml_name) < 0) {
        return NULL;
    }
    return PyCFunction_New(method, self);
}

static const PyGetSetDef host_array_getset[] = {
    {"__arrow_c_array__", ad_arrow_host_method, NULL,
     "Method that exports host memory as a pair of capsules "
     "(\"arrow_schema\", \"arrow_array\"); AttributeError where the memory "
     "is not the host's.",
     &host_array_method},
    {NULL, NULL, NULL, NULL, NULL},
};

const ad_protocol ad_protocol_arrow_device_array = {
    .name = "__arrow_c_device_array__",
    .attribute = AD_STR_arrow_c_device_array,
    .import = import_by_method,
    .array_methods = device_array_methods,
    .tensor_methods = device_array_methods,
};

const ad_protocol ad_protocol_arrow_array = {
    .name = "__arrow_c_array__",
    .attribute = AD_STR_arrow_c_array,
    .import = import_by_method,
    .array_getset = host_array_getset,
};

const ad_protocol ad_protocol_capsules = {
    .name = "a pair of capsules",
    .attribute = -1,
    .probe = probe_capsules,
    .import = import_capsules,
};
