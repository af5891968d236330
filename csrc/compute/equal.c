/* Equality of arrays and of tensors, on the host. */
#include "compute/equal.h"

#include <stdlib.h>
#include <string.h>

#include "base/unaligned.h"
#include "base/wait.h"
#include "compute/bits.h"
#include "model/extension.h"
#include "model/type.h"

/* Work between two looks for signals, in bytes: some 10 ms. */
#define BETWEEN_LOOKS ((uint64_t)64 << 20)
#define BYTES_OF_A_CALL 16 /* rows_equal() takes as long as so many bytes */

typedef struct comparison {
    void *saved;     /* of ad_wait_begin() */
    uint64_t n_left; /* until the next look */
    bool is_interrupted;
} comparison;

/* A node of both trees. A row is a position in the buffers of its node, so
 * that it includes the node's offset. */
typedef struct pair {
    comparison *whole;
    ad_type type;
    bool is_bfloat;
    const struct ArrowArray *nodes[2];
    const struct pair *below;      /* the children, then the dictionary */
    const struct pair *dictionary; /* NULL: the node has none */
    uint8_t child_of[128];         /* unions: of each type id */
} pair;

static bool rows_equal(const pair *self, int64_t i, int64_t j, int64_t n);

static inline const void *
buffer(const pair *self, int side, int i)
{
    return self->nodes[side]->buffers[i];
}

/* Row `i` of a child, which does not count the child's own offset. */
static inline int64_t
below(const pair *self, int side, int64_t child, int64_t i)
{
    return self->nodes[side]->children[child]->offset + i;
}

/* False once a signal has ended the comparison, which unwinds as if the arrays
 * differed. Overlapping list views stand for any number of rows, so that every
 * call counts. */
static inline bool
go_on(const pair *self, uint64_t n_bytes)
{
    comparison *whole = self->whole;
    if (n_bytes < whole->n_left) {
        whole->n_left -= n_bytes;
        return true;
    }
    if (!whole->is_interrupted) {
        whole->is_interrupted = ad_wait_is_interrupted(whole->saved);
        whole->n_left = whole->is_interrupted ? 0 : BETWEEN_LOOKS;
    }
    return !whole->is_interrupted;
}

/* --- bits ---------------------------------------------------------------- */

#define N_BITS 56 /* they are within 8 bytes, wherever they begin */

static uint64_t
bits_at(const void *bitmap, int64_t at, int64_t n)
{
    const uint8_t *bytes = (const uint8_t *)bitmap + at / 8;
    int shift = (int)(at % 8);
    int64_t n_bytes = (shift + n + 7) / 8;
    uint64_t word = 0;
    if (n_bytes == 8) { /* one load, in a loop that compilers unroll */
        for (int i = 0; i < 8; i++) {
            word |= (uint64_t)bytes[i] << (8 * i);
        }
    } else {
        for (int64_t i = 0; i < n_bytes; i++) {
            word |= (uint64_t)bytes[i] << (8 * i);
        }
    }
    return word >> shift & (((uint64_t)1 << n) - 1);
}

static inline int64_t
at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

static bool
bits_equal(const char *a, int64_t i, const char *b, int64_t j, int64_t n)
{
    if (i % 8 == 0 && j % 8 == 0) {
        int64_t n_bytes = n / 8;
        if (n_bytes > 0 &&
            memcmp(a + i / 8, b + j / 8, (size_t)n_bytes) != 0) {
            return false;
        }
        i += 8 * n_bytes;
        j += 8 * n_bytes;
        n -= 8 * n_bytes;
    }
    for (int64_t done = 0; done < n; done += N_BITS) {
        int64_t part = at_most(n - done, N_BITS);
        if (bits_at(a, i + done, part) != bits_at(b, j + done, part)) {
            return false;
        }
    }
    return true;
}

static bool
bytes_equal(const pair *self, const char *a, const char *b, int64_t n)
{
    return n == 0 ||
           (go_on(self, (uint64_t)n) && memcmp(a, b, (size_t)n) == 0);
}

static const void *
validity(const pair *self, int side)
{
    return self->type.has_validity ? buffer(self, side, 0) : NULL;
}

/* --- numbers ------------------------------------------------------------- */

#define AT_ONCE 1024 /* a loop without an exit is vectorized */

#define DEFINE_FLOATS(type)                                                   \
    static bool type##s_equal(const char *a, const char *b, int64_t n)        \
    {                                                                         \
        bool differ = false;                                                  \
        for (int64_t done = 0; done < n && !differ; done += AT_ONCE) {        \
            int64_t part = at_most(n - done, AT_ONCE);                        \
            for (int64_t i = done; i < done + part; i++) {                    \
                type left, right;                                             \
                memcpy(&left, a + i * (int64_t)sizeof(left), sizeof(left));   \
                memcpy(&right, b + i * (int64_t)sizeof(right),                \
                       sizeof(right));                                        \
                differ |= !(left == right);                                   \
            }                                                                 \
        }                                                                     \
        return !differ;                                                       \
    }

DEFINE_FLOATS(float)
DEFINE_FLOATS(double)

/* `infinity` of floats of 16 bits: numbers with more than its bits are NaN. */
static bool
halves_equal(const ad_at_any_u16 *a, const ad_at_any_u16 *b, int64_t n,
             unsigned infinity)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned left = a[i], right = b[i];
        bool is_equal =
            left == right ? (left & 0x7fff) <= infinity
                          : ((left | right) & 0x7fff) == 0; /* 0.0 and -0.0 */
        if (!is_equal) {
            return false;
        }
    }
    return true;
}

static bool
fixed_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    const char *a = buffer(self, 0, 1);
    const char *b = buffer(self, 1, 1);
    int64_t width = self->type.bit_width / 8;
    if (self->type.bit_width == 1) {
        return bits_equal(a, i, b, j, n);
    }
    if (width == 0) {
        return true;
    }
    a += i * width;
    b += j * width;
    if (self->is_bfloat) {
        return halves_equal((const void *)a, (const void *)b, n, 0x7f80);
    }
    switch (self->type.id) {
        case AD_TYPE_FLOAT16:
            return halves_equal((const void *)a, (const void *)b, n, 0x7c00);
        case AD_TYPE_FLOAT32:
            return floats_equal(a, b, n);
        case AD_TYPE_FLOAT64:
            return doubles_equal(a, b, n);
        default:
            return bytes_equal(self, a, b, n * width);
    }
}

/* --- strings and lists --------------------------------------------------- */

/* Whether n + 1 offsets have the same distances from their first ones. */
#define DEFINE_DISTANCES(bits)                                                \
    static bool distances_##bits##_equal(const void *a, const void *b,        \
                                         int64_t n)                           \
    {                                                                         \
        const ad_at_any_u##bits *left = a;                                    \
        const ad_at_any_u##bits *right = b;                                   \
        uint##bits##_t between = right[0] - left[0];                          \
        uint##bits##_t differ = 0;                                            \
        for (int64_t done = 0; done <= n && differ == 0; done += AT_ONCE) {   \
            int64_t end = done + at_most(n + 1 - done, AT_ONCE);              \
            for (int64_t i = done; i < end; i++) {                            \
                differ |= (right[i] - left[i]) ^ between;                     \
            }                                                                 \
        }                                                                     \
        return differ == 0;                                                   \
    }

DEFINE_DISTANCES(32)
DEFINE_DISTANCES(64)

/* Whether the rows have the same sizes. *a and *b are the first offsets, and
 * *size the sum of the sizes. */
static bool
sizes_equal(const pair *self, int64_t i, int64_t j, int64_t n, int64_t *a,
            int64_t *b, int64_t *size)
{
    bool is_wide = self->type.wide_offsets;
    int width = is_wide ? 8 : 4;
    const char *left = (const char *)buffer(self, 0, 1) + i * width;
    const char *right = (const char *)buffer(self, 1, 1) + j * width;
    *a = ad_offset_at(left, is_wide, 0);
    *b = ad_offset_at(right, is_wide, 0);
    *size = ad_offset_at(left, is_wide, n) - *a;
    return is_wide ? distances_64_equal(left, right, n)
                   : distances_32_equal(left, right, n);
}

static bool
strings_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    int64_t a, b, size;
    return sizes_equal(self, i, j, n, &a, &b, &size) &&
           (size == 0 ||
            bytes_equal(self, (const char *)buffer(self, 0, 2) + a,
                        (const char *)buffer(self, 1, 2) + b, size));
}

static const char *
data_of_view(const pair *self, int side, const char *view)
{
    int64_t size = ad_int_at(view, 4, 0);
    return size <= 12 ? view + 4
                      : (const char *)buffer(self, side,
                                             2 + (int)ad_int_at(view, 4, 2)) +
                            ad_int_at(view, 4, 3);
}

/* Short views that are the same bytes are the common case. The bytes behind a
 * short value need not be equal. */
static bool
views_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    const char *a = (const char *)buffer(self, 0, 1) + 16 * i;
    const char *b = (const char *)buffer(self, 1, 1) + 16 * j;
    for (int64_t done = 0; done < n; done++, a += 16, b += 16) {
        const ad_at_any_u64 *left = (const void *)a, *right = (const void *)b;
        int64_t size = ad_int_at(a, 4, 0);
        if (left[0] == right[0] && left[1] == right[1] && size <= 12) {
            continue;
        }
        if (size != ad_int_at(b, 4, 0) ||
            !bytes_equal(self, data_of_view(self, 0, a),
                         data_of_view(self, 1, b), size)) {
            return false;
        }
    }
    return true;
}

static bool
lists_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    int64_t a, b, size;
    return sizes_equal(self, i, j, n, &a, &b, &size) &&
           rows_equal(self->below, below(self, 0, 0, a), below(self, 1, 0, b),
                      size);
}

static bool
list_views_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    bool is_wide = self->type.wide_offsets;
    for (int64_t done = 0; done < n; done++) {
        int64_t a = ad_offset_at(buffer(self, 0, 1), is_wide, i + done);
        int64_t b = ad_offset_at(buffer(self, 1, 1), is_wide, j + done);
        int64_t size = ad_offset_at(buffer(self, 0, 2), is_wide, i + done);
        if (size != ad_offset_at(buffer(self, 1, 2), is_wide, j + done) ||
            !rows_equal(self->below, below(self, 0, 0, a),
                        below(self, 1, 0, b), size)) {
            return false;
        }
    }
    return true;
}

/* --- structs, unions, runs ----------------------------------------------- */

/* Structs and fixed-size lists. */
static bool
children_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    int64_t size =
        self->type.id == AD_TYPE_FIXED_LIST ? self->type.list_size : 1;
    for (int64_t child = 0; child < self->nodes[0]->n_children; child++) {
        if (!rows_equal(&self->below[child], below(self, 0, child, i * size),
                        below(self, 1, child, j * size), n * size)) {
            return false;
        }
    }
    return true;
}

static bool
unions_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    const int8_t *ids[] = {buffer(self, 0, 0), buffer(self, 1, 0)};
    bool is_dense = self->type.layout == AD_LAYOUT_DENSE_UNION;
    for (int64_t done = 0; done < n; done++) {
        int64_t a = i + done, b = j + done;
        if (ids[0][a] != ids[1][b]) {
            return false;
        }
        int64_t child = self->child_of[ids[0][a]];
        if (is_dense) {
            a = ad_offset_at(buffer(self, 0, 1), false, a);
            b = ad_offset_at(buffer(self, 1, 1), false, b);
        }
        if (!rows_equal(&self->below[child], below(self, 0, child, a),
                        below(self, 1, child, b), 1)) {
            return false;
        }
    }
    return true;
}

static int64_t
end_of_run(const pair *self, int side, int64_t run)
{
    return ad_int_at(buffer(self->below, side, 1),
                     self->below->type.bit_width / 8,
                     below(self, side, 0, run));
}

/* The run that the row is in. */
static int64_t
find_run(const pair *self, int side, int64_t row)
{
    int64_t low = 0;
    int64_t high = self->nodes[side]->children[0]->length - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (end_of_run(self, side, middle) > row) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool
runs_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    int64_t a = find_run(self, 0, i);
    int64_t b = find_run(self, 1, j);
    for (int64_t done = 0; done < n;) {
        int64_t end_a = end_of_run(self, 0, a) - i;
        int64_t end_b = end_of_run(self, 1, b) - j;
        if (!rows_equal(&self->below[1], below(self, 0, 1, a),
                        below(self, 1, 1, b), 1)) {
            return false;
        }
        done = at_most(end_a, end_b);
        a += end_a == done;
        b += end_b == done;
    }
    return true;
}

/* --- nodes --------------------------------------------------------------- */

/* Compares rows that are not null. */
static bool
values_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    if (n <= 0) {
        return true;
    }
    switch (self->type.layout) {
        case AD_LAYOUT_FIXED:
            return fixed_equal(self, i, j, n);
        case AD_LAYOUT_OFFSETS:
            return strings_equal(self, i, j, n);
        case AD_LAYOUT_VIEWS:
            return views_equal(self, i, j, n);
        case AD_LAYOUT_LIST:
            return lists_equal(self, i, j, n);
        case AD_LAYOUT_LIST_VIEW:
            return list_views_equal(self, i, j, n);
        case AD_LAYOUT_VALIDITY:
            return children_equal(self, i, j, n);
        case AD_LAYOUT_SPARSE_UNION:
        case AD_LAYOUT_DENSE_UNION:
            return unions_equal(self, i, j, n);
        case AD_LAYOUT_NONE:
            break;
    }
    return self->type.id != AD_TYPE_RUN_END || runs_equal(self, i, j, n);
}

/* Compares nulls, and what the node itself stores: of a dictionary-encoded
 * node the indices. */
static bool
stored_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    const void *left = validity(self, 0);
    const void *right = validity(self, 1);
    int64_t begin = 0; /* of the valid rows that are not compared yet */
    for (int64_t done = 0; done < n && (left != NULL || right != NULL);
         done += N_BITS) {
        int64_t part = at_most(n - done, N_BITS);
        uint64_t all = ((uint64_t)1 << part) - 1;
        uint64_t valid = left != NULL ? bits_at(left, i + done, part) : all;
        if (valid != (right != NULL ? bits_at(right, j + done, part) : all)) {
            return false;
        }
        for (uint64_t nulls = valid ^ all; nulls != 0; nulls &= nulls - 1) {
            int64_t end = done + __builtin_ctzll(nulls);
            if (!values_equal(self, i + begin, j + begin, end - begin)) {
                return false;
            }
            begin = end + 1;
        }
    }
    return values_equal(self, i + begin, j + begin, n - begin);
}

static int64_t word_at(const pair *self, int side, int64_t row);

static bool
is_null(const pair *self, int side, int64_t row)
{
    const void *bitmap = validity(self, side);
    if (self->type.id == AD_TYPE_NULL ||
        (bitmap != NULL && !ad_bitmap_get(bitmap, row))) {
        return true;
    }
    if (self->type.id == AD_TYPE_RUN_END) {
        int64_t run = find_run(self, side, row);
        return is_null(&self->below[1], side, below(self, side, 1, run));
    }
    return self->dictionary != NULL && word_at(self, side, row) < 0;
}

/* The row of the dictionary that a row refers to; -1 if either is null. */
static int64_t
word_at(const pair *self, int side, int64_t row)
{
    const void *bitmap = validity(self, side);
    int width = self->type.bit_width / 8;
    if (bitmap != NULL && !ad_bitmap_get(bitmap, row)) {
        return -1;
    }
    int64_t word = ad_int_at(buffer(self, side, 1), width, row);
    if (width < 8) { /* an index is not negative, whatever its type */
        word &= ((int64_t)1 << (8 * width)) - 1;
    }
    word += self->dictionary->nodes[side]->offset;
    return is_null(self->dictionary, side, word) ? -1 : word;
}

static bool
words_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    const pair *words = self->dictionary;
    int64_t length = words->nodes[0]->length;
    if (length <= n && length == words->nodes[1]->length &&
        stored_equal(self, i, j, n) &&
        rows_equal(words, words->nodes[0]->offset, words->nodes[1]->offset,
                   length)) {
        return true;
    }
    for (int64_t done = 0; done < n; done++) {
        int64_t a = word_at(self, 0, i + done);
        int64_t b = word_at(self, 1, j + done);
        if ((a < 0) != (b < 0) || (a >= 0 && !rows_equal(words, a, b, 1))) {
            return false;
        }
    }
    return true;
}

static bool
rows_equal(const pair *self, int64_t i, int64_t j, int64_t n)
{
    if (n <= 0) {
        return true;
    }
    if (!go_on(self, BYTES_OF_A_CALL + (uint64_t)n)) {
        return false;
    }
    return self->dictionary != NULL ? words_equal(self, i, j, n)
                                    : stored_equal(self, i, j, n);
}

/* --- entry --------------------------------------------------------------- */

static ad_status
read_node(pair *self, const struct ArrowSchema *schema, ad_error *err)
{
    ad_extension extension;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &self->type, err));
    /* Invalid metadata of an extension do not keep a storage from being
     * compared. */
    self->is_bfloat = self->type.bit_width == 16 &&
                      ad_extension_read(schema, &extension, NULL) == AD_OK &&
                      extension.kind == AD_EXTENSION_DLPACK &&
                      extension.dtype.code == AD_DL_BFLOAT;
    if (self->type.layout == AD_LAYOUT_SPARSE_UNION ||
        self->type.layout == AD_LAYOUT_DENSE_UNION) {
        int8_t ids[128];
        int n;
        AD_RETURN_IF_ERR(ad_type_union_ids(&self->type, ids, &n, err));
        for (int i = 0; i < n; i++) {
            self->child_of[ids[i]] = (uint8_t)i;
        }
    }
    return AD_OK;
}

/* Fills *self, and takes the pairs below from *next on. */
static ad_status
read_pair(pair *self, const struct ArrowSchema *schema,
          const struct ArrowArray *a, const struct ArrowArray *b, pair **next,
          ad_error *err)
{
    pair *children = *next;
    self->nodes[0] = a;
    self->nodes[1] = b;
    self->below = children;
    AD_RETURN_IF_ERR(read_node(self, schema, err));
    *next += schema->n_children + (schema->dictionary != NULL);
    for (int64_t i = 0; i < schema->n_children; i++) {
        AD_RETURN_IF_ERR(read_pair(&children[i], schema->children[i],
                                   a->children[i], b->children[i], next, err));
    }
    if (schema->dictionary != NULL) {
        self->dictionary = &children[schema->n_children];
        AD_RETURN_IF_ERR(read_pair(&children[schema->n_children],
                                   schema->dictionary, a->dictionary,
                                   b->dictionary, next, err));
    }
    return AD_OK;
}

ad_status
ad_array_same_type(const ad_array *a, const ad_array *b, bool *out,
                   ad_error *err)
{
    struct ArrowSchema left = *a->schema.node;
    struct ArrowSchema right = *b->schema.node;
    left.flags |= ARROW_FLAG_NULLABLE;
    right.flags |= ARROW_FLAG_NULLABLE;
    AD_RETURN_IF_ERR(ad_schema_equal(&left, &right, false, false, out, err));
    *out = *out && a->length == b->length &&
           ad_schema_all(&left, &right, ad_extension_equal);
    return AD_OK;
}

static ad_status
refuse_interrupted(const comparison *whole, ad_error *err)
{
    return whole->is_interrupted ? ad_fail(err, AD_ERR_INTERRUPTED, NULL, NULL,
                                           "the comparison was interrupted")
                                 : AD_OK;
}

ad_status
ad_array_rows_equal(const ad_array *a, const ad_array *b, bool *out,
                    ad_error *err)
{
    size_t n = ad_schema_count_nodes(a->schema.node);
    pair *pairs = calloc(n, sizeof(*pairs));
    pair *next = pairs + 1;
    comparison whole = {.n_left = BETWEEN_LOOKS};
    if (pairs == NULL) {
        return ad_fail_memory(err, n * sizeof(*pairs));
    }
    for (size_t i = 0; i < n; i++) {
        pairs[i].whole = &whole;
    }
    ad_status status =
        read_pair(pairs, a->schema.node, a->node, b->node, &next, err);
    if (status == AD_OK) {
        whole.saved = ad_wait_begin();
        *out = rows_equal(pairs, a->offset, b->offset, a->length);
        ad_wait_end(whole.saved);
    }
    free(pairs);
    return status == AD_OK ? refuse_interrupted(&whole, err) : status;
}

/* --- tensors ------------------------------------------------------------- */

#define ELEMENTS_AT_ONCE 65536 /* a multiple of 8: they end at a byte */

/* Lanes of fewer than 8 bits, packed or of a byte each. */
static bool
short_lanes_equal(const ad_tensor *a, const char *left, const ad_tensor *b,
                  const char *right, int64_t n)
{
    int64_t bits = a->dtype.bits;
    int64_t steps[] = {a->flags & AD_TENSOR_SUBBYTE_PADDED ? 8 : bits,
                       b->flags & AD_TENSOR_SUBBYTE_PADDED ? 8 : bits};
    for (int64_t i = 0; i < n * a->dtype.lanes; i++) {
        if (bits_at(left, i * steps[0], bits) !=
            bits_at(right, i * steps[1], bits)) {
            return false;
        }
    }
    return true;
}

/* `n` elements that are one behind another. */
static bool
elements_equal(const ad_tensor *a, const char *left, const ad_tensor *b,
               const char *right, int64_t n)
{
    const ad_dl_dtype dtype = a->dtype;
    bool is_complex = dtype.code == AD_DL_COMPLEX;
    bool is_bfloat = dtype.code == AD_DL_BFLOAT;
    int64_t n_numbers = n * dtype.lanes * (is_complex ? 2 : 1);
    int bits = dtype.bits / (is_complex ? 2 : 1);
    if (is_complex || is_bfloat || dtype.code == AD_DL_FLOAT) {
        switch (bits) {
            case 16:
                return halves_equal((const void *)left, (const void *)right,
                                    n_numbers, is_bfloat ? 0x7f80 : 0x7c00);
            case 32:
                return floats_equal(left, right, n_numbers);
            case 64:
                return doubles_equal(left, right, n_numbers);
            default:
                break;
        }
    }
    return bits < 8 ? short_lanes_equal(a, left, b, right, n)
                    : memcmp(left, right,
                             (size_t)n * ad_dtype_bits(dtype) / 8) == 0;
}

ad_status
ad_tensor_elements_equal(const ad_tensor *a, const ad_tensor *b, bool *out,
                         ad_error *err)
{
    const ad_tensor *sides[] = {a, b};
    const char *at[] = {ad_tensor_address(a), ad_tensor_address(b)};
    int64_t n_left = ad_tensor_size(a);
    comparison whole = {.n_left = BETWEEN_LOOKS, .saved = ad_wait_begin()};
    const pair root = {.whole = &whole};
    *out = true;
    while (n_left > 0 && *out) {
        int64_t n = at_most(n_left, ELEMENTS_AT_ONCE);
        *out = elements_equal(a, at[0], b, at[1], n) &&
               go_on(&root, (uint64_t)n * ad_dtype_bits(a->dtype) / 8);
        for (int side = 0; side < 2; side++) {
            at[side] += n / 8 * ad_element_bits(a->dtype, sides[side]->flags);
        }
        n_left -= n;
    }
    ad_wait_end(whole.saved);
    return refuse_interrupted(&whole, err);
}
