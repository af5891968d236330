/* Is it UTF-8? Shortest forms only, no surrogates, up to U+10FFFF (Unicode,
 * table 3-7).
 */
#ifndef AD_BASE_UTF8_H
#define AD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool ad_is_ascii(const void *bytes, size_t n);

/* Bytes of the well-formed characters at the front: n where all is well. What
 * follows is no character, or is the beginning of one that is cut off. */
size_t ad_utf8_prefix(const void *bytes, size_t n);

#endif /* AD_BASE_UTF8_H */
