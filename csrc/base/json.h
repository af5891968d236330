/* A reader for the JSON object in extension metadata. The caller reads the
 * members that it knows and skips the others.
 *
 *     AD_RETURN_IF_ERR(ad_json_enter(&json, text, length, err));
 *     for (;;) {
 *         AD_RETURN_IF_ERR(ad_json_member(&json, key, &done, err));
 *         if (done) break;
 *         ... read or skip the value ...
 *     }
 *
 * Errors are AD_ERR_ARROW with the position in the text. The reader allocates
 * nothing, and its recursion is bounded.
 */
#ifndef AD_BASE_JSON_H
#define AD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Deeper values are refused. */
#define AD_JSON_MAX_DEPTH 32

/* Longer keys are truncated. No known key is that long. */
#define AD_JSON_KEY_SIZE 32

typedef struct ad_json {
    const char *start; /* borrowed, not NUL-terminated */
    const char *cursor;
    const char *end;
    bool is_first; /* no member of the object has been read yet */
} ad_json;

/* Begin with `text`, which must outlive the reader, and read the opening brace
 * of the object. */
AD_MUST_CHECK ad_status ad_json_enter(ad_json *json, const char *text,
                                      size_t length, ad_error *err);

/* Read the next key and its colon. After the last member, check that the text
 * ends there and set *done. */
AD_MUST_CHECK ad_status ad_json_member(ad_json *json,
                                       char key[AD_JSON_KEY_SIZE], bool *done,
                                       ad_error *err);

/* Read the value of a member. Numbers with a fraction or exponent and numbers
 * beyond 64 bits are refused. So are arrays of more than `capacity` items. */
AD_MUST_CHECK ad_status ad_json_integer(ad_json *json, int64_t *out,
                                        ad_error *err);
AD_MUST_CHECK ad_status ad_json_integers(ad_json *json, int64_t *out,
                                         int32_t capacity, int32_t *n,
                                         ad_error *err);

/* Skip an array of strings and count its items. */
AD_MUST_CHECK ad_status ad_json_strings(ad_json *json, int32_t *n,
                                        ad_error *err);

/* Skip any value. */
AD_MUST_CHECK ad_status ad_json_skip(ad_json *json, ad_error *err);

#endif /* AD_BASE_JSON_H */
