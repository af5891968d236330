/* Checks of every row: offsets, references, strings and values. Blocks of rows
 * are read from the host or, in pieces, from a device. */
#include "validate/validate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owner.h"
#include "base/text.h"
#include "base/unaligned.h"
#include "base/utf8.h"
#include "base/wait.h"
#include "compute/bits.h"
#include "copy/copy.h"
#include "copy/copy_tree.h"
#include "device/backend.h"
#include "model/array.h"
#include "model/type.h"

#define CONSUMER "validate(level=\"full\")"

/* --- reading ------------------------------------------------------------- */

/* Bytes of one read from a device. */
#define PIECE (1 << 20)

/* Reads one buffer, mostly from front to back. On the host it returns the
 * buffer's own memory, else a piece that was read back. */
typedef struct buffer_reader {
    const ad_array *array; /* whose device, event and owner the buffer has */
    const char *data;      /* or a handle */
    int64_t nbytes;        /* bytes past them are never read */
    int width;             /* bytes of an element */
    bool on_host;
    char *piece;
    int64_t first;    /* of the piece */
    int64_t n;        /* bytes in the piece */
    int64_t capacity; /* of the piece */
} buffer_reader;

/* A reader of `n` elements of `width` bytes. */
static buffer_reader
reader_of(const ad_array *array, const void *data, int64_t n, int width)
{
    return (buffer_reader){
        .array = array,
        .data = data,
        .nbytes = n * width,
        .width = width,
        .on_host = ad_host_accessible(array->memory.device),
    };
}

static void
reader_clear(buffer_reader *reader)
{
    free(reader->piece);
    *reader = (buffer_reader){0};
}

static ad_status
reader_fill(buffer_reader *reader, int64_t offset, int64_t nbytes,
            ad_error *err)
{
    const ad_array *array = reader->array;
    int64_t rest = reader->nbytes - offset;
    int64_t n = nbytes > PIECE ? nbytes : PIECE;
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

/* Returns the bytes [offset, offset + nbytes), which must be within the
 * buffer. They are valid until the next call. They may be unaligned: see
 * ad_at_any_i32. */
static inline ad_status
reader_get(buffer_reader *reader, int64_t offset, int64_t nbytes,
           const void **out, ad_error *err)
{
    if (reader->on_host) {
        *out = reader->data + offset;
        return AD_OK;
    }
    if (offset < reader->first ||
        offset + nbytes > reader->first + reader->n) {
        AD_RETURN_IF_ERR(reader_fill(reader, offset, nbytes, err));
    }
    *out = reader->piece + (offset - reader->first);
    return AD_OK;
}

/* --- one node ------------------------------------------------------------ */

/* Rows that are checked at once. Their buffers fit into the L1 cache, and
 * compilers vectorize loops with a constant trip count. */
#define BLOCK 2048

/* Calls `loop(..., n)`, with a constant `n` for a whole block. */
#define BY_BLOCK(loop, n, ...)                                                \
    ((n) == BLOCK ? loop(__VA_ARGS__, BLOCK) : loop(__VA_ARGS__, (n)))

typedef struct node_check {
    const ad_array *array;
    ad_type type;
    buffer_reader validity; /* data NULL: every row is valid */
    buffer_reader first;    /* the next buffer: values, offsets, ids, ... */
    buffer_reader second;   /* the one after that */
    bool has_end;           /* n rows have n + 1 elements of `first` */
    bool only_references;   /* see ad_array_validate_references */
    int64_t n_rows;         /* for check_blocks */
} node_check;

/* Returns the elements of rows [row, row + n); row 0 is the array's offset. */
static inline ad_status
rows_get(const node_check *check, buffer_reader *reader, int64_t row,
         int64_t n, const void **out, ad_error *err)
{
    return reader_get(reader, (check->array->offset + row) * reader->width,
                      n * reader->width, out, err);
}

static inline ad_status
row_is_valid(node_check *check, int64_t row, bool *out, ad_error *err)
{
    const void *byte;
    int64_t bit = check->array->offset + row;
    *out = true;
    if (check->validity.data != NULL) {
        AD_RETURN_IF_ERR(reader_get(&check->validity, bit / 8, 1, &byte, err));
        *out = ad_bitmap_get(byte, bit % 8);
    }
    return AD_OK;
}

/* At most BLOCK rows, and their elements. */
typedef struct row_block {
    int64_t row; /* the first row */
    int64_t n;
    const void *first;
    const void *second; /* NULL if check->second is not read */
} row_block;

/* AD_ERR_ARROW for the first row of the block that breaks the rule. */
typedef ad_status (*block_rule)(node_check *check, const row_block *block,
                                void *context, ad_error *err);

/* AD_ERR_ARROW with the message "row 5: ...". */
static ad_status fail_row(ad_error *err, int64_t row, const char *format, ...)
    AD_PRINTF(3, 4);

static ad_status
fail_row(ad_error *err, int64_t row, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL, "row %" PRId64 ": %s", row,
                   text);
}

/* Applies `rule` to all rows, block after block. */
static ad_status
check_blocks(node_check *check, block_rule rule, void *context, ad_error *err)
{
    row_block block = {0};
    for (; block.row < check->n_rows; block.row += block.n) {
        int64_t rest = check->n_rows - block.row;
        block.n = rest < BLOCK ? rest : BLOCK;
        AD_RETURN_IF_ERR(rows_get(check, &check->first, block.row,
                                  block.n + check->has_end, &block.first,
                                  err));
        if (check->second.width != 0) {
            AD_RETURN_IF_ERR(rows_get(check, &check->second, block.row,
                                      block.n, &block.second, err));
        }
        AD_RETURN_IF_ERR(rule(check, &block, context, err));
    }
    return AD_OK;
}

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
fail_offsets(const row_block *block, bool is_wide, int64_t limit,
             ad_error *err)
{
    const void *offsets = block->first;
    int64_t row = block->row;
    int64_t before = ad_offset_at(offsets, is_wide, 0);
    if (before < 0) {
        return fail_row(err, row,
                        "its offset is %" PRId64 ", expected at least 0",
                        before);
    }
    for (int64_t i = 0; i < block->n; i++) {
        int64_t offset = ad_offset_at(offsets, is_wide, i + 1);
        if (offset < before) {
            return fail_row(err, row + i,
                            "its offsets run from %" PRId64 " to %" PRId64
                            ", expected no decrease",
                            before, offset);
        }
        if (offset > limit) {
            return fail_row(err, row + i,
                            "its offsets run from %" PRId64 " to %" PRId64
                            ", past the end at %" PRId64,
                            before, offset, limit);
        }
        before = offset;
    }
    return AD_OK;
}

/* Checks that the offsets of a block are at least 0, do not decrease, and do
 * not exceed `limit`. */
static ad_status
check_offset_block(const node_check *check, const row_block *block,
                   int64_t limit, ad_error *err)
{
    bool is_wide = check->type.wide_offsets;
    const void *offsets = block->first;
    int64_t n = block->n;
    bool is_sound = is_wide ? BY_BLOCK(increase_64, n, offsets, 0)
                            : BY_BLOCK(increase_32, n, offsets, 0);
    return is_sound && ad_offset_at(offsets, is_wide, n) <= limit
               ? AD_OK
               : fail_offsets(block, is_wide, limit, err);
}

static int64_t
child_length(const node_check *check)
{
    return check->array->node->children[0]->length;
}

static ad_status
check_list_block(node_check *check, const row_block *block, void *context,
                 ad_error *err)
{
    return check_offset_block(check, block, child_length(check), err);
}

/* --- list views ---------------------------------------------------------- */

static ad_status
fail_list_view(const row_block *block, bool is_wide, int64_t limit,
               ad_error *err)
{
    for (int64_t i = 0; i < block->n; i++) {
        int64_t offset = ad_offset_at(block->first, is_wide, i);
        int64_t size = ad_offset_at(block->second, is_wide, i);
        if (offset < 0 || size < 0 || offset > limit ||
            size > limit - offset) {
            return fail_row(err, block->row + i,
                            "its %" PRId64 " values from %" PRId64
                            " on are not within the %" PRId64 " of the child",
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
        return BY_BLOCK(are_within_64, n, offsets, sizes, limit);
    }
    return limit <= INT32_MAX
               ? BY_BLOCK(are_within_32, n, offsets, sizes, limit)
               : are_within_32_of_many(offsets, sizes, limit, n);
}

static ad_status
check_list_view_block(node_check *check, const row_block *block, void *context,
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
read_members(const node_check *check, member members[256], ad_error *err)
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
fail_type_id(const node_check *check, const ad_at_any_i8 *ids, int64_t row,
             const member members[256], ad_error *err)
{
    while (members[(uint8_t)*ids].length >= 0) {
        ids++;
        row++;
    }
    return fail_row(err, row, "its type id is %d, expected one of %.80s", *ids,
                    check->type.suffix);
}

static ad_status
check_members(const node_check *check, const row_block *block,
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
            return fail_row(err, row + i,
                            "its offset is %" PRId64
                            ", less than the one before of type id %d, "
                            "%" PRId64,
                            offset, ids[i], m->least);
        }
        return fail_row(err, row + i,
                        "its offset is %" PRId64
                        ", but the child of type id %d has %" PRId64 " values",
                        offset, ids[i], m->length);
    }
    return AD_OK;
}

static ad_status
check_union_block(node_check *check, const row_block *block, void *context,
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

static ad_status
check_union(node_check *check, ad_error *err)
{
    member members[256];
    AD_RETURN_IF_ERR(read_members(check, members, err));
    return check_blocks(check, check_union_block, members, err);
}

/* --- run ends ------------------------------------------------------------ */

static ad_status
fail_run_end(const row_block *block, int width, ad_error *err)
{
    for (int64_t i = 0; i < block->n; i++) {
        int64_t before = ad_int_at(block->first, width, i);
        int64_t end = ad_int_at(block->first, width, i + 1);
        if (end <= before) {
            return fail_row(err, block->row + i + 1,
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
check_end_block(node_check *check, const row_block *block, void *context,
                ad_error *err)
{
    int width = check->first.width;
    const void *ends = block->first;
    int64_t n = block->n;
    bool is_sound = width == 2   ? BY_BLOCK(increase_16, n, ends, 1)
                    : width == 4 ? BY_BLOCK(increase_32, n, ends, 1)
                                 : BY_BLOCK(increase_64, n, ends, 1);
    return is_sound ? AD_OK : fail_run_end(block, width, err);
}

/* `check` is the check of the child, and `stop` the end of the parent's
 * rows. */
static ad_status
check_ends(node_check *check, int64_t stop, ad_error *err)
{
    int width = check->first.width;
    int64_t last = check->array->length - 1;
    const void *data;
    AD_RETURN_IF_ERR(rows_get(check, &check->first, 0, 1, &data, err));
    if (ad_int_at(data, width, 0) < 1) {
        return fail_row(err, 0,
                        "the run ends at %" PRId64 ", expected more than 0",
                        ad_int_at(data, width, 0));
    }
    AD_RETURN_IF_ERR(check_blocks(check, check_end_block, NULL, err));
    AD_RETURN_IF_ERR(rows_get(check, &check->first, last, 1, &data, err));
    if (ad_int_at(data, width, 0) < stop) {
        return fail_row(err, last,
                        "the last run ends at %" PRId64
                        ", but the rows of the parent at %" PRId64,
                        ad_int_at(data, width, 0), stop);
    }
    return AD_OK;
}

static ad_status
check_run_ends(node_check *check, ad_error *err)
{
    int64_t stop = check->array->offset + check->array->length;
    ad_array ends;
    AD_RETURN_IF_ERR(ad_array_child(check->array, 0, &ends, err));
    node_check of_ends = {
        .array = &ends, .has_end = true, .n_rows = ends.length - 1};
    ad_status status =
        ad_type_parse(ends.schema.node->format, &of_ends.type, err);
    if (status == AD_OK && ends.length > 0) {
        of_ends.first =
            reader_of(&ends, ends.node->buffers[1], ends.offset + ends.length,
                      of_ends.type.bit_width / 8);
        status = check_ends(&of_ends, stop, err);
        reader_clear(&of_ends.first);
    }
    ad_array_clear(&ends);
    if (status == AD_ERR_ARROW) {
        ad_error_path_prepend(err, "children[0]");
    }
    return status;
}

/* --- UTF-8 --------------------------------------------------------------- */

static ad_status
fail_utf8(int64_t row, int64_t at, uint8_t byte, ad_error *err)
{
    return fail_row(err, row,
                    "no character of UTF-8 begins at its byte %" PRId64
                    ", which is 0x%02x",
                    at, byte);
}

/* Checks the bytes [first, end) of one row. */
static ad_status
check_row_utf8(buffer_reader *data, int64_t row, int64_t first, int64_t end,
               ad_error *err)
{
    for (int64_t at = first; at < end;) {
        const void *bytes;
        int64_t n = end - at < PIECE ? end - at : PIECE;
        AD_RETURN_IF_ERR(reader_get(data, at, n, &bytes, err));
        int64_t sound = (int64_t)ad_utf8_prefix(bytes, (size_t)n);
        /* A character that crosses the end of the piece is read with the
         * next one. */
        bool may_be_cut = at + n < end && n - sound < 4;
        if (sound < n && !may_be_cut) {
            return fail_utf8(row, at + sound - first,
                             ((const uint8_t *)bytes)[sound], err);
        }
        at += sound;
    }
    return AD_OK;
}

/* Whether no row begins within a character. */
static bool
begin_characters(const uint8_t *bytes, const void *offsets, bool is_wide,
                 int64_t n)
{
    int64_t first = ad_offset_at(offsets, is_wide, 0);
    int64_t end = ad_offset_at(offsets, is_wide, n);
    bool broken = false;
    for (int64_t i = 1; i < n; i++) {
        int64_t at = ad_offset_at(offsets, is_wide, i);
        broken |= at < end && (bytes[at - first] & 0xc0) == 0x80;
    }
    return !broken;
}

/* Checks the strings of a block whose offsets are valid. It checks all bytes
 * at once first, and each valid row only if that fails. */
static ad_status
check_utf8(node_check *check, const row_block *block, buffer_reader *data,
           ad_error *err)
{
    const void *offsets = block->first;
    int64_t n = block->n;
    bool is_wide = check->type.wide_offsets;
    int64_t first = ad_offset_at(offsets, is_wide, 0);
    int64_t nbytes = ad_offset_at(offsets, is_wide, n) - first;
    if (nbytes <= PIECE) {
        const void *bytes;
        AD_RETURN_IF_ERR(reader_get(data, first, nbytes, &bytes, err));
        if (ad_is_ascii(bytes, (size_t)nbytes) ||
            (ad_utf8_prefix(bytes, (size_t)nbytes) == (size_t)nbytes &&
             begin_characters(bytes, offsets, is_wide, n))) {
            return AD_OK;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = block->row + i;
        bool is_valid;
        AD_RETURN_IF_ERR(row_is_valid(check, row, &is_valid, err));
        if (is_valid) {
            AD_RETURN_IF_ERR(
                check_row_utf8(data, row, ad_offset_at(offsets, is_wide, i),
                               ad_offset_at(offsets, is_wide, i + 1), err));
        }
    }
    return AD_OK;
}

/* --- strings with offsets ------------------------------------------------ */

/* `context` is the reader of the data, whose size is the last offset of the
 * node. */
static ad_status
check_string_block(node_check *check, const row_block *block, void *context,
                   ad_error *err)
{
    buffer_reader *data = context;
    bool is_text =
        check->type.id == AD_TYPE_UTF8 || check->type.id == AD_TYPE_LARGE_UTF8;
    AD_RETURN_IF_ERR(check_offset_block(check, block, data->nbytes, err));
    return is_text && !check->only_references
               ? check_utf8(check, block, data, err)
               : AD_OK;
}

static ad_status
check_strings(node_check *check, ad_error *err)
{
    const ad_array *array = check->array;
    const void *data = array->node->buffers[2];
    bool is_wide = check->type.wide_offsets;
    int width = check->first.width;
    const void *last;
    /* The last offset of the node; the last one of a slice is yet to be
     * checked. */
    AD_RETURN_IF_ERR(reader_get(
        &check->first, (array->node->offset + array->node->length) * width,
        width, &last, err));
    int64_t limit = ad_offset_at(last, is_wide, 0);
    AD_RETURN_IF_ERR(
        rows_get(check, &check->first, array->length, 1, &last, err));
    int64_t end = ad_offset_at(last, is_wide, 0);
    if (end > 0 && data == NULL) {
        return fail_row(err, array->length - 1,
                        "buffers[2] (data) is NULL, but its offsets end at "
                        "%" PRId64,
                        end);
    }
    buffer_reader reader = reader_of(array, data, limit, 1);
    ad_status status = check_blocks(check, check_string_block, &reader, err);
    reader_clear(&reader);
    return status;
}

/* --- views --------------------------------------------------------------- */

#define MAX_INLINE 12

typedef struct views {
    const ad_array *array;
    int64_t n_data;
    buffer_reader sizes;
    buffer_reader data; /* of the data buffer that was read last */
    int64_t current;
    bool is_text;
    bool only_references;
} views;

/* Checks an inline value: zeros behind it, and UTF-8. */
static ad_status
check_inline(const views *self, int64_t row, const uint8_t *view, int32_t size,
             ad_error *err)
{
    /* The mask begins at 12 - size: zeros for the size and the value, ones for
     * the padding. */
    static const uint8_t masks[28] = {
        [16] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff,        0xff, 0xff, 0xff, 0xff, 0xff,
    };
    uint64_t found[2];
    uint64_t mask[2];
    memcpy(found, view, 16);
    memcpy(mask, masks + MAX_INLINE - size, 16);
    if (((found[0] & mask[0]) | (found[1] & mask[1])) != 0) {
        return fail_row(err, row,
                        "the bytes behind its inline value of %" PRId32
                        " bytes are not all 0",
                        size);
    }
    if (self->is_text && !ad_is_ascii(view + 4, MAX_INLINE)) {
        size_t sound = ad_utf8_prefix(view + 4, (size_t)size);
        if (sound < (size_t)size) {
            return fail_utf8(row, (int64_t)sound, view[4 + sound], err);
        }
    }
    return AD_OK;
}

/* Points `data` at variadic buffer `i`, which must exist. */
static ad_status
open_data(views *self, int64_t i, ad_error *err)
{
    const ad_array *array = self->array;
    const void *size;
    if (i == self->current) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(reader_get(&self->sizes, i * 8, 8, &size, err));
    reader_clear(&self->data);
    self->data = reader_of(array, array->node->buffers[2 + i],
                           ad_offset_at(size, true, 0), 1);
    self->current = i;
    return AD_OK;
}

static ad_status
check_outside(views *self, int64_t row, const uint8_t *view, int32_t size,
              ad_error *err)
{
    int32_t index;
    int32_t offset;
    const void *prefix;
    memcpy(&index, view + 8, 4);
    memcpy(&offset, view + 12, 4);
    if (index < 0 || index >= self->n_data) {
        return fail_row(err, row,
                        "its buffer number is %" PRId32
                        ", but there are %" PRId64 " variadic buffers",
                        index, self->n_data);
    }
    AD_RETURN_IF_ERR(open_data(self, index, err));
    if (size > self->data.nbytes || offset < 0 ||
        offset > self->data.nbytes - size) {
        return fail_row(err, row,
                        "its %" PRId32 " bytes from %" PRId32
                        " on are not within the %" PRId64
                        " of variadic buffer %" PRId32,
                        size, offset, self->data.nbytes, index);
    }
    if (self->data.data == NULL) {
        return fail_row(err, row,
                        "variadic buffer %" PRId32 ", which it is in, "
                        "is NULL",
                        index);
    }
    if (self->only_references) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(reader_get(&self->data, offset, 4, &prefix, err));
    if (memcmp(prefix, view + 4, 4) != 0) {
        const uint8_t *p = prefix;
        return fail_row(err, row,
                        "its prefix is %02x%02x%02x%02x, but its value "
                        "begins with %02x%02x%02x%02x",
                        view[4], view[5], view[6], view[7], p[0], p[1], p[2],
                        p[3]);
    }
    return self->is_text ? check_row_utf8(&self->data, row, offset,
                                          (int64_t)offset + size, err)
                         : AD_OK;
}

static ad_status
check_view(views *self, int64_t row, const uint8_t *view, int32_t size,
           ad_error *err)
{
    if (size < 0) {
        return fail_row(err, row,
                        "its size is %" PRId32 ", expected at least 0", size);
    }
    return size > MAX_INLINE ? check_outside(self, row, view, size, err)
                             : check_inline(self, row, view, size, err);
}

static ad_status
check_view_block(node_check *check, const row_block *block, void *context,
                 ad_error *err)
{
    views *self = context;
    const bool only_references = self->only_references;
    for (int64_t i = 0; i < block->n; i++) {
        const uint8_t *view = (const uint8_t *)block->first + i * 16;
        int64_t row = block->row + i;
        int32_t size;
        bool is_valid;
        memcpy(&size, view, 4);
        if (only_references && (uint32_t)size <= MAX_INLINE) {
            continue; /* it refers to nothing */
        }
        AD_RETURN_IF_ERR(row_is_valid(check, row, &is_valid, err));
        if (is_valid) {
            AD_RETURN_IF_ERR(check_view(self, row, view, size, err));
        }
    }
    return AD_OK;
}

static ad_status
check_views(node_check *check, ad_error *err)
{
    const ad_array *array = check->array;
    const void *sizes = array->node->buffers[array->node->n_buffers - 1];
    views self = {
        .array = array,
        .n_data = array->node->n_buffers - 3,
        .current = -1,
        .is_text = check->type.id == AD_TYPE_UTF8_VIEW,
        .only_references = check->only_references,
    };
    self.sizes = reader_of(array, sizes, self.n_data, 8);
    ad_status status = AD_OK;
    if (!self.sizes.on_host && self.n_data > 0) {
        status = ad_sizes_are_on_host(array, sizes, &self.sizes.on_host, err);
    }
    if (status == AD_OK) {
        status = check_blocks(check, check_view_block, &self, err);
    }
    reader_clear(&self.sizes);
    reader_clear(&self.data);
    return status;
}

/* --- valid rows ---------------------------------------------------------- */

/* A rule for single values. */
typedef struct rule {
    uint64_t limit;   /* integers: the largest valid value */
    uint64_t high[4]; /* decimals: 10 to the precision, lowest word first */
    bool (*hold)(const struct rule *rule, const void *values, int64_t n);
    ad_status (*fail)(const struct rule *rule, const node_check *check,
                      int64_t row, const void *value, ad_error *err);
} rule;

/* The value of a null row may break the rule. */
static ad_status
check_rule_block(node_check *check, const row_block *block, void *context,
                 ad_error *err)
{
    const rule *rule = context;
    if (rule->hold(rule, block->first, block->n)) {
        return AD_OK;
    }
    for (int64_t i = 0; i < block->n; i++) {
        const char *value =
            (const char *)block->first + i * check->first.width;
        int64_t row = block->row + i;
        bool is_valid;
        if (rule->hold(rule, value, 1)) {
            continue;
        }
        AD_RETURN_IF_ERR(row_is_valid(check, row, &is_valid, err));
        if (is_valid) {
            return rule->fail(rule, check, row, value, err);
        }
    }
    return AD_OK;
}

/* --- integers up to a limit ---------------------------------------------- */

/* Compares as unsigned integers, so that negative values exceed the limit. */
#define DEFINE_HOLD(bits)                                                     \
    static inline __attribute__((always_inline)) bool is_up_to_##bits(        \
        const void *values, uint64_t limit, int64_t n)                        \
    {                                                                         \
        const ad_at_any_u##bits *v = values;                                  \
        uint##bits##_t most = (uint##bits##_t)limit;                          \
        uint##bits##_t broken = 0;                                            \
        for (int64_t i = 0; i < n; i++) {                                     \
            broken |= (uint##bits##_t)(v[i] > most);                          \
        }                                                                     \
        return broken == 0;                                                   \
    }                                                                         \
    static bool hold_##bits(const rule *rule, const void *values, int64_t n)  \
    {                                                                         \
        return BY_BLOCK(is_up_to_##bits, n, values, rule->limit);             \
    }

DEFINE_HOLD(8)
DEFINE_HOLD(16)
DEFINE_HOLD(32)
DEFINE_HOLD(64)

static void
set_limit(rule *rule, int32_t bit_width, uint64_t limit)
{
    rule->limit = limit;
    rule->hold = bit_width == 8    ? hold_8
                 : bit_width == 16 ? hold_16
                 : bit_width == 32 ? hold_32
                                   : hold_64;
}

/* --- dictionary indices -------------------------------------------------- */

static bool
is_signed(const ad_type *type)
{
    return type->id == AD_TYPE_INT8 || type->id == AD_TYPE_INT16 ||
           type->id == AD_TYPE_INT32 || type->id == AD_TYPE_INT64;
}

static ad_status
fail_index(const rule *rule, const node_check *check, int64_t row,
           const void *value, ad_error *err)
{
    int width = check->first.width;
    int64_t found = ad_int_at(value, width, 0);
    int64_t n = check->array->node->dictionary->length;
    int unused = 64 - 8 * width;
    if (is_signed(&check->type)) {
        return fail_row(err, row,
                        "index %" PRId64 " into a dictionary of %" PRId64
                        " values",
                        found, n);
    }
    return fail_row(
        err, row, "index %" PRIu64 " into a dictionary of %" PRId64 " values",
        (uint64_t)found << unused >> unused, n);
}

/* No index into an empty dictionary is valid. */
static bool
hold_none(const rule *rule, const void *values, int64_t n)
{
    return false;
}

static ad_status
check_indices(node_check *check, ad_error *err)
{
    int bits = check->type.bit_width;
    int64_t n = check->array->node->dictionary->length;
    uint64_t most = UINT64_MAX >> (64 - bits + is_signed(&check->type));
    rule rule = {.fail = fail_index};
    set_limit(&rule, bits, (uint64_t)n - 1 < most ? (uint64_t)n - 1 : most);
    if (n == 0) {
        rule.hold = hold_none;
    }
    return check_blocks(check, check_rule_block, &rule, err);
}

/* --- times and dates ----------------------------------------------------- */

static ad_status
fail_time(const rule *rule, const node_check *check, int64_t row,
          const void *value, ad_error *err)
{
    return fail_row(err, row,
                    "the time is %" PRId64 ", expected 0 to %" PRIu64
                    ", the end of the day",
                    ad_int_at(value, check->first.width, 0), rule->limit);
}

static ad_status
check_times(node_check *check, ad_error *err)
{
    char unit = check->type.unit;
    uint64_t per_second = unit == 's'   ? 1
                          : unit == 'm' ? 1000
                          : unit == 'u' ? 1000000
                                        : 1000000000;
    rule rule = {.fail = fail_time};
    set_limit(&rule, check->type.bit_width, 86400 * per_second - 1);
    return check_blocks(check, check_rule_block, &rule, err);
}

#define MS_PER_DAY 86400000

static bool
hold_days(const rule *rule, const void *values, int64_t n)
{
    const ad_at_any_i64 *v = values;
    bool broken = false;
    for (int64_t i = 0; i < n; i++) {
        broken |= v[i] % MS_PER_DAY != 0;
    }
    return !broken;
}

static ad_status
fail_days(const rule *rule, const node_check *check, int64_t row,
          const void *value, ad_error *err)
{
    return fail_row(err, row,
                    "the date is %" PRId64
                    " ms, expected a multiple of %d, the length of a day",
                    ad_int_at(value, 8, 0), MS_PER_DAY);
}

/* --- decimals ------------------------------------------------------------ */

/* Checks |v| < high with one comparison: v + high - 1 is in [0, 2 * high -
 * 2]. */
#define DEFINE_HOLD_DECIMAL(bits, type)                                       \
    static bool hold_decimal_##bits(const rule *rule, const void *values,     \
                                    int64_t n)                                \
    {                                                                         \
        type high;                                                            \
        bool broken = false;                                                  \
        memcpy(&high, rule->high, sizeof(high));                              \
        for (int64_t i = 0; i < n; i++) {                                     \
            type value;                                                       \
            memcpy(&value, (const char *)values + i * (int)sizeof(value),     \
                   sizeof(value));                                            \
            broken |= (type)(value + (high - 1)) > (type)(2 * (high - 1));    \
        }                                                                     \
        return !broken;                                                       \
    }

DEFINE_HOLD_DECIMAL(32, uint32_t)
DEFINE_HOLD_DECIMAL(64, uint64_t)
__extension__ typedef unsigned __int128 uint128;
DEFINE_HOLD_DECIMAL(128, uint128)

/* Writes the absolute value of a number of `width` bytes. Returns whether the
 * number is negative. */
static bool
absolute(const void *value, int width, uint64_t out[4])
{
    int n = (width + 7) / 8;
    uint64_t borrow = 1;
    memset(out, 0, 4 * sizeof(out[0]));
    memcpy(out, value, (size_t)width);
    if (width == 4) {
        out[0] = (uint64_t)(int64_t)(int32_t)out[0];
    }
    if ((int64_t)out[n - 1] >= 0) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        out[i] = ~out[i] + borrow;
        borrow &= out[i] == 0;
    }
    return true;
}

static bool
hold_decimal_256(const rule *rule, const void *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t found[4];
        int word = 3;
        absolute((const char *)values + 32 * i, 32, found);
        while (word > 0 && found[word] == rule->high[word]) {
            word--;
        }
        if (found[word] >= rule->high[word]) {
            return false;
        }
    }
    return true;
}

/* Divides in place and returns the remainder. */
static uint32_t
divide(uint64_t words[4], uint32_t by)
{
    uint64_t rest = 0;
    for (int i = 3; i >= 0; i--) {
        uint64_t high = rest << 32 | words[i] >> 32;
        uint64_t low = (high % by) << 32 | (words[i] & 0xffffffff);
        words[i] = (high / by) << 32 | low / by;
        rest = low % by;
    }
    return (uint32_t)rest;
}

static ad_status
fail_decimal(const rule *rule, const node_check *check, int64_t row,
             const void *value, ad_error *err)
{
    uint64_t words[4];
    char digits[80];
    char *at = digits + sizeof(digits) - 1;
    bool is_negative = absolute(value, check->first.width, words);
    *at = '\0';
    do {
        *--at = (char)('0' + divide(words, 10));
    } while ((words[0] | words[1] | words[2] | words[3]) != 0);
    return fail_row(err, row,
                    "%s%s (without its scale) has more than %d digits",
                    is_negative ? "-" : "", at, check->type.precision);
}

static ad_status
check_decimals(node_check *check, ad_error *err)
{
    int bits = check->type.bit_width;
    rule rule = {.high = {1}, .fail = fail_decimal};
    for (int i = 0; i < check->type.precision; i++) {
        uint64_t carry = 0;
        for (int word = 0; word < 4; word++) {
            uint128 product = (uint128)rule.high[word] * 10 + carry;
            rule.high[word] = (uint64_t)product;
            carry = (uint64_t)(product >> 64);
        }
    }
    rule.hold = bits == 32    ? hold_decimal_32
                : bits == 64  ? hold_decimal_64
                : bits == 128 ? hold_decimal_128
                              : hold_decimal_256;
    return check_blocks(check, check_rule_block, &rule, err);
}

/* --- values -------------------------------------------------------------- */

static ad_status
check_values(node_check *check, ad_error *err)
{
    if (check->array->node->dictionary != NULL) {
        return check_indices(check, err);
    }
    if (check->only_references) {
        return AD_OK;
    }
    switch (check->type.id) {
        case AD_TYPE_TIME32:
        case AD_TYPE_TIME64:
            return check_times(check, err);
        case AD_TYPE_DATE64: {
            rule days = {.hold = hold_days, .fail = fail_days};
            return check_blocks(check, check_rule_block, &days, err);
        }
        case AD_TYPE_DECIMAL:
            return check_decimals(check, err);
        default:
            return AD_OK; /* every bit pattern is valid */
    }
}

/* --- nulls --------------------------------------------------------------- */

#define BITS_PER_PIECE ((int64_t)8 * PIECE)

static ad_status
count_nulls(node_check *check, int64_t *out, ad_error *err)
{
    int64_t n;
    *out = 0;
    for (int64_t row = 0; row < check->array->length; row += n) {
        const void *bits;
        int64_t rest = check->array->length - row;
        int64_t first = check->array->offset + row;
        n = rest < BITS_PER_PIECE ? rest : BITS_PER_PIECE;
        AD_RETURN_IF_ERR(reader_get(&check->validity, first / 8,
                                    ad_bitmap_bytes(first + n) - first / 8,
                                    &bits, err));
        *out += ad_bitmap_count_zeros(bits, first % 8, n);
    }
    return AD_OK;
}

static ad_status
check_null_count(node_check *check, ad_error *err)
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
check_has_no_null(node_check *check, const char *what, ad_error *err)
{
    int64_t n_nulls;
    bool is_valid = true;
    if (check->validity.data == NULL) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(count_nulls(check, &n_nulls, err));
    for (int64_t row = 0; n_nulls > 0; row++) {
        AD_RETURN_IF_ERR(row_is_valid(check, row, &is_valid, err));
        if (!is_valid) {
            return fail_row(err, row, "it is null, but %s never are", what);
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
open_check(node_check *check, const ad_array *array, const ad_type *type)
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
    *check = (node_check){
        .array = array,
        .type = *type,
        .validity =
            reader_of(array, type->has_validity ? node->buffers[0] : NULL,
                      ad_bitmap_bytes(end), 1),
        .first = reader_of(array, n > 0 ? buffers[0] : NULL, n_first, first),
        .second = reader_of(array, n > 1 ? buffers[1] : NULL, end, second),
        .has_end = has_end,
        .n_rows = array->length,
    };
}

static ad_status
check_buffers(node_check *check, ad_error *err)
{
    switch (check->type.layout) {
        case AD_LAYOUT_FIXED:
            return check_values(check, err);
        case AD_LAYOUT_OFFSETS:
            return check_strings(check, err);
        case AD_LAYOUT_VIEWS:
            return check_views(check, err);
        case AD_LAYOUT_LIST:
            return check_blocks(check, check_list_block, NULL, err);
        case AD_LAYOUT_LIST_VIEW:
            return check_blocks(check, check_list_view_block, NULL, err);
        case AD_LAYOUT_SPARSE_UNION:
        case AD_LAYOUT_DENSE_UNION:
            return check_union(check, err);
        case AD_LAYOUT_NONE:
        case AD_LAYOUT_VALIDITY:
            break;
    }
    return check->type.id == AD_TYPE_RUN_END ? check_run_ends(check, err)
                                             : AD_OK;
}

/* `forbidden`: see never_null(). */
static ad_status
check_own(const ad_array *array, const ad_type *type, bool only_references,
          const char *forbidden, ad_error *err)
{
    node_check check;
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
    reader_clear(&check.validity);
    reader_clear(&check.first);
    reader_clear(&check.second);
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

/* --- notes --------------------------------------------------------------- */

/* A node on the path from the root. */
typedef struct step {
    const struct step *above; /* NULL: the root */
    int64_t i;                /* number of the child; -1: the dictionary */
} step;

static ad_status
add_path(ad_text *out, const step *at, ad_error *err)
{
    if (at->above->above != NULL) {
        AD_RETURN_IF_ERR(add_path(out, at->above, err));
        AD_RETURN_IF_ERR(ad_text_append(out, ".", err));
    }
    return at->i < 0
               ? ad_text_append(out, "dictionary", err)
               : ad_text_printf(out, err, "children[%" PRId64 "]", at->i);
}

static ad_status
note(ad_text *out, const step *at, const char *text, ad_error *err)
{
    if (at->above != NULL) {
        AD_RETURN_IF_ERR(add_path(out, at, err));
        AD_RETURN_IF_ERR(ad_text_append(out, ": ", err));
    }
    AD_RETURN_IF_ERR(ad_text_append(out, text, err));
    return ad_text_append(out, "\n", err);
}

/* --- notes on the device array ------------------------------------------- */

static ad_status
note_device(const ad_array *array, const step *root, ad_text *out,
            ad_error *err)
{
    bool is_cpu = array->memory.device.type == ARROW_DEVICE_CPU;
    if (array->had_event) {
        AD_RETURN_IF_ERR(
            note(out, root,
                 "a CPU array should have no sync_event, because host memory "
                 "has no event type; it is ignored, and the data are taken as "
                 "ready (specification, \"Synchronization event types\")",
                 err));
    } else if (array->memory.sync != NULL &&
               (ad_device_traits(array->memory.device.type) & AD_NO_EVENTS) !=
                   0) {
        AD_RETURN_IF_ERR(
            note(out, root,
                 "the device type has no event type, so sync_event should be "
                 "NULL; it is carried and not interpreted (specification, "
                 "\"Synchronization event types\")",
                 err));
    }
    if (is_cpu && array->memory.device.id != -1) {
        AD_RETURN_IF_ERR(
            note(out, root,
                 "a CPU array should have device_id -1 (specification, "
                 "\"ArrowDeviceArray.device_id\")",
                 err));
    }
    return AD_OK;
}

/* --- notes on nodes ------------------------------------------------------ */

static ad_status
note_node(const struct ArrowSchema *schema, const struct ArrowArray *node,
          const step *at, ad_text *out, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    bool has_end =
        type.layout == AD_LAYOUT_OFFSETS || type.layout == AD_LAYOUT_LIST;
    if (has_end && node->buffers[1] == NULL) {
        AD_RETURN_IF_ERR(
            note(out, at,
                 "the offsets buffer is NULL, but should hold one offset even "
                 "without rows (columnar format, \"Variable-size Binary "
                 "Layout\")",
                 err));
    }
    if (!(schema->flags & ARROW_FLAG_NULLABLE) && node->null_count > 0) {
        AD_RETURN_IF_ERR(
            note(out, at,
                 "there are nulls, but the schema says that it is not "
                 "nullable (C data interface, \"ArrowSchema.flags\")",
                 err));
    }
    for (int64_t i = 0; i < node->n_children; i++) {
        const step below = {at, i};
        AD_RETURN_IF_ERR(note_node(schema->children[i], node->children[i],
                                   &below, out, err));
    }
    if (node->dictionary != NULL) {
        const step below = {at, -1};
        return note_node(schema->dictionary, node->dictionary, &below, out,
                         err);
    }
    return AD_OK;
}

ad_status
ad_array_notes(const ad_array *array, ad_text *out, ad_error *err)
{
    const step root = {NULL, 0};
    AD_RETURN_IF_ERR(note_device(array, &root, out, err));
    return note_node(array->schema.node, array->node, &root, out, err);
}
