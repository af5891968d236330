#include "model/schema_cast.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "model/extension.h"
#include "model/type.h"

/* --- types --------------------------------------------------------------- */

static bool
is_time(const ad_type *type)
{
    return type->id >= AD_TYPE_DATE32 && type->id <= AD_TYPE_DURATION;
}

static bool
is_number(const ad_type *type)
{
    return type->id == AD_TYPE_INT32 || type->id == AD_TYPE_INT64;
}

/* A point in time is the same in every time zone, but is undefined without a
 * zone. */
static bool
differ_in_time_zone_only(const ad_type *from, const ad_type *to)
{
    return from->id == AD_TYPE_TIMESTAMP && to->id == AD_TYPE_TIMESTAMP &&
           from->unit == to->unit && from->suffix[0] != '\0' &&
           to->suffix[0] != '\0';
}

static bool
same_storage(const char *a, const char *b)
{
    ad_type from, to;
    if (ad_type_parse(a, &from, NULL) != AD_OK ||
        ad_type_parse(b, &to, NULL) != AD_OK) {
        return false;
    }
    return differ_in_time_zone_only(&from, &to) ||
           (from.bit_width == to.bit_width &&
            ((is_number(&from) && is_time(&to)) ||
             (is_time(&from) && is_number(&to))));
}

static bool
same_layout(const struct ArrowSchema *from, const struct ArrowSchema *to)
{
    return from->n_children == to->n_children &&
           (from->dictionary == NULL) == (to->dictionary == NULL) &&
           strcmp(from->format, to->format) == 0;
}

static bool
same_layout_or_storage(const struct ArrowSchema *from,
                       const struct ArrowSchema *to)
{
    return same_layout(from, to) ||
           (from->n_children == to->n_children && from->dictionary == NULL &&
            to->dictionary == NULL && same_storage(from->format, to->format));
}

bool
ad_schema_cast_fits_type(const struct ArrowSchema *from,
                         const struct ArrowSchema *to,
                         ad_schema_cast_reach reach)
{
    return ad_schema_all(from, to,
                         reach == AD_CAST_STORAGE ? same_layout_or_storage
                                                  : same_layout);
}

static bool
is_float(const ad_type *type)
{
    return type->id >= AD_TYPE_FLOAT16 && type->id <= AD_TYPE_FLOAT64;
}

/* Bytes have any meaning. */
static bool
same_numbers(const ad_type *a, const ad_type *b)
{
    bool same_unit = a->unit == 0 || b->unit == 0 || a->unit == b->unit;
    return a->id == AD_TYPE_FIXED_BINARY || b->id == AD_TYPE_FIXED_BINARY ||
           (is_float(a) == is_float(b) && a->scale == b->scale && same_unit);
}

bool
ad_schema_cast_is_view(const struct ArrowSchema *from,
                       const struct ArrowSchema *to)
{
    ad_type a, b;
    return ad_type_parse(from->format, &a, NULL) == AD_OK &&
           ad_type_parse(to->format, &b, NULL) == AD_OK &&
           ad_type_same_width(&a, &b) && same_numbers(&a, &b) &&
           to->dictionary == NULL;
}

/* --- fields -------------------------------------------------------------- */

static const char *
name_of(const struct ArrowSchema *node)
{
    return node->name != NULL ? node->name : "";
}

/* True for structs and unions. */
static bool
has_fields(const struct ArrowSchema *node)
{
    return strcmp(node->format, "+s") == 0 ||
           strncmp(node->format, "+u", 2) == 0;
}

/* False if a struct or union of `to` has a name at an index where `from` has
 * another one, and `from` has that name at another index. The field was then
 * moved, not renamed. */
static bool
keeps_fields(const struct ArrowSchema *from, const struct ArrowSchema *to)
{
    for (int64_t i = 0; has_fields(from) && i < from->n_children; i++) {
        const char *name = name_of(to->children[i]);
        bool is_same = strcmp(name, name_of(from->children[i])) == 0;
        for (int64_t k = 0; !is_same && k < from->n_children; k++) {
            if (strcmp(name, name_of(from->children[k])) == 0) {
                return false;
            }
        }
    }
    return true;
}

/* --- requests ------------------------------------------------------------ */

bool
ad_schema_cast_has_fields(const struct ArrowSchema *node)
{
    bool found = has_fields(node);
    for (int64_t i = 0; i < node->n_children && !found; i++) {
        found = ad_schema_cast_has_fields(node->children[i]);
    }
    return found || (node->dictionary != NULL &&
                     ad_schema_cast_has_fields(node->dictionary));
}

const struct ArrowSchema *
ad_schema_cast_values(const struct ArrowSchema *node)
{
    for (int depth = 0; depth < AD_MAX_DEPTH; depth++) {
        if (node->dictionary != NULL) {
            node = node->dictionary;
        } else if (strcmp(node->format, "+r") == 0) {
            node = node->children[1];
        } else {
            break;
        }
    }
    return node;
}

/* Copies the types of `wanted`, with the field names of `own`. *out stays
 * without a node if a struct or union has other fields. */
static ad_status
build_request(const struct ArrowSchema *own, const struct ArrowSchema *wanted,
              const char *name, ad_schema *out, ad_error *err)
{
    size_t n = (size_t)wanted->n_children + (wanted->dictionary != NULL);
    ad_schema *below = calloc(n + 1, sizeof(*below));
    ad_status status = AD_OK;
    if (below == NULL) {
        return ad_fail_memory(err, (n + 1) * sizeof(*below));
    }
    own = ad_schema_cast_values(own);
    bool is_struct = has_fields(wanted);
    bool is_possible =
        !is_struct || (own->n_children == wanted->n_children &&
                       has_fields(own) && keeps_fields(own, wanted));
    bool is_list = own->n_children == 1 && wanted->n_children == 1;
    for (size_t i = 0; i < n && is_possible && status == AD_OK; i++) {
        bool is_child = (int64_t)i < wanted->n_children;
        const struct ArrowSchema *child =
            is_child ? wanted->children[i] : wanted->dictionary;
        const struct ArrowSchema *source =
            is_child && (is_struct || is_list) ? own->children[i] : own;
        status = build_request(source, child,
                               is_struct ? source->name : child->name,
                               &below[i], err);
        is_possible = below[i].node != NULL;
    }
    if (status == AD_OK && is_possible) {
        const ad_schema_spec spec = {
            .format = wanted->format,
            .name = name,
            .metadata = wanted->metadata,
            .flags = wanted->flags,
            .n_children = wanted->n_children,
            .children = below,
            .dictionary = wanted->dictionary != NULL ? &below[n - 1] : NULL,
        };
        status = ad_schema_build(&spec, out, err);
    }
    for (size_t i = 0; i < n; i++) {
        ad_schema_unref(below[i]);
    }
    free(below);
    return status;
}

ad_status
ad_schema_cast_request(const struct ArrowSchema *own,
                       const struct ArrowSchema *wanted, ad_schema *out,
                       ad_error *err)
{
    *out = (ad_schema){0};
    return ad_schema_cast_fits_type(own, wanted, AD_CAST_LAYOUT)
               ? AD_OK
               : build_request(own, wanted, wanted->name, out, err);
}

/* --- nulls --------------------------------------------------------------- */

/* True if the child has nulls. Where the host cannot count them now, its own
 * schema decides. */
static bool
child_has_nulls(const ad_array *child)
{
    int64_t known = ad_array_resolve_null_count(child, child->null_count);
    if (known >= 0) {
        return known > 0;
    }
    if (!ad_host_accessible(child->memory.device) ||
        !ad_sync_is_done(child->memory.sync)) {
        return child->schema.node->flags & ARROW_FLAG_NULLABLE;
    }
    return ad_bitmap_count_zeros(ad_array_validity(child), child->offset,
                                 child->length) > 0;
}

/* True if a child that has, or may have, nulls would not be nullable. A child
 * that is not nullable itself may have them: a producer that was asked for
 * such a type may only have named it so. */
static bool
child_loses_nulls(const ad_array *array, const struct ArrowSchema *to)
{
    for (int64_t i = 0; i < array->node->n_children; i++) {
        const struct ArrowSchema *wanted = to->children[i];
        ad_array child = ad_array_borrow_below(
            array, i, 0, array->node->children[i]->length);
        if ((!(wanted->flags & ARROW_FLAG_NULLABLE) &&
             child_has_nulls(&child)) ||
            child_loses_nulls(&child, wanted)) {
            return true;
        }
    }
    return false;
}

ad_schema_cast_result
ad_schema_cast_check(const ad_array *array, int64_t null_count,
                     const struct ArrowSchema *wanted,
                     ad_schema_cast_reach reach)
{
    const struct ArrowSchema *own = array->schema.node;
    if (!ad_schema_cast_fits_type(own, wanted, reach)) {
        return AD_CAST_OTHER_TYPE;
    }
    if (!ad_schema_all(own, wanted, ad_extension_same_elements)) {
        return AD_CAST_MOVES_ELEMENTS;
    }
    if (!ad_schema_all(own, wanted, keeps_fields)) {
        return AD_CAST_MOVES_FIELDS;
    }
    bool loses_own = !(wanted->flags & ARROW_FLAG_NULLABLE) && null_count != 0;
    return loses_own || child_loses_nulls(array, wanted) ? AD_CAST_LOSES_NULLS
                                                         : AD_CAST_FITS;
}
