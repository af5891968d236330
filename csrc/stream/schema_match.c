/* Checks that the batches of a stream match its schema. */
#include <string.h>

#include "stream/array_stream.h"
#include "model/extension.h"
#include "model/type.h"

/* Describes a difference that the printed type does not show: nullability of
 * the root, or the metadata of an extension. */
static const char *
hidden_difference(const struct ArrowSchema *node,
                  const struct ArrowSchema *other)
{
    bool is_nullable = node->flags & ARROW_FLAG_NULLABLE;
    bool is_other_nullable = other->flags & ARROW_FLAG_NULLABLE;
    if (is_nullable != is_other_nullable) {
        return is_nullable ? " (nullable)" : " (not nullable)";
    }
    return ad_schema_all(node, other, ad_extension_equal)
               ? ""
               : ", with other extension metadata";
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
    if (is_equal && ad_schema_all(found, wanted, ad_extension_equal)) {
        return AD_OK;
    }
    ad_status status = ad_type_print(found, &from, err);
    if (status == AD_OK) {
        status = ad_type_print(wanted, &to, err);
    }
    if (status == AD_OK) {
        bool are_alike =
            strcmp(ad_text_string(&from), ad_text_string(&to)) == 0;
        status = ad_fail(err, AD_ERR_EXCHANGE, "schema", hint,
                         "%s is %.200s%s, but %s is %.200s%s", what,
                         ad_text_string(&from),
                         are_alike ? hidden_difference(found, wanted) : "",
                         whole, ad_text_string(&to),
                         are_alike ? hidden_difference(wanted, found) : "");
    }
    ad_text_clear(&from);
    ad_text_clear(&to);
    return status;
}
