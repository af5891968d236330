#include "validate/validate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/owner.h"
#include "base/wait.h"
#include "copy/copy.h"
#include "validate/rows.h"
#include "device/backend.h"

#define CONSUMER "validate(level=\"full\")"

/* --- reading ------------------------------------------------------------- */

ad_reader
ad_reader_of(const ad_array *array, const void *data, int64_t n, int width)
{
    return (ad_reader){
        .array = array,
        .data = data,
        .nbytes = n * width,
        .width = width,
        .on_host = ad_host_accessible(array->memory.device),
    };
}

void
ad_reader_clear(ad_reader *reader)
{
    free(reader->piece);
    *reader = (ad_reader){0};
}

ad_status
ad_reader_fill(ad_reader *reader, int64_t offset, int64_t nbytes,
               ad_error *err)
{
    const ad_array *array = reader->array;
    int64_t rest = reader->nbytes - offset;
    int64_t n = nbytes > AD_PIECE ? nbytes : AD_PIECE;
    n = n < rest ? n : rest;
    if (n > reader->capacity) {
        char *piece = realloc(reader->piece, (size_t)n);
        if (piece == NULL) {
            return ad_fail_memory(err, (size_t)n);
        }
        reader->piece = piece;
        reader->capacity = n;
    }
    reader->n = 0;
    AD_RETURN_IF_ERR(ad_read_device(array->memory.device, reader->data,
                                    array->memory.owner, (uint64_t)offset,
                                    (size_t)n, array->memory.sync, NULL,
                                    reader->piece, err));
    reader->first = offset;
    reader->n = n;
    return AD_OK;
}

/* --- rows ---------------------------------------------------------------- */

ad_status
ad_fail_row(ad_error *err, int64_t row, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "row %" PRId64 ": %s", row,
                   text);
}

ad_status
ad_check_blocks(ad_check *check, ad_block_rule rule, void *context,
                ad_error *err)
{
    ad_block block = {0};
    for (; block.row < check->n_rows; block.row += block.n) {
        int64_t rest = check->n_rows - block.row;
        block.n = rest < AD_BLOCK ? rest : AD_BLOCK;
        AD_RETURN_IF_ERR(ad_rows_get(check, &check->first, block.row,
                                     block.n + check->has_end, &block.first,
                                     err));
        if (check->second.width != 0) {
            AD_RETURN_IF_ERR(ad_rows_get(check, &check->second, block.row,
                                         block.n, &block.second, err));
        }
        AD_RETURN_IF_ERR(rule(check, &block, context, err));
    }
    return AD_OK;
}

/* --- nulls --------------------------------------------------------------- */

#define BITS_PER_PIECE ((int64_t)8 * AD_PIECE)

static ad_status
count_nulls(ad_check *check, int64_t *out, ad_error *err)
{
    int64_t n;
    *out = 0;
    for (int64_t row = 0; row < check->array->length; row += n) {
        const void *bits;
        int64_t rest = check->array->length - row;
        int64_t first = check->array->offset + row;
        n = rest < BITS_PER_PIECE ? rest : BITS_PER_PIECE;
        AD_RETURN_IF_ERR(ad_reader_get(&check->validity, first / 8,
                                       ad_bitmap_bytes(first + n) - first / 8,
                                       &bits, err));
        *out += ad_bitmap_count_zeros(bits, first % 8, n);
    }
    return AD_OK;
}

static ad_status
check_null_count(ad_check *check, ad_error *err)
{
    int64_t stated = ad_array_null_count(check->array);
    int64_t found;
    if (stated < 0 || check->validity.data == NULL) {
        return AD_OK; /* the check of the structs covers this case */
    }
    AD_RETURN_IF_ERR(count_nulls(check, &found, err));
    if (found != stated) {
        char nulls[AD_COUNT_SIZE];
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "null_count is %" PRId64
                       ", but the validity bitmap has %s",
                       stated, ad_count_text(found, "null", "nulls", nulls));
    }
    if (found == 0) {
        check->validity.data = NULL;
    }
    return AD_OK;
}

/* Checks that no row is null, regardless of the schema's flags. */
static ad_status
check_has_no_null(ad_check *check, const char *what, ad_error *err)
{
    int64_t n_nulls;
    bool is_valid = true;
    if (check->validity.data == NULL) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(count_nulls(check, &n_nulls, err));
    for (int64_t row = 0; n_nulls > 0; row++) {
        AD_RETURN_IF_ERR(ad_row_is_valid(check, row, &is_valid, err));
        if (!is_valid) {
            return ad_fail_row(err, row, "it is null, but %s never are", what);
        }
    }
    return AD_OK;
}

/* --- nodes --------------------------------------------------------------- */

/* The parent of a node, which determines whether the node may have nulls. */
typedef struct parent {
    ad_type_id id;
    bool is_entries; /* the struct of a map */
} parent;

/* The plural name of the rows of child `i` if they must not be null, else
 * NULL. */
static const char *
never_null(parent parent, int64_t i)
{
    if (parent.id == AD_TYPE_MAP) {
        return "entries of maps";
    }
    if (parent.id == AD_TYPE_RUN_END && i == 0) {
        return "run ends";
    }
    return parent.is_entries && i == 0 ? "keys of maps" : NULL;
}

static void
open_check(ad_check *check, const ad_array *array, const ad_type *type)
{
    const struct ArrowArray *node = array->node;
    const void *const *buffers = node->buffers + type->has_validity;
    int64_t n = node->n_buffers - type->has_validity;
    int64_t end = array->offset + array->length;
    bool is_string = type->layout == AD_LAYOUT_OFFSETS;
    bool has_end = is_string || type->layout == AD_LAYOUT_LIST;
    /* The data of strings end at the last offset of the node. */
    int64_t n_first =
        (is_string ? node->offset + node->length : end) + has_end;
    int first = (int)(ad_type_row_bits(type, type->has_validity) / 8);
    int second = (int)(ad_type_row_bits(type, type->has_validity + 1) / 8);
    *check = (ad_check){
        .array = array,
        .type = *type,
        .validity =
            ad_reader_of(array, type->has_validity ? node->buffers[0] : NULL,
                         ad_bitmap_bytes(end), 1),
        .first =
            ad_reader_of(array, n > 0 ? buffers[0] : NULL, n_first, first),
        .second = ad_reader_of(array, n > 1 ? buffers[1] : NULL, end, second),
        .has_end = has_end,
        .n_rows = array->length,
    };
}

static ad_status
check_buffers(ad_check *check, ad_error *err)
{
    switch (check->type.layout) {
        case AD_LAYOUT_FIXED:
            return ad_check_values(check, err);
        case AD_LAYOUT_OFFSETS:
            return ad_check_strings(check, err);
        case AD_LAYOUT_VIEWS:
            return ad_check_views(check, err);
        case AD_LAYOUT_LIST:
            return ad_check_blocks(check, ad_check_list_block, NULL, err);
        case AD_LAYOUT_LIST_VIEW:
            return ad_check_blocks(check, ad_check_list_view_block, NULL, err);
        case AD_LAYOUT_SPARSE_UNION:
        case AD_LAYOUT_DENSE_UNION:
            return ad_check_union(check, err);
        case AD_LAYOUT_NONE:
        case AD_LAYOUT_VALIDITY:
            break;
    }
    return check->type.id == AD_TYPE_RUN_END ? ad_check_run_ends(check, err)
                                             : AD_OK;
}

/* `forbidden`: see never_null(). */
static ad_status
check_own(const ad_array *array, const ad_type *type, bool only_references,
          const char *forbidden, ad_error *err)
{
    ad_check check;
    if (array->length == 0) {
        return AD_OK;
    }
    open_check(&check, array, type);
    check.only_references = only_references;
    ad_status status = only_references ? AD_OK : check_null_count(&check, err);
    if (status == AD_OK && forbidden != NULL && !only_references) {
        status = check_has_no_null(&check, forbidden, err);
    }
    if (status == AD_OK) {
        status = check_buffers(&check, err);
    }
    ad_reader_clear(&check.validity);
    ad_reader_clear(&check.first);
    ad_reader_clear(&check.second);
    return status;
}

static ad_status
check_node(const ad_array *array, parent above, bool only_references,
           const char *forbidden, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(array->schema.node->format, &type, err));
    AD_RETURN_IF_ERR(check_own(array, &type, only_references, forbidden, err));
    const parent here = {type.id, above.id == AD_TYPE_MAP};
    for (int64_t i = 0; i < array->node->n_children; i++) {
        ad_array child;
        AD_RETURN_IF_ERR(ad_array_child(array, i, &child, err));
        ad_status status = check_node(&child, here, only_references,
                                      never_null(here, i), err);
        ad_array_clear(&child);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "children[%" PRId64 "]", i);
            return status;
        }
    }
    if (array->node->dictionary != NULL) {
        ad_array values;
        AD_RETURN_IF_ERR(ad_array_dictionary(array, &values, err));
        ad_status status =
            check_node(&values, (parent){0}, only_references, NULL, err);
        ad_array_clear(&values);
        if (status != AD_OK) {
            ad_error_path_prepend(err, "dictionary");
            return status;
        }
    }
    return AD_OK;
}

ad_status
ad_array_validate_full(const ad_array *array, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_array_validate(array->schema.node, array->node, err));
    AD_RETURN_IF_ERR(
        ad_sync_require_no_capture(array->memory.sync, CONSUMER, err));
    AD_RETURN_IF_ERR(ad_sync_wait(array->memory.sync, CONSUMER, err));
    /* Other threads may write a null count to *array meanwhile. */
    ad_array view;
    ad_array_share(array, &view);
    void *saved = ad_wait_begin();
    ad_status status = check_node(&view, (parent){0}, false, NULL, err);
    ad_wait_end(saved);
    ad_array_clear(&view);
    return status;
}

ad_status
ad_array_validate_references(const ad_array *array, ad_error *err)
{
    void *saved = ad_wait_begin();
    ad_status status = check_node(array, (parent){0}, true, NULL, err);
    ad_wait_end(saved);
    return status;
}
