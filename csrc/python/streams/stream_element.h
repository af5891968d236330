/* What a Python object must be to become a batch of a stream.
 */
#ifndef AD_PYTHON_STREAMS_STREAM_ELEMENT_H
#define AD_PYTHON_STREAMS_STREAM_ELEMENT_H

#include "model/array.h"
#include "support/state.h"

/* The type that all elements have, and how many there were. */
typedef struct ad_element_rules {
    ad_schema schema; /* owned; without a node: the first one's, once known */
    /* the caller named it: elements are cast to another schema */
    bool is_given;
    long long n_taken;
} ad_element_rules;

/* Import `element`; the first one may decide the schema. -1 with an exception
 * that says which one is wrong. */
int ad_element_import(ad_state *state, ad_element_rules *rules,
                      PyObject *element, ad_array *out);

#endif /* AD_PYTHON_STREAMS_STREAM_ELEMENT_H */
