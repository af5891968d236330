#include "model/array.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/text.h"
#include "base/wait.h"
#include "model/extension.h"
#include "model/metadata.h"
#include "model/type.h"
#include "order/device_owner.h"
#include "base/owner.h"
#include "base/process.h"
#include "base/unaligned.h"
#include "device/backend.h"

/* --- import ------------------------------------------------------------- */

typedef struct imported {
    ad_owner base;
    void *interpreter;             /* see ad_array_import() */
    struct ArrowDeviceArray array; /* release is NULL until the move */
} imported;

static void
imported_release(void *tree)
{
    imported *self = tree;
    AD_RELEASE(&self->array.array, release);
    free(self);
}

/* Without an interpreter a tree of Python's is leaked on purpose. */
static void
imported_destroy(ad_owner *base)
{
    void *interpreter = ((imported *)base)->interpreter;
    if (interpreter == NULL) {
        imported_release(base);
    } else {
        (void)ad_call_with_gil(interpreter, imported_release, base);
    }
}

/* The GIL may be that of another interpreter. */
static void
imported_destroy_with_gil(ad_owner *base)
{
    if (atomic_load_explicit(&ad_has_interpreters, memory_order_relaxed)) {
        imported_destroy(base);
    } else {
        imported_release(base);
    }
}

static const ad_owner_ops imported_ops = {
    .destroy = imported_destroy,
    .destroy_with_gil = imported_destroy_with_gil,
    .name = "imported array",
};

static inline void skip_import(struct ArrowArray *node);
static bool is_own_export(const struct ArrowArray *root);
static ad_owner *exported_owner(const struct ArrowArray *root);
static const ad_owner_ops own_ops;

/* True unless the type's buffers[0], if any, is not a validity bitmap. */
static bool
has_bitmap(const struct ArrowSchema *node)
{
    const char *format = node->format;
    if (format[0] == '+') {
        return format[1] != 'u' && format[1] != 'r';
    }
    return format[0] != 'n';
}

static bool
is_null_type(const struct ArrowSchema *node)
{
    return node->format[0] == 'n';
}

int64_t
ad_array_resolve_null_count(const ad_array *array, int64_t known)
{
    if (is_null_type(array->schema.node)) {
        return array->length;
    }
    if (array->length == 0) {
        return 0;
    }
    return known == -1 && ad_array_validity(array) == NULL ? 0 : known;
}

/* Sets the members that a view of a whole node takes from the node. */
static void
view_node(ad_array *out, const struct ArrowArray *node)
{
    out->node = node;
    out->offset = node->offset;
    out->length = node->length;
    ad_array_set_null_count(
        out, ad_array_resolve_null_count(out, node->null_count));
}

/* Destination of an import. The caller's structs are still untouched. */
typedef struct preparation {
    imported *tree;
    ad_owner *owner; /* the tree, or the device owner of the tree */
    ad_sync *sync;
} preparation;

static void
prepared_drop(preparation *p)
{
    ad_sync_unref(p->sync);
    ad_owner_unref(p->owner);
}

/* Host memory. Its tree has no array yet. */
static inline imported *
tree_new(ad_error *err)
{
    imported *tree = malloc(sizeof(*tree));
    if (tree == NULL) {
        (void)ad_fail_memory(err, sizeof(*tree));
        return NULL;
    }
    ad_owner_init(&tree->base, &imported_ops);
    tree->interpreter = NULL;
    return tree;
}

static inline ad_status
prepare_host(preparation *p, ad_error *err)
{
    p->tree = tree_new(err);
    if (p->tree == NULL) {
        return AD_ERR_MEMORY;
    }
    p->tree->array.array.release = NULL;
    p->owner = &p->tree->base;
    p->sync = NULL;
    return AD_OK;
}

static ad_status
prepare_device(const struct ArrowDeviceArray *array, preparation *p,
               ad_error *err)
{
    ad_device device = {array->device_type, array->device_id};
    ad_owner *tree;
    p->sync = NULL;
    /* Uses of memory that arrowdev exported are recorded by the owner that was
     * exported, so this one needs no device owner. An owner of host memory that
     * a consumer has declared to be on a device records nothing. */
    bool is_own = is_own_export(&array->array) &&
                  ad_owner_records(exported_owner(&array->array));
    AD_RETURN_IF_ERR(ad_device_owner_alloc(
        sizeof(*p->tree), is_own ? &own_ops : &imported_ops,
        (ad_context){.device = is_own ? AD_CPU : device}, NULL, &tree,
        &p->owner, err));
    p->tree = (imported *)tree;
    p->tree->interpreter = NULL;
    p->tree->array.array.release = NULL;
    if (array->sync_event == NULL) {
        return AD_OK;
    }
    /* The sync holds the tree, not its device owner: `sync_event` is valid
     * until the producer's `release`, which runs when neither the device owner
     * nor the sync holds the tree. */
    ad_status status = ad_sync_new(AD_SYNC_EVENT, device, array->sync_event,
                                   tree, &p->sync, err);
    if (status != AD_OK) {
        prepared_drop(p);
    }
    return status;
}

static inline ad_status
import_prepare(const struct ArrowDeviceArray *array, preparation *p,
               ad_error *err)
{
    return array->device_type == ARROW_DEVICE_CPU
               ? prepare_host(p, err)
               : prepare_device(array, p, err);
}

/* Makes the view once the array is in the tree. Takes over all references. */
static inline void
view_tree(const preparation *p, ad_schema schema, ad_array *out)
{
    const struct ArrowDeviceArray *array = &p->tree->array;
    out->memory.owner = p->owner;
    out->schema = schema;
    out->memory.sync = p->sync;
    out->memory.device = (ad_device){array->device_type, array->device_id};
    out->memory.readonly = false;
    out->had_event =
        array->sync_event != NULL && array->device_type == ARROW_DEVICE_CPU;
    view_node(out, &array->array);
}

/* Moves the array. Takes over all references. */
static inline void
import_finish(const preparation *p, ad_schema schema,
              struct ArrowDeviceArray *array, void *interpreter, ad_array *out)
{
    p->tree->interpreter = interpreter;
    p->tree->array = *array;
    array->array.release = NULL;
    skip_import(&p->tree->array.array);
    view_tree(p, schema, out);
}

ad_status
ad_array_import(struct ArrowSchema *schema, struct ArrowDeviceArray *array,
                void *interpreter, ad_array *out, ad_error *err)
{
    preparation p;
    ad_schema moved;
    AD_RETURN_IF_ERR(ad_array_validate(schema, &array->array, err));
    AD_RETURN_IF_ERR(import_prepare(array, &p, err));
    ad_status status = ad_schema_move(schema, &moved, err);
    if (status != AD_OK) {
        prepared_drop(&p);
        return status;
    }
    import_finish(&p, moved, array, interpreter, out);
    return AD_OK;
}

ad_status
ad_array_import_as(ad_schema schema, struct ArrowDeviceArray *array,
                   ad_array *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_array_validate_known(schema.node, &array->array, err));
    return ad_array_import_checked(schema, array, NULL, out, err);
}

ad_status
ad_array_import_checked(ad_schema schema, struct ArrowDeviceArray *array,
                        void *interpreter, ad_array *out, ad_error *err)
{
    preparation p;
    AD_RETURN_IF_ERR(import_prepare(array, &p, err));
    import_finish(&p, ad_schema_ref(schema), array, interpreter, out);
    return AD_OK;
}

struct ArrowDeviceArray *
ad_array_slot_new(ad_error *err)
{
    imported *tree = tree_new(err);
    return tree != NULL ? &tree->array : NULL;
}

static imported *
tree_of(struct ArrowDeviceArray *slot)
{
    return (imported *)((char *)slot - offsetof(imported, array));
}

void
ad_array_slot_import(struct ArrowDeviceArray *slot, ad_schema schema,
                     ad_array *out)
{
    imported *tree = tree_of(slot);
    const preparation p = {.tree = tree, .owner = &tree->base};
    view_tree(&p, ad_schema_ref(schema), out);
}

void
ad_array_slot_free(struct ArrowDeviceArray *slot)
{
    free(tree_of(slot));
}

void
ad_device_array_from_host(struct ArrowArray *array,
                          struct ArrowDeviceArray *out)
{
    *out = (struct ArrowDeviceArray){
        .array = *array,
        .device_id = -1,
        .device_type = ARROW_DEVICE_CPU,
    };
    array->release = NULL;
}

/* --- views -------------------------------------------------------------- */

void
ad_array_share(const ad_array *src, ad_array *dst)
{
    *dst = ad_array_borrow(src);
    ad_memory_ref(&dst->memory);
    ad_owner_ref(dst->schema.owner);
}

void
ad_array_clear(ad_array *array)
{
    ad_sync *sync = array->memory.sync;
    ad_owner *schema = array->schema.owner;
    ad_owner *owner = array->memory.owner;
    /* The array is emptied first, because an owner's destructor may run code
     * that reads *array. The members are written one by one: for the whole
     * struct compilers emit "rep stos", which takes longer than everything
     * else here. */
    array->node = NULL;
    array->memory.owner = NULL;
    array->schema = (ad_schema){0};
    array->memory.sync = NULL;
    array->memory.device = (ad_device){0};
    array->offset = array->length = 0;
    ad_array_set_null_count(array, 0);
    array->memory.readonly = false;
    ad_sync_unref(sync);
    ad_owner_unref(schema);
    ad_owner_unref(owner);
}

void
ad_array_drop(const ad_array *array)
{
    ad_sync_unref(array->memory.sync);
    ad_schema_unref(array->schema);
    ad_owner_unref_with_gil(array->memory.owner);
}

/* Narrows *array to a range that is known to be within it. */
static void
narrow(ad_array *array, int64_t offset, int64_t length)
{
    int64_t known = ad_array_null_count(array);
    if (known != 0 && length != array->length) {
        known = -1;
    }
    array->offset += offset;
    array->length = length;
    ad_array_set_null_count(array, ad_array_resolve_null_count(array, known));
}

ad_status
ad_array_slice(const ad_array *src, int64_t offset, int64_t length,
               ad_array *out, ad_error *err)
{
    if (offset < 0 || length < 0 || offset > src->length ||
        length > src->length - offset) {
        return ad_fail(err, AD_ERR_INDEX, NULL, NULL,
                       "a slice of %" PRId64 " rows from row %" PRId64
                       " on is not within an array of %" PRId64 " rows",
                       length, offset, src->length);
    }
    ad_array_share(src, out);
    narrow(out, offset, length);
    return AD_OK;
}

/* A view of a node below the one of `src`. */
static void
view_below(const ad_array *src, const struct ArrowArray *node,
           const struct ArrowSchema *schema, ad_array *out)
{
    ad_array_share(src, out);
    out->schema.node = schema;
    view_node(out, node);
}

static ad_status
require_child(const ad_array *src, int64_t i, ad_error *err)
{
    int64_t n = src->node->n_children;
    char count[AD_COUNT_SIZE];
    return i >= 0 && i < n
               ? AD_OK
               : ad_fail(err, AD_ERR_INDEX, NULL, NULL,
                         "child %" PRId64 " of an array with %s", i,
                         ad_count_text(n, "child", "children", count));
}

ad_status
ad_array_child(const ad_array *src, int64_t i, ad_array *out, ad_error *err)
{
    AD_RETURN_IF_ERR(require_child(src, i, err));
    view_below(src, src->node->children[i], src->schema.node->children[i],
               out);
    return AD_OK;
}

ad_array
ad_array_borrow_below(const ad_array *src, int64_t i, int64_t first,
                      int64_t length)
{
    const struct ArrowSchema *schema = src->schema.node;
    const struct ArrowArray *node = src->node;
    ad_array out = ad_array_borrow(src);
    out.schema.node = i < 0 ? schema->dictionary : schema->children[i];
    out.node = i < 0 ? node->dictionary : node->children[i];
    bool is_whole = first == 0 && length == out.node->length;
    int64_t known = out.node->null_count;
    out.offset = out.node->offset + first;
    out.length = length;
    ad_array_set_null_count(&out, is_whole || known == 0 ? known : -1);
    return out;
}

static ad_status
fail_struct_nulls(const ad_array *src, ad_error *err)
{
    static const char hint[] =
        "take .children[i] and .validity separately, and apply the struct's "
        "validity to the column yourself";
    int64_t n_nulls = ad_array_null_count(src);
    if (n_nulls > 0) {
        ad_fail(err, AD_ERR_EXCHANGE, "nulls", hint,
                "the struct has %" PRId64
                " nulls of its own, which its column would lose",
                n_nulls);
    } else {
        ad_fail(err, AD_ERR_EXCHANGE, "nulls", hint,
                "the struct has a validity bitmap and may have nulls of its "
                "own, which its column would lose");
    }
    ad_error_device(err, src->memory.device);
    ad_error_dtype(err, "struct");
    return AD_ERR_EXCHANGE;
}

ad_status
ad_array_require_struct(const ad_array *src, ad_error *err)
{
    const struct ArrowSchema *node = src->schema.node;
    ad_text type = {0};
    if (strcmp(node->format, "+s") == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_type_print(node, &type, err));
    ad_status status =
        ad_fail(err, AD_ERR_TYPE, NULL,
                node->n_children > 0
                    ? "take .children[i] for the children of other types"
                    : "it is a column itself",
                "only a struct has fields, and this array is of type %.200s",
                ad_text_string(&type));
    ad_text_clear(&type);
    return status;
}

ad_status
ad_array_field(const ad_array *src, int64_t i, ad_array *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_array_require_struct(src, err));
    if (!ad_array_has_no_nulls(src)) {
        return fail_struct_nulls(src, err);
    }
    AD_RETURN_IF_ERR(ad_array_child(src, i, out, err));
    narrow(out, src->offset, src->length);
    return AD_OK;
}

ad_status
ad_array_dictionary(const ad_array *src, ad_array *out, ad_error *err)
{
    if (src->node->dictionary == NULL) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "an array of format \"%s\" has no dictionary",
                       src->schema.node->format);
    }
    view_below(src, src->node->dictionary, src->schema.node->dictionary, out);
    return AD_OK;
}

ad_status
ad_array_below(const ad_array *src, int64_t i, ad_array *out, ad_error *err)
{
    return i < src->node->n_children ? ad_array_child(src, i, out, err)
                                     : ad_array_dictionary(src, out, err);
}

/* The message names as many children as are short enough. */
static ad_status
fail_no_field(const struct ArrowSchema *schema, const char *name,
              ad_error *err)
{
    const size_t limit = 160;
    ad_text names = {0};
    ad_status status = AD_OK;
    for (int64_t i = 0; i < schema->n_children && status == AD_OK; i++) {
        const char *other = schema->children[i]->name;
        if (names.length > limit) {
            status = ad_text_append(&names, ", ...", err);
            break;
        }
        status = ad_text_printf(&names, err, "%s\"%.60s\"",
                                i > 0 ? ", " : "; found ",
                                other != NULL ? other : "");
    }
    if (status == AD_OK) {
        status = ad_fail(err, AD_ERR_INDEX, NULL, NULL,
                         "no column is named \"%.80s\"%s", name,
                         ad_text_string(&names));
    }
    ad_text_clear(&names);
    return status;
}

ad_status
ad_array_find_field(const ad_array *src, const char *name, int64_t *out,
                    ad_error *err)
{
    const struct ArrowSchema *schema = src->schema.node;
    int64_t found = -1;
    AD_RETURN_IF_ERR(ad_array_require_struct(src, err));
    for (int64_t i = 0; i < schema->n_children; i++) {
        const char *other = schema->children[i]->name;
        if (strcmp(other != NULL ? other : "", name) != 0) {
            continue;
        }
        if (found >= 0) {
            return ad_fail(err, AD_ERR_VALUE, NULL, "take it by its index",
                           "children %" PRId64 " and %" PRId64
                           " are both named \"%s\"",
                           found, i, name);
        }
        found = i;
    }
    *out = found;
    return found >= 0 ? AD_OK : fail_no_field(schema, name, err);
}

/* --- select -------------------------------------------------------------- */

static bool
has_key(const ad_metadata_pair *pair, const char *key)
{
    return (size_t)pair->key_length == strlen(key) &&
           memcmp(pair->key, key, strlen(key)) == 0;
}

/* The metadata without those of an extension type, malloc'ed. NULL if there
 * are none. */
static ad_status
metadata_of_part(const char *metadata, char **out, ad_error *err)
{
    AD_LIST(ad_metadata_pair) pairs = {0};
    ad_metadata_reader reader;
    bool is_done = false;
    ad_status status = ad_metadata_begin(&reader, metadata, err);
    *out = NULL;
    while (status == AD_OK && !is_done) {
        status = ad_list_reserve(&pairs, 1, err);
        if (status != AD_OK) {
            break;
        }
        ad_metadata_pair *pair = &pairs.items[pairs.n];
        status = ad_metadata_next(&reader, pair, &is_done, err);
        pairs.n += status == AD_OK && !is_done &&
                   !has_key(pair, AD_EXTENSION_NAME_KEY) &&
                   !has_key(pair, AD_EXTENSION_METADATA_KEY);
    }
    if (status == AD_OK && pairs.n > 0) {
        status = ad_metadata_build(pairs.items, (int32_t)pairs.n, out, err);
    }
    free(pairs.items);
    return status;
}

static ad_status
select_schema(const ad_array *src, const ad_schema *fields, int64_t n,
              ad_schema *out, ad_error *err)
{
    const struct ArrowSchema *node = src->schema.node;
    char *metadata;
    AD_RETURN_IF_ERR(metadata_of_part(node->metadata, &metadata, err));
    const ad_schema_spec spec = {
        .format = node->format,
        .name = node->name,
        .metadata = metadata,
        .flags = node->flags,
        .n_children = n,
        .children = fields,
    };
    ad_status status = ad_schema_build(&spec, out, err);
    free(metadata);
    return status;
}

static ad_status
select_children(const ad_array *src, const ad_array *children,
                ad_schema schema, int64_t n, ad_array *out, ad_error *err)
{
    const ad_array_spec spec = {
        .schema = schema,
        .memory = src->memory,
        .length = src->length,
        .offset = src->offset,
        .null_count = ad_array_null_count(src),
        .n_buffers = src->node->n_buffers,
        .buffers = src->node->buffers,
        .n_children = n,
        .children = children,
    };
    return ad_array_build(&spec, out, err);
}

ad_status
ad_array_select(const ad_array *src, const int64_t *fields, int64_t n,
                ad_array *out, ad_error *err)
{
    ad_schema schema;
    AD_RETURN_IF_ERR(ad_array_require_struct(src, err));
    ad_array *children = calloc((size_t)n + 1, sizeof(*children));
    ad_schema *types = calloc((size_t)n + 1, sizeof(*types));
    ad_status status =
        children != NULL && types != NULL
            ? AD_OK
            : ad_fail_memory(err, (size_t)n * sizeof(*children));
    for (int64_t i = 0; i < n && status == AD_OK; i++) {
        status = require_child(src, fields[i], err);
        if (status == AD_OK) {
            children[i] = ad_array_borrow_below(
                src, fields[i], 0, src->node->children[fields[i]]->length);
            types[i] = children[i].schema;
        }
    }
    if (status == AD_OK) {
        status = select_schema(src, types, n, &schema, err);
    }
    if (status == AD_OK) {
        status = select_children(src, children, schema, n, out, err);
        ad_schema_unref(schema);
    }
    free(children);
    free(types);
    return status;
}

const void *
ad_array_validity(const ad_array *array)
{
    /* An array that a user described may lack all buffers, since it is built
     * before it is validated. */
    if (!has_bitmap(array->schema.node) || array->node->n_buffers == 0) {
        return NULL;
    }
    return array->node->buffers[0];
}

bool
ad_array_has_no_nulls(const ad_array *array)
{
    if (array->length == 0) {
        return true;
    }
    if (is_null_type(array->schema.node)) {
        return false;
    }
    return ad_array_null_count(array) == 0 || ad_array_validity(array) == NULL;
}

/* --- sizes --------------------------------------------------------------- */

/* Size of the data of a variable-size type: the last offset of the node. The
 * slice's own last offset is used only if it is smaller. It must not enlarge
 * the size, because it is among the offsets that are checked against this size
 * later, and an offset after a null may have any value. */
static ad_status
data_size(const ad_array *array, const ad_type *type, int64_t end,
          int64_t *out, ad_error *err)
{
    const struct ArrowArray *node = array->node;
    const void *offsets = node->buffers[1];
    if (offsets == NULL || end == 0) {
        *out = 0;
        return AD_OK;
    }
    if (!ad_host_accessible(array->memory.device) ||
        array->memory.sync != NULL) {
        *out = AD_SIZE_UNKNOWN;
        return AD_OK;
    }
    int64_t last = node->offset + node->length;
    int64_t size = ad_offset_at(offsets, type->wide_offsets, last);
    if (size < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %lld of the offsets buffer is %lld, expected "
                       "a size of at least 0",
                       (long long)last, (long long)size);
    }
    int64_t own = ad_offset_at(offsets, type->wide_offsets, end);
    *out = own >= 0 && own < size ? own : size;
    return AD_OK;
}

/* The last buffer of a view holds the sizes of its variadic buffers. */
static ad_status
variadic_size(const ad_array *array, int64_t i, int64_t *out, ad_error *err)
{
    const void *sizes = array->node->buffers[array->node->n_buffers - 1];
    if (sizes == NULL) {
        *out = 0; /* valid only without rows, so that no row refers to the
                     buffer */
        return AD_OK;
    }
    if (array->memory.sync != NULL ||
        !ad_host_accessible(array->memory.device)) {
        *out = AD_SIZE_UNKNOWN;
        return AD_OK;
    }
    *out = ad_offset_at(sizes, true, i - 2);
    if (*out < 0) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "size %lld of the variadic buffers is %lld, expected "
                       "at least 0",
                       (long long)(i - 2), (long long)*out);
    }
    return AD_OK;
}

ad_status
ad_array_buffer_needed(const ad_array *array, int64_t i, int64_t *out,
                       ad_error *err)
{
    ad_type type;
    int64_t end = array->offset + array->length;
    int64_t n = array->node->n_buffers;
    AD_RETURN_IF_ERR(ad_type_parse(array->schema.node->format, &type, err));
    if (type.layout == AD_LAYOUT_VIEWS && i == n - 1) {
        *out = (n - 3) * 8;
        return AD_OK;
    }
    if (type.layout == AD_LAYOUT_VIEWS && i > 1) {
        return variadic_size(array, i, out, err);
    }
    if (type.layout == AD_LAYOUT_OFFSETS && i == 2) {
        return data_size(array, &type, end, out, err);
    }
    /* Without rows the offsets may be absent, as older producers export
     * them. */
    bool has_end =
        type.layout == AD_LAYOUT_OFFSETS || type.layout == AD_LAYOUT_LIST;
    int64_t n_items = end + (has_end && i == 1 && end > 0);
    *out = ad_bitmap_bytes(n_items * ad_type_row_bits(&type, i));
    return AD_OK;
}

ad_status
ad_array_buffer_size(const ad_array *array, int64_t i, int64_t *out,
                     ad_error *err)
{
    *out = 0;
    return array->node->buffers[i] != NULL
               ? ad_array_buffer_needed(array, i, out, err)
               : AD_OK;
}

static ad_status
add_size(int64_t *total, int64_t size, ad_error *err)
{
    if (*total == AD_SIZE_UNKNOWN || size == AD_SIZE_UNKNOWN) {
        *total = AD_SIZE_UNKNOWN;
    } else if (__builtin_add_overflow(*total, size, total)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "the sizes of all buffers overflow 64 bits");
    }
    return AD_OK;
}

static ad_status
add_tree(const ad_array *array, int64_t *total, ad_error *err)
{
    for (int64_t i = 0; i < array->node->n_buffers; i++) {
        int64_t size;
        AD_RETURN_IF_ERR(ad_array_buffer_size(array, i, &size, err));
        AD_RETURN_IF_ERR(add_size(total, size, err));
    }
    int64_t n = array->node->n_children + (array->node->dictionary != NULL);
    for (int64_t i = 0; i < n; i++) {
        ad_array below;
        AD_RETURN_IF_ERR(ad_array_below(array, i, &below, err));
        ad_status status = add_tree(&below, total, err);
        ad_array_clear(&below);
        AD_RETURN_IF_ERR(status);
    }
    return AD_OK;
}

ad_status
ad_array_nbytes(const ad_array *array, int64_t *out, ad_error *err)
{
    *out = 0;
    return add_tree(array, out, err);
}

/* --- is the memory mapped? ----------------------------------------------- */

/* Of the whole node, because the size of a slice's data is read at the node's
 * end. The size of a buffer may be in another one, which is checked first:
 * sizes of views are last, offsets precede their data. */
static bool
can_read_own(const ad_array *array)
{
    ad_array whole = ad_array_borrow(array);
    int64_t n = whole.node->n_buffers;
    whole.offset = whole.node->offset;
    whole.length = whole.node->length;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (n > 3 ? i + n - 1 : i) % n; /* more than 3: views */
        int64_t size;
        if (ad_array_buffer_size(&whole, at, &size, NULL) == AD_OK &&
            !ad_process_can_read(whole.node->buffers[at], size)) {
            return false;
        }
    }
    return true;
}

/* The dictionary, which is the last one below, is not left out: a node with
 * one has no children. */
static bool
can_read_tree(const ad_array *array, int64_t max_children, int64_t *n_left)
{
    int64_t n = array->node->n_children + (array->node->dictionary != NULL);
    bool can_read = --*n_left >= 0 && can_read_own(array);
    for (int64_t i = 0; i < n && i < max_children && can_read; i++) {
        ad_array below;
        can_read = ad_array_below(array, i, &below, NULL) == AD_OK;
        if (can_read) {
            can_read = can_read_tree(&below, max_children, n_left);
            ad_array_clear(&below);
        }
    }
    return can_read;
}

bool
ad_array_can_be_read(const ad_array *array, int64_t max_children,
                     int64_t max_nodes)
{
    return can_read_tree(array, max_children, &max_nodes);
}

/* --- built over foreign memory ------------------------------------------- */

void
ad_array_never_released(struct ArrowArray *node)
{
    node->release = NULL;
}

/* One node with copies of its children's nodes, and references on the owners
 * of everything it borrows. The same allocation contains, after `kept`: the
 * copies, the pointers to the first n_children of them, and the list of
 * buffers. */
typedef struct built {
    ad_owner base;
    struct ArrowArray node;
    size_t n_kept;
    ad_owner *kept[]; /* spec->owner, then one per copied node */
} built;

static void
built_destroy(ad_owner *base)
{
    built *self = (built *)base;
    for (size_t i = 0; i < self->n_kept; i++) {
        ad_owner_unref(self->kept[i]);
    }
    free(self);
}

static ad_owner *const *
built_members(const ad_owner *base, size_t *n)
{
    const built *self = (const built *)base;
    *n = self->n_kept;
    return self->kept;
}

static const ad_owner_ops built_ops = {
    .destroy = built_destroy,
    .members = built_members,
    .name = "built array",
};

static void
copy_view(struct ArrowArray *copy, const ad_array *view)
{
    *copy = *view->node;
    copy->offset = view->offset;
    copy->length = view->length;
    copy->null_count = ad_array_null_count(view);
    copy->release = ad_array_never_released;
    copy->private_data = NULL;
}

static size_t
built_size(const ad_array_spec *spec, size_t n_copies)
{
    return sizeof(built) + (1 + n_copies) * sizeof(ad_owner *) +
           n_copies * sizeof(struct ArrowArray) +
           (size_t)spec->n_children * sizeof(struct ArrowArray *) +
           (size_t)spec->n_buffers * sizeof(void *);
}

static void
built_fill(built *self, const ad_array_spec *spec, size_t n_copies)
{
    size_t n_children = (size_t)spec->n_children;
    struct ArrowArray *copies = (struct ArrowArray *)&self->kept[1 + n_copies];
    struct ArrowArray **list = (struct ArrowArray **)&copies[n_copies];
    const void **buffers = (const void **)&list[n_children];
    self->node = (struct ArrowArray){
        .length = spec->length,
        .null_count = spec->null_count,
        .offset = spec->offset,
        .n_buffers = spec->n_buffers,
        .n_children = spec->n_children,
        .buffers = spec->n_buffers > 0 ? buffers : NULL,
        .children = n_children > 0 ? list : NULL,
        .dictionary = spec->dictionary != NULL ? &copies[n_children] : NULL,
        .release = ad_array_never_released,
    };
    for (int64_t i = 0; i < spec->n_buffers; i++) {
        buffers[i] = spec->buffers[i];
    }
    self->n_kept = 1 + n_copies;
    self->kept[0] = spec->memory.owner;
    for (size_t i = 0; i < n_copies; i++) {
        const ad_array *view =
            i < n_children ? &spec->children[i] : spec->dictionary;
        copy_view(&copies[i], view);
        self->kept[1 + i] = ad_owner_ref(view->memory.owner);
    }
    for (size_t i = 0; i < n_children; i++) {
        list[i] = &copies[i];
    }
}

static bool
any_readonly(const ad_array_spec *spec)
{
    bool readonly = spec->memory.readonly;
    for (int64_t i = 0; i < spec->n_children; i++) {
        readonly |= spec->children[i].memory.readonly;
    }
    return readonly ||
           (spec->dictionary != NULL && spec->dictionary->memory.readonly);
}

ad_status
ad_array_build(const ad_array_spec *spec, ad_array *out, ad_error *err)
{
    size_t n_copies = (size_t)spec->n_children + (spec->dictionary != NULL);
    size_t nbytes = built_size(spec, n_copies);
    built *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&self->base, &built_ops);
    if (!spec->is_given) {
        ad_memory_ref(&spec->memory);
    }
    built_fill(self, spec, n_copies);
    *out = (ad_array){
        .node = &self->node,
        .memory = {&self->base, spec->memory.sync, spec->memory.device,
                   any_readonly(spec)},
        .schema = ad_schema_ref(spec->schema),
        .offset = spec->offset,
        .length = spec->length,
        .null_count = spec->null_count,
    };
    /* Some consumers (nanoarrow, polars) require a bitmap if the count is
     * -1. */
    if (spec->null_count == -1) {
        self->node.null_count = ad_array_resolve_null_count(out, -1);
        ad_array_set_null_count(out, self->node.null_count);
    }
    return AD_OK;
}

ad_status
ad_array_build_joined(const ad_joined_inputs *inputs, ad_array_spec *spec,
                      ad_array *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_sync_join(inputs->syncs.items, inputs->syncs.n,
                                  &spec->memory.sync, err));
    spec->memory.device = inputs->has_device ? inputs->device : AD_CPU;
    ad_status status = ad_array_build(spec, out, err);
    ad_sync_unref(spec->memory.sync);
    if (status != AD_OK) {
        return status;
    }
    status = ad_array_validate(spec->schema.node, out->node, err);
    if (status != AD_OK) {
        ad_array_clear(out);
    }
    return status;
}

/* --- arrays without rows ------------------------------------------------- */

/* Memory of all buffers of an array without rows: long enough for one offset,
 * aligned and padded as Arrow recommends. */
static const _Alignas(64) unsigned char zeros[64];

/* The buffer list of every type: no bitmap, then data. Types without a bitmap
 * start at the second entry. */
static const void *const empty_buffers[] = {NULL, zeros, zeros, zeros};

/* A block of nodes, followed by the lists of pointers to them. */
typedef struct empty {
    ad_owner base;
    struct ArrowArray nodes[];
} empty;

static void
empty_destroy(ad_owner *base)
{
    free(base);
}

static const ad_owner_ops empty_ops = {.destroy = empty_destroy,
                                       .name = "empty array"};

typedef struct empty_cursor {
    struct ArrowArray *node;  /* next free node */
    struct ArrowArray **list; /* next free pointer */
} empty_cursor;

static ad_status
fill_empty(const struct ArrowSchema *schema, empty_cursor *at,
           struct ArrowArray **out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    struct ArrowArray *node = at->node++;
    struct ArrowArray **list = at->list;
    at->list += schema->n_children;
    /* The cast is safe: the specification does not let consumers write to the
     * list of buffers. */
    *node = (struct ArrowArray){
        .n_buffers = type.n_buffers,
        .buffers = (const void **)&empty_buffers[type.has_validity ? 0 : 1],
        .n_children = schema->n_children,
        .children = schema->n_children > 0 ? list : NULL,
        .release = ad_array_never_released,
    };
    for (int64_t i = 0; i < schema->n_children; i++) {
        AD_RETURN_IF_ERR(fill_empty(schema->children[i], at, &list[i], err));
    }
    if (schema->dictionary != NULL) {
        AD_RETURN_IF_ERR(
            fill_empty(schema->dictionary, at, &node->dictionary, err));
    }
    *out = node;
    return AD_OK;
}

ad_status
ad_array_empty(ad_schema schema, ad_array *out, ad_error *err)
{
    struct ArrowArray *root;
    size_t n = ad_schema_count_nodes(schema.node);
    size_t nbytes = sizeof(empty) + n * (sizeof(struct ArrowArray) +
                                         sizeof(struct ArrowArray *));
    empty *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(&self->base, &empty_ops);
    empty_cursor at = {self->nodes, (struct ArrowArray **)&self->nodes[n]};
    ad_status status = fill_empty(schema.node, &at, &root, err);
    if (status != AD_OK) {
        ad_owner_unref(&self->base);
        return status;
    }
    *out = (ad_array){
        .node = root,
        .memory = {.owner = &self->base, .device = AD_CPU},
        .schema = ad_schema_ref(schema),
    };
    return AD_OK;
}

/* --- export ----------------------------------------------------------- */

#define NODE struct ArrowArray

/* Buffer lists are not copied: the reference on the owner keeps the originals
 * alive. */
typedef ad_memory contents;

typedef struct arena {
    atomic_size_t live;
    contents kept;
    struct ArrowDeviceArray holder;
    struct ArrowArray nodes[];
} arena;

static inline void
drop_contents(contents kept)
{
    ad_memory_drop(&kept);
}

/* The struct names no stream on which its consumer works, and libcudf releases
 * while its kernels are pending. */
static inline void
note_consumer(const arena *self)
{
    if (self->kept.device.type != ARROW_DEVICE_CPU) {
        ad_owner_record_unnamed(self->kept.owner, self->kept.device,
                                self->kept.sync);
    }
}

static inline int64_t
difference(const struct ArrowArray *parent, const struct ArrowArray *child)
{
    return child->length ^ parent->length;
}

#include "model/export_nodes.inc"

static const struct ArrowArray *
imported_node(const ad_owner *owner)
{
    return owner->ops == &imported_ops
               ? &((const imported *)owner)->array.array
               : NULL;
}

static ad_owner *const *
exported_members(const ad_owner *base, size_t *n)
{
    const imported *self = (const imported *)base;
    *n = 1;
    return &((const arena *)self->array.array.private_data)->kept.owner;
}

static ad_owner *
exported_owner(const struct ArrowArray *root)
{
    return ((const arena *)root->private_data)->kept.owner;
}

static void
own_destroy(ad_owner *base)
{
    imported *self = (imported *)base;
    arena *exported = self->array.array.private_data;
    arena_drop(exported, mark(&self->array.array, exported));
    free(self);
}

/* Of a tree that arrowdev exported before. Its uses are recorded, and no other
 * consumer had it. */
static const ad_owner_ops own_ops = {
    .destroy = own_destroy, .members = exported_members, .name = "own array"};

static bool
is_of(const struct ArrowArray *node, const arena *self)
{
    bool is_own = node->release == node_release && node->private_data == self;
    for (int64_t i = 0; i < node->n_children && is_own; i++) {
        is_own = is_of(node->children[i], self);
    }
    return is_own &&
           (node->dictionary == NULL || is_of(node->dictionary, self));
}

/* False for a tree of another copy of this library, and for one in which a
 * consumer has placed a node of its own. */
static bool
is_own_export(const struct ArrowArray *root)
{
    return root->release == node_release && is_of(root, root->private_data);
}

void
ad_array_holder_free(struct ArrowDeviceArray *holder)
{
    arena *self = (arena *)((char *)holder - offsetof(arena, holder));
    arena_drop(self, HOLDER + mark(&holder->array, self));
}

void
ad_array_holder_free_with_gil(struct ArrowDeviceArray *holder)
{
    arena *self = (arena *)((char *)holder - offsetof(arena, holder));
    contents kept;
    if (arena_leave(self, HOLDER + mark(&holder->array, self), &kept)) {
        ad_sync_unref(kept.sync);
        ad_owner_unref_with_gil(kept.owner);
    }
}

/* A slice of a batch is the offset and the length of the struct. pyarrow and
 * pandas accept no record batch with an offset, and give rows behind the end of
 * one whose columns are longer. So the columns are sliced instead, unless a
 * bitmap of the struct would need the offset. On a device whole columns stay,
 * since the nulls of a part of them cannot be counted. */
static bool
is_sliced_batch(const ad_array *array, bool has_other_lengths)
{
    if (strcmp(array->schema.node->format, "+s") != 0) {
        return false;
    }
    return array->offset != 0
               ? ad_array_validity(array) == NULL
               : has_other_lengths &&
                     array->memory.device.type == ARROW_DEVICE_CPU;
}

static void
cut_columns(struct ArrowArray *batch, const struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < batch->n_children; i++) {
        struct ArrowArray *column = batch->children[i];
        bool is_null_type = schema->children[i]->format[0] == 'n';
        column->offset += batch->offset;
        column->length = batch->length;
        if (is_null_type) {
            column->null_count = column->length;
        } else if (column->null_count != 0) {
            column->null_count = -1;
        }
    }
    batch->offset = 0;
}

/* Consumers take the id -1 for "this type has no ids". */
static ad_status
fail_unknown_device(const ad_array *array, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(
        err, array->memory.device, "device",
        "name the device when you import, as in device=\"cuda:0\"",
        "an Arrow device array needs the id of the device, and that of %s is "
        "not known",
        ad_device_format(array->memory.device, name));
}

/* All but the node's own members. A slice of a batch without columns needs no
 * offset. */
static inline void
fill_view(const ad_array *array, void *event, struct ArrowDeviceArray *out)
{
    bool is_sliced = array->offset != 0 && array->node->n_children == 0 &&
                     is_sliced_batch(array, false);
    out->array.offset = is_sliced ? 0 : array->offset;
    out->array.length = array->length;
    out->array.null_count = ad_array_null_count(array);
    out->device_id = array->memory.device.id;
    out->device_type = array->memory.device.type;
    out->sync_event = event;
    out->reserved[0] = out->reserved[1] = out->reserved[2] = 0;
}

ad_status
ad_array_export(const ad_array *array, struct ArrowDeviceArray **holder,
                ad_error *err)
{
    void *event = NULL; /* nothing to wait for */
    if (!ad_sync_is_done(array->memory.sync)) {
        AD_RETURN_IF_ERR(ad_sync_event(array->memory.sync, &event, err));
    }
    if (ad_device_is_unknown(array->memory.device)) {
        return fail_unknown_device(array, err);
    }
    size_t n = is_leaf(array->node) ? 0 : count_below(array->node);
    size_t nbytes = sizeof(arena) + n * (sizeof(struct ArrowArray) +
                                         sizeof(struct ArrowArray *));
    arena *self = malloc(nbytes);
    if (self == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    atomic_init(&self->live, HOLDER + n + 1);
    self->kept = ad_memory_ref(&array->memory);
    struct ArrowDeviceArray *out = &self->holder;
    copy_node(&out->array, array->node, self);
    fill_view(array, event, out);
    if (n > 0) {
        cursor at = {self->nodes, (struct ArrowArray **)&self->nodes[n]};
        bool has_other_lengths = fill_below(&out->array, self, &at);
        if (is_sliced_batch(array, has_other_lengths)) {
            cut_columns(&out->array, array->schema.node);
        }
    }
    *holder = out;
    return AD_OK;
}

ad_status
ad_array_export_to(const ad_array *array, struct ArrowDeviceArray *out,
                   ad_error *err)
{
    struct ArrowDeviceArray *holder;
    if (array->memory.device.type == ARROW_DEVICE_CPU &&
        array->memory.sync == NULL && is_leaf(array->node)) {
        copy_single(&out->array, array->node, array->memory.owner);
        fill_view(array, NULL, out);
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_array_export(array, &holder, err));
    *out = *holder;
    leave_holder((arena *)((char *)holder - offsetof(arena, holder)));
    return AD_OK;
}
