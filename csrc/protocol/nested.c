/* Nested columns of libraries that show them by no protocol: jagged tensors of
 * torch, and arrays of awkward. Their parts are read in Python. */
#include "protocol/protocol.h"

/* `rules` of the protocol is the name of a function of arrowdev._nested, which
 * takes the object and copy=, and returns an Array. The caller serves
 * copy=True. */
static ad_import_result
import_nested(const ad_protocol *self, ad_state *state, PyObject *object,
              const ad_type_slot *slot, const ad_request *request,
              ad_imported *out)
{
    (void)slot;
    PyObject *args[] = {object,
                        request->copy == AD_COPY_NEVER ? Py_False : Py_None};
    PyObject *column = ad_call_helper("_nested", self->rules, args, 2);
    if (column == NULL) {
        bool is_final = PyErr_ExceptionMatches(state->exchange_error) ||
                        PyErr_ExceptionMatches(state->invalid_arrow_error);
        return is_final ? AD_IMPORT_FAILED : ad_import_exception(state);
    }
    out->is_array = true;
    ad_array_share(ad_array_of(column), &out->array);
    Py_DECREF(column);
    return AD_IMPORT_DONE;
}

static bool
is_jagged(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    (void)state;
    (void)slot;
    return ad_is_subclass(type, "torch", "NestedTensor");
}

static bool
is_awkward(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    (void)state;
    (void)slot;
    return ad_is_subclass(type, "awkward", "Array");
}

const ad_protocol ad_protocol_jagged = {
    .name = "torch.nested",
    .attribute = -1,
    .probe = is_jagged,
    .import = import_nested,
    .rules = "of_jagged",
};

const ad_protocol ad_protocol_awkward = {
    .name = "awkward.Array",
    .attribute = -1,
    .probe = is_awkward,
    .import = import_nested,
    .rules = "of_awkward",
};
