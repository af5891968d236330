/* A growable string for messages, type names and format strings. It is never
 * used on the path of an exchange.
 */
#ifndef AD_BASE_TEXT_H
#define AD_BASE_TEXT_H

#include <stddef.h>

#include "base/status.h"

typedef struct ad_text {
    char *data; /* NUL-terminated; NULL while empty */
    size_t length;
    size_t capacity;
} ad_text;

/* {0} is an empty text. */
void ad_text_clear(ad_text *text);

AD_MUST_CHECK ad_status ad_text_append(ad_text *text, const char *string,
                                       ad_error *err);
AD_MUST_CHECK ad_status ad_text_append_n(ad_text *text, const char *bytes,
                                         size_t n, ad_error *err);
AD_MUST_CHECK ad_status ad_text_printf(ad_text *text, ad_error *err,
                                       const char *format, ...)
    AD_PRINTF(3, 4);

/* The string so far, "" while empty. */
static inline const char *
ad_text_string(const ad_text *text)
{
    return text->data != NULL ? text->data : "";
}

#define AD_COUNT_SIZE 48

/* "1 null", "2 nulls" in `buffer`, which is returned; for messages. */
const char *ad_count_text(int64_t n, const char *one, const char *many,
                          char buffer[AD_COUNT_SIZE]);

#endif /* AD_BASE_TEXT_H */
