/* Checks fixed-width values: dictionary indices, decimals, dates, times. */
#include <string.h>

#include "validate/rows.h"

/* --- valid rows ---------------------------------------------------------- */

/* A rule for single values. */
typedef struct rule {
    uint64_t limit;   /* integers: the largest valid value */
    uint64_t high[4]; /* decimals: 10 to the precision, lowest word first */
    bool (*hold)(const struct rule *rule, const void *values, int64_t n);
    ad_status (*fail)(const struct rule *rule, const ad_check *check,
                      int64_t row, const void *value, ad_error *err);
} rule;

/* The value of a null row may break the rule. */
static ad_status
check_rule_block(ad_check *check, const ad_block *block, void *context,
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
        AD_RETURN_IF_ERR(ad_row_is_valid(check, row, &is_valid, err));
        if (is_valid) {
            return rule->fail(rule, check, row, value, err);
        }
    }
    return AD_OK;
}

/* --- integers up to a limit ---------------------------------------------- */

/* Compares as unsigned integers, so that negative values exceed the limit. */
#define DEFINE_HOLD(bits)                                                     \
    static inline __attribute__((always_inline)) bool are_within_##bits(      \
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
        return AD_BY_BLOCK(are_within_##bits, n, values, rule->limit);        \
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
fail_index(const rule *rule, const ad_check *check, int64_t row,
           const void *value, ad_error *err)
{
    int width = check->first.width;
    int64_t found = ad_int_at(value, width, 0);
    int64_t n = check->array->node->dictionary->length;
    int unused = 64 - 8 * width;
    if (is_signed(&check->type)) {
        return ad_fail_row(err, row,
                           "index %" PRId64 " into a dictionary of %" PRId64
                           " values",
                           found, n);
    }
    return ad_fail_row(
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
check_indices(ad_check *check, ad_error *err)
{
    int bits = check->type.bit_width;
    int64_t n = check->array->node->dictionary->length;
    uint64_t most = UINT64_MAX >> (64 - bits + is_signed(&check->type));
    rule rule = {.fail = fail_index};
    set_limit(&rule, bits, (uint64_t)n - 1 < most ? (uint64_t)n - 1 : most);
    if (n == 0) {
        rule.hold = hold_none;
    }
    return ad_check_blocks(check, check_rule_block, &rule, err);
}

/* --- times and dates ----------------------------------------------------- */

static ad_status
fail_time(const rule *rule, const ad_check *check, int64_t row,
          const void *value, ad_error *err)
{
    return ad_fail_row(err, row,
                       "the time is %" PRId64 ", expected 0 to %" PRIu64
                       ", the end of the day",
                       ad_int_at(value, check->first.width, 0), rule->limit);
}

static ad_status
check_times(ad_check *check, ad_error *err)
{
    char unit = check->type.unit;
    uint64_t per_second = unit == 's'   ? 1
                          : unit == 'm' ? 1000
                          : unit == 'u' ? 1000000
                                        : 1000000000;
    rule rule = {.fail = fail_time};
    set_limit(&rule, check->type.bit_width, 86400 * per_second - 1);
    return ad_check_blocks(check, check_rule_block, &rule, err);
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
fail_days(const rule *rule, const ad_check *check, int64_t row,
          const void *value, ad_error *err)
{
    return ad_fail_row(err, row,
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
fail_decimal(const rule *rule, const ad_check *check, int64_t row,
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
    return ad_fail_row(err, row,
                       "%s%s (without its scale) has more than %d digits",
                       is_negative ? "-" : "", at, check->type.precision);
}

static ad_status
check_decimals(ad_check *check, ad_error *err)
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
    return ad_check_blocks(check, check_rule_block, &rule, err);
}

/* --- entry --------------------------------------------------------------- */

ad_status
ad_check_values(ad_check *check, ad_error *err)
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
            return ad_check_blocks(check, check_rule_block, &days, err);
        }
        case AD_TYPE_DECIMAL:
            return check_decimals(check, err);
        default:
            return AD_OK; /* every bit pattern is valid */
    }
}
