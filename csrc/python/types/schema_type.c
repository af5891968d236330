/* ad.Schema: an Arrow type with name, nullability, metadata and children. */
#include "support/objects.h"

#include "model/type.h"
#include "support/args.h"
#include "support/errors.h"
#include "support/shown.h"
#include "python/functions/functions.h"
#include "python/types/types.h"

static inline ad_schema
schema_of(PyObject *self)
{
    return ((ad_schema_object *)self)->schema;
}

static void
schema_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ad_schema_unref(schema_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *
schema_str(PyObject *self)
{
    ad_text text = {0};
    ad_error err;
    PyObject *result = NULL;
    if (ad_type_print(schema_of(self).node, &text, &err) != AD_OK) {
        result = ad_raise(ad_state_of(self), &err);
    } else {
        result = ad_shown_utf8(ad_text_string(&text));
    }
    ad_text_clear(&text);
    return result;
}

#define MAX_NAME 60 /* characters of a name in a repr */

static PyObject *
schema_repr(PyObject *self)
{
    PyObject *type = ad_short_type(self, schema_of(self).node);
    if (type == NULL) {
        return NULL;
    }
    const struct ArrowSchema *node = schema_of(self).node;
    PyObject *name = ad_decode_text(node->name);
    PyObject *result = NULL;
    if (name != NULL) {
        bool nullable = node->flags & ARROW_FLAG_NULLABLE;
        Py_ssize_t n = PyUnicode_GET_LENGTH(name);
        result = PyUnicode_FromFormat(
            n > MAX_NAME ? "<arrowdev.Schema %U%s name=%.60R...>"
            : n > 0      ? "<arrowdev.Schema %U%s name=%R>"
                         : "<arrowdev.Schema %U%s>",
            type, nullable ? "" : " not null", name);
        Py_DECREF(name);
    }
    Py_DECREF(type);
    return result;
}

static PyObject *
get_format(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_decode_text(schema_of(self).node->format);
}

static PyObject *
get_name(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_decode_text(schema_of(self).node->name);
}

static PyObject *
get_flag(PyObject *self, void *closure)
{
    int64_t flag = (int64_t)(intptr_t)closure;
    return PyBool_FromLong((schema_of(self).node->flags & flag) != 0);
}

static PyObject *
get_metadata(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_metadata_as_dict(ad_state_of(self),
                               schema_of(self).node->metadata);
}

static PyObject *
make_child(PyObject *self, int64_t i)
{
    ad_schema schema = schema_of(self);
    return ad_schema_object_new(
        ad_state_of(self), ad_schema_at(schema, schema.node->children[i]));
}

static PyObject *
get_children(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_tuple_of(self, schema_of(self).node->n_children, make_child);
}

static PyObject *
get_dictionary(PyObject *self, void *Py_UNUSED(closure))
{
    const struct ArrowSchema *node = schema_of(self).node;
    if (node->dictionary == NULL) {
        Py_RETURN_NONE;
    }
    return ad_schema_object_new(
        ad_state_of(self), ad_schema_at(schema_of(self), node->dictionary));
}

/* --- parameters of the type ---------------------------------------------- */

static PyObject *
unit_of(PyObject *Py_UNUSED(self), const ad_type *type)
{
    return PyUnicode_FromString(ad_type_unit_name(type->unit));
}

static PyObject *
timezone_of(PyObject *Py_UNUSED(self), const ad_type *type)
{
    return type->suffix[0] != '\0' ? ad_decode_text(type->suffix)
                                   : Py_NewRef(Py_None);
}

static PyObject *
precision_of(PyObject *Py_UNUSED(self), const ad_type *type)
{
    return PyLong_FromLong(type->precision);
}

static PyObject *
scale_of(PyObject *Py_UNUSED(self), const ad_type *type)
{
    return PyLong_FromLong(type->scale);
}

static PyObject *
list_size_of(PyObject *Py_UNUSED(self), const ad_type *type)
{
    return PyLong_FromLongLong(type->list_size);
}

static PyObject *
byte_width_of(PyObject *Py_UNUSED(self), const ad_type *type)
{
    return PyLong_FromLong(type->bit_width / 8);
}

static PyObject *
fields_of(PyObject *self, const ad_type *Py_UNUSED(type))
{
    return get_children(self, NULL);
}

static PyObject *
value_type_of(PyObject *self, const ad_type *type)
{
    ad_schema schema = schema_of(self);
    const struct ArrowSchema *node = schema.node;
    const struct ArrowSchema *values =
        node->dictionary != NULL      ? node->dictionary
        : type->id == AD_TYPE_MAP     ? node->children[0]->children[1]
        : type->id == AD_TYPE_RUN_END ? node->children[1]
                                      : node->children[0];
    return ad_schema_object_new(ad_state_of(self),
                                ad_schema_at(schema, values));
}

static PyObject *
key_type_of(PyObject *self, const ad_type *Py_UNUSED(type))
{
    ad_schema schema = schema_of(self);
    return ad_schema_object_new(
        ad_state_of(self),
        ad_schema_at(schema, schema.node->children[0]->children[0]));
}

static PyObject *
index_type_of(PyObject *self, const ad_type *Py_UNUSED(type))
{
    const ad_schema_spec spec = {
        .format = schema_of(self).node->format,
        .flags = ARROW_FLAG_NULLABLE,
    };
    ad_schema index;
    ad_error err;
    return ad_schema_build(&spec, &index, &err) == AD_OK
               ? ad_schema_object_new(ad_state_of(self), index)
               : ad_raise(ad_state_of(self), &err);
}

/* An attribute that some types have. */
typedef struct parameter {
    const char *owners; /* for the message of AttributeError */
    PyObject *(*get)(PyObject *self, const ad_type *type);
    bool (*has)(const struct ArrowSchema *node, const ad_type *type);
} parameter;

static bool
has_unit(const struct ArrowSchema *node, const ad_type *type)
{
    return node->dictionary == NULL &&
           (type->id == AD_TYPE_TIME32 || type->id == AD_TYPE_TIME64 ||
            type->id == AD_TYPE_TIMESTAMP || type->id == AD_TYPE_DURATION);
}

static bool
is_timestamp(const struct ArrowSchema *Py_UNUSED(node), const ad_type *type)
{
    return type->id == AD_TYPE_TIMESTAMP;
}

static bool
is_decimal(const struct ArrowSchema *Py_UNUSED(node), const ad_type *type)
{
    return type->id == AD_TYPE_DECIMAL;
}

static bool
is_fixed_list(const struct ArrowSchema *Py_UNUSED(node), const ad_type *type)
{
    return type->id == AD_TYPE_FIXED_LIST;
}

static bool
has_whole_bytes(const struct ArrowSchema *node, const ad_type *type)
{
    return node->dictionary == NULL && type->layout == AD_LAYOUT_FIXED &&
           type->bit_width % 8 == 0;
}

static bool
has_fields(const struct ArrowSchema *Py_UNUSED(node), const ad_type *type)
{
    return type->id == AD_TYPE_STRUCT || type->id == AD_TYPE_SPARSE_UNION ||
           type->id == AD_TYPE_DENSE_UNION;
}

static bool
is_dictionary(const struct ArrowSchema *node, const ad_type *Py_UNUSED(type))
{
    return node->dictionary != NULL;
}

static bool
is_map(const struct ArrowSchema *Py_UNUSED(node), const ad_type *type)
{
    return type->id == AD_TYPE_MAP;
}

static bool
has_values(const struct ArrowSchema *node, const ad_type *type)
{
    return node->dictionary != NULL || type->id == AD_TYPE_MAP ||
           type->id == AD_TYPE_RUN_END ||
           (type->id >= AD_TYPE_LIST && type->id <= AD_TYPE_FIXED_LIST);
}

static const parameter unit = {"times of day, timestamps and durations have a "
                               "unit",
                               unit_of, has_unit};
static const parameter timezone_ = {"timestamps have a timezone", timezone_of,
                                    is_timestamp};
static const parameter precision = {"decimals have a precision", precision_of,
                                    is_decimal};
static const parameter scale = {"decimals have a scale", scale_of, is_decimal};
static const parameter list_size = {"lists of a fixed size have a list_size",
                                    list_size_of, is_fixed_list};
static const parameter byte_width = {"types of a fixed number of whole bytes "
                                     "have a byte_width",
                                     byte_width_of, has_whole_bytes};
static const parameter fields = {"structs and unions have fields", fields_of,
                                 has_fields};
static const parameter value_type = {"lists, maps, dictionaries and run ends "
                                     "have a value_type",
                                     value_type_of, has_values};
static const parameter key_type = {"maps have a key_type", key_type_of,
                                   is_map};
static const parameter index_type = {"dictionaries have an index_type",
                                     index_type_of, is_dictionary};

static PyObject *
get_parameter(PyObject *self, void *closure)
{
    const parameter *wanted = closure;
    const struct ArrowSchema *node = schema_of(self).node;
    ad_type type;
    ad_error err;
    if (ad_type_parse(node->format, &type, &err) != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    if (wanted->has(node, &type)) {
        return wanted->get(self, &type);
    }
    PyObject *name = ad_short_type(self, node);
    if (name != NULL) {
        PyErr_Format(PyExc_AttributeError, "only %s, and this type is %U",
                     wanted->owners, name);
        Py_DECREF(name);
    }
    return NULL;
}

/* ------------------------------------------------------------------------- */

static PyObject *
schema_compare(PyObject *self, PyObject *other, int op)
{
    if (Py_TYPE(other) != Py_TYPE(self) || (op != Py_EQ && op != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool equal;
    ad_error err;
    if (ad_schema_equal(schema_of(self).node, schema_of(other).node, true,
                        true, &equal, &err) != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    return PyBool_FromLong(equal == (op == Py_EQ));
}

/* Equal schemas have the same format and the same number of children. */
static Py_hash_t
schema_hash(PyObject *self)
{
    const struct ArrowSchema *node = schema_of(self).node;
    PyObject *key =
        Py_BuildValue("(yL)", node->format, (long long)node->n_children);
    if (key == NULL) {
        return -1;
    }
    Py_hash_t hash = PyObject_Hash(key);
    Py_DECREF(key);
    return hash;
}

static const ad_signature equals_signature = {
    .function = "Schema.equals()",
    .n_positional_only = 1,
    .n_positional = 2,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_other, AD_STR_check_metadata),
};

static PyObject *
schema_equals(ad_state *state, PyObject *self, PyObject *const *values)
{
    ad_schema other;
    bool check_metadata = false;
    if (ad_parse_bool(values[1], "check_metadata", &check_metadata) < 0 ||
        ad_parse_schema(state, values[0], &other) < 0) {
        return NULL;
    }
    bool equal;
    ad_error err;
    ad_status status = ad_schema_equal(schema_of(self).node, other.node, false,
                                       check_metadata, &equal, &err);
    ad_schema_unref(other);
    return status == AD_OK ? PyBool_FromLong(equal) : ad_raise(state, &err);
}

static AD_ENTRY(call_schema_equals, ad_state_of, equals_signature,
                schema_equals(state, self, values));

static PyObject *
schema_html(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return ad_html_of_schema(self, "arrowdev.Schema");
}

static PyObject *
schema_arrow_c_schema(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return ad_schema_capsule(ad_state_of(self), schema_of(self));
}

static PyMethodDef schema_methods[] = {
    {"equals", AD_METHOD(call_schema_equals),
     "equals($self, other, /, check_metadata=False)\n--\n\n"
     "Whether both are the same type: formats, nullability, children with\n"
     "the names of fields, dictionary. As in pyarrow, the metadata and the\n"
     "names of a list's items and of a map's entries, keys and values count\n"
     "only with check_metadata. The name of the schema itself is ignored.\n"
     "`other` is anything that arrowdev.schema() takes.\n\n"
     "Returns\n-------\nbool\n\n"
     "Examples\n--------\n"
     ">>> ad.schema(\"int8\").equals(\"c\")\n"
     "True"},
    {"__arrow_c_schema__", schema_arrow_c_schema, METH_NOARGS,
     "__arrow_c_schema__($self)\n--\n\n"
     "Export as a capsule \"arrow_schema\"."},
    {"_repr_html_", schema_html, METH_NOARGS,
     "_repr_html_($self)\n--\n\nThe fields as a table for a notebook."},
    {"__reduce_ex__", ad_reduce, METH_O,
     "__reduce_ex__($self, protocol, /)\n--\n\nWhat pickle calls."},
    {"__copy__", ad_copy_is_self, METH_NOARGS,
     "__copy__($self)\n--\n\nThe object itself, which is immutable."},
    {"__deepcopy__", ad_copy_is_self, METH_O,
     "__deepcopy__($self, memo, /)\n--\n\n"
     "The object itself, which is immutable."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef schema_getset[] = {
    {"format", get_format, NULL,
     "Format string of the Arrow C data interface.", NULL},
    {"name", get_name, NULL, "Name of the field, \"\" if it has none.", NULL},
    {"nullable", get_flag, NULL, "Whether values may be null.",
     (void *)ARROW_FLAG_NULLABLE},
    {"dictionary_ordered", get_flag, NULL,
     "Whether the order of the dictionary's values has a meaning.",
     (void *)ARROW_FLAG_DICTIONARY_ORDERED},
    {"map_keys_sorted", get_flag, NULL,
     "Whether the keys of each map value are sorted.",
     (void *)ARROW_FLAG_MAP_KEYS_SORTED},
    {"metadata", get_metadata, NULL,
     "Key-value metadata as a dict of bytes to bytes, or None.\n\n"
     "Raises InvalidArrowError if a length in the metadata is invalid.",
     NULL},
    {"children", get_children, NULL, "Schemas of the children.", NULL},
    {"dictionary", get_dictionary, NULL,
     "Schema of the dictionary's values, or None.", NULL},
    {"unit", get_parameter, NULL,
     "\"s\", \"ms\", \"us\" or \"ns\" of a time of day, timestamp or duration.\n"
     "AttributeError for other types, as of the attributes below.",
     (void *)&unit},
    {"timezone", get_parameter, NULL,
     "Time zone of a timestamp; None if it has none.", (void *)&timezone_},
    {"precision", get_parameter, NULL, "Number of digits of a decimal.",
     (void *)&precision},
    {"scale", get_parameter, NULL,
     "Number of digits of a decimal after the point.", (void *)&scale},
    {"list_size", get_parameter, NULL,
     "Number of values in each list of a fixed-size list.",
     (void *)&list_size},
    {"byte_width", get_parameter, NULL,
     "Bytes of a value of a type that has a fixed number of whole bytes.",
     (void *)&byte_width},
    {"fields", get_parameter, NULL,
     "Schemas of the fields of a struct or union, as a tuple.",
     (void *)&fields},
    {"value_type", get_parameter, NULL,
     "Schema of the values of a list, map, dictionary or run-end encoded "
     "type.",
     (void *)&value_type},
    {"key_type", get_parameter, NULL, "Schema of the keys of a map.",
     (void *)&key_type},
    {"index_type", get_parameter, NULL,
     "Schema of the indices of a dictionary type.", (void *)&index_type},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot schema_slots[] = {
    {Py_tp_dealloc, schema_dealloc},
    {Py_tp_repr, schema_repr},
    {Py_tp_str, schema_str},
    {Py_tp_hash, schema_hash},
    {Py_tp_richcompare, schema_compare},
    {Py_tp_methods, schema_methods},
    {Py_tp_getset, schema_getset},
    {Py_tp_doc,
     "An Arrow type with name, nullability, metadata and children. Immutable;\n"
     "arrowdev.schema() creates it. `==` compares names and metadata too;\n"
     "equals() compares the type alone."},
    {0, NULL},
};

PyType_Spec ad_schema_type_spec = {
    .name = "arrowdev.Schema",
    .basicsize = sizeof(ad_schema_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = schema_slots,
};
