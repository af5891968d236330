#include "model/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* The blob is not aligned, and its numbers are in native byte order. */
static int32_t
read_int32(const char *at)
{
    int32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static char *
write_int32(char *at, int32_t value)
{
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static char *
write_bytes(char *at, const char *bytes, int32_t length)
{
    at = write_int32(at, length);
    if (length > 0) {
        memcpy(at, bytes, (size_t)length);
    }
    return at + length;
}

ad_status
ad_metadata_begin(ad_metadata_reader *reader, const char *metadata,
                  ad_error *err)
{
    *reader = (ad_metadata_reader){0};
    if (metadata == NULL) {
        return AD_OK;
    }
    int32_t n_pairs = read_int32(metadata);
    if (n_pairs < 0 || n_pairs > AD_METADATA_MAX_PAIRS) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "metadata claim %d pairs; 0 to %d are possible",
                       (int)n_pairs, AD_METADATA_MAX_PAIRS);
    }
    reader->cursor = metadata + sizeof(int32_t);
    reader->n_pairs = n_pairs;
    reader->size = sizeof(int32_t);
    return AD_OK;
}

static ad_status
read_bytes(ad_metadata_reader *reader, const char *what, const char **bytes,
           int32_t *length, ad_error *err)
{
    int32_t n = read_int32(reader->cursor);
    if (n < 0 || reader->size + n > AD_METADATA_MAX_SIZE) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "metadata %s %d claims a length of %d; metadata of "
                       "more than %d bytes are refused",
                       what, (int)reader->n_read, (int)n,
                       AD_METADATA_MAX_SIZE);
    }
    *bytes = reader->cursor + sizeof(int32_t);
    *length = n;
    reader->cursor += sizeof(int32_t) + (size_t)n;
    reader->size += (int64_t)sizeof(int32_t) + n;
    return AD_OK;
}

ad_status
ad_metadata_next(ad_metadata_reader *reader, ad_metadata_pair *out, bool *done,
                 ad_error *err)
{
    *done = reader->n_read == reader->n_pairs;
    if (*done) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        read_bytes(reader, "key", &out->key, &out->key_length, err));
    AD_RETURN_IF_ERR(
        read_bytes(reader, "value", &out->value, &out->value_length, err));
    reader->n_read++;
    return AD_OK;
}

ad_status
ad_metadata_size(const char *metadata, int64_t *out, ad_error *err)
{
    ad_metadata_reader reader;
    ad_metadata_pair pair;
    bool done = false;
    AD_RETURN_IF_ERR(ad_metadata_begin(&reader, metadata, err));
    while (!done) {
        AD_RETURN_IF_ERR(ad_metadata_next(&reader, &pair, &done, err));
    }
    *out = reader.size;
    return AD_OK;
}

ad_status
ad_metadata_copy(const char *metadata, char **out, ad_error *err)
{
    int64_t size;
    *out = NULL;
    AD_RETURN_IF_ERR(ad_metadata_size(metadata, &size, err));
    if (size == 0) {
        return AD_OK;
    }
    *out = malloc((size_t)size);
    if (*out == NULL) {
        return ad_fail_memory(err, (size_t)size);
    }
    memcpy(*out, metadata, (size_t)size);
    return AD_OK;
}

ad_status
ad_metadata_find(const char *metadata, const char *key, ad_metadata_pair *out,
                 bool *found, ad_error *err)
{
    ad_metadata_reader reader;
    bool done = false;
    size_t length = strlen(key);
    *found = false;
    AD_RETURN_IF_ERR(ad_metadata_begin(&reader, metadata, err));
    for (;;) {
        AD_RETURN_IF_ERR(ad_metadata_next(&reader, out, &done, err));
        if (done) {
            return AD_OK;
        }
        if ((size_t)out->key_length == length &&
            memcmp(out->key, key, length) == 0) {
            *found = true;
            return AD_OK;
        }
    }
}

ad_status
ad_metadata_build(const ad_metadata_pair *pairs, int32_t n_pairs, char **out,
                  ad_error *err)
{
    int64_t size = sizeof(int32_t);
    for (int32_t i = 0; i < n_pairs; i++) {
        size += 2 * (int64_t)sizeof(int32_t);
        size += (int64_t)pairs[i].key_length + pairs[i].value_length;
    }
    /* Metadata that cannot be read back must not be written. */
    if (n_pairs > AD_METADATA_MAX_PAIRS || size > AD_METADATA_MAX_SIZE) {
        char pair_count[AD_COUNT_SIZE];
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "metadata of %s in %lld bytes are too large",
                       ad_count_text(n_pairs, "pair", "pairs", pair_count),
                       (long long)size);
    }
    char *blob = malloc((size_t)size);
    if (blob == NULL) {
        return ad_fail_memory(err, (size_t)size);
    }
    char *at = write_int32(blob, n_pairs);
    for (int32_t i = 0; i < n_pairs; i++) {
        at = write_bytes(at, pairs[i].key, pairs[i].key_length);
        at = write_bytes(at, pairs[i].value, pairs[i].value_length);
    }
    *out = blob;
    return AD_OK;
}

/* --- comparison --------------------------------------------------------- */

static int
compare_bytes(const char *a, int32_t a_length, const char *b, int32_t b_length)
{
    int32_t shorter = a_length < b_length ? a_length : b_length;
    int order = shorter > 0 ? memcmp(a, b, (size_t)shorter) : 0;
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int
compare_pairs(const void *left, const void *right)
{
    const ad_metadata_pair *a = left;
    const ad_metadata_pair *b = right;
    int order = compare_bytes(a->key, a->key_length, b->key, b->key_length);
    if (order != 0) {
        return order;
    }
    return compare_bytes(a->value, a->value_length, b->value, b->value_length);
}

static ad_status
read_pairs(const char *metadata, ad_metadata_pair *out, ad_error *err)
{
    ad_metadata_reader reader;
    bool done = false;
    AD_RETURN_IF_ERR(ad_metadata_begin(&reader, metadata, err));
    for (int32_t i = 0; i < reader.n_pairs; i++) {
        AD_RETURN_IF_ERR(ad_metadata_next(&reader, &out[i], &done, err));
    }
    return AD_OK;
}

/* Compares blobs of `n` pairs each. Sorting bounds the work: a malicious blob
 * may have 65536 pairs, too many to search each one in the other blob. */
static ad_status
equal_sorted(const char *a, const char *b, int32_t n, bool *out, ad_error *err)
{
    size_t nbytes = 2 * (size_t)n * sizeof(ad_metadata_pair);
    ad_metadata_pair *pairs = malloc(nbytes);
    if (pairs == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_status status = read_pairs(a, pairs, err);
    if (status == AD_OK) {
        status = read_pairs(b, pairs + n, err);
    }
    if (status == AD_OK) {
        qsort(pairs, (size_t)n, sizeof(*pairs), compare_pairs);
        qsort(pairs + n, (size_t)n, sizeof(*pairs), compare_pairs);
        *out = true;
        for (int32_t i = 0; i < n && *out; i++) {
            *out = compare_pairs(&pairs[i], &pairs[n + i]) == 0;
        }
    }
    free(pairs);
    return status;
}

ad_status
ad_metadata_equal(const char *a, const char *b, bool *out, ad_error *err)
{
    int64_t a_size, b_size;
    if (a == b) {
        *out = true;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_metadata_size(a, &a_size, err));
    AD_RETURN_IF_ERR(ad_metadata_size(b, &b_size, err));
    int32_t n = a != NULL ? read_int32(a) : 0;
    if (n != (b != NULL ? read_int32(b) : 0)) {
        *out = false;
        return AD_OK;
    }
    /* NULL and a blob without pairs are equal. */
    *out = n == 0 || (a_size == b_size && memcmp(a, b, (size_t)a_size) == 0);
    if (*out || a_size != b_size) {
        return AD_OK;
    }
    return equal_sorted(a, b, n, out, err);
}
