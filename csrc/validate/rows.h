/* Shared by the files that implement validate.h: readers of host and device
 * buffers, and the state of one node while it is checked.
 */
#ifndef AD_VALIDATE_ROWS_H
#define AD_VALIDATE_ROWS_H

#include <inttypes.h>

#include "model/array.h"
#include "compute/bits.h"
#include "model/type.h"
#include "base/unaligned.h"

/* --- reading ------------------------------------------------------------- */

/* Bytes of one read from a device. */
#define AD_PIECE (1 << 20)

/* Reads one buffer, mostly from front to back. On the host it returns the
 * buffer's own memory, else a piece that was read back. */
typedef struct ad_reader {
    const ad_array *array; /* whose device, event and owner the buffer has */
    const char *data;      /* or a handle */
    int64_t nbytes;        /* bytes past them are never read */
    int width;             /* bytes of an element */
    bool on_host;
    char *piece;
    int64_t first;    /* of the piece */
    int64_t n;        /* bytes in the piece */
    int64_t capacity; /* of the piece */
} ad_reader;

/* A reader of `n` elements of `width` bytes. */
ad_reader ad_reader_of(const ad_array *array, const void *data, int64_t n,
                       int width);
void ad_reader_clear(ad_reader *reader);

AD_MUST_CHECK ad_status ad_reader_fill(ad_reader *reader, int64_t offset,
                                       int64_t nbytes, ad_error *err);

/* Returns the bytes [offset, offset + nbytes), which must be within the
 * buffer. They are valid until the next call. They may be unaligned: see
 * ad_at_any_i32. */
AD_MUST_CHECK static inline ad_status
ad_reader_get(ad_reader *reader, int64_t offset, int64_t nbytes,
              const void **out, ad_error *err)
{
    if (reader->on_host) {
        *out = reader->data + offset;
        return AD_OK;
    }
    if (offset < reader->first ||
        offset + nbytes > reader->first + reader->n) {
        AD_RETURN_IF_ERR(ad_reader_fill(reader, offset, nbytes, err));
    }
    *out = reader->piece + (offset - reader->first);
    return AD_OK;
}

/* --- one node ------------------------------------------------------------ */

/* Rows that are checked at once. Their buffers fit into the L1 cache, and
 * compilers vectorize loops with a constant trip count. */
#define AD_BLOCK 2048

/* Calls `loop(..., n)`, with a constant `n` for a whole block. */
#define AD_BY_BLOCK(loop, n, ...)                                             \
    ((n) == AD_BLOCK ? loop(__VA_ARGS__, AD_BLOCK) : loop(__VA_ARGS__, (n)))

typedef struct ad_check {
    const ad_array *array;
    ad_type type;
    ad_reader validity;   /* data NULL: every row is valid */
    ad_reader first;      /* the next buffer: values, offsets, ids, ... */
    ad_reader second;     /* the one after that */
    bool has_end;         /* n rows have n + 1 elements of `first` */
    bool only_references; /* see ad_array_validate_references */
    int64_t n_rows;       /* for ad_check_blocks */
} ad_check;

/* Returns the elements of rows [row, row + n); row 0 is the array's offset. */
AD_MUST_CHECK static inline ad_status
ad_rows_get(const ad_check *check, ad_reader *reader, int64_t row, int64_t n,
            const void **out, ad_error *err)
{
    return ad_reader_get(reader, (check->array->offset + row) * reader->width,
                         n * reader->width, out, err);
}

AD_MUST_CHECK static inline ad_status
ad_row_is_valid(ad_check *check, int64_t row, bool *out, ad_error *err)
{
    const void *byte;
    int64_t bit = check->array->offset + row;
    *out = true;
    if (check->validity.data != NULL) {
        AD_RETURN_IF_ERR(
            ad_reader_get(&check->validity, bit / 8, 1, &byte, err));
        *out = ad_bitmap_get(byte, bit % 8);
    }
    return AD_OK;
}

/* At most AD_BLOCK rows, and their elements. */
typedef struct ad_block {
    int64_t row; /* the first row */
    int64_t n;
    const void *first;
    const void *second; /* NULL if check->second is not read */
} ad_block;

/* AD_ERR_ARROW for the first row of the block that breaks the rule. */
typedef ad_status (*ad_block_rule)(ad_check *check, const ad_block *block,
                                   void *context, ad_error *err);

/* Applies `rule` to all rows, block after block. */
AD_MUST_CHECK ad_status ad_check_blocks(ad_check *check, ad_block_rule rule,
                                        void *context, ad_error *err);

/* AD_ERR_ARROW with the message "row 5: ...". */
ad_status ad_fail_row(ad_error *err, int64_t row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- the rules ----------------------------------------------------------- */

/* Checks that the offsets of a block are at least 0, do not decrease, and do
 * not exceed `limit`. */
AD_MUST_CHECK ad_status ad_check_offset_block(const ad_check *check,
                                              const ad_block *block,
                                              int64_t limit, ad_error *err);

/* validate/nested.c */
AD_MUST_CHECK ad_status ad_check_list_block(ad_check *check,
                                            const ad_block *block,
                                            void *context, ad_error *err);
AD_MUST_CHECK ad_status ad_check_list_view_block(ad_check *check,
                                                 const ad_block *block,
                                                 void *context, ad_error *err);
AD_MUST_CHECK ad_status ad_check_union(ad_check *check, ad_error *err);
AD_MUST_CHECK ad_status ad_check_run_ends(ad_check *check, ad_error *err);

/* validate/values.c */
AD_MUST_CHECK ad_status ad_check_values(ad_check *check, ad_error *err);

/* validate/strings.c */
AD_MUST_CHECK ad_status ad_check_strings(ad_check *check, ad_error *err);
AD_MUST_CHECK ad_status ad_check_views(ad_check *check, ad_error *err);

#endif /* AD_VALIDATE_ROWS_H */
