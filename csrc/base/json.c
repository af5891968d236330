#include "base/json.h"

#include <string.h>

static ad_status
unexpected(ad_json *json, const char *expected, ad_error *err)
{
    long long position = json->cursor - json->start;
    if (json->cursor == json->end) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "JSON ends at position %lld instead of %s", position,
                       expected);
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "JSON has byte 0x%02x at position %lld instead of %s",
                   (unsigned char)*json->cursor, position, expected);
}

static ad_status
bad_at(ad_json *json, const char *at, const char *problem, ad_error *err)
{
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "JSON value at position %lld %s",
                   (long long)(at - json->start), problem);
}

/* The next byte, or NUL at the end. A NUL in the text is invalid anyway. */
static char
peek(const ad_json *json)
{
    return json->cursor < json->end ? *json->cursor : '\0';
}

static void
skip_blanks(ad_json *json)
{
    for (char c = peek(json); c == ' ' || c == '\t' || c == '\n' || c == '\r';
         c = peek(json)) {
        json->cursor++;
    }
}

/* Skip blanks, then skip `c` and return true where `c` comes next. */
static bool
take(ad_json *json, char c)
{
    skip_blanks(json);
    if (peek(json) != c) {
        return false;
    }
    json->cursor++;
    return true;
}

/* --- strings ------------------------------------------------------------ */

static int
hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read an escape after its backslash. A character beyond ASCII becomes '?':
 * no known key contains one, and other strings are not kept. */
static ad_status
read_escape(ad_json *json, char *out, ad_error *err)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    char c = peek(json);
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    if (letter != NULL) {
        *out = meanings[letter - letters];
        json->cursor++;
        return AD_OK;
    }
    if (c != 'u') {
        return unexpected(json, "an escape", err);
    }
    int code = 0;
    for (int i = 0; i < 4; i++) {
        json->cursor++;
        int digit = hex_digit(peek(json));
        if (digit < 0) {
            return unexpected(json, "a hexadecimal digit", err);
        }
        code = code * 16 + digit;
    }
    json->cursor++;
    *out = code > 0 && code < 128 ? (char)code : '?';
    return AD_OK;
}

/* `key` may be NULL. A longer string is truncated. The result is still longer
 * than any known key, because none fills AD_JSON_KEY_SIZE. */
static ad_status
read_string(ad_json *json, char *key, ad_error *err)
{
    size_t n = 0;
    if (!take(json, '"')) {
        return unexpected(json, "a string", err);
    }
    while (peek(json) != '"') {
        char c = peek(json);
        if ((unsigned char)c < 0x20) {
            return unexpected(json, "the end of a string", err);
        }
        json->cursor++;
        if (c == '\\') {
            AD_RETURN_IF_ERR(read_escape(json, &c, err));
        }
        if (key != NULL && n < AD_JSON_KEY_SIZE - 1) {
            key[n++] = c;
        }
    }
    json->cursor++;
    if (key != NULL) {
        key[n] = '\0';
    }
    return AD_OK;
}

/* --- values ------------------------------------------------------------- */

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

ad_status
ad_json_integer(ad_json *json, int64_t *out, ad_error *err)
{
    skip_blanks(json);
    const char *start = json->cursor;
    bool is_negative = take(json, '-');
    /* Accumulated as a negative number, because INT64_MIN has no positive
     * counterpart. */
    int64_t value = 0;
    if (!is_digit(peek(json))) {
        return unexpected(json, "an integer", err);
    }
    if (peek(json) == '0' && json->end - json->cursor > 1 &&
        is_digit(json->cursor[1])) {
        return bad_at(json, start, "has a leading zero", err);
    }
    for (; is_digit(peek(json)); json->cursor++) {
        int digit = *json->cursor - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) {
            return bad_at(json, start, "does not fit 64 bits", err);
        }
    }
    char next = peek(json);
    if (next == '.' || next == 'e' || next == 'E') {
        return bad_at(json, start, "is not an integer", err);
    }
    if (!is_negative && value == INT64_MIN) {
        return bad_at(json, start, "does not fit 64 bits", err);
    }
    *out = is_negative ? value : -value;
    return AD_OK;
}

/* Read the comma or the end after an item of an array or object. */
static ad_status
after_item(ad_json *json, char close, bool *done, ad_error *err)
{
    *done = take(json, close);
    if (*done || take(json, ',')) {
        return AD_OK;
    }
    return unexpected(json, close == ']' ? "',' or ']'" : "',' or '}'", err);
}

ad_status
ad_json_integers(ad_json *json, int64_t *out, int32_t capacity, int32_t *n,
                 ad_error *err)
{
    skip_blanks(json);
    const char *start = json->cursor;
    int32_t count = 0;
    if (!take(json, '[')) {
        return unexpected(json, "an array of integers", err);
    }
    for (bool done = take(json, ']'); !done; count++) {
        if (count == capacity) {
            return bad_at(json, start, "has too many items", err);
        }
        AD_RETURN_IF_ERR(ad_json_integer(json, &out[count], err));
        AD_RETURN_IF_ERR(after_item(json, ']', &done, err));
    }
    *n = count;
    return AD_OK;
}

ad_status
ad_json_strings(ad_json *json, int32_t *n, ad_error *err)
{
    int32_t count = 0;
    if (!take(json, '[')) {
        return unexpected(json, "an array of strings", err);
    }
    for (bool done = take(json, ']'); !done; count++) {
        AD_RETURN_IF_ERR(read_string(json, NULL, err));
        AD_RETURN_IF_ERR(after_item(json, ']', &done, err));
    }
    *n = count;
    return AD_OK;
}

static ad_status
skip_digits(ad_json *json, ad_error *err)
{
    if (!is_digit(peek(json))) {
        return unexpected(json, "a digit", err);
    }
    while (is_digit(peek(json))) {
        json->cursor++;
    }
    return AD_OK;
}

static ad_status
skip_number(ad_json *json, ad_error *err)
{
    take(json, '-');
    AD_RETURN_IF_ERR(skip_digits(json, err));
    if (peek(json) == '.') {
        json->cursor++;
        AD_RETURN_IF_ERR(skip_digits(json, err));
    }
    if (peek(json) == 'e' || peek(json) == 'E') {
        json->cursor++;
        if (peek(json) == '+' || peek(json) == '-') {
            json->cursor++;
        }
        AD_RETURN_IF_ERR(skip_digits(json, err));
    }
    return AD_OK;
}

static ad_status
skip_word(ad_json *json, const char *word, ad_error *err)
{
    size_t n = strlen(word);
    if ((size_t)(json->end - json->cursor) < n ||
        memcmp(json->cursor, word, n) != 0) {
        return unexpected(json, "a value", err);
    }
    json->cursor += n;
    return AD_OK;
}

static ad_status skip_value(ad_json *json, int depth, ad_error *err);

static ad_status
skip_items(ad_json *json, char close, int depth, ad_error *err)
{
    if (depth == AD_JSON_MAX_DEPTH) {
        return bad_at(json, json->cursor, "is nested too deeply", err);
    }
    json->cursor++;
    for (bool done = take(json, close); !done;) {
        if (close == '}') {
            AD_RETURN_IF_ERR(read_string(json, NULL, err));
            if (!take(json, ':')) {
                return unexpected(json, "':'", err);
            }
        }
        AD_RETURN_IF_ERR(skip_value(json, depth + 1, err));
        AD_RETURN_IF_ERR(after_item(json, close, &done, err));
    }
    return AD_OK;
}

static ad_status
skip_value(ad_json *json, int depth, ad_error *err)
{
    skip_blanks(json);
    switch (peek(json)) {
        case '{':
            return skip_items(json, '}', depth, err);
        case '[':
            return skip_items(json, ']', depth, err);
        case '"':
            return read_string(json, NULL, err);
        case 't':
            return skip_word(json, "true", err);
        case 'f':
            return skip_word(json, "false", err);
        case 'n':
            return skip_word(json, "null", err);
        default:
            if (peek(json) != '-' && !is_digit(peek(json))) {
                return unexpected(json, "a value", err);
            }
            return skip_number(json, err);
    }
}

ad_status
ad_json_skip(ad_json *json, ad_error *err)
{
    return skip_value(json, 1, err);
}

/* --- the object --------------------------------------------------------- */

ad_status
ad_json_enter(ad_json *json, const char *text, size_t length, ad_error *err)
{
    *json = (ad_json){text, text, text + length, true};
    return take(json, '{') ? AD_OK : unexpected(json, "an object", err);
}

ad_status
ad_json_member(ad_json *json, char key[AD_JSON_KEY_SIZE], bool *done,
               ad_error *err)
{
    if (json->is_first) {
        *done = take(json, '}');
    } else {
        AD_RETURN_IF_ERR(after_item(json, '}', done, err));
    }
    json->is_first = false;
    if (*done) {
        skip_blanks(json);
        return json->cursor == json->end
                   ? AD_OK
                   : unexpected(json, "the end of the text", err);
    }
    AD_RETURN_IF_ERR(read_string(json, key, err));
    return take(json, ':') ? AD_OK : unexpected(json, "':'", err);
}
