/* Text from outside: format strings, type names, metadata, JSON, UTF-8 and
 * device names. The first byte of an input selects the parser; the text is in
 * an allocation of its exact size, so that AddressSanitizer sees every byte
 * that is read past the end.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/device.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/extension.h"
#include "model/metadata.h"
#include "model/schema.h"
#include "model/type.h"

#define REQUIRE(condition)                                                    \
    do {                                                                      \
        if (!(condition)) {                                                   \
            abort();                                                          \
        }                                                                     \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
print_type(const struct ArrowSchema *node)
{
    ad_error err;
    ad_text out = {0};
    ad_status status = ad_type_print(node, &out, &err);
    (void)status; /* a refusal is fine, a crash is not */
    ad_text_clear(&out);
}

static void
read_format(const char *text)
{
    ad_error err;
    ad_type type;
    int8_t ids[128];
    int n;
    if (ad_type_parse(text, &type, &err) != AD_OK) {
        REQUIRE(err.message[0] != '\0');
        return;
    }
    REQUIRE(type.n_buffers >= 0);
    if (type.layout == AD_LAYOUT_DENSE_UNION ||
        type.layout == AD_LAYOUT_SPARSE_UNION) {
        if (ad_type_union_ids(&type, ids, &n, &err) == AD_OK) {
            REQUIRE(n >= 0 && n <= 128);
        }
    }
    if (type.n_children == 0) {
        struct ArrowSchema node = {.format = text};
        print_type(&node);
    }
}

/* A name that is accepted gives a type that is sound. */
static void
read_type_name(const char *text)
{
    ad_error err;
    ad_schema schema = {0};
    if (ad_schema_from_name(text, &schema, &err) == AD_OK) {
        REQUIRE(ad_schema_validate(schema.node, &err) == AD_OK);
        print_type(schema.node);
        ad_schema_unref(schema);
    }
}

/* What is built from pairs is read back as it was. */
static void
read_metadata(const char *text, size_t size)
{
    ad_error err;
    int32_t half = (int32_t)(size / 2);
    ad_metadata_pair pairs[3] = {
        {AD_EXTENSION_NAME_KEY, (int32_t)strlen(AD_EXTENSION_NAME_KEY), text,
         half},
        {AD_EXTENSION_METADATA_KEY, (int32_t)strlen(AD_EXTENSION_METADATA_KEY),
         text + half, (int32_t)size - half},
        {text, half, text, (int32_t)size}};
    static const char *const names[] = {"arrow.bool8", "arrowdev.dlpack",
                                        "arrow.fixed_shape_tensor"};
    static const char *const formats[] = {"c", "w:2", "l"};
    char *blob;
    if (ad_metadata_build(pairs, 3, &blob, &err) != AD_OK) {
        return;
    }
    ad_metadata_reader reader;
    ad_metadata_pair pair;
    bool done;
    REQUIRE(ad_metadata_begin(&reader, blob, &err) == AD_OK);
    for (int i = 0; i < 3; i++) {
        REQUIRE(ad_metadata_next(&reader, &pair, &done, &err) == AD_OK);
        REQUIRE(!done && pair.value_length == pairs[i].value_length);
        REQUIRE(memcmp(pair.value, pairs[i].value,
                       (size_t)pair.value_length) == 0);
    }
    free(blob);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        pairs[0].value = names[i];
        pairs[0].value_length = (int32_t)strlen(names[i]);
        pairs[1].value = text;
        pairs[1].value_length = (int32_t)size;
        if (ad_metadata_build(pairs, 2, &blob, &err) != AD_OK) {
            return;
        }
        struct ArrowSchema node = {.format = formats[i], .metadata = blob};
        ad_extension extension;
        if (ad_extension_read(&node, &extension, &err) == AD_OK) {
            print_type(&node);
        }
        free(blob);
    }
}

static void
read_json(const char *text, size_t size)
{
    ad_error err;
    ad_json json;
    if (ad_json_enter(&json, text, size, &err) != AD_OK) {
        return;
    }
    for (size_t i = 0; i <= size; i++) {
        char key[AD_JSON_KEY_SIZE];
        int64_t values[4];
        int32_t n;
        bool done;
        if (ad_json_member(&json, key, &done, &err) != AD_OK || done) {
            return;
        }
        ad_status status = key[0] == 'i' ? ad_json_integer(&json, values, &err)
                           : key[0] == 'a'
                               ? ad_json_integers(&json, values, 4, &n, &err)
                           : key[0] == 's' ? ad_json_strings(&json, &n, &err)
                                           : ad_json_skip(&json, &err);
        if (status != AD_OK) {
            return;
        }
    }
    abort(); /* every member takes at least one byte */
}

static void
read_utf8(const char *text, size_t size)
{
    size_t prefix = ad_utf8_prefix(text, size);
    REQUIRE(prefix <= size);
    REQUIRE(ad_utf8_prefix(text, prefix) == prefix);
    REQUIRE(!ad_is_ascii(text, size) || prefix == size);
}

static void
read_device(const char *text)
{
    ad_device device;
    char name[AD_DEVICE_NAME_SIZE];
    if (ad_device_parse(text, &device)) {
        ad_device again;
        REQUIRE(ad_device_parse(ad_device_format(device, name), &again));
        REQUIRE(ad_device_equal(device, again));
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t n = size - 1;
    char *text = malloc(n + 1);
    memcpy(text, data + 1, n);
    text[n] = '\0';
    switch (data[0] % 6) {
        case 0:
            read_format(text);
            break;
        case 1:
            read_type_name(text);
            break;
        case 2:
            read_metadata(text, n);
            break;
        case 3:
            read_json(text, n);
            break;
        case 4:
            read_utf8(text, n);
            break;
        default:
            read_device(text);
    }
    free(text);
    return 0;
}
