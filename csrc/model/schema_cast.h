/* Schema casts: the same memory under another type. Names, nullability,
 * metadata and types of the same storage may change.
 */
#ifndef AD_MODEL_SCHEMA_CAST_H
#define AD_MODEL_SCHEMA_CAST_H

#include "model/array.h"

/* How far the types may differ. */
typedef enum ad_schema_cast_reach {
    AD_CAST_LAYOUT, /* the same formats in the whole tree */
    AD_CAST_STORAGE /* also between int32 or int64 and a time of that width,
                       and between time zones */
} ad_schema_cast_reach;

typedef enum ad_schema_cast_result {
    AD_CAST_FITS,
    AD_CAST_OTHER_TYPE,     /* the values would have to change */
    AD_CAST_MOVES_ELEMENTS, /* the extensions assign other elements, or other
                               indices to them */
    AD_CAST_LOSES_NULLS,    /* there are, or may be, nulls where `wanted` is
                               not nullable */
    AD_CAST_MOVES_FIELDS    /* `wanted` has the fields of a struct in another
                               order, so that their names would be swapped */
} ad_schema_cast_result;

/* Checks if `wanted` (validated) can be the schema of this array. `null_count`
 * is the array's, -1 if unknown. */
ad_schema_cast_result ad_schema_cast_check(const ad_array *array,
                                           int64_t null_count,
                                           const struct ArrowSchema *wanted,
                                           ad_schema_cast_reach reach);

/* Compares formats only: true if both types have the same storage. */
bool ad_schema_cast_fits_type(const struct ArrowSchema *from,
                              const struct ArrowSchema *to,
                              ad_schema_cast_reach reach);

/* True if `to` is not a cast of `from` but a view (Array.view()) that keeps
 * the numbers: both have the same fixed width and unit, and both or neither
 * are floating point. */
bool ad_schema_cast_is_view(const struct ArrowSchema *from,
                            const struct ArrowSchema *to);

/* True if the type has a struct or a union, which have fields with names. */
bool ad_schema_cast_has_fields(const struct ArrowSchema *node);

/* The type of the values inside dictionaries and run-ends. */
const struct ArrowSchema *
ad_schema_cast_values(const struct ArrowSchema *node);

/* What to ask a producer of data of the type `own` for, to get them as
 * `wanted`: its types with own's field names, because producers match fields
 * by name, and make nulls of those that they do not have. *out has no node if
 * there is nothing to ask for: the layouts are the same, or the fields differ
 * in more than names. */
AD_MUST_CHECK ad_status ad_schema_cast_request(
    const struct ArrowSchema *own, const struct ArrowSchema *wanted,
    ad_schema *out, ad_error *err);

#endif /* AD_MODEL_SCHEMA_CAST_H */
