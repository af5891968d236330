/* Checks bytes and strings: offsets, views, UTF-8. */
#include <string.h>

#include "copy/copy_tree.h"
#include "base/utf8.h"
#include "validate/rows.h"

/* --- UTF-8 --------------------------------------------------------------- */

static ad_status
fail_utf8(int64_t row, int64_t at, uint8_t byte, ad_error *err)
{
    return ad_fail_row(err, row,
                       "no character of UTF-8 begins at its byte %" PRId64
                       ", which is 0x%02x",
                       at, byte);
}

/* Checks the bytes [first, end) of one row. */
static ad_status
check_row_utf8(ad_reader *data, int64_t row, int64_t first, int64_t end,
               ad_error *err)
{
    for (int64_t at = first; at < end;) {
        const void *bytes;
        int64_t n = end - at < AD_PIECE ? end - at : AD_PIECE;
        AD_RETURN_IF_ERR(ad_reader_get(data, at, n, &bytes, err));
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
check_utf8(ad_check *check, const ad_block *block, ad_reader *data,
           ad_error *err)
{
    const void *offsets = block->first;
    int64_t n = block->n;
    bool is_wide = check->type.wide_offsets;
    int64_t first = ad_offset_at(offsets, is_wide, 0);
    int64_t nbytes = ad_offset_at(offsets, is_wide, n) - first;
    if (nbytes <= AD_PIECE) {
        const void *bytes;
        AD_RETURN_IF_ERR(ad_reader_get(data, first, nbytes, &bytes, err));
        if (ad_is_ascii(bytes, (size_t)nbytes) ||
            (ad_utf8_prefix(bytes, (size_t)nbytes) == (size_t)nbytes &&
             begin_characters(bytes, offsets, is_wide, n))) {
            return AD_OK;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = block->row + i;
        bool is_valid;
        AD_RETURN_IF_ERR(ad_row_is_valid(check, row, &is_valid, err));
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
check_string_block(ad_check *check, const ad_block *block, void *context,
                   ad_error *err)
{
    ad_reader *data = context;
    bool is_text =
        check->type.id == AD_TYPE_UTF8 || check->type.id == AD_TYPE_LARGE_UTF8;
    AD_RETURN_IF_ERR(ad_check_offset_block(check, block, data->nbytes, err));
    return is_text && !check->only_references
               ? check_utf8(check, block, data, err)
               : AD_OK;
}

ad_status
ad_check_strings(ad_check *check, ad_error *err)
{
    const ad_array *array = check->array;
    const void *data = array->node->buffers[2];
    bool is_wide = check->type.wide_offsets;
    int width = check->first.width;
    const void *last;
    /* The last offset of the node; the last one of a slice is yet to be
     * checked. */
    AD_RETURN_IF_ERR(ad_reader_get(
        &check->first, (array->node->offset + array->node->length) * width,
        width, &last, err));
    int64_t limit = ad_offset_at(last, is_wide, 0);
    AD_RETURN_IF_ERR(
        ad_rows_get(check, &check->first, array->length, 1, &last, err));
    int64_t end = ad_offset_at(last, is_wide, 0);
    if (end > 0 && data == NULL) {
        return ad_fail_row(err, array->length - 1,
                           "buffers[2] (data) is NULL, but its offsets end at "
                           "%" PRId64,
                           end);
    }
    ad_reader reader = ad_reader_of(array, data, limit, 1);
    ad_status status =
        ad_check_blocks(check, check_string_block, &reader, err);
    ad_reader_clear(&reader);
    return status;
}

/* --- views --------------------------------------------------------------- */

#define MAX_INLINE 12

typedef struct views {
    const ad_array *array;
    int64_t n_data;
    ad_reader sizes;
    ad_reader data; /* of the data buffer that was read last */
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
        return ad_fail_row(err, row,
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
    AD_RETURN_IF_ERR(ad_reader_get(&self->sizes, i * 8, 8, &size, err));
    ad_reader_clear(&self->data);
    self->data = ad_reader_of(array, array->node->buffers[2 + i],
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
        return ad_fail_row(err, row,
                           "its buffer number is %" PRId32
                           ", but there are %" PRId64 " variadic buffers",
                           index, self->n_data);
    }
    AD_RETURN_IF_ERR(open_data(self, index, err));
    if (size > self->data.nbytes || offset < 0 ||
        offset > self->data.nbytes - size) {
        return ad_fail_row(err, row,
                           "its %" PRId32 " bytes from %" PRId32
                           " on are not within the %" PRId64
                           " of variadic buffer %" PRId32,
                           size, offset, self->data.nbytes, index);
    }
    if (self->data.data == NULL) {
        return ad_fail_row(err, row,
                           "variadic buffer %" PRId32 ", which it is in, "
                           "is NULL",
                           index);
    }
    if (self->only_references) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_reader_get(&self->data, offset, 4, &prefix, err));
    if (memcmp(prefix, view + 4, 4) != 0) {
        const uint8_t *p = prefix;
        return ad_fail_row(err, row,
                           "its prefix is %02x%02x%02x%02x, but its value "
                           "begins with %02x%02x%02x%02x",
                           view[4], view[5], view[6], view[7], p[0], p[1],
                           p[2], p[3]);
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
        return ad_fail_row(
            err, row, "its size is %" PRId32 ", expected at least 0", size);
    }
    return size > MAX_INLINE ? check_outside(self, row, view, size, err)
                             : check_inline(self, row, view, size, err);
}

static ad_status
check_view_block(ad_check *check, const ad_block *block, void *context,
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
        AD_RETURN_IF_ERR(ad_row_is_valid(check, row, &is_valid, err));
        if (is_valid) {
            AD_RETURN_IF_ERR(check_view(self, row, view, size, err));
        }
    }
    return AD_OK;
}

ad_status
ad_check_views(ad_check *check, ad_error *err)
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
    self.sizes = ad_reader_of(array, sizes, self.n_data, 8);
    ad_status status = AD_OK;
    if (!self.sizes.on_host && self.n_data > 0) {
        status = ad_sizes_are_on_host(array, sizes, &self.sizes.on_host, err);
    }
    if (status == AD_OK) {
        status = ad_check_blocks(check, check_view_block, &self, err);
    }
    ad_reader_clear(&self.sizes);
    ad_reader_clear(&self.data);
    return status;
}
