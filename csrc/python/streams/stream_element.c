#include "python/streams/stream_element.h"

#include "stream/array_stream.h"
#include "support/errors.h"
#include "python/functions/functions.h"

/* Replaces the array's schema by the stream's, including its metadata. */
static int
adopt_schema(ad_state *state, const ad_element_rules *rules, ad_array *array)
{
    ad_error err;
    if (ad_array_stream_require_schema(
            array->schema.node, rules->schema.node, "the element",
            "the stream",
            "all arrays of a stream have one schema: convert them before, or "
            "name it with schema=",
            &err) != AD_OK) {
        ad_array_clear(array);
        ad_raise(state, &err);
        return -1;
    }
    ad_schema old = array->schema;
    array->schema = ad_schema_ref(rules->schema);
    ad_schema_unref(old);
    return 0;
}

static int
import_by_rules(ad_state *state, ad_element_rules *rules, PyObject *element,
                ad_array *out)
{
    ad_schema wanted = rules->is_given ? rules->schema : (ad_schema){0};
    if (ad_as_array(state, element, wanted, AD_COPY_IF_NEEDED, out) < 0) {
        return -1;
    }
    if (rules->is_given) {
        return 0;
    }
    if (rules->schema.node != NULL) {
        return adopt_schema(state, rules, out);
    }
    rules->schema = ad_schema_ref(out->schema);
    return 0;
}

int
ad_element_import(ad_state *state, ad_element_rules *rules, PyObject *element,
                  ad_array *out)
{
    int result = import_by_rules(state, rules, element, out);
    if (result < 0 && !ad_exception_is_final(state)) {
        ad_raise_exchange(state, "stream", NULL,
                          "element %lld of the iterable (a %.100s) cannot be "
                          "a batch of the stream",
                          rules->n_taken, Py_TYPE(element)->tp_name);
    }
    rules->n_taken++;
    return result;
}
