/* Checks lists, unions and runs: rows that refer to a child. */
#include "validate/rows.h"

/* --- offsets ------------------------------------------------------------- */

/* Whether the first of n + 1 numbers is at least 0, and each following one is
 * at least `step` more than the one before. If no number is negative, the sign
 * of the difference is enough; so the loop vectorizes without a comparison. */
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

static ad_status
fail_offsets(const ad_block *block, bool is_wide, int64_t limit, ad_error *err)
{
    const void *offsets = block->first;
    int64_t row = block->row;
    int64_t before = ad_offset_at(offsets, is_wide, 0);
    if (before < 0) {
        return ad_fail_row(err, row,
                           "its offset is %" PRId64 ", expected at least 0",
                           before);
    }
    for (int64_t i = 0; i < block->n; i++) {
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
ad_check_offset_block(const ad_check *check, const ad_block *block,
                      int64_t limit, ad_error *err)
{
    bool is_wide = check->type.wide_offsets;
    const void *offsets = block->first;
    int64_t n = block->n;
    bool is_sound = is_wide ? AD_BY_BLOCK(increase_64, n, offsets, 0)
                            : AD_BY_BLOCK(increase_32, n, offsets, 0);
    return is_sound && ad_offset_at(offsets, is_wide, n) <= limit
               ? AD_OK
               : fail_offsets(block, is_wide, limit, err);
}

static int64_t
child_length(const ad_check *check)
{
    return check->array->node->children[0]->length;
}

ad_status
ad_check_list_block(ad_check *check, const ad_block *block, void *context,
                    ad_error *err)
{
    return ad_check_offset_block(check, block, child_length(check), err);
}

/* --- list views ---------------------------------------------------------- */

static ad_status
fail_list_view(const ad_block *block, bool is_wide, int64_t limit,
               ad_error *err)
{
    for (int64_t i = 0; i < block->n; i++) {
        int64_t offset = ad_offset_at(block->first, is_wide, i);
        int64_t size = ad_offset_at(block->second, is_wide, i);
        if (offset < 0 || size < 0 || offset > limit ||
            size > limit - offset) {
            return ad_fail_row(err, block->row + i,
                               "its %" PRId64 " values from %" PRId64
                               " on are not within the %" PRId64
                               " of the child",
                               size, offset, limit);
        }
    }
    return AD_OK;
}

/* Whether all lists are within the child. The sign bits of the offset, the
 * size and the two differences are 0 for a valid row, and one of them is 1 for
 * an invalid one. `bits` must hold the limit. */
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
ad_check_list_view_block(ad_check *check, const ad_block *block, void *context,
                         ad_error *err)
{
    bool is_wide = check->type.wide_offsets;
    int64_t limit = child_length(check);
    return are_within(block->first, block->second, is_wide, limit, block->n)
               ? AD_OK
               : fail_list_view(block, is_wide, limit, err);
}

/* --- unions -------------------------------------------------------------- */

typedef struct member {
    int64_t length; /* of the child; -1: no child has this type id */
    int64_t least;  /* the smallest valid next offset */
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
check_members(const ad_check *check, const ad_block *block,
              member members[256], ad_error *err)
{
    const ad_at_any_i8 *ids = block->first;
    const ad_at_any_i32 *offsets = block->second;
    int64_t row = block->row;
    for (int64_t i = 0; i < block->n; i++) {
        member *m = &members[(uint8_t)ids[i]];
        int64_t offset = offsets[i];
        if (offset >= m->least && offset < m->length) {
            m->least = check->only_references ? 0 : offset;
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

static ad_status
check_union_block(ad_check *check, const ad_block *block, void *context,
                  ad_error *err)
{
    member *members = context;
    const ad_at_any_i8 *ids = block->first;
    int64_t broken = 0;
    for (int64_t i = 0; i < block->n; i++) {
        broken |= members[(uint8_t)ids[i]].length;
    }
    if (broken < 0) {
        return fail_type_id(check, ids, block->row, members, err);
    }
    return check->type.layout == AD_LAYOUT_DENSE_UNION
               ? check_members(check, block, members, err)
               : AD_OK;
}

ad_status
ad_check_union(ad_check *check, ad_error *err)
{
    member members[256];
    AD_RETURN_IF_ERR(read_members(check, members, err));
    return ad_check_blocks(check, check_union_block, members, err);
}

/* --- run ends ------------------------------------------------------------ */

static ad_status
fail_run_end(const ad_block *block, int width, ad_error *err)
{
    for (int64_t i = 0; i < block->n; i++) {
        int64_t before = ad_int_at(block->first, width, i);
        int64_t end = ad_int_at(block->first, width, i + 1);
        if (end <= before) {
            return ad_fail_row(err, block->row + i + 1,
                               "the run ends at %" PRId64
                               ", expected more than %" PRId64,
                               end, before);
        }
    }
    return AD_OK;
}

/* Each row is a run. Its element is its end, and the next element the end of
 * the next run. */
static ad_status
check_end_block(ad_check *check, const ad_block *block, void *context,
                ad_error *err)
{
    int width = check->first.width;
    const void *ends = block->first;
    int64_t n = block->n;
    bool is_sound = width == 2   ? AD_BY_BLOCK(increase_16, n, ends, 1)
                    : width == 4 ? AD_BY_BLOCK(increase_32, n, ends, 1)
                                 : AD_BY_BLOCK(increase_64, n, ends, 1);
    return is_sound ? AD_OK : fail_run_end(block, width, err);
}

/* `check` is the check of the child, and `stop` the end of the parent's
 * rows. */
static ad_status
check_ends(ad_check *check, int64_t stop, ad_error *err)
{
    int width = check->first.width;
    int64_t last = check->array->length - 1;
    const void *data;
    AD_RETURN_IF_ERR(ad_rows_get(check, &check->first, 0, 1, &data, err));
    if (ad_int_at(data, width, 0) < 1) {
        return ad_fail_row(err, 0,
                           "the run ends at %" PRId64 ", expected more than 0",
                           ad_int_at(data, width, 0));
    }
    AD_RETURN_IF_ERR(ad_check_blocks(check, check_end_block, NULL, err));
    AD_RETURN_IF_ERR(ad_rows_get(check, &check->first, last, 1, &data, err));
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
    int64_t stop = check->array->offset + check->array->length;
    ad_array ends;
    AD_RETURN_IF_ERR(ad_array_child(check->array, 0, &ends, err));
    ad_check of_ends = {
        .array = &ends, .has_end = true, .n_rows = ends.length - 1};
    ad_status status =
        ad_type_parse(ends.schema.node->format, &of_ends.type, err);
    if (status == AD_OK && ends.length > 0) {
        of_ends.first = ad_reader_of(&ends, ends.node->buffers[1],
                                     ends.offset + ends.length,
                                     of_ends.type.bit_width / 8);
        status = check_ends(&of_ends, stop, err);
        ad_reader_clear(&of_ends.first);
    }
    ad_array_clear(&ends);
    if (status == AD_ERR_ARROW) {
        ad_error_path_prepend(err, "children[0]");
    }
    return status;
}
