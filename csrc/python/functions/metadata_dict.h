/* Metadata blobs (model/metadata.h) as Python dicts of bytes. */
#ifndef AD_PYTHON_FUNCTIONS_METADATA_DICT_H
#define AD_PYTHON_FUNCTIONS_METADATA_DICT_H

#include "support/state.h"

/* Returns a new dict from bytes to bytes, None for a NULL blob, or NULL with
 * InvalidArrowError. */
PyObject *ad_metadata_as_dict(ad_state *state, const char *blob);

/* Make a malloc'ed blob of a mapping from bytes or str to bytes or str, NULL
 * for None. Returns 0, or -1 with an exception. */
int ad_metadata_from_mapping(ad_state *state, PyObject *mapping, char **out);

#endif /* AD_PYTHON_FUNCTIONS_METADATA_DICT_H */
