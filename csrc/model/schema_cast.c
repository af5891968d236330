#include "model/schema_cast.h"

#include <string.h>

#include "model/extension.h"
#include "model/type.h"

/* --- types ---------------------------------------------------------------- */

static bool
is_time(const ad_type *type)
{
    return type->id == AD_TYPE_DATE32 || type->id == AD_TYPE_DATE64 ||
           type->id == AD_TYPE_TIME32 || type->id == AD_TYPE_TIME64 ||
           type->id == AD_TYPE_TIMESTAMP || type->id == AD_TYPE_DURATION;
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

bool
ad_schema_cast_is_view(const struct ArrowSchema *from,
                       const struct ArrowSchema *to)
{
    ad_type a, b;
    return ad_type_parse(from->format, &a, NULL) == AD_OK &&
           ad_type_parse(to->format, &b, NULL) == AD_OK &&
           ad_type_same_width(&a, &b) && to->dictionary == NULL;
}

/* --- fields --------------------------------------------------------------- */

static const char *
name_of(const struct ArrowSchema *node)
{
    return node->name != NULL ? node->name : "";
}

/* False if a struct of `to` has a name at an index where `from` has another
 * one, and `from` has that name at another index. The field was then moved,
 * not renamed. */
static bool
keeps_fields(const struct ArrowSchema *from, const struct ArrowSchema *to)
{
    bool is_struct = strcmp(from->format, "+s") == 0;
    for (int64_t i = 0; is_struct && i < from->n_children; i++) {
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

/* --- nulls ---------------------------------------------------------------- */

/* True if a child that has, or may have, nulls would become not nullable. */
static bool
child_loses_nulls(const struct ArrowArray *node,
                  const struct ArrowSchema *from, const struct ArrowSchema *to)
{
    for (int64_t i = 0; i < node->n_children; i++) {
        const struct ArrowArray *child = node->children[i];
        bool may_have_nulls = child->null_count != 0 && child->n_buffers > 0 &&
                              child->buffers[0] != NULL;
        bool is_narrowed = (from->children[i]->flags & ARROW_FLAG_NULLABLE) &&
                           !(to->children[i]->flags & ARROW_FLAG_NULLABLE);
        if ((may_have_nulls && is_narrowed) ||
            child_loses_nulls(child, from->children[i], to->children[i])) {
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
    return loses_own || child_loses_nulls(array->node, own, wanted)
               ? AD_CAST_LOSES_NULLS
               : AD_CAST_FITS;
}
