/* Rows that say where in a child they are: lists, unions, runs. */
#include "validate/rows.h"

/* --- offsets ---------------------------------------------------------------- */

/* Of n + 1 numbers the first is at least 0, and each one at least `step` more
 * than the one before. Where none is negative, the sign of the difference
 * tells; for vectors without a comparison. */
#define DEFINE_INCREASE(bits)                                                 \
    static inline __attribute__((always_inline)) bool increase_##bits(        \
        const void *numbers, int step, int64_t n)                             \
    {                                                                         \
        const ad_at_any_u##bits *v = numbers;                                 \
        uint##bits##_t broken = v[0];                                         \
        for (int64_t i = 0; i < n; i++) {                                     \
            broken |= (uint##bits##_t)(v[i + 1] |                             \
                                       (v[i + 1] - v[i] - (unsigned)step));   \
        }                                                                     \
        return broken >> (bits - 1) == 0;                                     \
    }

DEFINE_INCREASE(16)
DEFINE_INCREASE(32)
DEFINE_INCREASE(64)

static bool
do_not_decrease(const void *offsets, bool is_wide, int64_t n)
{
    return is_wide ? AD_BY_BLOCK(increase_64, n, offsets, 0)
                   : AD_BY_BLOCK(increase_32, n, offsets, 0);
}

static ad_status
fail_offsets(const void *offsets, bool is_wide, int64_t row, int64_t n,
             int64_t limit, ad_error *err)
{
    int64_t before = ad_offset_at(offsets, is_wide, 0);
    if (before < 0) {
        return ad_fail_row(err, row,
                           "its offset is %" PRId64 ", expected at least 0",
                           before);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = ad_offset_at(offsets, is_wide, i + 1);
        if (offset < before) {
            return ad_fail_row(err, row + i,
                               "its offsets run from %" PRId64 " to %" PRId64
                               ", expected no decrease",
                               before, offset);
        }
        if (offset > limit) {
            return ad_fail_row(err, row + i,
                               "its offsets run from %" PRId64 " to %" PRId64
                               ", past the end at %" PRId64,
                               before, offset, limit);
        }
        before = offset;
    }
    return AD_OK;
}

ad_status
ad_check_offset_block(const void *offsets, bool is_wide, int64_t row,
                      int64_t n, int64_t limit, ad_error *err)
{
    return do_not_decrease(offsets, is_wide, n) &&
                   ad_offset_at(offsets, is_wide, n) <= limit
               ? AD_OK
               : fail_offsets(offsets, is_wide, row, n, limit, err);
}

ad_status
ad_check_lists(ad_check *check, ad_error *err)
{
    bool is_wide = check->type.wide_offsets;
    int64_t limit = check->array->node->children[0]->length;
    int64_t n;
    for (int64_t row = 0; row < check->array->length; row += n) {
        const void *offsets;
        n = ad_block_at(check, row);
        AD_RETURN_IF_ERR(ad_rows_get(check, &check->first, row, n + 1,
                                     is_wide ? 8 : 4, &offsets, err));
        AD_RETURN_IF_ERR(
            ad_check_offset_block(offsets, is_wide, row, n, limit, err));
    }
    return AD_OK;
}

/* --- list views --------------------------------------------------------------- */

static ad_status
fail_list_view(const void *offsets, const void *sizes, bool is_wide,
               int64_t row, int64_t n, int64_t limit, ad_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = ad_offset_at(offsets, is_wide, i);
        int64_t size = ad_offset_at(sizes, is_wide, i);
        if (offset < 0 || size < 0 || offset > limit ||
            size > limit - offset) {
            return ad_fail_row(err, row + i,
                               "its %" PRId64 " values from %" PRId64
                               " on are not within the %" PRId64
                               " of the child",
                               size, offset, limit);
        }
    }
    return AD_OK;
}

/* None of four numbers is negative, or the first that is tells. `bits` must
 * hold the limit. */
#define DEFINE_ARE_WITHIN(name, bits, type)                                   \
    static inline __attribute__((always_inline)) bool name(                   \
        const void *offsets, const void *sizes, int64_t limit, int64_t n)     \
    {                                                                         \
        const type *offset = offsets;                                         \
        const type *size = sizes;                                             \
        uint##bits##_t broken = 0;                                            \
        for (int64_t i = 0; i < n; i++) {                                     \
            uint##bits##_t at = (uint##bits##_t)offset[i];                    \
            uint##bits##_t rest = (uint##bits##_t)limit - at;                 \
            broken |= at | rest | (uint##bits##_t)size[i] |                   \
                      (rest - (uint##bits##_t)size[i]);                       \
        }                                                                     \
        return broken >> (bits - 1) == 0;                                     \
    }

DEFINE_ARE_WITHIN(are_within_32, 32, ad_at_any_i32)
DEFINE_ARE_WITHIN(are_within_32_of_many, 64, ad_at_any_i32)
DEFINE_ARE_WITHIN(are_within_64, 64, ad_at_any_i64)

static bool
are_within(const void *offsets, const void *sizes, bool is_wide, int64_t limit,
           int64_t n)
{
    if (is_wide) {
        return AD_BY_BLOCK(are_within_64, n, offsets, sizes, limit);
    }
    return limit <= INT32_MAX
               ? AD_BY_BLOCK(are_within_32, n, offsets, sizes, limit)
               : are_within_32_of_many(offsets, sizes, limit, n);
}

ad_status
ad_check_list_views(ad_check *check, ad_error *err)
{
    bool is_wide = check->type.wide_offsets;
    int width = is_wide ? 8 : 4;
    int64_t limit = check->array->node->children[0]->length;
    int64_t n;
    for (int64_t row = 0; row < check->array->length; row += n) {
        const void *offsets;
        const void *sizes;
        n = ad_block_at(check, row);
        AD_RETURN_IF_ERR(
            ad_rows_get(check, &check->first, row, n, width, &offsets, err));
        AD_RETURN_IF_ERR(
            ad_rows_get(check, &check->second, row, n, width, &sizes, err));
        if (!are_within(offsets, sizes, is_wide, limit, n)) {
            return fail_list_view(offsets, sizes, is_wide, row, n, limit, err);
        }
    }
    return AD_OK;
}

/* --- unions ------------------------------------------------------------------- */

typedef struct member {
    int64_t length; /* of the child; -1: no child has this type id */
    int64_t least;  /* the next offset into it must not be less */
} member;

static ad_status
read_members(const ad_check *check, member members[256], ad_error *err)
{
    const struct ArrowArray *node = check->array->node;
    int8_t ids[128];
    int n;
    AD_RETURN_IF_ERR(ad_type_union_ids(&check->type, ids, &n, err));
    for (int i = 0; i < 256; i++) {
        members[i] = (member){-1, 0};
    }
    for (int i = 0; i < n && i < node->n_children; i++) {
        members[(uint8_t)ids[i]].length = node->children[i]->length;
    }
    return AD_OK;
}

static ad_status
fail_type_id(const ad_check *check, const ad_at_any_i8 *ids, int64_t row,
             const member members[256], ad_error *err)
{
    while (members[(uint8_t)*ids].length >= 0) {
        ids++;
        row++;
    }
    return ad_fail_row(err, row, "its type id is %d, expected one of %.80s",
                       *ids, check->type.suffix);
}

static ad_status
check_members(const ad_at_any_i8 *ids, const ad_at_any_i32 *offsets,
              int64_t row, int64_t n, member members[256], ad_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        member *m = &members[(uint8_t)ids[i]];
        int64_t offset = offsets[i];
        if (offset >= m->least && offset < m->length) {
            m->least = offset;
            continue;
        }
        if (offset >= 0 && offset < m->length) {
            return ad_fail_row(err, row + i,
                               "its offset is %" PRId64
                               ", less than the one before of type id %d, "
                               "%" PRId64,
                               offset, ids[i], m->least);
        }
        return ad_fail_row(err, row + i,
                           "its offset is %" PRId64
                           ", but the child of type id %d has %" PRId64
                           " values",
                           offset, ids[i], m->length);
    }
    return AD_OK;
}

ad_status
ad_check_union(ad_check *check, ad_error *err)
{
    member members[256];
    int64_t n;
    AD_RETURN_IF_ERR(read_members(check, members, err));
    for (int64_t row = 0; row < check->array->length; row += n) {
        const void *data;
        n = ad_block_at(check, row);
        AD_RETURN_IF_ERR(
            ad_rows_get(check, &check->first, row, n, 1, &data, err));
        const ad_at_any_i8 *ids = data;
        int64_t broken = 0;
        for (int64_t i = 0; i < n; i++) {
            broken |= members[(uint8_t)ids[i]].length;
        }
        if (broken < 0) {
            return fail_type_id(check, ids, row, members, err);
        }
        if (check->type.layout == AD_LAYOUT_DENSE_UNION) {
            AD_RETURN_IF_ERR(
                ad_rows_get(check, &check->second, row, n, 4, &data, err));
            AD_RETURN_IF_ERR(check_members(ids, data, row, n, members, err));
        }
    }
    return AD_OK;
}

/* --- run ends ------------------------------------------------------------------ */

static bool
do_increase(const void *ends, int width, int64_t n)
{
    return width == 2   ? AD_BY_BLOCK(increase_16, n, ends, 1)
           : width == 4 ? AD_BY_BLOCK(increase_32, n, ends, 1)
                        : AD_BY_BLOCK(increase_64, n, ends, 1);
}

/* n + 1 run ends, the first of which is that of `row`. */
static ad_status
fail_run_end(const void *ends, int width, int64_t row, int64_t n,
             ad_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t before = ad_int_at(ends, width, i);
        int64_t end = ad_int_at(ends, width, i + 1);
        if (end <= before) {
            return ad_fail_row(err, row + i + 1,
                               "the run ends at %" PRId64
                               ", expected more than %" PRId64,
                               end, before);
        }
    }
    return AD_OK;
}

/* `check` is that of the parent, and `ends` the child. */
static ad_status
check_ends(const ad_check *check, const ad_array *ends, ad_reader *reader,
           int width, ad_error *err)
{
    int64_t stop = check->array->offset + check->array->length;
    int64_t first = ends->offset;
    int64_t last = ends->length - 1;
    const void *data;
    int64_t n;
    AD_RETURN_IF_ERR(ad_reader_get(reader, first * width, width, &data, err));
    if (ad_int_at(data, width, 0) < 1) {
        return ad_fail_row(err, 0,
                           "the run ends at %" PRId64 ", expected more than 0",
                           ad_int_at(data, width, 0));
    }
    for (int64_t row = 0; row < last; row += n) {
        n = last - row < AD_BLOCK ? last - row : AD_BLOCK;
        AD_RETURN_IF_ERR(ad_reader_get(reader, (first + row) * width,
                                       (n + 1) * width, &data, err));
        if (!do_increase(data, width, n)) {
            return fail_run_end(data, width, row, n, err);
        }
    }
    AD_RETURN_IF_ERR(
        ad_reader_get(reader, (first + last) * width, width, &data, err));
    if (ad_int_at(data, width, 0) < stop) {
        return ad_fail_row(err, last,
                           "the last run ends at %" PRId64
                           ", but the rows of the parent at %" PRId64,
                           ad_int_at(data, width, 0), stop);
    }
    return AD_OK;
}

ad_status
ad_check_run_ends(ad_check *check, ad_error *err)
{
    ad_array ends;
    ad_type type;
    AD_RETURN_IF_ERR(ad_array_child(check->array, 0, &ends, err));
    ad_status status = ad_type_parse(ends.schema.node->format, &type, err);
    if (status == AD_OK && ends.length > 0) {
        int width = type.bit_width / 8;
        ad_reader reader = ad_reader_of(&ends, ends.node->buffers[1],
                                        (ends.offset + ends.length) * width);
        status = check_ends(check, &ends, &reader, width, err);
        ad_reader_clear(&reader);
    }
    ad_array_clear(&ends);
    if (status == AD_ERR_ARROW) {
        ad_error_path_prepend(err, "children[0]");
    }
    return status;
}
