/* Imports Python objects as the batches of a stream.
 */
#ifndef AD_PYTHON_STREAMS_STREAM_ELEMENT_H
#define AD_PYTHON_STREAMS_STREAM_ELEMENT_H

#include "model/array.h"
#include "support/state.h"

/* The type of all elements, and the number of elements so far. */
typedef struct ad_element_rules {
    ad_schema schema; /* owned; without a node until the first element */
    /* the caller gave the schema: elements are cast to it */
    bool is_given;
    long long n_taken;
} ad_element_rules;

/* Imports `element`; the first one decides the schema unless it is given. -1
 * with an exception that names the element. */
int ad_element_import(ad_state *state, ad_element_rules *rules,
                      PyObject *element, ad_array *out);

#endif /* AD_PYTHON_STREAMS_STREAM_ELEMENT_H */
