/* One type for all batches of a stream. */
#include <string.h>

#include "core/array_stream.h"
#include "core/extension.h"
#include "core/metadata.h"
#include "core/type.h"

/* The nodes say the same under this key, or nothing. */
static bool
same_entry(const struct ArrowSchema *a, const struct ArrowSchema *b,
           const char *key)
{
    ad_metadata_pair in_a, in_b;
    bool has_a, has_b;
    if (ad_metadata_find(a->metadata, key, &in_a, &has_a, NULL) != AD_OK ||
        ad_metadata_find(b->metadata, key, &in_b, &has_b, NULL) != AD_OK) {
        return false;
    }
    return has_a == has_b &&
           (!has_a ||
            (in_a.value_length == in_b.value_length &&
             memcmp(in_a.value, in_b.value, (size_t)in_a.value_length) == 0));
}

/* Of trees with the same layout. */
static bool
same_extensions(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
    if (!same_entry(a, b, AD_EXTENSION_NAME_KEY) ||
        !same_entry(a, b, AD_EXTENSION_METADATA_KEY)) {
        return false;
    }
    for (int64_t i = 0; i < a->n_children; i++) {
        if (!same_extensions(a->children[i], b->children[i])) {
            return false;
        }
    }
    return a->dictionary == NULL ||
           same_extensions(a->dictionary, b->dictionary);
}

ad_status
ad_array_stream_require_schema(const struct ArrowSchema *found,
                               const struct ArrowSchema *wanted,
                               const char *what, const char *whole,
                               const char *hint, ad_error *err)
{
    bool is_equal = found == wanted;
    ad_text from = {0};
    ad_text to = {0};
    if (is_equal) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_schema_equal(found, wanted, false, false, &is_equal, err));
    if (is_equal && same_extensions(found, wanted)) {
        return AD_OK;
    }
    ad_status status = ad_type_print(found, &from, err);
    if (status == AD_OK) {
        status = ad_type_print(wanted, &to, err);
    }
    if (status == AD_OK) {
        status = ad_fail(err, AD_ERR_EXCHANGE, "schema", hint,
                         "%s is %.200s, but %s is %.200s", what,
                         ad_text_string(&from), whole, ad_text_string(&to));
    }
    ad_text_clear(&from);
    ad_text_clear(&to);
    return status;
}
