/* A reader for the JSON in extension metadata: one object, of which some
 * members are wanted and the others are skipped.
 *
 *     ad_json_begin(&json, text, length);
 *     AD_RETURN_IF_ERR(ad_json_enter(&json, err));
 *     for (;;) {
 *         AD_RETURN_IF_ERR(ad_json_member(&json, key, &done, err));
 *         if (done) break;
 *         ... read or skip the value ...
 *     }
 *
 * Errors are AD_ERR_ARROW with the position in the text. Allocates nothing,
 * and recursion is bounded.
 */
#ifndef AD_BASE_JSON_H
#define AD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Deeper values are refused. */
#define AD_JSON_MAX_DEPTH 32

/* Longer keys are cut; no wanted key is that long. */
#define AD_JSON_KEY_SIZE 32

typedef struct ad_json {
    const char *start; /* borrowed, not NUL-terminated */
    const char *cursor;
    const char *end;
    bool is_first; /* no member of the object was read yet */
} ad_json;

void ad_json_begin(ad_json *json, const char *text, size_t length);

/* Read the opening brace of the object. */
AD_MUST_CHECK ad_status ad_json_enter(ad_json *json, ad_error *err);

/* Read the next key and its colon. After the last member *done is set, and
 * the text was checked to end there. */
AD_MUST_CHECK ad_status ad_json_member(ad_json *json,
                                       char key[AD_JSON_KEY_SIZE], bool *done,
                                       ad_error *err);

/* Read the value of a member. Numbers with a fraction or exponent, and those
 * that do not fit, are refused; so are arrays of more than `capacity`. */
AD_MUST_CHECK ad_status ad_json_integer(ad_json *json, int64_t *out,
                                        ad_error *err);
AD_MUST_CHECK ad_status ad_json_integers(ad_json *json, int64_t *out,
                                         int32_t capacity, int32_t *n,
                                         ad_error *err);

/* An array of strings, of which only the number is wanted. */
AD_MUST_CHECK ad_status ad_json_strings(ad_json *json, int32_t *n,
                                        ad_error *err);

/* Any value. */
AD_MUST_CHECK ad_status ad_json_skip(ad_json *json, ad_error *err);

#endif /* AD_BASE_JSON_H */
