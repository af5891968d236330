/* model/: the two neutral models, Arrow trees and strided tensors.
 *
 * Types, schemas, metadata, extension types; element types of tensors
 * (dtypes.def is their table); import, structure check, build and export of
 * arrays; tensors; casts to a schema with the same storage. Structs of
 * producers are not trusted before ad_array_validate has accepted them. The
 * code here never reads data buffers on devices. It has no lock and no thread:
 * values are immutable once made, but for null counts, and share
 * reference-counted owners.
 */

/* ad_array: a view of one node of an Arrow tree on a device.
 *
 * The nodes are the producer's structs (or arrowdev's own), moved once and
 * never changed; the view selects the rows. So an import costs nothing per
 * column except validation, and slices, fields and children are small values
 * that share owner, schema and sync.
 */
#ifndef AD_MODEL_ARRAY_H
#define AD_MODEL_ARRAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi/arrow_c.h"
#include "base/device.h"
#include "base/owner.h"
#include "model/schema.h"
#include "base/status.h"
#include "order/memory.h"
#include "order/sync.h"
#include "model/type.h"

typedef struct ad_array {
    ad_memory memory;              /* first, as in ad_tensor */
    const struct ArrowArray *node; /* borrowed from the owner */
    ad_schema schema;
    int64_t offset; /* into the node's buffers; >= 0 */
    int64_t length;
    bool had_event; /* a CPU array came with an event, which is ignored */
    /* -1: unknown; last, for ad_array_borrow */
    _Atomic(int64_t) null_count;
} ad_array;

/* The null count of an array that other threads may read. One of them may set
 * it when it has counted. */
static inline int64_t
ad_array_null_count(const ad_array *array)
{
    return atomic_load_explicit(&array->null_count, memory_order_relaxed);
}

static inline void
ad_array_set_null_count(ad_array *array, int64_t count)
{
    atomic_store_explicit(&array->null_count, count, memory_order_relaxed);
}

/* --- structure (array_structure.c) --------------------------------------- */

/* Checks (schema, array) as one tree, without reading a data buffer: structs
 * not released; lengths, offsets and null counts not negative and without
 * overflow; n_buffers fits the format; data buffers present if there are
 * elements; as many children as the schema has, none of them NULL; children
 * long enough for their parent (struct, fixed-size list, sparse union); a
 * dictionary exactly where the schema has one; depth. Fails with AD_ERR_ARROW
 * and the path. NULL validity with null_count -1 means no nulls; NULL offsets
 * are accepted at length 0. */
AD_MUST_CHECK ad_status ad_array_validate(const struct ArrowSchema *schema,
                                          const struct ArrowArray *array,
                                          ad_error *err);

/* The same for a schema that has been validated before (batches of a
 * stream). */
AD_MUST_CHECK ad_status
ad_array_validate_known(const struct ArrowSchema *schema,
                        const struct ArrowArray *array, ad_error *err);

/* --- structure of the batches of a stream (array_structure.c) ------------ */

/* With fewer rows than this, no size in bits of a leaf overflows. One less
 * than a power of 2. */
#define AD_LEAF_MAX_END (INT64_MAX / 128)

/* Writes one entry per child of a validated schema to `shape`. Returns false
 * for a schema that is not a struct of plain columns. */
bool ad_batch_shape_make(const struct ArrowSchema *schema, uint8_t *shape);

/* The complete checks of the struct itself, and of a column of it that needs
 * at least `needed` rows. */
bool ad_batch_root_is_sound(const struct ArrowArray *array, int64_t n);
bool ad_batch_column_is_sound(const struct ArrowArray *column,
                              int64_t n_buffers, int64_t needed);

/* --- import -------------------------------------------------------------- */

/* Validates both structs and moves them into owners. On success both `release`
 * members are NULL; on failure both structs are untouched. The event, device
 * type and id are kept, and `reserved` is ignored. Host memory has no event
 * type, so an event of a CPU array is ignored: nobody can wait for it.
 * `interpreter`: the array came from Python, so its `release` may assume the
 * GIL of this one (support/py_call.h). It is called with it on every thread,
 * and never once the interpreter finalizes. NULL: from elsewhere. */
AD_MUST_CHECK ad_status ad_array_import(struct ArrowSchema *schema,
                                        struct ArrowDeviceArray *array,
                                        void *interpreter, ad_array *out,
                                        ad_error *err);

/* The same for an array of a known schema (a batch of a stream): `schema` is
 * borrowed and gains a reference. */
AD_MUST_CHECK ad_status ad_array_import_as(ad_schema schema,
                                           struct ArrowDeviceArray *array,
                                           ad_array *out, ad_error *err);

/* The same for an array that ad_array_validate_known has accepted. */
AD_MUST_CHECK ad_status ad_array_import_checked(ad_schema schema,
                                                struct ArrowDeviceArray *array,
                                                void *interpreter,
                                                ad_array *out, ad_error *err);

/* A slot for an import without a move: the producer fills the struct at its
 * final address. The slot is not initialized. Returns NULL if there is no
 * memory. */
struct ArrowDeviceArray *ad_array_slot_new(ad_error *err);
/* Takes over the slot with its array, which ad_array_validate_known has
 * accepted and which is in host memory without an event. `schema` is borrowed
 * and gains a reference. Cannot fail. */
void ad_array_slot_import(struct ArrowDeviceArray *slot, ad_schema schema,
                          ad_array *out);
/* Frees the slot only, not an array in it. */
void ad_array_slot_free(struct ArrowDeviceArray *slot);

/* Turns a plain ArrowArray into a device array: CPU, id -1, no event. Moves
 * the struct; cannot fail. */
void ad_device_array_from_host(struct ArrowArray *array,
                               struct ArrowDeviceArray *out);

/* --- views --------------------------------------------------------------- */

/* A copy of the view that borrows the references of `src`. */
static inline ad_array
ad_array_borrow(const ad_array *src)
{
    ad_array copy;
    memcpy(&copy, src, offsetof(ad_array, null_count));
    ad_array_set_null_count(&copy, ad_array_null_count(src));
    return copy;
}

/* Copies the view; *dst has its own references. */
void ad_array_share(const ad_array *src, ad_array *dst);

/* Drops all references; *array is empty afterwards. */
void ad_array_clear(ad_array *array);
/* The same with the GIL, but leaves *array dangling, which saves the writes.
 * Only for memory that is freed next and that no code reads while an owner's
 * destructor runs. */
void ad_array_drop(const ad_array *array);

/* Rows [offset, offset + length) of src. AD_ERR_INDEX when out of range. */
AD_MUST_CHECK ad_status ad_array_slice(const ad_array *src, int64_t offset,
                                       int64_t length, ad_array *out,
                                       ad_error *err);

/* Child `i` as the producer exported it: with its own offset and length. */
AD_MUST_CHECK ad_status ad_array_child(const ad_array *src, int64_t i,
                                       ad_array *out, ad_error *err);

/* Rows [first, first + length) of child `i` (-1: of the dictionary), counted
 * from its own offset. Borrows all references of `src`. */
ad_array ad_array_borrow_below(const ad_array *src, int64_t i, int64_t first,
                               int64_t length);

/* Column `i` of a struct: the child with the parent's slice applied. Fails
 * with AD_ERR_EXCHANGE if the struct itself has (or may have) nulls, which the
 * column would lose. */
AD_MUST_CHECK ad_status ad_array_field(const ad_array *src, int64_t i,
                                       ad_array *out, ad_error *err);

/* The dictionary's values; AD_ERR_VALUE if there is no dictionary. */
AD_MUST_CHECK ad_status ad_array_dictionary(const ad_array *src, ad_array *out,
                                            ad_error *err);

/* Child `i`, or after the last child the dictionary. */
AD_MUST_CHECK ad_status ad_array_below(const ad_array *src, int64_t i,
                                       ad_array *out, ad_error *err);

/* Index of the only child with this name. AD_ERR_INDEX, with the names of the
 * first children, if there is none;
 * AD_ERR_VALUE if there are several. */
AD_MUST_CHECK ad_status ad_array_find_field(const ad_array *src,
                                            const char *name, int64_t *out,
                                            ad_error *err);

/* Fails with AD_ERR_TYPE unless the array is a struct. */
AD_MUST_CHECK ad_status ad_array_require_struct(const ad_array *src,
                                                ad_error *err);

/* The struct with children fields[0 .. n) only, of which there may be several
 * of one index. It keeps its nulls, metadata and slice. A struct of an
 * extension type becomes a plain one. AD_ERR_INDEX for a child that is not
 * there. */
AD_MUST_CHECK ad_status ad_array_select(const ad_array *src,
                                        const int64_t *fields, int64_t n,
                                        ad_array *out, ad_error *err);

/* True if the view covers the whole node, so that the node's children and null
 * count apply to it. */
static inline bool
ad_array_is_whole(const ad_array *array)
{
    return array->offset == array->node->offset &&
           array->length == array->node->length;
}

/* The validity bitmap; NULL for a type without one or an absent buffer. */
const void *ad_array_validity(const ad_array *array);

/* The null count if it follows without counting bits; else `known`. */
int64_t ad_array_resolve_null_count(const ad_array *array, int64_t known);

/* True if the rows certainly have no nulls: no bitmap, or a null count of 0.
 * The type `null` counts as all nulls, unions and run-end arrays as
 * without. */
bool ad_array_has_no_nulls(const ad_array *array);

/* --- sizes --------------------------------------------------------------- */

/* The size can only be read from memory that the host cannot access. */
#define AD_SIZE_UNKNOWN (-1)

/* Size in bytes that buffer `i` of the array's own node must have for rows [0,
 * offset + length) of the view, absent or not. For variable-size data
 * the size is read from the offsets (or from a view's size buffer) in host
 * memory; on other devices it is AD_SIZE_UNKNOWN. Never larger than the size
 * for the whole node. Fails with AD_ERR_ARROW on invalid offsets. */
AD_MUST_CHECK ad_status ad_array_buffer_needed(const ad_array *array,
                                               int64_t i, int64_t *out,
                                               ad_error *err);

/* The same; 0 for an absent buffer. */
AD_MUST_CHECK ad_status ad_array_buffer_size(const ad_array *array, int64_t i,
                                             int64_t *out, ad_error *err);

/* Total size of all buffers of the tree; AD_SIZE_UNKNOWN if one is unknown. */
AD_MUST_CHECK ad_status ad_array_nbytes(const ad_array *array, int64_t *out,
                                        ad_error *err);

/* Whether the host can read the ends of the buffers of the tree, as far as the
 * system tells: a struct with a wrong length or address is no sound array, and
 * nothing else shows it. For host memory that is ready. Only the first
 * `max_children` of a node are looked at; false if these are more than
 * `max_nodes` in all. */
bool ad_array_can_be_read(const ad_array *array, int64_t max_children,
                          int64_t max_nodes);

/* --- building ------------------------------------------------------------ */

/* A new node over foreign memory. */
typedef struct ad_array_spec {
    ad_schema schema; /* borrowed; gains a reference */
    ad_memory memory; /* borrowed; gains references ... */
    bool is_given;    /* ... or, on success, is taken over */
    int64_t length;
    int64_t offset;
    int64_t null_count;
    int64_t n_buffers;
    const void *const *buffers; /* the list is copied, the memory borrowed */
    int64_t n_children;
    const ad_array *children;   /* borrowed; each gains references */
    const ad_array *dictionary; /* borrowed, or NULL */
} ad_array_spec;

/* Marks nodes that arrowdev has built as not released. Never called: what
 * contains the node frees it. */
void ad_array_never_released(struct ArrowArray *node);

/* Has the owner room for a node that nobody uses? The caller holds the only
 * reference, so there is no other array. Acquires what the release of the
 * reference before it, on any thread, left in the room. */
static inline bool
ad_owner_has_leaf(const ad_owner *owner)
{
    return owner != NULL && owner->ops->leaf != 0 &&
           atomic_load_explicit(&owner->refs, memory_order_acquire) == 1;
}

/* A column of `length` values without nulls at `values`, in the room of the
 * memory's owner (see ad_owner_has_leaf). Takes over the memory. `type` is
 * static. */
static inline void
ad_array_of_leaf(ad_memory memory, const struct ArrowSchema *type,
                 const void *values, int64_t length, ad_array *out)
{
    ad_leaf *leaf =
        (ad_leaf *)((char *)memory.owner + memory.owner->ops->leaf);
    leaf->buffers[0] = NULL;
    leaf->buffers[1] = values;
    leaf->node = (struct ArrowArray){
        .length = length,
        .n_buffers = 2,
        .buffers = leaf->buffers,
        .release = ad_array_never_released,
    };
    /* One by one: see ad_array_clear. */
    out->node = &leaf->node;
    out->memory = memory;
    out->schema = (ad_schema){type, NULL};
    out->offset = 0;
    out->length = length;
    ad_array_set_null_count(out, 0);
    out->had_event = false;
}

/* Builds a node. A child that is a slice becomes exactly that slice in the new
 * tree. Does not validate. */
AD_MUST_CHECK ad_status ad_array_build(const ad_array_spec *spec,
                                       ad_array *out, ad_error *err);

/* Builds an array of several inputs, which give it their device (the CPU if
 * there are none) and one event for all, and checks its structure. */
AD_MUST_CHECK ad_status ad_array_build_joined(const ad_joined_inputs *inputs,
                                              ad_array_spec *spec,
                                              ad_array *out, ad_error *err);

/* An array without rows of any validated schema, on the host. */
AD_MUST_CHECK ad_status ad_array_empty(ad_schema schema, ad_array *out,
                                       ad_error *err);

/* --- export -------------------------------------------------------------- */

/* Exports the whole tree from one arena that shares buffer lists with the
 * import. The rules for the holder are those of ad_schema_export. The sync is
 * exported as `sync_event`; `reserved` is zeroed. A slice of a struct without
 * a bitmap is exported with offset 0 and sliced columns, because pyarrow and
 * pandas accept no record batch with an offset. Fails if the device has an
 * ordinal that is not known. The nodes hold the owner and the sync until the
 * last of them is released; ad_sync_unref() says who frees the event. */
AD_MUST_CHECK ad_status ad_array_export(const ad_array *array,
                                        struct ArrowDeviceArray **holder,
                                        ad_error *err);
void ad_array_holder_free(struct ArrowDeviceArray *holder);
/* The same for a caller that holds the GIL. */
void ad_array_holder_free_with_gil(struct ArrowDeviceArray *holder);

/* The same into a struct of the consumer; a single node of host memory needs
 * no allocation. */
AD_MUST_CHECK ad_status ad_array_export_to(const ad_array *array,
                                           struct ArrowDeviceArray *out,
                                           ad_error *err);

#endif /* AD_MODEL_ARRAY_H */
