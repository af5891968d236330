/* Arguments that are devices and types. */
#ifndef AD_SUPPORT_PARSE_H
#define AD_SUPPORT_PARSE_H

#include "base/device.h"
#include "model/schema.h"
#include "support/state.h"

/* Parse a device: a str, a (type, id) tuple or a Device. Returns 0, or -1 with
 * TypeError or ValueError. */
int ad_parse_device(ad_state *state, PyObject *value, ad_device *out);

/* Parse a type: a format string, a common name, a Schema or any object with
 * __arrow_c_schema__. *out is a new reference. Returns 0, or -1 with an
 * exception. */
int ad_parse_schema(ad_state *state, PyObject *value, ad_schema *out);

#endif /* AD_SUPPORT_PARSE_H */
