/* ArrowSchema.metadata: an int32 pair count, then (int32 length, bytes) for
 * each key and value, in native byte order. The blob does not contain its own
 * size, so each length is checked for its sign and for a plausible total
 * before the bytes are read.
 */
#ifndef AD_MODEL_METADATA_H
#define AD_MODEL_METADATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Larger blobs are refused as malformed. */
#define AD_METADATA_MAX_SIZE (64 << 20)
#define AD_METADATA_MAX_PAIRS 65536

typedef struct ad_metadata_pair {
    const char *key; /* borrowed from the blob, not NUL-terminated */
    int32_t key_length;
    const char *value;
    int32_t value_length;
} ad_metadata_pair;

typedef struct ad_metadata_reader {
    const char *cursor;
    int32_t n_pairs;
    int32_t n_read;
    int64_t size; /* bytes read so far, including the count */
} ad_metadata_reader;

/* Starts reading a blob (NULL: no pairs). AD_ERR_ARROW on an invalid count. */
AD_MUST_CHECK ad_status ad_metadata_begin(ad_metadata_reader *reader,
                                          const char *metadata, ad_error *err);

/* Reads the next pair. After the last one, *done is set instead. */
AD_MUST_CHECK ad_status ad_metadata_next(ad_metadata_reader *reader,
                                         ad_metadata_pair *out, bool *done,
                                         ad_error *err);

/* Size of the whole blob in bytes; 0 for NULL. */
AD_MUST_CHECK ad_status ad_metadata_size(const char *metadata, int64_t *out,
                                         ad_error *err);

/* A malloc'ed copy; NULL for NULL. */
AD_MUST_CHECK ad_status ad_metadata_copy(const char *metadata, char **out,
                                         ad_error *err);

/* Value of the first pair with this key; *found is false if there is none. */
AD_MUST_CHECK ad_status ad_metadata_find(const char *metadata, const char *key,
                                         ad_metadata_pair *out, bool *found,
                                         ad_error *err);

/* Builds a malloc'ed blob with these pairs. */
AD_MUST_CHECK ad_status ad_metadata_build(const ad_metadata_pair *pairs,
                                          int32_t n_pairs, char **out,
                                          ad_error *err);

/* Compares the pairs, in any order. */
AD_MUST_CHECK ad_status ad_metadata_equal(const char *a, const char *b,
                                          bool *out, ad_error *err);

#endif /* AD_MODEL_METADATA_H */
