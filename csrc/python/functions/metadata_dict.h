/* Blobs of metadata (model/metadata.h) as Python's dicts of bytes.
 */
#ifndef AD_PYTHON_FUNCTIONS_METADATA_DICT_H
#define AD_PYTHON_FUNCTIONS_METADATA_DICT_H

#include "support/state.h"

/* A new dict of bytes to bytes, None for NULL; or NULL with
 * InvalidArrowError. */
PyObject *ad_metadata_as_dict(ad_state *state, const char *blob);

/* A malloc'ed blob of a mapping from bytes or str to bytes or str, NULL for
 * None. -1 with TypeError. */
int ad_metadata_from_mapping(ad_state *state, PyObject *mapping, char **out);

#endif /* AD_PYTHON_FUNCTIONS_METADATA_DICT_H */
