/* The same memory under another type: names, nullability, metadata, and types
 * that are stored alike.
 */
#ifndef AD_MODEL_SCHEMA_CAST_H
#define AD_MODEL_SCHEMA_CAST_H

#include "model/array.h"

/* How far the types may differ. */
typedef enum ad_schema_cast_reach {
    AD_CAST_LAYOUT, /* the same formats all the way down */
    AD_CAST_STORAGE /* an int32 or int64 may be a time of that width too,
                       and a time zone another one */
} ad_schema_cast_reach;

typedef enum ad_schema_cast_result {
    AD_CAST_FITS,
    AD_CAST_OTHER_TYPE,     /* the values would have to change */
    AD_CAST_MOVES_ELEMENTS, /* extensions by which other elements are meant,
                               or the same at other indices */
    AD_CAST_LOSES_NULLS,    /* there are, or may be, nulls where `wanted` has
                               none */
    AD_CAST_MOVES_FIELDS    /* `wanted` has the fields of a struct in another
                               order, so that their names would be swapped */
} ad_schema_cast_result;

/* Can `wanted` (validated) be the schema of this array? `null_count` is the
 * array's as far as it is known, or -1. */
ad_schema_cast_result ad_schema_cast_check(const ad_array *array,
                                           int64_t null_count,
                                           const struct ArrowSchema *wanted,
                                           ad_schema_cast_reach reach);

/* Formats alone: are both stored alike? */
bool ad_schema_cast_fits_type(const struct ArrowSchema *from,
                              const struct ArrowSchema *to,
                              ad_schema_cast_reach reach);

/* Is `to` the same memory, where it cannot be a label: both of one fixed width
 * (Array.view())? */
bool ad_schema_cast_is_view(const struct ArrowSchema *from,
                            const struct ArrowSchema *to);

/* Do the extensions, all the way down, leave every element what and where it
 * is? Both types are stored alike. */
bool ad_schema_cast_keeps_elements(const struct ArrowSchema *from,
                                   const struct ArrowSchema *to);

#endif /* AD_MODEL_SCHEMA_CAST_H */
