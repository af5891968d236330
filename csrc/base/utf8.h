/* Validation of UTF-8: shortest forms only, no surrogates, up to U+10FFFF
 * (Unicode, table 3-7).
 */
#ifndef AD_BASE_UTF8_H
#define AD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool ad_is_ascii(const void *bytes, size_t n);

/* The length in bytes of the longest valid prefix: n where all bytes are
 * valid. An invalid or truncated character follows the prefix. */
size_t ad_utf8_prefix(const void *bytes, size_t n);

#endif /* AD_BASE_UTF8_H */
