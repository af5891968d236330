#include "protocol/protocol.h"

#include <string.h>

#include "protocol/dlpack_tensor.h"

const ad_protocol *const ad_protocols[AD_N_PROTOCOLS] = {
#define AD_PROTOCOL(tag) &ad_protocol_##tag,
#include "protocol/protocols.def"
#undef AD_PROTOCOL
};

/* --- what a type speaks --------------------------------------------------- */

/* Does the type, not counting its metaclass, have this attribute? */
static bool
type_has(PyTypeObject *type, PyObject *name)
{
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *dict = ad_py_type_dict(base);
        bool found = dict != NULL && PyDict_Contains(dict, name) == 1;
        Py_XDECREF(dict);
        if (found) {
            return true;
        }
    }
    return false;
}

static bool
type_offers(ad_state *state, PyTypeObject *type, const ad_protocol *protocol)
{
    if (protocol->offers != NULL) {
        return protocol->offers(state, type);
    }
    return type_has(type, state->strings[protocol->attribute]);
}

static void
look_at_type(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    memset(slot, 0, sizeof(*slot));
    slot->type = type;
    slot->first = -1;
    slot->is_cacheable = type->tp_getattro == PyObject_GenericGetAttr;
#if PY_VERSION_HEX >= 0x030b0000
    slot->may_have_dict = type->tp_dictoffset != 0 ||
                          PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT);
#else
    slot->may_have_dict = type->tp_dictoffset != 0;
#endif
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        if (type_offers(state, type, ad_protocols[i])) {
            slot->offers |= (uint32_t)1 << i;
        }
    }
    if (slot->offers & AD_PROTOCOL_BIT(dlpack_exchange)) {
        slot->exchange_api = ad_dlpack_exchange_of(state, type);
    }
    slot->has_torch_flags = ad_dlpack_type_has_flags(state, type);
    /* For an exact ndarray the buffer protocol gives what DLPack gives, at
     * two thirds of the time; where it refuses, the usual order follows. */
    if (strcmp(type->tp_name, "numpy.ndarray") == 0 &&
        !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        slot->first = AD_PROTOCOL_buffer;
    }
}

const ad_type_slot *
ad_type_slot_of_type(ad_state *state, PyTypeObject *type,
                     ad_type_slot *scratch)
{
    for (int i = 0; i < AD_N_TYPE_SLOTS; i++) {
        ad_type_slot *slot = &state->slots[i];
        if (slot->type == type) {
            if (slot->version == ad_py_type_version(type)) {
                return slot;
            }
            slot->type = NULL; /* the class has changed: look again */
            Py_DECREF(type);
            break;
        }
    }
    /* A look-up makes CPython assign the version, if it ever will. */
    PyObject *found = NULL;
    if (ad_py_lookup_attr((PyObject *)type, AD_STR(state, dlpack), &found) <
        0) {
        PyErr_Clear();
    }
    Py_XDECREF(found);

    look_at_type(state, type, scratch);
    scratch->version = ad_py_type_version(type);
    if (!scratch->is_cacheable || scratch->version == 0) {
        return scratch;
    }
    ad_type_slot *slot = &state->slots[state->next_slot];
    state->next_slot = (state->next_slot + 1) % AD_N_TYPE_SLOTS;
    PyTypeObject *evicted = slot->type;
    *slot = *scratch;
    Py_INCREF(type);
    Py_XDECREF(evicted);
    return slot;
}

/* Attributes that the instance has and its type has not: its own dict, or
 * whatever a __getattr__ answers. */
static uint32_t
instance_offers(ad_state *state, PyObject *object, const ad_type_slot *slot)
{
    PyObject *dict = slot->is_cacheable ? ad_py_instance_dict(object) : NULL;
    if (slot->is_cacheable && dict == NULL) {
        return 0;
    }
    uint32_t offers = 0;
    for (int i = 0; i < AD_N_PROTOCOLS; i++) {
        int attribute = ad_protocols[i]->attribute;
        if (attribute < 0 || (slot->offers >> i & 1)) {
            continue;
        }
        PyObject *name = state->strings[attribute];
        int found;
        if (dict != NULL) {
            found = PyDict_Contains(dict, name);
        } else {
            PyObject *value = NULL;
            found = ad_py_lookup_attr(object, name, &value);
            Py_XDECREF(value);
        }
        if (found < 0) {
            PyErr_Clear(); /* raises on access: not offered */
        } else if (found > 0) {
            offers |= (uint32_t)1 << i;
        }
    }
    return offers;
}

static inline uint32_t
offers_of(ad_state *state, PyObject *object, const ad_type_slot *slot)
{
    if (slot->may_have_dict || !slot->is_cacheable) {
        return slot->offers | instance_offers(state, object, slot);
    }
    return slot->offers;
}

uint32_t
ad_offers(ad_state *state, PyObject *object)
{
    ad_type_slot scratch;
    const ad_type_slot *slot = ad_type_slot_of_type(state, Py_TYPE(object), &scratch);
    return offers_of(state, object, slot);
}

/* --- import --------------------------------------------------------------- */

/* What was tried in vain: the first exception, and a line for each. */
typedef struct refusals {
    PyObject *first;
    PyObject *text;
} refusals;

static void
refusals_clear(refusals *tried)
{
    Py_CLEAR(tried->first);
    Py_CLEAR(tried->text);
}

/* Note the exception that is set and clear it. An AttributeError means that
 * the attribute is not there in this state of the object. */
static int
refusals_add(refusals *tried, const ad_protocol *protocol)
{
    PyObject *exception = ad_py_take_exception();
    if (exception == NULL || PyErr_GivenExceptionMatches(
                                 exception, PyExc_AttributeError)) {
        Py_XDECREF(exception);
        return 0;
    }
    PyObject *line = PyUnicode_FromFormat(
        "%s%s refused (%s: %S)", tried->text != NULL ? ", " : "",
        protocol->name, Py_TYPE(exception)->tp_name, exception);
    if (line == NULL) {
        /* Its __str__ raises: name the class alone. */
        PyErr_Clear();
        line = PyUnicode_FromFormat("%s%s refused (%s)",
                                    tried->text != NULL ? ", " : "",
                                    protocol->name,
                                    Py_TYPE(exception)->tp_name);
    }
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
    PyUnicode_AppendAndDel(&tried->text, line);
    return tried->text != NULL ? 0 : -1;
}

static int
fail_import(ad_state *state, PyObject *object, refusals *tried, uint32_t among)
{
    if (tried->first != NULL) {
        ad_py_restore_exception(tried->first);
        tried->first = NULL;
        ad_raise_exchange(state, "refused", NULL,
                          "%.200s cannot be imported: %U",
                          Py_TYPE(object)->tp_name, tried->text);
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError,
                     "%.200s speaks none of the protocols that were tried: "
                     "%s__dlpack__%s",
                     Py_TYPE(object)->tp_name,
                     among == AD_ALL_PROTOCOLS
                         ? "__arrow_c_device_array__, __arrow_c_array__, "
                           "__arrow_c_device_stream__, __arrow_c_stream__, "
                         : "",
                     among == AD_ALL_PROTOCOLS
                         ? ", __sycl_usm_array_interface__, "
                           "__cuda_array_interface__, __array_interface__, "
                           "the buffer protocol, a pair of capsules"
                         : "");
    }
    refusals_clear(tried);
    return -1;
}

static void
copy_tensor(const ad_tensor *tensor, ad_tensor_value *out)
{
    out->tensor = *tensor;
    out->tensor.shape = out->dims;
    out->tensor.strides = out->dims + tensor->ndim;
    memcpy(out->tensor.shape, tensor->shape,
           (size_t)tensor->ndim * sizeof(int64_t));
    memcpy(out->tensor.strides, tensor->strides,
           (size_t)tensor->ndim * sizeof(int64_t));
    ad_owner_ref(tensor->owner);
    ad_sync_ref(tensor->sync);
}

/* Try one protocol: 1 done, 0 refused and noted, -1 failed. */
static int
try_protocol(ad_state *state, PyObject *object, const ad_type_slot *slot,
             const ad_request *request, int index, refusals *tried,
             ad_imported *out)
{
    const ad_protocol *protocol = ad_protocols[index];
    switch (protocol->import(state, object, slot, request, out)) {
        case AD_IMPORT_DONE:
            return 1;
        case AD_IMPORT_REFUSED:
            return refusals_add(tried, protocol);
        case AD_IMPORT_FAILED:
            break;
    }
    return -1;
}

static int
import_foreign(ad_state *state, PyObject *object, const ad_type_slot *slot,
               const ad_request *request, uint32_t among, ad_imported *out)
{
    refusals tried = {0};
    int first = slot->first;
    uint32_t offers = offers_of(state, object, slot) & among;
    int result = 0;
    if (first >= 0 && (offers >> first & 1)) {
        result = try_protocol(state, object, slot, request, first, &tried,
                              out);
        offers &= ~((uint32_t)1 << first);
    }
    for (int i = 0; result == 0 && offers != 0; i++, offers >>= 1) {
        if ((offers & 1) && ad_protocols[i]->import != NULL) {
            result = try_protocol(state, object, slot, request, i, &tried,
                                  out);
        }
    }
    if (result == 0) {
        return fail_import(state, object, &tried, among);
    }
    refusals_clear(&tried);
    return result == 1 ? 0 : -1;
}

int
ad_import(ad_state *state, PyObject *object, const ad_request *request,
          uint32_t among, ad_imported *out)
{
    if (ad_is_array(state, object) && among == AD_ALL_PROTOCOLS) {
        out->is_array = true;
        ad_array_share(ad_array_of(object), &out->array);
        return 0;
    }
    if (ad_is_tensor(state, object)) {
        out->is_array = false;
        copy_tensor(ad_tensor_of(object), &out->tensor);
        return 0;
    }
    /* The slot is copied when it lies in the cache: a producer's code may
     * run, import something else, and so evict it. */
    ad_type_slot slot;
    const ad_type_slot *found = ad_type_slot_of_type(state, Py_TYPE(object), &slot);
    if (found != &slot) {
        slot = *found;
    }
    return import_foreign(state, object, &slot, request, among, out);
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

/* --- shared by protocol files --------------------------------------------- */

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

const char *
ad_origin(const char *attribute, PyObject *object, char *buffer)
{
    PyOS_snprintf(buffer, AD_ORIGIN_SIZE, "%s of %.80s", attribute,
                  Py_TYPE(object)->tp_name);
    return buffer;
}
