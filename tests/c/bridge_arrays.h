/* Arrays for the tests of nulls and masks.
 */
#ifndef AD_TESTS_BRIDGE_ARRAYS_H
#define AD_TESTS_BRIDGE_ARRAYS_H

#include "base/owner.h"
#include "bridge/bridge.h"
#include "compute/bits.h"
#include "model/extension.h"
#include "strided.h"

static ad_error err;

static const ad_device cuda = {ARROW_DEVICE_CUDA, 0};

static const ad_bridge_options plain = {.copy = AD_COPY_IF_NEEDED};
static const ad_bridge_options ignore = {.copy = AD_COPY_NEVER,
                                         .nulls = AD_NULLS_IGNORE};

static inline void
keep_alive(ad_owner *self)
{
}

static const ad_owner_ops keep_alive_ops = {.destroy = keep_alive,
                                            .name = "test"};

/* A schema of one node, over `child` if it is not NULL (which it takes). */
static inline ad_schema
schema_of(const char *format, const ad_extension *extension, ad_schema *child,
          ad_schema *dictionary)
{
    ad_schema out;
    char *metadata = NULL;
    if (extension != NULL) {
        CHECK_INT(ad_extension_metadata(extension, &metadata, &err), AD_OK);
    }
    ad_schema_spec spec = {
        .format = format,
        .metadata = metadata,
        .flags = ARROW_FLAG_NULLABLE,
        .n_children = child != NULL,
        .children = child,
        .dictionary = dictionary,
    };
    CHECK_INT(ad_schema_build(&spec, &out, &err), AD_OK);
    free(metadata);
    if (child != NULL) {
        ad_schema_unref(*child);
    }
    return out;
}

/* Takes schema and child. */
static inline ad_array
array_of(ad_schema schema, int64_t n_buffers, const void *validity,
         const void *data, int64_t offset, int64_t length, int64_t null_count,
         ad_array *child)
{
    const void *buffers[] = {validity, data, data};
    ad_array out;
    ad_array_spec spec = {
        .schema = schema,
        .memory.device = AD_CPU,
        .length = length,
        .offset = offset,
        .null_count = null_count,
        .n_buffers = n_buffers,
        .buffers = buffers,
        .n_children = child != NULL,
        .children = child,
    };
    CHECK_INT(ad_array_build(&spec, &out, &err), AD_OK);
    ad_schema_unref(schema);
    if (child != NULL) {
        ad_array_clear(child);
    }
    return out;
}

static inline ad_array
column(const char *format, const void *validity, const void *data,
       int64_t offset, int64_t length, int64_t null_count)
{
    return array_of(schema_of(format, NULL, NULL, NULL), 2, validity, data,
                    offset, length, null_count, NULL);
}

static inline void
refuses(const ad_array *array, const ad_bridge_options *options,
        ad_status status, const char *reason, const char *hint)
{
    ad_tensor_value out;
    memset(&err, 0, sizeof(err));
    CHECK_INT(ad_tensor_from_array(array, options, &out, &err), status);
    CHECK_STR(err.reason, reason);
    CHECK_HAS(err.hint, hint);
    CHECK(err.message[0] != '\0');
    CHECK_INT(ad_tensor_from_array(array, options, &out, NULL), status);
}

static const uint8_t some_bits[] = {0xb7, 0xff, 0xff, 0xff}; /* 3, 6 unset */
static const uint8_t all_bits[] = {0xff, 0xff, 0xff, 0xff};

#endif /* AD_TESTS_BRIDGE_ARRAYS_H */
