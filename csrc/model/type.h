/* Arrow types, parsed from format strings.
 */
#ifndef AD_MODEL_TYPE_H
#define AD_MODEL_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/arrow_c.h"
#include "base/status.h"
#include "base/text.h"

/* Types with the same kind of values are neighbours: code compares ranges. */
typedef enum ad_type_id {
    AD_TYPE_NULL,
    AD_TYPE_BOOL,
    AD_TYPE_INT8, /* integers */
    AD_TYPE_UINT8,
    AD_TYPE_INT16,
    AD_TYPE_UINT16,
    AD_TYPE_INT32,
    AD_TYPE_UINT32,
    AD_TYPE_INT64,
    AD_TYPE_UINT64,
    AD_TYPE_FLOAT16, /* floating point */
    AD_TYPE_FLOAT32,
    AD_TYPE_FLOAT64,
    AD_TYPE_DECIMAL, /* bit_width 32, 64, 128 or 256 */
    AD_TYPE_BINARY,  /* bytes */
    AD_TYPE_LARGE_BINARY,
    AD_TYPE_BINARY_VIEW,
    AD_TYPE_FIXED_BINARY,
    AD_TYPE_UTF8, /* text */
    AD_TYPE_LARGE_UTF8,
    AD_TYPE_UTF8_VIEW,
    AD_TYPE_DATE32, /* times */
    AD_TYPE_DATE64,
    AD_TYPE_TIME32,
    AD_TYPE_TIME64,
    AD_TYPE_TIMESTAMP,
    AD_TYPE_DURATION,
    AD_TYPE_INTERVAL_MONTHS,
    AD_TYPE_INTERVAL_DAYS,
    AD_TYPE_INTERVAL_MONTH_DAY_NANO,
    AD_TYPE_LIST, /* lists */
    AD_TYPE_LARGE_LIST,
    AD_TYPE_LIST_VIEW,
    AD_TYPE_LARGE_LIST_VIEW,
    AD_TYPE_FIXED_LIST,
    AD_TYPE_STRUCT,
    AD_TYPE_MAP,
    AD_TYPE_SPARSE_UNION, /* unions */
    AD_TYPE_DENSE_UNION,
    AD_TYPE_RUN_END
} ad_type_id;

/* How the buffers of a type are laid out ("Canonical buffers per format"). */
typedef enum ad_layout {
    AD_LAYOUT_NONE,         /* no buffers: null, run-end encoded */
    AD_LAYOUT_FIXED,        /* validity, data of bit_width per element */
    AD_LAYOUT_OFFSETS,      /* validity, offsets, data */
    AD_LAYOUT_VIEWS,        /* validity, views, variadic..., sizes */
    AD_LAYOUT_LIST,         /* validity, offsets; one child */
    AD_LAYOUT_LIST_VIEW,    /* validity, offsets, sizes; one child */
    AD_LAYOUT_VALIDITY,     /* validity: struct, fixed-size list */
    AD_LAYOUT_SPARSE_UNION, /* type ids */
    AD_LAYOUT_DENSE_UNION   /* type ids, offsets */
} ad_layout;

typedef struct ad_type {
    ad_type_id id;
    ad_layout layout;
    int8_t n_buffers;   /* exact, or the minimum for AD_LAYOUT_VIEWS */
    bool has_validity;  /* buffers[0] is a validity bitmap */
    bool wide_offsets;  /* offsets and sizes are int64 */
    char unit;          /* 's' 'm' 'u' 'n' of times; 0 elsewhere */
    int32_t bit_width;  /* AD_LAYOUT_FIXED: bits per element; else 0 */
    int32_t n_children; /* exact; -1: any number (struct, unions) */
    int64_t list_size;  /* fixed-size list */
    int32_t precision;  /* decimal */
    int32_t scale;      /* decimal */
    const char *suffix; /* borrowed from the format: a timestamp's time zone
                           ("" when it has none), or the comma-separated ids of
                           a union; NULL for all other types */
} ad_type;

/* Parses a format string. Fails with AD_ERR_ARROW and a message about the
 * invalid part. Fast for one-letter formats, because an import calls it for
 * each node. */
AD_MUST_CHECK ad_status ad_type_parse(const char *format, ad_type *out,
                                      ad_error *err);

/* The type of a one-letter format, without a copy; NULL for all others (and
 * for a NULL format). Such types have no children. */
const ad_type *ad_type_of_letter(const char *format);

/* Bits of one row in buffer `i`; 0 if the rows have no fixed share of it, or
 * if there is no such buffer. Offsets have one entry more than rows. */
int64_t ad_type_row_bits(const ad_type *type, int64_t i);

/* True if Array.view() can convert between the types: both are fixed-width, of
 * the same whole number of bytes. */
bool ad_type_same_width(const ad_type *a, const ad_type *b);

/* Parses the type ids in a union's suffix: writes at most 128 ids to `ids` and
 * their number to *n. Fails on ids outside 0..127, duplicate ids, and text
 * that is not a number. */
AD_MUST_CHECK ad_status ad_type_union_ids(const ad_type *type, int8_t ids[128],
                                          int *n, ad_error *err);

/* Appends the type of a schema node in pyarrow's notation: "int32", "float",
 * "string", "timestamp[us, tz=UTC]", "list<item: int32>", "struct<a: int32 not
 * null, b: string>", "dictionary<values=string, indices=int8, ordered=0>",
 * "extension<arrow.bool8>", "extension<arrowdev.dlpack[bfloat16]>",
 * "extension<arrow.json: string>" (name and storage of extensions that are not
 * interpreted). The node must have been validated. Deep nesting and the fields
 * after the 20th are cut to "...". */
AD_MUST_CHECK ad_status ad_type_print(const struct ArrowSchema *node,
                                      ad_text *out, ad_error *err);

/* "s", "ms", "us" or "ns", for the unit of an ad_type. */
const char *ad_type_unit_name(char unit);

/* Sets the dtype of *err (NULL allowed) to the name of the type. */
void ad_type_error_dtype(const struct ArrowSchema *node, ad_error *err);

#endif /* AD_MODEL_TYPE_H */
