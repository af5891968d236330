/* A hash table of words, which are numbered in the order of their first
 * appearance. */
#include "compute/unify.h"

#include <stdlib.h>
#include <string.h>

#include "base/unaligned.h"
#include "compute/bits.h"

/* --- words --------------------------------------------------------------- */

typedef struct word {
    const char *data;
    int64_t size; /* -1: null */
} word;

static bool
read_string(const ad_array *values, int width, int64_t row, word *out)
{
    const struct ArrowArray *node = values->node;
    const char *data = node->buffers[2];
    int64_t first = ad_int_at(node->buffers[1], width, row);
    int64_t end = ad_int_at(node->buffers[1], width, row + 1);
    int64_t last =
        ad_int_at(node->buffers[1], width, node->offset + node->length);
    bool is_valid = first >= 0 && first <= end && end <= last &&
                    (data != NULL || first == end);
    *out = (word){is_valid && end > first ? data + first : NULL, end - first};
    return is_valid;
}

static bool
read_view(const ad_array *values, int64_t row, word *out)
{
    const struct ArrowArray *node = values->node;
    const char *view = (const char *)node->buffers[1] + 16 * row;
    const int64_t *sizes = node->buffers[node->n_buffers - 1];
    int64_t size = ad_int_at(view, 4, 0);
    int64_t buffer = ad_int_at(view, 4, 2);
    int64_t from = ad_int_at(view, 4, 3);
    *out = (word){view + 4, size};
    if (size <= 12) {
        return size >= 0;
    }
    if (buffer < 0 || buffer >= node->n_buffers - 3 || from < 0 ||
        from + size > ad_int_at(sizes, 8, buffer)) {
        return false;
    }
    out->data = (const char *)node->buffers[2 + buffer] + from;
    return true;
}

/* Returns false for invalid offsets and views: joining the values reports
 * them. */
static bool
read_word(const ad_array *values, const ad_type *type, int64_t i, word *out)
{
    static const char bits[] = {0, 1};
    const void *validity =
        ad_array_null_count(values) != 0 ? values->node->buffers[0] : NULL;
    int64_t row = values->offset + i;
    if (validity != NULL && !ad_bitmap_get(validity, row)) {
        *out = (word){NULL, -1};
        return true;
    }
    if (type->layout == AD_LAYOUT_OFFSETS) {
        return read_string(values, type->wide_offsets ? 8 : 4, row, out);
    }
    if (type->layout == AD_LAYOUT_VIEWS) {
        return read_view(values, row, out);
    }
    const char *data = values->node->buffers[1];
    int64_t size = type->bit_width / 8;
    *out = type->bit_width == 1 ? (word){&bits[ad_bitmap_get(data, row)], 1}
                                : (word){data + row * size, size};
    return true;
}

static uint64_t
hash_of(word key)
{
    uint64_t hash = (uint64_t)key.size + 0x9e3779b97f4a7c15;
    for (int64_t i = 0; i < key.size; i += 8) {
        uint64_t part = 0;
        if (key.size - i >= 8) {
            memcpy(&part, key.data + i, 8); /* inlined */
        } else {
            memcpy(&part, key.data + i, (size_t)(key.size - i));
        }
        hash = (hash ^ part) * 0xff51afd7ed558ccd;
        hash ^= hash >> 32;
    }
    return hash;
}

/* --- unified dictionaries ------------------------------------------------ */

/* A hash table with open addressing: slots hold 1 + the number of a word. */
typedef struct table {
    word *words;
    int64_t n;
    int64_t *slots;
    uint64_t mask;
} table;

/* The number of the word, which is added if it is new. `slot` is the first one
 * for its hash. */
static int64_t
number_of(table *self, word key, uint64_t slot)
{
    for (; self->slots[slot] != 0; slot = (slot + 1) & self->mask) {
        word other = self->words[self->slots[slot] - 1];
        if (other.size == key.size &&
            (key.size <= 0 ||
             memcmp(other.data, key.data, (size_t)key.size) == 0)) {
            return self->slots[slot] - 1;
        }
    }
    self->words[self->n] = key;
    self->slots[slot] = ++self->n;
    return self->n - 1;
}

#define N_AHEAD 32

/* Numbers words [from, from + n) of a part, n <= N_AHEAD. A large table is
 * slow because of cache misses, so the misses of all these words are started
 * before the first one is needed. Returns false for a word that cannot be
 * read. */
static bool
number_some(const ad_array *part, const ad_type *type, int64_t from, int64_t n,
            table *words, int64_t *numbers)
{
    word keys[N_AHEAD];
    uint64_t slots[N_AHEAD];
    for (int64_t i = 0; i < n; i++) {
        if (!read_word(part, type, from + i, &keys[i])) {
            return false;
        }
        slots[i] = hash_of(keys[i]) & words->mask;
        __builtin_prefetch(&words->slots[slots[i]]);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t number = words->slots[slots[i]];
        if (number != 0) {
            __builtin_prefetch(&words->words[number - 1]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        numbers[from + i] = number_of(words, keys[i], slots[i]);
    }
    return true;
}

static bool
is_rising(const int64_t *numbers, int64_t n)
{
    int64_t i = 1;
    while (i < n && numbers[i] > numbers[i - 1]) {
        i++;
    }
    return i >= n;
}

/* Numbers the words of all parts. A word is new where its number is the count
 * of words so far. */
static ad_status
number_words(const struct ArrowSchema *schema, const ad_array *views,
             size_t n_views, const ad_type *type, table *words,
             int64_t *numbers, bool *is_possible, ad_error *err)
{
    const bool is_ordered = schema->flags & ARROW_FLAG_DICTIONARY_ORDERED;
    for (size_t v = 0; v < n_views; v++) {
        const ad_array part = ad_dictionary_of(&views[v]);
        int64_t length = part.length;
        for (int64_t i = 0; i < length; i += N_AHEAD) {
            int64_t n = length - i < N_AHEAD ? length - i : N_AHEAD;
            if (!number_some(&part, type, i, n, words, numbers)) {
                *is_possible = false;
                return AD_OK;
            }
        }
        if (is_ordered && !is_rising(numbers, length)) {
            return ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                           "read the batches one by one with "
                           "arrowdev.array_stream()",
                           "the dictionaries are ordered, and have their "
                           "values in different orders");
        }
        numbers += length;
    }
    *is_possible = true;
    return AD_OK;
}

/* Sets *parts to the ranges of new words: at most one for each word. */
static ad_status
find_new(const ad_array *views, size_t n_views, const int64_t *numbers,
         int64_t n_words, ad_array **parts, size_t *n_parts, ad_error *err)
{
    int64_t n_new = 0;
    *n_parts = 0;
    *parts = malloc(((size_t)n_words + 1) * sizeof(**parts));
    if (*parts == NULL) {
        return ad_fail_memory(err, (size_t)n_words * sizeof(**parts));
    }
    for (size_t v = 0; v < n_views; v++) {
        const ad_array *view = &views[v];
        int64_t n = view->node->dictionary->length;
        for (int64_t i = 0; i < n; i++) {
            int64_t first = i;
            for (; i < n && numbers[i] == n_new; i++) {
                n_new++;
            }
            if (i > first) {
                (*parts)[(*n_parts)++] =
                    ad_array_borrow_below(view, -1, first, i - first);
            }
        }
        numbers += n;
    }
    if (*n_parts == 0) { /* no words at all */
        (*parts)[(*n_parts)++] = ad_dictionary_of(&views[0]);
    }
    return AD_OK;
}

void
ad_unified_free(ad_unified *self)
{
    free(self->numbers);
    free(self->parts);
    *self = (ad_unified){0};
}

ad_status
ad_unify(const struct ArrowSchema *schema, const ad_array *views,
         size_t n_views, const ad_type *type, ad_unified *out, ad_error *err)
{
    table words = {.mask = 15};
    size_t n = 0;
    bool is_possible = false;
    *out = (ad_unified){0};
    bool has_words = type->layout == AD_LAYOUT_OFFSETS ||
                     type->layout == AD_LAYOUT_VIEWS ||
                     (type->layout == AD_LAYOUT_FIXED &&
                      (type->bit_width % 8 == 0 || type->bit_width == 1));
    if (!has_words || schema->dictionary->dictionary != NULL) {
        return AD_OK;
    }
    for (size_t v = 0; v < n_views; v++) {
        n += (size_t)views[v].node->dictionary->length;
    }
    while (words.mask < 2 * n) {
        words.mask = 2 * words.mask + 1;
    }
    out->numbers = malloc((n + 1) * sizeof(*out->numbers));
    words.words = malloc((n + 1) * sizeof(*words.words));
    words.slots = calloc(words.mask + 1, sizeof(*words.slots));
    ad_status status =
        out->numbers == NULL || words.words == NULL || words.slots == NULL
            ? ad_fail_memory(err, (words.mask + 1) * sizeof(*words.slots))
            : number_words(schema, views, n_views, type, &words, out->numbers,
                           &is_possible, err);
    if (status == AD_OK && is_possible) {
        status = find_new(views, n_views, out->numbers, words.n, &out->parts,
                          &out->n_parts, err);
    }
    free(words.words);
    free(words.slots);
    if (status != AD_OK || !is_possible) {
        ad_unified_free(out);
    }
    return status;
}
