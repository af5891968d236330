/* The choice of a protocol, what is said where all refuse, and what the files of
 * the protocols share. */
#include "protocol/protocol.h"

#include <string.h>

#include "base/log.h"
#include "copy/copy.h"
#include "support/logging.h"

const ad_protocol *const ad_protocols[AD_N_PROTOCOLS] = {
#define AD_PROTOCOL(tag) &ad_protocol_##tag,
#include "protocol/protocols.def"
#undef AD_PROTOCOL
};

const ad_protocol *ad_imports[AD_N_PROTOCOLS] = {
#define AD_PROTOCOL(tag) &ad_protocol_##tag,
#include "protocol/protocols.def"
#undef AD_PROTOCOL
};

/* --- protocols of a type ------------------------------------------------- */

/* Whether the type has this attribute; its metaclass is not considered. */
static bool
type_has(PyTypeObject *type, PyObject *name)
{
    /* A key of the dict that is not a str is compared by its own code, which
     * may raise, or change the bases. */
    PyObject *mro = ad_py_type_mro(type);
    int found = 0;
    for (Py_ssize_t i = 0;
         found != 1 && mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *dict = ad_py_type_dict(base);
        found = dict != NULL ? PyDict_Contains(dict, name) : 0;
        Py_XDECREF(dict);
        if (found < 0) {
            PyErr_Clear();
        }
    }
    Py_XDECREF(mro);
    return found == 1;
}

/* Whether the type is of a library whose data are one-dimensional columns and
 * tables of them. Arrow is their own form: it is fast, says more of nulls, and
 * means what their other protocols mean. */
static bool
is_of_columns(PyTypeObject *type)
{
    static const char *const libraries[] = {
        "pyarrow", "polars",  "pandas", "nanoarrow", "arro3",
        "duckdb",  "_duckdb", "cudf",   "pylibcudf",
    };
    bool found = false;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
        found = found || ad_is_subclass(type, libraries[i], NULL);
    }
    return found;
}

static void
probe_protocols(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    memset(slot, 0, sizeof(*slot));
    slot->type = type;
    slot->first = -1;
    /* A class has the methods of its instances, which it cannot serve. */
    bool is_metaclass = PyType_IsSubtype(type, &PyType_Type);
    slot->has_own_lookup =
        type->tp_getattro != PyObject_GenericGetAttr && !is_metaclass;
#if PY_VERSION_HEX >= 0x030b0000
    slot->may_have_dict = type->tp_dictoffset != 0 ||
                          PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT);
#else
    slot->may_have_dict = type->tp_dictoffset != 0;
#endif
    slot->may_have_dict = slot->may_have_dict && !is_metaclass;
    slot->is_column = is_of_columns(type);
    slot->is_polars = ad_is_subclass(type, "polars", NULL);
    slot->is_nanoarrow = ad_is_subclass(type, "nanoarrow", NULL);
    slot->has_numpy_block = ad_is_subclass(type, "pandas", "Series");
    slot->has_array_method = type_has(type, AD_STR(state, array_method));
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        const ad_protocol *protocol = ad_protocols[i];
        bool offers =
            (protocol->attribute < 0 ||
             type_has(type, state->strings[protocol->attribute])) &&
            (protocol->probe == NULL || protocol->probe(state, type, slot));
        slot->offers |= (uint32_t)offers << i;
    }
}

/* Copies the slot of the type, if it is cached. */
static inline bool
find_slot(ad_state *state, PyTypeObject *type, ad_type_slot *out)
{
    bool is_known = false;
    bool has_changed = false;
    ad_py_lock(&state->lock);
    for (int i = 0; i < AD_N_TYPE_SLOTS; i++) {
        ad_type_slot *slot = &state->slots[i];
        if (slot->type == type) {
            is_known = slot->version == ad_py_type_version(type);
            if (is_known) {
                *out = *slot;
            } else {
                slot->type = NULL;
                has_changed = true;
            }
            break;
        }
    }
    ad_py_unlock(&state->lock);
    if (has_changed) {
        Py_DECREF(type);
    }
    return is_known;
}

static void
cache_slot(ad_state *state, const ad_type_slot *slot)
{
    Py_INCREF(slot->type);
    ad_py_lock(&state->lock);
    ad_type_slot *cell = &state->slots[state->next_slot];
    PyTypeObject *evicted = cell->type;
    state->next_slot = (state->next_slot + 1) % AD_N_TYPE_SLOTS;
    *cell = *slot;
    ad_py_unlock(&state->lock);
    Py_XDECREF(evicted); /* may run code that uses the cache */
}

/* Not inlined, so that a look-up that finds the slot is short. */
static __attribute__((noinline)) void
make_slot(ad_state *state, PyTypeObject *type, ad_type_slot *out)
{
    /* The look-up makes CPython assign the type's version, if possible. */
    PyObject *found = NULL;
    if (ad_py_lookup_attr((PyObject *)type, AD_STR(state, dlpack), &found) <
        0) {
        PyErr_Clear();
    }
    Py_XDECREF(found);

    unsigned int version = ad_py_type_version(type);
    probe_protocols(state, type, out);
    out->version = version;
    if (version != 0 && version == ad_py_type_version(type)) {
        cache_slot(state, out);
    }
}

void
ad_type_slot_get(ad_state *state, PyTypeObject *type, ad_type_slot *out)
{
    if (!find_slot(state, type, out)) {
        make_slot(state, type, out);
    }
}

/* Whether the instance has the attribute: in `dict` if it is not NULL, else by
 * its look-up. 1, 0, or -1 with an exception. */
static int
instance_has(PyObject *object, PyObject *dict, PyObject *name)
{
    if (dict != NULL) {
        return PyDict_Contains(dict, name);
    }
    PyObject *value = NULL;
    int found = ad_py_lookup_attr(object, name, &value);
    Py_XDECREF(value);
    return found;
}

/* Adds the protocols whose attribute the instance has. -1 with a final
 * exception; any other exception on access means "not offered". */
static __attribute__((noinline)) int
add_instance_offers(ad_state *state, PyObject *object, PyObject *dict,
                    uint32_t *offers)
{
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        int attribute = ad_protocols[i]->attribute;
        if (attribute < 0 || (*offers >> i & 1)) {
            continue;
        }
        int found = instance_has(object, dict, state->strings[attribute]);
        if (found > 0) {
            *offers |= (uint32_t)1 << i;
        } else if (found < 0) {
            if (ad_exception_is_final(state)) {
                return -1;
            }
            PyErr_Clear();
        }
    }
    return 0;
}

/* The protocols of the type and of the instance's own dict. A custom look-up
 * of the type (__getattr__ of proxies) is only used if there are none: it may
 * serve other purposes, as in polars, and is slow. */
static inline int
offers_of(ad_state *state, PyObject *object, const ad_type_slot *slot,
          uint32_t *offers)
{
    *offers = slot->offers;
    if (slot->may_have_dict) {
        /* The look-up may run code that replaces the dict. */
        PyObject *dict = ad_py_instance_dict(object);
        int result = dict != NULL
                         ? add_instance_offers(state, object, dict, offers)
                         : 0;
        Py_XDECREF(dict);
        if (result < 0) {
            return -1;
        }
    }
    if (*offers == 0 && slot->has_own_lookup) {
        return add_instance_offers(state, object, NULL, offers);
    }
    if (!ad_is_capsule_pair(object)) {
        *offers &= ~AD_PROTOCOL_BIT(capsules); /* not a pair of capsules */
    }
    return 0;
}

/* The type is a new reference, since a producer's code may change the object's
 * class. */
static void
hold_slot(ad_state *state, PyObject *object, ad_type_slot *out)
{
    PyTypeObject *type = (PyTypeObject *)Py_NewRef(Py_TYPE(object));
    ad_type_slot_get(state, type, out);
}

int
ad_offers(ad_state *state, PyObject *object, uint32_t *out)
{
    ad_type_slot slot;
    hold_slot(state, object, &slot);
    int result = offers_of(state, object, &slot, out);
    Py_DECREF(slot.type);
    return result;
}

/* --- refusals ------------------------------------------------------------ */

void
ad_refusals_clear(ad_refusals *tried)
{
    Py_CLEAR(tried->first);
    Py_CLEAR(tried->text);
}

/* The first line of the exception's text. The others may be the stack of C++
 * code. */
static PyObject *
first_line(PyObject *exception)
{
    PyObject *text = PyObject_Str(exception);
    if (text != NULL) {
        Py_ssize_t end =
            PyUnicode_FindChar(text, '\n', 0, PyUnicode_GET_LENGTH(text), 1);
        if (end > 0) {
            Py_SETREF(text, PyUnicode_Substring(text, 0, end));
        }
    }
    return text;
}

/* Whether an AttributeError means that the protocol's attribute is absent in
 * this state of the object: its look-up fails as well. Otherwise the
 * producer's code has raised it. -1: the look-up raised a final exception. */
static int
is_absent(ad_state *state, PyObject *object, const ad_protocol *protocol,
          PyObject *exception)
{
    PyObject *value = NULL;
    if (protocol->attribute < 0 ||
        !PyErr_GivenExceptionMatches(exception, PyExc_AttributeError)) {
        return 0;
    }
    int found =
        ad_py_lookup_attr(object, state->strings[protocol->attribute], &value);
    Py_XDECREF(value);
    if (found < 0 && ad_exception_is_final(state)) {
        return -1;
    }
    PyErr_Clear();
    return found == 0;
}

/* "<protocol> refused (<class>: <text>)", or NULL with an exception. */
static PyObject *
refusal_line(const ad_protocol *protocol, PyObject *object,
             PyObject *exception)
{
    const char *class = Py_TYPE(exception)->tp_name;
    PyObject *text = first_line(exception);
    if (text == NULL) {
        /* Its __str__ raises, so only the class is named. */
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        PyErr_Clear();
        return PyUnicode_FromFormat("%s refused (%s)", protocol->name, class);
    }
    if (ad_log_is_on()) {
        ad_log_refusal("refusal", "%s of %.100s raised %.100s: %U",
                       protocol->name, Py_TYPE(object)->tp_name, class, text);
    }
    PyObject *line = PyUnicode_FromFormat("%s refused (%s: %U)",
                                          protocol->name, class, text);
    Py_DECREF(text);
    return line;
}

int
ad_refusals_add(ad_state *state, ad_refusals *tried, PyObject *object,
                const ad_protocol *protocol)
{
    if (ad_exception_is_final(state)) {
        return -1;
    }
    PyObject *exception = ad_py_take_exception();
    int absent =
        exception != NULL ? is_absent(state, object, protocol, exception) : 1;
    if (absent != 0) {
        Py_XDECREF(exception);
        return absent < 0 ? -1 : 0;
    }
    PyObject *line = refusal_line(protocol, object, exception);
    if (line == NULL) {
        Py_DECREF(exception);
        return -1;
    }
    if (tried->text == NULL) {
        tried->first = exception;
        tried->text = line;
        return 0;
    }
    Py_DECREF(exception);
    Py_SETREF(tried->text, PyUnicode_FromFormat("%U, %U", tried->text, line));
    Py_DECREF(line);
    return tried->text != NULL ? 0 : -1;
}

static bool
has_method(PyObject *object, const char *name)
{
    PyObject *value =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), name);
    if (value == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(value);
    return value != NULL;
}

/* What objects without a protocol have, the first that fits. */
static const struct {
    const char *method;
    const char *hint;
} method_hints[] = {
    {"to_pyarrow", "; x.to_pyarrow() computes the data"}, /* ibis, whose
                                                             collect() is an
                                                             aggregate */
    {"collect", "; x.collect() computes the data"},       /* polars, PySpark */
    {"iter_batches", /* pyarrow.parquet.ParquetFile */
     "; x.read() reads it, arrowdev.array_stream(x.iter_batches()) its "
     "batches"},
    {"to_table", "; x.to_table() reads it"}, /* pyarrow's datasets, lance's */
    {"with_format",                          /* Hugging Face's datasets */
     "; x.with_format(\"arrow\")[:] reads it as a table"},
    {"to_pyarrow_table", "; x.to_pyarrow_table() reads it"}, /* delta-rs */
    {"to_arrow", "; x.to_arrow() reads it"},         /* LanceDB, pyiceberg */
    {"sql", "; x.sql(query) gives data"},            /* DuckDB's connection */
    {"to_series", "; x.to_series() has the values"}, /* pandas.Index */
    {"toarray", "; x.toarray() makes it dense"}, /* SciPy's sparse matrices */
    {"to_numpy", "; x.to_numpy() has the values"}, /* Taichi, xarray */
    {"numpy", "; x.numpy() has the values"},       /* tinygrad, Keras */
};

static bool
is_imported(const char *library)
{
    PyObject *module = ad_py_imported(library);
    Py_XDECREF(module);
    return module != NULL;
}

static bool
is_number(PyObject *value)
{
    return PyLong_Check(value) || PyFloat_Check(value) ||
           PyComplex_Check(value);
}

typedef enum kind_of_values {
    NUMBERS,
    VALUES,
    OBJECTS
} kind_of_values;

/* What is in a tuple, which no other thread changes. */
static kind_of_values
kind_of(PyObject *values)
{
    kind_of_values kind = NUMBERS;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (is_number(value)) {
            continue;
        }
        if (value != Py_None && !PyUnicode_Check(value) &&
            !PyBytes_Check(value) && !PyList_Check(value) &&
            !PyTuple_Check(value) && !PyDict_Check(value)) {
            return OBJECTS;
        }
        kind = VALUES;
    }
    return kind;
}

/* NumPy makes arrays of numbers. Those that it makes of None and of text are
 * refused. */
static const char *
hint_of_values(PyObject *sequence)
{
    PyObject *values = PySequence_Tuple(sequence);
    if (values == NULL) {
        PyErr_Clear();
        return "";
    }
    kind_of_values kind = kind_of(values);
    Py_DECREF(values);
    if (kind == OBJECTS) {
        return "; arrowdev.concat(x) joins arrays";
    }
    if (kind == VALUES) {
        return "; pyarrow.array(x) makes a column of them";
    }
    bool has_numpy = is_imported("numpy");
    return has_numpy == is_imported("pyarrow")
               ? "; values need a type: numpy.asarray(x, type) or "
                 "pyarrow.array(x, type)"
           : has_numpy ? "; values need a type: numpy.asarray(x, type)"
                       : "; values need a type: pyarrow.array(x, type)";
}

const char *
ad_import_hint(PyObject *object)
{
    if (PyDict_Check(object)) {
        return "; arrowdev.record_batch(x) makes a batch of a dict of columns";
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        return hint_of_values(object);
    }
    for (size_t i = 0; i < sizeof(method_hints) / sizeof(*method_hints); i++) {
        if (has_method(object, method_hints[i].method)) {
            return method_hints[i].hint;
        }
    }
    if (PyRange_Check(object) || PyAnySet_Check(object)) {
        return "; numpy.asarray(list(x)) makes an array of the values";
    }
    if (ad_is_none(object)) {
        return "; a function without `return` gives None";
    }
    if (PyType_Check(object)) {
        return "; it is a class, not an instance of it";
    }
    if (has_method(object, "__arrow_c_schema__")) { /* a type or a field */
        return "; it has no data, arrowdev.schema(x) takes its type";
    }
    if (has_method(object, "__aiter__")) {
        return "; read its arrays with `async for`";
    }
    if (has_method(object, "__fspath__")) {
        return "; it is the path of a file, which a library has to read, as "
               "pyarrow.parquet.read_table(x) does";
    }
    if (PyIter_Check(object)) {
        return "; arrowdev.array_stream(x) reads an iterator of arrays";
    }
    if (PyLong_Check(object) || PyFloat_Check(object) ||
        PyUnicode_Check(object)) {
        return "; pyarrow.array([x]) makes an array of Python values";
    }
    return "";
}

/* The same for the datasets and groups of zarr and h5py. array_stream() reads
 * the rows of a dataset. */
static const char *
hint_of_dataset(PyObject *object)
{
    return has_method(object, "nchunks") || has_method(object, "read_direct")
               ? "; read a dataset as a whole, as in arrowdev.array(x[...])"
           : has_method(object, "require_group")
               ? "; it is a group, read one of its arrays: "
                 "arrowdev.array(x[name][...])"
               : "";
}

/* The name of a class with its module, as in "zarr.core.array.Array": a new
 * reference, or NULL with an exception. */
static PyObject *
full_name(PyTypeObject *type)
{
    Py_INCREF(type); /* code of a metaclass may change the object's class */
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    PyErr_Clear();
    bool is_full = module == NULL || !PyUnicode_Check(module) ||
                   PyUnicode_CompareWithASCIIString(module, "builtins") == 0 ||
                   strchr(type->tp_name, '.') != NULL;
    PyObject *name =
        is_full ? PyUnicode_FromFormat("%.200s", type->tp_name)
                : PyUnicode_FromFormat("%.200U.%.200s", module, type->tp_name);
    Py_XDECREF(module);
    Py_DECREF(type);
    return name;
}

/* TypeError that names the protocols in `among`. */
static void
fail_without_protocol(PyObject *object, uint32_t among)
{
    PyObject *names = NULL;
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        if (!(among >> i & 1) || ad_protocols[i]->import == NULL) {
            continue;
        }
        PyObject *longer =
            names == NULL
                ? PyUnicode_FromString(ad_protocols[i]->name)
                : PyUnicode_FromFormat("%U, %s", names, ad_protocols[i]->name);
        Py_XDECREF(names);
        names = longer;
        if (names == NULL) {
            return;
        }
    }
    bool is_class = PyType_Check(object);
    const char *hint = ad_import_hint(object);
    if (hint[0] == '\0') {
        hint = hint_of_dataset(object);
    }
    PyObject *name =
        full_name(is_class ? (PyTypeObject *)object : Py_TYPE(object));
    if (name != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s%U speaks none of the protocols%s (tried: %U)",
                     is_class ? "the class " : "", name, hint, names);
        Py_DECREF(name);
    }
    Py_XDECREF(names);
}

/* What to do with an object of a class (NULL: any class of the module) whose
 * protocols all refuse. */
static const struct {
    const char *module;
    const char *class;
    const char *hint;
} refused_hints[] = {
    {"torch", "NestedTensor", "arrowdev.array(x) is a column of its lists"},
    {"geopandas", NULL, "pass x.to_arrow()"},
    {"datafusion", "RecordBatch", "pass x.to_pyarrow()"},
};

/* What to do with an object whose protocols all refuse, or NULL. torch itself
 * asks for a report where a nested tensor is strided. */
static const char *
hint_of_refused(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    for (size_t i = 0; i < sizeof(refused_hints) / sizeof(*refused_hints);
         i++) {
        if (ad_is_subclass(type, refused_hints[i].module,
                           refused_hints[i].class)) {
            return refused_hints[i].hint;
        }
    }
    if (!ad_is_subclass(type, "torch", "Tensor")) {
        return NULL;
    }
    PyObject *is_nested = PyObject_GetAttrString(object, "is_nested");
    PyErr_Clear();
    bool is_strided_nested = is_nested == Py_True;
    Py_XDECREF(is_nested);
    return is_strided_nested ? "pass torch.nested.as_nested_tensor(x.unbind(),"
                               " layout=torch.jagged), which is a copy"
                             : NULL;
}

PyObject *
ad_refusals_raise(ad_state *state, ad_refusals *tried, PyObject *object)
{
    const char *hint = hint_of_refused(object);
    PyObject *name = full_name(Py_TYPE(object));
    if (name != NULL) {
        ad_py_restore_exception(tried->first);
        tried->first = NULL;
        ad_raise_exchange(state, "refused", hint, "%U cannot be imported: %U",
                          name, tried->text);
        Py_DECREF(name);
    }
    ad_refusals_clear(tried);
    return NULL;
}

/* Raises ExchangeError for refusals; an exception that is set stays; else it is
 * a TypeError that names the protocols in `among`. Returns -1. */
static int
fail_import(ad_state *state, PyObject *object, ad_refusals *tried,
            uint32_t among)
{
    if (tried->first != NULL) {
        ad_refusals_raise(state, tried, object);
    } else if (!PyErr_Occurred()) {
        fail_without_protocol(object, among);
    }
    ad_refusals_clear(tried);
    return -1;
}

/* --- import -------------------------------------------------------------- */

/* One import: what is asked for, and what came of it so far. */
typedef struct search {
    ad_state *state;
    PyObject *object;
    const ad_type_slot *slot;
    const ad_request *request;
    uint32_t offers;
    ad_refusals tried;
    ad_imported *out;
} search;

/* Checks what an Arrow protocol gave: 1, or -1 with *out cleared and an
 * exception, whose cause is the first refusal. */
static int
check_arrow(search *s, const ad_protocol *protocol)
{
    if (ad_meaning_check(s->state, s->object, s->slot, s->offers, s->request,
                         protocol->name, &s->out->array) == 0) {
        return 1;
    }
    ad_imported_clear(s->out);
    if (s->tried.first != NULL) {
        ad_raise_with_cause(ad_py_take_exception(), s->tried.first);
        s->tried.first = NULL;
    }
    return -1;
}

/* The same for what another protocol gave for a tensor. */
static __attribute__((noinline)) int
check_tensor(search *s, const ad_protocol *protocol)
{
    if (ad_meaning_check_nulls(s->state, s->object, s->slot, s->offers,
                               s->request, protocol->name, s->out) == 0) {
        return 1;
    }
    ad_imported_clear(s->out);
    return -1;
}

/* Tries one protocol: 1 done, 0 refused and recorded, -1 failed. */
static inline int
try_protocol(search *s, int index)
{
    const ad_protocol *protocol = ad_imports[index];
    switch (protocol->import(protocol, s->state, s->object, s->slot,
                             s->request, s->out)) {
        case AD_IMPORT_DONE:
            if ((s->offers & AD_ARROW_PROTOCOLS) == 0) {
                return 1;
            }
            return AD_ARROW_PROTOCOLS >> index & 1 ? check_arrow(s, protocol)
                   : s->request->wants_tensor      ? check_tensor(s, protocol)
                                                   : 1;
        case AD_IMPORT_REFUSED:
            return ad_refusals_add(s->state, &s->tried, s->object, protocol);
        case AD_IMPORT_FAILED:
            break;
    }
    return -1;
}

/* The same for several, in order of preference. */
static inline int
try_protocols(search *s, uint32_t among)
{
    int result = 0;
    for (; result == 0 && among != 0; among &= among - 1) {
        int next = __builtin_ctz(among);
        if (ad_protocols[next]->import != NULL) {
            result = try_protocol(s, next);
        }
    }
    return result;
}

static int
import_foreign(ad_state *state, PyObject *object, const ad_type_slot *slot,
               const ad_request *request, uint32_t among, ad_imported *out)
{
    search s = {.state = state,
                .object = object,
                .slot = slot,
                .request = request,
                .out = out};
    int first = slot->first;
    int result = offers_of(state, object, slot, &s.offers);
    s.offers &= among;
    uint32_t left = s.offers;
    if (result == 0 && first >= 0 && (left >> first & 1)) {
        result = try_protocol(&s, first);
        left &= ~((uint32_t)1 << first);
    }
    if (result == 0 && request->wants_tensor) {
        if (slot->has_numpy_block && (left & AD_ARROW_PROTOCOLS)) {
            result = ad_pandas_block_import(state, object, request, out);
        }
        if (result == 0 && !slot->is_column) {
            result = try_protocols(&s, left & ~AD_ARROW_PROTOCOLS);
            left &= AD_ARROW_PROTOCOLS;
        }
    }
    if (result == 0) {
        result = try_protocols(&s, left);
    }
    if (result == 0) {
        return fail_import(state, object, &s.tried, among);
    }
    ad_refusals_clear(&s.tried);
    return result == 1 ? 0 : -1;
}

static int
import_any(ad_state *state, PyObject *object, const ad_request *request,
           uint32_t among, ad_imported *out)
{
    if (ad_is_array(state, object) && among == AD_ALL_PROTOCOLS) {
        out->is_array = true;
        ad_array_share(ad_array_of(object), &out->array);
        return 0;
    }
    if (ad_is_tensor(state, object)) {
        out->is_array = false;
        return ad_self_as_tensor(state, object, &out->tensor);
    }
    ad_type_slot slot;
    hold_slot(state, object, &slot);
    int result = import_foreign(state, object, &slot, request, among, out);
    Py_DECREF(slot.type);
    return result;
}

int
ad_import(ad_state *state, PyObject *object, const ad_request *request,
          uint32_t among, ad_imported *out)
{
    if (import_any(state, object, request, among, out) < 0) {
        return -1;
    }
    /* ad_finish_tensor has done this for foreign tensors, which may be copies.
     */
    if (request->stream.kind == AD_STREAM_OFF &&
        (out->is_array || ad_is_tensor(state, object))) {
        ad_memory_drop_sync(out->is_array ? &out->array.memory
                                          : &out->tensor.tensor.memory);
    }
    return 0;
}

int
ad_apply_device_order(ad_state *state, const ad_request *request,
                      const ad_memory *memory)
{
    ad_device device = memory->device;
    ad_stream_ref consumer;
    bool no_sync;
    ad_error err;
    if (request->stream.kind == AD_STREAM_ABSENT) {
        if (!ad_stream_current(memory->device, &consumer)) {
            return 0;
        }
        ad_owner_ref(consumer.keep);
    } else if (ad_choose_stream(state, ad_request_stream(request, device),
                                device, &no_sync, &consumer) < 0) {
        return -1;
    }
    if (!ad_stream_is_given(&consumer)) {
        return 0;
    }
    ad_status status =
        ad_use(memory, &consumer, "the stream that was named", &err);
    ad_stream_ref_clear(&consumer);
    return ad_raise_status(state, status, &err);
}

ad_status
ad_imported_apply_mask(ad_imported *imported, const ad_mask *mask,
                       ad_copy copy, ad_error *err)
{
    ad_array plain, masked;
    if (imported->is_array) {
        ad_array_share(&imported->array, &plain);
    } else {
        AD_RETURN_IF_ERR(ad_array_from_tensor(
            &imported->tensor.tensor,
            copy == AD_COPY_NEVER ? AD_COPY_NEVER : AD_COPY_IF_NEEDED, &plain,
            err));
    }
    ad_status status = ad_array_apply_mask(&plain, mask, NULL, &masked, err);
    ad_array_clear(&plain);
    if (status == AD_OK) {
        ad_imported_clear(imported);
        imported->is_array = true;
        imported->array = masked;
    }
    return status;
}

void
ad_imported_clear(ad_imported *imported)
{
    if (imported->is_array) {
        ad_array_clear(&imported->array);
    } else {
        ad_tensor_clear(&imported->tensor.tensor);
    }
}

/* --- shared by protocol files -------------------------------------------- */

ad_import_result
ad_import_exception(ad_state *state)
{
    return ad_exception_is_final(state) ? AD_IMPORT_FAILED : AD_IMPORT_REFUSED;
}

ad_import_result
ad_import_error(ad_state *state, const ad_error *err)
{
    ad_raise(state, err);
    return AD_IMPORT_FAILED;
}

/* Built before an error is known, so without the slow printf. */
const char *
ad_origin(const char *attribute, PyObject *object, char *buffer)
{
    static const char of[] = " of ";
    const char *type = Py_TYPE(object)->tp_name;
    const size_t n_attribute = strnlen(attribute, 40);
    const size_t n_type = strnlen(type, 80);
    char *end = buffer + n_attribute;
    memcpy(buffer, attribute, n_attribute);
    memcpy(end, of, sizeof(of) - 1);
    end += sizeof(of) - 1;
    memcpy(end, type, n_type);
    end[n_type] = '\0';
    return buffer;
}

int
ad_replace_by_copy(ad_state *state, const ad_stream_argument *stream,
                   char order, const char *why, ad_tensor_value *value)
{
    ad_tensor *tensor = &value->tensor;
    ad_tensor_value copied;
    ad_stream_ref choice;
    bool no_sync;
    ad_error err;
    int result = ad_choose_stream(state, stream, tensor->memory.device,
                                  &no_sync, &choice);
    if (result == 0) {
        ad_status status = ad_tensor_copy_to(
            tensor, tensor->memory.device, &choice, order, why, &copied, &err);
        ad_stream_ref_clear(&choice);
        result = ad_raise_status(state, status, &err);
    }
    ad_tensor_clear(tensor);
    if (result == 0) {
        ad_tensor_share(&copied.tensor, value);
        ad_tensor_clear(&copied.tensor);
    }
    return result;
}

ad_import_result
ad_finish_tensor(ad_state *state, const ad_request *request,
                 ad_tensor_value *value)
{
    ad_tensor *tensor = &value->tensor;
    if (request->stream.kind == AD_STREAM_OFF) {
        ad_memory_drop_sync(&tensor->memory);
    }
    if (request->copy != AD_COPY_ALWAYS ||
        (tensor->flags & AD_TENSOR_COPIED)) {
        return AD_IMPORT_DONE;
    }
    return ad_replace_by_copy(
               state, ad_request_stream(request, tensor->memory.device),
               request->order != 0 ? request->order : 'C',
               "copy=True was passed", value) == 0
               ? AD_IMPORT_DONE
               : AD_IMPORT_FAILED;
}

static ad_status
swap(const ad_request *request, const ad_element *element, ad_imported *out,
     ad_error *err)
{
    ad_tensor_value swapped;
    ad_tensor *tensor = &out->tensor.tensor;
    if (request->copy == AD_COPY_NEVER) {
        return ad_element_require_plain(
            element, "that takes a copy, which copy=False rules out", err);
    }
    char order = ad_tensor_is_contiguous(tensor, 'F') ? 'F' : 'C';
    int64_t start = ad_log_start();
    AD_RETURN_IF_ERR(ad_tensor_copy_swapped(tensor, order, &swapped, err));
    AD_LOG_COPY(ad_tensor_nbytes(tensor), tensor->memory.device, AD_CPU,
                "the elements have the other byte order", start);
    ad_tensor_clear(tensor);
    ad_tensor_share(&swapped.tensor, &out->tensor);
    ad_tensor_clear(&swapped.tensor);
    return AD_OK;
}

ad_import_result
ad_finish_strange_elements(ad_state *state, const ad_request *request,
                           const ad_element *element, ad_imported *out)
{
    ad_error err;
    ad_tensor *tensor = &out->tensor.tensor;
    ad_status status =
        element->is_swapped ? swap(request, element, out, &err) : AD_OK;
    if (status == AD_OK && element->time == NULL) {
        return ad_finish_tensor(state, request, &out->tensor);
    }
    if (status == AD_OK) {
        /* The caller serves copy=True for the array. */
        status = ad_array_from_times(
            tensor, element->time,
            request->copy == AD_COPY_NEVER ? AD_COPY_NEVER : AD_COPY_IF_NEEDED,
            &out->array, &err);
        out->is_array = status == AD_OK;
    }
    ad_tensor_clear(tensor); /* may run Python code: raise afterwards */
    return status == AD_OK ? AD_IMPORT_DONE : ad_import_error(state, &err);
}

ad_status
ad_refuse_batch(const ad_array *array, const char *what, ad_error *err)
{
    if (strcmp(array->schema.node->format, "+s") != 0) {
        return AD_OK;
    }
    ad_fail(err, AD_ERR_EXCHANGE, "dtype",
            "arrowdev.tensor(batch) is the matrix of its values, batch[name] "
            "a column",
            "the names of a batch would be lost by %s", what);
    ad_error_device(err, array->memory.device);
    ad_type_error_dtype(array->schema.node, err);
    return AD_ERR_EXCHANGE;
}
