/* A Python number as one element of a dtype. */
#ifndef AD_PYTHON_FUNCTIONS_FILL_VALUE_H
#define AD_PYTHON_FUNCTIONS_FILL_VALUE_H

#include "model/dtype.h"
#include "support/state.h"

/* Write `value` as one element of `dtype` into `element` (16 bytes). -1 with
 * TypeError for a value of the wrong kind, OverflowError for one that does not
 * fit, ValueError for a dtype that cannot be filled. */
int ad_fill_element(PyObject *value, ad_dl_dtype dtype,
                    unsigned char *element);

#endif /* AD_PYTHON_FUNCTIONS_FILL_VALUE_H */
