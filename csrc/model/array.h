/* model/: the two neutral models, Arrow trees and strided tensors.
 *
 * Types, schemas, metadata, extension types, dtypes; arrays imported, checked
 * by structure, built and exported; tensors; the cast to a schema that is
 * stored alike. Structs from outside are hostile until ad_array_validate has
 * passed them; data buffers are never read here, on any device. No lock and no
 * thread: values are immutable once made and shared by owners that are
 * counted.
 */

/* ad_array: a view of a node in an Arrow tree on a device.
 *
 * The node and everything below it are the producer's structs (or ours),
 * moved once and kept as they came; the view says which rows are meant. So
 * import costs nothing per column but validation, and slices, fields and
 * children are a few words that share owner, schema and sync.
 */
#ifndef AD_MODEL_ARRAY_H
#define AD_MODEL_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/arrow_c.h"
#include "base/device.h"
#include "base/owner.h"
#include "model/schema.h"
#include "base/status.h"
#include "order/sync.h"
#include "model/type.h"

typedef struct ad_array {
    const struct ArrowArray *node; /* borrowed from owner */
    ad_owner *owner;
    ad_schema schema;
    ad_sync *sync; /* NULL: nothing to wait for */
    ad_device device;
    int64_t offset; /* into the node's buffers; >= 0 */
    int64_t length;
    int64_t null_count; /* -1: not known */
    bool readonly;      /* the producer flagged the memory read-only */
    bool has_reserved;  /* `reserved` was not all zero */
} ad_array;

/* --- structure ---------------------------------------------------------- */

/* Check (schema, array) as one tree, without reading a data buffer: not
 * released, lengths, offsets and null counts not negative and free of
 * overflow, n_buffers fits the format, data buffers there when there are
 * elements, children the same number as in the schema and not NULL, children
 * long enough for their parent (struct, fixed-size list, sparse union),
 * dictionary where and only where the schema has one, depth. AD_ERR_ARROW
 * with path. NULL validity with null_count -1 means no nulls; NULL offsets at
 * length 0 are accepted. */
AD_MUST_CHECK ad_status ad_array_validate(const struct ArrowSchema *schema,
                                          const struct ArrowArray *array,
                                          ad_error *err);

/* The same where the schema has been validated before (a stream's chunks). */
AD_MUST_CHECK ad_status
ad_array_validate_known(const struct ArrowSchema *schema,
                        const struct ArrowArray *array, ad_error *err);

/* --- import ------------------------------------------------------------- */

/* Validate, then move both structs into owners. On success both `release`
 * members are NULL; on failure both structs are untouched. The device array's
 * event, device type and id are kept; of `reserved` only whether it is zero. */
AD_MUST_CHECK ad_status ad_array_import(struct ArrowSchema *schema,
                                        struct ArrowDeviceArray *array,
                                        ad_array *out, ad_error *err);

/* The same for an array of a known schema (a stream's chunk): `schema` is
 * borrowed and gains a reference. */
AD_MUST_CHECK ad_status ad_array_import_as(ad_schema schema,
                                           struct ArrowDeviceArray *array,
                                           ad_array *out, ad_error *err);

/* The same for one that ad_array_validate_known has passed. */
AD_MUST_CHECK ad_status ad_array_import_checked(ad_schema schema,
                                                struct ArrowDeviceArray *array,
                                                ad_array *out, ad_error *err);

/* An import without a move: a producer fills the struct where it is going to
 * stay. What is in it is not set. NULL: no memory. */
struct ArrowDeviceArray *ad_array_slot_new(ad_error *err);
/* Take over the slot and what is in it: an array that
 * ad_array_validate_known has passed, in host memory and without an event.
 * `schema` is borrowed and gains a reference. Cannot fail. */
void ad_array_slot_import(struct ArrowDeviceArray *slot, ad_schema schema,
                          ad_array *out);
/* Only the slot. */
void ad_array_slot_free(struct ArrowDeviceArray *slot);

/* A plain ArrowArray as a device array: CPU, id -1, no event. Moves; cannot
 * fail. */
void ad_device_array_from_host(struct ArrowArray *array,
                               struct ArrowDeviceArray *out);

/* --- views -------------------------------------------------------------- */

/* *dst gains references of its own. */
void ad_array_share(const ad_array *src, ad_array *dst);

/* Drop all references; *array is empty afterwards. */
void ad_array_clear(ad_array *array);
/* The same, but *array is left dangling: for memory that is freed next, and
 * that nobody looks at while an owner runs code. Saves writing it. */
void ad_array_drop(const ad_array *array);

/* Rows [offset, offset + length) of src. AD_ERR_INDEX when out of range. */
AD_MUST_CHECK ad_status ad_array_slice(const ad_array *src, int64_t offset,
                                       int64_t length, ad_array *out,
                                       ad_error *err);

/* Child `i` as the producer has it: its own offset and length. */
AD_MUST_CHECK ad_status ad_array_child(const ad_array *src, int64_t i,
                                       ad_array *out, ad_error *err);

/* Column `i` of a struct: the child with the parent's slice applied.
 * AD_ERR_EXCHANGE when the struct itself has (or may have) nulls, which the
 * column would lose. */
AD_MUST_CHECK ad_status ad_array_field(const ad_array *src, int64_t i,
                                       ad_array *out, ad_error *err);

/* The dictionary's values; AD_ERR_VALUE when there is none. */
AD_MUST_CHECK ad_status ad_array_dictionary(const ad_array *src, ad_array *out,
                                            ad_error *err);

/* Index of the only child with this name. AD_ERR_INDEX when there is none,
 * AD_ERR_VALUE when there are several. */
AD_MUST_CHECK ad_status ad_array_find_field(const ad_array *src,
                                            const char *name, int64_t *out,
                                            ad_error *err);

/* The view covers the node as it is, so its children and null count hold. */
static inline bool
ad_array_is_whole(const ad_array *array)
{
    return array->offset == array->node->offset &&
           array->length == array->node->length;
}

/* Validity bitmap, or NULL for a type without one or an absent buffer. */
const void *ad_array_validity(const ad_array *array);

/* Where the null count needs no counting, that; else `known`. */
int64_t ad_array_resolve_null_count(const ad_array *array, int64_t known);

/* Rows without nulls for certain: no bitmap, or a null count of 0. The type
 * `null` counts as all nulls, unions and run-end arrays as without. */
bool ad_array_has_no_nulls(const ad_array *array);

/* --- building ----------------------------------------------------------- */

/* A new node over foreign memory. */
typedef struct ad_array_spec {
    ad_schema schema; /* borrowed; gains a reference */
    ad_device device;
    int64_t length;
    int64_t offset;
    int64_t null_count;
    int64_t n_buffers;
    const void *const *buffers; /* copied list, borrowed memory */
    ad_owner *owner;            /* keeps the memory; gains a reference ... */
    bool owner_is_given;        /* ... or, on success, is taken over, and sync
                                   with it */
    int64_t n_children;
    const ad_array *children;   /* borrowed; each gains references */
    const ad_array *dictionary; /* borrowed, or NULL */
    ad_sync *sync;              /* gains a reference */
    bool readonly;
} ad_array_spec;

/* Build a node. A child that is a slice is exactly that slice in the new
 * tree. Does not validate. */
AD_MUST_CHECK ad_status ad_array_build(const ad_array_spec *spec,
                                       ad_array *out, ad_error *err);

/* An array of no rows of any validated schema, on the host. */
AD_MUST_CHECK ad_status ad_array_empty(ad_schema schema, ad_array *out,
                                       ad_error *err);

/* --- export ------------------------------------------------------------- */

/* Export the whole tree from one arena that shares buffer lists with the
 * import. Holder rules as for ad_schema_export. The sync goes out as
 * `sync_event`; `reserved` is zeroed. A slice of a struct without a bitmap
 * leaves with offset 0 and its columns cut instead: pyarrow and pandas take
 * no record batch with an offset. */
AD_MUST_CHECK ad_status ad_array_export(const ad_array *array,
                                        struct ArrowDeviceArray **holder,
                                        ad_error *err);
void ad_array_holder_free(struct ArrowDeviceArray *holder);

#endif /* AD_MODEL_ARRAY_H */
